#!/usr/bin/env python3
"""plot.py - tables (Markdown) and plots (SVG, PNG) of what bench/peers.py --csv, aerie bench verify --csv and aerie bench
spec --csv wrote, and plots of aerie bench study's study.csv, which comes with its tables. Those of spec are drawn by
plot_spec.py, those of study by plot_study.py, those of shapes by plot_shapes.py; one call takes files of one kind.

    aerie bench verify -m model.gguf --csv > run.csv && bench/plot.py -o results run.csv
    bench/plot.py -o results --command 'how it was made' verify.csv speed.csv

Writes for every model file (or tensor type) and context of the files verify-MODEL-cCONTEXT.svg and .png, T(n) in ms and
T(n)/T(1) against n, and README.md with all figures. Rows of one engine in several files are joined by median. Plots
need gnuplot (Debian: gnuplot-nox); without it the tables are written all the same and the exit status is 1.
"""
import argparse
import csv
import os
import re
import shutil
import statistics
import subprocess
import sys

import plot_shapes
import plot_spec
import plot_study

LARGEST_VERIFY = 64  # a pass over more rows is a prompt's: in the table, not in the plot


def fail(text):
    print(f"plot.py: {text}", file=sys.stderr)
    sys.exit(1)


def normal(row):
    """A row of either program as (model, engine, figure, context, n, value); machine and date by the way."""
    if "engine" in row:
        return [(row["model"], row["engine"], row["figure"], int(row["context"]), int(row["n"]), float(row["value"]))]
    engine, model, context = f"aerie {row['level']}", row["type"], int(row["context"])
    return [(model, engine, "pass", context, int(row["n"]), float(row["ms"])),
            (model, engine, "reading", 0, 0, float(row["bandwidth_gbs"])),
            (model, engine, "weights", 0, 0, float(row["pass_bytes"]) / 1e9)]


def read(paths):
    """{model: {engine: {(figure, context, n): value}}}, {what is known of the runs}"""
    found, about = {}, {}
    for path in paths:
        try:
            with open(path, encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file):
                    for key in ("date", "machine", "threads", "rounds"):
                        if row.get(key):
                            about.setdefault(key, [])
                            about[key] += [row[key]] if row[key] not in about[key] else []
                    for model, engine, figure, context, n, value in normal(row):
                        found.setdefault(model, {}).setdefault(engine, {}).setdefault((figure, context, n), []).append(value)
        except (OSError, KeyError, ValueError, TypeError) as error:
            fail(f"{path}: {error!r}; a CSV file of bench/peers.py or aerie bench verify is needed")
    for engines in found.values():
        for figures in engines.values():
            for key in figures:
                figures[key] = statistics.median(figures[key])
    return found, about


def passes(figures, context):
    """[(n, ms)] in the order of n"""
    return sorted((n, value) for (figure, c, n), value in figures.items() if figure == "pass" and c == context)


def contexts(engines):
    return sorted({c for figures in engines.values() for figure, c, _ in figures if figure == "pass"})


# ---- Tables ------------------------------------------------------------------------------------------


def markdown(head, rows):
    return "\n".join(["| " + " | ".join(r) + " |" for r in [head, ["---"] * len(head)] + rows]) + "\n"


def table_of_passes(engines, context):
    every = sorted({n for figures in engines.values() for n, _ in passes(figures, context)})
    head = [f"context {context}", "T(1) ms"] + [f"T({n})/T(1)" for n in every if 1 < n <= LARGEST_VERIFY]
    head += [f"prefill {n}, tokens/s" for n in every if n > LARGEST_VERIFY] + ["of reading"]
    rows = []
    for engine, figures in engines.items():
        t = dict(passes(figures, context))
        if not t:
            continue
        row = [engine, f"{t[1]:.1f}" if 1 in t else "-"]
        row += [f"{t[n] / t[1]:.2f}" if n in t and 1 in t else "-" for n in every if 1 < n <= LARGEST_VERIFY]
        row += [f"{1e3 * n / t[n]:.0f}" if n in t else "-" for n in every if n > LARGEST_VERIFY]
        reading, weights = figures.get(("reading", 0, 0)), figures.get(("weights", 0, 0))
        known = reading and weights and 1 in t
        rows.append(row + [f"{1e3 * weights / reading / t[1]:.2f}" if known else "-"])
    return markdown(head, rows)


def table_of_speed(engines):
    tests = sorted({(f, n) for figures in engines.values() for f, _, n in figures if f in ("prefill", "decode")}, reverse=True)
    if not tests:
        return ""
    value = lambda figures, test: figures.get((test[0], 0, test[1]))
    rows = [[engine] + [f"{value(figures, test):.1f}" if value(figures, test) else "-" for test in tests]
            for engine, figures in engines.items()]
    return markdown(["tokens/s"] + [f"{f} {n}" for f, n in tests], rows)


def report(found, about, options):
    text = "# Measured side by side\n\n"
    for key, values in about.items():
        text += f"* {key}: {', '.join(values)}\n"
    for command in options.command:
        text += f"* command: `{command}`\n"
    text += ("\nMedians; the engines ran in turn, so ratios mean more than figures. `T(n)` is a pass over n rows; aerie makes "
             "the\nlogits of all n, llama-bench (`-p n -n 0`) of the last one only. `of reading`: the share of the read "
             "bandwidth\n"
             "measured in the same run at which T(1) streams the weights.\n")
    for model, engines in sorted(found.items()):
        text += f"\n## {model}\n\n" + table_of_speed(engines)
        for context in contexts(engines):
            text += "\n" + table_of_passes(engines, context) + f"\n![T(n), {model}]({name_of(model, context)}.svg)\n"
        readings = [f"{engine} {figures[('reading', 0, 0)]:.1f}"
                    for engine, figures in engines.items() if ("reading", 0, 0) in figures]
        if readings:
            text += "\nRead bandwidth in GB/s: " + ", ".join(readings) + ".\n"
    return text


# ---- Plots -------------------------------------------------------------------------------------------


def name_of(model, context):
    return "verify-" + re.sub(r"[^A-Za-z0-9._-]", "_", re.sub(r"\.gguf$", "", model)) + f"-c{context}"


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def script(model, engines, context):
    """gnuplot's: both plots beside each other, the data inside"""
    lines, blocks = {}, []
    for engine, figures in engines.items():
        points = [(n, ms) for n, ms in passes(figures, context) if n <= LARGEST_VERIFY]
        if not points or points[0][0] != 1:
            continue
        lines[engine] = f"$d{len(lines)}"
        blocks.append(f"{lines[engine]} << EOD\n" + "".join(f"{n} {ms} {ms / points[0][1]}\n" for n, ms in points) + "EOD\n")
    if not lines:
        return None
    floor = [1e3 * f[("weights", 0, 0)] / f[("reading", 0, 0)] for f in engines.values() if ("weights", 0, 0) in f
             and ("reading", 0, 0) in f]
    curves = lambda column: ", ".join(f"{data} using 1:{column} with linespoints pt 7 ps 0.5 lw 1.5 title {quoted(engine)}"
                                      for engine, data in lines.items())
    read = f", {min(floor)} with lines dt 2 lc rgb 'black' title 'one read of the weights'" if floor else ""
    return "".join(blocks) + f"""
set multiplot layout 1,2 title {quoted(f"{model}, context {context}")} noenhanced
set logscale xy 2
set key outside bottom center horizontal noenhanced
set xrange [0.95:68]
set grid
set xlabel 'n, rows of a pass'
set xtics (1, 2, 4, 8, 16, 32, 64)
set title 'T(n), ms'
plot {curves(2)}{read}
set title 'T(n)/T(1)'
plot {curves(3)}
unset multiplot
"""


def draw(name, size, text, folder):
    """gnuplot's `text` as folder/name.svg and .png; with no gnuplot nothing but the tables, and exit status 1"""
    if not shutil.which("gnuplot"):
        fail("no plots: gnuplot is missing (Debian: apt-get install gnuplot-nox)")
    for ending, terminal in (("svg", f"svg size {size} background 'white'"), ("png", f"png size {size}")):
        path = os.path.join(folder, f"{name}.{ending}")
        done = subprocess.run(["gnuplot"], input=f"set terminal {terminal}\nset output {quoted(path)}\n{text}", text=True,
                              stderr=subprocess.PIPE)
        if done.returncode:
            fail(f"gnuplot could not draw {path}: {done.stderr.strip()}")


def plot(model, engines, context, folder):
    text = script(model, engines, context)
    if text:
        draw(name_of(model, context), "1100,560", text, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="CSV")
    parser.add_argument("-o", "--out", default=".", help="folder for tables and plots; made if need be")
    parser.add_argument("--command", action="append", default=[],
                        help="how the figures were made, for the table; may be repeated")
    options = parser.parse_args()
    if plot_study.is_study(options.files):
        plot_study.main(options, quoted, draw, fail)
        return
    if plot_spec.is_spec(options.files, fail):
        plot_spec.main(options, markdown, quoted, draw, fail)
        return
    if plot_shapes.is_shapes(options.files, fail):
        plot_shapes.main(options, markdown, quoted, draw, fail)
        return
    found, about = read(options.files)
    os.makedirs(options.out, exist_ok=True)
    with open(os.path.join(options.out, "README.md"), "w", encoding="utf-8") as out:
        out.write(report(found, about, options))
    for model, engines in found.items():
        for context in contexts(engines):
            plot(model, engines, context, options.out)


if __name__ == "__main__":
    main()
