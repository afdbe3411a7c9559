#!/usr/bin/env python3
"""serve.py - measures what many clients get from a server at once: tokens per second, times to the first token and between
tokens.

    bench/serve.py http://127.0.0.1:8080 --clients 16 --requests 200 --prompts prompts.jsonl

Works with every server that has OpenAI's /v1/chat/completions with streams: aerie, llama.cpp's server, vLLM. Each client sends
its next request when its answer has ended. Prompts are lines of text or of JSON ({"text": ...}, {"prompt": ...} or {"messages":
[...]}), taken in turn. Between tokens means between two pieces of a stream: a server that accepts a draft may send several
tokens in one. To compare two servers, alternate short runs: other work on the machine then hits both. Needs Python 3 and
nothing else.
"""
import argparse
import asyncio
import json
import sys
import time
import urllib.parse


class Failed(Exception):
    """A sentence for the user."""


def read_prompts(path):
    """[messages]"""
    out = []
    try:
        with open(path, encoding="utf-8") as f:
            lines = [line.strip() for line in f if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"--prompts '{path}': {error}") from None
    for i, line in enumerate(lines, 1):
        if line.startswith("{"):
            try:
                item = json.loads(line)
            except ValueError as error:
                raise Failed(f"{path}, line {i} is not JSON: {error}") from None
            text = item.get("text", item.get("prompt"))
            messages = item.get("messages") or (isinstance(text, str) and [{"role": "user", "content": text}])
            if not messages:
                raise Failed(f"{path}, line {i} has neither 'text' nor 'prompt' nor 'messages'")
            out.append(messages)
        else:
            out.append([{"role": "user", "content": line}])
    if not out:
        raise Failed(f"--prompts '{path}' holds no prompt")
    return out


def percentile(values, p):
    """In milliseconds; None: there are no values."""
    values = sorted(values)
    return round(values[min(len(values) - 1, int(p / 100 * len(values)))] * 1e3, 2) if values else None


class Client:
    def __init__(self, options, prompts):
        self.o, self.prompts = options, prompts
        self.url = urllib.parse.urlsplit(options.url if "//" in options.url else "http://" + options.url)
        if self.url.scheme != "http" or not self.url.hostname:
            raise Failed(f"'{options.url}' is not an http:// address")
        self.next = 0
        self.first, self.between, self.whole, self.errors = [], [], [], []
        self.n_tokens = self.n_prompt = self.n_processed = self.n_drafted = self.n_accepted = 0
        self.knows_processed = True

    def body(self, i):
        messages = self.prompts[i % len(self.prompts)]
        if self.o.system:
            messages = [{"role": "system", "content": self.o.system}, *messages]
        body = {"messages": messages, "stream": True, "stream_options": {"include_usage": True},
                "max_tokens": self.o.max_tokens,
                "temperature": self.o.temperature, "seed": i}
        if self.o.model:
            body["model"] = self.o.model
        if self.o.ignore_eos:
            body["ignore_eos"] = True
        return json.dumps(body).encode()

    async def events(self, reader):
        """Data of server-sent events; the body may come in chunks of HTTP or until the end."""
        status = await reader.readline()
        chunked, length = False, None
        while (line := (await reader.readline()).strip().lower()):
            chunked = chunked or (line.startswith(b"transfer-encoding:") and b"chunked" in line)
            if line.startswith(b"content-length:"):
                length = int(line[15:])
        if b" 200" not in status:
            rest = await reader.read(length if length is not None else 1000)
            raise Failed(f"{status.decode('latin-1').strip()}: {rest.decode('utf-8', 'replace').strip()[:300]}")
        held = b""
        while True:
            if chunked:
                size = int((await reader.readline()).split(b";")[0] or b"0", 16)
                part = await reader.readexactly(size) if size else b""
                await reader.readline()
            else:
                part = await reader.read(65536)
            if not part:
                return
            *lines, held = (held + part).split(b"\n")
            for line in lines:
                if line.startswith(b"data: ") and line[6:].strip() != b"[DONE]":
                    yield json.loads(line[6:])

    async def ask(self, i):
        body = self.body(i)
        head = [f"POST {self.url.path.rstrip('/')}/v1/chat/completions HTTP/1.1", f"Host: {self.url.netloc}",
                "Connection: close",
                "Content-Type: application/json", f"Content-Length: {len(body)}"]
        if self.o.api_key:
            head.append(f"Authorization: Bearer {self.o.api_key}")
        start = time.monotonic()
        reader, writer = await asyncio.open_connection(self.url.hostname, self.url.port or 80)
        last = usage = timings = None
        try:
            writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + body)
            await writer.drain()
            async for event in self.events(reader):
                if "error" in event:
                    raise Failed(str(event["error"]))
                now = time.monotonic()
                if any(c.get("delta", {}).get("content") or c.get("delta", {}).get("reasoning_content")
                       for c in event["choices"]):
                    (self.first if last is None else self.between).append(now - (start if last is None else last))
                    last = now
                usage = event.get("usage") or usage
                timings = event.get("timings") or timings
        finally:
            writer.close()
        if not usage:
            raise Failed("the stream ended without 'usage'")
        self.whole.append(time.monotonic() - start)
        self.n_tokens += usage["completion_tokens"]
        self.n_prompt += usage["prompt_tokens"]
        self.knows_processed = self.knows_processed and timings is not None
        if timings:
            self.n_processed += timings.get("prompt_n", 0)
            self.n_drafted += timings.get("draft_n", 0)
            self.n_accepted += timings.get("draft_n_accepted", 0)

    async def work(self):
        while self.next < self.o.requests:
            i = self.next
            self.next += 1
            try:
                await self.ask(i)
            except (OSError, ValueError, KeyError, asyncio.IncompleteReadError, Failed) as error:
                self.errors.append(f"request {i}: {error if isinstance(error, Failed) else repr(error)}")

    async def run(self):
        start = time.monotonic()
        await asyncio.gather(*(self.work() for _ in range(self.o.clients)))
        return time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0],
                                     epilog="The figures are for one run on one machine.")
    parser.add_argument("url", help="such as http://127.0.0.1:8080")
    parser.add_argument("--clients", type=int, default=4, help="requests at once (4)")
    parser.add_argument("--requests", type=int, default=50, help="requests in all (50)")
    parser.add_argument("--prompts", required=True, help="a file with a prompt a line, as text or JSON")
    parser.add_argument("--system-file", help="a system prompt that all requests begin with")
    parser.add_argument("--max-tokens", type=int, default=64, help="tokens of an answer, at most (64)")
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--ignore-eos", action="store_true", help="answers of full length, where the server knows ignore_eos")
    parser.add_argument("--model", help="the request's model")
    parser.add_argument("--api-key")
    parser.add_argument("--json", action="store_true", help="the figures as one line of JSON")
    o = parser.parse_args()
    if min(o.clients, o.requests, o.max_tokens) < 1:
        parser.error("--clients, --requests and --max-tokens are at least 1")
    try:
        o.system = None
        if o.system_file:
            with open(o.system_file, encoding="utf-8") as f:
                o.system = f.read()
        client = Client(o, read_prompts(o.prompts))
    except (Failed, OSError, UnicodeDecodeError) as error:
        sys.exit(f"serve.py: {error}")
    seconds = asyncio.run(client.run())
    times = {name: {f"p{p}": percentile(values, p) for p in (50, 95, 99)}
             for name, values in (("first_token_ms", client.first), ("between_tokens_ms", client.between),
                                  ("answer_ms", client.whole))}
    out = {"clients": o.clients, "answers": len(client.whole), "errors": len(client.errors), "seconds": round(seconds, 3),
           "tokens": client.n_tokens, "tokens_per_second": round(client.n_tokens / seconds, 2),
           "prompt_tokens": client.n_prompt,
           "prompt_tokens_processed": client.n_processed if client.knows_processed and client.whole else None,
           "drafted": client.n_drafted, "accepted": client.n_accepted, **times}
    if o.json:
        print(json.dumps(out))
    else:
        for name, value in out.items():
            print(f"{name.replace('_', ' '):24}", "  ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict)
                  else value)
    for error in client.errors[:5]:
        print(f"serve.py: {error}", file=sys.stderr)
    sys.exit(1 if client.errors else 0)


if __name__ == "__main__":
    main()
