"""Gemma 3 270M (`make gemma`): checks of a second architecture with real weights, 262,144 tokens and a window of 512.

usage: check_gemma.py AERIE [a test's name]      AERIE_GEMMA and AERIE_MODEL name the models, if they are not in models/.

Perplexities of tests/golden/gemma3/text.txt with windows of 1,024 and 512 tokens, 2026-11-26: llama.cpp build 11434, on x86-64
with its defaults, 24.5566 and 29.8289; aerie 24.49327 and 29.81676 (with AMX and with AVX2).
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
GEMMA = os.environ.get("AERIE_GEMMA", os.path.join(ROOT, "models/gemma-3-270m-q4_k_m.gguf"))
SMOLLM2 = os.environ.get("AERIE_MODEL", os.path.join(ROOT, "models/smollm2-135m-instruct-q4_1.gguf"))
TEXT = os.path.join(HERE, "gemma3/text.txt")
AERIE = FOLDER = None


def run(*words):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("AERIE_") or k == "AERIE_CPU"}
    process = subprocess.run([AERIE, *words], env=clean, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if process.returncode:
        raise AssertionError(f"{words}: {process.returncode}: {process.stderr}")
    return process


class Gemma(unittest.TestCase):
    def setUp(self):
        self.prompt = FOLDER + "/prompt.txt"  # 1,079 tokens, more than two windows
        with open(TEXT, encoding="utf-8") as file, open(self.prompt, "w", encoding="utf-8") as out:
            out.write(file.read()[:5000] + "\nThe text above, once more: A lighthouse is a tower with a strong lamp")

    def answer(self, *words, n=48):
        process = run("run", "-q", "-m", GEMMA, "-no-cnv", "-f", self.prompt, "-n", str(n), "-c", "2048", "--stats", *words)
        said = re.search(r"prompt (\d+) tokens \((\d+) cached\).*drafted (\d+), accepted (\d+)", process.stderr)
        self.assertIsNotNone(said, process.stderr)
        return process.stdout, [int(n) for n in said.groups()]

    def test_perplexity(self):
        for window, golden, theirs in (("1024", 24.49327, 24.5566), ("512", 29.81676, 29.8289)):
            found = json.loads(run("perplexity", "-m", GEMMA, "-f", TEXT, "-c", window, "--json").stdout)["perplexity"]
            self.assertLess(abs(found - golden), 2e-5 * golden, window)  # the bits are the same everywhere
            self.assertLess(abs(found - theirs), 0.005 * theirs, window)

    def test_quantizing(self):
        """Fewer bits lose more, within bounds; 8 bits lose hardly anything."""
        base = FOLDER + "/base"
        run("perplexity", "-m", GEMMA, "-f", TEXT, "-c", "256", "--chunks", "1", "--kl-divergence-base", base)
        lost = {}
        for kind in ("Q8_0", "Q4_0"):
            out = f"{FOLDER}/{kind}.gguf"
            run("quantize", GEMMA, out, kind, "--allow-requantize")
            found = json.loads(run("perplexity", "-m", out, "--kl-divergence-base", base, "--kl-divergence", "--json").stdout)
            lost[kind] = found["kl"], found["same_top"]
            os.unlink(out)
        os.unlink(base)
        self.assertLess(lost["Q8_0"][0], 0.02, lost)
        self.assertGreater(lost["Q8_0"][1], 0.9, lost)
        self.assertGreater(lost["Q4_0"][0], lost["Q8_0"][0], lost)
        self.assertLess(lost["Q4_0"][0], 0.6, lost)

    def test_same_bytes_with_every_drafter(self):
        """After a prompt longer than the window: plain, n-grams, a draft model with another vocabulary; other chunks."""
        for sampling in (("--temp", "0"), ("--temp", "1", "-s", "5")):
            plain, figures = self.answer("--spec-type", "none", *sampling)
            self.assertGreater(figures[0], 1024)
            drafted, (_, _, n, accepted) = self.answer("--spec-type", "ngram", "-b", "96", *sampling)
            self.assertEqual(plain, drafted)
            if sampling[1] == "0":  # the text is in the prompt
                self.assertGreater(accepted, 20)
            if os.access(SMOLLM2, os.R_OK):
                drafted, (_, _, n, accepted) = self.answer("--spec-type", "draft", "-md", SMOLLM2, *sampling)
                self.assertEqual(plain, drafted)
                self.assertTrue(n >= accepted > 0, (n, accepted))

    def test_prompt_cache(self):
        cache = FOLDER + "/cache"
        plain, _ = self.answer("--temp", "0")
        first, (n, _, _, _) = self.answer("--temp", "0", "--prompt-cache", cache)
        again, (_, cached, _, _) = self.answer("--temp", "0", "--prompt-cache", cache)
        self.assertEqual((plain, plain), (first, again))
        self.assertEqual(cached, n - 1)
        with open(self.prompt, "a", encoding="utf-8") as file:
            file.write(" at its top, and a keeper")
        longer, _ = self.answer("--temp", "0")
        resumed, (n, cached, _, _) = self.answer("--temp", "0", "--prompt-cache", cache)
        self.assertEqual(longer, resumed)
        self.assertGreater(cached, 1024)
        self.assertLess(cached, n - 1)


if __name__ == "__main__":
    AERIE = os.path.abspath(sys.argv[1])
    if not os.access(GEMMA, os.R_OK):
        print(f"skip: there is no {GEMMA} (make gemma brings it; AERIE_GEMMA can name another place)")
        sys.exit(77)
    FOLDER = tempfile.mkdtemp(prefix="aerie-gemma-")
    try:
        unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
