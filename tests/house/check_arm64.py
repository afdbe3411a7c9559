#!/usr/bin/env python3
"""The library compiles for 64-bit ARM without a warning, static assertions included.

    check_arm64.py

Reads only (-fsyntax-only), with Debian's cross compiler (gcc-aarch64-linux-gnu); skips where it is missing. The kernels of
arm64 run under qemu-user in scripts/check-arm64.sh.
"""
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
COMPILER = "aarch64-linux-gnu-gcc"
# headers of libraries are the same for all machines; those of the C library come from the cross compiler, which is asked first
FLAGS = ["-std=c11", "-Iinclude", "-Isrc", "-idirafter", "/usr/include", "-ffp-contract=off", "-fsyntax-only",
         "-Wall", "-Wextra", "-Wshadow", "-Werror", '-DAERIE_VERSION="0"']
LEFT_OUT = (os.path.join("src", "backend", "cpu", "x86"), os.path.join("src", "backend", "gpu"),
            os.path.join("src", "quant", "encode", "x86"),
            os.path.join("src", "comm", "module"))  # needs MPI's headers
MORE = {"_dotprod.c": ["-march=armv8.2-a+dotprod"], "_i8mm.c": ["-march=armv8.2-a+dotprod+i8mm"]}


def sources():
    for folder, _, names in os.walk(os.path.join(ROOT, "src")):
        inside = os.path.relpath(folder, ROOT)
        if not inside.startswith(LEFT_OUT):
            yield from (os.path.join(inside, n) for n in names if n.endswith(".c"))


def check(path):
    more = next((flags for end, flags in MORE.items() if path.endswith(end)), [])
    done = subprocess.run([COMPILER, *FLAGS, *more, path], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def main():
    if not shutil.which(COMPILER):
        print(f"skip: there is no {COMPILER}")
        return 77
    paths = sorted(sources())
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        said = [text for text in pool.map(check, paths) if text]
    print("".join(said), end="")
    print(f"{len(paths)} files, {len(said)} with warnings or errors")
    return 1 if said or len(paths) < 100 else 0


sys.exit(main())
