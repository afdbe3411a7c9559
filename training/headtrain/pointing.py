"""Initializes attention heads so that they look at their own row, or a few rows back.

A row learns its own token only through attention, the residual stream being the features alone. Heads that start at
random look everywhere at once, give their own row a percent of their weight, and take very long to learn better
(seen on SmolLM2: after 700 steps still 1 to 6%). So some start as pointers: their queries and keys are constant vectors,
and rotation makes the product of two constants a function of the distance alone, with its peak where we want it.
A constant is made from the input by the linear map that varies least over real rows, at mean 1.
"""
import torch

from .head import unroll

# Squared lengths by rotation pair, fastest first: sharp at distance 1, small again at every larger one.
_PAIRS = [3.0, 2.0, 2.0, 1.5, 1.0, 1.0, 0.5, 0.5]
_PEAK = 25.0  # score at the peak; a row off it is some 5 lower, farther ones 15 and more


@torch.no_grad()
def constant(head, batch):
    """w with w.c near 1 for every input c of the layer, of true rows and of fed ones; and its deviations."""
    parts = [head.mix(batch.tokens, head.fuse(batch.features))[0].float()]
    for rows, hidden in unroll(head, batch, 2):
        parts.append(head.mix(batch.tokens[(rows + 1).clamp(max=len(batch.tokens) - 1)], hidden)[0].float())
    means = torch.stack([p.mean(0) for p in parts])
    spread = sum(torch.cov(p.T) for p in parts) / len(parts) + torch.cov(means.T) + 1e-3 * torch.eye(parts[0].shape[1],
                                                                                                     device=means.device)
    w = torch.linalg.solve(spread, means.mean(0))
    w = w / (means.mean(0) @ w)
    return w, [(p @ w).std().item() for p in parts]


@torch.no_grad()
def point(head, w, heads):
    """heads: {head: distance}; 0 is the own row. Needs a key per query head."""
    s, a = head.shape, head.midlayer.self_attn
    if s["n_heads"] != s["n_kv_heads"]:
        raise ValueError("pointing heads need as many key heads as query heads")
    d, half = s["head_dim"], s["head_dim"] // 2
    n = min(len(_PAIRS), half)
    pairs = torch.tensor(_PAIRS[:n], dtype=torch.float64)
    length = (pairs / pairs.sum() * _PEAK * d ** 0.5).sqrt()
    angle = s["rope_theta"] ** -(torch.arange(n, dtype=torch.float64) / half)
    for h, distance in heads.items():
        key, query = torch.zeros(d, dtype=torch.float64), torch.zeros(d, dtype=torch.float64)
        key[:n] = length
        query[:n], query[half:half + n] = length * torch.cos(distance * angle), -length * torch.sin(distance * angle)
        here = slice(h * d, (h + 1) * d)
        a.k_proj.weight[here] = torch.outer(key.to(w), w)
        a.q_proj.weight[here] = torch.outer(query.to(w), w)


def usual(n_heads):
    """Half of the heads look at their own row, one each at the one and two rows before; the rest look for content."""
    own = max(n_heads // 2, 1)
    return {**{h: 0 for h in range(own)}, **{own + i: i + 1 for i in range(min(2, n_heads - own - 1))}}
