#!/usr/bin/env python3
"""Vectors of aerie embed against those of transformers, text by text: the least and the mean cosine.

    check_embeddings.py build/aerie MODEL.gguf HF_FOLDER [--texts FILE] [--least 0.9999] [--pooling mean|cls]

HF_FOLDER is what the GGUF file was converted from (aerie convert HF_FOLDER -o MODEL.gguf). --texts has one text a line; without
it 1,000 texts are made of the words of this project's documents, from one word to some hundred. Needs torch and transformers.
Exit status 1 if a cosine is below --least.
"""
import argparse
import glob
import json
import random
import re
import subprocess
import sys

import torch
import transformers


def made_texts(n):
    words = []
    for path in sorted(glob.glob("docs/*.md")) + ["README.md"]:
        words += re.findall(r"\S+", open(path, encoding="utf-8").read())
    draw = random.Random(1)
    texts = []
    while len(texts) < n:
        at, length = draw.randrange(len(words) - 200), min(int(draw.expovariate(1 / 30)) + 1, 160)
        texts.append(" ".join(words[at:at + length]))
    return texts


def theirs(folder, texts, pooling):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").float().eval()
    longest = min(512, model.config.max_position_embeddings)
    rows = [None] * len(texts)
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # texts of a length together: little padding
    with torch.no_grad():
        for at in range(0, len(texts), 32):
            some = order[at:at + 32]
            batch = tokenizer([texts[i] for i in some], padding=True, truncation=True, max_length=longest, return_tensors="pt",
                              split_special_tokens=True)  # a text that says [SEP] means these letters
            hidden = model(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1).float()
            pooled = hidden[:, 0] if pooling == "cls" else (hidden * mask).sum(1) / mask.sum(1)
            for i, row in zip(some, torch.nn.functional.normalize(pooled.double(), dim=1)):
                rows[i] = row
    return torch.stack(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("aerie")
    parser.add_argument("model")
    parser.add_argument("folder")
    parser.add_argument("--texts")
    parser.add_argument("--least", type=float, default=0.9999)
    parser.add_argument("--pooling", default="mean", choices=["mean", "cls"])
    args = parser.parse_args()
    texts = open(args.texts, encoding="utf-8").read().splitlines() if args.texts else made_texts(1000)
    lines = "\n".join(texts) + "\n"
    out = subprocess.run([args.aerie, "embed", "-m", args.model, "-f", "-", "--pooling", args.pooling, "--truncate",
                          "--embd-output-format", "array"], input=lines.encode(), check=True, capture_output=True).stdout
    ours = torch.tensor(json.loads(out), dtype=torch.float64)
    cosines = (ours * theirs(args.folder, texts, args.pooling)).sum(1)
    worst = int(cosines.argmin())
    print(f"{len(texts)} texts: least cosine {cosines[worst]:.7f}, mean {cosines.mean():.7f}; the least is of: "
          f"{texts[worst][:70]!r}")
    return int(cosines[worst] < args.least)


if __name__ == "__main__":
    sys.exit(main())
