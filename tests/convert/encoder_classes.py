"""Folders of encoders of BERT's kin. For check_classes.py."""
import json
import os
import sys
from array import array

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apart import take_apart  # noqa: E402
from folders import byte_letters, joined, rows_of, shaped, turned  # noqa: E402

EMBED = {"token_embd": "embeddings.word_embeddings", "token_types": "embeddings.token_type_embeddings",
         "position_embd": "embeddings.position_embeddings", "token_embd_norm": "embeddings.LayerNorm"}
ATTENTION = {"attn_q": "attention.self.query", "attn_k": "attention.self.key", "attn_v": "attention.self.value",
             "attn_output": "attention.output.dense", "attn_output_norm": "attention.output.LayerNorm"}
BERT = {**ATTENTION, "ffn_up": "intermediate.dense", "ffn_down": "output.dense", "layer_output_norm": "output.LayerNorm"}


def words():
    """RoBERTa's kind of byte-level BPE."""
    names = ["<s>", "<pad>", "</s>", "<unk>", *byte_letters(), "<mask>"]
    added = [{"id": names.index(x), "content": x, "special": True, "single_word": False,
              "lstrip": False, "rstrip": False, "normalized": False} for x in ("<s>", "<pad>", "</s>", "<unk>", "<mask>")]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {"added_tokens": added, "normalizer": None, "pre_tokenizer": level, "decoder": level, "post_processor": {
        "type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True, "add_prefix_space": False},
        "model": {"type": "BPE", "vocab": {x: i for i, x in enumerate(names)}, "merges": []}}
    config = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "unk_token": "<unk>",
              "pad_token": "<pad>", "mask_token": "<mask>"}
    return {"tokenizer.json": json.dumps(tokenizer), "tokenizer_config.json": json.dumps(config)}


def pieces():
    return {"vocab.txt": "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(259))])}


def sizes(f, kind, **more):
    return {"model_type": kind, "hidden_size": f["embedding_length"], "num_hidden_layers": f.n_layers, "vocab_size": 264,
            "num_attention_heads": f["attention.head_count"], "intermediate_size": f["feed_forward_length"],
            "max_position_embeddings": 256, "hidden_act": "gelu", "layer_norm_eps": 1e-5, **more}


def roberta(kind, files=None):
    def case(f):
        f.files = words() if files is None else files()
        config = sizes(f, kind, pad_token_id=1, type_vocab_size=2)
        config["max_position_embeddings"] += 2
        whole = {**EMBED, "cls": "classifier.dense", "cls.output": "classifier.out_proj"}
        tensors = {("" if k.startswith("classifier") else "roberta.") + k: w for k, w in
                   take_apart(f, BERT, whole, "encoder.layer.{}.").items()}
        name = "roberta.embeddings.position_embeddings.weight"
        tensors[name] = joined(([2, 64], array("f", [9.0] * 128)), tensors[name])  # rows of the padding token and before it
        for i in range(f.n_layers):  # mkarch's reranker has none
            for base in BERT.values():
                at = f"roberta.encoder.layer.{i}.{base}"
                add_bias(f, tensors, at, f"blk.{i}.{next(k for k, v in BERT.items() if v == base)}")
        tensors["lm_head.dense.weight"] = [1], array("f", [0.0])
        return config, tensors
    return case


def add_bias(f, tensors, at, to):
    if at + ".bias" not in tensors:
        n = tensors[at + ".weight"][0][0]
        f.tensors[to + ".bias"] = tensors[at + ".bias"] = [n], array("f", [0.125] * n)


def distil(f):
    f.files = pieces()
    del f.tensors["token_types.weight"]
    layer = {"attn_q": "attention.q_lin", "attn_k": "attention.k_lin", "attn_v": "attention.v_lin",
             "attn_output": "attention.out_lin", "attn_output_norm": "sa_layer_norm", "ffn_up": "ffn.lin1",
             "ffn_down": "ffn.lin2", "layer_output_norm": "output_layer_norm"}
    config = {"model_type": "distilbert", "dim": 64, "n_layers": f.n_layers, "n_heads": 4, "hidden_dim": 96, "vocab_size": 264,
              "max_position_embeddings": 256, "activation": "gelu"}
    f.keys["attention.layer_norm_epsilon"] = 1e-12  # in the model's code
    f.keys["attention.layer_norm_epsilon"] = array("f", [1e-12])[0]
    tensors = {"distilbert." + k: w for k, w in take_apart(f, layer, EMBED, "transformer.layer.{}.").items()}
    tensors["vocab_projector.weight"] = [1], array("f", [0.0])
    return config, tensors


def neo_bert(f):
    f.files = pieces()

    def change(out, at, t, _):  # queries, keys and values of each head together
        w = t.pop("attn_qkv.weight")
        out[at + "qkv.weight"] = rows_of(w, [part * 64 + h * 16 + i for h in range(4) for part in range(3) for i in range(16)])
    layer = {"attn_norm": "attention_norm", "ffn_norm": "ffn_norm", "attn_output": "wo", "ffn_up": "ffn.w12", "ffn_down":
             "ffn.w3"}
    whole = {"token_embd": "model.encoder", "enc.output_norm": "model.layer_norm"}
    config = {"model_type": "neobert", "hidden_size": 64, "num_hidden_layers": f.n_layers, "num_attention_heads": 4,
              "intermediate_size": 144, "max_length": 256, "norm_eps": 1e-5, "vocab_size": 264, "hidden_act": "SwiGLU",
              "rms_norm": True, "rope": True, "dim_head": 16}
    tensors = take_apart(f, layer, whole, "model.transformer_encoder.{}.", change)
    tensors["decoder.weight"] = [1], array("f", [0.0])
    for key in ("rope.dimension_count", "attention.key_length", "attention.value_length", "attention.head_count_kv"):
        del f.keys[key]  # what follows from the width and the heads
    return config, tensors


def jina(f):
    f.files = words() if "blk.0.ffn_gate.weight" in f.tensors else pieces()

    def change(out, at, t, _):
        if "ffn_gate.weight" in t:  # its gates are the second half
            out[at + "mlp.up_gated_layer.weight"] = joined(t.pop("ffn_up.weight"), t.pop("ffn_gate.weight"))
    code = "blk.0.ffn_gate.weight" in f.tensors
    layer = {**ATTENTION, "ffn_up": "mlp.gated_layers", "ffn_down": "mlp.down_layer" if code else "mlp.wo",
             "layer_output_norm": "layer_norm_2" if code else "mlp.layernorm", "attn_norm_2": "layer_norm_1",
             "attn_q_norm": "attention.self.layer_norm_q", "attn_k_norm": "attention.self.layer_norm_k"}
    config = sizes(f, "bert", position_embedding_type="alibi", feed_forward_type="geglu", type_vocab_size=1)
    return config, take_apart(f, layer, EMBED, "encoder.layer.{}.", change)


def nomic_moe(f):
    f.files = pieces()

    def change(out, at, t, _):
        for part, name in (("up", "w1"), ("down", "w2")):
            if f"ffn_{part}_exps.weight" in t:
                w = t.pop(f"ffn_{part}_exps.weight")
                out[f"{at}mlp.experts.mlp.{name}"] = shaped(turned(w) if part == "down" else w, 8 * 48, 64)
                out[at + "mlp.experts.bias"] = [64], array("f", [0.0] * 64)
    layer = {"attn_qkv": "attn.Wqkv", "attn_output": "attn.out_proj", "attn_output_norm": "norm1", "ffn_up": "mlp.fc1",
             "ffn_down": "mlp.fc2", "ffn_gate_inp": "mlp.router.layer", "layer_output_norm": "norm2"}
    config = {"model_type": "nomic_bert", "n_embd": 64, "n_layer": f.n_layers, "n_head": 4, "n_inner": 48, "vocab_size": 264,
              "n_positions": 256, "layer_norm_epsilon": 1e-5, "type_vocab_size": 1, "activation_function": "gelu",
              "moe_every_n_layers": 2, "num_experts": 8, "moe_top_k": 2, "qkv_proj_bias": True, "mlp_fc1_bias": True,
              "mlp_fc2_bias": True, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "prenorm": False}
    return config, take_apart(f, layer, {**EMBED, "token_embd_norm": "emb_ln"}, "encoder.layers.{}.", change)


def jina3(f):
    """Matrices that adapters change have other names."""
    f.files = pieces()
    layer = {"attn_qkv": "mixer.Wqkv", "attn_output": "mixer.out_proj", "attn_output_norm": "norm1", "ffn_up": "mlp.fc1",
             "ffn_down": "mlp.fc2", "layer_output_norm": "norm2"}
    config = sizes(f, "xlm-roberta", type_vocab_size=1, pad_token_id=1, position_embedding_type="rotary",
                   rotary_emb_base=1000.0, lora_adaptations=["a", "b"], lora_rank=2, lora_alpha=1)
    config["max_position_embeddings"] += 2
    out = {}
    for name, t in take_apart(f, layer, {**EMBED, "token_embd_norm": "emb_ln"}, "encoder.layers.{}.").items():
        if not name.endswith(".weight") or len(t[0]) != 2:
            out["roberta." + name] = t
            continue
        at = f"roberta.{name.removesuffix('weight')}parametrizations.weight."
        out[at + "original"] = t
        out[at + "0.lora_A"] = [2, 2, t[0][1]], array("f", [1.0] * 4 * t[0][1])
        out[at + "0.lora_B"] = [2, t[0][0], 2], array("f", [1.0] * 4 * t[0][0])
    return config, out


def jina3_new(f):
    """As transformers saves it."""
    f.files = pieces()
    layer = {"attn_qkv": "mixer.Wqkv", "attn_output": "mixer.out_proj", "attn_output_norm": "norm1", "ffn_up": "mlp.fc1",
             "ffn_down": "mlp.fc2", "layer_output_norm": "norm2"}
    config = sizes(f, "jina_embeddings_v3", type_vocab_size=1, pad_token_id=1,
                   rope_parameters={"rope_type": "default", "rope_theta": 1000.0})
    config["max_position_embeddings"] += 2
    tensors = take_apart(f, layer, {**EMBED, "token_embd_norm": "emb_ln"}, "encoder.layers.{}.")
    return config, {**tensors, "pooler.dense.bias": ([64], array("f", [0.0] * 64))}


KIN = {"jina-bert-v3": jina3, "jina-bert-v3 new": jina3_new,
       "bert": roberta("roberta"), "bert camembert": roberta("camembert", pieces),
       "bert-rank": roberta("xlm-roberta", pieces), "bert distil": distil, "neo-bert": neo_bert, "jina-bert-v2": jina,
       "jina-bert-v2-code": jina, "nomic-bert-moe": nomic_moe}
