/* errors.js - what a person is told when a request fails: what happened, and what to do about it. */
"use strict";

/* message is for people. tooLong: fewer turns or a shorter message would do. settings: the remedy is in the settings. */
class Failure extends Error {
  constructor(text, { tooLong = false, settings = false } = {}) {
    super(text);
    this.tooLong = tooLong;
    this.settings = settings;
  }
}

const Errors = (() => {
  const NAMES = { temperature: "Temperature", top_p: "Top p", top_k: "Top k", min_p: "Min p", max_tokens: "Longest answer",
                  seed: "Seed" };
  const UNREACHABLE = "The server cannot be reached. Is it still running? Try again once it is.";

  /* The server's own sentence, as the end of another one; "" if there is none. */
  function reason(json) {
    const text = json?.error?.message ?? json?.error ?? json?.detail ?? json?.message;
    return typeof text === "string" && text.trim() ? text.trim().replace(/[.\s]+$/, "").slice(0, 600) : "";
  }

  function told(text, why) {
    return why ? text + ": " + why + "." : text + ".";
  }

  /* Describes an error that came as an answer: its status (0 if it came within a stream), its JSON or null. */
  function of(status, json, { hasKey = false, model = "" } = {}) {
    const why = reason(json), code = json?.error?.code, param = json?.error?.param;
    if (code === "context_length_exceeded" || status === 413 || why.includes("(--max-images)"))
      return new Failure(told("The message is too long", why), { tooLong: true });
    if (status === 401)
      return new Failure(hasKey ? "The server does not know this API key. Put the right key into Settings."
                                : "The server asks for an API key. Put the key into Settings.", { settings: true });
    if (NAMES[param] && (status === 400 || status === 422))
      return new Failure(told("Change “" + NAMES[param] + "” in Settings", why), { settings: true });
    if (status === 403) return new Failure(told("The server does not allow this", why));
    if (status === 404 && param === "model")
      return new Failure("The server no longer has the model “" + model + "”. Choose another one at the top.");
    if (status === 429) return new Failure(told("The server has too much to do. Try again in a moment", why));
    if (status === 502 || status === 504) return new Failure(told(UNREACHABLE.slice(0, -1), why));
    if (status === 503) return new Failure(told("The server cannot answer just now. Try again in a moment", why));
    if (status >= 400 && status < 500) return new Failure(told("The server does not take this", why || "status " + status));
    return new Failure(told("The server failed. Try again", why || (status ? "status " + status : "")));
  }

  async function read(reply, about) {
    let json = null;
    try {
      json = await reply.json();
    } catch { /* a proxy's page: the status says it */ }
    return of(reply.status, json, about);
  }

  /* Describes whatever was thrown while an answer was asked for. */
  function caught(error, began) {
    if (error instanceof Failure) return error;
    return new Failure(began ? "The answer broke off. Try again." : UNREACHABLE);
  }

  return { of, read, caught };
})();
