#!/usr/bin/env python3
"""How near the controller comes to the best fixed setting, by group of prompts.

    python3 bench/auto.py [-m MODEL] [-md HEAD] [--aerie FILE] [--np 1,4] [--temps 0,1] [--groups chat,math] [--minutes 12]

For each group of bench/prompts (held-out ones), number of sequences and temperature: speed by default (`auto`) and with
each fixed setting, over plain decoding. `aerie bench spec --in-turns` runs every setting and plain decoding pass by pass in
turns, so a ratio is of one and the same minute; groups come one after the other, and all settings of a group together. After
--minutes nothing new is started; the last line says what is missing. Exit status 1: an output differed. Owns nothing; needs
no packages.
"""
import argparse
import csv
import io
import math
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIXED = ["--spec-fixed", "--spec-types"]
WAYS = [  # name, options; 'auto' first
    ("auto", ["--spec-types", "auto"]),
    ("head, chains", [*FIXED, "draft-eagle3", "--spec-tree", "off", "--spec-draft-n-max", "1,2,3,5"]),
    ("head, trees", [*FIXED, "draft-eagle3", "--spec-tree", "static", "--spec-draft-n-max", "3,5"]),
    ("n-grams", [*FIXED, "ngram", "--spec-tree", "off", "--spec-draft-n-max", "5"]),
]


def measure(args, group, n_seqs, options):
    call = [args.aerie, "bench", "spec", "-m", args.model, "-md", args.head, "--prompts", group, "--held-out", "only",
            "--per-group", str(args.per_group), "--temps", args.temps, "-np", n_seqs, "-n", str(args.tokens), "-r", "1",
            "-s", "1", "--in-turns", "--csv", "-q", *options]
    got = subprocess.run(call, capture_output=True, text=True)
    if not got.stdout:
        raise SystemExit(f"auto.py: {' '.join(map(str, call))}\n{got.stderr}")
    rows = [r for r in csv.DictReader(io.StringIO(got.stdout)) if r["group"] != "all"]
    return rows


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("-m", "--model", default=ROOT / "models/smollm2-135m-instruct-q4_1.gguf")
    p.add_argument("-md", "--head", default=ROOT / "models/smollm2-135m-instruct-eagle3.gguf")
    p.add_argument("--aerie", default=ROOT / "build/aerie")
    p.add_argument("--np", default="1,4")
    p.add_argument("--temps", default="0,1")
    p.add_argument("--groups", default="chat,math,qa,retrieval,summary,translation")
    p.add_argument("--per-group", type=int, default=2)
    p.add_argument("-n", "--tokens", type=int, default=96)
    p.add_argument("--minutes", type=float, default=12)
    args = p.parse_args()
    begun, shares, over_plain, same, missing = time.monotonic(), [], [], True, []
    print(f"{'group':12} {'at once':>7} {'temp':>5} {'auto':>6} {'best':>6}  {'which':24} {'auto/best':>9}", flush=True)
    for group in args.groups.split(","):
        for n_seqs in args.np.split(","):
            if time.monotonic() - begun > 60 * args.minutes:
                missing.append(f"{group} with {n_seqs}")
                continue
            ratios = {}  # temperature -> [(ratio, name)]
            for name, options in WAYS:
                for r in measure(args, ROOT / f"bench/prompts/{group}.jsonl", n_seqs, options):
                    what = name if name == "auto" else f"{name}, {r['n_max']} ahead"
                    ratios.setdefault(r["temperature"], []).append((float(r["ratio"]), what))
                    same = same and r["same_bytes"] == "yes"
            for temperature, found in sorted(ratios.items()):
                own = found[0][0]
                best, which = max((1.0, "plain"), *found[1:])
                print(f"{group:12} {n_seqs:>7} {temperature:>5} {own:6.3f} {best:6.3f}  {which:24} {own / best:9.3f}",
                      flush=True)
                shares.append(own / best)
                over_plain.append(own)
    print(f"geometric means: auto {mean(over_plain):.3f} times plain decoding, {mean(shares):.3f} of the best of each line; "
          f"least {min(over_plain, default=0):.3f} and {min(shares, default=0):.3f}; {time.monotonic() - begun:.0f} s; "
          f"bytes {'the same' if same else 'DIFFER'}")
    if missing:
        print("time was over before: " + ", ".join(missing))
    sys.exit(not same)


if __name__ == "__main__":
    main()
