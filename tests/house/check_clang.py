#!/usr/bin/env python3
"""Every C source passes clang without a warning: gcc builds the tests, and the two warn of different things.

    check_clang.py BUILD_FOLDER

Takes the flags of compile_commands.json, and reads only (-fsyntax-only). Skips where clang is missing.
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
AT_ONCE = 40  # files for one process
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Werror", "-Wno-unknown-warning-option"]


def flags_of(entry):
    words = shlex.split(entry["command"])
    flags = [w for w in words[1:] if w.startswith(("-I", "-D", "-m", "-std", "-isystem", "-ff", "-fno-m"))]
    for i, word in enumerate(words):
        if word == "-isystem":
            flags += words[i:i + 2]
    return tuple(flags)


def check(flags, folder, files):
    """What is said of files with the same flags. The compiler itself reads them all; clang would start it for each of them,
    which takes as long as reading."""
    told = subprocess.run(["clang", "-###", "-fsyntax-only", *flags, *WARNINGS, files[0]], cwd=folder, capture_output=True,
                          text=True, check=True).stderr
    compiler = shlex.split(told.strip().splitlines()[-1])
    assert compiler[1] == "-cc1" and compiler[-1] == files[0], told
    done = subprocess.run([*compiler, *files[1:]], cwd=folder, capture_output=True, text=True, check=False)
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
    groups = {}
    for e in entries.values():
        groups.setdefault((flags_of(e), e["directory"]), []).append(e["file"])
    parts = [(*how, files[i:i + AT_ONCE]) for how, files in groups.items() for i in range(0, len(files), AT_ONCE)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        said = [text for text in pool.map(lambda part: check(*part), parts) if text]
    print("".join(said), end="")
    print(f"{len(entries)} files, " + ("some with warnings or errors" if said else "none with warnings or errors"))
    return 1 if said or len(entries) < 100 else 0


sys.exit(main())
