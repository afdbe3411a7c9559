"""peers_spec.py - bench/peers.py --spec: aerie's and llama.cpp's speculation side by side, on the same file and prompts.

Every round runs `aerie bench spec` once and every configuration of every peer once. Figures are tokens per second of
generation over a group of prompts (all tokens by all seconds), medians over the rounds. The best of a peer's configurations,
plain decoding included, is chosen for it for each group and temperature, and so is the best of aerie's drafters.
"""
import csv
import json
import os
import statistics
import subprocess
import sys

import llama_server
import plot_spec

COLUMNS = ["date", "machine", "threads", "model", "engine", "configuration", "temperature", "group", "prompts", "tokens_per_s",
           "min", "max", "accepted_share", "rounds"]


def read_prompts(options, fail):
    """{group: [prompt]} as aerie bench spec chooses them"""
    if not os.path.isdir(options.prompts):
        fail(f"--prompts: '{options.prompts}' is not a folder")
    names = sorted(n for n in os.listdir(options.prompts) if n.endswith(".jsonl") and not n.startswith("."))
    wanted, found = options.groups.split(",") if options.groups else None, {}
    for name in names:
        group = name[:-len(".jsonl")]
        if wanted and group not in wanted:
            continue
        try:
            with open(os.path.join(options.prompts, name), encoding="utf-8") as file:
                lines = [json.loads(line) for line in file if line.strip()]
            chosen = [line["prompt"] for line in lines
                      if options.held_out == "all" or line["held_out"] == (options.held_out == "only")]
        except (OSError, ValueError, KeyError, TypeError) as error:
            fail(f"{os.path.join(options.prompts, name)}: {error!r}; lines with prompt and held_out are needed")
        if chosen:
            found[group] = chosen[:options.per_group] if options.per_group else chosen
    return found or fail(f"no prompt in '{options.prompts}' is chosen by --groups and --held-out")


def ours(options, model, prompts, fail):
    """{(engine, configuration, temperature, group): (tokens/s, accepted share)} of one round"""
    words = [options.aerie, "bench", "spec", "-m", model, "--prompts", options.prompts, "--groups", ",".join(prompts),
             "--held-out", options.held_out, "--per-group", str(options.per_group), "--temps",
             ",".join(f"{t:g}" for t in options.temps), "-n", str(options.decode), "-t", str(options.threads), "-r", "1", "-s",
             str(options.seed), "--json"] + options.ours
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            fail(f"'{' '.join(words)}' ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
        runs = json.loads(done.stdout)["runs"]
    except OSError as error:
        fail(f"{options.aerie}: {error.strerror}")
    except (ValueError, KeyError):
        fail(f"'{' '.join(words)}' printed no JSON with runs")
    found = {}
    for r in runs:
        many = f", {r['n_seqs']} at once" if r["n_seqs"] > 1 else ""
        name = f"{r['drafter']} {plot_spec.shape(r['tree'])} {r['n_max']}{many}"
        plain = f"plain{many}"
        share = r["accepted"] / r["drafted"] if r["drafted"] else None
        found["aerie", name, round(r["temperature"], 4), r["group"]] = (r["tokens_per_s"], share)
        found["aerie", plain, round(r["temperature"], 4), r["group"]] = (r["plain_tokens_per_s"], None)
    return found


def theirs(options, peer, command, name, extra, model, prompts):
    """the same of one configuration of a peer"""
    folder, environment = command
    found = {}
    with llama_server.Server(folder, environment, model, options.threads, options.context_size, extra) as server:
        for temperature in options.temps:
            every = []
            for group, texts in prompts.items():
                answers = [server.answer(text, options.decode, temperature, options.seed) for text in texts]
                every += answers
                found[peer, name, temperature, group] = figures(answers)
            found[peer, name, temperature, "all"] = figures(every)
    return found


def figures(answers):
    tokens, seconds, drafted, accepted = (sum(a[i] for a in answers) for i in range(4))
    return tokens / seconds if seconds else 0.0, accepted / drafted if drafted else None


def measure(options, model, prompts, fail):
    """{(engine, configuration, temperature, group): [(tokens/s, accepted share)]}, one a round"""
    results = {}
    say = lambda i, what: print(f"peers.py: {os.path.basename(model)}, round {i + 1}/{options.rounds}, {what}", file=sys.stderr)
    for i in range(options.rounds):
        say(i, "aerie")
        rounds = [ours(options, model, prompts, fail)]
        for peer, command in options.peers:
            for name, extra in llama_server.configurations(options.draft_n, options.head, options.configurations):
                say(i, f"{peer}, {name}")
                try:
                    rounds.append(theirs(options, peer, command, name, extra, model, prompts))
                except llama_server.Failed as error:
                    fail(error)
        for found in rounds:
            for key, value in found.items():
                results.setdefault(key, []).append(value)
    return results


def best(medians, engine, temperature, group):
    """(tokens/s, configuration) of the engine's fastest"""
    return max((value, name) for (e, name, t, g), value in medians.items() if (e, t, g) == (engine, temperature, group))


def table(options, model, prompts, medians):
    engines = ["aerie"] + [name for name, _ in options.peers]
    for temperature in options.temps:
        print(f"\n{model}, temperature {temperature:g}, {options.threads} threads, tokens/s, medians of {options.rounds} "
              "rounds")
        print(f"{'group':12}{'aerie plain':>12}" + "".join(f"{e + ', best':>44}" for e in engines) + "".join(
            f"{'aerie / ' + e:>24}" for e in engines[1:]))
        for group in list(prompts) + ["all"]:
            tops = [best(medians, e, temperature, group) for e in engines]
            plain = max(v for (e, n, t, g), v in medians.items()
                        if (e, t, g) == ("aerie", temperature, group) and n.startswith("plain"))
            print(f"{group:12}{plain:12.2f}" + "".join(f"{f'{name}':>33} {value:10.2f}" for value, name in tops) +
                  "".join(f"{tops[0][0] / value if value else 0:24.2f}" for value, _ in tops[1:]))


def rows(options, model, prompts, results, date, machine):
    sizes = {group: len(texts) for group, texts in prompts.items()}
    sizes["all"] = sum(sizes.values())
    for (engine, name, temperature, group), values in results.items():
        speeds, shares = [v[0] for v in values], [v[1] for v in values if v[1] is not None]
        yield [date, machine, options.threads, os.path.basename(model), engine, name, f"{temperature:g}", group, sizes[group],
               f"{statistics.median(speeds):.5g}", f"{min(speeds):.5g}", f"{max(speeds):.5g}",
               f"{statistics.median(shares):.4f}" if shares else "", len(values)]


def main(options, date, machine, fail):
    prompts = read_prompts(options, fail)
    lines, everything = [], {}
    for model in options.model:
        results = measure(options, model, prompts, fail)
        table(options, model, prompts, {key: statistics.median(v[0] for v in values) for key, values in results.items()})
        lines += rows(options, model, prompts, results, date, machine)
        names = ("engine", "configuration", "temperature", "group")
        everything[os.path.basename(model)] = [dict(zip(names, key), tokens_per_s=[v[0] for v in values])
                                               for key, values in results.items()]
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump({"date": date, "machine": machine, "threads": options.threads, "results": everything}, out, indent=1)
    if options.csv:
        with open(options.csv, "w", encoding="utf-8", newline="") as out:
            csv.writer(out).writerows([COLUMNS] + lines)
