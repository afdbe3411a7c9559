#!/usr/bin/env python3
"""Compares aerie's logits for a folder of model files with those that another program computed for the same ids.

    arch_table.py ids > ids.txt                      # the ids: one window of 96
    arch_table.py table --aerie build/aerie --files DIR --logits DIR --ids ids.txt [--markdown]

The folder of --files contains NAME.gguf, that of --logits NAME.f32: a row of n_vocab little-endian f32 for each id.
llama.cpp's `test-llama-archs -o DIR -s SEED` writes such files, one for each architecture that it can make
up; their vocabulary is none that aerie knows, so that they run on ids. A line of the table: the name, the
normalised squared error, rows with the same best token; or what was said when the file was refused.
Exit status 1 if an error is above --most.
"""
import argparse
import array
import os
import subprocess
import sys

N_VOCAB, N_ROWS = 128, 96


def make_ids():
    state, ids = 1, []
    for _ in range(N_ROWS):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        ids.append((state >> 33) % N_VOCAB)
    return ids


def read_rows(data, n_rows):
    values = array.array("f")
    values.frombytes(data[:len(data) // 4 * 4])
    if sys.byteorder == "big":
        values.byteswap()
    if not values or len(values) % n_rows:
        return None
    width = len(values) // n_rows
    return [values[i * width:(i + 1) * width] for i in range(n_rows)]


def compare(ours, theirs):
    """The normalised squared error; rows with the same best token."""
    off = sum((a - b) ** 2 for x, y in zip(ours, theirs) for a, b in zip(x, y))
    size = sum(b * b for y in theirs for b in y)
    same = sum(max(range(len(x)), key=x.__getitem__) == max(range(len(y)), key=y.__getitem__) for x, y in zip(ours, theirs))
    return off / size if size else float(off > 0), same


def line_of(args, name, n_rows):
    """Returns the error, or None, and the line of the table."""
    model = os.path.join(args.files, name + ".gguf")
    run = subprocess.run([args.aerie, "bench", "logits", "-m", model, "--ids-file", args.ids], capture_output=True)
    if run.returncode:
        said = run.stderr.decode(errors="replace").strip().splitlines() or ["exit status %d" % run.returncode]
        return None, said[-1].replace(model + ": ", "").removeprefix("aerie: ").removeprefix("error: ")
    ours = read_rows(run.stdout, n_rows)
    path = os.path.join(args.logits, name + ".f32")
    if not os.path.exists(path):
        return None, "runs; there are no logits to compare with"
    with open(path, "rb") as f:
        theirs = read_rows(f.read(), n_rows)
    if not ours or not theirs or len(ours[0]) != len(theirs[0]):
        return None, "the logits have other shapes"
    error, same = compare(ours, theirs)
    return error, f"{error:.0e}, {same} of {n_rows}"


def table(args):
    with open(args.ids) as f:
        n_rows = len(f.readline().split())
    names = sorted(f[:-5] for f in os.listdir(args.files) if f.endswith(".gguf"))
    n_run = n_bad = 0
    if args.markdown:
        print("| file | error, rows with the same best token; or why it is refused |\n|---|---|")
    for name in args.names or names:
        error, text = line_of(args, name, n_rows)
        n_run += error is not None
        n_bad += error is not None and not error <= args.most
        print(f"| `{name}` | {text} |" if args.markdown else f"{name:24} {text}", flush=True)
    print(f"{'' if args.markdown else '# '}{n_run} of {len(args.names or names)} files run, {n_bad} with an error above "
          f"{args.most:g}")
    return 1 if n_bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("ids", "table"))
    parser.add_argument("--aerie", default="build/aerie")
    parser.add_argument("--files", help="folder of NAME.gguf")
    parser.add_argument("--logits", help="folder of NAME.f32")
    parser.add_argument("--ids", help="what `ids` printed, or another line of ids")
    parser.add_argument("--most", type=float, default=1e-4, help="the largest error that is none (default: 1e-4)")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all in the folder")
    args = parser.parse_intermixed_args()
    if args.what == "ids":
        print(*make_ids())
        return 0
    if not args.files or not args.logits or not args.ids:
        parser.error("table needs --files, --logits and --ids")
    return table(args)


if __name__ == "__main__":
    sys.exit(main())
