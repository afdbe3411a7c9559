"""Attention of one row per conversation over a cache, as a Triton kernel that reads only each conversation's own rows.

Owns the kernel and the check that it works on this machine; llama.attend_few does the same without it, and reads the cache as
far as the longest conversation reaches.
"""
import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(q, k, v, at, out, scale, k_batch, k_head, N_KV: tl.constexpr, PER: tl.constexpr, D: tl.constexpr, M: tl.constexpr,
            TILE: tl.constexpr):
    """Program (b, h): key head h of conversation b, its rows 0 to at[b], and its PER query heads (M: with padding)."""
    b, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    n = tl.load(at + b).to(tl.int32) + 1
    row, d, t = tl.arange(0, M), tl.arange(0, D), tl.arange(0, TILE)
    place = (b * N_KV + h) * PER * D + row[:, None] * D + d[None, :]
    x = tl.load(q + place, mask=row[:, None] < PER, other=0.0)
    base = b * k_batch + h * k_head
    top = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    sums = tl.zeros((M, D), tl.float32)
    for first in range(0, n, TILE):
        here = first + t
        keys = tl.load(k + base + here[None, :] * D + d[:, None], mask=here[None, :] < n, other=0.0)
        scores = tl.where(here[None, :] < n, tl.dot(x, keys) * scale, float("-inf"))
        more = tl.maximum(top, tl.max(scores, 1))
        weights, fade = tl.exp(scores - more[:, None]), tl.exp(top - more)
        values = tl.load(v + base + here[:, None] * D + d[None, :], mask=here[:, None] < n, other=0.0)
        total = total * fade + tl.sum(weights, 1)
        sums = sums * fade[:, None] + tl.dot(weights.to(values.dtype), values)
        top = more
    tl.store(out + place, (sums / total[:, None]).to(out.dtype.element_ty), mask=row[:, None] < PER)


def attend(q, keys, values, at):
    """q [b, heads, 1, d], keys and values [b, kv heads, rows, d], at [b] the last row of each. -> [b, 1, heads * d]"""
    b, heads, _, d = q.shape
    n_kv = keys.shape[1]
    q = q.reshape(b, heads, d).contiguous()
    out = torch.empty_like(q)
    per = heads // n_kv
    _kernel[(b, n_kv)](q, keys, values, at, out, d ** -0.5, keys.stride(0), keys.stride(1), n_kv, per, d,
                       max(16, triton.next_power_of_2(per)), 64, num_warps=4)
    return out.reshape(b, 1, heads * d)


def works(target, device, dtype, plain):
    """Returns whether the kernel gives the same results as `plain` (llama.attend_few) on this machine."""
    d, n_kv, heads = target.head_dim, target.n_kv_heads, target.n_heads
    if d & (d - 1) or d < 16:
        return False
    shape = (4, n_kv, 192, d)
    keys, values = (torch.randn(shape, device=device).to(dtype) for _ in range(2))
    q, at = torch.randn(4, heads, 1, d, device=device).to(dtype), torch.tensor([0, 63, 64, 150], device=device)
    mask = torch.zeros(4, 192, device=device, dtype=dtype)
    mask.masked_fill_(torch.arange(192, device=device) > at.unsqueeze(1), float("-inf"))
    want = plain(q, keys, values, mask).float()
    return bool((attend(q, keys, values, at).float() - want).abs().max() < 0.02)
