#!/usr/bin/env python3
"""Models of Hugging Face folders, converted: every tensor must be the one that the folder was made of.

    check_classes.py AERIE MKARCH [NAME...] [--mutants N] [--keep FOLDER]

mkarch's random model of each architecture is taken apart into a folder with the names, shapes and orders of the published class
(written down here once more, from the models' own code), and 'aerie convert' must make the same tensors of it, and a file with
the same logits. Then values of config.json are damaged (--mutants: how many times for each, 2): each folder must be converted
or refused with a sentence, and leave no file. Models that transformers can save are in check_models.py too, by hand.
Needs Python alone.
"""
import argparse
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from array import array

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apart import File, LLAMA, common, experts, take_apart  # noqa: E402
from encoder_classes import KIN  # noqa: E402
from more_classes import MORE  # noqa: E402
from old_classes import OLD  # noqa: E402
from folders import changed, halves, joined, layers_of, read_gguf, rows_of, shaped, turned, usual_files, \
    write_folder, write_safetensors  # noqa: E402


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
                  layer_norm_type="rms", rms_norm_eps=1e-5, rope=True, alibi=False, rope_theta=10000.0, mask_token_id=0,
                  vocab_size=264, embedding_size=264)
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


KDA = {"attn_q_a": "q_a_proj", "attn_q_a_norm": "q_a_layernorm", "attn_q_b": "q_b_proj", "attn_kv_a_mqa": "kv_a_proj_with_mqa",
       "attn_kv_a_norm": "kv_a_layernorm", "ssm_beta": "b_proj", "ssm_norm": "o_norm", "ssm_dt.bias": "dt_bias"}
KDA = {k: "self_attn." + v for k, v in KDA.items()}


def latent(out, at, t, sign):
    """Keys and values of latent attention, head by head; KDA's taps and decays."""
    if "attn_k_b.weight" in t:
        keys, values = layers_of(turned(t.pop("attn_k_b.weight"))), layers_of(t.pop("attn_v_b.weight"))
        out[at + "self_attn.kv_b_proj.weight"] = joined(*[part for pair in zip(keys, values) for part in pair])
    for c in "qkv":
        if f"ssm_conv1d_{c}.weight" in t:
            out[f"{at}self_attn.{c}_conv1d.weight"] = t.pop(f"ssm_conv1d_{c}.weight")
    if "ssm_a" in t:
        n = len(t["ssm_a"][1])
        out[at + "self_attn.A_log"] = shaped(changed(t.pop("ssm_a"), lambda x: math.log(sign * x)), n)


def latent_sizes(f):
    rope = f["rope.dimension_count"]
    return dict(kv_lora_rank=f["attention.kv_lora_rank"], q_lora_rank=f.get("attention.q_lora_rank"), qk_rope_head_dim=rope,
                qk_nope_head_dim=f["attention.key_length_mla"] - rope, v_head_dim=f["attention.value_length_mla"],
                num_key_value_heads=f["attention.head_count"], first_k_dense_replace=f["leading_dense_block_count"],
                routed_scaling_factor=f["expert_weights_scale"])


def kimi_k3(f):
    def score(out, at, what, t):
        norm = ([64], array("f", [2.0 ** (i % 3) for i in range(64)]))
        out[f"{at}{what}_norm.weight"] = norm
        out[f"{at}{what}_proj.weight"] = [1, 64], array("f", [a / b for a, b in zip(t[1], norm[1])])

    def change(out, at, t, i):
        latent(out, at, t, -1)
        experts(out, at + "block_sparse_moe.experts", t, "w1 w3 w2")
        for name, what in (("attn", "self_attention"), ("ffn", "mlp")):
            if f"{name}_res_score.weight" in t:
                score(out, at, what + "_res", t.pop(f"{name}_res_score.weight"))
    layer = {**KDA, "ssm_f_a": "self_attn.f_a_proj", "ssm_f_b": "self_attn.f_b_proj", "ssm_g": "self_attn.g_proj",
             "attn_gate": "self_attn.g_proj", "ffn_gate_inp": "block_sparse_moe.gate",
             "exp_probs_b.bias": "block_sparse_moe.gate.e_score_correction_bias",
             **{f"ffn_routed_{x}": f"block_sparse_moe.routed_expert_{x}" + ("" if x == "norm" else "_proj")
                for x in ("down", "up", "norm")},
             **{f"ffn_{x}_shexp": f"block_sparse_moe.shared_experts.{x}_proj" for x in ("gate", "up", "down")}}
    kv, rest = f["attention.head_count_kv"], f.tensors.get("output_res_score.weight")
    tensors = take_apart(f, layer, {"output_res_score": "score"}, change=change)
    if rest:
        score(tensors, "model.", "output_attn_res", tensors.pop("score.weight"))
    linear = {"full_attn_layers": [i + 1 for i, n in enumerate(kv) if n], "kda_layers": [i + 1 for i,
                                                                                         n in enumerate(kv) if not n],
              "head_dim": f["kda.head_dim"], "num_heads": 4, "short_conv_kernel_size": 4}
    if f.get("kda.gate_lower_bound"):
        linear["gate_lower_bound"] = f["kda.gate_lower_bound"]
    text = common(f, "KimiLinearForCausalLM", hidden_act="situ", mla_use_nope=True, linear_attn_config=linear,
                  **latent_sizes(f),
                  num_experts_per_token=f["expert_used_count"], num_shared_experts=1, moe_renormalize=True,
                  moe_router_activation_func="sigmoid", activation_situ_beta=f["activation.situ_beta"],
                  activation_situ_linear_beta=f["activation.situ_linear_beta"], attn_res_block_size=f["attn_res.block_size"],
                  routed_expert_hidden_size=f.get("expert_latent_length"), model_max_length=256)
    del text["num_experts_per_tok"], text["rope_theta"]
    config = {"architectures": ["KimiK3ForConditionalGeneration"], "text_config": text, "vision_config": {}}
    tensors = {"language_model." + k: w for k, w in tensors.items()}
    tensors["vision_tower.patch_embed.proj.weight"] = tensors["mm_projector.proj.linear_1.weight"] = [1], array("f", [0.0])
    return config, tensors


def bailing3(f):
    def neighbours(t, name, d):
        """The last rows of each head, which rotate, from halves to neighbours."""
        n = f["rope.dimension_count"]
        turned_last = [*range(d - n), *[d - n + i // 2 + i % 2 * n // 2 for i in range(n)]]
        if name in t:
            t[name] = rows_of(t[name], [h + i for h in range(0, t[name][0][0], d) for i in turned_last])

    def change(out, at, t, i):
        here = {}
        if f.get("rope.dimension_sections") and "attn_kv_a_mqa.weight" in t:
            neighbours(t, "attn_q.weight", f["attention.key_length_mla"])
            neighbours(t, "attn_kv_a_mqa.weight", t["attn_kv_a_mqa.weight"][0][0])
        latent(here, at, t, 1)
        experts(here, at + "mlp.experts", t)
        for name in list(t):
            base, _, end = name.rpartition(".")
            if base == "attn_output" and "attn_kv_a_norm.weight" in t:
                here[f"{at}attention.dense.{end}"] = t.pop(name)
        out.update({k.replace("self_attn", "attention"): w for k, w in here.items()})
    layer = {k: v.replace("self_attn", "attention") for k, v in {**LLAMA, **KDA}.items()}
    layer.update({"ssm_f_a": "attention.f_proj", "ssm_g_a": "attention.g_proj", "attn_gate": "attention.g_proj",
                  "exp_probs_b.bias": "mlp.gate.expert_bias", "layer_output_norm": "final_layernorm",
                  **{f"nextn.{x}": x for x in ("eh_proj", "enorm", "hnorm")},
                  **{f"ffn_{x}_shexp": f"mlp.shared_experts.{x}_proj" for x in ("gate", "up", "down")}})
    sizes = latent_sizes(f)
    if f.get("swiglu_clamp_exp"):
        sizes.update(expert_swiglu_limit_list=[x or None for x in f["swiglu_clamp_exp"]],
                     share_expert_swiglu_limit_list=f["swiglu_clamp_shexp"])
    config = common(f, "BailingMoeV3ForCausalLM", **sizes, num_shared_experts=1, norm_topk_prob=True,
                    moe_shared_expert_intermediate_size=f["expert_feed_forward_length"], no_kda_lora=True, kda_safe_gate=True,
                    gated_attention_proj_granularity_type="head_wise", short_conv_kernel_size=4,
                    kda_lower_bound=f["kda.gate_lower_bound"], layer_group_size=3, n_group=f.get("expert_group_count", 1),
                    topk_group=f.get("expert_group_used_count", 1), num_nextn_predict_layers=f.get("nextn_predict_layers", 0),
                    head_dim=f["kda.head_dim"])
    tensors = take_apart(f, layer, {"token_embd": "model.word_embeddings"}, change=change)
    sections = f.get("rope.dimension_sections")
    if sections:  # Ling 3 VL, whose encoder and projector are left out
        del config["architectures"]
        config = {"architectures": ["BailingMoeV3VLForConditionalGeneration"], "mrope_section": sections[:3],
                  "text_config": config, "vision_config": {"disable_merger_proj": True}}
        tensors.update({x: ([1], array("f", [0.0])) for x in ("model.visual.merger.norm.weight", "linear_proj.0.weight")})
        f.whole_keys = ["rope.dimension_sections"]
    return config, tensors


V4 = {"attn_q_a": "attn.wq_a", "attn_q_a_norm": "attn.q_norm", "attn_q_b": "attn.wq_b", "attn_kv": "attn.wkv",
      "attn_kv_a_norm": "attn.kv_norm", "attn_output_a": "attn.wo_a", "attn_output_b": "attn.wo_b", "attn_norm": "attn_norm",
      "ffn_norm": "ffn_norm", "attn_sinks.weight": "attn.attn_sink", "attn_compressor_ape.weight": "attn.compressor.ape",
      "attn_compressor_kv": "attn.compressor.wkv", "attn_compressor_gate": "attn.compressor.wgate",
      "attn_compressor_norm": "attn.compressor.norm", "indexer.attn_q_b": "attn.indexer.wq_b",
      "indexer.proj": "attn.indexer.weights_proj", "indexer_compressor_ape.weight": "attn.indexer.compressor.ape",
      "indexer_compressor_kv": "attn.indexer.compressor.wkv", "indexer_compressor_gate": "attn.indexer.compressor.wgate",
      "indexer_compressor_norm": "attn.indexer.compressor.norm", "ffn_gate_inp": "ffn.gate",
      "exp_probs_b.bias": "ffn.gate.bias", "ffn_gate_tid2eid.weight": "ffn.gate.tid2eid",
      **{f"hc_{half}_{x}.weight": f"hc_{half}_{x}" for half in ("attn", "ffn") for x in ("fn", "base", "scale")},
      **{f"ffn_{x}_shexp": f"ffn.shared_experts.{w}" for x, w in (("gate", "w1"), ("up", "w3"), ("down", "w2"))}}


def deepseek4(f):
    for name in ("swiglu_clamp_exp", "swiglu_clamp_shexp"):  # one limit in published files
        f.set_numbers(name, [0.75] * f["block_count"])

    def change(out, at, t, i):
        experts(out, at + "ffn.experts", t, "w1 w3 w2")
        t["attn_output_a.weight"] = shaped(t["attn_output_a.weight"], 48, 64)
        f.tensors[f"blk.{i}.attn_output_a.weight"] = t["attn_output_a.weight"]
        if "ffn_gate_tid2eid.weight" in t:
            shape, x = t["ffn_gate_tid2eid.weight"]
            t["ffn_gate_tid2eid.weight"] = shape, array("q", x)
            out[at + "ffn.gate.bias"] = [8], array("f", [1.0] * 8)
        if "nextn.eh_proj.weight" in t:  # mtp.0, whose head is another than the model's
            shape, x = t.pop("nextn.eh_proj.weight")
            for half, name in enumerate(("e_proj", "h_proj")):
                out[f"{at}{name}.weight"] = [64, 64], array("f",
                                                            [x[128 * r + 64 * half + c] for r in range(64) for c in range(64)])
            out[at + "norm.weight"] = t.pop("nextn.shared_head_norm.weight")
            out[at + "hc_head_base"] = [4], array("f", [0.5] * 4)
        out[at + "ffn.gate.bias_vl"] = [8], array("f", [1.0] * 8)
    whole = {"token_embd": "embed", "output_norm": "norm", "output": "head",
             **{f"output_hc_{x}.weight": f"hc_head_{x}" for x in ("fn", "base", "scale")}}
    tensors = take_apart(f, {**V4, "nextn.enorm": "enorm", "nextn.hnorm": "hnorm"}, whole, "layers.{}.", change)
    tensors = {k.replace(f"layers.{f.n_layers}.", "mtp.0."): w for k, w in tensors.items()}
    tensors.setdefault("mtp.0.enorm.weight", ([64], array("f", [1.0] * 64)))
    config = common(f, "DeepseekV4ForCausalLM", n_routed_experts=f["expert_count"], n_shared_experts=1,
                    scoring_func="sqrtsoftplus",
                    routed_scaling_factor=f["expert_weights_scale"], q_lora_rank=f["attention.q_lora_rank"],
                    qk_rope_head_dim=f["rope.dimension_count"], sliding_window=f["attention.sliding_window"],
                    o_groups=f["attention.output_group_count"], o_lora_rank=f["attention.output_lora_rank"], swiglu_limit=0.75,
                    compress_rope_theta=f["attention.compress_rope_freq_base"], norm_topk_prob=True,
                    compress_ratios=f["attention.compress_ratios"][:f.n_layers] + [0],
                    index_n_heads=f["attention.indexer.head_count"],
                    index_head_dim=f["attention.indexer.key_length"], index_topk=f["attention.indexer.top_k"],
                    hc_mult=f["hyper_connection.count"], hc_sinkhorn_iters=f["hyper_connection.sinkhorn_iterations"],
                    hc_eps=f["hyper_connection.epsilon"], num_hash_layers=f["hash_layer_count"], num_nextn_predict_layers=1,
                    rope_scaling=f.get("rope.scaling.type") and {"type": "yarn", "factor": 4,
                                                                 "original_max_position_embeddings": 64, "beta_fast": 32,
                                  "beta_slow": 1})
    del config["num_experts"], config["intermediate_size"]
    return config, tensors


RWKV = {"attn_norm": "ln1", "attn_norm_2": "ln2", "time_mix_ln": "attention.ln_x", "channel_mix_key": "feed_forward.key",
        "channel_mix_value": "feed_forward.value", "channel_mix_receptance": "feed_forward.receptance",
        **{f"time_mix_{x}": f"attention.{x}" for x in ("receptance", "key", "value", "output", "gate")}}


def rwkv_words():
    """263 tokens: all bytes but the first, and some texts, in both kinds of literals."""
    words = [bytes([b]) for b in range(1, 256)]
    words += ["\n\n", "\u00e9\u4e2d", "it's", "'\"", "a\\b\tc", " the", b"\xff\xfe\n", "\U0001f600"]
    return "".join(f"{i + 1} {w!r} {len(w if isinstance(w, bytes) else w.encode())}\n" for i, w in enumerate(words))


def rwkv_folder(f, of_class, **more):
    f.files = {"rwkv_vocab_v20230424.txt": rwkv_words(), "tokenizer_config.json": "{}"}
    return dict(architectures=[of_class], hidden_size=f["embedding_length"], num_hidden_layers=f.n_layers, vocab_size=264,
                bos_token_id=0, eos_token_id=0, tie_word_embeddings=False, **more)


def rwkv6(f):
    every = f["rescale_every_n_layers"]

    def change(out, at, t, i):
        own = at + "attention."
        for x in ("w1", "decay_w1", "decay_w2"):
            to = "time_decay" + x.removeprefix("decay") if "decay" in x else "time_maa_" + x
            out[own + to] = turned(t.pop(f"time_mix_{x}.weight"))
        out[own + "time_maa_w2"] = turned(t.pop("time_mix_w2.weight"))
        out[own + "time_decay"] = shaped(t.pop("time_mix_decay.weight"), 1, 1, 64)
        out[own + "time_faaaa"] = t.pop("time_mix_first.weight")
        out[own + "time_maa_x"] = shaped(t.pop("time_mix_lerp_x.weight"), 1, 1, 64)
        for x, lerp in zip("wkvrg", layers_of(t.pop("time_mix_lerp_fused.weight"))):
            out[f"{own}time_maa_{x}"] = shaped(lerp, 1, 1, 64)
        for x in "kr":
            out[f"{at}feed_forward.time_maa_{x}"] = shaped(t.pop(f"channel_mix_lerp_{x}.weight"), 1, 1, 64)
        for name in ("time_mix_output.weight", "channel_mix_value.weight"):
            t[name] = changed(t[name], lambda x: x * 2.0 ** (i // every))
    tensors = take_apart(f, RWKV, {"token_embd": "rwkv.embeddings", "token_embd_norm": "rwkv.blocks.0.pre_ln",
                                   "output_norm": "rwkv.ln_out", "output": "head"}, "rwkv.blocks.{}.", change)
    return rwkv_folder(f, "Rwkv6ForCausalLM", head_size=f["wkv.head_size"], layer_norm_epsilon=1e-5, rescale_every=every,
                       intermediate_size=96, attention_hidden_size=64), tensors


def rwkv7_tensors(f, low_rank, place, names, whole):
    """low_rank(out, at, x, part, t): how a projection of low rank is published."""
    def change(out, at, t, i):
        own = at + "attn."
        for x in "wavg":
            for part in "012":
                w = t.pop(f"time_mix_{x}{part}.weight", None)
                if w and not (x == "v" and i == 0):
                    low_rank(out, own, x, part, w)
        for x, lerp in zip("rwkvag", layers_of(t.pop("time_mix_lerp_fused.weight"))):
            out[f"{own}x_{x}"] = shaped(lerp, 1, 1, 128)
        for x in ("k_k", "k_a", "r_k"):
            out[own + x] = t.pop(f"time_mix_{x}.weight")
        out[own + "r_k"] = shaped(out[own + "r_k"], 2, 64)
        if "channel_mix_lerp_k.weight" in t:
            out[at + "ffn.x_k"] = t.pop("channel_mix_lerp_k.weight")
    for part in "012":  # what the converter puts in place of values that are not mixed
        f.tensors[f"blk.0.time_mix_v{part}.weight"] = f.tensors[f"blk.0.time_mix_a{part}.weight"]
    return take_apart(f, {**RWKV, **names}, whole, place, change)


def rwkv7(f):
    def low_rank(out, own, x, part, w):
        end = {"0": "2.bias", "1": "0.weight", "2": "2.weight"}[part]
        out[f"{own}{x}_lora.lora.{end}"] = w
    names = {"attn_norm": "attn_norm", "attn_norm_2": "ffn_norm", "time_mix_ln": "attn.g_norm", "channel_mix_key": "ffn.key",
             "channel_mix_value": "ffn.value", **{f"time_mix_{x}": f"attn.{y}_proj" for x, y in (
                 ("receptance", "r"), ("key", "k"), ("value", "v"), ("output", "o"))}}
    whole = {"token_embd": "model.embeddings", "token_embd_norm": "model.layers.0.pre_norm"}
    return rwkv_folder(f, "RWKV7ForCausalLM", head_dim=64, norm_eps=1e-5, hidden_act="sqrelu", intermediate_size=96,
                       decay_low_rank_dim=12, gate_low_rank_dim=20, a_low_rank_dim=8, v_low_rank_dim=10), \
        rwkv7_tensors(f, low_rank, "model.layers.{}.", names, whole)


def rwkv7_raw(f):
    def low_rank(out, own, x, part, w):
        out[f"{own}{x}{part}"] = shaped(w, 1, 1, 128) if part == "0" else turned(w)
    names = {k: v.replace("attention", "attn").replace("feed_forward", "ffn") for k, v in RWKV.items()}
    whole = {"token_embd": "model.embeddings", "token_embd_norm": "model.pre_ln", "output_norm": "model.ln_out",
             "output": "head"}
    return rwkv_folder(f, "Rwkv7ForCausalLM", head_size=64, layer_norm_epsilon=1e-5, intermediate_size=None,
                       lora_rank_decay=12, lora_rank_gate=20, lora_rank_iclr=8, lora_rank_value_residual_mix=10), \
        rwkv7_tensors(f, low_rank, "model.blocks.{}.", names, whole)


def qrwkv(f):
    def moved(blocks):  # from w, k, v, r, g to r, k, v, w, g
        return joined(*[blocks[i] for i in (3, 1, 2, 0, 4)])

    def change(out, at, t, i):
        own = at + "self_attn."
        w1, w2 = t.pop("time_mix_w1.weight"), t.pop("time_mix_w2.weight")
        out[own + "time_maa_w1"] = turned(moved([rows_of(w1, range(8 * i, 8 * i + 8)) for i in range(5)]))
        out[own + "time_maa_w2"] = turned(moved([(([1, *s]), x) for s, x in layers_of(w2)]))
        for x in ("w1", "w2"):
            out[f"{own}time_decay_{x}"] = turned(t.pop(f"time_mix_decay_{x}.weight"))
        out[own + "time_decay"] = shaped(t.pop("time_mix_decay.weight"), 1, 1, 64)
        out[own + "time_maa_x"] = shaped(t.pop("time_mix_lerp_x.weight"), 1, 1, 64)
        for x, lerp in zip("wkvrg", layers_of(t.pop("time_mix_lerp_fused.weight"))):
            out[f"{own}time_maa_{x}"] = shaped(lerp, 1, 1, 64)
    names = {f"time_mix_{x}": f"self_attn.{y}" for x, y in (("receptance", "q_proj"), ("key", "k_proj"), ("value", "v_proj"),
                                                           ("output", "o_proj"), ("gate", "gate"))}
    head = f["embedding_length"] // f["wkv.head_size"]
    return common(f, "RWKV6Qwen2ForCausalLM", num_attention_heads=head, lora_rank_tokenshift=8, lora_rank_decay=12), \
        take_apart(f, names, change=change)


def arwkv7(f):
    def low_rank(out, own, x, part, w):
        out[f"{own}{x}{part}"] = shaped(w, 1, 1, 128) if part == "0" else turned(w)
    names = {k: v.replace("attention", "self_attn.time_mixer") for k, v in RWKV.items() if k.startswith("time_mix")}
    tensors = rwkv7_tensors(f, low_rank, "model.layers.{}.", names, {})
    tensors = {k.replace(".attn.", ".self_attn.time_mixer."): w for k, w in tensors.items()}
    return common(f, "RwkvHybridForCausalLM", num_attention_heads=2, num_key_value_heads=2, head_size=f["wkv.head_size"],
                  wkv_version=7, wkv_has_gate=True), tensors


T5 = {"attn_norm": "0.layer_norm", "attn_rel_b": "0.SelfAttention.relative_attention_bias",
      **{f"attn_{x}": f"0.SelfAttention.{x}" for x in "qkvo"},
      "cross_attn_norm": "1.layer_norm", **{f"cross_attn_{x}": f"1.EncDecAttention.{x}" for x in "qkvo"}}


def t5(f):
    gated, tensors = "enc.blk.0.ffn_gate.weight" in f.tensors, {}
    ffn = {"ffn_norm": "layer_norm", "ffn_gate": "DenseReluDense.wi_0", "ffn_down": "DenseReluDense.wo",
           "ffn_up": "DenseReluDense.wi_1" if gated else "DenseReluDense.wi"}
    for name, t in f.tensors.items():
        half, *part = name.split(".")
        if half in ("token_embd", "output"):
            tensors["shared.weight" if half == "token_embd" else "lm_head.weight"] = t
            continue
        half = {"enc": "encoder", "dec": "decoder"}[half]
        if part[0] == "output_norm":
            tensors[f"{half}.final_layer_norm.weight"] = t
        else:
            to = T5.get(part[2]) or f"{1 if half == 'encoder' else 2}.{ffn[part[2]]}"
            tensors[f"{half}.block.{part[1]}.layer.{to}.weight"] = t
    whole = f.arch == "t5"
    for half in ("encoder", "decoder")[:1 + whole]:
        tensors[f"{half}.embed_tokens.weight"] = f.tensors["token_embd.weight"]
    letters = [["\u2581", -2.0]] + [[chr(c), -3.0 - c / 100] for c in range(33, 127)]
    words = [["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0], *letters, ["\u2581the", -1.5]]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    space = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    f.files = {"tokenizer.json": json.dumps({
        "version": "1.0", "added_tokens": [{"id": i, "content": words[i][0], **flags} for i in range(3)], "normalizer": None,
        "pre_tokenizer": space, "decoder": space, "post_processor": None,
        "model": {"type": "Unigram", "unk_id": 2, "vocab": words, "byte_fallback": False}}),
        "tokenizer_config.json": json.dumps({"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"})}
    umt5 = "enc.blk.1.attn_rel_b.weight" in f.tensors
    config = dict(architectures=[("UMT5" if umt5 else "T5") + ("ForConditionalGeneration" if whole else "EncoderModel")],
                  vocab_size=264, d_model=f["embedding_length"], d_kv=f["attention.key_length"], d_ff=f["feed_forward_length"],
                  num_layers=f["block_count"], num_heads=f["attention.head_count"], n_positions=256, layer_norm_epsilon=1e-5,
                  relative_attention_num_buckets=f["attention.relative_buckets_count"], is_encoder_decoder=whole,
                  feed_forward_proj="gated-gelu" if gated else "relu", pad_token_id=0, eos_token_id=1,
                  tie_word_embeddings="output.weight" not in f.tensors)
    if whole:
        config.update(num_decoder_layers=f.get("decoder_block_count", f["block_count"]), decoder_start_token_id=0)
    return config, tensors


def hy4(f):
    def change(out, at, t, i):
        latent(out, at, t, 1)
        both = [layers_of(t.pop(f"ffn_{x}_exps.weight")) for x in ("gate", "up")] if "ffn_up_exps.weight" in t else []
        if both:
            parts = [joined(*pair) for pair in zip(*both)]
            out[at + "mlp.experts.gate_up_proj"] = [len(parts), *parts[0][0]], joined(*parts)[1]
            out[at + "mlp.experts.down_proj"] = t.pop("ffn_down_exps.weight")
        for half, place in (("attn", "hc_attn_layer"), ("ffn", "hc_mlp_layer")):
            for x in ("fn", "base", "scale"):
                out[f"{at}{place}.hc_pre.hc_{x}"] = t.pop(f"hc_{half}_{x}.weight")
    layer = {**KDA, "attn_gate": "self_attn.linear_gate", "attn_sinks.weight": "self_attn.learnable_sink_param",
             "indexer.attn_q_b": "self_attn.indexer.wq_b", "indexer.attn_k": "self_attn.indexer.wk",
             "indexer.k_norm": "self_attn.indexer.k_norm", "indexer.proj": "self_attn.indexer.weights_proj",
             "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
             **{f"ffn_{x}_shexp": f"mlp.shared_experts.{x}_proj" for x in ("gate", "up", "down")}}
    whole = {f"output_hc_{x}.weight": f"model.hc_head.hc_head_{x}" for x in ("fn", "base", "scale")}
    tensors = take_apart(f, layer, whole, change=change)
    tensors["model.mtp_layers.0.enorm.weight"] = [64], array("f", [1.0] * 64)
    config = common(f, "HYV4ForCausalLM", **latent_sizes(f), n_routed_experts=f["expert_count"], n_shared_experts=1,
                    norm_topk_prob=True, n_group=1, topk_group=1, hc_mult=f["hyper_connection.count"],
                    hc_eps=f["hyper_connection.epsilon"], hc_magnitude=f["hyper_connection.magnitude"],
                    swiglu_limit=f["swiglu_clamp_exp"], index_n_heads=f["attention.indexer.head_count"],
                    index_head_dim=f["attention.indexer.key_length"], index_topk=f["attention.indexer.top_k"],
                    num_nextn_predict_layers=1, scoring_func="sigmoid")
    if f.get("attention.indexer.types"):
        config["indexer_types"] = ["full" if own else "shared" for own in f["attention.indexer.types"]]
    config["head_dim"] = 32
    return config, tensors


def glm5_next(f):
    def change(out, at, t, i):
        latent(out, at, t, -1)
        experts(out, at + "mlp.experts", t)
    layer = {**KDA, "ssm_f_a": "self_attn.f_a_proj", "ssm_f_b": "self_attn.f_b_proj", "ssm_g_a": "self_attn.g_a_proj",
             "ssm_g_b": "self_attn.g_b_proj", "indexer.attn_q_b": "self_attn.indexer.wq_b",
             "indexer.attn_k": "self_attn.indexer.wk", "indexer.k_norm": "self_attn.indexer.k_norm",
             "indexer.proj": "self_attn.indexer.weights_proj",
             **{f"indexer_compressor_{x}.weight": f"self_attn.indexer.index_kpool_compress_{x}" for x in ("gate", "ape")},
             **{f"hc_{half}_{x}.weight": f"hc_{half}_{x}" for half in ("attn", "ffn") for x in ("fn", "base", "scale")},
             "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
             **{f"ffn_{x}_shexp": f"mlp.shared_experts.{x}_proj" for x in ("gate", "up", "down")}}
    tensors = take_apart(f, layer, change=change)
    kv, n, types = f["attention.head_count_kv"], f.n_layers, f["attention.indexer.types"]
    text = common(f, "Glm5NextForCausalLM", **latent_sizes(f), n_routed_experts=f["expert_count"], head_dim=0,
                  n_shared_experts=f["expert_shared_count"], norm_topk_prob=True, mla_use_nope=True, mhc=True, layer_types=[
                      "full_attention" if x else "linear_attention" for x in kv], linear_attn_config={
                          "head_dim": f["kda.head_dim"], "num_heads": f["attention.head_count"],
                          "short_conv_kernel_size": f["ssm.conv_kernel"], "gate_lower_bound": f["kda.gate_lower_bound"]},
                  index_n_heads=f["attention.indexer.head_count"], index_head_dim=f["attention.indexer.key_length"],
                  index_topk=f["attention.indexer.top_k"], index_kpool=f["attention.indexer.kpool"],
                  indexer_types=["full" if t else "shared" for t in types], swiglu_limit=f["swiglu_clamp_exp"][0],
                  hc_mult=f["hyper_connection.count"], hc_sinkhorn_iters=f["hyper_connection.sinkhorn_iterations"],
                  hc_eps=f["hyper_connection.epsilon"], num_nextn_predict_layers=1)
    del text["num_experts"], text["rope_theta"], text["architectures"]
    tensors = {k.replace("model.", "model.language_model.", 1): w for k, w in tensors.items()}
    tensors["model.visual.patch_embed.proj.bias"] = [1], array("f", [0.0])
    tensors[f"model.language_model.layers.{n}.eh_proj.bias"] = [1], array("f", [0.0])  # of a block that is left out
    return {"architectures": ["Glm5NextForConditionalGeneration"], "text_config": text, "vision_config": {}}, tensors


def qwen4(f):
    n, c, memory = f.n_layers, f["hyper_connection.count"], f["ple.layers"][0]
    if "nextn_predict_layers" not in f.keys:  # all layers that attend choose, in published files
        f.set_numbers("attention.compress_ratios", [0 if r else 4 for r in f["attention.recurrent_layers"]], "I")
    halves = {"hc_attn": "attn_hyper_connection.", "hc_ffn": "mlp_hyper_connection."}
    parts = {"norm": "hc_norm", "down": "input_mix_weight_down", "up": "input_mix_weight_up", "inject": "block_inject_weight"}
    names = {f"{half}_{part}": to + end for half, to in halves.items() for part, end in parts.items()}
    names |= {f"ple_{x}": f"ple.{x}_proj" for x in ("key", "value")}
    names |= {f"ple_norm_{x}": f"ple.norm_{x}" for x in ("key", "query", "conv")}
    names |= {"ple_conv1d": "ple.conv1d", "indexer.q_norm": "self_attn.indexer.q_layernorm",
              "indexer.k_norm": "self_attn.indexer.k_layernorm", "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
              **{f"ffn_{x}_shexp": f"mlp.shared_expert.{x}_proj" for x in ("gate", "up", "down")},
              "ssm_norm": "linear_attn.norm", "ssm_dt.bias": "linear_attn.dt_bias", "ssm_a": "linear_attn.A_log",
              **{x: f"linear_attn.{y}" for x, y in (("attn_qkv", "in_proj_qkv"), ("attn_gate", "in_proj_z"),
                                                    ("ssm_beta", "in_proj_b"), ("ssm_alpha", "in_proj_a"),
                                                    ("ssm_conv1d", "conv1d"), ("ssm_out", "out_proj"))},
              "nextn.enorm": "mtp.pre_fc_norm_embedding", "nextn.hnorm": "mtp.pre_fc_norm_hidden",
              **{f"nextn.hc_head_{x}": f"mtp.hyper_connection_mixer.{y}" for x, y in parts.items()}}
    keys, values, dim = f["ssm.group_count"], f["ssm.time_step_rank"], f["ssm.state_size"]
    each = values // keys
    heads = [j * keys + g for g in range(keys) for j in range(each)]  # where each of the checkpoint's heads lies

    def order(t, size, first=0):
        return rows_of(t, [*range(first), *[first + h * size + i for h in heads for i in range(size)]])

    def change(out, at, t, i):
        experts(out, at + "mlp.experts", t)
        for name in [x for x in t if "norm" in x and x != "ssm_norm.weight"]:
            w = changed(t[name], lambda x: x - 1)
            t[name] = shaped(w, len(w[1]))
        if "indexer.q_proj.weight" in t:
            out[at + "self_attn.indexer.index_qk_proj.weight"] = joined(t.pop("indexer.q_proj.weight"),
                                                                        t.pop("indexer.k_proj.weight"))
        if "ssm_out.weight" in t:
            for name, size, first in (("attn_qkv.weight", dim, 2 * keys * dim), ("attn_gate.weight", dim, 0),
                                      ("ssm_beta.weight", 1, 0), ("ssm_alpha.weight", 1, 0), ("ssm_dt.bias", 1, 0),
                                      ("ssm_a", 1, 0), ("ssm_conv1d.weight", dim, 2 * keys * dim)):
                t[name] = order(t[name], size, first)
            t["ssm_out.weight"] = turned(order(turned(t["ssm_out.weight"]), dim))
            t["ssm_conv1d.weight"] = shaped(t["ssm_conv1d.weight"], 2 * keys * dim + values * dim, 1, f["ssm.conv_kernel"])
            t["ssm_a"] = changed(t["ssm_a"], lambda x: math.log(-x))
        t["ffn_gate_inp_shexp.weight"] = shaped(t["ffn_gate_inp_shexp.weight"], 1, 64)
        if "ple_conv1d.weight" in t:
            t["ple_conv1d.weight"] = shaped(t["ple_conv1d.weight"], c * 64, 1, f["ple.conv_kernel"])
        if "nextn.eh_proj.weight" in t:
            both = turned(t.pop("nextn.eh_proj.weight"))
            for name, rows in (("embedding", range(64)), ("hidden", range(64, 128))):
                out[f"{at}mtp.fc_{name}.weight"] = turned(rows_of(both, rows))
    whole = {f"output_hc_{x}": f"model.hyper_connection_mixer.{y}" for x, y in parts.items()}
    tensors = take_apart(f, names, {**whole, "per_layer_token_embd": "table"}, change=change)
    name = "model.hyper_connection_mixer.hc_norm.weight"
    tensors[name] = shaped(changed(tensors[name], lambda x: x - 1), 64 * c)
    table, place = tensors.pop("table.weight"), f"model.layers.{memory}.ple.ple_embedding."
    for k, rows in enumerate((range(300), range(300, 440), range(440, table[0][0]))):
        tensors[f"{place}ngram_embedding.shard_{k}.weight"] = rows_of(table, rows)
    for to, key in (("layer_multipliers", "layer_multipliers"), ("ngram_heads_offsets", "head_offsets"),
                    ("ngram_heads_vocab_sizes", "head_vocab_sizes")):
        tensors[place + to] = [len(f["ple." + key])], array("q", f["ple." + key])
    tensors = {k.replace(f"model.layers.{n}.mtp.", "mtp.").replace(f"model.layers.{n}.", "mtp.layers.0.")
               .replace("model.", "model.language_model.", 1): w for k, w in tensors.items()}
    text = common(f, "Qwen4ExpForCausalLM", shared_expert_intermediate_size=f["expert_shared_feed_forward_length"],
                  hc_count=c, hc_lowrank=f["hyper_connection.low_rank"], ple_layer_ids=[memory + 1], split_ngram_parts=3,
                  ple_conv_kernel_size=f["ple.conv_kernel"], ngram_size=f["ple.ngram_size"],
                  heads_per_ngram=f["ple.heads_per_ngram"], eos_token_id=[f["ple.eos_token_id"], 7],
                  indexer_n_heads=f["attention.indexer.head_count"], indexer_kv_heads=1,
                  indexer_head_dim=f["attention.indexer.key_length"], indexer_budget=f["attention.indexer.top_k"],
                  indexer_compress_ratio=4, output_gate_type="sigmoid", linear_num_key_heads=keys,
                  linear_num_value_heads=values, linear_key_head_dim=dim, linear_value_head_dim=dim,
                  linear_conv_kernel_dim=f["ssm.conv_kernel"], layer_types=[
                      "linear_attention" if r else "full_attention" for r in f["attention.recurrent_layers"][:n]],
                  rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [3, 3, 2],
                                   "mrope_interleaved": True, "partial_rotary_factor": 0.5})
    return {"architectures": ["Qwen4ExpForConditionalGeneration"], "text_config": text, "vision_config": {}}, tensors


def plamo2(f):
    plus = {"attn_norm.weight": ("pre_mixer_norm", 1), "post_attention_norm": ("post_mixer_norm", 1 / 5),
            "ffn_norm.weight": ("pre_mlp_norm", 1), "post_ffw_norm": ("post_mlp_norm", 5 ** -1.5)}

    def change(out, at, t, i):
        for name, (to, more) in plus.items():
            out[f"{at}{to}.weight"] = changed(t.pop(name), lambda x: x - more)
        if "ssm_a" in t:
            out[at + "mixer.A_log"] = changed(t.pop("ssm_a"), lambda x: math.log(-x))
            t["ssm_conv1d.weight"] = shaped(t["ssm_conv1d.weight"], 128, 1, 4)
    layer = {"ssm_in": "mixer.in_proj", "ssm_conv1d": "mixer.conv1d", "ssm_x": "mixer.bcdt_proj", "ssm_dt": "mixer.dt_proj",
             "ssm_dt.bias": "mixer.dt_bias", "ssm_d": "mixer.D", "ssm_dt_norm": "mixer.dt_norm_weight",
             "ssm_b_norm": "mixer.B_norm_weight", "ssm_c_norm": "mixer.C_norm_weight", "ssm_out": "mixer.out_proj",
             "attn_qkv": "mixer.qkv_proj", "attn_output": "mixer.o_proj", "attn_q_norm.weight": "mixer.q_weight",
             "attn_k_norm.weight": "mixer.k_weight", "ffn_up": "mlp.gate_up_proj"}
    tensors = take_apart(f, layer, place="model.layers.layers.{}.", change=change)
    tensors["model.norm.weight"] = changed(tensors["model.norm.weight"], lambda x: x - 1)
    plamo_words(f)
    kv = f["attention.head_count_kv"]
    config = common(f, "Plamo2ForCausalLM", num_key_value_heads=max(kv), hidden_size_per_head=24, mamba_num_heads=8,
                    mamba_d_state=f["ssm.state_size"], mamba_d_conv=4, mamba_step=2, mamba_enabled=True)
    del config["head_dim"]
    return config, tensors


def plamo_words(f):
    words = [["<|plamo:unk|>", 0.0, "UNKNOWN"], ["<|plamo:bos|>", 0.0, "CONTROL"], ["<|plamo:eos|>", 0.0, "CONTROL"],
             ["<|plamo:pad|>", 0.0, "CONTROL"], ["<|plamo:op|>", 0.0, "NORMAL"],
             *[[f"<0x{b:02X}>", 0.0, "BYTE"] for b in range(256)], ["the", -1.5, "NORMAL"], ["\u00e9", -2.25, "NORMAL"]]
    f.files = {"tokenizer.jsonl": "".join(json.dumps([*w, None, 1]) + "\n" for w in words), "tokenizer_config.json": json.dumps(
        {"bos_token": "<|plamo:bos|>", "eos_token": "<|plamo:eos|>", "pad_token": "<|plamo:pad|>",
         "unk_token": "<|plamo:unk|>"})}


def plamo3(f):
    plus = {"attn_norm.weight": ("pre_mixer_norm", 1), "post_attention_norm": ("post_mixer_norm", 1 / 5),
            "ffn_norm.weight": ("pre_mlp_norm", 1), "post_ffw_norm": ("post_mlp_norm", 5 ** -1.5),
            "attn_q_norm.weight": ("mixer.q_norm", 1), "attn_k_norm.weight": ("mixer.k_norm", 1)}

    def change(out, at, t, i):
        for name, (to, more) in plus.items():
            out[f"{at}{to}.weight"] = changed(t.pop(name), lambda x: x - more)
    tensors = take_apart(f, {"attn_qkv": "mixer.qkv_proj", "attn_output": "mixer.o_proj", "ffn_up": "mlp.gate_up_proj"},
                         place="model.layers.layers.{}.", change=change)
    tensors["model.norm.weight"] = changed(tensors["model.norm.weight"], lambda x: x - 1)
    plamo_words(f)
    config = common(f, "Plamo3ForCausalLM", window_size=16, sliding_window_pattern=8, rope_scaling_factor=1,
                    initial_context_length=None, rope_local_theta=10000, scale_embedding=False)
    config["hidden_activation"] = config.pop("hidden_act").replace("silu", "swiglu")
    return config, tensors


def talkie(f):
    f.set_numbers("attention.layer_norm_rms_epsilon", [1.1920929e-07], is_list=False)  # of the model's code

    def change(out, at, t, i):
        for x in "qk":
            shape, w = t[f"attn_{x}.weight"]
            t[f"attn_{x}.weight"] = shape, array("f", [v if k // 64 % 24 < 12 else -v for k, v in enumerate(w)])
        out[at + "attn.head_gain.head_g"] = shaped(t.pop("attn_q_norm.weight"), 4)
        for x, gain in (("attn_output", 0.75), ("ffn_down", 1.25)):
            out[f"{at}{'attn' if x[0] == 'a' else 'mlp'}_gain.a_g"] = [1], array("f", [gain])
            f.tensors[f"blk.{i}.{x}.scale"] = out[f"{at}{'attn' if x[0] == 'a' else 'mlp'}_gain.a_g"]
    layer = {"attn_q": "attn.attn_query", "attn_k": "attn.attn_key", "attn_v": "attn.attn_value",
             "attn_output": "attn.attn_resid",
             "ffn_gate": "mlp.mlp_gate", "ffn_up": "mlp.mlp_linear", "ffn_down": "mlp.mlp_resid",
             "layer_output_scale.weight": "embed_skip.a_g"}
    tensors = take_apart(f, layer, {"token_embd": "model.embed", "output.weight": "lm_head"}, "model.blocks.{}.", change)
    tensors["lm_head_gain.w_g"] = [1], array("f", [f["logit_scale"]])
    return common(f, "TalkieForCausalLM"), tensors


def granite_switch(f):
    n, n_kv = f["attention.head_count"], f["attention.head_count_kv"]
    d, n_adapters = f["attention.key_length"], f["adapters.count"]
    places = {"attn_q": "self_attn.qkv_proj.lora_{}_slices.0", "attn_k": "self_attn.qkv_proj.lora_{}_slices.1",
              "attn_v": "self_attn.qkv_proj.lora_{}_slices.2", "attn_output": "self_attn.o_proj.lora_{}",
              "ffn_gate": "shared_mlp.input_linear.lora_{}_slices.0", "ffn_up": "shared_mlp.input_linear.lora_{}_slices.1",
              "ffn_down": "shared_mlp.output_linear.lora_{}"}

    def change(out, at, t, i):
        qkv = t.pop("attn_qkv.weight")
        q, k, v = (rows_of(qkv, range(a * d, b * d)) for a, b in ((0, n), (n, n + n_kv), (n + n_kv, n + 2 * n_kv)))
        out[at + "self_attn.qkv_proj.base_layer.weight"] = joined(halves(q, n), halves(k, n_kv), v)
        out[at + "shared_mlp.input_linear.base_layer.weight"] = joined(t.pop("ffn_gate.weight"), t.pop("ffn_up.weight"))
        for name, place in places.items():
            for half in "ab":
                shape, x = t.pop(f"{name}.lora_{half}")
                one = shape[1] * shape[2]
                f.tensors[f"blk.{i}.{name}.lora_{half}"] = shape, array("f", [0.0] * one) + x[one:]
                own = layers_of((shape, x))[1:]
                if half == "b" and name in ("attn_q", "attn_k"):
                    own = [halves(w, n if name == "attn_q" else n_kv) for w in own]
                out[at + place.format(half.upper())] = [n_adapters, 1, *shape[1:]], joined(*own)[1]
    tensors = take_apart(f, {"attn_output": "self_attn.o_proj.base_layer", "ffn_down": "shared_mlp.output_linear.base_layer"},
                         change=change)
    tensors["model.switch.adapter_token_ids"] = [4], array("q", f["adapters.token_ids_activate"])
    config = common(f, "GraniteSwitchForCausalLM", num_hidden_layers=f.n_layers + 1, shared_intermediate_size=96,
                    num_adapters=n_adapters, max_lora_rank=f["adapters.lora_rank"],
                    adapter_token_ids=f["adapters.token_ids_activate"], control_token_gain=f["adapters.router_gain"],
                    adapter_substitute_token_ids=f["adapters.token_ids_substitute"], embedding_multiplier=f["embedding_scale"],
                    residual_multiplier=f["residual_scale"], logits_scaling=f["logit_scale"],
                    attention_multiplier=f["attention.scale"], num_local_experts=0, num_experts_per_tok=2)
    return config, tensors


def dots3(f):
    windowed, n = f["attention.sliding_window_pattern"], f.n_layers
    rope = f["rope.dimension_count"]

    def change(out, at, t, i):
        latent(out, at, t, 1)
        experts(out, at + "mlp.experts", t)
        for name in ("attn_q_a_norm.weight", "attn_kv_a_norm.weight"):
            rank = len(t[name][1])
            t[name] = changed(t[name], lambda x: x / (64 / rank) ** 0.5)
        if "nextn.embed_tokens.weight" in t:
            out["model.mtp.embed_tokens.weight"] = t.pop("nextn.embed_tokens.weight")
    layer = {**KDA, "attn_k_norm": "self_attn.k_rope_only_layernorm", "attn_gate": "self_attn.g_proj",
             "indexer.attn_q_b": "self_attn.indexer.wq_b", "indexer.attn_k": "self_attn.indexer.wk",
             "indexer.k_norm": "self_attn.indexer.k_norm", "indexer.proj": "self_attn.indexer.weights_proj",
             "exp_probs_b.bias": "mlp.gate.e_score_correction_bias", "nextn.shared_head_norm": "shared_head.norm",
             "nextn.shared_head_head": "shared_head.head", **{f"nextn.{x}": x for x in ("eh_proj", "enorm", "hnorm")},
             **{f"ffn_{x}_shexp": f"mlp.shared_experts.{x}_proj" for x in ("gate", "up", "down")}}
    tensors = take_apart(f, layer, change=change)
    heads = f["attention.head_count"]
    sizes = dict(latent_sizes(f), num_attention_heads=heads[0], num_key_value_heads=heads[0])
    config = common(f, "Dots3NoteForCausalLM", **{**sizes, "num_attention_heads": heads[0]}, head_dim=32,
                    n_routed_experts=f["expert_count"], n_shared_experts=f["expert_shared_count"], norm_topk_prob=True,
                    index_n_heads=f["attention.indexer.head_count"], index_head_dim=f["attention.indexer.key_length"],
                    index_topk=f["attention.indexer.top_k"], layer_types=[
                        "sliding_attention" if w else "full_attention" for w in windowed[:n]],
                    sliding_window_size=f["attention.sliding_window"], swa_rope_theta=f["rope.freq_base_swa"],
                    swa_num_attention_heads=heads[1], swa_kv_lora_rank=f["attention.kv_lora_rank_swa"],
                    swa_q_lora_rank=f["attention.q_lora_rank"], swa_qk_rope_head_dim=rope, use_dsa=True, scoring_func="sigmoid",
                    swa_qk_nope_head_dim=f["attention.key_length_mla_swa"] - rope, apply_mla_qkv_lora_rescale=True,
                    swa_v_head_dim=f["attention.value_length_mla_swa"], swa_head_dim=f["attention.key_length_mla_swa"])
    return config, tensors


def e4m3(code):
    size = math.ldexp(8 + (code & 7), (code >> 3 & 15) - 10) if code >> 3 & 15 else (code & 7) * 2.0 ** -9
    return -size if code & 128 else size


FP4 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]


def packed(f, tensors, rng, codes, scales, of_codes, of_scales):
    """Experts in MXFP4: random codes, and f gets what they mean."""
    for name in [n for n in tensors if ".experts." in n]:
        (rows, columns), _ = tensors.pop(name)
        data = bytes(rng.randrange(256) for _ in range(rows * columns // 2))
        exponents = bytes(rng.randrange(122, 127) for _ in range(rows * columns // 32))
        base = name.removesuffix(".weight")
        tensors[base + codes] = [rows, columns // 2], data, of_codes
        tensors[base + scales] = [rows, columns // 32], exponents, of_scales
        parts = re.match(r".*layers\.(\d+)\..*experts\.(\d+)\.(w\d)", base)
        part = {"w1": "gate", "w3": "up", "w2": "down"}[parts[3]]
        values = array("f", [FP4[data[k // 2] >> 4 * (k % 2) & 15] * 2.0 ** (exponents[k // 32] - 127)
                             for k in range(rows * columns)])
        stack = f.tensors[f"blk.{parts[1]}.ffn_{part}_exps.weight"][1]
        stack[int(parts[2]) * len(values):(int(parts[2]) + 1) * len(values)] = values


def kimi_k3_packed(f):
    config, tensors = kimi_k3(f)
    packed(f, tensors, random.Random(1), ".weight_packed", ".weight_scale", "U8", "U8")
    config["quantization_config"] = {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}
    return config, tensors


def deepseek4_packed(f):
    config, tensors = deepseek4(f)
    rng = random.Random(2)
    packed(f, tensors, rng, ".weight", ".scale", "I8", "F8_E8M0")
    for name in [n for n in tensors if re.search(r"attn\.w|shared_experts", n)]:
        (rows, columns), _ = tensors[name]
        high, wide = -(-rows // 16), -(-columns // 16)
        data = bytes(rng.choice((c, c | 128)) for c in (rng.randrange(127) for _ in range(rows * columns)))
        exponents = bytes(rng.randrange(115, 122) for _ in range(high * wide))
        tensors[name] = [rows, columns], data, "F8_E4M3"
        tensors[name.replace(".weight", ".scale")] = [high, wide], exponents, "F8_E8M0"
        layer, part = re.match(r"layers\.(\d+)\.(.*)\.weight", name).groups()
        to = f"blk.{layer}.{next(k for k, v in V4.items() if v == part)}.weight"
        f.tensors[to] = [rows, columns], array("f", [
            e4m3(data[k]) * 2.0 ** (exponents[k // columns // 16 * wide + k % columns // 16] - 127)
            for k in range(rows * columns)])
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [16, 16], "scale_fmt": "ue8m0"}
    return config, tensors


def nvfp4(f, tensors, rng, which, names, divides):
    """Matrices in NVFP4: random codes and scales; f gets what they mean. Returns what a file has of each that stays as it is:
    {name: (bytes, factor)}."""
    out = {}
    for name in [n for n in tensors if re.search(which, n) and len(tensors[n][0]) == 2]:
        (rows, columns), _ = tensors.pop(name)
        data = bytes(rng.randrange(256) for _ in range(rows * columns // 2))
        scales = bytes(rng.choice((0, 5, 127 - rng.randrange(1, 70))) for _ in range(rows * columns // 16))
        given = array("f", [rng.uniform(3000, 9000) if divides else rng.uniform(1e-4, 3e-4)])
        factor = array("f", [1 / given[0] if divides else given[0]])[0]
        base = name.removesuffix("weight")
        tensors[base + names[0]] = [rows, columns // 2], data, "U8"
        tensors[base + names[1]] = [rows, columns // 16], scales, "F8_E4M3"
        tensors[base + names[2]] = ([1] if divides else []), given
        tensors[base + names[3]] = [1], array("f", [1.5])
        codes = [data[k // 2] >> 4 * (k % 2) & 15 for k in range(rows * columns)]
        values = array("f", [(FP4[codes[k]] + 0.0) * e4m3(scales[k // 16]) * factor for k in range(rows * columns)])
        blocks = bytearray()
        for k in range(0, rows * columns, 64):
            blocks += scales[k // 16:k // 16 + 4]
            blocks += bytes(codes[k + 16 * i + j] | codes[k + 16 * i + j + 8] << 4 for i in range(4) for j in range(8))
        out[name] = values, bytes(blocks), factor
    return out


def llama_nvfp4(f):
    """By ModelOpt: rows of queries and keys are reordered, one layer is not quantized, one matrix is FP8; scales of a cache."""
    f.tensors.pop("rope_freqs.weight", None)
    config = common(f, "LlamaForCausalLM")
    n, n_kv = f["attention.head_count"], f["attention.head_count_kv"]

    def change(out, at, t, _):
        for name in [x for x in t if x.startswith(("attn_q.", "attn_k."))]:
            t[name] = halves(t[name], n if name.startswith("attn_q") else n_kv)
    tensors = take_apart(f, change=change)
    stays = nvfp4(f, tensors, random.Random(3), r"layers\.[1-9].*(proj|mlp)", ("weight", "weight_scale", "weight_scale_2",
                                                                              "input_scale"), False)
    f.expected = {}
    names = {v: k for k, v in LLAMA.items()}
    for name, (values, blocks, factor) in stays.items():
        layer, part = re.match(r"model\.layers\.(\d+)\.(.*)\.weight", name).groups()
        to = f"blk.{layer}.{names[part]}.weight"
        shape = f.tensors[to][0]
        order = range(shape[0])
        if names[part] in ("attn_q", "attn_k"):
            heads = n if names[part] == "attn_q" else n_kv
            d = shape[0] // heads
            order = [h * d + i // 2 + i % 2 * (d // 2) for h in range(heads) for i in range(d)]
        f.tensors[to] = rows_of((shape, values), order)
        width = len(blocks) // shape[0]
        f.expected[to] = b"".join(blocks[r * width:(r + 1) * width] for r in order), [factor]
    name = "model.layers.0.mlp.up_proj.weight"
    (rows, columns), _ = tensors.pop(name)
    codes = bytes(k * 7 % 127 for k in range(rows * columns))
    tensors[name] = [rows, columns], codes, "F8_E4M3"
    tensors[name + "_scale"] = [], array("f", [2.0 ** -9])
    f.tensors["blk.0.ffn_up.weight"] = [rows, columns], array("f", [e4m3(c) * 2.0 ** -9 for c in codes])
    for c in "kv":
        tensors[f"model.layers.1.self_attn.{c}_proj.{c}_scale"] = [1], array("f", [1.0])
    f.files = {**usual_files(), "hf_quant_config.json": json.dumps(
        {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": "FP8"}})}
    return config, tensors


def qwen3moe_nvfp4(f):
    """By compressed-tensors: experts become stacks."""
    config, tensors = common(f, "Qwen3MoeForCausalLM", norm_topk_prob=True), apart(f)
    stays = nvfp4(f, tensors, random.Random(4), r"experts", ("weight_packed", "weight_scale", "weight_global_scale",
                                                             "input_global_scale"), True)
    f.expected = {}
    for name, (values, blocks, factor) in stays.items():
        layer, e, part = re.match(r"model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.(\w+)_proj", name).groups()
        to = f"blk.{layer}.ffn_{part}_exps.weight"
        f.tensors[to][1][int(e) * len(values):(int(e) + 1) * len(values)] = values
        before = f.expected.get(to, (b"", []))
        f.expected[to] = before[0] + blocks, before[1] + [factor]
    config["quantization_config"] = {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}
    return config, tensors


def check_nvfp4(name, f, args, folder, out):
    """What stays NVFP4 when no type is asked for, and the rest in F16."""
    run = subprocess.run([args.aerie, "convert", folder, "-o", out, "-q"], capture_output=True, text=True)
    assert run.returncode == 0, f"{name}: {run.stderr}"
    _, got = read_gguf(out, True)
    n = 0
    for tensor, (shape, data, kind) in got.items():
        if tensor.endswith(".scale"):
            continue
        assert shape == f.tensors[tensor][0], f"{name}: {tensor} {shape}"
        if tensor in f.expected and shape[-1] % 64 == 0:
            blocks, factors = f.expected[tensor]
            assert kind == 40 and data == blocks, f"{name}: {tensor} is of type {kind}"
            scale = got[tensor.replace(".weight", ".scale")]
            assert scale[0] == [len(factors)] and scale[1] == array("f", factors).tobytes(), f"{name}: the scale of {tensor}"
            n += 1
        elif kind == 1:
            want = struct.pack(f"<{len(f.tensors[tensor][1])}e", *f.tensors[tensor][1])
            assert data == want, f"{name}: {tensor} differs as F16"
        else:
            assert kind == 0 and data == f.tensors[tensor][1].tobytes(), f"{name}: {tensor} is of type {kind}"
    assert n and n + len(f.tensors) == len(got), f"{name}: {n} tensors stayed"


SHARED = {f"ffn_{x}_shexp": f"mlp.shared_experts.{x}_proj" for x in ("gate", "up", "down")}


def plain(of_class, pairs=False, **more):
    """Llama's names; pairs: the published rows of queries and keys rotate in halves."""
    def case(f):
        n, n_kv = f["attention.head_count"], f["attention.head_count_kv"]

        def change(out, at, t, _):
            if pairs:
                t["attn_q.weight"], t["attn_k.weight"] = halves(t["attn_q.weight"], n), halves(t["attn_k.weight"], n_kv)
            experts(out, at + "mlp.experts", t)
        own = {"n_routed_experts": f["expert_count"], "first_k_dense_replace": 1, "n_shared_experts": 2,
               "routed_scaling_factor": f["expert_weights_scale"]} if f.arch == "deepseek" else {}
        return common(f, of_class, **own, **more), take_apart(f, SHARED, change=change)
    return case


def seen(of_class, of_text, *others, nested=True, **more):
    """A text model beside a vision encoder."""
    def case(f):
        config, tensors = common(f, of_class, **more), take_apart(f)
        if nested:
            config = {"architectures": [of_class], "text_config": {**config, "model_type": of_text}, "vision_config": {}}
            tensors = {k.replace("model.", "model.language_model.", 1): w for k, w in tensors.items()}
        tensors.update({k: ([1], array("f", [0.0])) for k in others})
        return config, tensors
    return case


def kimi_vl(f):
    def change(out, at, t, _):
        latent(out, at, t, 1)
        experts(out, at + "mlp.experts", t)
    layer = {**{k: v for k, v in KDA.items() if "attn" in k}, **SHARED, "exp_probs_b.bias": "mlp.gate.e_score_correction_bias"}
    tensors = {"language_model." + k: w for k, w in take_apart(f, layer, change=change).items()}
    tensors["vision_tower.patch_embed.proj.weight"] = [1], array("f", [0.0])
    text = common(f, "DeepseekV3ForCausalLM", model_type="deepseek_v3", **latent_sizes(f), n_shared_experts=1,
                  norm_topk_prob=True, n_group=f.get("expert_group_count", 1),
                  topk_group=f.get("expert_group_used_count", 1))
    text["n_routed_experts"] = text.pop("num_experts")
    del text["head_dim"]
    return {"architectures": ["KimiVLForConditionalGeneration"], "text_config": text, "vision_config": {}}, tensors


def bailing2(f):
    def change(out, at, t, _):
        experts(out, at + "mlp.experts", t)
    layer = {**SHARED, "attn_qkv": "attention.query_key_value", "attn_output": "attention.dense",
             "attn_q_norm": "attention.query_layernorm", "attn_k_norm": "attention.key_layernorm",
             "exp_probs_b.bias": "mlp.gate.expert_bias", "layer_output_norm": "final_layernorm",
             **{f"nextn.{x}": x for x in ("eh_proj", "enorm", "hnorm")}, "nextn.shared_head_norm": "shared_head.norm"}
    config = common(f, "BailingMoeV2ForCausalLM", num_shared_experts=2, norm_topk_prob=True,
                    moe_shared_expert_intermediate_size=f["expert_shared_feed_forward_length"], first_k_dense_replace=1,
                    n_group=f["expert_group_count"], topk_group=f["expert_group_used_count"],
                    routed_scaling_factor=f["expert_weights_scale"], num_nextn_predict_layers=1)
    return config, take_apart(f, layer, {"token_embd": "model.word_embeddings"}, change=change)


def glm4v_moe(f):
    def change(out, at, t, _):
        experts(out, at + "mlp.experts", t)
    layer = {**SHARED, "post_attention_norm": "post_attention_layernorm", "nextn.shared_head_norm": "shared_head.norm",
             **{f"nextn.{x}": x for x in ("eh_proj", "enorm", "hnorm")}, "exp_probs_b.bias": "mlp.gate.e_score_correction_bias"}
    n_rot = f["rope.dimension_count"]
    text = common(f, "", n_shared_experts=f["expert_shared_count"], first_k_dense_replace=f["leading_dense_block_count"],
                  norm_topk_prob=True, routed_scaling_factor=f["expert_weights_scale"], rope_parameters={
                      "rope_type": "default", "mrope_section": [n_rot // 2 - 2, 1, 1], "rope_theta": f["rope.freq_base"],
                      "partial_rotary_factor": n_rot / f["attention.key_length"]})
    text["n_routed_experts"] = text.pop("num_experts")
    tensors = take_apart(f, layer, change=change)
    tensors = {k.replace("model.", "model.language_model.", 1): w for k, w in tensors.items()}
    tensors["model.visual.a.weight"] = [1], array("f", [0.0])
    return {"architectures": ["Glm4vMoeForConditionalGeneration"], "text_config": text, "vision_config": {}}, tensors


def apertus(f):
    del f.tensors["rope_freqs.weight"]
    tensors = take_apart(f, {"attn_norm": "attention_layernorm", "ffn_norm": "feedforward_layernorm"})
    for i in range(f.n_layers):
        for key in ("alpha_p", "alpha_n", "beta", "eps"):
            shape = [1] if key.startswith("alpha") else []
            tensors[f"model.layers.{i}.mlp.act_fn.{key}"] = shape, array("f", [f[f"xielu.{key}"][i]])
    f.whole_keys = [f"xielu.{key}" for key in ("alpha_p", "alpha_n", "beta", "eps")]
    return common(f, "ApertusForCausalLM", hidden_act="xielu"), tensors


def embedding_gemma(f):
    f.extra = {f"{i}_Dense/model.safetensors": {"linear.weight": f.tensors[f"dense_{i}.weight"]} for i in (2, 3)}
    parts = {k: w for k, w in f.tensors.items() if not k.startswith("dense_")}
    whole, f.tensors = f.tensors, parts

    def change(out, at, t, _):
        without_one(t)
    layer = {"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
             "post_ffw_norm": "post_feedforward_layernorm"}
    tensors = {k.removeprefix("model."): w for k, w in take_apart(f, layer, change=change).items()}
    f.tensors = whole
    tensors["norm.weight"] = changed(tensors["norm.weight"], lambda x: x - 1)
    f.files = {**usual_files(), "modules.json": json.dumps(
        [{"type": "sentence_transformers.models." + x.split("_")[1], "path": x} for x in
         ("0_Transformer", "1_Pooling", "2_Dense", "3_Dense")]), **{f"{i}_Dense/config.json": json.dumps(
             {"activation_function": "torch.nn.modules.linear.Identity", "bias": False}) for i in (2, 3)}}
    config = common(f, "Gemma3TextModel", hidden_activation="gelu_pytorch_tanh", sliding_window=f["attention.sliding_window"],
                    use_bidirectional_attention=True, query_pre_attn_scalar=f["attention.key_length"],
                    rope_local_base_freq=f["rope.freq_base_swa"])
    del config["hidden_act"]
    return config, tensors


CASES = {**OLD, **MORE, **KIN, "glm4moe": glm4v_moe, "gemma-embedding": embedding_gemma,
         "xverse": plain("XverseForCausalLM", True), "orion": plain("OrionForCausalLM"),
         "pangu-embedded": plain("PanguEmbeddedForCausalLM"), "deepseek": plain("DeepseekForCausalLM", True),
         "stablelm": plain("StableLmForCausalLM", layer_norm_eps=1e-5, use_qkv_bias=True), "apertus": apertus,
         "bailingmoe2": bailing2, "eurobert": plain("EuroBertModel"), "llama-embed": plain("LlamaBidirectionalModel", True),
         "paddleocr": seen("PaddleOCRVLForConditionalGeneration", "", "mlp_AR.linear_1.weight", "visual.a.weight",
                           nested=False, rope_scaling={"type": "default", "mrope_section": [4, 4, 4]}),
         "qwen3": seen("LightOnOCRForConditionalGeneration", "qwen3", "model.vision_encoder.a.weight",
                       "model.vision_projection.norm.weight"),
         "qwen2": seen("DotsOCRForCausalLM", "", "vision_tower.a.weight", nested=False), "glm4.7-flash": kimi_vl,
         "dream": dream, "llada": llada, "llada-moe": llada_moe, "rnd1": rnd1, "grovemoe": grove, "hrm_text": hrm,
         "minimax-m3": minimax_m3, "minimax-m3-local": minimax_m3, "kimi-k3": kimi_k3, "kimi-k3-plain": kimi_k3,
         "bailingmoe3": bailing3, "bailingmoe3-clamped": bailing3, "bailingmoe3-vl": bailing3,
         "deepseek4": deepseek4, "deepseek4-mtp": deepseek4,
         "t5": t5, "t5-flan": t5, "t5-umt5": t5, "t5encoder": t5, "t5encoder-relu": t5, "rwkv6": rwkv6, "rwkv7": rwkv7,
         "rwkv7 raw": rwkv7_raw, "rwkv6qwen2": qrwkv, "arwkv7": arwkv7,
         "hy_v4": hy4, "hy_v4-dense": hy4, "plamo2": plamo2, "plamo3": plamo3, "talkie": talkie,
         "glm5-next": glm5_next, "qwen4exp": qwen4, "qwen4exp-mtp": qwen4,
         "graniteswitch": granite_switch, "dots3note": dots3, "dots3note-mtp": dots3,
         "kimi-k3-plain packed": kimi_k3_packed, "deepseek4 packed": deepseek4_packed,
         "llama packed": llama_nvfp4, "qwen3moe packed": qwen3moe_nvfp4}
# the published numbers are another function of the file's, so that rounding may differ
ROUNDED = {"minimax-m3": ("norm",), "kimi-k3": ("ssm_a",), "bailingmoe3": ("ssm_a",), "plamo2": ("norm", "ssm_a"),
           "dots3note": ("norm",), "glm5-next": ("ssm_a",), "gemma-embedding": ("norm",), "qwen4exp": ("norm", "ssm_a"),
           "mamba2": ("ssm_a",), "granitehybrid": ("ssm_a",), "plamo3": ("norm",),
           "step35": ("norm",), "muse-glimmer": ("norm",)}
# whose own tensors the test adds to, so that the source's logits are others
OTHER = ("talkie", "graniteswitch", "apertus", "exaone", "exaone4", "deci", "deepseek2-lite dense", "bailingmoe2 sarvam",
         "bitnet", "spark2_5")
HALVED = {"gpt2": ("transformer.h.1.attn.c_attn.bias", "transformer.ln_f.bias"),
          "phimoe": ("model.layers.2.self_attn.o_proj.bias",), "granite_swa": ("model.layers.4.self_attn.sinks",),
          "mimo2": ("model.layers.2.self_attn.attention_sink_bias",), "step35": ("model.layers.3.moe.router_bias",),
          "laguna": ("model.layers.3.mlp.experts.e_score_correction_bias",)}
ENCODERS = ("eurobert", "llama-embed", "gemma-embedding", *KIN)


def convert(args, folder, out):
    return subprocess.run([args.aerie, "convert", folder, "-o", out, "--outtype", "f32", "--mtp", "-q"], capture_output=True,
                          text=True)


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
    subprocess.run([args.mkarch, "--decoded", name.split()[0], source], check=True)
    with open(ids, "w", encoding="utf-8") as text:
        text.write(" ".join(str(7 * i * i % 259) for i in range(40)))
    f = File(source)
    config, tensors = CASES[name](f)
    for path in {**(f.files or {}), **getattr(f, "extra", {})}:
        os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
    write_folder(folder, config, tensors, f.files)
    for path, t in getattr(f, "extra", {}).items():
        write_safetensors(os.path.join(folder, path), t)
    run = convert(args, folder, out)
    assert run.returncode == 0, f"{name}: {run.stderr}"
    same = compare(name, f, out)
    for key in getattr(f, "whole_keys", ()):
        assert File(out)[key] == f[key], f"{name}: {key} is {File(out)[key]}, not {f[key]}"
    if name.startswith("t5") or name in ENCODERS:  # which have no logits without a source: their keys
        got = File(out)
        for key, value in f.keys.items():
            free = key.startswith(("tokenizer.", "general.")) or key in ("attention.causal", "pooling_type")
            assert free or got.get(key, f["block_count"]) == value, f"{name}: {key} is {got.get(key)}, not {value}"
        damage(name, args, folder, scratch, config)
    if name == "gemma-embedding":
        check_dense(args, f, folder, out, config)
    if hasattr(f, "expected"):
        check_nvfp4(name, f, args, folder, out)
    if name == "bitnet packed":
        check_code(args, folder, config, tensors)
    if " packed" in name or name.startswith("t5") or name in ENCODERS:
        print(f"{name}: {len(f.tensors)} tensors", flush=True)
        return
    if name == "exaone4":
        check_window(name, args, folder, config)
    if name == "phimoe":  # whose router has these numbers in its code
        check_refused(name, args, folder, {**config, "router_jitter_noise": 0.02}, "'router_jitter_noise' is 0.02")
        check_refused(name, args, folder, {**config, "num_experts_per_tok": 3}, "'num_experts_per_tok' is 3")
    if name in OTHER:
        return print(f"{name}: {len(f.tensors)} tensors", flush=True), damage(name, args, folder, scratch, config)
    a, b = logits(args, out, File(out), ids), logits(args, source, f, ids)
    error = sum((x - y) ** 2 for x, y in zip(a, b)) / sum(y * y for y in b)
    assert error == 0 if same else error < 1e-6, f"{name}: logits differ by {error}"
    of_class = config.get("architectures", ["no class"])[0]
    print(f"{name} ({of_class}): {len(f.tensors)} tensors, error of logits {error:.1e}", flush=True)
    if name in HALVED:
        check_halved(name, args, folder, config, tensors)
    if name == "bailingmoe3-vl":
        # the same weights as those of a model of text, in a file without sections: the same function
        write_folder(folder + "-text", {**config["text_config"], "architectures": ["BailingMoeV3ForCausalLM"]}, tensors)
        run = convert(args, folder + "-text", out)
        assert run.returncode == 0, run.stderr
        text = logits(args, out, File(out), ids)
        error = sum((x - y) ** 2 for x, y in zip(a, text)) / sum(y * y for y in text)
        assert "rope.dimension_sections" not in File(out).keys and error < 1e-6, f"{name}: as a model of text {error}"
        check_refused(name, args, folder, {**config, "mrope_section": [1, 1, 1]}, "'mrope_section' is [1, 1, 1]; its sum must")
        check_refused(name, args, folder, {**config, "mrope_section": None}, "'mrope_section' has 0 numbers")
    if name == "grok-2":
        check_ranks(args, folder, config, tensors, out)
    if name == "bailingmoe3":
        check_useless(name, args, folder, config, tensors, "model.layers.0.final_layernorm.weight")
    damage(name, args, folder, scratch, config)


def check_dense(args, f, folder, out, config):
    """Dense layers that a file cannot express, or that are damaged."""
    os.remove(out)
    write_folder(folder, config, None, {})
    first, wide = "2_Dense/model.safetensors", f["dense_2_feat_out"]
    modules = json.loads(f.files["modules.json"])

    def refused(*parts):
        run = convert(args, folder, out)
        assert run.returncode == 3 and all(p in run.stderr for p in parts) and not os.path.exists(out), run.stderr
    for bad, part in (({}, "linear.weight"), ({"linear.weight": ([wide * 64], array("f", [1] * wide * 64))}, "matrix"),
                      ({"linear.weight": ([wide, 63], array("f", [1] * wide * 63))}, "is [96, 63]"),
                      ({"linear.weight": ([wide + 1, 64], array("f", [1] * (wide + 1) * 64))}, "second dense layer"),
                      ({"linear.weight": ([wide, 64], array("i", [1] * wide * 64))}, "floats"),
                      ({**f.extra[first], "linear.bias": ([wide], array("f", [1] * wide))}, "neither a bias")):
        write_safetensors(os.path.join(folder, first), bad)
        refused(part)
    write_safetensors(os.path.join(folder, first), f.extra[first])
    for name, text, part in (
            ("2_Dense/config.json", '{"activation_function": "torch.nn.modules.activation.Tanh"}', "an activation"),
            ("2_Dense/config.json", "{", "2_Dense/config.json"), ("modules.json", json.dumps(modules[:3]), "one dense layer"),
            ("modules.json", json.dumps([*modules, modules[3]]), "more than two"),
            ("modules.json", json.dumps([*modules[:3], {**modules[3], "path": "4_Dense"}]), "4_Dense")):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
        refused(part)
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(f.files[name])


def check_code(args, folder, config, tensors):
    """Of the four codes that two bits have, BitNet uses three."""
    out, name = os.path.join(folder, "code.gguf"), next(n for n, t in tensors.items() if t[2:] == ("U8",))
    shape, codes, kind = tensors[name]
    write_folder(folder, config, {**tensors, name: (shape, codes[:-1] + bytes([codes[-1] | 0x30]), kind)}, {})
    run = convert(args, folder, out)
    assert run.returncode == 3 and f"tensor {name} holds the code 3" in run.stderr and not os.path.exists(out), \
        f"{run.returncode} {run.stderr}"


def check_ranks(args, folder, config, tensors, whole):
    """Files of four ranks, as Grok-2 is published: the same file, or a sentence if one is missing, damaged or another one."""
    place, out, n = os.path.join(folder, "ranks", os.path.basename(folder)), os.path.join(folder, "ranks.gguf"), 4
    groups = ("embed_tokens", "gate_proj", "down_proj", "up_proj", ".w1.", ".w2.", ".w3.", "")

    def part(t, by_columns, rank):
        if by_columns:
            return turned(part(turned(t), False, rank))
        rows = t[0][0] // n
        return rows_of(t, range(rank * rows, rank * rows + rows))

    def write(cut=(".w1.", ".w2.", ".w3."), repeated=None):
        rest = dict(tensors)
        for g, group in enumerate(groups):
            here = {k: rest.pop(k) for k in list(rest) if group in k}
            for rank in range(n) if group in cut + (repeated,) else ("common",):
                mine = {k: w if rank == "common" or group == repeated else part(w, "w2" in group or "down" in group, rank)
                        for k, w in here.items()}
                write_safetensors(file(g, rank), mine)

    def file(group, rank):
        which = rank if rank == "common" else f"{rank:03}"
        return os.path.join(place, f"pytorch_model-{group:05}-TP-{which}.safetensors")

    def refused(*said):
        run = convert(args, place, out)
        assert run.returncode == 3 and all(x in run.stderr for x in said) and not os.path.exists(out), \
            f"{said}: {run.returncode} {run.stderr}"

    def made():
        run = convert(args, place, out)
        assert run.returncode == 0, run.stderr
        with open(out, "rb") as a, open(whole, "rb") as b:
            assert a.read() == b.read()
        os.remove(out)
    write_folder(place, config, None)
    write()
    made()
    write((".w1.", ".w2.", ".w3.", "gate_proj", "down_proj", "up_proj"), repeated="embed_tokens")
    for group in range(4):
        os.remove(file(group, "common"))
    made()
    for group in range(4):
        for rank in range(n):
            os.remove(file(group, rank))
    write()
    w1 = next(k for k in tensors if ".0.w1." in k)
    shutil.move(file(5, 2), file(5, 7))
    refused("the part of rank 4 is missing: pytorch_model-00004-TP-004.safetensors; there are 8 ranks")
    os.remove(file(5, 7))
    refused("the part of rank 2 is missing: pytorch_model-00005-TP-002.safetensors; there are 4 ranks")
    write()
    shutil.copy(file(4, 1), file(4, 3))
    refused(" is the same in pytorch_model-00004-TP-001.safetensors and pytorch_model-00004-TP-003.safetensors")
    write()
    os.remove(file(7, "common"))
    os.remove(file(3, "common"))
    refused("shard 3 of the set is missing: pytorch_model-00003-TP-")
    write()
    for group in (4, 5, 6):
        os.remove(file(group, 3))
    refused(f"the parts of tensor {w1} make [24, 64], but 'moe_intermediate_size' is 32: files of some ranks are missing")
    write()
    bad = {k: part(w, False, 1) for k, w in tensors.items() if ".w1." in k}
    write_safetensors(file(4, 1), {**bad, w1: rows_of(bad[w1], range(7))})
    refused(f"tensor {w1} is F32 [7, 64] in pytorch_model-00004-TP-001.safetensors, but F32 [8, 64] in ")
    write_safetensors(file(4, 1), {k: w for k, w in bad.items() if k != w1})
    refused(f"tensor \"{w1}\" is in pytorch_model-00004-TP-000.safetensors, but in no file of rank 1; there are 4 ranks")
    write_safetensors(file(4, 1), {**bad, w1: ([8, 64], bad[w1][1].tobytes(), "I32")})
    refused(f"tensor {w1} is I32 [8, 64]")
    write()
    shutil.copy(file(4, 1), file(5, "common"))
    refused("is both in pytorch_model-00004-TP-003.safetensors and in pytorch_model-00005-TP-common.safetensors")
    os.remove(file(5, "common"))
    for rank in range(n):
        write_safetensors(file(7, rank), {"model.norm.weight": changed(tensors["model.norm.weight"], lambda x: x + rank)})
    refused("both in pytorch_model-00007-TP-common.safetensors and in pytorch_model-00007-TP-000.safetensors")
    os.remove(file(7, "common"))
    refused("tensor model.norm.weight differs between pytorch_model-00007-TP-000.safetensors and")
    shutil.rmtree(os.path.join(folder, "ranks"))


def check_useless(name, args, folder, config, tensors, useless):
    """A tensor that nothing reads is named as the folder has it, also if its name in GGUF ends like another one's."""
    out = os.path.join(folder, "useless.gguf")
    write_folder(folder, config, {**tensors, useless: ([64], array("f", [1.0] * 64))}, {})
    run = convert(args, folder, out)
    assert run.returncode == 3 and f"tensor {useless} has no use" in run.stderr and not os.path.exists(out), \
        f"{name}: {run.returncode} {run.stderr}"
    write_folder(folder, config, tensors, {})


def check_window(name, args, folder, config):
    """Windows that programs would not apply."""
    text = {**config["text_config"], "sliding_window": 16, "sliding_window_pattern": 4}
    check_refused(name, args, folder, {**config, "text_config": text}, "only with 64 layers")


def check_refused(name, args, folder, config, said):
    """A configuration that describes another function."""
    write_folder(folder, config, None, {})
    out = os.path.join(folder, "refused.gguf")
    run = convert(args, folder, out)
    assert run.returncode == 3 and said in run.stderr and not os.path.exists(out), f"{name}: {run.returncode} {run.stderr}"


def check_halved(name, args, folder, config, tensors):
    """Half a checkpoint, whose file would load: a bias is optional."""
    out = os.path.join(folder, "half.gguf")
    for lost in HALVED[name]:
        write_folder(folder, config, {k: w for k, w in tensors.items() if k != lost}, {})
        run = convert(args, folder, out)
        said = "the checkpoint is incomplete" in run.stderr or f"tensor {lost} is missing" in run.stderr
        assert run.returncode == 3 and said and not os.path.exists(out), \
            f"{name} without {lost}: {run.returncode} {run.stderr}"
    write_folder(folder, config, tensors, {})


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
    parser.add_argument("--mutants", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", metavar="FOLDER", help="where the folders stay")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        for name in args.names or CASES:
            check(name, args, args.keep or temporary)


main()
