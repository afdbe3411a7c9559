#!/usr/bin/env python3
"""peers.py - aerie and other engines side by side: the same file, in turn, several times; medians and ratios.

    bench/peers.py -m model.gguf --peer llama.cpp=/path/to/llama-bench --peer ik='/path/to/ik/llama-bench -rtr 1'
    bench/peers.py -m model.gguf --peer ... --verify        T(n), a pass over n rows, for n = 1..64

A peer is a program with llama-bench's options (-m -p -n -t -r -o json), given with any options of its own and, before the
path, any VARIABLE=value of its environment. It builds nothing. Clocks and bandwidth of shared machines move by a third
within minutes, so every round runs every engine once (A B C, A B C, ...) and the ratios are of medians.
Needs Python 3 and nothing else.
"""
import argparse
import csv
import datetime
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys


def fail(text):
    print(f"peers.py: {text}", file=sys.stderr)
    sys.exit(1)


def run(command, extra):
    words = shlex.split(command)
    environment = dict(os.environ)
    while words and "=" in words[0] and "/" not in words[0].split("=", 1)[0]:
        name, value = words.pop(0).split("=", 1)
        environment[name] = value
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


def aerie_speed(options, model):
    out = run(options.aerie, ["bench", "speed", "-m", model, "-p", str(options.prompt), "-n", str(options.decode), "-t",
                              str(options.threads), "-r", "3", "--json"])
    return {test["test"]: test["median"] for test in out["tests"]}


def aerie_verify(options, model):
    rows = ",".join(str(n) for n in options.rows)
    out = run(options.aerie, ["bench", "verify", "-m", model, "-n", rows, "-t", str(options.threads), "-r", "5", "--json"])
    figures = {f"T({p['n']})": p["ms"] for p in out["passes"]}
    figures["GB/s"] = out["bandwidth_gbs"]
    return figures


def peer_speed(options, command, model):
    out = run(command, ["-m", model, "-p", str(options.prompt), "-n", str(options.decode), "-t", str(options.threads), "-r", "3",
                        "-o", "json"])
    return {("decode" if test["n_gen"] else "prefill"): statistics.median(test["samples_ts"]) for test in out}


def peer_verify(options, command, model):
    rows = ",".join(str(n) for n in options.rows)
    out = run(command, ["-m", model, "-p", rows, "-n", "0", "-t", str(options.threads), "-r", "5", "-o", "json"])
    return {f"T({test['n_prompt']})": statistics.median(test["samples_ns"]) / 1e6 for test in out}


def measure(options, model):
    """{engine: {figure: [one value a round]}}"""
    engines = [("aerie", None)] + options.peers
    results = {name: {} for name, _ in engines}
    for i in range(options.rounds):
        for name, command in engines:
            print(f"peers.py: {os.path.basename(model)}, round {i + 1}/{options.rounds}, {name}", file=sys.stderr)
            if command is None:
                figures = (aerie_verify if options.verify else aerie_speed)(options, model)
            else:
                figures = (peer_verify if options.verify else peer_speed)(options, command, model)
            for figure, value in figures.items():
                results[name].setdefault(figure, []).append(value)
    return results


def table(options, model, medians):
    print(f"\n{model}, {options.threads} threads, medians of {options.rounds} rounds")
    figures = [f for f in medians["aerie"] if f != "GB/s"]
    unit = "ms" if options.verify else "tokens/s"
    print(f"{unit:18}" + "".join(f"{f:>10}" for f in figures))
    for name, values in medians.items():
        print(f"{name:18}" + "".join(f"{values[f]:10.2f}" if f in values else f"{'-':>10}" for f in figures))
    for name, values in medians.items():
        if options.verify:
            print(f"{name + ' T(n)/T(1)':18}" + "".join(f"{values[f] / values['T(1)']:10.2f}" if f in values else f"{'-':>10}" for f in figures))
        elif name != "aerie":
            print(f"{'aerie / ' + name:18}" + "".join(f"{medians['aerie'][f] / values[f]:10.2f}" if f in values else f"{'-':>10}" for f in figures))
    if "GB/s" in medians["aerie"]:
        print(f"read bandwidth measured by aerie: {medians['aerie']['GB/s']:.1f} GB/s")


def machine():
    for line in open("/proc/cpuinfo", encoding="utf-8", errors="replace") if os.path.exists("/proc/cpuinfo") else []:
        if line.startswith("model name"):
            return f"{line.split(':', 1)[1].strip()}, {os.cpu_count()} cores"
    return platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", action="append", required=True, help="GGUF file; may be repeated")
    parser.add_argument("--aerie", default=os.path.join(os.path.dirname(__file__), "..", "build", "aerie"), help="the program (build/aerie)")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND", help="may be repeated")
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    parser.add_argument("-r", "--rounds", type=int, default=3)
    parser.add_argument("-p", "--prompt", type=int, default=512, help="tokens of prefill (512)")
    parser.add_argument("-n", "--decode", type=int, default=128, help="tokens of decode (128)")
    parser.add_argument("--verify", action="store_true", help="T(n) instead of tokens per second")
    parser.add_argument("--rows", default="1,2,4,8,16,32,64", help="n of T(n)")
    parser.add_argument("--json", metavar="FILE", help="all figures")
    parser.add_argument("--csv", metavar="FILE", help="medians: date, machine, model, engine, figure, value")
    options = parser.parse_args()
    try:
        options.rows = [int(n) for n in options.rows.split(",")]
        options.peers = [tuple(p.split("=", 1)) for p in options.peer]
        assert all(len(p) == 2 for p in options.peers)
    except (ValueError, AssertionError):
        parser.error("--rows takes numbers with commas, --peer takes NAME=COMMAND")
    everything, rows = {}, []
    date = datetime.date.today().isoformat()
    for model in options.model:
        results = measure(options, model)
        medians = {name: {f: statistics.median(v) for f, v in figures.items()} for name, figures in results.items()}
        table(options, model, medians)
        everything[model] = results
        for name, figures in medians.items():
            rows += [[date, machine(), os.path.basename(model), name, f, f"{v:.4g}"] for f, v in figures.items()]
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump({"date": date, "machine": machine(), "threads": options.threads, "results": everything}, out, indent=1)
    if options.csv:
        with open(options.csv, "w", encoding="utf-8", newline="") as out:
            csv.writer(out).writerows([["date", "machine", "model", "engine", "figure", "value"]] + rows)


if __name__ == "__main__":
    main()
