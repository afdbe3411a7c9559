#!/usr/bin/env python3
"""conversations.py - measures how much a server recomputes when conversations continue later.

    bench/conversations.py --n 100 --tokens 1000 -- build/aerie serve model.gguf -np 10 -c 1200 --port {port}
    bench/conversations.py --n 100 --tokens 1000 --kill -- build/aerie serve model.gguf ... --cache-disk /tmp/kept --port {port}

Starts the command after --, a server with /health and llama.cpp's /completion (aerie, llama-server), and gives it conversations
of random tokens, each once; then again in each further round, in random order, with its answer and some new tokens at the end.
Prints what the server says of its prompts: tokens in all, computed ones, and the milliseconds that they took; and a hash of all
answers, which is the same for servers that answer alike. --kill: the server is killed (SIGKILL) between two rounds and
started again; --between: a shell command that runs between two rounds, while a killed server is away, such as one that
damages its files. Needs only Python 3.
"""
import argparse
import hashlib
import json
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request


class Failed(Exception):
    """A sentence for the user."""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, command, limit):
        self.port = free_port()
        self.command = [word.replace("{port}", str(self.port)) for word in command]
        if self.command == list(command):
            raise Failed("the command has no {port}")
        try:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                            stderr=subprocess.PIPE)
        except OSError as error:
            raise Failed(f"{command[0]}: {error.strerror}") from None
        end = time.monotonic() + limit
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as answer:
                    if answer.status == 200:
                        break
            except OSError:
                pass
            if self.process.poll() is not None:
                raise Failed("the server ended: " + self.process.stderr.read().decode(errors="replace")[-500:])
            if time.monotonic() > end:
                self.process.kill()
                raise Failed(f"the server was not ready within {limit} s")
            time.sleep(0.2)
        # nobody reads the log from here on, so it must not fill a pipe
        subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=subprocess.DEVNULL)

    def complete(self, tokens, n_predict):
        body = {"prompt": tokens, "n_predict": n_predict, "temperature": 0, "ignore_eos": True, "cache_prompt": True,
                "return_tokens": True}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/completion", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise Failed(f"the server answers {error.code}: {error.read().decode(errors='replace')[:300]}") from None

    def end(self, how):
        self.process.send_signal(how)
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def play(options):
    rng = random.Random(options.seed)
    texts = [[rng.randrange(options.first, options.vocab) for _ in range(options.tokens)] for _ in range(options.n)]
    sums = []
    digest = hashlib.sha256()
    server = Server(options.command, options.limit)
    try:
        for i_round in range(options.rounds):
            order = list(range(options.n))
            if i_round:
                rng.shuffle(order)
            told = {"prompts": 0, "computed": 0, "ms": 0.0}
            start = time.monotonic()
            answers = {}
            for i in order:
                a = server.complete(texts[i], options.predict)
                told["prompts"] += len(texts[i])
                told["computed"] += a["timings"]["prompt_n"]
                told["ms"] += a["timings"]["prompt_ms"]
                answers[i] = a["tokens"]
                texts[i] = texts[i] + a["tokens"] + [rng.randrange(options.first, options.vocab) for _ in range(options.new)]
            told["seconds"] = round(time.monotonic() - start, 1)
            told["ms"] = round(told["ms"])
            sums.append(told)
            digest.update(json.dumps(sorted(answers.items())).encode())
            print(f"round {i_round}: {told['computed']} of {told['prompts']} prompt tokens computed, {told['ms']} ms, "
                  f"{told['seconds']} s in all", file=sys.stderr)
            if i_round + 1 == options.rounds:
                break
            if options.kill:
                server.end(signal.SIGKILL)
            if options.between:
                subprocess.run(options.between, shell=True, check=True, stdout=sys.stderr)
            if options.kill:
                server = Server(options.command, options.limit)
    finally:
        server.end(signal.SIGTERM)
    return {"rounds": sums, "answers": digest.hexdigest()[:16]}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--n", type=int, default=100, help="conversations (default 100)")
    p.add_argument("--tokens", type=int, default=1000, help="tokens of a first prompt (default 1000)")
    p.add_argument("--rounds", type=int, default=2, help="(default 2)")
    p.add_argument("--new", type=int, default=32, help="new tokens of each further round (default 32)")
    p.add_argument("--predict", type=int, default=8, help="tokens of an answer (default 8)")
    p.add_argument("--first", type=int, default=1000, help="lowest id of a random token (default 1000)")
    p.add_argument("--vocab", type=int, default=40000, help="random ids are below this (default 40000)")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--limit", type=float, default=300, help="seconds in which the server must be ready (default 300)")
    p.add_argument("--kill", action="store_true", help="kill the server between two rounds")
    p.add_argument("--between", metavar="COMMAND", help="a shell command that runs between two rounds")
    p.add_argument("command", nargs="+", metavar="-- COMMAND", help="that starts the server; {port} stands for its port")
    options = p.parse_args()
    for name in ("n", "tokens", "rounds", "predict"):
        if getattr(options, name) < 1:
            p.error(f"--{name} must be at least 1")
    if not 0 <= options.first < options.vocab:
        p.error("--first must be below --vocab")
    try:
        print(json.dumps(play(options)))
    except (Failed, subprocess.CalledProcessError, KeyError) as error:
        what = f"the answer has no {error}" if isinstance(error, KeyError) else error
        sys.exit(f"conversations.py: {what}")


if __name__ == "__main__":
    main()
