"""What the models' own chat templates ask of the server: reasoning that a template has opened, tool calls of all kinds in
answers and in the history, thinking turned on and off. Short templates with the marks of the families stand for the published
ones."""
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


if __name__ == "__main__":
    rig.main(__name__)
