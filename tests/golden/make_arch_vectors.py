#!/usr/bin/env python3
"""Logits of the models of tests/support/mkarch_table.c, from llama.cpp, for tests/golden/test_arch.c.

    make_arch_vectors.py --lib .../libllama.so --mkarch build/tests/mkarch [--out tests/golden/arch] [NAME...]

Loads the library by its C interface as of build 11434, October 2026 (others may have other parameter structures). Weights
are F32 (in place of quantized ones the numbers that they stand for), as is the KV cache; one thread, one batch of all rows, no
flash attention, no repacked weights. Each file NAME.bin holds, little-endian: u32 rows, u32 vocabulary, u64 FNV-1a of the model
file, i32 tokens [rows], then for each row the f32 value of one step and i16 steps [vocabulary].
Of encoders (bert, nomic-bert) the rows are the last layer's, filled up with zeros.
NAME.nextn.bin, of models with an MTP block that the library runs, holds its logits in the same way: for rows 1 to 95 at
their positions, each from its token and the hidden row of the trunk before it; nothing stands at position 0.
NAME.nextn.chained.bin, of some, holds those of the draft after each of these rows but the last: row 2 on, each from its
token and the block's own hidden row before it, by the second block where there is one.
Exit status 1 if the library refused a model; its message is printed.
"""
import argparse
import ctypes as C
import os
import struct
import subprocess
import sys
import tempfile

ROWS, VOCAB, N_CTX = 96, 264, 256
SOURCE = 40  # of the tokens, for encoder-decoders: what the others are written about


class ModelParams(C.Structure):
    _fields_ = [("devices", C.c_void_p), ("buft_overrides", C.c_void_p), ("n_gpu_layers", C.c_int32), ("split_mode", C.c_int),
                ("load_mode", C.c_int), ("lazy_mode", C.c_int),
                ("main_gpu", C.c_int32), ("tensor_split", C.c_void_p), ("progress", C.c_void_p), ("progress_data", C.c_void_p),
                ("kv_overrides", C.c_void_p), ("vocab_only", C.c_bool), ("check_tensors", C.c_bool),
                ("use_extra_bufts", C.c_bool), ("no_host", C.c_bool), ("no_alloc", C.c_bool), ("load_mtp", C.c_bool)]


class ContextParams(C.Structure):
    _fields_ = [("n_ctx", C.c_uint32), ("n_batch", C.c_uint32), ("n_ubatch", C.c_uint32), ("n_seq_max", C.c_uint32),
                ("n_rs_seq", C.c_uint32), ("n_outputs_max", C.c_uint32), ("n_outputs_max_per_seq", C.c_uint32),
                ("n_threads", C.c_int32), ("n_threads_batch", C.c_int32), ("ctx_type", C.c_int),
                ("rope_scaling_type", C.c_int), ("pooling_type", C.c_int), ("attention_type", C.c_int), ("flash_attn", C.c_int),
                ("rope_freq_base", C.c_float), ("rope_freq_scale", C.c_float), ("yarn_ext_factor", C.c_float),
                ("yarn_attn_factor", C.c_float), ("yarn_beta_fast", C.c_float), ("yarn_beta_slow", C.c_float),
                ("yarn_orig_ctx", C.c_uint32), ("defrag_thold", C.c_float), ("cb_eval", C.c_void_p), ("cb_data", C.c_void_p),
                ("type_k", C.c_int), ("type_v", C.c_int), ("abort", C.c_void_p), ("abort_data", C.c_void_p),
                ("embeddings", C.c_bool), ("offload_kqv", C.c_bool), ("no_perf", C.c_bool), ("op_offload", C.c_bool),
                ("swa_full", C.c_bool), ("kv_unified", C.c_bool), ("samplers", C.c_void_p), ("n_samplers", C.c_size_t),
                ("other", C.c_void_p)]


class Batch(C.Structure):
    _fields_ = [("n_tokens", C.c_int32), ("token", C.POINTER(C.c_int32)), ("embd", C.c_void_p), ("pos", C.POINTER(C.c_int32)),
                ("n_seq_id", C.POINTER(C.c_int32)), ("seq_id", C.POINTER(C.POINTER(C.c_int32))),
                ("logits", C.POINTER(C.c_int8))]


def load_library(path, log):
    os.environ["GGML_NO_BACKTRACE"] = "1"
    lib = C.CDLL(path)
    log_fn = C.CFUNCTYPE(None, C.c_int, C.c_char_p, C.c_void_p)
    lib.keep = log_fn(lambda level, text, _: log.append(text.decode(errors="replace")))
    lib.llama_log_set(lib.keep, None)
    lib.llama_model_default_params.restype = ModelParams
    lib.llama_context_default_params.restype = ContextParams
    lib.llama_model_load_from_file.restype = C.c_void_p
    lib.llama_model_load_from_file.argtypes = [C.c_char_p, ModelParams]
    lib.llama_init_from_model.restype = C.c_void_p
    lib.llama_init_from_model.argtypes = [C.c_void_p, ContextParams]
    lib.llama_decode.argtypes = [C.c_void_p, Batch]
    lib.llama_encode.argtypes = [C.c_void_p, Batch]
    lib.llama_set_embeddings.argtypes = [C.c_void_p, C.c_bool]
    for name in ("llama_model_has_encoder", "llama_model_has_decoder"):
        getattr(lib, name).argtypes, getattr(lib, name).restype = [C.c_void_p], C.c_bool
    lib.llama_model_n_embd.argtypes = [C.c_void_p]
    lib.llama_model_n_embd_out.argtypes = [C.c_void_p]
    lib.llama_get_memory.argtypes, lib.llama_get_memory.restype = [C.c_void_p], C.c_void_p
    lib.llama_memory_seq_rm.argtypes = [C.c_void_p, C.c_int32, C.c_int32, C.c_int32]
    lib.llama_memory_seq_rm.restype = C.c_bool
    lib.set_block = lib["_Z28llama_set_nextn_layer_offsetP13llama_contexti"]
    lib.set_block.argtypes, lib.set_block.restype = [C.c_void_p, C.c_int32], None
    lib.get_hidden = lib["_Z26llama_get_embeddings_nextnP13llama_context"]  # of llama-ext.h, which is C++
    lib.set_hidden = lib["_Z26llama_set_embeddings_nextnP13llama_contextbb"]
    lib.get_hidden.restype = C.POINTER(C.c_float)
    lib.get_hidden.argtypes = [C.c_void_p]
    lib.set_hidden.argtypes = [C.c_void_p, C.c_bool, C.c_bool]
    lib.set_hidden.restype = None
    for name in ("llama_get_logits", "llama_get_embeddings"):
        getattr(lib, name).restype = C.POINTER(C.c_float)
        getattr(lib, name).argtypes = [C.c_void_p]
    for name in ("llama_free", "llama_model_free"):
        getattr(lib, name).argtypes = [C.c_void_p]
        getattr(lib, name).restype = None
    lib.llama_backend_init()
    return lib


def text():
    """Random tokens; from row 40 on some of them again, so that attention and states have something to find."""
    state, tokens = 1, []
    for i in range(ROWS):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        tokens.append(tokens[i - 37] if 40 <= i < 56 or 70 <= i < 80 else (state >> 33) % (VOCAB - 3) + 3)
    return tokens


# Positions before the rows that count, of which the text is repeated: with blocks of 128, so that rows see some.
LEAD = {"deepseek4": 160}


# Architectures of whose MTP blocks the library has no graph.
NO_BLOCKS = ("bailingmoe2", "exaone-moe", "exaone4", "dots3note")
CHAINED = ("deepseek4-mtp", "mimo2-mtp", "step35-mtp", "qwen4exp-mtp")


def batch_of(tokens, first):
    n = len(tokens)
    seq = C.c_int32(0)
    return Batch(n, (C.c_int32 * n)(*tokens), None, (C.c_int32 * n)(*range(first, first + n)), (C.c_int32 * n)(*[1] * n),
                 (C.POINTER(C.c_int32) * n)(*[C.pointer(seq)] * n), (C.c_int8 * n)(*[1] * n))


def decode(lib, context, tokens, first, hidden=None):
    """Rows of consecutive positions in one batch; hidden: a row each, beside the token. Logits [rows][vocab], or None."""
    n, batch = len(tokens), batch_of(tokens, first)
    if hidden:
        flat = [x for row in hidden for x in row]
        values = (C.c_float * len(flat))(*flat)
        batch.embd = C.cast(values, C.c_void_p)
    if lib.llama_decode(context, batch) != 0:
        return None
    logits = lib.llama_get_logits(context)
    return [logits[i * VOCAB:(i + 1) * VOCAB] for i in range(n)] if logits else []


def embedded(lib, model, context, n):
    width = lib.llama_model_n_embd(model)
    values = lib.llama_get_embeddings(context)
    return [values[i * width:(i + 1) * width] + [0.0] * (VOCAB - width) for i in range(n)]


def cross(lib, model, context, tokens):
    """The encoder's rows; of a model with a decoder those of the first SOURCE tokens, then logits of the text after them."""
    n = SOURCE if lib.llama_model_has_decoder(model) else len(tokens)
    lib.llama_set_embeddings(context, True)
    if lib.llama_encode(context, batch_of(tokens[:n], 0)) != 0:
        return None
    rows = embedded(lib, model, context, n)
    lib.llama_set_embeddings(context, False)
    return rows + [list(row) for row in decode(lib, context, tokens[n:], 0)] if n < len(tokens) else rows


def blocks(lib, model, cp, tokens, hidden, n_blocks):
    """Logits of the first MTP block for all rows but the first, and of drafts after these; None if something is refused."""
    cp.ctx_type = 1
    width = len(hidden[0])
    first, second = lib.llama_init_from_model(model, cp), lib.llama_init_from_model(model, cp) if n_blocks > 1 else None
    if not first:
        return None, None
    ahead, chained, fed = [], [], []
    lib.set_hidden(first, True, False)
    for i in range(len(tokens) - 1):
        row = decode(lib, first, tokens[i + 1:i + 2], i + 1, hidden[i:i + 1])
        ahead += [list(row[0])]
        values = lib.get_hidden(first)
        fed.append(values[:width])
        if n_blocks == 1 and i + 2 < len(tokens):
            chained += [list(decode(lib, first, tokens[i + 2:i + 3], i + 2, fed[-1:])[0])]
            assert lib.llama_memory_seq_rm(lib.llama_get_memory(first), 0, i + 2, -1)
    if second:
        lib.set_block(second, 1)
        chained = decode(lib, second, tokens[2:], 2, fed[:-1])
        chained = [list(row) for row in chained]
        lib.llama_free(second)
    lib.llama_free(first)
    return ahead, chained


def run(lib, path, tokens, nextn, encoder):
    """Logits [rows][vocab] and, of nextn MTP blocks, those for all rows but the first and of drafts; None if something is
    refused."""
    params = lib.llama_model_default_params()
    params.n_gpu_layers, params.use_extra_bufts, params.load_mtp = 0, False, nextn > 0
    model = lib.llama_model_load_from_file(path.encode(), params)
    if not model:
        return None, None, None
    cp = lib.llama_context_default_params()
    cp.n_ctx = cp.n_batch = cp.n_ubatch = N_CTX
    cp.n_threads = cp.n_threads_batch = 1
    cp.flash_attn, cp.type_k, cp.type_v, cp.op_offload, cp.embeddings, cp.pooling_type = 0, 0, 0, False, encoder, 0
    context = lib.llama_init_from_model(model, cp)
    with open(path, "rb") as f:
        head = f.read(100)
    lead = max([n for arch, n in LEAD.items() if arch.encode() in head], default=0)
    crosses = context and lib.llama_model_has_encoder(model)
    rows = decode(lib, context, [tokens[i % ROWS] for i in range(lead)] + tokens, 0) if (
        context and not encoder and not crosses) else None
    rows = cross(lib, model, context, tokens) if crosses else rows and rows[lead:]
    if context and encoder:
        decode(lib, context, tokens, 0)
        rows = embedded(lib, model, context, len(tokens))
    ahead = chained = None
    if rows and nextn:
        width = lib.llama_model_n_embd_out(model)
        cp.embeddings = False
        trunk = lib.llama_init_from_model(model, cp)
        lib.set_hidden(trunk, True, False)
        decode(lib, trunk, tokens, 0)
        values = lib.get_hidden(trunk)
        hidden = [values[i * width:(i + 1) * width] for i in range(len(tokens))]
        lib.llama_free(trunk)
        ahead, chained = blocks(lib, model, cp, tokens, hidden, nextn)
    if context:
        lib.llama_free(context)
    lib.llama_model_free(model)
    return rows, ahead, chained


def fnv1a(data):
    h = 0xcbf29ce484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001b3 % 2**64
    return h


def write(path, tokens, rows, model_hash):
    out = bytearray(struct.pack("<IIQ", len(tokens), VOCAB, model_hash))
    out += struct.pack(f"<{len(tokens)}i", *tokens)
    for row in rows:
        step = max(abs(x) for x in row) / 32767
        out += struct.pack("<f", step)
        step = struct.unpack("<f", out[-4:])[0]
        out += struct.pack(f"<{VOCAB}h", *(max(-32767, min(32767, round(x / step))) for x in row))
    with open(path, "wb") as f:
        f.write(out)


def one(lib, name, arch, args, log):
    """A sentence about what went wrong, or None."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        subprocess.run([args.mkarch, "--decoded", name, path], check=True)
        tokens = text()
        with open(path, "rb") as f:
            data = f.read()
        key = f"{arch}.nextn_predict_layers".encode()
        at = data.find(key) + len(key) + 4
        nextn = struct.unpack_from("<I", data, at)[0] if key in data and arch not in NO_BLOCKS else 0
        rows, ahead, chained = run(lib, path, tokens, nextn, "bert" in arch or arch.endswith(("-embed", "-embedding")))
        if rows is None or (nextn and ahead is None):
            said = [line.strip() for line in log if "rror" in line or "fail" in line or "unsupported" in line]
            return " | ".join(said[-3:]) or "refused without a word"
        flat = [x for row in rows for x in row]
        if not all(abs(x) < 1e30 for x in flat):
            return "logits that are not finite"
        model_hash = fnv1a(data)
        write(os.path.join(args.out, name + ".bin"), tokens, rows, model_hash)
        if ahead:
            write(os.path.join(args.out, name + ".nextn.bin"), tokens[1:], ahead, model_hash)
        if name in CHAINED:
            write(os.path.join(args.out, name + ".nextn.chained.bin"), tokens[2:], chained, model_hash)
        spread = (sum(x * x for x in flat) / len(flat)) ** 0.5
        tops = len({max(range(VOCAB), key=row.__getitem__) for row in rows})
        print(f"{name}: spread {spread:.3f}, {tops} different best tokens")
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lib", required=True, help="libllama.so")
    parser.add_argument("--mkarch", default="build/tests/mkarch")
    parser.add_argument("--out", default="tests/golden/arch")
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all that mkarch lists")
    args = parser.parse_args()
    listed = subprocess.run([args.mkarch, "--list"], check=True, capture_output=True, text=True).stdout.split()
    archs = dict(zip(listed[::2], listed[1::2]))
    failed = 0
    for name in args.names or archs:
        sys.stdout.flush()
        child = os.fork()  # the library aborts on models that it does not support
        if child == 0:
            log = []
            wrong = one(load_library(args.lib, log), name, archs[name], args, log)
            if wrong:
                print(f"{name}: {wrong}")
            sys.stdout.flush()
            os._exit(1 if wrong else 0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status < 0:
            print(f"{name}: the library aborted")
        failed += status != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
