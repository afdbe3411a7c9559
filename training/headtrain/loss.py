"""Losses on the head's normed outputs: soft cross-entropy against the target's likeliest tokens, and closeness to its rows."""
import torch


class SoftCrossEntropy(torch.autograd.Function):
    """Mean over rows of -sum_i p_i log softmax(hidden weight^T)_i, where p [rows, k] lives on ids [rows, k] (-1: none).

    The logits are made once, a chunk of rows at a time, and turned into their gradient in place; the backward pass scales.
    """
    CHUNK = 512

    @staticmethod
    def forward(ctx, hidden, weight, ids, p):
        dtype = hidden.dtype
        w = weight.to(dtype)
        slopes = torch.empty(len(hidden), len(w), dtype=dtype, device=hidden.device)
        total = hidden.new_zeros((), dtype=torch.float32)
        scale = 1.0 / len(hidden)
        for at in range(0, len(hidden), SoftCrossEntropy.CHUNK):
            here = slice(at, at + SoftCrossEntropy.CHUNK)
            i, q = ids[here].clamp(min=0), p[here]
            mass = q.sum(-1, keepdim=True)
            logits = (hidden[here] @ w.T).float()
            picked = logits.gather(1, i)
            top = logits.amax(-1, keepdim=True)
            logits.sub_(top).exp_()
            sums = logits.sum(-1, keepdim=True)
            total += (mass * (top + sums.log())).sum() - (q * picked).sum()
            logits.mul_(mass * scale / sums).scatter_add_(1, i, q * -scale)
            slopes[here] = logits
        ctx.save_for_backward(slopes @ w, slopes.T @ hidden)
        return total * scale

    @staticmethod
    def backward(ctx, grad):
        grad_hidden, grad_weight = ctx.saved_tensors
        return grad_hidden * grad.to(grad_hidden.dtype), grad_weight.float() * grad, None, None


def draft_targets(head, likely, log_p):
    """The target's distribution on the draft vocabulary: ids [rows, k] (-1 outside) and p [rows, k], of sum 1 or less.

    What the target gives to tokens beyond its k likeliest or outside the draft vocabulary is spread over the rest in
    proportion, unless the likeliest token itself cannot be drafted: such a row counts with what is left of it.
    """
    ids = head.t2d[likely]
    p = log_p.exp() * (ids >= 0)
    known = p.sum(-1, keepdim=True)
    p = torch.where(ids[:, :1] >= 0, p / known.clamp(min=1e-6), p)
    return ids, p


def closeness(hidden, ahead):
    """Mean smooth L1 distance to the target's own normed rows, in units of their spread."""
    ahead = ahead.float()
    spread = ahead.pow(2).mean().sqrt().clamp(min=1e-6)
    return torch.nn.functional.smooth_l1_loss(hidden.float() / spread, ahead / spread, beta=1.0)
