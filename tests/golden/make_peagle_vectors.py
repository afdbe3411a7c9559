#!/usr/bin/env python3
"""Rows of random P-EAGLE heads, for tests/golden/test_block.c, from the published description (arXiv 2602.01469) in PyTorch.

    make_peagle_vectors.py --mkmodel build/tests/mkmodel --mkhead build/tests/mkhead

Needs torch, transformers (5.24 was used) and gguf. Attention, norms, rotation and feed-forward blocks are transformers'; how
the head puts them together is written here: tokens' embeddings and the mixed taps, each normed, are what the first layer
reads, the taps' row is its residual, further layers are ordinary ones, and mask rows have one vector for taps and one token.
The text is token (7 i i + 13 i + 5) mod V in row i. Files are those of make_block_vectors.py (no anchor, no confidence):
hidden rows are those before the last norm, tokens ids of the draft vocabulary.
"""
import argparse
import pathlib
import struct
import subprocess
import tempfile

import torch
from make_block_vectors import fnv, tensors
from torch.nn.functional import linear, rms_norm
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaDecoderLayer, LlamaRotaryEmbedding

CASES = {
    "peagle": ["--parallel", "6", "--draft-vocab", "128"],
    "peagle-layers": ["--parallel", "12", "--layers", "3", "--norm-before-residual", "1", "--own-embedding", "1"],
    "peagle-normed": ["--parallel", "8", "--layers", "2", "--norm-before-fc", "1", "--draft-vocab", "200"],
}
N_CONTEXT = 37
PARTS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def halves(weight, n_heads):
    """Rows of queries or keys that rotate by pairs (2i, 2i + 1), in the order of transformers, which rotates (i, i + d / 2)."""
    return weight.reshape(n_heads, -1, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def layers(own, key, n_embd):
    n_heads, n_kv = key("attention.head_count"), key("attention.head_count_kv")
    config = LlamaConfig(hidden_size=n_embd, num_attention_heads=n_heads, num_key_value_heads=n_kv,
                         head_dim=key("attention.key_length"), intermediate_size=key("feed_forward_length"),
                         rms_norm_eps=key("attention.layer_norm_rms_epsilon"), attn_implementation="eager",
                         rope_parameters={"rope_type": "default", "rope_theta": key("rope.freq_base")})
    made = []
    for i in range(key("block_count")):
        layer = LlamaDecoderLayer(config, i)
        if not i:
            layer.self_attn = LlamaAttention(config, 0)
            for name in ("q_proj", "k_proj", "v_proj"):
                old = getattr(layer.self_attn, name)
                setattr(layer.self_attn, name, torch.nn.Linear(2 * n_embd, old.out_features, bias=False))
        state = {PARTS[n.split(".")[2]] + ".weight": v for n, v in own.items() if n.startswith(f"blk.{i}.")
                 and n.split(".")[2] in PARTS}
        for name, n in (("q_proj", n_heads), ("k_proj", n_kv)):
            state[f"self_attn.{name}.weight"] = halves(state[f"self_attn.{name}.weight"], n)
        layer.load_state_dict(state)
        made.append(layer.eval())
    return config, made


@torch.no_grad()
def run(own, target, key, features):
    n_masks, mask, eps = key("parallel_depth") - 1, key("mask_token_id"), key("attention.layer_norm_rms_epsilon")
    embedding = own.get("token_embd.weight", target["token_embd.weight"])
    text = [(7 * i * i + 13 * i + 5) % len(target["token_embd.weight"]) for i in range(N_CONTEXT)]
    x = embedding[torch.tensor(text + [mask] * n_masks)]
    taps = torch.cat([features, own["mask_hidden"].flatten().expand(n_masks, -1)])
    if key("norm_before_fc"):
        taps = rms_norm(taps, taps.shape[-1:], own["enc.output_norm.weight"], eps)
    mixed = linear(taps, own["fc.weight"])
    config, made = layers(own, key, mixed.shape[1])
    norm = next(v for n, v in own.items() if n in ("blk.0.attn_norm_2.weight", "blk.0.hidden_norm.weight"))
    normed = rms_norm(mixed, mixed.shape[-1:], norm, eps)
    n = len(x)
    rotation = LlamaRotaryEmbedding(config)(x[None], torch.arange(n)[None])
    unseen = torch.full((n, n), float("-inf")).triu(1)[None, None]
    first = made[0]
    y = first.self_attn(torch.cat([first.input_layernorm(x), normed], -1)[None], position_embeddings=rotation,
                        attention_mask=unseen)[0]
    y = y + (normed if key("norm_before_residual") else mixed)
    y = y + first.mlp(first.post_attention_layernorm(y))
    for layer in made[1:]:
        y = layer(y, attention_mask=unseen, position_embeddings=rotation)
        y = y[0] if isinstance(y, tuple) else y
    hidden = y[0, N_CONTEXT - 1:]
    output = own.get("output.weight", target.get("output.weight"))
    return hidden, linear(rms_norm(hidden, hidden.shape[-1:], own["output_norm.weight"], eps), output)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("mkmodel", "mkhead"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--out", default=pathlib.Path(__file__).parent / "block", type=pathlib.Path)
    args = parser.parse_args()
    torch.manual_seed(2)
    with tempfile.TemporaryDirectory() as folder:
        model, head = folder + "/target.gguf", folder + "/head.gguf"
        subprocess.run([args.mkmodel, "--shape", "tiny", "--type", "f32", "--seed", "7", model], check=True)
        target, _ = tensors(model)
        for name, how in CASES.items():
            subprocess.run([args.mkhead, *how, "--type", "f32", "--seed", "3", model, head], check=True)
            own, find = tensors(head)
            features = torch.randn(N_CONTEXT, own["fc.weight"].shape[1])
            hidden, logits = run(own, target, lambda k: find("eagle3." + k), features)
            data = struct.pack("<Q5Ii", fnv(pathlib.Path(head).read_bytes()), *features.shape, *hidden.shape,
                               logits.shape[1], 0)
            data += features.numpy().tobytes() + hidden.numpy().tobytes()
            for row in logits:
                data += struct.pack("<if", int(row.argmax()), -1.0) + row.numpy().tobytes()
            (args.out / f"{name}.bin").write_bytes(data)
            print(name, logits.argmax(-1).tolist(), f"spread of hidden rows {hidden.std():.2f}, of logits {logits.std():.2f}")


if __name__ == "__main__":
    main()
