"""Folders of models whose layers differ from each other, and of rare ones. For check_classes.py."""
import json
import os
import sys
from array import array
from base64 import b64encode
from math import log

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apart import LLAMA, common, experts, take_apart  # noqa: E402
from folders import byte_letters, changed, halves, joined, layers_of, rows_of, sentencepiece, shaped, turned  # noqa: E402

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


def bamba(f):
    """granitehybrid without factors, which rotates half of each head."""
    for key, value in (("embedding_scale", 1.0), ("residual_scale", 1.0), ("logit_scale", 1.0), ("attention.scale", 0.25)):
        f.set_numbers(key, [value], is_list=False)
    f.set_numbers("rope.scaling.finetuned", [True], "?", is_list=False)
    f.set_numbers("rope.dimension_count", [8], "I", is_list=False)
    kv, heads = f["attention.head_count_kv"], f["ssm.time_step_rank"]

    def change(out, at, t, i):
        if kv[i]:
            t["attn_q.weight"] = halves(t["attn_q.weight"], 4, 8)
            t["attn_k.weight"] = halves(t["attn_k.weight"], 2, 8)
            return
        out[at + "mamba.A_log"] = shaped(changed(t.pop("ssm_a"), lambda x: log(-x)), heads)
        out[at + "mamba.D"] = shaped(t.pop("ssm_d"), heads)
        out[at + "mamba.norm.weight"] = shaped(t.pop("ssm_norm.weight"), f["ssm.inner_size"])
        w = t.pop("ssm_conv1d.weight")
        out[at + "mamba.conv1d.weight"] = shaped(w, w[0][0], 1, w[0][1])
        out[at + "mamba.dt_bias"] = t.pop("ssm_dt.bias")
    layer = {"ffn_norm": "pre_ff_layernorm", "ssm_in": "mamba.in_proj", "ssm_conv1d": "mamba.conv1d",
             "ssm_out": "mamba.out_proj", **{f"ffn_{x}": f"feed_forward.{x}_proj" for x in ("gate", "up", "down")}}
    config = common(f, "BambaForCausalLM", num_key_value_heads=2, attn_layer_indices=[i for i, n in enumerate(kv) if n],
                    attn_rotary_emb=8, mamba_n_heads=heads, mamba_d_head=f["ssm.inner_size"] // heads,
                    mamba_d_state=f["ssm.state_size"], mamba_n_groups=f["ssm.group_count"], mamba_d_conv=4, mamba_expand=2,
                    time_step_limit=[0.0, 1e38])
    return config, take_apart(f, layer, {"output_norm": "model.final_layernorm"}, change=change)


def bailing(f):
    n, n_kv = f["attention.head_count"], f["attention.head_count_kv"]

    def change(out, at, t, _):
        q, k, v = (t.pop(f"attn_{x}.weight") for x in "qkv")
        out[at + "attention.query_key_value.weight"] = joined(halves(q, n), halves(k, n_kv), v)
        experts(out, at + "mlp.experts", t)
    layer = {"attn_output": "attention.dense", **{f"ffn_{x}_shexp": f"mlp.shared_experts.{x}_proj" for x in ("gate", "up",
                                                                                                         "down")}}
    config = common(f, "BailingMoeForCausalLM", num_shared_experts=2, norm_topk_prob=True, norm_head=False, norm_softmax=False,
                    routed_scaling_factor=f["expert_weights_scale"], first_k_dense_replace=0, use_bias=False)
    return config, take_apart(f, layer, {"token_embd": "model.word_embeddings"}, change=change)


def arctic(f):
    n, n_kv = f["attention.head_count"], f["attention.head_count_kv"]

    def change(out, at, t, _):
        t["attn_q.weight"], t["attn_k.weight"] = halves(t["attn_q.weight"], n), halves(t["attn_k.weight"], n_kv)
        experts(out, at + "block_sparse_moe.experts", t, "w1 w3 w2")
    layer = {"ffn_norm": "residual_layernorm", "ffn_norm_exps": "post_attention_layernorm", "ffn_gate": "residual_mlp.w1",
             "ffn_up": "residual_mlp.w3", "ffn_down": "residual_mlp.w2", "ffn_gate_inp": "block_sparse_moe.gate"}
    config = common(f, "ArcticForCausalLM", use_residual=True, parallel_attn_mlp_res=True)
    config["num_local_experts"] = config.pop("num_experts")
    return config, take_apart(f, layer, change=change)


LATENT = {"attn_q_a": "self_attn.q_a_proj", "attn_q_a_norm": "self_attn.q_a_layernorm", "attn_q_b": "self_attn.q_b_proj",
          "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa", "attn_kv_a_norm": "self_attn.kv_a_layernorm",
          "attn_kv_b": "self_attn.kv_b_proj"}


def latent(f):
    rope = f["rope.dimension_count"]
    plm = f.arch == "plm"
    more = dict(hidden_act="relu2") if plm else dict(scale_emb=12, scale_depth=1.4, dim_model_base=256, rope_scaling={
        "type": "longrope", "original_max_position_embeddings": 64, "attention_factor": 1.0,
        **{f"{x}_factor": list(f.tensors[f"rope_factors_{x}.weight"][1]) for x in ("short", "long")}})
    tables = {k: f.tensors.pop(k) for k in list(f.tensors) if k.startswith("rope_factors")}
    tensors = take_apart(f, LATENT)
    f.tensors.update(tables)
    config = common(f, "PLMForCausalLM" if plm else "MiniCPM3ForCausalLM", q_lora_rank=f.get("attention.q_lora_rank"),
                    kv_lora_rank=f["attention.kv_lora_rank"], qk_rope_head_dim=rope,
                    qk_nope_head_dim=f["attention.key_length"] - rope, v_head_dim=f["attention.value_length"], **more)
    del config["head_dim"]
    return config, tensors


def youtu(f):
    """The dense layers of a deepseek2, alone."""
    n = f["leading_dense_block_count"]
    f.keys["block_count"] = f.n_layers = n
    f.tensors = {k: w for k, w in f.tensors.items() if not k.startswith("blk.") or int(k.split(".")[1]) < n}

    def change(out, at, t, _):
        keys, values = layers_of(turned(t.pop("attn_k_b.weight"))), layers_of(t.pop("attn_v_b.weight"))
        out[at + "self_attn.kv_b_proj.weight"] = joined(*[part for pair in zip(keys, values) for part in pair])
    rope = f["rope.dimension_count"]
    config = common(f, "YoutuForCausalLM", num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=64, qk_rope_head_dim=rope,
                    qk_nope_head_dim=f["attention.key_length_mla"] - rope, v_head_dim=f["attention.value_length_mla"],
                    rope_interleave=True)
    for key in ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "head_dim"):
        config.pop(key, None)
    return config, take_apart(f, LATENT, change=change)


def deci(f):
    heads, kv, ff = f["attention.head_count"], f["attention.head_count_kv"], f["feed_forward_length"]
    f.tensors.pop("rope_freqs.weight")
    blocks = []
    for n, n_kv, width in zip(heads, kv, ff):
        # the model's code rounds widths up to 256
        blocks.append({"attention": {"n_heads_in_group": n_kv and n // n_kv or None, "no_op": not n,
                                     "replace_with_linear": bool(n and not n_kv)},
                       "ffn": {"ffn_mult": width and width * 3 / 128 or None, "no_op": not width,
                               "replace_with_linear": False}})

    def change(out, at, t, i):
        if kv[i]:
            t["attn_q.weight"], t["attn_k.weight"] = halves(t["attn_q.weight"], 4), halves(t["attn_k.weight"], kv[i])
        elif heads[i]:
            out[at + "self_attn.linear_attn.weight"] = t.pop("attn_output.weight")
        for part in ("gate", "up", "down"):
            if ff[i]:  # to a width that the code has
                name = f"ffn_{part}.weight"
                wide = padded(t[name], 256, part == "down")
                t[name] = f.tensors[f"blk.{i}.{name}"] = wide
    config = common(f, "DeciLMForCausalLM", num_attention_heads=4, block_configs=blocks)
    for key in ("num_key_value_heads", "intermediate_size"):
        del config[key]
    return config, take_apart(f, change=change)


def padded(t, n, columns):
    """With zeros to n rows or columns."""
    (rows, wide), x = t
    if not columns:
        return [n, wide], x + array("f", [0.0] * (n - rows) * wide)
    out = array("f")
    for r in range(rows):
        out.extend(x[r * wide:(r + 1) * wide] + array("f", [0.0] * (n - wide)))
    return [rows, n], out


def dbrx(f):
    n, ff = f["expert_count"], f["feed_forward_length"]

    def change(out, at, t, i):
        for part, name in (("gate", "w1"), ("up", "v1"), ("down", "w2")):
            w = t.pop(f"ffn_{part}_exps.weight")
            out[f"{at}ffn.experts.mlp.{name}"] = shaped(turned(w) if part == "down" else w, n * ff, 64)
    layer = {"attn_norm": "norm_attn_norm.norm_1", "attn_output_norm": "norm_attn_norm.norm_2",
             "attn_qkv": "norm_attn_norm.attn.Wqkv", "attn_output": "norm_attn_norm.attn.out_proj",
             "ffn_gate_inp": "ffn.router.layer"}
    whole = {"token_embd": "transformer.wte", "output_norm": "transformer.norm_f"}
    config = {"architectures": ["DbrxForCausalLM"], "d_model": 64, "n_heads": 4, "n_layers": f.n_layers, "max_seq_len": 256,
              "vocab_size": 264, "tie_word_embeddings": False,
              "attn_config": {"kv_n_heads": 2, "rope_theta": 10000, "clip_qkv": f["attention.clamp_kqv"]},
              "ffn_config": {"ffn_hidden_size": ff, "moe_num_experts": n, "moe_top_k": 3, "moe_normalize_expert_weights": 1,
                             "ffn_act_fn": {"name": "silu"}}}
    return config, take_apart(f, layer, whole, "transformer.blocks.{}.", change)


def tiktoken(name, config, specials):
    """A vocabulary of bytes and three words; the ids of special tokens follow."""
    words = [bytes([b]) for b in range(256)] + [b"he", b"ll", b"hell"]
    lines = "".join(f"{b64encode(w).decode()} {i}\n" for i, w in enumerate(words))
    tokens = byte_letters() + ["he", "ll", "hell"] + specials
    return {name: lines, "tokenizer_config.json": json.dumps(config)}, tokens + [f"[PAD{i}]" for i in range(len(tokens), 264)]


def chatglm(f):
    added = {str(259 + i): {"content": x, "special": True} for i, x in enumerate(("<|endoftext|>", "<|user|>"))}
    f.files, f.keys["tokenizer.ggml.tokens"] = tiktoken("tokenizer.model", {
        "added_tokens_decoder": added, "eos_token": "<|endoftext|>"}, ["<|endoftext|>", "<|user|>"])
    f.keys["tokenizer.ggml.pre"] = "chatglm-bpe"
    f.keys["tokenizer.ggml.merges"] = ["h e", "l l", "he ll"]
    f.whole_keys = ["tokenizer.ggml.tokens", "tokenizer.ggml.pre", "tokenizer.ggml.merges"]
    layer = {"attn_qkv": "self_attention.query_key_value", "attn_output": "self_attention.dense",
             "ffn_up": "mlp.dense_h_to_4h", "ffn_down": "mlp.dense_4h_to_h"}
    whole = {"token_embd": "transformer.embedding.word_embeddings", "output_norm": "transformer.encoder.final_layernorm",
             "output": "transformer.output_layer"}
    f.set_numbers("rope.freq_base", [5e6], is_list=False)
    tensors = take_apart(f, layer, whole, "transformer.encoder.layers.{}.")
    tensors["transformer.rotary_pos_emb.inv_freq"] = [4], array("f", [1.0] * 4)
    return {"architectures": ["ChatGLMModel"], "num_layers": f.n_layers, "hidden_size": 64, "ffn_hidden_size": 96,
            "kv_channels": 16, "num_attention_heads": 4, "multi_query_attention": True, "multi_query_group_num": 2,
            "seq_length": 256, "padded_vocab_size": 264, "layernorm_epsilon": 1e-5, "rmsnorm": True, "post_layer_norm": True,
            "apply_residual_connection_post_layernorm": False, "add_qkv_bias": True, "rope_ratio": 500,
            "tie_word_embeddings": False}, tensors


def chatglm3(f):
    """Its code has the special tokens after the pieces."""
    config, tensors = chatglm(f)
    pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), *((f"<0x{b:02X}>", 0.0, 6) for b in range(200)),
              *((x, -float(i), 1) for i, x in enumerate("\u2581 h e l o he ll \u2581he llo hello".split()))]
    f.files = {"tokenizer.model": sentencepiece(pieces), "tokenizer_config.json": json.dumps({"eos_token": "</s>"})}
    names = [x[0] for x in pieces] + ["[MASK]", "[gMASK]", "[sMASK]", "sop", "eop", "<|system|>", "<|user|>", "<|assistant|>",
                                      "<|observation|>"]
    types = [x[2] for x in pieces] + [3] * 9
    f.keys["tokenizer.ggml.tokens"] = names + [f"[PAD{i}]" for i in range(len(names), 264)]
    f.keys["tokenizer.ggml.token_type"] = types + [5] * (264 - len(types))
    f.keys["tokenizer.ggml.model"] = "llama"
    f.whole_keys = ["tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.model"]
    return config, tensors


def qwen1(f):
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|extra_0|>", "<|extra_1|>"]
    f.files, f.keys["tokenizer.ggml.tokens"] = tiktoken("qwen.tiktoken", {}, names)
    f.keys["tokenizer.ggml.pre"] = "qwen2"
    f.keys["tokenizer.ggml.merges"] = ["h e", "l l", "he ll"]
    f.whole_keys = ["tokenizer.ggml.tokens", "tokenizer.ggml.pre", "tokenizer.ggml.merges"]
    layer = {"attn_norm": "ln_1", "ffn_norm": "ln_2", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj",
             "ffn_gate": "mlp.w2", "ffn_up": "mlp.w1", "ffn_down": "mlp.c_proj"}
    config = common(f, "QWenLMHeadModel", kv_channels=16, rotary_emb_base=10000, layer_norm_epsilon=1e-5, rotary_pct=1.0,
                    seq_length=256, use_dynamic_ntk=True, use_logn_attn=True, no_bias=True)
    for key in ("rms_norm_eps", "rope_theta", "num_key_value_heads", "hidden_act", "head_dim"):
        del config[key]
    return config, take_apart(f, layer, {"token_embd": "transformer.wte", "output_norm": "transformer.ln_f"},
                              "transformer.h.{}.")


def olmo1(f):
    n, n_kv = f["attention.head_count"], f["attention.head_count_kv"]

    def change(out, at, t, _):
        q, k, v = (t.pop(f"attn_{x}.weight") for x in "qkv")
        out[at + "att_proj.weight"] = joined(halves(q, n), halves(k, n_kv), v)
        out[at + "ff_proj.weight"] = joined(t.pop("ffn_up.weight"), t.pop("ffn_gate.weight"))
    layer = {"attn_output": "attn_out", "ffn_down": "ff_out"}
    whole = {"token_embd": "model.transformer.wte", "output": "model.transformer.ff_out"}
    return {"architectures": ["OLMoForCausalLM"], "d_model": 64, "n_layers": f.n_layers, "n_heads": n, "n_kv_heads": n_kv,
            "mlp_hidden_size": 192, "max_sequence_length": 256, "weight_tying": False, "activation_type": "swiglu",
            "block_type": "sequential", "layer_norm_type": "default", "layer_norm_with_affine": False, "rope": True,
            "alibi": False, "include_bias": False, "attention_layer_norm": False, "multi_query_attention": False,
            "clip_qkv": f["attention.clamp_kqv"], "vocab_size": 264, "embedding_size": 264}, \
        take_apart(f, layer, whole, "model.transformer.blocks.{}.", change)


GPT = {"attn_norm": "ln_1", "ffn_norm": "ln_2", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_up": "mlp.c_fc",
       "ffn_down": "mlp.c_proj"}


def codeshell(f):
    config = {"architectures": ["CodeShellForCausalLM"], "n_embd": 64, "n_layer": f.n_layers, "n_head": 4, "n_inner": None,
              "n_positions": 256, "num_query_groups": 2, "group_query_attention": True, "position_embedding_type": "rope",
              "layer_norm_epsilon": 1e-5, "activation_function": "gelu_pytorch_tanh", "vocab_size": 264}
    f.tensors["token_embd.weight"] = f.tensors.pop("output.weight")
    return config, take_apart(f, GPT, {"output_norm": "transformer.ln_f", "token_embd": "transformer.wte"}, "transformer.h.{}.")


def jais(f):
    def change(out, at, t, _):
        for name in [n for n, w in t.items() if len(w[0]) == 2]:
            t[name] = turned(t[name])
    whole = {"token_embd": "transformer.wte", "output_norm": "transformer.ln_f"}
    tensors = take_apart(f, {**GPT, "ffn_gate": "mlp.c_fc2"}, whole, "transformer.h.{}.", change)
    for name, factor in (("transformer.wte.weight", 4), ("lm_head.weight", 0.5)):  # powers of two
        tensors[name] = changed(tensors[name], lambda x: x / factor)
    tensors["transformer.relative_pe.slopes"] = [4], array("f", [0.25, 0.0625, 0.015625, 0.00390625])
    return {"architectures": ["JAISLMHeadModel"], "n_embd": 64, "n_layer": f.n_layers, "n_head": 4, "n_inner": 96,
            "n_positions": 256, "layer_norm_epsilon": 1e-5, "activation_function": "swiglu", "vocab_size": 264,
            "position_embedding_type": "alibi", "mup_scale_qk_dot_by_d": True, "mup_embeddings_scale": 4.0,
            "mup_output_alpha": 2.0, "mup_width_scale": 0.25, "tie_word_embeddings": False}, tensors


def plamo(f):
    n, n_kv, d = f["attention.head_count"], f["attention.head_count_kv"], f["attention.key_length"]
    each = n // n_kv
    order = [h % n_kv * each + h // n_kv for h in range(n)]  # where each of the checkpoint's heads lies
    rows = [h * d + i for h in order for i in range(d)]

    def change(out, at, t, _):
        t["attn_q.weight"] = rows_of(t["attn_q.weight"], rows)
        t["attn_output.weight"] = turned(rows_of(turned(t["attn_output.weight"]), rows))
    config = common(f, "PlamoForCausalLM", n_shared_head=each, num_key_value_heads=n)
    del config["max_position_embeddings"]
    return config, take_apart(f, {"attn_norm": "norm"}, place="model.layers.layers.{}.", change=change)


def openelm(f):
    def change(out, at, t, _):
        out[at + "ffn.proj_1.weight"] = joined(t.pop("ffn_gate.weight"), t.pop("ffn_up.weight"))
    layer = {"attn_norm": "attn_norm", "ffn_norm": "ffn_norm", "attn_qkv": "attn.qkv_proj", "attn_output": "attn.out_proj",
             "attn_q_norm": "attn.q_norm", "attn_k_norm": "attn.k_norm", "ffn_down": "ffn.proj_2"}
    whole = {"token_embd": "transformer.token_embeddings", "output_norm": "transformer.norm"}
    ff = f["feed_forward_length"]
    return {"architectures": ["OpenELMForCausalLM"], "model_dim": 64, "num_transformer_layers": f.n_layers, "head_dim": 24,
            "max_context_length": 256, "num_query_heads": f["attention.head_count"],
            "num_kv_heads": f["attention.head_count_kv"], "ffn_multipliers": [n / 64 for n in ff], "ffn_dim_divisor": 32,
            "ffn_with_glu": True, "normalize_qk_projections": True, "normalization_layer_name": "rms_norm",
            "activation_fn_name": "swish", "rope_freq_constant": 10000, "share_input_output_layers": True, "vocab_size": 264,
            "rms_norm_eps": 1e-5}, take_apart(f, layer, whole, "transformer.layers.{}.", change)


def solar(f):
    def change(out, at, t, _):
        experts(out, at + "mlp.experts", t)
    layer = {"post_attention_norm": "post_attention_layernorm", "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
             **{f"ffn_{x}_shexp": f"mlp.shared_experts.{x}_proj" for x in ("gate", "up", "down")}}
    config = common(f, "SolarOpenForCausalLM", n_shared_experts=1, first_k_dense_replace=2, partial_rotary_factor=0.5)
    config["n_routed_experts"] = config.pop("num_experts")
    return config, take_apart(f, layer, change=change)


def sarvam(f):
    """bailingmoe2 without MTP, whose bias of the choice has a mean of 0 in files."""
    n = f.n_layers
    f.keys["block_count"] = n
    f.tensors = {k: w for k, w in f.tensors.items() if not k.startswith(f"blk.{n}.")}

    def change(out, at, t, i):
        experts(out, at + "mlp.experts", t)
        if "exp_probs_b.bias" in t:
            x = array("f", [1.5, -0.5, 0.25, -0.25, 1.0, -1.0, 0.5, -1.5])
            f.tensors[f"blk.{i}.exp_probs_b.bias"] = [8], x
            t["exp_probs_b.bias"] = [8], array("f", [v + 2 for v in x])
    layer = {"attn_qkv": "attention.query_key_value", "attn_output": "attention.dense",
             "attn_q_norm": "attention.query_layernorm", "attn_k_norm": "attention.key_layernorm",
             "exp_probs_b.bias": "mlp.gate.expert_bias",
             **{f"ffn_{x}_shexp": f"mlp.shared_experts.{x}_proj" for x in ("gate", "up", "down")}}
    config = common(f, "SarvamMoEForCausalLM", n_shared_experts=2, norm_topk_prob=True, first_k_dense_replace=1,
                    moe_shared_expert_intermediate_size=f["expert_shared_feed_forward_length"],
                    n_group=f["expert_group_count"], topk_group=f["expert_group_used_count"],
                    routed_scaling_factor=f["expert_weights_scale"])
    config["n_routed_experts"] = config.pop("num_experts")
    return config, take_apart(f, layer, {"token_embd": "model.word_embeddings"}, change=change)


def stablelm_12b(f):
    def change(out, at, t, _):
        for c in "qk":
            for h, w in enumerate(layers_of(t.pop(f"attn_{c}_norm.weight"))):
                out[f"{at}self_attn.{c}_layernorm.norms.{h}.weight"] = w
    config = common(f, "StableLmForCausalLM", layer_norm_eps=1e-5, use_parallel_residual=True, qk_layernorm=True)
    return config, take_apart(f, change=change)


def exaone45(f):
    f.tensors.pop("rope_freqs.weight")
    layer = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
    tensors = {k.replace("model.", "model.language_model.", 1): w for k, w in take_apart(f, layer).items()}
    tensors["model.visual.patch_embed.proj.weight"] = [1], array("f", [0.0])
    text = common(f, "", model_type="exaone4_5_text", sliding_window=None)
    return {"architectures": ["Exaone4_5_ForConditionalGeneration"], "text_config": text, "vision_config": {}}, tensors


def maincoder(f):
    return common(f, "MaincoderForCausalLM"), take_apart(f)


def hunyuan_vl(f):
    layer = {"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"}
    f.keys["rope.scaling.alpha"] = 3.0
    f.whole_keys = ["rope.scaling.alpha"]
    config = common(f, "HunYuanVLForConditionalGeneration", num_experts=1, vision_config={}, rope_scaling={
        "type": "xdrope", "alpha": 3.0, "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "xdrope_section": [3, 3, 3, 3]})
    tensors = take_apart(f, layer)
    tensors["vit.embeddings.patch_embedding.weight"] = [1], array("f", [0.0])
    return config, tensors


def deepseek_ocr(f):
    def change(out, at, t, _):
        experts(out, at + "mlp.experts", t)
    layer = {f"ffn_{x}_shexp": f"mlp.shared_experts.{x}_proj" for x in ("gate", "up", "down")}
    text = common(f, "DeepseekV2ForCausalLM", n_shared_experts=2, first_k_dense_replace=1, use_mla=False, kv_lora_rank=None,
                  qk_rope_head_dim=0, qk_nope_head_dim=0, v_head_dim=0, n_group=1, topk_group=1, topk_method="greedy",
                  routed_scaling_factor=f["expert_weights_scale"], norm_topk_prob=False)
    text["n_routed_experts"] = text.pop("num_experts")
    del text["head_dim"]
    tensors = take_apart(f, layer, change=change)
    tensors["model.sam_model.a.weight"] = tensors["model.view_seperator"] = [1], array("f", [0.0])
    return {"architectures": ["DeepseekOCRForCausalLM"], "language_config": text, "vision_config": {}, "kv_lora_rank": None,
            "qk_rope_head_dim": 0, "vocab_size": 264}, tensors


def deepseek_ocr2(f):
    """transformers' class."""
    config, tensors = deepseek_ocr(f)
    text = config["language_config"]
    for key in ("first_k_dense_replace", "use_mla", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"):
        del text[key]
    text["mlp_layer_types"] = ["dense"] + ["sparse"] * (f.n_layers - 1)
    f.whole_keys = ["leading_dense_block_count"]
    return {"architectures": ["DeepseekOcr2ForConditionalGeneration"], "text_config": text, "vision_config": {}}, tensors


PARTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
SUB_NORMS = {"attn_sub_norm": "self_attn.attn_sub_norm", "ffn_sub_norm": "mlp.ffn_sub_norm"}


def numbers(t, codes, scale):
    """The file gets these codes times a scale of 32 bits."""
    scale = array("f", [scale])[0]
    return t[0], array("f", [scale * c for c in codes])


def bitnet(f):
    """Matrices with the numbers of training."""
    def change(out, at, t, i):
        for name in PARTS:
            x = t[name + ".weight"][1]
            scale = array("f", [sum(map(abs, x)) / len(x)])[0]
            f.tensors[f"blk.{i}.{name}.weight"] = numbers(t[name + ".weight"], [(v > scale / 2) - (v < -scale / 2) for v in x],
                                                          scale)
    return common(f, "BitNetForCausalLM", quantization_config={"quant_method": "bitnet", "quantization_mode": "online",
                                                               "linear_class": "autobitlinear"}), \
        take_apart(f, SUB_NORMS, change=change)


def bitnet_packed(divides):
    def case(f):
        def change(out, at, t, i):
            for k, name in enumerate(PARTS):
                (rows, columns), x = t.pop(name + ".weight")
                codes, scale, n = [(v > 0.05) - (v < -0.05) for v in x], 0.25 * 2 ** (k % 3), rows * columns // 4
                f.tensors[f"blk.{i}.{name}.weight"] = numbers(([rows, columns], x), codes, scale)
                to = at + LLAMA[name] + ".weight"
                out[to] = [rows // 4, columns], bytes(sum(codes[j * n + b] + 1 << 2 * j for j in range(4))
                                                      for b in range(n)), "U8"
                out[to + "_scale"] = [1], array("f", [1 / scale if divides else scale])
        how = {} if divides else {"linear_class": "autobitlinear", "quantization_mode": "offline"}
        config = common(f, "BitNetForCausalLM", hidden_act="relu2", quantization_config={"quant_method": "bitnet", **how})
        f.keys["hidden_activation"] = "relu2"
        f.whole_keys = ["hidden_activation"]
        return config, take_apart(f, SUB_NORMS, change=change)
    return case


def chameleon(f):
    n, n_kv = f["attention.head_count"], f["attention.head_count_kv"]

    def change(out, at, t, _):
        t["attn_q.weight"], t["attn_k.weight"] = halves(t["attn_q.weight"], n), halves(t["attn_k.weight"], n_kv)
        for name in [x for x in t if x.startswith(("attn_q_norm", "attn_k_norm"))]:
            t[name] = turned(halves(turned(t[name]), 1))
    config = common(f, "ChameleonForConditionalGeneration", swin_norm=f.get("swin_norm", False), vq_config={})
    del config["head_dim"]
    tensors = take_apart(f, change=change)
    tensors["model.vqmodel.quantize.embedding.weight"] = [1], array("f", [0.0])
    return config, tensors


def cogvlm(f):
    layer = {"attn_qkv": "self_attn.language_expert_query_key_value", "attn_output": "self_attn.language_expert_dense",
             "vis_attn_qkv": "self_attn.vision_expert_query_key_value", "vis_attn_output": "self_attn.vision_expert_dense",
             **{f"ffn_{x}": f"mlp.language_mlp.{x}_proj" for x in ("gate", "up", "down")},
             **{f"vis_{x}": f"mlp.vision_mlp.{x}_proj" for x in ("gate", "up", "down")}}
    f.set_numbers("rope.freq_base", [5e5], is_list=False)
    config = common(f, "CogVLMForCausalLM", num_multi_query_heads=f["attention.head_count_kv"], vision_config={})
    for key in ("num_key_value_heads", "rope_theta", "head_dim"):
        del config[key]
    tensors = take_apart(f, layer)
    tensors["model.vision.boi"] = [1], array("f", [0.0])
    return config, tensors


def grok(f):
    """Grok-1's names; Grok-2's if there is a dense block."""
    new = f.get("expert_feed_forward_length")

    def change(out, at, t, _):
        experts(out, at + ("block_sparse_moe.experts" if new else "moe"), t, "w1 w3 w2" if new else "linear linear_v linear_1")
    old = {"attn_norm": "rms_norm", "attn_output_norm": "rms_norm_1", "ffn_norm": "rms_norm_2", "ffn_gate_inp": "router",
           "layer_output_norm": "rms_norm_3", **{f"attn_{x}": f"multi_head_attention.{y}" for x, y in (
               ("q", "query"), ("k", "key"), ("v", "value"), ("output", "linear"))}}
    layer = {"attn_norm": "pre_attn_norm", "attn_output_norm": "post_attn_norm", "ffn_norm": "pre_moe_norm",
             "post_ffw_norm": "post_moe_norm", "ffn_gate_inp": "block_sparse_moe.gate"} if new else old
    config = common(f, "Grok1ForCausalLM", hidden_act="gelu_new", num_local_experts=8, global_attn_every_n=1,
                    embedding_multiplier_scale=f.get("embedding_scale", 78.38367176906169), attn_temperature_len=1024,
                    output_multiplier_scale=f.get("logit_scale", 0.5773502691896257),
                    attn_output_multiplier=f.get("attention.output_scale", 0.08838834764831845),
                    **{k: f[k] for k in ("attn_logit_softcapping", "final_logit_softcapping") if k in f.keys})
    for key in ("num_experts", "moe_intermediate_size") if not new else ("num_experts",):
        del config[key]
    whole = {} if new else {"token_embd": "transformer.in_out_embed", "output_norm": "transformer.rms_norm"}
    return config, take_apart(f, layer, whole, "model.layers.{}." if new else "transformer.decoder_layer.{}.", change)


def spark(f):
    """With as many heads in each layer: published files have one number."""
    n, n_kv = f["attention.head_count"][0], f["attention.head_count_kv"][0]
    f.set_numbers("attention.head_count", [n] * f.n_layers, "I")
    f.set_numbers("attention.head_count_kv", [n_kv] * f.n_layers, "I")

    def change(out, at, t, i):
        short = {"attn_q.weight": n * 24, "attn_k.weight": n_kv * 24, "attn_v.weight": n_kv * 24, "attn_gate.weight": n}
        for name, rows in short.items():
            t[name] = f.tensors[f"blk.{i}.{name}"] = rows_of(t[name], range(rows))
        output = turned(rows_of(turned(t["attn_output.weight"]), range(n * 24)))
        t["attn_output.weight"] = f.tensors[f"blk.{i}.attn_output.weight"] = output
        qkv = [t.pop(f"attn_{x}.weight") for x in "qkv"]
        for x in "qkv":
            del f.tensors[f"blk.{i}.attn_{x}.weight"]
        out[at + "self_attn.q_k_v_proj.weight"] = f.tensors[f"blk.{i}.attn_qkv.weight"] = joined(*qkv)
    config = common(f, "Spark2_5ForCausalLM", num_attention_heads=n, num_key_value_heads=n_kv, hidden_act="gelu",
                    gate_attn_act_mode="sigmoid", headwise_attn_output_gate=True, sliding_window=16, layer_types=kinds(f))
    config["rope_parameters"] = {
        "full_attention": {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 1.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}
    del config["rope_theta"]
    f.whole_keys = ["attention.sliding_window", "attention.sliding_window_pattern", "rope.freq_base", "rope.freq_base_swa",
                    "rope.dimension_count", "rope.dimension_count_swa"]
    return config, take_apart(f, {"attn_gate": "self_attn.g_proj"}, change=change)


MORE = {"bitnet": bitnet, "bitnet packed": bitnet_packed(False), "bitnet old packed": bitnet_packed(True),
        "chameleon": chameleon, "chameleon-34b": chameleon, "cogvlm": cogvlm, "grok": grok, "grok-2": grok, "spark2_5": spark,
        "hunyuan_vl": hunyuan_vl, "deepseek2-ocr": deepseek_ocr, "deepseek2-ocr 2": deepseek_ocr2, "granitehybrid": bamba,
        "bailingmoe": bailing, "arctic": arctic, "minicpm3": latent, "plm": latent, "deci": deci,
        "deepseek2-lite dense": youtu, "dbrx": dbrx, "chatglm": chatglm, "chatglm 3": chatglm3, "qwen": qwen1, "olmo": olmo1,
        "codeshell": codeshell, "jais": jais, "plamo": plamo, "openelm": openelm, "glm4moe-plain": solar,
        "bailingmoe2 sarvam": sarvam,
        "stablelm-12b": stablelm_12b, "exaone4": exaone45, "maincoder": maincoder,
        "step35": step35_llama3, "step35-mtp": step35, "mimo2": mimo2, "mimo2-mtp": mimo2, "mimo2-fused": mimo2,
        "cohere2moe": cohere2moe, "cohere2moe-mtp": cohere2moe, "cohere2moe-rms": cohere2moe, "muse-glimmer": muse}
