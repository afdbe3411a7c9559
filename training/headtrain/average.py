"""Averages heads: python3 -m headtrain.average A.pt:0.65 B.pt:0.35 -o run/checkpoint.pt

Checkpoints of train.py of one shape and draft vocabulary. A run that began where another ended and learnt fast in between is
often worse than a weighted mean of the two; which weights are best is seen on held-out conversations. The result has the first
one's optimizers and no clock, so that `train.py` can go on from it.
"""
import argparse
import sys

import torch


def average(checkpoints, weights):
    first = dict(checkpoints[0])
    for other in checkpoints[1:]:
        if other["shape"] != first["shape"] or other["taps"] != first["taps"] or not torch.equal(other["head"]["d2t"],
                                                                                                 first["head"]["d2t"]):
            raise SystemExit("average: the heads differ in shape, taps or draft vocabulary")
    total = sum(weights)
    first["head"] = {name: value if name == "d2t" else sum(w / total * c["head"][name] for w, c in zip(weights, checkpoints))
                     for name, value in first["head"].items()}
    first.update(step=0, seen=0, spent=0.0, progress=0.0)
    return first


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("heads", nargs="+", metavar="FILE:WEIGHT")
    p.add_argument("-o", "--output", required=True)
    args = p.parse_args()
    parts = [h.rpartition(":") for h in args.heads]
    try:
        weights = [float(weight) for _, _, weight in parts]
    except ValueError:
        raise SystemExit(f"average: heads are given as FILE:WEIGHT; found '{' '.join(args.heads)}'") from None
    if min(weights) < 0 or sum(weights) <= 0:
        raise SystemExit("average: weights are positive numbers")
    loaded = [torch.load(path, map_location="cpu", weights_only=True) for path, _, _ in parts]
    torch.save(average(loaded, weights), args.output)


if __name__ == "__main__":
    sys.exit(main())
