#!/usr/bin/env python3
"""Checks that every architecture of llama.cpp is either in aerie's table or documented as left out, with the reason, and that
docs/converting.md names the architectures that no checkpoint can be converted to.

Sources: tests/golden/llama_archs.txt, the names of llama.cpp's table (build 11434, October 2026), one a line; the table of
src/model/arch.c; the table "Left out" of docs/models.md. A name that is in both or in neither is a fault; so is a row of the
document whose name llama.cpp does not have, or that gives no reason.
"""
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def read(*path):
    with open(os.path.join(TOP, *path), encoding="utf-8") as file:
        return file.read()


def check_converted():
    """The models of docs/models.md are those that 'aerie convert' makes, and those that docs/converting.md excepts."""
    models = re.findall(r"^\| `([a-z0-9_.-]+)` \|[^|]*\|[^|]*\|[^|]*\|$", read("docs", "models.md"), re.M)
    rows = "".join(read("src", "convert", "archs", name) for name in os.listdir(os.path.join(TOP, "src", "convert", "archs")))
    made = set(re.findall(r'\.arch = "([^"]+)"', rows)) | set(re.findall(r'"([a-z0-9-]*bert[a-z0-9-]*)"',
                                                                       read("src", "convert", "model", "encoder.c")))
    part = re.search(r"these cannot be converted(.*?)\n\n", read("docs", "converting.md"), re.S)
    excepted = set(re.findall(r"`([a-z0-9_.-]+)`", part.group(1))) if part else set()
    faults = [f"{name}: docs/models.md names it, and neither src/convert makes its files nor docs/converting.md excepts it"
              for name in models if name not in made | excepted]
    faults += [f"{name}: docs/converting.md says that it cannot be converted, but a row makes it" for name in excepted & made]
    faults += [f"{name}: docs/converting.md excepts it, but aerie does not run it" for name in excepted - set(models)]
    return faults if len(models) > 100 else [*faults, "the table of docs/models.md was not found"]


def main():
    names = read("tests", "golden", "llama_archs.txt").split()
    ours = set(re.findall(r'\{\.name = "([^"]+)"', read("src", "model", "arch.c")))
    part = re.search(r"^## Left out\n(.*?)(?=^## |\Z)", read("docs", "models.md"), re.S | re.M)
    rows = dict(re.findall(r"^\| `([^`]+)` \|(.*)\|$", part.group(1), re.M)) if part else {}
    faults = [f"{name}: named twice in llama_archs.txt" for name in sorted(set(names)) if names.count(name) > 1]
    for name in names:
        if name in ours and name in rows:
            faults.append(f"{name}: aerie runs it, and docs/models.md says that it is left out")
        if name not in ours and name not in rows:
            faults.append(f"{name}: neither a row of src/model/arch.c nor one of \"Left out\" in docs/models.md")
    for name, why in rows.items():
        if name not in names:
            faults.append(f"{name}: docs/models.md says that it is left out, but llama.cpp does not have it")
        if len(why.split()) < 4:
            faults.append(f"{name}: docs/models.md gives no reason")
    faults += check_converted()
    for fault in faults:
        print(fault)
    print(f"{len(names)} names, {len(set(names) & ours)} in the table, {len(rows)} left out, {len(faults)} faults")
    return 1 if faults or len(names) < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
