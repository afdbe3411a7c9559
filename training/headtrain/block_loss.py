"""The losses of block drafters as DeepSpec publishes them: cross-entropy with the true token, the distance between the
drafter's and the target's distributions (L1), the confidence's cross-entropy, and weights that fall with the depth.

Of the target's distribution the likeliest tokens are known; the rest counts as if the drafter gave nothing where the target
does, which it mostly does not.
"""
import torch
import torch.nn.functional as F


class BlockLoss(torch.autograd.Function):
    """Sum over rows of weight_r * (ce * -log p_true + l1 * sum_i |p_i - t_i|) of p = softmax(rows output^T).

    true [rows]: -1: no cross-entropy. ids, t [rows, k] (-1: none): the target's likeliest tokens. counts: as in
    loss.SoftCrossEntropy. Gives, without gradient, how likely each row's draft is accepted, 1 - L1 / 2, and its cross-entropy.
    The logits are made once, a chunk of rows at a time, and turned into their gradient in place.
    """
    CHUNK = 512

    @staticmethod
    def forward(ctx, rows, output, true, ids, t, weight, counts, ce, l1):
        w = output.to(rows.dtype)
        slopes = torch.empty(len(rows), len(w), dtype=rows.dtype, device=rows.device)
        accept, losses = (rows.new_empty(len(rows), dtype=torch.float32) for _ in range(2))
        for at in range(0, len(rows), BlockLoss.CHUNK):
            here = slice(at, at + BlockLoss.CHUNK)
            p = (rows[here] @ w.T).float()
            p.sub_(p.amax(-1, keepdim=True)).exp_()
            if counts is not None:
                p.mul_(counts)
            p.mul_(1 / p.sum(-1, keepdim=True))
            k, q, known = ids[here].clamp(min=0), t[here], (true[here] >= 0).float()
            one, scale = true[here].clamp(min=0).unsqueeze(1), weight[here].unsqueeze(1)
            got = p.gather(1, k)
            # L1 = sum_i s_i p_i + a constant, s = 1 but where the drafter gives a likely token too little
            low = ((got < q) & (q > 0)).float()
            accept[here] = torch.minimum(got, q).sum(-1)
            losses[here] = -p.gather(1, one).squeeze(1).clamp(min=1e-30).log() * known
            if ctx.needs_input_grad[0]:
                mean = 1 - 2 * (got * low).sum(-1, keepdim=True)
                p_scaled = p * (scale * (ce * known.unsqueeze(1) + l1 * (1 - mean)))
                p_scaled.scatter_add_(1, k, -2 * l1 * scale * got * low)
                p_scaled.scatter_add_(1, one, -ce * scale * known.unsqueeze(1))
                slopes[here] = p_scaled
        ctx.save_for_backward(slopes @ w if ctx.needs_input_grad[0] else None,
                              (rows.T.contiguous() @ slopes).T.contiguous() if ctx.needs_input_grad[1] else None)
        ctx.mark_non_differentiable(accept, losses)
        total = ce * losses + l1 * 2 * (1 - accept)
        return (total * weight).sum(), accept, losses

    @staticmethod
    def backward(ctx, grad, *_):
        to_rows, to_output = ctx.saved_tensors
        return (grad.to(to_rows.dtype) * to_rows, None if to_output is None else grad * to_output.float(), None, None, None,
                None, None, None, None)


def confidence_loss(logits, accept, weight):
    """Sum over rows of weight * cross-entropy of the confidence with how likely the draft is accepted."""
    return (F.binary_cross_entropy_with_logits(logits, accept.clamp(0, 1), reduction="none") * weight).sum()


def row_weights(batch, decay):
    """Returns the weights of flat rows: exp(-depth / decay), 0 where nothing is predicted; their sum is 1."""
    w = torch.exp(-batch.depth.float() / decay) * batch.valid
    return w / w.sum().clamp(min=1e-9)
