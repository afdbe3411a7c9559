"""The unrolled chains against the head run one row at a time with a list of keys, as the engine does it."""
import math

import numpy as np
import torch

from headtrain.features import Conversation
from headtrain import pointing
from headtrain.head import Batch, Head, drop, rotate, unroll
from headtrain.muon import orthogonal

SHAPE = dict(n_embd=16, n_target_embd=16, n_taps=3, n_heads=4, n_kv_heads=2, head_dim=4, n_ff=24, n_draft=11, eps=1e-5,
             rope_theta=100.0)
N_VOCAB = 20


def make_head(seed=0):
    torch.manual_seed(seed)
    head = Head(SHAPE, torch.randn(N_VOCAB, 16), torch.tensor(sorted(torch.randperm(N_VOCAB)[:11].tolist())))
    for p in head.parameters():
        torch.nn.init.normal_(p, std=0.4)
    return head


def make_conversation(n, n_prompt, seed, name="c"):
    rng = np.random.default_rng(seed)
    likely = np.argsort(rng.random((n, N_VOCAB)))[:, :4].astype(np.int32)
    log_p = np.log(np.sort(rng.dirichlet(np.ones(6), n))[:, :-5:-1]).astype(np.float32)
    return Conversation(name, n_prompt, rng.integers(0, N_VOCAB, n).astype(np.int32), likely, log_p,
                        rng.standard_normal((n, 4, 16)).astype(np.float16))


def norm(x, weight):
    return x / torch.sqrt((x * x).mean() + SHAPE["eps"]) * weight


def rotated(x, position):
    """x [heads, 4]: pairs (i, i + 2), by hand."""
    out = x.clone()
    for i in range(2):
        angle = position * 100.0 ** (-i / 2)
        out[:, i] = x[:, i] * math.cos(angle) - x[:, i + 2] * math.sin(angle)
        out[:, i + 2] = x[:, i + 2] * math.cos(angle) + x[:, i] * math.sin(angle)
    return out


def step(head, token, g, position, keys, values):
    """One row: appends its key and value, returns the normed output."""
    layer, a = head.midlayer, head.midlayer.self_attn
    c = torch.cat((norm(head.embedding[token], layer.input_layernorm.weight), norm(g, layer.hidden_norm.weight)))
    q = rotated((a.q_proj.weight @ c).view(4, 4), position)
    keys.append(rotated((a.k_proj.weight @ c).view(2, 4), position))
    values.append((a.v_proj.weight @ c).view(2, 4))
    heads = []
    for h in range(4):
        scores = torch.stack([q[h] @ k[h // 2] for k in keys]) / 2.0
        heads.append(sum(w * v[h // 2] for w, v in zip(scores.softmax(0), values)))
    y = g + a.o_proj.weight @ torch.cat(heads)
    m = norm(y, layer.post_attention_layernorm.weight)
    gate = torch.nn.functional.silu(layer.mlp.gate_proj.weight @ m)
    z = y + layer.mlp.down_proj.weight @ (gate * (layer.mlp.up_proj.weight @ m))
    return norm(z, head.norm.weight)


def one_by_one(head, c, taps, start, depths):
    """Outputs of the chain that begins at row `start`."""
    features = torch.from_numpy(np.array(c.features)).float()[:, taps]
    keys, values, outputs = [], [], []
    for p in range(start + 1):
        fused = head.fc.weight @ torch.cat([norm(features[p, i], head.fc_norm[i].weight) for i in range(len(taps))])
        out = step(head, int(c.tokens[p + 1]), fused, p, keys, values)
    outputs.append(out)
    for p in range(start + 1, min(start + depths, len(c) - 1)):
        outputs.append(step(head, int(c.tokens[p + 1]), outputs[-1], p, keys, values))
    return outputs


@torch.no_grad()
def test_chains_equal_rows_one_by_one():
    head, taps, depths = make_head(), [0, 1, 3], 4
    conversations = [make_conversation(9, 4, 1), make_conversation(13, 1, 2), make_conversation(6, 5, 3)]
    batch = Batch(conversations, taps, 3, "cpu", torch.float32)
    begin = [0, 8, 20]
    expected = {}
    for c, b in zip(conversations, begin):
        for q in range(max(c.n_prompt - 1, 0), len(c) - 1):
            for depth, out in enumerate(one_by_one(head, c, taps, q, depths)):
                expected[b + q, depth] = out
    seen = 0
    for depth, (rows, hidden) in enumerate(unroll(head, batch, depths)):
        for row, out in zip(rows.tolist(), hidden):
            torch.testing.assert_close(out, expected[row - depth, depth], rtol=1e-4, atol=1e-5)
            seen += 1
    assert seen == len(expected)


def test_rows_foresee_the_token_after_next():
    c = make_conversation(9, 4, 1)
    batch = Batch([c], [0, 1, 2], 3, "cpu", torch.float32)
    assert batch.tokens.tolist() == c.tokens[1:].tolist()
    assert batch.true_next.tolist() == c.tokens[2:].tolist() + [-1]
    assert batch.likely.tolist() == c.likely[1:].tolist()
    assert batch.chains.tolist() == list(range(3, 8))
    assert batch.left.tolist() == [5, 4, 3, 2, 1]


def test_shares_keep_some_chains():
    torch.manual_seed(1)
    batch = Batch([make_conversation(200, 2, 4)], [0, 1, 2], 3, "cpu", torch.float32)
    sizes = [len(rows) for rows, _ in unroll(make_head(), batch, 3, [1.0, 0.5, 0.25])]
    assert sizes[0] == 198 and 70 < sizes[1] < 130 and 25 < sizes[2] < 75


@torch.no_grad()
def test_a_grid_leaves_some_chains_out_and_changes_none():
    head, conversations = make_head(), [make_conversation(90, 4, 1), make_conversation(61, 9, 2), make_conversation(6, 5, 3)]
    expected = {}
    for depth, (rows, hidden) in enumerate(unroll(head, Batch(conversations, [0, 1, 3], 3, "cpu", torch.float32, 2), 3)):
        expected.update({(row, depth): out for row, out in zip(rows.tolist(), hidden)})
    batch = Batch(conversations, [0, 1, 3], 3, "cpu", torch.float32, 2, 0.5, 16)
    assert batch.n_rows == 154 and len(batch.features) == 160 and batch.longest == 96
    for depth, (rows, hidden) in enumerate(unroll(head, batch, 3)):
        assert len(rows) % 16 == 0 and len(rows) >= 96
        for row, out in zip(rows.tolist(), hidden):
            torch.testing.assert_close(out, expected[row, depth], rtol=1e-4, atol=1e-5)


def test_a_share_of_the_prompt_begins_chains():
    torch.manual_seed(1)
    chains = Batch([make_conversation(300, 200, 4)], [0, 1, 2], 3, "cpu", torch.float32, 10, 0.3).chains.tolist()
    assert chains[-100:] == list(range(199, 299)) and 30 < len(chains) - 100 < 90 and min(chains) >= 10
    assert chains == sorted(set(chains))


def test_masks_drop_a_share_and_keep_the_mean():
    x = torch.ones(300, 500)
    dropped = drop(x, 0.1)
    assert 0.08 < (dropped == 0).float().mean() < 0.12 and abs(dropped.mean() - 1) < 0.03
    assert not torch.equal(dropped, drop(x, 0.1))
    assert drop(x, 0.0) is x


def test_gradients_reach_every_weight():
    head = make_head()
    batch = Batch([make_conversation(9, 4, 1)], [0, 1, 3], 3, "cpu", torch.float32)
    for rows, hidden in unroll(head, batch, 3):
        head.lm_head(hidden).square().mean().backward(retain_graph=True)
    for name, p in head.named_parameters():
        assert p.grad is not None and p.grad.abs().sum() > 0, name


@torch.no_grad()
def test_pointers_look_where_they_should():
    shape = dict(SHAPE, n_embd=32, n_target_embd=16, n_heads=4, n_kv_heads=4, head_dim=32, rope_theta=10000.0)
    torch.manual_seed(2)
    head = Head(shape, torch.randn(N_VOCAB, 32) + 1, torch.arange(11))
    batch = Batch([make_conversation(120, 3, 5)], [0, 1, 3], 3, "cpu", torch.float32)
    w, _ = pointing.constant(head, batch)
    pointing.point(head, w, {0: 0, 1: 1, 2: 2})
    rotation, c = head.rotation(batch.position), batch.tokens
    # as if the constant were perfect
    k = rotate((head.midlayer.self_attn.k_proj.weight @ w / (w @ w)).view(1, 4, 32).expand(len(c), -1, -1), *rotation)
    q = rotate((head.midlayer.self_attn.q_proj.weight @ w / (w @ w)).view(1, 4, 32).expand(len(c), -1, -1), *rotation)
    scores = torch.einsum("qhd,khd->hqk", q, k) / 32 ** 0.5
    weights = scores.masked_fill(torch.ones(119, 119).triu(1).bool(), float("-inf")).softmax(-1)
    for h in range(3):
        assert weights[h].diagonal(-h).mean() > 0.9
    assert weights[3].diagonal().mean() < 0.5


def test_muon_makes_matrices_orthogonal():
    torch.manual_seed(4)
    for shape in ((20, 50), (50, 20)):
        values = torch.linalg.svdvals(orthogonal(torch.randn(shape)))
        assert values.min() > 0.5 and values.max() < 1.4
