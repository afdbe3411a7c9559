"""Block drafters on one GPU: gpu.Run with blocks in place of chains, on the same store of rows (gpu.py, block.py)."""
from dataclasses import dataclass

import numpy as np
import torch

from . import evaluate, gpu
from .block import chain_lengths, targets
from .block_loss import BlockLoss, confidence_loss, row_weights
from .head import round_up


@dataclass
class Options(gpu.Options):
    kind: str = "dspark"
    depths: int = 8
    anchors: int = 48         # blocks of a conversation in a step
    block_decay: float = 4.0
    ce: float = 0.1
    l1: float = 0.9
    own_output: bool = True


class Blocks:
    """What BlockBatch holds, gathered on the device. all_anchors: every anchor of the answers, else some at random."""

    def __init__(self, store, chosen, n_block, most, rng, all_anchors=False):
        device, common = store.device, store.common
        size, begin = store.size[chosen], store.start[chosen]
        n_prompt = np.array([store.items[i].n_prompt for i in chosen])
        room = np.maximum(size - 1 - n_prompt, 0)
        self.n, self.longest = len(chosen), round_up(int(size.max()) - 1, 16)
        self.n_anchors = max(int(room.max()) if all_anchors else min(most, int(room.max())), 1)
        if all_anchors:
            offset = np.tile(np.arange(self.n_anchors), (self.n, 1))
        else:  # one in each of as many equal parts of the answer
            part = np.maximum(room, 1)[:, None] / self.n_anchors
            offset = ((np.arange(self.n_anchors) + rng.random((self.n, self.n_anchors))) * part).astype(np.int64)
        good = offset < room[:, None]
        if not all_anchors:  # shorter answers than that have the same anchor several times
            good[:, 1:] &= offset[:, 1:] != offset[:, :-1]
        anchors = np.where(good, n_prompt[:, None] + offset, 0)
        place = np.where(good[..., None], anchors[..., None] + np.arange(n_block), 0)
        valid = good[..., None] & (place < (size - 1)[:, None, None])
        row = np.clip(begin[:, None, None] + place - common, 0, len(store.tokens) - 2).reshape(-1)

        def send(x):
            x = torch.from_numpy(np.ascontiguousarray(x))
            return (x.pin_memory() if device.type == "cuda" else x).to(device, non_blocking=True)
        row, self.anchors, self.valid = send(row), send(anchors), send(valid.reshape(-1))
        later = send(begin).unsqueeze(1) + torch.arange(self.longest + 1 - common, device=device)
        later = later.clamp(max=len(store.tokens) - 1)
        self.features = torch.cat((store.prefix.expand(self.n, -1, -1, -1), store.features(later[:, :-1])), 1)
        self.tokens = torch.cat((store.prefix_tokens.expand(self.n, -1), store.tokens[later]), 1)
        self.before, self.next = store.tokens[row], store.tokens[row + 1]
        self.likely, self.log_p = store.likely[row].long(), store.log_p[row].float()
        self.depth = torch.arange(n_block, device=device).repeat(self.n * self.n_anchors)
        self.room, self.n_chains = room, int(good.sum())


class Run(gpu.Run):
    def batch_of(self, chosen):
        return Blocks(self.store, chosen, self.o.depths, self.o.anchors, self.rng)

    def loss(self, batch):
        o, head = self.o, self.head
        hidden = head.linked(head(batch), batch.before)
        weight = row_weights(batch, o.block_decay)
        true, ids, t = targets(head, batch, slice(None))
        loss, accept, ce = BlockLoss.apply(hidden, head.outputs(), true, ids, t, weight, None,
                                           o.ce if o.kind == "dspark" else 1.0, o.l1 if o.kind == "dspark" else 0.0)
        if o.kind == "dspark":
            loss = loss + confidence_loss(head.confidence(hidden), accept, weight)
        by_depth = (ce * batch.valid).view(-1, o.depths).sum(0) / batch.valid.view(-1, o.depths).sum(0).clamp(min=1)
        self.losses += by_depth
        self.n_losses += 1
        return loss

    def seen_of(self, batch):
        return batch.n_chains

    @torch.no_grad()
    def measure(self):
        walks = evaluate.Walks(self.o.depths)
        self.head.eval()
        for group, chosen in self.held.items():
            chosen = sorted(chosen)
            for at in range(0, len(chosen), 8):
                batch = Blocks(self.store, np.array(chosen[at:at + 8]), self.o.depths, 0, self.rng, True)
                with self.autocast():
                    lengths = chain_lengths(self.head, batch).cpu().numpy()
                for row, room in zip(lengths, batch.room):
                    walks.add("all", row[:room].tolist())
                    walks.add(group, row[:room].tolist())
        self.head.train()
        return walks.result()
