#!/usr/bin/env python3
"""Writes tests/golden/torch/*.pt, what torch.save makes of tables of tensors (needs PyTorch; made with 2.x).

Values of tensor number k are k + i / 8 (whole ones: 10 k + i); test_torch.c knows that.
"""
import collections
import pathlib
import sys

import torch

out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden/torch")


def real(k, shape, dtype):
    n = 1
    for d in shape:
        n *= d
    return (k + torch.arange(n, dtype=torch.float64) / 8).reshape(shape).to(dtype)


def whole(k, shape, dtype):
    return (10 * k + torch.arange(shape[0])).to(dtype)


table = collections.OrderedDict()
table["f32"] = real(1, (2, 3), torch.float32)
table["f16"] = real(2, (4,), torch.float16)
table["bf16"] = real(3, (2, 2, 2), torch.bfloat16)
table["f64"] = real(4, (), torch.float64)
table["i64"] = whole(-5, (5,), torch.int64)
table["i32"] = whole(6, (3,), torch.int32)
table["i16"] = whole(7, (3,), torch.int16)
table["i8"] = whole(-8, (3,), torch.int8)
table["u8"] = whole(9, (3,), torch.uint8)
table["bool"] = torch.tensor([True, False, True])
table["parameter"] = torch.nn.Parameter(real(10, (3,), torch.float32))
whole_storage = real(11, (6, 2), torch.float32)
table["slice"] = whole_storage[2:4]
table["same"] = whole_storage
table["empty"] = torch.zeros(0, 4)
torch.save(table, out / "table.pt")
torch.save({"epoch": 3, "lr": 0.5, "names": ["a"], "state_dict": {"w": table["f32"]}}, out / "nested.pt")
torch.save({"w": table["f32"].t()}, out / "transposed.pt")
torch.save(torch.nn.Linear(2, 2), out / "module.pt")
torch.save({"w": table["f32"]}, out / "old.pt", _use_new_zipfile_serialization=False)
