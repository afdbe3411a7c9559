#!/usr/bin/env python3
"""Compare our templates with Python's jinja2: random small templates, and real ones over random conversations.

usage: check_jinja.py PROGRAM [--expressions N] [--conversations N] [--seed S] [--templates FOLDER]

PROGRAM is build/tests/jinja_renders. Texts must be equal; where jinja2 raises, ours must return an error, and what a template
itself raises must come through as it is. FOLDER: *.jinja; without it $AERIE_SHARED/data/templates, else
../shared/data/templates; absent, that half is left out. Exit status 77: no jinja2.
"""
import argparse
import copy
import functools
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import warnings

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "golden" / "chat")]
try:
    import oracle
except ImportError as e:
    print(f"skip: {e}")
    sys.exit(77)
import conversations  # noqa: E402
import expressions  # noqa: E402


class Ours:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def render(self, template, variables):
        self.process.stdin.write(json.dumps({"template": template, "variables": variables}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def same(theirs, ours):
    if "text" in theirs:
        return ours == theirs["text"]
    if not isinstance(ours, dict):
        return False
    raised = "TemplateError: "
    words = theirs["error"]
    return not words.startswith(raised) or ours["error"] == cut(words[len(raised):])


def cut(words):
    """What fits in the record of an error: whole characters of at most 480 bytes."""
    return words.split("\0")[0].encode()[:480].decode(errors="ignore")


class Walked:
    """What a lazy filter gives: ours are walked at once, but only once, and print like this."""

    def __init__(self, items):
        self.items = iter(list(items))

    def __iter__(self):
        return self.items

    def __next__(self):
        return next(self.items)

    def __repr__(self):
        return "<generator object>"


def eager(function):
    @functools.wraps(function)
    def walk(*args, **kwargs):
        return Walked(function(*args, **kwargs))
    return walk


def small_context():
    """For templates that do with filters whatever comes to a random generator's mind."""
    context = oracle.Context()
    for name in ["map", "select", "reject", "selectattr", "rejectattr", "unique", "batch", "slice", "items"]:
        if name in context.environment.filters:
            context.environment.filters[name] = eager(context.environment.filters[name])
    return context


# What prints as an object of Python's.
PYTHON = re.compile(r" at 0x[0-9a-f]+>|<class |<built-in |<bound method |Undefined", re.I)


def known(theirs, ours):
    """Differences that are stated: integers have 64 bits, there are no complex numbers, some things of jinja2 are not offered,
    nothing is an object of Python."""
    if PYTHON.search(theirs.get("text", "")):
        return True
    if re.search("' of 'list' object is unsafe|(generator|Walked) is not JSON", theirs.get("error", "")):
        return True  # lists of the template's own change, and generators are written as lists, as in other engines
    return isinstance(ours, dict) and ("64 bits" in ours["error"] or "finite real" in ours["error"] or
                                       ours["status"].startswith("well-formed"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--expressions", type=int, default=20000)
    parser.add_argument("--conversations", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--templates")
    parser.add_argument("--show", type=int, default=20)
    args = parser.parse_args()
    ours = Ours(args.program)
    counts = {"equal": 0, "errors": 0, "stated": 0, "different": 0}

    def compare(what, template, variables, context):
        theirs = context.render(template, copy.deepcopy(variables))
        mine = ours.render(template, variables)
        if same(theirs, mine):
            counts["equal"] += "text" in theirs
            counts["errors"] += "error" in theirs
        elif known(theirs, mine):
            counts["stated"] += 1
        else:
            counts["different"] += 1
            if counts["different"] <= args.show:
                print(f"{what}\n  jinja2: {theirs}\n  ours:   {mine}")

    warnings.simplefilter("ignore", SyntaxWarning)
    rng = random.Random(args.seed)
    small, real = small_context(), oracle.Context()
    for _ in range(args.expressions):
        template = expressions.template(rng)
        compare(repr(template), template, expressions.VARIABLES, small)
    print(f"small templates: {counts}")
    different = counts["different"]

    folder = pathlib.Path(args.templates or os.environ.get("AERIE_SHARED", "../shared") + "/data/templates")
    files = sorted(folder.glob("*.jinja"))
    if not files:
        print(f"skip: no chat templates in {folder} (set AERIE_SHARED)")
    counts.update(dict.fromkeys(counts, 0))
    for _ in range(args.conversations if files else 0):
        variables = conversations.conversation(rng)
        for f in files:
            compare(f"{f.name}: {json.dumps(variables, ensure_ascii=False)}", f.read_text(encoding="utf-8"), variables, real)
    print(f"{len(files)} templates over {args.conversations if files else 0} conversations: {counts}")
    sys.exit(1 if different + counts["different"] else 0)


if __name__ == "__main__":
    main()
