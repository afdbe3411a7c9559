"""Reads the files of `aerie train-data features` (app/train/train_record.c describes the format).

Owns: the index of a features file; rows are mapped, not read. A torn last record is left out.
"""
import struct
from dataclasses import dataclass

import numpy as np

MAGIC = b"AEFEAT01"
HEADER = 64


def common_prefix(items):
    """Returns the number of ids with which all arrays begin."""
    first = items[0]
    n = min(len(x) for x in items)
    for x in items:
        differs = np.flatnonzero(x[:n] != first[:n])
        if len(differs):
            n = int(differs[0])
    return n


@dataclass
class Conversation:
    id: str
    n_prompt: int
    tokens: np.ndarray    # i32 [n]
    likely: np.ndarray    # i32 [n, n_likely]: likeliest next tokens, best first
    log_p: np.ndarray     # f32 [n, n_likely]
    features: np.ndarray  # f16 [n, n_taps, n_embd]

    def __len__(self):
        return len(self.tokens)


class FeatureFile:
    """A sequence of conversations."""

    def __init__(self, path):
        self.path = path
        self.data = np.memmap(path, dtype=np.uint8, mode="r")
        if len(self.data) < HEADER or bytes(self.data[:8]) != MAGIC:
            raise SystemExit(f"{path}: not a file of 'aerie train-data features'")
        fields = struct.unpack("<4I8I", bytes(self.data[8:56]))
        self.n_embd, self.n_taps, self.n_likely, self.n_vocab = fields[:4]
        self.taps = list(fields[4:4 + self.n_taps])
        self.index = []  # (offset of the tokens, n_tokens, n_prompt, id)
        self.end = HEADER
        self.scan()

    def scan(self):
        """Reads the records that were written since the last call."""
        self.data = np.memmap(self.path, dtype=np.uint8, mode="r")
        at = self.end
        while at + 16 <= len(self.data):
            n, n_prompt, n_id, _ = struct.unpack("<4I", bytes(self.data[at:at + 16]))
            start = at + 16 + (n_id + 3) // 4 * 4
            end = start + n * (4 + self.n_likely * 8 + self.n_taps * self.n_embd * 2)
            if end > len(self.data):
                break
            self.index.append((start, n, n_prompt, bytes(self.data[at + 16:at + 16 + n_id]).decode()))
            self.end = at = end

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        at, n, n_prompt, name = self.index[i]

        def take(dtype, *shape):
            nonlocal at
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            part = self.data[at:at + size].view(dtype).reshape(shape)
            at += size
            return part
        return Conversation(name, n_prompt, take(np.int32, n), take(np.int32, n, self.n_likely),
                            take(np.float32, n, self.n_likely),
                            take(np.float16, n, self.n_taps, self.n_embd))


class Corpus:
    """Several feature files of one target as one sequence, with the taps that all of them have."""

    def __init__(self, paths):
        self.files = [FeatureFile(p) for p in paths]
        first = self.files[0]
        self.taps = [t for t in first.taps if all(t in f.taps for f in self.files)]
        for f in self.files[1:]:
            if (f.n_embd, f.n_likely, f.n_vocab) != (first.n_embd, first.n_likely, first.n_vocab) or not self.taps:
                raise SystemExit(f"{f.path}: other taps or another target than {first.path}")
        self.n_embd, self.n_likely, self.n_vocab = first.n_embd, first.n_likely, first.n_vocab
        self.scan()

    def scan(self):
        """Reads the new records of all files; places of conversations may change."""
        for f in self.files:
            f.scan()
        self.where = [(f, i) for f in self.files for i in range(len(f))]

    def __len__(self):
        return len(self.where)

    def __getitem__(self, i):
        f, k = self.where[i]
        conversation = f[k]
        if f.taps != self.taps:
            conversation.features = conversation.features[:, [f.taps.index(t) for t in self.taps]]
        return conversation

    def size(self, i):
        """(n_tokens, n_prompt, id) without touching the rows."""
        f, k = self.where[i]
        return f.index[k][1:]


def count_tokens(answers, n_vocab):
    """[n_vocab] how often the answers (arrays of ids) use each id."""
    counts = np.zeros(n_vocab, dtype=np.int64)
    for tokens in answers:
        counts += np.bincount(np.asarray(tokens, dtype=np.int64), minlength=n_vocab)
    return counts


def draft_vocabulary(counts, size, also=()):
    """The `size` ids that are used most, ascending, and the share of all uses that they cover.

    also: ids that belong in whatever their count, such as what ends an answer.
    """
    ranked = counts.astype(np.float64)
    ranked[list(also)] = np.inf
    ranked = np.argsort(-ranked, kind="stable")[:size]  # unseen ids in ascending order: often by frequency
    return np.sort(ranked).astype(np.int64), counts[ranked].sum() / max(counts.sum(), 1)
