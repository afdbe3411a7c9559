"""Draws the log of a run with gnuplot, if there is one: losses by depth, and accepted tokens per round by chain length."""
import csv
import shutil
import subprocess
from pathlib import Path

SCRIPT = """set datafile separator ','
set terminal pngcairo size 1000,420 font ',10'
set output '{png}'
set multiplot layout 1,2
set grid
set xlabel 'minutes'
set key outside bottom horizontal
set title 'cross-entropy, training'
plot {losses}
set title 'held out, temperature 0: accepted per round'
set yrange [0:*]
plot {accepted}
"""


def plot(log, png):
    """Writes the gnuplot script beside the picture; without gnuplot the script is all there is."""
    log, png = Path(log), Path(png)
    if not log.exists():
        return
    with open(log, newline="") as f:
        names = next(csv.reader(f))

    def curves(stem, title):
        found = sorted((int(n.rsplit("_", 1)[1]), i + 1) for i, n in enumerate(names) if n.startswith(stem))
        return ", ".join(f"'{log}' using 1:{column} skip 1 with linespoints pt 7 ps 0.4 title '{title} {depth}'"
                         for depth, column in found)
    script = png.with_suffix(".gnuplot")
    script.write_text(SCRIPT.format(png=png, losses=curves("loss_", "depth"), accepted=curves("accepted_", "chain of")))
    if shutil.which("gnuplot"):
        subprocess.run(["gnuplot", script], check=False)
