"""Features of the models' own chat templates: reasoning that a template has opened, tool calls of all kinds in answers and in
the history, thinking turned on and off. Short templates with the marks of the families stand for the published ones."""
import json
import os
import unittest

import rig
from rig import Server

USER = {"role": "user", "content": "hi"}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": CITY}}
ANSWER = {"type": "object", "properties": {"answer": {"type": "integer", "maximum": 9}}, "required": ["answer"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": ANSWER}}
TOOLS = "{%- for t in tools or [] %}{{ t.function.name }}\n{% endfor %}"
TURNS = "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
THINK = TURNS + ("{%- if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
                 "{%- else %}<think>\n{% endif %}")


def template(name, text):
    path = os.path.join(rig.FOLDER, name + ".jinja")
    with open(path, "w") as f:
        f.write(text)
    return "--chat-template-file", path


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not os.path.exists(os.path.join(rig.FOLDER, "tags.gguf")):
            rig.make_model("tags.gguf", "--vocab-kind", "bpe-tags", "--vocab", "330")

    def serve(self, text, *options):
        return Server(*template("t", text), *options, model="tags.gguf")

    def ask(self, s, status=200, path="/v1/chat/completions", **body):
        body = {"messages": [USER], "max_tokens": 60, "temperature": 0, **body}
        a = s.post(path, body)
        self.assertEqual(a.status, status, a.body)
        return a.json

    def said(self, s, **body):
        choice = self.ask(s, **body)["choices"][0]
        return choice["message"], choice["finish_reason"]

    def token(self, s, text):
        token = s.post("/tokenize", {"content": text, "parse_special": True}).json["tokens"]
        self.assertEqual(len(token), 1)
        return token[0]

    def prompt(self, s, **body):
        return self.ask(s, path="/apply-template", **body)["prompt"]


class Reasoning(Case):
    # the whole answer restricted, as each dialect says it
    WAYS = (("/v1/chat/completions", {"response_format": FORMAT}),
            ("/v1/chat/completions", {"json_schema": ANSWER}),
            ("/v1/chat/completions", {"grammar": 'root ::= "{\\"answer\\":" [0-9] "}"'}),
            ("/v1/responses", {"input": "hi", "text": {"format": {"type": "json_schema", "name": "a", "schema": ANSWER}}}),
            ("/api/chat", {"model": "m", "stream": False, "format": ANSWER}))

    def text_and_reasoning(self, answer):
        if "choices" in answer:
            m = answer["choices"][0]["message"]
            return m["content"], m.get("reasoning_content", "")
        if "output" in answer:
            parts = {"message": "", "reasoning": ""}
            for item in answer["output"]:
                parts[item["type"]] += "".join(c["text"] for c in item.get("content") or [])
            return parts["message"], parts["reasoning"]
        return answer["message"]["content"], answer["message"].get("thinking", "")

    def test_a_whole_answers_grammar_begins_after_the_reasoning(self):
        said = {}
        for spec in ("none", "ngram", "random"):
            with self.serve(THINK, "--spec-type", spec) as s:
                end = self.token(s, "</think>")
                said[spec] = []
                for path, fields in self.WAYS:
                    body = {"max_tokens": 400, "max_output_tokens": 400, "temperature": 1, "seed": 3,
                            "logit_bias": {end: 5}, "options": {"temperature": 1, "seed": 3, "num_predict": 400}, **fields}
                    free = self.text_and_reasoning(self.ask(s, path=path, **body))
                    said[spec].append(free)
                    if path != "/v1/chat/completions":  # which have no bias: the reasoning is free, and may be cut off
                        self.assertTrue(free[1])
                        self.assertNotIn('{"answer', free[1][:12])
                        continue
                    self.assertLess(json.loads(free[0])["answer"], 10)
                    self.assertFalse(free[1].lstrip().startswith('{'))
                    off = self.text_and_reasoning(self.ask(s, path=path, **{**body, "enable_thinking": False}))
                    self.assertLess(json.loads(off[0])["answer"], 10)
                    self.assertEqual(off[1], "")
                stream = s.post("/v1/chat/completions", {"messages": [USER], "response_format": FORMAT, "stream": True,
                                                         "max_tokens": 400, "temperature": 1, "seed": 3,
                                                         "logit_bias": {end: 5}})
                deltas = [e["choices"][0]["delta"] for e in stream.events if e != "[DONE]"]
                self.assertEqual("".join(d.get("content") or "" for d in deltas), said[spec][0][0])
        self.assertEqual(said["none"], said["ngram"])
        self.assertEqual(said["none"], said["random"])

    def limited(self, s, **body):
        """An answer that does not close its reasoning by itself."""
        end = self.token(s, "</think>")
        m, _ = self.said(s, **{"logit_bias": {end: -100}, "ignore_eos": True, "max_tokens": 40, **body})
        return m["content"], m.get("reasoning_content", "")

    def test_a_limit_ends_the_reasoning(self):
        said = {}
        for spec in ("none", "ngram", "random"):
            with self.serve(THINK, "--spec-type", spec) as s:
                content, free = self.limited(s)
                self.assertEqual(content, "")
                content, thought = said[spec] = self.limited(s, reasoning_budget_tokens=8)
                self.assertTrue(content)
                self.assertTrue(0 < len(thought) < len(free) and free.startswith(thought), (free, thought))
                for name in ("thinking_budget_tokens", "thinking_budget", "thinking_token_budget"):
                    self.assertEqual(self.limited(s, **{name: 8}), said[spec])
                self.assertEqual(self.limited(s, reasoning_budget_tokens=-1), ("", free))
                told = self.limited(s, reasoning_budget_tokens=8, reasoning_budget_message=" Enough.")
                self.assertEqual(told[1], thought + " Enough.")
                self.assertEqual(self.limited(s, reasoning_budget_tokens=0)[1], "")
                content, thought = self.limited(s, reasoning_budget_tokens=5, response_format=FORMAT, max_tokens=300)
                self.assertLess(json.loads(content)["answer"], 10)
                self.assertTrue(free.startswith(thought) and len(thought) < len(said[spec][1]))
                end = self.token(s, "</think>")
                stream = s.post("/v1/chat/completions", {"messages": [USER], "stream": True, "max_tokens": 40, "temperature": 0,
                                                         "logit_bias": {end: -100}, "ignore_eos": True, "thinking_budget": 8})
                deltas = [e["choices"][0]["delta"] for e in stream.events if e != "[DONE]"]
                self.assertEqual(tuple("".join(d.get(k) or "" for d in deltas) for k in ("content", "reasoning_content")),
                                 said[spec])
                thinks = {"thinking": {"type": "enabled", "budget_tokens": 8}, "logit_bias": {end: -100}}
                blocks = self.ask(s, path="/v1/messages", max_tokens=40, **thinks)["content"]
                self.assertEqual([b["type"] for b in blocks], ["thinking", "text"])
                self.assertEqual(blocks[0]["thinking"], said[spec][1])
                for wrong in (-2, 1.5, "8", {}):
                    self.assertIn("thinking_budget", self.ask(s, 400, thinking_budget=wrong)["error"]["message"])
                    thinks["thinking"]["budget_tokens"] = wrong
                    self.ask(s, 400, path="/v1/messages", max_tokens=40, **thinks)
                self.ask(s, 400, reasoning_budget_message=3)
        self.assertEqual(said["none"], said["ngram"])
        self.assertEqual(said["none"], said["random"])
        with self.serve(THINK, "--reasoning-budget", "8") as s:
            self.assertEqual(self.limited(s), said["none"])
            self.assertEqual(self.limited(s, thinking_budget=9)[1][:len(said["none"][1])], said["none"][1])

    def test_counts_that_no_automaton_holds(self):
        huge = {"type": "object", "properties": {"s": {"type": "string", "maxLength": 2147483647}}, "required": ["s"]}
        tool = {"type": "function", "function": {"name": "f", "parameters": huge, "strict": True}}
        with self.serve("{# <tool_call> #}" + TOOLS + TURNS) as s:
            self.ask(s, response_format={"type": "json_schema", "json_schema": {"schema": huge}})
            self.assertTrue(s.logged("'response_format': schema at #/properties/s: \"maxLength\" is 2147483647"), s.log)
            for choice in ("auto", "required"):
                self.ask(s, tools=[tool], tool_choice=choice)

    def test_a_prefilled_answer_is_content(self):
        prefill = {"role": "assistant", "content": "The answer is"}
        with self.serve(THINK) as s:
            opened = self.prompt(s)
            for grammar in ({"grammar": 'root ::= " forty-two."'}, {}):
                message, _ = self.said(s, messages=[USER, prefill], **grammar)
                self.assertNotIn("reasoning_content", message)
                if grammar:
                    self.assertEqual(message["content"], " forty-two.")
            self.assertEqual(self.prompt(s, messages=[USER, prefill]), opened + "</think>\n\nThe answer is")
            thought = {**prefill, "reasoning_content": "I <|im_end|> know."}
            self.assertEqual(self.prompt(s, messages=[USER, thought]), opened + "I <|im_end|> know.\n</think>\n\nThe answer is")
            off = self.prompt(s, enable_thinking=False)
            self.assertEqual(self.prompt(s, enable_thinking=False, messages=[USER, prefill]), off + "The answer is")
            begun = {"role": "assistant", "content": "<think>It is"}  # reasoning that the client begins
            message, _ = self.said(s, messages=[USER, begun], max_tokens=20)
            self.assertTrue(message["reasoning_content"])
            self.assertEqual(self.prompt(s, messages=[USER, begun]), opened + "It is")
            ended = {"role": "assistant", "content": "It is.</think>So"}
            message, _ = self.said(s, messages=[USER, ended], grammar='root ::= "!"')
            self.assertEqual(message["content"], "!")


CODER = TOOLS + ("{# <tool_call> <function= #}{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
         "{%- if 'tool_calls' in m %}{% for c in m.tool_calls %}<tool_call>\n<function={{ c.function.name }}>\n"
         "{%- for k, v in c.function.arguments|items %}<parameter={{ k }}>\n{{ v }}\n</parameter>\n{% endfor %}"
         "</function>\n</tool_call>{% endfor %}{% endif %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n")


class Calls(Case):
    def call(self, arguments):
        return [{**USER}, {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "bad"}]

    def test_arguments_in_the_history_go_as_far_as_they_do(self):
        with self.serve(CODER) as s:
            for arguments, written in (('{"city": "Par', {"city": "Par"}), ("", {}), ("null", {}), ("[]", {}), (None, {}),
                                       ('"x"', {}), ('{"city": "a", ', {"city": "a"}), ("{", {}), ('{"a":tr', {"a": True}),
                                       ('{"city": "a", "n', {"city": "a", "n": None}),
                                       ('{"city": [1, {"a": "\\u00', {"city": [1, {"a": ""}]}),
                                       ('{"city": "a"} and', {"city": "a"}), ({"city": "b"}, {"city": "b"}), ([1], {})):
                prompt = self.prompt(s, messages=self.call(arguments), tools=[TOOL])
                for key, value in written.items():
                    self.assertIn(f"<parameter={key}>\n{value}\n</parameter>", prompt, arguments)
                self.assertEqual(prompt.count("<parameter="), len(written), arguments)
                self.ask(s, messages=self.call(arguments), tools=[TOOL], max_tokens=1)

    def test_arguments_are_texts_where_the_template_joins_them(self):
        """Arguments in the form of any dialect; a template that appends them to a text needs strings."""
        joins = ("{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls|default([]) %}"
                 "{{ '>>>' + c.function.name + '\n' + c.function.arguments }}{% endfor %}<|im_end|>\n{% endfor %}")
        with self.serve(TOOLS + joins) as s:
            for arguments, written in (('{"city":"a"}', '{"city":"a"}'), ({"city": "a"}, '{"city":"a"}'), ({}, "{}"),
                                       (None, "{}"), ([1], "{}"), (3, "{}"), ('{"ci', '{"ci'), ("", "")):
                for tools in ([TOOL], None):
                    prompt = self.prompt(s, messages=self.call(arguments), tools=tools)
                    self.assertIn(f">>>f\n{written}<|im_end|>", prompt, arguments)
            use = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
            result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "x"}]}
            turns = [USER, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
            self.ask(s, path="/v1/messages", messages=turns, max_tokens=1)
            call = {"function": {"name": "f", "arguments": {"a": 1}}}
            turns = [USER, {"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "x"}]
            self.ask(s, path="/api/chat", messages=turns, stream=False, model="m", options={"num_predict": 1})

    def test_a_template_that_walks_over_tools_needs_none(self):
        """Published templates for tools (Hermes, Command-R+) are also used for conversations without."""
        walks = "Tools:{%- for t in tools %} {{ t.function.name }}{% endfor %}"
        with self.serve(walks + TURNS) as s:
            none = self.prompt(s)
            self.assertTrue(none.startswith("Tools:<|im_start|>"), none)
            self.assertEqual(self.prompt(s, tools=[]), none)
            self.assertTrue(self.prompt(s, tools=[TOOL]).startswith("Tools: f<|im_start|>"))
        with self.serve("{{ tools is none }}" + TURNS) as s:  # its form where the template accepts it
            self.assertTrue(self.prompt(s).startswith("True"))
        with self.serve("{{ tools + 1 }}" + TURNS) as s:  # the sentence is about what the template got
            a = s.post("/apply-template", {"messages": [USER]})
            self.assertIn("'NoneType'", a.error)

    def test_what_is_null_is_absent(self):
        with self.serve(CODER) as s:
            plain = [USER, {"role": "assistant", "content": "Hello."}, USER]
            for nothing in ({"tool_calls": None}, {"tool_calls": []}, {"name": None, "refusal": None, "audio": None}):
                self.assertEqual(self.prompt(s, messages=[USER, {**plain[1], **nothing}, USER]),
                                 self.prompt(s, messages=plain))
        with self.serve("{%- for m in messages %}{% for k in m %}{{ k }} {% endfor %}"
                        "{%- for c in m.tool_calls|default([]) %}{% for k in c %}{{ k }} {% endfor %}"
                        "{%- for k in c.function %}{{ k }} {% endfor %}{% endfor %}{% endfor %}"
                        "{%- for t in tools|default([], true) %}{% for k in t.function %}{{ k }} {% endfor %}"
                        "{{ t.function.name }}{% endfor %}") as s:
            messages = self.call("{}")
            messages[1]["tool_calls"][0].update(index=None)
            messages[1]["tool_calls"][0]["function"].update(strict=None)
            tool = {"type": "function", "function": {**TOOL["function"], "strict": None}}
            self.assertEqual(self.prompt(s, messages=messages, tools=[tool]), "role content role content tool_calls id type "
                             "function name arguments role tool_call_id content name description parameters f")

    def test_tools_without_description_and_parameters(self):
        strict = ("{%- for t in tools %}{{ t.function.name + ': ' + t.function.description }}{% for k, v in "
                  "t.function.parameters.properties.items() %} {{ k + v.type + v.description }}{% endfor %}{% endfor %}")
        strict += TURNS
        lax = "{%- for t in tools %}{{ t.function|tojson }}{% endfor %}" + TURNS
        optional = {"anyOf": [{"type": "null"}, {"type": "integer"}]}
        functions = ({"name": "f"}, {"name": "f", "description": None, "parameters": None}, {"name": "f", "parameters": {}},
                     {"name": "f", "parameters": CITY}, {"name": "f", "parameters": {"properties": {"a": optional}}})
        with self.serve(strict) as s:
            prompts = [self.prompt(s, tools=[{"type": "function", "function": f}]) for f in functions]
            self.assertEqual([p[:p.index("<|im_start|>")] for p in prompts],
                             ["f: ", "f: ", "f: ", "f:  citystring", "f:  ainteger"])
            for f in functions:
                self.ask(s, tools=[{"type": "function", "function": f}], max_tokens=1)
        with self.serve(lax) as s:  # where nothing is missing, nothing is added
            self.assertTrue(self.prompt(s, tools=[{"type": "function", "function": functions[0]}]).startswith('{"name": "f"}'))

    def calls(self, s, text, **fields):
        """What the server makes of an answer, whole and streamed."""
        body = {"messages": [USER], "tools": [TOOL], "max_tokens": 400, "temperature": 0,
                "grammar": "root ::= " + json.dumps(text, ensure_ascii=False), **fields}
        choice = self.ask(s, **body)["choices"][0]
        calls = [(c["function"]["name"], c["function"]["arguments"]) for c in choice["message"].get("tool_calls", [])]
        streamed = {}
        for event in s.post("/v1/chat/completions", {**body, "stream": True}).events[:-1]:
            for call in event["choices"][0]["delta"].get("tool_calls", []):
                name, arguments = streamed.get(call["index"], ("", ""))
                streamed[call["index"]] = (name + call["function"].get("name", ""), arguments + call["function"]["arguments"])
        self.assertEqual([streamed[i] for i in sorted(streamed)], calls)
        for _, arguments in calls:
            if choice["finish_reason"] == "tool_calls":
                self.assertIsInstance(json.loads(arguments), dict)
        return choice["finish_reason"], calls, choice["message"]["content"]

    def test_arguments_are_whole_objects(self):
        with self.serve(CODER) as s:
            head = "<tool_call>\n<function=f>\n<parameter=city>\n"
            end = "\n</parameter>\n</function>\n</tool_call>"
            self.assertEqual(self.calls(s, head + "a </parameter> b" + end),
                             ("tool_calls", [("f", '{"city":"a </parameter> b"}')], None))
            self.assertEqual(self.calls(s, head + "a"), ("tool_calls", [("f", '{"city":"a"}')], None))
            self.assertEqual(self.calls(s, head + "abc" + end, max_tokens=44)[0], "length")
            cut = self.ask(s, tools=[TOOL], grammar="root ::= " + json.dumps(head + "abc" + end), max_tokens=44)
            history = [USER, cut["choices"][0]["message"], {"role": "tool", "tool_call_id": "c", "content": "?"}]
            self.ask(s, messages=history, tools=[TOOL], max_tokens=1)  # what the server says it takes back
            optional = {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                                       "b": {"type": ["string", "null"]}, "c": {"$ref": "#/$defs/Z"}, "d": {"const": "1"}},
                        "$defs": {"Z": {"type": "string"}}}
            text = "<tool_call>\n<function=f>\n" + "".join(
                f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in (("a", "10115"), ("b", "null"), ("c", "12"), ("d", "1")))
            tool = {"type": "function", "function": {"name": "f", "parameters": optional}}
            self.assertEqual(self.calls(s, text + "</function>\n</tool_call>", tools=[tool]),
                             ("tool_calls", [("f", '{"a":"10115","b":null,"c":"12","d":"1"}')], None))
        with self.serve("{# <|start|> <|channel|> <|message|> #}" + TOOLS + TURNS) as s:
            self.assertEqual(self.calls(s, "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"),
                             ("tool_calls", [("f", "{}")], None))

    def test_formats(self):
        marks = {"minicpm5": '<function name="x"><param name="y">', "dsml": "<｜DSML｜tool_calls>"}
        texts = {"minicpm5": '<function name="f"><param name="city">Paris</param></function>',
                 "dsml": '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="city" string="true">Paris'
                         "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"}
        for name, text in texts.items():
            with self.serve("{#" + marks[name] + "#}" + TOOLS + TURNS) as s:
                self.assertEqual(self.calls(s, text), ("tool_calls", [("f", '{"city":"Paris"}')], None))


class Thinking(Case):
    def test_thinking_is_turned_on_and_off(self):
        off = "{%- if VAR is defined and VAR %}<think>\n{% else %}<think>none</think>{% endif %}"
        templates = {name: TURNS + off.replace("VAR", name) for name in ("enable_thinking", "thinking")}
        templates["mode"] = TURNS + ("{%- if thinking_mode == 'disabled' %}<think>none</think>"
                                     "{%- elif thinking_mode == 'enabled' %}<think>\n{% endif %}")
        templates["effort"] = TURNS + ("{%- if reasoning_effort is not defined %}"
                                       "{%- set reasoning_effort = 'no_think' %}{% endif %}"
                                       "{%- if reasoning_effort not in ['high', 'low', 'no_think'] %}"
                                       "{{ raise_exception('effort') }}{% endif %}"
                                       "{%- if reasoning_effort == 'no_think' %}<think>none</think>"
                                       "{%- else %}<think>\n{% endif %}")
        templates["reasoning"] = TURNS + ("{%- set reasoning = reasoning if reasoning is not undefined else false -%}"
                                          "{%- if reasoning %}<think>\n{% else %}<think>none</think>{% endif %}")
        for name, text in templates.items():
            with self.serve(text) as s:
                for on in ({"enable_thinking": True}, {"reasoning_effort": "high"}, {"reasoning_effort": "medium"}):
                    self.assertTrue(self.prompt(s, **on).endswith("<think>\n"), (name, on))
                for none in ({"enable_thinking": False}, {"reasoning_effort": "none"},
                             {"reasoning_effort": "high", "enable_thinking": False}):
                    self.assertTrue(self.prompt(s, **none).endswith("<think>none</think>"), (name, none))
                if name != "enable_thinking":
                    continue
                own = {"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False}}
                self.assertTrue(self.prompt(s, **own).endswith("<think>none</think>"))  # the client knows its template
                n_on = self.ask(s, enable_thinking=True, max_tokens=1)["usage"]["prompt_tokens"]
                n_off = self.ask(s, max_tokens=1)["usage"]["prompt_tokens"]
                self.assertNotEqual(n_on, n_off)
                chat = {"model": "m", "stream": False, "options": {"num_predict": 1}}
                for think in (True, "high"):
                    self.assertEqual(self.ask(s, path="/api/chat", think=think, **chat)["prompt_eval_count"], n_on)
                self.assertEqual(self.ask(s, path="/api/chat", **chat)["prompt_eval_count"], n_off)
                enabled = self.ask(s, path="/v1/messages", max_tokens=1, thinking={"type": "enabled", "budget_tokens": 1024})
                self.assertEqual(enabled["usage"]["input_tokens"] + enabled["usage"].get("cache_read_input_tokens", 0), n_on)

    def test_reasoning_goes_under_the_name_that_the_template_reads(self):
        turn = {"role": "assistant", "content": "C"}
        for name in ("reasoning_content", "reasoning", "thinking"):
            with self.serve("{%- for m in messages %}{{ m.role }}{% if m." + name + " %}[{{ m." + name + " }}]{% endif %}"
                            "{{ m.content }} {% endfor %}") as s:
                for given in ("reasoning_content", "reasoning", "thinking"):
                    self.assertEqual(self.prompt(s, messages=[USER, {**turn, given: "R"}, USER]),
                                     "userhi assistant[R]C userhi ")
                self.assertEqual(self.prompt(s, messages=[USER, {**turn, "reasoning_content": None}, USER]),
                                 "userhi assistantC userhi ")
        call = {"tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}
        with self.serve("{%- for m in messages %}{% if m.content and m.thinking and 'tool_calls' in m %}"
                        "{{ raise_exception('only one') }}{% endif %}{{ m.thinking }}{{ m.content }} {% endfor %}") as s:
            self.assertEqual(self.prompt(s, messages=[USER, {**turn, **call, "reasoning": "R"}, USER]), "hi R\n\nC hi ")
        with self.serve("{%- for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
                        "{%- for block in m.content %}{% if block['type'] == 'thinking' %}[{{ block['thinking'] }}]"
                        "{%- else %}{{ block['text'] }}{% endif %}"
                        "{% endfor %}{% endif %} {% endfor %}") as s:
            self.assertEqual(self.prompt(s, messages=[USER, {**turn, "reasoning_content": "R"}, USER]), "hi [R]C hi ")


if __name__ == "__main__":
    rig.main(__name__)
