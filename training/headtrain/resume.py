"""Begins a run with an EAGLE head from its GGUF file, when its checkpoint is gone: `train_head.py --start-from HEAD.gguf`.

Weights are those of the file, with the rounding of its types; optimizers start from zero.
"""
import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize

from .target import half_split

NAMES = {"fc": "fc", "blk.0.attn_norm": "midlayer.input_layernorm", "blk.0.attn_norm_2": "midlayer.hidden_norm",
         "output_norm": "norm",
         "blk.0.attn_q": "midlayer.self_attn.q_proj", "blk.0.attn_k": "midlayer.self_attn.k_proj",
         "blk.0.attn_v": "midlayer.self_attn.v_proj", "blk.0.attn_output": "midlayer.self_attn.o_proj",
         "blk.0.ffn_norm": "midlayer.post_attention_layernorm", "blk.0.ffn_gate": "midlayer.mlp.gate_proj",
         "blk.0.ffn_up": "midlayer.mlp.up_proj", "blk.0.ffn_down": "midlayer.mlp.down_proj", "output": "lm_head"}


def read(path, taps):
    """(shape, state) as a checkpoint's; the head must be of the kind that is trained here, and of these taps."""
    reader = GGUFReader(path)

    def key(name):
        field = reader.fields.get(f"eagle3.{name}")
        if field is None:
            raise SystemExit(f"{path}: has no 'eagle3.{name}'; a run can start from an EAGLE head as training/ writes them")
        return field.contents()
    wanted = {"feedback": "post", "fc_norm": True, "norm_before_residual": False, "norm_before_fc": False,
              "draft_map": "absolute",
              "target_layers": list(taps)}
    for name, value in wanted.items():
        if key(name) != value:
            raise SystemExit(f"{path}: eagle3.{name} is {key(name)}; a run can start from a head where it is {value}")
    names = dict(NAMES, **{f"fc_norm.{i}": f"fc_norm.{i}" for i in range(len(taps))})
    found = {t.name: t for t in reader.tensors}
    state = {}
    for name, ours in names.items():
        tensor = found.get(f"{name}.weight")
        if tensor is None:
            raise SystemExit(f"{path}: has no tensor '{name}.weight'")
        rows = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        if name in ("blk.0.attn_q", "blk.0.attn_k"):
            rows = half_split(rows, key("attention.head_count" if name.endswith("q") else "attention.head_count_kv"))
        state[f"{ours}.weight"] = torch.from_numpy(np.ascontiguousarray(rows))
    if "d2t" not in found:
        raise SystemExit(f"{path}: has no tensor 'd2t'")
    state["d2t"] = torch.from_numpy(np.array(found["d2t"].data, dtype=np.int64))
    return dict(n_embd=key("embedding_length"), n_target_embd=key("target_hidden_size"), n_taps=len(taps),
                n_heads=key("attention.head_count"),
                n_kv_heads=key("attention.head_count_kv"), head_dim=key("attention.key_length"),
                n_ff=key("feed_forward_length"),
                n_draft=len(state["d2t"]), eps=key("attention.layer_norm_rms_epsilon"), rope_theta=key("rope.freq_base")), state
