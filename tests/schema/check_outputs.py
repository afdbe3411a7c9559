#!/usr/bin/env python3
"""Answers of a model under random schemas, at temperature 1: each that ended by itself must be JSON that fits its schema.

check_outputs.py AERIE MODEL.gguf [--outputs N] [--predict N] [--seed S] [--spec-type TYPE] [-t N]

AERIE: the program. Answers cut by their length are counted and passed over; one that ends in a dead end is a failure.
Exit status
77: no jsonschema.
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile

import check_schema
import jsonschema

PROMPTS = ["Give me an example as JSON.", "Describe something as JSON, briefly.", "x", "Fill in the form."]


def answers(args, schema, seed):
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as f:
        json.dump(schema, f)
        f.flush()
        command = [args.aerie, "run", "-m", args.model, "-jf", f.name, "--temp", "1", "--top-k", "0", "--top-p", "1",
                   "--min-p", "0",
                   "-s", str(seed), "-n", str(args.predict), "--json", "-q", "-t", str(args.threads),
                   "--spec-type", args.spec_type]
        for prompt in PROMPTS:
            command += ["-p", prompt]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    if not done.stdout.startswith("{"):
        return None, done.stderr
    return [(a["text"], a["stats"].get("stop") or a.get("stop")) for a in json.loads(done.stdout)["answers"]], done.stderr


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("aerie")
    parser.add_argument("model")
    parser.add_argument("--outputs", type=int, default=200)
    parser.add_argument("--predict", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--spec-type", default="ngram")
    parser.add_argument("-t", "--threads", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    counts = {"schemas": 0, "outputs": 0, "ended": 0, "cut": 0, "wrong": 0, "refused": 0}
    while counts["outputs"] < args.outputs:
        maker = check_schema.Maker(rng, False)
        schema = maker.root()
        got, message = answers(args, schema, rng.randrange(1 << 30))
        if got is None:
            counts["refused"] += 1
            if not any(part in message for part in check_schema.REFUSED) and "nothing satisfies" not in message:
                print(f"{json.dumps(schema)}\n  {message}")
                counts["wrong"] += 1
            continue
        counts["schemas"] += 1
        checker = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker(["date", "uuid"]))
        for text, stop in got:
            counts["outputs"] += 1
            if stop in ("length", "context"):
                counts["cut"] += 1
                continue
            counts["ended"] += 1
            try:
                good = checker.is_valid(json.loads(text))
            except ValueError:
                good = False
            if not good:
                counts["wrong"] += 1
                print(f"{json.dumps(schema)}\n  {stop}: {text!r}")
    print(counts)
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
