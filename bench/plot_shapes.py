"""plot_shapes.py - bench/plot.py for aerie bench shapes --csv: tables and a heat map for each type and kernel level.

The map has a cell for each number of columns and of rows: the share of the machine's read bandwidth at which a product over
one row reads its weights. Files of --models give a table instead, worst shape first. Rows of several files for the same
shape are joined by median.
"""
import csv
import os
import statistics


def is_shapes(paths, fail):
    """Returns whether the files are from bench shapes; refuses a mixture."""
    kinds = set()
    for path in paths:
        try:
            with open(path, encoding="utf-8", newline="") as file:
                kinds.add("of_bandwidth" in (csv.DictReader(file).fieldnames or []))
        except (OSError, ValueError) as error:
            fail(f"{path}: {error!r}; a CSV file is needed")
    if len(kinds) > 1:
        fail("files of aerie bench shapes stand by themselves: one call for them, one for the others")
    return kinds == {True}


def read(paths, fail):
    """{(type, level): {(model, product, n_in, n_out): {n: (ms, share)}}}, [bandwidths], in the order of the files"""
    found, readings = {}, []
    for path in paths:
        try:
            with open(path, encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file):
                    shape = (row["model"], row["product"], int(row["n_in"]), row["n_out"])
                    figures = found.setdefault((row["type"], row["level"]), {}).setdefault(shape, {})
                    figures.setdefault(int(row["n"]), []).append((float(row["ms"]), float(row["of_bandwidth"])))
                    readings.append(float(row["bandwidth_gbs"]))
        except (OSError, KeyError, ValueError, TypeError) as error:
            fail(f"{path}: {error!r}; a CSV file of aerie bench shapes is needed")
    for shapes in found.values():
        for figures in shapes.values():
            for n, values in figures.items():
                figures[n] = tuple(statistics.median(v[i] for v in values) for i in (0, 1))
    return found, readings


def sides(shapes):
    """the columns and the rows of a sweep, ascending"""
    sweep = [(n_in, int(n_out)) for model, _, n_in, n_out in shapes if not model]
    return sorted({i for i, _ in sweep}), sorted({o for _, o in sweep})


def cell(shapes, n_in, n_out, n, what):
    figures = shapes.get(("", "", n_in, str(n_out)), {})
    if n not in figures or 1 not in figures:
        return None
    return figures[1][1] if what == "share" else figures[n][0] / figures[1][0]


def table(shapes, n, what, markdown):
    columns, rows = sides(shapes)
    shown = lambda value: "-" if value is None else f"{value:.2f}"
    head = [("share of the bandwidth at T(1)" if what == "share" else f"T({n})/T(1)") + ", n_out \\ n_in"] + [
        str(i) for i in columns]
    return markdown(head, [[str(o)] + [shown(cell(shapes, i, o, n, what)) for i in columns] for o in rows])


def table_of_models(shapes, markdown):
    rows = sorted((figures[1][1], shape, figures[1][0]) for shape, figures in shapes.items() if shape[0] and 1 in figures)
    return markdown(["share at T(1)", "model", "product", "n_in", "n_out", "ms"],
                    [[f"{share:.2f}", model, product, str(n_in), n_out, f"{ms:.3f}"]
                     for share, (model, product, n_in, n_out), ms in rows])


def script(title, shapes, quoted):
    """gnuplot's: a coloured cell for each shape, with its share in it"""
    columns, rows = sides(shapes)
    cells = [(x, y, cell(shapes, i, o, 1, "share")) for x, i in enumerate(columns) for y, o in enumerate(rows)]
    tics = lambda values: ", ".join(f"'{value}' {at}" for at, value in enumerate(values))
    return "$d << EOD\n" + "".join(f"{x} {y} {v:.3f}\n" for x, y, v in cells if v is not None) + f"""EOD
set title {quoted(title)} noenhanced
set xlabel 'columns (n_in)' noenhanced
set ylabel 'rows (n_out)' noenhanced
set xtics ({tics(columns)})
set ytics ({tics(rows)})
set xrange [-0.5:{len(columns) - 0.5}]
set yrange [-0.5:{len(rows) - 0.5}]
set cbrange [0.4:1]
set palette defined (0 '#b2182b', 0.5 '#f7f7f7', 1 '#2166ac')
unset key
plot $d using 1:2:3 with image, $d using 1:2:(sprintf('%.2f', $3)) with labels
"""


def main(options, markdown, quoted, draw, fail):
    found, readings = read(options.files, fail)
    os.makedirs(options.out, exist_ok=True)
    text = "# Matrix products by shape\n\n" + "".join(f"* command: `{command}`\n" for command in options.command)
    text += (f"* read bandwidth: {statistics.median(readings):.1f} GB/s (median)\n\nWeights come from memory. The share is "
             f"that of the read bandwidth measured in the same rounds.\n")
    for (kind, level), shapes in found.items():
        name = f"shapes-{kind}-{level}"
        text += f"\n## {kind}, {level}\n"
        if sides(shapes)[0]:
            text += "\n" + table(shapes, 1, "share", markdown) + f"\n![{kind}, {level}]({name}.svg)\n"
            for n in sorted({n for figures in shapes.values() for n in figures if n > 1}):
                text += "\n" + table(shapes, n, "ratio", markdown)
        if any(model for model, *_ in shapes):
            text += "\n" + table_of_models(shapes, markdown)
    with open(os.path.join(options.out, "README.md"), "w", encoding="utf-8") as out:
        out.write(text)
    for (kind, level), shapes in found.items():
        if sides(shapes)[0]:
            draw(f"shapes-{kind}-{level}", "760,520", script(f"{kind}, {level}: share of the read bandwidth at T(1)", shapes,
                                                             quoted),
                 options.out)
