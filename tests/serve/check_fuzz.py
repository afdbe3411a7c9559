"""Requests made wrong at random, as JSON and as bytes: each is answered with 200 or 4xx (501 for what does not exist), the
server lives, and says the same afterwards. AERIE_FUZZ_REQUESTS and AERIE_FUZZ_SEED choose how many and which."""
import copy
import json
import os
import random
import threading
import unittest

import rig
from rig import Server, chat

TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {
    "x": {"type": "integer"}}, "required": ["x"]}}}
SEEDS = [
    ("/v1/chat/completions", {**chat("hello", max_tokens=3), "tools": [TOOL], "tool_choice": "auto", "stop": ["a"], "n": 2,
                              "logprobs": True, "top_logprobs": 2, "logit_bias": {"5": 1}, "seed": 3, "top_p": 0.5,
                              "stream_options": {"include_usage": True}, "chat_template_kwargs": {"a": 1},
                              "return_origins": True,
                              "response_format": {"type": "text"}}),
    ("/v1/chat/completions", {"messages": [{"role": "system", "content": [{"type": "text", "text": "s"}]}, {
        "role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {
            "name": "f", "arguments": "{\"x\": 1}"}}]}, {"role": "tool", "tool_call_id": "1", "content": "1"}], "max_tokens": 2,
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "properties": {
            "a": {"enum": [1, "b", None]}}}}}}),
    ("/v1/completions", {"prompt": "abc", "max_tokens": 3, "echo": True, "logprobs": 1, "stream": True, "mirostat": 2}),
    ("/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 3, "grammar": "root ::= [a-z]+", "samplers": ["top_k"],
                         "dry_base": 2}),
    ("/completion", {"prompt": ["a", 5], "n_predict": 3, "n_probs": 2}),
    ("/infill", {"input_prefix": "a", "input_suffix": "b", "input_extra": [{"filename": "f", "text": "t"}], "n_predict": 2}),
    ("/v1/responses", {"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}, {
        "type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
                                 {"type": "function_call_output", "call_id": "1",
                                                                                   "output": "o"}],
        "max_output_tokens": 3, "tools": [{"type": "function", "name": "f", "parameters": {}}],
                       "text": {"format": {"type": "text"}},
        "stream": True, "reasoning": {"effort": "low"}}),
    ("/v1/messages", {"max_tokens": 3, "system": [{"type": "text", "text": "s"}], "messages": [{"role": "user", "content": "x"},
                                                                                               {
        "role": "assistant", "content": [{"type": "thinking", "thinking": "t"},
                                         {"type": "tool_use", "id": "1", "name": "f", "input": {}}]}, {
            "role": "user", "content": [{"type": "tool_result", "tool_use_id": "1",
                                         "content": [{"type": "text", "text": "r"}]}]}],
        "tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "auto"}, "stop_sequences": ["x"],
                      "stream": True}),
    ("/v1/responses", {"input": [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "h"}], "content": [
            {"type": "reasoning_text", "text": "h"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        {"type": "custom_tool_call", "call_id": "1", "name": "p", "input": "i"},
        {"type": "custom_tool_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "o"}]},
        {"type": "local_shell_call", "call_id": "2", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "local_shell_call_output", "id": "2", "output": "o"}, {"type": "item_reference", "id": "x"},
        {"type": "tool_search_call", "call_id": "3", "arguments": {}},
        {"type": "tool_search_output", "call_id": "3", "tools": [{"type": "function", "name": "g"}]},
        {"type": "message", "role": "developer", "content": "d"}], "max_output_tokens": 3, "tools": [
            {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f", "parameters": {}}]},
            {"type": "custom", "name": "p", "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"}},
            {"type": "web_search"}],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "p"}]}}),
    ("/v1/messages", {"max_tokens": 3, "system": "s", "messages": [
        {"role": "user", "content": [{"type": "document", "title": "t", "source": {
            "type": "text", "media_type": "text/plain", "data": "d"}}]},
        {"role": "assistant", "content": [{"type": "server_tool_use", "id": "1", "name": "web_search", "input": {}},
                                          {"type": "tool_use", "id": "2", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "2", "content": [
            {"type": "tool_reference", "tool_name": "f"}, {"type": "search_result", "source": "s", "title": "t", "content": [
                {"type": "text", "text": "x"}]}]}]},
        {"role": "system", "content": "s"}], "output_config": {"effort": "low", "format": {
            "type": "json_schema", "schema": {"type": "object", "properties": {"a": {"enum": [1, 2]}}}}},
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
    ("/v1/chat/completions", {"messages": [
        {"role": "system", "content": "s"}, {"role": "developer", "content": "d"}, {"role": "user", "content": "x"},
        {"role": "assistant", "refusal": "no", "content": None, "tool_calls": [
            {"id": "1", "type": "custom", "custom": {"name": "p", "input": "i"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "o"}, {"role": "system", "content": "s"}], "max_tokens": 3,
        "parallel_tool_calls": False, "tools": [{"type": "custom", "custom": {"name": "p"}}]}),
    ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "x"}]}),
    ("/api/chat", {"model": "m", "messages": [{"role": "user", "content": "x", "images": []}], "format": "json", "think": True,
                   "options": {"num_predict": 3, "temperature": 1, "stop": ["a"]}}),
    ("/api/generate", {"model": "m", "prompt": "x", "system": "s", "raw": False, "options": {"num_predict": 3}, "format": {}}),
    ("/api/show", {"model": "m"}),
    ("/tokenize", {"content": "abc", "with_pieces": True, "add_special": True}),
    ("/detokenize", {"tokens": [1, 2, 3]}),
    ("/apply-template", {"messages": [{"role": "user", "content": "x"}], "tools": [TOOL], "add_generation_prompt": False}),
    ("/slots/0?action=save", {"filename": "x"}),
]
ODD = [None, True, False, 0, -1, 1, 2**31, 2**63, -2**63, 10**40, 0.5, -0.0, 1e308, "", "a", "\x00", "\ud83d\ude00", "{",
       "x" * 3000, [], {},
       [[]], [{}], {"": {}}, {"type": "text"}, [None], "../../etc/passwd", "<|im_end|>", [1e300], {"a": [1, {"b": None}]}]


def places(node, path=()):
    """Every place in a JSON value."""
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def mutate(rng, body):
    body = copy.deepcopy(body)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        path = rng.choice(list(places(body)) if isinstance(body, (dict, list)) else [()])
        if not path:
            if rng.random() < 0.05:
                body = copy.deepcopy(rng.choice(ODD))
            continue
        node = body
        for key in path[:-1]:
            node = node[key]
        how = rng.random()
        if how < 0.2:
            del node[path[-1]]
        elif how < 0.3 and isinstance(node, list):
            node.extend(copy.deepcopy(node))
        elif how < 0.4 and isinstance(node, dict):
            node[rng.choice(["type", "name", "content", "n", "x", "$ref", "function"])] = copy.deepcopy(rng.choice(ODD))
        else:
            node[path[-1]] = copy.deepcopy(rng.choice(ODD))
    return body


class Fuzz(unittest.TestCase):
    maxDiff = 20000

    def test_requests_made_wrong(self):
        n = int(os.environ.get("AERIE_FUZZ_REQUESTS", 2400 // (4 if rig.SLOW > 1 else 1)))
        seed = int(os.environ.get("AERIE_FUZZ_SEED", 1))
        folder = os.path.join(rig.FOLDER, "slots")
        os.mkdir(folder)
        bad, lock = [], threading.Lock()
        with Server("-np", "4", "-n", "4", "--slot-save-path", folder, "--no-access-log", "--max-queue", "1000",
                    "--chat-template-file", rig.template("tools")) as s:
            expected = s.post("/v1/chat/completions", chat("hello", max_tokens=4)).json["choices"]

            def work(k):
                rng = random.Random(seed * 1000 + k)
                connection = s.connect()
                for _ in range(n // 8):
                    path, body = rng.choice(SEEDS)
                    data = json.dumps(mutate(rng, body)).encode()
                    if rng.random() < 0.15:
                        data = bytearray(data)
                        for _ in range(rng.randint(1, 8)):
                            if data:
                                data[rng.randrange(len(data))] = rng.randrange(256)
                        data = bytes(data[:rng.randint(0, len(data))] if rng.random() < 0.3 else data)
                    try:
                        a = s.call("POST", path, data, connection=connection)
                        ok = a.status == 200 or 400 <= a.status < 500 or a.status == 501
                        if ok and a.headers["Content-Type"] == "application/json":
                            a.json
                    except Exception as e:  # noqa: BLE001
                        ok, a = False, rig.Answer(repr(e), {}, b"")
                        connection.close()
                    if not ok:
                        with lock:
                            bad.append((path, data[:2000], a.status, a.body[:300]))
                connection.close()
            threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(bad, [], s.log)
            self.assertEqual(s.post("/v1/chat/completions", chat("hello", max_tokens=4)).json["choices"], expected)


if __name__ == "__main__":
    rig.main("__main__")
