"""Everyday operation of a server: the lines of its log, the number of tokens of requests that ask for none."""
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
import unittest

import rig
from rig import Server, chat

LINE = re.compile(r"^aerie: (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (\S+) (\w+) (\S+) (\d+) ([\d.]+) s id=req_(\w{24})"
                  r"(?: prompt=(\d+) cached=(\d+) generated=(\d+))?(| \(cut off\)| \(client gone\))$")


def line_of(s, letters):
    """The access log's line of a request, which may come a moment after the answer."""
    end = time.monotonic() + rig.patience(30)
    while time.monotonic() < end:
        for line in list(s.lines):
            found = LINE.match(line.rstrip("\n"))
            if found and found.group(7) == letters:
                return found
        time.sleep(0.01)
    raise AssertionError(f"no line of {letters}: {s.log}")


class Files(unittest.TestCase):
    """Facts of files in /api/tags and /api/show, whether or not they are loaded."""

    def test_quantization_digest_and_licence(self):
        folder = os.path.join(rig.FOLDER, "facts")
        os.mkdir(folder)
        plain = os.path.join(rig.FOLDER, "m.gguf")
        for kind in ("Q8_0", "Q4_K_M"):
            command = [rig.AERIE, "quantize", "--allow-requantize", plain, os.path.join(folder, kind + ".gguf"), kind]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shutil.copy(plain, os.path.join(folder, "plain.gguf"))
        with open(plain, "rb") as f:
            sha = hashlib.sha256(f.read()).hexdigest()
        shutil.copy(plain, os.path.join(rig.FOLDER, "sha256-" + sha))
        os.symlink("../sha256-" + sha, os.path.join(folder, "pulled.gguf"))
        with open(os.path.join(folder, "broken.gguf"), "wb") as f:
            f.write(b"GGUF" + os.urandom(200))

        def tags(s):
            return {m["name"]: m for m in s.get("/api/tags").json["models"]}
        with Server("--models-dir", folder, model=None) as s:
            told = tags(s)
            self.assertEqual({n: m["details"]["quantization_level"] for n, m in told.items()},
                             {"Q8_0": "Q8_0", "Q4_K_M": "Q4_K_M", "plain": "Q4_0", "pulled": "Q4_0", "broken": "unknown"})
            self.assertEqual(told["plain"]["details"]["family"], "llama")
            self.assertTrue(all(re.fullmatch("[0-9a-f]{64}", m["digest"]) for m in told.values()), told)
            self.assertEqual(told["pulled"]["digest"], sha)
            self.assertEqual(len({m["digest"] for m in told.values()}), 5)
            self.assertEqual({m["status"]["value"] for m in s.get("/v1/models").json["data"]}, {"unloaded"})
            shown = s.post("/api/show", {"model": "Q8_0"}).json
            self.assertEqual((shown["details"]["quantization_level"], shown["license"]), ("Q8_0", ""))
        with open(os.path.join(folder, "plain.gguf"), "r+b") as f:  # another file of the same length
            f.seek(-4, os.SEEK_END)
            f.write(b"abcd")
        with Server("--models-dir", folder, model=None) as s:
            again = tags(s)
            self.assertNotEqual(again.pop("plain")["digest"], told.pop("plain")["digest"])
            self.assertEqual({n: m["digest"] for n, m in again.items()}, {n: m["digest"] for n, m in told.items()})
        real = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models/smollm2-135m-instruct-q4_1.gguf")
        if os.path.exists(real):
            with Server("-m", real, "--spec-type", "none", model=None) as s:
                shown = s.post("/api/show", {"model": "x"}).json
                self.assertEqual((shown["license"], shown["details"]["quantization_level"]), ("apache-2.0", "Q4_1"))


class Log(unittest.TestCase):
    def test_a_line_per_request(self):
        with Server("-np", "1", "-c", "4096", "--ignore-eos") as s:
            requests = [("/v1/chat/completions", chat("hello")), ("/v1/chat/completions", chat("hello", stream=True)),
                        ("/v1/completions", {"prompt": ["a b", "c d"], "n": 2, "max_tokens": 3}),
                        ("/v1/messages", {**chat("hello"), "max_tokens": 4}), ("/completion", {"prompt": "x", "n_predict": 4}),
                        ("/v1/responses", {"input": "hello", "max_output_tokens": 4}),
                        ("/v1/embeddings", {"input": "hello"}), ("/v1/chat/completions", {"messages": 3})]
            for path, body in requests:
                a = s.post(path, body)
                letters = a.headers["X-Request-Id"][len("req_"):]
                line = line_of(s, letters)
                self.assertEqual(line.group(2, 3, 4, 5), ("127.0.0.1", "POST", path, str(a.status)))
                said = a.events[0] if body.get("stream") else a.json
                if "id" in said:
                    self.assertTrue(said["id"].endswith(letters), said["id"])
                usage = said.get("usage") if not body.get("stream") else None
                if usage and "completion_tokens" in usage:
                    self.assertEqual(line.group(8, 9, 10), (str(usage["prompt_tokens"]), str(
                        usage["prompt_tokens_details"]["cached_tokens"]), str(usage["completion_tokens"])))
                elif a.status == 200:
                    self.assertGreater(int(line.group(8)), 0)
                    self.assertEqual(int(line.group(10)) > 0, "embeddings" not in path)
                else:
                    self.assertIsNone(line.group(8))
            c = s.connect()
            c.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": rig.many(3900), "stream": True,
                                                             "ignore_eos": True}), {"Content-Type": "application/json"})
            answer = c.getresponse()
            answer.readline()
            letters = answer.headers["X-Request-Id"][len("req_"):]
            answer.close()
            c.close()  # in the middle
            line = line_of(s, letters)
            self.assertGreater(int(line.group(10)), 0)
            self.assertNotIn("hello", s.log)
            for line in s.lines:
                self.assertRegex(line, r"^aerie: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ")

    def test_bodies_that_mean_what_they_say(self):
        """A byte order mark, half of a surrogate pair, a tool without a result, tool_choice as gateways write it."""
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
        with Server("--chat-template-file", rig.template("everyday-tools", rig.TOOLS_TEMPLATE)) as s:
            body = {"prompt": "a", "max_tokens": 4, "temperature": 0}
            whole = s.post("/v1/completions", body).json["choices"]
            a = s.call("POST", "/v1/completions", b"\xef\xbb\xbf" + json.dumps(body).encode())
            self.assertEqual((a.status, a.json["choices"]), (200, whole))
            mended = s.post("/tokenize", {"content": "\ufffd\\ud83d x \U0001f600"}).json
            a = s.call("POST", "/tokenize", b'{"content": "\\ud83d\\\\ud83d x \\ud83d\\ude00"}')
            self.assertEqual((a.status, a.json), (200, mended))
            a = s.call("POST", "/tokenize", b'{"content": "\\ude00\\ud83d"}')
            self.assertEqual(a.json, s.post("/tokenize", {"content": "\ufffd\ufffd"}).json)
            for cut in (b'{"content": "\\ud83', b'{"content": "\\ud83d\\u', b'{"content": "\\', b"\xef\xbb\xbf",
                        b"\xef\xbb"):
                self.assertEqual(s.call("POST", "/tokenize", cut).status, 400, cut)
            for content in ({"content": None}, {}):
                a = s.post("/v1/chat/completions", {"max_tokens": 2, "tools": tools, "messages": [
                    {"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "c", **content}]})
                self.assertEqual(a.status, 200, a.body)
            for word, status in ("auto", 200), ("none", 200), ("any", 200), ("x", 400):
                choice = {"type": word}
                a = s.post("/v1/chat/completions", {"max_tokens": 40, "tools": tools, "tool_choice": choice,
                                                    "messages": [{"role": "user", "content": "x"}]})
                self.assertEqual(a.status, status, a.body)

    def test_a_maximum_for_requests_without_one(self):
        def n(s, path="/v1/completions", **fields):
            a = s.post(path, {"prompt": "a", "ignore_eos": True, **fields})
            self.assertEqual(a.status, 200, a.body)
            return a.json["usage"]["completion_tokens"] if "usage" in a.json else a.json["eval_count"]
        ollama = {"model": "m", "stream": False, "raw": True}
        with Server("--default-max-tokens", "5") as s:
            self.assertEqual([n(s), n(s, max_tokens=None), n(s, max_tokens=7)], [5, 5, 7])
            self.assertGreater(n(s, max_tokens=-1), 100)  # as many as fit
            self.assertLessEqual(n(s, "/api/generate", **ollama), 5)
            self.assertLessEqual(n(s, "/api/generate", **ollama, options={"num_predict": 0}), 5)
        with Server("--default-max-tokens", "5", "-n", "6") as s:
            self.assertEqual(n(s), 6)
        with Server() as s:
            self.assertGreater(n(s), 100)

    def test_a_name_for_the_model(self):
        for option in ("--served-model-name", "--alias", "-a"):
            with Server(option, "my-model") as s:
                self.assertEqual([m["id"] for m in s.get("/v1/models").json["data"]], ["my-model"])
        with Server("--alias", "one,two") as s:  # llama.cpp's list: the first is the name, and both are answered
            self.assertEqual([m["id"] for m in s.get("/v1/models").json["data"]], ["one"])
            for name in ("one", "two"):
                a = s.post("/v1/chat/completions", {"model": name, "max_tokens": 1,
                                                    "messages": [{"role": "user", "content": "x"}]})
                self.assertEqual((a.status, a.json["model"]), (200, name))


class Times(unittest.TestCase):
    """llama.cpp's `timings_per_token` and `return_progress` in streams."""
    STREAMS = ("/completion", "/v1/completions", "/v1/chat/completions", "/v1/responses")

    def events(self, s, path, words, **fields):
        body = {"temperature": 0, "max_tokens": 16, "prompt": words}
        if "responses" in path:
            body = {"temperature": 0, "max_output_tokens": 16, "input": words}
        a = s.post(path, {**(chat(words) if "chat" in path else body), "stream": True, "ignore_eos": True, **fields})
        self.assertEqual(a.status, 200, a.body)
        return [e for e in a.events if e != "[DONE]"]

    def test_progress_of_a_prompt(self):
        with Server("-np", "2", "-b", "16", "-ub", "16") as s:
            for i, path in enumerate(self.STREAMS):
                words = f"{i} some words that are longer than a few passes are, and more of them, and even more of them"
                for cached in (False, True):
                    events = self.events(s, path, words, return_progress=True, cache_salt=path)
                    told = [e["prompt_progress"] for e in events if "prompt_progress" in e]
                    last = events[-1]["timings"]
                    n, cache = last["cache_n"] + last["prompt_n"], last["cache_n"]
                    self.assertEqual({(p["total"], p["cache"]) for p in told}, {(n, cache)}, told)
                    done = [p["processed"] for p in told]
                    self.assertEqual((done[0], done[-1], done), (cache, n, sorted(set(done))))
                    self.assertEqual(cache > 0, cached)
                    self.assertEqual(len(done) - 1, -(-(n - cache) // 16), (done, n))
                    self.assertTrue(all(a["time_ms"] <= b["time_ms"] for a, b in zip(told, told[1:])), told)
                    first = [bool(self.text(e)) for e in events].index(True)
                    self.assertTrue(all("prompt_progress" not in e for e in events[first:]))
            self.assertEqual([e for e in self.events(s, path, words) if "prompt_progress" in e], [])
            whole = s.post("/completion", {"prompt": "a", "n_predict": 2, "return_progress": True})
            self.assertNotIn("prompt_progress", whole.json)
            self.assertEqual(s.post("/v1/responses", {"input": "a", "max_output_tokens": 2, "ignore_eos": True})
                             .json["timings"]["predicted_n"], 2)
            self.assertIn("'return_progress'", s.post("/completion", {"prompt": "a", "return_progress": 1}).error)

    @staticmethod
    def text(e):
        choices = e.get("choices", [])
        if e.get("type", "").startswith("response."):
            return e["delta"] if "delta" in e else ""
        return e.get("content") or "".join(c.get("text") or c.get("delta", {}).get("content") or "" for c in choices)

    def test_usage_with_each_piece(self):
        """vLLM's and SGLang's `continuous_usage_stats`: what was generated up to each chunk."""
        with Server("-np", "2") as s:
            for path in ("/v1/completions", "/v1/chat/completions"):
                for options in ({"include_usage": True}, {"include_usage": True, "continuous_usage_stats": True}):
                    *chunks, last = self.events(s, path, "hello", stream_options=options, max_tokens=12)
                    told = [e["usage"] for e in chunks if "usage" in e]
                    self.assertEqual(len(told), len(chunks) if len(options) > 1 else 0)
                    n = [u["completion_tokens"] for u in told]
                    self.assertEqual((n, {u["total_tokens"] - u["completion_tokens"] for u in told}),
                                     (sorted(n), {last["usage"]["prompt_tokens"]} if n else set()))
                    self.assertEqual(n[-1:], [last["usage"]["completion_tokens"]] if n else [])
            a = s.post("/v1/completions", {"prompt": "a", "stream": True, "stream_options": {"continuous_usage_stats": 1}})
            self.assertIn("'continuous_usage_stats'", a.error)

    def test_times_with_each_piece(self):
        with Server("-np", "2", "--spec-type", "none") as s:
            for path in self.STREAMS:
                plain = self.events(s, path, "hello")
                self.assertEqual(["timings" in e for e in plain].index(True), len(plain) - 1)
                events = self.events(s, path, "hello", timings_per_token=True)
                self.assertEqual([self.text(e) for e in events], [self.text(e) for e in plain])
                pieces = [e["timings"] for e in events if self.text(e)]
                n = [t["predicted_n"] for t in pieces]
                self.assertEqual((n, n[-1] <= 16), (sorted(n), True))
                self.assertEqual(len(set(n[:-1])), len(n[:-1]), n)  # the last piece may come with the end
                self.assertEqual({t["cache_n"] + t["prompt_n"] for t in pieces},
                                 {events[-1]["timings"]["cache_n"] + events[-1]["timings"]["prompt_n"]})
                self.assertTrue(all(t["prompt_ms"] > 0 and t["predicted_ms"] >= 0 for t in pieces), pieces)


if __name__ == "__main__":
    rig.main("__main__")
