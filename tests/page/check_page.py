#!/usr/bin/env python3
"""Clicks through the page in Chromium: a chat, a stop, a regenerate, an edit, settings, history, keys, phone and dark mode.

    check_page.py [AERIE MKMODEL]

The page comes from a mock server with answers that are known; with AERIE and MKMODEL also from `aerie serve` with a random
model. AERIE_AXE names axe.min.js, for the accessibility checker's rules (Python's axe-playwright-python has it). Exit status
77: there is no Chromium (AERIE_CHROMIUM names one).
"""
import base64
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from browser import Browser, Failure, find  # noqa: E402
from mock import Mock  # noqa: E402

HOSTILE = ("# Title\n\nA **bold** and _soft_ word, `code`, [good](https://example.org/a) and [bad](javascript:alert(1)), "
           "<img src=x onerror=\"document.title='owned'\"> and <script>document.title='owned'</script>\n\n"
           "- one\n- two\n  - inner\n\n1. first\n2. second\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted\n\n"
           "```c\nif (a < b && c) x = \"</pre><script>\";\n```\n\nThe end: caf\u00e9 \U0001f426 * not a list")


def need(condition, text):
    if not condition:
        raise Failure(text)


def ask(page, text):
    page.click("#prompt")
    page.type(text)
    page.key("Enter")


def done(page, n, seconds=300):
    page.wait(f"document.querySelectorAll('.message.assistant').length === {n} && !document.querySelector('#send').hidden",
              seconds)


def check_chat(page, mock):
    page.go(mock.address)
    page.wait("document.querySelector('#model').value === 'tiny'")
    need(page.js("document.activeElement.id") == "prompt", "the message box has the focus at first")
    need(page.js("!document.querySelector('#welcome').hidden"), "a new chat shows the welcome")
    mock.answer = {"text": HOSTILE}
    ask(page, "Say <b>it</b>")
    done(page, 1)
    need(page.text(".message.user .text") == "Say <b>it</b>", "the user's text is shown as it is")
    inside = ".message.assistant .text "
    for selector in ("h3", "strong", "em", "p code", "a[href='https://example.org/a'][rel~=noopener]", "ul ul li", "ol li",
                     "table td", "blockquote", ".code pre code"):
        need(page.js(f"!!document.querySelector({json.dumps(inside + selector)})"), f"Markdown: {selector}")
    need(page.js("document.querySelectorAll('.message img, .message script, .message a[href^=javascript]').length") == 0,
         "a model's HTML is text")
    need("</pre><script>" in page.text(inside + ".code pre"), "code is shown as it is")
    need("[bad](javascript:alert(1))" in page.text(".message.assistant .text"), "a bad link is text")
    need("caf\u00e9 \U0001f426 * not a list" in page.text(".message.assistant .text"), "the end of the text")
    need(page.js("document.title").startswith("Say"), "the title is the chat's")
    need(page.js("document.documentElement.scrollHeight <= innerHeight"), "only the chat scrolls, not the page")
    need(page.js("document.querySelectorAll('.t.d1').length") > 5 and page.js("document.querySelectorAll('.t.d2').length") > 5,
         "drafted tokens are coloured by depth")
    need("tokens per pass" in page.text(".message.assistant .figures"), "the answer's figures")
    need(page.text("#status") == "The answer is complete.", "the end is announced")
    request = mock.requests[-1][1]
    need(request["stream"] is True and request["return_origins"] is True, "the request asks for origins")
    need(request["messages"] == [{"role": "user", "content": "Say <b>it</b>"}], "the request's messages")
    plain = page.js("getComputedStyle(document.querySelector('.t.d1')).backgroundColor")
    page.click("#toggle-origins")
    need(page.js("getComputedStyle(document.querySelector('.t.d1')).backgroundColor") != plain, "the colours can be turned off")
    page.click("#toggle-origins")


def check_stop(page, mock):
    mock.answer = {"text": "word " * 20000, "pause": 0.02}  # minutes: it is stopped first
    ask(page, "Long")
    page.wait("document.querySelectorAll('.message.assistant')[1]?.innerText.includes('word word word')")
    page.wait("document.querySelector('#live').textContent.includes('per pass')")
    page.click("#stop")
    done(page, 2)
    words = page.js("document.querySelectorAll('.message.assistant')[1].querySelector('.text').innerText.split('word').length")
    need(3 < words < 20000, "the answer stops where it was")
    need("stopped" in page.text(".message.assistant:last-child .figures"), "it says that it was stopped")
    end = time.monotonic() + 300
    while not mock.gone and time.monotonic() < end:
        time.sleep(0.02)
    need(mock.gone == 1, "the server sees that the client is gone")
    ask(page, "Long again")
    page.wait("document.querySelectorAll('.message.assistant').length === 3 && !document.querySelector('#stop').hidden")
    page.wait("document.querySelectorAll('.message.assistant')[2].innerText.includes('word')")
    page.key("Escape")
    done(page, 3)


def check_regenerate(page, mock):
    mock.answer = {"text": "Another answer."}
    page.click(".message.assistant:last-child button[aria-label='Regenerate this answer']")
    page.wait("document.querySelector('.message.assistant:last-child .text').innerText === 'Another answer.'")
    done(page, 3)
    messages = mock.requests[-1][1]["messages"]
    need([m["role"] for m in messages] == ["user", "assistant"] * 2 + ["user"], "the answer that is regenerated is not sent")
    need(messages[-1]["content"] == "Long again", "the last question is sent again")


def check_edit(page, mock):
    mock.answer = {"text": "To the edited one."}
    page.click(".message.user button[aria-label='Edit this message']")
    page.wait("document.activeElement.matches('.edit textarea')")
    page.js("document.activeElement.select()")
    page.type("Edited")
    page.key("Enter")
    page.wait("document.querySelector('.message.assistant .text')?.innerText === 'To the edited one.'")
    done(page, 1)
    need(mock.requests[-1][1]["messages"] == [{"role": "user", "content": "Edited"}],
         "what followed the edited message is gone")


def check_settings(page, mock):
    page.click("#open-settings")
    page.wait("document.querySelector('#settings').open")
    for name, value in (("temperature", "0.25"), ("seed", "42"), ("max_tokens", "77"), ("system", "Be brief.")):
        page.click(f"#set-{name}")
        page.wait(f"document.activeElement.id === 'set-{name}'")
        page.js(f"document.querySelector('#set-{name}').select()")
        page.type(value)
        page.wait(f"document.querySelector('#set-{name}').value === '{value}'")
    page.click("#set-key")
    page.type("secret-key")
    page.click("#set-save")
    page.wait("document.querySelector('#status').textContent === 'Settings saved.'")  # after the dialog is no longer open
    ask(page, "With settings")
    done(page, 2)
    headers, request = mock.requests[-1]
    need((request["temperature"], request["seed"], request["max_tokens"]) == (0.25, 42, 77), "the settings are sent")
    need(request["messages"][0] == {"role": "system", "content": "Be brief."}, "the system prompt is sent")
    need(headers["Authorization"] == "Bearer secret-key", "the key is sent")
    need("secret-key" not in page.js("JSON.stringify(localStorage)"), "the key is not kept")
    page.click("#open-settings")
    page.js("document.querySelector('#set-temperature').value = '9'")
    page.click("#set-save")
    need(page.js("document.querySelector('#settings').open"), "a value out of range is not saved")
    page.key("Escape")
    page.wait("!document.querySelector('#settings').open")


def check_reasoning_and_panel(page, mock):
    mock.answer = {"text": "I think so. Yes indeed.", "thought": 4}
    ask(page, "Think")
    done(page, 3)
    thought = page.js("document.querySelector('.message:last-child .thought-text').textContent")
    need("I think so." in thought, "reasoning has its place")
    shown = page.text(".message:last-child .text")
    need("Yes" in shown and "think" not in shown, "and the answer its own")
    if page.js("document.querySelector('#panel').hidden"):
        page.click("#toggle-panel")
    page.wait("!document.querySelector('#curve').hidden && !document.querySelector('#depths').hidden")
    figures = page.text("#figures")
    need("Passes saved" in figures and "Without drafts" in figures, "the figures of speculation: " + figures)
    need(page.js("document.querySelectorAll('#curve .dot').length") == 5, "the curve's points")
    need(page.js("document.querySelectorAll('#depths rect').length") == 2, "the bars of acceptance")


def check_errors(page, mock):
    mock.answer = 503
    ask(page, "Fail")
    page.wait("!document.querySelector('#error').hidden")
    need(page.text("#error") == "The server cannot answer just now. Try again in a moment: the answer of a test.",
         "the server's sentence is shown: " + page.text("#error"))
    done(page, 3)
    mock.answer = {"text": "Back again."}
    ask(page, "Once more")
    done(page, 4)
    need(page.js("document.querySelector('#error').hidden"), "the error goes when an answer comes")
    for answer, words in (((401, '{"error": {"message": "an API key is needed"}}'), "Put the right key into Settings."),
                          ((400, '{"error": {"message": "x is wrong", "param": "top_k"}}'),
                           "Change “Top k” in Settings: x is wrong."),
                          ((404, '{"error": {"message": "there is no model", "param": "model"}}'),
                           "no longer has the model “tiny”"),
                          ((429, '{"error": {"message": "busy"}}'), "too much to do. Try again in a moment: busy."),
                          ((502, "<html>Bad gateway</html>"), "The server cannot be reached."),
                          ((500, '{"error": {"deep": 1}}'), "The server failed. Try again: status 500."),
                          ((400, '["list"]'), "The server does not take this: status 400."),
                          ({"text": "Half an", "broken": True}, "The answer broke off. Try again.")):
        mock.answer = answer
        page.js("document.querySelector('#error').hidden = true")
        page.click("#messages li:last-child button:is([aria-label^=Regenerate], [aria-label^=Send])")
        page.wait("!document.querySelector('#error').hidden && !document.querySelector('#send').hidden")
        need(words in page.text("#error") and not re.search(r'[{}<>]|undefined|Object|JSON', page.text("#error")),
             "an error speaks to a person: " + page.text("#error"))
    mock.answer = {"text": "Whole again."}
    page.click("#messages li:last-child button[aria-label^=Regenerate]")
    page.wait("document.querySelector('.message.assistant:last-child .text').innerText === 'Whole again.'")
    done(page, 4)


def check_key(browser, mock):
    """A server that wants a key says where to put it; the message is sent again once it is there."""
    mock.key, mock.answer = "right", {"text": "Let in."}
    page = browser.page(1200, 800)
    page.go(mock.address)
    page.wait("!document.querySelector('#error').hidden")
    need("The server asks for an API key. Put the key into Settings." in page.text("#error"), page.text("#error"))
    ask(page, "Who is there?")
    done(page, 0)
    page.wait("!document.querySelector('#error').hidden")
    need("Put the key into Settings." in page.text("#error"), page.text("#error"))
    page.click("#error button")
    page.click("#set-key")
    page.type("right")
    page.click("#set-save")
    page.wait("document.querySelector('#error').hidden && document.querySelector('#model').value === 'tiny'")
    page.click("#messages li:last-child button[aria-label='Send this message again']")
    done(page, 1)
    need(page.text(".message.assistant .text") == "Let in.", "the message is answered after all")
    mock.key = ""
    return page


def check_context(browser, mock):
    """A chat that outgrows the context goes on without its oldest turns, which a line says; what is too long comes back."""
    mock.n_ctx, mock.answer = 200, {"text": "word " * 20}
    page = browser.page(1200, 800)
    page.go(mock.address)
    page.wait("document.querySelector('#model').value === 'tiny'")
    for i in range(8):
        ask(page, f"turn {i} " + "and more " * 8)
        done(page, i + 1)
        need(page.js("document.querySelector('#error').hidden"), f"turn {i}: {page.text('#error')}")
    sent = mock.requests[-1][1]["messages"]
    need(sent[0]["role"] == "user" and sent[-1]["content"].startswith("turn 7") and 1 < len(sent) < 15,
         "the oldest are left out")
    need(page.js("document.querySelectorAll('.message.user').length") == 8, "they are still shown")
    lines = page.js("[...document.querySelectorAll('.forgotten')].filter((l) => !l.hidden).map((l) => l.textContent)")
    n = 8 - sum(m["role"] == "user" for m in sent)
    need(lines == [f"The context of 200 tokens is full: the {n} oldest turns, above this line, are forgotten."],
         f"the line: {lines}")
    need(page.js("[...document.querySelectorAll('.message')].findIndex((m) => !m.querySelector('.forgotten').hidden)") == 2 * n,
         "the line stands where the turns begin that are sent")
    need(page.js("document.querySelector('#kept').firstChild.data") ==
         f"The context of 200 tokens is full: the {n} oldest turns are forgotten.", "the notice above the message box")
    in_view = "(() => { const r = document.querySelector('%s').getBoundingClientRect(); " \
              "return r.top >= 0 && r.bottom <= innerHeight; })()"
    line = ".forgotten:not([hidden])"
    need(page.js(in_view % "#kept") and not page.js(in_view % line), "the notice is in view at the end, the line is not")
    page.click("#kept button")
    need(page.js(in_view % line) and page.js(in_view % "#kept"), "its button shows the line")
    page.go(mock.address)  # kept
    page.wait("document.querySelector('#model').value === 'tiny'")
    mock.n_ctx = 100  # as after a restart of the server with less: several are refused
    ask(page, "after the restart")
    done(page, 9)
    need(len(mock.requests[-1][1]["messages"]) < len(sent), "more are left out")
    before = len(mock.requests[-1][1]["messages"])
    ask(page, "far too long " * 100)
    page.wait("!document.querySelector('#error').hidden")
    done(page, 9)
    need(page.text("#error").startswith("The message is too long: the context of this model holds"), page.text("#error"))
    need(page.js("document.querySelector('#prompt').value") == "far too long " * 100, "the message is back in the box")
    need(page.js("document.querySelectorAll('.message.user').length") == 9, "and not in the chat")
    page.js("document.querySelector('#prompt').value = ''")
    ask(page, "short")
    done(page, 10)
    need(len(mock.requests[-1][1]["messages"]) >= min(before, 3) and page.js("document.querySelector('#error').hidden"),
         "the chat goes on")
    page.click(".message.user button[aria-label='Edit this message']")  # one that was forgotten
    page.wait("document.activeElement.matches('.edit textarea')")
    page.js("document.activeElement.select()")
    page.type("Begin again")
    page.key("Enter")
    done(page, 1)
    need(mock.requests[-1][1]["messages"] == [{"role": "user", "content": "Begin again"}], "an edited beginning is sent")
    need(page.js("[...document.querySelectorAll('.forgotten')].every((l) => l.hidden)"), "without a line")
    need(page.js("document.querySelector('#kept').hidden"), "and without a notice")
    mock.n_ctx = 0
    return page


DRAW = """async function drawn(type, name, width = 40, height = 30, colour = "#c33") {
    const canvas = Object.assign(document.createElement("canvas"), {width, height}), pen = canvas.getContext("2d");
    pen.fillStyle = colour;
    pen.fillRect(0, 0, width, height);
    const blob = await new Promise((done) => canvas.toBlob(done, type));
    return new File([blob], name, {type});
}
async function bring(kind, files, text) {
    const all = new DataTransfer();
    for (const file of files) all.items.add(await file);
    if (text) all.setData("text/plain", text);
    const how = {bubbles: true, cancelable: true};
    const event = kind === "paste" ? new ClipboardEvent("paste", {...how, clipboardData: all})
                                   : new DragEvent(kind, {...how, dataTransfer: all});
    return !document.querySelector("#prompt").dispatchEvent(event); /* whether the page took it */
}"""


def check_pictures(browser, mock):
    """Pictures come by button, paste and drop, are sent as data: URLs, shown, kept, edited, and refused in words."""
    page = browser.page(1200, 800)
    page.go(mock.address)
    page.wait("document.querySelector('#model').value === 'tiny'")
    need(page.js("document.querySelector('#attach').hidden"), "a model that reads text only has no button")
    need(page.js(DRAW + "bring('paste', [drawn('image/png', 'a.png')])"), "a pasted picture is taken")
    page.wait("!document.querySelector('#error').hidden")
    need("reads text only" in page.text("#error"), page.text("#error"))
    mock.sees, mock.answer = True, {"text": "A red one."}
    page.go(mock.address)
    page.wait("!document.querySelector('#attach').hidden")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "b.png")
        data = page.js(DRAW + """drawn("image/png", "b.png", 50, 20, "#33c").then((f) => new Promise((done) => {
            const r = new FileReader(); r.onload = () => done(r.result); r.readAsDataURL(f); }))""")
        with open(path, "wb") as file:
            file.write(base64.b64decode(data.split(",")[1]))
        document = page.call("DOM.getDocument")["root"]["nodeId"]
        node = page.call("DOM.querySelector", nodeId=document, selector="#pick")["nodeId"]
        page.call("DOM.setFileInputFiles", files=[path], nodeId=node)
        page.wait("document.querySelectorAll('#waiting img').length === 1")
    need(page.js(DRAW + "bring('paste', [drawn('image/jpeg', 'c.jpg')])"), "a pasted picture is taken")
    page.wait("document.querySelectorAll('#waiting img').length === 2")
    need(not page.js(DRAW + "bring('paste', [drawn('image/png', 'd.png')], 'a text')"), "text with a picture is pasted as text")
    need(page.js(DRAW + "bring('dragover', [drawn('image/png', 'e.png')])"), "a picture can be dropped")
    need(page.js("document.body.classList.contains('dropping')"), "where it can be dropped shows")
    page.js(DRAW + "bring('drop', [drawn('image/webp', 'e.webp', 5000, 10), new File(['no'], 'no.txt', {type: 'text/plain'})])")
    page.wait("document.querySelectorAll('#waiting img').length === 3 && !document.querySelector('#error').hidden")
    need("“no.txt” cannot be read as a picture." in page.text("#error"), page.text("#error"))
    gif = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
    page.js(DRAW + f"bring('drop', [new File([Uint8Array.from(atob('{gif}'), (c) => c.charCodeAt(0))], 'f.gif', "
            "{type: 'image/gif'})])")
    page.wait("document.querySelectorAll('#waiting img').length === 4")
    page.click("#waiting li:nth-child(2) button")
    page.wait("document.querySelectorAll('#waiting img').length === 3")
    ask(page, "What is it?")
    done(page, 1)
    content = mock.requests[-1][1]["messages"][0]["content"]
    need([p["type"] for p in content] == ["image_url"] * 3 + ["text"] and content[3]["text"] == "What is it?", "the parts")
    urls = [p["image_url"]["url"] for p in content[:3]]
    need(urls[0] == data and urls[1].startswith("data:image/webp;base64,") and urls[2].startswith("data:image/png;base64,"),
         f"pictures go as they are, other formats as PNG: {[u[:30] for u in urls]}")
    sizes = "[...document.querySelectorAll('.message.user .pictures img')].map((i) => i.naturalWidth)"
    page.wait(f"JSON.stringify({sizes}) === '[50,5000,1]'")
    need(page.js("document.querySelector('#waiting').hidden"), "none is left for the next message")
    page.js(DRAW + "bring('paste', [drawn('image/png', 'g.png', 7, 7)])")
    page.wait("document.querySelectorAll('#waiting img').length === 1")
    page.click("#send")  # without a word
    done(page, 2)
    need([p["type"] for p in mock.requests[-1][1]["messages"][2]["content"]] == ["image_url"], "a picture alone can be sent")
    page.go(mock.address)  # they are kept, outside of the chats
    page.wait(f"JSON.stringify({sizes}) === '[50,5000,1,7]'")
    need(page.js("localStorage.getItem('aerie.chats').length") < 4000, "chats hold no pictures")
    page.wait("!document.querySelector('#attach').hidden")
    page.click(".message.user button[aria-label='Edit this message']")
    page.wait("document.activeElement.matches('.edit textarea')")
    page.js("document.activeElement.select()")
    page.type("And now?")
    page.key("Enter")
    done(page, 1)
    content = mock.requests[-1][1]["messages"][0]["content"]
    need([p.get("image_url", {}).get("url") for p in content[:3]] == urls and content[3]["text"] == "And now?",
         "an edited message keeps its pictures")
    mock.n_ctx = 180
    page.js(DRAW + "bring('paste', [1, 2, 3, 4].map((i) => drawn('image/png', 'h.png', i, 1)))")
    page.wait("document.querySelectorAll('#waiting img').length === 4")
    ask(page, "Too many")
    page.wait("!document.querySelector('#error').hidden && document.querySelectorAll('#waiting img').length === 4")
    need(page.js("document.querySelector('#prompt').value") == "Too many", "what is too long comes back with its pictures")
    mock.n_ctx = 0
    page.click("#chat-list .icon")
    page.click("#confirm-yes")
    count = """new Promise((done) => { indexedDB.open("aerie").onsuccess = (e) => {
        const r = e.target.result.transaction("pictures").objectStore("pictures").count();
        r.onsuccess = () => done(r.result); }; })"""
    page.wait(count + ".then((n) => n === 4)")  # those that wait
    mock.sees = False
    return page


def check_history(page, mock):
    page.click("#new-chat")
    need(page.js("document.querySelectorAll('.message').length") == 0, "a new chat is empty")
    mock.answer = {"text": "Second chat."}
    ask(page, "Another chat")
    done(page, 1)
    page.go(mock.address)
    page.wait("document.querySelectorAll('#chat-list .chat').length === 2")
    need(page.text(".message.assistant .text") == "Second chat.", "the chat is there after loading the page again")
    need(page.js("document.querySelectorAll('.t.d2').length") > 0, "so are its colours")
    page.click("#chat-list li:nth-child(2) .chat")
    need(page.text(".message.user .text") == "Edited", "the other chat opens")
    page.click("#chat-list li:nth-child(2) .icon")
    page.wait("document.querySelector('#confirm').open")
    page.click("#confirm button[value=no]")
    need(page.js("document.querySelectorAll('#chat-list .chat').length") == 2, "a chat can be kept")
    page.click("#chat-list li:nth-child(2) .icon")
    page.click("#confirm-yes")
    page.wait("document.querySelectorAll('#chat-list .chat').length === 1")
    page.js("""Object.assign(window, {exported: null});
        URL.createObjectURL = (blob) => { blob.text().then((t) => { exported = t; });
        return 'data:,'; }""")
    page.click("#export-chats")
    page.wait("exported !== null")
    need(json.loads(page.js("exported"))[0]["messages"][1] == {"role": "assistant", "content": "Second chat."}, "the export")


def check_looks(browser, mock):
    page = browser.page(390, 844, phone=True, dark=True)
    mock.answer = {"text": "A long_" + "word" * 60 + " and\n\n```\n" + "code " * 60 + "\n```\n"}
    page.go(mock.address)
    need(page.js("document.documentElement.dataset.theme") == "dark", "the system's dark mode")
    ask(page, "On a phone")
    done(page, 1)
    need(page.js("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than the phone")
    need(page.js("getComputedStyle(document.querySelector('#chats')).visibility") == "hidden", "the chats are put away")
    page.click("#open-chats")
    page.wait("getComputedStyle(document.querySelector('#chats')).visibility === 'visible'")
    page.key("Escape")
    page.wait("getComputedStyle(document.querySelector('#chats')).visibility === 'hidden'")
    page.click("#theme")
    need(page.js("document.documentElement.dataset.theme") == "light", "the theme can be chosen")
    return page


def check_markdown(page):
    """Odd and hostile Markdown: no failure, no loss of letters, no time that grows with the square."""
    result = page.js(r"""(() => {
        const show = (s) => { const box = document.createElement("div");
            for (const [a, b] of Markdown.split(s))
                box.append(Markdown.render(s, a, b, (t) => document.createTextNode(t), () => {}));
            return box; };
        const odd = ["", "\n\n", "#", "# ", "```", "```\n", "~~~a\n```\n~~~", "- ", "-", "1.", "| a |\n|--|", "|\n|-|",
            "> > > x", "***a** b*", "[a](b", "[](", "`a", "``a`", "**", "****", "_a_b_", "\\", "a\\*b", "- a\n\n- b\n\n\n- c",
            "\u0000",
            "[x](https://a.b) ![y](https://c.d)", "  - deep\n - less", "- a\n  ```\n  x\n  ```\n- b", "a  \nb"];
        for (const s of odd) for (let i = 0; i <= s.length; i++) show(s.slice(0, i));
        const slow = ["*a ", "[a](", "`", "``` ", "> ", "- ", "**a", "_", "| a ", "[", "~~x", "\n\n- a", "![", "\\"];
        let worst = 0, which = "";
        for (const s of slow) { const text = s.repeat(Math.ceil(60000 / s.length)), began = performance.now(); show(text);
            const took = performance.now() - began; if (took > worst) { worst = took; which = s; } }
        return { worst, which, plain: show("plain *em* text").textContent, item: show("- a\n- b").querySelectorAll("li").length,
                 hard: show("1. a\n\n2. b\n\ntext").querySelectorAll("ol > li").length };
    })()""")
    need(result["plain"] == "plain em text" and result["item"] == 2 and result["hard"] == 2, f"Markdown: {result}")
    need(result["worst"] < 20000, f"Markdown takes too long: {result}")


def check_axe(page, label):
    path = os.environ.get("AERIE_AXE")
    if not path:
        return "not checked (AERIE_AXE)"
    page.js(pathlib.Path(path).read_text() + ";0")
    page.js("(document.querySelector('dialog[open]') ?? document.querySelector('main'))"
            ".append(Object.assign(document.createElement('button'), {id: 'nameless'}))")
    need(page.js("axe.run('#nameless').then((r) => r.violations.length)"), "axe finds what is wrong on purpose")
    page.js("document.querySelector('#nameless').remove()")
    found = page.js("""axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations.map((v) =>
        v.id + ": " + v.nodes.map((n) => n.target.join(" ")).slice(0, 5).join(", ")))""")
    need(not found, f"axe, {label}: " + "; ".join(found or []))
    return "clean"


def check_real(browser, program, mkmodel):
    """The page that the program serves, with a model of random weights."""
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "m.gguf")
        subprocess.run([mkmodel, "--shape", "tiny-gqa", "--type", "q4_0", model], check=True, stdout=subprocess.DEVNULL)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = subprocess.Popen([program, "serve", "-m", model, "--port", str(port), "--chat-template", "chatml"],
                                  stderr=subprocess.DEVNULL)
        address = f"http://127.0.0.1:{port}/"
        try:
            for _ in range(300):
                try:
                    headers = urllib.request.urlopen(address).headers
                    break
                except OSError:
                    time.sleep(0.1)
            else:
                raise Failure("aerie serve does not answer")
            need("script-src 'self'" in headers["Content-Security-Policy"], "the page's policy")
            page = browser.page(1200, 800)
            page.go(address)
            page.wait("document.querySelector('#model').options.length === 1")
            page.wait("fetch('aerie/curve').then((r) => r.json()).then((j) => j.points.length === 5)", 120)  # before it is busy
            page.js("""localStorage.setItem('aerie.view', '{"panel": true}')""")
            page.js("""localStorage.setItem('aerie.settings', JSON.stringify({max_tokens: "40", seed: "1"}))""")
            page.go(address)
            ask(page, "Hello")
            done(page, 1, 60)
            need(page.js("document.querySelector('#error').hidden"), f"aerie serve: {page.text('#error')}")
            need("tokens/s" in page.text(".message.assistant .figures"), "the figures of aerie serve")
            page.wait("!document.querySelector('#curve').hidden && document.querySelectorAll('#curve .dot').length === 5")
            complaints = page.complaints()
            need(not complaints, f"the console of the real page: {complaints}")
        finally:
            server.terminate()
            server.wait(600)


def main():
    path = find()
    if not path:
        print("skip: there is no Chromium (AERIE_CHROMIUM)")
        return 77
    mock = Mock()
    with Browser(path) as browser:
        page = browser.page(1366, 860)
        for check in (check_chat, check_stop, check_regenerate, check_edit, check_settings, check_reasoning_and_panel,
                      check_errors, check_history):
            check(page, mock)
            print("ok", check.__name__, flush=True)
        check_markdown(page)
        print("ok check_markdown")
        print("axe, light:", check_axe(page, "light"))
        phone = check_looks(browser, mock)
        print("ok check_looks")
        phone.click("#theme")
        print("axe, dark phone:", check_axe(phone, "dark phone"))
        others = [check_key(browser, mock), check_context(browser, mock), check_pictures(browser, mock)]
        print("ok check_key, check_context, check_pictures", flush=True)
        phone.click("#open-settings")
        print("axe, settings:", check_axe(phone, "settings"))
        complaints = [c for p in (page, phone, *others) for c in p.complaints()
                      if not re.search("status of (40[014]|429|50[0235])|favicon", c)]
        need(not complaints, f"the console: {complaints}")
        if len(sys.argv) > 2:
            check_real(browser, *sys.argv[1:3])
            print("ok check_real")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"FAILED: {failure}")
        sys.exit(1)
