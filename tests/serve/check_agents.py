"""What agents such as Codex and Claude Code send: tools that are no functions, items and blocks of other services, system
messages in the middle of a conversation, schemas beside tools."""
import json
import os
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


def template(name, text):
    path = os.path.join(rig.FOLDER, name + ".jinja")
    with open(path, "w") as f:
        f.write(text)
    return path


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
        cls.s = Server("-np", "2", "-c", "2048", "--chat-template-file", template("coder", CODER))

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

    # ---- tools that are no functions

    def test_responses_goes_on_without_the_tools_of_others(self):
        f = {"type": "function", **TOOL["function"]}
        others = [{"type": "web_search"}, {"type": "file_search", "vector_store_ids": []}, {"type": "local_shell"},
                  {"type": "mcp", "server_label": "x"}, {"type": "namespace", "name": "n", "tools": []}]
        self.same_prompt("/v1/responses", {"input": "hi", "max_output_tokens": 8, "tools": [f, *others]},
                         [{"role": "user", "content": "hi"}], tools=[TOOL])
        for kind in ("web_search", "file_search", "local_shell", "mcp"):
            self.assertEqual(self.s.log.count(f"tools of type {kind}\n"), 1, self.s.log)
        self.post("/v1/responses", {"input": "hi", "max_output_tokens": 1, "tools": [{"type": "we\nird"}]})
        self.assertIn("tools of type unknown\n", self.s.log)  # a request writes nothing into the log
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
        self.assertEqual(self.s.log.count("tools of type web_search_20250305\n"), 1, self.s.log)
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
            self.assertEqual(self.s.log.count(f"items of type {item['type']}\n"), 1, self.s.log)
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


if __name__ == "__main__":
    rig.main("__main__")
