#!/usr/bin/env python3
"""quality.py: how far an engine's logits are from float arithmetic on the same weights.

Owns: the measure behind the sentence "on a text of at least 20,000 tokens, the KL
divergence of our logits from float arithmetic on the dequantized weights is at most that of
llama.cpp measured the same way, and perplexities agree within 0.5%". It holds its own
forward pass of the llama architecture in numpy (no code shared with any engine), so that the
yardstick is neither ours nor the peer's. It does not tokenize and does not measure speed.

    quality.py corpus -o text.txt                       a text, the same on every like system
    quality.py ids --text text.txt --tokenizer CMD -o ids.txt      cut into windows of ids
    quality.py run -m MODEL --ids ids.txt --engine NAME=CMD ...    the comparison
    quality.py dequantize -m MODEL -o f32.gguf          the same model, every tensor F32

What is compared. The text is cut into windows (512 ids) that do not overlap; each window
is evaluated alone from position 0. At every position the engine's next-token distribution
q is held against the reference's p: KL(p || q) in nats, and whether the two agree on the
likeliest token. Perplexity is that of token i+1 given tokens 0..i, all but the last position
of each window. Standard errors take the window as the unit, because positions in one window
are not independent. With two engines or more, the difference to the first is given with the
standard error of the paired difference, which is far smaller than that of either mean.

Engines are commands. `--engine NAME=CMD`: CMD is split as a shell would, `{ids}` in it is
replaced by the path of the ids file; without `{ids}` the path is appended. The command writes
to standard output, for each window in order and each position in it, one row of n_vocab
float32 (little endian) logits, and nothing else. `--engine NAME=@FILE` reads the same bytes
from a file. For example:

    --engine 'aerie=aerie bench logits -m model.gguf --ids-file'

Ids file: text, one window a line, decimal ids separated by spaces; empty lines ignored.
Tokenizer (for `ids`): a command given the text's path in the same way ({text} or appended)
that prints all ids, separated by white space, with nothing else on standard output.

The reference: weights dequantized by the `gguf` package; matrix products in float32 (float64
by --reference-precision), norms, rotary angles, softmax and everything after the logits in
float64. Interleaved ("NORM") rotary pairs, grouped-query attention, SwiGLU, as GGUF files of
architecture "llama" define them (llama.cpp, src/models/llama.cpp; GGUF's docs). --cache keeps
the reference logits (4 * n_vocab bytes a token), bound to the model, ids and precision by hash.

`--check OURS:PEER` turns the sentence above into an exit status: the mean KL of OURS is at most
that of PEER, the perplexities of the two agree within --ppl-tolerance, and at least --min-tokens
were compared.

Exit status: 0 done (and every check passed), 1 a run or a check failed, 2 wrong command
line, 3 a file is unusable. Needs Python 3.9, numpy and gguf (both from PyPI).
"""

import argparse
import ast
import hashlib
import json
import math
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import time

try:
    import numpy as np
except ImportError:
    sys.exit("quality.py: numpy is missing; install it with: pip install numpy gguf")

CHUNK = 64  # rows handled at a time in float64, so that memory stays small


class Fail(Exception):
    """An error with a sentence for the user and an exit status."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


def note(text):
    print(f"quality.py: {text}", file=sys.stderr, flush=True)


# ---------------------------------------------------------------- corpus and ids

LICENSES = ["Apache-2.0", "Artistic", "GFDL-1.3", "GPL-3", "MPL-2.0"]
MODULES = [
    "argparse", "bisect", "calendar", "collections", "contextlib", "csv", "datetime",
    "decimal", "difflib", "email/message", "fractions", "functools", "heapq", "http/cookiejar",
    "inspect", "ipaddress", "logging", "optparse", "os", "pathlib", "pickletools", "random",
    "shutil", "statistics", "string", "subprocess", "tarfile", "textwrap", "threading",
    "turtle", "typing", "unittest/case", "urllib/parse", "zipfile",
]


def docstrings(path):
    """Every docstring of a module, in source order."""
    with open(path, encoding="utf-8") as f:
        tree = ast.parse(f.read())
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [n for n in ast.walk(tree) if isinstance(n, kinds) and ast.get_docstring(n)]
    nodes.sort(key=lambda n: getattr(n, "lineno", 0))
    return "\n\n".join(ast.get_docstring(n) for n in nodes)


def make_corpus(license_dir, each_license, each_module):
    parts, missing = [], []
    stdlib = sysconfig.get_paths()["stdlib"]
    for name in LICENSES:
        path = os.path.join(license_dir, name)
        try:
            with open(path, encoding="utf-8") as f:
                parts.append(f.read()[:each_license])
        except OSError:
            missing.append(name)
    for name in MODULES:
        found = [p for p in (os.path.join(stdlib, name + ".py"), os.path.join(stdlib, name, "__init__.py"))
                 if os.path.exists(p)]
        if found:
            parts.append(docstrings(found[0])[:each_module])
        else:
            missing.append(name)
    if missing:
        note("not on this system, left out of the text: " + ", ".join(missing))
    return "\n\n".join(p.strip() for p in parts) + "\n"


def cmd_corpus(args):
    text = make_corpus(args.license_dir, args.each_license, args.each_module)
    with open_out(args.output, "w", encoding="utf-8", newline="\n") as f:
        f.write(text)
    digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
    note(f"{args.output}: {len(text)} characters, sha256 {digest}")


def open_out(path, mode, **kw):
    try:
        return open(path, mode, **kw)
    except OSError as e:
        raise Fail(3, f"cannot write '{path}': {e.strerror}") from e


def split_command(text, key, path):
    try:
        words = shlex.split(text)
    except ValueError as e:
        raise Fail(2, f"cannot split the command '{text}': {e}") from e
    if not words:
        raise Fail(2, "an empty command was given")
    mark = "{" + key + "}"
    if any(mark in w for w in words):
        return [w.replace(mark, path) for w in words]
    return words + [path]


def cmd_ids(args):
    if not os.path.isfile(args.text):
        raise Fail(3, f"no such text: '{args.text}'")
    command = split_command(args.tokenizer, "text", args.text)
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    except OSError as e:
        raise Fail(1, f"cannot run the tokenizer '{command[0]}': {e.strerror}") from e
    if done.returncode != 0:
        raise Fail(1, f"the tokenizer '{command[0]}' ended with status {done.returncode}")
    try:
        ids = [int(w) for w in done.stdout.split()]
    except ValueError as e:
        raise Fail(1, f"the tokenizer printed something that is not an id: {e}") from e
    n = len(ids) // args.window
    if args.max_windows:
        n = min(n, args.max_windows)
    if n == 0:
        raise Fail(1, f"{len(ids)} tokens are fewer than one window of {args.window}")
    with open_out(args.output, "w", encoding="ascii") as f:
        for i in range(n):
            f.write(" ".join(map(str, ids[i * args.window:(i + 1) * args.window])) + "\n")
    note(f"{args.output}: {n} windows of {args.window} = {n * args.window} of {len(ids)} tokens")


def read_ids(path, n_vocab):
    windows = []
    try:
        with open(path, encoding="ascii") as f:
            for number, line in enumerate(f, 1):
                ids = [int(w) for w in line.split()]
                if not ids:
                    continue
                if min(ids) < 0 or max(ids) >= n_vocab:
                    raise Fail(3, f"'{path}' line {number}: an id is outside 0..{n_vocab - 1}")
                if len(ids) < 2:
                    raise Fail(3, f"'{path}' line {number}: a window needs two ids or more")
                windows.append(np.array(ids, dtype=np.int64))
    except OSError as e:
        raise Fail(3, f"cannot read '{path}': {e.strerror}") from e
    except ValueError as e:
        raise Fail(3, f"'{path}' line {number}: not a list of ids ({e})") from e
    if not windows:
        raise Fail(3, f"'{path}' holds no ids")
    return windows


# ---------------------------------------------------------------- the reference

def gguf_module():
    try:
        import gguf
        import gguf.quants
    except ImportError as e:
        raise Fail(1, "the Python package 'gguf' is missing; install it with: pip install gguf") from e
    return gguf


def open_model(path):
    gguf = gguf_module()
    if not os.path.isfile(path):
        raise Fail(3, f"no such model: '{path}'")
    try:
        return gguf.GGUFReader(path)
    except Exception as e:  # the reader raises many kinds on a bad file
        raise Fail(3, f"'{path}' is not a readable GGUF file: {e}") from e


class Llama:
    """Float forward pass of a GGUF model of architecture "llama"; one window per call."""

    def __init__(self, path, dtype):
        self.gguf, self.reader, self.dtype = gguf_module(), open_model(path), dtype
        arch = self.get("general.architecture")
        if arch != "llama":
            raise Fail(3, f"'{path}' has architecture '{arch}'; the reference knows 'llama' only")
        if self.get("llama.expert_count", 0):
            raise Fail(3, f"'{path}' is a mixture of experts; the reference knows dense models only")
        if self.get("llama.rope.scaling.type", "none") != "none":
            raise Fail(3, f"'{path}' scales its rotary positions; the reference does not know that")
        self.n_layer = self.get("llama.block_count")
        self.n_embd = self.get("llama.embedding_length")
        self.n_head = self.get("llama.attention.head_count")
        self.n_kv = self.get("llama.attention.head_count_kv", self.n_head)
        self.d_head = self.get("llama.attention.key_length", self.n_embd // self.n_head)
        self.n_rot = self.get("llama.rope.dimension_count", self.d_head)
        self.base = self.get("llama.rope.freq_base", 10000.0)
        self.eps = self.get("llama.attention.layer_norm_rms_epsilon")
        self.tensors = {t.name: t for t in self.reader.tensors}
        known = ("token_embd.weight", "output.weight", "output_norm.weight", "rope_freqs.weight")
        parts = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output",
                 "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
        for name in self.tensors:
            if name not in known and not (name.startswith("blk.") and name.split(".")[2] in parts
                                          and name.split(".")[3] in ("weight", "bias")):
                raise Fail(3, f"'{path}' has a tensor '{name}' that the reference does not know")
        self.embd = self.load("token_embd.weight")
        self.out = self.load("output.weight", self.embd)
        self.out_norm = self.load("output_norm.weight")
        self.layers = [{p: (self.load(f"blk.{i}.{p}.weight"), self.load(f"blk.{i}.{p}.bias", False))
                        for p in parts} for i in range(self.n_layer)]
        self.n_vocab = self.out.shape[0]
        factors = self.load("rope_freqs.weight", False)
        self.freq = self.base ** (-np.arange(0, self.n_rot, 2, dtype=np.float64) / self.n_rot)
        if factors is not False:
            self.freq = self.freq / factors.astype(np.float64)

    def get(self, key, default=None):
        field = self.reader.get_field(key)
        if field is None:
            if default is None:
                raise Fail(3, f"the model lacks '{key}'")
            return default
        return field.contents()

    def load(self, name, default=None):
        """One tensor, dequantized: [rows, cols] or [cols]; rows are outputs."""
        t = self.tensors.get(name)
        if t is None:
            if default is None:
                raise Fail(3, f"the model lacks the tensor '{name}'")
            return default
        x = self.gguf.quants.dequantize(t.data, t.tensor_type)
        return np.ascontiguousarray(x.reshape([int(n) for n in reversed(t.shape)]), dtype=self.dtype)

    def norm(self, x, weight):
        x = x.astype(np.float64)
        x /= np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps)
        return (x * weight.astype(np.float64)).astype(self.dtype)

    def rope(self, x, cos, sin):
        """x [n, heads, d]: pairs (2i, 2i+1) of the first n_rot elements turn by position * freq[i]."""
        y = x.astype(np.float64)
        a, b = y[..., 0:self.n_rot:2].copy(), y[..., 1:self.n_rot:2].copy()
        y[..., 0:self.n_rot:2] = a * cos - b * sin
        y[..., 1:self.n_rot:2] = a * sin + b * cos
        return y.astype(self.dtype)

    def attention(self, q, k, v):
        n, group = q.shape[0], self.n_head // self.n_kv
        future = np.triu(np.ones((n, n), dtype=bool), 1)
        out = np.empty_like(q)
        for h in range(self.n_head):
            s = (q[:, h] @ k[:, h // group].T).astype(np.float64) / math.sqrt(self.d_head)
            s[future] = -np.inf
            s -= s.max(axis=-1, keepdims=True)
            np.exp(s, out=s)
            s /= s.sum(axis=-1, keepdims=True)
            out[:, h] = s.astype(self.dtype) @ v[:, h // group]
        return out.reshape(n, -1)

    @staticmethod
    def linear(x, layer, name):
        weight, bias = layer[name]
        y = x @ weight.T
        return y if bias is False else y + bias

    def forward(self, ids):
        """ids [n] -> logits [n, n_vocab] float32, positions from 0."""
        n = len(ids)
        angle = np.arange(n, dtype=np.float64)[:, None, None] * self.freq
        cos, sin = np.cos(angle), np.sin(angle)
        x = self.embd[ids]
        for layer in self.layers:
            a = self.norm(x, layer["attn_norm"][0])
            q = self.linear(a, layer, "attn_q").reshape(n, self.n_head, self.d_head)
            k = self.linear(a, layer, "attn_k").reshape(n, self.n_kv, self.d_head)
            v = self.linear(a, layer, "attn_v").reshape(n, self.n_kv, -1)
            a = self.attention(self.rope(q, cos, sin), self.rope(k, cos, sin), v)
            x = x + self.linear(a, layer, "attn_output")
            a = self.norm(x, layer["ffn_norm"][0])
            gate = self.linear(a, layer, "ffn_gate").astype(np.float64)
            gate /= 1.0 + np.exp(np.minimum(-gate, 700.0))  # silu; the clamp only stops overflow
            up = self.linear(a, layer, "ffn_up")
            x = x + self.linear((gate * up).astype(self.dtype), layer, "ffn_down")
        return (self.norm(x, self.out_norm) @ self.out.T).astype(np.float32)


def file_hash(path):
    h = hashlib.sha256()
    try:
        with open(path, "rb") as f:
            while block := f.read(1 << 20):
                h.update(block)
    except OSError as e:
        raise Fail(3, f"cannot read '{path}': {e.strerror}") from e
    return h.hexdigest()


class Reference:
    """Yields the reference logits window by window, from the cache if it fits, else computed."""

    def __init__(self, args, windows, n_vocab):
        self.args, self.windows, self.n_vocab, self.source = args, windows, n_vocab, "computed"
        self.cache, self.side = args.cache, (args.cache or "") + ".json"
        hashes = [hashlib.sha256(" ".join(map(str, w)).encode()).hexdigest()[:16] for w in windows]
        self.key = {"model_sha256": file_hash(args.model), "n_vocab": n_vocab, "version": 1,
                    "precision": args.reference_precision, "windows": hashes}

    def cached(self):
        if not self.cache or not os.path.exists(self.cache):
            return False
        size = 4 * self.n_vocab * sum(map(len, self.windows))
        try:
            with open(self.side, encoding="utf-8") as f:
                kept = json.load(f)
            kept["windows"] = kept["windows"][:len(self.windows)]  # the first windows of more will do
            fits = kept == self.key and os.path.getsize(self.cache) >= size
        except (OSError, ValueError, KeyError, TypeError):
            fits = False
        if not fits:
            note(f"'{self.cache}' belongs to another model, text or precision: computed anew")
        return fits

    def __iter__(self):
        if self.cached():
            self.source = "cache"
            with open(self.cache, "rb") as f:
                for ids in self.windows:
                    x = np.fromfile(f, dtype="<f4", count=len(ids) * self.n_vocab)
                    yield x.reshape(len(ids), self.n_vocab)
            return
        model = Llama(self.args.model, np.dtype(self.args.reference_precision))
        part = open_out(f"{self.cache}.{os.getpid()}.part", "wb") if self.cache else None
        try:
            for ids in self.windows:
                x = model.forward(ids)
                if part:
                    x.astype("<f4").tofile(part)
                yield x
            if part:
                part.close()
                if os.path.exists(self.side):
                    os.unlink(self.side)  # a stop between these lines leaves no false witness
                os.replace(part.name, self.cache)
                with open_out(self.side, "w", encoding="utf-8") as f:
                    json.dump(self.key, f)
        except OSError as e:
            raise Fail(3, f"cannot write '{self.cache}': {e.strerror}") from e
        finally:
            if part:
                part.close()
                if os.path.exists(part.name):
                    os.unlink(part.name)


# ---------------------------------------------------------------- engines and figures

class Engine:
    """A command that writes logits, read window by window, and the figures about it."""

    def __init__(self, spec, ids_path):
        self.name, eq, command = spec.partition("=")
        if not eq or not self.name or not command:
            raise Fail(2, f"--engine takes NAME=COMMAND or NAME=@FILE, found '{spec}'")
        self.command, self.process, self.errors = command, None, None
        self.kl, self.nll, self.agree, self.window_kl, self.window_nll = [], [], [], [], []
        self.worst_logit = 0.0
        if command.startswith("@"):
            try:
                self.stream = open(command[1:], "rb")
            except OSError as e:
                raise Fail(3, f"cannot read '{command[1:]}': {e.strerror}") from e
            return
        words = split_command(command, "ids", ids_path)
        self.errors = tempfile.TemporaryFile()
        try:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.PIPE, stderr=self.errors)
        except OSError as e:
            raise Fail(1, f"engine '{self.name}': cannot run '{words[0]}': {e.strerror}") from e
        self.stream = self.process.stdout

    def last_words(self):
        if not self.errors:
            return ""
        self.errors.seek(0)
        lines = self.errors.read().decode("utf-8", "replace").strip().splitlines()[-8:]
        return "".join("\n    " + line for line in lines)

    def read(self, n, n_vocab, window):
        want = 4 * n * n_vocab
        buf = np.empty(want, dtype=np.uint8)
        view, have = memoryview(buf), 0
        while have < want:
            got = self.stream.readinto(view[have:])
            if not got:
                status = ""
                if self.process:
                    status = f" and ended with status {self.process.wait()}"
                raise Fail(1, f"engine '{self.name}' wrote {have} of {want} bytes of window "
                              f"{window}{status}{self.last_words()}")
            have += got
        return buf.view("<f4").reshape(n, n_vocab)

    def finish(self):
        if self.stream.read(1):
            raise Fail(1, f"engine '{self.name}' wrote more logits than were asked for: "
                          "another vocabulary size, or text on its standard output?")
        if self.process and self.process.wait() != 0:
            raise Fail(1, f"engine '{self.name}' ended with status {self.process.returncode}{self.last_words()}")

    def stop(self):
        self.stream.close()
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def log_softmax(x):
    x = x.astype(np.float64)
    x -= x.max(axis=-1, keepdims=True)
    x -= np.log(np.exp(x).sum(axis=-1, keepdims=True))
    return x


def compare(ids, ref, logits):
    """-> KL [n] of each engine, agreement [n] of each, nll [n-1] of reference and each."""
    n, names = len(ids), list(logits)
    kl = {k: np.empty(n) for k in names}
    agree = {k: np.empty(n, dtype=bool) for k in names}
    nll = {k: np.empty(n) for k in [None] + names}
    target = np.append(ids[1:], 0)  # the last position has no next token; dropped below
    for at in range(0, n, CHUNK):
        part = slice(at, min(n, at + CHUNK))
        rows = np.arange(part.stop - part.start)
        lp = log_softmax(ref[part])
        p, top = np.exp(lp), ref[part].argmax(axis=-1)
        nll[None][part] = -lp[rows, target[part]]
        for k in names:
            lq = log_softmax(logits[k][part])
            nll[k][part] = -lq[rows, target[part]]
            agree[k][part] = logits[k][part].argmax(axis=-1) == top
            kl[k][part] = (p * (lp - lq)).sum(axis=-1)
    return kl, agree, {k: v[:-1] for k, v in nll.items()}


def mean_se(per_window, weights):
    """Mean over positions and its standard error with the window as the unit."""
    x, w = np.asarray(per_window), np.asarray(weights, dtype=np.float64)
    m = len(x)
    mean = float((x * w).sum() / w.sum())
    if m < 2:
        return mean, None
    dev = w / w.sum() * (x - mean)
    return mean, float(math.sqrt(m / (m - 1) * (dev * dev).sum()))


def figures(engine, ref_windows, sizes, first):
    kl = np.concatenate(engine.kl)
    mean, se = mean_se(engine.window_kl, sizes)
    steps = [n - 1 for n in sizes]
    nll, nll_se = mean_se(engine.window_nll, steps)
    gap, gap_se = mean_se(np.subtract(engine.window_nll, ref_windows), steps)
    out = {"name": engine.name, "command": engine.command, "kl_mean": mean, "kl_se": se,
           "kl_quantiles": {str(q): float(np.quantile(kl, q)) for q in (0.5, 0.9, 0.99, 0.999)},
           "kl_max": float(kl.max()), "top1_agreement": float(np.concatenate(engine.agree).mean()),
           "perplexity": math.exp(nll), "perplexity_se": None if nll_se is None else math.exp(nll) * nll_se,
           "perplexity_vs_reference": math.expm1(gap), "perplexity_vs_reference_se": gap_se,
           "max_abs_logit_difference": engine.worst_logit}
    if first is not None and first is not engine:
        d, d_se = mean_se(np.subtract(engine.window_kl, first.window_kl), sizes)
        g, g_se = mean_se(np.subtract(engine.window_nll, first.window_nll), steps)
        out["versus"] = {"name": first.name, "kl_difference": d, "kl_difference_se": d_se,
                         "kl_ratio": mean / mean_se(first.window_kl, sizes)[0] if first.kl else None,
                         "perplexity_ratio": math.exp(g), "perplexity_ratio_se": g_se}
    return out


def check(spec, found, tokens, args):
    ours, _, peer = spec.partition(":")
    a, b = found[ours], found[peer]
    apart = abs(a["perplexity"] / b["perplexity"] - 1.0)
    return {"spec": spec, "tokens_ok": tokens >= args.min_tokens,
            "kl_ok": a["kl_mean"] <= b["kl_mean"], "kl": [a["kl_mean"], b["kl_mean"]],
            "perplexity_ok": apart <= args.ppl_tolerance, "perplexity_apart": apart}


def measure(args, windows, n_vocab, engines):
    reference = Reference(args, windows, n_vocab)
    ref_nll, ref_all = [], []
    began = time.monotonic()
    # The reference goes first in zip(): it must run to its end, which is where it keeps its cache.
    for number, (ref, ids) in enumerate(zip(reference, windows), 1):
        logits = {e.name: e.read(len(ids), n_vocab, number) for e in engines}
        if not all(np.isfinite(x).all() for x in [ref, *logits.values()]):
            raise Fail(1, f"window {number}: logits that are not finite")
        kl, agree, nll = compare(ids, ref, logits)
        ref_all.append(nll[None])
        ref_nll.append(float(nll[None].mean()))
        for e in engines:
            e.kl.append(kl[e.name])
            e.agree.append(agree[e.name])
            e.window_kl.append(float(kl[e.name].mean()))
            e.window_nll.append(float(nll[e.name].mean()))
            e.worst_logit = max(e.worst_logit, float(np.abs(logits[e.name] - ref).max()))
        if not args.quiet:
            state = "  ".join(f"{e.name} {np.mean(e.window_kl):.3e}" for e in engines)
            note(f"window {number}/{len(windows)}  {time.monotonic() - began:.0f} s  KL so far: {state}")
    for e in engines:
        e.finish()
    return ref_nll, reference.source


def vocabulary(path):
    reader = open_model(path)
    for name in ("output.weight", "token_embd.weight"):
        for t in reader.tensors:
            if t.name == name:
                return int(t.shape[-1])
    raise Fail(3, f"'{path}' has no tensor 'token_embd.weight'")


def cmd_run(args):
    n_vocab = vocabulary(args.model)
    windows = read_ids(args.ids, n_vocab)
    ids_path, scratch = args.ids, None
    names = [s.partition("=")[0] for s in args.engine]
    if len(set(names)) != len(names):
        raise Fail(2, "two engines have the same name")
    for spec in args.check:
        ours, colon, peer = spec.partition(":")
        if not colon or ours not in names or peer not in names:
            raise Fail(2, f"--check takes OURS:PEER, two names of engines; found '{spec}'")
    if args.max_windows and args.max_windows < len(windows):
        windows = windows[:args.max_windows]
        scratch = tempfile.NamedTemporaryFile("w", suffix=".ids", encoding="ascii")
        scratch.write("".join(" ".join(map(str, w)) + "\n" for w in windows))
        scratch.flush()
        ids_path = scratch.name
    engines = []
    try:
        for spec in args.engine:
            engines.append(Engine(spec, ids_path))
        ref_nll, source = measure(args, windows, n_vocab, engines)
    finally:
        for e in engines:
            e.stop()
        if scratch:
            scratch.close()
    sizes = [len(w) for w in windows]
    steps = [n - 1 for n in sizes]
    nll, nll_se = mean_se(ref_nll, steps)
    rows = [figures(e, ref_nll, sizes, engines[0]) for e in engines]
    result = {"model": os.path.basename(args.model), "tokens": sum(sizes), "windows": len(windows),
              "n_vocab": n_vocab, "reference": {
                  "precision": args.reference_precision, "source": source, "perplexity": math.exp(nll),
                  "perplexity_se": None if nll_se is None else math.exp(nll) * nll_se},
              "engines": rows, "checks": []}
    found = {r["name"]: r for r in rows}
    result["checks"] = [check(s, found, sum(sizes), args) for s in args.check]
    if args.json:
        text = json.dumps(result, indent=1)
        if args.json == "-":
            print(text)
        else:
            with open_out(args.json, "w", encoding="utf-8") as f:
                f.write(text + "\n")
    if args.json != "-":
        print_table(result)
    return 0 if all(c["kl_ok"] and c["perplexity_ok"] and c["tokens_ok"] for c in result["checks"]) else 1


def print_table(r):
    def pm(x, se, form):
        return format(x, form) + ("" if se is None else " +- " + format(se, ".1e" if "e" in form else form))

    ref = r["reference"]
    print(f"{r['model']}: {r['tokens']} tokens in {r['windows']} windows, vocabulary {r['n_vocab']}")
    print(f"reference: {ref['precision']}, {ref['source']}, perplexity "
          f"{pm(ref['perplexity'], ref['perplexity_se'], '.4f')}")
    head = ["engine", "KL mean", "median", "p90", "p99", "p99.9", "max", "top-1", "perplexity", "vs reference"]
    lines = [head]
    for e in r["engines"]:
        q = e["kl_quantiles"]
        vs_se = e["perplexity_vs_reference_se"]
        lines.append([e["name"], pm(e["kl_mean"], e["kl_se"], ".4e")]
                     + [f"{q[k]:.2e}" for k in ("0.5", "0.9", "0.99", "0.999")]
                     + [f"{e['kl_max']:.2e}", f"{100 * e['top1_agreement']:.2f}%", f"{e['perplexity']:.4f}",
                        f"{100 * e['perplexity_vs_reference']:+.4f}%"
                        + ("" if vs_se is None else f" +- {100 * vs_se:.4f}")])
    wide = [max(len(row[i]) for row in lines) for i in range(len(head))]
    for row in lines:
        print("  ".join(cell.ljust(w) for cell, w in zip(row, wide)).rstrip())
    for e in r["engines"]:
        v = e.get("versus")
        if v:
            ratio = "" if v["kl_ratio"] is None else f"KL ratio {v['kl_ratio']:.4f}, "
            print(f"{e['name']} against {v['name']}: {ratio}KL difference "
                  f"{pm(v['kl_difference'], v['kl_difference_se'], '+.3e')}, perplexity "
                  f"{100 * (v['perplexity_ratio'] - 1):+.4f}%")
    for c in r["checks"]:
        good = {True: "ok", False: "FAILED"}
        print(f"check {c['spec']}: KL {c['kl'][0]:.4e} <= {c['kl'][1]:.4e} {good[c['kl_ok']]}, perplexities "
              f"{100 * c['perplexity_apart']:.4f}% apart {good[c['perplexity_ok']]}, tokens {good[c['tokens_ok']]}")


# ---------------------------------------------------------------- an all-F32 model

def cmd_dequantize(args):
    gguf = gguf_module()
    reader = open_model(args.model)
    kind, arch = gguf.GGUFValueType, reader.get_field("general.architecture")
    if arch is None:
        raise Fail(3, f"'{args.model}' lacks 'general.architecture'")
    if os.path.exists(args.output) and os.path.samefile(args.model, args.output):
        raise Fail(2, "the output is the model itself")
    try:
        writer = gguf.GGUFWriter(args.output, arch.contents(), use_temp_file=False)
        for name, field in reader.fields.items():
            if name.startswith("GGUF.") or name == "general.architecture":
                continue
            if name == "general.file_type":
                writer.add_file_type(int(gguf.LlamaFileType.ALL_F32))
                continue
            sub = field.types[-1] if field.types[0] == kind.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=sub)
        for t in reader.tensors:
            x = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
            writer.add_tensor(t.name, x.reshape([int(n) for n in reversed(t.shape)]))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    except OSError as e:
        raise Fail(3, f"cannot write '{args.output}': {e.strerror}") from e
    note(f"{args.output}: {len(reader.tensors)} tensors, all F32")


# ---------------------------------------------------------------- command line

def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def parser():
    summary, _, details = __doc__.partition("\n\n")
    top = argparse.ArgumentParser(prog="quality.py", description=summary.split(": ", 1)[1].capitalize(), epilog=details,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = top.add_subparsers(dest="job", required=True, metavar="corpus|ids|run|dequantize")

    p = sub.add_parser("corpus", help="write a text from files that any Debian with Python has")
    p.add_argument("-o", "--output", required=True, metavar="FILE")
    p.add_argument("--license-dir", default="/usr/share/common-licenses", metavar="DIR")
    p.add_argument("--each-license", type=positive, default=5000, metavar="N", help="characters of each (5000)")
    p.add_argument("--each-module", type=positive, default=2500, metavar="N",
                   help="characters of each module's docstrings (2500)")
    p.set_defaults(run=cmd_corpus)

    p = sub.add_parser("ids", help="tokenize a text and cut it into windows")
    p.add_argument("--text", required=True, metavar="FILE")
    p.add_argument("--tokenizer", required=True, metavar="COMMAND", help="prints the ids of the file it is given")
    p.add_argument("-o", "--output", required=True, metavar="FILE")
    p.add_argument("--window", type=positive, default=512, metavar="N", help="ids in a window (512)")
    p.add_argument("--max-windows", type=positive, metavar="N")
    p.set_defaults(run=cmd_ids)

    p = sub.add_parser("run", help="compare engines with the float reference")
    p.add_argument("-m", "--model", required=True, metavar="GGUF", help="what the reference dequantizes")
    p.add_argument("--ids", required=True, metavar="FILE", help="windows of ids, one a line")
    p.add_argument("--engine", action="append", default=[], metavar="NAME=COMMAND", help="may be repeated")
    p.add_argument("--cache", metavar="FILE", help="keep the reference's logits here, use them if they fit")
    p.add_argument("--reference-precision", choices=("float32", "float64"), default="float32",
                   help="of the reference's matrix products (float32)")
    p.add_argument("--max-windows", type=positive, metavar="N", help="only the first N windows")
    p.add_argument("--check", action="append", default=[], metavar="OURS:PEER",
                   help="exit 1 unless OURS is at least as near to the reference as PEER")
    p.add_argument("--ppl-tolerance", type=float, default=0.005, metavar="X", help="for --check (0.005)")
    p.add_argument("--min-tokens", type=positive, default=20000, metavar="N", help="for --check (20000)")
    p.add_argument("--json", nargs="?", const="-", metavar="FILE", help="figures as JSON (to standard output)")
    p.add_argument("-q", "--quiet", action="store_true", help="no progress on standard error")
    p.set_defaults(run=cmd_run)

    p = sub.add_parser("dequantize", help="write the same model with every tensor F32")
    p.add_argument("-m", "--model", required=True, metavar="GGUF")
    p.add_argument("-o", "--output", required=True, metavar="GGUF")
    p.set_defaults(run=cmd_dequantize)
    return top


def main():
    args = parser().parse_args()
    try:
        return args.run(args) or 0
    except Fail as e:
        note(str(e))
        return e.status
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        note("interrupted")
        return 1


if __name__ == "__main__":
    sys.exit(main())
