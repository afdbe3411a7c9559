#!/usr/bin/env python3
"""cut_experts.py - a small mixture of experts with real weights, made from a dense llama model (both GGUF).

    python3 training/cut_experts.py -m dense.gguf -o moe.gguf --texts text.txt [more.txt ...]

The neurons of each feed-forward block are divided: those that matter for most tokens form the shared expert, the others are
put in groups that fire together, the routed experts. A router is fitted to the experts' contributions, then each block to
the dense block's output, layer by layer on the text, with the errors of earlier layers in its input; the rest of the time tunes
the whole model towards the dense one's distribution. The file has qwen2moe's form (softmax router, a gate for the shared
expert), F16, to be quantized by `aerie quantize`. It is made for measuring speculation by fewer experts
(docs/speculation.md): it predicts what the dense model says, only worse.

Owns: the cut, its training, and the file's layout. Weights are read as headtrain.target reads them; `aerie tokenize` makes the
ids.
"""
import argparse
import json
import subprocess
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize


def fail(text):
    sys.exit(f"cut_experts.py: {text}")


class Dense:
    """A llama model's weights as f32 tensors, and its metadata."""

    def __init__(self, path):
        self.reader = GGUFReader(path)
        self.tensors = {t.name: t for t in self.reader.tensors}
        if self.get("general.architecture") != "llama" or self.get("llama.expert_count", 0):
            fail(f"'{path}' is not a dense model of architecture llama; only these can be cut")
        key = {n: self.get(f"llama.{n}") for n in ("block_count", "embedding_length", "feed_forward_length",
                                                   "attention.head_count", "attention.layer_norm_rms_epsilon")}
        self.n_layers, self.n_embd, self.n_ff, self.n_heads, self.eps = key.values()
        self.n_kv = self.get("llama.attention.head_count_kv", self.n_heads)
        self.d_head = self.get("llama.attention.key_length", self.n_embd // self.n_heads)
        self.base = self.get("llama.rope.freq_base", 10000.0)
        self.embd, self.norm = self.load("token_embd"), self.load("output_norm")
        self.out = self.load("output") if "output.weight" in self.tensors else self.embd
        names = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
        self.layers = [{n: self.load(f"blk.{i}.{n}") for n in names} for i in range(self.n_layers)]

    def get(self, key, default=None):
        field = self.reader.fields.get(key)
        if field is None and default is None:
            fail(f"the model lacks '{key}'")
        return default if field is None else field.contents()

    def load(self, name):
        t = self.tensors.get(name + ".weight")
        if t is None:
            fail(f"the model lacks the tensor '{name}.weight'")
        return torch.from_numpy(np.ascontiguousarray(dequantize(t.data, t.tensor_type), dtype=np.float32))

    def rms(self, x, weight):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * weight

    def rotate(self, x):
        """x [windows, positions, heads, d_head], pairs side by side."""
        n, d = x.shape[1], x.shape[-1]
        angle = torch.arange(n)[:, None] * self.base ** (-torch.arange(0, d, 2) / d)
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)

    def attend(self, layer, x):
        w, n, _ = x.shape
        a = self.rms(x, layer["attn_norm"])
        q = self.rotate((a @ layer["attn_q"].T).view(w, n, self.n_heads, self.d_head)).transpose(1, 2)
        k = self.rotate((a @ layer["attn_k"].T).view(w, n, self.n_kv, self.d_head)).transpose(1, 2)
        v = (a @ layer["attn_v"].T).view(w, n, self.n_kv, self.d_head).transpose(1, 2)
        k, v = (t.repeat_interleave(self.n_heads // self.n_kv, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(w, n, -1)
        return x + y @ layer["attn_output"].T

    def inner(self, layer, x):
        return F.silu(x @ layer["ffn_gate"].T) * (x @ layer["ffn_up"].T)


def groups_of(h, down, n_shared, n_experts):
    """Returns the neurons of the shared expert and of each routed one. h [tokens, neurons]."""
    strength = h.abs() * down.norm(dim=0)
    score = strength.mean(0)
    score[strength.amax(0).topk(n_shared // 8).indices] = torch.inf  # neurons that make rows huge are always needed
    order = score.argsort(descending=True)
    shared, rest = order[:n_shared], order[n_shared:]
    # a neuron matters where its strength exceeds its mean, in the directions with most of the variance
    f = strength[:, rest]
    f = F.normalize(f / f.mean(0) - 1, dim=0).T
    u, s, _ = torch.svd_lowrank(f, q=32)
    f = F.normalize(u * s, dim=1)
    size = len(rest) // n_experts
    centre = f[torch.randperm(len(rest))[:n_experts]]
    for _ in range(8):  # k-means with groups of equal size: the clearest cases first, as long as there is room
        near = f @ centre.T
        taken, member = [0] * n_experts, [-1] * len(rest)
        for flat in near.flatten().argsort(descending=True).tolist():
            neuron, expert = divmod(flat, n_experts)
            if member[neuron] < 0 and taken[expert] < size:
                member[neuron] = expert
                taken[expert] += 1
        member = torch.tensor(member)
        centre = torch.stack([f[member == e].mean(0) for e in range(n_experts)])
    return shared, [rest[member == e] for e in range(n_experts)]


class Moe(torch.nn.Module):
    """One block. gate, up and down each contain all routed experts; the shared one is separate."""

    def __init__(self, dense, layer, x, options):
        super().__init__()
        h = dense.inner(layer, x)
        down = layer["ffn_down"]
        shared, experts = groups_of(h, down, options.shared, options.experts)
        self.n_used, self.n_experts = options.used, options.experts
        index = torch.cat(experts)
        self.gate, self.up = (torch.nn.Parameter(layer[n][index].clone()) for n in ("ffn_gate", "ffn_up"))
        self.s_gate, self.s_up = (torch.nn.Parameter(layer[n][shared].clone()) for n in ("ffn_gate", "ffn_up"))
        # how much each expert adds to a token; the router learns its logarithm
        part = torch.stack([(h[:, e] @ down[:, e].T).norm(dim=1) for e in experts], 1)
        want = (part + 1e-6).log()
        want = want - want.mean(1, keepdim=True)
        gram = x.T @ x + 0.02 * (x.T @ x).diagonal().mean() * torch.eye(x.shape[1])
        router = torch.linalg.solve(gram, x.T @ want).T
        weight = (x @ router.T).softmax(1).topk(self.n_used, 1).values.mean()
        self.router = torch.nn.Parameter(router.contiguous())
        self.down = torch.nn.Parameter(down[:, index] / weight)
        self.s_down = torch.nn.Parameter(down[:, shared] * 2)
        self.s_router = torch.nn.Parameter(torch.zeros(x.shape[1]))

    def forward(self, x):
        p = (x @ self.router.T).softmax(-1)
        best = p.topk(self.n_used, -1)
        w = torch.zeros_like(p).scatter(-1, best.indices, best.values)
        self.load = (p.flatten(0, -2).mean(0) * (w > 0).float().flatten(0, -2).mean(0)).sum() * self.n_experts / self.n_used
        h = F.silu(x @ self.gate.T) * (x @ self.up.T)
        h = h * w.repeat_interleave(len(self.gate) // self.n_experts, -1)
        shared = (F.silu(x @ self.s_gate.T) * (x @ self.s_up.T)) @ self.s_down.T
        return h @ self.down.T + torch.sigmoid(x @ self.s_router)[..., None] * shared


def half():
    return torch.autocast("cpu", torch.bfloat16)


def fit(moe, x, y, end, batch):
    """The block to its inputs and outputs [tokens, n_embd], until a time. Errors before and after, over that of nothing, where
    each row counts as much as any other: a few are a thousand times larger."""
    size = y.pow(2).mean(1, keepdim=True)
    weight = 1 / (size + size.median())
    whole = (size * weight).mean()
    rates = (2e-3, 6e-4)
    optimizer = torch.optim.Adam([{"params": [moe.router, moe.s_router]},
                                  {"params": [p for n, p in moe.named_parameters() if "router" not in n]}])
    losses, begun = [], time.monotonic()
    while (now := time.monotonic()) < end or len(losses) < 4:
        for group, rate in zip(optimizer.param_groups, rates):
            group["lr"] = rate * max(0.05, 1 - (now - begun) / (end - begun))
        i = torch.randint(len(x), (batch,))
        with half():
            error = ((moe(x[i]).float() - y[i]).pow(2) * weight[i]).mean() / whole
        losses.append(error.item())
        optimizer.zero_grad(set_to_none=True)
        (error + 0.01 * moe.load).backward()
        optimizer.step()
    return sum(losses[:2]) / 2, sum(losses[-4:]) / 4


def cut(dense, ids, options):
    """Cuts all blocks, one after another, each with the errors of earlier blocks in its input."""
    blocks = []
    start, budget = time.monotonic(), 60 * options.minutes * (1 - options.tuning)
    x = dense.embd[ids]
    for i, layer in enumerate(dense.layers):
        with torch.no_grad(), half():
            x = dense.attend(layer, x).float()
            a = dense.rms(x, layer["ffn_norm"]).flatten(0, 1)
            y = (dense.inner(layer, a) @ layer["ffn_down"].T).float()
        with torch.no_grad():
            moe = Moe(dense, layer, a[torch.randperm(len(a))[:3072]], options)
        before = after = 0.0
        begun = time.monotonic()
        left = budget - (begun - start)
        if left > 0:
            end = begun + left / (dense.n_layers - i) * 0.8  # the rest of the time is for the passes in between
            before, after = fit(moe, a, y, end, options.batch)
        with torch.no_grad(), half():
            x = x + moe(a).float().view_as(x)
        blocks.append(moe)
        print(f"layer {i}: error {before:.3f} -> {after:.3f} of the block's output, load {moe.load.item():.2f}, "
              f"{begun - start:.0f} + {time.monotonic() - begun:.0f} s", flush=True)
    return blocks


def logits_of(dense, blocks, ids):
    x = dense.embd[ids]
    for layer, block in zip(dense.layers, blocks or [None] * dense.n_layers):
        x = dense.attend(layer, x)
        a = dense.rms(x, layer["ffn_norm"])
        x = x + (block(a) if block else dense.inner(layer, a) @ layer["ffn_down"].T)
    return dense.rms(x.float(), dense.norm) @ dense.out.T


def tune(dense, blocks, ids, options):
    """Tunes the whole model towards the dense one's distribution in the remaining time."""
    params = [p for b in blocks for p in b.parameters()]
    optimizer = torch.optim.Adam(params, lr=options.rate)
    start, end = time.monotonic(), 60 * options.minutes * options.tuning
    step = 0
    while (spent := time.monotonic() - start) < end:
        for group in optimizer.param_groups:
            group["lr"] = options.rate * (1 - spent / end)
        batch = ids[torch.randint(len(ids), (options.windows,))]
        with torch.no_grad(), half():
            want = logits_of(dense, None, batch).float().log_softmax(-1)
        with half():
            got = logits_of(dense, blocks, batch)
        loss = F.kl_div(got.float().log_softmax(-1).flatten(0, 1), want.flatten(0, 1), reduction="batchmean", log_target=True)
        optimizer.zero_grad(set_to_none=True)
        (loss + 0.002 * sum(b.load for b in blocks)).backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        step += 1
        if step % 5 == 1:
            print(f"tuning, step {step}: KL {loss.item():.3f} nats, {spent:.0f} s", flush=True)


def half_split(w, n_heads):
    """Moves rows of q or k from adjacent pairs, as in llama's files, to pairs half a head apart, as in qwen2's."""
    return w.view(n_heads, -1, 2, w.shape[-1]).transpose(1, 2).reshape(w.shape)


def write(path, dense, blocks, options):
    out = GGUFWriter(path, "qwen2moe")
    for field in dense.reader.fields.values():  # copies the tokenizer and the name, but not the shape
        if not field.name.startswith(("tokenizer.", "general.")) or field.name in (
                "general.architecture", "general.file_type", "general.quantization_version", "general.size_label"):
            continue
        kind = field.types[0]
        out.add_key_value(field.name, field.contents(), kind, field.types[-1] if kind == GGUFValueType.ARRAY else None)
    out.add_context_length(dense.get("llama.context_length"))
    out.add_block_count(dense.n_layers)
    out.add_embedding_length(dense.n_embd)
    out.add_feed_forward_length(options.expert_size * options.used)
    out.add_head_count(dense.n_heads)
    out.add_head_count_kv(dense.n_kv)
    out.add_rope_freq_base(dense.base)
    out.add_layer_norm_rms_eps(dense.eps)
    out.add_expert_count(options.experts)
    out.add_expert_used_count(options.used)
    out.add_expert_feed_forward_length(options.expert_size)
    out.add_expert_shared_feed_forward_length(options.shared)

    def add(name, tensor, f32=False):
        out.add_tensor(name, tensor.detach().contiguous().numpy().astype(np.float32 if f32 else np.float16))
    add("token_embd.weight", dense.embd)
    add("output_norm.weight", dense.norm, True)
    if dense.out is not dense.embd:
        add("output.weight", dense.out)
    for i, (layer, b) in enumerate(zip(dense.layers, blocks)):
        p = f"blk.{i}."
        add(p + "attn_norm.weight", layer["attn_norm"], True)
        add(p + "ffn_norm.weight", layer["ffn_norm"], True)
        for name, heads in (("q", dense.n_heads), ("k", dense.n_kv), ("v", 0)):
            w = layer[f"attn_{name}"]
            add(p + f"attn_{name}.weight", half_split(w, heads) if heads else w)
            add(p + f"attn_{name}.bias", torch.zeros(len(w)), True)
        add(p + "attn_output.weight", layer["attn_output"])
        add(p + "ffn_gate_inp.weight", b.router, True)
        add(p + "ffn_gate_exps.weight", b.gate.view(options.experts, -1, dense.n_embd))
        add(p + "ffn_up_exps.weight", b.up.view(options.experts, -1, dense.n_embd))
        add(p + "ffn_down_exps.weight", b.down.view(dense.n_embd, options.experts, -1).transpose(0, 1))
        add(p + "ffn_gate_inp_shexp.weight", b.s_router, True)
        add(p + "ffn_gate_shexp.weight", b.s_gate)
        add(p + "ffn_up_shexp.weight", b.s_up)
        add(p + "ffn_down_shexp.weight", b.s_down)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def tokenize(options):
    ids = []
    for path in options.texts:
        if path.endswith(".jsonl"):  # as aerie train-data writes answers
            with open(path, encoding="utf-8") as lines:
                ids += [i for line in lines for i in json.loads(line)["tokens"]]
            continue
        done = subprocess.run([options.aerie, "tokenize", "-m", options.model, "-f", path], capture_output=True, text=True)
        if done.returncode:
            fail(f"'{path}' could not be tokenized: {done.stderr.strip()}")
        ids += [int(word) for word in done.stdout.split()]
    n = len(ids) // options.window
    if n < 8:
        fail(f"the texts have {len(ids)} tokens; at least {8 * options.window} are needed (--texts)")
    return torch.tensor(ids[:n * options.window]).view(n, options.window)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True, help="dense model of architecture llama (GGUF)")
    parser.add_argument("-o", "--out", required=True, help="the model to write")
    parser.add_argument("--texts", required=True, nargs="+", metavar="FILE",
                        help="texts to fit the experts on; of .jsonl the answers that aerie train-data wrote")
    parser.add_argument("--shared", type=int, default=512, help="neurons of the shared expert (default %(default)s)")
    parser.add_argument("--experts", type=int, default=16, help="routed experts (default %(default)s)")
    parser.add_argument("--used", type=int, default=8, help="of these for each token (default %(default)s)")
    parser.add_argument("--minutes", type=float, default=5, help="of fitting and tuning (default %(default)s)")
    parser.add_argument("--tuning", type=float, default=0.4, help="share of that for tuning (default %(default)s)")
    parser.add_argument("--tokens", type=int, default=6144, help="of the text that blocks are fitted on (default %(default)s)")
    parser.add_argument("--window", type=int, default=256, help="tokens that see each other (default %(default)s)")
    parser.add_argument("--windows", type=int, default=4, help="in a step of tuning (default %(default)s)")
    parser.add_argument("--batch", type=int, default=1024, help="tokens in a step of fitting (default %(default)s)")
    parser.add_argument("--rate", type=float, default=3e-4, help="of tuning (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--aerie", default="aerie", help="the program (default %(default)s)")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    dense = Dense(options.model)
    routed = dense.n_ff - options.shared
    if options.shared < 32 or options.experts < 2 or routed <= 0 or routed % (32 * options.experts):
        fail(f"{dense.n_ff} neurons less {options.shared} cannot be cut into {options.experts} experts of a multiple of 32 "
             "each")
    if not 1 <= options.used <= options.experts:
        fail(f"--used {options.used} is not 1 to {options.experts}")
    options.expert_size = routed // options.experts
    ids = tokenize(options)
    order = torch.randperm(len(ids))[:max(8, options.tokens // options.window)]
    print(f"{ids.numel()} tokens; shared {options.shared}, {options.experts} experts of {options.expert_size}, {options.used} "
          f"used: {options.shared + options.used * options.expert_size} of {dense.n_ff} neurons a token", flush=True)
    blocks = cut(dense, ids[order], options)
    if options.tuning > 0:
        tune(dense, blocks, ids, options)
    write(options.out, dense, blocks, options)


if __name__ == "__main__":
    main()
