"""Folders of models whose layers differ from each other, and of rare ones. For check_classes.py."""
import os
import sys
from array import array

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apart import common, experts, take_apart  # noqa: E402
from folders import changed, halves  # noqa: E402

AHEAD = {f"nextn.{x}": x for x in ("eh_proj", "enorm", "hnorm")}


def kinds(f, n=None):
    return ["sliding_attention" if w else "full_attention" for w in f["attention.sliding_window_pattern"][:n]]


def step35(f):
    n, heads, windowed = f.n_layers, f["attention.head_count"], f["attention.sliding_window_pattern"]
    def change(out, at, t, i):
        for name in [x for x in t if "norm" in x]:
            t[name] = changed(t[name], lambda x: x - 1)
        for part in ("gate", "up", "down"):
            if f"ffn_{part}_exps.weight" in t:
                out[f"{at}moe.{part}_proj.weight"] = t.pop(f"ffn_{part}_exps.weight")
    layer = {"attn_gate": "self_attn.g_proj", "ffn_gate_inp": "moe.gate", "exp_probs_b.bias": "moe.router_bias",
             **{f"ffn_{x}_shexp": f"share_expert.{x}_proj" for x in ("gate", "up", "down")}, **AHEAD,
             "nextn.shared_head_norm": "transformer.shared_head.norm",
             "nextn.shared_head_head": "transformer.shared_head.output"}
    tensors = take_apart(f, layer, {"rope_freqs": "rope_freqs"}, change=change)
    tensors.pop("rope_freqs.weight", None)
    tensors["model.norm.weight"] = changed(tensors["model.norm.weight"], lambda x: x - 1)
    sparse = [i for i in range(n) if f"blk.{i}.ffn_gate_inp.weight" in f.tensors]
    config = common(f, "Step3p5ForCausalLM", num_attention_heads=heads[0], num_attention_groups=2, moe_num_experts=8,
                    moe_top_k=3, share_expert_dim=f["expert_shared_feed_forward_length"], norm_expert_weight=True,
                    moe_router_scaling_factor=f["expert_weights_scale"], moe_router_activation="sigmoid", zero_centered=True,
                    use_head_wise_attn_gate=True, use_rope_layers=[], sliding_window=16, layer_types=kinds(f),
                    moe_layers_enum=",".join(map(str, sparse)), rope_theta=[1e4 if w else 1e6 for w in windowed],
                    partial_rotary_factors=[1.0 if w else 0.5 for w in windowed], moe_every_n_layer=1,
                    num_nextn_predict_layers=f.get("nextn_predict_layers", 0), attention_other_setting={
                        "attention_type": "sliding_attention", "num_attention_heads": heads[1], "num_attention_groups": 2,
                        "head_dim": 24}, swiglu_limits=f.get("swiglu_clamp_exp"), swiglu_limits_shared=f.get(
                            "swiglu_clamp_shexp"))
    for key in ("num_key_value_heads", "num_experts", "num_experts_per_tok"):
        del config[key]
    return config, tensors


def step35_llama3(f):
    """With a scaling of layers without a window, for which the test computes the divisors."""
    base, half = 1e6, 6
    divisors = []
    for i in range(half):
        turns = 128 * base ** (-i / half) / 6.283185307179586
        kept = (turns - 1) / 31
        divisors.append(1 if kept >= 1 else 2 if kept <= 0 else 1 / ((1 - kept) / 2 + kept))
    f.set_tensor("rope_freqs.weight", array("f", divisors + [1.0] * 6))
    config, tensors = step35(f)
    config.update(yarn_only_types=["full_attention"], rope_scaling={
        "rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 128, "low_freq_factor": 1.0,
        "high_freq_factor": 32.0})
    return config, tensors


def mimo2(f):
    n, kv = f.n_layers, f["attention.head_count_kv"]
    kv = kv if isinstance(kv, list) else [kv] * n

    def change(out, at, t, i):
        experts(out, at + "mlp.experts", t)
    layer = {"attn_sinks.weight": "self_attn.attention_sink_bias", "attn_qkv": "self_attn.qkv_proj", **AHEAD,
             "exp_probs_b.bias": "mlp.gate.e_score_correction_bias", "layer_output_norm": "final_layernorm"}
    tensors = {}
    for name, t in take_apart(f, layer, change=change).items():
        parts = name.split(".")
        ahead = parts[:2] == ["model", "layers"] and int(parts[2]) >= n
        tensors[f"model.mtp.layers.{int(parts[2]) - n}.{'.'.join(parts[3:])}" if ahead else name] = t
    hybrid = [int(w) for w in f["attention.sliding_window_pattern"][:n]]
    config = common(f, "MiMoV2FlashForCausalLM", num_key_value_heads=min(kv), swa_num_key_value_heads=max(kv), v_head_dim=16,
                    swa_head_dim=24, swa_v_head_dim=16, swa_num_attention_heads=4, sliding_window=16, sliding_window_size=16,
                    hybrid_layer_pattern=hybrid, moe_layer_freq=[int(f"blk.{i}.ffn_gate_inp.weight" in f.tensors)
                                                                 for i in range(n)],
                    add_swa_attention_sink_bias=True, add_full_attention_sink_bias=False, layernorm_epsilon=1e-5,
                    swa_rope_theta=10000, partial_rotary_factor=0.501, attention_value_scale=f.get("attention.value_scale"),
                    n_group=1, topk_group=1, scoring_func="sigmoid", topk_method="noaux_tc", norm_topk_prob=True,
                    routed_scaling_factor=None)
    config["n_routed_experts"] = config.pop("num_experts")
    del config["rms_norm_eps"]
    return config, tensors


def cohere2moe(f):
    n = f.n_layers

    def change(out, at, t, i):
        if "ffn_gate_up_exps.weight" in t:
            out[at + "mlp.experts.gate_up_proj"] = both = t.pop("ffn_gate_up_exps.weight")
            out[at + "mlp.experts.down_proj"] = t.pop("ffn_down_exps.weight")
            e, rows, columns = both[0]
            for k, part in enumerate(("gate", "up")):  # which become two tensors
                size = rows // 2 * columns
                f.tensors[f"blk.{i}.ffn_{part}_exps.weight"] = [e, rows // 2, columns], array("f", [
                    x for j in range(e) for x in both[1][(2 * j + k) * size:(2 * j + k + 1) * size]])
            del f.tensors[f"blk.{i}.ffn_gate_up_exps.weight"]
        experts(out, at + "mlp.experts", t)
    layer = {**AHEAD, "nextn.shared_head_norm": "shared_head.norm",
             **{f"ffn_{x}_shexp": f"mlp.shared_experts.{x}_proj" for x in ("gate", "up", "down")}}
    pattern = f.get("attention.sliding_window_pattern") or [i % 4 > 0 for i in range(n)]
    f.keys["attention.sliding_window_pattern"] = pattern
    config = common(f, "Cohere2MoeForCausalLM", logit_scale=f["logit_scale"], sliding_window=16, layer_types=kinds(f, n),
                    mlp_layer_types=["dense"] + ["sparse"] * (n - 1), expert_selection_fn="sigmoid",
                    num_shared_experts=f.get("expert_shared_count", 0), shared_expert_combination_strategy="average",
                    norm_topk_prob=f.get("expert_weights_norm", False), prefix_dense_intermediate_size=96, intermediate_size=32,
                    num_nextn_predict_layers=f.get("nextn_predict_layers", 0), layer_norm_eps=1e-5)
    del config["moe_intermediate_size"]
    if "attention.layer_norm_epsilon" in f.keys:
        config["rms_norm_eps"] = None
    return config, take_apart(f, layer, change=change)


def muse(f):
    n, n_kv = f["attention.head_count"], f["attention.head_count_kv"]
    for i in range(f.n_layers):  # the model has a factor
        for c, factor in (("q", 2.5), ("k", 1.0)):
            f.set_tensor(f"blk.{i}.attn_{c}_norm.weight", array("f", [factor] * 24))

    def change(out, at, t, i):
        for name in [x for x in t if "norm" in x and not x.startswith(("attn_q", "attn_k"))]:
            t[name] = changed(t[name], lambda x: x - 1)
        t["attn_q.weight"], t["attn_k.weight"] = halves(t["attn_q.weight"], n), halves(t["attn_k.weight"], n_kv)
        del t["attn_q_norm.weight"], t["attn_k_norm.weight"]
    layer = {"ffn_norm": "pre_feedforward_layernorm", "post_attention_norm": "post_attention_layernorm",
             "post_ffw_norm": "post_feedforward_layernorm", "attn_gate": "self_attn.gate_proj"}
    windowed = [i % 4 < 3 for i in range(f.n_layers)]
    text = common(f, "", sliding_window=16, layer_types=["sliding_attention" if w else "full_attention" for w in windowed],
                  final_logit_softcapping=f["final_logit_softcapping"], output_multiplier=f["logit_scale"], qk_scale_factor=2.5,
                  post_norm_eps=1e-8, layer_rope_theta=[10000.0 if w else 0 for w in windowed])
    text["hidden_activation"] = text.pop("hidden_act")
    tensors = {k.replace("model.", "model.language_model.", 1): w for k, w in take_apart(f, layer, change=change).items()}
    tensors["model.vision_adapter.fc1.weight"] = [1], array("f", [0.0])
    return {"architectures": ["MuseGlimmerForConditionalGeneration"], "text_config": text, "vision_config": {}}, tensors


MORE = {"step35": step35_llama3, "step35-mtp": step35, "mimo2": mimo2, "mimo2-mtp": mimo2, "mimo2-fused": mimo2,
        "cohere2moe": cohere2moe, "cohere2moe-mtp": cohere2moe, "cohere2moe-rms": cohere2moe, "muse-glimmer": muse}
