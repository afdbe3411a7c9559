"""The same answers in other dialects: Anthropic's messages, OpenAI's responses, llama.cpp's completion and infill, ollama's
lines; tools, saved slots, several models."""
import http.client
import json
import os
import random
import struct
import threading
import time
import unittest

import rig
from rig import Server, chat

TOOL = {"type": "function", "function": {"name": "get_weather", "description": "d", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"],
    "additionalProperties": False}}}


def sse(answer):
    """(event, data) of server-sent events with names."""
    out = []
    for block in answer.body.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and not line.startswith(":"))
        if "data" in lines:
            out.append((lines.get("event"), json.loads(lines["data"])))
    return out


class Dialects(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.s = Server("-np", "2", "--chat-template-file", rig.template("tools"))

    @classmethod
    def tearDownClass(cls):
        assert cls.s.stop() == 0, cls.s.log

    def post(self, path, body, status=200):
        a = self.s.post(path, body)
        self.assertEqual(a.status, status, a.body)
        return a

    def text(self, **fields):
        return self.post("/v1/chat/completions", chat("Hi there", **fields)).json["choices"][0]["message"]["content"]

    def test_messages(self):
        body = {"model": "claude", "max_tokens": 16, "temperature": 0, "messages": [{"role": "user", "content": "Hi there"}]}
        a = self.post("/v1/messages", body).json
        self.assertEqual((a["type"], a["role"], a["content"][0]["text"]), ("message", "assistant", self.text()))
        self.assertIn(a["stop_reason"], ("max_tokens", "end_turn"))
        blocks = [{"role": "user", "content": [{"type": "text", "text": "Hi there"}]}]
        self.assertEqual(self.post("/v1/messages", {**body, "messages": blocks}).json["content"], a["content"])
        events = sse(self.post("/v1/messages", {**body, "stream": True}))
        self.assertEqual([e[0] for e in events][:2] + [e[0] for e in events][-3:],
                         ["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"])
        self.assertTrue(all(name == data["type"] for name, data in events))
        self.assertEqual("".join(d["delta"]["text"] for n, d in events if n == "content_block_delta"), a["content"][0]["text"])
        self.assertEqual(events[-2][1]["usage"]["output_tokens"], a["usage"]["output_tokens"])
        self.assertEqual(events[-2][1]["delta"]["stop_reason"], a["stop_reason"])
        n = self.post("/v1/messages/count_tokens", body).json["input_tokens"]
        self.assertEqual(n, a["usage"]["input_tokens"] + a["usage"]["cache_read_input_tokens"])

    def test_messages_stop_sequence(self):
        whole = self.text(max_tokens=40, ignore_eos=True)
        stop = [c for c in whole[2:] if c.isprintable() and ord(c) < 127][0]
        a = self.post("/v1/messages", {"max_tokens": 40, "temperature": 0, "stop_sequences": ["\x01\x02", stop],
                                       "messages": [{"role": "user", "content": "Hi there"}]}).json
        self.assertEqual((a["stop_reason"], a["stop_sequence"]), ("stop_sequence", stop))

    def test_fields_that_mean_the_same_everywhere(self):
        """Responses and messages take the samplers, stop texts and adapters of chat completions, as llama.cpp's server does."""
        hi = [{"role": "user", "content": "Hi there"}]
        for path, body, text in (
                ("/v1/responses", {"input": "Hi there", "max_output_tokens": 40},
                 lambda a: a["output"][0]["content"][0]["text"]),
                ("/v1/messages", {"messages": hi, "max_tokens": 40}, lambda a: "".join(b["text"] for b in a["content"]))):
            body = {**body, "temperature": 0, "ignore_eos": True}
            whole = self.post(path, body).json
            self.assertEqual((whole["usage"]["output_tokens"], text(whole)), (40, self.text(max_tokens=40, ignore_eos=True)))
            for more in ({"repeat_penalty": 1.5}, {"dry_multiplier": 2, "dry_base": 3}):
                fields = {"max_tokens": 40, "ignore_eos": True, **more}
                self.assertEqual(text(self.post(path, {**body, **more}).json), self.text(**fields), (path, more))
            stop = [c for c in text(whole)[2:] if c.isprintable() and ord(c) < 127][0]
            self.assertEqual(text(self.post(path, {**body, "stop": stop}).json), text(whole).split(stop)[0])
            for wrong in ({"lora": [{"id": 0, "scale": 1}]}, {"samplers": ["none"]}, {"speculative.n_max": -1},
                          {"presence_penalty": "x"}):
                self.assertIn(next(iter(wrong)).split(".")[0] if "lora" not in wrong else "adapter 0",
                              self.post(path, {**body, **wrong}, 400).json["error"]["message"])

    def test_messages_with_tools(self):
        tool = {"name": "get_weather", "description": "d", "input_schema": TOOL["function"]["parameters"]}
        body = {"max_tokens": 200, "temperature": 1, "seed": 1, "tools": [tool],
                "tool_choice": {"type": "tool", "name": "get_weather"},
                "system": [{"type": "text", "text": "s"}],
                "messages": [{"role": "user", "content": "x"},
                             {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "get_weather",
                                                                "input": {"city": "Rome"}}]},
                             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "sunny"},
                                                          {"type": "text", "text": "and?"}]}]}
        a = self.post("/v1/messages", body).json
        self.assertEqual((a["stop_reason"], a["content"][-1]["type"], a["content"][-1]["name"]),
                         ("tool_use", "tool_use", "get_weather"))
        self.assertIn(a["content"][-1]["input"]["city"], ("Paris", "Rome"))
        events = sse(self.post("/v1/messages", {**body, "stream": True}))
        parts = "".join(d["delta"]["partial_json"] for n, d in events if n == "content_block_delta"
                        and d["delta"]["type"] == "input_json_delta")
        self.assertEqual(json.loads(parts), a["content"][-1]["input"])

    def test_messages_refusals(self):
        ok = {"max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}
        for fields in ({"messages": 1}, {"messages": [{"role": "user"}]}, {"system": 5}, {"tools": [{"type": "custom"}]},
                       {"tool_choice": {"type": "maybe"}}, {"stop_sequences": "x"}, {"temperature": "x"},
                       {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
                       {"messages": [{"role": "user", "content": [{"type": "tool_use", "name": "x"}]}]}):
            a = self.post("/v1/messages", {**ok, **fields}, 400).json
            self.assertEqual((a["type"], a["error"]["type"]), ("error", "invalid_request_error"), fields)

    def test_tools_of_chats(self):
        for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
            body = chat("x", tools=[TOOL], tool_choice=choice, max_tokens=200, temperature=1, seed=4)
            a = self.post("/v1/chat/completions", body).json["choices"][0]
            self.assertEqual(a["finish_reason"], "tool_calls")
            call = a["message"]["tool_calls"][0]
            self.assertEqual((call["type"], call["function"]["name"], a["message"]["content"]),
                             ("function", "get_weather", None))
            self.assertIn(json.loads(call["function"]["arguments"])["city"], ("Paris", "Rome"))
            events = self.post("/v1/chat/completions", {**body, "stream": True}).events[:-1]
            deltas = [c for e in events for c in e["choices"][0]["delta"].get("tool_calls", [])]
            self.assertEqual((deltas[0]["id"], deltas[0]["function"]["name"]), (call["id"], "get_weather"))
            self.assertEqual("".join(d["function"]["arguments"] for d in deltas), call["function"]["arguments"])
            self.assertEqual(events[-1]["choices"][0]["finish_reason"], "tool_calls")
        self.post("/v1/chat/completions", chat("x", tools=[TOOL],
                                               tool_choice={"type": "function", "function": {"name": "other"}}), 400)
        history = [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}]},
            {"role": "tool", "tool_call_id": "1", "content": "sunny"}]
        self.post("/v1/chat/completions", {"messages": history, "tools": [TOOL], "max_tokens": 4})

    def test_tokens_of_responses_are_counted(self):
        body = {"input": [{"role": "user", "content": "Hi there"}], "instructions": "Be kind."}
        used = self.post("/v1/responses", {**body, "max_output_tokens": 1}).json["usage"]["input_tokens"]
        self.assertEqual(self.post("/v1/responses/input_tokens", body).json,
                         {"object": "response.input_tokens", "input_tokens": used})
        self.post("/v1/responses/input_tokens", {"input": 5}, 400)
        used = self.post("/v1/chat/completions", chat("Hi there", max_tokens=1)).json["usage"]["prompt_tokens"]
        for path in ("/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"):
            self.assertEqual(self.post(path, chat("Hi there")).json,
                             {"object": "response.input_tokens", "input_tokens": used})
            self.post(path, {"messages": []}, 400)

    def test_responses(self):
        body = {"model": "m", "input": "Hi there", "max_output_tokens": 16, "temperature": 0}
        a = self.post("/v1/responses", body).json
        item = a["output"][0]
        self.assertEqual((a["object"], item["type"], item["content"][0]["text"]), ("response", "message", self.text()))
        items = [{"role": "user", "content": [{"type": "input_text", "text": "Hi there"}]}]
        self.assertEqual(self.post("/v1/responses", {**body, "input": items}).json["output"][0]["content"], item["content"])
        events = sse(self.post("/v1/responses", {**body, "stream": True}))
        names = [n for n, _ in events]
        self.assertEqual(names[:4], ["response.created", "response.in_progress", "response.output_item.added",
                                     "response.content_part.added"])
        self.assertEqual(names[-4:-1], ["response.output_text.done", "response.content_part.done", "response.output_item.done"])
        self.assertIn(names[-1], ("response.completed", "response.incomplete"))
        self.assertEqual([d["sequence_number"] for _, d in events], list(range(len(events))))
        self.assertEqual("".join(d["delta"] for n, d in events if n == "response.output_text.delta"),
                         item["content"][0]["text"])
        last = events[-1][1]["response"]
        self.assertEqual((last["output"][0]["content"], last["usage"]["output_tokens"], last["status"]),
                         (item["content"], a["usage"]["output_tokens"], a["status"]))

    def test_responses_with_tools_and_schemas(self):
        tool = {"type": "function", **TOOL["function"]}
        body = {"input": [{"role": "user", "content": "x"}, {"type": "function_call", "call_id": "1", "name": "get_weather",
                                                             "arguments": "{}"},
                          {"type": "function_call_output", "call_id": "1", "output": "sunny"},
                          {"type": "reasoning", "summary": []}],
                "instructions": "be good", "tools": [tool], "tool_choice": {"type": "function", "name": "get_weather"},
                "seed": 2}
        a = self.post("/v1/responses", body).json
        call = a["output"][-1]
        self.assertEqual((call["type"], call["name"], call["status"]), ("function_call", "get_weather", "completed"))
        self.assertIn(json.loads(call["arguments"])["city"], ("Paris", "Rome"))
        events = sse(self.post("/v1/responses", {**body, "stream": True}))
        self.assertEqual([d["arguments"] for n, d in events if n == "response.function_call_arguments.done"],
                         [call["arguments"]])
        schema = {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"]}
        a = self.post("/v1/responses",
                      {"input": "x", "text": {"format": {"type": "json_schema", "name": "n", "schema": schema}}}).json
        self.assertEqual(json.loads(a["output"][0]["content"][0]["text"])["a"], 1)
        for fields in ({"previous_response_id": "x"}, {"background": True}, {"tools": [{"type": 5}]}, {"input": 4},
                       {"input": [{"type": "item_reference"}]}, {"text": {"format": {}}}, {"max_output_tokens": "x"}):
            self.post("/v1/responses", {"input": "x", **fields}, 400)

    def test_native_completion(self):
        a = self.post("/completion", {"prompt": "abc", "n_predict": 8, "temperature": 0, "ignore_eos": True}).json
        same = self.post("/v1/completions", {"prompt": "abc", "max_tokens": 8, "temperature": 0, "ignore_eos": True}).json
        self.assertEqual((a["content"], a["stop_type"], a["tokens_predicted"]), (same["choices"][0]["text"], "limit", 8))
        events = self.post("/completion", {"prompt": "abc", "n_predict": 8, "temperature": 0, "ignore_eos": True,
                                           "stream": True}).events
        self.assertEqual("".join(e["content"] for e in events), a["content"])
        self.assertEqual([e["stop"] for e in events], [False] * (len(events) - 1) + [True])
        self.assertEqual(events[-1]["timings"]["predicted_n"], 8)

    def test_several_prompts(self):
        ask = {"max_tokens": 8, "temperature": 1, "seed": 3, "n": 2, "ignore_eos": True}
        texts = ["abc", "the other", "abc the"]
        alone = [self.post("/v1/completions", {"prompt": t, **ask}).json for t in texts]
        wanted = [c["text"] for a in alone for c in a["choices"]]
        lists = [self.post("/tokenize", {"content": t, "add_special": True}).json["tokens"] for t in texts]
        for prompt in (texts, lists):
            a = self.post("/v1/completions", {"prompt": prompt, **ask}).json
            self.assertEqual([c["index"] for c in a["choices"]], list(range(6)))
            self.assertEqual([c["text"] for c in a["choices"]], wanted)
            for field in ("prompt_tokens", "completion_tokens", "total_tokens"):
                self.assertEqual(a["usage"][field], sum(x["usage"][field] for x in alone))
        streamed = [""] * 6
        for e in self.post("/v1/completions", {"prompt": texts, "stream": True, "echo": True, **ask}).events[:-1]:
            for c in e["choices"]:
                streamed[c["index"]] += c["text"]
        echoed = self.post("/v1/completions", {"prompt": texts, "echo": True, **ask}).json["choices"]
        self.assertEqual(streamed, [c["text"] for c in echoed])
        self.assertEqual(streamed, [texts[i // 2] + wanted[i] for i in range(6)])
        for bad in (["a", ""], [[], [1]], [["a"], [1, "b", -1]], ["a", 5, "b"], ["a", None], ["x"] * 65, [["a"], ["b"], "c"]):
            self.post("/v1/completions", {"prompt": bad, **ask}, 400)
        self.post("/completion", {"prompt": texts}, 400)

    def test_infill_needs_its_tokens(self):
        self.assertIn("FIM", self.post("/infill", {"input_prefix": "a", "input_suffix": "b"}, 501).error)

    def test_ollama(self):
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi there"}],
                "options": {"temperature": 0, "num_predict": 16}}
        a = self.post("/api/chat", {**body, "stream": False}).json
        self.assertEqual((a["message"]["content"], a["done"]), (self.text(), True))
        lines = [json.loads(line) for line in self.post("/api/chat", body).body.decode().splitlines()]
        self.assertEqual("".join(x["message"]["content"] for x in lines), a["message"]["content"])
        self.assertEqual((lines[-1]["done"], lines[-1]["eval_count"], lines[-1]["done_reason"]),
                         (True, a["eval_count"], a["done_reason"]))
        g = self.post("/api/generate", {"model": "m:latest", "prompt": "Hi there", "stream": False,
                                        "options": body["options"]}).json
        self.assertEqual(g["response"], a["message"]["content"])
        raw = self.post("/api/generate", {"model": "m", "prompt": "abc", "raw": True, "stream": False,
                                          "options": body["options"]}).json
        same = self.post("/v1/completions", {"prompt": "abc", "max_tokens": 16, "temperature": 0}).json
        self.assertEqual(raw["response"], same["choices"][0]["text"])
        f = self.post("/api/chat", {**body, "stream": False, "format": {"type": "object", "properties": {"a": {"enum": [1]}},
                                                                        "required": ["a"]},
                                    "options": {"num_predict": -1}}).json
        self.assertEqual(json.loads(f["message"]["content"])["a"], 1)
        self.assertEqual([m["name"] for m in self.s.get("/api/tags").json["models"]], ["m"])
        self.assertEqual(self.post("/api/show", {"model": "m"}).json["details"]["format"], "gguf")
        self.assertTrue(self.s.get("/api/version").json["version"])
        self.assertIsInstance(self.post("/api/chat", {"model": "m", "messages": 3}, 400).json["error"], str)
        self.post("/api/chat", {"model": "m", "messages": [{"role": "user", "content": "x", "images": ["y"]}]}, 400)
        self.post("/api/chat", {**body, "format": "xml"}, 400)
        for wrong in ("", "m", "5x", "1h30", "5 m", [1], True):
            self.post("/api/chat", {**body, "keep_alive": wrong}, 400)
            self.post("/api/generate", {"model": "m", "keep_alive": wrong}, 400)
        for wrong in ({"options": {"top_p": 2}}, {"format": "xml"}, {"tools": [{"type": "x"}]}):  # without a prompt, too
            for keep in ({}, {"keep_alive": 0}):
                self.post("/api/chat", {"model": "m", **wrong, **keep}, 400)
        tool = {"name": "f", "input_schema": {}, "description": 3}
        self.post("/v1/messages", {"max_tokens": 1, "messages": [{"role": "user", "content": "x"}], "tools": [tool]}, 400)
        self.post("/v1/responses", {"input": "x", "text": {"format": {"type": None}}}, 400)


class Tags(unittest.TestCase):
    """A model whose vocabulary has tokens for tool calls and infill (made before the servers start)."""

    @classmethod
    def setUpClass(cls):
        rig.make_model("tags.gguf", "--vocab-kind", "bpe-tags", "--vocab", "330")
        text = ("{% if tools and not silent %}{{ tools | tojson }}{% endif %}"
                "{% for m in messages %}<|im_start|>{{ m['content'] }}{% endfor %}")
        cls.templates = {name: rig.template(name, "{# " + mark + " #}" + text)
                         for name, mark in (("hermes", "<tool_call>"), ("mistral", "[TOOL_CALLS]"))}

    def calls(self, s, mark, **fields):
        """Answers that a bias makes begin calls whenever they may."""
        token = s.post("/tokenize", {"content": mark, "parse_special": True}).json["tokens"]
        self.assertEqual(len(token), 1)
        other = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {
            "a": {"enum": [1, 20, 300]}, "b": {"type": "boolean"}}, "required": ["a", "b"]}}}
        a = s.post("/v1/chat/completions", chat("x", tools=[TOOL, other], max_tokens=160, temperature=1, ignore_eos=True,
                                                logit_bias={token[0]: 30}, **fields))
        self.assertEqual(a.status, 200, a.body)
        return a.json["choices"]

    def test_a_schema_without_a_grammar_leaves_calls_free(self):
        odd = {"type": "function", "function": {"name": "f", "parameters": {"$ref": "https://elsewhere.example/schema"}}}
        strict = {"type": "function", "function": {**odd["function"], "strict": True}}
        with Server("-c", "8192", "--chat-template-file", self.templates["hermes"], model="tags.gguf") as s:
            self.assertEqual(s.post("/v1/chat/completions", chat("x", tools=[odd])).status, 200)
            self.assertEqual(s.post("/v1/chat/completions", chat("x", tools=[strict])).status, 400)
            many = [{"type": "function", "function": {"name": f"f{i}", "parameters": {"type": "object"}}} for i in range(700)]
            self.assertEqual(s.post("/v1/chat/completions", chat("x", tools=many[:40])).status, 200)
            self.assertEqual(s.post("/v1/chat/completions", chat("x", tools=[])).status, 200)

    def test_one_odd_schema_leaves_the_other_tools_as_they_are(self):
        """A request has the tools of many servers; one that no grammar expresses takes any object."""
        add = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {
            "a": {"enum": [1, 20, 300]}}, "required": ["a"]}}}
        with Server("-c", "2048", "--chat-template-file", self.templates["hermes"], model="tags.gguf") as s:
            token = s.post("/tokenize", {"content": "<tool_call>", "parse_special": True}).json["tokens"][0]
            texts = [s.post("/detokenize", {"tokens": [i]}).json["content"] for i in range(330)]
            bias = {i: False for i in range(330) if "o" in texts[i] and i != token}  # so that calls are of `add`
            for schema in {"type": "strnig"}, {"properties": {"a": {"$ref": "#/$defs/lost"}}}, {"required": "a"}, \
                    {"$ref": "https://elsewhere.example/schema"}:
                odd = {"type": "function", "function": {"name": "odd", "parameters": schema}}
                ask = {"tools": [odd, add], "max_tokens": 120, "temperature": 1}
                n = 0
                for fields in {"tool_choice": "required", "logit_bias": bias}, \
                        {"logit_bias": {**bias, token: 30}, "ignore_eos": True}, \
                        {"tool_choice": "required", "logit_bias": bias, "response_format": {"type": "json_object"}}:
                    for seed in range(2):
                        a = s.post("/v1/chat/completions", chat("x", seed=seed, **ask | fields))
                        self.assertEqual(a.status, 200, a.body)
                        calls = a.json["choices"][0]["message"].get("tool_calls") or []
                        if a.json["choices"][0]["finish_reason"] == "length":
                            calls = calls[:-1]
                        for call in calls:
                            n += call["function"]["name"] == "add"
                            arguments = json.loads(call["function"]["arguments"])
                            self.assertIsInstance(arguments, dict)
                            if call["function"]["name"] == "add":
                                self.assertIn(arguments["a"], (1, 20, 300))
                self.assertGreater(n, 4, schema)
                strict = {"type": "function", "function": {**odd["function"], "strict": True}}
                a = s.post("/v1/chat/completions", chat("x", tools=[strict, add], tool_choice="required"))
                self.assertEqual(a.status, 400, a.body)

    def test_streams_have_the_items_of_whole_answers(self):
        """Text after a call is an item of its own, in its place; an answer that says nothing is the same in both ways."""
        function = {"name": "add", "parameters": {"type": "object", "properties": {"a": {"enum": [1, 20, 300]}},
                                                  "required": ["a"]}}
        kinds = set()
        with Server("--chat-template-file", self.templates["hermes"], model="tags.gguf") as s:
            token = s.post("/tokenize", {"content": "<tool_call>", "parse_special": True}).json["tokens"][0]
            nothing = {"seed": 1, "max": 20, "grammar": 'root ::= ""'}
            for fields in [{"seed": i, "max": 120, "logit_bias": {token: 7}} for i in range(5)] + [nothing]:
                most = fields.pop("max")
                tools = {} if "grammar" in fields else {"tools": [{"type": "function", **function}]}
                body = {"input": "x", "temperature": 1, "max_output_tokens": most, **tools, **fields}
                whole = s.post("/v1/responses", body).json["output"]
                events = s.post("/v1/responses", {**body, "stream": True}).events
                self.assertEqual([(x["item"]["type"], x["output_index"]) for x in events
                                  if x["type"] == "response.output_item.added"],
                                 [(x["type"], i) for i, x in enumerate(whole)])
                done = [x["item"] for x in events if x["type"] == "response.output_item.done"]
                self.assertEqual(done, events[-1]["response"]["output"])
                told = [{k: v for k, v in x.items() if k not in ("id", "call_id")} for x in done]
                self.assertEqual(told, [{k: v for k, v in x.items() if k not in ("id", "call_id")} for x in whole])
                kinds.add(tuple(x["type"] for x in whole))

                tools = {} if "grammar" in fields else {"tools": [{"name": "add", "input_schema": function["parameters"]}]}
                body = {**chat("x"), "temperature": 1, "max_tokens": most, **tools, **fields}
                whole = s.post("/v1/messages", body).json["content"]
                events = s.post("/v1/messages", {**body, "stream": True}).events
                self.assertEqual([(x["index"], x["content_block"]["type"]) for x in events
                                  if x["type"] == "content_block_start"],
                                 [(i, x["type"]) for i, x in enumerate(whole)])
                for i, block in enumerate(whole):
                    text = "".join(x["delta"].get("text", "") + x["delta"].get("partial_json", "") for x in events
                                   if x["type"] == "content_block_delta" and x["index"] == i)
                    if block["type"] == "tool_use":
                        self.assertEqual(json.loads(text or "{}"), block["input"])
                    else:
                        self.assertEqual(text, block["text"])
        self.assertIn(("message",), kinds)
        self.assertTrue(any("message" in k[k.index("function_call"):] for k in kinds if "function_call" in k), kinds)

    # what llama.vim sends as a chunk of another file comes, and when the cursor rests (autoload/llama.vim of 2025)
    CHUNK = {"text": "def add(a, b):\n    return a + b\n", "time": [5, 123456], "filename": "sum.py"}
    VIM_CHUNKS = {"input_prefix": "", "input_suffix": "", "input_extra": [CHUNK], "prompt": "", "n_predict": 0,
                  "temperature": 0.0,
                  "stream": False, "samplers": [], "cache_prompt": True, "t_max_prompt_ms": 1, "t_max_predict_ms": 1,
                  "response_fields": [""]}
    VIM_FILL = {"input_prefix": "import sum\n\n", "input_suffix": "\nprint(x)\n", "input_extra": [CHUNK], "prompt": "x = ",
                "n_predict": 12, "n_indent": 0, "top_k": 40, "top_p": 0.99, "stream": False,
                "samplers": ["top_k", "top_p", "infill"],
                "cache_prompt": True, "t_max_prompt_ms": 500, "t_max_predict_ms": 1500, "response_fields": [
                    "content", "timings/prompt_n", "timings/prompt_ms", "timings/prompt_per_token_ms",
                    "timings/prompt_per_second",
                    "timings/predicted_n", "timings/predicted_ms", "timings/predicted_per_token_ms",
                    "timings/predicted_per_second",
                    "truncated", "tokens_cached"]}

    def test_llama_vim(self):
        with Server("-np", "2", model="tags.gguf") as s:
            def tokens(text, special=False):
                return s.post("/tokenize", {"content": text, "parse_special": special}).json["tokens"]
            chunks = s.post("/infill", self.VIM_CHUNKS)
            self.assertEqual((chunks.status, chunks.json), (200, {}))
            a = s.post("/infill", {**self.VIM_FILL, "ignore_eos": True}).json
            self.assertEqual(set(a), set(self.VIM_FILL["response_fields"]))
            self.assertIsInstance(a["content"], str)
            self.assertEqual(a["timings/predicted_n"], 12)
            self.assertFalse(a["truncated"])
            chunk = tokens("\n") + tokens(self.CHUNK["text"])
            prompt = [*chunk, *tokens("<|fim_prefix|>", True), *tokens(self.VIM_FILL["input_prefix"]),
                      *tokens("<|fim_suffix|>", True),
                      *tokens(self.VIM_FILL["input_suffix"]), *tokens("<|fim_middle|>", True), *tokens("x = ")]
            self.assertLessEqual(a["timings/prompt_n"], len(prompt) - len(chunk) // 32 * 32)  # the chunk was computed before
            settled = {"seed": 7, "temperature": 1, "ignore_eos": True}
            self.assertEqual(s.post("/infill", {**self.VIM_FILL, **settled}).json["content"],
                             s.post("/completion", {"prompt": prompt, "n_predict": 12, "top_k": 40, "top_p": 0.99,
                                                    "samplers": ["top_k", "top_p"], **settled}).json["content"])
            self.assertEqual(s.post("/infill", {**self.VIM_FILL, "response_fields": "content"}).status, 400)
            self.assertEqual(s.post("/infill", {**self.VIM_FILL, "response_fields": [5]}).status, 400)
            nothing = s.post("/completion", {"prompt": "abc", "n_predict": 0}).json
            self.assertEqual((nothing["content"], nothing["tokens_predicted"]), ("", 0))
            last = s.post("/completion", {"prompt": "abc", "n_predict": 3, "stream": True, "response_fields": ["stop"]}).events[
                -1]
            self.assertEqual(last, {"stop": True})

    def test_calls_that_an_answer_begins_fit_the_schemas(self):
        for name, mark in (("hermes", "<tool_call>"), ("mistral", "[TOOL_CALLS]")):
            said = {}
            for spec in ("none", "ngram"):
                with Server("-np", "2", "--chat-template-file", self.templates[name], "--spec-type", spec,
                            model="tags.gguf") as s:
                    said[spec] = [self.calls(s, mark, seed=seed, tool_choice="auto", n=2) for seed in (1, 2, 3)]
                    if spec == "none":  # without calls text is free
                        free = chat("x", max_tokens=40, temperature=1, seed=5, chat_template_kwargs={"silent": True})
                        self.assertEqual(s.post("/v1/chat/completions", {**free, "tools": [TOOL]}).json["choices"],
                                         s.post("/v1/chat/completions", free).json["choices"])
            texts = {spec: [[c["message"] for c in choices] for choices in said[spec]] for spec in said}
            self.assertEqual(texts["none"], texts["ngram"])
            n = 0
            for choice in sum(said["none"], []):
                for call in (choice["message"].get("tool_calls") or [])[:-1]:  # the last may have been cut off
                    arguments = json.loads(call["function"]["arguments"])
                    n += 1
                    if call["function"]["name"] == "add":
                        self.assertIn(arguments["a"], (1, 20, 300))
                        self.assertIsInstance(arguments["b"], bool)
                    else:
                        self.assertEqual(call["function"]["name"], "get_weather")
                        self.assertIn(arguments["city"], ("Paris", "Rome"))
            self.assertGreater(n, 6, name)


class Slots(unittest.TestCase):
    def test_a_slot_is_saved_and_restored(self):
        folder = os.path.join(rig.FOLDER, "slots")
        os.mkdir(folder)
        prompt = {"prompt": "a prompt of some length " * 10, "max_tokens": 20, "temperature": 0, "ignore_eos": True}
        with Server("-np", "1", "--slot-save-path", folder) as s:
            self.assertEqual(s.post("/slots/0?action=save", {"filename": "none"}).status, 400)
            first = s.post("/v1/completions", prompt).json
            a = s.post("/slots/0?action=save", {"filename": "one.bin"})
            self.assertEqual(a.status, 200, a.body)
            self.assertEqual(os.path.getsize(os.path.join(folder, "one.bin")), a.json["n_written"])
            for name in ("../x", "/etc/passwd", "a/b", ".hidden", "", "x" * 300, "a\u0000b", None, 5):
                for action in ("save", "restore"):
                    self.assertEqual(s.post(f"/slots/0?action={action}", {"filename": name}).status, 400, name)
            self.assertEqual(s.post("/slots/0?action=restore", {"filename": "missing"}).status, 404)
            for action, body in (("other", b""), ("other", b'{"filename": "x"}'), ("", b"")):
                a = s.call("POST", f"/slots/0?action={action}", body)
                self.assertEqual(a.status, 400, a.body)
                self.assertIn(f"must be save, restore or erase; found '{action}'", a.error)
            self.assertEqual(s.post("/slots/0", {"filename": "x"}).status, 400)
            for number in ("1", "-1", "x", "99999999999999999999"):
                self.assertEqual(s.post(f"/slots/{number}?action=save", {"filename": "x"}).status, 404, number)
        with open(os.path.join(folder, "one.bin"), "rb") as f:
            data = f.read()
        with open(os.path.join(folder, "cut.bin"), "wb") as f:
            f.write(data[:-7])
        with open(os.path.join(folder, "bad.bin"), "wb") as f:
            f.write(data[:200] + bytes([data[200] ^ 1]) + data[201:])
        os.mkdir(os.path.join(folder, "dir"))
        os.mkfifo(os.path.join(folder, "fifo"))
        with Server("-np", "1", "--slot-save-path", folder) as s:
            for name in ("cut.bin", "bad.bin", "dir", "fifo"):
                self.assertEqual(s.post("/slots/0?action=restore", {"filename": name}).status, 400, name)
            a = s.post("/slots/0?action=restore", {"filename": "one.bin"})
            self.assertEqual((a.status, a.json["n_read"]), (200, len(data)), a.body)
            again = s.post("/v1/completions", prompt).json
            self.assertEqual(again["choices"], first["choices"])
            self.assertGreater(again["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
            n = s.post("/slots/0?action=save", {"filename": "more"}).json["n_saved"]
            for body, erased in ((b"", n), (b"{}", 0)):
                a = s.call("POST", "/slots/0?action=erase", body)
                self.assertEqual((a.status, a.json), (200, {"id_slot": 0, "n_erased": erased}), a.body)
            self.assertIn("nothing to save", s.post("/slots/0?action=save", {"filename": "none"}).error)
            self.assertEqual(s.post("/v1/completions", prompt).json["choices"], first["choices"])
            self.assertEqual(s.call("POST", "/slots/1?action=erase").status, 404)
        with Server() as s:
            for action in ("save", "erase"):
                self.assertEqual(s.post(f"/slots/0?action={action}", {"filename": "x"}).status, 501)

    def test_a_running_answer_is_saved(self):
        folder = os.path.join(rig.FOLDER, "running")
        os.mkdir(folder)
        with Server("-np", "1", "-c", "2048", "--slot-save-path", folder) as s:
            body = {"prompt": "x", "max_tokens": 1500, "temperature": 0, "ignore_eos": True}
            answers = []
            t = threading.Thread(target=lambda: answers.append(s.post("/v1/completions", body).json))
            t.start()
            while not s.get("/slots").json[0]["is_processing"] and not answers:
                pass
            a = s.post("/slots/0?action=save", {"filename": "x"})
            erased = s.call("POST", "/slots/0?action=erase").json["n_erased"]  # once the answer has ended
            t.join()
            self.assertGreaterEqual(erased, 1500)
            self.assertEqual(a.status, 200, a.body)
            self.assertEqual(s.post("/v1/completions", body).json["choices"], answers[0]["choices"])


    def test_a_server_that_is_killed_leaves_slots_that_load_or_are_refused(self):
        folder = os.path.join(rig.FOLDER, "killed")
        os.mkdir(folder)
        options = ("-np", "2", "--slot-save-path", folder, "--no-access-log")
        prompt = {"prompt": "a prompt of some length " * 10, "max_tokens": 12, "temperature": 0, "ignore_eos": True}
        rng = random.Random(1)

        def until_it_dies(call):
            try:
                for i in range(10**6):
                    call(i)
            except (OSError, http.client.HTTPException):
                pass
        expected = None
        for _ in range(3):
            s = Server(*options)
            first = s.post("/v1/completions", prompt).json["choices"]
            expected = expected or first
            self.assertEqual(first, expected)
            calls = [lambda i: s.post("/slots/0?action=save", {"filename": f"s{i % 3}"}),
                     lambda i: s.post("/slots/1?action=restore", {"filename": f"s{i % 3}"}),
                     lambda i: s.post("/v1/completions", prompt)]
            threads = [threading.Thread(target=until_it_dies, args=(c,)) for c in calls]
            for t in threads:
                t.start()
            while not os.path.exists(os.path.join(folder, "s0")):
                time.sleep(0.002)
            time.sleep(rng.random() * 0.1)
            s.process.kill()
            for t in threads:
                t.join()
            s.stop()
        with Server(*options) as s:
            for name in os.listdir(folder):  # among them what was being written, under a name of its own
                a = s.post("/slots/0?action=restore", {"filename": name})
                self.assertIn(a.status, (200,) if len(name) == 2 else (200, 400), (name, a.body))
                self.assertEqual(s.post("/v1/completions", prompt).json["choices"], expected)
            with open(os.path.join(folder, "s0"), "rb") as f:
                data = f.read()
            for _ in range(40):
                at = rng.randrange(len(data))
                broken = data[:at] if rng.random() < 0.5 else data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[
                    at + 1:]
                with open(os.path.join(folder, "broken"), "wb") as f:
                    f.write(broken)
                a = s.post("/slots/0?action=restore", {"filename": "broken"})
                self.assertEqual((a.status, a.json["error"]["type"]), (400, "invalid_request_error"), (at, len(broken), a.body))
            self.assertEqual(s.post("/v1/completions", prompt).json["choices"], expected)


class Variables(unittest.TestCase):
    TEXT = ("{% for m in messages %}<|im_start|>{{ m.role }}: {{ m.content }}{% endfor %}[{{ reasoning_effort }}|{{ custom }}|"
            "{{ nested.a[0] if nested }}]{% if add_generation_prompt %}<|im_end|>{% endif %}")

    def tokens(self, s, path="/v1/chat/completions", **fields):
        a = s.post(path, {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, **fields})
        self.assertEqual(a.status, 200, a.body)
        usage = a.json.get("usage", a.json)
        return usage.get("prompt_tokens", usage.get("input_tokens", usage.get("prompt_eval_count")))

    def test_texts_of_variables_are_text(self):
        """A control token is one token more, text that spells it is several."""
        mark, kwargs = "<|im_end|>", "chat_template_kwargs"
        with Server("--chat-template-file", rig.template("variables", self.TEXT)) as s:
            none = self.tokens(s)
            for fields in ({"reasoning_effort": mark}, {kwargs: {"reasoning_effort": mark}}, {kwargs: {"custom": mark}},
                           {kwargs: {"nested": {"a": [mark]}}}, {kwargs: {"custom": "<|im_", "reasoning_effort": "end|>"}}):
                self.assertGreater(self.tokens(s, **fields), none + 3, fields)
            self.assertEqual(self.tokens(s, reasoning_effort="a"), none + 1)
            count = "/v1/messages/count_tokens"
            self.assertGreater(self.tokens(s, count, **{kwargs: {"custom": mark}}), self.tokens(s, count) + 3)
            ollama = {"model": "m", "stream": False, "options": {"num_predict": 1}}
            self.assertGreater(self.tokens(s, "/api/chat", think=mark, **ollama), self.tokens(s, "/api/chat", **ollama) + 3)
        with Server("--chat-template-file", rig.template("variables", self.TEXT), "--chat-template-kwargs",
                    json.dumps({"custom": mark, "reasoning_effort": "a"})) as s:  # who starts the server may
            self.assertEqual(self.tokens(s), none + 2)
            self.assertGreater(self.tokens(s, **{kwargs: {"custom": mark}}), none + 4)
            self.assertEqual(self.tokens(s, **{kwargs: {"custom": "b", "reasoning_effort": "c"}}), none + 2)

    def test_names_that_are_taken(self):
        with Server() as s:
            for name in ("messages", "tools", "add_generation_prompt", "bos_token", "eos_token"):
                for value in (None, [], "x"):
                    for path in ("/v1/chat/completions", "/apply-template", "/v1/messages"):
                        a = s.post(path, {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1,
                                          "chat_template_kwargs": {name: value}})
                        self.assertEqual((a.status, f"'{name}'" in a.error), (400, True), (path, a.body))


class Models(unittest.TestCase):
    def test_a_model_that_nobody_uses_sleeps(self):
        lora = rig.make_lora("sleep.gguf", "--seed", "3")
        body = {"prompt": "which", "max_tokens": 8, "temperature": 0, "ignore_eos": True}

        def text(s, **fields):
            a = s.post("/v1/completions", {**body, **fields})
            self.assertEqual(a.status, 200, a.body)
            return a.json["choices"][0]["text"]

        def state(s):  # looking wakes nobody and keeps nobody awake
            self.assertEqual((s.get("/health").status, s.get("/metrics").status), (200, 200))
            self.assertEqual(s.get("/api/tags").json["models"][0]["size"], os.path.getsize(os.path.join(rig.FOLDER, "m.gguf")))
            self.assertEqual(s.get("/slots").status, 200)
            return s.get("/v1/models").json["data"][0]["status"]["value"]

        def until(s, value):
            end = time.time() + rig.patience(10)
            while state(s) != value:
                self.assertLess(time.time(), end, s.log)
                time.sleep(0.02)
            self.assertEqual((s.get("/slots").json, s.get("/api/ps").json["models"]), ([], []))
        with Server("--sleep-idle-seconds", "1", "--lora", lora) as s:
            answer = text(s)
            s.post("/lora-adapters", [{"id": 0, "scale": 0.5}])
            half = text(s)
            self.assertNotEqual(half, answer)
            for _ in range(2):
                until(s, "unloaded")
                self.assertEqual(text(s), half)  # as set before it slept
                self.assertEqual(text(s, lora=[{"id": 0, "scale": 1}]), answer)
        with Server() as s:  # as ollama's clients do it
            def ollama(path, **fields):
                a = s.post(path, {"model": "m", "stream": False, "options": {"num_predict": 4, "temperature": 0}, **fields})
                self.assertEqual(a.status, 200, a.body)
                return a.json
            self.assertEqual(ollama("/api/generate", keep_alive=0)["done_reason"], "unload")
            until(s, "unloaded")
            self.assertEqual(ollama("/api/generate", keep_alive="-1")["done_reason"], "load")
            self.assertEqual(state(s), "loaded")
            self.assertGreater(s.get("/api/ps").json["models"][0]["expires_at"], "2200")  # it stays
            self.assertEqual(ollama("/api/chat", messages=[], keep_alive=0.0)["message"], {"role": "assistant", "content": ""})
            until(s, "unloaded")
            said = ollama("/api/generate", prompt="which", keep_alive="1h30m")["response"]
            self.assertIn("expires_at", s.get("/api/ps").json["models"][0])
            self.assertEqual(ollama("/api/generate", prompt="which", keep_alive="50ms")["response"], said)
            until(s, "unloaded")

    def test_several_models_are_loaded_when_asked_for_and_give_way(self):
        folder = os.path.join(rig.FOLDER, "models")
        os.mkdir(folder)
        for name, seed in (("a", 1), ("b", 2), ("c", 3)):
            rig.make_model(f"models/{name}.gguf", "--seed", str(seed))
        alone = {}
        for name in "abc":
            with Server(model=f"models/{name}.gguf") as s:
                alone[name] = s.post("/v1/chat/completions", chat("which")).json["choices"]
        self.assertEqual(len({json.dumps(x) for x in alone.values()}), 3)
        with open(os.path.join(folder, "mmproj-a.gguf"), "wb") as f:  # no model: it lies beside one
            text = lambda t: struct.pack("<Q", len(t)) + t
            f.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text(b"general.architecture") + struct.pack("<I", 8) +
                    text(b"clip"))
        with Server("--models-dir", folder, "--models-max", "1", "-np", "2", "--slot-save-path", folder, model=None) as s:
            def state():
                return {m["id"]: m["status"]["value"] for m in s.get("/v1/models").json["data"]}
            self.assertEqual(state(), {"a": "unloaded", "b": "unloaded", "c": "unloaded"})
            for name in "abcab":
                self.assertEqual(s.post("/v1/chat/completions", chat("which", model=name)).json["choices"], alone[name])
                self.assertEqual(state(), {n: "loaded" if n == name else "unloaded" for n in "abc"})
            for name, path, body in (("a", "/slots/0?action=save&model=a", {}),
                                     ("c", "/slots/0?action=save&model=a", {"model": "c"})):
                self.assertEqual(s.post(path, {**body, "filename": "f"}).status, 400)  # nothing to save, now that it is loaded
                self.assertEqual(state()[name], "loaded")
            a = s.post("/v1/chat/completions", chat("which", model="d"))
            self.assertEqual((a.status, a.json["error"]["code"]), (404, "model_not_found"))
            failures = []

            def ask(name):
                for _ in range(4):
                    r = s.post("/v1/chat/completions", chat("which", model=name))
                    if r.status != 200 or r.json["choices"] != alone[name]:
                        failures.append(r.body)
            threads = [threading.Thread(target=ask, args=(n,)) for n in "abcabc"]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(failures, [])
            self.assertEqual(list(state().values()).count("loaded"), 1)
        with open(os.path.join(folder, "broken.gguf"), "wb") as f:
            f.write(b"GGUF" + b"\xff" * 100)
        with Server("--models-dir", folder, "-m", "x=" + os.path.join(rig.FOLDER, "m.gguf"), model=None) as s:
            self.assertEqual(s.post("/v1/chat/completions", chat("which", model="broken")).status, 500)
            self.assertEqual(s.post("/v1/chat/completions", chat("which", model="broken")).status, 500)
            self.assertEqual(s.post("/v1/chat/completions", chat("which", model="a")).json["choices"], alone["a"])
            self.assertEqual(s.get("/v1/models").json["data"][0]["id"], "x")
            self.assertEqual(s.post("/v1/chat/completions", chat("which")).status, 200)  # the first one


if __name__ == "__main__":
    rig.main("__main__")
