#!/usr/bin/env python3
"""Logits of models of tests/support/mkarch_table.c with two LoRA adapters at once, from llama.cpp, for
tests/golden/test_arch.c.

    make_lora_vectors.py --lib .../libllama.so --mkarch build/tests/mkarch --mklora build/tests/mklora [--out tests/golden/arch]

As make_arch_vectors.py does it: F32 weights, F32 KV cache, one thread, one batch. The adapters are those of
tests/support/mklora.c:
rank 8 of seed 1 with a scale of 1, and rank 6 (every second 3) of seed 2 with a scale of -0.5. A file NAME.lora.bin has the
form of NAME.bin; its hash is that of the first adapter's file. (glm4 cannot be among them: that build of llama.cpp aborts on an
adapter of its ffn_down.)
"""
import argparse
import ctypes as C
import os
import subprocess
import sys
import tempfile

import make_arch_vectors as arch

NAMES = ["llama", "qwen2", "qwen3", "phi3", "gemma3", "llama-moe"]
ADAPTERS = [(["--rank", "8", "--seed", "1"], 1.0), (["--rank", "6", "--seed", "2", "--uneven", "1"], -0.5)]


def run(lib, path, adapters, tokens):
    params = lib.llama_model_default_params()
    params.n_gpu_layers, params.use_extra_bufts = 0, False
    model = lib.llama_model_load_from_file(path.encode(), params)
    loaded = [lib.llama_adapter_lora_init(model, a.encode()) for a in adapters] if model else []
    if not loaded or not all(loaded):
        return None
    cp = lib.llama_context_default_params()
    cp.n_ctx = cp.n_batch = cp.n_ubatch = arch.N_CTX
    cp.n_threads = cp.n_threads_batch = 1
    cp.flash_attn, cp.type_k, cp.type_v, cp.op_offload = 0, 0, 0, False
    context = lib.llama_init_from_model(model, cp)
    n = len(loaded)
    lib.llama_set_adapters_lora(context, (C.c_void_p * n)(*loaded), n, (C.c_float * n)(*[scale for _, scale in ADAPTERS]))
    return arch.decode(lib, context, tokens, 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lib", required=True, help="libllama.so")
    parser.add_argument("--mkarch", default="build/tests/mkarch")
    parser.add_argument("--mklora", default="build/tests/mklora")
    parser.add_argument("--out", default="tests/golden/arch")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    log = []
    lib = arch.load_library(args.lib, log)
    lib.llama_adapter_lora_init.restype = C.c_void_p
    lib.llama_adapter_lora_init.argtypes = [C.c_void_p, C.c_char_p]
    lib.llama_set_adapters_lora.argtypes = [C.c_void_p, C.POINTER(C.c_void_p), C.c_size_t, C.POINTER(C.c_float)]
    failed = 0
    for name in args.names or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.gguf")
            adapters = [os.path.join(folder, f"adapter{i}.gguf") for i in range(len(ADAPTERS))]
            subprocess.run([args.mkarch, name, path], check=True)
            for adapter, (options, _) in zip(adapters, ADAPTERS):
                subprocess.run([args.mklora, *options, path, adapter], check=True)
            tokens = arch.text()
            rows = run(lib, path, adapters, tokens)
            if rows is None:
                print(f"{name}: refused: {''.join(log[-3:])}")
                failed += 1
                continue
            with open(adapters[0], "rb") as f:
                arch.write(os.path.join(args.out, name + ".lora.bin"), tokens, rows, arch.fnv1a(f.read()))
            print(f"{name}: written")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
