"""The MTP block: chains against rows one by one, and the files that it is written to."""
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import dequantize, quantize

from headtrain import nextn
from headtrain.head import Batch, Block, unroll
from test_unroll import N_VOCAB, SHAPE, make_conversation, norm, rotated

BLOCK = dict(SHAPE, n_taps=1)


def make_block(shape=BLOCK, n_vocab=N_VOCAB):
    torch.manual_seed(3)
    block = Block(shape, torch.randn(n_vocab, shape["n_embd"]), torch.arange(shape["n_draft"]) * 2 % n_vocab)
    block.start_from(torch.randn(n_vocab, shape["n_embd"]), torch.rand(shape["n_embd"]) + 0.5, 0)
    for p in block.parameters():
        if p.requires_grad:
            torch.nn.init.normal_(p, std=0.4)
    return block


def step(block, token, hidden, position, keys, values):
    """One row, by hand: appends its key and value, returns the normed output."""
    layer, a = block.midlayer, block.midlayer.self_attn
    x = block.eh_proj.weight @ torch.cat((norm(block.embedding[token], block.enorm.weight), norm(hidden, block.hnorm.weight)))
    c = norm(x, layer.input_layernorm.weight)
    q = rotated((a.q_proj.weight @ c).view(4, 4), position)
    keys.append(rotated((a.k_proj.weight @ c).view(2, 4), position))
    values.append((a.v_proj.weight @ c).view(2, 4))
    heads = [sum(w * v[h // 2] for w, v in zip(torch.stack([q[h] @ k[h // 2] / 2 for k in keys]).softmax(0), values))
             for h in range(4)]
    y = x + a.o_proj.weight @ torch.cat(heads)
    m = norm(y, layer.post_attention_layernorm.weight)
    z = y + layer.mlp.down_proj.weight @ (torch.nn.functional.silu(layer.mlp.gate_proj.weight @ m) * (
        layer.mlp.up_proj.weight @ m))
    return norm(z, block.norm.weight)


@torch.no_grad()
def test_chains_equal_rows_one_by_one():
    block, c, depths = make_block(), make_conversation(11, 4, 1), 3
    features = torch.from_numpy(np.array(c.features)).float()[:, 3]
    for depth, (rows, hidden) in enumerate(unroll(block, Batch([c], [3], 0, "cpu", torch.float32), depths)):
        for row, got in zip(rows.tolist(), hidden):
            keys, values = [], []
            for p in range(row + 1):
                fed = norm(features[p], block.target_norm) if p <= row - depth else out
                out = step(block, int(c.tokens[p + 1]), fed, p, keys, values)
            torch.testing.assert_close(got, out, rtol=1e-4, atol=1e-5)


def test_gradients_reach_all_but_the_output_rows():
    block = make_block()
    for rows, hidden in unroll(block, Batch([make_conversation(9, 4, 1)], [3], 0, "cpu", torch.float32), 3):
        hidden.square().mean().backward(retain_graph=True)
    for name, p in block.named_parameters():
        assert (name == "lm_head.weight") == (p.grad is None or not p.grad.abs().sum()), name


WIDE = dict(n_embd=32, n_target_embd=32, n_taps=1, n_heads=4, n_kv_heads=2, head_dim=8, n_ff=64, n_draft=10, eps=1e-5,
            rope_theta=100.0)


@pytest.fixture
def model(tmp_path):
    path, rng = tmp_path / "model.gguf", np.random.default_rng(1)
    w = GGUFWriter(str(path), "llama")
    w.add_name("a model")
    for name, value in (("block_count", 3), ("embedding_length", 32), ("feed_forward_length", 64), ("attention.head_count", 4),
                        ("attention.head_count_kv", 2), ("context_length", 99)):
        w.add_uint32(f"llama.{name}", value)
    w.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    w.add_token_list(["a", "b", "c"])
    w.add_tensor("token_embd.weight", quantize(rng.standard_normal((20, 32)).astype(np.float32), GGMLQuantizationType.Q8_0),
                 raw_dtype=GGMLQuantizationType.Q8_0)
    w.add_tensor("output_norm.weight", np.ones(32, dtype=np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    block = make_block(WIDE, 20)
    torch.save({"shape": WIDE, "head": block.state_dict()}, tmp_path / "checkpoint.pt")
    return tmp_path, path, block


@pytest.mark.parametrize("whole", [False, True])
def test_files_hold_the_block(model, whole):
    folder, path, block = model
    nextn.write(folder / "checkpoint.pt", path, folder / "out.gguf", "a block", "Q8_0", whole)
    out, base = GGUFReader(folder / "out.gguf"), GGUFReader(path)
    value = {k: f.contents() for k, f in out.fields.items() if not k.startswith("GGUF.")}
    assert (value["general.architecture"], value["llama.block_count"], value["llama.nextn_predict_layers"]) == ("llama", 4, 1)
    assert value["llama.vocab_size"] == 20 and value["llama.attention.head_count_kv"] == 2
    assert ("tokenizer.ggml.tokens" in value) == whole and value["general.name"] == ("a model" if whole else "a block")
    tensors = {t.name: t for t in out.tensors}
    for t in base.tensors:
        assert (t.name in tensors) == whole
        if whole:
            assert tensors[t.name].tensor_type == t.tensor_type and np.array_equal(tensors[t.name].data, t.data)
    assert tensors["d2t"].data.tolist() == block.d2t.tolist()
    q = torch.tensor(dequantize(tensors["blk.3.attn_q.weight"].data, tensors["blk.3.attn_q.weight"].tensor_type))
    halves = q.view(4, 4, 2, 32).transpose(1, 2).reshape(32, 32)  # pairs of neighbours back to halves
    torch.testing.assert_close(halves, block.midlayer.self_attn.q_proj.weight.detach(), rtol=0, atol=0.02)
    assert list(tensors["blk.3.nextn.eh_proj.weight"].shape) == [64, 32]
    names = {n.removeprefix("blk.3.").removesuffix(".weight") for n in tensors if n.startswith("blk.3.")}
    assert names == {"nextn.eh_proj", "nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm", "attn_norm", "attn_q", "attn_k",
                     "attn_v",
                     "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"}


def test_what_cannot_be_is_said(model):
    folder, path, block = model
    nextn.write(folder / "checkpoint.pt", path, folder / "out.gguf", "a block", "F16", True)
    with pytest.raises(SystemExit, match="its own MTP blocks are in the way"):
        nextn.write(folder / "checkpoint.pt", folder / "out.gguf", folder / "again.gguf", "a block", "F16", False)
    with pytest.raises(SystemExit, match="the target is of qwen3"):
        nextn.tensors(torch.load(folder / "checkpoint.pt", weights_only=True), "qwen3", 3)
