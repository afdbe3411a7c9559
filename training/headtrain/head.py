"""The EAGLE-3.1 head, an MTP block, and their training-time test.

Owns: the networks (docs/heads.md, src/draft/head/head.h) and the unrolled loss. Row P takes the token at P + 1 and the
features of position P, rotates by P, and foresees the token at P + 2. A chain starts at a true row Q (features through
fc) and goes on by itself: at depth j (from 1) its row Q + j - 1 takes the normed output of depth j - 1 in place of
features, and attends to the true rows up to Q and to the chain's own rows since. All chains of a conversation run at
once: their true keys are shared, their own keys are extra diagonals.

Weights are named and ordered as in Hugging Face checkpoints: rotation of half-split rows (rotate_half), embedding first.
"""
import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))
        self.eps = eps

    def forward(self, x):
        y = x.float()
        if x.is_cuda:  # one kernel there
            return F.rms_norm(y, (y.shape[-1],), self.weight, self.eps).to(x.dtype)
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight).to(x.dtype)


def rotation(positions, head_dim, theta):
    """cos and sin of the rotary angles, f32 [..., head_dim / 2] for positions [...]; computed in f64."""
    half = head_dim // 2
    steps = torch.arange(half, device=positions.device, dtype=torch.float64) / half
    angles = positions.double().unsqueeze(-1) * theta ** -steps
    return angles.cos().float(), angles.sin().float()


def rotate(x, cos, sin):
    """x [rows, heads, head_dim], cos and sin [rows, head_dim / 2]."""
    a, b = x.chunk(2, -1)
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Attention(nn.Module):
    def __init__(self, s, n_in):
        super().__init__()
        self.q_proj = nn.Linear(n_in, s["n_heads"] * s["head_dim"], bias=False)
        self.k_proj = nn.Linear(n_in, s["n_kv_heads"] * s["head_dim"], bias=False)
        self.v_proj = nn.Linear(n_in, s["n_kv_heads"] * s["head_dim"], bias=False)
        self.o_proj = nn.Linear(s["n_heads"] * s["head_dim"], s["n_embd"], bias=False)


class MLP(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.gate_proj = nn.Linear(s["n_embd"], s["n_ff"], bias=False)
        self.up_proj = nn.Linear(s["n_embd"], s["n_ff"], bias=False)
        self.down_proj = nn.Linear(s["n_ff"], s["n_embd"], bias=False)

    def forward(self, x, dropout=0.0):
        return self.down_proj(drop(F.silu(self.gate_proj(x)) * self.up_proj(x), dropout))


class Layer(nn.Module):
    """n_in: width of what attention takes in."""

    def __init__(self, s, n_in):
        super().__init__()
        self.input_layernorm = RMSNorm(s["n_embd"], s["eps"])
        self.post_attention_layernorm = RMSNorm(s["n_embd"], s["eps"])
        self.self_attn = Attention(s, n_in)
        self.mlp = MLP(s)


class Drafter(nn.Module):
    """The parts that both kinds share. shape: n_embd, n_target_embd, n_taps, n_heads, n_kv_heads, head_dim, n_ff, n_draft, eps,
    rope_theta.

    A kind adds fuse (features -> what a row is fed), mix (that and tokens -> attention's input and the residual's start) and
    start_from.
    """

    def __init__(self, shape, embedding, d2t, n_in):
        super().__init__()
        s = self.shape = dict(shape)
        self.dropout = 0.0  # while training: of features, attention's output and the feed-forward part
        self.midlayer = Layer(s, n_in)
        self.norm = RMSNorm(s["n_embd"], s["eps"])
        self.lm_head = nn.Linear(s["n_embd"], s["n_draft"], bias=False)
        self.register_buffer("embedding", embedding, persistent=False)  # [n_vocab, n_embd], the target's, frozen
        self.register_buffer("d2t", d2t)                                # [n_draft] target ids, ascending
        t2d = torch.full((len(embedding),), -1, dtype=torch.long)
        t2d[d2t] = torch.arange(len(d2t))
        self.register_buffer("t2d", t2d, persistent=False)              # draft id, or -1

    @torch.no_grad()
    def start_layer(self):
        """Initializes a random layer that adds little to the residual stream."""
        a, mlp, n = self.midlayer.self_attn, self.midlayer.mlp, self.shape["n_embd"]
        for part in (a.q_proj, a.k_proj, a.v_proj, mlp.gate_proj, mlp.up_proj):
            nn.init.normal_(part.weight, std=part.in_features ** -0.5)
        nn.init.normal_(a.o_proj.weight, std=0.1 * n ** -0.5)
        nn.init.normal_(mlp.down_proj.weight, std=0.1 * self.shape["n_ff"] ** -0.5)

    def rotation(self, positions):
        return rotation(positions, self.shape["head_dim"], self.shape["rope_theta"])

    def _drop(self):
        return self.dropout if self.training else 0.0

    def keys(self, c, rotation):
        a, s = self.midlayer.self_attn, self.shape
        k = rotate(a.k_proj(c).view(-1, s["n_kv_heads"], s["head_dim"]), *[r.to(c.dtype) for r in rotation])
        return k, a.v_proj(c).view(-1, s["n_kv_heads"], s["head_dim"])

    def queries(self, c, rotation):
        s = self.shape
        q = self.midlayer.self_attn.q_proj(c).view(-1, s["n_heads"], s["head_dim"])
        return rotate(q, *[r.to(c.dtype) for r in rotation])

    def finish(self, x, attended):
        """Computes the rest of the layer and the final norm. Returns the rows for the output and the rows to feed back."""
        y = x + self.midlayer.self_attn.o_proj(drop(attended, self._drop()))
        return self.norm(y + self.midlayer.mlp(self.midlayer.post_attention_layernorm(y), self._drop()))


class Head(Drafter):
    """EAGLE-3.1."""

    def __init__(self, shape, embedding, d2t):
        super().__init__(shape, embedding, d2t, 2 * shape["n_embd"])
        s = self.shape
        self.fc_norm = nn.ModuleList(RMSNorm(s["n_target_embd"], s["eps"]) for _ in range(s["n_taps"]))
        self.fc = nn.Linear(s["n_taps"] * s["n_target_embd"], s["n_embd"], bias=False)
        self.midlayer.hidden_norm = RMSNorm(s["n_embd"], s["eps"])

    @torch.no_grad()
    def start_from(self, output, output_norm, last_tap):
        """Before training: the target's output rows and final norm, fc passing one tap through, nothing added to it."""
        s = self.shape
        self.start_layer()
        self.lm_head.weight.copy_(output[self.d2t])
        self.norm.weight.copy_(output_norm)
        nn.init.normal_(self.fc.weight, std=0.1 * (s["n_taps"] * s["n_target_embd"]) ** -0.5)
        if s["n_embd"] == s["n_target_embd"]:
            at = last_tap * s["n_target_embd"]
            self.fc.weight[:, at:at + s["n_embd"]] += torch.eye(s["n_embd"])

    def fuse(self, features):
        """features [rows, n_taps, n_target_embd] -> [rows, n_embd]"""
        return self.fc(drop(torch.cat([norm(features[:, i]) for i, norm in enumerate(self.fc_norm)], -1), self._drop()))

    def mix(self, tokens, g):
        """Attention's input [rows, 2 n_embd], embedding first, and the start of the residual stream."""
        e = self.midlayer.input_layernorm(self.embedding[tokens].to(g.dtype))
        return torch.cat((e, self.midlayer.hidden_norm(g)), -1), g


class Block(Drafter):
    """An MTP block: a layer of the target's kind over the token's embedding and the target's row after its final norm. The
    output rows are the target's and stay as they are."""

    def __init__(self, shape, embedding, d2t):
        super().__init__(shape, embedding, d2t, shape["n_embd"])
        n, eps = shape["n_embd"], shape["eps"]
        self.enorm, self.hnorm = RMSNorm(n, eps), RMSNorm(n, eps)
        self.eh_proj = nn.Linear(2 * n, n, bias=False)
        self.register_buffer("target_norm", torch.ones(n))  # the target's final norm
        self.lm_head.weight.requires_grad_(False)

    @torch.no_grad()
    def start_from(self, output, output_norm, last_tap):
        """Before training: the hidden row passes through, and the output sees what it would see in the target."""
        n = self.shape["n_embd"]
        self.start_layer()
        self.lm_head.weight.copy_(output[self.d2t])
        self.target_norm.copy_(output_norm)
        self.norm.weight.fill_(output_norm.pow(2).mean().sqrt())
        nn.init.normal_(self.eh_proj.weight, std=0.1 * (2 * n) ** -0.5)
        self.eh_proj.weight[:, n:] += torch.eye(n)

    def fuse(self, features):
        """features [rows, 1, n_embd] after the last layer -> the same after the final norm"""
        f = features[:, -1].float()
        return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + self.shape["eps"]) * self.target_norm).to(features.dtype)

    def mix(self, tokens, g):
        e = self.enorm(self.embedding[tokens].to(g.dtype))
        x = self.eh_proj(torch.cat((e, drop(self.hnorm(g), self._drop())), -1))
        return self.midlayer.input_layernorm(x), x


KINDS = {"eagle3": Head, "mtp": Block}


def round_up(n, step):
    return (n + step - 1) // step * step


class Batch:
    """Conversations as flat rows, chains at the rows that foresee answers.

    rows: every row P of every conversation (needs token P + 1); padded [n, longest] by `row_at`.
    chains: start rows Q = n_prompt - 1 .. n - 2, flat, in the order of the conversations; with `first` those of the
    prompt from that row on, too, at random a share of them.
    grid: numbers of rows are brought to multiples of it, since matrix products of ever new shapes are slow (oneDNN compiles
    one for each); `unroll` then leaves some chains out, at random.
    """

    def __init__(self, conversations, taps, last, device, dtype, first=None, share=1.0, grid=1):
        import numpy as np
        self.grid = grid
        self.n, self.longest = len(conversations), round_up(max(len(c) - 1 for c in conversations), min(grid, 32))
        sizes = [len(c) - 1 for c in conversations]

        def flat(parts, kind=None):
            t = torch.from_numpy(np.concatenate([np.ascontiguousarray(p) for p in parts]))
            return t.to(device=device, dtype=kind)
        self.features = flat([c.features[:-1, taps] for c in conversations], dtype)
        self.tokens = flat([c.tokens[1:] for c in conversations], torch.long)          # of row P: token P + 1
        self.likely = flat([c.likely[1:] for c in conversations], torch.long)          # of row P: what comes at P + 2
        self.log_p = flat([c.log_p[1:] for c in conversations], torch.float32)
        self.true_next = flat([np.append(c.tokens[2:], -1) for c in conversations], torch.long)  # token P + 2
        self.ahead = flat([c.features[1:, last] for c in conversations], dtype)        # residual stream that P + 2 comes from
        self.position = torch.cat([torch.arange(s) for s in sizes]).to(device)
        self.row_of = torch.cat([torch.full((s,), i) for i, s in enumerate(sizes)]).to(device)
        begin = torch.tensor([0] + sizes[:-1]).cumsum(0)
        starts = []
        for i, (c, s) in enumerate(zip(conversations, sizes)):
            rows = torch.arange(max(min(c.n_prompt - 1, c.n_prompt if first is None else first), 0), s)
            starts.append(begin[i] + (rows[(rows >= c.n_prompt - 1) | (torch.rand(len(rows)) < share)] if share < 1 else rows))
        self.chains = torch.cat(starts).to(device)                                     # flat rows Q
        self.left = torch.cat([begin[i] + s - t for i, (s, t) in enumerate(zip(sizes, starts))]).to(device)  # rows from Q on
        self.slot = torch.cat([torch.arange(len(t)) for t in starts]).to(device)       # place among its conversation's chains
        self.most = round_up(max(len(t) for t in starts), min(grid, 32))
        self.n_rows = sum(sizes)
        more = round_up(self.n_rows, grid) - self.n_rows                               # rows of zeros after the others
        self.features = F.pad(self.features, (0, 0, 0, 0, 0, more))
        self.all_tokens, self.all_positions = F.pad(self.tokens, (0, more)), F.pad(self.position, (0, more))
        self.n_chains = len(self.chains)


def thin(items, grid):
    """Drops items at random until their number is a multiple of grid; keeps all if there are fewer than that."""
    n = len(items) // grid * grid
    if n in (0, len(items)):
        return items
    return items[torch.randperm(len(items), device=items.device)[:n].sort().values]


class Masks:
    """Dropout from a pool of random masks: drawing new ones takes longer than the products around them."""
    SIZE = 1 << 23

    def __init__(self):
        self.pool, self.share = None, 0.0

    def __call__(self, x, share):
        if not share:
            return x
        if x.device.type != "cpu" or x.numel() * 2 > self.SIZE:
            return F.dropout(x, share)
        if self.pool is None or self.share != share:
            self.share = share
            self.pool = torch.empty(self.SIZE, dtype=torch.bfloat16).bernoulli_(1 - share).div_(1 - share)
        at = int(torch.randint(self.SIZE - x.numel(), ()))
        return x * self.pool[at:at + x.numel()].view(x.shape)


drop = Masks()


def unroll(head, batch, depths, shares=None):
    """Yields (rows, hidden) per depth: flat rows whose next token is foreseen, and the normed outputs [rows, n_embd].

    shares: which share of the chains goes on at each depth (nested, at random); None: all that have a row left.
    """
    s = head.shape
    n_kv, per_kv, d = s["n_kv_heads"], s["n_heads"] // s["n_kv_heads"], s["head_dim"]
    device = batch.tokens.device
    cos, sin = head.rotation(batch.all_positions)
    g_all = head.fuse(batch.features)
    c_all, x_all = head.mix(batch.all_tokens, g_all)
    k_true, v_true = head.keys(c_all, (cos, sin))
    dtype = k_true.dtype
    pad = lambda x: x.new_zeros(batch.n, batch.longest, n_kv, d).index_put((batch.row_of, batch.position), x[:batch.n_rows])
    keys = pad(k_true).permute(0, 2, 3, 1)      # [n, kv, d, longest]
    values = pad(v_true).transpose(1, 2)        # [n, kv, longest, d]
    chain = thin(torch.arange(batch.n_chains, device=device), batch.grid)
    x, c = x_all[batch.chains[chain]], c_all[batch.chains[chain]]
    own_k, own_v = [], []                       # per depth from 2: [chains going on, kv, d]
    for depth in range(depths):
        if depth:
            going = batch.left[chain] > depth
            if shares is not None:
                going &= torch.rand(len(chain), device=device) < shares[depth] / shares[depth - 1]
            keep = thin(going.nonzero().squeeze(1), batch.grid)
            if len(keep) == 0:
                return
            chain, g = chain[keep], hidden[keep]
            own_k, own_v = [k[keep] for k in own_k], [v[keep] for v in own_v]
        rows = batch.chains[chain] + depth
        rotation = (cos[rows], sin[rows])
        if depth:
            c, x = head.mix(batch.tokens[rows], g)
            k, v = head.keys(c, rotation)
            own_k.append(k)
            own_v.append(v)
        q = head.queries(c, rotation).view(-1, n_kv, per_kv, d)
        start = batch.chains[chain]
        b, slot = batch.row_of[start], batch.slot[chain]
        padded = q.new_zeros(batch.n, batch.most, n_kv, per_kv, d).index_put((b, slot), q)
        padded = padded.permute(0, 2, 3, 1, 4).reshape(batch.n, n_kv, per_kv * batch.most, d)
        scores = (padded @ keys).view(batch.n, n_kv, per_kv, batch.most, batch.longest).permute(0, 3, 1, 2, 4)[b, slot]
        scores = scores.float() * d ** -0.5     # [chains, kv, per_kv, longest]
        future = torch.arange(batch.longest, device=device) > batch.position[start].unsqueeze(1)
        scores = scores.masked_fill_(future[:, None, None], float("-inf"))
        if own_k:
            extra = torch.stack([(q * k.unsqueeze(2)).float().sum(-1) for k in own_k], -1) * d ** -0.5
            scores = torch.cat((scores, extra), -1)
        weights = scores.softmax(-1).to(dtype)
        w_true = weights[..., :batch.longest]
        padded = w_true.new_zeros(batch.n, batch.most, n_kv, per_kv, batch.longest).index_put((b, slot), w_true)
        padded = padded.permute(0, 2, 3, 1, 4).reshape(batch.n, n_kv, per_kv * batch.most, batch.longest)
        attended = (padded @ values).view(batch.n, n_kv, per_kv, batch.most, d).permute(0, 3, 1, 2, 4)[b, slot]
        for j, v in enumerate(own_v):
            attended = attended + weights[..., batch.longest + j].unsqueeze(-1) * v.unsqueeze(2)
        hidden = head.finish(x, attended.reshape(len(chain), -1))
        yield rows, hidden
