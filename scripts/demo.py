#!/usr/bin/env python3
"""Shows the main job on a real model: four prompts, each answered plain, with n-grams, with the drafter head kept in models/,
and with both, which is the default. Shows the answers with drafted tokens in colour (on a terminal), then
tokens per second of each way. Fails unless every way gave the same tokens.

usage: demo.py [--rounds N]     (environment: AERIE, AERIE_MODEL and AERIE_HEAD name other files than those of the build)
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import textwrap
from pathlib import Path

os.chdir(Path(__file__).resolve().parent.parent)
AERIE = os.environ.get("AERIE", "build/aerie")
MODEL = os.environ.get("AERIE_MODEL", "models/smollm2-135m-instruct-q4_1.gguf")
HEAD = os.environ.get("AERIE_HEAD", "models/smollm2-135m-instruct-eagle3.gguf")

EAGLE = ("The golden eagle lives in mountains. It builds its nest, called an aerie, on high cliffs. It weighs up to 6 "
         "kilograms, its wings span 220 centimetres, and it eats rabbits, marmots and birds.")
BEES = ("Honey bees live in colonies of up to fifty thousand animals, and nearly all of them are workers. A worker lives for "
        "about six weeks in summer. First she cleans the cells, then she feeds the larvae and builds combs from wax. Only in "
        "the last weeks of her life does she fly out to gather nectar. A bee that has found a good field of flowers dances on "
        "the comb when she returns, and the dance tells the others where to fly.")
SCHEMA = {"type": "object", "additionalProperties": False,
          "required": ["animal", "habitat", "weight_kg", "wingspan_cm", "food"],
          "properties": {"animal": {"type": "string"}, "habitat": {"type": "string"}, "weight_kg": {"type": "integer"},
                         "wingspan_cm": {"type": "integer"},
                         "food": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 4}}}
PROMPTS = [  # title, prompt, options
    ("Summary", f"Summarize the following text in one sentence.\n\n{BEES}", []),
    ("Translation", "Translate Spanish to English: Mi casa es grande y tiene un jardín.", []),
    ("Question about a text", f"{EAGLE}\n\nWhere does the golden eagle build its nest, and what is the nest called?", []),
    ("JSON by schema", f"{EAGLE}\n\nPut this into JSON.", ["--json-schema", json.dumps(SCHEMA)]),
]
WAYS = [("plain", ["--spec-type", "none"]), ("n-gram", ["--spec-type", "ngram"]),
        ("head", ["--spec-type", "draft-eagle3", "-md", HEAD, "--spec-ngram", "off"]), ("both", ["-md", HEAD])]
NAMES = [name for name, _ in WAYS]


def command(prompt, options):
    return [AERIE, "run", "-m", MODEL, "-p", prompt, "-n", "160", "--temp", "0", "--quiet", *options]


def run(arguments, **keywords):
    done = subprocess.run(arguments, stdin=subprocess.DEVNULL, **keywords)
    if done.returncode:
        sys.exit(f"{(done.stderr or b'').decode()}demo: aerie ended with status {done.returncode}")
    return done


def measure(prompt, options):
    """Returns the record that --json writes."""
    return json.loads(run(command(prompt, [*options, "--json"]), stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout)


def machine():
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return "this machine"
    return name


def show(color):
    """Prints the answers as the program writes them to a terminal or a file."""
    bold, dim, plain = ("\033[1m", "\033[2m", "\033[0m") if color else ("", "", "")
    if color:
        print(f"{dim}Drafted tokens that the model accepted are coloured, by how far ahead they were drafted; the others are "
              f"its own.{plain}")
    for title, prompt, options in PROMPTS:
        print(f"\n{bold}{title}{plain}")
        for paragraph in prompt.split("\n\n"):
            print(textwrap.indent(textwrap.fill(paragraph, 100), f"{dim}> ") + plain)
        print(flush=True)
        run(command(prompt, ["-md", HEAD, "--color-drafts", *options]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=3, help="times that each answer is measured")
    rounds = max(1, parser.parse_args().rounds)
    show(sys.stdout.isatty() and not os.environ.get("NO_COLOR"))

    seconds = {}  # of [prompt][way]: one for each round
    tokens, drafted, accepted, answers, info = [0] * len(PROMPTS), dict.fromkeys(NAMES, 0), dict.fromkeys(NAMES, 0), {}, {}
    for turn in range(rounds):  # alternating, so that other load on the machine affects all ways equally
        for i, (_, prompt, options) in enumerate(PROMPTS):
            for name, way in WAYS:
                record = measure(prompt, way + options)
                stats, info = record["stats"], record["settings"]
                seconds.setdefault((i, name), []).append(stats["decode_seconds"])
                answers.setdefault(i, {}).setdefault(name, []).append((record["ids"], record["text"]))
                tokens[i] = stats["n_generated"]
                if turn == 0:
                    drafted[name] += stats["n_drafted"]
                    accepted[name] += stats["n_accepted"]

    print(f"\n{Path(MODEL).name}, {info['n_threads']} threads, {info['cpu_level']} kernels, {machine()}")
    print(f"\n{'tokens/s, medians of ' + str(rounds):<34}" + "".join(f"{name:>9}" for name in NAMES))
    total = dict.fromkeys(NAMES, 0.0)
    for i, (title, _, _) in enumerate(PROMPTS):
        row = f"{title + ', ' + str(tokens[i]) + ' tokens':<34}"
        for name in NAMES:
            median = statistics.median(seconds[i, name])
            total[name] += median
            row += f"{tokens[i] / median:9.1f}"
        print(row)
    print(f"{'all':<34}" + "".join(f"{sum(tokens) / total[name]:9.1f}" for name in NAMES))
    print(f"{'times plain':<34}" + "".join(f"{total['plain'] / total[name]:9.2f}" for name in NAMES))
    print(f"{'drafted and accepted':<34}" +
          "".join(f"{100 * accepted[n] / drafted[n]:8.0f}%" if drafted[n] else f"{'-':>9}" for n in NAMES))

    different = [f"{PROMPTS[i][0]} ({name})" for i, by_way in answers.items() for name, runs in by_way.items()
                 if any(answer != by_way["plain"][0] for answer in runs)]
    if different:
        sys.exit("\nsame bytes: NO: " + ", ".join(different) + " - this is a defect, please report it")
    print(f"\nsame bytes: yes, in all {len(PROMPTS) * len(WAYS) * rounds} runs: {len(PROMPTS)} answers, {len(WAYS)} ways, "
          f"{rounds} rounds")
    print(f"\nNext:\n  {AERIE} run {MODEL} 'Why is the sky blue?'\n  {AERIE} run {MODEL}        # a chat; /help lists its "
          f"commands\n  {AERIE} serve {MODEL}      # http://127.0.0.1:8080, a page to chat on")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
