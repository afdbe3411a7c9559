"""Images in requests: all dialects give the same answer, nothing but the pixels changes it, and what is not an image is
refused."""
import base64
import glob
import os
import random
import re
import socket
import struct
import subprocess
import tempfile
import threading
import unittest
import zlib

import rig
from rig import Server

PLAIN = {"temperature": 0, "max_tokens": 12}


def png(seed, w=40, h=30):
    rng = random.Random(seed)
    rows = b"".join(b"\0" + bytes(rng.randrange(256) for _ in range(3 * w)) for _ in range(h))

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def url(data):
    return "data:image/png;base64," + base64.b64encode(data).decode()


def part(data):
    return {"type": "image_url", "image_url": {"url": url(data)}}


def setUpModule():
    tools = os.path.dirname(os.path.abspath(rig.MKMODEL))
    for name, args in (("v.gguf", ["llama"]), ("vg.gguf", ["gemma3-cap"]), ("eye.gguf", ["mmproj-gemma3:64"]),
                       ("tiles.gguf", ["mmproj-idefics3:64"]), ("wide.gguf", ["mmproj-gemma3:96"]),
                       ("glm.gguf", ["glm4-sections"]), ("glm-eye.gguf", ["mmproj-glm4v:64"]),
                       ("llava-eye.gguf", ["mmproj-mlp:64"])):
        subprocess.run([os.path.join(tools, "mkarch"), *args, os.path.join(rig.FOLDER, name)], check=True)


def at(name):
    return os.path.join(rig.FOLDER, name)


class Vision(unittest.TestCase):
    def server(self, *options, model="v.gguf", eye="eye.gguf"):
        more = ["--mmproj", at(eye)] if eye else ["--no-mmproj"]
        return Server("-np", "8", "-c", "2048", "--no-access-log", *more, *options, model=model)

    def ask(self, s, *content, **fields):
        return s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": list(content)}], **PLAIN, **fields})

    def text(self, s, *content, **fields):
        a = self.ask(s, *content, **fields)
        self.assertEqual(a.status, 200, a.body)
        return a.json["choices"][0]["message"]["content"]

    def refused(self, s, words, *content, status=400):
        a = self.ask(s, *content)
        self.assertEqual(a.status, status, a.body)
        self.assertIn(words, a.error)

    def test_dialects_agree(self):
        question = {"type": "text", "text": "What is it?"}
        one, other = png(1), png(2)
        with self.server() as s:
            want = self.text(s, part(one), question)
            self.assertNotEqual(want, self.text(s, part(other), question))
            self.assertNotEqual(want, self.text(s, question))
            a = s.post("/v1/messages", {"max_tokens": 12, "temperature": 0, "messages": [{"role": "user", "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                             "data": base64.b64encode(one).decode()}}, question]}]})
            self.assertEqual(a.status, 200, a.body)
            self.assertEqual(a.json["content"][0]["text"], want)
            a = s.post("/v1/responses", {"temperature": 0, "max_output_tokens": 12, "input": [{"role": "user", "content": [
                {"type": "input_image", "image_url": url(one)}, {"type": "input_text", "text": "What is it?"}]}]})
            self.assertEqual(a.status, 200, a.body)
            self.assertEqual([c["text"] for o in a.json["output"] if o["type"] == "message" for c in o["content"]], [want])
            for path, body in (("/api/chat", {"messages": [{"role": "user", "content": "What is it?",
                                                            "images": [base64.b64encode(one).decode()]}]}),
                               ("/api/generate", {"prompt": "What is it?", "images": [base64.b64encode(one).decode()]})):
                a = s.post(path, {"model": "v", "stream": False, "options": {"temperature": 0, "num_predict": 12}, **body})
                self.assertEqual(a.status, 200, a.body)
                got = a.json["message"]["content"] if "message" in a.json else a.json["response"]
                self.assertEqual(got, want, path)

    def test_pictures_in_results_of_tools(self):
        """As Claude Code and Codex send them when a tool has read an image."""
        data = base64.b64encode(png(1)).decode()
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        text = ("{% for m in messages %}[{{ m.role }}] {% if m.content is string %}{{ m.content }}{% else %}"
                "{% for c in m.content %}{% if c.type == 'image' %}<start_of_image>{% else %}{{ c.text }}{% endif %}"
                "{% endfor %}{% endif %}"
                "{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}\n{% endfor %}")
        with self.server("--chat-template", text) as s:
            def said(picture):
                return s.post("/v1/chat/completions", {"messages": [
                    {"role": "user", "content": "look"}, {"role": "assistant", "content": "", "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "c1", "content": [part(picture)]}], **PLAIN}).json
            want = said(png(1))["choices"][0]["message"]["content"]
            self.assertNotEqual(want, said(png(2))["choices"][0]["message"]["content"])
            a = s.post("/v1/messages", {"max_tokens": 12, "temperature": 0, "messages": [
                {"role": "user", "content": "look"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [image]}]}]})
            self.assertEqual(a.status, 200, a.body)
            self.assertEqual(a.json["content"][0]["text"], want)
            a = s.post("/v1/responses", {"max_output_tokens": 12, "temperature": 0, "input": [
                {"role": "user", "content": "look"}, {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": [
                    {"type": "input_image", "image_url": url(png(1))}]}]})
            self.assertEqual(a.status, 200, a.body)
            self.assertEqual([c["text"] for o in a.json["output"] if o["type"] == "message" for c in o["content"]], [want])

    def test_further_families(self):
        """A template's placeholder becomes the text around a picture, and its rows; a user's is text."""
        for model, eye, mark, begin, end, n_rows in (
                ("glm.gguf", "glm-eye.gguf", "<|begin_of_image|><|image|><|end_of_image|>", "<|begin_of_image|>",
                 "<|end_of_image|>", 20), ("v.gguf", "llava-eye.gguf", "<image>", "", "", 64)):
            parts = ("{% for c in m.content %}{% if c.type == 'image' %}" + mark +
                     "{% else %}{{ c.text }}{% endif %}{% endfor %}")
            template = ("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}" + parts +
                        "{% endif %}{% endfor %}.")
            with self.server("--chat-template", template, model=model, eye=eye) as s:
                plain = self.ask(s, {"type": "text", "text": "hello" + mark + begin}).json["usage"]["prompt_tokens"]
                last = len(s.post("/tokenize", {"content": end + ".", "add_special": False}).json["tokens"])
                a = self.ask(s, {"type": "text", "text": "hello" + mark}, part(png(3)))
                self.assertEqual(a.status, 200, a.body)
                self.assertIn(a.json["usage"]["prompt_tokens"] - plain - n_rows, (last - 1, last - 2)) # a space and a stop
                b = self.ask(s, {"type": "text", "text": "hello" + mark}, part(png(4)))
                self.assertNotEqual(a.json["choices"], b.json["choices"])

    def test_usage_and_cache(self):
        with self.server() as s:
            plain = self.ask(s, {"type": "text", "text": "hello"}).json["usage"]["prompt_tokens"]
            a = self.ask(s, part(png(3)), {"type": "text", "text": "hello"}).json
            self.assertEqual(a["usage"]["prompt_tokens"], plain + 16 + len("<start_of_image>") + len("<end_of_image>"))
            b = self.ask(s, part(png(3)), {"type": "text", "text": "hello"}).json
            self.assertEqual(b["usage"]["prompt_tokens_details"]["cached_tokens"], a["usage"]["prompt_tokens"] - 1)
            self.assertEqual(a["choices"], b["choices"])

    def test_nothing_else_changes_the_answer(self):
        asks = [[part(png(i)), {"type": "text", "text": f"What is {i}?"}] if i % 3 else [{"type": "text", "text": f"Say {i}."}]
                for i in range(8)]
        asks[4] = [part(png(1)), {"type": "text", "text": "and"}, part(png(4)), {"type": "text", "text": "alike?"}]
        for model, eye in (("v.gguf", "eye.gguf"), ("vg.gguf", "eye.gguf"), ("v.gguf", "tiles.gguf")):
            want = None
            for options in (("--spec-type", "none", "-t", "1"), ("--spec-type", "ngram"),
                            ("--spec-type", "draft", "-md", at(model)), ("-b", "48", "--max-pause", "1")):
                with self.server(*options, model=model, eye=eye) as s:
                    got = [None] * len(asks)

                    def run(i):
                        got[i] = self.text(s, *asks[i], ignore_eos=True)
                    if want is None:
                        for i in range(len(asks)):
                            run(i)
                        want = got
                        continue
                    for _ in range(2):
                        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(asks))]
                        for t in threads:
                            t.start()
                        for t in threads:
                            t.join()
                        self.assertEqual(got, want, (model, eye, options))

    def test_what_is_refused(self):
        text = {"type": "text", "text": "?"}
        image = png(5)
        with self.server() as s:
            where = "messages[0].content[0]: "
            for bad in ("http://127.0.0.1:9/a.png", "https://example.com/a.png", "file:///etc/passwd", "ftp://x", ""):
                self.refused(s, where + "this server does not fetch images", {"type": "image_url", "image_url": bad}, text)
            self.refused(s, "needs 'image_url'", {"type": "image_url"}, text)
            self.refused(s, "needs 'image_url'", {"type": "image_url", "image_url": {"url": 7}}, text)
            self.refused(s, "must be", {"type": "image_url", "image_url": "data:image/png,abc"}, text)
            self.refused(s, "not base64", {"type": "image_url", "image_url": "data:image/png;base64,a*b="}, text)
            self.refused(s, "is empty", {"type": "image_url", "image_url": "data:image/png;base64,"}, text)
            self.refused(s, "is not a", {"type": "image_url", "image_url": url(b"hello there, this is text")}, text)
            self.refused(s, "a GIF", {"type": "image_url", "image_url": url(b"GIF89a" + bytes(20))}, text)
            self.refused(s, "damaged", {"type": "image_url", "image_url": url(image[:100])}, text)
            self.refused(s, "more than 16", *[part(image)] * 17)
            huge = image[:16] + struct.pack(">II", 100000, 100000) + image[24:]
            self.assertEqual(self.ask(s, {"type": "image_url", "image_url": url(huge)}).status, 400)
            self.refused(s, "not supported", {"type": "input_audio", "input_audio": {}}, text)
            self.assertTrue(self.text(s, part(image), text))
        with self.server(eye=None) as s:
            self.refused(s, "reads text only", part(image), text)

    def test_a_process_for_each_image(self):
        text = {"type": "text", "text": "What is it?"}
        with self.server() as s:
            want = self.text(s, part(png(1)), text)
        with self.server("--image-process") as s:
            self.assertEqual(self.text(s, part(png(1)), text), want)
            self.refused(s, "is not a", {"type": "image_url", "image_url": url(b"hello there, this is text")}, text)
            self.refused(s, "damaged", {"type": "image_url", "image_url": url(png(5)[:100])}, text)
            self.assertNotEqual(self.text(s, part(png(2)), text), want)
            self.assertEqual(self.text(s, part(png(1)), text), want)
            for task in glob.glob(f"/proc/{s.process.pid}/task/*/children"): # none is left
                try:
                    with open(task, encoding="ascii") as f:
                        self.assertEqual(f.read(), "")
                except OSError:  # the thread, which served a connection, has ended
                    pass
        for options, apart in (((), False), (("--host", "0.0.0.0"), True), (("--image-url-hosts", "a.example"), True),
                               (("--host", "0.0.0.0", "--no-image-process"), False)):
            with self.server(*options) as s:
                self.assertEqual(self.text(s, part(png(1)), text), want)
                with open(f"/proc/{s.process.pid}/stat", encoding="ascii") as f:
                    faults = f.read().rsplit(")", 1)[1].split()[8]  # page faults of children that have ended
                self.assertEqual(int(faults) > 0, apart, options)
        both = subprocess.run([rig.AERIE, "serve", "-m", at("none.gguf"), "--image-process", "--no-image-process"],
                              capture_output=True, text=True)
        self.assertEqual((both.returncode, "exclude each other" in both.stderr), (2, True), both.stderr)
        empty = subprocess.run([rig.AERIE, "--decode-image"], input=b"", capture_output=True)
        self.assertEqual((empty.returncode, empty.stdout), (1, b""))

    def test_private_hosts(self):
        """A list of hosts opens no private address: neither by number, nor by a name that means one."""
        text = {"type": "text", "text": "?"}
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            hosts = f"localhost:{port},127.0.0.1:{port},*.example"
            with self.server("--image-url-hosts", hosts, "--image-url-http") as s:
                where = "messages[0].content[0]: "
                for host in ("localhost", "127.0.0.1", "0x7f.1"):
                    self.refused(s, where + "the host", {"type": "image_url", "image_url": f"http://{host}:{port}/a.png"}, text)
                for bad, words in ((f"http://10.0.0.1:{port}/", "from that host"), ("https://example/a", "from that host"),
                                   ("https://x.example:8443/a", "from that host"), ("file:///etc/passwd", "malformed"),
                                   ("ftp://a.example/x", "https and http only"), ("http://u:p@a.example/x", "user name")):
                    self.refused(s, where, {"type": "image_url", "image_url": bad}, text)
                    self.refused(s, words, {"type": "image_url", "image_url": bad}, text)
                self.assertTrue(self.text(s, part(png(5)), text))
            listener.setblocking(False)
            self.assertRaises(BlockingIOError, listener.accept)
        for options in (("--image-url-hosts", "https://a"), ("--image-url-http",)):
            run = subprocess.run([rig.AERIE, "serve", "-m", at("v.gguf"), *options], capture_output=True, text=True)
            self.assertEqual(run.returncode, 2, run.stderr)

    def test_embeddings_refuse_images(self):
        with self.server() as s:
            for value in (part(png(1)), [part(png(1))], ["text", {"content": [part(png(1))]}],
                          {"prompt_string": "<__media__>", "multimodal_data": ["AAAA"]}, [{"image": "AAAA"}]):
                for path, field in (("/v1/embeddings", "input"), ("/api/embed", "input")):
                    a = s.post(path, {"model": "v", field: value})
                    self.assertEqual(a.status, 400, a.body)
                    self.assertIn("only texts can be embedded", a.error)

    def test_damaged_images(self):
        rng = random.Random(9)
        image = png(6)
        with self.server() as s:
            n = [0, 0]
            for i in range(200):
                data = bytearray(image)
                for _ in range(1 + i % 3):
                    data[rng.randrange(len(data))] ^= 1 + rng.randrange(255)
                if i % 4 == 0:
                    data = data[:rng.randrange(len(data))]
                a = self.ask(s, {"type": "image_url", "image_url": url(bytes(data))}, max_tokens=1)
                self.assertIn(a.status, (200, 400), a.body)
                n[a.status == 400] += 1
            self.assertGreater(n[1], 100)
            self.assertTrue(self.text(s, part(image)))

    def test_a_spelled_placeholder_is_text(self):
        with self.server() as s:
            a = self.ask(s, {"type": "text", "text": "<start_of_image> <image> <__media__> [IMG]"})
            self.assertEqual(a.status, 200, a.body)
            b = self.ask(s, part(png(1)), {"type": "text", "text": "<start_of_image> <image> <__media__> [IMG]"})
            self.assertEqual(b.status, 200, b.body)
            self.assertEqual(b.json["usage"]["prompt_tokens"],
                             a.json["usage"]["prompt_tokens"] + 16 + len("<start_of_image>") + len("<end_of_image>"))

    def test_little_memory(self):
        with self.server("--max-request-memory", "8") as s:
            a = self.ask(s, part(png(1, 1200, 900)))
            self.assertIn(a.status, (400, 503), a.body)
            self.assertEqual(self.ask(s, {"type": "text", "text": "hello"}).status, 200)

    def test_conversations_are_kept(self):
        """--cache-disk over a restart, and slots: what was computed of a picture is found by its pixels."""
        question = {"type": "text", "text": "What is it? " + "Say it in many words. " * 8}
        folder = tempfile.mkdtemp(dir=rig.FOLDER)

        def cached(a):
            return a["usage"]["prompt_tokens_details"]["cached_tokens"]
        for model, eye in (("v.gguf", "eye.gguf"), ("vg.gguf", "eye.gguf")):
            with self.server("--cache-ram", "0", model=model, eye=eye) as s:
                want = self.ask(s, part(png(1)), question).json
                other = self.ask(s, part(png(2)), question).json
            with self.server("--cache-disk", folder, "--slot-save-path", folder, model=model, eye=eye) as s:
                self.assertEqual(self.ask(s, part(png(2)), question).json["choices"], other["choices"])
                self.assertEqual(self.ask(s, part(png(1)), question).json["choices"], want["choices"])
                a = [s.post(f"/slots/{i}?action=save", {"filename": f"{model}{i}"}) for i in range(2)]
                self.assertIn(200, [x.status for x in a], a[0].body)
                saved = [i for i in range(2) if a[i].status == 200]
            with self.server("--cache-disk", folder, model=model, eye=eye) as s:
                first = self.ask(s, part(png(1)), question).json
                self.assertEqual(first["choices"], want["choices"])
                self.assertEqual(cached(first), want["usage"]["prompt_tokens"] - 1)
                second = self.ask(s, part(png(2)), question).json
                self.assertEqual(second["choices"], other["choices"])
                self.assertEqual(self.ask(s, part(png(3)), question).status, 200)
            with self.server("--cache-ram", "0", "--slot-save-path", folder, model=model, eye=eye) as s:
                self.assertEqual(self.ask(s, part(png(3)), question).status, 200)  # other pictures come first here
                for i in saved:
                    a = s.post(f"/slots/{7 - i}?action=restore", {"filename": f"{model}{i}"})
                    self.assertEqual(a.status, 200, a.body)
                again = [self.ask(s, part(png(i)), question).json for i in (1, 2)]
                self.assertEqual([a["choices"] for a in again], [want["choices"], other["choices"]])
                self.assertGreater(max(map(cached, again)), want["usage"]["prompt_tokens"] - 2)
                a = s.post(f"/slots/{7 - saved[0]}?action=save", {"filename": "again"})
                self.assertEqual(a.status, 200, a.body)

    def test_prompt_cache(self):
        path = at("kept")

        def run(i, *options):
            a = subprocess.run([rig.AERIE, "run", "-m", at("v.gguf"), "--mmproj", at("eye.gguf"), "--image", at(f"{i}.png"),
                                "-p", "What is it?", "-n", "8", "--temp", "0", "-q", "--ids", "--ignore-eos", "--stats",
                                *options], capture_output=True, text=True, stdin=subprocess.DEVNULL)
            self.assertEqual(a.returncode, 0, a.stderr)
            n, n_cached = map(int, re.search(r"prompt (\d+) tokens \((\d+) cached\)", a.stderr).groups())
            return a.stdout, n - n_cached
        for i in (1, 2):
            with open(at(f"{i}.png"), "wb") as f:
                f.write(png(i))
        plain = [run(i)[0] for i in (1, 2)]
        for options in (("--prompt-cache", path), ("--prompt-cache", path, "--prompt-cache-all")):
            if os.path.exists(path):
                os.unlink(path)
            self.assertEqual(run(1, *options)[0], plain[0])
            written = os.path.getmtime(path)
            again = run(1, *options)
            self.assertEqual(again, (plain[0], 1))
            self.assertEqual(os.path.getmtime(path), written)  # it has all of them already
            self.assertEqual(run(2, *options)[0], plain[1])

    def test_run(self):
        def run(*options):
            return subprocess.run([rig.AERIE, "run", "-m", at("v.gguf"), "-p", "What is it?", "-n", "8", "--temp", "0", "-q",
                                   "--ids", "--ignore-eos", *options], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        for i in (1, 2):
            with open(at(f"{i}.png"), "wb") as f:
                f.write(png(i))
        eye = ("--mmproj", at("eye.gguf"))
        one, other = (run(*eye, "--image", at(f"{i}.png")) for i in (1, 2))
        self.assertEqual((one.returncode, other.returncode), (0, 0), one.stderr + other.stderr)
        self.assertNotEqual(one.stdout, other.stdout)
        self.assertEqual(one.stdout, run(*eye, "--image", at("1.png"), "-t", "1", "--cpu", "ref").stdout)
        for status, words, options in ((3, "belongs to another model", ("--mmproj", at("wide.gguf"), "--image", at("1.png"))),
                                       (2, "reads text only", ("--no-mmproj", "--image", at("1.png"))),
                                       (3, "eye.gguf: the image is not a", (*eye, "--image", at("eye.gguf"))),
                                       (3, "none.png", (*eye, "--image", at("none.png"))),
                                       (2, "one prompt", (*eye, "--image", at("1.png"), "-p", "another")),
                                       (3, "not a projector", ("--mmproj", at("v.gguf"), "--image", at("1.png")))):
            a = run(*options)
            self.assertEqual(a.returncode, status, a.stderr)
            self.assertIn(words, a.stderr)


if __name__ == "__main__":
    rig.main("__main__")
