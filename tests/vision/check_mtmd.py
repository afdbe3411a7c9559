#!/usr/bin/env python3
"""Compares vision encoders with llama.cpp's mtmd: random ones of each type (mkarch mmproj-TYPE), on random pictures.

    tests/vision/check_mtmd.py BUILD/tests/mkarch BUILD/tests/tower_rows LLAMA.CPP LLAMA.CPP/BUILD/bin [TYPE...]

Needs a C compiler, gguf and numpy. Pictures have sizes that neither program resizes. Prints the normalised squared error of the
rows, and of many sizes how often both take as many tokens. Where llama.cpp departs from the published models on purpose or by
mistake, its file is changed so that it computes the same, which shows that there is no other difference:

  internvl      it puts the row of the class after the patches, but not its learned position: the table is rolled by a row
  qwen2.5vl     it knows windows of 112 pixels alone: both files say 112
  mlp           the same, and it takes the rows after the first patch's up to the class's: what both have is compared
  kimivl        it rotates halves of a head by column and row, as K2.5's files want it, where published weights do it in turn:
                a difference of some 7 %, which stays
  granitevision it takes all rows of all tiles in their order ("flat"), and the whole picture last, of another size: both files
                say "flat", and the rows of tiles are compared
  gemma4v, uv   it takes mean and deviation from the file, which published files have as 0 and 1
"""
import os
import shutil
import struct
import subprocess
import sys
import tempfile

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter

SIZES = {"gemma3": [(32, 32)], "idefics3": [(96, 96), (96, 64), (32, 96)], "pixtral": [(64, 64), (32, 48)],
         "pixtral-merge": [(64, 64), (32, 48)], "qwen3vl": [(64, 64), (96, 48)], "qwen35": [(64, 64), (96, 48)],
         "qwen2vl": [(32, 32), (24, 40)],
         "qwen2.5vl": [(32, 32), (72, 56), (144, 120)], "gemma4v": [(192, 192)], "gemma4uv": [(192, 192)],
         "internvl": [(32, 32), (64, 32)], "lfm2": [(64, 64), (96, 64)], "glm4v": [(64, 64), (96, 48)],
         "glmocr": [(64, 64)], "kimivl": [(64, 64), (96, 48)], "kimik25": [(64, 64), (96, 48)],
         "paddleocr": [(64, 64), (56, 72)], "dotsocr": [(64, 64), (96, 48)], "mlp": [(32, 32)], "lightonocr": [(64, 64)],
         "granitevision": [(64, 64), (96, 32)],
         "minicpmv": [(32, 32), (64, 32)]}
COUNTED = int(os.environ.get("COUNTED", 20))
WIDE = ("minicpmv",)
DEEP = {"qwen3vl": 2}  # text models whose layers take further rows; others: llama


def build(source, binaries, folder):
    tool = os.path.join(folder, "mtmd_rows")
    here = os.path.dirname(os.path.abspath(__file__))
    includes = [f"-I{os.path.join(source, name)}" for name in ("include", "ggml/include", "tools/mtmd")]
    subprocess.run(["cc", "-O1", "-o", tool, os.path.join(here, "mtmd_rows.c"), *includes, f"-L{binaries}", "-lmtmd", "-lllama",
                    "-lggml", "-lggml-base", f"-Wl,-rpath,{os.path.abspath(binaries)}"], check=True)
    return tool


def change(path, keys, tensors):
    """Writes numbers over keys and tensors of a file."""
    file = GGUFReader(path, "r+")
    for key, values in keys.items():
        field = file.fields[key]
        for i, value in zip(field.data, values):
            field.parts[i][:] = value
    for tensor in file.tensors:
        if tensor.name in tensors:
            tensor.data[:] = tensors[tensor.name](np.array(tensor.data))
    file.data.flush()


def deepen(path, arch, n):
    """Adds the key n_deepstack_layers, as the first one."""
    with open(path, "rb") as f:
        data = f.read()
    key = f"{arch}.n_deepstack_layers".encode()
    n_keys = struct.unpack_from("<Q", data, 16)[0]
    entry = struct.pack("<Q", len(key)) + key + struct.pack("<II", 4, n)
    reader = GGUFReader(path)
    start = reader.data_offset
    end = max(int(t.field.offset) + sum(int(p.nbytes) for p in t.field.parts) for t in reader.tensors)
    head = data[:16] + struct.pack("<Q", n_keys + 1) + entry + data[24:end]
    head += bytes(-len(head) % reader.alignment)
    with open(path, "wb") as f:
        f.write(head + data[start:])


def widen(path):
    """Doubles the widths of a text model, for rows that are multiples of 128."""
    reader = GGUFReader(path)
    writer = GGUFWriter(path + ".wide", "llama")
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        value, kind = field.contents(), field.types[0]
        if key.endswith(("embedding_length", "dimension_count", "key_length", "value_length")):
            value *= 2
        sub = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(key, value, kind, sub)
    for t in reader.tensors:
        data = np.array(t.data)
        inner = t.name.startswith(("token_embd", "output.")) or ".ffn_gate" in t.name or ".ffn_up" in t.name
        times = [1 if inner else 2] if data.ndim == 1 else [1 if inner else 2, 1 if ".ffn_down" in t.name else 2]
        writer.add_tensor(t.name, np.tile(data, times))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(path + ".wide", path)


def prepare(name, ours, theirs):
    both, only = {}, {}
    if name == "qwen2.5vl":
        both["clip.vision.window_size"] = [112]
    if name.startswith("gemma4"):
        both["clip.vision.image_mean"], both["clip.vision.image_std"] = [0.0] * 3, [1.0] * 3
    if name in ("internvl", "mlp"):
        only["v.position_embd.weight"] = lambda x: np.roll(x, -1, 0)
    if name == "granitevision":
        with open(ours, "rb") as f:
            data = f.read()
        with open(ours, "wb") as f:
            f.write(data.replace(b"mm_patch_merge_type", b"mm_patch_merge_typX").replace(b"image_newline", b"image_newlinX"))
    change(ours, both, {})
    shutil.copyfile(ours, theirs)
    change(theirs, {}, only)


def main():
    mkarch, tower_rows, source, binaries = sys.argv[1:5]
    rng, bad = np.random.default_rng(1), 0
    with tempfile.TemporaryDirectory() as folder:
        def at(name):
            return os.path.join(folder, name)
        mtmd_rows = build(source, binaries, folder)
        for name, sizes in SIZES.items():
            if len(sys.argv) > 5 and name not in sys.argv[5:]:
                continue
            subprocess.run([mkarch, name if name in DEEP else "llama", at("text.gguf")], check=True, stdout=subprocess.DEVNULL)
            if name in DEEP:
                deepen(at("text.gguf"), name, DEEP[name])
            wide = 128 if name in WIDE else 64
            if wide > 64:
                widen(at("text.gguf"))
            subprocess.run([mkarch, f"mmproj-{name}:{wide}", at("ours")], check=True, stdout=subprocess.DEVNULL)
            prepare(name, at("ours"), at("theirs"))
            line = []
            for w, h in sizes:
                rng.integers(0, 256, (h, w, 3), dtype=np.uint8).tofile(at("pixels"))
                a = subprocess.run([mtmd_rows, at("theirs"), at("text.gguf"), str(w), str(h), at("pixels"), at("a")],
                                   capture_output=True, text=True)
                b = subprocess.run([tower_rows, at("ours"), str(w), str(h), at("pixels"), at("b")], capture_output=True,
                                   text=True)
                if a.returncode or b.returncode:
                    sys.exit(f"{name}: {a.stderr[-300:]}{b.stderr[-300:]}")
                x, y = (np.fromfile(at(file), np.float32).astype(np.float64) for file in "ab")
                if len(x) != len(y):
                    line.append(f"{w} x {h}: {len(x) // wide} and {len(y) // wide} rows")
                    bad += 1
                    continue
                if name == "mlp":
                    x, y = x[:-64], y[64:]
                if name == "granitevision":
                    x, y = x[:-64 * 64], y[64 * 64:]
                error = float(((x - y) ** 2).sum() / (x ** 2).sum())
                bad += not error < (0.1 if name == "kimivl" else 1e-3)
                line.append(f"{w} x {h}: {len(x) // (wide * (1 + DEEP.get(name, 0)))} rows, {error:.1e}")
            same = 0
            for _ in range(COUNTED):
                w, h = (str(x) for x in rng.integers(8, 400, 2))
                a = subprocess.run([mtmd_rows, at("theirs"), at("text.gguf"), w, h], capture_output=True, text=True)
                b = subprocess.run([tower_rows, at("ours"), w, h], capture_output=True, text=True)
                same += a.returncode == 0 == b.returncode and sum(map(int, a.stdout.split())) == int(b.stdout.split()[1])
            print(f"{name}: {'; '.join(line)}; {same} of {COUNTED} sizes take as many tokens", flush=True)
    return bad


if __name__ == "__main__":
    sys.exit(main())
