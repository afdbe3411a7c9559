#!/usr/bin/env python3
"""Checks the machine code of the kernels for compute capability 9.0.

    check_sass.py [--nvcc NVCC] [--update] [--spills ARCH ...]

No kernel may spill registers or use local memory. Of the products by mma, those of experts included, kernels of AE_DOT_32
may not convert integers to floats (I2F): their sums come as floats. FFMA, FMUL and FADD must be there once for each operation
of the reference, so that nothing is contracted. Registers and instructions of each of them are at most those of
sass_budget.txt, which --update writes anew, with 4 % to spare.
With --spills 75 120 only spills are looked for, in all kernels, for these compute capabilities.
Exits with 77 where nvcc is missing; where cuobjdump or nvdisasm (CUDA's tools, or NVIDIA's packages on PyPI) is missing, only
spills and registers are checked.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
KERNELS = os.path.join(TOP, "src", "backend", "gpu", "kernels")
BUDGET = os.path.join(HERE, "sass_budget.txt")
FILES = ["product/mma_32.cu", "product/mma_256.cu", "product/mma_experts.cu"]  # the second's forms are wide
# Of these nothing is counted, but they may not spill either.
OTHERS = ["product/activation.cu", "product/product.cu", "product/moe.cu", "attention/codes.cu", "attention/few.cu",
          "attention/select.cu", "attention/float.cu", "attention/merge.cu", "compress.cu", "draw.cu", "kv.cu", "lookup.cu",
          "recur_steps.cu", "recurrent.cu", "rope.cu", "rope_heads.cu", "rows.cu"]
FLAGS = ["-std=c++17", "-fmad=false", "-ftz=false", "-prec-div=true", "-prec-sqrt=true"]


# Known and not mended: experts learn their jobs on the device and hold them in local memory, since mma.h chooses one by its
# number.
JOBS = 256
KNOWN = {"ae_experts_f32": 24}


def is_expert(name):
    return name.startswith("ae_experts_mma_")


def find(name, hint=None):
    for path in [hint, shutil.which(name), os.path.join("/usr/local/cuda/bin", name)]:
        if path and os.access(path, os.X_OK):
            return path
    return None


def compile_kernels(nvcc, name, cubin, arch="90"):
    command = [nvcc, *FLAGS, "-arch=sm_" + arch, "-Xptxas", "-v",
               "-I" + os.path.join(TOP, "src"), "-I" + os.path.join(TOP, "include"), "-cubin",
               "-o", cubin, os.path.join(KERNELS, name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit("nvcc failed:\n" + done.stderr)
    return done.stderr


def resources(log):
    """Registers of each kernel, and bytes of stack and spills beyond what is known, from what ptxas says."""
    found = {}
    for part in log.split("Compiling entry function '")[1:]:
        name = part.split("'")[0]
        stack, stores, loads = map(int, re.search(
            r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", part).groups())
        known = KNOWN.get(name, JOBS if is_expert(name) else 0)
        found[name] = (int(re.search(r"Used (\d+) registers", part).group(1)), max(0, stack + stores + loads - known))
    return found


def instructions(cuobjdump, cubin):
    """How often each kernel has each operation."""
    text = subprocess.run([cuobjdump, "-sass", cubin], capture_output=True, text=True, check=True).stdout
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


def check_spills(nvcc, cubin, files, arch="90"):
    """Sentences about the kernels that may not spill; returns how many there are, too."""
    wrong, n = [], 0
    for file in files:
        for name, (registers, spilled) in resources(compile_kernels(nvcc, file, cubin, arch)).items():
            n += 1
            if spilled:
                wrong.append(f"{name} (sm_{arch}) uses {spilled} bytes of stack and spills, with {registers} registers")
    return wrong, n


def only_spills(nvcc, archs):
    n_wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for arch in archs:
            wrong, n = check_spills(nvcc, os.path.join(folder, "kernels.cubin"), FILES + OTHERS, arch)
            n_wrong += len(wrong)
            print("\n".join([*wrong, f"sm_{arch}: {n} kernels, {len(wrong)} spill"]), flush=True)
    return 1 if n_wrong else 0


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvcc")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--spills", nargs="+", metavar="ARCH")
    args = parser.parse_args()
    nvcc = find("nvcc", args.nvcc)
    if not nvcc:
        print("skipped: nvcc is not installed")
        return 77
    if args.spills:
        return only_spills(nvcc, args.spills)
    cuobjdump = find("cuobjdump") if find("nvdisasm") else None
    if not cuobjdump:
        print("cuobjdump or nvdisasm is not installed: instructions are not counted")
    budget = {} if args.update else read_budget()
    wrong, found, wide = [], {}, set()
    with tempfile.TemporaryDirectory() as folder:
        for file in FILES:
            cubin = os.path.join(folder, "kernels.cubin")
            used = resources(compile_kernels(nvcc, file, cubin))
            counts = instructions(cuobjdump, cubin) if cuobjdump else {}
            if file == FILES[1]:
                wide |= {form_of(name) for name in used}
            for name, (registers, spilled) in used.items():
                n = sum(counts.get(name, {}).values())
                found[name] = (registers, n)
                if spilled:
                    wrong.append(f"{name} uses {spilled} bytes of stack and spills")
                if name in counts:
                    wrong += wrong_code(name, counts[name], form_of(name) in wide)
                if args.update:
                    continue
                most = budget.get(name)
                if not most:
                    wrong.append(f"{name} is not in sass_budget.txt: run check_sass.py --update")
                elif registers > most[0] or n > most[1]:
                    wrong.append(f"{name}: {registers} registers, {n} instructions; the budget is {most[0]} and {most[1]}")
        others, n_others = check_spills(nvcc, os.path.join(folder, "kernels.cubin"), OTHERS)
        wrong += others
    if args.update:
        if not cuobjdump:
            sys.exit("--update needs cuobjdump and nvdisasm")
        write_budget(found)
    for sentence in wrong:
        print(sentence)
    print(f"{len(found) + n_others} kernels, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
