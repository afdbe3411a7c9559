"""Training on one device: dense chains against head.unroll, the store of rows, answers against whole passes, cut loops."""
import numpy as np
import pytest
import torch

from headtrain import gpu, llama
from headtrain.features import Conversation
from headtrain.head import Batch, Head, unroll
from headtrain.target import Target
from test_unroll import N_VOCAB, SHAPE, make_head

CPU = torch.device("cpu")


class FakeTarget:
    """Features and logits that depend on token and position alone."""
    device, taps = CPU, [0, 1, 3]

    def __init__(self):
        rng = torch.Generator().manual_seed(5)
        self.target = Target("llama", N_VOCAB, 16, 3, 2, 2, 8, 512, 8, 1e-5, 100.0, [0], None, None, None)
        self.by_token, self.by_place = torch.randn(N_VOCAB, 3, 16, generator=rng), torch.randn(600, 3, 16, generator=rng)
        self.output = torch.randn(N_VOCAB, 16, generator=rng)

    def whole(self, tokens):
        x = self.by_token[tokens] + self.by_place[:tokens.shape[1]]
        return x[..., -1, :], x.half()

    def logits(self, x):
        return x @ self.output.T


def make_store(eight_bits):
    rng, begin = np.random.default_rng(3), [4, 7, 1]
    items = [gpu.Conversation("a", np.array(begin + rng.integers(0, N_VOCAB, n).tolist(), dtype=np.int32), len(begin) + 2 + i,
                              True, i == 0) for i, n in enumerate((9, 14, 30, 17))]
    for i, c in enumerate(items):
        c.tokens[3] = i  # no common beginning beyond the three
    fake = FakeTarget()
    return gpu.Store(fake, items, n_likely=4, eight_bits=eight_bits, say=lambda _: None), fake


def as_record(store, fake, i):
    c = store.items[i]
    x, taps = fake.whole(torch.from_numpy(c.tokens).long().unsqueeze(0))
    log_p, likely = fake.logits(x[0]).log_softmax(-1).topk(4)
    return Conversation(str(i), c.n_prompt, c.tokens, likely.numpy().astype(np.int32), log_p.numpy(), taps[0].numpy())


@pytest.mark.parametrize("eight_bits", [False, True])
def test_dense_chains_equal_unroll(eight_bits):
    gpu.Store.GROUP = 16
    store, fake = make_store(eight_bits)
    assert store.common == 3
    head, depths, chosen = make_head(), 3, np.array([0, 1, 3])
    batch = gpu.Batch(store, chosen, depths)
    records = [as_record(store, fake, i) for i in chosen]
    theirs = Batch(records, [0, 1, 2], 0, CPU, torch.float32, store.common - 1)
    begin = np.cumsum([0] + [len(r) - 1 for r in records])
    rng = np.random.default_rng(1)
    with torch.no_grad():
        for depth, (ours, (rows, hidden)) in enumerate(zip(gpu.unroll_dense(head, batch, depths),
                                                           unroll(head, theirs, depths))):
            slots, places = batch.counted(depth, rng, 1.0, 1.0)
            assert len(slots) == len(rows)
            assert torch.allclose(ours[slots], hidden, atol=0.05 if eight_bits else 1e-4)
            # the predictions there: the same likeliest tokens
            assert torch.equal(store.likely[places].long(), theirs.likely[rows])
            assert torch.allclose(store.log_p[places].float(), theirs.log_p[rows], rtol=1e-3, atol=1e-3)
            which = slots // batch.slots
            assert torch.equal(rows, torch.from_numpy(begin[which] + slots % batch.slots + batch.first + depth))


def test_measured_as_evaluate_does(tmp_path):
    from contextlib import nullcontext

    from headtrain import evaluate
    gpu.Store.GROUP = 16
    store, fake = make_store(False)
    head = make_head()
    options = gpu.Options(out=str(tmp_path), taps=[0, 1, 3], depths=3, hold_out=0.0, batch_rows=40)
    run = gpu.Run(options, fake.target, head, store, say=lambda _: None)
    run.autocast = nullcontext
    run.held = {"a": [0, 1, 2, 3]}
    records = [as_record(store, fake, i) for i in range(4)]
    theirs = evaluate.acceptance(head, records, range(4), [0, 1, 2], 3, CPU, nullcontext)
    assert run.measure()["all"] == theirs["all"]


def test_training_learns(tmp_path, steady_clock):
    gpu.Store.GROUP = 16
    store, fake = make_store(False)
    said = []
    options = gpu.Options(out=str(tmp_path), taps=[0, 1, 3], depths=3, hold_out=0.0, batch_rows=40, dropout=0.0)
    head = Head(dict(SHAPE, n_taps=3), torch.randn(N_VOCAB, 16), torch.arange(11))
    run = gpu.Run(options, fake.target, head, store, say=said.append)
    batches = run.shuffle()
    assert sorted(i for b in batches for i in b) == sorted(run.training)
    run.run(steady_clock.monotonic() + 2)
    losses = [float(line.split("loss ")[1].split()[0]) for line in said if "loss" in line]
    assert losses[-1] < 2.5
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert saved["shape"]["n_draft"] == 11 and set(saved["head"]) == set(run.head.state_dict())


def make_llama():
    torch.manual_seed(0)
    target = Target("llama", 24, 16, 2, 4, 2, 32, 128, 4, 1e-5, 100.0, [3], None, None, None)
    one = llama.Llama.__new__(llama.Llama)
    one.target, one.taps, one.device, one.dtype = target, [0, 2], CPU, torch.float32
    one.embedding, one.output, one.norm = torch.randn(24, 16), torch.randn(24, 16), torch.ones(16)
    one.layers = [dict(attn_norm=torch.ones(16), ffn_norm=torch.ones(16), qkv=torch.randn(16 + 8 + 8, 16) * 0.3,
                       o=torch.randn(16, 16) * 0.3, gate_up=torch.randn(64, 16) * 0.3, down=torch.randn(16, 32) * 0.3)
                  for _ in range(2)]
    one.cos, one.sin = llama.rotary_table(target, CPU)
    return one


def test_answers_are_what_whole_passes_choose():
    one, rng = make_llama(), np.random.default_rng(2)
    prompts = [rng.integers(4, 24, n) for n in rng.integers(2, 20, 30)]
    writer = llama.Writer(one, 8, 64, [3], 20)
    got = {i: (answer, ended) for i, answer, ended in writer.write(prompts, [0.0] * 30)}
    assert sorted(got) == list(range(30))
    for i, (answer, ended) in got.items():
        tokens = list(prompts[i])
        for token in answer:
            x, _ = one.whole(torch.tensor([tokens]))
            assert int(one.logits(x[0, -1]).argmax()) == token
            tokens.append(int(token))
        assert ended and len(answer) <= 20
        if len(answer) < 20:
            x, _ = one.whole(torch.tensor([tokens]))
            assert int(one.logits(x[0, -1]).argmax()) == 3


def test_any_strides_of_attention(monkeypatch):
    """CUDA's attention gives its result with other strides than the CPU's."""
    plain = llama.F.scaled_dot_product_attention

    def turned(*args, **more):
        return plain(*args, **more).transpose(1, 2).contiguous().transpose(1, 2)

    monkeypatch.setattr(llama.F, "scaled_dot_product_attention", turned)
    q, k = torch.randn(2, 6, 1, 8), torch.randn(2, 3, 5, 8)
    got = llama.attend_few(q, k, k, torch.zeros(2, 5))
    monkeypatch.undo()
    assert torch.equal(got, llama.attend_few(q, k, k, torch.zeros(2, 5)))


def test_the_attention_kernel():
    """By Triton's interpreter, in a process of its own."""
    pytest.importorskip("triton")
    import os
    import subprocess
    import sys
    from pathlib import Path
    code = """
import torch
from headtrain import attend, llama
from headtrain.target import Target
for heads, n_kv, d in ((9, 3, 64), (4, 4, 32), (32, 1, 16)):
    t = Target("llama", 24, 16, 2, heads, n_kv, 32, 128, d, 1e-5, 100.0, [3], None, None, None)
    assert attend.works(t, torch.device("cpu"), torch.float32, llama.attend_few)
"""
    where = Path(__file__).resolve().parents[2] / "training"
    done = subprocess.run([sys.executable, "-c", code], cwd=where, env={**os.environ, "TRITON_INTERPRET": "1"}, text=True,
                          capture_output=True)
    if "only 0-dimensional arrays" in done.stderr:
        pytest.skip("Triton's interpreter does not know this numpy")
    assert done.returncode == 0, done.stderr


def test_warm_answers_follow_the_distribution():
    one = make_llama()
    writer = llama.Writer(one, 8, 64, [3], 1)
    logits = torch.tensor([[0.0, 1.0, 2.0]]).repeat(20000, 1)
    counts = torch.bincount(writer.choose(logits, torch.ones(20000, 1)), minlength=3) / 20000
    assert torch.allclose(counts, torch.tensor([0.0, 1.0, 2.0]).softmax(0), atol=0.02)
    assert (writer.choose(logits, torch.zeros(20000, 1)) == 2).all()


def loops(ids):
    """The engine's rule, slowly: whether the newest ids repeat."""
    for period in range(1, 65):
        wanted = max(3 * period, 48)
        if len(ids) < wanted + period:
            break
        if all(ids[-1 - k] == ids[-1 - k - period] for k in range(wanted)):
            return True
    return False


def test_cut_loops():
    rng = np.random.default_rng(0)
    plain = rng.integers(0, 1000, 200).astype(np.int32)
    rows = [plain, np.concatenate((plain[:40], np.tile(plain[:7], 30)))[:200],
            np.concatenate((plain[:90], np.tile(plain[:1], 110))), np.concatenate((plain[:60], np.full(140, 0)))]
    rows[3][60:] = -1 - np.arange(140)  # padding is not a loop
    keep = llama.cut_loops(np.stack(rows).astype(np.int32), CPU)
    for row, kept in zip(rows, keep):
        first = next((n for n in range(1, 201) if loops(row[:n].tolist())), 200)
        assert kept == first


def test_likeliest():
    torch.manual_seed(1)
    logits = torch.randn(50, 640)
    ids, log_p = gpu.likeliest(logits, 8)
    want = logits.log_softmax(-1).topk(8)
    assert torch.equal(ids.long(), want.indices) and torch.allclose(log_p.float(), want.values, atol=5e-3)


def test_held_out_runs():
    import gpu_head
    rng = np.random.default_rng(4)
    one, two = rng.integers(0, 50000, 20), rng.integers(0, 50000, 20)
    common = np.arange(8)
    held = gpu_head.Held([np.concatenate((common, one)).tolist(), np.concatenate((common, two)).tolist()])
    other = rng.integers(0, 50000, 12)
    items = [other, np.concatenate((other, one[3:10], other)), np.concatenate((other, one[3:9], other)), common, two[13:],
             np.concatenate((two[14:], other))]
    assert held.which(items).tolist() == [False, True, False, False, True, False]
    assert held.which([one[:4], one[4:]]).tolist() == [False, True]
