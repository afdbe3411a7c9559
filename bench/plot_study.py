"""plot_study.py - bench/plot.py for the study.csv of aerie bench study: T(n)/T(1) by type; speed and acceptance by way to
draft."""
import csv
import os


def is_study(paths):
    """Returns whether the first file is from bench study."""
    with open(paths[0], encoding="utf-8", newline="") as file:
        return {"way", "figure", "type"} <= set(csv.DictReader(file).fieldnames or [])


def read(paths, fail):
    """{type: {(way, figure, n): value}}, in the order of the files; of a figure that occurs twice the last counts"""
    found = {}
    for path in paths:
        try:
            with open(path, encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file):
                    found.setdefault(row["type"], {})[row["way"], row["figure"], int(row["n"])] = float(row["value"])
        except (OSError, KeyError, ValueError, TypeError) as error:
            fail(f"{path}: {error!r}; a CSV file of aerie bench study is needed")
    return found


def curve(figures, way, figure):
    return sorted((n, value) for (w, f, n), value in figures.items() if w == way and f == figure)


def bars(found, ways, figure, title, quoted):
    text = "$bars << EOD\n"
    for way in ways:
        text += f'"{way}" ' + " ".join(str(f.get((way, figure, 0), "NaN")) for f in found.values()) + "\n"
    plots = ", ".join(f"$bars using {i + 2}:xtic(1) title {quoted(kind)}" for i, kind in enumerate(found))
    line = ", 1 with lines dt 2 lc rgb 'black' notitle" if figure == "ratio" else ""
    return text + f"""EOD
set title {quoted(title)}
set key outside bottom center horizontal noenhanced width 3
set grid ytics
set yrange [0:*]
set style data histograms
set style fill solid 0.7
set bmargin 14
set rmargin 14
set xtics rotate by -35 noenhanced
plot {plots}{line}
"""


def passes(found, quoted):
    text, lines, i = "", [], 0
    for kind, figures in found.items():
        points = curve(figures, "", "ms")
        if not points:
            continue
        text += f"$d{i} << EOD\n" + "".join(f"{n} {ms / points[0][1]}\n" for n, ms in points) + "EOD\n"
        lines.append(f"$d{i} with linespoints pt 7 ps 0.6 lw 1.5 title {quoted(kind)}")
        i += 1
    return text + f"""
set title 'T(n)/T(1): a pass over n rows, in passes over one'
set key left top Left reverse noenhanced width 2
set grid
set xlabel 'n'
set yrange [0:*]
plot {", ".join(lines)}
"""


def depths(found, ways, quoted):
    text, lines, i = "", [], 0
    kind = next(iter(found))
    for way in ways:
        points = curve(found[kind], way, "accepted_at")
        if len(points) < 2:
            continue
        text += f"$d{i} << EOD\n" + "".join(f"{n} {value}\n" for n, value in points[:12]) + "EOD\n"
        lines.append(f"$d{i} with linespoints pt 7 ps 0.6 lw 1.5 title {quoted(way)}")
        i += 1
    return text + f"""
set title {quoted(f"accepted at depth, of those that got as far ({kind})")}
set key outside right Left reverse noenhanced width 2
set grid
set xlabel 'depth'
set yrange [0:1]
plot {", ".join(lines)}
""" if lines else None


def main(options, quoted, draw, fail):
    found = read(options.files, fail)
    if not found:
        fail(f"{options.files[0]} has no rows")
    os.makedirs(options.out, exist_ok=True)
    ways = list(dict.fromkeys(way for figures in found.values() for way, figure, _ in figures if figure == "ratio"))
    draw("study-passes", "800,500", passes(found, quoted), options.out)
    draw("study-speed", "1200,700", bars(found, ways, "ratio", "speed, in that of plain decoding", quoted), options.out)
    draw("study-accepted", "1200,700", bars(found, ways, "tokens_per_pass", "tokens per pass of the target", quoted),
         options.out)
    by_depth = depths(found, ways, quoted)
    if by_depth:
        draw("study-depths", "1100,560", by_depth, options.out)
