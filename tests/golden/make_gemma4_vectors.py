#!/usr/bin/env python3
"""A small vocabulary of Gemma 4's kind and ids by llama.cpp, for tests/golden/test_tokenizer_vectors.c.

    make_gemma4_vectors.py --lib .../libllama.so [--out tests/golden/tokenizers]

Writes gemma4.gguf (merges learned from this project's documents, whole lines at a time, so that tokens cross spaces),
gemma4.gguf.inp (texts separated by a marker line) and gemma4.gguf.out (a line of ids for each, without BOS, special tokens not
parsed). Uses the library's C interface as of build 9370, commit e8ddf01ed.
"""
import argparse
import collections
import ctypes as C
import pathlib
import random
import struct

from make_arch_vectors import load_library

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEPARATOR = "\n__ggml_vocab_test__\n"
N_MERGES = 900
NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6
TONGUES = ["Sehr geehrte Damen und Herren, vielen Dank für Ihre Nachricht.", "Книга лежит на столе рядом с окном.",
           "今天天气很好，我们去公园散步。", "昨日は雨でしたが、今日は晴れています。", "الطقس جميل اليوم.",
           "Mañana por la mañana iremos al mercado."]


def corpus():
    text = "\n".join((ROOT / name).read_text() for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"))
    return text + "\n" + "\n".join(TONGUES * 3)


def learn(text):
    """Plain byte-pair merging of characters, line by line."""
    lines = [list(line.replace(" ", "\u2581")) for line in text.split("\n")]
    merges = [("\n", "\n"), ("\n\n", "\n\n")]
    for _ in range(N_MERGES):
        counts = collections.Counter(pair for line in lines for pair in zip(line, line[1:]))
        pair = max(counts, key=lambda p: (counts[p], p))
        merges.append(pair)
        for line in lines:
            i = 0
            while i + 1 < len(line):
                if (line[i], line[i + 1]) == pair:
                    line[i:i + 2] = ["".join(pair)]
                i += 1
    return merges


def vocabulary(text):
    merges = learn(text)
    tokens = [("<pad>", CONTROL), ("<eos>", CONTROL), ("<bos>", CONTROL), ("<unk>", UNKNOWN), ("<turn|>", CONTROL),
              ("<|tool_call>", USER), ("<|tool_response>", USER)]
    tokens += [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    # without tokens: the digit 7, and all that the texts do not have
    tokens += [(c, NORMAL) for c in sorted(set(text.replace(" ", "\u2581")) - {"7"})]
    tokens += [("\n" * n, NORMAL) for n in (3, 5, 6, 7)]  # which merges do not make
    # Merges on the way to others, no tokens themselves; the bytes of a marked space would not print as a space.
    skipped = set(random.Random(1).sample([i for i, pair in enumerate(merges) if "\u2581" not in "".join(pair)], 30))
    known = {t for t, _ in tokens}
    for i, pair in enumerate(merges):
        token = "".join(pair)
        if i not in skipped and token not in known:
            known.add(token)
            tokens.append((token, NORMAL))
    return tokens, merges


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def write_gguf(path, tokens, merges):
    def entry(key, kind, data):
        return string(key) + struct.pack("<I", kind) + data

    def strings(key, items):
        return entry(key, 9, struct.pack("<IQ", 8, len(items)) + b"".join(map(string, items)))

    entries = [entry("general.architecture", 8, string("gemma4")), entry("tokenizer.ggml.model", 8, string("gemma4")),
               strings("tokenizer.ggml.tokens", [t for t, _ in tokens]),
               entry("tokenizer.ggml.token_type", 9, struct.pack(f"<IQ{len(tokens)}i", 5, len(tokens),
                                                                 *(k for _, k in tokens))),
               entry("tokenizer.ggml.scores", 9, struct.pack(f"<IQ{len(tokens)}f", 6, len(tokens), *range(len(tokens)))),
               strings("tokenizer.ggml.merges", [" ".join(pair) for pair in merges])]
    entries += [entry(f"tokenizer.ggml.{name}_token_id", 4, struct.pack("<I", i))
                for i, name in enumerate(("padding", "eos", "bos", "unknown"))]
    entries.append(entry("tokenizer.ggml.add_bos_token", 7, b"\x01"))
    entries.append(entry("tokenizer.ggml.add_space_prefix", 7, b"\x00"))
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries))


def texts(text):
    rng = random.Random(2)
    out = ["", " ", "  ", "\t", "a", "7", "777 7", "\u00e9", "e\u0301", "🚀 7 🏳️‍🌈", "\r\n", "a\r\nb", "<bos>", "<turn|>x",
           "<|tool_call>",
           "a <|tool_call>{} <|tool_response>\n\n\nb", "<0x41>", "</s>", "\u3000x\u00a0y", "   leading", "trailing   "]
    out += ["\n" * n for n in range(1, 18)] + ["x" + "\n" * n + "  y" for n in (1, 3, 9)] + [" \n  \n\n   \n\n\n"]
    out += TONGUES
    lines = [line for line in text.split("\n") if line]
    for _ in range(30):  # pieces of the text, cut anywhere
        line = rng.choice(lines) + rng.choice(["\n", "\n\n\n", " ", "\t"]) + rng.choice(lines)
        begin = rng.randrange(len(line))
        out.append(line[begin:begin + rng.randrange(1, 120)])
    for _ in range(30):
        out.append("".join(rng.choice(" \n\u00e9ethanosrdl7,.中。") for _ in range(rng.randrange(1, 60))))
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lib", required=True)
    parser.add_argument("--out", default=str(ROOT / "tests/golden/tokenizers"))
    args = parser.parse_args()
    out, text = pathlib.Path(args.out), corpus()
    out.mkdir(exist_ok=True)
    write_gguf(out / "gemma4.gguf", *vocabulary(text))
    log = []
    lib = load_library(args.lib, log)
    params = lib.llama_model_default_params()
    params.vocab_only = True
    model = lib.llama_model_load_from_file(str(out / "gemma4.gguf").encode(), params)
    if not model:
        raise SystemExit("".join(log))
    lib.llama_model_get_vocab.restype = C.c_void_p
    lib.llama_model_get_vocab.argtypes = [C.c_void_p]
    lib.llama_tokenize.argtypes = [C.c_void_p, C.c_char_p, C.c_int32, C.POINTER(C.c_int32), C.c_int32, C.c_bool, C.c_bool]
    vocab = lib.llama_model_get_vocab(model)
    all_texts, lines = texts(text), []
    for sample in all_texts:
        data = sample.encode()
        ids = (C.c_int32 * (len(data) + 8))()
        n = lib.llama_tokenize(vocab, data, len(data), ids, len(ids), False, False)
        assert n >= 0
        lines.append(" ".join(str(i) for i in ids[:n]))
    (out / "gemma4.gguf.inp").write_bytes(SEPARATOR.join(all_texts).encode())
    (out / "gemma4.gguf.out").write_text("".join(line + "\n" for line in lines))
    print(len(all_texts), "texts")


if __name__ == "__main__":
    main()
