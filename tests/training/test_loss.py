"""The fused cross-entropy against autograd, and what becomes of tokens that cannot be drafted."""
import torch

from headtrain.loss import SoftCrossEntropy, Tail, closeness, draft_targets
from test_unroll import make_head


def test_soft_cross_entropy_equals_autograd():
    torch.manual_seed(3)
    SoftCrossEntropy.CHUNK = 5
    hidden, weight = torch.randn(12, 8, requires_grad=True), torch.randn(9, 8, requires_grad=True)
    ids = torch.stack([torch.randperm(9)[:4] for _ in range(12)])
    p = torch.rand(12, 4) * 0.25
    p[2, 1] = 0.0
    ids[2, 1] = -1
    rows = torch.rand(12) / 12
    ours, losses = SoftCrossEntropy.apply(hidden, weight, ids, p, rows)
    (2.5 * ours).backward()
    got = hidden.grad.clone(), weight.grad.clone()
    hidden.grad = weight.grad = None
    log_q = (hidden @ weight.T).log_softmax(-1)
    each = -(p * log_q.gather(1, ids.clamp(min=0))).sum(-1)
    plain = (each * rows).sum()
    (2.5 * plain).backward()
    torch.testing.assert_close(ours, plain)
    torch.testing.assert_close(losses, each)
    torch.testing.assert_close(got[0], hidden.grad, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(got[1], weight.grad, rtol=1e-4, atol=1e-6)


def test_drawn_rare_tokens_stand_for_all_of_them():
    torch.manual_seed(4)
    hidden, weight = torch.randn(6, 8), torch.randn(40, 8) / 2
    ids = torch.stack([torch.randperm(40)[:4] for _ in range(6)])
    p = torch.tensor([0.6, 0.3, 0.05, 0.005]).repeat(6, 1)
    uses = torch.randperm(40)
    tail = Tail(uses, 10, 24)
    common = set(uses.argsort(descending=True)[:10].tolist())
    sums = []
    for _ in range(400):
        rows, counts, columns, q = tail.rows(ids, p)
        assert len(rows) == 34 == len(set(rows.tolist())) and set(rows[:10].tolist()) == common and round(counts.sum().item(),
                                                                                                          3) == 40
        assert torch.equal(rows[columns[columns >= 0]], ids[columns >= 0]) and (columns[:, :3] >= 0).all() and (
            counts[columns[:, :3]] == 1).all()
        torch.testing.assert_close(q, p * (columns >= 0))
        sums.append(((hidden @ weight[rows].T).exp() * counts).sum(-1))
        ours, losses = SoftCrossEntropy.apply(hidden, weight[rows], columns, q, torch.ones(6), counts)
        there = (q * (hidden @ weight.T).gather(1, ids)).sum(-1)
        torch.testing.assert_close(losses, q.sum(-1) * sums[-1].log() - there, rtol=1e-4, atol=1e-4)
    exact = (hidden @ weight.T).exp().sum(-1)
    torch.testing.assert_close(torch.stack(sums).mean(0), exact, rtol=0.03, atol=0.0)
    assert torch.stack(sums).std(0).max() > 0


def test_a_weighted_sum_has_the_right_gradient():
    torch.manual_seed(5)
    hidden, weight = torch.randn(4, 8, requires_grad=True), torch.randn(9, 8, requires_grad=True)
    ids, p, counts = torch.randint(0, 9, (4, 1)), torch.rand(4, 1), torch.rand(9) + 1
    SoftCrossEntropy.apply(hidden, weight, ids, p, torch.ones(4), counts)[0].backward()
    got = hidden.grad.clone(), weight.grad.clone()
    hidden.grad = weight.grad = None
    logits = hidden @ weight.T
    (p[:, 0] * ((logits + counts.log()).logsumexp(-1) - logits.gather(1, ids)[:, 0])).sum().backward()
    torch.testing.assert_close(got[0], hidden.grad, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(got[1], weight.grad, rtol=1e-4, atol=1e-6)


def test_targets_live_on_the_draft_vocabulary():
    head = make_head()
    inside, outside = head.d2t[:3], (head.t2d < 0).nonzero()[0]
    likely = torch.stack([torch.cat((inside, outside)), torch.cat((outside, inside))])
    log_p = torch.tensor([[0.5, 0.2, 0.1, 0.2]] * 2).log()
    ids, p = draft_targets(head, likely, log_p)
    assert ids.tolist() == [[0, 1, 2, -1], [-1, 0, 1, 2]]
    torch.testing.assert_close(p[0], torch.tensor([0.625, 0.25, 0.125, 0.0]))
    torch.testing.assert_close(p[1], torch.tensor([0.0, 0.2, 0.1, 0.2]))


def test_closeness_is_zero_for_equal_rows():
    rows = torch.randn(5, 16)
    assert closeness(rows, rows).item() == 0
    assert closeness(rows + 1, rows).item() > 0.1
