"""Features as the engine lays them out, a short run on a made-up target, its checkpoint, and going on from it."""
import json
import random
import struct

import numpy as np
import pytest
import torch
from safetensors import safe_open

from headtrain import average, checkpoint, features, prompts, train, widen
from headtrain.target import Target
from test_unroll import N_VOCAB


def write_features(path, conversations, taps=(1, 2, 4)):
    """conversations: (id, tokens, n_prompt). The next token is mostly the last one plus three."""
    rng = np.random.default_rng(5)
    table = rng.standard_normal((N_VOCAB, len(taps), 16))
    with open(path, "wb") as f:
        f.write(struct.pack("<8s4I8I2I", b"AEFEAT01", 16, len(taps), 2, N_VOCAB, *taps, *[0] * (8 - len(taps)), 0, 0))
        for name, tokens, n_prompt in conversations:
            n, raw = len(tokens), name.encode()
            tokens = np.array(tokens, dtype=np.int32)
            f.write(struct.pack("<4I", n, n_prompt, len(raw), 0) + raw + b"\0" * (-len(raw) % 4) + tokens.tobytes())
            f.write(np.stack([(tokens + 3) % N_VOCAB, (tokens + 5) % N_VOCAB], 1).astype(np.int32).tobytes())
            f.write(np.tile(np.log(np.array([0.9, 0.05], dtype=np.float32)), (n, 1)).tobytes())
            f.write(table[tokens].astype(np.float16).tobytes())


def made_up(n):
    rng = np.random.default_rng(6)
    return [(f"c{i}", [(int(s) + 3 * k) % N_VOCAB for k in range(30)], 5) for i, s in enumerate(rng.integers(0, N_VOCAB, n))]


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    rng = np.random.default_rng(7)
    table = rng.standard_normal((N_VOCAB, 16)).astype(np.float32)
    target = Target("llama", N_VOCAB, 16, 4, 4, 2, 24, 128, 4, 1e-5, 100.0, [0], table, table, np.ones(16, dtype=np.float32))
    monkeypatch.setattr(train.target_file, "read", lambda path: target)
    conversations = made_up(60)
    write_features(tmp_path / "f.bin", conversations)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"id": i, "n_prompt": n, "tokens": t, "group": "chat"}) + "\n"
                                              for i, t, n in conversations))
    options = train.Options(model="", features=[str(tmp_path / "f.bin")], answers=[str(tmp_path / "a.jsonl")],
                            out=str(tmp_path / "run"), n_draft=N_VOCAB,
                            n_ff=32, depths=3, lr=5e-3, lr_matrix=0.03, batch_rows=300, epochs=30, hold_out=0.15,
                            eval_every=1e9, workers=1, threads=1)
    return options, target, tmp_path


def test_features_are_read_and_grow(tmp_path):
    path = tmp_path / "f.bin"
    some = made_up(3)
    write_features(path, some)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    corpus = features.Corpus([path])
    assert [corpus.size(i) for i in range(len(corpus))] == [(30, 5, "c0"), (30, 5, "c1")]
    path.write_bytes(whole)
    corpus.scan()
    assert len(corpus) == 3
    assert corpus[2].tokens.tolist() == some[2][1]
    assert corpus[2].features.shape == (30, 3, 16)
    assert corpus[2].likely[0].tolist() == [(some[2][1][0] + 3) % N_VOCAB, (some[2][1][0] + 5) % N_VOCAB]


def test_files_of_other_taps_share_what_both_have(tmp_path):
    write_features(tmp_path / "a.bin", made_up(2))
    write_features(tmp_path / "b.bin", made_up(2), taps=(1, 4))
    corpus = features.Corpus([tmp_path / "a.bin", tmp_path / "b.bin"])
    assert corpus.taps == [1, 4] and len(corpus) == 4
    assert np.array_equal(corpus[0].features, features.FeatureFile(tmp_path / "a.bin")[0].features[:, [0, 2]])
    assert corpus[2].features.shape == (30, 2, 16)


def test_a_wrong_file_is_refused(tmp_path):
    (tmp_path / "x.bin").write_bytes(b"something else")
    with pytest.raises(SystemExit, match="x.bin"):
        features.Corpus([tmp_path / "x.bin"])


def test_a_run_learns_and_goes_on(prepared, capsys):
    options, target, folder = prepared
    train.train(options)
    rows = (folder / "run" / "log.csv").read_text().splitlines()
    last = dict(zip(rows[0].split(","), rows[-1].split(",")))
    assert float(last["first"]) > 0.8 and float(last["accepted_3"]) > 2.2  # chance: 0.05
    saved = torch.load(folder / "run" / "checkpoint.pt", weights_only=True)
    options.epochs = 32
    train.train(options)
    again = torch.load(folder / "run" / "checkpoint.pt", weights_only=True)
    assert again["step"] > saved["step"] and again["seen"] > saved["seen"]
    assert f"going on at step {saved['step']}" in capsys.readouterr().out


def test_a_run_goes_on_with_more_draft_ids(prepared, capsys):
    options, target, folder = prepared
    options.n_draft, options.epochs = 12, 10
    train.train(options)
    saved = torch.load(folder / "run" / "checkpoint.pt", weights_only=True)
    options.n_draft, options.epochs, options.n_common, options.n_rare = N_VOCAB, 60, 8, 10
    train.train(options)
    again = torch.load(folder / "run" / "checkpoint.pt", weights_only=True)
    assert saved["shape"]["n_draft"] == 12 and again["shape"]["n_draft"] == N_VOCAB
    assert again["head"]["lm_head.weight"].shape == (N_VOCAB, 16) and again["head"]["d2t"].tolist() == list(range(N_VOCAB))
    assert f"12 and {N_VOCAB - 12} more of {N_VOCAB} tokens" in capsys.readouterr().out
    rows = (folder / "run" / "log.csv").read_text().splitlines()
    before, after = (float(dict(zip(rows[0].split(","), r.split(",")))["first"]) for r in (rows[1], rows[-1]))
    assert before < 0.7 and after > 0.8  # 12 of 20 next tokens, then all of them


def test_workers_take_rows_by_their_speed():
    assert train.shares_of([0.0, 900.0]) == [0.5, 0.5]  # not all have been measured
    assert train.shares_of([600.0, 300.0]) == pytest.approx([2 / 3, 1 / 3])
    # at least a third of equal speed, at most thrice
    assert train.shares_of([5.0, 10.0, 9985.0]) == pytest.approx([1 / 11, 1 / 11, 9 / 11], rel=0.01)


def test_a_gradient_is_the_mean_over_all_workers_rows(prepared, monkeypatch):
    options, target, folder = prepared
    options.depths, options.dropout, options.close, options.prompts, options.grid = 1, 0.0, 0.0, 0.0, 1
    run = train.Run(options)
    run.sort_out()
    run.clock = 0.0
    seen, other = [], []
    run.optimizer.step = run.muon.step = lambda: seen.append(run.flat.clone())
    run.world = 2
    monkeypatch.setattr(train.dist, "all_reduce", lambda flat: other.append(flat.clone()))
    run.take([1, 2, 3])
    other[0][-1] = 0  # progress comes from worker 0
    monkeypatch.setattr(train.dist, "all_reduce", lambda flat: flat.add_(other[0]))
    run.take([0])
    run.world = 1
    run.take([0, 1, 2, 3])
    assert (seen[2] - seen[4]).norm() < 0.01 * seen[4].norm() < 0.2 * (seen[0] - seen[4]).norm()  # gradients are bf16
    rows = [run.corpus.size(i)[0] - run.corpus.size(i)[1] for i in range(4)]
    assert run.seen == sum(rows[1:]) + 2 * sum(rows)


def test_widening_keeps_what_was_learnt():
    head = {"d2t": torch.tensor([1, 4, 7]), "norm.weight": torch.ones(2), "lm_head.weight": torch.arange(6.0).view(3, 2)}
    moments = {"exp_avg": torch.full((3, 2), 5.0), "exp_avg_sq": torch.arange(6.0).view(3, 2) + 1, "step": torch.tensor(3.0)}
    saved = {"head": head, "optimizer": {"state": {1: dict(moments)}}, "shape": {"n_draft": 3}}
    output = torch.arange(20.0).view(10, 2) / 10
    assert widen.widen(saved, torch.tensor([1, 3, 9]), [0, 9, 0, 8, 2, 0, 0, 9, 0, 7], output, 1) == 2
    assert head["d2t"].tolist() == [1, 3, 4, 7, 9] and saved["shape"]["n_draft"] == 5
    assert torch.equal(head["lm_head.weight"][[0, 2, 3]], torch.arange(6.0).view(3, 2))
    moved = torch.tensor([2.0, 3.0]) - output[4]  # token 4 is used least
    torch.testing.assert_close(head["lm_head.weight"][[1, 4]], output[[3, 9]] + moved)
    state = saved["optimizer"]["state"][1]
    assert state["exp_avg"][[1, 4]].abs().sum() == 0 and (state["exp_avg"][[0, 2, 3]] == 5).all()
    assert torch.equal(state["exp_avg_sq"][1], moments["exp_avg_sq"][1]) and torch.equal(state["exp_avg_sq"][[0, 2, 3]],
                                                                                         moments["exp_avg_sq"])


def test_draft_ids_are_exchanged():
    output = torch.arange(12.0).view(6, 2)
    moved = torch.tensor([10.0, -1.0])
    state = {"d2t": torch.tensor([1, 3, 4]), "lm_head.weight": output[[1, 3, 4]] + moved, "norm.weight": output}
    uses = np.array([9, 1, 9, 9, 9, 9])
    shape, made, fresh = widen.exchange({"n_draft": 3}, state, np.array([0, 3, 4, 5]), uses, output)
    assert shape["n_draft"] == 4 and fresh == 2 and made["d2t"].tolist() == [0, 3, 4, 5]
    assert torch.equal(made["lm_head.weight"], output[[0, 3, 4, 5]] + moved)
    assert state["d2t"].tolist() == [1, 3, 4]


def test_heads_are_averaged():
    def head(x, d2t=(1, 4)):
        return {"shape": {"n_draft": 2}, "taps": [1], "step": 9, "spent": 5.0,
                "head": {"d2t": torch.tensor(d2t), "norm.weight": torch.full((3,), x)}}
    mean = average.average([head(1.0), head(3.0)], [3, 1])
    assert mean["head"]["norm.weight"].tolist() == [1.5] * 3 and mean["head"]["d2t"].tolist() == [1, 4]
    assert mean["step"] == 0 and mean["spent"] == 0.0
    with pytest.raises(SystemExit, match="draft vocabulary"):
        average.average([head(1.0), head(3.0, (1, 5))], [1, 1])


def test_the_checkpoint_is_as_published_heads_are(prepared):
    options, target, folder = prepared
    options.epochs = 0.1
    train.train(options)
    about = checkpoint.export(folder / "run" / "checkpoint.pt", folder / "hf", target)
    assert json.loads((folder / "hf" / "config.json").read_text()) == about
    assert about["draft_vocab_size"] == N_VOCAB and about["norm_output"] is True
    assert about["eagle_aux_hidden_state_layer_ids"] == [1, 2, 4]
    with safe_open(folder / "hf" / "model.safetensors", "pt") as f:
        names = set(f.keys())
        assert f.get_tensor("fc.weight").shape == (16, 48)
        assert f.get_tensor("midlayer.self_attn.q_proj.weight").shape == (16, 32)
        assert f.get_tensor("d2t").tolist() == [0] * N_VOCAB and bool(f.get_tensor("t2d").all())
    layer = {f"midlayer.{n}.weight" for n in ("input_layernorm", "hidden_norm", "post_attention_layernorm",
                                              "self_attn.q_proj", "self_attn.k_proj",
                                             "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
                                              "mlp.down_proj")}
    assert names == layer | {"fc.weight", "norm.weight", "lm_head.weight", "d2t", "t2d", "fc_norm.0.weight",
                             "fc_norm.1.weight", "fc_norm.2.weight"}


def test_the_draft_vocabulary_is_by_frequency():
    ids, covered = features.draft_vocabulary(features.count_tokens([np.array([5, 5, 5, 9, 9, 2])], 12), 2)
    assert ids.tolist() == [5, 9] and covered == pytest.approx(5 / 6)
    ids, _ = features.draft_vocabulary(features.count_tokens([np.array([5, 5, 5, 9, 9, 2])], 12), 2, also=[11])
    assert ids.tolist() == [5, 11]


def test_prompts_follow_from_the_seed_and_spare_the_held_out(tmp_path):
    counts = {"chat": 40, "qa": 20, "translation": 20, "math": 20, "passage": 10, "code": 20, "short": 20, "varied": 20,
              "summary": 5, "retrieval": 5}
    passages = ["The Danube rises in Germany. It flows through ten countries until it reaches the Black Sea in 1856."]
    made = prompts.make(7, counts, passages=passages)
    assert made == prompts.make(7, counts, passages=passages) != prompts.make(8, counts, passages=passages)
    assert {p["group"] for p in made} == set(counts) and len({p["id"] for p in made}) == len(made)
    held = tmp_path / "held.jsonl"
    held.write_text(json.dumps({"prompt": made[0]["text"].upper() + " "}) + "\n")
    assert made[0] not in prompts.without(made, [held])


def test_what_shares_a_passage_with_the_held_out_is_left_out(tmp_path):
    frame = "Summarize the following text in three sentences."
    text = "The Danube rises in the Black Forest and ends in the Black Sea."
    held = tmp_path / "held.jsonl"
    held.write_text("".join(json.dumps({"prompt": f"{frame} {t}"}) + "\n"
                            for t in (text, "Salt was once worth more than gold to all.")))
    made = [{"text": t} for t in (f"{frame} A lighthouse is a tower.", f"What is this? {text.upper()}",
                                  "The Danube rises in the Alps.")]
    assert prompts.without(made, [held]) == [made[0], made[2]]


def test_prose_is_taken_from_files(tmp_path):
    good = "A lighthouse is a tower with a lamp of the coast. It warns the ships of rocks and of the shallows. " * 6
    german = "Der Bäcker steht um drei Uhr auf, damit das Brot am Morgen frisch ist und nicht alt."
    (tmp_path / "a.txt").write_text("TITLE\n\n" + good + "\n\n$ make install | grep -v {}\n")
    (tmp_path / "b.html").write_text(f"<p>{german}</p><pre>{german.replace('Brot', 'Obst')}</pre><script>x = 1</script>")
    passages, sentences = prompts.texts_from_files(random.Random(1), [tmp_path], 10)
    assert passages == [" ".join(good.split())] and sentences["de"] == [german] and sentences["fr"] == []
    made = prompts.make(3, {"translation": 200}, sentences={"de": [german]})
    assert any(german in p["text"] for p in made)


def test_a_run_starts_from_a_written_head(tmp_path):
    from gguf import GGUFWriter
    from headtrain import resume
    from headtrain.head import Head
    shape = dict(n_embd=8, n_target_embd=8, n_taps=2, n_heads=2, n_kv_heads=2, head_dim=4, n_ff=12, n_draft=5, eps=1e-5,
                 rope_theta=1e4)
    head = Head(shape, torch.zeros(9, 8), torch.tensor([0, 2, 3, 5, 8]))
    path = tmp_path / "head.gguf"

    def write(feedback, without=None):
        w = GGUFWriter(str(path), "eagle3")
        for name, value in (("embedding_length", 8), ("target_hidden_size", 8), ("attention.head_count", 2),
                            ("attention.head_count_kv", 2),
                            ("attention.key_length", 4), ("feed_forward_length", 12)):
            w.add_uint32(f"eagle3.{name}", value)
        for name, value in (("attention.layer_norm_rms_epsilon", 1e-5), ("rope.freq_base", 1e4)):
            w.add_float32(f"eagle3.{name}", value)
        for name, value in (("fc_norm", True), ("norm_before_residual", False), ("norm_before_fc", False)):
            w.add_bool(f"eagle3.{name}", value)
        w.add_string("eagle3.feedback", feedback)
        w.add_string("eagle3.draft_map", "absolute")
        w.add_array("eagle3.target_layers", [1, 3])
        names = {ours: name for name, ours in dict(resume.NAMES,
                                                   **{"fc_norm.0": "fc_norm.0", "fc_norm.1": "fc_norm.1"}).items()}
        for name, value in head.state_dict().items():
            if name == "d2t":
                w.add_tensor("d2t", value.numpy())
            elif name != without:
                if name.split(".")[-2] in ("q_proj", "k_proj"):  # as the engine rotates them: by pairs
                    value = value.view(2, 2, 2, 16).transpose(1, 2).reshape(8, 16).contiguous()
                w.add_tensor(f"{names[name.removesuffix('.weight')]}.weight", value.numpy())
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
    write("post")
    found, state = resume.read(str(path), [1, 3])
    assert {k: pytest.approx(v) for k, v in shape.items()} == found
    assert set(state) == set(head.state_dict())
    assert all(torch.equal(state[name], value) for name, value in head.state_dict().items())
    with pytest.raises(SystemExit, match="target_layers is"):
        resume.read(str(path), [1, 2])
    write("pre")
    with pytest.raises(SystemExit, match="feedback is pre"):
        resume.read(str(path), [1, 3])
    write("post", "midlayer.hidden_norm.weight")
    with pytest.raises(SystemExit, match="has no tensor 'blk.0.attn_norm_2.weight'"):
        resume.read(str(path), [1, 3])
