"""How far a chain of drafts is accepted at temperature 0, from features alone.

A draft that was accepted carried the target's own token, so running every chain over the true tokens and cutting it at
its first mismatch gives exactly what the engine accepts (up to rounding). Rounds are walked as the engine does: after a
accepted drafts the next round begins a + 1 tokens on.
"""
from collections import defaultdict

import torch

from .head import Batch, unroll


@torch.no_grad()
def chain_lengths(head, batch, depths):
    """[n_chains] accepted drafts of the chain that begins at each chain row."""
    length = torch.zeros(batch.n_chains, dtype=torch.long, device=batch.tokens.device)
    for depth, (rows, hidden) in enumerate(unroll(head, batch, depths)):
        drafted = head.d2t[head.lm_head(hidden).argmax(-1)]
        chain = torch.searchsorted(batch.chains, rows - depth)
        hit = (drafted == batch.true_next[rows]) & (length[chain] == depth)
        length[chain[hit]] += 1
    return length


class Walks:
    """Rounds as the engine walks them, summed by group."""

    def __init__(self, depths):
        self.depths = depths
        self.sums = defaultdict(lambda: {"rounds": [0] * depths, "accepted": [0] * depths, "reached": [0] * (depths + 1)})

    def add(self, name, length):
        """length [chains]: accepted drafts of the chain that begins at each row of an answer."""
        s = self.sums[name]
        for most in range(1, self.depths + 1):
            at = 0
            while at < len(length):
                got = min(length[at], most)
                s["rounds"][most - 1] += 1
                s["accepted"][most - 1] += got
                if most == self.depths:
                    for d in range(got + 1):
                        s["reached"][d] += 1
                at += got + 1

    def result(self):
        out = {}
        for name, s in self.sums.items():
            reached = s["reached"]
            out[name] = {"rounds": s["rounds"][-1],
                         "per_round": [a / max(r, 1) for a, r in zip(s["accepted"], s["rounds"])],
                         "first": reached[1] / max(reached[0], 1),
                         "at_depth": [reached[d + 1] / max(reached[0], 1) for d in range(self.depths)]}
        return out


def acceptance(head, corpus, chosen, taps, depths, device, autocast, group_of=None):
    """{group: {"rounds", "per_round" [accepted per round with chains of 1..depths], "first", "at_depth"}}, and "all".

    Walks are made for every chain length by itself, since shorter chains make other rounds.
    """
    walks = Walks(depths)
    was_training = head.training
    head.eval()
    for i in chosen:
        c = corpus[i]
        if len(c) - c.n_prompt < 2:
            continue
        with autocast():
            length = chain_lengths(head, Batch([c], taps, 0, device, torch.float32), depths).tolist()
        for name in {"all", group_of(c.id) if group_of else "all"}:
            walks.add(name, length)
    head.train(was_training)
    return walks.result()
