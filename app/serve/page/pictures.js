/* pictures.js - pictures of messages: chosen, pasted or dropped; what is kept of them, and how they look.
 *
 * A message has the ids of its pictures (message.pictures). The pictures themselves, as data: URLs, are kept in the browser's
 * IndexedDB, since they are too large for its localStorage; where that cannot be had they last as long as the page.
 * JPEG, PNG and WebP go to the server as they are. Anything else that the browser can show, and what is too large, is drawn
 * anew as PNG or JPEG first.
 */
"use strict";

const Pictures = (() => {
  const AS_THEY_ARE = ["image/jpeg", "image/png", "image/webp"];
  const MOST_BYTES = 16 << 20, MOST_SIDE = 4096, MOST = 16;
  const known = new Map(); /* id: data: URL */
  let waiting = [];        /* ids of the next message's */
  let changed = () => {};

  /* ---- Kept ---- */

  let opened = null;
  function database() {
    opened ??= new Promise((done) => {
      try {
        const request = indexedDB.open("aerie", 1);
        request.onupgradeneeded = () => request.result.createObjectStore("pictures");
        request.onsuccess = () => done(request.result);
        request.onerror = request.onblocked = () => done(null);
      } catch {
        done(null);
      }
    });
    return opened;
  }

  /* Runs one operation on the store; undefined if it fails. */
  async function store(mode, run) {
    const base = await database();
    if (!base) return undefined;
    return new Promise((done) => {
      try {
        const request = run(base.transaction("pictures", mode).objectStore("pictures"));
        request.onsuccess = () => done(request.result);
        request.onerror = () => done(undefined);
      } catch {
        done(undefined);
      }
    });
  }

  /* Fetches what the messages need; those that are gone stay unknown. */
  async function load(messages) {
    const ids = messages.flatMap((m) => m.pictures ?? []).filter((id) => !known.has(id));
    for (const id of new Set(ids)) {
      const url = await store("readonly", (s) => s.get(id));
      if (typeof url === "string" && url.startsWith("data:image/")) known.set(id, url);
    }
  }

  /* Drops what no chat has any more. */
  async function sweep(chats) {
    const keys = (await store("readonly", (s) => s.getAllKeys())) ?? [];
    const used = new Set([...waiting, ...chats.flatMap((c) => c.messages.flatMap((m) => m.pictures ?? []))]);
    for (const id of known.keys()) if (!used.has(id)) known.delete(id);
    for (const id of keys) if (!used.has(id)) await store("readwrite", (s) => s.delete(id));
  }

  /* ---- Taken ---- */

  function read(blob) {
    return new Promise((done, fail) => {
      const reader = new FileReader();
      reader.onload = () => done(reader.result);
      reader.onerror = () => fail(reader.error);
      reader.readAsDataURL(blob);
    });
  }

  async function redraw(file) {
    const bitmap = await createImageBitmap(file);
    const scale = Math.min(1, MOST_SIDE / Math.max(bitmap.width, bitmap.height));
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(bitmap.width * scale));
    canvas.height = Math.max(1, Math.round(bitmap.height * scale));
    const pen = canvas.getContext("2d");
    pen.fillStyle = "#fff"; /* as the server does with what is transparent */
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    const large = canvas.width * canvas.height > 4 << 20;
    return large ? canvas.toDataURL("image/jpeg", 0.92) : canvas.toDataURL("image/png");
  }

  /* Adds files to the next message. Returns a sentence on what could not be added, or "". */
  async function add(files) {
    let refused = "";
    for (const file of files) {
      if (waiting.length >= MOST) return "A message has at most " + MOST + " pictures.";
      try {
        const url = AS_THEY_ARE.includes(file.type) && file.size <= MOST_BYTES ? await read(file) : await redraw(file);
        const id = Date.now().toString(36) + Math.random().toString(36).slice(2, 8);
        known.set(id, url);
        waiting.push(id);
        await store("readwrite", (s) => s.put(url, id));
      } catch {
        refused = "“" + (file.name || "The picture") + "” cannot be read as a picture.";
      }
    }
    show();
    return refused;
  }

  function put(ids) {
    waiting = [...ids];
    show();
  }

  /* The next message's pictures, which are the caller's now. */
  function take() {
    const ids = waiting;
    put([]);
    return ids;
  }

  function filesOf(transfer) {
    return [...(transfer?.files ?? [])].filter((file) => file.type.startsWith("image/"));
  }

  /* ---- Seen ---- */

  function figure(id, number) {
    const url = known.get(id);
    if (!url) {
      const gone = document.createElement("span");
      gone.className = "gone";
      gone.textContent = "This picture is no longer in this browser.";
      return gone;
    }
    const image = document.createElement("img");
    image.src = url;
    image.alt = "Picture " + number;
    return image;
  }

  /* The pictures of a message; null: it has none. */
  function list(message) {
    if (!message.pictures?.length) return null;
    const box = document.createElement("div");
    box.className = "pictures";
    box.append(...message.pictures.map((id, i) => figure(id, i + 1)));
    return box;
  }

  function show() {
    const box = document.getElementById("waiting");
    box.hidden = !waiting.length;
    box.replaceChildren(...waiting.map((id, i) => {
      const item = document.createElement("li"), remove = document.createElement("button");
      remove.type = "button";
      remove.className = "icon";
      remove.textContent = "✕";
      remove.setAttribute("aria-label", "Remove picture " + (i + 1));
      remove.addEventListener("click", () => {
        put(waiting.filter((other) => other !== id));
        document.getElementById("prompt").focus();
      });
      item.append(figure(id, i + 1), remove);
      return item;
    }));
    changed();
  }

  /* A message's content as the server takes it. */
  function content(message) {
    const urls = (message.pictures ?? []).map((id) => known.get(id)).filter(Boolean);
    if (!urls.length) return message.content;
    const parts = urls.map((url) => ({ type: "image_url", image_url: { url } }));
    return message.content ? [...parts, { type: "text", text: message.content }] : parts;
  }

  /* Begins to take what is chosen, pasted and dropped. sees(): whether the model reads pictures. tell(sentence). */
  function start({ sees, tell, onChange }) {
    const input = document.getElementById("pick"), body = document.body;
    changed = onChange;
    async function offer(files) {
      if (!files.length) return;
      tell(sees() ? await add(files) : "This model reads text only. A model that sees needs its mmproj file (--mmproj).");
      document.getElementById("prompt").focus();
    }
    document.getElementById("attach").addEventListener("click", () => input.click());
    input.addEventListener("change", async () => {
      const files = [...input.files];
      input.value = "";
      await offer(files);
    });
    document.getElementById("prompt").addEventListener("paste", (event) => {
      const files = filesOf(event.clipboardData);
      if (!files.length || event.clipboardData.getData("text/plain")) return; /* spreadsheets add a picture to their text */
      event.preventDefault();
      offer(files);
    });
    const brings = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
    for (const name of ["dragenter", "dragover"])
      document.addEventListener(name, (event) => {
        if (!brings(event) || document.querySelector("dialog[open]")) return;
        event.preventDefault();
        body.classList.add("dropping");
      });
    document.addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) body.classList.remove("dropping");
    });
    document.addEventListener("drop", (event) => {
      body.classList.remove("dropping");
      if (!brings(event)) return;
      event.preventDefault(); /* not even a text file replaces the page */
      offer([...event.dataTransfer.files]);
    });
  }

  return { start, load, sweep, put, take, list, content, n: () => waiting.length };
})();
