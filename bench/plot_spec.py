"""plot_spec.py - bench/plot.py for aerie bench spec --csv: tables and a plot for each temperature and number of sequences.

The plot has the speed of each drafter in that of plain decoding, by group, on its left, and acceptance by depth, all groups
together, on its right. Rows of several files for the same drafter and group are joined by median; drafters of the same kind
from different GGUF files (the column "file") stay apart, and have its name.
"""
import csv
import os
import statistics

FIGURES = ("plain_tokens_per_s", "tokens_per_s", "ratio", "accepted_per_pass", "accepted_per_round", "rows_per_pass",
           "pass_cost", "draft_share")


def is_spec(paths, fail):
    """Returns whether the files are from bench spec; refuses a mixture."""
    kinds = set()
    for path in paths:
        try:
            with open(path, encoding="utf-8", newline="") as file:
                kinds.add("acceptance_by_depth" in (csv.DictReader(file).fieldnames or []))
        except (OSError, ValueError) as error:
            fail(f"{path}: {error!r}; a CSV file is needed")
    if len(kinds) > 1:
        fail("files of aerie bench spec stand by themselves: one call for them, one for the others")
    return kinds == {True}


def shape(tree):
    """of drafts, in words"""
    return {"off": "chain", "auto": "tree"}.get(tree, f"{tree} tree")


def numbers(text):
    return [float(x) for x in text.split()]


def read(paths, fail):
    """{(type, n_seqs, temperature): {drafter: {group: {figure: value}}}}, in the order of the files"""
    found = {}
    for path in paths:
        try:
            with open(path, encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
                files = {}
                for row in rows:
                    files.setdefault(row["drafter"], set()).add(row.get("file") or "")
                for row in rows:
                    drafter = f"{row['drafter']} {shape(row['tree'])} {int(row['n_max'])}"
                    if len(files[row["drafter"]]) > 1:
                        drafter += f" ({row['file']})"
                    figures = {name: float(row[name]) for name in FIGURES}
                    figures |= {"depths": numbers(row["acceptance_by_depth"]), "tries": numbers(row["conditional_by_depth"]),
                                "same": row["same_bytes"] == "yes", "prompts": int(row["prompts"])}
                    block = found.setdefault((row["type"], int(row["n_seqs"]), float(row["temperature"])), {})
                    block.setdefault(drafter, {}).setdefault(row["group"], []).append(figures)
        except (OSError, KeyError, ValueError, TypeError) as error:
            fail(f"{path}: {error!r}; a CSV file of aerie bench spec is needed")
    for block in found.values():
        for groups in block.values():
            for group, rows in groups.items():
                groups[group] = joined(rows)
    return found


def joined(rows):
    middle = {name: statistics.median(r[name] for r in rows) for name in FIGURES}
    for name in ("depths", "tries"):
        most = max(len(r[name]) for r in rows)
        middle[name] = [statistics.median(r[name][i] for r in rows if i < len(r[name])) for i in range(most)]
    return middle | {"same": all(r["same"] for r in rows), "prompts": max(r["prompts"] for r in rows)}


# ---- Tables ------------------------------------------------------------------------------------------


def table(block, markdown):
    head = ["drafter", "group", "plain", "tokens/s", "ratio", "per pass", "per round", "rows", "T/T1", "drafting", "same bytes"]
    rows = []
    for drafter, groups in block.items():
        rows += [[drafter, group, f"{f['plain_tokens_per_s']:.1f}", f"{f['tokens_per_s']:.1f}", f"{f['ratio']:.2f}",
                  f"{f['accepted_per_pass']:.2f}", f"{f['accepted_per_round']:.2f}", f"{f['rows_per_pass']:.2f}",
                  f"{f['pass_cost']:.2f}", f"{100 * f['draft_share']:.1f} %", "yes" if f["same"] else "NO"]
                 for group, f in groups.items()]
    return markdown(head, rows)


def table_of_depths(block, markdown):
    most = max((len(groups["all"]["depths"]) for groups in block.values() if "all" in groups), default=0)
    rows = []
    for drafter, groups in block.items():
        if "all" not in groups:
            continue
        depths, tries = groups["all"]["depths"], groups["all"]["tries"]
        shares = [f"{100 * d:.0f} ({100 * t:.0f})" for d, t in zip(depths, tries)]
        rows.append([drafter] + shares + ["-"] * (most - len(depths)))
    return markdown(["accepted at depth, %"] + [str(i + 1) for i in range(most)], rows) if most else ""


def title(key):
    kind, n_seqs, temperature = key
    return f"{kind}, temperature {temperature:g}, {n_seqs} at once"


def name_of(key):
    kind, n_seqs, temperature = key
    return f"spec-{kind.lower()}-t{temperature:g}-np{n_seqs}"


def report(found, options, markdown):
    text = "# Speculation against plain decoding\n\n"
    for command in options.command:
        text += f"* command: `{command}`\n"
    text += ("\nTokens/s of generation, medians; plain and drafted runs in turn. `per pass`, `per round`: accepted tokens per\n"
             "target pass, and per pass that verified a draft; `rows`: rows per pass and sequence; `T/T1`: what a pass cost,\n"
             "in plain ones; `drafting`: its share of the time. Accepted at depth: rounds that accepted so deep over all\n"
             "rounds, in brackets over those that got as far as to try it.\n")
    for key, block in found.items():
        text += f"\n## {title(key)}\n\n" + table(block, markdown) + "\n" + table_of_depths(block, markdown)
        text += f"\n![{title(key)}]({name_of(key)}.svg)\n"
    return text


# ---- Plots -------------------------------------------------------------------------------------------


def script(key, block, quoted):
    groups = list(dict.fromkeys(group for row in block.values() for group in row))
    text, curves = "", []
    for i, (drafter, row) in enumerate(block.items()):
        depths = row["all"]["depths"] if "all" in row else []
        if depths:
            text += f"$d{i} << EOD\n" + "".join(f"{k + 1} {value}\n" for k, value in enumerate(depths)) + "EOD\n"
            curves.append(f"$d{i} using 1:2 with linespoints pt 7 ps 0.5 lw 1.5 lc {i + 1} title {quoted(drafter)}")
    cell = lambda row, group: f"{row[group]['ratio']}" if group in row else "NaN"
    lines = ['"' + group.replace('"', "") + '" ' + " ".join(cell(row, group) for row in block.values()) for group in groups]
    text += "$ratios << EOD\n" + "\n".join(lines) + "\nEOD\n"
    bars = ", ".join(f"$ratios using {i + 2}:xtic(1) lc {i + 1} title {quoted(drafter)}" for i, drafter in enumerate(block))
    return text + f"""
set multiplot layout 1,2 title {quoted(title(key))} noenhanced
set key outside bottom center horizontal noenhanced
set grid
set yrange [0:*]
set title 'speed, in that of plain decoding'
set style data histograms
set style fill solid 0.7
set xtics rotate by -30 noenhanced
plot {bars}, 1 with lines dt 2 lc rgb 'black' notitle
set title 'accepted at depth, of all rounds'
set xtics norotate autofreq
set yrange [0:1]
set xrange [0.5:*]
set xlabel 'depth'
plot {', '.join(curves) if curves else "NaN title 'nothing was drafted'"}
unset multiplot
"""


def main(options, markdown, quoted, draw, fail):
    found = read(options.files, fail)
    if not found:
        fail(f"{options.files[0]} has no rows")
    os.makedirs(options.out, exist_ok=True)
    with open(os.path.join(options.out, "README.md"), "w", encoding="utf-8") as out:
        out.write(report(found, options, markdown))
    for key, block in found.items():
        draw(name_of(key), "1200,600", script(key, block, quoted), options.out)
