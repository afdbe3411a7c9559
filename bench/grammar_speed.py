#!/usr/bin/env python3
"""Tokens/s under JSON schemas against no constraint, runs in alternation, medians.

usage: grammar_speed.py -m MODEL.gguf [--aerie build/aerie] [--schemas bench/schemas] [--specs none,ngram,auto] [--temps 0,0.8]
                        [-n 128] [-r 5] [-t 1] [--csv]

auto is the drafter head beside the model, if there is one. For each kind of speculation, temperature and schema one line:
tokens/s without and with the schema, their ratio (the median of the rounds' ratios), the share of the time that masks took, and
target passes per token of both: drafts are accepted more or less often in another text, which is not a cost of the grammar.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

PROMPTS = ["Describe an invented person.", "Tell me about a company in Paris.", "List some films that I should see.",
           "Write about a scientist of the 19th century.", "Describe your favourite city.",
           "Which books are good for children?"]


def run(args, spec, temperature, schema):
    command = [args.aerie, "run", "-m", args.model, "-t", str(args.threads), "-n", str(args.n), "--temp", temperature, "-s",
               "7",
               "--spec-type", spec, "--json", "-q"]
    for prompt in PROMPTS:
        command += ["-p", prompt]
    if schema:
        command += ["-jf", str(schema)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(done.stderr)
    answers = json.loads(done.stdout)["answers"] if done.stdout.startswith("{") else json.loads(done.stdout)
    total = {}
    for answer in answers if isinstance(answers, list) else [answers]:
        stats = answer.get("stats", answer)
        for key in ("n_generated", "n_passes", "decode_seconds", "mask_seconds"):
            total[key] = total.get(key, 0) + stats[key]
    return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--aerie", default="build/aerie")
    parser.add_argument("--schemas", default="bench/schemas")
    parser.add_argument("--specs", default="none,ngram,auto")
    parser.add_argument("--temps", default="0,0.8")
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument("-t", "--threads", type=int, default=1)
    parser.add_argument("--csv", action="store_true")
    args = parser.parse_args()
    schemas = sorted(pathlib.Path(args.schemas).glob("*.json"))
    columns = ["spec", "temp", "schema", "plain_tps", "schema_tps", "ratio", "masks_share", "plain_passes_per_token",
               "schema_passes_per_token"]
    print(",".join(columns) if args.csv else "{:6} {:5} {:10} {:>9} {:>10} {:>6} {:>11} {:>9} {:>9}".format(
        "spec", "temp", "schema", "plain t/s", "schema t/s", "ratio", "masks share", "passes/t", "passes/t"))
    for spec in args.specs.split(","):
        for temperature in args.temps.split(","):
            plain, with_schema = [], {s: [] for s in schemas}
            for _ in range(args.rounds):
                for schema in schemas:
                    plain.append(run(args, spec, temperature, None))
                    with_schema[schema].append((run(args, spec, temperature, schema), plain[-1]))
            for schema in schemas:
                rate = lambda s: s["n_generated"] / s["decode_seconds"]
                pairs = with_schema[schema]
                ratio = statistics.median(rate(a) / rate(b) for a, b in pairs)
                own = statistics.median(rate(a) for a, _ in pairs)
                share = statistics.median(a["mask_seconds"] / a["decode_seconds"] for a, _ in pairs)
                passes = [x["n_passes"] / x["n_generated"] for x in pairs[0]]
                row = [spec, temperature, schema.stem, statistics.median(map(rate, plain)), own, ratio, share, passes[1],
                       passes[0]]
                form = "{},{},{},{:.1f},{:.1f},{:.3f},{:.4f},{:.3f},{:.3f}" if args.csv else \
                    "{:6} {:5} {:10} {:9.1f} {:10.1f} {:6.2f} {:11.3f} {:9.2f} {:9.2f}"
                print(form.format(*row), flush=True)


if __name__ == "__main__":
    main()
