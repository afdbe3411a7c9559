#!/usr/bin/env python3
"""Compare our tokenizers with Python's `tokenizers`: whole vocabularies, and the words of the pre-tokenizers.

usage: check_tokenizers.py PROGRAM [--vocab FILE.gguf ...] [--megabytes N] [--texts FOLDER ...] [--families LIST] [--seed S]

PROGRAM is build/tests/tokenize_stream. N megabytes of text go through each vocabulary: pieces of the files below the folders,
as far as they reach, and at least a quarter of random text (tests/tokenizers/texts.py), and a tenth of that through each
family of pre-tokenizers. No difference is allowed. The packages are `tokenizers` and, with --vocab, `gguf`; exit status 77
without them.
"""
import argparse
import random
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(__import__("pathlib").Path(__file__).parent))
import texts  # noqa: E402

try:
    import numpy
    import families
except ImportError as e:
    print(f"skip: {e}")
    sys.exit(77)


class Ours:
    def __init__(self, program, *arguments):
        self.process = subprocess.Popen([program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, batch):
        """One array for each text (bytes); None where ours failed."""
        def write():
            for data in batch:
                self.process.stdin.write(struct.pack("=I", len(data)) + data)
            self.process.stdin.flush()
        writer = threading.Thread(target=write)
        writer.start()
        out = []
        for _ in batch:
            head = self.process.stdout.read(4)
            if len(head) < 4:
                raise SystemExit("the program ended")
            count = struct.unpack("=i", head)[0]
            out.append(None if count < 0 else numpy.frombuffer(self.process.stdout.read(4 * count), dtype="=i4"))
        writer.join()
        return out

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def ids(tokenizer):
    def run(batch):
        return [numpy.array(e.ids, dtype="=i4") for e in tokenizer.encode_batch(batch, add_special_tokens=False)]
    return run


def words(name):
    split = families.pre_tokenizer(name)

    def run(batch):
        out = []
        for text in batch:
            at, ends = 0, []
            for word, _ in split.pre_tokenize_str(text):
                at += len(word.encode())
                ends.append(at)
            out.append(numpy.array(ends, dtype="=i4"))
        return out
    return run


def source(args, n_bytes, wanted):
    """Texts of about n_bytes altogether."""
    done = 0
    for text in texts.files(args.texts, random.Random(args.seed)):
        if done >= 0.75 * n_bytes:
            break
        text = wanted(text)
        done += len(text.encode())
        yield text
    for text in texts.synthetic(args.seed, n_bytes - done):
        yield wanted(text)


def show(text, theirs, mine):
    data = text.encode()
    at = next((i for i, (a, b) in enumerate(zip(theirs, mine if mine is not None else [])) if a != b), 0)
    print(f"  text of {len(data)} bytes: {data[:60]!r}\n  differs at number {at}: {theirs[at:at + 8].tolist()}, "
          f"ours {mine[at:at + 8].tolist() if mine is not None else 'failed'}")


def compare(name, theirs, ours, stream):
    n_bytes = n_numbers = n_texts = n_wrong = 0
    start = time.time()
    batch, size = [], 0

    def flush():
        nonlocal n_bytes, n_numbers, n_texts, n_wrong, batch, size
        if not batch:
            return
        for text, a, b in zip(batch, theirs(batch), ours.run([t.encode() for t in batch])):
            n_texts += 1
            n_numbers += len(a)
            if b is None or len(a) != len(b) or (a != b).any():
                n_wrong += 1
                if n_wrong <= 5:
                    show(text, a, b)
        n_bytes += size
        batch, size = [], 0

    for text in stream:
        if not text:
            continue
        batch.append(text)
        size += len(text.encode())
        if size > 1 << 20:
            flush()
    flush()
    ours.close()
    print(f"{name}: {n_bytes / 1e6:.1f} MB, {n_texts} texts, {n_numbers} numbers, {n_wrong} texts differ "
          f"({time.time() - start:.0f} s)", flush=True)
    return n_wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--vocab", nargs="*", default=[])
    parser.add_argument("--texts", nargs="*", default=[])
    parser.add_argument("--families", default=",".join(families.FAMILIES))
    parser.add_argument("--megabytes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    wrong = 0
    n_bytes = args.megabytes * 1e6
    for path in args.vocab:
        tokenizer, name = families.load(path)
        wanted = texts.settled if name.startswith("wordpiece") else texts.assigned if name in families.BY_PATTERN else str
        wrong += compare(f"{path} ({name})", ids(tokenizer), Ours(args.program, path), source(args, n_bytes, wanted))
    for name in filter(None, args.families.split(",")):
        newer = families.DIGITS in families.FAMILIES[name]  # those of tokenizers are the newest Unicode's: 13 more than ours
        wanted = texts.assigned if name in families.BY_PATTERN or newer else str
        wrong += compare(f"words of {name}", words(name), Ours(args.program, "--words", name),
                         source(args, n_bytes / 10, wanted))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
