#!/usr/bin/env python3
"""kl_table.py - KL divergence of every mix from the unquantized model, aerie's quantizer beside llama.cpp's.

    build/aerie imatrix -m model-f16.gguf -f first.txt -o imatrix.gguf
    build/aerie perplexity -m model-f16.gguf -f second.txt --chunks 79 --kl-divergence-base base.kld
    bench/kl_table.py -m model-f16.gguf --base base.kld --imatrix imatrix.gguf --peer /path/to/llama-quantize --csv kl.csv

79 windows of 512 tokens are 20,145 tokens that count. Each mix is quantized by both programs without and with the importance
matrix, and every file is run by aerie against the saved predictions of the unquantized model; a file whose tensors are those of
one that was measured is not run again. Each measurement is a line of the CSV file, written when it is done; those that are
there are not made again, so the table can be stopped and goes on where it was (--limit N stops it after N of them). The table
of all lines is printed at the end: the difference of a pair comes with the standard error of the mean of the windows'
differences. llama.cpp refuses some mixes without an importance matrix; that is a line, too. Needs only Python 3.
"""
import argparse
import csv
import hashlib
import json
import math
import os
import re
import subprocess
import sys
import time

MIXES = ("Q4_K_M Q3_K_M Q2_K Q6_K Q5_K_M Q3_K_S Q4_K_S Q5_K_S Q3_K_L Q2_K_S IQ4_XS IQ4_NL IQ3_S IQ3_M IQ3_XS IQ3_XXS IQ2_M "
         "IQ2_S IQ2_XS IQ2_XXS IQ1_M IQ1_S Q4_0 Q4_1 Q5_0 Q5_1 Q8_0").split()
FIELDS = ["mix", "importance", "quantizer", "kl", "kl_error", "tokens", "bytes", "seconds", "tensors", "windows", "note"]


class Failed(Exception):
    """A sentence for the user."""


def run(command):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
    except OSError as error:
        raise Failed(f"cannot start {command[0]}: {error}") from None
    return done.returncode, done.stdout, done.stderr


def read_lines(path):
    """The measurements that are there, by (mix, importance, quantizer)."""
    if not os.path.exists(path):
        return {}
    with open(path, newline="", encoding="utf-8") as f:
        reader = csv.DictReader(f)
        if reader.fieldnames != FIELDS:
            raise Failed(f"{path} has other columns than this program writes; give --csv another file")
        return {(r["mix"], r["importance"], r["quantizer"]): r for r in reader}


def quantize(o, mix, importance, quantizer, out):
    """(seconds, None), or (0, why not)"""
    imatrix = ["--imatrix", o.imatrix] if importance == "yes" else []
    if quantizer == "aerie":
        command = [o.aerie, "quantize", "-q", "-t", str(o.threads), *imatrix, o.model, out, mix]
    else:
        command = [o.peer, *imatrix, o.model, out, mix, str(o.threads)]
    start = time.monotonic()
    code, stdout, stderr = run(command)
    seconds = time.monotonic() - start
    if code == 0 and os.path.exists(out):
        return seconds, None
    said = [line for line in (stdout + stderr).splitlines() if re.search("error|fail|requires|only", line, re.I)]
    return 0.0, (said or [f"ended with {code}"])[-1].strip()[:120]


def tensors_of(o, path):
    """A hash of names, types and contents of the tensors: what a model computes follows from it."""
    code, stdout, stderr = run([o.aerie, "inspect", path, "--json", "--tensors"])
    if code != 0:
        raise Failed(f"aerie inspect of {path} failed: {stderr.strip()[-300:]}")
    sha = hashlib.sha256()
    with open(path, "rb") as f:
        for t in sorted(json.loads(stdout)["tensors"], key=lambda t: t["name"]):
            sha.update(f"{t['name']} {t['type']} {t['shape']}\n".encode())
            f.seek(t["offset"])
            sha.update(f.read(t["bytes"]))
    return sha.hexdigest()[:16]


def measure(o, lines, mix, importance, quantizer):
    out = os.path.join(o.work, "kl_table.gguf")
    line = dict.fromkeys(FIELDS, "")
    line.update(mix=mix, importance=importance, quantizer=quantizer)
    if os.path.exists(out):
        os.remove(out)
    seconds, line["note"] = quantize(o, mix, importance, quantizer, out)
    if line["note"]:
        return line
    line.update(tensors=tensors_of(o, out), bytes=os.path.getsize(out), seconds=f"{seconds:.2f}", note="")
    for other in lines.values():
        if other["tensors"] == line["tensors"]:
            line.update((field, other[field]) for field in ("kl", "kl_error", "tokens", "windows"))
            os.remove(out)
            return line
    code, stdout, stderr = run([o.aerie, "perplexity", "-m", out, "-t", str(o.threads), "--kl-divergence-base", o.base,
                                "--kl-divergence", "-q", "--json"])
    if code != 0:
        raise Failed(f"aerie perplexity of {mix} by {quantizer} failed: {stderr.strip()[-300:]}")
    figures = json.loads(stdout)
    line.update(kl=f"{figures['kl']:.6f}", kl_error=f"{figures['kl_error']:.6f}",
                tokens=figures["n_scored"], windows=" ".join(f"{kl:.6f}" for kl in figures["kl_windows"]))
    os.remove(out)
    return line


def difference(ours, theirs):
    """(aerie's mean less llama.cpp's, its standard error), over windows."""
    d = [float(a) - float(b) for a, b in zip(ours["windows"].split(), theirs["windows"].split())]
    mean = sum(d) / len(d)
    return mean, math.sqrt(sum((x - mean) ** 2 for x in d) / max(1, len(d) - 1) / len(d))


def print_table(lines, mixes):
    print("| mix | importance | aerie | llama.cpp | difference | tokens |\n|---|---|---|---|---|---|")
    n_above = n_clear = 0
    for mix in mixes:
        for importance in ("no", "yes"):
            ours, theirs = (lines.get((mix, importance, q)) for q in ("aerie", "llama.cpp"))
            if not ours:
                continue
            other, apart, mark = (theirs["kl"] or "refuses") if theirs else "not yet", "", ""
            if theirs and ours["tensors"] == theirs["tensors"]:
                apart = "same weights"
            elif theirs and ours["kl"] and theirs["kl"]:
                mean, error = difference(ours, theirs)
                apart = f"{mean:+.4f} ± {error:.4f}"
                n_above += mean > 0
                n_clear += mean > 2 * error
                mark = "**" if mean > 2 * error else ""
            print(f"| {mix} | {importance} | {mark}{ours['kl'] or ours['note']}{mark} | {other} | {apart} | {ours['tokens']} |")
    print(f"\nabove llama.cpp's: {n_above}, by more than two standard errors: {n_clear}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("-m", "--model", required=True, metavar="GGUF", help="the unquantized model (F16, BF16 or F32)")
    p.add_argument("--base", required=True, metavar="FILE", help="its predictions, by aerie perplexity --kl-divergence-base")
    p.add_argument("--imatrix", metavar="GGUF", help="without it only the half without importance is measured")
    p.add_argument("--aerie", default="build/aerie", metavar="PROGRAM")
    p.add_argument("--peer", metavar="PROGRAM", help="llama-quantize; without it only aerie is measured")
    p.add_argument("--mixes", default=",".join(MIXES), metavar="LIST", help="(%(default)s)")
    p.add_argument("--csv", required=True, metavar="FILE", help="what was measured; read first, lines are added")
    p.add_argument("--work", default=".", metavar="DIR", help="for the quantized file (%(default)s)")
    p.add_argument("--limit", type=int, metavar="N", help="stop after N measurements")
    p.add_argument("-t", "--threads", type=int, default=os.cpu_count(), metavar="N", help="(%(default)s)")
    o = p.parse_args()
    mixes = [mix for mix in o.mixes.split(",") if mix]
    lines, n_done = read_lines(o.csv), 0
    wanted = [(mix, importance, quantizer) for mix in mixes for importance in (("no", "yes") if o.imatrix else ("no",))
              for quantizer in (("aerie", "llama.cpp") if o.peer else ("aerie",))]
    for key in wanted:
        if key in lines or (o.limit is not None and n_done >= o.limit):
            continue
        lines[key] = measure(o, lines, *key)
        n_done += 1
        new = not os.path.exists(o.csv)
        with open(o.csv, "a", newline="", encoding="utf-8") as f:
            writer = csv.DictWriter(f, FIELDS)
            if new:
                writer.writeheader()
            writer.writerow(lines[key])
        print(f"{' '.join(key)}: {lines[key]['kl'] or lines[key]['note']}", file=sys.stderr, flush=True)
    print_table(lines, mixes)
    n_left = sum(key not in lines for key in wanted)
    if n_left:
        print(f"{n_left} measurements are left")
    return 3 if n_left else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as error:
        sys.exit(f"kl_table.py: {error}")
