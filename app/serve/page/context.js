/* context.js - which of a chat's messages are sent, once it outgrows the model's context.
 *
 * chat.from is the first message that is sent: the oldest turns, those before it, are forgotten, but still shown.
 * Invariant: it is 0, or the index of a user's message. The context is counted in tokens, which only the server can do: it
 * refuses what is too long, and tells with each answer what that took.
 */
"use strict";

const Context = (() => {
  const LONGEST_ROOM = 1024, CHARACTERS = 3; /* of an answer, in tokens; of a token, at least */

  function first(chat) {
    const from = chat.from;
    return Number.isInteger(from) && from > 0 && chat.messages[from]?.role === "user" ? from : 0;
  }

  function characters(messages) {
    return messages.reduce((sum, m) => sum + m.content.length, 0);
  }

  /* Forgets the oldest turns, a quarter of what was sent and never the last turn; false if there is no other. */
  function forget(chat) {
    const from = first(chat), { messages } = chat;
    const turns = messages.map((m, i) => (m.role === "user" && i > from ? i : 0)).filter(Boolean);
    if (!turns.length) return false;
    const most = 0.75 * characters(messages.slice(from));
    chat.from = turns.find((i) => characters(messages.slice(i)) <= most) ?? turns[turns.length - 1];
    return true;
  }

  /* Whether the server's last count says that the messages would fill the context, or leave hardly any room for an answer. */
  function isFull(chat, nCtx, maxTokens) {
    const from = first(chat);
    const last = chat.messages.findLastIndex((m) => m.timings && m.role === "assistant");
    const { timings: t, from: then, content, reasoning } = chat.messages[last] ?? {};
    if (!nCtx || last < from || then !== from || !t.prompt_n) return false;
    const kept = content.length / (content.length + (reasoning?.length ?? 0) || 1);
    const used = t.prompt_n + (t.cache_n ?? 0) + (t.predicted_n ?? 0) * kept;
    const room = Math.min(nCtx / 4, LONGEST_ROOM, maxTokens > 0 ? maxTokens : LONGEST_ROOM);
    return used + characters(chat.messages.slice(last + 1)) / CHARACTERS > nCtx - room;
  }

  /* What was forgotten, in words; `where` says where those turns are on the screen. "" if all turns are sent. */
  function words(chat, nCtx, where) {
    const n = chat.messages.slice(0, first(chat)).filter((m) => m.role === "user").length;
    if (!n) return "";
    return "The context" + (nCtx ? " of " + nCtx.toLocaleString("en") + " tokens" : "") + " is full: the " +
      (n === 1 ? "oldest turn" + where + " is" : n + " oldest turns" + where + " are") + " forgotten.";
  }

  /* The line above the first message that is sent. */
  const line = (chat, nCtx) => words(chat, nCtx, ", above this line,");
  /* The same above the message box, which is in view wherever the user has scrolled to. */
  const notice = (chat, nCtx) => words(chat, nCtx, "");

  return { first, forget, isFull, line, notice };
})();
