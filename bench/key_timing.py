#!/usr/bin/env python3
"""key_timing.py - tests whether the time to the first token reveals to one API key what another key has sent.

    bench/key_timing.py --trials 1000 -- build/aerie serve -m model.gguf -np 2 --api-key alice,bob --port {port}
    bench/key_timing.py --trials 50 --control -- build/aerie serve ... --prefix-scope all --port {port}

Starts the command after --, a server with /health and /completion and the keys alice and bob. In a trial alice sends
a prompt of random tokens. Then bob sends two prompts of that length, in random order: alice's, and one that nobody
has sent. Their times from the request to the first event of the stream are compared over all trials: Mann-Whitney's
U, Kolmogorov and Smirnov's D, and a sign test of the pairs, each with its two-sided p. A time that told nothing gives
p that are even between 0 and 1, and a chance of 0.5 that a known prompt is answered faster. --control: the server
shares prefixes among its keys, and the tests must see that; exit status 1 if they do not. Without it the status is 0
whatever p is: one p below a limit is what chance gives now and then. Needs only Python 3.
"""
import argparse
import http.client
import json
import math
import random
import signal
import statistics
import sys
import time

from conversations import Failed, Server


def first_event(port, key, tokens):
    """Milliseconds from the request to the first event of its stream."""
    body = json.dumps({"prompt": tokens, "n_predict": 1, "temperature": 0, "ignore_eos": True, "stream": True})
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    begun = time.perf_counter()
    c.request("POST", "/completion", body, {"Content-Type": "application/json", "Authorization": f"Bearer {key}"})
    answer = c.getresponse()
    line = answer.readline()
    taken = 1000 * (time.perf_counter() - begun)
    if answer.status != 200:
        raise Failed(f"the server answers {answer.status}: {(line + answer.read()).decode(errors='replace')[:300]}")
    answer.read()
    c.close()
    return taken


def two_sided(z):
    return math.erfc(abs(z) / math.sqrt(2))


def mann_whitney(x, y):
    """(chance that x is less, p), by the normal approximation with ties."""
    every = sorted([(v, 0) for v in x] + [(v, 1) for v in y])
    ranks, ties, i = 0.0, 0, 0
    while i < len(every):
        j = i
        while j < len(every) and every[j][0] == every[i][0]:
            j += 1
        ranks += (i + j + 1) / 2 * sum(who == 0 for _, who in every[i:j])
        ties += (j - i) ** 3 - (j - i)
        i = j
    n, m = len(x), len(y)
    u = ranks - n * (n + 1) / 2  # pairs in which x is more, ties count half
    variance = n * m / 12 * (n + m + 1 - ties / ((n + m) * (n + m - 1)))
    return 1 - u / (n * m), two_sided((u - n * m / 2) / math.sqrt(variance)) if variance > 0 else 1.0


def kolmogorov_smirnov(x, y):
    """(D, p), p by the limit distribution."""
    x, y, d, i, j = sorted(x), sorted(y), 0.0, 0, 0
    while i < len(x) and j < len(y):
        v = min(x[i], y[j])
        while i < len(x) and x[i] == v:
            i += 1
        while j < len(y) and y[j] == v:
            j += 1
        d = max(d, abs(i / len(x) - j / len(y)))
    n = math.sqrt(len(x) * len(y) / (len(x) + len(y)))
    t = (n + 0.12 + 0.11 / n) * d
    p = 2 * sum((-1) ** (k - 1) * math.exp(-2 * k * k * t * t) for k in range(1, 101)) if t > 0.2 else 1.0
    return d, min(1.0, max(0.0, p))


def signs(x, y):
    """(share of pairs in which x is less, p)"""
    less, more = sum(a < b for a, b in zip(x, y)), sum(a > b for a, b in zip(x, y))
    n = less + more
    return (less / n, two_sided((less - more) / math.sqrt(n))) if n else (0.5, 1.0)


def play(options):
    rng = random.Random(options.seed)
    taken = {"known": [], "unknown": []}
    server = Server(options.command, options.limit)
    try:
        for _ in range(options.trials):
            prompts = {who: [rng.randrange(options.first, options.vocab) for _ in range(options.tokens)] for who in taken}
            first_event(server.port, "alice", prompts["known"])
            order = list(taken)
            rng.shuffle(order)
            for who in order:
                taken[who].append(first_event(server.port, "bob", prompts[who]))
    finally:
        server.end(signal.SIGTERM)
    known, unknown = taken["known"], taken["unknown"]
    less, p = mann_whitney(known, unknown)
    d, p_d = kolmogorov_smirnov(known, unknown)
    pairs, p_pairs = signs(known, unknown)
    figures = {"trials": options.trials, "tokens": options.tokens}
    for who, ms in taken.items():
        cuts = statistics.quantiles(ms, n=20)
        figures[f"{who}_ms"] = {"median": round(cuts[9], 3), "p5": round(cuts[0], 3), "p95": round(cuts[18], 3)}
    figures["mann_whitney"] = {"known_faster": round(less, 4), "p": float(f"{p:.3g}")}
    figures["kolmogorov_smirnov"] = {"d": round(d, 4), "p": float(f"{p_d:.3g}")}
    figures["signs"] = {"known_faster": round(pairs, 4), "p": float(f"{p_pairs:.3g}")}
    return figures


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--trials", type=int, default=1000, help="(default 1000)")
    p.add_argument("--tokens", type=int, default=200, help="tokens of a prompt (default 200)")
    p.add_argument("--first", type=int, default=1000, help="lowest id of a random token (default 1000)")
    p.add_argument("--vocab", type=int, default=40000, help="random ids are below this (default 40000)")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--limit", type=float, default=300, help="seconds in which the server must be ready (default 300)")
    p.add_argument("--control", action="store_true", help="the tests must see a difference")
    p.add_argument("command", nargs="+", metavar="-- COMMAND", help="that starts the server; {port} stands for its port")
    options = p.parse_args()
    if options.trials < 10 or options.tokens < 1 or not 0 <= options.first < options.vocab:
        p.error("--trials must be at least 10, --tokens at least 1, --first below --vocab")
    try:
        figures = play(options)
    except (Failed, OSError) as error:
        sys.exit(f"key_timing.py: {error}")
    print(json.dumps(figures))
    if options.control and max(figures[name]["p"] for name in ("mann_whitney", "kolmogorov_smirnov", "signs")) > 1e-3:
        sys.exit("key_timing.py: prefixes are shared, and the times do not show it: this measurement could not see a leak")


if __name__ == "__main__":
    main()
