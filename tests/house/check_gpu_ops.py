#!/usr/bin/env python3
"""Checks that GPUs run every operation of the seam, or that docs/gpu.md says that they do not.

Sources: the struct ae_backend_ops of src/backend/backend.h, the table of src/backend/gpu/gpu.c, the kernels of
src/backend/gpu/kernels and those that src/backend/gpu/vulkan/pipeline.c has a shader for, and the table "Operations" of
docs/gpu.md. An operation that is neither in the backend's table nor named as refused in the document is a fault; so is a row of
the document that no longer holds. An argument of an operation that the host side never reads is one, too: it would be ignored
and not refused. The kinds that an enumeration of the seam has must all be named in the document.
"""
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SEAM = os.path.join(TOP, "src", "backend")
# What is not read by name, and why that is right.
UNREAD = {
    ("ae_walk_tree", "ends"): "read by draw_host.c, which walks what the device found",
}
# Structs whose fields operations take; those of a CPU's own or of what is lent as a whole are not among them.
STRUCTS = ["ae_matmul", "ae_head_matmul", "ae_norm", "ae_axpy", "ae_map", "ae_copy", "ae_moe", "ae_routing", "ae_places",
           "ae_rope_table", "ae_rope_kv", "ae_attention", "ae_row_mix", "ae_conv", "ae_recur", "ae_gated_norm", "ae_walk",
           "ae_walk_tree", "ae_propose", "ae_propose_row", "ae_state_layer", "ae_state_pass", "ae_kv_commit_args",
           "ae_attention_more", "ae_select", "ae_hyper", "ae_rotate", "ae_compress", "ae_ngrams",
           "ae_trail", "ae_accord"]
ENUMS = ["ae_state_kind", "ae_map_kind", "ae_glu", "ae_input", "ae_gate", "ae_kv_type", "ae_rope_kind"]


def read(*path):
    with open(os.path.join(TOP, *path), encoding="utf-8") as file:
        return file.read()


def without_comments(text):
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def seam():
    return without_comments("".join(read("src", "backend", name) for name in
                                    ("product.h", "moe.h", "attention.h", "recurrent.h", "draw.h", "backend.h")))


def operations(text):
    body = re.search(r"typedef struct ae_backend_ops \{(.*?)\} ae_backend_ops;", text, re.S).group(1)
    return re.findall(r"\(\*(\w+)\)\(", body)


def fields(text, name):
    found = re.search(r"typedef struct " + name + r" \{(.*?)\n\} " + name + ";", text, re.S)
    if not found:
        sys.exit(f"there is no struct {name} in the seam")
    body = found.group(1)
    names = []
    for line in body.split(";"):
        line = re.sub(r"\[[^\]]*\]", "", line.split("{")[-1])
        for part in line.split(","):
            word = re.search(r"(\w+)\s*$", part)
            if word and word.group(1) not in ("out",):
                names.append(word.group(1))
    return names


def enumerators(text, name):
    body = re.search(r"typedef enum " + name + r" \{(.*?)\} " + name + ";", text, re.S).group(1)
    names = [part.split("=")[0].strip() for part in body.split(",")]
    counts = ("AE_GLUS", "AE_KV_TUNED", "AE_KV_TYPES")
    return [n for n in names if n and n not in counts]


def host_side():
    folder = os.path.join(SEAM, "gpu")
    text = ""
    for name in sorted(os.listdir(folder)):
        if name.endswith((".c", ".h")):
            text += read("src", "backend", "gpu", name)
    kernels = os.path.join(folder, "kernels")
    for here, _, names in sorted(os.walk(kernels)):
        for name in sorted(names):
            text += read(os.path.relpath(os.path.join(here, name), TOP))
    return without_comments(text)


def rows(document):
    """The rows of the table: names, and what each column says."""
    part = document.split("## Operations", 1)[1].split("\n## ", 1)[0]
    for line in part.splitlines():
        if not line.startswith("| `"):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        yield re.findall(r"`(\w+)`", cells[0]), cells[1:]


def check_operations(text, document, wrong):
    ops = operations(text)
    table = re.search(r"gpu_ops = \{(.*?)\};", read("src", "backend", "gpu", "gpu.c"), re.S).group(1)
    has = set(re.findall(r"\.(\w+) =", table))
    said = {}
    for names, cells in rows(document):
        for name in names:
            if name in said:
                wrong.append(f"docs/gpu.md names {name} twice")
            said[name] = cells
    for name in ops:
        if name not in said:
            wrong.append(f"{name}: docs/gpu.md, Operations, does not say whether GPUs run it")
            continue
        cpu, cuda, vulkan = said[name][:3]
        if not cpu.startswith("yes"):
            wrong.append(f"{name}: docs/gpu.md says that CPUs do not run it")
        if cuda.startswith("yes") != (name in has):
            wrong.append(f"{name}: docs/gpu.md says \"{cuda}\" of CUDA, and gpu.c {'has' if name in has else 'lacks'} it")
        if vulkan.startswith("yes") and name not in has:
            wrong.append(f"{name}: docs/gpu.md says \"{vulkan}\" of Vulkan, and gpu.c lacks it")
        for cell in (cuda, vulkan):
            if not cell.startswith(("yes", "no: ")):
                wrong.append(f"{name}: \"{cell}\" is neither \"yes\" nor \"no: \" and why")
    for name in said:
        if name not in ops:
            wrong.append(f"docs/gpu.md names {name}, which is not an operation of the seam")
    return len(ops)


def check_kernels(document, wrong):
    """Kernels without a shader must be those that the document names."""
    kernels = re.findall(r"X\((\w+), ae_gpu_\w+_args, \d+", "".join(
        read("src", "backend", "gpu", "kernels", name) for name in
        ("args_rows.h", "args_state.h", "args_moe.h", "args_draw.h", "args_attention.h", "args_product.h")))
    pipeline = read("src", "backend", "gpu", "vulkan", "pipeline.c")
    text = pipeline + document.split("## Operations", 1)[1].split("\n## ", 1)[0]
    n = 0
    for name in kernels:
        stems = [name, re.sub(r"_(f32|f16|bf16|32|256)(_.*)?$", r"_##form", name)]
        n += 1
        if not any(re.search(r"\b" + re.escape(stem) + r"\b", text) for stem in stems):
            wrong.append(f"kernel {name}: pipeline.c has no shader for it, and docs/gpu.md does not say so")
    return n


def check_fields(text, wrong):
    host, n = host_side(), 0
    for struct in STRUCTS:
        for name in fields(text, struct):
            n += 1
            if (struct, name) not in UNREAD and not re.search(r"(->|\.)" + name + r"\b", host):
                wrong.append(f"{struct}.{name}: no file of src/backend/gpu reads it, so GPUs ignore it")
    return n


def check_kinds(text, document, wrong):
    n = 0
    for enum in ENUMS:
        for name in enumerators(text, enum):
            n += 1
            if not re.search(r"\b" + name + r"\b", document):
                wrong.append(f"{name} of {enum}: docs/gpu.md, Operations, does not name it")
    return n


def main():
    text, document, wrong = seam(), read("docs", "gpu.md"), []
    n_ops = check_operations(text, document, wrong)
    n_kernels = check_kernels(document, wrong)
    n_fields = check_fields(text, wrong)
    n_kinds = check_kinds(text, document.split("## Operations", 1)[1], wrong)
    for sentence in wrong:
        print(sentence)
    print(f"{n_ops} operations, {n_kinds} kinds, {n_fields} arguments, {n_kernels} kernels, {len(wrong)} faults")
    return 1 if wrong else 0


sys.exit(main())
