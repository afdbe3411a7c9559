#!/usr/bin/env python3
"""Checks the machine code of the CUDA kernels that a build has.

    check_sass.py BUILD_FOLDER [--update]

No kernel may spill registers or use local memory, for any compute capability that the build has. The rest is checked for 9.0,
if the build has it: of the products by mma, those of experts included, kernels of AE_DOT_32 may not convert integers to floats
(I2F): their sums come as floats. FFMA, FMUL and FADD must be there once for each operation of the reference, so that nothing
is contracted. Registers and instructions of each of them are at most those of sass_budget.txt, which --update writes anew,
with 4 % to spare.
Exits with 77 where the build has no CUDA; where cuobjdump or nvdisasm (CUDA's tools, or NVIDIA's packages on PyPI) is missing,
only spills and registers are checked.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ARCH = "90"  # whose instructions are counted
BUDGET = os.path.join(HERE, "sass_budget.txt")
COUNTED = ["product_mma_32", "product_mma_256", "product_mma_experts"]  # the second's forms are wide
# Known and not mended: experts learn their jobs on the device and hold them in local memory, since mma.h chooses one by its
# number.
JOBS = 256
KNOWN = {("ae_experts_f32", "*"): 24}
# Turing's kernels may have as many registers, but the compiler uses them less well there.
KNOWN.update({("ae_group", "75"): 16, ("ae_wkv7_steps_64", "75"): 240, ("ae_recur_steps_32", "75"): 24})
# On these chips nothing was tuned. The products are those of one row, and spill 16 bytes.
KNOWN.update({("ae_experts_f32", "80"): 48, ("ae_mma_mxfp4_1_1", "80"): 48, ("ae_mma_iq4_nl_1_1", "80"): 48,
              ("ae_trail_rows", "80"): 20, ("ae_group", "80"): 16, ("ae_wkv7_steps_64", "80"): 256,
              ("ae_wkv7_steps_32", "80"): 16, ("ae_attention_q8", "100"): 16})
for chip in ("86", "89"):
    KNOWN.update({("ae_mma_q4_1_1_1", chip): 48, ("ae_mma_q5_1_1_1", chip): 48, ("ae_group", chip): 16,
                  ("ae_scan_steps_64", chip): 204, ("ae_wkv7_steps_32", chip): 40})


def is_expert(name):
    return name.startswith("ae_experts_mma_")


def find(name):
    for path in [shutil.which(name), os.path.join("/usr/local/cuda/bin", name)]:
        if path and os.access(path, os.X_OK):
            return path
    return None


def resources(log):
    """Registers of each kernel, and bytes of stack and spills beyond what is known, by compute capability."""
    found = {}
    for part in log.split("Compiling entry function '")[1:]:
        name, arch = re.match(r"(\w+)' for 'sm_(\w+)'", part).groups()
        stack, stores, loads = map(int, re.search(
            r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", part).groups())
        known = KNOWN.get((name, arch)) or KNOWN.get((name, "*")) or (JOBS if is_expert(name) else 0)
        registers = int(re.search(r"Used (\d+) registers", part).group(1))
        found.setdefault(arch, {})[name] = (registers, max(0, stack + stores + loads - known))
    return found


def instructions(cuobjdump, fatbin):
    """How often each kernel has each operation."""
    command = [cuobjdump, "-sass", "-arch", "sm_" + ARCH, fatbin]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {}
    for part in text.split("Function : ")[1:]:
        counts = {}
        for match in re.finditer(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_]+)[^;]*;", part):
            counts[match.group(1)] = counts.get(match.group(1), 0) + 1
        counts.pop("NOP", None)
        found[part.split()[0]] = counts
    return found


def wrong_code(name, counts, wide):
    """Sentences about operations that must not be there, or must."""
    for op in ("LDL", "STL", "MUFU"):
        if counts.get(op) and not (is_expert(name) and op != "MUFU"):
            yield f"{name} has {counts[op]} {op}"
    if not wide:
        for op in ("I2F", "I2FP"):
            if counts.get(op):
                yield f"{name} has {counts[op]} {op}: its sums should come as floats"
        tails = 4 * counts.get("IMMA", 0)  # values of the fragments; the last operations of a store are more
        if counts.get("FMUL", 0) < tails or counts.get("FFMA", 0) < tails:
            yield f"{name} has {counts.get('FMUL', 0)} FMUL and {counts.get('FFMA', 0)} FFMA for {tails} values: contracted?"


def form_of(name):
    return re.search(r"mma_(\w+?)_\d", name).group(1)


def read_budget():
    budget = {}
    with open(BUDGET, encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                name, registers, count = line.split()
                budget[name] = (int(registers), int(count))
    return budget


def write_budget(found):
    with open(BUDGET, "w", encoding="utf-8") as file:
        file.write("# Kernel, registers and instructions at most, compute capability 9.0 (check_sass.py --update).\n")
        for name, (registers, count) in sorted(found.items()):
            file.write(f"{name} {registers * 104 // 100} {count * 104 // 100}\n")


def read_usages(folder):
    """What the compiler said of each file of kernels when the build was made."""
    usages = {}
    for file in sorted(os.listdir(folder)):
        name, kind = os.path.splitext(file)
        if kind != ".fatbin":
            continue
        path = os.path.join(folder, name + ".usage")
        if not os.path.isfile(path):
            sys.exit(f"{path} is missing: the kernels are of an older build; remove {folder} and build again")
        with open(path, encoding="utf-8") as log:
            usages[name] = resources(log.read())
        if not usages[name]:
            sys.exit(f"{path} names no kernel")
    return usages


def spills(usages):
    for archs in usages.values():
        for arch, kernels in archs.items():
            for name, (registers, spilled) in kernels.items():
                if spilled:
                    yield f"{name} (sm_{arch}) uses {spilled} bytes of stack and spills, with {registers} registers"


def over_budget(found):
    budget = read_budget()
    for name, (registers, n) in found.items():
        most = budget.get(name)
        if not most:
            yield f"{name} is not in sass_budget.txt: run check_sass.py --update"
        elif registers > most[0] or n > most[1]:
            yield f"{name}: {registers} registers, {n} instructions; the budget is {most[0]} and {most[1]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    folder = os.path.join(args.build, "cuda")
    if not os.path.isfile(os.path.join(folder, COUNTED[0] + ".fatbin")):
        print("skipped: the build has no kernels for CUDA")
        return 77
    cuobjdump = find("cuobjdump") if find("nvdisasm") else None
    if args.update and not cuobjdump:
        sys.exit("--update needs cuobjdump and nvdisasm")
    if not cuobjdump:
        print("cuobjdump or nvdisasm is not installed: instructions are not counted")
    usages = read_usages(folder)
    wrong, found, wide = list(spills(usages)), {}, set()
    for file in COUNTED:
        used = usages[file].get(ARCH, {})
        counts = instructions(cuobjdump, os.path.join(folder, file + ".fatbin")) if cuobjdump and used else {}
        if file == COUNTED[1]:
            wide |= {form_of(name) for name in used}
        for name, (registers, _) in used.items():
            found[name] = (registers, sum(counts.get(name, {}).values()))
            if name in counts:
                wrong += wrong_code(name, counts[name], form_of(name) in wide)
    if args.update:
        write_budget(found)
    wrong += over_budget(found)
    for sentence in wrong:
        print(sentence)
    n = {arch: sum(len(archs.get(arch, {})) for archs in usages.values()) for arch in sorted(set().union(*usages.values()))}
    print(", ".join(f"sm_{arch}: {kernels} kernels" for arch, kernels in n.items()) + f"; {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
