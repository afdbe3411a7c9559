#!/usr/bin/env python3
"""An agent's session, replayed to servers: twenty requests that share a growing context and repeat tool outputs and code.

    agent_replay.py --model MODEL.gguf --aerie AERIE [--llama LLAMA_SERVER] [--rounds N]

The prompts are the same for every server: a system text, a source file, and the turns so far (questions, tool outputs that come
again, earlier answers as scripted), so that no server's answers change what the others are asked. Requests come one after
the other at temperature 0. Servers run by turns, each started anew: aerie with n-grams that remember, aerie with n-grams of the
request alone, aerie without speculation, and llama-server with --spec-type ngram-mod and without. Prints, for each, tokens
generated per second of decoding (the servers' own timings), seconds in all, seconds of the CPU that the server took for
its answers (on a busy machine these alone can be compared), and drafts. Exit status 1 if aerie's texts differ between its ways
or rounds.
"""
import argparse
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request

CODE = '''def read_config(path):
    """Reads key = value lines; # begins a comment."""
    values = {}
    with open(path) as f:
        for number, line in enumerate(f, 1):
            line = line.split("#")[0].strip()
            if not line:
                continue
            key, sep, value = line.partition("=")
            if not sep:
                raise ValueError(f"{path}:{number}: expected key = value")
            values[key.strip()] = value.strip()
    return values
'''
TOOLS = ['$ pytest -q\n..F....\nFAILED tests/test_config.py::test_comment - ValueError: a.cfg:3: expected key = value\n'
         '1 failed, 6 passed in 0.12s\n',
         '$ git diff --stat\n config.py | 4 ++--\n tests/test_config.py | 9 +++++++++\n'
         ' 2 files changed, 11 insertions(+), 2 deletions(-)\n',
         '$ pytest -q\n.......\n7 passed in 0.11s\n']
ASKS = ["Show the file config.py again.", "Show read_config with the comment removed.", "What did the tests print?",
        "Print config.py once more, with the function named load_config."]


def prompts():
    text = "You are a coding agent. The file config.py:\n```python\n" + CODE + "```\n"
    for i in range(20):
        ask = ASKS[i % len(ASKS)]
        yield text + f"\nUser: {ask}\nAgent:"
        text += f"\nUser: {ask}\nTool:\n{TOOLS[i % len(TOOLS)]}"
        if i % 4 == 3:
            text += "Agent: done.\n"


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def post(base, body):
    request = urllib.request.Request(base + "/completion", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as a:
        return json.loads(a.read())


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime, stime


def replay(command):
    p = port()
    base = f"http://127.0.0.1:{p}"
    server = subprocess.Popen([*command, "--port", str(p)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                if urllib.request.urlopen(base + "/health", timeout=2).status == 200:
                    break
            except OSError:
                time.sleep(0.1)
        total, text = {"predicted_n": 0, "predicted_ms": 0, "prompt_ms": 0, "draft_n": 0, "draft_n_accepted": 0}, []
        start, cpu = time.time(), cpu_seconds(server.pid)
        for prompt in prompts():
            a = post(base, {"prompt": prompt, "n_predict": 96, "temperature": 0, "seed": 1, "cache_prompt": True})
            for key in total:
                total[key] += a["timings"].get(key, 0)
            text.append(a["content"])
        return total, time.time() - start, cpu_seconds(server.pid) - cpu, text
    finally:
        server.terminate()
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--aerie", required=True)
    parser.add_argument("--llama")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", default="2")
    args = parser.parse_args()
    own = [args.aerie, "serve", "-m", args.model, "-t", args.threads, "-c", "8192", "-np", "1", "-q"]
    ways = {"aerie, n-grams that remember": [*own, "--spec-type", "ngram"],
            "aerie, n-grams of the request": [*own, "--spec-type", "ngram", "--spec-ngram-memory", "0"],
            "aerie, no speculation": [*own, "--spec-type", "none"]}
    if args.llama:
        theirs = [args.llama, "-m", args.model, "-t", args.threads, "-c", "8192", "-np", "1"]
        ways |= {"llama.cpp, ngram-mod": [*theirs, "--spec-type", "ngram-mod"], "llama.cpp, no speculation": theirs}
    texts, broken = {}, False
    for r in range(args.rounds):
        for name, command in sorted(ways.items(), key=lambda w: "no spec" in w[0]):
            total, seconds, cpu, text = replay(command)
            same = texts.setdefault(name.split(",")[0], text) == text
            broken |= not same and name.startswith("aerie")
            rate = total["predicted_n"] / total["predicted_ms"] * 1000
            print(f"round {r + 1}: {name:30} {rate:7.1f} tokens/s, {seconds:6.2f} s, {cpu:5.1f} s CPU, "
                  f"{total['predicted_n']} tokens, drafted {total['draft_n']}, accepted {total['draft_n_accepted']}, "
                  f"texts {'equal' if same else 'differ'}",
                  flush=True)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
