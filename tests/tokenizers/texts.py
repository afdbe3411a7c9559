"""Texts to tokenize: files of many languages, random code points, random bytes, and strings out of small, mean alphabets."""
import os
import random
import sys
import unicodedata

# Characters on both sides of every rule of the pre-tokenizers: spaces, newlines, apostrophes and what folds to letters after
# them, digits, letters with and without case, marks, punctuation, symbols, joiners, what looks like them, private and
# unassigned.
MEAN = [" ", " ", "  ", "\n", "\r", "\r\n", "\t", "\u000b", "\u00a0", "\u0085", "\u2003", "\u3000", "\u200b", "\u180e",
        "\ufeff", "'", "'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "'\u017f", "\u2019s", "a", "B", "sS",
        "\u00e9", "e\u0301", "\u01c5", "\u02b0", "\u00df", "\u0130", "\u4e2d", "\u65e5\u672c", "\u3042", "\u30ab", "\uac00",
        "\u0e01\u0e33", "\u0915\u094d\u0937", "\u0627\u0644", "\u05d0", "1", "23", "456", "7890", "\u0663", "\u2167",
        "\u00bd", "\u00b2", "_", "-", ".", ",", "!?", "...", "/", "//", "\\", "\"", "(", ")", "[", "{", "$", "+", "<", "=",
        ">", "^", "`", "|", "~", "\u3002", "\uff0c", "\u2026", "\u00a1", "\u20ac", "\u2603", "\U0001f600",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\ufe0f", "\u0301\u0308", "\u0000", "\u0001",
        "\u007f", "\ue000", "\U0010ffff", "\U000e0001", "\ufffd", "\u0378", "<|endoftext|>", "<|im_start|>", "<|im_end|>",
        "</s>", "<s>", "<unk>", "\u2581", "\u0120", "\u010a"]


def mean(rng, n):
    alphabet = rng.sample(MEAN, rng.randrange(1, 12)) if rng.random() < 0.5 else MEAN
    return "".join(rng.choice(alphabet) for _ in range(n))


def code_points(rng, n):
    """Scattered over all planes, or all of one block."""
    if rng.random() < 0.5:
        start = rng.choice(range(0, 0x110000, 128)) if rng.random() < 0.3 else rng.choice(range(0, 0x32000, 128))
        codes = [start + rng.randrange(128) for _ in range(n)]
    else:
        codes = [rng.randrange(0x110000) if rng.random() < 0.5 else rng.randrange(0x30000) for _ in range(n)]
    return "".join(chr(c) for c in codes if not 0xD800 <= c < 0xE000)


def lossy_bytes(rng, n):
    return rng.randbytes(n).decode("utf-8", errors="replace")


def assigned(text):
    """Without what this Python's Unicode does not know."""
    kept = {c for c in set(text) if unicodedata.category(c) != "Cn"}
    return "".join(c for c in text if c in kept)


OLD = unicodedata.ucd_3_2_0


def settled(text):
    """Only characters that are what they were in Unicode 3.2: WordPiece's normalizer in tokenizers has old tables."""
    kept = {c for c in set(text) if OLD.category(c) == unicodedata.category(c) != "Cn"}
    return "".join(c for c in text if c in kept)


def files(folders, rng, piece=1 << 16):
    """Pieces of the files below the folders, in random order; bytes that are not text are replaced."""
    paths = [os.path.join(at, name) for folder in folders for at, _, names in os.walk(folder) for name in names]
    paths = sorted(p for p in paths if os.path.isfile(p) and not os.path.islink(p))
    rng.shuffle(paths)
    for path in paths:
        with open(path, "rb") as f:
            data = f.read(1 << 22)
        magic = (b"\x89PNG", b"\xff\xd8", b"PK", b"\x1f\x8b", b"\x7fELF", b"%PDF", b"GIF8")
        if data.startswith(magic) or data[:4096].count(0) > 64:
            continue
        text = data.decode("utf-8", errors="replace")
        for i in range(0, len(text), piece):
            yield text[i:i + piece]


def synthetic(seed, n_bytes):
    """A third each of mean strings, code points and bytes."""
    rng = random.Random(seed)
    done = 0
    while done < n_bytes:
        for make in (mean, code_points, lossy_bytes):
            text = make(rng, rng.choice([1, 2, 3, 5, 8, 20, 100, 1000, 4000]))
            done += len(text.encode())
            yield text


if __name__ == "__main__":
    print(sum(len(t.encode()) for t in synthetic(1, int(sys.argv[1]))))
