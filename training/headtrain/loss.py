"""Losses on the head's normed outputs: soft cross-entropy against the target's likeliest tokens, and closeness to its rows."""
import torch


class SoftCrossEntropy(torch.autograd.Function):
    """Sum over rows of weight_r * -sum_i p_i log softmax(hidden output^T)_i, where p [rows, k] lives on ids [rows, k] (-1: none).

    The logits are made once, a chunk of rows at a time, and turned into their gradient in place; the backward pass scales.
    Gives the losses of the rows, too, without gradient.
    """
    CHUNK = 512

    @staticmethod
    def forward(ctx, hidden, output, ids, p, weight):
        dtype = hidden.dtype
        w = output.to(dtype)
        slopes = torch.empty(len(hidden), len(w), dtype=dtype, device=hidden.device)
        losses = hidden.new_empty(len(hidden), dtype=torch.float32)
        for at in range(0, len(hidden), SoftCrossEntropy.CHUNK):
            here = slice(at, at + SoftCrossEntropy.CHUNK)
            i, q, scale = ids[here].clamp(min=0), p[here], weight[here].unsqueeze(1)
            mass = q.sum(-1, keepdim=True)
            logits = (hidden[here] @ w.T).float()
            picked = logits.gather(1, i)
            top = logits.amax(-1, keepdim=True)
            logits.sub_(top).exp_()
            sums = logits.sum(-1, keepdim=True)
            losses[here] = (mass * (top + sums.log())).squeeze(1) - (q * picked).sum(-1)
            logits.mul_(mass * scale / sums).scatter_add_(1, i, q * -scale)
            slopes[here] = logits
        ctx.save_for_backward(slopes @ w, (hidden.T.contiguous() @ slopes).T.contiguous())
        ctx.mark_non_differentiable(losses)
        return (losses * weight).sum(), losses

    @staticmethod
    def backward(ctx, grad, _):
        grad_hidden, grad_output = ctx.saved_tensors
        return grad_hidden * grad.to(grad_hidden.dtype), grad_output.float().mul_(grad), None, None, None


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
