#!/usr/bin/env python3
"""peers.py - aerie and other engines side by side: the same file, in turn, several times; medians and ratios.

    bench/peers.py -m model.gguf --peer llama.cpp=/path/to/llama-bench --peer ik='/path/to/ik/llama-bench -rtr 1'
    bench/peers.py -m model.gguf --peer ... --verify        T(n), a pass over n rows, for n = 1..64, and prefill
    bench/peers.py -m model.gguf --levels avx2,avx512,amx   kernel levels of aerie against each other, like engines
    bench/peers.py -m model.gguf --spec --peer llama.cpp=/path/to/its/bin --head eagle3.gguf --ours='-md head.gguf'
                                                            speculation, on the prompts of bench/prompts (peers_spec.py)

bench/plot.py makes tables and plots of --csv FILE. A peer is a program with llama-bench's options (-m -p -n -t -r -o json),
given with any options of its own and, before the path, any VARIABLE=value of its environment; with --spec it is the folder of
llama-server, which measures speculation. It builds nothing. Clocks and
bandwidth of shared machines change by a third within minutes, so every round runs every engine once (A B C, A B C, ...) and
the ratios are of medians.
Needs only Python 3.
"""
import argparse
import csv
import datetime
import json
import os
import platform
import shlex
import signal
import statistics
import subprocess
import sys

import peers_spec

COLUMNS = ["date", "machine", "threads", "model", "engine", "figure", "context", "n", "value", "unit", "min", "max", "rounds"]


def fail(text):
    print(f"peers.py: {text}", file=sys.stderr)
    sys.exit(1)


def split(command):
    """(words, environment) of [VARIABLE=value ...] word ..."""
    words = shlex.split(command)
    environment = dict(os.environ)
    while words and "=" in words[0] and "/" not in words[0].split("=", 1)[0]:
        name, value = words.pop(0).split("=", 1)
        environment[name] = value
    return words, environment


def run(command, extra):
    words, environment = split(command)
    try:
        done = subprocess.run(words + extra, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except OSError as error:
        fail(f"{words[0] if words else command}: {error.strerror}")
    if done.returncode:
        fail(f"'{' '.join(words + extra)}' ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    try:
        return json.loads(done.stdout)
    except ValueError:
        fail(f"'{' '.join(words)}' printed no JSON")


def aerie_speed(options, level, model):
    out = run(options.aerie, ["bench", "speed", "-m", model, "-p", str(options.prompt), "-n", str(options.decode), "-t",
                              str(options.threads), "-r", str(options.repetitions), "--json"] + level)
    return {test["test"]: (test["test"], 0, test["n"], test["median"]) for test in out["tests"]}


def label(n, context):
    return f"T({n})" + (f"@{context}" if context else "")


def aerie_verify(options, level, model):
    out = run(options.aerie, ["bench", "verify", "-m", model, "-n", listed(options.rows), "-p", str(options.prompt),
                              "--contexts",
                              listed(options.contexts), "-t", str(options.threads), "-r", str(options.repetitions),
                              "--json"] + level)
    figures = {label(p["n"], p["context"]): ("pass", p["context"], p["n"], p["ms"]) for p in out["passes"] + out["prefill"]}
    figures["GB/s"] = ("reading", 0, 0, out["bandwidth_gbs"])
    figures["pass GB"] = ("weights", 0, 0, out["pass_bytes"] / 1e9)
    return figures


def peer_speed(options, command, model):
    out = run(command, ["-m", model, "-p", str(options.prompt), "-n", str(options.decode), "-t", str(options.threads), "-r",
                        str(options.repetitions), "-o", "json"])
    return {name: (name, 0, test["n_gen"] or test["n_prompt"], statistics.median(test["samples_ts"]))
            for test in out for name in ["decode" if test["n_gen"] else "prefill"]}


def peer_verify(options, command, model):
    rows = options.rows + ([options.prompt] if options.prompt else [])
    depths = ["-d", listed(options.contexts)] if options.contexts != [0] else []  # not all have it
    out = run(command, ["-m", model, "-p", listed(rows), "-n", "0", "-t", str(options.threads), "-r", str(options.repetitions),
                        "-o", "json"] + depths)
    return {label(test["n_prompt"], test.get("n_depth", 0)):
            ("pass", test.get("n_depth", 0), test["n_prompt"], statistics.median(test["samples_ns"]) / 1e6) for test in out}


def listed(numbers):
    return ",".join(str(n) for n in numbers)


def engines(options):
    """[(name, function, its argument)]; every level of aerie is one"""
    ours, theirs = (aerie_verify, peer_verify) if options.verify else (aerie_speed, peer_speed)
    found = [(f"aerie {level}", ours, ["--cpu", level]) for level in options.levels] or [("aerie", ours, [])]
    return found + [(name, theirs, command) for name, command in options.peers]


def measure(options, model):
    """{engine: {figure: (kind, context, n, [one value a round])}}"""
    results = {name: {} for name, _, _ in engines(options)}
    for i in range(options.rounds):
        for name, function, argument in engines(options):
            print(f"peers.py: {os.path.basename(model)}, round {i + 1}/{options.rounds}, {name}", file=sys.stderr)
            for figure, (kind, context, n, value) in function(options, argument, model).items():
                results[name].setdefault(figure, (kind, context, n, []))[3].append(value)
    return results


def table(options, model, medians):
    print(f"\n{model}, {options.threads} threads, medians of {options.rounds} rounds")
    first = next(iter(medians))
    figures = [f for f in medians[first] if f not in ("GB/s", "pass GB")]
    row = lambda name, value: print(f"{name:24}" + "".join(f"{value(f):10.2f}" if value(f) else f"{'-':>10}" for f in figures))
    print(f"{'ms' if options.verify else 'tokens/s':24}" + "".join(f"{f:>10}" for f in figures))
    for name, values in medians.items():
        row(name, values.get)
    for name, values in medians.items():
        if options.verify and values.get("T(1)"):
            row(f"{name}, T(n)/T(1)", lambda f: f in values and values[f] / values["T(1)"])
        elif not options.verify and name != first:
            row(f"{first} / {name}", lambda f: f in values and medians[first][f] / values[f])
    for name, values in medians.items():
        if "GB/s" in values:
            print(f"{name} measured {values['GB/s']:.1f} GB/s of reading")


def machine():
    for line in open("/proc/cpuinfo", encoding="utf-8", errors="replace") if os.path.exists("/proc/cpuinfo") else []:
        if line.startswith("model name"):
            return f"{line.split(':', 1)[1].strip()}, {os.cpu_count()} cores"
    return platform.machine()


def add_spec_options(parser):
    spec = parser.add_argument_group("--spec", "aerie bench spec and llama-server's speculation on the same prompts")
    spec.add_argument("--spec", action="store_true", help="speculation instead of tokens per second of plain decoding")
    prompts = os.path.join(os.path.dirname(__file__), "prompts")
    spec.add_argument("--prompts", default=prompts, help="folder of groups (bench/prompts)")
    spec.add_argument("--groups", default="", help="only these, with commas")
    spec.add_argument("--held-out", default="only", choices=["only", "all", "no"], help="held out of training (only)")
    spec.add_argument("--per-group", type=int, default=0, help="prompts of a group at most; 0: all")
    spec.add_argument("--temps", default="0,1", help="temperatures (0,1)")
    spec.add_argument("-s", "--seed", type=int, default=1)
    spec.add_argument("--head", help="EAGLE-3 head for the peers (GGUF)")
    spec.add_argument("--draft-n", default="1,2,3,5,8", help="tokens drafted ahead by the peers (1,2,3,5,8): each is tried")
    spec.add_argument("--config", action="append", default=[], metavar="NAME=OPTIONS", help="more of them; may be repeated")
    spec.add_argument("--ours", default="", help="more options of aerie bench spec: -md, --spec-types, ...")
    spec.add_argument("-c", "--context-size", type=int, default=2048, help="of llama-server (2048)")


def settle_spec(parser, options):
    try:
        options.temps = [float(t) for t in options.temps.split(",")]
        options.draft_n = [int(n) for n in options.draft_n.split(",")]
        options.configurations = [(name, shlex.split(words)) for name, words in (c.split("=", 1) for c in options.config)]
        options.ours = shlex.split(options.ours)
    except ValueError:
        parser.error("--temps and --draft-n take numbers with commas, --config takes NAME=OPTIONS")
    peers = [(name, split(command)) for name, command in options.peers]
    options.peers = [(name, (words[0], environment)) for name, (words, environment) in peers if len(words) == 1]
    if len(options.peers) < len(peers):
        parser.error("with --spec a peer is a folder: --peer 'NAME=[VARIABLE=value ...] FOLDER'")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", action="append", required=True, help="GGUF file; may be repeated")
    parser.add_argument("--aerie", default=os.path.join(os.path.dirname(__file__), "..", "build", "aerie"),
                        help="the program (build/aerie)")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND", help="may be repeated")
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    parser.add_argument("-r", "--rounds", type=int, default=3)
    parser.add_argument("--repetitions", type=int, default=3, help="inside a round, by every engine itself (3)")
    parser.add_argument("--levels", default="",
                        help="kernel levels of aerie, with commas: each is an engine; default: the best")
    parser.add_argument("-p", "--prompt", type=int, default=512, help="tokens of prefill (512)")
    parser.add_argument("-n", "--decode", type=int, default=128, help="tokens of decode (128)")
    parser.add_argument("--verify", action="store_true", help="T(n) instead of tokens per second")
    parser.add_argument("--rows", default="1,2,4,8,16,32,64", help="n of T(n)")
    parser.add_argument("--contexts", default="0", help="cached positions before --verify's rows; over 0 peers need -d")
    parser.add_argument("--json", metavar="FILE", help="all figures")
    parser.add_argument("--csv", metavar="FILE", help="medians, what bench/plot.py reads (but with --spec)")
    add_spec_options(parser)
    options = parser.parse_args()
    try:
        options.rows = [int(n) for n in options.rows.split(",")]
        options.contexts = [int(n) for n in options.contexts.split(",")]
        options.levels = [level for level in options.levels.split(",") if level]
        options.peers = [tuple(p.split("=", 1)) for p in options.peer]
        assert all(len(p) == 2 for p in options.peers)
    except (ValueError, AssertionError):
        parser.error("--rows and --contexts take numbers with commas, --peer takes NAME=COMMAND")
    everything, rows = {}, []
    date = datetime.date.today().isoformat()
    if options.spec:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no server is left behind
        settle_spec(parser, options)
        peers_spec.main(options, date, machine(), fail)
        return
    for model in options.model:
        results = measure(options, model)
        medians = {name: {f: statistics.median(v[3]) for f, v in figures.items()} for name, figures in results.items()}
        table(options, model, medians)
        everything[os.path.basename(model)] = {name: {f: v[3] for f, v in figures.items()} for name, figures in results.items()}
        unit = {"pass": "ms", "reading": "GB/s", "weights": "GB"}
        for name, figures in results.items():
            rows += [[date, machine(), options.threads, os.path.basename(model), name, kind, context, n,
                      f"{medians[name][f]:.5g}",
                      unit.get(kind, "tokens/s"), f"{min(v):.5g}", f"{max(v):.5g}", len(v)] for f,
                     (kind, context, n, v) in figures.items()]
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump({"date": date, "machine": machine(), "threads": options.threads, "results": everything}, out, indent=1)
    if options.csv:
        with open(options.csv, "w", encoding="utf-8", newline="") as out:
            csv.writer(out).writerows([COLUMNS] + rows)


if __name__ == "__main__":
    main()
