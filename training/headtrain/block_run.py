"""Training of block drafters: train.Run with blocks in place of chains (block.py, block_loss.py)."""
import torch

from . import evaluate
from .block import BlockBatch, BlockHead, chain_lengths, targets
from .block_loss import BlockLoss, confidence_loss, row_weights
from .train import Run

KINDS = ("dspark", "dflash")


def spare_token(uses, given, n_vocab):
    """The token that masks stand for: the one given, else the first that occurs nowhere in prompts and answers."""
    if given >= 0:
        if given >= n_vocab:
            raise SystemExit(f"--mask-token {given}: the target has {n_vocab} tokens")
        return given
    free = (uses == 0).nonzero()[0]
    if not len(free):
        raise SystemExit("every token of the target occurs in the data; name one that means nothing by --mask-token")
    return int(free[0])


class BlockRun(Run):
    """A chain of train.Run is a block here; its depths are the block's rows."""

    def make_shape(self, d2t):
        o, t = self.o, self.target
        return dict(n_embd=t.n_embd, n_target_embd=t.n_embd, n_taps=len(self.taps), n_layers=o.layers, n_heads=t.n_heads,
                    n_kv_heads=o.n_kv_heads or t.n_heads, head_dim=t.head_dim, n_ff=o.n_ff, n_draft=len(d2t),
                    n_block=o.depths, n_markov=o.markov if o.kind == "dspark" else 0,
                    mask=spare_token(self.uses(whole=True), o.mask, t.n_vocab), eps=t.eps, rope_theta=t.rope_theta)

    def make_head(self, shape, embedding, d2t):
        return BlockHead(shape, embedding, d2t, self.o.own_output)

    def point(self):
        few = [self.corpus[i] for i in range(min(len(self.corpus), 40))]
        features = torch.cat([torch.from_numpy(c.features[1:, self.columns].astype("float32")) for c in few])[:4096]
        tokens = torch.cat([torch.from_numpy(c.tokens[1:].astype("int64")) for c in few])[:4096]
        self.head.point(features.to(self.device), tokens.to(self.device))
        self.say(f"mask token {self.head.shape['mask']}; {self.head.shape['n_block']} rows to a block")

    def batch_of(self, chosen, most=None):
        s = self.head.shape
        return BlockBatch([self.corpus[i] for i in chosen], self.columns, s["n_block"],
                          self.o.anchors if most is None else most, self.device, torch.float32, self.o.grid)

    def chains_of(self, n_tokens, n_prompt):
        n = max(n_tokens - 1 - n_prompt, 0)
        return min(n, self.o.anchors) if self.o.anchors else n

    def loss(self, batch):
        o, head = self.o, self.head
        rows = batch.valid.nonzero().squeeze(1)
        hidden = head.linked(head(batch)[rows], batch.before[rows])
        weight = row_weights(batch, o.block_decay)[rows]
        true, ids, t = targets(head, batch, rows)
        kept, counts = None, None
        if self.tail:
            both = torch.cat((true.unsqueeze(1), ids), 1)
            kept, counts, both, t = self.tail.rows(both, torch.cat((torch.ones_like(t[:, :1]), t), 1))
            true, ids, t = both[:, 0], both[:, 1:], t[:, 1:]
        dspark = o.kind == "dspark"
        loss, accept, ce = BlockLoss.apply(hidden, head.outputs(kept), true, ids, t, weight, counts,
                                           o.ce if dspark else 1.0, o.l1 if dspark else 0.0)
        if dspark:
            loss = loss + confidence_loss(head.confidence(hidden), accept, weight)
        depth = batch.depth[rows]
        for d in range(o.depths):
            if (depth == d).any():
                self.add(f"loss_{d + 1}", ce[depth == d].mean().item())
                self.add(f"accept_{d + 1}", accept[depth == d].mean().item())
        self.add("loss", loss.item())
        return loss

    @torch.no_grad()
    def measure(self, group_of=None, chosen=None):
        walks = evaluate.Walks(self.o.depths)
        was_training = self.head.training
        self.head.eval()
        for i in self.greedy if chosen is None else chosen:
            n, n_prompt, name = self.corpus.size(i)
            if n - n_prompt < 2:
                continue
            with self.autocast():
                lengths = chain_lengths(self.head, self.batch_of([i], 0))[0, :n - 1 - n_prompt].tolist()
            for group in {"all", group_of(name) if group_of else "all"}:
                walks.add(group, lengths)
        self.head.train(was_training)
        return walks.result()
