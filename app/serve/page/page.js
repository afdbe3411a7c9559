/* page.js - the chat: what is kept in the browser, requests and their streams, what is on the screen.
 *
 * The server's part: POST /v1/chat/completions as a stream with `return_origins`, so that chunks carry "origins": [{"id",
 * "text", "depth"}], and with "timings" at the end; GET /v1/models; GET /aerie/curve, which may be missing. What fails is
 * put into words in errors.js, what is sent of a long chat is chosen in context.js, pictures are taken and kept in
 * pictures.js, and the figures beside the chat are panel.js.
 * Text of models and users enters the document as text nodes only.
 */
"use strict";

const $ = (id) => document.getElementById(id);
const DEFAULTS = { system: "", temperature: "0.8", top_p: "0.95", top_k: "40", min_p: "0.05", max_tokens: "", seed: "" };
const IDEAS = ["Explain speculative decoding to a ten-year-old.", "Write a limerick about a patient compiler.",
               "Count from 1 to 40 in words.", "Show me a binary search in C."];

/* ---- Kept in the browser ---------------------------------------------------------------------------- */

function load(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem("aerie." + key)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

function keep(key, value) {
  try {
    localStorage.setItem("aerie." + key, JSON.stringify(value));
  } catch {
    showError("This browser has no more room for chats. Export some and delete them.");
  }
}

const saved = load("chats", []);
const state = {
  chats: Array.isArray(saved) ? saved.filter((c) => c && typeof c.id === "string" && Array.isArray(c.messages)) : [],
  settings: { ...DEFAULTS, ...load("settings", {}) },
  view: { origins: true, panel: null, theme: "auto", model: "", ...load("view", {}) },
  chat: null,
  running: null, /* {abort, message} */
  nCtx: {},      /* tokens of context, by model */
  sees: {},      /* whether it reads pictures, by model */
};

const saveChats = () => keep("chats", state.chats.filter((c) => c.messages.length));
const saveView = () => keep("view", state.view);

function apiKey() {
  try {
    return sessionStorage.getItem("aerie.key") ?? "";
  } catch {
    return "";
  }
}

/* ---- Small things ------------------------------------------------------------------------------------- */

function make(name, className, text) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function button(text, label, action) {
  const node = make("button", "small", text);
  node.type = "button";
  if (label) node.setAttribute("aria-label", label);
  node.addEventListener("click", action);
  return node;
}

function say(text) {
  $("status").textContent = text;
}

function showError(text, inSettings) {
  $("error").replaceChildren(text);
  if (inSettings) $("error").append(" ", button("Open Settings", "", openSettings));
  $("error").hidden = !text;
}

async function copy(text, from) {
  try {
    await navigator.clipboard.writeText(text);
    const before = from.textContent;
    from.textContent = "Copied";
    say("Copied");
    setTimeout(() => { from.textContent = before; }, 1200);
  } catch {
    say("The browser does not let the page copy");
  }
}

function ask(question, yes) {
  $("confirm-text").textContent = question;
  $("confirm-yes").textContent = yes;
  const dialog = $("confirm");
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", function closed() {
    if (dialog.open) return; /* told late of the question before */
    dialog.removeEventListener("close", closed);
    done(dialog.returnValue === "yes");
  }));
}

/* At most n characters, cut between words. */
function shorten(text, n) {
  if (text.length <= n) return text;
  const cut = text.slice(0, n);
  return cut.slice(0, Math.max(cut.lastIndexOf(" "), n / 2)).trimEnd() + " …";
}

function headers() {
  const all = { "Content-Type": "application/json" };
  if (apiKey()) all.Authorization = "Bearer " + apiKey();
  return all;
}

/* ---- How tokens came ------------------------------------------------------------------------------------ */

function depthClass(depth) {
  return depth < 0 ? "" : "t d" + Math.min(MAX_DEPTH, depth);
}

/* Nodes of text that begins at `from` of a source with these runs. */
function coloured(text, from, runs) {
  if (!runs || !runs.length) return document.createTextNode(text);
  let low = 0, high = runs.length / 2;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (runs[2 * middle] <= from) low = middle + 1;
    else high = middle;
  }
  const fragment = document.createDocumentFragment();
  let at = from;
  const to = from + text.length;
  for (let i = low; at < to; i++) {
    const end = 2 * i < runs.length ? Math.min(to, runs[2 * i]) : to;
    const depth = 2 * i < runs.length ? runs[2 * i + 1] : -1;
    const part = text.slice(at - from, end - from);
    if (depth > 0) {
      const word = part.trimStart(); /* a word's token often brings the space before it */
      const span = make("span", depthClass(depth), word);
      span.title = "drafted at depth " + depth + ", accepted";
      fragment.append(part.slice(0, part.length - word.length), span);
    } else {
      fragment.append(part);
    }
    at = end;
  }
  return fragment;
}

/* ---- Messages on the screen ------------------------------------------------------------------------------ */

/* Rendered pieces are kept: only what grew is made again. */
function renderText(box, source, runs) {
  const kept = box.pieces ?? (box.pieces = []);
  const pieces = Markdown.split(source);
  pieces.forEach(([from, to], i) => {
    const last = i === pieces.length - 1;
    if (!last && kept[i] && kept[i].from === from && kept[i].to === to && kept[i].done) return;
    if (kept[i]) kept[i].node.remove();
    const node = make("div", "piece");
    node.append(Markdown.render(source, from, to, (text, at) => coloured(text, at, runs), copy));
    const before = box.children[i];
    if (before) box.insertBefore(node, before);
    else box.append(node);
    kept[i] = { from, to, node, done: !last };
  });
  for (const piece of kept.splice(pieces.length)) piece.node.remove();
}

function messageNode(message, index) {
  const item = make("li", "message " + message.role);
  const name = message.role === "user" ? "You" : "aerie";
  const line = make("p", "forgotten");
  item.append(line, make("h2", "visually-hidden", name));
  if (message.role === "assistant") {
    const thought = make("details", "thought");
    thought.append(make("summary", "", "Thought"), make("div", "thought-text"));
    thought.hidden = true;
    item.append(thought);
  }
  const pictures = Pictures.list(message);
  if (pictures) item.append(pictures);
  item.append(make("div", "text"));
  const foot = make("div", "foot");
  item.append(foot);
  item.parts = { line, text: item.querySelector(".text"), thought: item.querySelector(".thought"), foot };
  fillMessage(item, message, index);
  return item;
}

function fillMessage(item, message, index) {
  const { line, text, thought, foot } = item.parts;
  const running = state.running?.message === message;
  item.classList.toggle("running", running);
  line.textContent = index === Context.first(state.chat) ? Context.line(state.chat, state.nCtx[state.view.model]) : "";
  line.hidden = !line.textContent;
  if (message.role === "user") text.textContent = message.content;
  else renderText(text, message.content, message.runs);
  text.hidden = message.role === "user" && !message.content;
  if (thought) {
    thought.hidden = !message.reasoning;
    if (message.reasoning) {
      const box = thought.querySelector(".thought-text");
      box.replaceChildren(coloured(message.reasoning, 0, message.reasoningRuns));
      thought.querySelector("summary").textContent = running && !message.content ? "Thinking …" : "Thought";
    }
  }
  foot.replaceChildren();
  if (running) return;
  const last = index === state.chat.messages.length - 1;
  if (message.role === "user") {
    foot.append(button("Edit", "Edit this message", () => edit(index)));
    if (last && !state.running) foot.append(button("Try again", "Send this message again", () => regenerate()));
  } else {
    foot.append(button("Copy", "Copy this answer", (e) => copy(message.content, e.currentTarget)));
    if (last) foot.append(button("Regenerate", "Regenerate this answer", () => regenerate()));
    const note = summary(message);
    if (note) foot.append(make("span", "figures", note));
  }
}

function summary(message) {
  const t = message.timings;
  const parts = [];
  if (message.stopped) parts.push("stopped");
  if (message.finish === "length") parts.push("cut at the limit");
  if (t?.predicted_per_second) parts.push(t.predicted_per_second.toFixed(1) + " tokens/s");
  if (t?.n_passes && t.predicted_n > t.n_passes) parts.push((t.predicted_n / t.n_passes).toFixed(2) + " tokens per pass");
  return parts.join(" · ");
}

function render() {
  const { chat } = state;
  $("chat-title").textContent = chat.title || "New chat";
  document.title = (chat.title ? chat.title + " · " : "") + "aerie";
  $("messages").replaceChildren(...chat.messages.map(messageNode));
  $("welcome").hidden = chat.messages.length > 0;
  showError("");
  renderKept();
  renderList();
  renderPanel();
  toBottom(true);
}

function renderList() {
  const list = $("chat-list");
  const all = state.chats.filter((c) => c.messages.length || c === state.chat);
  list.replaceChildren(...all.map((chat) => {
    const item = make("li");
    const open = make("button", "chat", chat.title || "New chat");
    open.type = "button";
    if (chat === state.chat) open.setAttribute("aria-current", "true");
    open.addEventListener("click", () => openChat(chat));
    const remove = make("button", "icon", "✕");
    remove.type = "button";
    remove.setAttribute("aria-label", "Delete the chat " + (chat.title || "New chat"));
    remove.addEventListener("click", async () => {
      if (await ask("Delete “" + (chat.title || "New chat") + "”? It cannot be brought back.", "Delete")) deleteChat(chat);
    });
    item.append(open, remove);
    return item;
  }));
}

/* The view stays at the end if it was there. */
let follows = true;
function toBottom(always) {
  if (always) follows = true;
  if (follows) $("scroll").scrollTop = $("scroll").scrollHeight;
}

/* ---- Requests ----------------------------------------------------------------------------------------------- */

function body() {
  const { settings, chat } = state;
  const messages = chat.messages.slice(Context.first(chat)).filter((m) => m !== state.running?.message)
    .map((m) => ({ role: m.role, content: Pictures.content(m) }));
  if (settings.system.trim()) messages.unshift({ role: "system", content: settings.system });
  const request = { messages, stream: true, stream_options: { include_usage: true }, return_origins: true, cache_prompt: true };
  if (state.view.model) request.model = state.view.model;
  for (const key of ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"])
    if (settings[key] !== "" && Number.isFinite(Number(settings[key]))) request[key] = Number(settings[key]);
  return request;
}

/* Data of server-sent events, however the network cuts them. */
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const all = rest.split("\n");
    rest = all.pop();
    for (const line of all) if (line.startsWith("data:")) yield line.slice(5).trim();
  }
}

/* The stream of an answer. Where the chat outgrows the context, its oldest turns are forgotten. */
async function request(run) {
  const chat = state.chat, before = Context.first(chat), { model } = state.view;
  const about = { hasKey: !!apiKey(), model };
  if (Context.isFull(chat, state.nCtx[model], Number(state.settings.max_tokens))) Context.forget(chat);
  await Pictures.load(chat.messages);
  for (;;) {
    run.message.from = Context.first(chat);
    const reply = await fetch("v1/chat/completions",
      { method: "POST", headers: headers(), body: JSON.stringify(body()), signal: run.abort.signal });
    if (reply.ok) {
      if (run.message.from !== before) say(Context.line(chat, state.nCtx[model]));
      refreshFeet();
      return reply.body;
    }
    const failure = await Errors.read(reply, about);
    if (failure.tooLong && Context.forget(chat)) continue;
    chat.from = before; /* not even the last message fits: keep the others */
    throw failure;
  }
}

/* The last message, which is too long, back into the box. */
function giveBack(chat) {
  const { content: text, pictures } = chat.messages.pop(), rest = $("prompt").value;
  if (!chat.messages.length) chat.title = "";
  $("prompt").value = rest.trim() ? text + "\n\n" + rest : text;
  if (pictures) Pictures.put([...pictures, ...Pictures.take()]);
  grow();
  render();
  const n = state.nCtx[state.view.model];
  showError("The message is too long" +
    (n ? ": the context of this model holds " + n.toLocaleString("en") + " tokens" : " for this model") +
    ". It is back in the message box: shorten it" +
    (state.settings.system.trim() ? ", or the system prompt in Settings." : "."));
  $("prompt").focus();
}

function take(chunk, message, run) {
  if (chunk.error) throw Errors.of(0, chunk);
  if (Array.isArray(chunk.origins)) {
    if (!run.first) run.first = performance.now();
    run.origins.add(chunk.origins);
    message.counts = [...run.origins.counts];
  }
  const choice = chunk.choices?.[0];
  const delta = choice?.delta ?? {};
  if (typeof delta.reasoning_content === "string" && delta.reasoning_content) {
    run.origins.follow(delta.reasoning_content, message.reasoningRuns, message.reasoning.length);
    message.reasoning += delta.reasoning_content;
  }
  if (typeof delta.content === "string" && delta.content) {
    run.origins.follow(delta.content, message.runs, message.content.length);
    message.content += delta.content;
  }
  if (choice?.finish_reason) message.finish = choice.finish_reason;
  if (chunk.timings) message.timings = chunk.timings;
}

/* Once a frame, whatever the number of tokens. */
function painter(message, item, run) {
  let wanted = false, sampled = 0, counted = 0;
  return () => {
    if (wanted) return;
    wanted = true;
    requestAnimationFrame((now) => {
      wanted = false;
      if (state.running !== run) return;
      const seconds = run.first ? (now - run.first) / 1e3 : 0;
      run.rate = seconds > 0.2 ? run.origins.n / seconds : 0;
      if (now - sampled > 250) {
        if (sampled) message.speeds.push(Math.round((10 * 1e3 * (run.origins.n - counted)) / (now - sampled)) / 10);
        if (message.speeds.length > 80) message.speeds.shift();
        sampled = now;
        counted = run.origins.n;
        renderPanel();
      }
      const passes = run.origins.passes();
      const perPass = passes ? " · " + (run.origins.n / passes).toFixed(1) + " per pass" : "";
      $("live").textContent = run.rate ? run.rate.toFixed(0) + " tokens/s" + perPass : "";
      fillMessage(item, message, state.chat.messages.indexOf(message));
      toBottom();
    });
  };
}

async function answer() {
  if (state.running) return;
  const chat = state.chat;
  const message = { role: "assistant", content: "", reasoning: "", runs: [], reasoningRuns: [], counts: [], speeds: [] };
  const run = { abort: new AbortController(), message, origins: new Origins(), first: 0, rate: 0 };
  chat.messages.push(message);
  state.running = run;
  showError("");
  $("welcome").hidden = true;
  const item = messageNode(message, chat.messages.length - 1);
  $("messages").append(item);
  refreshFeet();
  toBottom(true);
  setBusy(true);
  const paint = painter(message, item, run);
  let failure = null, began = false;
  try {
    const stream = await request(run);
    began = true;
    for await (const data of events(stream)) {
      if (data === "[DONE]") break;
      take(JSON.parse(data), message, run);
      paint();
    }
    if (!message.finish) throw new Failure("The answer broke off. Try again.");
    say("The answer is complete.");
  } catch (error) {
    if (run.abort.signal.aborted) {
      message.stopped = true;
      say("Stopped.");
    } else {
      failure = Errors.caught(error, began);
    }
  }
  state.running = null;
  if (!message.content && !message.reasoning) chat.messages.splice(chat.messages.indexOf(message), 1);
  saveChats();
  setBusy(false);
  $("live").textContent = "";
  if (state.chat !== chat) return;
  if (!chat.messages.includes(message)) item.remove();
  refreshFeet();
  if (failure?.tooLong && !chat.messages.includes(message)) {
    giveBack(chat);
    saveChats();
  } else if (failure) {
    showError(failure.message, failure.settings);
  }
  renderPanel();
  if (!curve) readCurve();
  toBottom();
}

function refreshFeet() {
  [...$("messages").children].forEach((item, i) => fillMessage(item, state.chat.messages[i], i));
  renderKept();
}

/* The line in the chat is out of view for a reader at its end, so the same is said above the message box. */
function renderKept() {
  const text = Context.notice(state.chat, state.nCtx[state.view.model]);
  $("kept").hidden = !text;
  if (!text) return $("kept").replaceChildren();
  $("kept").replaceChildren(text, " ", button("Show where", "", () => {
    document.querySelector(".forgotten:not([hidden])")?.scrollIntoView({ block: "center" });
  }));
}

function setBusy(busy) {
  $("send").hidden = busy;
  $("stop").hidden = !busy;
  $("messages").setAttribute("aria-busy", String(busy));
  if (busy) say("aerie is answering.");
}

function stop() {
  state.running?.abort.abort();
}

function send(text, pictures = []) {
  if ((!text.trim() && !pictures.length) || state.running) return;
  const { chat } = state;
  if (!chat.title) chat.title = shorten(text.trim().replace(/\s+/g, " "), 60) || "A picture";
  if (!state.chats.includes(chat)) state.chats.unshift(chat);
  chat.messages.push({ role: "user", content: text, ...(pictures.length ? { pictures } : {}) });
  saveChats();
  render();
  answer();
}

async function cutFrom(index) {
  if (state.running) {
    stop();
    while (state.running) await new Promise((done) => setTimeout(done, 20));
  }
  state.chat.messages.splice(index);
  if (index <= Context.first(state.chat)) state.chat.from = 0;
  saveChats();
}

async function regenerate() {
  const index = state.chat.messages.findLastIndex((m) => m.role === "user");
  if (index < 0) return;
  await cutFrom(index + 1);
  render();
  answer();
}

function edit(index) {
  if (state.running) return;
  const item = $("messages").children[index], message = state.chat.messages[index];
  const form = make("form", "edit"), area = make("textarea");
  area.value = message.content;
  area.setAttribute("aria-label", "Edit this message");
  const row = make("div", "dialog-foot");
  const cancel = button("Cancel", "", () => render());
  const submit = make("button", "small primary", "Send again");
  submit.type = "submit";
  row.append(cancel, submit);
  form.append(area, row);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!area.value.trim() && !message.pictures) return;
    await cutFrom(index);
    send(area.value, message.pictures);
  });
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      render();
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  item.parts.text.replaceChildren(form);
  item.parts.text.hidden = false;
  item.parts.foot.replaceChildren();
  area.style.height = Math.min(area.scrollHeight + 4, 320) + "px";
  area.focus();
}

/* ---- Chats ------------------------------------------------------------------------------------------------------ */

function newChat() {
  return { id: Date.now().toString(36) + Math.random().toString(36).slice(2, 8), title: "", created: Date.now(), messages: [] };
}

function openChat(chat) {
  if (state.running) stop();
  state.chat = chat;
  render();
  showPictures(chat);
  showChats(false);
  if (matchMedia("(min-width: 48rem)").matches) $("prompt").focus();
}

/* Those that are not in memory yet come from the browser's store. */
async function showPictures(chat) {
  if (!chat.messages.some((m) => m.pictures)) return;
  await Pictures.load(chat.messages);
  if (state.chat === chat && !state.running) render();
}

function deleteChat(chat) {
  if (state.chat === chat && state.running) stop();
  state.chats = state.chats.filter((c) => c !== chat);
  saveChats();
  Pictures.sweep(state.chats);
  if (state.chat === chat) openChat(state.chats[0] ?? newChat());
  else renderList();
}

async function exportChats() {
  await Pictures.load(state.chats.flatMap((c) => c.messages));
  const all = state.chats.map(({ title, created, messages }) => ({ title, created: new Date(created).toISOString(),
    messages: messages.map(({ role, content, reasoning, pictures }) =>
      ({ role, content: Pictures.content({ content, pictures }), ...(reasoning ? { reasoning_content: reasoning } : {}) })) }));
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(all, null, 2)], { type: "application/json" }));
  link.download = "aerie-chats.json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  say("Exported " + all.length + " chats.");
}

function showChats(open) {
  document.body.classList.toggle("chats-open", open);
  $("scrim").hidden = !open;
  $("open-chats").setAttribute("aria-expanded", String(open));
  if (open) $("new-chat").focus();
}

/* ---- Views and settings --------------------------------------------------------------------------------------------- */

function applyView() {
  const { view } = state;
  const dark = view.theme === "dark" || (view.theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  const name = view.theme === "auto" ? "as the system" : view.theme;
  $("theme").setAttribute("aria-label", "Theme: " + name);
  $("theme").title = "Theme: " + name;
  document.body.classList.toggle("origins", view.origins);
  $("toggle-origins").setAttribute("aria-pressed", String(view.origins));
  const panel = view.panel ?? matchMedia("(min-width: 75rem)").matches;
  $("panel").hidden = !panel;
  $("toggle-panel").setAttribute("aria-pressed", String(panel));
  if (panel && state.chat) renderPanel();
}

function setPanel(open) {
  state.view.panel = open;
  saveView();
  applyView();
  if (open && !curve) readCurve();
}

function openSettings() {
  for (const key of Object.keys(DEFAULTS)) $("set-" + key).value = state.settings[key];
  $("set-key").value = apiKey();
  $("settings").returnValue = "cancel";
  $("settings").showModal();
}

function saveSettings() {
  for (const key of Object.keys(DEFAULTS)) {
    const field = $("set-" + key);
    if (field.validity.valid) state.settings[key] = key === "system" ? field.value : field.value.trim();
  }
  try {
    sessionStorage.setItem("aerie.key", $("set-key").value);
  } catch { /* it is asked for again */ }
  keep("settings", state.settings);
  say("Settings saved.");
  showError("");
  readModels();
}

async function readModels() {
  let names = [];
  try {
    const reply = await fetch("v1/models", { headers: headers() });
    if (reply.status === 401) {
      const failure = await Errors.read(reply, { hasKey: !!apiKey() });
      showError(failure.message, failure.settings);
    }
    const models = reply.ok ? (await reply.json()).data : [];
    names = models.map((m) => String(m.id));
    for (const m of models) {
      state.nCtx[m.id] = m.meta?.n_ctx;
      state.sees[m.id] = m.architecture?.input_modalities?.includes("image");
    }
  } catch { /* shown when a message is sent */ }
  const list = $("model");
  list.replaceChildren(...names.map((name) => {
    const option = make("option", "", name.split("/").pop().replace(/\.gguf$/i, ""));
    option.value = name;
    return option;
  }));
  if (!names.includes(state.view.model)) state.view.model = names[0] ?? "";
  list.value = state.view.model;
  list.disabled = names.length < 2;
  list.hidden = !names.length;
  $("attach").hidden = !state.sees[state.view.model];
  if (names.length) readCurve();
}

function grow() {
  const area = $("prompt");
  area.style.height = "auto";
  area.style.height = Math.min(area.scrollHeight, 220) + "px";
}

function start() {
  state.chat = state.chats[0] ?? newChat();
  $("ideas").replaceChildren(...IDEAS.map((idea) => {
    const node = make("button", "idea", idea);
    node.type = "button";
    node.addEventListener("click", () => send(idea));
    return node;
  }));
  $("form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (state.running) return;
    const text = $("prompt").value;
    if (!text.trim() && !Pictures.n()) return;
    $("prompt").value = "";
    grow();
    send(text, Pictures.take());
  });
  $("prompt").addEventListener("input", grow);
  $("prompt").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!state.running) $("form").requestSubmit();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
    if (document.body.classList.contains("chats-open")) {
      showChats(false);
      $("open-chats").focus();
    } else {
      stop();
    }
  });
  $("scroll").addEventListener("scroll", () => {
    const box = $("scroll");
    follows = box.scrollHeight - box.scrollTop - box.clientHeight < 60;
  });
  $("stop").addEventListener("click", () => {
    stop();
    $("prompt").focus();
  });
  $("new-chat").addEventListener("click", () => openChat(newChat()));
  $("export-chats").addEventListener("click", exportChats);
  $("delete-all").addEventListener("click", async () => {
    if (!(await ask("Delete all chats? They cannot be brought back.", "Delete all"))) return;
    stop();
    state.chats = [];
    saveChats();
    Pictures.sweep([]);
    openChat(newChat());
  });
  $("open-chats").addEventListener("click", () => showChats(true));
  for (const id of ["close-chats", "scrim"]) $(id).addEventListener("click", () => showChats(false));
  $("toggle-origins").addEventListener("click", () => {
    state.view.origins = !state.view.origins;
    saveView();
    applyView();
  });
  $("toggle-panel").addEventListener("click", () => setPanel($("panel").hidden));
  $("close-panel").addEventListener("click", () => {
    setPanel(false);
    $("toggle-panel").focus();
  });
  $("theme").addEventListener("click", () => {
    const order = ["auto", "light", "dark"];
    state.view.theme = order[(order.indexOf(state.view.theme) + 1) % 3];
    saveView();
    applyView();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyView);
  $("open-settings").addEventListener("click", openSettings);
  $("close-settings").addEventListener("click", () => $("settings").close("cancel"));
  $("settings").addEventListener("close", () => {
    if ($("settings").returnValue === "save") saveSettings();
  });
  $("set-defaults").addEventListener("click", () => {
    for (const key of Object.keys(DEFAULTS)) if (key !== "system") $("set-" + key).value = DEFAULTS[key];
  });
  $("model").addEventListener("change", () => {
    state.view.model = $("model").value;
    $("attach").hidden = !state.sees[state.view.model];
    saveView();
    readCurve();
  });
  addEventListener("pagehide", saveChats);
  Pictures.start({ sees: () => state.sees[state.view.model], tell: showError, onChange: () => toBottom() });
  applyView();
  render();
  showPictures(state.chat);
  readModels();
  if (matchMedia("(min-width: 48rem)").matches) $("prompt").focus();
}

start();
