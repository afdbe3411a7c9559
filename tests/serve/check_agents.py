"""Requests of agents such as Codex and Claude Code: tools that are not functions, items and blocks of other services, system
messages in the middle of a conversation, schemas beside tools."""
import json
import unittest

import rig
from rig import Server, chat

FUNCTION = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": FUNCTION}}

# Templates of known formats, in short: what marks the format, the tools, the messages with their calls and reasoning.
CODER = """{%- if tools %}<|im_start|>system
{% for t in tools %}{{ t | tojson }}
{% endfor %}<tool_call>
<function=NAME>
<parameter=KEY>
VALUE
</parameter>
</function>
</tool_call><|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<thought>{{ m.reasoning_content }}</thought>
{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}
<tool_call>{{ c.function.name }} {{ c.function.arguments | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def sse(answer):
    """(event, data) of server-sent events with names."""
    out = []
    for block in answer.body.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and not line.startswith(":"))
        if "data" in lines:
            out.append((lines.get("event"), json.loads(lines["data"])))
    return out


def gbnf(text):
    """A grammar of this text alone."""
    return "root ::= " + json.dumps(text)


def coder_call(name, **parameters):
    return (f"<tool_call>\n<function={name}>\n" +
            "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in parameters.items()) + "</function>\n</tool_call>")


class Agents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.s = Server("-np", "2", "-c", "2048", "--chat-template-file", rig.template("coder", CODER))

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
        """The request has the answer, and as many tokens, of a chat with these messages."""
        a = self.post(path, {"temperature": 0, "model": "m", **body}).json
        b = self.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 8, **fields}).json
        said = a["output"][-1]["content"][0]["text"] if "output" in a else a["content"][0]["text"]
        n = a["usage"]["input_tokens"] + a["usage"].get("cache_read_input_tokens", 0)
        self.assertEqual((said, n), (b["choices"][0]["message"]["content"], b["usage"]["prompt_tokens"]),
                         self.prompt(messages, **fields))

    # ---- tools that are not functions

    def test_responses_goes_on_without_the_tools_of_others(self):
        f = {"type": "function", **TOOL["function"]}
        others = [{"type": "web_search"}, {"type": "file_search", "vector_store_ids": []}, {"type": "local_shell"},
                  {"type": "mcp", "server_label": "x"}, {"type": "namespace", "name": "n", "tools": []}]
        self.same_prompt("/v1/responses", {"input": "hi", "max_output_tokens": 8, "tools": [f, *others]},
                         [{"role": "user", "content": "hi"}], tools=[TOOL])
        for kind in ("web_search", "file_search", "local_shell", "mcp"):
            self.assertEqual(self.s.logged(f"tools of type {kind}\n"), 1, self.s.log)
        self.post("/v1/responses", {"input": "hi", "max_output_tokens": 1, "tools": [{"type": "we\nird"}]})
        self.assertTrue(self.s.logged("tools of type unknown\n"), self.s.log)  # a request writes nothing into the log
        for wrong in (5, [5], [{}], [{"type": 5}], [{"type": "function"}], [{"type": "custom"}], [{"type": "namespace"}],
                      [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]):
            self.post("/v1/responses", {"input": "hi", "tools": wrong}, 400)

    def test_messages_goes_on_without_the_tools_of_others(self):
        tools = [{"name": "f", "description": "d", "input_schema": FUNCTION},
                 {"type": "web_search_20250305", "name": "web_search"}, {"type": "bash_20250124", "name": "bash"}]
        body = {"max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]}
        plain = self.post("/v1/messages", {**body, "temperature": 0, "tools": tools[:1]}).json
        more = self.post("/v1/messages", {**body, "temperature": 0, "tools": tools}).json
        self.assertEqual(more["content"], plain["content"])
        self.assertEqual(self.s.logged("tools of type web_search_20250305\n"), 1, self.s.log)
        self.assertEqual(self.post("/v1/messages/count_tokens", {**body, "tools": tools}).json,
                         self.post("/v1/messages/count_tokens", {**body, "tools": tools[:1]}).json)
        self.post("/v1/messages", {**body, "tools": [{"type": 5, "name": "f"}]}, 400)

    def test_custom_tools_are_text_calls(self):
        patch = "*** Begin Patch\n\"quoted\" \\ é\n*** End Patch"
        custom = {"type": "custom", "name": "apply_patch", "description": "edits files",
                  "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x+/"}}
        text = gbnf(coder_call("apply_patch", input=patch))
        body = {"input": "hi", "tools": [custom], "grammar": text, "temperature": 0}
        item = self.post("/v1/responses", body).json["output"][-1]
        self.assertEqual({k: item[k] for k in ("type", "name", "input", "status")},
                         {"type": "custom_tool_call", "name": "apply_patch", "input": patch, "status": "completed"})
        events = sse(self.post("/v1/responses", {**body, "stream": True}))
        names = [n for n, _ in events]
        self.assertNotIn("response.function_call_arguments.delta", names)
        self.assertEqual("".join(d["delta"] for n, d in events if n == "response.custom_tool_call_input.delta"), patch)
        done = [d for n, d in events if n == "response.custom_tool_call_input.done"]
        self.assertEqual([(d["input"], d["item_id"]) for d in done], [(patch, events[-1][1]["response"]["output"][-1]["id"])])
        tool = {"type": "custom", "custom": {"name": "apply_patch", "description": "edits files"}}
        body = chat("hi", tools=[tool], grammar=text, max_tokens=400)
        a = self.post("/v1/chat/completions", body).json["choices"][0]
        call = a["message"]["tool_calls"][0]
        self.assertEqual((a["finish_reason"], call["type"], call["custom"]),
                         ("tool_calls", "custom", {"name": "apply_patch", "input": patch}))
        deltas = [c for e in self.post("/v1/chat/completions", {**body, "stream": True}).events[:-1]
                  for c in e["choices"][0]["delta"].get("tool_calls", [])]
        self.assertEqual((deltas[0]["type"], deltas[0]["custom"]["name"], "".join(d["custom"]["input"] for d in deltas)),
                         ("custom", "apply_patch", patch))
        cut = self.post("/v1/chat/completions", {**body, "max_tokens": 60}).json["choices"][0]["message"]
        for c in cut.get("tool_calls", []):
            self.assertTrue(patch.startswith(c["custom"]["input"]), c)
        shown = self.prompt([{"role": "user", "content": "hi"}], tools=[tool])
        self.assertIn("edits files", shown)
        self.assertIn('"input"', shown)
        bare = self.prompt([{"role": "user", "content": "hi"}], tools=[{"type": "custom", "custom": {"name": "p"}}])
        self.assertIn("A tool that takes plain text.", bare)  # templates expect a description
        forced = self.post("/v1/chat/completions", chat("hi", tools=[tool], max_tokens=300, seed=1, logit_bias={}, tool_choice={
            "type": "custom", "custom": {"name": "apply_patch"}})).json["choices"][0]["message"]["tool_calls"][0]
        self.assertEqual(forced["custom"]["name"], "apply_patch")
        for wrong in ([{"type": "custom", "custom": {}}], [{"type": "custom", "custom": 5}], [{"type": "strange"}]):
            self.post("/v1/chat/completions", chat("hi", tools=wrong), 400)

    def test_custom_calls_and_their_results_come_back(self):
        custom = {"type": "custom", "name": "apply_patch"}
        items = [{"role": "user", "content": "hi"},
                 {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "a \"b\""},
                 {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"}]
        arguments = json.dumps({"input": "a \"b\""}, separators=(",", ":"))
        wanted = [{"role": "user", "content": "hi"},
                  {"role": "assistant", "content": "", "tool_calls": [
                      {"id": "c1", "type": "function", "function": {"name": "apply_patch", "arguments": arguments}}]},
                  {"role": "tool", "tool_call_id": "c1", "content": "done"}]
        chat_tool = {"type": "custom", "custom": {"name": "apply_patch"}}
        self.same_prompt("/v1/responses", {"input": items, "max_output_tokens": 8, "tools": [custom]}, wanted,
                         tools=[chat_tool])
        back = [wanted[0], {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "custom", "custom": {"name": "apply_patch", "input": "a \"b\""}}]}, wanted[2]]
        self.assertEqual(self.prompt(back, tools=[chat_tool]), self.prompt(wanted, tools=[chat_tool]))
        parts = [*items[:2], {**items[2], "output": [{"type": "input_text", "text": "done"}]}]
        self.same_prompt("/v1/responses", {"input": parts, "max_output_tokens": 8, "tools": [custom]}, wanted,
                         tools=[chat_tool])
        for wrong in ({"type": "custom_tool_call", "name": "x"}, {"type": "custom_tool_call", "input": "x"},
                      {"type": "custom_tool_call_output", "call_id": "c1"}):
            self.post("/v1/responses", {"input": [wrong]}, 400)

    def test_tools_of_a_namespace(self):
        space = {"type": "namespace", "name": "files", "description": "x", "tools": [
            {"type": "function", "name": "read", "description": "reads", "parameters": FUNCTION, "defer_loading": True},
            {"type": "custom", "name": "write", "description": "writes"}, {"type": "web_search"}]}
        flat = [{"type": "function", "function": {"name": "files__read", "description": "reads", "parameters": FUNCTION}}]
        body = {"input": "hi", "tools": [{**space, "tools": space["tools"][:1]}], "max_output_tokens": 8}
        self.same_prompt("/v1/responses", body, [{"role": "user", "content": "hi"}], tools=flat)
        body = {"input": "hi", "tools": [space], "temperature": 0}
        a = self.post("/v1/responses", {**body, "grammar": gbnf(coder_call("files__read", city="Rome"))}).json["output"][-1]
        self.assertEqual((a["type"], a["name"], a["namespace"], json.loads(a["arguments"])),
                         ("function_call", "read", "files", {"city": "Rome"}))
        b = self.post("/v1/responses", {**body, "grammar": gbnf(coder_call("files__write", input="x"))}).json["output"][-1]
        self.assertEqual((b["type"], b["name"], b["namespace"], b["input"]), ("custom_tool_call", "write", "files", "x"))
        history = [{"role": "user", "content": "hi"}, a,
                   {"type": "function_call_output", "call_id": a["call_id"], "output": "y"}]
        self.same_prompt("/v1/responses", {"input": history, "max_output_tokens": 8, "tools": body["tools"]}, [
            history[0], {"role": "assistant", "content": "", "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "files__read", "arguments": a["arguments"]}}]},
            {"role": "tool", "tool_call_id": "1", "content": "y"}],
            tools=[flat[0], {"type": "custom", "custom": {"name": "files__write", "description": "writes"}}])
        for choice in ({"type": "function", "name": "read", "namespace": "files"}, {"type": "function", "name": "files__read"}):
            forced = self.post("/v1/responses", {**body, "tool_choice": choice, "max_output_tokens": 400}).json["output"][-1]
            self.assertEqual((forced["name"], forced["namespace"]), ("read", "files"))

    def test_tools_that_a_search_found(self):
        f = {"type": "function", **TOOL["function"]}
        items = [{"role": "user", "content": "hi"},
                 {"type": "tool_search_call", "call_id": "s1", "arguments": {"query": "x"}},
                 {"type": "tool_search_output", "call_id": "s1", "tools": [f]}]
        wanted = [items[0], {"role": "assistant", "content": "", "tool_calls": [
            {"id": "s1", "type": "function", "function": {"name": "tool_search", "arguments": '{"query":"x"}'}}]},
            {"role": "tool", "tool_call_id": "s1", "content": '["f"]'}]
        for tools in ([], [f]):  # it may be known before
            self.same_prompt("/v1/responses", {"input": items, "max_output_tokens": 8, "tools": tools}, wanted, tools=[TOOL])

    def test_allowed_tools(self):
        other = {"type": "function", "function": {"name": "g", "description": "e", "parameters": FUNCTION}}
        messages = [{"role": "user", "content": "hi"}]
        choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [
            {"type": "function", "function": {"name": "g"}}]}}
        self.assertEqual(self.prompt(messages, tools=[TOOL, other], tool_choice=choice), self.prompt(messages, tools=[other]))
        body = {"input": "hi", "tools": [{"type": "function", **t["function"]} for t in (TOOL, other)], "temperature": 0}
        flat = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]}
        a = self.post("/v1/responses", {**body, "max_output_tokens": 400, "tool_choice": flat}).json["output"][-1]
        self.assertEqual((a["type"], a["name"]), ("function_call", "g"))
        for wrong in ({"type": "allowed_tools"}, {"type": "allowed_tools", "mode": "sometimes", "tools": []},
                      {"type": "allowed_tools", "mode": "required", "tools": []}, {"type": "web_search"}, 5):
            self.post("/v1/responses", {**body, "tool_choice": wrong}, 400)

    # ---- items and blocks

    def test_a_message_and_the_call_after_it_are_one_turn(self):
        call = {"type": "function_call", "call_id": "1", "name": "f", "arguments": '{"city": "Rome"}'}
        said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]}
        thought = {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
        summary = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Hm."}]}
        result = {"type": "function_call_output", "call_id": "1", "output": "sunny"}
        calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"city": "Rome"}'}}]
        tool = {"role": "tool", "tool_call_id": "1", "content": "sunny"}
        user = {"role": "user", "content": "hi"}

        def turn(**fields):
            return {"role": "assistant", "content": "", "tool_calls": calls, **fields}
        for items, wanted in (
                ([said, call, result], [turn(content="I look."), tool]),
                ([thought, said, call, result], [turn(content="I look.", reasoning_content="Hm."), tool]),
                ([summary, call, result], [turn(reasoning_content="Hm."), tool]),
                ([call, call, result], [turn(tool_calls=calls * 2), tool]),
                ([thought, {**said, "content": "Yes."}, user], [
                    {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}, user]),
                ([call, result, said, user], [turn(), tool, {"role": "assistant", "content": "I look."}, user]),
                ([call, result, thought], [turn(), tool])):
            self.same_prompt("/v1/responses", {"input": [user, *items], "max_output_tokens": 8}, [user, *wanted])

    def test_items_of_others(self):
        user, next_user = {"role": "user", "content": "x"}, {"role": "user", "content": "y"}
        refusal = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
        wanted = [user, {"role": "assistant", "content": "no"}, next_user]
        self.same_prompt("/v1/responses", {"input": [user, refusal, next_user], "max_output_tokens": 8}, wanted)
        for m in ({"role": "assistant", "content": None, "refusal": "no"}, {**refusal, "type": None}):
            self.assertEqual(self.prompt([user, m, next_user]), self.prompt(wanted))
        left_out = [{"type": "item_reference", "id": "msg_1"}, {"type": "web_search_call", "id": "w", "status": "completed"},
                    {"type": "compaction", "encrypted_content": "x"}, {"type": "brand_new_item"}]
        self.same_prompt("/v1/responses", {"input": [*left_out, user], "max_output_tokens": 8}, [user])
        for item in left_out:
            self.assertEqual(self.s.logged(f"items of type {item['type']}\n"), 1, self.s.log)
        shell = [user, {"type": "local_shell_call", "call_id": "1", "action": {"type": "exec", "command": ["ls"]}},
                 {"type": "local_shell_call_output", "id": "1", "output": "a.txt"}]
        self.same_prompt("/v1/responses", {"input": shell, "max_output_tokens": 8}, [user, {
            "role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function", "function": {
                "name": "local_shell", "arguments": '{"type":"exec","command":["ls"]}'}}]},
            {"role": "tool", "tool_call_id": "1", "content": "a.txt"}])
        self.post("/v1/responses", {"input": left_out}, 400)

    def test_blocks_of_tool_results(self):
        def ask(content, *before):
            return {"max_tokens": 8, "messages": [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": [*before, {"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": content}]}]}
        plain = {"type": "document", "title": "a.txt", "source": {"type": "text", "media_type": "text/plain", "data": "hello"}}
        for content, text in (
                ([{"type": "tool_reference", "tool_name": "f"}], "tool: f"),
                ([plain], "a.txt\nhello"),
                ([{"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "hello"}]}}],
                 "hello"),
                ([{"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "hello"}]}],
                 "t\ns\nhello"),
                ([{"type": "text", "text": "a"}, plain], "a\na.txt\nhello")):
            wanted = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": "t1", "content": text}]
            self.same_prompt("/v1/messages", ask(content), wanted)
            hosted = [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
                      {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}]
            self.same_prompt("/v1/messages", ask(content, *hosted), wanted)
        self.same_prompt("/v1/messages", {"max_tokens": 8, "messages": [{"role": "user", "content": [
            plain, {"type": "text", "text": "what?"}]}]}, [{"role": "user", "content": "a.txt\nhello\nwhat?"}])
        deep = plain
        for _ in range(30):
            deep = {"type": "document", "source": {"type": "content", "content": [deep]}}
        for wrong in (deep, {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "x"}},
                      {"type": "document"}, {"type": "tool_reference"}, {"type": "image", "source": {}}):
            self.post("/v1/messages", ask([wrong]), 400)

    def test_a_schema_of_anthropic(self):
        schema = {"type": "object", "properties": {"answer": {"type": "integer", "maximum": 9}}, "required": ["answer"]}
        body = {"model": "m", "max_tokens": 60, "messages": [{"role": "user", "content": "hi"}], "temperature": 0}
        for fields in ({"output_config": {"format": {"type": "json_schema", "schema": schema}}},
                       {"output_format": {"type": "json_schema", "schema": schema}}):
            a = self.post("/v1/messages", {**body, **fields}).json
            self.assertLessEqual(json.loads(a["content"][-1]["text"])["answer"], 9)
        self.assertEqual(self.post("/v1/messages", {**body, "output_config": {"format": None}}).json["content"],
                         self.post("/v1/messages", body).json["content"])
        for wrong in ({"format": {"type": "xml"}}, {"format": {"type": "json_schema"}}, {"effort": 5}, 5):
            self.post("/v1/messages", {**body, "output_config": wrong}, 400)


ALTERNATING = """{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('roles must take turns') }}{% endif %}<{{ m.role }}>{{ m.content }}
{% endfor %}"""
FORGETFUL = """{% for m in messages %}{% if m.role == 'user' or m.role == 'assistant' %}<{{ m.role }}>{{ m.content }}
{% endif %}{% endfor %}"""
CALLED = [{"role": "user", "content": "hi"},
          {"role": "assistant", "content": "Let me see.", "tool_calls": [
              {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"city": "Paris"}'}},
              {"id": "c2", "type": "function", "function": {"name": "g", "arguments": ""}}]},
          {"role": "tool", "tool_call_id": "c1", "content": "It \"rains\"."},
          {"role": "tool", "tool_call_id": "c2", "content": "22"},
          {"role": "user", "content": "so?"}]


class Told(unittest.TestCase):
    """Calls and results go as text into prompts whose template has no place for them."""

    def test_calls_and_results(self):
        for name, text in (("alternating", ALTERNATING), ("forgetful", FORGETFUL)):
            with Server("--chat-template-file", rig.template(name, text)) as s:
                prompt = s.post("/apply-template", {"messages": CALLED}).json["prompt"]
                self.assertEqual(prompt.strip().replace(": ", ":").replace(", ", ","), """<user>hi
<assistant>Let me see.

{"name":"f","arguments":{"city":"Paris"}}

{"name":"g","arguments":{}}
<user>Result of f:
It "rains".

Result of g:
22

so?""", name)
                for m in (CALLED[:4], CALLED[:3] + [{"role": "assistant", "content": "ok"}, CALLED[4]],
                          [{"role": "system", "content": "Be brief."}, *CALLED]):
                    answer = s.post("/v1/chat/completions", {"messages": m, "max_tokens": 1})
                    self.assertEqual(answer.status, 200, answer.body)
                answer = s.post("/v1/messages", {"max_tokens": 1, "messages": [
                    {"role": "user", "content": "x"},
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "y"},
                                                 {"type": "text", "text": "z"}]}]})
                self.assertEqual(answer.status, 200, answer.body)
                answer = s.post("/v1/responses", {"max_output_tokens": 1, "input": [
                    {"role": "user", "content": "x"},
                    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                    {"type": "function_call_output", "call_id": "c", "output": "y"}]})
                self.assertEqual(answer.status, 200, answer.body)


class Streams(unittest.TestCase):
    def test_a_stream_shows_signs_of_life(self):
        """Its first events come while the prompt waits, and then a ping."""
        with Server("-np", "1", "-c", "4096", "--max-queue", "250", "--spec-type", "none",
                    "--max-turn", "0") as s:  # the first come, first served
            body = json.dumps({"prompt": "x", "n_predict": 4000, "ignore_eos": True, "stream": True}).encode()
            before = []
            for _ in range(100 if rig.SLOW == 1 else 20):  # they take longer than the test looks on
                c = s.connect()
                c.request("POST", "/completion", body, {"Content-Type": "application/json"})
                before.append(c)
            c = s.connect()
            c.request("POST", "/v1/messages", json.dumps({
                "max_tokens": 4, "stream": True, "messages": [{"role": "user", "content": "hi"}]}).encode(),
                      {"Content-Type": "application/json"})
            r = c.getresponse()
            names = []
            while "ping" not in names:
                line = r.readline().decode()
                self.assertTrue(line, names)
                if line.startswith("event: "):
                    names.append(line[7:].strip())
            self.assertEqual(names, ["message_start", "ping"])
            for other in before:
                other.close()
            while names[-1] != "message_stop":
                line = r.readline().decode()
                self.assertTrue(line, names)
                if line.startswith("event: "):
                    names.append(line[7:].strip())
            c.close()


class OneCall(unittest.TestCase):
    TWO = coder_call("f", city="A") + "\n" + coder_call("f", city="B")

    def test_an_answer_has_one_call_where_the_client_wants_that(self):
        for spec in ("none", "ngram"):
            with Server("-c", "2048", "--chat-template-file", rig.template("coder", CODER), "--spec-type", spec) as s:
                def calls(**fields):
                    a = s.post("/v1/chat/completions", chat("hi", tools=[TOOL], grammar=gbnf(self.TWO), max_tokens=400,
                                                            **fields)).json
                    return a["choices"][0], a["usage"]["completion_tokens"]
                both, n_both = calls()
                self.assertEqual(len(both["message"]["tool_calls"]), 2)
                self.assertEqual(len(calls(parallel_tool_calls=True)[0]["message"]["tool_calls"]), 2)
                one, n_one = calls(parallel_tool_calls=False)
                self.assertEqual([c["function"]["arguments"] for c in one["message"]["tool_calls"]],
                                 [both["message"]["tool_calls"][0]["function"]["arguments"]])
                self.assertEqual((one["finish_reason"], n_one, one["message"]["content"]),
                                 ("tool_calls", calls(parallel_tool_calls=False)[1], None))
                self.assertLess(n_one, n_both)
                events = s.post("/v1/chat/completions", chat(
                    "hi", tools=[TOOL], grammar=gbnf(self.TWO), max_tokens=400, parallel_tool_calls=False, stream=True,
                    stream_options={"include_usage": True})).events
                names = [c["function"]["name"] for e in events[:-2] for c in e["choices"][0]["delta"].get("tool_calls", [])
                         if "name" in c["function"]]
                self.assertEqual((names, events[-2]["usage"]["completion_tokens"]), (["f"], n_one))
                messages = {"max_tokens": 400, "messages": [{"role": "user", "content": "hi"}], "grammar": gbnf(self.TWO),
                            "tools": [{"name": "f", "input_schema": FUNCTION}]}
                for choice, n in (({"type": "auto", "disable_parallel_tool_use": True}, 1), ({"type": "auto"}, 2)):
                    a = s.post("/v1/messages", {**messages, "tool_choice": choice}).json
                    self.assertEqual([b["type"] for b in a["content"]], ["tool_use"] * n)
                    self.assertEqual(a["stop_reason"], "tool_use")
                responses = {"input": "hi", "grammar": gbnf(self.TWO), "tools": [{"type": "function", **TOOL["function"]}]}
                for parallel, n in ((False, 1), (True, 2)):
                    a = s.post("/v1/responses", {**responses, "parallel_tool_calls": parallel}).json
                    self.assertEqual([o["type"] for o in a["output"]], ["function_call"] * n)
                    self.assertEqual((a["parallel_tool_calls"], a["status"]), (parallel, "completed"))
                self.assertEqual(s.post("/v1/chat/completions", chat("x", parallel_tool_calls="no")).status, 400)
                self.assertEqual(s.get("/health").status, 200)


CITY = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"],
        "additionalProperties": False}
PAIR = [{"type": "function", "function": {"name": n, "description": "d", "parameters": CITY}} for n in ("f", "g")]


class ToolsAndSchema(unittest.TestCase):
    """The answer calls a tool or fits the schema: both can happen, and nothing else."""
    SCHEMA = {"type": "object", "properties": {"answer": {"type": "integer", "maximum": 9, "minimum": 0}},
              "required": ["answer"], "additionalProperties": False}
    FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
    MARKS = {"hermes": "<tool_call>", "mistral": "[TOOL_CALLS]", "coder": "<tool_call> <function=",
             "llama3": '"parameters" <|start_header_id|>', "thinks": "<tool_call> <think> </think>"}

    def check(self, choice):
        """Whether it is a call; one that is cut off proves nothing."""
        m = choice["message"]
        if choice["finish_reason"] == "length":
            return None
        for call in m.get("tool_calls", []):
            self.assertIn(call["function"]["name"], ("f", "g"))
            self.assertIn(json.loads(call["function"]["arguments"])["city"], ("Paris", "Rome"))
        if not m.get("tool_calls"):
            self.assertIn(json.loads(m["content"])["answer"], range(10))
        return bool(m.get("tool_calls"))

    def test_the_answer_is_one_or_the_other(self):
        rig.make_model("mixed.gguf", "--vocab-kind", "bpe-tags", "--vocab", "330")
        for name, mark in self.MARKS.items():
            text = "{# " + mark + " #}" + rig.TOOLS_TEMPLATE + ("<think>\n" if name == "thinks" else "")
            said = {}
            for spec in ("none", "ngram"):
                with Server("-c", "4096", "-np", "2", "--chat-template-file", rig.template("mixed-" + name, text),
                            "--spec-type", spec, model="mixed.gguf") as s:
                    body = chat("hi", tools=PAIR, response_format=self.FORMAT, max_tokens=700, temperature=1)
                    tags = [s.post("/tokenize", {"content": tag, "parse_special": True}).json["tokens"]
                            for tag in (*mark.split(), "{")]
                    tags = [t[0] for t in tags if len(t) == 1]
                    ends = {tags[-2]: 20} if name == "thinks" else {}  # else the model would think for ever
                    all_of = [s.post("/v1/chat/completions", {**body, "seed": seed, "logit_bias": bias})
                              for seed in range(6) for bias in (ends, {tags[0]: 9, **ends})]
                    self.assertEqual({a.status for a in all_of}, {200}, all_of[0].body)
                    said[spec] = [[c["message"]["content"], [t["function"] for t in c["message"].get("tool_calls", [])]]
                                  for a in all_of for c in a.json["choices"]]
                    kinds = [self.check(a.json["choices"][0]) for a in all_of]
                    if name != "llama3":  # there both begin with the same byte
                        self.assertIn(True, kinds, name)
                    self.assertTrue({True, False} & set(kinds), name)
                    forced = s.post("/v1/chat/completions", {**body, "tool_choice": "required"}).json["choices"][0]
                    self.assertNotEqual(self.check(forced), False)
                    self.assertIn(forced["message"]["tool_calls"][0]["function"]["name"], ("f", "g"))
            self.assertEqual(said["none"], said["ngram"], name)

    def test_formats_with_a_tag_for_each_value(self):
        """Their tags are forced around arguments as JSON, which their parsers take as well."""
        rig.make_model("mixed.gguf", "--vocab-kind", "bpe-tags", "--vocab", "330")
        for mark in ("<｜DSML｜function_calls>", "<｜DSML｜", '<function name=" <param name="', "minimax:tool_call",
                     "]<]minimax[>[<tool_call>", "<|tool_call>", "<start_function_call>", "<atem:invoke", "<tool_sep> arg_key",
                     "<|open|> <|close|> <|sep|>"):
            with Server("-c", "4096", "-np", "2", "--chat-template-file",
                        rig.template("tags", "{# " + mark + " #}" + rig.TOOLS_TEMPLATE), model="mixed.gguf") as s:
                first = s.post("/tokenize", {"content": "]" if mark[0] == "]" else "<"}).json["tokens"][0]
                body = chat("hi", tools=PAIR, response_format=self.FORMAT, max_tokens=700, temperature=1)
                answers = [s.post("/v1/chat/completions", {**body, "seed": seed, "logit_bias": bias})
                           for seed in range(4) for bias in ({}, {first: 12})]
                self.assertEqual({a.status for a in answers}, {200}, answers[0].body)
                kinds = [self.check(a.json["choices"][0]) for a in answers]
                self.assertIn(True, kinds, mark)
                for choice in ("required", {"type": "function", "function": {"name": "g"}}):
                    a = s.post("/v1/chat/completions", {**body, "tool_choice": choice, "tools": PAIR[1:]}).json["choices"][0]
                    self.assertNotEqual(self.check(a), False)
                    self.assertEqual(a["message"]["tool_calls"][0]["function"]["name"], "g")

    def test_a_call_that_the_model_begins(self):
        """Of formats whose calls cannot be forced they are free after the tag that begins them."""
        with Server("-c", "2048", "--chat-template-file", rig.template("code", "{# tool_code #}" + rig.TOOLS_TEMPLATE)) as s:
            body = chat("hi", tools=PAIR, response_format=self.FORMAT, max_tokens=300)
            for seed in range(4):
                a = s.post("/v1/chat/completions", {**body, "seed": seed, "temperature": 1}).json["choices"][0]
                text = a["message"]["content"] or "{}"
                if a["finish_reason"] == "stop" and not text.strip().startswith("```tool_code"):
                    self.assertIn(json.loads(text)["answer"], range(10))

    def test_a_grammar_is_for_the_whole_answer(self):
        with Server("-c", "2048", "--chat-template-file", rig.template("coder", CODER)) as s:
            body = chat("hi", tools=[TOOL], grammar=gbnf(coder_call("f", city="A")), max_tokens=300)
            self.assertEqual(len(s.post("/v1/chat/completions", body).json["choices"][0]["message"]["tool_calls"]), 1)
            self.assertEqual(s.post("/v1/chat/completions", {**body, "tool_choice": "required"}).status, 400)


# What templates do with messages of the system: STRICT takes them at the beginning only, DEAF writes the first alone, NONE
# knows none, PAIRS wants user and assistant to take turns.
TEXTS = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
STRICT = """{% for m in messages %}{% if m.role == 'system' and not loop.first %}
{{- raise_exception('System message must be at the beginning.') }}{% endif %}[{{ m.role }}] {{ m.content }}
{% endfor %}"""
DEAF = """{% if messages[0].role == 'system' %}[system] {{ messages[0].content }}
{% endif %}{% for m in messages if m.role != 'system' %}[{{ m.role }}] {{ m.content }}
{% endfor %}"""
NONE = """{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{{- '[' + m.role + '] ' + m.content }}
{% endfor %}"""
PAIRS = """{% set ns = namespace(last='') %}{% for m in messages %}{% if m.role == 'system' and loop.first %}
{{- '[system] ' + m.content }}
{% else %}{% if m.role == ns.last or (ns.last == 'tool' and m.role != 'assistant') or m.role == 'system' %}
{{- raise_exception('roles must alternate') }}{% endif %}{% set ns.last = m.role %}[{{ m.role }}] {{ m.content }}
{% endif %}{% endfor %}"""
ESCAPED = "{% for m in messages %}{% if loop.first or m.role != 'system' %}{{ m | tojson }}\n{% endif %}{% endfor %}"


def said(*turns):
    """Messages of "role text"."""
    return [dict(zip(("role", "content"), t.split(" ", 1))) for t in turns]


IDS = """{# [TOOL_CALLS] #}{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id | length != 9 %}
{{- raise_exception('ids have nine letters') }}{% endif %}{{ c.id }}
{% endfor %}{{ m.tool_call_id }}{% endfor %}"""


class Ids(unittest.TestCase):
    def test_ids_of_other_servers_become_those_that_a_template_takes(self):
        messages = [*said("user hi"), *[x for i in ("t1", "toolu_01A", "abcDEF123") for x in (
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": i, "content": "x"})]]
        with Server("--chat-template-file", rig.template("ids", IDS)) as s:
            a = s.post("/apply-template", {"messages": messages, "add_generation_prompt": False})
            self.assertEqual(a.status, 200, a.body)
            lines = a.json["prompt"].split()
            text = "".join(lines)
            calls, results = [text[i:i + 9] for i in range(0, 54, 18)], [text[i:i + 9] for i in range(9, 54, 18)]
            self.assertEqual((calls, calls[2], len(set(calls))), (results, "abcDEF123", 3), text)


class System(unittest.TestCase):
    MIDDLE = said("system be good", "user hi", "assistant yo", "system agents: a, b", "user ho")
    LAST = said("user hi", "system agents: a, b")
    TWO = said("system one", "developer two", "user hi")
    AFTER_TOOL = said("system one", "user hi", "assistant x", "tool y", "system two")

    def prompts(self, text, *conversations):
        with Server("--chat-template-file", rig.template("system", text)) as s:
            out = []
            for messages in conversations:
                a = s.post("/apply-template", {"messages": messages, "add_generation_prompt": False})
                self.assertEqual(a.status, 200, a.body)
                out.append(a.json["prompt"])
            return out

    def test_a_template_that_takes_them_gets_them_as_they_are(self):
        self.assertEqual(self.prompts(TEXTS, self.MIDDLE, self.TWO), [
            "[system] be good\n[user] hi\n[assistant] yo\n[system] agents: a, b\n[user] ho\n",
            "[system] one\n[system] two\n[user] hi\n"])

    def test_others_get_them_where_they_stand_as_the_users_text(self):
        for text in (STRICT, DEAF):
            several = said("system one", "system two", "user hi", "assistant a", "system b", "system c", "user d", "system e")
            self.assertEqual(self.prompts(text, self.MIDDLE, self.LAST, self.TWO, self.AFTER_TOOL, several), [
                "[system] be good\n[user] hi\n[assistant] yo\n[user] agents: a, b\n\nho\n",
                "[user] hi\n\nagents: a, b\n",
                "[system] one\n\ntwo\n[user] hi\n",
                "[system] one\n[user] hi\n[assistant] x\n[tool] y\n[user] two\n",
                "[system] one\n\ntwo\n[user] hi\n[assistant] a\n[user] b\n\nc\n\nd\n\ne\n"])

    def test_a_template_that_wants_turns_gets_them_first(self):
        self.assertEqual(self.prompts(PAIRS, self.AFTER_TOOL, self.MIDDLE), [
            "[system] one\n\ntwo\n[user] hi\n[assistant] x\n[tool] y\n",
            "[system] be good\n[user] hi\n[assistant] yo\n[user] agents: a, b\n\nho\n"])

    def test_a_template_without_any_gets_them_from_the_user(self):
        self.assertEqual(self.prompts(NONE, self.MIDDLE, self.MIDDLE[:2], self.TWO, said("system alone")), [
            "[user] be good\n\nagents: a, b\n\nhi\n[assistant] yo\n[user] ho\n",
            "[user] be good\n\nhi\n", "[user] one\n\ntwo\n\nhi\n", "[user] alone\n"])

    def test_texts_that_a_template_escapes_are_found(self):
        one, = self.prompts(ESCAPED, said('system a "b"', "user hi", 'system c "d"\n'))
        self.assertEqual([json.loads(line) for line in one.splitlines()],
                         said('system a "b"', 'user hi\n\nc "d"\n'))

    def test_one_without_content_is_refused(self):
        with Server() as s:
            for role in ("system", "developer", "user"):
                for content in ({}, {"content": None}, {"content": 5}):
                    self.assertEqual(s.post("/v1/chat/completions", {"messages": [{"role": role, **content}]}).status, 400)

    def test_every_dialect(self):
        """What Claude Code and Codex send, in their own ways."""
        with Server("--chat-template-file", rig.template("system", STRICT)) as s:
            for path, body in (
                    ("/v1/messages", {"max_tokens": 1, "system": [{"type": "text", "text": "S"}], "messages": [
                        {"role": "user", "content": "hi"}, {"role": "system", "content": "agents: a, b"}]}),
                    ("/v1/messages/count_tokens", {"messages": said("user hi", "system x", "assistant y")}),
                    ("/v1/responses", {"instructions": "S", "max_output_tokens": 1, "input": [
                        {"role": "developer", "content": [{"type": "input_text", "text": "D"}]},
                        {"role": "user", "content": "hi"}, {"role": "developer", "content": "E"}]}),
                    ("/api/chat", {"model": "m", "messages": self.LAST, "options": {"num_predict": 1}}),
                    ("/v1/chat/completions", {"messages": self.MIDDLE, "max_tokens": 1})):
                a = s.post(path, body)
                self.assertEqual(a.status, 200, (path, a.body))

    def test_many_are_arranged_in_linear_time(self):
        n = 3000 if rig.SLOW == 1 else 500
        messages = said("system s", "user hi") + said(*["system " + "x" * 200] * n)
        one, = self.prompts(DEAF, messages)
        self.assertEqual(one.count("x" * 200), n)


class Tools(unittest.TestCase):
    """A template without a place for tools: they are neither taken nor promised."""

    def test_tools_that_the_model_would_not_see_are_refused(self):
        for options in ((), ("--chat-template-file", rig.template("texts", TEXTS))):
            with Server(*options) as s:
                for path, body in (
                        ("/v1/chat/completions", chat("hi", tools=[TOOL])),
                        ("/v1/chat/completions", chat("hi", tools=[TOOL], tool_choice="required")),
                        ("/apply-template", chat("hi", tools=[TOOL])),
                        ("/v1/responses", {"input": "hi", "tools": [{"type": "function", **TOOL["function"]}]}),
                        ("/v1/messages", {"max_tokens": 1, "messages": [{"role": "user", "content": "hi"}],
                                          "tools": [{"name": "f", "input_schema": FUNCTION}]}),
                        ("/api/chat", {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [TOOL]})):
                    a = s.post(path, body)
                    self.assertEqual(a.status, 400, (path, a.body))
                    self.assertIn("no place for tools", a.error)
                self.assertEqual(s.post("/v1/chat/completions", chat("hi", tools=[TOOL], tool_choice="none")).status, 200)
                self.assertEqual(s.post("/v1/chat/completions", chat("hi", tools=[])).status, 200)
                self.assertEqual(s.post("/v1/responses", {"input": "hi", "max_output_tokens": 1,
                                                          "tools": [{"type": "web_search"}]}).status, 200)
                self.assertNotIn("tools", s.post("/api/show", {"model": "m"}).json["capabilities"])
        with Server("--chat-template-file", rig.template("tools")) as s:
            self.assertIn("tools", s.post("/api/show", {"model": "m"}).json["capabilities"])


if __name__ == "__main__":
    rig.main("__main__")
