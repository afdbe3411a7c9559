#!/usr/bin/env python3
"""Small Unigram, RWKV and PLaMo-2 vocabularies and their ids, for tests/golden/test_tokenizer_vectors.c.

    make_trie_vectors.py --tokenizer .../llama-tokenize [--out tests/golden/tokenizers]

Writes NAME.gguf, NAME.gguf.inp (texts separated by a marker line) and NAME.gguf.out (a line of ids for each, without BOS and
EOS, special tokens not parsed) for unigram, rwkv and plamo2. The Unigram model is trained by Python's sentencepiece on this
project's documents, with a map of characters of its own (a full one has 240 KB); its ids are sentencepiece's, and the script
says where llama.cpp's are others. RWKV's and PLaMo-2's vocabularies are frequent strings of the documents; their ids are
llama.cpp's, and RWKV's must also be those of the rule (the longest token at each place). Made with llama.cpp build 11434.
"""
import argparse
import collections
import io
import math
import pathlib
import random
import struct
import subprocess
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from make_gemma4_vectors import BYTE, CONTROL, NORMAL, ROOT, SEPARATOR, TONGUES, UNKNOWN, corpus, string

UNUSED = 5


def entry(key, kind, data):
    return string(key) + struct.pack("<I", kind) + data


def write_gguf(path, model, tokens, more):
    """tokens: (text as bytes, type, score)."""
    listed = b"".join(struct.pack("<Q", len(t)) + t for t, _, _ in tokens)
    entries = [entry("general.architecture", 8, string("llama")), entry("tokenizer.ggml.model", 8, string(model)),
               entry("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, len(tokens)) + listed),
               entry("tokenizer.ggml.token_type", 9,
                     struct.pack(f"<IQ{len(tokens)}i", 5, len(tokens), *(k for _, k, _ in tokens))),
               entry("tokenizer.ggml.scores", 9,
                     struct.pack(f"<IQ{len(tokens)}f", 6, len(tokens), *(s for _, _, s in tokens)))]
    entries += more
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries))


def flag(key, value):
    return entry("tokenizer.ggml." + key, 7, bytes([value]))


def number(key, value):
    return entry("tokenizer.ggml." + key, 4, struct.pack("<I", value))


def rules():
    """A map of characters like SentencePiece's nmt_nfkc, for the characters of the tests."""
    rules = {c: " " for c in ("\t", "\n", "\r", "\u00a0", "\u3000", "\u2003")}
    rules |= {c: "" for c in ("\u200b", "\x01", "\x7f")}
    rules |= {chr(0xFF01 + i): chr(0x21 + i) for i in range(94)}
    rules |= {"\ufb01": "fi", "\ufb03": "ffi", "\u00bd": "1\u20442", "\u2460": "1", "\ufdfa": "صلى الله عليه وسلم",
              "\u2026": "...", "e\u0301": "\u00e9", "u\u0308": "\u00fc", "a\u0323\u0302": "\u1ead", "a\u0323": "\u1ea1",
              "\u30ab\u3099": "\u30ac"}
    return rules


def unigram(out, text):
    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as tsv:
        for a, b in rules().items():
            tsv.write(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n")
        tsv.flush()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([line for line in text.split("\n") if line.strip()]), model_writer=model,
            model_type="unigram", vocab_size=900, normalization_rule_tsv=tsv.name, character_coverage=0.999,
            hard_vocab_limit=False,
            num_threads=1, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2)
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    charsmap = proto.normalizer_spec.precompiled_charsmap
    tokens = [(p.piece.encode(), p.type, p.score) for p in proto.pieces] + [(b"[PAD7]", UNUSED, -1000.0)]
    write_gguf(out, "t5", tokens, [
        flag("add_space_prefix", 1), flag("remove_extra_whitespaces", 1), flag("add_eos_token", 1),
        entry("tokenizer.ggml.precompiled_charsmap", 9, struct.pack("<IQ", 0, len(charsmap)) + charsmap)])
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return processor.encode


def frequent(text, n, longest):
    counts = collections.Counter(text[i:i + k] for k in range(2, longest + 1) for i in range(len(text) - k + 1))
    return sorted(sorted(counts, key=lambda s: (-counts[s] * len(s), s))[:n]), counts


def rwkv(out, text):
    data = text.encode()
    strings, _ = frequent(data, 700, 9)
    strings = [bytes([b]) for b in range(256)] + [s for s in strings if len(s) > 1]
    tokens = [(b"<s>", CONTROL, 0.0)] + [(repr(s)[2:-1].encode(), NORMAL, 0.0) for s in strings] + [(b"[PAD7]", UNUSED, 0.0)]
    write_gguf(out, "rwkv", tokens, [number("bos_token_id", 0), number("eos_token_id", 0)])
    known = {s: i + 1 for i, s in enumerate(strings)}

    def encode(text):
        ids, data, i = [], text.encode(), 0
        while i < len(data):
            n = next(n for n in range(9, 0, -1) if data[i:i + n] in known)
            ids.append(known[data[i:i + n]])
            i += n
        return ids
    return encode


def plamo2(out, text):
    strings, counts = frequent(text, 800, 10)
    strings += sorted(set(text) - {"7"})
    counts.update(text)
    tokens = [(b"<|plamo:unk|>", UNKNOWN, 0.0), (b"<|plamo:bos|>", CONTROL, 0.0), (b"<|plamo:eos|>", CONTROL, 0.0),
              (b"<|plamo:pad|>", CONTROL, 0.0), (b"<|plamo:op|>", CONTROL, 0.0)]
    tokens += [(f"<0x{b:02X}>".encode(), BYTE, 0.0) for b in range(256)]
    total = sum(counts.values())
    tokens += [(s.encode(), NORMAL, round(math.log(counts[s] / total), 3)) for s in strings]
    write_gguf(out, "plamo2", tokens, [number("bos_token_id", 1), number("eos_token_id", 2), flag("add_space_prefix", 0)])
    return None


def texts(text):
    rng = random.Random(3)
    out = ["", " ", "  ", "\t", "a", "7", "777 7", "\u00e9", "e\u0301", "🚀 7 🏳️\u200d🌈", "\r\n", "a\r\nb", "<s>", "</s>",
           "[PAD7]", "<0x41>", "\u3000x\u00a0y", "   leading", "trailing   ", "a  \t b",
           "\ufb03ne \ufb01 \u00bd\u2460 ＨＥＬＬＯ　７", "a\u0323\u0302 a\u0323 u\u0308\u0301", "カ\u3099カ\u3099",
           "\ufdfa\ufdfa", "\u2581a\u2581\u2581b", "\u200b \u200b", "x\u200by\u200b", "\ufeffx \ufeff", "…7…7", "<|plamo:unk|",
           "\x01\x7f", "n" * 40, "\ufffd"]
    out += ["\n" * n for n in (1, 2, 5)] + [" \n  \n\n   \n\n\n"] + TONGUES
    lines = [line for line in text.split("\n") if line]
    for _ in range(40):
        line = rng.choice(lines) + rng.choice(["\n", "\n\n\n", " ", "\t"]) + rng.choice(lines)
        begin = rng.randrange(len(line))
        out.append(line[begin:begin + rng.randrange(1, 160)])
    for _ in range(40):
        out.append("".join(rng.choice(" \n\u00e9ethanosrdl7,.中。ﾊ\ufb01\u0301ＡＢ\u2581") for _ in range(rng.randrange(1, 60))))
    return out


def theirs(program, path, text):
    if not text:
        return []
    done = subprocess.run([program, "-m", path, "--ids", "--stdin", "--no-bos", "--no-parse-special", "--log-disable"],
                          input=text.encode(), capture_output=True, check=True)
    return [int(i) for i in done.stdout.decode().strip().strip("[]").split(",") if i.strip()]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokenizer", help="without it only those whose ids are known otherwise")
    parser.add_argument("--out", default=str(ROOT / "tests/golden/tokenizers"))
    args = parser.parse_args()
    out, text = pathlib.Path(args.out), corpus()
    for name, make in (("unigram", unigram), ("rwkv", rwkv), ("plamo2", plamo2)):
        path = out / f"{name}.gguf"
        encode = make(path, text)
        # llama.cpp makes tokens of the texts of control and unused tokens; ours never does
        inputs = [t for t in texts(text) if name == "unigram" or t not in ("<s>", "[PAD7]")]
        lines = []
        if not encode and not args.tokenizer:
            path.unlink()
            continue
        for t in inputs:
            ids = encode(t) if encode else None
            other = theirs(args.tokenizer, path, t) if args.tokenizer else ids
            if ids is not None and ids != other:
                print(f"{name}: {t!r}\n  {ids}\n  llama.cpp {other}")
            lines.append(ids if ids is not None else other)
        (out / f"{name}.gguf.inp").write_text(SEPARATOR.join(inputs), newline="")
        (out / f"{name}.gguf.out").write_text("".join(" ".join(map(str, ids)) + "\n" for ids in lines))
        print(f"{name}: {len(inputs)} texts, {sum(map(len, lines))} ids, {path.stat().st_size} bytes")


main()
