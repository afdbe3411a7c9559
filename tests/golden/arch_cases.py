"""Published models for check_arch_torch.py: those of tests/support/mkarch_rows.inc that transformers has, or that are one
of its models under another name."""
import re

import numpy as np
import torch
import transformers

from check_arch_torch import DELTA, common, llama_like, state_of, unpermute, windows

DENSE_ROPE = dict(rope_type="default")


def split_qkv(f, name, w, i):
    """Rows of queries, keys and values, which the file has as one tensor."""
    d = f.get("attention.key_length") or f["embedding_length"] // f["attention.head_count"]
    kv_key = "attention.head_count_kv" if "attention.head_count_kv" in f.keys else "attention.head_count"
    q, kv = f.per_layer("attention.head_count")[i] * d, f.per_layer(kv_key)[i] * d
    return {"attn_q": w[:q], "attn_k": w[q:q + kv], "attn_v": w[q + kv:]}  # values may be narrower


class Split:
    """A file whose fused tensors are cut as the published model has them."""

    def __init__(self, f, gate_up=True):
        self.__dict__.update(f.__dict__)
        self.f, self.tensors = f, {}
        for name, w in f.tensors.items():
            part = name.split(".", 2)[-1]
            if part in ("attn_qkv.weight", "attn_qkv.bias"):
                block, end = name.split(".")[1], part.rsplit(".", 1)[1]
                for key, rows in split_qkv(f, name, w, int(block)).items():
                    self.tensors[f"blk.{block}.{key}.{end}"] = rows
            elif part.startswith("vis_"):  # for images
                continue
            elif gate_up and part == "ffn_up.weight" and name.replace("ffn_up", "ffn_gate") not in f.tensors and \
                    w.shape[0] == 2 * f.per_layer("feed_forward_length")[int(name.split(".")[1])]:
                block = name.split(".")[1]
                self.tensors[f"blk.{block}.ffn_gate.weight"], self.tensors[name] = np.split(w, 2)
            else:
                self.tensors[name] = w

    def __getitem__(self, key):
        return self.keys[key]

    def get(self, key, default=None):
        return self.keys.get(key, default)

    per_layer = lambda self, key: self.f.per_layer(key)


def as_llama(permuted=False, model="LlamaForCausalLM", config="LlamaConfig", layer=None, rope=True, plus_one=(), split=True,
             **more):
    """A model whose configuration a few words describe."""
    def case(f):
        f = Split(f, split)
        values = common(f, **{k: v(f) if callable(v) else v for k, v in more.items()})
        if rope:
            values["rope_parameters"].pop("partial_rotary_factor", None)
        return (getattr(transformers, model), getattr(transformers, config)(**values),
                state_of(f, layer, permuted, plus_one=plus_one))
    return case


def text_of(cls, config, state):
    """The part of a model of images that reads text, with a head."""
    class Text(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.model = cls._from_config(config) if hasattr(cls, "_from_config") else cls(config)
            self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)

        def forward(self, tokens, **more):
            class Output:
                logits = self.lm_head(self.model(tokens, **more).last_hidden_state)
            return Output
    return Text, config, state


def hidden_of(cls, config, state, prefix="model."):
    """An encoder, whose last rows stand in place of logits, filled up with zeros."""
    class Rows(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.model = cls(config)

        def forward(self, tokens, **more):
            rows = self.model(input_ids=tokens).last_hidden_state

            class Output:
                logits = torch.nn.functional.pad(rows, (0, 264 - rows.shape[2]))
            return Output
    config.tie_word_embeddings = False
    return Rows, config, {prefix + k.removeprefix("model."): v for k, v in state.items()}


def see_text(module, text, config_class, permuted=False, sections=True, **more):
    """The text half of a model with positions of three parts, which are equal in text."""
    def case(f):
        values = common(f, **{k: v(f) if callable(v) else v for k, v in more.items()})
        values["rope_parameters"].pop("partial_rotary_factor", None)
        if sections:
            values["rope_parameters"]["mrope_section"] = f["rope.dimension_sections"][:3]
        kind = __import__(f"transformers.models.{module}", fromlist=["x"])
        return text_of(getattr(kind, text), getattr(kind, config_class)(**values), state_of(f, permuted=permuted))
    return case


def phi2(f):
    layer = {"attn_output": "self_attn.dense", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2", "attn_norm": "input_layernorm"}
    f = Split(f, False)
    config = common(f, hidden_act="gelu_new", layer_norm_eps=1e-5)
    state = state_of(f, layer)
    for end in ("weight", "bias"):
        state[f"model.final_layernorm.{end}"] = state.pop(f"model.norm.{end}")
    state["lm_head.bias"] = f.tensors["output.bias"]
    return transformers.PhiForCausalLM, transformers.PhiConfig(**config), state


def grovemoe(f):
    """Qwen3 with experts, and smaller ones that several of those share: as the maker's serving code has them. They read what
    the large experts read and take their weights."""
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts
    n_each, scale = f["experts_per_group"], f["expert_group_scale"]

    class Grove(transformers.Qwen3MoeForCausalLM):
        def __init__(self, config):
            super().__init__(config)
            small = transformers.Qwen3MoeConfig(**config.to_dict())
            small.num_experts //= n_each
            small.moe_intermediate_size = f["expert_chunk_feed_forward_length"]
            for layer in self.model.layers:
                layer.mlp.chunks = Qwen3MoeExperts(small)
                layer.mlp.forward = lambda x, mlp=layer.mlp: Grove.mix(mlp, x)

        @staticmethod
        def mix(mlp, x):
            rows = x.reshape(-1, x.shape[-1])
            _, weights, chosen = mlp.gate(rows)
            return (mlp.experts(rows, chosen, weights) + scale * mlp.chunks(rows, chosen // n_each, weights)).reshape(x.shape)

    def change(name, w, i):
        if name == "ffn_up_chexps.weight":
            return None
        if name == "ffn_gate_chexps.weight":
            w = np.concatenate([w, f.tensors[f"blk.{i}.ffn_up_chexps.weight"]], 1)
        return name, w

    config = common(f, norm_topk_prob=True)
    config["rope_parameters"].pop("partial_rotary_factor", None)
    layer = {"ffn_gate_chexps.weight": "mlp.chunks.gate_up_proj", "ffn_down_chexps.weight": "mlp.chunks.down_proj"}
    return Grove, transformers.Qwen3MoeConfig(**config), state_of(f, layer, change=change)


def minimax_01(f):
    linear = f["attention.recurrent_layers"]
    scale = f["residual_scale"]

    def change(name, w, i):
        return ("attn_out_proj.weight" if linear[i] and name == "attn_output.weight" else name), w

    config = common(f, layer_types=["linear_attention" if x else "full_attention" for x in linear],
                    full_attn_alpha_factor=scale, linear_attn_alpha_factor=scale, mlp_alpha_factor=scale, block_size=32)
    layer = {"attn_gate": "self_attn.output_gate", "attn_norm_2": "self_attn.norm", "attn_out_proj": "self_attn.out_proj"}
    return transformers.MiniMaxForCausalLM, transformers.MiniMaxConfig(**config), state_of(f, layer, change=change)


def gemma3n(f):
    """Shares of gates that are dropped are probabilities there; the stacks of projections are lists."""
    swa = f["attention.sliding_window_pattern"]
    layer = {"post_attention_norm": "post_attention_layernorm", "ffn_norm.weight": "pre_feedforward_layernorm.weight",
             "post_ffw_norm": "post_feedforward_layernorm", "inp_gate": "per_layer_input_gate", "proj": "per_layer_projection",
             "post_norm": "post_per_layer_input_norm", "altup_router": "altup.modality_router",
             "altup_router_norm": "altup.router_norm", "altup_predict_coef": "altup.prediction_coefs",
             "altup_correct_coef": "altup.correction_coefs", "altup_correct_scale.weight": "altup.correct_output_scale",
             "laurel_l": "laurel.linear_left", "laurel_r": "laurel.linear_right", "laurel_post_norm": "laurel.post_laurel_norm"}
    normal = torch.distributions.normal.Normal(0, 1)
    scale = torch.tensor(f["activation_sparsity_scale"], dtype=torch.float64)
    config = common(f, sliding_window=f["attention.sliding_window"], layer_types=windows(f, lambda i: swa[i]),
                    final_logit_softcapping=f["final_logit_softcapping"], vocab_size_per_layer_input=264,
                    hidden_size_per_layer_input=f["embedding_length_per_layer_input"],
                    num_kv_shared_layers=f["attention.shared_kv_layers"], altup_num_inputs=f["altup.num_inputs"],
                    laurel_rank=f.tensors["blk.0.laurel_l.weight"].shape[0],
                    activation_sparsity_pattern=normal.cdf(scale).tolist())
    config["rope_parameters"] = {
        "sliding_attention": {"rope_type": "default", "rope_theta": f["rope.freq_base_swa"]},
        "full_attention": {"rope_type": "default", "rope_theta": f["rope.freq_base"]}}
    state = state_of(f, layer)
    for name, to in (("per_layer_token_embd", "embed_tokens_per_layer"), ("per_layer_model_proj", "per_layer_model_projection"),
                     ("per_layer_proj_norm", "per_layer_projection_norm")):
        state[f"model.{to}.weight"] = f.tensors[name + ".weight"]
    for name, to in (("altup_proj", "altup_projections"), ("altup_unembd_proj", "altup_unembed_projections")):
        for i, w in enumerate(f.tensors[name + ".weight"]):
            state[f"model.{to}.{i}.weight"] = w
    return transformers.Gemma3nForCausalLM, transformers.Gemma3nTextConfig(**config), state


def dense_first(f):
    n = f.get("leading_dense_block_count", 0)
    return ["dense"] * n + ["sparse"] * (f.n_layers - n)


def hy_v3(f):
    config = common(f, num_shared_experts=1, router_scaling_factor=f["expert_weights_scale"], mlp_layer_types=dense_first(f))
    config["rope_parameters"].pop("partial_rotary_factor")
    return (transformers.HYV3ForCausalLM, transformers.HYV3Config(**config),
            state_of(f, {"exp_probs_b": "mlp.e_score_correction_bias"}))


def exaone_moe(f):
    n_shared = f["expert_shared_feed_forward_length"] // f["expert_feed_forward_length"]
    config = common(f, num_shared_experts=n_shared, routed_scaling_factor=f["expert_weights_scale"], norm_topk_prob=True,
                    n_group=1, topk_group=1, first_k_dense_replace=1, mlp_layer_types=dense_first(f),
                    sliding_window=f["attention.sliding_window"], layer_types=windows(f, lambda i: i % 4 < 3))
    config["rope_parameters"].pop("partial_rotary_factor")
    return transformers.ExaoneMoeForCausalLM, transformers.ExaoneMoeConfig(**config), state_of(f)


def mellum(f):
    swa = f["attention.sliding_window_pattern"]
    config = common(f, norm_topk_prob=True, sliding_window=f["attention.sliding_window"],
                    layer_types=windows(f, lambda i: swa[i]))
    full = config["rope_parameters"]
    full.pop("partial_rotary_factor")
    config["rope_parameters"] = {"full_attention": full, "sliding_attention": {
        "rope_type": "default", "rope_theta": f.get("rope.freq_base_swa", f["rope.freq_base"])}}
    return transformers.MellumForCausalLM, transformers.MellumConfig(**config), state_of(f)


def mistral4(f):
    from check_arch_torch import deepseek2
    rope = f["rope.dimension_count"]

    def change(name, w, i):
        if name == "attn_v_b.weight":
            return None
        if name == "attn_k_b.weight":
            both = np.concatenate([w.swapaxes(1, 2), f.tensors[f"blk.{i}.attn_v_b.weight"]], 1)
            return "attn_kv_b.weight", both.reshape(-1, both.shape[2])
        return name, w

    config = common(f, q_lora_rank=f["attention.q_lora_rank"], kv_lora_rank=f["attention.kv_lora_rank"], qk_rope_head_dim=rope,
                    qk_nope_head_dim=f["attention.key_length_mla"] - rope, v_head_dim=f["attention.value_length_mla"],
                    head_dim=f["attention.key_length_mla"], num_key_value_heads=f["attention.head_count"],
                    first_k_dense_replace=f["leading_dense_block_count"], n_shared_experts=f["expert_shared_count"],
                    routed_scaling_factor=f.get("expert_weights_scale", 1.0), norm_topk_prob=True, n_group=1, topk_group=1)
    config["rope_parameters"].pop("partial_rotary_factor")
    config["rope_parameters"].update(mscale=1.0, mscale_all_dim=1.0, beta_fast=32.0, beta_slow=1.0,
                                     llama_4_scaling_beta=f["attention.temperature_scale"])
    config["max_position_embeddings"] = 256
    return transformers.Mistral4ForCausalLM, transformers.Mistral4Config(**config), state_of(f, change=change)


def minicpm(f):
    """Granite's scalars; what old files do not say is in the code of the models."""
    n, e = f.n_layers, f["embedding_length"]
    config = common(f, embedding_multiplier=f.get("embedding_scale", 12.0),
                    residual_multiplier=f.get("residual_scale", 1.4 / n ** 0.5), logits_scaling=f.get("logit_scale", e / 256),
                    attention_multiplier=f["attention.key_length"] ** -0.5)
    config["rope_parameters"].pop("partial_rotary_factor")
    return transformers.GraniteForCausalLM, transformers.GraniteConfig(**config), state_of(f, permuted=True)


def maincoder(f):
    """Norms of queries and keys after the rotation, as in Hunyuan."""
    def change(name, w, i):
        return name, unpermute(w, 1) if name in ("attn_q_norm.weight", "attn_k_norm.weight") else w
    config = common(f)
    config["rope_parameters"].pop("partial_rotary_factor")
    layer = {"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"}
    return (transformers.HunYuanDenseV1ForCausalLM, transformers.HunYuanDenseV1Config(**config),
            state_of(f, layer, permuted=True, change=change))


def codeshell(f):
    f = Split(f, False)
    f.tensors["token_embd.weight"] = f.tensors.pop("output.weight")
    config = common(f, norm_epsilon=1e-5, use_bias=True, hidden_act="gelu_pytorch_tanh")
    layer = {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj", "attn_norm": "input_layernorm",
             "ffn_norm": "post_attention_layernorm"}
    config["rope_parameters"].pop("partial_rotary_factor")
    return transformers.Starcoder2ForCausalLM, transformers.Starcoder2Config(**config), state_of(f, layer)


def bailingmoe2(f):
    """GLM-4.5's layers, but for the width of the shared expert, which the file gives."""
    f = Split(f)
    config = common(f, use_qk_norm=True, first_k_dense_replace=1, n_shared_experts=2, norm_topk_prob=True,
                    routed_scaling_factor=f["expert_weights_scale"], n_group=f["expert_group_count"],
                    topk_group=f["expert_group_used_count"])
    moe = transformers.models.glm4_moe.modeling_glm4_moe

    class Wider(moe.Glm4MoeMoE):
        def __init__(self, config):
            super().__init__(config)
            self.shared_experts = moe.Glm4MoeMLP(
                config, intermediate_size=f["expert_shared_feed_forward_length"] * f["expert_shared_count"])
    moe.Glm4MoeMoE = Wider
    return (transformers.Glm4MoeForCausalLM, transformers.Glm4MoeConfig(**config),
            state_of(f, {"layer_output_norm": "post_norm"}))


def jina_bert_v3(f):
    f = Split(f, False)
    layer = {"attn_output_norm": "post_attention_layernorm", "layer_output_norm": "post_mlp_layernorm", "ffn_up": "mlp.fc1",
             "ffn_down": "mlp.fc2"}
    config = common(f, layer_norm_eps=1e-5, type_vocab_size=1, hidden_act="gelu_pytorch_tanh")
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": f["rope.freq_base"]}
    state = state_of(f, layer)
    state.pop("model.embed_tokens.weight")
    for name, to in (("token_embd.weight", "word_embeddings.weight"), ("token_types.weight", "token_type_embeddings.weight"),
                     ("token_embd_norm.weight", "LayerNorm.weight"), ("token_embd_norm.bias", "LayerNorm.bias")):
        w = f.tensors[name]
        state["model.embeddings." + to] = w.reshape(1, -1) if name.startswith("token_types") else w
    module = transformers.models.jina_embeddings_v3.modeling_jina_embeddings_v3
    class Bare(module.JinaEmbeddingsV3Model):
        def __init__(self, config):
            super().__init__(config, add_pooling_layer=False)
    return hidden_of(Bare, transformers.JinaEmbeddingsV3Config(**config), state)


def two_sided(permuted=False):
    """Llama's layers without a mask, as EuroBERT has them."""
    def case(f):
        f = Split(f)
        if "enc.output_norm.weight" in f.tensors:
            f.tensors["output_norm.weight"] = f.tensors.pop("enc.output_norm.weight")
        config = common(f, is_causal=False)
        config["rope_parameters"].pop("partial_rotary_factor")
        return hidden_of(transformers.EuroBertModel, transformers.EuroBertConfig(**config), state_of(f, permuted=permuted))
    return case


T5_PART = {"attn_norm": "0.layer_norm", "attn_rel_b": "0.SelfAttention.relative_attention_bias",
           "attn_q": "0.SelfAttention.q", "attn_k": "0.SelfAttention.k", "attn_v": "0.SelfAttention.v",
           "attn_o": "0.SelfAttention.o", "cross_attn_norm": "1.layer_norm", "cross_attn_q": "1.EncDecAttention.q",
           "cross_attn_k": "1.EncDecAttention.k", "cross_attn_v": "1.EncDecAttention.v", "cross_attn_o": "1.EncDecAttention.o"}


def t5_parts(f):
    """Configuration and state of a T5; UMT5 is one whose layers all have a table of distances."""
    umt5 = f.n_layers > 1 and "enc.blk.1.attn_rel_b.weight" in f.tensors
    gated, state = "enc.blk.0.ffn_gate.weight" in f.tensors, {}
    for name, w in f.tensors.items():
        part = name.split(".")
        if name == "token_embd.weight":
            state["shared.weight"] = w
        elif name == "output.weight":
            state["lm_head.weight"] = w
        elif part[1] == "output_norm":
            state[{"enc": "encoder", "dec": "decoder"}[part[0]] + ".final_layer_norm.weight"] = w
        else:
            last = 1 if part[0] == "enc" else 2
            ffn = {"ffn_norm": f"{last}.layer_norm", "ffn_gate": f"{last}.DenseReluDense.wi_0",
                   "ffn_up": f"{last}.DenseReluDense." + ("wi_1" if gated else "wi"), "ffn_down": f"{last}.DenseReluDense.wo"}
            state[f"{'encoder' if part[0] == 'enc' else 'decoder'}.block.{part[2]}.layer.{(T5_PART | ffn)[part[3]]}.weight"] = w
    for half in ("encoder", "decoder"):
        state[f"{half}.embed_tokens.weight"] = state["shared.weight"]
    config = dict(vocab_size=264, d_model=f["embedding_length"], d_kv=f["attention.key_length"], d_ff=f["feed_forward_length"],
                  num_layers=f["block_count"], num_decoder_layers=f.get("decoder_block_count", f["block_count"]),
                  num_heads=f["attention.head_count"],
                  relative_attention_num_buckets=f["attention.relative_buckets_count"], dropout_rate=0.0,
                  layer_norm_epsilon=f["attention.layer_norm_rms_epsilon"],
                  tie_word_embeddings="output.weight" not in f.tensors,
                  feed_forward_proj="gated-gelu" if gated else "relu", pad_token_id=0, decoder_start_token_id=0)
    return umt5, config, state


def t5_encoder(f):
    umt5, config, state = t5_parts(f)
    make = transformers.UMT5Config if umt5 else transformers.T5Config
    state = {k: v for k, v in state.items() if not k.startswith("decoder.")}
    return hidden_of(transformers.UMT5EncoderModel if umt5 else transformers.T5EncoderModel, make(**config), state)


T5_SOURCE = 40  # of a text's tokens; the others are what is written about them


def t5(f):
    """The encoder's rows of the source, filled up with zeros, then the decoder's logits."""
    umt5, config, state = t5_parts(f)
    cls = transformers.UMT5ForConditionalGeneration if umt5 else transformers.T5ForConditionalGeneration

    class Both(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.model = cls(config)

        def forward(self, tokens, **more):
            source, text = tokens[:, :T5_SOURCE], tokens[:, T5_SOURCE:]
            rows = self.model.encoder(input_ids=source).last_hidden_state
            logits = self.model(encoder_outputs=(rows,), decoder_input_ids=text).logits

            class Output:
                pass
            Output.logits = torch.cat([torch.nn.functional.pad(rows, (0, 264 - rows.shape[2])), logits], 1)
            return Output
    if "lm_head.weight" not in state:
        state["lm_head.weight"] = state["shared.weight"]
    config = (transformers.UMT5Config if umt5 else transformers.T5Config)(**config)
    config.tie_word_embeddings = False  # what follows from it is another value by now
    return Both, config, {"model." + k: v for k, v in state.items()}


def modern_bert(f):
    layer = {"attn_norm": "attn_norm", "attn_norm.weight": "attn_norm.weight", "ffn_norm": "mlp_norm",
             "ffn_norm.weight": "mlp_norm.weight", "attn_qkv": "attn.Wqkv", "attn_output": "attn.Wo", "ffn_up": "mlp.Wi",
             "ffn_down": "mlp.Wo"}
    swa = f.get("attention.sliding_window_pattern", [i % 3 > 0 for i in range(f.n_layers)])
    config = common(f, hidden_activation=f.get("hidden_activation", "gelu_pytorch_tanh"), norm_eps=1e-5,
                    local_attention=f["attention.sliding_window"] // 2 * 2,
                    layer_types=windows(f, lambda i: swa[i]))
    for key in ("rms_norm_eps", "num_key_value_heads", "head_dim"):
        config.pop(key)
    config["rope_parameters"] = {
        "full_attention": {"rope_type": "default", "rope_theta": f["rope.freq_base"]},
        "sliding_attention": {"rope_type": "default", "rope_theta": f.get("rope.freq_base_swa", f["rope.freq_base"])}}
    state = state_of(f, layer)
    state["model.embeddings.tok_embeddings.weight"] = state.pop("model.embed_tokens.weight")
    state["model.final_norm.weight"] = state.pop("model.norm.weight")
    state["model.embeddings.norm.weight"] = f.tensors["token_embd_norm.weight"]
    return hidden_of(transformers.ModernBertModel, transformers.ModernBertConfig(**config), state)


def gemma_embedding(f):
    from check_arch_torch import GEMMA
    plus_one = ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm", "attn_q_norm", "attn_k_norm", "output_norm")
    config = common(f, sliding_window=f["attention.sliding_window"], layer_types=windows(f, lambda i: i % 6 < 5),
                    query_pre_attn_scalar=f["attention.key_length"], use_bidirectional_attention=True)
    config["rope_parameters"] = {
        "full_attention": {"rope_type": "default", "rope_theta": f["rope.freq_base"]},
        "sliding_attention": {"rope_type": "default", "rope_theta": f["rope.freq_base_swa"]}}
    return hidden_of(transformers.Gemma3TextModel, transformers.Gemma3TextConfig(**config),
                     state_of(f, GEMMA, plus_one=plus_one))


GPT2 = {"attn_norm": "ln_1", "attn_norm.weight": "ln_1.weight", "ffn_norm": "ln_2", "ffn_norm.weight": "ln_2.weight",
        "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}


def gpt2(f, big_code=False):
    """GPT-2 keeps its matrices the other way round."""
    def change(name, w, i):
        return name, w.T if w.ndim == 2 and not big_code else w
    config = dict(vocab_size=264, n_positions=256, n_embd=f["embedding_length"], n_layer=f.n_layers,
                  n_head=f["attention.head_count"], n_inner=f["feed_forward_length"], layer_norm_epsilon=1e-5,
                  tie_word_embeddings=False, bos_token_id=None, eos_token_id=None)
    state = {k.replace("model.layers.", "transformer.h."): w for k, w in state_of(f, GPT2, change=change).items()}
    state["transformer.wte.weight"] = state.pop("model.embed_tokens.weight")
    state["transformer.wpe.weight"] = f.tensors["position_embd.weight"]
    for end in ("weight", "bias"):
        state[f"transformer.ln_f.{end}"] = state.pop(f"model.norm.{end}")
    state.setdefault("lm_head.weight", state["transformer.wte.weight"])
    if big_code:
        return (transformers.GPTBigCodeForCausalLM,
                transformers.GPTBigCodeConfig(**config, multi_query=True, activation_function="gelu_pytorch_tanh"), state)
    return transformers.GPT2LMHeadModel, transformers.GPT2Config(**config, activation_function="gelu_new"), state


def bloom(f):
    """Queries, keys and values stand head by head."""
    f = Split(f, False)
    layer = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_output": "self_attention.dense",
             "ffn_up": "mlp.dense_h_to_4h", "ffn_down": "mlp.dense_4h_to_h", "attn_q": "self_attention.query_key_value"}

    def change(name, w, i):
        if name.startswith(("attn_k.", "attn_v.")):
            return None
        return name, by_head(f, name, name.split(".")[1], i) if name.startswith("attn_q.") else w
    config = dict(vocab_size=264, hidden_size=f["embedding_length"], n_layer=f.n_layers, n_head=f["attention.head_count"],
                  layer_norm_epsilon=1e-5, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None, pad_token_id=None)
    state = {k.replace("model.layers.", "transformer.h."): w for k, w in state_of(f, layer, change=change).items()}
    state["transformer.word_embeddings.weight"] = state.pop("model.embed_tokens.weight")
    for end in ("weight", "bias"):
        state[f"transformer.ln_f.{end}"] = state.pop(f"model.norm.{end}")
        state[f"transformer.word_embeddings_layernorm.{end}"] = f.tensors[f"token_embd_norm.{end}"]
    kind = transformers.models.bloom.modeling_bloom

    class Narrow(kind.BloomForCausalLM):  # its network is always four times as wide as the stream
        def __init__(self, config):
            super().__init__(config)
            for block in self.transformer.h:
                e, ff = config.hidden_size, f["feed_forward_length"]
                block.mlp.dense_h_to_4h, block.mlp.dense_4h_to_h = torch.nn.Linear(e, ff), torch.nn.Linear(ff, e)
    Narrow.__name__ = "BloomForCausalLM"
    return Narrow, transformers.BloomConfig(**config), state


def apertus(f):
    config = common(f)
    config["rope_parameters"].pop("partial_rotary_factor")
    state = state_of(f, {"attn_norm": "attention_layernorm", "attn_norm.weight": "attention_layernorm.weight",
                         "ffn_norm.weight": "feedforward_layernorm.weight"})
    for i in range(f.n_layers):
        for key in ("alpha_p", "alpha_n"):
            state[f"model.layers.{i}.mlp.act_fn.{key}"] = np.array([f[f"xielu.{key}"][i]], np.float32)
        for key in ("beta", "eps"):
            state[f"model.layers.{i}.mlp.act_fn.{key}"] = np.array(f[f"xielu.{key}"][i], np.float32)
    return transformers.ApertusForCausalLM, transformers.ApertusConfig(**config), state


def chameleon(f):
    """The layers that read text; norms of queries and keys turned as their rows are."""
    kind = transformers.models.chameleon.modeling_chameleon
    swin = f.get("swin_norm", False)
    config = common(f, swin_norm=swin)
    config["rope_parameters"].pop("partial_rotary_factor")
    config.pop("head_dim")

    def change(name, w, i):
        if name.startswith(("attn_q_norm", "attn_k_norm")):
            return name, np.stack([unpermute(row, 1) for row in w])
        return name, w

    class Text(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            layer = kind.ChameleonSwinDecoderLayer if swin else kind.ChameleonDecoderLayer
            self.model = torch.nn.Module()
            self.model.embed_tokens = torch.nn.Embedding(config.vocab_size, config.hidden_size)
            self.model.layers = torch.nn.ModuleList([layer(config, i) for i in range(config.num_hidden_layers)])
            self.model.norm = kind.ChameleonRMSNorm(config.hidden_size, config.rms_norm_eps)
            self.model.rotary_emb = kind.ChameleonRotaryEmbedding(config)
            self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)

        def forward(self, tokens, **more):
            x = self.model.embed_tokens(tokens)
            positions = torch.arange(tokens.shape[1])[None]
            mask = torch.full((tokens.shape[1],) * 2, -torch.inf).triu(1)[None, None]
            rotation = self.model.rotary_emb(x, positions)
            for layer in self.model.layers:
                x = layer(x, attention_mask=mask, position_ids=positions, position_embeddings=rotation)
                x = x[0] if isinstance(x, tuple) else x

            class Output:
                logits = self.lm_head(self.model.norm(x))
            return Output
    return Text, transformers.ChameleonConfig(**config), state_of(f, permuted=True, change=change)


def deepseek_ocr(f):
    kind = transformers.models.deepseek_ocr2
    config = common(f, n_shared_experts=2, first_k_dense_replace=1, mlp_layer_types=dense_first(f),
                    routed_scaling_factor=f["expert_weights_scale"], n_group=1, topk_group=1, topk_method="greedy")
    config["rope_parameters"].pop("partial_rotary_factor")
    return text_of(kind.modeling_deepseek_ocr2.DeepseekOcr2TextModel,
                   kind.configuration_deepseek_ocr2.DeepseekOcr2TextConfig(**config), state_of(f))


def afmoe(f):
    layer = {"post_attention_norm": "post_attention_layernorm", "ffn_norm.weight": "pre_mlp_layernorm.weight",
             "post_ffw_norm": "post_mlp_layernorm", "attn_gate": "self_attn.gate_proj", "ffn_gate_inp": "mlp.router.gate",
             "exp_probs_b.bias": "mlp.expert_bias"}
    config = common(f, num_dense_layers=1, num_shared_experts=1, route_scale=f["expert_weights_scale"], mup_enabled=True,
                    sliding_window=f["attention.sliding_window"], layer_types=windows(f, lambda i: i % 4 < 3))
    config["rope_parameters"].pop("partial_rotary_factor")
    return transformers.AfmoeForCausalLM, transformers.AfmoeConfig(**config), state_of(f, layer)


def muse_glimmer(f):
    """The published model has a factor where files have a norm's weights."""
    from check_arch_torch import GEMMA
    kind = transformers.models.muse_glimmer.modeling_muse_glimmer
    plus_one = ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm")
    config = common(f, sliding_window=f["attention.sliding_window"], layer_types=windows(f, lambda i: i % 4 < 3),
                    final_logit_softcapping=f["final_logit_softcapping"], output_multiplier=f["logit_scale"],
                    qk_scale_factor=1.0,
                    layer_rope_theta=[f["rope.freq_base"] if i % 4 < 3 else 0 for i in range(f.n_layers)])
    config["rope_parameters"].pop("partial_rotary_factor")
    state = state_of(f, {**GEMMA, "attn_gate": "self_attn.gate_proj"}, True, plus_one=plus_one)
    if "output_norm.weight" in f.tensors:
        state["model.norm.weight"] = f.tensors["output_norm.weight"]
    norms = {k: state.pop(k) for k in list(state) if "_norm.weight" in k and "self_attn" in k}

    class Text(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.model = kind.MuseGlimmerTextModel(config)
            self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
            for i, layer in enumerate(self.model.layers):
                layer.self_attn.qk_norm.forward = self.norm_of(i, layer.self_attn.qk_norm.eps)

        def norm_of(self, i, eps):
            pair = [torch.from_numpy(unpermute(norms[f"model.layers.{i}.self_attn.{c}_norm.weight"], 1)) for c in "qk"]
            turn = [0]

            def forward(x):
                turn[0] += 1
                return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * pair[(turn[0] + 1) % 2]
            return forward

        def forward(self, tokens, **more):
            logits = self.lm_head(self.model(tokens, **more).last_hidden_state) * f["logit_scale"]
            cap = f["final_logit_softcapping"]

            class Output:
                pass
            Output.logits = torch.tanh(logits / cap) * cap
            return Output
    return Text, transformers.models.muse_glimmer.MuseGlimmerTextConfig(**config), state


def cohere2moe(f):
    rms = "attention.layer_norm_rms_epsilon" in f.keys
    config = common(f, logit_scale=f["logit_scale"], layer_norm_eps=1e-5, sliding_window=f["attention.sliding_window"],
                    layer_types=windows(f, lambda i: i % 4 > 0), mlp_layer_types=dense_first(f),
                    num_shared_experts=f.get("expert_shared_count", 0), expert_selection_fn="sigmoid",
                    norm_topk_prob=f.get("expert_weights_norm", False), prefix_dense_intermediate_size=f["feed_forward_length"])
    config["intermediate_size"] = f["expert_feed_forward_length"]
    config["rms_norm_eps"] = 1e-5 if rms else None
    config["rope_parameters"].pop("partial_rotary_factor")
    return transformers.Cohere2MoeForCausalLM, transformers.Cohere2MoeConfig(**config), state_of(f)


def granite_swa(f):
    from check_arch_torch import GRANITE_MOE, granite_config
    swa = f["attention.sliding_window_pattern"]
    rotates = f.get("attention.rope_pattern", [True] * f.n_layers)
    config = granite_config(f, sliding_window=f["attention.sliding_window"], layer_types=windows(f, lambda i: swa[i]),
                            layer_rope_theta=[f["rope.freq_base"] if r else 0 for r in rotates])
    config["rope_parameters"].pop("partial_rotary_factor")
    layer = {"attn_sinks.weight": "self_attn.sinks"}
    if "expert_count" not in f.keys:
        return transformers.GraniteSWAForCausalLM, transformers.GraniteSWAConfig(**config), state_of(f, layer, True)
    layer |= {**GRANITE_MOE, "ffn_up_shexp": "shared_mlp.input_linear"}
    return transformers.GraniteMoeSWAForCausalLM, transformers.GraniteMoeSWAConfig(**config), state_of(f, layer, True)


def mimo2(f):
    f = Split(f)
    swa, kv = f["attention.sliding_window_pattern"], f.per_layer("attention.head_count_kv")
    sparse = [f"blk.{i}.ffn_gate_inp.weight" in f.tensors for i in range(f.n_layers)]
    config = common(f, v_head_dim=f["attention.value_length"], sliding_window=f["attention.sliding_window"],
                    layer_types=windows(f, lambda i: swa[i]), mlp_layer_types=["sparse" if s else "dense" for s in sparse],
                    attention_value_scale=f.get("attention.value_scale"), norm_topk_prob=True, n_group=1, topk_group=1,
                    num_key_value_heads=min(kv))
    part = config["rope_parameters"].pop("partial_rotary_factor")
    config["rope_parameters"] = {
        "full_attention": {"rope_type": "default", "rope_theta": f["rope.freq_base"], "partial_rotary_factor": part},
        "sliding_attention": {"rope_type": "default", "partial_rotary_factor": part,
                              "rope_theta": f.get("rope.freq_base_swa", f["rope.freq_base"])}}
    return (transformers.MiMoV2FlashForCausalLM, transformers.MiMoV2FlashConfig(**config),
            state_of(f, {"attn_sinks.weight": "self_attn.sinks"}))


def hunyuan_vl(f):
    """The dense Hunyuan with its base raised beforehand."""
    d = f["attention.key_length"]
    config = common(f)
    config["rope_parameters"].pop("partial_rotary_factor")
    config["rope_parameters"]["rope_theta"] = f["rope.freq_base"] * f["rope.scaling.alpha"] ** (d / (d - 2))
    layer = {"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"}
    return transformers.HunYuanDenseV1ForCausalLM, transformers.HunYuanDenseV1Config(**config), state_of(f, layer)


def bitnet(f):
    layer = {"attn_sub_norm": "self_attn.attn_sub_norm", "ffn_sub_norm": "mlp.ffn_sub_norm"}
    config = common(f, hidden_act=f.get("hidden_activation", "silu"))
    config["rope_parameters"].pop("partial_rotary_factor")
    model = transformers.models.bitnet.modeling_bitnet

    class Wider(transformers.BitNetForCausalLM):  # heads that together are wider than the stream
        def __init__(self, config):
            super().__init__(config)
            for layer in self.model.layers:
                layer.self_attn.attn_sub_norm = model.BitNetRMSNorm(f.tensors["blk.0.attn_sub_norm.weight"].shape[0], 1e-5)
    return Wider, transformers.BitNetConfig(**config), state_of(f, layer)


def dbrx(f):
    f = Split(f, False)
    n, ff, e = f["expert_count"], f["feed_forward_length"], f["embedding_length"]
    config = transformers.DbrxConfig(
        d_model=e, n_heads=f["attention.head_count"], n_layers=f.n_layers, max_seq_len=256, vocab_size=264,
        attn_config=dict(kv_n_heads=f["attention.head_count_kv"], clip_qkv=f["attention.clamp_kqv"],
                         rope_theta=f["rope.freq_base"]),
        ffn_config=dict(ffn_hidden_size=ff, moe_num_experts=n, moe_top_k=f["expert_used_count"],
                        moe_normalize_expert_weights=1.0), tie_word_embeddings=False)
    state = {"transformer.wte.weight": f.tensors["token_embd.weight"], "lm_head.weight": f.tensors["output.weight"],
             "transformer.norm_f.weight": f.tensors["output_norm.weight"]}
    for i in range(f.n_layers):
        def part(name):
            return f.tensors[f"blk.{i}.{name}.weight"]
        to = f"transformer.blocks.{i}."
        state |= {to + "norm_attn_norm.norm_1.weight": part("attn_norm"),
                  to + "norm_attn_norm.norm_2.weight": part("attn_output_norm"),
                  to + "norm_attn_norm.attn.Wqkv.weight": np.concatenate([part("attn_q"), part("attn_k"), part("attn_v")]),
                  to + "norm_attn_norm.attn.out_proj.weight": part("attn_output"),
                  to + "ffn.router.layer.weight": part("ffn_gate_inp"),
                  to + "ffn.experts.mlp.w1": part("ffn_gate_exps").reshape(-1, e),
                  to + "ffn.experts.mlp.v1": part("ffn_up_exps").reshape(-1, e),
                  to + "ffn.experts.mlp.w2": part("ffn_down_exps").swapaxes(1, 2).reshape(-1, e)}
    return transformers.DbrxForCausalLM, config, state


def stablelm(f):
    parallel = "blk.0.ffn_norm.weight" not in f.tensors
    layer = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
    config = common(f, layer_norm_eps=1e-5, use_parallel_residual=parallel, qk_layernorm=parallel,
                    use_qkv_bias="blk.0.attn_q.bias" in f.tensors)
    state = {}
    for name, w in state_of(f, layer).items():
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            for h, row in enumerate(w):
                state[name.replace("_norm.weight", f"_layernorm.norms.{h}.weight")] = row
        else:
            state[name] = w
    return transformers.StableLmForCausalLM, transformers.StableLmConfig(**config), state


def by_head(f, name, end, i):
    """Rows of queries, keys and values as GPT-NeoX has them: head by head."""
    n = f["attention.head_count"]
    parts = [f.tensors[f"blk.{i}.{c}.{end}"] for c in ("attn_q", "attn_k", "attn_v")]
    return np.stack([p.reshape(n, -1, *p.shape[1:]) for p in parts], 1).reshape(-1, *parts[0].shape[1:])


def gptneox(f):
    f = Split(f, False)
    config = common(f, layer_norm_eps=1e-5, hidden_act="gelu_pytorch_tanh", use_parallel_residual=f["use_parallel_residual"])
    layer = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_output": "attention.dense",
             "ffn_up": "mlp.dense_h_to_4h", "ffn_down": "mlp.dense_4h_to_h", "attn_q": "attention.query_key_value"}

    def change(name, w, i):
        if name.startswith(("attn_k.", "attn_v.")):
            return None
        return name, by_head(f, name, name.split(".")[1], i) if name.startswith("attn_q.") else w
    state = {"gpt_neox." + k.removeprefix("model."): w for k, w in state_of(f, layer, change=change).items()}
    state["gpt_neox.embed_in.weight"] = state.pop("gpt_neox.embed_tokens.weight")
    for end in ("weight", "bias"):
        state[f"gpt_neox.final_layer_norm.{end}"] = state.pop(f"gpt_neox.norm.{end}")
    state["lm_head.weight"] = state.pop("gpt_neox.lm_head.weight")
    return transformers.GPTNeoXForCausalLM, transformers.GPTNeoXConfig(**config), state


def falcon(f):
    """Of the new decoder queries, keys and values stand group by group."""
    new, n_kv, d = "blk.0.attn_norm_2.weight" in f.tensors, f["attention.head_count_kv"], f["attention.key_length"]
    config = common(f, layer_norm_epsilon=1e-5, activation="gelu_pytorch_tanh", new_decoder_architecture=new,
                    multi_query=not new,
                    num_kv_heads=n_kv, num_ln_in_parallel_attn=2 if new else 1, parallel_attn=True, bias=False, alibi=False,
                    ffn_hidden_size=f["feed_forward_length"])
    config.pop("head_dim")
    norm = "ln_mlp" if new else "input_layernorm"
    layer = {"attn_norm": norm, "attn_norm.weight": norm + ".weight", "attn_norm_2": "ln_attn",
             "attn_output": "self_attention.dense", "ffn_up": "mlp.dense_h_to_4h", "ffn_down": "mlp.dense_4h_to_h",
             "attn_qkv": "self_attention.query_key_value"}

    def change(name, w, i):
        if name != "attn_qkv.weight" or not new:
            return name, w
        rows = f["attention.head_count"] * d
        q, k, v = np.split(w, [rows, rows + n_kv * d])
        return name, np.concatenate([p.reshape(n_kv, -1, w.shape[1]) for p in (q, k, v)], 1).reshape(-1, w.shape[1])
    state = {}
    for name, w in state_of(f, layer, change=change).items():
        to = name.replace("model.layers.", "transformer.h.").replace("model.norm.", "transformer.ln_f.")
        state[to.replace("model.embed_tokens", "transformer.word_embeddings")] = w
    return transformers.FalconForCausalLM, transformers.FalconConfig(**config), state


def mamba_parts(f, place):
    from check_arch_torch import MAMBA, mamba2
    return {k: f"{place}.{v}" for k, v in MAMBA.items()}, lambda name, w, i: (name, mamba2(name, w))


def mamba2_alone(f):
    layer, change = mamba_parts(f, "mixer")
    layer["attn_norm.weight"] = "norm.weight"
    config = transformers.Mamba2Config(
        vocab_size=264, hidden_size=f["embedding_length"], num_hidden_layers=f.n_layers, num_heads=f["ssm.time_step_rank"],
        head_dim=f["ssm.inner_size"] // f["ssm.time_step_rank"], state_size=f["ssm.state_size"], n_groups=f["ssm.group_count"],
        conv_kernel=f["ssm.conv_kernel"], expand=2, layer_norm_epsilon=1e-5, tie_word_embeddings=False, use_bias=False,
        use_conv_bias=True, rms_norm=True, bos_token_id=None, eos_token_id=None, pad_token_id=None)
    state = {}
    for name, w in state_of(f, layer, change=change).items():
        to = name.replace("model.layers.", "backbone.layers.").replace("model.norm.", "backbone.norm_f.")
        state[to.replace("model.embed_tokens", "backbone.embeddings")] = w
    return transformers.Mamba2ForCausalLM, config, state


MAMBA1 = {"ssm_in": "in_proj", "ssm_conv1d": "conv1d", "ssm_x": "x_proj", "ssm_dt": "dt_proj", "ssm_a": "A_log", "ssm_d": "D",
          "ssm_out": "out_proj", "ssm_dt_norm": "dt_layernorm", "ssm_b_norm": "b_layernorm", "ssm_c_norm": "c_layernorm"}


def mamba1(name, w, _):
    if name == "ssm_a":
        w = np.log(-w)
    return name, w[:, None] if name == "ssm_conv1d.weight" else w


def mamba_alone(f):
    layer = {k: f"mixer.{v}" for k, v in MAMBA1.items()} | {"attn_norm.weight": "norm.weight"}
    falcon = f.get("ssm.dt_b_c_rms", False)
    config = dict(
        vocab_size=264, hidden_size=f["embedding_length"], num_hidden_layers=f.n_layers, state_size=f["ssm.state_size"],
        conv_kernel=f["ssm.conv_kernel"], intermediate_size=f["ssm.inner_size"], expand=2, layer_norm_epsilon=1e-5,
        time_step_rank=f["ssm.time_step_rank"], tie_word_embeddings="output.weight" not in f.tensors, use_bias=False,
        use_conv_bias=True, bos_token_id=None, eos_token_id=None, pad_token_id=None, residual_in_fp32=False)
    state = {}
    for name, w in state_of(f, layer, change=mamba1).items():
        to = name.replace("model.layers.", "backbone.layers.").replace("model.norm.", "backbone.norm_f.")
        state[to.replace("model.embed_tokens", "backbone.embeddings")] = w
    if falcon:
        return transformers.FalconMambaForCausalLM, transformers.FalconMambaConfig(**config, mixer_rms_eps=1e-5), state
    return transformers.MambaForCausalLM, transformers.MambaConfig(**config), state


def jamba(f):
    kv, n_experts = f["attention.head_count_kv"], f.get("expert_count", 0)
    layer = {k: f"mamba.{v}" for k, v in MAMBA1.items()} | {
        "ffn_norm.weight": "pre_ff_layernorm.weight", **{f"ffn_{c}": f"feed_forward.{c}_proj" for c in ("gate", "up", "down")},
        "ffn_gate_inp": "feed_forward.router", "ffn_down_exps.weight": "feed_forward.experts.down_proj",
        "ffn_gate_up_exps.weight": "feed_forward.experts.gate_up_proj"}
    config = common(f, mamba_d_state=16, mamba_d_conv=4,
                    mamba_expand=2, mamba_dt_rank=f["ssm.time_step_rank"], mamba_conv_bias=True, mamba_proj_bias=False,
                    use_mamba_kernels=False, expert_layer_period=2, expert_layer_offset=1,
                    attn_layer_period=len(kv), attn_layer_offset=[i for i, n in enumerate(kv) if n][0],
                    num_experts=n_experts or 1, num_experts_per_tok=f.get("expert_used_count", 1))
    state = state_of(f, layer, change=mamba1)
    state["model.final_layernorm.weight"] = state.pop("model.norm.weight")
    return transformers.JambaForCausalLM, transformers.JambaConfig(**config), state


def kda(f):
    """Kimi-Linear; with projections of full rank Ling 3."""
    ling = f.arch == "bailingmoe3"
    place = {"attn_q": "q_proj", "attn_k": "k_proj", "attn_v": "v_proj", "ssm_conv1d": "conv1d", "ssm_beta": "b_proj",
             "ssm_dt.bias": "forget_gate.dt_bias", "ssm_a": "forget_gate.A_log", "ssm_norm": "o_norm", "attn_output": "o_proj",
             "attn_gate": "g_proj", "layer_output_norm": "post_norm",
             **({"ssm_f_a": "forget_gate.f_proj", "ssm_g_a": "g_proj"} if ling else
                {"ssm_f_a": "forget_gate.f_a_proj", "ssm_f_b": "forget_gate.f_b_proj", "ssm_g_a": "g_a_proj",
                 "ssm_g_b": "g_b_proj"})}
    layer = {k: v if v == "post_norm" else f"self_attn.{v}" for k, v in place.items()}
    kv, rope = f["attention.head_count_kv"][:f.n_layers], f["rope.dimension_count"]

    def change(name, w, i):
        part = name.removesuffix(".weight")
        if part in ("ssm_conv1d_k", "ssm_conv1d_v", "attn_v_b"):
            return None
        if part == "ssm_conv1d_q":
            return "ssm_conv1d.weight", np.concatenate([f.tensors[f"blk.{i}.ssm_conv1d_{c}.weight"] for c in "qkv"])
        if part == "attn_k_b":
            both = np.concatenate([w.swapaxes(1, 2), f.tensors[f"blk.{i}.attn_v_b.weight"]], 1)
            return "attn_kv_b.weight", both.reshape(-1, both.shape[2])
        if part == "ssm_a":
            w = np.log(np.abs(w)).reshape(-1)
            return part, w if ling else w.reshape(1, 1, -1, 1)
        return name, w
    state = state_of(f, layer, change=change)
    if "blk.0.attn_qkv.weight" in f.tensors:
        for name in [n for n in state if n.endswith("qkv_proj.weight")]:
            for c, w in zip("qkv", np.split(state.pop(name), 3)):
                state[name.replace("qkv_proj", f"{c}_proj")] = w
    config = common(f, q_lora_rank=f.get("attention.q_lora_rank"), kv_lora_rank=f["attention.kv_lora_rank"],
                    qk_rope_head_dim=rope, qk_nope_head_dim=f["attention.key_length_mla"] - rope,
                    v_head_dim=f["attention.value_length_mla"], num_key_value_heads=f["attention.head_count"],
                    n_shared_experts=f["expert_shared_count"], routed_scaling_factor=f["expert_weights_scale"],
                    norm_topk_prob=True, n_group=f.get("expert_group_count", 1), topk_group=f.get("expert_group_used_count", 1),
                    layer_types=["full_attention" if n else "linear_attention" for n in kv],
                    mlp_layer_types=["dense" if i < f["leading_dense_block_count"] else "sparse" for i in range(f.n_layers)])
    for name in ("head_dim", "num_experts", "n_routed_experts"):
        config.pop(name, None)
    config["rope_parameters"].pop("partial_rotary_factor", None)
    if ling:
        return transformers.BailingHybridForCausalLM, transformers.BailingHybridConfig(
            **config, head_dim=f["kda.head_dim"], short_conv_kernel_size=f["ssm.conv_kernel"],
            kda_lower_bound=f["kda.gate_lower_bound"], num_mtp_layers=f.get("nextn_predict_layers", 0)), state
    config.pop("rope_parameters")
    return transformers.KimiLinearForCausalLM, transformers.KimiLinearConfig(
        **config, linear_head_dim=f["kda.head_dim"], linear_num_heads=f["attention.head_count"],
        linear_conv_kernel_dim=f["ssm.conv_kernel"]), state


def sparse_mla(f):
    """DeepSeek-V3.2; with its index's rotation in pairs and choices that layers share GLM-5."""
    from check_arch_torch import deepseek2
    _, config, state = deepseek2(f)
    types = f.get("attention.indexer.types") or [1] * f.n_layers
    more = dict(index_n_heads=f["attention.indexer.head_count"], index_head_dim=f["attention.indexer.key_length"],
                index_topk=f["attention.indexer.top_k"])
    values = {k: v for k, v in config.to_dict().items() if k not in ("model_type", "architectures", "transformers_version")}
    if f.arch == "glm-dsa":
        return transformers.GlmMoeDsaForCausalLM, transformers.GlmMoeDsaConfig(
            **values, **more, indexer_types=["full" if t else "shared" for t in types],
            mlp_layer_types=dense_first(f)), state
    return transformers.DeepseekV32ForCausalLM, transformers.DeepseekV32Config(**values, **more), state


V4_LAYER = {
    "attn_q_a_norm": "self_attn.q_a_norm", "attn_kv": "self_attn.kv_proj", "attn_kv_a_norm": "self_attn.kv_norm",
    "attn_sinks": "self_attn.sinks", "attn_output_a": "self_attn.o_a_proj", "attn_output_b": "self_attn.o_b_proj",
    "ffn_gate_tid2eid": "mlp.gate.tid2eid", "indexer.attn_q_b": "self_attn.compressor.indexer.q_b_proj",
    "indexer.proj": "self_attn.compressor.indexer.scorer.weights_proj"}


def deepseek4(f):
    """DeepSeek V4, each of whose layers has limits of its own here."""
    kinds = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
    compressors = {"attn_compressor": "self_attn.compressor", "indexer_compressor": "self_attn.compressor.indexer"}
    parts = {"kv": "kv_proj.weight", "gate": "gate_proj.weight", "ape": "position_bias", "norm": "kv_norm.weight"}
    layer = {name + ".weight": to + ("" if to.endswith(("sinks", "tid2eid")) else ".weight") for name, to in V4_LAYER.items()}
    for name, to in compressors.items():
        layer.update({f"{name}_{part}.weight": f"{to}.{end}" for part, end in parts.items()})
    for half in ("attn", "ffn"):
        layer.update({f"hc_{half}_{part}.weight": f"{half}_hc.{part}" for part in ("fn", "base", "scale")})
    whole = {name: f.tensors.pop(name) for name in list(f.tensors) if name.startswith("output_hc_")}
    state = state_of(f, layer, change=lambda name, w, i: (name, w.reshape(-1, w.shape[-1]) if "output_a" in name else w))
    state.update({"model.hc_head.hc_" + name[len("output_hc_"):-len(".weight")]: w for name, w in whole.items()})
    rope = dict(rope_type="default", rope_theta=f["rope.freq_base"],
                partial_rotary_factor=f["rope.dimension_count"] / f["attention.key_length"])
    late = dict(rope, rope_type="yarn", rope_theta=f["attention.compress_rope_freq_base"], factor=f["rope.scaling.factor"],
                original_max_position_embeddings=f["rope.scaling.original_context_length"], attention_factor=1.0)
    n_hash = f["hash_layer_count"]
    config = transformers.DeepseekV4Config(**common(
        f, q_lora_rank=f["attention.q_lora_rank"], o_groups=f["attention.output_group_count"],
        o_lora_rank=f["attention.output_lora_rank"], sliding_window=f["attention.sliding_window"],
        index_n_heads=f["attention.indexer.head_count"], index_head_dim=f["attention.indexer.key_length"],
        index_topk=f["attention.indexer.top_k"], layer_types=[kinds[n] for n in f["attention.compress_ratios"]],
        mlp_layer_types=["hash_moe"] * n_hash + ["moe"] * (f.n_layers - n_hash), hc_mult=f["hyper_connection.count"],
        hc_sinkhorn_iters=f["hyper_connection.sinkhorn_iterations"], hc_eps=f["hyper_connection.epsilon"],
        routed_scaling_factor=f["expert_weights_scale"], partial_rotary_factor=rope["partial_rotary_factor"],
        intermediate_size=f["expert_feed_forward_length"]) | {"rope_parameters": {"main": rope, "compress": late}})

    class Limited(transformers.DeepseekV4ForCausalLM):
        def __init__(self, config):
            super().__init__(config)
            for own, limit, shared in zip(self.model.layers, f["swiglu_clamp_exp"], f["swiglu_clamp_shexp"]):
                own.mlp.experts.limit, own.mlp.shared_experts.limit = limit, shared
    return Limited, config, state


def glm5_next(f):
    """GLM-5.3-Flash. transformers forgets a choice that passes a layer without attention; llama.cpp and aerie keep it."""
    from transformers.models.glm5_next import modeling_glm5_next as kind
    own = {f"indexer_compressor_{c}.weight": f"self_attn.indexer.index_kpool_compress_{c}" for c in ("gate", "ape")}
    own |= {f"hc_{half}_{c}.weight": f"{half}_hc.{c}" for half in ("attn", "ffn") for c in ("fn", "base", "scale")}
    taken = {}
    for name in list(f.tensors):
        match = re.match(r"blk\.(\d+)\.(.*)", name)
        if match and match[2] in own:
            taken[f"model.layers.{match[1]}.{own[match[2]]}"] = f.tensors.pop(name)
    _, _, state = kda(f)
    state = taken | {name: w.reshape(-1) if name.endswith("A_log") else w for name, w in state.items()}
    kv, types = f["attention.head_count_kv"], f["attention.indexer.types"]
    config = kind.Glm5NextTextConfig(**{k: v for k, v in common(
        f, q_lora_rank=f["attention.q_lora_rank"], kv_lora_rank=f["attention.kv_lora_rank"], qk_rope_head_dim=0,
        qk_nope_head_dim=f["attention.key_length_mla"], v_head_dim=f["attention.value_length_mla"],
        num_key_value_heads=f["attention.head_count"], n_shared_experts=f["expert_shared_count"],
        routed_scaling_factor=f["expert_weights_scale"], norm_topk_prob=True, n_group=1, topk_group=1,
        layer_types=["indexed_attention" if n else "linear_attention" for n in kv], mlp_layer_types=dense_first(f),
        indexer_types=["full" if t else "shared" for t in types], index_n_heads=f["attention.indexer.head_count"],
        index_head_dim=f["attention.indexer.key_length"], index_topk=f["attention.indexer.top_k"],
        index_kpool=f["attention.indexer.kpool"], linear_head_dim=f["kda.head_dim"],
        linear_num_heads=f["attention.head_count"], linear_conv_kernel_dim=f["ssm.conv_kernel"],
        linear_lower_bound=f["kda.gate_lower_bound"], swiglu_limit=f["swiglu_clamp_exp"][0],
        hc_mult=f["hyper_connection.count"], hc_sinkhorn_iters=f["hyper_connection.sinkhorn_iterations"],
        hc_eps=f["hyper_connection.epsilon"]).items() if k not in ("head_dim", "num_experts", "rope_parameters")})

    class Keeping(kind.Glm5NextTextModel):
        def __init__(self, config):
            super().__init__(config)
            for layer in self.layers:
                if layer.block_type == "linear_attention":
                    layer.forward = self.keep(layer.forward)
                else:
                    layer.self_attn.next_skip_topk = True

        @staticmethod
        def keep(forward):
            return lambda x, prev_topk_indices=None, **more: (
                forward(x, prev_topk_indices=prev_topk_indices, **more)[0], prev_topk_indices)
    return text_of(Keeping, config, state)


def qwen4(f):
    """Qwen 4's text model, whose table of n-grams gets other sizes than its seed gives."""
    from check_arch_torch import qwen35
    from transformers.models.qwen4_exp import modeling_qwen4_exp as kind
    halves = {"hc_attn": "attn_hyper_connection", "hc_ffn": "mlp_hyper_connection"}
    parts = {"norm": "hc_norm.weight", "down": "input_mix_weight_down.weight", "up": "input_mix_weight_up.weight",
             "inject": "block_inject_weight.weight"}
    own = {f"{half}_{part}": f"{to}.{end}" for half, to in halves.items() for part, end in parts.items()}
    own |= {"ple_key": "ple.key_proj.weight", "ple_value": "ple.value_proj.weight", "ple_conv1d": "ple.conv1d.weight",
            **{f"ple_norm_{c}": f"ple.norm_{c}.weight" for c in ("key", "query", "conv")},
            "indexer.q_norm": "self_attn.indexer.q_layernorm.weight", "indexer.k_norm": "self_attn.indexer.k_layernorm.weight"}
    taken, layer = {}, f["ple.layers"][0]
    for name in list(f.tensors):
        match = re.match(r"blk\.(\d+)\.(.*)\.weight", name)
        if match and match[2] in own:
            w, to = f.tensors.pop(name), own[match[2]]
            if "norm" in to:
                w = w.reshape(-1) - 1
            taken[f"model.layers.{match[1]}.{to}"] = w[:, None, :] if "conv1d" in to else w
        elif match and match[2] == "indexer.q_proj":
            key = f.tensors.pop(name.replace("q_proj", "k_proj"))
            both = np.concatenate([f.tensors.pop(name), key])
            taken[f"model.layers.{match[1]}.self_attn.indexer.index_qk_proj.weight"] = both
    for part in ("norm", "down", "up"):
        w = f.tensors.pop(f"output_hc_{part}.weight")
        taken[f"model.hyper_connection_mixer.{parts[part]}"] = w.reshape(-1) - 1 if part == "norm" else w
    table = f.tensors.pop("per_layer_token_embd.weight")
    f.keys |= {"feed_forward_length": 0, "full_attention_interval": 4}
    _, config, state = qwen35(f, True)
    values = {k: v for k, v in config.to_dict().items() if k not in ("model_type", "architectures", "transformers_version",
                                                                     "layer_types", "full_attention_interval")}
    chooses = any(f["attention.compress_ratios"])
    values |= dict(layer_types=["linear_attention" if r else "indexed_attention" for r in f["attention.recurrent_layers"]],
                   hc_count=f["hyper_connection.count"], hc_lowrank=f["hyper_connection.low_rank"], ple_layer_ids=[layer + 1],
                   ple_embed_dim=f["embedding_length_per_layer_input"] * len(f["ple.head_offsets"]),
                   ple_conv_kernel_size=f["ple.conv_kernel"], ngram_size=f["ple.ngram_size"],
                   heads_per_ngram=f["ple.heads_per_ngram"], ngram_vocab_size_base=100, split_ngram_parts=1,
                   eos_token_id=f["ple.eos_token_id"], indexer_n_heads=f["attention.indexer.head_count"], indexer_kv_heads=1,
                   indexer_head_dim=f["attention.indexer.key_length"], indexer_budget=f["attention.indexer.top_k"],
                   indexer_compress_ratio=max(f["attention.compress_ratios"]), output_gate_type="sigmoid")

    class Hashing(kind.Qwen4ExpForCausalLM):
        def __init__(self, config):
            super().__init__(config)
            own = self.model.layers[layer].ple.ple_embedding
            own.layer_multipliers = torch.tensor(f["ple.layer_multipliers"])
            own.ngram_heads_vocab_sizes = torch.tensor(f["ple.head_vocab_sizes"])
            own.ngram_heads_offsets = torch.tensor(f["ple.head_offsets"])
            own.ngram_embedding = torch.nn.Embedding(*table.shape)
            for i, ratio in enumerate(f["attention.compress_ratios"]):
                if not ratio and not f["attention.recurrent_layers"][i]:  # it sees all
                    self.model.layers[i].self_attn.indexer.block_topk = 1 << 20
                    self.model.layers[i].self_attn.indexer.token_budget = 1 << 10
    assert chooses
    state["model.layers.%d.ple.ple_embedding.ngram_embedding.weight" % layer] = table
    return Hashing, kind.Qwen4ExpTextConfig(**values), taken | state


def dots3(f):
    """dots3-note, whose scales of low-rank rows its files have in the norms before."""
    heads, windowed, rope = f["attention.head_count"], f["attention.sliding_window_pattern"], f["rope.dimension_count"]

    def change(name, w, i):
        if name == "attn_v_b.weight":
            return None
        if name == "attn_k_b.weight":
            both = np.concatenate([w.swapaxes(1, 2), f.tensors[f"blk.{i}.attn_v_b.weight"]], 1)
            return "attn_kv_b.weight", both.reshape(-1, both.shape[2])
        if name in ("attn_q_a_norm.weight", "attn_kv_a_norm.weight"):
            return name, w / (f["embedding_length"] / len(w)) ** 0.5
        if name.startswith(("indexer.attn", "indexer.k_norm")):  # transformers rotates pairs that lie side by side
            length, half = f["attention.indexer.key_length"], rope // 2
            w = w.reshape(-1, length, *w.shape[1:]).copy()
            w[:, 0:rope:2], w[:, 1:rope:2] = w[:, :half].copy(), w[:, half:rope].copy()
            return name, w.reshape(-1, *w.shape[2:])
        return name, w

    def sizes(end, i):
        head = f["attention.key_length_mla" + end]
        return dict(num_attention_heads=heads[i], num_key_value_heads=heads[i], kv_lora_rank=f["attention.kv_lora_rank" + end],
                    q_lora_rank=f["attention.q_lora_rank"], head_dim=head, qk_nope_head_dim=head - rope, qk_rope_head_dim=rope,
                    v_head_dim=f["attention.value_length_mla" + end])
    own = {i: sizes("_swa", i) for i in range(f.n_layers) if windowed[i]}
    f.keys["attention.head_count"], f.keys["attention.head_count_kv"] = heads[0], heads[0]
    config = common(f, **sizes("", 0), index_n_heads=f["attention.indexer.head_count"],
                    index_head_dim=f["attention.indexer.key_length"], index_topk=f["attention.indexer.top_k"],
                    n_shared_experts=f["expert_shared_count"], shared_experts_intermediate_size=f["expert_feed_forward_length"],
                    routed_scaling_factor=f["expert_weights_scale"], norm_topk_prob=True, mlp_layer_types=dense_first(f),
                    layer_types=["sliding_attention" if n else "indexed_attention" for n in windowed[:f.n_layers]],
                    sliding_window=f["attention.sliding_window"], per_layer_config=own,
                    pad_token_id=None, bos_token_id=None, eos_token_id=None)
    config["rope_parameters"] = {"sliding_attention": {"rope_type": "default", "rope_theta": f["rope.freq_base_swa"]},
                                 "indexed_attention": {"rope_type": "default", "rope_theta": f["rope.freq_base"]}}
    layer = {"attn_k_norm": "self_attn.k_rope_only_layernorm", "attn_gate": "self_attn.g_proj"}
    state = state_of(f, layer, change=change)
    from transformers.models.dots3_note.modeling_dots3_note import Dots3NoteForCausalLM
    from transformers.models.dots3_note.configuration_dots3_note import Dots3NoteTextConfig
    return Dots3NoteForCausalLM, Dots3NoteTextConfig(**config), state


def minimax_m3(f):
    """Its text half. Norms have 1 added in the file."""
    from transformers.models.minimax_m3_vl import modeling_minimax_m3_vl as kind
    names = ("attn_norm", "ffn_norm", "attn_q_norm", "attn_k_norm", "indexer.q_norm", "indexer.k_norm")
    layer = {f"indexer.{part}": f"self_attn.indexer.{part}" for part in ("q_proj", "k_proj", "q_norm", "k_norm")}
    config = common(f, dense_intermediate_size=f["feed_forward_length"], intermediate_size=f["expert_feed_forward_length"],
                    shared_intermediate_size=f["expert_feed_forward_length"] * f["expert_shared_count"],
                    rotary_dim=f["rope.dimension_count"], routed_scaling_factor=f["expert_weights_scale"],
                    mlp_layer_types=dense_first(f), index_n_heads=f["attention.indexer.head_count"],
                    layer_types=["full_attention" if k == "dense" else "minimax_m3_sparse" for k in dense_first(f)],
                    index_head_dim=f["attention.indexer.key_length"], index_block_size=f["attention.indexer.block_size"],
                    index_topk_blocks=f["attention.indexer.top_k"], index_local_blocks=f["attention.indexer.local_blocks"])
    state = state_of(f, layer, plus_one=names)
    for i in range(f.n_layers):
        for part in ("mlp", "mlp.shared_experts"):
            at = f"model.layers.{i}.{part}."
            if at + "gate_proj.weight" in state:
                state[at + "gate_up_proj.weight"] = np.concatenate([state.pop(at + "gate_proj.weight"),
                                                                    state.pop(at + "up_proj.weight")])
    return text_of(kind.MiniMaxM3VLTextModel, kind.MiniMaxM3VLTextConfig(**config), state)


def hrm_text(f):
    n, state = f["hrm.layers_per_stack"], {}
    for name, w in state_of(f, {"attn_gate": "self_attn.gate_proj"}).items():
        match = re.match(r"model\.layers\.(\d+)\.(.*)", name)
        state[f"model.{'LH'[int(match[1]) // n]}_module.layers.{int(match[1]) % n}.{match[2]}" if match else name] = w
    state["model.z_L_init"] = f.tensors["hrm.z_l_init"]
    return transformers.HrmTextForCausalLM, transformers.HrmTextConfig(
        **common(f), num_layers_per_stack=n, H_cycles=f["hrm.h_cycles"], L_cycles=f["hrm.l_cycles"],
        embedding_scale=f["embedding_scale"]), state


def hy_v4(f):
    """Hunyuan 4, with an index. transformers' norms of low-rank rows have an eps of 1e-6, whatever the others have."""
    from check_arch_torch import deepseek2
    rope = f["rope.dimension_count"]
    parts = {f"hc_{half}_{part}": f"{'attn' if half == 'attn' else 'ffn'}_hc.{part}"
             for half in ("attn", "ffn") for part in ("fn", "base", "scale")}
    layer = {"attn_sinks.weight": "self_attn.sinks", "attn_gate": "self_attn.gate_proj",
             **{k + ".weight": v for k, v in parts.items()}}

    def change(name, w, i):
        if name == "attn_v_b.weight":
            return None
        if name == "attn_k_b.weight":
            both = np.concatenate([w.swapaxes(1, 2), f.tensors[f"blk.{i}.attn_v_b.weight"]], 1)
            return "attn_kv_b.weight", both.reshape(-1, both.shape[2])
        if name.startswith(("attn_q_b", "attn_kv_a_mqa", "indexer.attn", "indexer.k_norm")):
            heads = {"attn_q_b": f["attention.head_count"], "indexer.attn_q_b": f["attention.indexer.head_count"]}
            w = w.reshape(heads.get(name.removesuffix(".weight"), 1), -1, *w.shape[1:]).copy()
            for head in w:  # pairs lie side by side in the file, half of what rotates apart in torch
                head[-rope:] = np.concatenate([head[-rope::2], head[len(head) - rope + 1::2]])
            return name, w.reshape(-1, *w.shape[2:])
        return name, w
    state = state_of(f, layer, change=change)
    for part in ("fn", "base", "scale"):
        state[f"model.hc_head.hc_{part}"] = f.tensors[f"output_hc_{part}.weight"]
    f.keys["expert_group_count"] = 1  # V3's configuration
    f.tensors = {"output.weight": f.tensors["output.weight"]}
    _, config, _ = deepseek2(f)
    values = {k: v for k, v in config.to_dict().items() if k not in ("model_type", "architectures", "transformers_version")}
    return transformers.HYV4ForCausalLM, transformers.HYV4Config(
        **values, index_n_heads=f["attention.indexer.head_count"], index_head_dim=f["attention.indexer.key_length"],
        index_topk=f["attention.indexer.top_k"], mlp_layer_types=dense_first(f), hc_mult=f["hyper_connection.count"],
        hc_magnitude=f["hyper_connection.magnitude"], hc_eps=f["hyper_connection.epsilon"],
        swiglu_limit=f["swiglu_clamp_exp"],
        indexer_types=["full" if t else "shared" for t in f["attention.indexer.types"]]), state


def falcon_h1(f):
    layer, change = mamba_parts(f, "mamba")
    layer |= {"ffn_norm": "pre_ff_layernorm.weight", **{f"ffn_{c}": f"feed_forward.{c}_proj" for c in ("gate", "up", "down")}}
    n_heads, inner = f["ssm.time_step_rank"], f["ssm.inner_size"]
    config = common(f, mamba_d_ssm=inner, mamba_n_heads=n_heads, mamba_d_head=inner // n_heads,
                    mamba_n_groups=f["ssm.group_count"], mamba_d_state=f["ssm.state_size"], mamba_d_conv=4,
                    mamba_conv_bias="blk.0.ssm_conv1d.bias" in f.tensors, mamba_rms_norm="blk.0.ssm_norm.weight" in f.tensors,
                    mamba_norm_before_gate=False)
    config["rope_parameters"].pop("partial_rotary_factor")
    state = state_of(f, layer, change=change)
    for end in ("weight",):
        state[f"model.final_layernorm.{end}"] = state.pop(f"model.norm.{end}")
    return transformers.FalconH1ForCausalLM, transformers.FalconH1Config(**config), state


def phimoe(f):
    """With the long table for all lengths, since transformers computes one table of frequencies, from the short one."""
    config = common(f, attention_bias=True, lm_head_bias=True)
    config["rope_parameters"] = {
        "rope_type": "longrope", "rope_theta": f["rope.freq_base"], "long_mscale": 1.243163121016122,
        "short_mscale": 1.243163121016122, "original_max_position_embeddings": 64, "factor": 4.0,
        **{f"{x}_factor": f.tensors["rope_factors_long.weight"].tolist() for x in ("short", "long")}}
    state = state_of(f, {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
                         "ffn_gate_inp": "mlp.router"})
    state["lm_head.bias"] = f.tensors["output.bias"]
    return transformers.PhimoeForCausalLM, transformers.PhimoeConfig(**config), state


MORE = {
    "internlm2": as_llama(True), "xverse": as_llama(True), "exaone": as_llama(),
    "pangu-embedded": as_llama(attention_bias=True), "cogvlm": as_llama(),
    "arcee": as_llama(True, "ArceeForCausalLM", "ArceeConfig"),
    "qwen": as_llama(False, "Qwen2ForCausalLM", "Qwen2Config", intermediate_size=lambda f: f["feed_forward_length"] // 2),
    "qwen2vl": see_text("qwen2_vl.modeling_qwen2_vl", "Qwen2VLTextModel", "Qwen2VLTextConfig"),
    "qwen3vl": see_text("qwen3_vl.modeling_qwen3_vl", "Qwen3VLTextModel", "Qwen3VLTextConfig"),
    "qwen3vlmoe": see_text("qwen3_vl_moe.modeling_qwen3_vl_moe", "Qwen3VLMoeTextModel", "Qwen3VLMoeTextConfig",
                           norm_topk_prob=True),
    "gemma": as_llama(False, "GemmaForCausalLM", "GemmaConfig", plus_one=("attn_norm", "ffn_norm", "output_norm"),
                      hidden_activation="gelu_pytorch_tanh"),
    "chatglm": as_llama(False, "GlmForCausalLM", "GlmConfig", rope=False, attention_bias=True, split=False,
                        layer={"ffn_up": "mlp.gate_up_proj"}),
    "phi2": phi2,
    "nemotron": as_llama(False, "NemotronForCausalLM", "NemotronConfig", rope=False, norm_eps=1e-5,
                         plus_one=("attn_norm", "ffn_norm", "output_norm"),
                         layer={"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}),
    "jais2": as_llama(False, "Jais2ForCausalLM", "Jais2Config", layer_norm_eps=1e-5,
                      layer={"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}),
    "minicpm": minicpm, "maincoder": maincoder, "codeshell": codeshell, "bailingmoe2": bailingmoe2,
    "deepseek2-ocr": deepseek_ocr, "jina-bert-v3": jina_bert_v3, "eurobert": two_sided(), "llama-embed": two_sided(True),
    "bloom": bloom, "apertus": apertus,
    "gpt2": gpt2, "starcoder": lambda f: gpt2(f, True), "chameleon": chameleon,
    "t5encoder": t5_encoder, "t5": t5,
    "neo-bert": two_sided(True), "modern-bert": modern_bert, "gemma-embedding": gemma_embedding,
    "paddleocr": see_text("paddleocr_vl.modeling_paddleocr_vl", "PaddleOCRTextModel", "PaddleOCRTextConfig"),
    "orion": as_llama(False, "StableLmForCausalLM", "StableLmConfig", rope=False, layer_norm_eps=1e-5,
                      layer={"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}),
    "afmoe": afmoe, "muse-glimmer": muse_glimmer, "cohere2moe": cohere2moe, "granite_swa": granite_swa, "mimo2": mimo2,
    "hunyuan_vl": hunyuan_vl, "bitnet": bitnet, "dbrx": dbrx, "stablelm": stablelm, "gptneox": gptneox, "falcon": falcon,
    "mamba2": mamba2_alone, "mamba": mamba_alone, "jamba": jamba, "kimi-linear": kda, "bailingmoe3": kda,
    "falcon-h1": falcon_h1, "deepseek32": sparse_mla, "glm-dsa": sparse_mla, "dots3note": dots3, "hy_v4": hy_v4,
    "deepseek4": deepseek4, "glm5-next": glm5_next, "qwen4exp": qwen4,
    "minimax-m3": minimax_m3, "hrm_text": hrm_text,
    "olmo": as_llama(True, "OlmoForCausalLM", "OlmoConfig", clip_qkv=lambda f: f["attention.clamp_kqv"]),
    "gemma3n": gemma3n, "minimax-01": minimax_01,
    "grovemoe": grovemoe, "hy_v3": hy_v3, "exaone-moe": exaone_moe, "mellum": mellum, "mistral4": mistral4, "phimoe": phimoe,
}
