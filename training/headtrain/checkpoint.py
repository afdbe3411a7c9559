"""Writes a trained head as a Hugging Face checkpoint: config.json and model.safetensors, names as published heads have them.

EAGLE-3.1: `fc_norm` (a norm per tap) and `norm_output` in vLLM's meaning (the normed output is fed back). Tap numbers are
INPUT indices: the residual stream before that layer, the number of layers standing for "after the last one".
"""
import json
from pathlib import Path

import torch
from safetensors.torch import save_file


def tensors(state):
    """The head's state as the checkpoint's tensors, float32. d2t holds offsets (target id - draft id), as published."""
    out = {}
    for name, value in state.items():
        if name != "d2t":
            out[name] = value.detach().float().contiguous().cpu()
    d2t = state["d2t"].cpu()
    out["d2t"] = d2t - torch.arange(len(d2t))
    return out


def config(shape, taps, n_layers, n_vocab, n_ctx):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "float32",
        "hidden_size": shape["n_embd"], "target_hidden_size": shape["n_target_embd"], "intermediate_size": shape["n_ff"],
        "num_hidden_layers": 1, "num_attention_heads": shape["n_heads"], "num_key_value_heads": shape["n_kv_heads"],
        "head_dim": shape["head_dim"], "hidden_act": "silu", "rms_norm_eps": shape["eps"], "rope_theta": shape["rope_theta"],
        "max_position_embeddings": n_ctx, "vocab_size": n_vocab, "draft_vocab_size": shape["n_draft"], "bias": False,
        "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False,
        "norm_before_residual": False, "norm_before_fc": False, "fc_norm": True,
        "norm_output": True, "feedback": "post", "producer": "aerie",
        "eagle_aux_hidden_state_layer_ids": list(taps), "eagle_aux_hidden_state_numbering": "input",
        "target_num_hidden_layers": n_layers,
    }


def export(path_checkpoint, folder, target):
    """checkpoint.pt of train.py -> folder/config.json, folder/model.safetensors."""
    saved = torch.load(path_checkpoint, map_location="cpu", weights_only=True)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    made = tensors(saved["head"])
    t2d = torch.zeros(target.n_vocab, dtype=torch.bool)
    t2d[saved["head"]["d2t"]] = True
    made["t2d"] = t2d
    save_file(made, folder / "model.safetensors", metadata={"format": "pt"})
    about = config(saved["shape"], saved["taps"], target.n_layers, target.n_vocab, target.n_ctx)
    (folder / "config.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    return about
