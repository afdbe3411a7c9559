"""The tensors of mkarch's files, taken apart into those of published folders. For check_classes.py and the tables of its cases.
Needs Python alone."""
import os
import struct
import sys
from array import array

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from folders import layers_of, read_gguf, rows_of  # noqa: E402


class File:
    """Keys without the architecture, and tensors."""

    def __init__(self, path):
        self.path, self.files = path, None
        keys, self.tensors = read_gguf(path)
        self.arch = keys["general.architecture"]
        self.keys = {k.removeprefix(self.arch + "."): v for k, v in keys.items()}
        self.n_layers = self.keys["block_count"] - self.keys.get("nextn_predict_layers", 0)

    def set_numbers(self, key, values, kind="f", is_list=True):
        """Changes a number or a list in the file itself."""
        with open(self.path, "r+b") as f:
            data = f.read()
            name = f"{self.arch}.{key}".encode()
            at = data.index(struct.pack("<Q", len(name)) + name) + 8 + len(name) + (16 if is_list else 4)
            f.seek(at)
            f.write(struct.pack(f"<{len(values)}{kind}", *values))

    def set_tensor(self, name, values):
        """Changes a tensor in the file itself."""
        shape, old = self.tensors[name]
        with open(self.path, "r+b") as f:
            f.seek(f.read().index(old.tobytes()))
            f.write(values.tobytes())
        self.tensors[name] = shape, values

    def __getitem__(self, key):
        return self.keys[key]

    def get(self, key, default=None):
        return self.keys.get(key, default)


LLAMA = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj",
         "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate"}
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def experts(out, place, t, names="gate_proj up_proj down_proj", of="exps"):
    """Stacks of experts one by one."""
    for part, name in zip(("gate", "up", "down"), names.split()):
        for e, w in enumerate(layers_of(t.pop(f"ffn_{part}_{of}.weight")) if f"ffn_{part}_{of}.weight" in t else []):
            out[f"{place}.{e}.{name}.weight"] = w


def take_apart(f, layer=None, whole=None, place="model.layers.{}.", change=None):
    """change(out, place, tensors of the layer, its number): what is not a new name; it takes from the tensors what it did."""
    names, out, rest = {**LLAMA, **(layer or {})}, {}, dict(f.tensors)
    for i in range(f["block_count"]):
        here = {n.split(".", 2)[2]: rest.pop(n) for n in list(rest) if n.startswith(f"blk.{i}.")}
        at = place.format(i)
        if change:
            change(out, at, here, i)
        for name, t in here.items():
            base, _, end = name.rpartition(".")
            to = names.get(name) or names[base] + "." + end
            out[at + to] = t
    for name, t in rest.items():
        base, _, end = name.rpartition(".")
        out[({**WHOLE, **(whole or {})}).get(name) or {**WHOLE, **(whole or {})}[base] + "." + end] = t
    return out


def common(f, of_class, **more):
    kv, head = f.get("attention.head_count_kv", 1), f.get("attention.key_length")
    config = {"architectures": [of_class], "hidden_size": f["embedding_length"], "num_hidden_layers": f.n_layers,
              "num_attention_heads": f["attention.head_count"], "num_key_value_heads": kv, "max_position_embeddings": 256,
              "intermediate_size": f.get("feed_forward_length"), "rms_norm_eps": 1e-5, "hidden_act": "silu", "vocab_size": 264,
              "rope_theta": f.get("rope.freq_base", 10000.0), "tie_word_embeddings": "output.weight" not in f.tensors}
    if head:
        config["head_dim"] = head
    if f.get("expert_count"):
        config.update(num_experts=f["expert_count"], num_experts_per_tok=f["expert_used_count"],
                      moe_intermediate_size=f.get("expert_feed_forward_length"))
    return {**config, **more}


def grouped(f, t):
    """Queries, keys and values of each head of keys together."""
    n, n_kv = f["attention.head_count"], f.get("attention.head_count_kv") or f["attention.head_count"]
    each, d = n // n_kv, t[0][0] // (n + 2 * n_kv)
    heads = [h for g in range(n_kv) for h in (*range(g * each, g * each + each), n + g, n + n_kv + g)]
    return rows_of(t, [h * d + i for h in heads for i in range(d)])
