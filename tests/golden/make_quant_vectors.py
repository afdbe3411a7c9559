#!/usr/bin/env python3
"""Write tests/golden/quant_vectors/*.bin: blocks of every type and the f32 values they stand for.

    python3 tests/golden/make_quant_vectors.py        (needs numpy and the package gguf, 0.19)

A file is: u32 type id, u32 number of blocks, the blocks, the values as f32; little-endian.
Values come from gguf.quants.dequantize. For types that the package cannot decode (Q8_1, Q8_K,
Q1_0, Q2_0, F64) the formula is written out below, independently of the C code.
"""
import os
import warnings

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

TYPES = {  # name: (id, elements, bytes)
    "f32": (0, 1, 4), "f16": (1, 1, 2), "bf16": (30, 1, 2), "f64": (28, 1, 8),
    "q4_0": (2, 32, 18), "q4_1": (3, 32, 20), "q5_0": (6, 32, 22), "q5_1": (7, 32, 24),
    "q8_0": (8, 32, 34), "q8_1": (9, 32, 36), "iq4_nl": (20, 32, 18), "mxfp4": (39, 32, 17),
    "nvfp4": (40, 64, 36), "q1_0": (41, 128, 18), "q2_0": (42, 64, 18),
    "q2_K": (10, 256, 84), "q3_K": (11, 256, 110), "q4_K": (12, 256, 144), "q5_K": (13, 256, 176),
    "q6_K": (14, 256, 210), "q8_K": (15, 256, 292), "iq4_xs": (23, 256, 136),
    "iq1_s": (19, 256, 50), "iq1_m": (29, 256, 56), "iq2_xxs": (16, 256, 66), "iq2_xs": (17, 256, 74),
    "iq2_s": (22, 256, 82), "iq3_xxs": (18, 256, 98), "iq3_s": (21, 256, 110),
    "tq1_0": (34, 256, 54), "tq2_0": (35, 256, 66),
}


def half(columns):
    return np.ascontiguousarray(columns).view(np.float16).astype(np.float32)


def decode(name, type_id, b):
    if name == "f64":
        return b.view(np.float64).astype(np.float32)
    if name == "q8_1":
        return half(b[:, :2]) * b[:, 4:].view(np.int8).astype(np.float32)
    if name == "q8_K":
        return np.ascontiguousarray(b[:, :4]).view(np.float32) * b[:, 4:260].view(np.int8).astype(np.float32)
    if name == "q1_0":  # one bit, lowest first: set is +d, clear is -d
        return half(b[:, :2]) * (np.unpackbits(b[:, 2:], axis=1, bitorder="little").astype(np.float32) * 2 - 1)
    if name == "q2_0":  # two bits, lowest first: d * (q - 1)
        q = (b[:, 2:, None] >> np.array([0, 2, 4, 6], np.uint8)) & 3
        return half(b[:, :2]) * (q.reshape(len(b), -1).astype(np.float32) - 1)
    return dequantize(b, GGMLQuantizationType(type_id))


def main():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "quant_vectors")
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng(20240)
    for name, (type_id, elements, n_bytes) in TYPES.items():
        n = {1: 128, 256: 12}.get(elements, 24)
        blocks = rng.integers(0, 256, (n, n_bytes), dtype=np.uint8)
        blocks[0] = 0x00
        blocks[1] = 0xFF  # scales that are NaN
        blocks[2] = 0x7C  # scales that are infinite or large
        blocks[3] = 0x80  # scales that are subnormal and negative
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = np.ascontiguousarray(decode(name, type_id, blocks), dtype=np.float32)
        assert values.size == n * elements
        with open(os.path.join(folder, name + ".bin"), "wb") as f:
            f.write(np.array([type_id, n], np.uint32).tobytes() + blocks.tobytes() + values.tobytes())


if __name__ == "__main__":
    main()
