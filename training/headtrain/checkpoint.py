"""Writes a trained head as a Hugging Face checkpoint: config.json and model.safetensors, names as published heads have them.

EAGLE-3.1: `fc_norm` (a norm per tap) and `norm_output` in vLLM's meaning (the normed output is fed back). Tap numbers are
INPUT indices: the residual stream before that layer, the number of layers standing for "after the last one".

Block drafters: names and settings as DeepSpec's checkpoints have them, with `d2t` and output rows of their own beside these;
taps are OUTPUTS of layers there, one less, and -1 stands for the embedding.
"""
import json
from pathlib import Path

import torch
from safetensors.torch import save_file


def tensors(state):
    """Returns the head's state as the checkpoint's tensors, float32. d2t holds offsets (target id - draft id), as published."""
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


def block_config(shape, taps, n_layers, n_vocab, n_ctx):
    kind = "DSpark" if shape["n_markov"] else "DFlash"
    settings = {"block_size": shape["n_block"], "mask_token_id": shape["mask"], "target_layer_ids": [t - 1 for t in taps],
                "sample_from_anchor": True}
    if shape["n_markov"]:
        settings |= {"markov_rank": shape["n_markov"], "markov_head_type": "vanilla", "enable_confidence_head": True,
                     "confidence_head_with_markov": True}
    return {
        "architectures": [f"Qwen3{kind}Model"], "model_type": "qwen3", "dtype": "float32", "hidden_size": shape["n_embd"],
        "target_hidden_size": shape["n_target_embd"], "intermediate_size": shape["n_ff"],
        "num_hidden_layers": shape["n_layers"], "num_attention_heads": shape["n_heads"],
        "num_key_value_heads": shape["n_kv_heads"], "head_dim": shape["head_dim"], "hidden_act": "silu",
        "rms_norm_eps": shape["eps"], "rope_theta": shape["rope_theta"], "max_position_embeddings": n_ctx,
        "vocab_size": n_vocab, "draft_vocab_size": shape["n_draft"], "attention_bias": False, "tie_word_embeddings": False,
        "num_target_layers": n_layers, "producer": "aerie", **settings, "dflash_config": settings,
    }


def export(path_checkpoint, folder, target, own_output=True):
    """checkpoint.pt of train.py -> folder/config.json, folder/model.safetensors. own_output: a block drafter's output rows
    are its own, not the target's (of which d2t names some)."""
    saved = torch.load(path_checkpoint, map_location="cpu", weights_only=True)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    made, block = tensors(saved["head"]), "n_block" in saved["shape"]
    t2d = torch.zeros(target.n_vocab, dtype=torch.bool)
    t2d[saved["head"]["d2t"]] = True
    made["t2d"] = t2d
    if block and not own_output:
        del made["lm_head.weight"]
    save_file(made, folder / "model.safetensors", metadata={"format": "pt"})
    about = (block_config if block else config)(saved["shape"], saved["taps"], target.n_layers, target.n_vocab, target.n_ctx)
    (folder / "config.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    return about
