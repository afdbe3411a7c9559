#!/usr/bin/env python3
"""Hidden rows, logits and drafts of random block drafters, from their authors' own code, for tests/golden/test_block.c.

    make_block_vectors.py --mkmodel build/tests/mkmodel --mkhead build/tests/mkhead --dflash SITE --deepspec REPOSITORY

SITE holds PyPI's package dflash (0.1.0: dflash/model.py), REPOSITORY a checkout of deepseek-ai/DeepSpec. Needs torch,
transformers (5.24 was used) and gguf. DFly is dflash's model with the features and the correction that AngelSpec's paper says
(arXiv 2607.25852), LiLiCorr dflash's model with a lattice as its paper says (2608.20530), written here. Heads and target have
F32 weights; the features of the context are random numbers. Each file tests/golden/block/NAME.bin holds, little-endian: u64
FNV-1a of the head's file, u32 context rows, width of their features, rows of hidden values, their width, tokens; i32 the
newest token; f32 features; f32 hidden rows that draft, after the last norm; then for each of them, down the greedy chain: i32
the token, f32 the confidence (-1: none; of LiLiCorr the cosine), f32 logits (of DFlash2 those of the row alone; its tokens
are what the candidate selector gives).
"""
import argparse
import pathlib
import struct
import subprocess
import sys
import tempfile

import torch
from gguf import GGUFReader
from transformers import Qwen3Config

CASES = {
    "dflash": ["--kind", "dflash", "--block", "8"],
    "dflash-anchor": ["--kind", "dflash", "--block", "5", "--from-anchor", "1", "--layers", "3"],
    "dflash-causal": ["--kind", "dflash", "--block", "16", "--causal", "1", "--own-embedding", "1", "--own-output", "1"],
    "dflash2": ["--kind", "dflash2", "--block", "8"],
    "dflash2-taps": ["--kind", "dflash2", "--block", "12", "--conv", "4", "--conv-group", "8", "--pair", "37",
                     "--candidates", "16", "--layers", "3"],
    "dfly": ["--kind", "dfly", "--block", "8", "--layers", "3"],
    "dfly-narrow": ["--kind", "dfly", "--block", "5", "--from-anchor", "1", "--correct", "24"],
    "lilicorr": ["--kind", "lilicorr", "--block", "8", "--lattice", "48", "--lattice-heads", "3", "--factors", "20"],
    "lilicorr-conv": ["--kind", "lilicorr", "--block", "6", "--lattice", "64", "--lattice-layers", "3", "--conv", "2",
                      "--candidates", "16"],
    "dspark": ["--kind", "dspark", "--block", "7", "--markov", "16"],
    "dspark-in-place": ["--kind", "dspark", "--block", "6", "--from-anchor", "0", "--markov", "32", "--no-confidence", "1"],
}
N_CONTEXT, ANCHOR = 37, 11
LAYER = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj",
         "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "attn_conv_proj": "attention_conv.kernel_projection",
         "ffn_conv_proj": "mlp_conv.kernel_projection"}
OUTSIDE = {"fc.weight": "fc.weight", "enc.output_norm.weight": "hidden_norm.weight", "output_norm.weight": "norm.weight",
           "markov_w1.weight": "markov_head.markov_w1.weight", "markov_w2.weight": "markov_head.markov_w2.weight",
           "selector_hidden.weight": "candidate_selector.hidden_projection.weight",
           "selector_predecessor.weight": "candidate_selector.predecessor_codebook.weight",
           "selector_successor.weight": "candidate_selector.successor_codebook.weight",
           "layer_fusion": "layer_fusion_weights", "context_norm.weight": "hidden_norm.weight",
           "conf_proj.weight": "confidence_head.proj.weight", "conf_proj.bias": "confidence_head.proj.bias"}


def tensors(path):
    reader = GGUFReader(path)
    values = {t.name: torch.from_numpy(t.data.copy()).reshape([int(n) for n in reversed(t.shape)]) for t in reader.tensors}
    return values, lambda key: reader.fields[key].contents() if key in reader.fields else None


def theirs(name):
    if name in OUTSIDE:
        return OUTSIDE[name]
    if name.startswith("hidden_correction."):
        return name
    if name.endswith("_conv_base"):
        _, i, part = name.split(".")
        return f"layers.{i}.{'attention' if part.startswith('attn') else 'mlp'}_conv.base_kernel"
    _, i, part, kind = name.split(".")
    return f"layers.{i}.{LAYER[part]}.{kind}"


def fly(base):
    class Correction(torch.nn.Module):
        def __init__(self, width, inner, eps):
            super().__init__()
            self.hidden_norm, self.embed_norm = (torch.nn.RMSNorm(width, eps=eps) for _ in range(2))
            self.gate, self.up = (torch.nn.Linear(2 * width, inner, bias=False) for _ in range(2))
            self.down = torch.nn.Linear(inner, width, bias=False)

        def forward(self, hidden, before):
            both = torch.cat([self.hidden_norm(hidden), self.embed_norm(before)], -1)
            return hidden + self.down(torch.nn.functional.silu(self.gate(both)) * self.up(both))

    class DFly(base):
        def __init__(self, config):
            super().__init__(config)
            self.layer_fusion_weights = torch.nn.Parameter(torch.zeros(config.num_hidden_layers, len(config.target_layer_ids)))
            self.hidden_correction = Correction(config.hidden_size, config.n_correct, config.rms_norm_eps)

        def forward(self, position_ids, noise_embedding, target_hidden):
            hidden, mixed = noise_embedding, self.fc(target_hidden)
            rotation = self.rotary_emb(hidden, position_ids)
            taps = target_hidden.unflatten(-1, (self.layer_fusion_weights.shape[1], -1))
            for layer, weights in zip(self.layers, self.layer_fusion_weights.softmax(-1)):
                features = self.hidden_norm(mixed + (weights[:, None] * taps).sum(-2))
                hidden = layer(hidden_states=hidden, target_hidden=features, attention_mask=None, position_ids=position_ids,
                               past_key_value=None, use_cache=False, position_embeddings=rotation)
            return self.norm(hidden)
    return DFly


def attend(x, own, prefix, bias):
    def heads(name):
        y = torch.nn.functional.linear(x, own[f"{prefix}{name}.weight"], own[f"{prefix}{name}.bias"])
        return y.unflatten(-1, (len(bias), -1)).transpose(0, 1)
    q, k, v = heads("attn_q"), heads("attn_k"), heads("attn_v")
    weights = (q @ k.transpose(1, 2) * q.shape[-1] ** -0.5 + bias).softmax(-1)
    return (weights @ v).transpose(0, 1).flatten(1)


def lattice(own, key, embedding, hidden, logits, anchor):
    """Tokens of the greedy path and the cosine of each, of LiLiCorr."""
    def linear(name, x):
        return torch.nn.functional.linear(x, own[f"lilicorr.{name}.weight"], own[f"lilicorr.{name}.bias"])

    def norm(name, x):
        return torch.nn.functional.rms_norm(x, x.shape[-1:], own[f"lilicorr.{name}.weight"],
                                            key("dflash.attention.layer_norm_rms_epsilon"))
    n, k, silu = len(hidden), key("dflash.lilicorr.top_k"), torch.nn.functional.silu
    log_p, ids = logits.log_softmax(-1).topk(k)
    rank = torch.arange(k).expand(n, k)
    phi = torch.stack([log_p, log_p.exp(), log_p - log_p[:, :1], rank / (k - 1), (rank == 0).float()], -1)
    phi = torch.nn.functional.layer_norm(phi, (5,), own["lilicorr.feature_norm.weight"], own["lilicorr.feature_norm.bias"])
    x = embedding[ids] if "lilicorr.token_proj.weight" not in own else linear("token_proj", embedding[ids])
    x = x + linear("hidden_proj", hidden)[:, None] + linear("feature_down", silu(linear("feature_up", phi)))
    x = (x + own["lilicorr.slot_embd.weight"][:, None] + own["lilicorr.rank_embd.weight"]).flatten(0, 1)
    slot = torch.arange(n).repeat_interleave(k)
    apart = slot[:, None] - slot
    bias = own["lilicorr.slot_bias.weight"][:, apart + n] + (apart == 0) * own["lilicorr.same_slot_bias"][:, None, None]
    for i in range(key("dflash.lilicorr.block_count")):
        x = x + linear(f"blk.{i}.attn_output", attend(norm(f"blk.{i}.attn_norm", x), own, f"lilicorr.blk.{i}.", bias))
        x = x + linear(f"blk.{i}.ffn_down", silu(linear(f"blk.{i}.ffn_up", norm(f"blk.{i}.ffn_norm", x))))
    y, a = norm("output_norm", x), norm("context_norm", linear("context_proj", anchor))
    z = silu(linear("factor_proj", torch.cat([y, a.expand_as(y), y * a], -1)))
    unit = lambda v: torch.nn.functional.normalize(v, dim=-1, eps=key("dflash.lilicorr.vector_epsilon"))
    leaves, enters = (unit(linear(f"factor_{part}", z)).unflatten(0, (n, k)) for part in ("out", "in"))
    before, tokens, scores = unit(linear("factor_first", a)), [], []
    for i in range(n):
        row = enters[i] @ before
        best = int(row.argmax())
        tokens.append(int(ids[i, best]))
        scores.append(float(row[best]))
        before = leaves[i, best]
    return torch.tensor(tokens), torch.tensor(scores)


def build(own, target, key):
    embedding = own.get("token_embd.weight", target["token_embd.weight"])
    output = own.get("output.weight", own.get("token_embd.weight", target["output.weight"]))
    taps = key("dflash.target_layers")
    shape = dict(hidden_size=key("dflash.embedding_length"), num_hidden_layers=key("dflash.block_count"),
                 num_attention_heads=key("dflash.attention.head_count"), head_dim=key("dflash.attention.key_length"),
                 num_key_value_heads=key("dflash.attention.head_count_kv"), vocab_size=embedding.shape[0],
                 intermediate_size=key("dflash.feed_forward_length"),
                 rms_norm_eps=key("dflash.attention.layer_norm_rms_epsilon"),
                 rope_parameters={"rope_type": "default", "rope_theta": key("dflash.rope.freq_base")})
    config = Qwen3Config(**shape)
    config.target_layer_ids = [t - 1 for t in taps]
    config.num_target_layers = max(taps)
    config.block_size = key("dflash.block_size")
    config.mask_token_id = key("tokenizer.ggml.mask_token_id")
    config.is_causal = bool(key("dflash.attention.causal"))
    spark = "markov_w1.weight" in own
    if spark:
        from deepspec.modeling.dspark.qwen3.modeling import Qwen3DSparkModel
        config.num_anchors, config.markov_rank = 1, own["markov_w1.weight"].shape[1]
        config.markov_head_type, config.enable_confidence_head = "vanilla", "conf_proj.weight" in own
        config.confidence_head_with_markov = True
        config._attn_implementation = "sdpa"
        model = Qwen3DSparkModel(config)
    else:
        from dflash.model import DFlash2DraftModel, DFlashDraftModel
        pairs = "blk.0.attn_conv_base" in own
        if pairs:
            config.conv_kernel_size, config.conv_group_size = key("dflash.conv_kernel_size"), key("dflash.conv_group_size")
            config.selector_rank, config.selector_top_k = key("dflash.selector_rank") or 1, key("dflash.selector_top_k") or 1
        if "layer_fusion" in own:
            config.n_correct = own["hidden_correction.gate.weight"].shape[0]
            DFlashDraftModel = fly(DFlashDraftModel)
        model = (DFlash2DraftModel if pairs else DFlashDraftModel)(config)
    state = {theirs(n): v for n, v in own.items()
             if n not in ("token_embd.weight", "output.weight") and not n.startswith("lilicorr.")}
    if spark:
        state |= {"embed_tokens.weight": embedding, "lm_head.weight": output}
    missing, unexpected = model.load_state_dict(state, strict=False)
    if "lilicorr.factor_out.weight" in own:
        missing = [name for name in missing if not name.startswith("candidate_selector.")]
    assert not missing and not unexpected, (missing, unexpected)
    return model.float().eval(), config, embedding, output, spark


@torch.no_grad()
def draft(model, config, embedding, output, spark, from_anchor, features, own, key):
    ids = torch.tensor([[ANCHOR] + [config.mask_token_id] * (config.block_size - 1)])
    positions = torch.arange(N_CONTEXT + config.block_size)[None]
    if spark:
        hidden = model._forward_backbone(target_hidden_states=features[None], noise_embedding=model.embed_tokens(ids),
                                         position_ids=positions, attention_mask=None, past_key_values=None,
                                         use_cache=False, is_causal=False)
    else:
        hidden = model(position_ids=positions, noise_embedding=embedding[ids], target_hidden=features[None])
    hidden = hidden[:, 0 if from_anchor else 1:]
    if "lilicorr.factor_out.weight" in own:
        logits = model.compute_logits(hidden, lambda x: x @ output.T)[0]
        return hidden[0], *lattice(own, key, embedding, hidden[0], logits, model.hidden_norm(model.fc(features[-1]))), logits
    if hasattr(model, "candidate_selector"):
        logits = model.compute_logits(hidden, lambda x: x @ output.T)
        tokens, _, _ = model.candidate_selector.select(hidden, logits, ids[:, 0], 0.0)
        return hidden[0], tokens[0], torch.full([hidden.shape[1]], -1.0), logits[0]
    if hasattr(model, "hidden_correction"):
        tokens, logits = [ANCHOR], []
        for row in hidden[0]:
            logits.append(model.compute_logits(model.hidden_correction(row, embedding[tokens[-1]]), lambda x: x @ output.T))
            tokens.append(int(logits[-1].argmax()))
        return hidden[0], torch.tensor(tokens[1:]), torch.full([hidden.shape[1]], -1.0), torch.stack(logits)
    if not spark:
        logits = model.compute_logits(hidden, lambda x: x @ output.T)[0]
        return hidden[0], logits.argmax(-1), torch.full([hidden.shape[1]], -1.0), logits
    tokens, logits = model.sample_draft_tokens(model.compute_logits(hidden), temperature=0.0, hidden_states=hidden,
                                               first_prev_token_ids=ids[:, 0])
    conf = torch.full([hidden.shape[1]], -1.0)
    if model.confidence_head is not None:
        before = torch.cat([ids[:, :1], tokens[:, :-1]], dim=1)
        conf = model.predict_confidence_step(hidden, prev_token_ids=before).sigmoid().reshape(-1)
    return hidden[0], tokens[0], conf, logits[0]


def fnv(data):
    h = 0xcbf29ce484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001b3 & (1 << 64) - 1
    return h


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("mkmodel", "mkhead", "dflash", "deepspec"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--out", default=pathlib.Path(__file__).parent / "block", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), help="of these cases (default: all)")
    args = parser.parse_args()
    sys.path += [args.dflash, args.deepspec]
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        model_path, head_path = folder + "/target.gguf", folder + "/head.gguf"
        subprocess.run([args.mkmodel, "--shape", "tiny", "--type", "f32", "--seed", "7", model_path], check=True)
        target, _ = tensors(model_path)
        for name in args.only:
            how = CASES[name]
            subprocess.run([args.mkhead, *how, "--type", "f32", "--qk-norm", "1", "--seed", "3", model_path, head_path],
                           check=True)
            own, key = tensors(head_path)
            parts = build(own, target, key)
            from_anchor = key("dflash.sample_from_anchor")
            from_anchor = parts[-1] if from_anchor is None else bool(from_anchor)
            features = torch.randn(N_CONTEXT, own["fc.weight"].shape[1])
            hidden, tokens, conf, logits = draft(*parts, from_anchor, features, own, key)
            data = struct.pack("<Q5Ii", fnv(pathlib.Path(head_path).read_bytes()), *features.shape, *hidden.shape,
                               logits.shape[1], ANCHOR)
            data += struct.pack(f"<{features.numel()}f", *features.flatten().tolist())
            data += struct.pack(f"<{hidden.numel()}f", *hidden.flatten().tolist())
            for i in range(len(tokens)):
                data += struct.pack(f"<if{logits.shape[1]}f", int(tokens[i]), float(conf[i]), *logits[i].tolist())
            (args.out / f"{name}.bin").write_bytes(data)
            print(name, tokens.tolist(), [round(float(c), 3) for c in conf])


if __name__ == "__main__":
    main()
