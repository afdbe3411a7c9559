#!/usr/bin/env python3
"""full_shapes.py - models of full width and few layers, aerie and llama.cpp in turn on the same file: decode, prefill, T(n).

    bench/full_shapes.py --llama-bench /path/to/llama-bench [--folder /dev/shm] [--minutes 15] [NAME[:LAYERS]...]

Writes each shape (build/tests/mkarch --shape) with random Q4_0 weights and its first LAYERS layers, as many as let the file and
what an engine makes of it lie in 24 GiB together, measures, and removes the file. A round runs aerie, then llama-bench; ratios
are of medians over the rounds. Before a shape is begun that would not be done in time, it says so and stops; a shape that an
engine refuses is named, and the others go on. Prints a table of Markdown.
Needs only Python 3.
"""
import argparse
import glob
import os
import signal
import statistics
import subprocess
import sys
import time

import peers

# layers of each: a file of some 2 to 7 GiB, with a layer of every kind
SHAPES = {"deepseek-v4-flash": 2, "glm-5": 2, "kimi-linear-48b": 4, "minimax-m3": 2, "qwen3-vl-30b-a3b": 10,
          "mistral-small-4": 2, "hunyuan-3": 2, "ling-3-flash": 6, "trinity-mini": 8, "falcon-h1-7b": 22}
ROWS = [1, 4, 8]
HEAD = ["model", "layers", "GiB", "decode t/s", "llama.cpp", "ratio", "prefill t/s", "llama.cpp", "ratio", "T(4)/T(1)",
        "llama.cpp", "T(8)/T(1)", "llama.cpp"]


def ours(options, model):
    """{figure: value} of one run: tokens/s of decode and prefill, milliseconds of passes"""
    speed = peers.aerie_speed(options, [], model)
    passes = peers.aerie_verify(options, [], model)
    return {**{name: speed[name][3] for name in ("decode", "prefill")}, **{n: passes[f"T({n})"][3] for n in ROWS}}


def theirs(options, model):
    prompts = [options.prompt] + ROWS
    tests = peers.run(options.llama_bench, ["-m", model, "-p", peers.listed(prompts), "-n", str(options.decode), "-t",
                                            str(options.threads), "-r", str(options.repetitions), "-o", "json"])
    found = {}
    for test in tests:
        if test["n_gen"]:
            found["decode"] = statistics.median(test["samples_ts"])
        elif test["n_prompt"] == options.prompt:
            found["prefill"] = statistics.median(test["samples_ts"])
        else:
            found[test["n_prompt"]] = statistics.median(test["samples_ns"]) / 1e6
    return found


def measure(options, model):
    """The medians of both engines."""
    runs = {ours: [], theirs: []}
    for _ in range(options.rounds):
        for engine, figures in runs.items():
            figures.append(engine(options, model))
    return [{name: statistics.median(run[name] for run in figures) for name in figures[0]} for figures in runs.values()]


def row(name, layers, model, own, peer):
    cells = [name, str(layers), f"{os.path.getsize(model) / 2**30:.1f}"]
    for figure in ("decode", "prefill"):
        cells += [f"{own[figure]:.1f}", f"{peer[figure]:.1f}", f"{own[figure] / peer[figure]:.2f}"]
    for n in ROWS[1:]:
        cells += [f"{figures[n] / figures[1]:.2f}" for figures in (own, peer)]
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--llama-bench", required=True)
    build = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build")
    parser.add_argument("--aerie", default=os.path.join(build, "aerie"))
    parser.add_argument("--mkarch", default=os.path.join(build, "tests", "mkarch"))
    parser.add_argument("--folder", default="/dev/shm", help="for one file at a time (/dev/shm)")
    parser.add_argument("--type", default="q4_0")
    parser.add_argument("--minutes", type=float, default=15, help="for all (15)")
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    parser.add_argument("-r", "--rounds", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=3, help="inside a round (3)")
    parser.add_argument("-p", "--prompt", type=int, default=128)
    parser.add_argument("-n", "--decode", type=int, default=16)
    parser.add_argument("names", nargs="*", metavar="NAME[:LAYERS]", help="default: " + " ".join(SHAPES))
    options = parser.parse_args()
    options.rows, options.contexts = ROWS, [0]
    if options.prompt in ROWS:
        parser.error(f"-p {options.prompt} is one of the passes that T(n) is of; another number is needed")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    begun, longest = time.monotonic(), 0.0
    print(f"{options.threads} threads, {options.type}, prompts of {options.prompt}, {options.decode} tokens, medians of "
          f"{options.rounds} rounds of {options.repetitions}\n")
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD), flush=True)
    for word in options.names or SHAPES:
        name, _, layers = word.partition(":")
        layers = int(layers or SHAPES.get(name, 2))
        at, model = time.monotonic(), os.path.join(options.folder, f"{name}-{os.getpid()}.gguf")
        if at - begun + longest > 60 * options.minutes:
            print(f"{name} and those after it: no time left", file=sys.stderr)
            return 1
        try:
            how = ["--shape", name, "--type", options.type, "--layers", str(layers)]
            subprocess.run([options.mkarch] + how + [model], check=True)
            print(row(name, layers, model, *measure(options, model)), flush=True)
        except (SystemExit, subprocess.CalledProcessError, KeyError) as wrong:  # peers.py has printed the reason
            print(f"{name}: not measured ({wrong!r})", file=sys.stderr)
        finally:
            for left in glob.glob(model + "*"):  # incomplete files have longer names
                os.remove(left)
        longest = max(longest, time.monotonic() - at)
    return 0


if __name__ == "__main__":
    sys.exit(main())
