"""A target of Llama's shape in PyTorch, so that a GPU writes answers and features (README.md, "On a GPU").

Owns: reading the weights from the GGUF file, the pass over whole conversations, and generation by a static cache. Weights are
dequantized, and activations are not rounded to eight bits, as the engine rounds them: what it would choose is chosen here in
98 of 100 places (SmolLM2-135M, Q4_1), and rounding in the same way makes that no better. The residual stream is float32.
"""
import copy
import time

import numpy as np
import torch
import torch.nn.functional as F
from gguf import GGUFReader
from gguf.quants import dequantize

from .head import rotation
from .target import half_split

ARCHITECTURES = ("llama",)
KNOWN = {"attn_norm", "ffn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}


def rotary_table(target, device):
    """(cos, sin), each f32 [n_ctx, head_dim / 2]"""
    return [x.to(device) for x in rotation(torch.arange(target.n_ctx), target.head_dim, target.rope_theta)]


class Llama:
    """The weights, on one device. taps: input indices of layers whose residual stream is kept, as in features files."""

    def __init__(self, path, target, taps, device, dtype=torch.float32):
        if target.arch not in ARCHITECTURES:
            raise SystemExit(f"{path}: a target of '{target.arch}'; only {', '.join(ARCHITECTURES)} can run on a GPU here")
        self.target, self.taps, self.device, self.dtype = target, list(taps), device, dtype
        tensors = {t.name: t for t in GGUFReader(path).tensors}
        unknown = [n for n in tensors if n.startswith("blk.") and n.split(".")[2] not in KNOWN] + [
            n for n in tensors if n.endswith(".bias") or n.startswith("rope_")]
        if unknown:
            raise SystemExit(f"{path}: has tensors that a plain Llama has not, such as '{unknown[0]}'")

        def take(name):
            t = tensors[name]
            return torch.from_numpy(np.array(dequantize(t.data, t.tensor_type), dtype=np.float32)).to(device)
        self.embedding = torch.tensor(target.embedding).to(device)
        self.output = self.embedding if target.output is target.embedding else torch.tensor(target.output).to(device)
        self.norm = torch.tensor(target.output_norm).to(device)
        self.layers = []
        for i in range(target.n_layers):
            w = {n: take(f"blk.{i}.{n}.weight") for n in KNOWN - {"attn_norm", "ffn_norm"}}
            self.layers.append(dict(
                attn_norm=take(f"blk.{i}.attn_norm.weight"), ffn_norm=take(f"blk.{i}.ffn_norm.weight"),
                qkv=torch.cat((half_split(w["attn_q"], target.n_heads), half_split(w["attn_k"], target.n_kv_heads),
                               w["attn_v"])),
                o=w["attn_output"], gate_up=torch.cat((w["ffn_gate"], w["ffn_up"])), down=w["ffn_down"]))
        self.cos, self.sin = rotary_table(target, device)
        if dtype != torch.float32:
            self.__dict__.update(self.cast(dtype).__dict__)

    def cast(self, dtype):
        """Changes the type of products; norms stay float32."""
        other = copy.copy(self)
        other.dtype, other.embedding = dtype, self.embedding.to(dtype)
        other.output = other.embedding if self.output is self.embedding else self.output.to(dtype)
        other.layers = [{n: w if n.endswith("norm") else w.to(dtype) for n, w in layer.items()} for layer in self.layers]
        return other

    def product(self, x, w):
        """x [..., n_in] -> f32 [..., n_out]"""
        return F.linear(x.to(self.dtype), w).float()

    def rms(self, x, weight):
        return F.rms_norm(x, (x.shape[-1],), weight, self.target.eps)

    def embed(self, tokens):
        return F.embedding(tokens, self.embedding).float()

    def attention_input(self, layer, x, position):
        """q [b, heads, rows, d], k and v [b, kv heads, rows, d] of x [b, rows, n]; position [b, rows] or [rows]."""
        t = self.target
        b, rows, _ = x.shape
        qkv = self.product(self.rms(x, layer["attn_norm"]), layer["qkv"]).reshape(b, rows, -1, t.head_dim)
        cos, sin = self.cos[position].unsqueeze(-2), self.sin[position].unsqueeze(-2)
        turned, v = qkv[:, :, :t.n_heads + t.n_kv_heads], qkv[:, :, t.n_heads + t.n_kv_heads:]
        one, two = turned.chunk(2, -1)
        turned = torch.cat((one * cos - two * sin, two * cos + one * sin), -1).to(self.dtype).transpose(1, 2)
        return turned[:, :t.n_heads], turned[:, t.n_heads:], v.to(self.dtype).transpose(1, 2)

    def rest(self, layer, x, attended):
        """attended [b, rows, n]"""
        x = x + self.product(attended, layer["o"])
        gate, up = F.linear(self.rms(x, layer["ffn_norm"]).to(self.dtype), layer["gate_up"]).chunk(2, -1)
        return x + self.product(F.silu(gate) * up, layer["down"])

    def logits(self, x):
        """x [..., n], the stream after the last layer"""
        return self.product(self.rms(x, self.norm), self.output)

    @torch.no_grad()
    def whole(self, tokens, cache=None, places=None):
        """A pass over tokens [b, rows], padded at their ends: (the stream after the last layer, the taps [b, rows, taps, n] in
        float16). cache: receives keys and values of the rows, at these places of it, and there are no taps."""
        b, rows = tokens.shape
        t = self.target
        position = torch.arange(rows, device=self.device)
        x, kept = self.embed(tokens), {}
        for i, layer in enumerate(self.layers):
            if cache is None and i in self.taps:
                kept[i] = x
            q, k, v = self.attention_input(layer, x, position)
            if cache is not None:
                cache.keys[i][places, :, :rows], cache.values[i][places, :, :rows] = k, v
            wide = t.n_heads // t.n_kv_heads
            k, v = k.repeat_interleave(wide, 1), v.repeat_interleave(wide, 1)
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = self.rest(layer, x, attended.transpose(1, 2).reshape(b, rows, -1))
        if cache is not None:
            return x, None
        kept[t.n_layers] = x
        return x, torch.stack([kept[i].clamp(-65504, 65504).half() for i in self.taps], 2)


class Cache:
    """Keys and values of many conversations; rows are positions."""

    def __init__(self, llama, n, longest):
        t = llama.target
        shape = (n, t.n_kv_heads, longest, t.head_dim)
        self.keys = [torch.zeros(shape, device=llama.device, dtype=llama.dtype) for _ in range(t.n_layers)]
        self.values = [torch.zeros(shape, device=llama.device, dtype=llama.dtype) for _ in range(t.n_layers)]


def attend_few(q, k, v, mask):
    """One row per conversation: q [b, heads, 1, d], k and v [b, kv heads, rows, d], mask [b, rows] of 0 and -inf. Query heads
    that share keys are rows of one small product."""
    b, heads, _, d = q.shape
    n_kv = k.shape[1]
    per_kv = heads // n_kv
    mask = mask.reshape(b, 1, 1, -1).expand(b, n_kv, per_kv, -1)
    return F.scaled_dot_product_attention(q.reshape(b, n_kv, per_kv, d), k, v, attn_mask=mask).reshape(b, 1, heads * d)


class Writer:
    """Writes answers to prompts, `n` at once, each at its own position; a place whose answer has ended gets the next prompt.

    A step is recorded as a CUDA graph for each number of rows attended to where that works, else run as it is.
    """
    ROWS = 64    # rows of the cache that are attended to are multiples of this
    CHECK = 16   # steps between two looks at what has ended
    PART = 32768  # tokens of prompts run at once

    def __init__(self, llama, n, longest, ends, most, graphs=True, kernel=True, say=print):
        self.llama, self.n, self.longest, self.most, self.say = llama, n, longest, most, say
        device = llama.device
        self.cache = Cache(llama, n, longest)
        self.ends = torch.tensor(sorted(ends), device=device)
        self.here = torch.arange(n, device=device)
        self.token = torch.zeros(n, dtype=torch.long, device=device)     # the newest of each, not yet run
        self.at = torch.zeros(n, dtype=torch.long, device=device)        # its position
        self.stop = torch.zeros(n, dtype=torch.long, device=device)      # the last position that a token may have
        self.warm = torch.zeros(n, 1, dtype=torch.float32, device=device)  # temperature, 0 or 1
        self.done = torch.ones(n, dtype=torch.bool, device=device)
        self.made = torch.zeros(n, longest, dtype=torch.int32, device=device)  # tokens by position
        self.state = (self.token, self.at, self.done, self.made)
        self.graphs, self.recorded = graphs and device.type == "cuda", {}
        self.attend = self.kernel() if device.type == "cuda" and kernel else None

    def kernel(self):
        """Returns a kernel that reads only each conversation's rows of the cache, if it works on this machine."""
        try:
            from . import attend
            if attend.works(self.llama.target, self.llama.device, self.llama.dtype, attend_few):
                return attend.attend
            self.say("the attention kernel is not right here; going on without it")
        except Exception as why:  # no Triton, or one that cannot compile here
            self.say(f"no attention kernel: {why}")
        return None

    def choose(self, logits, warm):
        """The likeliest token, or, by Gumbel's trick, a draw at temperature 1."""
        noise = torch.empty_like(logits).exponential_().clamp_(min=1e-30).log_()
        return torch.addcmul(logits, noise, warm, value=-1).argmax(-1)

    def step(self, rows):
        """Runs the newest tokens, all at positions below `rows`, and chooses the next ones."""
        llama = self.llama
        x = llama.embed(self.token.unsqueeze(1))
        if not self.attend:
            mask = torch.zeros(self.n, rows, device=llama.device, dtype=llama.dtype)
            mask.masked_fill_(torch.arange(rows, device=llama.device) > self.at.unsqueeze(1), float("-inf"))
        for layer, keys, values in zip(llama.layers, self.cache.keys, self.cache.values):
            q, k, v = llama.attention_input(layer, x, self.at.unsqueeze(1))
            keys[self.here, :, self.at], values[self.here, :, self.at] = k[:, :, 0], v[:, :, 0]
            if self.attend:
                attended = self.attend(q, keys, values, self.at)
            else:
                attended = attend_few(q, keys[:, :, :rows], values[:, :, :rows], mask)
            x = llama.rest(layer, x, attended)
        token = self.choose(llama.logits(x[:, 0]), self.warm)
        going = ~self.done
        self.at += going
        self.token.copy_(torch.where(going, token, self.token))
        self.made[self.here, self.at] = self.token.int()
        self.done |= (self.token.unsqueeze(1) == self.ends).any(1) | (self.at >= self.stop)

    def run(self, rows):
        if self.graphs and rows not in self.recorded:
            try:
                self.recorded[rows] = self.record(rows)
            except Exception as why:  # an unusual driver or build: slower, but correct
                self.say(f"no CUDA graphs: {why}")
                self.graphs = False
                torch.cuda.synchronize()
        if self.graphs:
            self.recorded[rows].replay()
        else:
            self.step(rows)

    def record(self, rows):
        before = [x.clone() for x in self.state]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # run once first, so that libraries allocate what they keep
            self.step(rows)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        others = next(iter(self.recorded.values()), None)
        with torch.cuda.graph(graph, pool=others.pool() if others else None):
            self.step(rows)
        for x, was in zip(self.state, before):
            x.copy_(was)
        return graph

    def begin(self, places, prompts, warm):
        """Runs prompts at free places of the cache and chooses their first tokens."""
        llama, device = self.llama, self.llama.device
        sizes = np.array([len(p) for p in prompts])
        longest = (sizes.max() + 31) // 32 * 32
        padded = np.zeros((len(prompts), longest), dtype=np.int64)
        for i, p in enumerate(prompts):
            padded[i, :len(p)] = p
        for i in range(0, len(prompts), max(1, self.PART // int(longest))):
            here = slice(i, i + max(1, self.PART // int(longest)))
            place = torch.from_numpy(places[here]).to(device)
            last = torch.from_numpy(sizes[here] - 1).to(device)
            heat = torch.from_numpy(np.asarray(warm[here], dtype=np.float32)).to(device).unsqueeze(1)
            x, _ = llama.whole(torch.from_numpy(padded[here]).to(device), self.cache, place)
            token = self.choose(llama.logits(x[torch.arange(len(last), device=device), last]), heat)
            at = last + 1
            self.token[place], self.at[place], self.warm[place] = token, at, heat
            self.stop[place] = (last + self.most).clamp(max=self.longest - 1)
            self.made[place, at] = token.int()
            self.done[place] = (token.unsqueeze(1) == self.ends).any(1)

    @torch.no_grad()
    def write(self, prompts, warm, until=None):
        """prompts: arrays of ids, in the order in which they are begun; warm: a temperature for each, 0 or 1; until: time
        (time.monotonic) at which all that is begun is cut off. Yields (number of the prompt, ids of the answer less what ended
        it, whether it came to its end or to `most` tokens)."""
        ends, next_, owner = set(self.ends.tolist()), 0, np.full(self.n, -1)
        sizes = np.array([len(p) for p in prompts])
        self.done.fill_(True)
        while True:
            done, at = self.done.cpu().numpy(), self.at.cpu().numpy()
            over = until is not None and time.monotonic() >= until
            finished = np.flatnonzero((owner >= 0) & (done | over))
            if len(finished):
                made = self.made[torch.from_numpy(finished).to(self.llama.device)].cpu().numpy()
                for row, place in zip(made, finished):
                    i = owner[place]
                    answer = row[sizes[i]:at[place] + 1]
                    yield i, answer[:-1] if int(answer[-1]) in ends else answer, bool(done[place])
                owner[finished] = -1
            free = np.flatnonzero(owner < 0)[:0 if over else len(prompts) - next_]
            if len(free):
                here = slice(next_, next_ + len(free))
                self.begin(free, prompts[here], warm[here])
                owner[free] = np.arange(here.start, here.stop)
                at[free] = sizes[here]
                next_ = here.stop
            if (owner < 0).all():
                return
            # Finished conversations continue to run at their last position, so that all steps have one shape.
            rows = min((int(at[owner >= 0].max()) + self.CHECK) // self.ROWS * self.ROWS + self.ROWS, self.longest)
            rows = self.longest if self.attend else rows
            for _ in range(self.CHECK):
                self.run(rows)


def cut_loops(answers, device, most_period=64, least=48):
    """answers: int32 [n, longest], padded by distinct negative ids. -> [n] tokens to keep: up to where the newest have repeated
    with some period at least three times and over at least 48 tokens."""
    x = torch.from_numpy(answers).to(device)
    n, longest = x.shape
    keep = torch.full((n,), longest, device=device)
    place = torch.arange(1, longest + 1, device=device)
    for period in range(1, most_period + 1):
        wanted = max(3 * period, least)
        if wanted + period > longest:
            break
        same = F.pad((x[:, period:] == x[:, :-period]).int(), (period, 0)).cumsum(1)
        full = (same[:, wanted:] - same[:, :-wanted]) == wanted
        first = torch.where(full, place[wanted:], longest).amin(1)
        keep = torch.minimum(keep, first)
    return keep.cpu().numpy()
