#!/usr/bin/env python3
"""Render every template of a folder over the conversations below with Python's jinja2.

usage: make_chat_vectors.py TEMPLATE_FOLDER [OUTPUT_FOLDER]

Writes one file per conversation: its variables, and per template the text or the error.
"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import oracle  # noqa: E402

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Current weather of a place",
    "parameters": {"type": "object", "properties": {
        "location": {"type": "string", "description": "City, e.g. Zürich"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        "days": {"type": "integer", "description": "How many days", "default": 3}},
        "required": ["location"]}}}
SEARCH = {"type": "function", "function": {
    "name": "search", "description": "Search \"everything\" <fast> & well",
    "parameters": {"type": "object", "properties": {
        "query": {"type": "string", "description": "what to look for"},
        "filters": {"type": "object", "description": "restrictions", "properties": {
            "tags": {"type": "array", "items": {"type": "string"}},
            "score": {"type": "number"}, "exact": {"type": "boolean"}}}},
        "required": ["query"]}}}
NOPARAM = {"type": "function", "function": {"name": "now", "description": "The time",
                                            "parameters": {"type": "object", "properties": {}}}}


def call(name, arguments, ident):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


def m(role, content, **more):
    return {"role": role, "content": content, **more}


USER = m("user", "What is the weather in Paris?")
ARGS = {"location": "Paris", "unit": "celsius", "days": 2}

CONVERSATIONS = {
    "user": dict(messages=[m("user", "Hello!")], add_generation_prompt=True),
    "user_no_prompt": dict(messages=[m("user", "  Hello!\n ")], add_generation_prompt=False),
    "system_user": dict(messages=[m("system", "You are terse."), m("user", "Why is the sky blue?")],
                        add_generation_prompt=True),
    "multi_turn": dict(messages=[m("system", "Be kind.\nAnd brief. "), m("user", "1+1?"), m("assistant", "2"),
                                 m("user", "And 2+2?"), m("assistant", " 4\n"), m("user", "Thanks")],
                       add_generation_prompt=True),
    "multi_turn_no_prompt": dict(messages=[m("user", "1+1?"), m("assistant", "2"), m("user", "2+2?"), m("assistant", "4")],
                                 add_generation_prompt=False),
    "tools": dict(messages=[m("system", "Use tools."), USER], tools=[WEATHER, SEARCH, NOPARAM], add_generation_prompt=True),
    "tool_calls": dict(messages=[USER, m("assistant", "", tool_calls=[call("get_weather", ARGS, "abcdefgh1")]),
                                 m("tool", '{"temp": 21.5, "sky": "clear"}', name="get_weather", tool_call_id="abcdefgh1"),
                                 m("assistant", "It is 21.5 degrees."), m("user", "Thanks!")],
                       tools=[WEATHER, SEARCH], add_generation_prompt=True),
    "tool_calls_open": dict(messages=[m("system", "S"), USER,
                                      m("assistant", None, tool_calls=[call("get_weather", ARGS, "abcdefgh1"),
                                                                       call("search", {"query": "a \"b\" <c>", "filters": {
                                                                           "tags": ["x", "y"], "score": 0.5, "exact": True}},
                                                                            "abcdefgh2")]),
                                      m("tool", "sunny", name="get_weather", tool_call_id="abcdefgh1"),
                                      m("tool", "nothing", name="search", tool_call_id="abcdefgh2")],
                            tools=[WEATHER, SEARCH], add_generation_prompt=True),
    "tool_calls_text": dict(messages=[USER, m("assistant", "Let me look.",
                                              tool_calls=[call("get_weather", json.dumps(ARGS), "abcdefgh1")]),
                                      m("tool", "cold", tool_call_id="abcdefgh1"), m("user", "So?")],
                            tools=[WEATHER], add_generation_prompt=True),
    "thinking": dict(messages=[m("user", "17*3?"), m("assistant", "51", reasoning_content="17*3 is 51.",
                                                     thinking="17*3 is 51."),
                               m("user", "18*3?"), m("assistant", "<think>\n18*3\n</think>\n\n54"), m("user", "19*3?")],
                     enable_thinking=True, thinking=True, reasoning_effort="high", add_generation_prompt=True),
    "no_thinking": dict(messages=[m("system", "/no_think"), m("user", "17*3?"), m("assistant", "51", reasoning_content="Easy."),
                                  m("user", "19*3?")],
                        enable_thinking=False, thinking=False, add_generation_prompt=True),
    "thinking_tools": dict(messages=[USER, m("assistant", "", reasoning_content="I need the tool.",
                                             tool_calls=[call("get_weather", ARGS, "abcdefgh1")]),
                                     m("tool", "rain", name="get_weather", tool_call_id="abcdefgh1")],
                           tools=[WEATHER], enable_thinking=True, add_generation_prompt=True),
    "empty": dict(messages=[m("system", ""), m("user", ""), m("assistant", ""), m("user", "")], add_generation_prompt=True),
    "unicode": dict(messages=[m("system", "Ты — помощник. 日本語\u3000"),
                              m("user", "naïve café 😀 \u200d ß \u2028 'q' \"d\" \\ <b>&</b>"),
                              m("assistant", "\u00a0Ünï\u00a0"), m("user", "\t\u2003ﬁn\r\n")],
                    tools=[{"type": "function", "function": {"name": "größe", "description": "Maß \"ÄÖÜ\" 😀\n\u0001",
                                                             "parameters": {"type": "object", "properties": {
                                                                 "ö": {"type": "string", "description": "Öl"}}}}}],
                    add_generation_prompt=True),
    "parts": dict(messages=[m("user", [{"type": "text", "text": "Look "}, {"type": "text", "text": "here."}]),
                            m("assistant", [{"type": "text", "text": "Yes."}]), m("user", [{"type": "text", "text": "Ok"}])],
                  add_generation_prompt=True),
    "wrong_order": dict(messages=[m("assistant", "I begin."), m("assistant", "Again."), m("wizard", "?")],
                        add_generation_prompt=False),
    "developer": dict(messages=[m("developer", "Follow."), m("user", "Hi")], add_generation_prompt=True),
    "tool_turns": dict(messages=[
        m("system", "S"), m("user", "A?"),
        m("assistant", None, reasoning_content="First.",
          tool_calls=[call("now", {}, "abcdefgh1"), call("get_weather", ARGS, "abcdefgh2")]),
        m("tool", [{"type": "text", "text": "12:00"}], name="now", tool_call_id="abcdefgh1"),
        m("tool", {"temp": 1, "list": [None, True, 2.5]}, name="get_weather", tool_call_id="abcdefgh2"),
        m("assistant", "Then this.", reasoning_content="Second.",
          tool_calls=[call("search", {"query": "ü\n\"q\"", "filters": {}}, "abcdefgh3")]),
        m("tool", "", name="search", tool_call_id="abcdefgh3"), m("assistant", "Done.", reasoning_content=""), m("user", "B?"),
        m("assistant", "\n\nNo.", reasoning_content="\nThird.\n")],
        tools=[WEATHER, SEARCH, NOPARAM], add_generation_prompt=False),
    "no_content": dict(messages=[m("user", None), {"role": "assistant"}, m("user", [])], add_generation_prompt=True),
    "images": dict(messages=[m("user", [{"type": "image"}, {"type": "text", "text": "What?"},
                                        {"type": "image_url", "image_url": {"url": "x"}}])],
                   add_generation_prompt=True),
    "documents": dict(messages=[m("user", "Who?")], documents=[{"title": "T", "text": "It was me."}],
                      add_generation_prompt=True),
    "plain": dict(messages=[m("user", "Hi"), m("assistant", "Ho"), m("user", "Hm")], add_generation_prompt=True, tools=[],
                  documents=[],
                  date_string="26 Jul 2024"),
    "no_messages": dict(messages=[], add_generation_prompt=True),
}


# Transformers says none where there are no tools or documents; these conversations leave the names undefined.
BARE = ["user", "multi_turn", "tools"]


def main():
    folder = pathlib.Path(sys.argv[1])
    target = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else pathlib.Path(__file__).parent
    for name, variables in CONVERSATIONS.items():
        if name not in BARE:
            variables = {"tools": None, "documents": None, **variables}
        variables = {"bos_token": "<s>", "eos_token": "</s>", **variables}
        expected = {t.stem: oracle.render(t.read_text(encoding="utf-8"), variables) for t in sorted(folder.glob("*.jinja"))}
        with open(target / f"{name}.json", "w", encoding="utf-8", newline="\n") as f:
            json.dump({"variables": variables, "expected": expected}, f, ensure_ascii=False, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
