"""Runs the engine: `aerie train-data` in several processes side by side, `aerie convert`, `aerie quantize`.

One process per core, each with one thread: on a machine that does other work too this is several times as fast as one
process whose threads wait for each other. Every step continues where an interrupted one stopped.
"""
import json
import os
import subprocess
from pathlib import Path


class Engine:
    def __init__(self, program, model, jobs, context):
        self.program, self.model, self.jobs, self.context = program, model, jobs, context

    def call(self, *arguments):
        self.wait([self.start(*arguments)])

    def start(self, *arguments):
        return subprocess.Popen([self.program, *map(str, arguments)])

    def wait(self, processes):
        bad = [p.args for p in processes if p.wait()]
        if bad:
            raise SystemExit(f"failed: {' '.join(bad[0])}")

    def _cores(self):
        return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count()))

    def side_by_side(self, calls):
        """calls: argument lists, each run on a core of its own."""
        cores = self._cores()
        running = []
        for i, arguments in enumerate(calls):
            pin = ["-C", f"{1 << cores[i % len(cores)]:x}"] if len(cores) > 1 else []
            running.append(self.start("train-data", *arguments, "-m", self.model, "-t", 1, "-c", self.context, *pin))
        self.wait(running)

    def turns(self, folder, count, tokens, parallel, seed):
        """Generates user turns with the target, half at temperature 1, half at 0.8. Returns a list of texts."""
        calls, files = [], []
        for job in range(self.jobs):
            files.append(folder / f"turns-{job}.jsonl")
            here = count // self.jobs + (job < count % self.jobs)
            if here:
                calls.append(["turns", "-o", files[-1], "--n-turns", here, "-n", tokens, "-np", parallel, "--temp",
                              1.0 if job % 2 else 0.8,
                              "--top-k", 0, "--top-p", 1, "--min-p", 0, "-s", seed + 1_000_000 * job])
        self.side_by_side(calls)
        texts = [o["text"].strip() for f in files if f.exists() for o in read_lines(f)]
        return [t for t in texts if 8 <= len(t) <= 600 and "\0" not in t and "\ufffd" not in t]

    def answers(self, folder, name, prompts, tokens, parallel, seed, taps, likely):
        """Answers to prompts and their features; returns the files of both, one per job."""
        calls, files, features = [], [], []
        for job in range(self.jobs):
            source, made = folder / f"prompts-{name}-{job}.jsonl", folder / f"answers-{name}-{job}.jsonl"
            if not source.exists():
                write_lines(source, prompts[job::self.jobs])
            files.append(made)
            features.append(folder / f"features-{name}-{job}.bin")
            calls.append(["answers", source, "-o", made, "--features", features[-1], "--n-likely", likely,
                          "--taps", ",".join(map(str, taps)), "-n", tokens, "-np", parallel, "--top-k", 0, "--top-p", 1,
                          "--min-p", 0, "-s", seed])
        self.side_by_side(calls)
        return files, features


def read_lines(path):
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]


def write_lines(path, objects):
    temporary = Path(str(path) + ".new")
    temporary.write_text("".join(json.dumps(o, ensure_ascii=False) + "\n" for o in objects), encoding="utf-8")
    os.replace(temporary, path)
