"""Clients that people use, unchanged: the Python packages openai, anthropic, ollama and langchain-openai, each skipped where it
is not there (scripts/fetch-oracles.sh brings them)."""
import importlib.util
import json
import sys
import unittest

import rig
from rig import Server

TOOL = {"type": "function", "function": {"name": "get_weather", "description": "the weather", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"],
    "additionalProperties": False}}}
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
MESSAGES = [{"role": "user", "content": "Hi there"}]


def has(name):
    return importlib.util.find_spec(name) is not None


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.s = Server("-np", "2", "--api-key", "sesame", "--chat-template-file", rig.template("tools"), wait=False)
        cls.s.wait_ready()
        cls.url = f"http://127.0.0.1:{cls.s.port}"

    @classmethod
    def tearDownClass(cls):
        assert cls.s.stop() == 0, cls.s.log

    @unittest.skipUnless(has("openai"), "openai is not installed")
    def test_openai(self):
        import openai
        c = openai.OpenAI(base_url=self.url + "/v1", api_key="sesame", max_retries=0)
        self.assertEqual([m.id for m in c.models.list()], ["m"])
        ask = dict(model="m", messages=MESSAGES, max_tokens=16, temperature=0)
        whole = c.chat.completions.create(**ask, logprobs=True, top_logprobs=3)
        text = whole.choices[0].message.content
        self.assertEqual(len(whole.choices[0].logprobs.content), whole.usage.completion_tokens)
        chunks = list(c.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(x.choices[0].delta.content or "" for x in chunks if x.choices), text)
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        self.assertEqual(c.completions.create(model="m", prompt="abc", max_tokens=4,
                                              extra_body={"ignore_eos": True}).usage.completion_tokens, 4)
        both = c.completions.create(model="m", prompt=["abc", "the"], max_tokens=4, extra_body={"ignore_eos": True})
        self.assertEqual(([x.index for x in both.choices], both.usage.completion_tokens), ([0, 1], 8))
        called = c.chat.completions.create(model="m", messages=MESSAGES, tools=[TOOL], tool_choice="required", max_tokens=200)
        call = called.choices[0].message.tool_calls[0]
        self.assertEqual((called.choices[0].finish_reason, call.function.name), ("tool_calls", "get_weather"))
        self.assertIn(json.loads(call.function.arguments)["city"], ("Paris", "Rome"))
        made = c.chat.completions.create(model="m", messages=MESSAGES, max_tokens=200, response_format={
            "type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}})
        self.assertIn(json.loads(made.choices[0].message.content)["a"], (1, 2))
        with self.assertRaises(openai.BadRequestError) as e:
            c.chat.completions.create(**{**ask, "temperature": -3})
        self.assertEqual(e.exception.body["param"], "temperature")
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(base_url=self.url + "/v1", api_key="wrong", max_retries=0).models.list()
        with self.assertRaises(openai.NotFoundError):
            c.models.retrieve("nothing")

    @unittest.skipUnless(has("openai"), "openai is not installed")
    def test_openai_responses(self):
        import openai
        c = openai.OpenAI(base_url=self.url + "/v1", api_key="sesame", max_retries=0)
        ask = dict(model="m", input="Hi there", max_output_tokens=16, temperature=0)
        whole = c.responses.create(**ask)
        self.assertTrue(whole.output_text)
        with c.responses.stream(**ask) as stream:
            text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        self.assertEqual(text, whole.output_text)
        patch = {"type": "custom", "name": "patch", "description": "takes text"}
        called = c.responses.create(model="m", input="x", tools=[patch, {"type": "web_search"}], max_output_tokens=400,
                                    tool_choice={"type": "custom", "name": "patch"}, extra_body={"grammar": None})
        self.assertEqual((called.output[-1].type, called.output[-1].name), ("custom_tool_call", "patch"))
        with c.responses.stream(model="m", input=[{"role": "user", "content": "x"}, *called.output, {
                "type": "custom_tool_call_output", "call_id": called.output[-1].call_id, "output": "done"}],
                tools=[patch], max_output_tokens=8) as stream:
            self.assertIn([e.type for e in stream][-1], ("response.completed", "response.incomplete"))
        called = c.responses.create(model="m", input="x", tools=[{"type": "function", **TOOL["function"], "strict": False}],
                                    tool_choice={"type": "function", "name": "get_weather"})
        self.assertEqual(called.output[-1].name, "get_weather")

    @unittest.skipUnless(has("anthropic"), "anthropic is not installed")
    def test_anthropic(self):
        import typing

        import anthropic
        import pydantic  # which anthropic needs
        c = anthropic.Anthropic(base_url=self.url, api_key="sesame", max_retries=0)
        ask = dict(model="m", max_tokens=16, messages=MESSAGES, extra_body={"temperature": 0})
        whole = c.messages.create(**ask)
        with c.messages.stream(**ask) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual((text, final.stop_reason), (whole.content[0].text, whole.stop_reason))
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)
        tool = {"name": "get_weather", "description": "d", "input_schema": TOOL["function"]["parameters"]}
        called = c.messages.create(model="m", max_tokens=200, messages=MESSAGES, tools=[tool], tool_choice={"type": "any"})
        self.assertEqual((called.stop_reason, called.content[-1].name), ("tool_use", "get_weather"))
        self.assertIn(called.content[-1].input["city"], ("Paris", "Rome"))
        self.assertGreater(c.messages.count_tokens(model="m", messages=MESSAGES).input_tokens, 0)
        class Made(pydantic.BaseModel):
            a: typing.Literal[1, 2]
        made = c.messages.parse(model="m", max_tokens=200, messages=MESSAGES, output_format=Made)
        self.assertIn(made.parsed_output.a, (1, 2))
        either = c.messages.parse(model="m", max_tokens=400, messages=MESSAGES, output_format=Made, tools=[tool])
        self.assertTrue(either.stop_reason == "tool_use" or either.parsed_output.a in (1, 2))
        warmed = c.messages.create(model="m", max_tokens=0, messages=MESSAGES) # computes the prompt alone
        self.assertEqual((warmed.content, warmed.stop_reason), ([], "max_tokens"))
        with self.assertRaises(anthropic.BadRequestError):
            c.messages.create(model="m", max_tokens=-3, messages=MESSAGES)
        with self.assertRaises(anthropic.AuthenticationError):
            anthropic.Anthropic(base_url=self.url, api_key="wrong", max_retries=0).messages.create(**ask)

    @unittest.skipUnless(has("ollama"), "ollama is not installed")
    def test_ollama(self):
        import ollama
        c = ollama.Client(self.url, headers={"Authorization": "Bearer sesame"})
        ask = dict(model="m", messages=MESSAGES, options={"temperature": 0, "num_predict": 16})
        whole = c.chat(**ask)
        self.assertEqual("".join(x.message.content for x in c.chat(**ask, stream=True)), whole.message.content)
        self.assertEqual(c.generate(model="m", prompt="Hi there", options=ask["options"]).response, whole.message.content)
        self.assertEqual([m.model for m in c.list().models], ["m"])
        shown = c.show("m")
        self.assertTrue(shown.template)
        self.assertIn("tools", shown.capabilities)
        self.assertTrue(any(k.endswith(".context_length") for k in shown.modelinfo))
        loaded = c.ps().models[0]
        self.assertTrue(loaded.expires_at and loaded.context_length, loaded)
        told = c.generate(model="m", prompt="Hi there", options=ask["options"], logprobs=True, top_logprobs=2)
        self.assertEqual([len(t.top_logprobs) for t in told.logprobs], [2] * told.eval_count)
        with self.assertRaisesRegex(ollama.ResponseError, "FIM"):
            c.generate(model="m", prompt="a", suffix="b")
        made = c.chat(model="m", messages=MESSAGES, format=SCHEMA, options={"num_predict": 200})
        self.assertIn(json.loads(made.message.content)["a"], (1, 2))
        with self.assertRaises(ollama.ResponseError):
            c.chat(model="m", messages=MESSAGES, options={"temperature": "hot"})

    @unittest.skipUnless(has("langchain_openai"), "langchain-openai is not installed")
    def test_langchain(self):
        import openai  # what it is built on, and raises
        from langchain_openai import ChatOpenAI
        llm = ChatOpenAI(base_url=self.url + "/v1", api_key="sesame", model="m", max_tokens=16, temperature=0, max_retries=0,
                         stream_usage=True)
        whole = llm.invoke("Hi there")
        total = None
        for chunk in llm.stream("Hi there"):
            total = chunk if total is None else total + chunk
        self.assertEqual((total.content, total.usage_metadata["output_tokens"]),
                         (whole.content, whole.usage_metadata["output_tokens"]))
        with_logprobs = llm.bind(logprobs=True, top_logprobs=2).invoke("Hi there")
        self.assertEqual(len(with_logprobs.response_metadata["logprobs"]["content"]), whole.usage_metadata["output_tokens"])
        made = ChatOpenAI(base_url=self.url + "/v1", api_key="sesame", model="m", max_tokens=200).with_structured_output(
            {"title": "n", **SCHEMA}, method="json_schema")
        self.assertIn(made.invoke("Hi there")["a"], (1, 2))
        with self.assertRaises(openai.BadRequestError):
            llm.bind(temperature=-3).invoke("Hi there")
        bound = ChatOpenAI(base_url=self.url + "/v1", api_key="sesame", model="m", max_tokens=200).bind_tools(
            [TOOL], tool_choice="get_weather")
        self.assertEqual(bound.invoke("x").tool_calls[0]["name"], "get_weather")


if __name__ == "__main__":
    if not any(map(has, ("openai", "anthropic", "ollama", "langchain_openai"))):
        print("skip: none of openai, anthropic, ollama and langchain-openai is installed")
        sys.exit(77)
    rig.main("__main__")
