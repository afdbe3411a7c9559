"""Block drafters from end to end on a tiny model: `train_head.py --kind dspark` and `dflash` make features by aerie, train some
steps (the loss has to fall), export, convert; then the file's logits and confidences in the engine are compared with those of
the network in PyTorch, block by block.

    check_block.py BLOCK_ROWS AERIE MKMODEL

Exit status 77: a Python package is missing. Keys and values in the engine's cache have 16 bits, so figures are near, not equal.
"""
import csv
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TRAINING = HERE.parents[1] / "training"
sys.path.insert(0, str(TRAINING))
try:
    import numpy as np
    import torch

    from headtrain import block, target as target_file
    from headtrain.features import Corpus
except ImportError as missing:
    print(f"skip: {missing}")
    sys.exit(77)

N_BLOCK, SHAPES = 6, {"dspark": ["--markov-rank", "16"], "dflash": ["--target-output"]}
WORDS = "the red bird sees a small house where old trees and grey stones wait for rain".split()


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def train(kind, aerie, model, folder):
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"text": " ".join(WORDS[(i * k) % 16] for k in range(1, 5 + i % 4))}) + "\n"
                               for i in range(40)), encoding="utf-8")
    work = folder / kind
    run(sys.executable, TRAINING / "train_head.py", "-m", model, "-o", folder / f"{kind}.gguf", "--kind", kind, "--work", work,
        "--aerie", aerie, "--turns", 0, "--templates", 0, "--prompts", prompts, "-n", 40, "-c", 128, "-np", 8, "--jobs", 1,
        "--taps", "0,1,2", "--likely", 8, "--draft-vocab", 200, "--layers", 2, "--block", N_BLOCK, "--common", 0,
        "--batch", 100, "--anchors", 16, "--minutes", 0, "--epochs", 12, "--eval-every", 0.0005, "--type", "F16", *SHAPES[kind])
    with open(work / "run" / "log.csv", encoding="utf-8") as f:
        losses = [float(row["loss"]) for row in csv.DictReader(f)]
    first, last = sum(losses[:3]) / 3, sum(losses[-3:]) / 3
    print(f"{kind}: loss {first:.3f} -> {last:.3f} in {len(losses)} reports")
    if not (len(losses) >= 6 and last < 0.9 * first):
        sys.exit(f"{kind}: the loss did not fall")
    return work


def network(work, target):
    """The trained network, its matrices rounded as the file's."""
    saved = torch.load(work / "run" / "checkpoint.pt", weights_only=True)
    head = block.BlockHead(saved["shape"], torch.tensor(target.embedding), saved["head"]["d2t"])
    head.load_state_dict(saved["head"])
    with torch.no_grad():
        for p in head.parameters():
            if p.dim() > 1:
                p.copy_(p.half().float())
        if not saved["options"]["own_output"]:
            head.lm_head.weight.copy_(torch.tensor(target.output)[head.d2t])
    return head.eval()


def theirs(head, conversation, columns, anchor):
    """Logits [B, draft vocabulary] and confidences [B] of the block at `anchor`, and the token before each that its rows
    foresee."""
    one = block.BlockBatch([conversation], columns, N_BLOCK, 0, "cpu", torch.float32)
    at = (one.anchors[0] == anchor).nonzero()[0, 0] * N_BLOCK
    rows = slice(int(at), int(at) + N_BLOCK)
    with torch.no_grad():
        linked = head.linked(head(one)[rows], one.before[rows])
        conf = head.confidence(linked).sigmoid() if head.shape["n_markov"] else torch.full((N_BLOCK,), -1.0)
        return linked @ head.outputs().T, conf, one.before[rows].tolist()


def compare(kind, program, model, folder, work, target):
    head, corpus = network(work, target), Corpus(sorted(work.glob("features-*.bin")))
    columns, worst, worst_conf, spread, gap = [corpus.taps.index(t) for t in (0, 1, 2)], 0.0, 0.0, 0.0, 0.0
    same = total = 0
    for i in range(0, len(corpus), 7):
        c = corpus[i]
        for anchor in (c.n_prompt, (c.n_prompt + len(c)) // 2):
            if anchor + N_BLOCK >= len(c):
                continue
            logits, conf, tokens = theirs(head, c, columns, anchor)
            features = np.ascontiguousarray(c.features[:anchor, columns], dtype=np.float32)
            data = struct.pack("<3I", anchor, features[0].size, N_BLOCK) + struct.pack(f"<{N_BLOCK}i", *tokens)
            got = subprocess.run([program, model, folder / f"{kind}.gguf"], input=data + features.tobytes(),
                                 capture_output=True, check=False)
            if got.returncode:
                sys.exit(got.stderr.decode())
            rows = torch.from_numpy(np.frombuffer(got.stdout, dtype=np.float32).copy()).view(N_BLOCK, -1)
            worst = max(worst, (rows[:, 1:] - logits).abs().max().item())
            worst_conf = max(worst_conf, (rows[:, 0] - conf).abs().max().item())
            spread = max(spread, logits.std().item())
            chosen = rows[:, 1:].argmax(-1, keepdim=True)
            gap = max(gap, (logits.amax(-1, keepdim=True) - logits.gather(1, chosen)).max().item())
            same, total = same + (chosen.squeeze(1) == logits.argmax(-1)).sum().item(), total + N_BLOCK
    print(f"{kind}: largest difference of logits {worst:.4f} (their spread {spread:.2f}), of confidences {worst_conf:.4f}; the "
          f"same choice in {same} of {total} rows")
    # where the choice is another, the network's own two best are as near to each other as the difference allows
    if total < 30 or not (worst < 0.01 * max(spread, 1.0) and worst_conf < 0.005 and gap <= 2 * worst and same >= 0.9 * total):
        sys.exit(f"{kind}: the engine's file is not what was trained")


def main():
    program, aerie, mkmodel = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(mkmodel, "--shape", "tiny", "--type", "f32", "--seed", "7", folder / "m.gguf")
        target = target_file.read(str(folder / "m.gguf"))
        for kind in SHAPES:
            work = train(kind, aerie, folder / "m.gguf", folder)
            compare(kind, program, folder / "m.gguf", folder, work, target)


if __name__ == "__main__":
    main()
