"""What clients send that other servers were reported to refuse or to lose: turns in an unusual order, several blocks of
reasoning, pictures in results of tools, headers that differ in every request, other names for known fields."""
import gzip
import json
import os
import unittest

import rig
from rig import Server

USER = {"role": "user", "content": "hi"}
FUNCTION = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"],
            "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": FUNCTION}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElFTkSuQmCC"

# A template that writes all that a conversation may have, and one that opens the reasoning.
ALL = """{%- for t in tools or [] %}{{ t.function.name ~ '\\n' }}{% endfor %}
{%- for m in messages %}{{ '[' + m.role + '] ' }}
{%- if m.reasoning_content %}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}{{ m.content }}
{%- for c in m.tool_calls or [] %} {{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %}{{ '\\n' }}
{%- endfor %}{% if add_generation_prompt %}[assistant] {% endif %}"""
THINK = ALL + ("{%- if add_generation_prompt %}{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n"
               "</think>\n\n{% else %}<think>\n{% endif %}{% endif %}")
# Turns alternate as Gemma's and Mistral's templates want it: after a result only the assistant or another result.
PAIRS = """{% set ns = namespace(last='assistant') %}{% for m in messages %}{% if m.role == 'system' and loop.first %}
{{- '[system] ' + m.content + '\\n' }}
{%- else %}{% if m.role == ns.last and m.role != 'tool' or (ns.last == 'tool' and m.role == 'user') or m.role == 'system' %}
{{- raise_exception('roles must alternate') }}{% endif %}{% set ns.last = m.role %}{{ '[' + m.role + '] ' + m.content }}
{%- for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}{{ '\\n' }}
{%- endif %}{% endfor %}"""
# Calls as Mistral's and Llama's templates want them: one in a message, with an id, and each result after its call.
CALLS = """{% set ns = namespace(open=none) %}{% for m in messages %}
{%- if m.role == 'assistant' and not m.content and not m.tool_calls %}{{ raise_exception('no text') }}{% endif %}
{%- if m.tool_calls %}{% if m.tool_calls | length > 1 %}{{ raise_exception('one call only') }}{% endif %}
{%- if not m.tool_calls[0].id %}{{ raise_exception('no id') }}{% endif %}{% set ns.open = m.tool_calls[0].id %}{% endif %}
{%- if m.role == 'tool' and m.tool_call_id != ns.open %}{{ raise_exception('no call') }}{% endif %}
{{- '[' ~ m.role ~ '] ' ~ (m.content or '') }}
{%- for c in m.tool_calls or [] %}{{ c.function.arguments.city }}{% endfor %}{{ '\\n' }}{% endfor %}"""


def said(*turns):
    """Messages of "role text"."""
    return [dict(zip(("role", "content"), t.split(" ", 1))) for t in turns]


def sse(answer):
    """Data of server-sent events."""
    return [json.loads(line[6:]) for line in answer.body.decode().split("\n") if line.startswith("data: {")]


class Case(unittest.TestCase):
    TEMPLATE = ALL

    @classmethod
    def setUpClass(cls):
        if not os.path.exists(os.path.join(rig.FOLDER, "tags.gguf")):
            rig.make_model("tags.gguf", "--vocab-kind", "bpe-tags", "--vocab", "330")
        cls.s = Server("-np", "2", "-c", "2048", "--chat-template-file", rig.template(cls.__name__, cls.TEMPLATE),
                       model="tags.gguf")

    @classmethod
    def tearDownClass(cls):
        assert cls.s.stop() == 0, cls.s.log

    def post(self, path, body, status=200):
        a = self.s.post(path, body)
        self.assertEqual(a.status, status, a.body)
        return a

    def prompt(self, messages, **fields):
        return self.post("/apply-template", {"messages": messages, **fields}).json["prompt"]

    def same_prompt(self, path, body, messages, **fields):
        """The request has as many tokens, and the same answer, as a chat with these messages."""
        a = self.post(path, {"temperature": 0, "model": "m", "max_tokens": 8, "max_output_tokens": 8, **body}).json
        b = self.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 8,
                                               "reasoning_format": "none", **fields}).json
        text = "".join(c.get("text", "") + c.get("thinking", "") for c in
                       (a["content"] if "content" in a else [p for o in a["output"] for p in o["content"]]))
        n = a["usage"]["input_tokens"] + a["usage"].get("cache_read_input_tokens", 0)
        self.assertEqual((text.split(), n), (b["choices"][0]["message"]["content"].split(), b["usage"]["prompt_tokens"]),
                         self.prompt(messages, **fields))


class Anthropic(Case):
    def test_calls_that_broke_off_do_not_end_the_conversation(self):
        """Clients keep calls whose stream broke off, messages without a text, and results that are data."""
        def turns(call, result):
            return [USER, {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", **call}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", **result}]}]

        def chat(arguments, result):
            return [USER, {"role": "assistant", "content": "", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}]},
                {"role": "tool", "tool_call_id": "c1", "content": result}]
        for given, same in ({"input": None}, "{}"), ({"input": ""}, "{}"), ({"input": []}, "[]"), \
                ({"input": '{"city":"Par'}, '{"city":"Par'), ({"input": '{"city":"Rome"}'}, '{"city":"Rome"}'):
            with self.subTest(**given):
                self.same_prompt("/v1/messages", {"messages": turns(given, {"content": "x"})}, chat(same, "x"))
        for given, same in ({"content": {"a": 1}}, '{"a":1}'), ({"content": 5}, "5"), ({"content": ["x"]}, "x"), \
                ({"content": [{"type": "text", "text": None}, {"type": "text", "text": "x"}]}, "\nx"):
            with self.subTest(**given):
                self.same_prompt("/v1/messages", {"messages": turns({"input": {}}, given)}, chat("{}", same))
        empty = [USER, {"role": "assistant", "content": None}, USER]
        self.same_prompt("/v1/messages", {"messages": empty}, [USER, {"role": "assistant", "content": ""}, USER])
        self.post("/v1/messages", {"messages": empty[:1], "max_tokens": 1, "tools": [{"name": "f"}]})

    def test_items_that_broke_off_do_not_end_the_conversation(self):
        for given, same in ({}, "{}"), ({"arguments": None}, "{}"), ({"arguments": {"city": "Rome"}}, '{"city":"Rome"}'):
            with self.subTest(**given):
                items = [USER, {"type": "function_call", "call_id": "c1", "name": "f", **given},
                         {"type": "function_call_output", "call_id": "c1", "output": None},
                         {"role": "assistant", "content": None}, USER]
                call = {**CALL, "function": {"name": "f", "arguments": same}}
                self.same_prompt("/v1/responses", {"input": items},
                                 [USER, {"role": "assistant", "content": "", "tool_calls": [call]},
                                  {"role": "tool", "tool_call_id": "c1", "content": ""},
                                  {"role": "assistant", "content": ""}, USER])

    def test_no_tokens_compute_the_prompt_for_the_cache(self):
        ask = {"messages": said("user " + "warm " * 40), "max_tokens": 0}
        a = self.post("/v1/messages", ask).json
        self.assertEqual((a["content"], a["stop_reason"], a["usage"]["output_tokens"]), ([], "max_tokens", 0))
        kinds = [e["type"] for e in sse(self.post("/v1/messages", {**ask, "stream": True}))]
        self.assertEqual(kinds, ["message_start", "message_delta", "message_stop"])
        warm = self.post("/v1/messages", {**ask, "max_tokens": 1}).json["usage"]
        self.assertGreater(warm["cache_read_input_tokens"], 40, warm)
        ask = {"messages": said("user " + "tepid " * 40), "max_tokens": 0}
        a = self.post("/v1/chat/completions", ask).json
        self.assertEqual((a["choices"][0]["message"]["content"], a["choices"][0]["finish_reason"]), ("", "length"))
        self.assertEqual(a["usage"]["completion_tokens"], 0)
        warm = self.post("/v1/chat/completions", {**ask, "max_tokens": 1}).json["usage"]
        self.assertGreater(warm["prompt_tokens_details"]["cached_tokens"], 40, warm)
        chunks = [e for e in sse(self.post("/v1/chat/completions", {**ask, "stream": True})) if e.get("choices")]
        self.assertEqual([c["choices"][0]["delta"].get("content", "") for c in chunks], [""] * len(chunks))
        a = self.post("/v1/responses", {"input": "tepid", "max_output_tokens": 0}).json
        self.assertEqual((a["status"], a["usage"]["output_tokens"]), ("incomplete", 0))

    def test_a_header_that_differs_in_every_request_is_left_out(self):
        """Claude Code's, which would keep every prompt out of the cache."""
        header = "x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=sdk-cli; cch=%s;"
        text = "You are a program, a=b; and more. " * 20
        wanted = [{"role": "system", "content": text}, USER]
        for system in (
                [{"type": "text", "text": header % "36ee5"},
                 {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}],
                header % "0aaa9" + "\n" + text, header % "0aaa8" + text,
                [{"type": "text", "text": (header % "11111") + "\n" + text}]):
            self.same_prompt("/v1/messages", {"system": system, "messages": [USER]}, wanted)
        again = [{"type": "text", "text": header % "fffff"}, {"type": "text", "text": text}]
        a = self.post("/v1/messages", {"max_tokens": 1, "system": again, "messages": [USER]}).json
        self.assertGreater(a["usage"]["cache_read_input_tokens"], a["usage"]["input_tokens"])
        for empty in (header % "1", [{"type": "text", "text": header % "2"}], "", [], None):
            self.same_prompt("/v1/messages", {"system": empty, "messages": [USER]}, [USER])
        quoted = {"role": "user", "content": header % "3"}  # a user's text is no header
        self.same_prompt("/v1/messages", {"messages": [quoted]}, [quoted])
        count = self.post("/v1/messages/count_tokens", {"system": header % "4", "messages": [USER]}).json
        self.assertEqual(count, self.post("/v1/messages/count_tokens", {"messages": [USER]}).json)

    def test_all_reasoning_of_a_message_is_kept(self):
        def block(text):
            return {"type": "thinking", "thinking": text, "signature": "x"}
        use = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
        result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "y"}]}
        for blocks in ([block("a"), block("b"), use], [block("a"), {"type": "text", "text": ""}, block("b"), use],
                       [block("a"), block(""), {"type": "redacted_thinking", "data": "z"}, use, block("b")]):
            self.same_prompt("/v1/messages", {"messages": [USER, {"role": "assistant", "content": blocks}, result]}, [
                USER, {"role": "assistant", "content": "", "reasoning_content": "a\nb", "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c1", "content": "y"}])

    def result(self, **fields):
        return [USER, {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", **fields}]}]

    def wanted(self, text):
        return [USER, {"role": "assistant", "content": "", "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c1", "content": text}]

    def test_a_tool_that_failed_without_a_word(self):
        for content in ({}, {"content": ""}, {"content": []}):
            self.same_prompt("/v1/messages", {"messages": self.result(is_error=True, **content)},
                             self.wanted("The tool failed."))
            self.same_prompt("/v1/messages", {"messages": self.result(is_error=False, **content)}, self.wanted(""))
        self.same_prompt("/v1/messages", {"messages": self.result(is_error=True, content="no such file")},
                         self.wanted("no such file"))

    def test_a_picture_in_a_result_does_not_end_the_conversation(self):
        """The client did not choose to send it. A model that cannot see it is told so; a user's picture is refused."""
        unseen = "(a picture, which this model cannot see)"
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
        text = {"type": "text", "text": "a.png"}
        self.same_prompt("/v1/messages", {"messages": self.result(content=[image])}, self.wanted(unseen))
        self.same_prompt("/v1/messages", {"messages": self.result(content=[text, image])}, self.wanted("a.png" + unseen))
        part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + PNG}}
        self.assertEqual(self.prompt(self.wanted([part])), self.prompt(self.wanted(unseen)))
        items = [USER, {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
                 {"type": "function_call_output", "call_id": "c1", "output": [
                     {"type": "input_image", "image_url": "data:image/png;base64," + PNG}]}]
        self.same_prompt("/v1/responses", {"input": items}, self.wanted(unseen))
        for content in ([part], [{**image, "type": "image"}]):
            path = "/v1/chat/completions" if content == [part] else "/v1/messages"
            self.post(path, {"max_tokens": 1, "messages": [{"role": "user", "content": content}]}, 400)
        self.post("/v1/messages", {"max_tokens": 1, "messages": self.result(content=[{"type": "image", "source": {}}])}, 400)


class Names(Case):
    """Other names for what is known, and older ones."""
    TEMPLATE = THINK

    def test_thinking_by_other_names(self):
        on, off = (self.prompt([USER], enable_thinking=t) for t in (True, False))
        self.assertNotEqual(on, off)
        for fields in ({"thinking": {"type": "disabled"}}, {"reasoning": {"effort": "none"}}, {"reasoning": False},
                       {"reasoning": {"enabled": False}}, {"thinking": {"type": "enabled"}, "enable_thinking": False},
                       {"reasoning": {"effort": "high"}, "reasoning_effort": "none"}):
            self.assertEqual(self.prompt([USER], **fields), off, fields)
        for fields in ({"thinking": {"type": "enabled"}}, {"reasoning": {"effort": "high"}}, {"thinking": None},
                       {"thinking": True}, {"reasoning": {"enabled": True}}, {"reasoning": None}, {"reasoning": {}},
                       {"reasoning": "x"},
                       {"thinking": {"type": "disabled"}, "enable_thinking": True},
                       {"reasoning": {"effort": "none"}, "reasoning_effort": "low"}):
            self.assertEqual(self.prompt([USER], **fields), on, fields)
        for wrong in ({"reasoning": {"effort": 5}}, {"reasoning": {"enabled": "no"}}):
            self.post("/v1/chat/completions", {"messages": [USER], **wrong}, 400)
        for kind, thinks in (("adaptive", True), ("enabled", True), ("disabled", False)):
            for budget in ({}, {"budget_tokens": None}):
                self.same_prompt("/v1/messages", {"messages": [USER], "thinking": {"type": kind, **budget}}, [USER],
                                 enable_thinking=thinks)
        free = {"messages": [USER], "max_tokens": 40, "temperature": 0, "ignore_eos": True, "logit_bias": {"</think>": -100}}
        end, = self.post("/tokenize", {"content": "</think>", "parse_special": True}).json["tokens"]
        free["logit_bias"] = {end: -100}
        limited = self.post("/v1/chat/completions", {**free, "reasoning_budget_tokens": 5}).json["choices"][0]["message"]
        self.assertTrue(limited["content"])
        also = self.post("/v1/chat/completions", {**free, "thinking": {"type": "enabled", "budget_tokens": 5}})
        self.assertEqual(also.json["choices"][0]["message"], limited)

    def test_parts_of_reasoning(self):
        wanted = [USER, {"role": "assistant", "content": "b", "reasoning_content": "a"}, USER]
        for content in ([{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}, {"type": "text", "text": "b"}],
                        [{"type": "thinking", "thinking": "a"}, {"type": "text", "text": "b"}],
                        [{"type": "reasoning", "text": "a"}, {"type": "text", "text": "b"}]):
            self.assertEqual(self.prompt([USER, {"role": "assistant", "content": content}, USER]), self.prompt(wanted))
        self.post("/apply-template", {"messages": [{"role": "user", "content": [{"type": "thinking", "thinking": "a"}]}]}, 400)

    def test_blocks_of_anthropic_in_a_chat(self):
        """Cursor sends them."""
        blocks = [USER, {"role": "assistant", "content": [
            {"type": "text", "text": "x"}, {"type": "tool_use", "id": "c1", "name": "f", "input": {"city": "Rome"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "y"}]},
                {"type": "text", "text": "z"}]}]
        wanted = [USER, {"role": "assistant", "content": "x", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"city\": \"Rome\"}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "y"}, {"role": "user", "content": "z"}]
        tool = {"name": "f", "description": "d", "input_schema": FUNCTION}
        self.assertEqual(self.prompt(blocks, tools=[tool]), self.prompt(wanted, tools=[TOOL]))
        a, b = ([self.post("/v1/chat/completions", {"messages": m, "tools": [t], "max_tokens": 300, "temperature": 0, "seed": 1,
                                                    "enable_thinking": False, **choice}).json["choices"][0]["message"]
                 for choice in ({}, {"tool_choice": "required"})] for m, t in ((blocks, tool), (wanted, TOOL)))
        self.assertEqual(a, b)
        self.assertEqual(json.loads(a[1]["tool_calls"][0]["function"]["arguments"]).keys(), {"city"})
        for choice in ({"type": "tool", "name": "f"}, {"type": "any"}, {"type": "any", "disable_parallel_tool_use": True}):
            c = self.post("/v1/chat/completions", {"messages": wanted, "tools": [TOOL], "max_tokens": 300, "temperature": 0,
                                                   "seed": 1, "enable_thinking": False, "tool_choice": choice}).json
            self.assertEqual(c["choices"][0]["message"]["tool_calls"], b[1]["tool_calls"])
        self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "tool_result"}, 5]}]}, 400)
        count = self.post("/v1/chat/completions/input_tokens", {"messages": blocks}).json["input_tokens"]
        self.assertEqual(count, self.post("/v1/chat/completions/input_tokens", {"messages": wanted}).json["input_tokens"])

    def test_calls_by_their_former_name(self):
        old = [USER, {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{\"a\": 1}"}},
               {"role": "function", "name": "f", "content": "y"}]
        new = [USER, {"role": "assistant", "content": None, "tool_calls": [
            {"id": "", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
            {"role": "tool", "name": "f", "content": "y"}]
        self.assertIn('f {"a": 1}', self.prompt(new))
        self.assertEqual(self.prompt(old), self.prompt(new))

    def test_who_continues_a_last_message(self):
        begun = [USER, {"role": "assistant", "content": "The answer"}]
        body = {"messages": begun, "max_tokens": 8, "temperature": 0, "enable_thinking": False}

        def answer(**fields):
            a = self.post("/v1/chat/completions", {**body, **fields}).json
            return a["usage"]["prompt_tokens"], a["choices"][0]["message"]["content"]
        own = answer()
        for fields in ({"continue_final_message": True}, {"continue_final_message": True, "add_generation_prompt": False},
                       {"continue_final_message": "content"}, {"continue_final_message": None}):
            self.assertEqual(answer(**fields), own, fields)
        whole = self.prompt(begun, enable_thinking=False, continue_final_message=False)
        self.assertEqual(whole, "[user] hi\n[assistant] The answer\n[assistant] <think>\n\n</think>\n\n")
        self.assertNotEqual(answer(continue_final_message=False), own)
        self.assertEqual(self.prompt(begun, add_generation_prompt=False), "[user] hi\n[assistant] The answer\n")
        self.assertEqual(self.prompt(begun, add_generation_prompt=False, continue_final_message=True, enable_thinking=False),
                         self.prompt([USER], enable_thinking=False) + "The answer")
        for wrong in ({"continue_final_message": 5}, {"continue_final_message": "x"},
                      {"continue_final_message": True, "messages": [USER]}):
            self.post("/v1/chat/completions", {**body, **wrong}, 400)

    def test_tokens_of_reasoning_are_counted(self):
        end, = self.post("/tokenize", {"content": "</think>", "parse_special": True}).json["tokens"]
        body = {"messages": [USER], "max_tokens": 200, "temperature": 1, "seed": 3, "logit_bias": {end: 5}, "logprobs": True}
        whole = self.post("/v1/chat/completions", body).json
        tokens = [t["token"] for t in whole["choices"][0]["logprobs"]["content"]]
        n = tokens.index("</think>") + 1
        self.assertGreater(n, 1)
        self.assertLess(n, len(tokens))
        self.assertEqual(whole["usage"]["completion_tokens_details"]["reasoning_tokens"], n)
        events = self.post("/v1/chat/completions", {**body, "stream": True, "stream_options": {"include_usage": True}}).events
        self.assertEqual([e["usage"]["completion_tokens_details"]["reasoning_tokens"] for e in events[:-1] if e.get("usage")],
                         [n])
        body = {"input": "hi", "max_output_tokens": 200, "temperature": 1, "seed": 3, "logit_bias": {end: 5}}
        self.assertEqual(self.post("/v1/responses", body).json["usage"]["output_tokens_details"], {"reasoning_tokens": n})
        none = self.post("/v1/chat/completions", {"messages": [USER], "max_tokens": 3, "enable_thinking": False}).json
        self.assertEqual(none["usage"]["completion_tokens_details"]["reasoning_tokens"], 0)

    def test_blocks_of_reasoning_are_signed(self):
        """Clients send unsigned ones not back."""
        end, = self.post("/tokenize", {"content": "</think>", "parse_special": True}).json["tokens"]
        body = {"messages": [USER], "max_tokens": 200, "temperature": 1, "seed": 3, "logit_bias": {end: 5}}
        blocks = self.post("/v1/messages", body).json["content"]
        self.assertEqual([b["type"] for b in blocks], ["thinking", "text"])
        self.assertTrue(blocks[0]["signature"])
        events = [e for e in sse(self.post("/v1/messages", {**body, "stream": True})) if e.get("index") == 0]
        self.assertEqual(events[-1]["type"], "content_block_stop")
        self.assertEqual(events[-2]["delta"], {"type": "signature_delta", "signature": blocks[0]["signature"]})
        self.assertEqual("".join(e["delta"].get("thinking", "") for e in events[1:-1]), blocks[0]["thinking"])
        later = [e for e in sse(self.post("/v1/messages", {**body, "stream": True})) if e.get("index") == 1]
        self.assertNotIn("signature_delta", [e.get("delta", {}).get("type") for e in later])


class Bodies(Case):
    def test_a_compressed_body_is_named(self):
        body = json.dumps({"messages": [USER], "max_tokens": 1}).encode()
        for name, data in (("gzip", gzip.compress(body)), ("zstd", b"\x28\xb5\x2f\xfd"), ("br", body)):
            a = self.s.post("/v1/chat/completions", data, {"Content-Encoding": name})
            self.assertEqual(a.status, 415, a.body)
            self.assertIn(f"'{name}'", a.error)
        for name in ("identity", "Identity", ""):
            self.assertEqual(self.s.post("/v1/chat/completions", body, {"Content-Encoding": name}).status, 200)

    def test_nothing_to_embed_loads_the_model(self):
        """As ollama answers it; OpenAI refuses it."""
        for empty in ("", []):
            a = self.post("/api/embed", {"model": "m", "input": empty}).json
            self.assertEqual((a["embeddings"], a["prompt_eval_count"]), ([], 0))
            self.post("/v1/embeddings", {"model": "m", "input": empty}, 400)
        self.assertEqual(self.post("/api/embeddings", {"model": "m", "prompt": ""}).json, {"embedding": []})
        self.post("/api/embed", {"model": "m"}, 400)
        for path, field in (("/api/embed", "input"), ("/api/embeddings", "prompt")):
            self.post(path, {"model": "m", field: "", "keep_alive": "x"}, 400)


class Calls(Case):
    TEMPLATE = CALLS

    @staticmethod
    def called(*cities, ids=()):
        calls = [{"type": "function", "function": {"name": "f", "arguments": {"city": city}}} for city in cities]
        return {"role": "assistant", "content": "", "tool_calls": [{**c, "id": i} for c, i in zip(calls, ids)] or calls}

    @staticmethod
    def result(text, **fields):
        return {"role": "tool", "content": text, **fields}

    def test_calls_without_ids(self):
        """ollama's dialect has none, and some clients send null."""
        want = "[user] hi\n[assistant] Paris\n[tool] sun\n"
        for fields in {}, {"tool_call_id": None}, {"tool_call_id": ""}:
            self.assertEqual(self.prompt([USER, self.called("Paris"), self.result("sun", **fields)]), want)
        null = self.called("Paris", ids=[None])
        self.assertEqual(self.prompt([USER, null, self.result("sun")]), want)
        self.post("/api/chat", {"model": "m", "stream": False, "options": {"num_predict": 1}, "messages": [
            USER, self.called("Paris"), {"role": "tool", "content": "sun", "tool_name": "f"}]})
        old = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"city":"Paris"}'}}
        self.assertEqual(self.prompt([USER, old, {"role": "function", "name": "f", "content": "sun"}]), want)

    def test_several_calls_in_a_message(self):
        calls = self.called("Paris", "Rome", ids=["a", "b"])
        a, b = self.result("sun", tool_call_id="a"), self.result("rain", tool_call_id="b")
        self.assertEqual(self.prompt([USER, calls, a, b]),
                         "[user] hi\n[assistant] Paris\n[tool] sun\n[assistant] Rome\n[tool] rain\n")
        self.assertEqual(self.prompt([USER, self.called("Paris", "Rome"), self.result("sun"), self.result("rain")]),
                         "[user] hi\n[assistant] Paris\n[tool] sun\n[assistant] Rome\n[tool] rain\n")
        self.assertEqual(self.prompt([USER, calls, a, USER]),
                         "[user] hi\n[assistant] Paris\n[tool] sun\n[assistant] Rome\n[user] hi\n")

    def test_results_whose_call_is_gone(self):
        self.assertEqual(self.prompt([self.result("sun", tool_call_id="a"), USER]),
                         "[user] Result of a tool:\nsun\n[user] hi\n")
        self.assertEqual(self.prompt([USER, self.called("Paris", ids=["a"]), self.result("rain", tool_call_id="b", name="f")]),
                         "[user] hi\n[assistant] Paris\n[user] Result of f:\nrain\n")

    def test_answers_without_a_text(self):
        silent = {"role": "assistant", "content": ""}
        self.assertEqual(self.prompt([USER, silent, *said("user go", "assistant on", "user x")]),
                         "[user] hi\n[user] go\n[assistant] on\n[user] x\n")


class Turns(Case):
    """A template that wants turns to alternate. Anthropic's API joins others; Codex sends several messages of the user."""
    TEMPLATE = PAIRS

    def test_messages_of_the_same_role_become_one(self):
        for given, wanted in (
                (said("user a", "user b"), "[user] a\n\nb\n"),
                (said("system s", "user a", "user b", "assistant c", "assistant d", "user e"),
                 "[system] s\n[user] a\n\nb\n[assistant] c\n\nd\n[user] e\n"),
                (said("assistant hello", "user a"), "[user] \n[assistant] hello\n[user] a\n"),
                (said("system s", "system t", "user a", "user b"), "[system] s\n\nt\n[user] a\n\nb\n"),
                (said("user a", "system s", "user b", "user c"), "[user] a\n\ns\n\nb\n\nc\n")):
            self.assertEqual(self.prompt(given), wanted)

    def test_what_the_user_says_after_a_result_is_not_lost(self):
        calls = [USER, {"role": "assistant", "content": "", "tool_calls": [CALL]},
                 {"role": "tool", "tool_call_id": "c1", "content": "y"}]
        self.assertEqual(self.prompt([*calls, *said("user stop", "user now")]),
                         "[user] hi\n[assistant] f\n[tool] y\n\nstop\n\nnow\n")
        two = [USER, {"role": "assistant", "content": "x"}, {"role": "assistant", "content": "", "reasoning_content": "r",
                                                             "tool_calls": [CALL]}, calls[2]]
        self.assertEqual(self.prompt(two), "[user] hi\n[assistant] xf\n[tool] y\n")
        a = self.post("/v1/messages", {"max_tokens": 1, "messages": [
            USER, {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "y"},
                                         {"type": "text", "text": "stop"}]}]})
        self.assertEqual(a.status, 200)
        self.post("/v1/responses", {"max_output_tokens": 1, "instructions": "s", "input": [
            {"role": "developer", "content": "d"}, {"role": "user", "content": "<environment>"}, USER]})
        self.post("/api/chat", {"model": "m", "stream": False, "options": {"num_predict": 1},
                                "messages": said("user a", "user b")})

    def test_a_template_that_takes_them_gets_them_as_they_are(self):
        with Server("--chat-template-file", rig.template("texts", ALL)) as s:
            for messages in (said("user a", "user b"), said("assistant a", "user b"),
                             said("user a", "assistant b", "assistant c")):
                body = {"messages": messages, "add_generation_prompt": False}
                a = s.post("/apply-template", body)
                self.assertEqual(a.json["prompt"], "".join(f"[{m['role']}] {m['content']}\n" for m in messages))

    def test_many_are_joined_in_linear_time(self):
        n = 3000 if rig.SLOW == 1 else 500
        self.assertEqual(self.prompt(said(*["user " + "x" * 200] * n)).count("x" * 200), n)


class ToolTemplate(unittest.TestCase):
    """Files may have a template of their own for conversations with tools (Hermes 2 Pro, Command R)."""

    def test_it_writes_conversations_with_tools(self):
        own = "{%- for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
        tool_use = ("{%- for t in tools %}(tool {{ t.function.name }}){% endfor %}"
                    "{%- for m in messages %}<{{ m.role }}> {{ m.content }}\n"
                    "{%- for c in m.tool_calls %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{% endfor %}")
        tool = {"type": "function", "function": {"name": "look", "description": "d", "parameters": {
            "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}}
        if not os.path.exists(os.path.join(rig.FOLDER, "tags.gguf")):
            rig.make_model("tags.gguf", "--vocab-kind", "bpe-tags", "--vocab", "330")
        with Server("-c", "1024", "--override-kv", "tokenizer.chat_template=str:" + own,
                    "--override-kv", "tokenizer.chat_template.tool_use=str:" + tool_use, model="tags.gguf") as s:
            props = s.get("/props").json
            self.assertEqual((props["chat_template"], props["chat_template_tool_use"]), (own, tool_use))
            self.assertEqual(props["answers"]["format"], "hermes")
            body = {"messages": [USER], "add_generation_prompt": False}
            self.assertEqual(s.post("/apply-template", body).json["prompt"], "[user] hi\n")
            self.assertEqual(s.post("/apply-template", {**body, "tools": [tool], "tool_choice": "none"}).json["prompt"],
                             "[user] hi\n")
            self.assertEqual(s.post("/apply-template", {**body, "tools": [tool]}).json["prompt"], "(tool look)<user> hi")
            self.assertIn("tools", s.post("/api/show", {"model": "m"}).json["capabilities"])
            a = s.post("/v1/chat/completions", {"messages": [USER], "tools": [tool], "tool_choice": "required",
                                                "max_tokens": 64, "temperature": 0}).json["choices"][0]["message"]
            self.assertEqual(a["tool_calls"][0]["function"]["name"], "look", a)


if __name__ == "__main__":
    rig.main("__main__")
