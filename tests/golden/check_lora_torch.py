#!/usr/bin/env python3
"""Logits of models with LoRA adapters against those of the packages transformers and peft, in F32 on the CPU.

    check_lora_torch.py build/aerie build/tests/mkarch build/tests/mklora [NAME...]

Each model of check_arch_torch.py gets the weights of the file that mkarch writes, and two random adapters of mklora at once:
rank 8 with a scale of 1, and rank 6, of every second matrix 3, with a scale of -0.5. The mean KL divergence of aerie's logits
from torch's may be at most 1e-5, and the adapters must make a difference of at least 1e-3. Needs torch, transformers, gguf and
peft. Exit status 1 if one differs, 77 if a package is missing. (Models with experts are compared where no two experts come so
close that the f16 cache decides between them: hunyuan-moe is not.)
"""
import argparse
import copy
import os
import subprocess
import sys
import tempfile

import check_arch_torch as witness  # ends with 77 where a package is missing

try:
    import gguf
    import numpy as np
    import peft
    import torch
except ImportError as missing:
    print(f"skip: {missing}")
    sys.exit(77)

NAMES = ["llama", "llama-moe", "llama4", "mistral3", "qwen2", "qwen3", "qwen3moe", "qwen35", "gemma2", "gemma3", "gemma4",
         "glm4",
         "granite", "granitehybrid-moe", "gpt-oss", "olmo2", "cohere2", "starcoder2", "smollm3", "seed_oss", "hunyuan-dense",
         "exaone4", "ernie4_5"]
ADAPTERS = [(["--rank", "8", "--seed", "1"], 1.0), (["--rank", "6", "--seed", "2", "--uneven", "1"], -0.5)]
MAX_KL = 1e-5


def read_adapter(path, f):
    """alpha, {module: (A, B)}; rows of B as the published model has them."""
    reader = gguf.GGUFReader(path)
    tensors = {t.name: np.array(t.data, dtype=np.float32).reshape(t.shape[::-1]) for t in reader.tensors}
    modules = {}
    for name in (n.removesuffix(".lora_b") for n in tensors if n.endswith(".lora_b")):
        one = copy.copy(f)
        one.tensors = {name: tensors[name + ".lora_b"]}
        (to, b), = witness.CASES[f.arch](one)[2].items()
        modules[to.removesuffix(".weight")] = tensors[name + ".lora_a"], b
    return reader.fields["adapter.lora.alpha"].contents(), modules


def adapt(model, adapters, scales):
    """The same model with all of the adapters, as peft has them."""
    def config(alpha, modules):
        return peft.LoraConfig(r=8, lora_alpha=alpha, target_modules=list(modules), lora_dropout=0.0,
                               rank_pattern={"^" + name: len(a) for name, (a, _) in modules.items()})
    names = [f"a{i}" for i in range(len(adapters))]
    adapted = peft.get_peft_model(model, config(*adapters[0]), names[0])
    for name, adapter in list(zip(names, adapters))[1:]:
        adapted.add_adapter(name, config(*adapter))
    layers = dict(adapted.base_model.model.named_modules())
    for name, (alpha, modules), scale in zip(names, adapters, scales):
        for module, (a, b) in modules.items():
            layer = layers[module]
            layer.lora_A[name].weight.data.copy_(torch.from_numpy(a))
            layer.lora_B[name].weight.data.copy_(torch.from_numpy(np.ascontiguousarray(b)))
            assert layer.scaling[name] == alpha / len(a)
            layer.set_scale(name, scale)
    adapted.base_model.set_adapter(names)
    return adapted.eval()


def torch_model(f):
    cls, config, state = witness.CASES[f.arch](f)
    config._attn_implementation = "eager"
    model = cls(config).float().eval()
    state = {k: torch.from_numpy(np.ascontiguousarray(w)) for k, w in state.items()}
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    for name, w in state.items():  # biases that the published model has not, but files may have
        owner = dict(model.named_modules()).get(name.removesuffix(".bias"))
        if name.endswith(".bias") and isinstance(owner, torch.nn.Linear) and owner.bias is None:
            owner.bias = torch.nn.Parameter(w)
    if "rope_freqs.weight" in f.tensors:
        witness.divide_frequencies(model, torch.from_numpy(f.tensors["rope_freqs.weight"]))
    missing, unexpected = model.load_state_dict(state, strict=False)
    missing = [name for name in missing if "rotary" not in name]
    if missing or unexpected:
        raise KeyError(f"missing {missing[:6]}, unexpected {unexpected[:6]}")
    return model


def divergence(want, got):
    def log_softmax(x):
        x = x - x.max(1, keepdims=True)
        return x - np.log(np.exp(x).sum(1, keepdims=True))
    p, q = log_softmax(want), log_softmax(got)
    return (np.exp(p) * (p - q)).sum(1).mean()


def check(name, args, folder):
    path, ids = os.path.join(folder, "model.gguf"), os.path.join(folder, "ids.txt")
    files = [os.path.join(folder, f"adapter{i}.gguf") for i in range(len(ADAPTERS))]
    subprocess.run([args.mkarch, "--decoded", name, path], check=True)
    for file, (options, _) in zip(files, ADAPTERS):
        subprocess.run([args.mklora, *options, path, file], check=True)
    tokens = np.random.default_rng(1).integers(0, 259, 64)
    with open(ids, "w", encoding="utf-8") as out:
        out.write(" ".join(map(str, tokens)) + "\n")
    f = witness.File(path)
    model = torch_model(f)

    def theirs(m):
        with torch.no_grad():
            return m(torch.tensor(tokens[None]), use_cache=False).logits[0].double().numpy()

    def ours(*options):
        run = subprocess.run([args.aerie, "bench", "logits", "-m", path, "--ids-file", ids, *options], check=True,
                             capture_output=True)
        return np.frombuffer(run.stdout, "<f4").reshape(len(tokens), -1).astype(float)

    base = theirs(model)
    adapters = [read_adapter(file, f) for file in files]
    want = theirs(adapt(model, adapters, [scale for _, scale in ADAPTERS]))
    kl_base = divergence(base, ours())
    kl = divergence(want, ours("--lora-scaled", ",".join(f"{file}:{scale}" for file, (_, scale) in zip(files, ADAPTERS))))
    effect = divergence(base, want)
    print(f"{name}: KL {kl:.1e} with adapters of {len(adapters[0][1])} matrices, {kl_base:.1e} without; they make {effect:.2g}",
          flush=True)
    return kl <= MAX_KL and effect >= 1e-3


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("aerie")
    parser.add_argument("mkarch")
    parser.add_argument("mklora")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    failed = 0
    for name in args.names or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            try:
                failed += not check(name, args, folder)
            except Exception as wrong:  # one that fails says so and the others go on
                print(f"{name}: {type(wrong).__name__}: {wrong}", flush=True)
                failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
