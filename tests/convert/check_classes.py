#!/usr/bin/env python3
"""Models of Hugging Face folders, converted: every tensor must be the one that the folder was made of.

    check_classes.py AERIE MKARCH [NAME...] [--mutants N] [--keep FOLDER]

mkarch's random model of each architecture is taken apart into a folder with the names, shapes and orders of the published class
(written down here once more, from the models' own code), and 'aerie convert' must make the same tensors of it, and a file with
the same logits. Then values of config.json are damaged (--mutants: how many times for each, 4): each folder must be converted
or refused with a sentence, and leave no file. Models that transformers can save are in check_models.py too, by hand.
Needs Python alone.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from array import array

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from folders import changed, halves, joined, layers_of, read_gguf, write_folder  # noqa: E402


class File:
    """Keys without the architecture, and tensors."""

    def __init__(self, path):
        keys, self.tensors = read_gguf(path)
        self.arch = keys["general.architecture"]
        self.keys = {k.removeprefix(self.arch + "."): v for k, v in keys.items()}
        self.n_layers = self.keys["block_count"] - self.keys.get("nextn_predict_layers", 0)

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
                      moe_intermediate_size=f["expert_feed_forward_length"])
    return {**config, **more}


def dream(f):
    return common(f, "DreamModel", mask_token_id=0), take_apart(f)


def llada(f):
    n, n_kv = f["attention.head_count"], f["attention.head_count_kv"]

    def change(out, at, t, _):
        t["attn_q.weight"], t["attn_k.weight"] = halves(t["attn_q.weight"], n), halves(t["attn_k.weight"], n_kv)
    names = {"attn_norm": "attn_norm", "ffn_norm": "ff_norm", "attn_q": "q_proj", "attn_k": "k_proj", "attn_v": "v_proj",
             "attn_output": "attn_out", "ffn_gate": "ff_proj", "ffn_up": "up_proj", "ffn_down": "ff_out"}
    whole = {"token_embd": "model.transformer.wte", "output_norm": "model.transformer.ln_f",
             "output": "model.transformer.ff_out"}
    config = dict(architectures=["LLaDAModelLM"], d_model=64, n_layers=f.n_layers, n_heads=n, n_kv_heads=n_kv, head_dim=24,
                  mlp_hidden_size=96, max_sequence_length=256, weight_tying=False, activation_type="silu", block_type="llama",
                  layer_norm_type="rms", rms_norm_eps=1e-5, rope=True, alibi=False, rope_theta=10000.0, mask_token_id=0)
    return config, take_apart(f, names, whole, "model.transformer.blocks.{}.", change)


def apart(f, more=None, **how):
    return take_apart(f, how.get("layer"), change=lambda out, at, t, i: (experts(out, at + "mlp.experts", t),
                                                                         more and more(out, at, t, i)))


def llada_moe(f):
    config = common(f, "LLaDAMoEModelLM", mask_token_id=0, dense_intermediate_size=f["feed_forward_length"],
                    expert_intermediate_size=f["expert_feed_forward_length"], norm_topk_prob=None)
    del config["moe_intermediate_size"], config["intermediate_size"]
    return config, apart(f)


def rnd1(f):
    return common(f, "RND1", mask_token_id=0, norm_topk_prob=True), apart(f)


def grove(f):
    f.keys["expert_group_scale"] = 0.05  # a number of the model's code

    def chunks(out, at, t, _):
        out[at + "mlp.expert_bias"] = ([12], array("f", [0.5] * 12))
        experts(out, at + "mlp.chunk_experts", t, of="chexps")
    return common(f, "GroveMoeForCausalLM", norm_topk_prob=True), apart(f, chunks)


def hrm(f):
    n = f["hrm.layers_per_stack"]
    f.keys["block_count"] = 2 * n

    def change(out, at, t, i):
        own = f"model.{'LH'[i // n]}_module.layers.{i % n}."
        parts = [t.pop(f"attn_{x}.weight") for x in ("gate", "q", "k", "v")]
        out[own + "attn.gqkv_proj.weight"] = joined(*parts)
        out[own + "mlp.gate_up_proj.weight"] = joined(t.pop("ffn_gate.weight"), t.pop("ffn_up.weight"))
        out[own + "attn.o_proj.weight"] = t.pop("attn_output.weight")
        out[own + "mlp.down_proj.weight"] = t.pop("ffn_down.weight")
    tensors = take_apart(f, whole={"hrm.z_l_init": "model.z_L_init"}, change=change)
    return common(f, "HrmTextForCausalLM", num_hidden_layers=n, H_cycles=f["hrm.h_cycles"], L_cycles=f["hrm.l_cycles"],
                  embedding_scale=f["embedding_scale"]), tensors


def without_one(t):
    for name in [n for n in t if "norm" in n]:
        t[name] = changed(t[name], lambda x: x - 1)


def minimax_m3(f):
    def change(out, at, t, i):
        without_one(t)
        experts(out, at + "block_sparse_moe.experts", t, "w1 w3 w2")
        if "exp_probs_b.bias" in t:
            out[at + "block_sparse_moe.e_score_correction_bias"] = t.pop("exp_probs_b.bias")
    names = {"ffn_gate_inp": "block_sparse_moe.gate", **{f"indexer.{x}": f"self_attn.index_{x}" for x in
                                                         ("q_proj", "k_proj", "q_norm", "k_norm")},
             **{f"ffn_{x}_shexp": f"block_sparse_moe.shared_experts.{x}_proj" for x in ("gate", "up", "down")}}
    tensors = take_apart(f, names, change=change)
    tensors["model.norm.weight"] = changed(tensors["model.norm.weight"], lambda x: x - 1)
    n_dense, n = f["leading_dense_block_count"], f.n_layers
    text = common(f, "MiniMaxM3SparseForCausalLM", hidden_act="swigluoai", dense_intermediate_size=f["feed_forward_length"],
                  intermediate_size=f["expert_feed_forward_length"], num_local_experts=f["expert_count"], use_gemma_norm=True,
                  shared_intermediate_size=f["expert_feed_forward_length"], n_shared_experts=1, swiglu_limit=7.0,
                  swiglu_alpha=1.702, rotary_dim=f["rope.dimension_count"], routed_scaling_factor=f["expert_weights_scale"],
                  moe_layer_freq=[int(i >= n_dense) for i in range(n)], scoring_func="sigmoid", sparse_attention_config={
                      "sparse_num_index_heads": f["attention.indexer.head_count"],
                      "sparse_index_dim": f["attention.indexer.key_length"],
                      "sparse_block_size": f["attention.indexer.block_size"],
                      "sparse_topk_blocks": f["attention.indexer.top_k"],
                      "sparse_local_block": f["attention.indexer.local_blocks"],
                      "sparse_attention_freq": [int(i >= n_dense) for i in range(n)]})
    for name in ("moe_intermediate_size", "num_experts"):
        del text[name]
    config = {"architectures": ["MiniMaxM3SparseForConditionalGeneration"], "text_config": text, "vision_config": {}}
    return config, {"language_model." + k: w for k, w in tensors.items()}


CASES = {"dream": dream, "llada": llada, "llada-moe": llada_moe, "rnd1": rnd1, "grovemoe": grove, "hrm_text": hrm,
         "minimax-m3": minimax_m3, "minimax-m3-local": minimax_m3}
# the published numbers are another function of the file's, so that rounding may differ
ROUNDED = {"minimax-m3": ("norm",)}


def convert(args, folder, out):
    return subprocess.run([args.aerie, "convert", folder, "-o", out, "--outtype", "f32", "-q"], capture_output=True, text=True)


def logits(args, path, f, ids):
    over = []
    for key in ("expert_group_scale",):
        if key in f.keys:
            over += ["--override-kv", f"{f.arch}.{key}=float:{f[key]}"]
    run = subprocess.run([args.aerie, "bench", "logits", "-m", path, "--ids-file", ids, *over], capture_output=True)
    assert run.returncode == 0, run.stderr.decode()
    x = array("f")
    x.frombytes(run.stdout)
    return x


def compare(name, f, out):
    """Whether all tensors are the same to the bit."""
    _, got = read_gguf(out)
    same = True
    assert got.keys() == f.tensors.keys(), f"{name}: {sorted(got.keys() ^ f.tensors.keys())}"
    for tensor, (shape, want) in f.tensors.items():
        other, x = got[tensor]
        assert other == shape, f"{name}: {tensor} {shape} became {other}"
        if x == want:
            continue
        same = False
        worst = max(abs(a - b) / max(1, abs(b)) for a, b in zip(x, want))
        assert any(part in tensor for part in ROUNDED.get(f.arch, ())) and worst < 2e-6, f"{name}: {tensor} differs by {worst}"
    return same


def check(name, args, scratch):
    source, folder, out = (os.path.join(scratch, x) for x in ("source.gguf", name, "out.gguf"))
    ids = os.path.join(scratch, "ids.txt")
    subprocess.run([args.mkarch, "--decoded", name, source], check=True)
    with open(ids, "w", encoding="utf-8") as text:
        text.write(" ".join(str(7 * i * i % 259) for i in range(40)))
    f = File(source)
    config, tensors = CASES[name](f)
    write_folder(folder, config, tensors)
    run = convert(args, folder, out)
    assert run.returncode == 0, f"{name}: {run.stderr}"
    same = compare(name, f, out)
    a, b = logits(args, out, File(out), ids), logits(args, source, f, ids)
    error = sum((x - y) ** 2 for x, y in zip(a, b)) / sum(y * y for y in b)
    assert error == 0 if same else error < 1e-6, f"{name}: logits differ by {error}"
    print(f"{name} ({config['architectures'][0]}): {len(f.tensors)} tensors, error of logits {error:.1e}", flush=True)
    damage(name, args, folder, scratch, config)


def places(value, path=()):
    """Every place in the configuration."""
    yield path
    for k in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[k], path + (k,))


def damage(name, args, folder, scratch, config):
    """Wrong values in config.json: a sentence, or a file that loads."""
    rng = random.Random(f"{name} {args.seed}")
    out = os.path.join(scratch, "bad.gguf")
    for k in range(args.mutants):
        bad = json.loads(json.dumps(config))
        for _ in range(rng.choice((1, 1, 2))):
            path = rng.choice([p for p in places(bad) if p and p[0] != "architectures"])
            to = bad
            for step in path[:-1]:
                to = to[step]
            value = rng.choice((None, -1, 0, 1, 2, 3, 7, 2 ** 31, 2 ** 32 + 1, 1e30, 0.5, -2.5, "", "none", [], [1], {}, True,
                                False, "drop", [0] * 9, ["dense"] * 9, 1 << 62))
            if value == "drop" and isinstance(to, dict):
                del to[path[-1]]
            else:
                to[path[-1]] = value
        write_folder(folder, bad, None, {})
        run = convert(args, folder, out)
        if run.returncode == 0:
            os.remove(out)
            continue
        assert run.returncode in (2, 3, 4) and run.stderr.startswith("aerie: ") and not os.path.exists(out), \
            f"{name}, mutant {k}: status {run.returncode}: {run.stderr} {json.dumps(bad)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("aerie")
    parser.add_argument("mkarch")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--mutants", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", metavar="FOLDER", help="where the folders stay")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        for name in args.names or CASES:
            check(name, args, args.keep or temporary)


main()
