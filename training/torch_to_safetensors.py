#!/usr/bin/env python3
"""Writes what torch.save saved as safetensors, which `aerie convert` reads.

    python3 training/torch_to_safetensors.py FOLDER          # pytorch_model.bin, or shards with an index: model.safetensors
    python3 training/torch_to_safetensors.py FILE.pt [OUT]   # medusa_lm_head.pt: medusa_lm_head.safetensors

Needs torch. Files are loaded with weights_only and mapped into memory, so nothing in them is executed, and memory is that of
the largest tensor. Tensors that share their memory are written once for each name.
"""
import argparse
import json
import os
import struct
import sys

import torch

NAMES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
         torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL"}
MODELS = ("pytorch_model.bin", "medusa_lm_head.pt")


def tensors_of(path):
    """Returns the tensors by name, which may be a level down, in a state_dict or a part of a model."""
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError:  # files of before torch 1.6 cannot be mapped
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    for key in ("state_dict", "model", "module"):
        if isinstance(loaded, dict) and isinstance(loaded.get(key), dict):
            loaded = loaded[key]
    found = {name: t for name, t in loaded.items() if isinstance(t, torch.Tensor)} if isinstance(loaded, dict) else {}
    if not found:
        sys.exit(f"{path}: there is no table of tensors in this file")
    return found


def files_of(path):
    """The files to read, and the file to write unless one is named."""
    if not os.path.isdir(path):
        if not os.path.isfile(path):
            sys.exit(f"{path}: there is no such file or folder")
        return [path], os.path.splitext(path)[0] + ".safetensors"
    index = os.path.join(path, "pytorch_model.bin.index.json")
    if os.path.isfile(index):
        with open(index, encoding="utf-8") as f:
            shards = sorted(set(json.load(f)["weight_map"].values()))
        for name in shards:
            if os.path.basename(name) != name:
                sys.exit(f"{index}: '{name}' is not the name of a file in this folder")
        return [os.path.join(path, name) for name in shards], os.path.join(path, "model.safetensors")
    for name in MODELS:
        file = os.path.join(path, name)
        if os.path.isfile(file):
            return [file], os.path.join(path, "model.safetensors")
    sys.exit(f"{path}: there is no {' or '.join(MODELS)} in this folder")


def write(tensors, out):
    header, at = {}, 0
    for name, t in tensors.items():
        if t.dtype not in NAMES:
            sys.exit(f"{name}: tensors of {t.dtype} cannot be written as safetensors")
        n = t.numel() * t.element_size()
        header[name] = {"dtype": NAMES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(out + ".part", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            f.write(t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data if t.numel() else b"")
    os.replace(out + ".part", out)
    return at


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    options.add_argument("path", help="a folder or a file written by torch.save")
    options.add_argument("out", nargs="?", help="the file to write")
    o = options.parse_args()
    files, out = files_of(o.path)
    tensors = {}
    for file in files:
        tensors.update(tensors_of(file))
    n = write(tensors, o.out or out)
    print(f"{o.out or out}: {len(tensors)} tensors, {n} bytes")


if __name__ == "__main__":
    main()
