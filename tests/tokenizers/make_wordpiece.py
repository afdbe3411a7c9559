#!/usr/bin/env python3
"""Train a WordPiece vocabulary on texts and write it as GGUF, as BERT's are converted.

usage: make_wordpiece.py OUT.gguf [--cased] [--size N] [--megabytes N] [--texts FOLDER ...]
"""
import argparse
import random
import sys

sys.path.insert(0, str(__import__("pathlib").Path(__file__).parent))
import gguf  # noqa: E402
import texts  # noqa: E402
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers  # noqa: E402

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--texts", dest="folders", nargs="*", default=[])
    parser.add_argument("--cased", action="store_true")
    parser.add_argument("--size", type=int, default=20000)
    parser.add_argument("--megabytes", type=float, default=4)
    args = parser.parse_args()
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=not args.cased)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    def pieces():
        done = 0
        for text in texts.files(args.folders, random.Random(1)):
            done += len(text.encode())
            if done > args.megabytes * 1e6:
                return
            yield text
        yield from texts.synthetic(1, 200000)

    tokenizer.train_from_iterator(pieces(), trainers.WordPieceTrainer(vocab_size=args.size, special_tokens=SPECIAL,
                                                                      limit_alphabet=6000))
    tokens = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    writer = gguf.GGUFWriter(args.out, "bert")
    writer.add_tokenizer_model("bert")
    spelled = [t if t in SPECIAL else t[2:] if t.startswith("##") and t != "##" else "\u2581" + t for t, _ in tokens]
    writer.add_token_list(spelled)
    writer.add_token_types([gguf.TokenType.CONTROL if t in SPECIAL else gguf.TokenType.NORMAL for t, _ in tokens])
    writer.add_uint32("tokenizer.ggml.unknown_token_id", 1)
    writer.add_uint32("tokenizer.ggml.cls_token_id", 2)
    writer.add_uint32("tokenizer.ggml.seperator_token_id", 3)
    writer.add_uint32("tokenizer.ggml.padding_token_id", 0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    print(f"{args.out}: {len(tokens)} tokens")


if __name__ == "__main__":
    main()
