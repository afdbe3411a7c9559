#!/usr/bin/env python3
"""Every C source passes clang without a warning: gcc builds the tests, and the two warn of different things.

    check_clang.py BUILD_FOLDER

Takes the flags of compile_commands.json, and reads only (-fsyntax-only): half a minute on 2
cores. Skips where clang is missing.
"""
import json
import os
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
FOLDERS = ("src", "app", "tests", "examples", "tools")
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Werror", "-Wno-unknown-warning-option"]


def check(entry):
    words = shlex.split(entry["command"])
    flags = [w for w in words[1:] if w.startswith(("-I", "-D", "-m", "-std", "-isystem", "-ff", "-fno-m"))]
    for i, word in enumerate(words):
        if word == "-isystem":
            flags += words[i:i + 2]
    done = subprocess.run(["clang", "-fsyntax-only", *flags, *WARNINGS, entry["file"]], cwd=entry["directory"],
                          capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def main():
    if not shutil.which("clang"):
        print("skip: there is no clang")
        return 77
    path = os.path.join(sys.argv[1], "compile_commands.json")
    if not os.path.isfile(path):
        print(f"skip: there is no {path}")
        return 77
    with open(path, encoding="utf-8") as f:
        entries = {e["file"]: e for e in json.load(f)
                   if e["file"].endswith(".c") and os.path.relpath(e["file"], ROOT).split(os.sep)[0] in FOLDERS}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        said = [text for text in pool.map(check, entries.values()) if text]
    print("".join(said), end="")
    print(f"{len(entries)} files, {len(said)} with warnings or errors")
    return 1 if said or len(entries) < 100 else 0


sys.exit(main())
