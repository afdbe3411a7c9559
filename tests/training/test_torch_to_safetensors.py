"""training/torch_to_safetensors.py: what torch.save wrote, read again, is the same."""
import json
import os
import struct
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "training", "torch_to_safetensors.py")


def run(*arguments):
    return subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True, check=False)


def read(path):
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    return {name: (t["dtype"], t["shape"], data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
            for name, t in json.loads(data[8:8 + n]).items()}


def raw(t):
    return t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""


def test_one_file(tmp_path):
    a = torch.randn(3, 5)
    tensors = {"a": a, "shared": a, "turned": a.T, "b": torch.randn(4).bfloat16(),
               "empty": torch.zeros(0, 2), "n": torch.tensor(7)}
    torch.save({"state_dict": tensors, "step": 3}, tmp_path / "x.pt")
    assert run(tmp_path / "x.pt").returncode == 0
    found = read(tmp_path / "x.safetensors")
    assert found.keys() == tensors.keys()
    for name, t in tensors.items():
        assert found[name][1:] == (list(t.shape), raw(t)), name
    assert found["b"][0] == "BF16" and found["n"][0] == "I64"


def test_shards(tmp_path):
    parts = {"one.bin": {"x": torch.randn(2, 2).half()}, "two.bin": {"y": torch.randn(3)}}
    for name, tensors in parts.items():
        torch.save(tensors, tmp_path / name)
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "one.bin", "y": "two.bin"}}))
    assert run(tmp_path).returncode == 0
    assert read(tmp_path / "model.safetensors").keys() == {"x", "y"}
    index.write_text(json.dumps({"weight_map": {"x": "../one.bin"}}))
    assert "../one.bin" in run(tmp_path).stderr


def test_refuses(tmp_path):
    assert "no such file" in run(tmp_path / "none").stderr
    assert "pytorch_model.bin" in run(tmp_path).stderr
    torch.save([1, 2], tmp_path / "list.pt")
    assert "no table of tensors" in run(tmp_path / "list.pt").stderr
    (tmp_path / "bad.pt").write_bytes(b"nothing of the kind")
    assert run(tmp_path / "bad.pt").returncode != 0 and not (tmp_path / "bad.safetensors").exists()
