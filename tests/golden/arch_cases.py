"""Published models for check_arch_torch.py: those of tests/support/mkarch_rows.inc that transformers has, or that are one
of its models under another name."""
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
    return {"attn_q": w[:q], "attn_k": w[q:q + kv], "attn_v": w[q + kv:]}


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


def dense_first(f):
    n = f.get("leading_dense_block_count", 0)
    return ["dense"] * n + ["sparse"] * (f.n_layers - n)


def hy_v3(f):
    config = common(f, num_shared_experts=1, router_scaling_factor=f["expert_weights_scale"], mlp_layer_types=dense_first(f))
    config["rope_parameters"].pop("partial_rotary_factor")
    return (transformers.HYV3ForCausalLM, transformers.HYV3Config(**config),
            state_of(f, {"exp_probs_b": "mlp.e_score_correction_bias"}))


def exaone_moe(f):
    config = common(f, num_shared_experts=1, routed_scaling_factor=f["expert_weights_scale"], norm_topk_prob=True, n_group=1,
                    topk_group=1, first_k_dense_replace=1, mlp_layer_types=dense_first(f),
                    sliding_window=f["attention.sliding_window"], layer_types=windows(f, lambda i: i % 4 < 3))
    config["rope_parameters"].pop("partial_rotary_factor")
    state = state_of(f)
    model = transformers.ExaoneMoeForCausalLM

    class Wider(model):  # the published class knows a number of shared experts only, files their width
        def __init__(self, config):
            super().__init__(config)
            for layer in self.model.layers:
                if hasattr(layer.mlp, "shared_experts"):
                    layer.mlp.shared_experts = type(layer.mlp.shared_experts)(
                        config, intermediate_size=f["expert_shared_feed_forward_length"])
    return Wider, transformers.ExaoneMoeConfig(**config), state


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


def deepseek_ocr(f):
    kind = transformers.models.deepseek_ocr2
    config = common(f, n_shared_experts=2, first_k_dense_replace=1, mlp_layer_types=dense_first(f),
                    routed_scaling_factor=f["expert_weights_scale"], n_group=1, topk_group=1, topk_method="greedy")
    config["rope_parameters"].pop("partial_rotary_factor")
    return text_of(kind.modeling_deepseek_ocr2.DeepseekOcr2TextModel,
                   kind.configuration_deepseek_ocr2.DeepseekOcr2TextConfig(**config), state_of(f, permuted=True))


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
    "deepseek2-ocr": deepseek_ocr, "jina-bert-v3": jina_bert_v3,
    "paddleocr": see_text("paddleocr_vl.modeling_paddleocr_vl", "PaddleOCRTextModel", "PaddleOCRTextConfig"),
    "orion": as_llama(False, "StableLmForCausalLM", "StableLmConfig", rope=False, layer_norm_eps=1e-5,
                      layer={"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}),
    "hy_v3": hy_v3, "exaone-moe": exaone_moe, "mellum": mellum, "mistral4": mistral4,
}
