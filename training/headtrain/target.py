"""Reads what a head needs from its target's GGUF file: shape, embedding, output rows, final norm.

Owns: reading these by the PyPI package `gguf`. Weights come out dequantized exactly, as float32.
"""
from dataclasses import dataclass

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize


@dataclass
class Target:
    arch: str
    n_vocab: int
    n_embd: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    n_ff: int
    n_ctx: int
    head_dim: int
    eps: float
    rope_theta: float
    ends: list             # ids that end an answer
    embedding: np.ndarray  # [n_vocab, n_embd] f32
    output: np.ndarray     # [n_vocab, n_embd] f32; the embedding where the two are tied
    output_norm: np.ndarray  # [n_embd] f32


def half_split(rows, n_heads):
    """Rows of q or k [heads * d, n] as GGUF files have them, rotated by pairs (2i, 2i + 1) -> rotated by halves (i, i + d / 2),
    as in Hugging Face checkpoints."""
    n, n_in = rows.shape
    return rows.reshape(n_heads, n // n_heads // 2, 2, n_in).swapaxes(1, 2).reshape(n, n_in)


def _scalar(reader, key, default=None):
    field = reader.fields.get(key)
    return default if field is None else field.contents()


def read(path):
    reader = GGUFReader(path)
    arch = _scalar(reader, "general.architecture")
    tensors = {t.name: t for t in reader.tensors}

    def key(name, default=None):
        value = _scalar(reader, f"{arch}.{name}", default)
        if value is None:
            raise SystemExit(f"{path}: has no '{arch}.{name}'; a head can be trained for a transformer with attention only")
        return value[0] if isinstance(value, list) else value

    def matrix(name):
        if name not in tensors:
            raise SystemExit(f"{path}: has no tensor '{name}'")
        tensor = tensors[name]
        return np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
    ends = [e for e in (_scalar(reader, f"tokenizer.ggml.{n}_token_id") for n in ("eos", "eot")) if e is not None]
    embedding = matrix("token_embd.weight")
    n_embd, n_heads = key("embedding_length"), key("attention.head_count")
    return Target(arch=arch, n_vocab=len(embedding), n_embd=n_embd,
                  n_layers=key("block_count") - _scalar(reader, f"{arch}.nextn_predict_layers", 0), n_heads=n_heads,
                  n_kv_heads=key("attention.head_count_kv", n_heads), n_ff=key("feed_forward_length"),
                  n_ctx=key("context_length"),
                  head_dim=key("attention.key_length", n_embd // n_heads), eps=key("attention.layer_norm_rms_epsilon", 1e-5),
                  rope_theta=key("rope.freq_base", 10000.0), ends=sorted(set(ends)), embedding=embedding,
                  output=matrix("output.weight") if "output.weight" in tensors else embedding,
                  output_norm=matrix("output_norm.weight"))
