#!/usr/bin/env python3
"""Models as transformers saves them, converted: tensors, keys and logits against those that the weights came from.

    check_models.py build/aerie build/tests/mkarch [NAME...] [--keep FOLDER]

Each model of tests/golden/check_arch_torch.py gets the weights of the file that mkarch writes, is saved as a folder with a
small tokenizer, and converted to F32. Every tensor must be the one that mkarch wrote (weights of norms that lack 1 up to
rounding), and the mean KL divergence of the logits from torch's at most 1e-5, or the logits those of mkarch's file to the bit:
the cache of f16 alone makes more of a difference to some. Tensors and biases that the published model has not are left out.
fp8:NAME and mxfp4:NAME save the matrices of layers in FP8 with a scale for each block, and experts in MXFP4, and torch gets
what transformers' own code makes of them; there only the logits are compared.
Needs torch, transformers and gguf. Exit status 1 if one differs, 77 if a package is missing.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
import check_arch_torch as witness  # noqa: E402 (ends with 77 where a package is missing)
from arch_cases import MORE  # noqa: E402

import gguf  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers  # noqa: E402

CONVERTED = ("arcee", "afmoe", "gemma", "chatglm", "hy_v3", "phi2", "olmo", "exaone-moe", "mellum", "nemotron", "jais2",
             "gemma3n", "deepseek32", "glm-dsa", "mamba", "jamba", "qwen2vl", "qwen3vl", "qwen3vlmoe", "mistral4",
             "falcon-h1", "minimax-01", "kimi-linear", "hrm_text", "minimax-m3", "bailingmoe3", "deepseek4",
             "gpt2", "starcoder", "gptneox", "falcon", "bloom", "mamba2",
             "granite_swa", "mimo2", "cohere2moe", "dbrx", "stablelm")
witness.CASES.update({name: MORE[name] for name in CONVERTED})
MAX_KL = 1e-5
QUANTIZED = ["fp8:llama", "fp8:qwen3moe", "fp8:deepseek2", "mxfp4:gpt-oss-mxfp4"]


def save_tokenizer(folder):
    """Byte-level BPE with three merges."""
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = [("h", "e"), ("l", "l"), ("he", "ll")]
    for a, b in merges:
        vocab[a + b] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump({"eos_token": "<|end|>", "chat_template": "{{ messages[0].content }}"}, f)


def as_fp8(w, block):
    """Codes, scales, and the weights that transformers makes of them."""
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize
    rows, columns = w.shape[-2:]
    grid = w.reshape(*w.shape[:-2], rows // block, block, columns // block, block)
    scales = grid.abs().amax((-3, -1)).clamp(min=1e-12) / 448
    codes = (grid / scales[..., :, None, :, None]).reshape(w.shape).to(torch.float8_e4m3fn)
    return codes, scales, Fp8Dequantize(None)._dequantize_one(codes, scales, torch.float32)


def quantize_fp8(state, block):
    """The state in FP8, and as torch gets it."""
    saved, plain = dict(state), dict(state)
    for name, w in state.items():
        matrix = w.dim() >= 2 and ".layers." in name and ("proj" in name or "experts" in name) and "router" not in name
        if not matrix or w.dim() > 3 or w.shape[-1] % block or w.shape[-2] % block:
            continue
        saved[name], saved[name + "_scale_inv"], plain[name] = as_fp8(w, block)
    return saved, plain, {"quant_method": "fp8", "weight_block_size": [block, block]}


def quantize_mxfp4(state):
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    saved, plain = dict(state), dict(state)
    generator = torch.Generator().manual_seed(1)
    for name, w in state.items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            continue
        experts, columns, rows = w.shape
        blocks = torch.randint(0, 256, (experts, rows, columns // 32, 16), generator=generator, dtype=torch.uint8)
        scales = torch.randint(119, 124, (experts, rows, columns // 32), generator=generator, dtype=torch.uint8)
        del saved[name]
        saved[name + "_blocks"], saved[name + "_scales"] = blocks, scales
        plain[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    return saved, plain, {"quant_method": "mxfp4"}


def save_quantized(model, kind, folder):
    """Quantizes what save_pretrained wrote (there experts may be apart), and gives the model the weights of it."""
    path = os.path.join(folder, "model.safetensors")
    state = load_file(path)
    saved, plain, how = quantize_fp8(state, 16) if kind == "fp8" else quantize_mxfp4(state)
    if len(saved) == len(state):
        raise RuntimeError("no tensor was quantized")
    save_file(plain, path, {"format": "pt"})
    with torch.no_grad():
        loaded = type(model).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    save_file(saved, path, {"format": "pt"})
    config_path = os.path.join(folder, "config.json")
    with open(config_path, encoding="utf-8") as f:
        config = json.load(f)
    with open(config_path, "w", encoding="utf-8") as f:
        json.dump(config | {"quantization_config": how}, f)
    return loaded


def ahead_of(f, state):
    """The tensors of the MTP block as they are published."""
    prefix, out = f"model.layers.{f.n_layers}.", {}
    own = {"eh_proj": "fc", "enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden", "post_norm": "norm",
           "head": "shared_head.head", "embed_tokens": "embed_tokens"}
    for name, w in state.items():
        if not name.startswith(prefix):
            continue
        part, w = name.removeprefix(prefix), w.contiguous()
        base = part.removesuffix(".weight")
        if f.arch.startswith("qwen"):
            out["mtp." + (own[base] + ".weight" if base in own else "layers.0." + part)] = w
        else:
            norm = "final_layernorm" if f.arch == "bailingmoe3" else "shared_head.norm"
            out[prefix + {"post_norm": norm, "head": "shared_head.head"}.get(base, base) +
                part.removeprefix(base)] = w
    return out


# Models that see are saved whole, with a random part for pictures.
SEEING = {"qwen2vl": "Qwen2VL", "qwen3vl": "Qwen3VL", "qwen3vlmoe": "Qwen3VLMoe", "minimax-m3": "MiniMaxM3VL"}


# Text models without a class that can be saved: their published class.
BARE = {"step35": "Step3p5ForCausalLM"}


def whole_of(arch, config, state):
    """The published class, its configuration and the weights of its text half."""
    import transformers
    small = dict(depth=1, hidden_size=16, embed_dim=16, num_heads=2, intermediate_size=16, out_hidden_size=config.hidden_size,
                 deepstack_visual_indexes=[0], num_position_embeddings=16)
    if arch == "minimax-m3":
        small = dict(num_hidden_layers=1, hidden_size=24, num_attention_heads=2, intermediate_size=16, image_size=28)
    kind = getattr(transformers, SEEING[arch] + "Config")
    given = kind(text_config=config.to_dict(), vision_config=small, tie_word_embeddings=config.tie_word_embeddings)
    renamed = {k.replace("model.", "model.language_model.", 1) if k.startswith("model.") else k: w for k, w in state.items()}
    whole = SEEING[arch].replace("M3VL", "M3Sparse") + "ForConditionalGeneration"
    return getattr(transformers, whole), given, renamed


def with_multipliers(config, state):
    """Falcon-H1 with multipliers, powers of two, and weights that lack them."""
    few = {"embedding_multiplier": 4.0, "lm_head_multiplier": 0.5, "attention_in_multiplier": 2.0, "key_multiplier": 0.5,
           "attention_out_multiplier": 0.25, "ssm_in_multiplier": 0.5, "ssm_out_multiplier": 2.0,
           "mlp_multipliers": [0.25, 2.0], "ssm_multipliers": [2.0, 0.5, 4.0, 0.25, 8.0]}
    if config.tie_word_embeddings:
        few["lm_head_multiplier"] = few["embedding_multiplier"]
    for key, value in few.items():
        setattr(config, key, value)
    inner, group = config.mamba_d_ssm, config.mamba_n_groups * config.mamba_d_state
    rows = np.repeat(few["ssm_multipliers"], [inner, inner, group, group, config.mamba_n_heads])[:, None]
    by = {"embed_tokens": 4.0, "lm_head": 0.5, "q_proj": 2.0, "k_proj": 1.0, "v_proj": 2.0, "o_proj": 0.25,
          "gate_proj": 0.25, "down_proj": 2.0, "in_proj": 0.5 * rows, "out_proj": 2.0}
    for name in state:
        part = name.split(".")[-2]
        if part in by and name.endswith(".weight"):
            state[name] = (state[name] / by[part]).astype(np.float32)


def save_model(reference, folder, tokens, kind):
    """Torch's logits."""
    f = witness.File(reference)
    cls, config, state = witness.CASES[f.arch](f)
    if f.arch == "deepseek4":  # published files have one limit
        cls, config.swiglu_limit = cls.__mro__[1], 0.75
    if f.arch in SEEING:
        cls, config, state = whole_of(f.arch, config, state)
    if f.arch == "falcon-h1":
        with_multipliers(config, state)
    config._attn_implementation = "eager"
    model = cls(config).float().eval()
    state = {k: torch.from_numpy(np.ascontiguousarray(w)) for k, w in state.items()}
    if config.tie_word_embeddings:
        name = "model.language_model.embed_tokens.weight" if f.arch in SEEING else "model.embed_tokens.weight"
        state["lm_head.weight"] = state[name]
    known = model.state_dict()
    ahead = ahead_of(f, state)
    missing, _ = model.load_state_dict({k: v for k, v in state.items() if k in known}, strict=False)
    unread = ("rotary", ".visual.", ".vision_tower.", "_projector.", "_rate", "_decay")
    missing = [name for name in missing if not any(part in name for part in unread)]
    if missing:
        raise KeyError(f"missing {missing[:6]}")
    if f.arch in BARE:
        config.architectures = [BARE[f.arch]]
        config.save_pretrained(folder)
        save_file(state, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    else:
        model.save_pretrained(folder)
    save_tokenizer(folder)
    if ahead:
        path = os.path.join(folder, "model.safetensors")
        save_file(load_file(path) | ahead, path, {"format": "pt"})
    if kind:
        model = save_quantized(model, kind, folder)
    with torch.no_grad():
        return model(torch.tensor(tokens[None]), use_cache=False).logits[0].double().numpy()


def differences(reference, converted):
    a, b = ({t.name: np.array(t.data).reshape(t.shape[::-1]) for t in gguf.GGUFReader(path).tensors}
            for path in (reference, converted))
    file = witness.File(reference)
    for name in [n for n in a if ".attn_qkv." in n]:  # which the folder has as three
        rows = [b.pop(name.replace("qkv", c), None) for c in "qkv"]
        if all(r is not None for r in rows):
            b[name] = np.concatenate(rows)
    for one, other in ((a, b), (b, a)):  # which are one tensor in some files and two in others
        for name in [n for n in one if ".ffn_gate_up_exps." in n and n not in other]:
            for part, half in zip(("gate", "up"), np.split(one.pop(name), 2, axis=1)):
                one[name.replace("gate_up", part)] = half
    plus_one = file.arch in ("minimax-m3", "gemma", "nemotron", "gemma2", "gemma3", "qwen3next", "qwen35", "qwen35moe",
                             "step35")
    wrong = []
    for name, want in a.items():
        got = b.get(name)
        if got is None:  # biases that torch's model has not, and the frequencies that only such a file asks for
            extra = name == "rope_freqs.weight" or name.endswith(".bias")
            wrong += [] if extra else [f"{name} is missing"]
        elif want.shape != got.shape and not (name.endswith("attn_output_a.weight") and want.size == got.size):
            wrong.append(f"{name} is {got.shape}, not {want.shape}")
        elif not np.allclose(want, got.reshape(want.shape), rtol=0,
                             atol=1e-6 if name.endswith("ssm_a") or (plus_one and "norm" in name) else 0):
            wrong.append(f"{name} differs by {abs(want - got).max():.1e}")
    return wrong + [f"{name} is new" for name in b if name not in a]


def logits_of(aerie, path, ids):
    return subprocess.run([aerie, "bench", "logits", "-m", path, "--ids-file", ids], check=True, capture_output=True).stdout


def divergence(logits, want):
    got = np.frombuffer(logits, "<f4").reshape(want.shape[0], -1).astype(float)

    def log_softmax(x):
        x = x - x.max(1, keepdims=True)
        return x - np.log(np.exp(x).sum(1, keepdims=True))
    p, q = log_softmax(want), log_softmax(got)
    return (np.exp(p) * (p - q)).sum(1).mean()


def check(name, args, folder):
    reference, converted, ids = (os.path.join(folder, part) for part in ("ref.gguf", "new.gguf", "ids.txt"))
    saved = os.path.join(folder, "saved")
    tokens = np.random.default_rng(1).integers(0, 259, 64)
    kind, _, shape = name.rpartition(":")
    os.makedirs(saved, exist_ok=True)
    subprocess.run([args.mkarch, "--decoded", shape, reference], check=True)
    with open(ids, "w", encoding="utf-8") as f:
        f.write(" ".join(map(str, tokens)) + "\n")
    want = save_model(reference, saved, tokens, kind)
    command = [args.aerie, "convert", saved, "-o", converted, "--outtype", "f32", "--mtp", "-q"]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(run.stderr.strip())
    wrong = [] if kind else differences(reference, converted)
    logits = logits_of(args.aerie, converted, ids)
    kl = divergence(logits, want)
    same = kl > MAX_KL and not kind and logits == logits_of(args.aerie, reference, ids)
    remarks = (["as the file of the weights"] if same else []) + wrong[:4]
    print(f"{name}: KL {kl:.1e}{''.join(', ' + r for r in remarks)}", flush=True)
    return (kl <= MAX_KL or same) and not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("aerie")
    parser.add_argument("mkarch")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--keep", metavar="FOLDER", help="where the folders stay")
    args = parser.parse_args()
    if not args.names:
        listed = subprocess.run([args.mkarch, "--list"], check=True, capture_output=True, text=True).stdout.split()
        args.names = [n for n, arch in zip(listed[::2], listed[1::2]) if arch in witness.CASES] + QUANTIZED
    failed = 0
    for name in args.names:
        with tempfile.TemporaryDirectory() as temporary:
            try:
                failed += not check(name, args, os.path.join(args.keep, name) if args.keep else temporary)
            except Exception as wrong:  # one that fails says so and the others go on
                print(f"{name}: {type(wrong).__name__}: {wrong}", flush=True)
                failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
