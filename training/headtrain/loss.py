"""Losses on the head's normed outputs: soft cross-entropy against the target's likeliest tokens, and closeness to its rows."""
import torch


class SoftCrossEntropy(torch.autograd.Function):
    """Sum over rows of weight_r * -sum_i p_i log softmax(hidden output^T)_i, where p [rows, k] lives on ids [rows, k] (-1:
    none).

    The logits are made once, a chunk of rows at a time, and turned into their gradient in place; the backward pass scales.
    Gives the losses of the rows, too, without gradient. counts [output rows]: for how many tokens each output row stands in
    the sum under the softmax (`Tail`); None: one each.
    """
    CHUNK = 512

    @staticmethod
    def forward(ctx, hidden, output, ids, p, weight, counts=None):
        dtype = hidden.dtype
        w = output.to(dtype)
        slopes = torch.empty(len(hidden), len(w), dtype=dtype, device=hidden.device)
        losses = hidden.new_empty(len(hidden), dtype=torch.float32)
        for at in range(0, len(hidden), SoftCrossEntropy.CHUNK):
            here = slice(at, at + SoftCrossEntropy.CHUNK)
            i, q, scale = ids[here].clamp(min=0), p[here], weight[here].unsqueeze(1)
            mass = q.sum(-1, keepdim=True)
            if counts is None:
                SoftCrossEntropy._plain(hidden[here] @ w.T, i, q, mass, scale, losses[here], slopes[here])
                continue
            logits = (hidden[here] @ w.T).float()
            picked = logits.gather(1, i)
            top = logits.amax(-1, keepdim=True)
            logits.sub_(top).exp_()
            if counts is not None:
                logits.mul_(counts)
            sums = logits.sum(-1, keepdim=True)
            losses[here] = (mass * (top + sums.log())).squeeze(1) - (q * picked).sum(-1)
            logits.mul_(mass * scale / sums).scatter_add_(1, i, q * -scale)
            slopes[here] = logits
        ctx.save_for_backward(slopes @ w, (hidden.T.contiguous() @ slopes).T.contiguous() if ctx.needs_input_grad[1] else None)
        ctx.mark_non_differentiable(losses)
        return (losses * weight).sum(), losses

    @staticmethod
    def _plain(logits, i, q, mass, scale, losses, slopes):
        """Without counts, in few passes over the logits. Slopes of the targets are exact before they are rounded."""
        p = logits.softmax(-1, dtype=torch.float32)
        at = p.gather(1, i)
        losses.copy_(-(q * at.clamp(min=1e-37).log()).sum(-1))
        torch.mul(p, mass * scale, out=slopes)
        more = (at * mass - q) * scale - slopes.gather(1, i).float()
        slopes.scatter_add_(1, i, torch.where(q > 0, more, torch.zeros_like(more)).to(slopes.dtype))

    @staticmethod
    def backward(ctx, grad, _):
        grad_hidden, grad_output = ctx.saved_tensors
        if grad_output is not None:
            grad_output = grad_output.float().mul_(grad)
        return grad_hidden * grad.to(grad_hidden.dtype), grad_output, None, None, None, None


class Tail:
    """Output rows for a step: all of the common tokens, and a random sample of the rare ones that stands for them all.

    The products with the output rows are most of a step with a large draft vocabulary, and most of its tokens hardly ever
    occur. Rare tokens that the target finds likely are among the rows (at most three quarters of the sample) and count
    once; the others are drawn, and each counts for those that were not, so that the sum under the softmax is right on average.
    """
    LIKELY = 0.01  # a rare token below this probability that is not drawn is left out of the row's targets

    def __init__(self, uses, n_common, n_rare):
        """uses [n_draft]: how often each draft id occurs. n_rare: rare tokens in a step's rows, of all that are not common."""
        order = uses.argsort(descending=True, stable=True)
        self.common, self.rare, self.n_rare = order[:n_common], order[n_common:], n_rare

    def rows(self, ids, p):
        """ids, p [n, k]: draft_targets' result. -> draft ids [n_common + n_rare], counts, ids among these (-1: none), p."""
        place = ids.new_full((len(self.common) + len(self.rare) + 1,), -1)  # the last one answers for -1
        place[self.common] = torch.arange(len(self.common), device=ids.device)
        must = ids[(p >= self.LIKELY) & (ids >= 0)]
        must = must[place[must] < 0].unique()
        must = must[torch.randperm(len(must), device=ids.device)[:self.n_rare * 3 // 4]]
        place[must] = len(self.common)
        others = self.rare[place[self.rare] < 0]
        drawn = others[torch.randperm(len(others), device=ids.device)[:self.n_rare - len(must)]]
        chosen = torch.cat((self.common, must, drawn))
        place[chosen] = torch.arange(len(chosen), device=ids.device)
        counts = torch.ones(len(chosen), device=ids.device)
        if len(drawn):
            counts[-len(drawn):] = len(others) / len(drawn)
        ids = place[ids]
        return chosen, counts, ids, p * (ids >= 0)


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
