#!/usr/bin/env python3
"""A second witness for the golden logits of tests/golden/arch: the published models, as the package transformers has them.

    check_arch_torch.py --mkarch build/tests/mkarch [NAME...]

Builds each model that it knows in torch, on the CPU in F32, with the weights of the file that mkarch writes, and compares its
logits with those of NAME.bin, and of an MTP block with those of NAME.nextn.bin. Needs torch, transformers (5.23) and gguf.
Exit status 1 if one differs where it should not; 77 if a package is missing.
"""
import argparse
import copy
import os
import re
import struct
import subprocess
import sys
import tempfile

try:
    import gguf
    import numpy as np
    import torch
    import transformers
except ImportError as missing:
    print(f"skip: {missing}")
    sys.exit(77)

from make_arch_vectors import LEAD, fnv1a, text

MAX_ERROR = 1e-4


def read_golden(path):
    with open(path, "rb") as f:
        data = f.read()
    rows, vocab, model_hash = struct.unpack_from("<IIQ", data)
    tokens = np.frombuffer(data, "<i4", rows, 16)
    at = 16 + 4 * rows
    logits = np.empty((rows, vocab))
    for i in range(rows):
        logits[i] = struct.unpack_from("<f", data, at)[0] * np.frombuffer(data, "<i2", vocab, at + 4)
        at += 4 + 2 * vocab
    return tokens, logits, model_hash


class File:
    """Keys without the architecture, tensors as arrays with the slowest dimension first."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.arch = reader.fields["general.architecture"].contents()
        self.keys = {k.removeprefix(self.arch + "."): f.contents() for k, f in reader.fields.items()}
        self.tensors = {t.name: np.array(t.data, dtype=np.float32).reshape(t.shape[::-1]) for t in reader.tensors}
        self.n_layers = self.keys["block_count"] - self.keys.get("nextn_predict_layers", 0)

    def __getitem__(self, key):
        return self.keys[key]

    def get(self, key, default=None):
        return self.keys.get(key, default)

    def per_layer(self, key):
        value = self.keys[key]
        return value if isinstance(value, list) else [value] * self["block_count"]


# Names within a layer that most models share.
LAYER = {
    "attn_norm.weight": "input_layernorm.weight", "ffn_norm.weight": "post_attention_layernorm.weight",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "attn_qkv": "self_attn.qkv_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate",
    "exp_probs_b.bias": "mlp.gate.e_score_correction_bias", "ffn_down_exps.weight": "mlp.experts.down_proj",
    "ffn_gate_up_exps.weight": "mlp.experts.gate_up_proj", "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
    "ffn_up_shexp": "mlp.shared_experts.up_proj", "ffn_down_shexp": "mlp.shared_experts.down_proj",
    "attn_q_a": "self_attn.q_a_proj", "attn_q_a_norm": "self_attn.q_a_layernorm", "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa", "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_kv_b": "self_attn.kv_b_proj", "nextn.eh_proj": "eh_proj", "nextn.enorm": "enorm", "nextn.hnorm": "hnorm",
    "indexer.attn_q_b": "self_attn.indexer.wq_b", "indexer.attn_k": "self_attn.indexer.wk",
    "indexer.k_norm": "self_attn.indexer.k_norm", "indexer.proj": "self_attn.indexer.weights_proj",
    "nextn.shared_head_norm": "post_norm", "nextn.embed_tokens": "embed_tokens", "nextn.shared_head_head": "head",
}
GEMMA = {
    "post_attention_norm": "post_attention_layernorm", "ffn_norm.weight": "pre_feedforward_layernorm.weight",
    "post_ffw_norm": "post_feedforward_layernorm",
}
GLOBAL = {"token_embd.weight": "model.embed_tokens.weight", "output_norm": "model.norm", "output.weight": "lm_head.weight"}


def renamed(name, table):
    base, _, suffix = name.rpartition(".")
    if name in table:
        return table[name]
    return f"{table[base]}.{suffix}" if base in table else None


def unpermute(w, n_heads):
    """Rows of heads whose pairs lie side by side, to rows whose pairs lie half a head apart."""
    half = w.shape[0] // n_heads // 2
    return w.reshape(n_heads, half, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def state_of(f, layer=None, permuted=False, plus_one=(), change=None):
    """What torch's model gets. layer: other names than LAYER has; change: (name within the layer, array) to (name, array),
    None for one that is not wanted, before names are looked up."""
    table = {**LAYER, **(layer or {})}
    state, pairs = {}, {}
    for name, w in f.tensors.items():
        match = re.match(r"blk\.(\d+)\.(.*)", name)
        if not match:
            to = renamed(name, GLOBAL)
            if to:
                state[to] = w - 1 if name == "output_norm.weight" and plus_one else w
            continue
        i, name = int(match[1]), match[2]
        if permuted and name.startswith(("attn_q.", "attn_k.")):
            w = unpermute(w, f.per_layer("attention.head_count" if name[5] == "q" else "attention.head_count_kv")[i])
        if name.removesuffix(".weight") in plus_one:
            w = w - 1
        if change:
            changed = change(name, w, i)
            if changed is None:
                continue
            name, w = changed
        if name in ("ffn_gate_exps.weight", "ffn_up_exps.weight") and name not in table:
            pairs.setdefault(i, {})[name] = w
            continue
        to = renamed(name, table)
        if to is None:
            raise KeyError(f"no name for {name}")
        state[f"model.layers.{i}.{to}"] = w
    for i, pair in pairs.items():
        both = np.concatenate([pair["ffn_gate_exps.weight"], pair["ffn_up_exps.weight"]], 1)
        state[f"model.layers.{i}.{table['ffn_gate_up_exps.weight']}"] = both
    return state


def common(f, **more):
    """Arguments of a configuration that are called alike."""
    heads, kv = f["attention.head_count"], f.get("attention.head_count_kv")
    config = dict(vocab_size=264, hidden_size=f["embedding_length"], num_hidden_layers=f.n_layers,
                  max_position_embeddings=256, tie_word_embeddings="output.weight" not in f.tensors,
                  num_attention_heads=heads if not isinstance(heads, list) else max(heads),
                  num_key_value_heads=kv if not isinstance(kv, list) else max(kv),
                  intermediate_size=f["feed_forward_length"], rms_norm_eps=1e-5,
                  pad_token_id=None, bos_token_id=None, eos_token_id=None)
    if f.get("attention.key_length"):
        config["head_dim"] = f["attention.key_length"]
    rope = {"rope_type": "default", "rope_theta": f.get("rope.freq_base", 10000.0)}
    if f.get("rope.scaling.type") == "yarn":
        rope.update(rope_type="yarn", factor=f["rope.scaling.factor"],
                    original_max_position_embeddings=f["rope.scaling.original_context_length"])
    if f.get("rope.scaling.type") == "linear":
        rope.update(rope_type="linear", factor=f["rope.scaling.factor"])
    if f.get("rope.dimension_count") and f.get("attention.key_length"):
        rope["partial_rotary_factor"] = f["rope.dimension_count"] / f["attention.key_length"]
    if f.get("expert_count"):
        config.update(num_experts=f["expert_count"], num_local_experts=f["expert_count"], n_routed_experts=f["expert_count"],
                      num_experts_per_tok=f["expert_used_count"],
                      moe_intermediate_size=f.get("expert_feed_forward_length", f["feed_forward_length"]))
    return {**config, "rope_parameters": rope, **more}


def windows(f, pattern):
    return ["sliding_attention" if pattern(i) else "full_attention" for i in range(f.n_layers)]


# ---- Each architecture: class, configuration, weights ---------------------------------------------------------------------

def delta_net(f, name, w, _):
    """Gated DeltaNet: names, and the order in which the file has the heads of values (of qwen35: group by group within all)."""
    if name == "ssm_a":
        return "ssm_a", np.log(-w)
    return name, (w[:, None] if name == "ssm_conv1d.weight" else w)


DELTA = {"attn_q": "self_attn.q_proj", "ssm_a": "linear_attn.A_log", "ssm_dt.bias": "linear_attn.dt_bias",
         "ssm_conv1d": "linear_attn.conv1d", "ssm_norm": "linear_attn.norm", "ssm_out": "linear_attn.out_proj",
         "post_attention_norm": "post_attention_layernorm", "attn_qkv": "linear_attn.in_proj_qkv",
         "attn_gate": "linear_attn.in_proj_z", "ssm_alpha": "linear_attn.in_proj_a", "ssm_beta": "linear_attn.in_proj_b",
         "ssm_ba": "linear_attn.in_proj_ba", "in_proj_qkvz": "linear_attn.in_proj_qkvz",
         "ffn_gate_shexp": "mlp.shared_expert.gate_proj", "ffn_up_shexp": "mlp.shared_expert.up_proj",
         "ffn_down_shexp": "mlp.shared_expert.down_proj", "ffn_gate_inp_shexp": "mlp.shared_expert_gate"}
DELTA_PLUS_ONE = ("attn_norm", "post_attention_norm", "attn_q_norm", "attn_k_norm", "output_norm", "nextn.enorm", "nextn.hnorm",
                  "nextn.shared_head_norm")


def delta_config(f):
    interval = f["full_attention_interval"]
    return common(f, linear_conv_kernel_dim=f["ssm.conv_kernel"], linear_key_head_dim=f["ssm.state_size"],
                  linear_value_head_dim=f["ssm.state_size"], linear_num_key_heads=f["ssm.group_count"],
                  linear_num_value_heads=f["ssm.time_step_rank"], norm_topk_prob=True,
                  shared_expert_intermediate_size=f.get("expert_shared_feed_forward_length"),
                  layer_types=["full_attention" if (i + 1) % interval == 0 else "linear_attention" for i in range(f.n_layers)])


def qwen35(f, moe=False):
    d, k, v = f["ssm.state_size"], f["ssm.group_count"], f["ssm.time_step_rank"]

    def ungroup(w, axis, size):
        """Heads of values in the file: the first of each group, the second of each ...; in torch: group by group."""
        w = np.moveaxis(w, axis, 0)
        w = w.reshape(v // k, k, size, *w.shape[1:]).swapaxes(0, 1).reshape(w.shape)
        return np.moveaxis(w, 0, axis)

    def change(name, w, i):
        if name in ("attn_gate.weight", "ssm_alpha.weight", "ssm_beta.weight", "ssm_a", "ssm_dt.bias"):
            w = ungroup(w, 0, d if name == "attn_gate.weight" else 1)
        if name in ("attn_qkv.weight", "ssm_conv1d.weight"):
            w = np.concatenate([w[:2 * d * k], ungroup(w[2 * d * k:], 0, d)])
        if name == "ssm_out.weight":
            w = ungroup(w, 1, d)
        if name == "ffn_gate_inp_shexp.weight":
            w = w[None]
        return delta_net(f, name, w, i)

    config = delta_config(f)
    state = state_of(f, DELTA, plus_one=DELTA_PLUS_ONE, change=change)
    if moe:
        return transformers.Qwen3_5MoeForCausalLM, transformers.Qwen3_5MoeTextConfig(**config), state
    return transformers.Qwen3_5ForCausalLM, transformers.Qwen3_5TextConfig(**config), state


def qwen3next(f):
    d, k, v = f["ssm.state_size"], f["ssm.group_count"], f["ssm.time_step_rank"]

    def change(name, w, i):
        if name == "attn_gate.weight":
            return None
        if name == "ssm_in.weight":
            return "in_proj_qkvz.weight", w
        if name == "attn_qkv.weight":  # with attn_gate's: for each group its q, k, values and z
            z = f.tensors[f"blk.{i}.attn_gate.weight"].reshape(k, v // k * d, -1)
            q, key, value = (part.reshape(k, -1, w.shape[1]) for part in np.split(w, [d * k, 2 * d * k]))
            return "in_proj_qkvz.weight", np.concatenate([q, key, value, z], 1).reshape(-1, w.shape[1])
        if name == "ffn_gate_inp_shexp.weight":
            w = w[None]
        return delta_net(f, name, w, i)

    return (transformers.Qwen3NextForCausalLM, transformers.Qwen3NextConfig(**delta_config(f)),
            state_of(f, DELTA, plus_one=DELTA_PLUS_ONE, change=change))


def gpt_oss(f):
    def change(name, w, i):
        if name in ("ffn_gate_exps.bias", "ffn_gate_exps.weight"):
            up = f.tensors[f"blk.{i}." + name.replace("gate", "up")]
            both = np.stack([w, up], 2).reshape(w.shape[0], -1, *w.shape[2:])  # rows in turn
            return name.replace("gate", "both"), both.swapaxes(1, 2) if both.ndim == 3 else both
        if name.startswith("ffn_up_exps"):
            return None
        if name == "ffn_down_exps.weight":
            w = w.swapaxes(1, 2)
        return name, w

    layer = {"attn_sinks.weight": "self_attn.sinks", "post_attention_norm": "post_attention_layernorm",
             "ffn_gate_inp": "mlp.router", "ffn_down_exps.bias": "mlp.experts.down_proj_bias",
             "ffn_both_exps.weight": "mlp.experts.gate_up_proj", "ffn_both_exps.bias": "mlp.experts.gate_up_proj_bias"}
    config = common(f, sliding_window=f["attention.sliding_window"], layer_types=windows(f, lambda i: i % 2 == 0))
    config["rope_parameters"].update(truncate=True, beta_fast=32.0, beta_slow=1.0)
    config["rope_parameters"].pop("partial_rotary_factor")
    config["intermediate_size"] = f["expert_feed_forward_length"]
    return transformers.GptOssForCausalLM, transformers.GptOssConfig(**config), state_of(f, layer, change=change)


def gemma4(f):
    swa = f["attention.sliding_window_pattern"]
    kv = f.per_layer("attention.head_count_kv")
    shared = f.get("attention.shared_kv_layers", 0)
    moe = "expert_count" in f.keys
    layer = {**GEMMA, "inp_gate": "per_layer_input_gate", "proj": "per_layer_projection",
             "post_norm": "post_per_layer_input_norm", "layer_output_scale.weight": "layer_scalar",
             "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
             "post_ffw_norm_1": "post_feedforward_layernorm_1", "post_ffw_norm_2": "post_feedforward_layernorm_2",
             "ffn_gate_inp.weight": "router.proj.weight", "ffn_gate_inp.scale": "router.scale",
             "ffn_down_exps.scale": "router.per_expert_scale", "ffn_down_exps.weight": "experts.down_proj",
             "ffn_gate_up_exps.weight": "experts.gate_up_proj"}
    config = common(f, head_dim=f["attention.key_length_swa"], global_head_dim=f["attention.key_length"],
                    sliding_window=f["attention.sliding_window"], layer_types=windows(f, lambda i: swa[i]),
                    final_logit_softcapping=f["final_logit_softcapping"], vocab_size_per_layer_input=264,
                    hidden_size_per_layer_input=f["embedding_length_per_layer_input"], num_kv_shared_layers=shared,
                    num_key_value_heads=kv[swa.index(True)], num_global_key_value_heads=kv[swa.index(False)],
                    attention_k_eq_v=not any(n.endswith("attn_v.weight") and not swa[int(n.split(".")[1])] for n in f.tensors),
                    enable_moe_block=moe, top_k_experts=f.get("expert_used_count"))
    config["rope_parameters"] = {
        "sliding_attention": {"rope_type": "default", "rope_theta": f["rope.freq_base_swa"]},
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": f["rope.freq_base"]}}
    if shared:
        config.update(intermediate_size=f["feed_forward_length"][0], use_double_wide_mlp=True)
    state = state_of(f, layer)
    for name, to in (("per_layer_token_embd", "embed_tokens_per_layer"), ("per_layer_model_proj", "per_layer_model_projection"),
                     ("per_layer_proj_norm", "per_layer_projection_norm")):
        if name + ".weight" in f.tensors:
            state[f"model.{to}.weight"] = f.tensors[name + ".weight"]
    return transformers.Gemma4ForCausalLM, transformers.Gemma4TextConfig(**config), state


def deepseek2(f):
    """V3 where experts are chosen with a bias, else V2."""
    rope = f["rope.dimension_count"]
    value = f.get("attention.value_length_mla", f["attention.value_length"])
    nope = f.get("attention.key_length_mla", f["attention.key_length"]) - rope

    def change(name, w, i):
        if name == "attn_v_b.weight":
            return None
        if name == "attn_k_b.weight":
            both = np.concatenate([w.swapaxes(1, 2), f.tensors[f"blk.{i}.attn_v_b.weight"]], 1)
            return "attn_kv_b.weight", both.reshape(-1, both.shape[2])
        return name, w

    config = common(f, q_lora_rank=f.get("attention.q_lora_rank"), kv_lora_rank=f["attention.kv_lora_rank"],
                    qk_rope_head_dim=rope, qk_nope_head_dim=nope, v_head_dim=value, head_dim=rope,
                    num_key_value_heads=f["attention.head_count"], first_k_dense_replace=f["leading_dense_block_count"],
                    n_shared_experts=f["expert_shared_count"], routed_scaling_factor=f.get("expert_weights_scale", 1.0),
                    norm_topk_prob=f.get("expert_weights_norm", False), n_group=f.get("expert_group_count", 1),
                    topk_group=f.get("expert_group_used_count", 1))
    config["rope_parameters"].pop("partial_rotary_factor")
    if config["rope_parameters"]["rope_type"] == "yarn":
        log_mul = f["rope.scaling.yarn_log_multiplier"] * 10
        config["rope_parameters"].update(mscale=log_mul, mscale_all_dim=log_mul)
    if "expert_group_count" in f.keys:
        return transformers.DeepseekV3ForCausalLM, transformers.DeepseekV3Config(**config), state_of(f, change=change)
    return transformers.DeepseekV2ForCausalLM, transformers.DeepseekV2Config(**config), state_of(f, change=change)


MAMBA = {"ssm_in": "in_proj", "ssm_conv1d": "conv1d", "ssm_dt.bias": "dt_bias", "ssm_a": "A_log", "ssm_d": "D",
         "ssm_norm": "norm", "ssm_out": "out_proj"}


def mamba2(name, w):
    if name == "ssm_a":
        w = np.log(-w)
    if name == "ssm_conv1d.weight":
        return w[:, None]
    return w.reshape(-1) if name in ("ssm_a", "ssm_d", "ssm_norm.weight") else w


def mamba_config(f, heads="mamba_n_heads", dim="mamba_d_head", groups="mamba_n_groups", state="mamba_d_state"):
    return {heads: f["ssm.time_step_rank"], dim: f["ssm.inner_size"] // f["ssm.time_step_rank"], groups: f["ssm.group_count"],
            state: f["ssm.state_size"]}


def nemotron_h(f):
    ff, kv = f["feed_forward_length"], f["attention.head_count_kv"]
    moe = "expert_count" in f.keys
    kinds = ["full_attention" if n else ("moe" if moe else "mlp") if w else "linear_attention" for n, w in zip(kv, ff)]
    layer = {**{k: "mixer." + v for k, v in MAMBA.items()}, "attn_norm.weight": "norm.weight",
             **{f"attn_{c}": f"mixer.{c}_proj" for c in "qkv"}, "attn_output": "mixer.o_proj", "ffn_up": "mixer.up_proj",
             "ffn_down": "mixer.down_proj", "ffn_gate_inp": "mixer.gate",
             "exp_probs_b.bias": "mixer.gate.e_score_correction_bias", "ffn_up_exps.weight": "mixer.experts.up_proj",
             "ffn_down_exps.weight": "mixer.experts.down_proj",
             "ffn_up_shexp": "mixer.shared_experts.up_proj", "ffn_down_shexp": "mixer.shared_experts.down_proj",
             "ffn_latent_down": "mixer.fc1_latent_proj", "ffn_latent_up": "mixer.fc2_latent_proj"}
    config = common(f, layers_block_type=kinds, mlp_hidden_act="relu2", use_mamba_kernels=False, conv_kernel=4,
                    layer_norm_epsilon=1e-5, routed_scaling_factor=f.get("expert_weights_scale", 1.0),
                    norm_topk_prob=f.get("expert_weights_norm", False),
                    moe_shared_expert_intermediate_size=f.get("expert_shared_feed_forward_length", 0),
                    moe_latent_size=f.get("moe_latent_size"), n_group=1, topk_group=1,
                    **mamba_config(f, "mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size"))
    config.pop("num_hidden_layers")
    config["intermediate_size"] = max(ff)
    state = state_of(f, layer, change=lambda name, w, i: (name, mamba2(name, w)))
    for old, to in (("embed_tokens", "embeddings"), ("norm", "norm_f")):
        state[f"model.{to}.weight"] = state.pop(f"model.{old}.weight")
    return transformers.NemotronHForCausalLM, transformers.NemotronHConfig(**config), state


def granite_config(f, **more):
    return common(f, embedding_multiplier=f["embedding_scale"], residual_multiplier=f["residual_scale"],
                  logits_scaling=f["logit_scale"], attention_multiplier=f["attention.scale"],
                  shared_intermediate_size=f.get("expert_shared_feed_forward_length", f["feed_forward_length"]), **more)


GRANITE_MOE = {"ffn_gate_inp": "block_sparse_moe.router", "ffn_gate_up_exps.weight": "block_sparse_moe.experts.gate_up_proj",
               "ffn_down_exps.weight": "block_sparse_moe.experts.down_proj", "ffn_gate_shexp": "shared_mlp.input_linear",
               "ffn_down_shexp": "shared_mlp.output_linear"}


def fuse_shared(f, name, w, i, gate="ffn_gate_shexp.weight", up="ffn_up_shexp.weight"):
    if name == up:
        return None
    return name, np.concatenate([w, f.tensors[f"blk.{i}.{up}"]]) if name == gate else w


def granite(f):
    return (transformers.GraniteForCausalLM, transformers.GraniteConfig(**granite_config(f)), state_of(f, permuted=True))


def granitemoe(f):
    return (transformers.GraniteMoeSharedForCausalLM, transformers.GraniteMoeSharedConfig(**granite_config(f)),
            state_of(f, GRANITE_MOE, permuted=True, change=lambda name, w, i: fuse_shared(f, name, w, i)))


def granitehybrid(f):
    moe, rope = "expert_count" in f.keys, f["rope.scaling.finetuned"]
    layer = {**{k: "mamba." + v for k, v in MAMBA.items()}, **GRANITE_MOE}
    if not moe:
        layer.update({"ffn_gate": "shared_mlp.input_linear", "ffn_down": "shared_mlp.output_linear"})

    def change(name, w, i):
        changed = fuse_shared(f, name, mamba2(name, w), i)
        return changed and (changed if moe else fuse_shared(f, *changed, i, "ffn_gate.weight", "ffn_up.weight"))

    kinds = ["full_attention" if n else "linear_attention" for n in f["attention.head_count_kv"]]
    config = granite_config(f, layer_types=kinds,
                            mamba_expand=2, mamba_d_conv=4, position_embedding_type="rope" if rope else None, **mamba_config(f))
    if not moe:
        config.update(num_local_experts=0, num_experts_per_tok=0)
    return (transformers.GraniteMoeHybridForCausalLM, transformers.GraniteMoeHybridConfig(**config),
            state_of(f, layer, permuted=rope, change=change))


def lfm2(f):
    moe = "expert_count" in f.keys
    layer = {"attn_norm.weight": "operator_norm.weight", "ffn_norm.weight": "ffn_norm.weight", "ffn_gate": "feed_forward.w1",
             "ffn_up": "feed_forward.w3", "ffn_down": "feed_forward.w2", "attn_output": "self_attn.out_proj",
             "attn_q_norm": "self_attn.q_layernorm", "attn_k_norm": "self_attn.k_layernorm", "shortconv.conv": "conv.conv",
             "shortconv.in_proj": "conv.in_proj", "shortconv.out_proj": "conv.out_proj",
             "ffn_gate_inp": "feed_forward.gate", "exp_probs_b.bias": "feed_forward.expert_bias",
             "ffn_gate_up_exps.weight": "feed_forward.experts.gate_up_proj",
             "ffn_down_exps.weight": "feed_forward.experts.down_proj"}
    config = common(f, layer_types=["full_attention" if n else "conv" for n in f["attention.head_count_kv"]], norm_eps=1e-5,
                    conv_L_cache=3, block_auto_adjust_ff_dim=False, num_dense_layers=f.get("leading_dense_block_count"))
    state = state_of(f, layer, change=lambda name, w, i: (name, w[:, None] if name == "shortconv.conv.weight" else w))
    state["model.embedding_norm.weight"] = f.tensors["token_embd_norm.weight"]
    if moe:
        return transformers.Lfm2MoeForCausalLM, transformers.Lfm2MoeConfig(**config), state
    return transformers.Lfm2ForCausalLM, transformers.Lfm2Config(**config), state


def glm4moe(f):
    norms = "blk.0.attn_q_norm.weight" in f.tensors
    config = common(f, attention_bias=True, use_qk_norm=norms, first_k_dense_replace=f["leading_dense_block_count"],
                    n_shared_experts=f["expert_shared_count"], routed_scaling_factor=f.get("expert_weights_scale", 1.0),
                    norm_topk_prob=f.get("expert_weights_norm", False), n_group=1, topk_group=1)
    return (transformers.Glm4MoeForCausalLM, transformers.Glm4MoeConfig(**config),
            state_of(f, {"post_attention_norm": "post_attention_layernorm"}))


def glm4(f):
    layer = {"ffn_norm.weight": "post_attention_layernorm.weight", "post_attention_norm": "post_self_attn_layernorm",
             "post_ffw_norm": "post_mlp_layernorm", "ffn_up": "mlp.gate_up_proj"}

    def change(name, w, i):
        """Files of models that see have a head's rotated rows in the order of halves."""
        if not name.startswith(("attn_q.", "attn_k.")):
            return name, w
        n_rot, heads = f["rope.dimension_count"], f["attention.head_count" if name[5] == "q" else "attention.head_count_kv"]
        x = w.reshape(heads, w.shape[0] // heads, -1).copy()
        x[:, 0:n_rot:2], x[:, 1:n_rot:2] = x[:, :n_rot // 2].copy(), x[:, n_rot // 2:n_rot].copy()
        return name, x.reshape(w.shape)
    state = state_of(f, layer, change=change if "rope.dimension_sections" in f.keys else None)
    return transformers.Glm4ForCausalLM, transformers.Glm4Config(**common(f, attention_bias=True)), state


def mistral3(f, permuted=True):
    config = common(f, attention_dropout=0.0)
    config["rope_parameters"].pop("partial_rotary_factor")
    if "rope.scaling.yarn_log_multiplier" in f.keys:
        config["rope_parameters"].update(mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=f["attention.temperature_scale"],
                                         beta_fast=f["rope.scaling.yarn_beta_fast"], beta_slow=f["rope.scaling.yarn_beta_slow"])
    else:
        config["rope_parameters"].update(llama_4_scaling_beta=0.0)
    return (transformers.Ministral3ForCausalLM, transformers.Ministral3Config(**config), state_of(f, permuted=permuted))


def phi3(f):
    tables = {kind: f.tensors[f"rope_factors_{kind}.weight"].tolist() for kind in ("long", "short")}
    original = f["rope.scaling.original_context_length"]
    config = common(f, sliding_window=None, original_max_position_embeddings=original)
    config["rope_parameters"] = {"rope_type": "longrope", "rope_theta": f["rope.freq_base"], "long_factor": tables["long"],
                                 "short_factor": tables["short"], "partial_rotary_factor": 0.75,
                                 "attention_factor": f["rope.scaling.attn_factor"],
                                 "original_max_position_embeddings": original, "factor": 256 / original}
    config.pop("head_dim")
    return transformers.Phi3ForCausalLM, transformers.Phi3Config(**config), state_of(f, {"ffn_up": "mlp.gate_up_proj"})


def gemma(f, old):
    period = f.get("attention.sliding_window_pattern", 2 if old else 6)
    plus_one = ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm", "attn_q_norm", "attn_k_norm", "output_norm")
    big = f.n_layers in (46, 62)
    config = common(f, sliding_window=f["attention.sliding_window"], layer_types=windows(f, lambda i: i % period < period - 1),
                    query_pre_attn_scalar=(f["embedding_length"] // f["attention.head_count"] if big
                                           else f["attention.key_length"]),
                    final_logit_softcapping=f.get("final_logit_softcapping"),
                    attn_logit_softcapping=f.get("attn_logit_softcapping"))
    config["rope_parameters"].pop("partial_rotary_factor")
    state = state_of(f, GEMMA, plus_one=plus_one)
    if old:
        return transformers.Gemma2ForCausalLM, transformers.Gemma2Config(**config), state
    config["rope_parameters"] = {"full_attention": config["rope_parameters"], "sliding_attention": {
        "rope_type": "default", "rope_theta": f.get("rope.freq_base_swa", 10000.0)}}
    return transformers.Gemma3ForCausalLM, transformers.Gemma3TextConfig(**config), state


def llama_like(model, config_class, permuted=False, layer=None, change=None, **more):
    """All that a configuration of a few words describes."""
    def case(f):
        config = common(f, **{key: value(f) if callable(value) else value for key, value in more.items()})
        config["rope_parameters"].pop("partial_rotary_factor", None)
        state = state_of(f, layer, permuted, change=change)
        return getattr(transformers, model), getattr(transformers, config_class)(**config), state
    return case


def olmo2(f):
    layer = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
    config = common(f)
    config["rope_parameters"].pop("partial_rotary_factor")
    if not f.get("attention.sliding_window"):
        return transformers.Olmo2ForCausalLM, transformers.Olmo2Config(**config), state_of(f, layer)
    config.update(sliding_window=f["attention.sliding_window"], layer_types=windows(f, lambda i: i % 4 < 3))
    config["rope_parameters"] = {"full_attention": config["rope_parameters"],
                                 "sliding_attention": {"rope_type": "default", "rope_theta": f["rope.freq_base"]}}
    return transformers.Olmo3ForCausalLM, transformers.Olmo3Config(**config), state_of(f, layer)


def exaone4(f):
    big = f.n_layers == 64
    layer = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
    config = common(f, sliding_window=f.get("attention.sliding_window"), layer_types=windows(f, lambda i: big and i % 4 < 3))
    return transformers.Exaone4ForCausalLM, transformers.Exaone4Config(**config), state_of(f, layer)


def minimax_m2(f):
    return (transformers.MiniMaxM2ForCausalLM, transformers.MiniMaxM2Config(**common(f)),
            state_of(f, {"ffn_gate_inp": "mlp.gate", "exp_probs_b.bias": "mlp.e_score_correction_bias"}))


def llama4(f):
    layer = {"ffn_gate": "feed_forward.gate_proj", "ffn_up": "feed_forward.up_proj", "ffn_down": "feed_forward.down_proj",
             "ffn_gate_inp": "feed_forward.router", "ffn_gate_up_exps.weight": "feed_forward.experts.gate_up_proj",
             "ffn_down_exps.weight": "feed_forward.experts.down_proj", "ffn_gate_shexp": "feed_forward.shared_expert.gate_proj",
             "ffn_up_shexp": "feed_forward.shared_expert.up_proj", "ffn_down_shexp": "feed_forward.shared_expert.down_proj"}
    config = common(f, intermediate_size_mlp=f["feed_forward_length"], interleave_moe_layer_step=2,
                    use_qk_norm=f["expert_count"] != 128)
    config["intermediate_size"] = f["expert_feed_forward_length"]
    config["rope_parameters"].pop("partial_rotary_factor")
    state = state_of(f, layer)
    for name in state:
        if ".experts." in name:
            state[name] = state[name].swapaxes(1, 2)
    return transformers.Llama4ForCausalLM, transformers.Llama4TextConfig(**config), state


class Step35(torch.nn.Module):
    """Of the published model, which sees images too, the part that reads text."""

    def __init__(self, config):
        super().__init__()
        from transformers.models.step3p7.modeling_step3p7 import Step3p7TextModel
        self.model = Step3p7TextModel(config)
        self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, tokens, **more):
        class Output:
            logits = self.lm_head(self.model(tokens, **more).last_hidden_state)
        return Output


def step35(f):
    from transformers.models.step3p7.configuration_step3p7 import Step3p7TextConfig
    swa, heads = f["attention.sliding_window_pattern"], f["attention.head_count"]
    sparse = [f"blk.{i}.ffn_gate_inp.weight" in f.tensors for i in range(f.n_layers)]
    config = common(f, num_attention_heads=heads[swa.index(False)], num_sliding_attention_heads=heads[swa.index(True)],
                    layer_types=windows(f, lambda i: swa[i]), sliding_window=f["attention.sliding_window"], pad_token_id=0,
                    mlp_layer_types=["sparse" if has else "dense" for has in sparse],
                    share_expert_dim=f["expert_shared_feed_forward_length"],
                    moe_router_scaling_factor=f["expert_weights_scale"],
                    swiglu_limits=f["swiglu_clamp_exp"], swiglu_limits_shared=f["swiglu_clamp_shexp"])
    config["rope_parameters"] = {
        "full_attention": {"rope_type": "default", "rope_theta": f["rope.freq_base"], "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_type": "default", "rope_theta": f["rope.freq_base_swa"], "partial_rotary_factor": 1.0}}
    norms = ("attn_norm", "ffn_norm", "attn_q_norm", "attn_k_norm", "output_norm")
    return Step35, Step3p7TextConfig(**config), state_of(f, {"attn_gate": "self_attn.g_proj"}, plus_one=norms)


def expert_shared(f):
    """Beside the stacks of experts one that is gated, as in Qwen 2 MoE."""
    layer = {name: to for name, to in DELTA.items() if "shexp" in name}
    config = common(f, shared_expert_intermediate_size=f["expert_shared_feed_forward_length"], norm_topk_prob=False)
    return (transformers.Qwen2MoeForCausalLM, transformers.Qwen2MoeConfig(**config),
            state_of(f, layer, change=lambda name, w, i: (name, w[None] if name == "ffn_gate_inp_shexp.weight" else w)))


def llama(f):
    if "expert_count" in f.keys:
        return transformers.MixtralForCausalLM, transformers.MixtralConfig(**common(f)), state_of(f, permuted=True)
    return transformers.LlamaForCausalLM, transformers.LlamaConfig(**common(f)), state_of(f, permuted=True)


CASES = {
    "llama": llama, "qwen2moe": expert_shared, "step35": step35, "qwen2": llama_like("Qwen2ForCausalLM", "Qwen2Config"),
    "qwen3moe": llama_like("Qwen3MoeForCausalLM", "Qwen3MoeConfig", norm_topk_prob=True),
    "olmoe": llama_like("OlmoeForCausalLM", "OlmoeConfig", norm_topk_prob=False),
    "dots1": llama_like("Dots1ForCausalLM", "Dots1Config", n_group=1, topk_group=1, norm_topk_prob=True,
                        n_shared_experts=lambda f: f["expert_shared_count"], layer_types=lambda f: windows(f, lambda i: False),
                        first_k_dense_replace=lambda f: f["leading_dense_block_count"],
                        routed_scaling_factor=lambda f: f["expert_weights_scale"]),
    "qwen35": qwen35, "qwen35moe": lambda f: qwen35(f, True), "qwen3next": qwen3next, "gpt-oss": gpt_oss, "gemma4": gemma4,
    "deepseek2": deepseek2, "nemotron_h": nemotron_h, "nemotron_h_moe": nemotron_h, "granite": granite,
    "granitemoe": granitemoe, "granitehybrid": granitehybrid, "lfm2": lfm2, "lfm2moe": lfm2, "glm4moe": glm4moe, "glm4": glm4,
    "mistral3": mistral3, "phi3": phi3, "gemma2": lambda f: gemma(f, True), "gemma3": lambda f: gemma(f, False),
    "olmo2": olmo2, "exaone4": exaone4, "minimax-m2": minimax_m2, "llama4": llama4,
    "qwen3": llama_like("Qwen3ForCausalLM", "Qwen3Config"),
    "smollm3": llama_like("SmolLM3ForCausalLM", "SmolLM3Config", True),
    "seed_oss": llama_like("SeedOssForCausalLM", "SeedOssConfig", layer={"post_attention_norm": "post_attention_layernorm"}),
    "hunyuan-dense": llama_like("HunYuanDenseV1ForCausalLM", "HunYuanDenseV1Config",
                                layer={"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"}),
    "hunyuan-moe": llama_like("HunYuanMoEV1ForCausalLM", "HunYuanMoEV1Config",
                              layer={"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm",
                                     "ffn_gate_inp": "mlp.gate.wg", "ffn_gate_shexp": "mlp.shared_mlp.gate_proj",
                                     "ffn_up_shexp": "mlp.shared_mlp.up_proj", "ffn_down_shexp": "mlp.shared_mlp.down_proj"},
                              moe_topk=lambda f: f["expert_used_count"]),
    "ernie4_5": llama_like("Ernie4_5ForCausalLM", "Ernie4_5Config"),
    "ernie4_5-moe": llama_like("Ernie4_5_MoeForCausalLM", "Ernie4_5_MoeConfig",
                               layer={"exp_probs_b.bias": "mlp.gate.moe_statics.e_score_correction_bias"},
                               change=lambda name, w, i: (name, w[None] if name == "exp_probs_b.bias" else w),
                               moe_k=lambda f: f["expert_used_count"], moe_num_experts=lambda f: f["expert_count"],
                               moe_num_shared_experts=2),
    "cohere2": llama_like("Cohere2ForCausalLM", "Cohere2Config", layer_norm_eps=1e-5, logit_scale=lambda f: f["logit_scale"],
                          sliding_window=lambda f: f["attention.sliding_window"],
                          layer_types=lambda f: windows(f, lambda i: i % 4 < 3)),
    "command-r": llama_like("CohereForCausalLM", "CohereConfig", layer_norm_eps=1e-5, logit_scale=lambda f: f["logit_scale"],
                            use_qk_norm=lambda f: f.n_layers >= 64),
    "gemma4-assistant": lambda f: gemma4_assistant(f),
    "starcoder2": llama_like("Starcoder2ForCausalLM", "Starcoder2Config", norm_epsilon=1e-5, use_bias=True,
                             hidden_act="gelu_pytorch_tanh", layer={"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj",
                             "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}),
}


# the same layers under a mask that hides nothing
DENOISES = {"dream": lambda f: CASES["qwen2"](f) if f.get("diffusion.shift_logits", True) else mistral3(f, False),
            "llada": llama, "rnd1": CASES["qwen3moe"],
            "llada-moe": llama_like("Qwen3MoeForCausalLM", "Qwen3MoeConfig", norm_topk_prob=False)}
CASES.update(DENOISES)


def divide_frequencies(model, divisors):
    for name, buffer in model.named_buffers():
        if name.endswith("inv_freq") and "original" not in name and "sliding" not in name:
            buffer /= divisors[:len(buffer)]


def mtp_logits(model, tokens, hidden, state, layer):
    """Of the block whose weights are `state`: rows 1 on, each from its token and the trunk's normed row before it."""
    from transformers.modeling_layers import MtpLayer
    trunk = model.model
    config = copy.deepcopy(model.config)
    if config.model_type.startswith("dots3"):
        config.mlp_layer_types[layer] = "dense"
    block = MtpLayer(config, type(trunk.layers[layer]), type(trunk.norm), layer).float().eval()
    embedding = state.pop("embed_tokens.weight", trunk.embed_tokens.weight)
    head = state.pop("head.weight", model.lm_head.weight)
    state.setdefault("post_norm.weight", trunk.norm.weight)
    own = ("eh_proj", "enorm", "hnorm", "post_norm")
    block.load_state_dict({name if name.startswith(own) else "mtp_block." + name: w for name, w in state.items()})
    positions = torch.arange(1, tokens.shape[1])[None]
    x = torch.nn.functional.embedding(tokens[:, 1:], embedding)
    mask = torch.full((positions.shape[1],) * 2, -torch.inf).triu(1)
    if model.config.model_type.startswith(("exaone_moe", "dots3")):  # as in the layer that it is like
        mask += torch.full(mask.shape, -torch.inf).tril(-model.config.sliding_window)
    mask = mask[None, None]
    kinds = ["sliding_attention"] if config.model_type.startswith("dots3") else []
    rotation = trunk.rotary_emb(x, positions, *kinds)
    return block(x, hidden[:, :-1], rotation, mask, positions, None) @ head.T


def build(f):
    """The model of a file, and what its MTP block has."""
    cls, config, state = CASES[f.arch](f)
    config._attn_implementation = "eager"
    model = cls(config).float().eval()
    state = {k: torch.from_numpy(np.ascontiguousarray(w)) for k, w in state.items()}
    prefix = f"model.layers.{f.n_layers}."
    block = {k.removeprefix(prefix): state.pop(k) for k in list(state) if k.startswith(prefix)}
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    for name, w in state.items():  # biases that the published model has not, but files may have
        owner = dict(model.named_modules()).get(name.removesuffix(".bias"))
        if name.endswith(".bias") and isinstance(owner, torch.nn.Linear) and owner.bias is None:
            owner.bias = torch.nn.Parameter(w)
    if "rope_freqs.weight" in f.tensors and f.arch != "gemma4":  # gemma4's are in its configuration
        divide_frequencies(model, torch.from_numpy(f.tensors["rope_freqs.weight"]))
    missing, unexpected = model.load_state_dict(state, strict=False)
    computed = dict(model.named_buffers())
    missing = [name for name in missing if name not in computed]
    if missing or unexpected:
        raise KeyError(f"missing {missing[:6]}, unexpected {unexpected[:6]}")
    return model, block


def torch_logits(f, tokens):
    """Of the trunk; of the MTP block, or None."""
    model, block = build(f)
    lead = LEAD.get(f.arch, 0)
    tokens = torch.tensor(np.concatenate([np.resize(tokens, lead), tokens])[None].astype(np.int64))
    with torch.no_grad():
        # rows of models that denoise see each other
        whole = f.arch in DENOISES and not (f.arch == "dream" and "rope.scaling.type" in f.keys)  # dream-nld decodes
        mask = torch.zeros((1, 1) + (tokens.shape[1],) * 2) if whole else None
        logits = model(tokens, attention_mask=mask, use_cache=False).logits[0, lead:].double().numpy()
        if not block:
            return logits, None
        part = "attn_kv_a_mqa" if any("kv_a_proj" in name for name in block) else "attn_output"
        layer = max(i for i in range(f.n_layers) if f"blk.{i}.{part}.weight" in f.tensors)
        if f.arch in ("exaone-moe", "dots3note"):  # dense, with a window: as the first one, as the first one with a window
            layer = 0 if f.arch == "exaone-moe" else f["attention.sliding_window_pattern"].index(True)
        hidden = model.model(tokens, use_cache=False).last_hidden_state
        return logits, mtp_logits(model, tokens, hidden, block, layer)[0].double().numpy()


def sharing_modes(config):
    """transformers 5.23 knows no model all of whose layers share, and stores nothing where none does."""
    n_own = config.num_hidden_layers - config.num_kv_shared_layers
    modes = [None] * n_own + ["reuse"] * config.num_kv_shared_layers
    for kind in set(config.layer_types[:n_own]):
        modes[max(i for i in range(n_own) if config.layer_types[i] == kind)] = "store"
    return modes


def gemma4_assistant(f):
    f.n_layers = f["block_count"]
    swa, kv = f["attention.sliding_window_pattern"], f.per_layer("attention.head_count_kv")
    config = common(f, head_dim=f["attention.key_length_swa"], global_head_dim=f["attention.key_length"],
                    sliding_window=f["attention.sliding_window"], layer_types=windows(f, lambda i: swa[i]),
                    hidden_size_per_layer_input=0, vocab_size_per_layer_input=0, num_kv_shared_layers=f.n_layers,
                    attention_k_eq_v=True,
                    num_key_value_heads=kv[swa.index(True)], num_global_key_value_heads=kv[swa.index(False)])
    config["rope_parameters"] = {
        "sliding_attention": {"rope_type": "default", "rope_theta": f["rope.freq_base_swa"]},
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": f["rope.freq_base"]}}
    state = state_of(f, {**GEMMA, "layer_output_scale.weight": "layer_scalar"})
    for name in ("pre_projection", "post_projection"):
        state[f"{name}.weight"] = f.tensors[f"nextn.{name}.weight"]
    config = transformers.Gemma4AssistantConfig(text_config=transformers.Gemma4TextConfig(**config),
                                                backbone_hidden_size=f["embedding_length_out"])
    return transformers.Gemma4AssistantForCausalLM, config, state


def assistant_logits(target, assistant, tokens):
    """Of the assistant's drafts from each position P: for the token at P + 1 and the target's row P; then for the token after
    that and what the assistant gave for a row. A draft sees the target's positions up to P (of a window the newest), and all of
    it is at position P + 1."""
    transformers.Gemma4TextConfig.kv_sharing_modes = property(sharing_modes)
    model, _ = build(target)
    drafter, _ = build(assistant)
    window, n = assistant["attention.sliding_window"], len(tokens)
    first, second = [], []
    with torch.no_grad():
        ids = torch.tensor(tokens.astype(np.int64))
        out = model.model(ids[None], use_cache=False, return_shared_kv_states=True)
        embedding = model.get_input_embeddings()

        def step(token, hidden, position):
            kept = {kind: tuple(t[:, :, :position][:, :, -window if kind == "sliding_attention" else 0:] for t in pair)
                    for kind, pair in dict(out.shared_kv_states).items()}
            return drafter(inputs_embeds=torch.cat([embedding(token[None, None]), hidden], -1), shared_kv_states=kept,
                           position_ids=torch.tensor([[position]]))
        for p in range(n - 1):
            a = step(ids[p + 1], out.last_hidden_state[:, p:p + 1], p + 1)
            b = step(ids[(p + 2) % n], a.last_hidden_state, p + 1)
            first.append(a.logits[0, 0].double().numpy())
            second.append(b.logits[0, 0].double().numpy())
    return np.array(first), np.array(second)


def check_assistant(name, args):
    """Whether both of its files agree; they are written first if that is asked for."""
    target_name, paths = name.removesuffix(".assistant"), []
    with tempfile.TemporaryDirectory() as folder:
        for part in (target_name, name):
            paths.append(os.path.join(folder, part + ".gguf"))
            subprocess.run([args.mkarch, "--decoded", part, paths[-1]], check=True)
        with open(paths[1], "rb") as f:
            model_hash = fnv1a(f.read())
        tokens = np.array(text(), np.int32)
        steps = assistant_logits(File(paths[0]), File(paths[1]), tokens)
    right = True
    for what, logits in zip(("", ".chained"), steps):
        path = os.path.join(args.golden, f"{name}{what}.bin")
        if args.write_nextn:
            write_golden(path, tokens[1:], logits, model_hash)
        right &= report(name + what, logits, read_golden(path)[1])
    return right


BLOCK = 16  # rows of a draft of dream-nld: the newest token, and masks


def check_block(name, args):
    """A draft by masks: the last rows of the text, all but the first of which are masks, see each other and, causally, the text
    before them. Rows before the draft are those of the text alone."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.gguf")
        subprocess.run([args.mkarch, "--decoded", name.removesuffix(".block"), path], check=True)
        with open(path, "rb") as f:
            model_hash = fnv1a(f.read())
        file, tokens = File(path), np.array(text(), np.int32)
        model, _ = build(file)
    tokens[1 - BLOCK:] = file["tokenizer.ggml.mask_token_id"]
    n = len(tokens)
    mask = torch.full((n, n), -torch.inf).triu(1)
    mask[-BLOCK:, -BLOCK:] = 0
    with torch.no_grad():
        logits = model(torch.tensor(tokens[None].astype(np.int64)), attention_mask=mask[None, None], use_cache=False).logits[0]
    path = os.path.join(args.golden, name + ".bin")
    if args.write_nextn:
        write_golden(path, tokens, logits.double().numpy(), model_hash)
    return report(name, logits.double().numpy(), read_golden(path)[1])


def write_golden(path, tokens, logits, model_hash):
    out = bytearray(struct.pack("<IIQ", len(tokens), logits.shape[1], model_hash)) + tokens.astype("<i4").tobytes()
    for row in logits:
        step = np.float32(np.abs(row).max() / 32767)
        out += step.tobytes() + np.clip(np.rint(row / step), -32767, 32767).astype("<i2").tobytes()
    with open(path, "wb") as f:
        f.write(out)


def report(name, logits, golden):
    """Whether they agree."""
    error = ((logits - golden) ** 2).sum() / (golden ** 2).sum()
    agree = (logits.argmax(1) == golden.argmax(1)).sum()
    print(f"{name}: error {error:.1e}, best token the same in {agree} of {len(golden)} rows", flush=True)
    return error <= MAX_ERROR


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mkarch", default="build/tests/mkarch")
    parser.add_argument("--golden", default="tests/golden/arch")
    parser.add_argument("--write-nextn", action="store_true",
                        help="write NAME.nextn.bin first, and NAME.bin if there is none: for those llama.cpp cannot run")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    from arch_cases import MORE  # which takes what stands above
    CASES.update(MORE)
    listed = subprocess.run([args.mkarch, "--list"], check=True, capture_output=True, text=True).stdout.split()
    archs = dict(zip(listed[::2], listed[1::2]))
    failed = 0
    assistants, blocks = ["gemma4.assistant", "gemma4-31b.assistant"], ["dream-nld.block"]
    for name in args.names or [n for n, arch in archs.items() if arch in CASES] + assistants + blocks:
        if name in assistants + blocks:
            failed += not (check_block if name in blocks else check_assistant)(name, args)
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.gguf")
            subprocess.run([args.mkarch, "--decoded", name, path], check=True)
            trunk = os.path.join(args.golden, name + ".bin")
            write_trunk = args.write_nextn and not os.path.exists(trunk)
            if write_trunk:
                with open(path, "rb") as f:
                    tokens, golden, model_hash = np.array(text(), np.int32), None, fnv1a(f.read())
            else:
                tokens, golden, model_hash = read_golden(trunk)
            try:
                logits, ahead = torch_logits(File(path), tokens)
            except Exception as wrong:  # one that fails says so and the others go on
                print(f"{name}: {wrong}")
                failed += 1
                continue
        if write_trunk:
            write_golden(trunk, tokens, logits, model_hash)
            golden = read_golden(trunk)[1]
        failed += not report(name, logits, golden)
        if ahead is None:
            continue
        nextn = os.path.join(args.golden, name + ".nextn.bin")
        if args.write_nextn:
            write_golden(nextn, tokens[1:], ahead, model_hash)
        failed += not report(name + ", MTP block", ahead, read_golden(nextn)[1])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
