"""Random conversations as chat APIs take them: roles, parts, tools, calls, results, reasoning, odd and empty contents."""
import json

TEXTS = ["", " ", "Hello!", "  two words \n", "a\nb\n\nc", "naïve 日本語 😀", "<think>\nhm\n</think>\n\nSo.", "{\"x\": 1}",
         "'q' \"d\" \\ <b>&</b>", "<|im_end|>", "\t\r\n", "/no_think", "end.\n", "[TOOL_CALLS]", "</think>", "x" * 300]
NAMES = ["get_weather", "search", "now", "größe", "a_b-c"]
TYPES = ["string", "integer", "number", "boolean", "array", "object"]


def value(rng, depth=0):
    kind = rng.randrange(9 if depth < 3 else 6)
    if kind == 0:
        return rng.choice(TEXTS)
    if kind == 1:
        return rng.randrange(-1000, 1000)
    if kind == 2:
        return rng.choice([0.5, 21.5, -0.0, 1e-7, 1e16, 3.0, 0.1])
    if kind == 3:
        return rng.random() < 0.5
    if kind == 4:
        return None
    if kind == 5:
        return rng.choice(["Paris", "celsius"])
    if kind == 6:
        return [value(rng, depth + 1) for _ in range(rng.randrange(3))]
    return {rng.choice(["location", "days", "ö", "items", "a b"]): value(rng, depth + 1) for _ in range(rng.randrange(3))}


def schema(rng, depth=0):
    kind = rng.choice(TYPES if depth < 2 else TYPES[:4])
    s = {"type": kind}
    if rng.random() < 0.7:
        s["description"] = rng.choice(TEXTS)
    if rng.random() < 0.2:
        s["enum"] = ["celsius", "fahrenheit"]
    if rng.random() < 0.2:
        s["default"] = value(rng, 2)
    if rng.random() < 0.1:
        s["type"] = [kind, "null"]
    if rng.random() < 0.1:
        s["nullable"] = True
    if kind == "array" and rng.random() < 0.8:
        s["items"] = schema(rng, depth + 1)
    if kind == "object" and rng.random() < 0.8:
        s["properties"] = {rng.choice(["q", "größe", "n", "tags"]): schema(rng, depth + 1) for _ in range(rng.randrange(3))}
        if rng.random() < 0.5:
            s["required"] = list(s["properties"])[:1]
    return s


def tool(rng):
    f = {"name": rng.choice(NAMES), "description": rng.choice(TEXTS)}
    if rng.random() < 0.9:
        f["parameters"] = {"type": "object", "properties": {
            n: schema(rng) for n in rng.sample(["location", "unit", "days"], rng.randrange(4))}}
        if rng.random() < 0.6:
            f["parameters"]["required"] = list(f["parameters"]["properties"])[:2]
    if rng.random() < 0.2:
        f["return"] = {"type": "string", "description": "what"}
    if rng.random() < 0.1:
        f["strict"] = True
    return {"type": "function", "function": f}


def content(rng):
    kind = rng.random()
    if kind < 0.75:
        return rng.choice(TEXTS)
    if kind < 0.8:
        return None
    parts = []
    for _ in range(rng.randrange(1, 4)):
        part = rng.random()
        if part < 0.8:
            parts.append({"type": "text", "text": rng.choice(TEXTS)})
        elif part < 0.9:
            parts.append({"type": "image"})
        else:
            parts.append({"type": "image_url", "image_url": {"url": "data:x"}})
    return parts


def calls(rng):
    out = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        arguments = {n: value(rng) for n in rng.sample(["location", "unit", "days", "q"], rng.randrange(3))}
        if rng.random() < 0.3:
            arguments = json.dumps(arguments)
        call = {"id": "".join(rng.choice("abcdefgh123456789") for _ in range(9)), "type": "function",
                "function": {"name": rng.choice(NAMES), "arguments": arguments}}
        if rng.random() < 0.1:
            call = call["function"]
        out.append(call)
    return out


def assistant(rng, with_calls):
    m = {"role": "assistant", "content": content(rng)}
    if rng.random() < 0.1:
        del m["content"]
    if rng.random() < 0.3:
        m["reasoning_content"] = rng.choice(TEXTS)
    if rng.random() < 0.1:
        m["thinking"] = rng.choice(TEXTS)
    if with_calls:
        m["tool_calls"] = calls(rng)
    elif rng.random() < 0.1:
        m["tool_calls"] = rng.choice([[], None])
    if rng.random() < 0.05:
        m["prefix"] = True
    return m


def messages(rng):
    out = []
    if rng.random() < 0.5:
        out.append({"role": rng.choice(["system"] * 4 + ["developer"]), "content": content(rng)})
    for _ in range(rng.randrange(4)):
        out.append({"role": "user", "content": content(rng)})
        if rng.random() < 0.2:
            break
        while rng.random() < 0.4:
            m = assistant(rng, True)
            out.append(m)
            for call in m["tool_calls"]:
                if rng.random() < 0.1:
                    continue
                result = {"role": "tool", "content": content(rng)}
                if "id" in call and rng.random() < 0.8:
                    result["tool_call_id"] = call["id"]
                if rng.random() < 0.5:
                    result["name"] = call.get("function", call)["name"]
                if rng.random() < 0.05:
                    result["content"] = value(rng)
                out.append(result)
        if rng.random() < 0.8:
            out.append(assistant(rng, False))
    if rng.random() < 0.05:
        rng.shuffle(out)
    if rng.random() < 0.05:
        out.append({"role": rng.choice(["wizard", "function", "ipython", "observation"]), "content": content(rng)})
    return out


def conversation(rng):
    """The variables of a rendering, as transformers names them."""
    v = {"messages": messages(rng), "tools": None, "documents": None, "add_generation_prompt": rng.random() < 0.7,
         "bos_token": "<s>", "eos_token": "</s>"}
    if rng.random() < 0.5:
        v["tools"] = [tool(rng) for _ in range(rng.randrange(1, 4))]
    if rng.random() < 0.1:
        v["documents"] = [{"title": "T", "text": rng.choice(TEXTS)} for _ in range(2)]
    for name in ["enable_thinking", "thinking", "clear_thinking", "keep_reasoning", "preserve_thinking", "xml_tools",
                 "python_tools",
                 "custom_tools", "date_string", "reasoning_effort", "builtin_tools", "tools_in_user_message"]:
        if rng.random() < 0.15:
            texts = name in ("date_string", "reasoning_effort")
            v[name] = rng.choice(["low", "high", "26 Jul 2024"]) if texts else rng.choice([True, False])
    return v
