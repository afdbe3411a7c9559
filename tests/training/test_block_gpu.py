"""Block drafters on one device: blocks gathered from the store against those of BlockBatch, measurement, a short run."""
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from headtrain import block_gpu, gpu
from headtrain.block import BlockBatch, BlockHead, chain_lengths
from test_block import make_head
from test_gpu import CPU, as_record, make_store
from test_unroll import N_VOCAB


@torch.no_grad()
@pytest.mark.parametrize("eight_bits", [False, True])
def test_blocks_of_the_store(eight_bits):
    gpu.Store.GROUP = 16
    store, fake = make_store(eight_bits)
    head, chosen = make_head(), np.array([0, 1, 3])
    ours = block_gpu.Blocks(store, chosen, 3, 0, np.random.default_rng(1), all_anchors=True)
    theirs = BlockBatch([as_record(store, fake, i) for i in chosen], [0, 1, 2], 3, 0, "cpu", torch.float32)
    assert ours.n_chains == theirs.n_chains and ours.valid.sum() == theirs.valid.sum()
    a, b = ours.valid.nonzero().squeeze(1), theirs.valid.nonzero().squeeze(1)
    for name in ("before", "next", "likely", "depth"):
        assert torch.equal(getattr(ours, name)[a], getattr(theirs, name)[b]), name
    assert torch.allclose(ours.log_p[a], theirs.log_p[b], rtol=1e-3, atol=1e-3)
    assert torch.allclose(head(ours)[a], head(theirs)[b], atol=0.1 if eight_bits else 1e-4)
    if not eight_bits:
        for row, wanted, room in zip(chain_lengths(head, ours), chain_lengths(head, theirs), ours.room):
            assert row[:room].tolist() == wanted[:room].tolist()


def test_drawn_anchors_lie_in_answers():
    gpu.Store.GROUP = 16
    store, _ = make_store(False)
    for seed in range(20):
        some = block_gpu.Blocks(store, np.array([0, 1, 2, 3]), 3, 4, np.random.default_rng(seed))
        first = some.valid.view(4, -1, 3)[..., 0]
        for i in range(4):
            anchors = some.anchors[i][first[i]].tolist()
            assert anchors and len(set(anchors)) == len(anchors)
            assert min(anchors) >= store.items[i].n_prompt and max(anchors) <= store.size[i] - 2
        assert some.n_chains == first.sum()


@pytest.mark.parametrize("kind", ["dspark", "dflash"])
def test_training_learns(tmp_path, kind, steady_clock):
    gpu.Store.GROUP = 16
    store, fake = make_store(False)
    options = block_gpu.Options(out=str(tmp_path), kind=kind, taps=[0, 1, 3], depths=3, hold_out=0.0, batch_rows=40,
                                ce=1.0, l1=0.0)  # the tokens do not follow what the made-up target finds likely
    torch.manual_seed(1)
    shape = dict(make_head().shape, n_markov=5 if kind == "dspark" else 0, n_draft=N_VOCAB)
    head = BlockHead(shape, torch.randn(N_VOCAB, 16), torch.arange(N_VOCAB))
    head.start_from(torch.randn(N_VOCAB, 16), torch.ones(16), 2)
    said = []
    run = block_gpu.Run(options, fake.target, head, store, say=said.append)
    run.autocast = nullcontext
    run.held = {"a": [0, 1]}
    run.run(steady_clock.monotonic() + 2)
    losses = [float(line.split("loss ")[1].split()[0]) for line in said if " chains/s" in line]
    assert losses[-1] < 2.0, said
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert saved["kind"] == kind and saved["shape"]["n_block"] == 3 and CPU == run.device
