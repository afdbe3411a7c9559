#!/usr/bin/env python3
"""Runs the tests that the changes of this working tree can break, by tests/labels.txt. Changes are the differences from BASE
(default: main), committed or not. A changed test runs by its own name.

usage: test-changed.py BUILD [BASE]
"""
import os
import re
import subprocess
import sys

build, base = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "main"


def git(*args):
    return subprocess.run(["git", *args], capture_output=True, text=True, check=True).stdout.split("\n")


tracked = git("diff", "--name-only", git("merge-base", "HEAD", base)[0])
changed = {path for path in tracked + git("ls-files", "-o", "--exclude-standard") if path}
with open("tests/labels.txt", encoding="utf-8") as f:
    folders = [line.split()[0] for line in f if re.match(r"[a-z]", line)]
labels, tests, unknown = set(), set(), []
for path in sorted(changed):
    test = re.match(r"tests/(\w+)/(?:test_|check_)?(\w+)\.(?:c|py|inc)$", path)
    fitting = [d for d in folders if path.startswith(d + "/")]
    if test:
        tests.add(f"^{test[1]}/{test[2]}$")
    elif fitting:
        labels.add(max(fitting, key=len))
    elif not path.startswith(("docs/", "bench/")) and not path.endswith(".md"):
        unknown.append(path)
for path in unknown:
    print(f"{path}: no test is known for it; make check runs all", file=sys.stderr)
runs = [["-L", "^(" + "|".join(sorted(labels)) + ")$"]] if labels else []
runs += [["-R", "|".join(sorted(tests))]] if tests else []
if not runs:
    print(f"nothing that has tests differs from {base}")
status = 0
for run in runs:
    print("ctest", *run, flush=True)
    status |= subprocess.run(["ctest", "--test-dir", build, "-j", str(os.cpu_count()), "--output-on-failure", *run]).returncode
sys.exit(1 if status else 0)
