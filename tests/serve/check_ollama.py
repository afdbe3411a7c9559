"""Details of ollama's dialect: capabilities of models, probabilities, infill, shortened vectors, errors."""
import datetime
import json
import math
import os
import subprocess
import unittest

import rig
from rig import Server

REASONS = "{# <think> </think> #}" + rig.TOOLS_TEMPLATE


def stamp(text):
    """A moment as Go writes it."""
    return datetime.datetime.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")


class Ollama(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        rig.make_model("tags.gguf", "--vocab-kind", "bpe-tags", "--vocab", "330")

    def show(self, *options, model="m.gguf"):
        with Server(*options, model=model) as s:
            a = s.post("/api/show", {"model": "m"})
            self.assertEqual(a.status, 200, a.body)
            return a.json

    def test_what_a_model_can_do(self):
        tools, reasons = (("--chat-template-file", rig.template(*t)) for t in (("tools",), ("reasons", REASONS)))
        self.assertEqual(self.show()["capabilities"], ["completion"])
        self.assertEqual(self.show(*tools)["capabilities"], ["completion", "tools"])
        self.assertEqual(self.show(*reasons, model="tags.gguf")["capabilities"], ["completion", "tools", "insert", "thinking"])

    def test_facts(self):
        a = self.show("-c", "256")
        arch = a["model_info"]["general.architecture"]
        for name in ("context_length", "embedding_length", "block_count", "attention.head_count", "attention.head_count_kv",
                     "feed_forward_length", "vocab_size"):
            self.assertGreater(a["model_info"][f"{arch}.{name}"], 0)
        with Server("-c", "256") as s:
            self.assertGreaterEqual([int(x) for x in s.get("/api/version").json["version"].split(".")], [0, 13, 4])
            s.post("/api/generate", {"model": "m", "keep_alive": "10m"})
            one = s.get("/api/ps").json["models"][0]
            self.assertEqual(one["context_length"], 256)
            left = stamp(one["expires_at"]) - datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
            self.assertTrue(0 < left.total_seconds() <= 601, left)
            s.post("/api/generate", {"model": "m", "keep_alive": -1})
            self.assertGreater(stamp(s.get("/api/ps").json["models"][0]["expires_at"]).year, 2200)

    def test_a_model_without_a_template_continues_the_prompt(self):
        body = {"model": "m", "prompt": "a b a b", "stream": False, "options": {"temperature": 0, "num_predict": 12}}
        laid_out = {"messages": [{"role": "user", "content": "a b a b"}], "max_tokens": 12, "temperature": 0}
        with Server("--override-kv", "tokenizer.chat_template=str:") as s:
            plain = s.post("/completion", {"prompt": "a b a b", "n_predict": 12, "temperature": 0}).json["content"]
            for more in ({}, {"raw": True}, {"system": "x"}, {"think": False}):
                self.assertEqual(s.post("/api/generate", {**body, **more}).json["response"], plain)
            lines = [json.loads(x) for x in s.post("/api/generate", {**body, "stream": True}).body.splitlines()]
            self.assertEqual("".join(x["response"] for x in lines), plain)
            chat = s.post("/v1/chat/completions", laid_out).json["choices"][0]["message"]["content"]
            self.assertNotEqual(chat, plain)
            self.assertEqual(s.logged("/api/generate continues the prompt as it is"), 1)
        with Server("--override-kv", "tokenizer.chat_template=str:", "--chat-template", "chatml") as s:
            self.assertEqual(s.post("/api/generate", body).json["response"],
                             s.post("/v1/chat/completions", laid_out).json["choices"][0]["message"]["content"])

    def test_context_holds_earlier_turns(self):
        settled = {"model": "m", "stream": False, "options": {"temperature": 0, "num_predict": 6}}
        with Server() as s:
            def ask(status=200, **fields):
                a = s.post("/api/generate", {**settled, **fields})
                self.assertEqual(a.status, status, a.body)
                return a.json if status == 200 else a.error
            first, other = ask(prompt="hello"), ask(prompt="more")
            own = other["context"][:other["prompt_eval_count"]]
            self.assertEqual(len(first["context"]), first["prompt_eval_count"] + 6)
            second = ask(prompt="more", context=first["context"])
            told = s.post("/completion", {"prompt": first["context"] + own, "n_predict": 6, "temperature": 0,
                                          "return_tokens": True}).json
            self.assertEqual(second["response"], told["content"])
            self.assertEqual(second["context"], first["context"] + own + told["tokens"])
            lines = s.post("/api/generate", {**settled, "prompt": "hello", "stream": True}).body.decode().splitlines()
            self.assertEqual([json.loads(x).get("context") for x in lines], [None] * (len(lines) - 1) + [first["context"]])
            for none in (None, []):
                self.assertEqual(ask(prompt="hello", context=none)["context"], first["context"])
            self.assertNotIn("context", ask(prompt="hello", raw=True))
            for wrong in ("x", [1, -1], [1.5], [10**9], ["a"]):
                self.assertIn("'context'", ask(400, prompt="a", context=wrong))
            self.assertIn("context holds", ask(400, prompt="a", context=first["context"] * 9999))
        with Server("--override-kv", "tokenizer.ggml.add_bos_token=bool:true") as s:  # the prompt's own BOS is not repeated
            first, other = ask(prompt="hello"), ask(prompt="more")
            second = ask(prompt="more", context=first["context"])
            self.assertEqual(second["prompt_eval_count"], len(first["context"]) + other["prompt_eval_count"] - 1)

    def test_template_lays_out_the_prompt(self):
        settled = {"model": "m", "stream": False, "options": {"temperature": 0, "num_predict": 6}}
        with Server() as s:
            def ask(**fields):
                return s.post("/api/generate", {**settled, **fields})
            for template, fields, prompt in (
                    ("{{ .Prompt }}", {}, "hello"), ("{{.Prompt}}!", {}, "hello!"), ("a {{- .Prompt -}} b", {}, "ahellob"),
                    ("{{ .Prompt }} {{ .Response }} c", {}, "hello "), ("{{/* {{ */}}{{ .Prompt }}", {}, "hello"),
                    ("{{ if .System }}<{{ .System }}>{{ else }}none{{ end }}{{ .Prompt }}", {}, "nonehello"),
                    ("{{ if .System }}<{{ .System }}>{{ else }}none{{ end }}{{ .Prompt }}", {"system": "s"}, "<s>hello"),
                    ("{{ if .System }}a{{ if .Prompt }}b{{ else }}c{{ end }}{{ else }}d{{ end }}{{ .Prompt }}", {}, "dhello")):
                with self.subTest(template):
                    a = ask(prompt="hello", template=template, **fields)
                    self.assertEqual(a.status, 200, a.body)
                    self.assertEqual(a.json["response"], ask(prompt=prompt, raw=True).json["response"])
            for none in ("", None):
                self.assertEqual(ask(prompt="hello", template=none).json["response"], ask(prompt="hello").json["response"])
            for wrong in ("{{ range .Messages }}", "{{ if .System }}", "{{ .Prompt", "{{ end }}", "{{ else }}", "{{ }}",
                          "{{ .Prompt.x }}", "{{ if .System }}" * 17 + "{{ end }}" * 17,
                          "{{ if and .System .Prompt }}{{ end }}"):
                a = ask(prompt="hello", template=wrong)
                self.assertEqual((a.status, "'template'" in a.error), (400, True), a.body)
            self.assertEqual(ask(prompt="hello", template=5).status, 400)

    def test_the_store_is_not_the_servers(self):
        with Server() as s:
            for name in ("m", "m:latest"):
                self.assertEqual(s.post("/api/pull", {"model": name}).json, {"status": "success"})
            for method, path, body, words in (
                    ("POST", "/api/pull", {"model": "llama3.2"}, "'aerie pull NAME'"),
                    ("POST", "/api/pull", b"{", "aerie pull"), ("POST", "/api/push", {"model": "m"}, "uploads no"),
                    ("POST", "/api/create", {"model": "m"}, "aerie convert"),
                    ("POST", "/api/copy", {"source": "m"}, "-m NAME=FILE"),
                    ("DELETE", "/api/delete", {"model": "m"}, "'aerie rm NAME'"),
                    ("POST", "/api/blobs/sha256:0", b"x", "takes no files")):
                a = s.call(method, path, body)
                self.assertEqual((a.status, list(a.json)), (501, ["error"]), a.body)
                self.assertIn(words, a.error)

    def test_names_that_are_nearly_right(self):
        with Server("-m", "other=" + os.path.join(rig.FOLDER, "m.gguf"), "-np", "1", "-c", "128") as s:
            for name, words in (("othr", "did you mean 'other'?"), ("Other", "did you mean 'other'?"),
                                ("zzz", "/v1/models lists")):
                for path, body in (("/api/chat", {"messages": [{"role": "user", "content": "x"}]}),
                                   ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
                                   ("/api/show", {})):
                    a = s.post(path, {"model": name, **body})
                    self.assertEqual(a.status, 404)
                    self.assertIn(words, a.error)
                self.assertIn(words, s.get("/v1/models/" + name).error)
            for path, words in (("/v1/chat/completion", "did you mean '/v1/chat/completions'?"),
                                ("/v1/v1/chat/completions", "did you mean '/v1/chat/completions'?"),
                                ("/v1/completions/", "did you mean '/v1/completions'?"),
                                ("/api/tag", "did you mean '/api/tags'?"), ("/nothing", "there is nothing at '/nothing'"),
                                ("/v1/batches", "side by side"), ("/v1/files/file-1/content", "keeps no files"),
                                ("/v1/audio/speech", "no sound"), ("/v1/filesystem", "there is nothing at '/v1/filesystem'")):
                a = s.post(path, {})
                self.assertEqual(a.status, 404)
                self.assertIn(words, a.error)

    def test_no_parts_of_characters(self):
        """An answer that its limit cuts within a character ends before it, in every dialect."""
        schema = {"enum": ["\U0001f985\u00e9\u20ac"]}
        turns = [{"role": "user", "content": "x"}]

        def whole_texts(s, n):
            openai = {"max_tokens": n, "temperature": 0}
            form = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}
            a = s.post("/v1/chat/completions", {"messages": turns, **openai, **form})
            yield a.json["choices"][0]["message"]["content"]
            yield s.post("/v1/completions", {"prompt": "x", **openai, "json_schema": schema}).json["choices"][0]["text"]
            yield s.post("/completion", {"prompt": "x", "n_predict": n, "temperature": 0,
                                         "json_schema": schema}).json["content"]
            yield s.post("/api/chat", {"model": "m", "messages": turns, "format": {**schema, "type": "string"}, "stream": False,
                                       "options": {"num_predict": n, "temperature": 0}}).json["message"]["content"]
            kind = {"format": {"type": "json_schema", "name": "x", "schema": schema}}
            a = s.post("/v1/responses", {"input": "x", "max_output_tokens": n, "temperature": 0, "text": kind}).json
            yield "".join(c["text"] for item in a["output"] for c in item["content"])
            a = s.post("/v1/messages", {"messages": turns, **openai, "output_config": kind}).json
            yield "".join(c["text"] for c in a["content"])
            a = s.post("/v1/chat/completions", {"messages": turns, **openai, **form, "stream": True})
            yield "".join(e["choices"][0]["delta"].get("content") or "" for e in a.events if e != "[DONE]" and e["choices"])
            a = s.post("/v1/completions", {"prompt": "x", **openai, "json_schema": schema, "stream": True})
            yield "".join(e["choices"][0]["text"] for e in a.events if e != "[DONE]" and e["choices"])
            a = s.post("/v1/responses", {"input": "x", "max_output_tokens": n, "temperature": 0, "text": kind, "stream": True})
            yield "".join(e["delta"] for e in a.events if e["type"] == "response.output_text.delta")
            a = s.post("/v1/messages", {"messages": turns, **openai, "output_config": kind, "stream": True})
            yield "".join(e["delta"].get("text", "") for e in a.events if e["type"] == "content_block_delta")

        with Server() as s:
            all_texts = set()
            for n in range(2, 10):
                texts = set(whole_texts(s, n))
                self.assertEqual(len(texts), 1, texts)
                self.assertIn(min(texts), (json.dumps("\U0001f985\u00e9\u20ac", ensure_ascii=False)[:i] for i in range(6)))
                all_texts |= texts
            self.assertLess(len(all_texts), 8)  # several limits fell into one character

    def test_probabilities(self):
        with Server() as s:
            body = {"model": "m", "logprobs": True, "top_logprobs": 2, "options": {"temperature": 0, "num_predict": 8}}
            wanted = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "temperature": 0,
                                                     "max_tokens": 8, "logprobs": True, "top_logprobs": 2}
                            ).json["choices"][0]["logprobs"]["content"]
            for path, prompt in (("/api/chat", {"messages": [{"role": "user", "content": "hi"}]}),
                                 ("/api/generate", {"prompt": "hi"})):
                self.assertEqual(s.post(path, {**body, **prompt, "stream": False}).json["logprobs"], wanted)
                lines = [json.loads(x) for x in s.post(path, {**body, **prompt}).body.splitlines()]
                self.assertEqual([e for x in lines for e in x.get("logprobs", [])], wanted)
                plain = s.post(path, {**body, **prompt, "stream": False, "logprobs": False, "top_logprobs": 2}).json
                self.assertNotIn("logprobs", plain)
                self.assertEqual(s.post(path, {**body, **prompt, "logprobs": "yes"}).status, 400)

    def test_errors_have_ollamas_shape(self):
        with Server("--api-key", "k", "--max-body", "1") as s:
            key = {"Authorization": "Bearer k"}
            for method, path, body, headers, status in (
                    ("POST", "/api/chat", {}, {}, 401), ("POST", "/api/nothing", {}, key, 404),
                    ("GET", "/api/chat", None, key, 405),
                    ("POST", "/api/show", {"model": 5}, key, 400), ("POST", "/api/chat", b"{", key, 400)):
                a = s.call(method, path, body, headers)
                self.assertEqual(a.status, status, (path, a.body))
                self.assertEqual((list(a.json), type(a.json["error"])), (["error"], str), a.body)
            # the body is announced, not sent: a client that is still sending may not get to read the answer
            raw = s.raw(b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer k\r\nConnection: close\r\n"
                        b"Content-Length: 2000000\r\n\r\n")
            self.assertIn(b" 413 ", raw.split(b"\r\n")[0])
            self.assertEqual(list(json.loads(raw.split(b"\r\n\r\n", 1)[1])), ["error"])
            for path in ("/v1/messages/nothing", "/v1/messages"):
                a = s.call("GET", path, None, key)
                self.assertIn(a.status, (404, 405))
                self.assertEqual(a.json["type"], "error")
            self.assertIsInstance(s.call("GET", "/v1/nothing", None, key).json["error"], dict)

    def test_a_gap_in_a_text(self):
        settled = {"temperature": 0, "ignore_eos": True}
        with Server("-c", "1024", model="tags.gguf") as s:
            wanted = s.post("/infill", {"input_prefix": "def f(", "input_suffix": "return x", "n_predict": 8, **settled}
                            ).json["content"]
            self.assertTrue(wanted)
            for prompt in ("def f(", ["def f("]):
                a = s.post("/v1/completions", {"prompt": prompt, "suffix": "return x", "max_tokens": 8, **settled})
                self.assertEqual(a.json["choices"][0]["text"], wanted)
            both = s.post("/v1/completions", {"prompt": ["def f(", "abc"], "suffix": "return x", "max_tokens": 8, **settled})
            self.assertEqual([c["text"] for c in both.json["choices"]][0], wanted)
            end = s.post("/api/generate", {"model": "m", "prompt": "def f(", "suffix": "return x", "stream": False,
                                           "system": "s", "options": {"num_predict": 8, "temperature": 0}}).json["response"]
            self.assertTrue(wanted.startswith(end) and end, (wanted, end))
            for wrong in ({"prompt": [1, 2], "suffix": "x"}, {"prompt": "a", "suffix": 5},
                          {"prompt": "a", "suffix": "x", "echo": True}):
                self.assertEqual(s.post("/v1/completions", {"max_tokens": 1, **wrong}).status, 400)
            self.assertEqual(s.post("/v1/completions", {"prompt": "abc", "suffix": "", "max_tokens": 1}).status, 200)
            self.assertEqual(s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}],
                                                             "suffix": "x"}).status, 400)
        with Server() as s:
            for path, body in (("/v1/completions", {"prompt": "a", "suffix": "b", "max_tokens": 1}),
                               ("/api/generate", {"model": "m", "prompt": "a", "suffix": "b"})):
                a = s.post(path, body)
                self.assertEqual(a.status, 400)
                self.assertIn("FIM", a.error)

    def test_short_vectors(self):
        mkarch = os.path.join(os.path.dirname(rig.MKMODEL), "mkarch")
        if not os.path.exists(mkarch):
            self.skipTest("mkarch is not built")
        subprocess.run([mkarch, "bert", os.path.join(rig.FOLDER, "bert.gguf")], check=True, stdout=subprocess.DEVNULL)
        with Server("-c", "64", model="bert.gguf") as s:
            self.assertEqual(s.post("/api/show", {"model": "m"}).json["capabilities"], ["embedding"])
            whole = s.post("/api/embed", {"model": "m", "input": ["abc", "x"]}).json["embeddings"]
            width = len(whole[0])
            for n in (1, 5, width):
                short = s.post("/api/embed", {"model": "m", "input": ["abc", "x"], "dimensions": n}).json["embeddings"]
                openai = s.post("/v1/embeddings", {"input": ["abc", "x"], "dimensions": n}).json["data"]
                self.assertEqual([x["embedding"] for x in openai], short)
                for a, b in zip(short, whole):
                    length = math.sqrt(sum(x * x for x in b[:n]))
                    self.assertEqual(len(a), n)
                    for x, y in zip(a, b):
                        self.assertAlmostEqual(x, y / length, 5)
            self.assertEqual(short, whole)
            for wrong in (0, -1, width + 1, 1.5, "x"):
                for path in ("/api/embed", "/v1/embeddings"):
                    self.assertEqual(s.post(path, {"model": "m", "input": "x", "dimensions": wrong}).status, 400)


if __name__ == "__main__":
    rig.main("__main__")
