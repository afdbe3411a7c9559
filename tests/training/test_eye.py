"""training/train_eye.py: pictures, the file, the loss of answers, and a run that was cut."""
import os
import random
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("PIL")
import train_eye as eyes  # noqa: E402
from gguf import GGUFReader  # noqa: E402


def words(text):
    """Two tokens for a text, or one for a letter."""
    return [1 + ord(c) % 97 for c in (text if len(text) < 2 else text[1] + text[len(text) // 2])]


def text_model():
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(3)
    return LlamaForCausalLM(LlamaConfig(vocab_size=100, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                                        num_attention_heads=2, num_key_value_heads=1)).eval().requires_grad_(False)


def test_pictures_held_out():
    rng = random.Random(1)
    seen, held = ({(f["colour"], f["shape"], f["digit"]) for f in (eyes.choose(rng, out) for _ in range(400))}
                  for out in (False, True))
    assert not seen & held and len(seen) > 100 < len(held)
    a, b = (eyes.batch(random.Random(2), 3)[1] for _ in range(2))
    assert torch.equal(a, b) and a.shape == (3, 3, eyes.SIDE, eyes.SIDE) and a.min() >= -1 and a.max() <= 1


def test_file(tmp_path):
    torch.manual_seed(1)
    eye = eyes.Eye(16)
    eyes.write(eye, str(tmp_path / "eye.gguf"), 16)
    found = {t.name: t for t in GGUFReader(str(tmp_path / "eye.gguf")).tensors}
    assert list(found["v.patch_embd.weight"].shape) == [eyes.PATCH, eyes.PATCH, 3, eyes.WIDTH]
    assert list(found["mm.model.fc.weight"].shape) == [eyes.WIDTH * eyes.MERGE ** 2, 16]
    assert (found["v.blk.2.ffn_down.bias"].data == eye.blocks[2].down.bias.detach().numpy()).all()


def test_answers_one_by_one():
    """The questions about a picture, asked at once, cost what they cost asked one after the other."""
    lm = text_model()
    captions = eyes.Captions(words, lm.get_input_embeddings().weight)
    loss_of = eyes.Answers(words, lm, "<system>", captions)
    facts, pixels = eyes.batch(random.Random(4), 2)
    torch.manual_seed(5)
    rows = torch.randn(2, eyes.N_ROWS, 16)
    embed, total, n = lm.get_input_embeddings(), 0.0, 0
    for f, picture in zip(facts, rows):
        for question, key in eyes.QUESTIONS:
            answer = words(f[key] + "<|im_end|>")
            before = torch.tensor(words("<system>" + eyes.BEGIN))
            after = torch.tensor(words(eyes.END + question + "<|im_end|>\n<|im_start|>assistant\n") + answer)
            logits = lm(inputs_embeds=torch.cat([embed(before), picture, embed(after)])[None]).logits[0, -len(answer) - 1:-1]
            total += torch.nn.functional.cross_entropy(logits, torch.tensor(answer), reduction="sum").item()
            n += len(answer)
    assert abs(loss_of(rows, facts).item() - captions.loss(rows, facts, 0.1).item() - total / n) < 1e-4


def test_cut_run(tmp_path):
    """A run that was cut after a step and goes on is the run that was not cut."""
    def run(path, counts):
        torch.manual_seed(1)
        for n in counts:
            eye = eyes.Eye(16)
            torch.manual_seed(1)
            if not os.path.exists(path):
                eye = eyes.Eye(16)
            stop = {"n": 0}

            def loss_of(rows, facts):
                stop["n"] += 1
                if stop["n"] > n:
                    raise KeyboardInterrupt
                return rows.pow(2).mean()
            try:
                eyes.train(eye, path, "captions", 3, 2, 1e-3, loss_of, seconds=0)
            except KeyboardInterrupt:
                pass
        return torch.load(path, weights_only=False)
    whole, cut = run(str(tmp_path / "a"), [3]), run(str(tmp_path / "b"), [1, 2])
    assert whole["step"] == cut["step"] == 3
    for name, w in whole["eye"].items():
        assert torch.equal(w, cut["eye"][name]), name


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
