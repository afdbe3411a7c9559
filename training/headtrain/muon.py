"""Muon: momentum whose matrix is replaced by the nearest orthogonal one. For the layer's matrices; Adam does the rest.

Source: K. Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024).
"""
import torch


def orthogonal(matrix, steps=5):
    """Newton-Schulz iteration of degree five: singular values come near 1."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix.bfloat16()
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T.contiguous()  # products and sums of mixed orders take twice as long
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        square = x @ x.T
        x = torch.addmm(x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return (x.T if tall else x).float()


class Muon(torch.optim.Optimizer):
    def __init__(self, parameters, lr, momentum=0.95, weight_decay=0.0):
        super().__init__(parameters, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "mean" not in state:
                    state["mean"] = torch.zeros_like(p)
                state["mean"].lerp_(p.grad, 1 - group["momentum"])
                update = orthogonal(torch.lerp(p.grad, state["mean"], group["momentum"]))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-group["lr"] * max(1.0, p.shape[0] / p.shape[1]) ** 0.5)
