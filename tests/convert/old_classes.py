"""Folders of models from before Llama, and others with queries, keys and values in one tensor. For check_classes.py."""
import os
import sys
from array import array
from math import log

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apart import common, experts, grouped, take_apart  # noqa: E402
from folders import changed, halves, joined, layers_of, shaped, turned  # noqa: E402

GPT_FFN = {"ffn_up": "mlp.dense_h_to_4h", "ffn_down": "mlp.dense_4h_to_h"}


def gpt_sizes(f, of_class, **more):
    return {"architectures": [of_class], "n_embd": f["embedding_length"], "n_layer": f.n_layers,
            "n_head": f["attention.head_count"], "n_positions": 256, "layer_norm_epsilon": 1e-5, "vocab_size": 264,
            "tie_word_embeddings": False, **more}


def mask(f):
    """What old checkpoints save beside their weights."""
    return {f"transformer.h.{i}.attn.bias": ([1, 1, 4, 4], array("f", [1.0] * 16)) for i in range(f.n_layers)} | {
        f"transformer.h.{i}.attn.masked_bias": ([], array("f", [-1e4])) for i in range(f.n_layers)}


def gpt2(f):
    def change(out, at, t, _):
        for name in [n for n, w in t.items() if len(w[0]) == 2]:
            t[name] = turned(t[name])
    layer = {"attn_norm": "ln_1", "ffn_norm": "ln_2", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj",
             "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}
    whole = {"token_embd": "transformer.wte", "output_norm": "transformer.ln_f", "position_embd": "transformer.wpe"}
    if f.arch == "starcoder":
        config = gpt_sizes(f, "GPTBigCodeForCausalLM", multi_query=True, activation_function="gelu_pytorch_tanh", n_inner=None)
        return config, take_apart(f, layer, whole, "transformer.h.{}.") | mask(f)
    config = gpt_sizes(f, "GPT2LMHeadModel", activation_function="gelu_new", n_ctx=256)
    return config, take_apart(f, layer, whole, "transformer.h.{}.", change) | mask(f)


def in_groups(f, name):
    def change(out, at, t, _):
        for end in ("weight", "bias"):
            if f"attn_qkv.{end}" in t:
                out[f"{at}{name}.{end}"] = grouped(f, t.pop(f"attn_qkv.{end}"))
    return change


def gptneox(f):
    layer = {"attn_output": "attention.dense", **GPT_FFN}
    whole = {"token_embd": "gpt_neox.embed_in", "output_norm": "gpt_neox.final_layer_norm", "output": "embed_out"}
    config = common(f, "GPTNeoXForCausalLM", rotary_pct=0.25, rotary_emb_base=10000, hidden_act="gelu_fast",
                    layer_norm_eps=1e-5, use_parallel_residual=f["use_parallel_residual"])
    del config["rms_norm_eps"], config["rope_theta"], config["num_key_value_heads"], config["head_dim"]
    return config, take_apart(f, layer, whole, "gpt_neox.layers.{}.", in_groups(f, "attention.query_key_value"))


def bloom(f):
    layer = {"attn_output": "self_attention.dense", **GPT_FFN}
    whole = {"token_embd": "word_embeddings", "token_embd_norm": "word_embeddings_layernorm", "output_norm": "ln_f"}
    config = {"architectures": ["BloomForCausalLM"], "n_embed": 96, "n_layer": 3, "num_attention_heads": 6, "seq_length": 256,
              "layer_norm_epsilon": 1e-5, "vocab_size": 264, "apply_residual_connection_post_layernorm": False}
    return config, take_apart(f, layer, whole, "h.{}.", in_groups(f, "self_attention.query_key_value"))


def falcon(f):
    new = "blk.0.attn_norm_2.weight" in f.tensors
    layer = {"attn_norm": "ln_mlp" if new else "input_layernorm", "attn_norm_2": "ln_attn",
             "attn_output": "self_attention.dense", **GPT_FFN}
    whole = {"token_embd": "transformer.word_embeddings", "output_norm": "transformer.ln_f"}
    # num_kv_heads counts for the new kind alone
    config = {"architectures": ["FalconForCausalLM"], "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
              "num_kv_heads": 2 if new else 4, "multi_query": True, "new_decoder_architecture": new, "parallel_attn": True,
              "alibi": False, "bias": False, "layer_norm_epsilon": 1e-5, "vocab_size": 264}
    return config, take_apart(f, layer, whole, "transformer.h.{}.", in_groups(f, "self_attention.query_key_value"))


def mpt(f):
    layer = {"attn_norm": "norm_1", "ffn_norm": "norm_2", "attn_qkv": "attn.Wqkv", "attn_output": "attn.out_proj",
             "ffn_up": "ffn.up_proj", "ffn_down": "ffn.down_proj", "ffn.act.scales": "ffn.act.scales"}
    whole = {"token_embd": "transformer.wte", "output_norm": "transformer.norm_f", "position_embd": "transformer.wpe"}
    most = f["attention.max_alibi_bias"]
    config = {"architectures": ["MPTForCausalLM"], "d_model": 64, "n_heads": 4, "n_layers": 3, "max_seq_len": 256,
              "expansion_ratio": 4, "vocab_size": 264, "no_bias": True, "logit_scale": None, "attn_config": {
                  "alibi": most > 0, "alibi_bias_max": most or 8, "clip_qkv": f.get("attention.clamp_kqv"), "prefix_lm": False,
                  "softmax_scale": None, "attn_type": "multihead_attention", "qk_ln": False}}
    return config, take_apart(f, layer, whole, "transformer.blocks.{}.")


def baichuan(f):
    n = f["attention.head_count"]

    def change(out, at, t, _):
        q, k, v = (t.pop(f"attn_{x}.weight") for x in "qkv")
        out[at + "self_attn.W_pack.weight"] = joined(halves(q, n), halves(k, n), v)
    config = common(f, "BaichuanForCausalLM", model_max_length=256)
    del config["num_key_value_heads"], config["head_dim"], config["rope_theta"], config["max_position_embeddings"]
    return config, take_apart(f, change=change)


def internlm2(f):
    n, n_kv = f["attention.head_count"], f["attention.head_count_kv"]

    def change(out, at, t, _):
        q, k, v = (t.pop(f"attn_{x}.weight") for x in "qkv")
        out[at + "attention.wqkv.weight"] = grouped(f, joined(halves(q, n), halves(k, n_kv), v))
    layer = {"attn_norm": "attention_norm", "ffn_norm": "ffn_norm", "attn_output": "attention.wo",
             "ffn_gate": "feed_forward.w1", "ffn_up": "feed_forward.w3", "ffn_down": "feed_forward.w2"}
    config = common(f, "InternLM2ForCausalLM", rope_scaling={"type": "dynamic", "factor": 2.0}, bias=False)
    return config, take_apart(f, layer, {"token_embd": "model.tok_embeddings", "output": "output"}, change=change)


def minicpm(f):
    n, n_kv, e = f["attention.head_count"], f["attention.head_count_kv"], f["embedding_length"]

    def change(out, at, t, _):
        t["attn_q.weight"], t["attn_k.weight"] = halves(t["attn_q.weight"], n), halves(t["attn_k.weight"], n_kv)
    return common(f, "MiniCPMForCausalLM", scale_emb=f["embedding_scale"], dim_model_base=e / f["logit_scale"],
                  scale_depth=f["residual_scale"] * f.n_layers ** 0.5), take_apart(f, change=change)


def phimoe(f):
    def change(out, at, t, _):
        experts(out, at + "block_sparse_moe.experts", t, "w1 w3 w2")
    tables = {f"{x}_factor": list(f.tensors[f"rope_factors_{x}.weight"][1]) for x in ("short", "long")}
    scaling = {"type": "longrope", "original_max_position_embeddings": 64, "long_mscale": 1.1547005, "short_mscale": 1.1547005,
               **tables}
    config = common(f, "PhiMoEForCausalLM", num_local_experts=8, num_experts_per_tok=2, attention_bias=True, lm_head_bias=True,
                    router_jitter_noise=0.01, rope_scaling=scaling)
    left_out = {k: f.tensors.pop(k) for k in list(f.tensors) if k.startswith("rope_factors")}
    tensors = take_apart(f, {"ffn_gate_inp": "block_sparse_moe.gate"}, change=change)
    f.tensors.update(left_out)
    return config, tensors


def mamba2(f, own=False):
    """own: as mamba_ssm, the makers' package, saves it."""
    n, inner = f["ssm.time_step_rank"], f["ssm.inner_size"]

    def change(out, at, t, _):
        own = {"ssm_dt.bias": "dt_bias", "ssm_conv1d.weight": "conv1d.weight"}
        for name, to in own.items():
            w = t.pop(name)
            out[f"{at}mixer.{to}"] = shaped(w, w[0][0], 1, w[0][1]) if "conv" in to else w
        for name, to, g in (("ssm_a", "A_log", lambda x: log(-x)), ("ssm_d", "D", lambda x: x)):
            out[f"{at}mixer.{to}"] = shaped(changed(t.pop(name), g), n)
        out[at + "mixer.norm.weight"] = shaped(t.pop("ssm_norm.weight"), inner)
    layer = {"attn_norm": "norm", "ssm_in": "mixer.in_proj", "ssm_out": "mixer.out_proj", "ssm_conv1d": "mixer.conv1d"}
    whole = {"token_embd": "backbone.embedding" + ("" if own else "s"), "output_norm": "backbone.norm_f"}
    tensors = take_apart(f, layer, whole, "backbone.layers.{}.", change)
    sizes = {"d_state": f["ssm.state_size"], "d_conv": f["ssm.conv_kernel"], "headdim": inner // n,
             "ngroups": f["ssm.group_count"], "layer": "Mamba2"}
    if own:
        return {"d_model": 64, "n_layer": f.n_layers, "vocab_size": 264, "ssm_cfg": sizes, "rms_norm": True, "attn_cfg": {},
                "attn_layer_idx": [], "d_intermediate": 0, "pad_vocab_size_multiple": 8}, tensors
    return {"architectures": ["Mamba2ForCausalLM"], "hidden_size": 64, "num_hidden_layers": f.n_layers, "num_heads": n,
            "head_dim": inner // n, "state_size": f["ssm.state_size"], "n_groups": f["ssm.group_count"], "expand": 2,
            "conv_kernel": f["ssm.conv_kernel"], "layer_norm_epsilon": 1e-5, "hidden_act": "silu",
            "time_step_limit": [0.0, 1e38], "tie_word_embeddings": False}, tensors


def exaone(f):
    f.tensors.pop("rope_freqs.weight")
    layer = {"attn_norm": "ln_1", "ffn_norm": "ln_2", **{f"attn_{x}": f"attn.attention.{x}_proj" for x in "qkv"},
             "attn_output": "attn.attention.out_proj", "ffn_gate": "mlp.c_fc_0", "ffn_up": "mlp.c_fc_1",
             "ffn_down": "mlp.c_proj"}
    config = common(f, "ExaoneForCausalLM", num_layers=f.n_layers, activation_function="silu", layer_norm_epsilon=1e-5)
    del config["num_hidden_layers"], config["rms_norm_eps"], config["hidden_act"]
    return config, take_apart(f, layer, {"token_embd": "transformer.wte", "output_norm": "transformer.ln_f"},
                              "transformer.h.{}.")


def nanbeige(f):
    return common(f, "NanbeigeForCausalLM", num_loops=f["num_loops"], skip_loop_final_norm=f.get(
        "skip_loop_final_norm", False)), take_apart(f, change=turned_heads(f))


def refact(f):
    def change(out, at, t, _):
        out[at + "attn.kv.weight"] = joined(t.pop("attn_k.weight"), t.pop("attn_v.weight"))
        out[at + "mlp.gate_up_proj.weight"] = joined(t.pop("ffn_gate.weight"), t.pop("ffn_up.weight"))
    layer = {"attn_norm": "ln_1", "ffn_norm": "ln_2", "attn_q": "attn.q", "attn_output": "attn.c_proj",
             "ffn_down": "mlp.c_proj"}
    whole = {"token_embd": "transformer.wte", "output_norm": "transformer.ln_f"}
    config = gpt_sizes(f, "GPTRefactForCausalLM", multi_query=True, n_inner=None, attention_bias_in_fp32=True)
    return config, take_apart(f, layer, whole, "transformer.h.{}.", change)


def turned_heads(f):
    n, n_kv = f["attention.head_count"], f["attention.head_count_kv"]

    def change(out, at, t, _):
        t["attn_q.weight"], t["attn_k.weight"] = halves(t["attn_q.weight"], n), halves(t["attn_k.weight"], n_kv)
    return change


def granite_swa(f):
    turn = turned_heads(f)

    def change(out, at, t, i):
        turn(out, at, t, i)
        out[at + "self_attn.sinks"] = t.pop("attn_sinks.weight")
        if "ffn_gate_exps.weight" in t:  # which become one tensor, as in llama.cpp
            both = [joined(a, b) for a, b in zip(layers_of(t.pop("ffn_gate_exps.weight")),
                                                 layers_of(t.pop("ffn_up_exps.weight")))]
            stack = [8, *both[0][0]], joined(*both)[1]
            for part in ("gate", "up"):
                del f.tensors[f"blk.{i}.ffn_{part}_exps.weight"]
            f.tensors[f"blk.{i}.ffn_gate_up_exps.weight"] = out[at + "block_sparse_moe.experts.gate_up_proj"] = stack
            out[at + "block_sparse_moe.experts.down_proj"] = t.pop("ffn_down_exps.weight")
    moe = "expert_count" in f.keys
    layer = {"ffn_gate_inp": "block_sparse_moe.router", "ffn_up_shexp": "shared_mlp.input_linear",
             "ffn_down_shexp": "shared_mlp.output_linear"}
    kinds = ["sliding_attention" if w else "full_attention" for w in f["attention.sliding_window_pattern"]]
    turns = f.get("attention.rope_pattern", [True] * f.n_layers)
    config = common(f, f"Granite{'Moe' if moe else ''}SWAForCausalLM", sliding_window=16, layer_types=kinds,
                    layer_rope_theta=[10000.0 if r else 0 for r in turns], embedding_multiplier=f["embedding_scale"],
                    residual_multiplier=f["residual_scale"], logits_scaling=f["logit_scale"],
                    attention_multiplier=f["attention.scale"])
    if moe:
        config["num_local_experts"] = config.pop("num_experts")
        config["shared_intermediate_size"] = f["expert_shared_feed_forward_length"]
    return config, take_apart(f, layer, change=change)


def smallthinker(f):
    def change(out, at, t, _):
        experts(out, at + "block_sparse_moe.experts", t, "gate up down")
    window = f.get("attention.sliding_window", 0)
    layout = [int(window > 0 and i % 4 > 0) for i in range(f.n_layers)]
    config = common(f, "SmallThinkerForCausalLM", moe_num_primary_experts=8, moe_num_active_primary_experts=3,
                    moe_ffn_hidden_size=32, moe_primary_router_apply_softmax=f["expert_gating_func"] == 1,
                    sliding_window_size=4096, sliding_window_layout=layout, rope_layout=layout if window else [1] * f.n_layers)
    for key in ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "intermediate_size", "hidden_act"):
        del config[key]
    return config, take_apart(f, {"ffn_gate_inp": "block_sparse_moe.primary_router"}, change=change)


def laguna(f):
    def change(out, at, t, _):
        experts(out, at + "mlp.experts", t)
    heads, base = f["attention.head_count"], f["rope.freq_base"]
    full = {"rope_type": "default", "rope_theta": base, "partial_rotary_factor": f["rope.dimension_count"] / 16}
    more = {}
    if isinstance(heads, list):
        full.update(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)
        more = {"num_attention_heads_per_layer": heads, "sliding_window": 16, "gating": True,
                "layer_types": ["full_attention" if i % 4 == 0 else "sliding_attention" for i in range(f.n_layers)]}
    else:
        more = {"gating": "per-element", "layer_types": ["full_attention"] * f.n_layers}
    near = {"rope_type": "default", "rope_theta": f.get("rope.freq_base_swa", 1e4), "partial_rotary_factor": 1.0}
    config = common(f, "LagunaForCausalLM", rope_parameters={"full_attention": full, "sliding_attention": near},
                    moe_routed_scaling_factor=f["expert_weights_scale"], mlp_layer_types=["dense"] + ["sparse"] * (
                        f.n_layers - 1), shared_expert_intermediate_size=f["expert_shared_feed_forward_length"], **more)
    config["num_attention_heads"] = 4
    del config["rope_theta"]
    layer = {"attn_gate": "self_attn.g_proj", "exp_probs_b.bias": "mlp.experts.e_score_correction_bias",
             **{f"ffn_{x}_shexp": f"mlp.shared_expert.{x}_proj" for x in ("gate", "up", "down")}}
    return config, take_apart(f, layer, change=change)


def maple(f):
    f.set_numbers("swiglu_clamp_exp", [7.0] * f.n_layers)  # a number of the model's code

    def change(out, at, t, _):
        experts(out, at + "mlp.experts", t)
    kinds = ["sliding_attention" if w else "full_attention" for w in f["attention.sliding_window_pattern"]]
    return common(f, "MapleForCausalLM", sliding_window=16, layer_types=kinds, partial_rotary_factor=0.5,
                  nope_on_global_attention=True, norm_topk_prob=True), take_apart(f, change=change)


OLD = {"laguna": laguna, "laguna-m": laguna, "exaone": exaone, "nanbeige": nanbeige, "nanbeige-skip": nanbeige,
       "refact": refact, "granite_swa": granite_swa, "granite_swa-moe": granite_swa, "smallthinker": smallthinker,
       "smallthinker-windows": smallthinker, "maple": maple, "gpt2": gpt2, "starcoder": gpt2, "gptneox": gptneox,
       "gptneox-series": gptneox, "bloom": bloom, "falcon": falcon, "falcon-40b": falcon, "mpt": mpt, "mpt-positions": mpt,
       "baichuan": baichuan, "baichuan-13b": baichuan, "internlm2": internlm2, "minicpm": minicpm, "phimoe": phimoe,
       "mamba2": mamba2, "mamba2 own": lambda f: mamba2(f, True)}
