#!/usr/bin/env python3
"""Scores of the models with decision heads of tests/support/mkarch_table.c, for tests/golden/test_decide.c.

    make_decision_vectors.py --mkarch build/tests/mkarch [--out tests/golden/decide] [NAME...]

Computes trunk and head in float64 (needs numpy and gguf), as llama.cpp's clef.cpp, qwen35.cpp and modern-bert.cpp of build
11434 define them. Each file NAME.bin holds, little-endian: u32 tokens n, u32 scores m, u64 FNV-1a of the model file, i32 tokens
[n], u8 spans [n] (as aerie_span), f64 scores [m]; where the text has an image: u32 first, u32 rows r, u32 columns, f32 rows
[r][width], which stand at positions [first, first + r), whose tokens are 0.
"""
import argparse
import os
import struct
import subprocess
import tempfile

import numpy as np

VOCAB = 264
NONE, NOUL, CHOICE, SCORE, OPTION = range(5)


class Model:
    def __init__(self, path):
        import gguf
        reader = gguf.GGUFReader(path)
        self.w = {t.name: np.array(t.data, np.float64).reshape([int(n) for n in t.shape][::-1]) for t in reader.tensors}
        self.w = {k: v.reshape(v.shape[-1]) if v.ndim > 1 and v.size == v.shape[-1] and "output.weight" not in k
                  and "scorer_out" not in k else v for k, v in self.w.items()}
        self.keys = {k: f.contents() for k, f in reader.fields.items()}
        self.arch = self.keys["general.architecture"]

    def key(self, name):
        return self.keys[f"{self.arch}.{name}"]


def fnv(path):
    state = 0xcbf29ce484222325
    for byte in open(path, "rb").read():
        state = ((state ^ byte) * 0x100000001b3) % 2**64
    return state


# ---- Parts ------------------------------------------------------------------------------------------------------------------

def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def erf(x):
    from math import erf as one
    return np.vectorize(one)(x)


def gelu(x):
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


def rms(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def layer_norm(x, w, b, eps):
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + eps) * w + (0 if b is None else b)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rotate(x, n_rot, base, places=None):
    """x [rows][heads][dim]: pairs (i, i + n_rot / 2) of the first n_rot values turn by the row's position; places [rows][half]:
    instead of it."""
    half = n_rot // 2
    angle = (np.arange(len(x))[:, None] if places is None else places) * base ** (-2.0 * np.arange(half) / n_rot)
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    y = x.copy()
    y[..., :half] = x[..., :half] * c - x[..., half:n_rot] * s
    y[..., half:n_rot] = x[..., half:n_rot] * c + x[..., :half] * s
    return y


# ---- Trunks -----------------------------------------------------------------------------------------------------------------

def delta_net(m, p, x, eps):
    w = m.w
    inner, dim = m.key("ssm.inner_size"), m.key("ssm.state_size")
    heads, groups, taps = m.key("ssm.time_step_rank"), m.key("ssm.group_count"), m.key("ssm.conv_kernel")
    value_dim = inner // heads
    qkv, z = x @ w[p + "attn_qkv.weight"].T, x @ w[p + "attn_gate.weight"].T
    beta = sigmoid(x @ w[p + "ssm_beta.weight"].T)
    decay = np.log1p(np.exp(x @ w[p + "ssm_alpha.weight"].T + w[p + "ssm_dt.bias"])) * w[p + "ssm_a"].reshape(-1)
    padded = np.vstack([np.zeros((taps - 1, qkv.shape[1])), qkv])
    conv = w[p + "ssm_conv1d.weight"]
    mixed = silu(sum(padded[k:k + len(x)] * conv[:, k] for k in range(taps)))
    q, k, v = np.split(mixed, [groups * dim, 2 * groups * dim], axis=1)
    q, k, v = q.reshape(-1, groups, dim), k.reshape(-1, groups, dim), v.reshape(-1, heads, value_dim)
    q, k = (t / np.sqrt((t * t).sum(-1, keepdims=True) + 1e-30) for t in (q, k))
    out = np.zeros((len(x), heads, value_dim))
    for h in range(heads):
        state = np.zeros((value_dim, dim))
        for r in range(len(x)):
            key, query = k[r, h % groups], q[r, h % groups] / np.sqrt(dim)
            state *= np.exp(decay[r, h])
            state += np.outer((v[r, h] - state @ key) * beta[r, h], key)
            out[r, h] = state @ query
    out = rms(out, w[p + "ssm_norm.weight"], eps) * silu(z.reshape(out.shape))
    return out.reshape(len(x), -1) @ w[p + "ssm_out.weight"].T


def places_of(m, n, image):
    """Positions by which pairs turn: a text's own, or time, height and width of an image's grid, whose sections alternate."""
    time = np.arange(n)
    height, width = time.copy(), time.copy()
    if image:
        first, rows, across = image["first"], len(image["rows"]), image["across"]
        cell = np.arange(rows)
        time[first:first + rows] = first
        height[first:first + rows], width[first:first + rows] = first + cell // across, first + cell % across
        for axis in (time, height, width): # the text goes on after the longer side
            axis[first + rows:] -= rows - max(across, rows // across)
    sections = m.key("rope.dimension_sections")
    axes = [height if i % 3 == 1 and i < 3 * sections[1] else width if i % 3 == 2 and i < 3 * sections[2] else time
            for i in range(m.key("rope.dimension_count") // 2)]
    return np.stack(axes, axis=1)


def gated_attention(m, p, x, eps, places):
    w = m.w
    heads, kv, dim = m.key("attention.head_count"), m.key("attention.head_count_kv"), m.key("attention.key_length")
    full = (x @ w[p + "attn_q.weight"].T).reshape(-1, heads, 2 * dim)
    q, gate = full[..., :dim], full[..., dim:]
    k, v = ((x @ w[p + f"attn_{n}.weight"].T).reshape(-1, kv, dim) for n in "kv")
    q, k = rms(q, w[p + "attn_q_norm.weight"], eps), rms(k, w[p + "attn_k_norm.weight"], eps)
    q, k = (rotate(t, m.key("rope.dimension_count"), m.key("rope.freq_base"), places) for t in (q, k))
    out = np.zeros_like(q)
    for h in range(heads):
        g = h // (heads // kv)
        score = q[:, h] @ k[:, g].T / np.sqrt(dim)
        score[np.triu_indices(len(x), 1)] = -np.inf
        out[:, h] = softmax(score) @ v[:, g]
    return (out * sigmoid(gate)).reshape(len(x), -1) @ w[p + "attn_output.weight"].T


def qwen35(m, tokens, image):
    w, eps = m.w, m.key("attention.layer_norm_rms_epsilon")
    x = w["token_embd.weight"][tokens]
    if image:
        x[image["first"]:image["first"] + len(image["rows"])] = image["rows"]
    places = places_of(m, len(x), image)
    for i in range(m.key("block_count")):
        p = f"blk.{i}."
        attends = (i + 1) % m.key("full_attention_interval") == 0
        y = rms(x, w[p + "attn_norm.weight"], eps)
        x = x + (gated_attention(m, p, y, eps, places) if attends else delta_net(m, p, y, eps))
        y = rms(x, w[p + "post_attention_norm.weight"], eps)
        x = x + (silu(y @ w[p + "ffn_gate.weight"].T) * (y @ w[p + "ffn_up.weight"].T)) @ w[p + "ffn_down.weight"].T
    return rms(x, w["output_norm.weight"], eps)


def modern_bert(m, tokens, n_layers):
    w, eps, heads = m.w, m.key("attention.layer_norm_epsilon"), m.key("attention.head_count")
    window = m.key("attention.sliding_window")
    x = layer_norm(w["token_embd.weight"][tokens], w["token_embd_norm.weight"], None, eps)
    far = np.abs(np.subtract.outer(np.arange(len(x)), np.arange(len(x)))) > window // 2
    for i in range(n_layers):
        p = f"blk.{i}."
        y = layer_norm(x, w[p + "attn_norm.weight"], None, eps) if i else x
        q, k, v = np.split((y @ w[p + "attn_qkv.weight"].T).reshape(len(x), 3 * heads, -1), 3, axis=1)
        q, k = (rotate(t, m.key("rope.dimension_count"), m.key("rope.freq_base")) for t in (q, k))
        out = np.zeros_like(q)
        for h in range(heads):
            score = q[:, h] @ k[:, h].T / np.sqrt(q.shape[-1])
            if i % 3: # the first of three layers sees everything
                score[far] = -np.inf
            out[:, h] = softmax(score) @ v[:, h]
        x = x + out.reshape(len(x), -1) @ w[p + "attn_output.weight"].T
        gate, up = np.split(layer_norm(x, w[p + "ffn_norm.weight"], None, eps) @ w[p + "ffn_up.weight"].T, 2, axis=1)
        gate = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
        x = x + (gate * up) @ w[p + "ffn_down.weight"].T
    return layer_norm(x, w["output_norm.weight"], None, eps)


# ---- Heads ------------------------------------------------------------------------------------------------------------------

def attend(x, y, q, k, v, o, n_heads):
    """Each of these is a pair of weights and bias."""
    q, k, v = (t @ pair[0].T + pair[1] for t, pair in ((x, q), (y, k), (y, v)))
    dim = q.shape[1] // n_heads
    out = np.zeros_like(q)
    for h in range(n_heads):
        part = slice(h * dim, (h + 1) * dim)
        out[:, part] = softmax(q[:, part] @ k[:, part].T / np.sqrt(dim)) @ v[:, part]
    return out @ o[0].T + o[1]


def runs(spans):
    """(kind, begin, end) of adjacent tokens of one kind."""
    at = 0
    while at < len(spans):
        end = at + 1
        while end < len(spans) and spans[end] == spans[at]:
            end += 1
        yield spans[at], at, end
        at = end


def joint(m, tokens, spans, rows):
    w, eps, n_heads = m.w, m.key("attention.layer_norm_epsilon"), m.key("decision.head_count")
    n_routing = m.key("decision.routing_block_count")
    pair = lambda name: (w[name + ".weight"], w[name + ".bias"])
    norm = lambda name, x: layer_norm(x, *pair(name), eps)
    hidden = norm("decision.hidden_norm", rows)
    memory, end = hidden @ w["decision.proj_memory.weight"].T, hidden[-1]
    questions, kinds, owner, context, words, options = [], [], [], [], [], []
    for kind, a, b in runs(spans):
        if NOUL <= kind <= SCORE:
            questions.append(hidden[a:b].mean(0))
            kinds.append(kind - NOUL)
        elif kind == OPTION:
            owner.append(len(questions) - 1)
            context.append(hidden[a:b].mean(0))
            words.append(w["output.weight"][tokens[a:b]].mean(0))
    questions, context, words = np.array(questions), np.array(context), np.array(words)
    options = context @ w["decision.proj_option_context.weight"].T + words @ w["decision.proj_option_lexical.weight"].T
    options = options + (questions @ w["decision.proj_option_question.weight"].T)[owner]
    attn = lambda i, name, x, y: attend(x, y, *(pair(f"dec.blk.{i}.{name}_{c}") for c in "qkvo"), n_heads)

    def ffn(i, x):
        up, down = pair(f"dec.blk.{i}.ffn_up"), pair(f"dec.blk.{i}.ffn_down")
        return gelu(norm(f"dec.blk.{i}.ffn_norm", x) @ up[0].T + up[1]) @ down[0].T + down[1]

    for i in range(n_routing):
        read = norm(f"dec.blk.{i}.cross_attn_norm_kv", memory)
        options = options + attn(i, "cross_attn", norm(f"dec.blk.{i}.cross_attn_norm", options), read)
        options = options + ffn(i, options)
    fields = questions @ w["decision.proj_question.weight"].T
    for q in range(len(fields)):
        own = options[np.array(owner) == q]
        summary = softmax(own @ fields[q] / np.sqrt(len(fields[q]))) @ own
        fields[q] += (norm("decision.option_summary_norm", summary) + w["decision.proj_global.weight"] @ end +
                      w["token_types.weight"][kinds[q]])
    for i in range(n_routing, n_routing + m.key("decision.block_count")):
        x = norm(f"dec.blk.{i}.attn_norm", fields)
        fields = fields + attn(i, "attn", x, x)
        fields = fields + attn(i, "cross_attn", norm(f"dec.blk.{i}.cross_attn_norm", fields), memory)
        fields = fields + ffn(i, fields)
    fields, options = norm("decision.field_norm", fields), norm("decision.option_norm", options)
    unit = lambda x: x / max(np.sqrt(x @ x), 1e-12)
    scores, scales = [], w["decision.scales"]
    for o, option in enumerate(options):
        field = fields[owner[o]]
        prior = unit(words[o]) @ unit(questions[owner[o]] + end)
        features = np.concatenate([field, option, field * option, np.abs(field - option)])
        scorer, out = pair("decision.scorer"), pair("decision.scorer_out")
        rest = (gelu(scorer[0] @ features + scorer[1]) @ out[0].reshape(-1) + out[1]).item()
        scores.append(scales[0] * prior + scales[2] * (scales[1] * (unit(field) @ unit(option)) + rest))
    return scores


def marks(m, spans, rows):
    w, eps, n_heads = m.w, m.key("attention.layer_norm_epsilon"), m.key("attention.head_count")
    column = {CHOICE: 0, SCORE: 1, NOUL: 2}[next(s for s in spans if NOUL <= s <= SCORE)]
    x = rows + w["token_types.weight"][column]
    first = m.key("block_count") - m.key("decision.block_count")
    for i in range(first, m.key("block_count")):
        p = f"blk.{i}."
        pair = lambda name: (w[p + name + ".weight"], w[p + name + ".bias"])
        y = layer_norm(x, *pair("attn_norm"), eps)
        q, k, v = zip(np.split(pair("attn_qkv")[0], 3), np.split(pair("attn_qkv")[1], 3))
        x = x + attend(y, y, q, k, v, pair("attn_output"), n_heads)
        y = layer_norm(x, *pair("ffn_norm"), eps)
        up, down = pair("ffn_up"), pair("ffn_down")
        x = x + np.maximum(y @ up[0].T + up[1], 0) @ down[0].T + down[1]
    x = layer_norm(x, w["cls.norm.weight"], w["cls.norm.bias"], eps)
    y = gelu(x @ w["cls.weight"].T + w["cls.bias"]) @ w["cls.output.weight"].reshape(-1) + w["cls.output.bias"]
    return [y[i].item() for i, span in enumerate(spans) if span == OPTION]


# ---- Texts ------------------------------------------------------------------------------------------------------------------

def text(n):
    state, tokens = 1, []
    for _ in range(n):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        tokens.append((state >> 33) % (VOCAB - 3) + 3)
    return tokens


JOINT = ([(NONE, 17), (CHOICE, 5)] + [(NONE, 2), (OPTION, 1), (NONE, 2), (OPTION, 4), (NONE, 2), (OPTION, 3), (NONE, 4)] +
         [(NOUL, 3), (NONE, 2), (OPTION, 2), (NONE, 1), (OPTION, 5), (NONE, 3)] +
         [(SCORE, 1), (OPTION, 2), (NONE, 1), (OPTION, 1), (NONE, 1), (OPTION, 2), (NONE, 1), (OPTION, 3), (NONE, 14)])
MARKS = [(SCORE, 9), (NONE, 1), (OPTION, 1), (NONE, 4), (OPTION, 1), (NONE, 2), (OPTION, 2), (NONE, 33)]


def grid(width):
    """An image of 2 x 3 rows after the first 5 tokens."""
    state, numbers = 7, []
    for _ in range(6 * width):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        numbers.append((state >> 40) / 2**23 - 1)
    return {"first": 5, "across": 3, "rows": np.array(numbers, np.float32).astype(np.float64).reshape(6, width)}


def write(name, arch, path, out):
    m = Model(path)
    spans = [kind for kind, n in (JOINT if arch == "clef" else MARKS) for _ in range(n)]
    image = grid(m.key("embedding_length")) if name == "clef-image" else None
    n_rows = len(image["rows"]) if image else 0
    tokens = text(len(spans))
    if image:
        tokens[image["first"]:image["first"]] = [0] * n_rows
        spans[image["first"]:image["first"]] = [NONE] * n_rows
    if arch == "clef":
        scores = joint(m, tokens, spans, qwen35(m, tokens, image))
    else:
        scores = marks(m, spans, modern_bert(m, tokens, m.key("block_count") - m.key("decision.block_count")))
    with open(os.path.join(out, name + ".bin"), "wb") as f:
        f.write(struct.pack("<IIQ", len(tokens), len(scores), fnv(path)))
        f.write(struct.pack(f"<{len(tokens)}i", *tokens) + bytes(spans) + struct.pack(f"<{len(scores)}d", *scores))
        if image:
            f.write(struct.pack("<III", image["first"], n_rows, image["across"]))
            f.write(image["rows"].astype("<f4").tobytes())
    print(f"{name}: {len(tokens)} positions, scores " + " ".join(f"{s:.6f}" for s in scores))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mkarch", required=True)
    parser.add_argument("--out", default="tests/golden/decide")
    parser.add_argument("names", nargs="*", default=["clef", "clef-image", "modern-bert-decides"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in args.names:
            path = os.path.join(folder, name + ".gguf")
            arch = name.removesuffix("-image")
            subprocess.run([args.mkarch, arch, path], check=True)
            write(name, arch, path, args.out)


if __name__ == "__main__":
    main()
