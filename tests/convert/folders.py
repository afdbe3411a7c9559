"""Folders of models as they are published, written from the tensors of a GGUF file. Shapes have the slowest dimension first;
all numbers are F32. Needs Python alone. For check_classes.py; check_mmproj.py reads GGUF by it."""
import json
import os
import struct
from array import array
from math import prod


def read_gguf(path, raw=False):
    """Keys, and tensors as {name: (shape, array)}; integers of routing tables stay integers. raw: (shape, bytes, type)."""
    with open(path, "rb") as f:
        data = f.read()
    at = 24
    n_tensors, n_keys = struct.unpack_from("<QQ", data, 8)
    sizes = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def take(form):
        nonlocal at
        value = struct.unpack_from("<" + form, data, at)[0]
        at += struct.calcsize("<" + form)
        return value

    def text():
        nonlocal at
        n = take("Q")
        at += n
        return data[at - n:at].decode()

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            inner, n = take("I"), take("Q")
            return [value(inner) for _ in range(n)]
        return take(sizes[kind])
    keys = {}
    for _ in range(n_keys):
        name = text()
        keys[name] = value(take("I"))
    found = []
    for _ in range(n_tensors):
        name, shape = text(), [take("Q") for _ in range(take("I"))]
        found.append((name, shape[::-1], take("I"), take("Q")))
    start = -(-at // 32) * 32
    out = {}
    for name, shape, kind, offset in found:
        if raw:
            bits = {0: 32, 1: 16, 26: 32, 30: 16, 40: 4.5}[kind]
            out[name] = shape, data[start + offset:start + offset + int(prod(shape) * bits) // 8], kind
            continue
        assert kind in (0, 26), f"{name} is of type {kind}"
        values = array("f" if kind == 0 else "i")
        values.frombytes(data[start + offset:start + offset + 4 * prod(shape)])
        out[name] = (shape, values)
    return keys, out


def turned(t):
    """A matrix, or each of a stack, with rows and columns exchanged."""
    (*lead, rows, columns), x = t
    n = rows * columns
    out = array(x.typecode)
    for m in range(prod(lead)):
        for c in range(columns):
            out.extend(x[m * n + c:(m + 1) * n:columns])
    return [*lead, columns, rows], out


def rows_of(t, order):
    """The rows in this order."""
    width = prod(t[0][1:])
    out = array(t[1].typecode)
    for r in order:
        out.extend(t[1][r * width:(r + 1) * width])
    return [len(order), *t[0][1:]], out


def joined(*parts):
    """Along the first dimension."""
    out = array(parts[0][1].typecode)
    for p in parts:
        out.extend(p[1])
    return [sum(p[0][0] for p in parts), *parts[0][0][1:]], out


def layers_of(t):
    """The matrices of a stack."""
    return [(t[0][1:], t[1][i * prod(t[0][1:]):(i + 1) * prod(t[0][1:])]) for i in range(t[0][0])]


def changed(t, f):
    return t[0], array("f", [f(x) for x in t[1]])


def shaped(t, *shape):
    return list(shape), t[1]


def halves(t, heads, n_rot=None):
    """Rows (2i, 2i + 1) of what rotates of each head as i, i + half."""
    d = t[0][0] // heads
    n = n_rot or d
    return rows_of(t, [h * d + i for h in range(heads) for i in [*range(0, n, 2), *range(1, n, 2), *range(n, d)]])


def write_safetensors(path, tensors):
    """tensors: {name: (shape, array of floats or integers)}, or (shape, bytes, type)."""
    head, body = {}, bytearray()
    for name, (shape, values, *kind) in tensors.items():
        data = values if kind else values.tobytes()
        head[name] = {"dtype": kind[0] if kind else {"f": "F32", "i": "I32", "q": "I64"}[values.typecode], "shape": shape,
                      "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


def byte_letters():
    """The letters of bytes in byte-level BPE."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(b if b in own else 256 + [x for x in range(256) if x not in own].index(b)) for b in range(256)]


def tokenizer():
    vocab = {c: i for i, c in enumerate(sorted(byte_letters()))}
    merges = [["h", "e"], ["l", "l"], ["he", "ll"]]
    for a, b in merges:
        vocab[a + b] = len(vocab)
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    end = {"id": len(vocab), "content": "<|end|>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
           "special": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [end], "normalizer": None,
            "pre_tokenizer": level, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "vocab": vocab, "merges": merges}}


def sentencepiece(pieces, trainer=b"\x18\x02", normalizer=b"\x20\x00"):
    """A model of SentencePiece: BPE that keeps spaces. pieces: (text, score, type)."""
    def field(number, data):
        size, n = bytearray(), len(data)
        while n > 127:
            size.append(n & 127 | 128)
            n >>= 7
        return bytes([number << 3 | 2]) + bytes(size) + bytes([n]) + data
    out = b"".join(field(1, field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + bytes([24, kind]))
                   for text, score, kind in pieces)
    return out + field(2, trainer) + field(3, normalizer)


def usual_files():
    return {"tokenizer.json": json.dumps(tokenizer()), "tokenizer_config.json": json.dumps({"eos_token": "<|end|>"})}


def write_folder(folder, config, tensors, files=None):
    os.makedirs(folder, exist_ok=True)
    if tensors:
        write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
    for name, text in {**(usual_files() if files is None else files), "config.json": json.dumps(config)}.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(text if isinstance(text, bytes) else text.encode())
