"""Memory of requests, and lack of memory: each request that meets a lack of it is answered with 503, or cut off where not even
that can be said, and never with an answer that is not the one it gets alone.

By default every 23rd allocation of each kind of request fails. All of them, with the outcomes of each kind, in a few minutes:

    AERIE_SERVE_EVERY=1 tests/serve/check_memory.py build/aerie build/tests/mkmodel -k allocation
"""
import concurrent.futures
import http.client
import json
import mmap
import os
import re
import socket
import struct
import subprocess
import threading
import time
import unittest

import rig
from check_laws import plain, said
from rig import Server, chat

MIB = 1 << 20


def peak(server):
    """MiB that the server has held at most since reset."""
    with open(f"/proc/{server.process.pid}/status") as f:
        return int(re.search(r"VmHWM:\s+(\d+)", f.read()).group(1)) / 1024


def reset(server):
    with open(f"/proc/{server.process.pid}/clear_refs", "w") as f:
        f.write("5")
    return peak(server)


def make_other(kind):
    """The file's name: a tiny model of another architecture."""
    name = kind + ".gguf"
    subprocess.run([os.path.join(os.path.dirname(rig.MKMODEL), "mkarch"), kind, os.path.join(rig.FOLDER, name)], check=True,
                   stdout=subprocess.DEVNULL)
    return name


class Held(unittest.TestCase):
    """Memory in proportion to what requests send, and a limit for all of them together."""

    def post_raw(self, server, path, body, receive=None):
        """A connection on which the request has been sent; receive: bytes of its socket's buffer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        s = socket.socket()
        if receive:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        s.settimeout(rig.patience(60))
        s.connect(("127.0.0.1", server.port))
        s.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        return s

    def test_answers_take_little_memory_whatever_their_size(self):
        if rig.SLOW > 1:
            self.skipTest("sanitizers hold memory of their own")
        n = 300000
        kinds = [
            ("/tokenize", {"content": "ab " * n, "with_pieces": True}, 60),
            ("/tokenize", {"content": "ab " * n}, 60),
            ("/detokenize", {"tokens": [300] * 100000}, 60),
            ("/apply-template", {"messages": [{"role": "user", "content": "ab " * n}]}, 90),
            ("/v1/completions", {"prompt": "a", "max_tokens": 1000, "n": 4, "logprobs": 20, "ignore_eos": True, "seed": 1}, 30),
            ("/v1/chat/completions", {**chat("a", max_tokens=1000, n=4, logprobs=True, top_logprobs=20, ignore_eos=True),
                                      "return_origins": True}, 30),
            ("/completion", {"prompt": "a", "n_predict": 1000, "n_probs": 20, "ignore_eos": True}, 30),
        ]
        with Server("-np", "4", "-c", "2048", "--max-request-memory", "512") as s:
            for path, body, most in kinds:
                before = reset(s)
                a = s.post(path, body)
                self.assertEqual(a.status, 200, a.body[:500])
                self.assertEqual(int(a.headers["Content-Length"]), len(a.body))
                a.json
                self.assertLess(peak(s) - before, most, (path, len(a.body) / MIB))
        with Server("--max-request-memory", "512", model=make_other("bert")) as s:
            for path in ("/v1/embeddings", "/api/embed"):
                before = reset(s)
                a = s.post(path, {"model": "bert", "input": [[5, 6, 7]] * 2048})
                self.assertEqual(a.status, 200, a.body[:500])
                self.assertEqual(len(a.json["data" if path.startswith("/v1") else "embeddings"]), 2048)
                self.assertLess(peak(s) - before, 30, (path, len(a.body) / MIB))

    def test_an_answer_in_parts_is_that_of_its_parts(self):
        """Texts and lists of every length around where they are cut, with characters of every length."""
        with Server("-np", "1") as s:
            for text in ("", "a", "x\"\\\u0001\n" * 3000, "aé€😀" * 5000, "😀" * 1023 + "é" * 10, "a" * 4095 + "€" + "b" * 9000):
                a = s.post("/apply-template", {"messages": [{"role": "user", "content": text}]}).json["prompt"]
                self.assertIn(text, a)
                tokens = s.post("/tokenize", {"content": text})
                pieces = s.post("/tokenize", {"content": text, "with_pieces": True}).json["tokens"]
                self.assertEqual([p["id"] for p in pieces], tokens.json["tokens"])
                self.assertEqual(tokens.json["count"], len(pieces))
                whole = b"".join(p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in pieces)
                if text:
                    self.assertIn(text.encode(), whole)
                    back = s.post("/detokenize", {"tokens": tokens.json["tokens"]}).json["content"]
                    self.assertEqual(back, whole.decode())
            for n in (1, 2, 300):
                long = {"prompt": "a", "max_tokens": n, "logprobs": 20, "ignore_eos": True, "seed": 3, "return_origins": True}
                a = s.post("/v1/completions", long).json["choices"][0]
                b = s.post("/completion", {**long, "logprobs": None, "n_probs": 20}).json
                self.assertEqual([t["token"] for t in b["completion_probabilities"]], a["logprobs"]["tokens"])
                self.assertEqual([t["logprob"] for t in b["completion_probabilities"]], a["logprobs"]["token_logprobs"])
                self.assertEqual([o["text"] for o in a["origins"]], a["logprobs"]["tokens"])
                self.assertEqual([len(t["top_logprobs"]) for t in b["completion_probabilities"]], [20] * n)
                some = s.post("/completion", {**long, "logprobs": None, "n_probs": 20, "response_fields": [
                    "completion_probabilities", "nothing", "timings/predicted_n", "completion_probabilities"]}).json
                self.assertEqual(some, {"completion_probabilities": b["completion_probabilities"], "timings/predicted_n": n})

    def test_the_limit_of_likeliest_tokens(self):
        asks = [("/v1/completions", {"prompt": "a", "max_tokens": 1}, "logprobs"),
                ("/v1/chat/completions", chat("a", max_tokens=1, logprobs=True), "top_logprobs"),
                ("/completion", {"prompt": "a", "n_predict": 1}, "n_probs"),
                ("/infill", {"input_prefix": "a", "input_suffix": "b", "n_predict": 1}, "n_probs")]
        with Server() as s:
            for path, body, field in asks:
                a = s.post(path, {**body, field: 21})
                self.assertEqual(a.status, 400, (path, a.body))
                self.assertIn("from 0 to 20 (--max-logprobs)", a.error)
                self.assertEqual(s.post(path, {**body, field: 20}).status, 501 if path == "/infill" else 200)
        with Server("--max-logprobs", "128") as s:
            for path, body, field in asks[:3]:
                self.assertEqual(s.post(path, {**body, field: 128}).status, 200)
                self.assertIn("from 0 to 128 (--max", s.post(path, {**body, field: 129}).error)

    def test_beyond_the_limit_is_503_and_small_requests_go_on(self):
        small = {"prompt": "a", "max_tokens": 2, "temperature": 0}
        trees = {  # what is read has many times its bytes, in a field that nobody knows too
            "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}] * 100000, "max_tokens": 1},
            "/v1/messages": {"max_tokens": 1,
                             "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * 100000}]},
            "/v1/responses": {"input": [{"role": "user", "content": "a"}] * 100000},
            "/api/chat": {"model": "m", "messages": [{"role": "user", "content": "a"}] * 100000},
            "/apply-template": {"messages": [{"role": "user", "content": "a"}] * 100000},
            "/tokenize": {"content": "ab " * 1000000, "with_pieces": True},
            "/detokenize": {"tokens": [100] * 800000},
            "/v1/completions": {"prompt": "a", "max_tokens": 1, "x": [{}] * 300000},
            "/completion": {"prompt": [[5] * 8] * 100000, "n_predict": 1},
            "/lora-adapters": [{"id": 0, "scale": 1}] * 100000,
        }
        with Server("-np", "2", "--max-request-memory", "16", "--no-access-log") as s:
            before = reset(s)
            for path, body in trees.items():
                a = s.post(path, body)
                self.assertEqual(a.status, 503, (path, a.body[:300]))
                self.assertGreaterEqual(int(a.headers["Retry-After"]), 1)
                self.assertIn("--max-request-memory", a.error)
                self.assertEqual(s.post("/v1/completions", small).status, 200)
            if rig.SLOW == 1:
                self.assertLess(peak(s) - before, 16 + 48)
            self.assertEqual(self.figure(s, "requests_beyond_memory_total"), len(trees))
            self.assertEqual(self.figure(s, "request_memory_limit_bytes"), 16 * MIB)
            self.until(lambda: self.figure(s, "request_memory_bytes") < MIB, True)
            # a body that comes slowly counts as it comes
            held = []
            for _ in range(4):
                c = socket.create_connection(("127.0.0.1", s.port), rig.patience(60))
                c.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6000000\r\n\r\n" + b" " * 5900000)
                held.append(c)
            text = {"content": "ab " * 100000}
            self.until(lambda: s.post("/tokenize", text).status, 503)
            self.assertEqual(s.post("/v1/completions", small).status, 200)
            for c in held:
                c.close()
            self.until(lambda: s.post("/tokenize", text).status, 200)

    @staticmethod
    def figure(server, name):
        return int(re.search(rf"^aerie:{name} (\d+)$", server.get("/metrics").body.decode(), re.M).group(1))

    def until(self, what, expected):
        rig.wait_for(lambda: what() == expected)

    def test_answers_that_nobody_takes_count_until_their_clients_go(self):
        text = {"content": "ab " * 300000, "with_pieces": True}
        with Server("-np", "2", "--max-request-memory", "64", "--no-access-log") as s:
            self.assertEqual(s.post("/tokenize", text).status, 200)
            held = []
            for _ in range(60):
                held.append(self.post_raw(s, "/tokenize", text, receive=4096))
                if held[-1].recv(12) == b"HTTP/1.1 503":
                    break
            else:
                self.fail("60 answers of 2 MB of tokens fit into 64 MiB")
            self.assertEqual(s.post("/v1/completions", {"prompt": "a", "max_tokens": 2}).status, 200)
            for c in held:
                c.close()
            self.until(lambda: s.post("/tokenize", text).status, 200)

    def test_heavy_bodies_step_back(self):
        """Their threads have a lower priority, and their connections end; small requests keep both."""
        def nices(s):
            found = []
            for task in os.listdir(f"/proc/{s.process.pid}/task"):
                try:
                    with open(f"/proc/{s.process.pid}/task/{task}/stat", encoding="ascii", errors="replace") as f:
                        found.append(int(f.read().rsplit(")", 1)[1].split()[16]))
                except OSError:
                    pass # it has ended
            return found

        with Server("-np", "2", "--no-access-log") as s:
            before = max(nices(s))
            light = s.post("/tokenize", {"content": "ab " * 100})
            self.assertNotEqual(light.headers.get("Connection"), "close")
            held = self.post_raw(s, "/tokenize", {"content": "ab " * 500000, "with_pieces": True}, receive=4096)
            self.assertIn(b" 200 ", held.recv(20))
            self.assertEqual(max(nices(s)), max(before, 10))
            self.assertGreaterEqual(nices(s).count(before), 2)
            held.close()
            heavy = s.post("/tokenize", {"content": "ab " * 500000})
            self.assertEqual((heavy.status, heavy.headers.get("Connection")), (200, "close"))

    def test_tokens_that_nobody_takes_count(self):
        """A stream whose client does not read: its events wait, are counted, and end that answer, no other."""
        with Server("-np", "2", "-c", "14000", "--max-request-memory", "1", "--no-access-log") as s:
            c = self.post_raw(s, "/v1/completions", {"prompt": "a", "max_tokens": 12000, "logprobs": 20, "stream": True,
                                                     "ignore_eos": True}, receive=4096)
            out = c.recv(1)
            self.until(lambda: any(x["is_processing"] for x in s.get("/slots").json), False)
            self.assertEqual(s.post("/v1/completions", {"prompt": "a", "max_tokens": 2}).status, 200)
            while True:
                part = c.recv(1 << 16)
                out += part
                if not part or out.endswith(b"0\r\n\r\n"):
                    break
            c.close()
            self.assertIn(b"--max-request-memory", out)
            self.assertNotIn(b"[DONE]", out)

    def test_memory_of_large_requests_goes_back(self):
        if rig.SLOW > 1:
            self.skipTest("sanitizers hold memory of their own")
        with Server("-np", "4", "--no-access-log", "--max-request-memory", "4096") as s:
            s.post("/v1/chat/completions", chat("a"))
            before = s.memory() / 1024
            body = {"messages": [{"role": "user", "content": "a"}] * 60000, "max_tokens": 1}
            kept = [s.connect() for _ in range(8)]  # each with a thread and, maybe, an arena of its own
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(lambda c: s.call("POST", "/v1/chat/completions", body, connection=c).status, kept))
            self.assertEqual(set(answers), {400})  # the context is too small, of which the tokens tell
            self.until(lambda: s.memory() / 1024 < before + 48, True)
            for c in kept:
                c.close()


class Memory(unittest.TestCase):
    """Allocations that fail, of the whole process (tests/preload/alloc_fails.c): that request is answered with 503, or cut off
    where not even that can be said; the other one goes on, and so does the server."""
    TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"enum": [1]}}}}}
    SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}, "required": ["a", "b"]}
    FORCED = {"type": "function", "function": {"name": "add", "parameters": SCHEMA}}
    TURNS = [{"role": "user", "content": "hi"},
             {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {
                 "name": "add", "arguments": "{\"a\": 1, \"b\": \"x\"}"}}]},
             {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "3"}]}]
    KINDS = [
        ("/v1/chat/completions", {**chat("one", max_tokens=6, logprobs=True, top_logprobs=2, stop=["zz"], n=2, seed=1),
                                  "tools": [TOOL], "logit_bias": {"5": 1}}),
        ("/v1/chat/completions", {**chat("two", max_tokens=30), "response_format": {"type": "json_schema", "json_schema": {
            "name": "n", "schema": {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}}}}),
        ("/v1/chat/completions", chat("three", max_tokens=8, ignore_eos=True, stream=True, return_origins=True)),
        ("/v1/completions", {"prompt": "four", "max_tokens": 8, "logprobs": 1, "echo": True, "stream": True, "seed": 1}),
        ("/v1/responses", {"input": "five", "max_output_tokens": 8, "temperature": 0, "text": {"format": {"type": "text"}}}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "six"}], "max_tokens": 8, "temperature": 0, "stream": True}),
        ("/api/chat", {"model": "m", "messages": [{"role": "user", "content": "seven"}],
                       "options": {"num_predict": 8, "seed": 1}}),
        ("/tokenize", {"content": "eight", "with_pieces": True}),
        ("/apply-template", {"messages": [{"role": "user", "content": "nine"}]}),
        ("/v1/chat/completions", {**chat("forced", max_tokens=60, seed=3), "tools": [FORCED], "tool_choice": "required"}),
        ("/v1/chat/completions", {**chat("named", max_tokens=60, seed=3, stream=True), "tools": [FORCED, TOOL],
                                  "tool_choice": {"type": "function", "function": {"name": "add"}}}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "any"}], "max_tokens": 60, "temperature": 0, "seed": 3,
                          "tools": [{"name": "add", "input_schema": SCHEMA}], "tool_choice": {"type": "any"}}),
        ("/v1/responses", {"input": "forced", "max_output_tokens": 60, "temperature": 0, "seed": 3, "tool_choice": "required",
                           "tools": [{"type": "function", "name": "add", "parameters": SCHEMA}]}),
        ("/v1/responses", {"input": "custom", "max_output_tokens": 60, "temperature": 0, "seed": 3, "tool_choice": "required",
                           "tools": [{"type": "custom", "name": "note"}]}),
        ("/v1/chat/completions", {"messages": TURNS, "tools": [FORCED], "max_tokens": 6, "temperature": 0,
                                  "chat_template_kwargs": {"a": [1, {"b": "c"}]}}),
        ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": [{"type": "text", "text": "ten"}]}],
                                       "tools": [{"name": "add", "input_schema": SCHEMA}]}),
        ("/completion", {"prompt": ["a", 300, 301], "n_predict": 6, "n_probs": 3, "temperature": 0, "stop": ["zz"],
                         "response_fields": ["content", "completion_probabilities", "generation_settings/seed"], "seed": 1}),
        ("/v1/completions", {"prompt": ["a", "b"], "max_tokens": 6, "logprobs": 2, "echo": True, "temperature": 0, "n": 2}),
        ("/v1/completions", {"prompt": "a", "max_tokens": 9, "grammar": "root ::= \"a\" [b-d]{1,9}", "temperature": 0}),
        ("/api/generate", {"model": "m", "prompt": "a", "format": "json", "options": {"num_predict": 20, "seed": 1},
                           "stream": False}),
        ("/detokenize", {"tokens": [200, 300, 301]}),
        ("/tokenize", {"content": "\u00e9 twelve"}),
    ]
    ENCODER = [
        ("/v1/embeddings", {"input": ["one", "two words", "three"]}),
        ("/v1/embeddings", {"input": [[5, 6, 7], [8]], "encoding_format": "base64"}),
        ("/api/embed", {"model": "bert", "input": ["one", "two"]}),
    ]
    RANKER = [("/v1/rerank", {"query": "q", "documents": ["a", {"text": "b c"}], "return_documents": True})]

    def setUp(self):
        library = os.path.join(os.path.dirname(os.path.abspath(rig.MKMODEL)), "liballoc_fails.so")
        if not os.path.exists(library):
            self.skipTest("without sanitizers only, where tests/preload is built")
        path = os.path.join(rig.FOLDER, "alloc_fails")
        with open(path, "wb") as f:
            f.write(bytes(24))
        with open(path, "r+b") as f:
            self.control = mmap.mmap(f.fileno(), 24)
        self.environment = {"LD_PRELOAD": library, "ALLOC_FAILS": path}

    def arm(self, nth, n_fail=1):
        self.control[8:16] = struct.pack("q", n_fail)
        self.control[0:8] = struct.pack("q", nth)

    def n_calls(self):
        return struct.unpack("q", self.control[16:24])[0]

    @staticmethod
    def ask(server, kind):
        """("whole", what is said), ("refused", status), ("cut", why), or what it may not be."""
        path, body = kind
        c = server.connect(20)
        try:
            a = server.call("POST", path, body, connection=c)
        except (OSError, http.client.HTTPException) as e:
            return ("hangs" if isinstance(e, TimeoutError) else "cut", repr(e))
        finally:
            c.close()
        if a.status != 200:
            return ("refused" if a.status == 503 and (a.error if a.body else True) else "wrong", f"{a.status} {a.body}")
        text = a.body.decode()
        try:
            return Memory.verdict(a, text)
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            return ("wrong", f"{e!r}: {text}")

    @staticmethod
    def verdict(a, text):
        if a.headers.get("content-type", "").startswith("application/json"):
            return ("whole", said(a.json))
        # a stream: what was said before an error must be a beginning of what is said alone
        lines = [line.removeprefix("data: ") for line in text.split("\n") if line and not line.startswith((":", "event: "))]
        events = [plain(json.loads(line)) for line in lines if line != "[DONE]"]
        failed = [e for e in events if "error" in e or e.get("type") == "error"]
        told = []
        for e in events:
            for c in e.get("choices", [e]):
                delta = c.get("delta", c.get("message", c))
                if isinstance(delta, dict):
                    told += [delta.get("content", delta.get("text", delta.get("partial_json")))]
                    told += [x["function"].get("name", "") + x["function"].get("arguments", "")
                             for x in delta.get("tool_calls", [])]
                else:
                    told.append(delta)
        return ("stopped" if failed else "whole", "".join(t for t in told if isinstance(t, str)))

    def check(self, verdict, expected, what):
        if verdict[0] == "whole":
            self.assertEqual(verdict, expected, what)
        elif verdict[0] == "stopped":
            self.assertTrue(expected[1].startswith(verdict[1]), what)
        else:
            self.assertIn(verdict[0], ("refused", "cut"), (verdict, what))

    def sweep(self, server, kinds, every, n_fail):
        """Every so many-th allocation of each request fails, and n_fail - 1 after it; outcomes by kind."""
        for i, kind in enumerate(kinds):
            expected = self.ask(server, kind)
            self.assertEqual(expected[0], "whole", (kind, expected))
            self.ask(server, kind)
            before = self.n_calls()
            self.ask(server, kind)
            total, counts = self.n_calls() - before, {}
            step = 1 if n_fail == 1 and kind[1].get("echo") else every  # one row of the prompt must not be left out
            for nth in range(1 + i % step, total + 1, step):
                self.arm(nth, n_fail)
                got = self.ask(server, kind)
                self.arm(0)
                self.check(got, expected, (kind, nth, n_fail, got))
                counts[got[0]] = counts.get(got[0], 0) + 1
            self.assertEqual(self.ask(server, kind), expected)
            print(f"{kind[0]} {str(kind[1])[:60]}: of {total} allocations {sum(counts.values())} failed, {n_fail} at a time: "
                  f"{counts}")

    def test_each_allocation_that_fails_costs_its_own_answer(self):
        every = int(os.environ.get("AERIE_SERVE_EVERY", 23))
        for model, kinds in (("m.gguf", self.KINDS), (make_other("bert"), self.ENCODER),
                             (make_other("bert-rank"), self.RANKER)):
            chats = ["--chat-template-file", rig.template("tools")] if model == "m.gguf" else []
            with Server("-np", "4", "--no-access-log", "--spec-type", "none", "-t", "1", *chats, model=model,
                        env=self.environment) as server:
                self.sweep(server, kinds, every, 1)
                self.sweep(server, kinds, 4 * every + 1, 3)

    def test_an_allocation_that_fails_costs_one_of_two_answers(self):
        every = 97
        other = ("/v1/completions", {"prompt": "the other one", "max_tokens": 12, "temperature": 0, "ignore_eos": True})
        counts = {}
        with Server("-np", "4", "--no-access-log", "--chat-template-file", rig.template("tools"),
                    env=self.environment) as server:
            expected = [self.ask(server, kind) for kind in self.KINDS]
            expected_other = self.ask(server, other)
            self.assertEqual({v[0] for v in [*expected, expected_other]}, {"whole"}, expected)
            for i, kind in enumerate(self.KINDS):
                before = self.n_calls()
                self.ask(server, kind)
                self.ask(server, other)
                total = self.n_calls() - before
                for nth in range(1 + i % every, total + 1, every):
                    n_fail = 1 if nth // every % 4 else 3
                    got = [None, None]

                    def work(k, kind):
                        try:
                            got[k] = self.ask(server, kind)
                        except Exception as e:  # noqa: BLE001
                            got[k] = ("wrong", repr(e))
                    threads = [threading.Thread(target=work, args=(k, what)) for k, what in enumerate((kind, other))]
                    self.arm(nth, n_fail)
                    for t in threads:
                        t.start()
                    for t in threads:
                        t.join()
                    self.arm(0)
                    self.check(got[0], expected[i], (kind, nth, n_fail, got))
                    self.check(got[1], expected_other, (kind, nth, n_fail, got))
                    if n_fail == 1:
                        self.assertIn("whole", (got[0][0], got[1][0]), (kind, nth, got))
                    for verdict, _ in got:
                        counts[verdict] = counts.get(verdict, 0) + 1
                self.assertEqual([self.ask(server, k) for k in (kind, other)], [expected[i], expected_other])
            self.assertEqual([self.ask(server, kind) for kind in self.KINDS], expected)
        self.assertGreater(counts["refused"], 0)

    def test_an_allocation_that_fails_at_the_start_is_said(self):
        self.arm(0)
        with Server(env=self.environment):
            total = self.n_calls()
        for nth in range(1, total, max(1, total // 12)):
            self.arm(nth)
            s = Server(wait=False, env=self.environment)
            end = time.monotonic() + rig.patience(30)
            while s.process.poll() is None and s.port and time.monotonic() < end:
                try:
                    if s.get("/health").status == 200:
                        break
                except OSError:
                    pass
                time.sleep(0.01)
            self.arm(0)
            status = s.stop()
            self.assertIn(status, (0, 1, 2, 3), (nth, s.log))
            self.assertTrue(status == 0 or s.log, nth)


if __name__ == "__main__":
    rig.main("__main__")
