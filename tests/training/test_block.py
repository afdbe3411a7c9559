"""Block drafters: blocks of a batch against one block at a time by hand, greedy chains, losses against autograd's."""
import numpy as np
import pytest
import torch

from headtrain import checkpoint
from headtrain.block import BlockBatch, BlockHead, chain_lengths, targets
from headtrain.block_loss import BlockLoss, confidence_loss, row_weights
from headtrain.loss import Tail
from test_unroll import N_VOCAB, make_conversation, norm, rotated

SHAPE = dict(n_embd=16, n_target_embd=16, n_taps=3, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=4, n_ff=24, n_draft=11,
             n_block=3, n_markov=5, mask=7, eps=1e-5, rope_theta=100.0)
TAPS = [0, 1, 3]


def make_head(**changes):
    torch.manual_seed(1)
    head = BlockHead(dict(SHAPE, **changes), torch.randn(N_VOCAB, 16),
                     torch.tensor(sorted(torch.randperm(N_VOCAB)[:11].tolist())))
    for p in head.parameters():
        torch.nn.init.normal_(p, std=0.4)
    return head


def by_hand(head, c, anchor):
    """Normed rows of one block [B, n_embd]."""
    features = torch.from_numpy(np.array(c.features)).float()[:anchor, TAPS].flatten(1)
    g = [norm(head.fc.weight @ f, head.hidden_norm.weight) for f in features]
    x = [head.embedding[int(c.tokens[anchor]) if j == 0 else head.shape["mask"]] for j in range(head.shape["n_block"])]
    for layer in head.layers:
        a = layer.self_attn

        def heads(name, row, n, at):
            part = (a[f"{name}_proj"].weight @ row).view(n, 4)
            return rotated(torch.stack([norm(h, a[f"{name}_norm"].weight) for h in part]), at)
        normed = [norm(r, layer.input_layernorm.weight) for r in x]
        seen = g + normed
        keys = [heads("k", r, 2, p) for p, r in enumerate(seen)]
        values = [(a["v_proj"].weight @ r).view(2, 4) for r in seen]
        for j, row in enumerate(normed):
            q = heads("q", row, 4, anchor + j)
            mixed = [sum(w * v[h // 2] for w, v in zip(torch.stack([q[h] @ k[h // 2] / 2 for k in keys]).softmax(0), values))
                     for h in range(4)]
            y = x[j] + a["o_proj"].weight @ torch.cat(mixed)
            m = norm(y, layer.post_attention_layernorm.weight)
            x[j] = y + layer.mlp.down_proj.weight @ (torch.nn.functional.silu(layer.mlp.gate_proj.weight @ m) * (
                layer.mlp.up_proj.weight @ m))
    return torch.stack([norm(r, head.norm.weight) for r in x])


@torch.no_grad()
@pytest.mark.parametrize("grid", [1, 64])
def test_blocks_equal_blocks_by_hand(grid):
    head, some = make_head(), [make_conversation(11, 4, 1), make_conversation(7, 2, 2)]
    batch = BlockBatch(some, TAPS, 3, 0, "cpu", torch.float32, grid)
    hidden = head(batch).view(2, batch.n_anchors, 3, 16)
    n = 0
    for i, c in enumerate(some):
        for k, anchor in enumerate(range(c.n_prompt, len(c) - 1)):
            assert batch.anchors[i, k] == anchor
            torch.testing.assert_close(hidden[i, k], by_hand(head, c, anchor), rtol=1e-4, atol=1e-5)
            for j in range(3):
                row = (i * batch.n_anchors + k) * 3 + j
                assert batch.valid[row] == (anchor + j + 1 < len(c))
                if batch.valid[row]:
                    assert batch.before[row] == c.tokens[anchor + j] and batch.next[row] == c.tokens[anchor + j + 1]
                    assert batch.likely[row].tolist() == c.likely[anchor + j].tolist()
                    n += 1
    assert n == batch.valid.sum() and batch.n_chains == 6 + 4


def test_some_anchors():
    c = make_conversation(40, 4, 1)
    batch = BlockBatch([c], TAPS, 3, 5, "cpu", torch.float32)
    assert batch.n_chains == 5 == len(set(batch.anchors[0].tolist())) and min(batch.anchors[0]) >= 4
    short = BlockBatch([make_conversation(3, 2, 1), make_conversation(2, 2, 1)], TAPS, 3, 5, "cpu", torch.float32)
    assert short.n_chains == 0 and not short.valid.any()  # an answer of one token has a first token, but none after it


@torch.no_grad()
def test_chains_are_what_drafting_gives():
    head, c = make_head(), make_conversation(60, 4, 3)
    batch = BlockBatch([c], TAPS, 3, 0, "cpu", torch.float32)
    # a target that sometimes predicts what the head does, so that chains have all lengths
    rng, tokens = np.random.default_rng(1), c.tokens
    for anchor in range(4, 57, 4):
        linked = head.linked(by_hand(head, c, anchor), torch.tensor([int(tokens[anchor])] * 3))
        before = int(tokens[anchor])
        for j in range(int(rng.integers(0, 4))):
            row = head.linked(linked[j:j + 1, :16], torch.tensor([before])) @ head.outputs().T
            before = tokens[anchor + 1 + j] = int(head.d2t[row.argmax()])
    got = chain_lengths(head, BlockBatch([c], TAPS, 3, 0, "cpu", torch.float32))[0]
    lengths = []
    for anchor in range(4, 59):
        hidden, before, n = by_hand(head, c, anchor), int(tokens[anchor]), 0
        while n < 3 and anchor + 1 + n < 60:
            before = int(head.d2t[(head.linked(hidden[n:n + 1], torch.tensor([before])) @ head.outputs().T).argmax()])
            if before != tokens[anchor + 1 + n]:
                break
            n += 1
        lengths.append(n)
    assert got[:55].tolist() == lengths and {0, 1, 2, 3} <= set(lengths)
    assert batch.n_chains == 55


@pytest.mark.parametrize("tail", [False, True])
def test_losses(tail):
    torch.manual_seed(2)
    head, batch = make_head(), BlockBatch([make_conversation(30, 4, 1)], TAPS, 3, 0, "cpu", torch.float32)
    rows = batch.valid.nonzero().squeeze(1)
    true, ids, t = targets(head, batch, rows)
    weight = row_weights(batch, 4.0)[rows]
    assert torch.isclose(weight.sum(), torch.tensor(1.0)) and torch.isclose(weight[1] / weight[0], torch.tensor(-0.25).exp())
    kept = counts = None
    if tail:
        both = torch.cat((true.unsqueeze(1), ids), 1)
        kept, counts, both, t = Tail(torch.arange(11), 4, 7).rows(both, torch.cat((torch.ones_like(t[:, :1]), t), 1))
        true, ids, t = both[:, 0], both[:, 1:], t[:, 1:]
    x, w = torch.randn(len(rows), 21, requires_grad=True), head.outputs(kept).detach().requires_grad_()
    loss, accept, ce = BlockLoss.apply(x, w, true, ids, t, weight, counts, 0.1, 0.9)
    loss.backward()
    logits = x @ w.T + (counts.log() if counts is not None else 0)
    log_p = logits.log_softmax(-1)
    whole = torch.zeros_like(log_p).scatter_add_(1, ids.clamp(min=0), t * (ids >= 0))
    l1 = (log_p.exp() - whole).abs().sum(-1) + (1 - whole.sum(-1))  # unknown probabilities of the target count as the drafter's
    plain_ce = -log_p.gather(1, true.clamp(min=0).unsqueeze(1)).squeeze(1) * (true >= 0)
    grads = torch.autograd.grad(((0.1 * plain_ce + 0.9 * l1) * weight).sum(), (x, w))
    torch.testing.assert_close(loss, ((0.1 * plain_ce + 0.9 * l1) * weight).sum())
    torch.testing.assert_close(accept, 1 - l1 / 2)
    torch.testing.assert_close(ce, plain_ce)
    for got, wanted in zip((x.grad, w.grad), grads):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)
    conf = torch.randn(len(rows), requires_grad=True)
    confidence_loss(conf, accept, weight).backward()
    torch.testing.assert_close(conf.grad, (conf.sigmoid() - accept.clamp(0, 1)).detach() * weight)


def test_pointers_look_at_the_newest_row_and_the_anchor():
    """Heads that have keys of their own: from the start, the newest context row reaches every row of a block. Features and
    embeddings have means, as real ones do, by which they are told apart."""
    torch.manual_seed(4)
    mean = torch.randn(64) * 2
    head = BlockHead(dict(SHAPE, n_embd=64, n_target_embd=64, n_heads=4, n_kv_heads=4, head_dim=16, rope_theta=1e4),
                     torch.randn(N_VOCAB, 64) - mean, torch.arange(11))
    head.start_from(torch.randn(N_VOCAB, 64), torch.ones(64), 2)
    head.point(torch.randn(300, 3, 64) + mean, torch.randint(0, N_VOCAB, (300,)))
    c = make_conversation(40, 4, 1)
    c.features = (np.random.default_rng(1).standard_normal((40, 3, 64)) + mean.numpy()).astype(np.float16)

    def rows(features):
        c.features = features
        with torch.no_grad():
            return head(BlockBatch([c], [0, 1, 2], 3, 0, "cpu", torch.float32)).view(-1, 3, 64)[20]
    base = c.features
    plain = rows(base)
    moved = []
    for back in (1, 9):  # position before the anchor
        other = base.copy()
        other[24 - back, 2] = base[3, 2]
        moved.append((rows(other) - plain).norm(dim=-1))
    assert (moved[0] > 3 * moved[1]).all(), moved


def test_config_and_names(tmp_path):
    head = make_head()
    about = checkpoint.block_config(head.shape, [0, 2, 4], 4, N_VOCAB, 128)
    assert about["target_layer_ids"] == [-1, 1, 3] and about["dflash_config"]["block_size"] == 3
    assert about["architectures"] == ["Qwen3DSparkModel"] and about["sample_from_anchor"]
    assert checkpoint.block_config(dict(head.shape, n_markov=0), [1], 4, 9, 9)["architectures"] == ["Qwen3DFlashModel"]
    names = set(checkpoint.tensors(head.state_dict()))
    assert {"fc.weight", "hidden_norm.weight", "norm.weight", "lm_head.weight", "d2t", "markov_head.markov_w1.weight",
            "markov_head.markov_w2.weight", "confidence_head.proj.weight", "confidence_head.proj.bias",
            "layers.1.self_attn.q_norm.weight", "layers.0.mlp.gate_proj.weight"} <= names
