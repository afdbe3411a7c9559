#!/usr/bin/env python3
"""widen.py - the same model or drafter head with rows of another width: zeros added, the function unchanged.

    widen.py models/smollm2-135m-instruct-q4_1.gguf wide-f16.gguf --width 768
    widen.py models/smollm2-135m-instruct-eagle3.gguf wide-head-f16.gguf --width 768 --target-width 768

K and IQ types need rows of whole blocks of 256. A model with rows of 576 has none, so `aerie quantize` gives most of its
tensors another type; with 192 zeros behind each row every tensor gets the one that is asked for. Weights of RMS norms and their
epsilon are adapted to the wider mean, heads of attention are added that read and write zeros, and what was computed stays so,
up to rounding. Reads llama models and eagle3 heads; writes F16 matrices and F32 vectors. The added zeros cost no error, so that
errors by weight are somewhat smaller than those of a model that has this width. For measurements only. Needs Python 3, numpy
and gguf.
"""
import argparse
import re
import sys

import gguf
import numpy as np


def values(tensor):
    """As float32 of the tensor's shape, rows first."""
    if tensor.tensor_type in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16):
        return np.asarray(tensor.data, dtype=np.float32)
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)


def wider(x, axis, old, new):
    """Every run of `old` along an axis gets zeros behind it, up to `new`: inputs may be several rows side by side."""
    n = x.shape[axis]
    if n % old:
        sys.exit(f"widen.py: a tensor of shape {x.shape} is not made of runs of {old}")
    parts = np.split(x, n // old, axis)
    pad = [(0, 0)] * x.ndim
    pad[axis] = (0, new - old)
    return np.concatenate([np.pad(p, pad) for p in parts], axis)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("source")
    p.add_argument("output")
    p.add_argument("--width", type=int, required=True, metavar="N", help="values of a row, a multiple of a head's size")
    p.add_argument("--target-width", type=int, metavar="N", help="of an eagle3 head: that of its target")
    o = p.parse_args()
    r = gguf.GGUFReader(o.source)
    arch = r.fields["general.architecture"].contents()
    if arch not in ("llama", "eagle3") or (arch == "eagle3") != bool(o.target_width) or (o.target_width or o.width) != o.width:
        sys.exit("widen.py: a llama model, or an eagle3 head with a --target-width that is its --width")
    get = lambda key: r.fields[f"{arch}.{key}"].contents()
    old, n_heads, n_kv, eps = (get(k) for k in ("embedding_length", "attention.head_count", "attention.head_count_kv",
                                                "attention.layer_norm_rms_epsilon"))
    head = old // n_heads
    if o.width <= old or o.width % head or (o.width // head) % (n_heads // n_kv):
        sys.exit(f"widen.py: --width must be more than {old} and a multiple of {head * (n_heads // n_kv)}")
    heads = o.width // head
    changed = {"embedding_length": o.width, "target_hidden_size": o.width, "attention.head_count": heads,
               "attention.head_count_kv": heads // (n_heads // n_kv),
               "attention.layer_norm_rms_epsilon": eps * old / o.width}
    w = gguf.GGUFWriter(o.output, arch)
    for key, field in r.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "general.file_type"):
            continue
        value = changed.get(key.removeprefix(arch + "."), field.contents())
        kind = field.types[0]
        w.add_key_value(key, value, kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    w.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    q, kv = (old, o.width), (n_kv * head, heads // (n_heads // n_kv) * head)
    outputs = {"attn_q": q, "attn_k": kv, "attn_v": kv, "attn_output": q, "ffn_down": q, "fc": q}  # others keep theirs
    for t in r.tensors:
        name = re.sub(r"^blk\.\d+\.|\.weight$", "", t.name)
        if t.tensor_type == gguf.GGMLQuantizationType.I64:
            w.add_tensor(t.name, np.asarray(t.data))
        elif len(t.shape) == 1:
            w.add_tensor(t.name, wider(values(t), 0, old, o.width) * np.float32((old / o.width) ** 0.5))
        else:
            x = values(t)
            if name != "ffn_down":
                x = wider(x, 1, old, o.width)
            if name in outputs:
                x = wider(x, 0, *outputs[name])
            w.add_tensor(t.name, x.astype(np.float16))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()
