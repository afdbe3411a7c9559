"""One request at a time: shapes of answers, streams, fields, errors."""
import base64
import json
import os
import re
import struct
import unittest

import openapi
import rig
from rig import Server, chat


class Basic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.s = Server("-np", "2", "--max-n", "3")

    @classmethod
    def tearDownClass(cls):
        assert cls.s.stop() == 0, cls.s.log

    def ask(self, body, status=200, path="/v1/chat/completions"):
        a = self.s.post(path, body)
        self.assertEqual(a.status, status, a.body)
        return a

    def test_health_models_props_slots(self):
        self.assertEqual(self.s.get("/health").json["status"], "ok")
        models = self.s.get("/v1/models").json
        self.assertEqual((models["object"], [m["id"] for m in models["data"]]), ("list", ["m"]))
        self.assertEqual(self.s.get("/v1/models/m").json["id"], "m")
        self.assertEqual(self.s.get("/v1/models/x").status, 404)
        props = self.s.get("/props").json
        self.assertEqual(props["total_slots"], 2)
        self.assertIn("<|im_start|>", props["chat_template"])
        self.assertEqual([(s["id"], s["is_processing"]) for s in self.s.get("/slots").json], [(0, False), (1, False)])

    def test_the_openapi_file_says_what_is_accepted(self):
        """Its paths are there, its answers to an empty request too, and each number is taken within its bounds alone."""
        for method, path, operation in openapi.operations():
            path = path.replace("{model}", "m").replace("{id_slot}", "0").replace("{digest}", "sha256:0")
            a = self.s.call(method, path, {} if method == "POST" else None)
            self.assertIn(str(a.status), operation["responses"], (path, a.body))
            self.assertIn(a.status, (200, 400, 501), path)
        ask = {"prompt": "a", "max_tokens": 1}
        for name, field in openapi.SCHEMAS["Sampling"]["properties"].items():
            low, high, step = field["minimum"], field["maximum"], 1 if "integer" in field["type"] else 0.001
            beyond = [] if name == "seed" else [low - step, high + step]
            for value in (low, high, None):
                self.ask({**ask, name: value}, path="/v1/completions")
            for value in (*beyond, "1", [], True, 1e300, -1e300):
                self.assertIn(f"'{name}'", self.ask({**ask, name: value}, 400, "/v1/completions").error)

    def test_the_openapi_file_and_the_server_agree(self):
        """A value of one field more is accepted if and only if the file's schema allows it."""
        counts = ["max_tokens", "max_completion_tokens", "n_predict"]
        flags = ["return_progress", "samplers", "mirostat"]
        shared = ["top_n_sigma", "stop", "lora", "speculative.n_max", "speculative.type", "reasoning_budget_tokens",
                  "timings_per_token", "truncation", "ignore_eos"]
        chat_body = {"messages": [{"role": "user", "content": "a"}]}
        for path, body, fields in (
                ("/v1/chat/completions", {**chat_body, "max_tokens": 1}, counts + flags + shared),
                ("/v1/completions", {"prompt": "a", "max_tokens": 1}, counts + flags),
                ("/completion", {"prompt": "a", "n_predict": 1}, [*counts, *flags, "response_fields"]),
                ("/v1/responses", {"input": "a", "max_output_tokens": 1}, ["max_output_tokens", "stream", "include",
                 "top_logprobs", *flags, *shared]),
                ("/v1/messages", {**chat_body, "max_tokens": 1}, ["max_tokens", "stream", *flags, *shared]),
                ("/api/chat", {**chat_body, "model": "m", "options": {"num_predict": 1}},
                 ["logprobs", "top_logprobs", "stream"]),
                ("/v1/embeddings", {"input": "a"}, ["input", "encoding_format", "dimensions", "embd_normalize"]),
                ("/embedding", {"content": "a"}, ["content", "dimensions"]),
                ("/api/embed", {"input": "a"}, ["input", "truncate", "dimensions", "keep_alive"]),
                ("/api/embeddings", {"prompt": "a"}, ["prompt", "keep_alive"]),
                ("/tokenize", {"content": "a"}, ["content", "add_special", "with_pieces"]),
                ("/detokenize", {"tokens": [200]}, ["tokens"])):
            operation = openapi.referred(openapi.FILE["paths"][path])["post"]
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            for field in fields:
                said = openapi.said_of(schema, field)
                self.assertTrue(said, (path, field))
                for value in (None, True, False, -3, -2, -1, 0, 1, 2, 21, 1.5, "", "ekp", "m", "none", "float", "1h", [],
                              [None], ["top_k"], [200], [[200], "a"], [[]], {}):
                    if value == "" and field in ("input", "content") and "embedding" in path:
                        continue  # this model has no tokens that begin or end a text
                    accepted = self.s.post(path, {**body, field: value}).status == 200
                    self.assertEqual(accepted, all(openapi.allows(s, value) for s in said), (path, field, value))

    def test_what_the_dashboard_asks_for_is_told(self):
        self.ask(chat("abcabcabc" * 9, max_tokens=40, ignore_eos=True))
        told = self.s.get("/metrics").body.decode()
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../deploy/grafana.json")) as f:
            asked = set(re.findall(r"(?:vllm|llamacpp|aerie):\w+", f.read()))
        self.assertGreater(len(asked), 10)
        for name in asked:
            self.assertIn(f"\n{name}{{", told)

    def test_a_request_may_narrow_speculation(self):
        ask = chat("abcabcabc" * 9, max_tokens=40, ignore_eos=True)
        free = self.ask(ask).json
        for narrow in ({"speculative.n_max": 0}, {"speculative.type": "none"}, {"speculative.n_max": 1},
                       {"speculative.n_min": 3}, {"speculative.p_min": 0.9}, {"speculative.type": "auto"}):
            a = self.ask({**ask, **narrow}).json
            self.assertEqual(a["choices"], free["choices"], narrow)
            depths = [d["depth"] for d in a["timings"]["draft_by_depth"]]
            if "n_max" in str(narrow) or "none" in str(narrow):
                self.assertLessEqual(max(depths, default=0), narrow.get("speculative.n_max", 0))
        for wrong in ({"speculative.n_max": -1}, {"speculative.n_min": 1.5}, {"speculative.p_min": 2},
                      {"speculative.type": "magic"}, {"speculative.type": 1}):
            self.assertIn(next(iter(wrong)), self.ask({**ask, **wrong}, 400).error)

    def test_chat_whole_and_streamed_are_the_same(self):
        whole = self.ask(chat("Hello", seed=5, temperature=1, logprobs=True, top_logprobs=2)).json
        choice = whole["choices"][0]
        self.assertEqual(choice["message"]["role"], "assistant")
        self.assertEqual(whole["usage"]["completion_tokens"], whole["timings"]["predicted_n"])
        self.assertEqual(len(choice["logprobs"]["content"]), whole["usage"]["completion_tokens"])
        self.assertEqual([len(e["top_logprobs"]) for e in choice["logprobs"]["content"]][:1], [2])
        streamed = self.ask(chat("Hello", seed=5, temperature=1, logprobs=True, top_logprobs=2, stream=True,
                                 return_origins=True,
                                 stream_options={"include_usage": True}))
        self.assertTrue(streamed.headers["Content-Type"].startswith("text/event-stream"))
        events = streamed.events
        self.assertEqual(events[-1], "[DONE]")
        self.assertEqual(events[-2]["choices"], [])
        for key in ("prompt_tokens", "completion_tokens", "total_tokens"):
            self.assertEqual(events[-2]["usage"][key], whole["usage"][key])
        chunks = [e for e in events[:-2]]
        self.assertEqual(chunks[0]["choices"][0]["delta"]["role"], "assistant")
        self.assertEqual("".join(c["choices"][0]["delta"].get("content", "") for c in chunks), choice["message"]["content"])
        self.assertEqual(chunks[-1]["choices"][0]["finish_reason"], choice["finish_reason"])
        self.assertTrue(all(c["choices"][0]["finish_reason"] is None for c in chunks[:-1]))
        logprobs = [e for c in chunks if c["choices"][0]["logprobs"] for e in c["choices"][0]["logprobs"]["content"]]
        self.assertEqual(logprobs, choice["logprobs"]["content"])
        self.assertEqual([o["id"] for c in chunks for o in c.get("origins", [])], [e["id"] for e in logprobs])
        self.assertEqual(len({c["id"] for c in chunks}), 1)

    def test_completion_whole_and_streamed_are_the_same(self):
        body = {"prompt": "abc", "max_tokens": 12, "seed": 1, "logprobs": 2}
        whole = self.ask(body, path="/v1/completions").json
        events = self.ask({**body, "stream": True}, path="/v1/completions").events
        text = "".join(e["choices"][0]["text"] for e in events[:-1])
        self.assertEqual(text, whole["choices"][0]["text"])
        logprobs = whole["choices"][0]["logprobs"]
        self.assertEqual(len(logprobs["tokens"]), whole["usage"]["completion_tokens"])
        self.assertTrue(all(len(t) <= 2 for t in logprobs["top_logprobs"]))
        echoed = self.ask({**body, "echo": True}, path="/v1/completions").json
        self.assertEqual(echoed["choices"][0]["text"], "abc" + text)
        tokens = self.s.post("/tokenize", {"content": "abc"}).json["tokens"]
        self.assertEqual(self.ask({**body, "prompt": tokens}, path="/v1/completions").json["choices"][0]["text"], text)
        self.assertEqual(self.ask({**body, "prompt": ["abc"]}, path="/v1/completions").json["choices"][0]["text"], text)

    def test_ids_of_an_answer(self):
        body = {"prompt": "abc", "n_predict": 12, "seed": 1, "return_tokens": True, "n_probs": 1}
        whole = self.ask(body, path="/completion").json
        self.assertEqual(whole["tokens"], [e["id"] for e in whole["completion_probabilities"]])
        self.assertEqual(len(whole["tokens"]), whole["tokens_predicted"])
        events = self.ask({**body, "stream": True}, path="/completion").events
        self.assertEqual([t for e in events for t in e.get("tokens", [])], whole["tokens"])
        fields = self.ask({**body, "response_fields": ["tokens"]}, path="/completion").json
        self.assertEqual(fields, {"tokens": whole["tokens"]})
        self.assertNotIn("tokens", self.ask({**body, "return_tokens": False}, path="/completion").json)

    def test_breakers_of_dry(self):
        """Texts over which no repetition reaches: where all are such, DRY has nothing to penalize."""
        bias = [[self.s.post("/tokenize", {"content": c}).json["tokens"][-1], 100] for c in "abc"]
        body = {"prompt": "abcabcabc" * 4, "n_predict": 16, "temperature": 0, "ignore_eos": True, "logit_bias": bias}
        dry = {**body, "dry_multiplier": 50}
        plain, penalized = (self.ask(b, path="/completion").json["content"] for b in (body, dry))
        self.assertNotEqual(penalized, plain)
        over = {**dry, "dry_sequence_breakers": ["a", "b", "c"]}
        self.assertEqual(self.ask(over, path="/completion").json["content"], plain)
        for wrong in ("a", [], [""], [1], ["a" * 300], ["x"] * 65):
            self.assertIn("dry_sequence_breakers",
                          self.ask({**dry, "dry_sequence_breakers": wrong}, 400, path="/completion").error)

    def test_offsets_count_the_text(self):
        """A BOS that the prompt got is no text: offsets are those in the echoed prompt."""
        with Server("--override-kv", "tokenizer.ggml.add_bos_token=bool:true", "-np", "1", "-c", "64") as s:
            body = {"prompt": "the cat", "logprobs": 1, "echo": True, "max_tokens": 0}
            choice = s.post("/v1/completions", body).json["choices"][0]
            offsets, tokens = choice["logprobs"]["text_offset"], choice["logprobs"]["tokens"]
            self.assertEqual((choice["text"], offsets[:2]), ("the cat", [0, 0]))
            self.assertEqual("".join(tokens[1:]), "the cat")
            self.assertEqual([choice["text"][o:o + len(t)] for o, t in zip(offsets[1:], tokens[1:])], tokens[1:])

    def test_what_drafts_save_is_told(self):
        body = {"prompt": "a b a b a b a b", "max_tokens": 300, "temperature": 0, "ignore_eos": True}
        t = self.ask(body, path="/v1/completions").json["timings"]
        self.assertEqual("predicted_plain_ms" in t, t["draft_n"] > 0, t)
        if t["draft_n"]:  # a pass without drafts takes no longer than one with them
            self.assertLessEqual(0, t["predicted_plain_ms"])
            self.assertLessEqual(t["predicted_plain_ms"], 65 * t["predicted_ms"])
        none = self.ask({**body, "max_tokens": 4, "speculative.type": "none"}, path="/v1/completions").json["timings"]
        self.assertNotIn("predicted_plain_ms", none)

    def test_prompts_are_scored(self):
        """echo with logprobs gives the prompt's tokens theirs, as lm-evaluation-harness wants; max_tokens 0: only these."""
        def ask(prompt, status=200, **fields):
            body = {"prompt": prompt, "logprobs": 2, "echo": True, "temperature": 0, **fields}
            return self.ask(body, path="/v1/completions", status=status)
        text = "the cat sat on the mat and looked at the dog"
        tokens = self.s.post("/tokenize", {"content": text, "add_special": True}).json["tokens"]
        for prompt in (text, tokens):
            whole = ask(prompt, max_tokens=0).json
            self.assertEqual((whole["usage"]["prompt_tokens"], whole["usage"]["completion_tokens"]), (len(tokens), 0))
            choice = whole["choices"][0]
            self.assertEqual((choice["text"], choice["finish_reason"]), (text, "length"))
            scores = choice["logprobs"]
            self.assertEqual([len(v) for v in scores.values()], [len(tokens)] * 4)
            self.assertEqual([scores[k][0] for k in ("token_logprobs", "top_logprobs", "text_offset")], [None, None, 0])
            self.assertTrue(all(p <= 0 for p in scores["token_logprobs"][1:]))
            self.assertTrue(all(len(t) <= 2 for t in scores["top_logprobs"][1:]))
        # each is what the token has as an answer to those before it: a bias that leaves only this token does not change it
        for i in (1, 2, len(tokens) - 1):
            one = ask(tokens[:i], echo=False, max_tokens=1, logit_bias=[[tokens[i], 10000]], ignore_eos=True).json
            logprobs = one["choices"][0]["logprobs"]
            self.assertEqual((logprobs["tokens"][0], logprobs["token_logprobs"][0], logprobs["top_logprobs"][0]),
                             tuple(scores[k][i] for k in ("tokens", "token_logprobs", "top_logprobs")))
        # with an answer: both, and the same when it is streamed; several prompts, one of a single token
        for fields in ({"max_tokens": 3}, {"max_tokens": 0}, {"max_tokens": 2, "n": 2, "seed": 3, "temperature": 1}):
            many = ask([tokens, tokens[:1]], **fields).json["choices"]
            streamed = [{"text": "", **{k: [] for k in scores}} for _ in many]
            for e in ask([tokens, tokens[:1]], stream=True, **fields).events[:-1]:
                for c in e["choices"]:
                    streamed[c["index"]]["text"] += c["text"]
                    for k in scores:
                        streamed[c["index"]][k] += (c["logprobs"] or {k: []})[k]
            for s, c in zip(streamed, many):  # offsets of an answer's tokens count the bytes that have been sent
                n = len(tokens) if c["index"] < len(many) // 2 else 1
                self.assertEqual(s.pop("text_offset")[:n], c["logprobs"].pop("text_offset")[:n])
                self.assertEqual(s, {"text": c["text"], **c["logprobs"]})
            self.assertEqual(many[0]["logprobs"]["token_logprobs"][:len(tokens)], scores["token_logprobs"])
            self.assertEqual(many[-1]["logprobs"]["token_logprobs"][0], None)
        self.assertEqual(ask(text, max_tokens=0, logprobs=None).json["choices"][0]["text"], text)
        self.assertEqual(ask(text, max_tokens=0, logprobs=0).json["choices"][0]["logprobs"]["top_logprobs"][1], {})
        self.assertIn("from 1", ask(text, 400, max_tokens=0, echo=False).error)
        self.assertIn("tokens", ask(tokens * 1000, 400, max_tokens=0).error)

    def test_a_seed_repeats_an_answer_and_no_seed_does_not(self):
        def text(**fields):
            return self.ask(chat("x", temperature=1.5, ignore_eos=True, **fields)).json["choices"][0]["message"]["content"]
        self.assertEqual(text(seed=7), text(seed=7))
        self.assertEqual(text(seed=2**63), text(seed=2**63))
        self.assertGreater(len({text() for _ in range(4)}), 1)
        self.assertGreater(len({text(seed=-1) for _ in range(4)}), 1)

    def test_n_choices_are_those_of_the_seeds(self):
        many = self.ask(chat("y", n=3, seed=10, temperature=1)).json
        alone = [self.ask(chat("y", seed=10 + i, temperature=1)).json for i in range(3)]
        self.assertEqual([c["message"]["content"] for c in many["choices"]],
                         [a["choices"][0]["message"]["content"] for a in alone])
        self.assertEqual([c["index"] for c in many["choices"]], [0, 1, 2])
        self.assertEqual(many["usage"]["completion_tokens"], sum(a["usage"]["completion_tokens"] for a in alone))
        events = self.ask(chat("y", n=3, seed=10, temperature=1, stream=True)).events[:-1]
        for i, a in enumerate(alone):
            text = "".join(e["choices"][0]["delta"].get("content", "") for e in events if e["choices"][0]["index"] == i)
            self.assertEqual(text, a["choices"][0]["message"]["content"])

    def test_stop_strings_and_length(self):
        whole = self.ask(chat("abc", max_tokens=24, ignore_eos=True)).json["choices"][0]
        self.assertEqual(whole["finish_reason"], "length")
        text = whole["message"]["content"]
        stop = re.search("[!-~]{2}", text[3:]).group()
        for given in (stop, [stop, "never there"]):
            cut = self.ask(chat("abc", max_tokens=24, ignore_eos=True, stop=given)).json["choices"][0]
            self.assertEqual(cut["finish_reason"], "stop")
            self.assertEqual(cut["message"]["content"], text[:text.index(stop)])
        short = self.ask(chat("abc", max_completion_tokens=3, max_tokens=None, ignore_eos=True)).json
        self.assertEqual(short["usage"]["completion_tokens"], 3)

    def test_probabilities_end_with_the_text(self):
        """A stop text and what follows it have no log-probabilities, in no dialect, although usage counts their tokens."""
        fields = {"grammar": "root ::= [a-z]{40}", "temperature": 1, "seed": 3}
        dialects = [("/v1/chat/completions", {**chat("abc"), **fields, "logprobs": True}, "max_tokens",
                     lambda e: e["choices"][0], lambda c: (c.get("message") or c.get("delta") or {}).get("content") or "",
                     lambda c: (c["logprobs"] or {"content": []})["content"]),
                    ("/v1/completions", {"prompt": "abc", **fields, "logprobs": 1}, "max_tokens",
                     lambda e: e["choices"][0], lambda c: c["text"],
                     lambda c: [{"token": t} for t in (c["logprobs"] or {"tokens": []})["tokens"]]),
                    ("/completion", {"prompt": "abc", **fields, "n_probs": 1, "return_tokens": True}, "n_predict",
                     lambda e: e, lambda c: c["content"], lambda c: c.get("completion_probabilities", [])),
                    ("/api/generate", {"model": "m", "prompt": "abc", "raw": True, "stream": False, "logprobs": True,
                                       "format": {"type": "string", "pattern": "^[a-z]{40}$"}}, None,
                     lambda e: e, lambda c: c["response"], lambda c: c.get("logprobs", []))]
        for path, body, limit, choice, text_of, tokens_of in dialects:
            def ask(stop, **more):
                if limit:
                    return self.ask({**body, limit: 60, "stop": stop, **more}, path=path)
                options = {"temperature": 1, "seed": 3, "num_predict": 60, "stop": stop}
                return self.ask({**body, "options": options, **more}, path=path)
            text = text_of(choice(ask(["never there"]).json))
            for stop in (text[9:12], text[4:5], text[14:17]):
                whole = choice(ask([stop]).json)
                said, tokens = text_of(whole), [t["token"] for t in tokens_of(whole)]
                self.assertEqual(said, text[:text.index(stop)], (path, stop))
                self.assertTrue("".join(tokens).startswith(said), (path, stop, said, tokens))
                self.assertLess(len("".join(tokens[:-1])), len(said) or 1, (path, stop, said, tokens))
                streamed = ask([stop], stream=True)
                events = streamed.events if limit else [json.loads(line) for line in streamed.body.splitlines()]
                pieces = [choice(e) for e in events if e != "[DONE]"]
                self.assertEqual("".join(map(text_of, pieces)), said, (path, stop))
                self.assertEqual([t["token"] for c in pieces for t in tokens_of(c)], tokens, (path, stop))
                if "tokens" in whole:  # llama.cpp's ids are all that were generated
                    self.assertEqual(len(whole["tokens"]), whole["tokens_predicted"])
                    self.assertGreater(len(whole["tokens"]), len(tokens))
                    self.assertEqual([t for c in pieces for t in c.get("tokens", [])], whole["tokens"])

    def test_probabilities_in_responses(self):
        """"include" and "top_logprobs" give each part the tokens of its text, streamed as in whole answers."""
        body = {"input": "abc", "max_output_tokens": 60, "temperature": 1, "seed": 3, "grammar": "root ::= [a-z]{40}"}
        include = ["reasoning.encrypted_content", "message.output_text.logprobs"]
        def part(answer):
            return answer["output"][0]["content"][0]
        self.assertEqual(part(self.ask(body, path="/v1/responses").json)["logprobs"], [])
        for fields, n_top in (({"include": include}, 0), ({"top_logprobs": 2}, 2), ({"include": include, "top_logprobs": 1}, 1),
                              ({"include": include, "stop": ["zz", "a"]}, 0)):
            whole = part(self.ask({**body, **fields}, path="/v1/responses").json)
            told = whole["logprobs"]
            self.assertTrue("".join(t["token"] for t in told).startswith(whole["text"]), (fields, whole))
            self.assertLess(len("".join(t["token"] for t in told[:-1])), len(whole["text"]) or 1)
            self.assertEqual({len(t["top_logprobs"]) for t in told}, {n_top})
            self.assertTrue(all(t["logprob"] <= 0 and t["bytes"] == list(t["token"].encode()) for t in told))
            events = self.ask({**body, **fields, "stream": True}, path="/v1/responses").events
            by_type = {t: [e for e in events if e["type"] == t] for t in {e["type"] for e in events}}
            deltas = by_type["response.output_text.delta"]
            self.assertEqual([t for e in deltas for t in e["logprobs"]], told, fields)
            self.assertEqual(by_type["response.output_text.done"][0]["logprobs"], told)
            self.assertEqual(by_type["response.content_part.done"][0]["part"], whole)
            self.assertEqual(part(by_type["response.completed"][0]["response"]), whole)
        for wrong in ({"include": "message.output_text.logprobs"}, {"include": [1]}, {"top_logprobs": 21},
                      {"top_logprobs": "2"}):
            self.assertIn(f"'{next(iter(wrong))}'", self.ask({**body, **wrong}, 400, "/v1/responses").error)

    def test_grammars_and_schemas(self):
        answer = self.ask(chat("q", grammar='root ::= "yes" | "no"')).json["choices"][0]
        self.assertIn(answer["message"]["content"], ("yes", "no"))
        schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
        for fields in ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}},
                       {"json_schema": schema}, {"response_format": {"type": "json_object", "schema": schema}}):
            answer = self.ask(chat("q", max_tokens=200, temperature=1, seed=3, **fields)).json["choices"][0]
            self.assertIn(json.loads(answer["message"]["content"])["a"], (1, 2))

    def test_vllms_structured_outputs(self):
        def said(**fields):
            return self.ask(chat("q", max_tokens=60, temperature=1, seed=3, **fields)).json["choices"][0]["message"]["content"]
        texts = ['a"b\\c\n', "\u00fc"]
        for n in range(2):
            self.assertEqual(said(structured_outputs={"choice": texts[n:n + 1]}), texts[n])
        for fields in ({"structured_outputs": {"choice": texts}}, {"guided_choice": texts}):
            self.assertIn(said(**fields), texts)
        schema = {"enum": [17]}
        for fields in ({"structured_outputs": {"json": schema}}, {"structured_outputs": {"json": json.dumps(schema)}},
                       {"structured_outputs": {"grammar": 'root ::= "17"'}}, {"guided_json": schema},
                       {"guided_grammar": 'root ::= "17"'}, {"grammar": 'root ::= "17"', "structured_outputs": {}}):
            self.assertEqual(said(**fields), "17", fields)
        self.assertEqual(said(structured_outputs={"json_object": True})[0], "{")
        for bad in (5, {"choice": []}, {"choice": "a"}, {"choice": [""]}, {"choice": [1]}, {"choice": ["a\0"]},
                    {"choice": ["x"] * 1001}, {"json": 5}, {"json": "nope"}, {"grammar": 5}, {"grammar": "root ::= ("},
                    {"json": schema, "choice": ["a"]}, {"regex": "a"}):
            a = self.ask(chat("q", structured_outputs=bad), 400)
            self.assertTrue(a.json["error"]["param"] or "grammar" in a.error, (bad, a.error))
        self.ask(chat("q", grammar='root ::= "17"', structured_outputs={"choice": ["a"]}), 400)

    def test_logit_bias(self):
        token = self.s.post("/tokenize", {"content": "k"}).json["tokens"][0]
        for bias in ({str(token): 100}, [[token, 100]]):
            self.assertEqual(self.ask(chat("q", max_tokens=4, logit_bias=bias)).json["choices"][0]["message"]["content"],
                             "kkkk")
        self.assertNotIn("k", self.ask(chat("q", max_tokens=60, temperature=2, logit_bias={str(token): -100},
                                            ignore_eos=True)).json["choices"][0]["message"]["content"])

    def test_logit_bias_by_text(self):
        """A text stands for its tokens, as in llama.cpp; digits are an id as a key, and a text in a pair."""
        def said(bias, **fields):
            a = self.ask(chat("q", max_tokens=60, logit_bias=bias, ignore_eos=True, **fields))
            return a.json["choices"][0]["message"]["content"]
        self.assertEqual(said({"k": 100}), "k" * 60)
        self.assertEqual(said([["7", 100]]), "7" * 60)
        self.assertFalse(set(said({"kxz": False}, temperature=2, seed=3)) & set("kxz"))
        self.assertFalse(set(said([["kxz", -100]], temperature=2, seed=3)) & set("kxz"))
        self.assertEqual(self.ask(chat("q", logit_bias={"y" * 4097: 1}), 400).json["error"]["param"], "logit_bias")

    def test_samplers_as_letters(self):
        """As llama.cpp's clients write the steps; n_cmpl is llama.cpp's name of n."""
        body = chat("q", max_tokens=20, temperature=1.5, seed=9, top_k=40, top_p=0.9)
        names = self.ask({**body, "samplers": ["top_k", "top_p", "temperature"]}).json["choices"][0]["message"]
        self.assertEqual(self.ask({**body, "samplers": "kpt"}).json["choices"][0]["message"], names)
        self.assertNotEqual(self.ask({**body, "samplers": "t"}).json["choices"][0]["message"], names)
        self.assertEqual(len(self.ask({**body, "n_cmpl": 2}).json["choices"]), 2)
        self.ask({**body, "post_sampling_probs": True})
        a = self.ask({**body, "post_sampling_probs": True, "n_probs": 2}, 400)
        self.assertEqual(a.json["error"]["param"], "post_sampling_probs")

    def test_content_parts_and_roles(self):
        plain = self.s.post("/apply-template",
                            {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "a\nb"}]})
        parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        same = self.s.post("/apply-template", {"messages": [{"role": "developer", "content": "s"},
                                                            {"role": "user", "content": parts}]})
        self.assertEqual(plain.json, same.json)
        image = [{"type": "image_url", "image_url": {"url": "x"}}]
        self.assertIn("image_url", self.ask({"messages": [{"role": "user", "content": image}]}, 400).error)

    def test_the_last_message_of_the_assistant_is_continued(self):
        messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "abc"}]
        prompt = self.s.post("/apply-template", {"messages": messages[:1]}).json["prompt"] + "abc"
        fields = {"max_tokens": 8, "temperature": 0}
        answer = self.ask({"messages": messages, **fields}).json["choices"][0]["message"]["content"]
        self.assertEqual(answer, self.ask({"prompt": prompt, **fields}, path="/v1/completions").json["choices"][0]["text"])

    def test_tokens_and_texts(self):
        text = "a <|im_end|> \u00fc\u0000b"
        tokens = self.s.post("/tokenize", {"content": text}).json["tokens"]
        self.assertEqual(self.s.post("/detokenize", {"tokens": tokens}).json["content"], text)
        pieces = self.s.post("/tokenize", {"content": "ab", "with_pieces": True}).json["tokens"]
        self.assertEqual("".join(p["piece"] for p in pieces), "ab")
        self.assertEqual(self.s.post("/detokenize", {"tokens": []}).json["content"], "")

    def test_unknown_fields_are_ignored_and_null_is_absent(self):
        self.ask(chat("x", user="me", something_new={"a": [1]}, stop=None, logit_bias=None, n=None, tools=None,
                      tool_choice=None,
                      response_format=None, stream_options=None, seed=None, top_p=None, parallel_tool_calls=True, store=False))

    def test_refusals_name_the_field(self):
        huge = 10**30
        for field, value in (("temperature", "hot"), ("temperature", -1), ("temperature", huge), ("top_p", 2), ("top_k", 1.5),
                             ("top_k", huge), ("max_tokens", -3), ("max_tokens", [1]), ("n", 0), ("n", 4),
                             ("n", 10**6), ("seed", "x"), ("seed", 1.5), ("stop", 3), ("stop", ["a", 2]), ("stop", ["x"] * 65),
                             ("stop", "y" * 5000), ("logprobs", "yes"), ("top_logprobs", 1000), ("logit_bias", [1]),
                             ("logit_bias", {"": 1}), ("logit_bias", {"9999": 1}), ("samplers", "k?"), ("stream", "true"),
                             ("stream_options", 1),
                             ("response_format", "json"), ("response_format", {"type": "xml"}),
                             ("response_format", {"type": "json_schema"}), ("grammar", 1), ("grammar", "root ::= ("),
                             ("tools", {}),
                             ("tools", [{"type": "retrieval"}]), ("tool_choice", "always"), ("tool_choice", "required"),
                             ("audio", {"voice": "x"}), ("modalities", ["audio"]), ("best_of", 3), ("min_tokens", 3),
                             ("stop_token_ids", [3]), ("bad_words", ["a"]), ("chat_template", "{{ 1 }}"),
                             ("functions", [{"name": "f"}]),
                             ("presence_penalty", "a"), ("min_p", 7), ("samplers", ["nope"]),
                             ("chat_template_kwargs", []), ("reasoning_format", "loud"), ("mirostat", 9), ("model", 3)):
            a = self.s.post("/v1/chat/completions", chat("x", **{field: value}))
            self.assertEqual(a.status, 400, (field, value, a.body))
            self.assertIn(field.split("_")[0], a.error)
            self.assertEqual((a.json["error"]["type"], a.json["error"]["param"]), ("invalid_request_error", field))

    def test_a_message_names_the_range_that_is_accepted(self):
        text = {"prompt": "a", "max_tokens": 1}
        for path, body, field, low, high, also in (
                ("/v1/chat/completions", chat("x", max_tokens=1, logprobs=True), "top_logprobs", 0, 20, ()),
                ("/v1/completions", text, "logprobs", 0, 20, ()),
                ("/completion", text, "n_probs", 0, 20, ()),
                ("/v1/completions", text, "n", 1, 3, ()),
                ("/completion", text, "n_cmpl", 1, 3, ()),
                ("/v1/chat/completions", chat("x"), "max_tokens", 0, 2**31 - 1, (-1, -2)),
                ("/v1/completions", {"prompt": "a"}, "max_tokens", 1, 2**31 - 1, (-1, -2)),
                ("/v1/completions", {"prompt": "a", "echo": True}, "max_tokens", 0, 2**31 - 1, (-1,)),
                ("/completion", {"prompt": "a"}, "n_predict", 0, 2**31 - 1, (-1,)),
                ("/completion", {"prompt": "a"}, "max_tokens", 0, 2**31 - 1, (-1,)),
                ("/v1/messages", chat("x"), "max_tokens", 0, 2**31 - 1, (-1,)),
                ("/v1/responses", {"input": "x"}, "max_output_tokens", 0, 2**31 - 1, (-1,)),
                ("/v1/chat/completions", chat("x", max_tokens=1), "reasoning_budget_tokens", 0, 2**31 - 1, (-1,)),
                ("/v1/chat/completions", chat("x", max_tokens=1), "thinking_budget", 0, 2**31 - 1, (-1,)),
                ("/v1/completions", text, "mirostat", 0, 2, ()),
                ("/v1/completions", text, "top_k", -1, 2**31 - 1, ()),
                ("/v1/embeddings", {"input": "a"}, "dimensions", 1, None, ())):
            said = self.ask({**body, field: -2**40}, 400, path).error
            found = re.search(r"from (-?\d+) to (\d+)", said)
            self.assertTrue(found, said)
            high = high or int(found.group(2))  # the model's
            self.assertEqual((int(found.group(1)), int(found.group(2))), (low, high), said)
            for value in (low, high, *also):
                self.ask({**body, field: value, "stop": ["e", "t", " "], "seed": 1}, 200, path)
            for value in (low - 4, high + 1, low + 0.5):
                said = self.ask({**body, field: value}, 400, path).error
                self.assertIn(f"'{field}' must be a whole number {found.group()}", said)
            for value in also:
                self.assertIn(f"{value}", said)
        for path, body, field in (
                ("/api/generate", {"model": "m", "prompt": "a", "options": {"num_predict": 1.5}}, "num_predict"),
                ("/api/chat", {"model": "m", **chat("x"), "options": {"num_predict": 2**31}}, "num_predict"),
                ("/v1/messages", chat("x", max_tokens=1, thinking={"type": "enabled", "budget_tokens": -2}), "budget_tokens")):
            self.assertIn(f"'{field}' must be a whole number from", self.ask(body, 400, path).error)
        self.assertIn("but not 1", self.ask({**text, "mirostat": 1}, 400, "/v1/completions").error)
        self.assertIn("negative", self.ask({**text, "seed": 0.5}, 400, "/v1/completions").error)
        self.ask({"model": "m", "keep_alive": 1e10, "input": "a"}, 200, "/api/embed")

    def test_bodies_that_cannot_be_read(self):
        post = self.s.post
        for body in (b"", b"{", b"[]", b"null", b'"x"', b'{"messages": }', b"\xff\xfe", b'{"a":1,"a":2}', b"[" * 100000,
                     b'{"x":' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"messages": [1]}', b'{"messages": []}',
                     b'{"messages": {}}',
                     b'{"messages": [{"role": "user"}]}', b'{"messages": [{"content": "x"}]}',
                     b'{"messages": [{"role": 1, "content": "x"}]}',
                     b'{"messages": [{"role": "user", "content": 5}]}', b'{"messages": [{"role": "user", "content": [5]}]}'):
            for path in ("/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize", "/apply-template"):
                a = post(path, body)
                self.assertEqual(a.status, 400, (path, body[:60], a.body))
                self.assertTrue(a.error)

    def test_a_prompt_that_is_too_long(self):
        a = self.ask({"prompt": [5] * 600}, 400, "/v1/completions")
        self.assertEqual(a.json["error"]["code"], "context_length_exceeded")
        self.assertIn("600", a.error)
        self.assertIn("512", a.error)
        self.ask({"prompt": ""}, 400, "/v1/completions")
        self.ask({"prompt": [-1]}, 400, "/v1/completions")
        self.ask({"prompt": [10**9]}, 400, "/v1/completions")
        self.ask({}, 400, "/v1/completions")

    def test_paths_and_methods(self):
        self.assertEqual(self.s.get("/nope").status, 404)
        a = self.s.get("/v1/chat/completions")
        self.assertEqual((a.status, a.headers["Allow"]), (405, "POST"))
        self.assertEqual(self.s.post("/health", {}).status, 405)
        self.assertEqual(self.s.call("HEAD", "/health").status, 200)
        self.assertEqual(self.s.call("DELETE", "/v1/models").status, 405)
        self.assertEqual(self.s.call("DELETE", "/lora-adapters").headers["Allow"], "GET, POST")

    def test_embeddings(self):
        texts = ["The cat sat.", "Dogs", "A much longer text about nothing in particular"]
        a = self.ask({"input": texts}, path="/v1/embeddings").json
        self.assertEqual([d["index"] for d in a["data"]], [0, 1, 2])
        vectors = [d["embedding"] for d in a["data"]]
        self.assertEqual(a["usage"]["prompt_tokens"], a["usage"]["total_tokens"])
        self.assertAlmostEqual(sum(x * x for x in vectors[0]), 1, 5)
        for text, vector in zip(texts, vectors):  # the same alone, and as tokens
            self.assertEqual(self.ask({"input": text}, path="/v1/embeddings").json["data"][0]["embedding"], vector)
        b = self.ask({"input": texts[1], "encoding_format": "base64"}, path="/v1/embeddings").json["data"][0]["embedding"]
        # numbers in JSON are floats, too
        self.assertEqual(base64.b64decode(b), struct.pack(f"<{len(vectors[1])}f", *vectors[1]))
        ids = self.ask({"content": texts[0], "add_special": True}, path="/tokenize").json["tokens"]
        self.assertEqual(self.ask({"input": [ids, ids]}, path="/v1/embeddings").json["data"][1]["embedding"], vectors[0])
        self.assertEqual(self.ask({"input": ids}, path="/v1/embeddings").json["data"][0]["embedding"], vectors[0])
        self.assertEqual(self.ask({"input": texts}, path="/api/embed").json["embeddings"], vectors)
        self.assertEqual(self.ask({"prompt": texts[2]}, path="/api/embeddings").json["embedding"], vectors[2])
        native = [{"index": i, "embedding": [v]} for i, v in enumerate(vectors)]  # llama.cpp's
        self.assertEqual(self.ask({"content": texts}, path="/embedding").json, native)
        self.assertEqual(self.ask({"input": texts}, path="/embedding").json, native)
        for scale, size in ((0, lambda v: max(map(abs, v)) / 32760), (1, lambda v: sum(map(abs, v))), (-1, lambda v: 1)):
            for path, pick in (("/embedding", lambda a: a[0]["embedding"][0]),
                               ("/v1/embeddings", lambda a: a["data"][0]["embedding"])):
                v = pick(self.ask({"input": texts[0], "embd_normalize": scale}, path=path).json)
                self.assertAlmostEqual(size(v), 1, places=4)
                length = sum(x * x for x in v) ** 0.5
                self.assertTrue(all(abs(x / length - y) < 1e-5 for x, y in zip(v, vectors[0])), (scale, path))
                self.assertGreater(abs(length - 1), 1e-3)
        for wrong in (-2, 3, 0.5, "2", True):
            self.assertIn("'embd_normalize'", self.ask({"input": "a", "embd_normalize": wrong}, 400, "/v1/embeddings").error)
        for path in ("/embeddings", "/v1/embeddings"):  # llama.cpp's answer to its own field
            self.assertEqual(self.ask({"content": texts}, path=path).json, native)
        for wrong in ({}, {"input": []}, {"input": 5}, {"input": [5, "x"]}, {"input": ["x", 5]}, {"input": [[]]},
                      {"input": [-1]},
                      {"input": [10**9]}, {"input": "x", "dimensions": 70000}, {"input": "x", "encoding_format": "hex"},
                      {"input": "word " * 5000}):
            self.ask(wrong, 400, "/v1/embeddings")
        not_one = self.ask({"query": "x", "documents": ["y"]}, 400, "/v1/rerank").error  # this model is not a reranker
        self.assertNotIn(".gguf", not_one)  # a client is not told where the file lies
        self.ask({"query": 1, "documents": ["y"]}, 400, "/v1/rerank")

    def test_metrics(self):
        before = self.figures()
        n = self.ask(chat("count me", ignore_eos=True)).json["usage"]
        after = self.figures()
        for name, grown in (("vllm:generation_tokens_total", n["completion_tokens"]),
                            ("vllm:prompt_tokens_total", n["prompt_tokens"]),
                            ("llamacpp:tokens_predicted_total", n["completion_tokens"]),
                            ("vllm:time_to_first_token_seconds_count", 1),
                            ("vllm:inter_token_latency_seconds_count", n["completion_tokens"] - 1)):
            self.assertEqual(after[name] - before[name], grown, name)
        self.assertEqual(after["vllm:num_requests_running"], 0)

    def figures(self):
        out = {}
        for line in self.s.get("/metrics").body.decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                out[name.split("{")[0]] = float(value)
        return out

    def test_one_connection_many_requests(self):
        c = self.s.connect()
        for i in range(5):
            self.assertEqual(self.s.call("POST", "/v1/completions", {"prompt": "a", "max_tokens": 2}, connection=c).status, 200)
            self.assertEqual(self.s.call("POST", "/v1/completions", {"prompt": 1}, connection=c).status, 400)
        c.close()


if __name__ == "__main__":
    rig.main("__main__")
