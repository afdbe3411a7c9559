"""The Python package, from its wheel in an environment of its own: answers equal the program's, statistics, errors, lifetimes.

usage: check_python.py LIBAERIE AERIE MKMODEL MKHEAD
"""
import glob
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.environ.get("AERIE_TEST_FOLDER")


def program(*words):
    out = subprocess.run([os.environ["AERIE_TEST_PROGRAM"], "run", "-no-cnv", "-q", "--json", "-c", "256", *words], check=True,
                         capture_output=True,
                         text=True, stdin=subprocess.DEVNULL)
    return json.loads(out.stdout)


class Python(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import aerie
        cls.aerie = aerie
        cls.path = FOLDER + "/m.gguf"

    def test_answers_are_the_programs(self):
        with self.aerie.Model(self.path, n_threads=1) as model:
            for drafter in ("auto", "ngram", "none", FOLDER + "/m-eagle3.gguf"):
                with model.session(drafter=drafter, n_ctx=256, n_threads=1) as session:
                    for temperature in (0.0, 1.0):
                        answer = session.generate("a b c a b", n_predict=40, temperature=temperature, seed=7)
                        ours = program("-m", self.path, "-p", "a b c a b", "-n", "40", "--temp", str(temperature), "-s", "7")
                        self.assertEqual(answer.text, ours["text"])
                        self.assertEqual(answer.stats.n_generated, len(answer.tokens))
                        self.assertEqual(answer.stats.n_prompt, len(model.tokens_of("a b c a b")))
                    self.assertEqual(drafter in ("ngram", "none"), "eagle3" not in session.drafter)
                    self.assertEqual(session.n_ctx, 256)
            self.assertGreaterEqual(model.info["n_vocab"], 100)

    def test_errors_name_the_field(self):
        with self.aerie.Model(self.path) as model, model.session(n_ctx=256, n_threads=1) as session:
            for kind, field, value in ((TypeError, "n_predict", "x"), (TypeError, "temperature", "hot"),
                                       (TypeError, "top_k", 1.5), (OverflowError, "n_logprobs", -1),
                                       (ValueError, "temperature", -1)):
                with self.assertRaisesRegex(kind, f"^{field}={value!r}: "):
                    session.generate("a", **{field: value})

    def test_stream_and_statistics(self):
        with self.aerie.Model(self.path) as model, model.session(n_ctx=256, n_threads=1) as session:
            tokens = list(session.stream("a b a b a b a b", n_predict=60, temperature=0.0, ignore_eos=True, n_logprobs=1))
            stats = session.stats
            self.assertEqual(len([t for t in tokens if t.id >= 0]), 60)
            self.assertEqual(stats.stop, "LENGTH")
            self.assertEqual(stats.n_accepted, sum(t.draft_depth > 0 for t in tokens))
            self.assertLessEqual(stats.n_accepted, stats.n_drafted)
            self.assertEqual(sum(stats.accepted_at), stats.n_accepted)
            self.assertTrue(all(t.logprob <= 0 for t in tokens))
            half = []
            for token in session.stream("a b", temperature=0.0):
                half.append(token)
                if len(half) == 3:
                    break
            again = session.generate("a b a b a b a b", n_predict=60, temperature=0.0, ignore_eos=True)
            self.assertEqual([t.id for t in tokens if t.id >= 0], again.tokens)
            self.assertGreater(again.stats.n_cached, 0)

    def test_embeddings(self):
        texts = ["a b c", "d e", ""]
        out = subprocess.run([os.environ["AERIE_TEST_PROGRAM"], "embed", "-q", "-m", self.path, "-p", texts[0], "-p", texts[1],
                              "--json"], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
        ours = json.loads(out)
        with self.aerie.Model(self.path) as model:
            with model.embedder(n_threads=1) as embedder:
                vectors = embedder.embed(texts[:2])
                self.assertEqual([len(v) for v in vectors], [embedder.n_out] * 2)
                self.assertEqual(embedder.embed([model.tokenize(texts[0])]), vectors[:1])
                self.assertEqual(embedder.embed([]), [])
                self.assertAlmostEqual(sum(x * x for x in vectors[0]), 1, places=5)
                found = json.dumps(ours)
                self.assertIn(f"{vectors[0][0]:.6f}"[:7], found)
                with self.assertRaisesRegex(ValueError, "close them first"):
                    model.close()
                with self.assertRaises(TypeError):
                    embedder.embed("one text")
                with self.assertRaises(self.aerie.Error):
                    embedder.embed([[10 ** 9]])
            with self.assertRaisesRegex(ValueError, "closed"):
                embedder.embed(["a"])
            with self.assertRaisesRegex(ValueError, "no pooling 'x'"):
                model.embedder(pooling="x")
            with self.assertRaises(self.aerie.Error):  # not a reranker
                model.embedder(pooling="rank")

    def test_text(self):
        with self.aerie.Model(self.path, vocab_only=True) as model:
            ids = model.tokenize("grüße a b", add_special=False)
            self.assertEqual(model.detokenize(ids).decode(), "grüße a b")
            self.assertEqual(model.tokenize("", add_special=False), [])
            with self.assertRaises(self.aerie.Error):
                model.detokenize([10 ** 9])

    def test_errors(self):
        with self.assertRaises(self.aerie.Error) as caught:
            self.aerie.Model(FOLDER + "/none.gguf")
        self.assertEqual(caught.exception.status, "ERROR_IO")
        self.assertIn("none.gguf", str(caught.exception))
        with self.assertRaisesRegex(TypeError, "has no 'threads'; it has .*n_threads"):
            self.aerie.Model(self.path, threads=3)
        model = self.aerie.Model(self.path)
        session = model.session(n_ctx=64, n_threads=1)
        with self.assertRaisesRegex(self.aerie.Error, "64"):
            session.generate([1] * 1000)
        with self.assertRaises(self.aerie.Error):
            session.generate([])
        with self.assertRaisesRegex(ValueError, "close them first"):
            model.close()
        session.close()
        session.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            session.generate("a")
        model.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            model.tokenize("a")

    def test_pictures(self):
        rgb = bytes((7 * i * i + 3 * i) % 256 for i in range(40 * 30 * 3))

        def chunk(name, data):
            return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        lines = b"".join(b"\0" + rgb[i:i + 120] for i in range(0, len(rgb), 120))
        png = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 40, 30, 8, 2, 0, 0, 0)) +
               chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))
        with open(FOLDER + "/a.png", "wb") as file:
            file.write(png)
        model_path, eye = FOLDER + "/seeing.gguf", FOLDER + "/eye.gguf"
        with self.aerie.Model(model_path) as model, self.aerie.Tower(model, eye, n_threads=1) as tower, \
                model.session(n_ctx=256, n_threads=1) as session:
            image, same = self.aerie.Image(png), self.aerie.Image(rgb, 40, 30)
            self.assertEqual((image.size, same.size, tower.type, tower.n_rows(40, 30)), ((40, 30), (40, 30), "gemma3", 16))
            options = dict(n_predict=12, temperature=0.0, ignore_eos=True)
            prompt = tower.prompt("a b", [image])
            answer = session.generate(prompt, **options)
            ours = program("-m", model_path, "--mmproj", eye, "--image", FOLDER + "/a.png", "-p", "a b", "-n", "12", "--temp",
                           "0", "--ignore-eos")
            self.assertEqual(answer.text, ours["text"])
            self.assertEqual(answer.stats.n_prompt, len(prompt))
            self.assertEqual(session.generate(tower.prompt("<__media__>a b", [same]), **options).tokens, answer.tokens)
            self.assertNotEqual(session.generate("a b", **options).tokens, answer.tokens)
            chat = tower.chat([{"role": "user", "content": [image, "what", same]}, {"role": "assistant", "content": "x"},
                               {"role": "user", "content": "a"}])
            self.assertEqual(len(chat) > 32, True)
            self.assertEqual(session.generate(chat, **options).stats.n_prompt, len(chat))
            # rows of one's own making
            Chunk, ids = self.aerie.Chunk, model.tokenize("a b a b")
            rows = [[0.01 * (i + k) for k in range(model.info["n_embd"])] for i in range(5)]
            plain = session.generate(ids, **options).tokens
            self.assertEqual(session.generate([Chunk(ids[:2]), Chunk(tokens=ids[2:])], **options).tokens, plain)
            one = session.generate([Chunk(ids), Chunk(rows=rows), Chunk(ids)], **options)
            self.assertEqual(one.stats.n_prompt, 2 * len(ids) + 5)
            self.assertEqual(session.generate([Chunk(ids), Chunk(rows=rows), Chunk(ids)], **options).tokens, one.tokens)
            rows[2][3] = float("nan")
            for bad, kind, words in (([Chunk(ids), Chunk(rows=rows), Chunk(ids)], self.aerie.Error, "not finite"),
                                     ([Chunk(ids), Chunk(), Chunk(ids)], self.aerie.Error, "0 tokens and 0 rows"),
                                     ([Chunk(rows=[[1.0], [1.0, 2.0]])], ValueError, "one length"),
                                     ([Chunk(ids), 3], TypeError, "nothing but chunks")):
                with self.assertRaisesRegex(kind, words):
                    session.generate(bad)
            prompt.close()
            with self.assertRaisesRegex(ValueError, "closed"):
                session.generate(prompt)
            with self.assertRaisesRegex(self.aerie.Error, "2 marks"):
                tower.prompt("<__media__><__media__>", [image])
            with self.assertRaisesRegex(self.aerie.Error, "damaged|not a"):
                self.aerie.Image(png[:50])
            with self.assertRaisesRegex(ValueError, "3600 bytes; found 5"):
                self.aerie.Image(b"12345", 40, 30)
            with self.assertRaisesRegex(ValueError, "close them first"):
                model.close()

    def test_nul_characters_are_not_cut_at(self):
        model = self.aerie.Model(os.path.join(FOLDER, "m.gguf"))
        with model, model.session() as session:
            for call in (lambda: self.aerie.Model(model.path + "\0x"), lambda: self.aerie.Session(model, "none\0x"),
                         lambda: model.chat_tokens([{"role": "user", "content": "a\0b"}]),
                         lambda: list(session.stream("a", n_predict=1, stop=["a\0b"]))):
                with self.assertRaisesRegex(ValueError, "NUL"):
                    call()
            self.assertEqual(model.detokenize(model.tokenize("a\0b")), b"a\0b")

    def test_threads(self):
        with self.aerie.Model(self.path) as model, model.session(n_ctx=256, n_threads=1) as session:
            expected = [session.generate(f"a {i}", n_predict=20, seed=i).text for i in range(6)]
            found = [None] * 6

            def one(i):
                found[i] = session.generate(f"a {i}", n_predict=20, seed=i).text
            threads = [threading.Thread(target=one, args=(i,)) for i in range(6)]
            [t.start() for t in threads]
            [t.join() for t in threads]
            self.assertEqual(expected, found)


def build_wheel(root, library, folder):
    """By pip from the source archive, which has all that is needed; repaired if auditwheel is there."""
    def run(*words, **more):
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env={**os.environ, **more},
                              cwd=root + "/bindings/python")
        if done.returncode:
            sys.exit(f"{words}: {done.stdout}{done.stderr}")
    run("-m", "hatchling", "build", "-t", "sdist", "-d", folder)
    shutil.unpack_archive(glob.glob(folder + "/aerie-*.tar.gz")[0], folder)
    source = glob.glob(folder + "/aerie-*/")[0]
    for name in ("src/session/session.c", "include/aerie.h", "cmake/install.cmake", "CMakeLists.txt"):
        if not os.path.exists(source + "source/" + name):
            sys.exit(f"the source archive lacks {name}")
    run("-m", "pip", "wheel", "-q", "--no-index", "--no-build-isolation", "--no-deps", "-w", folder, source,
        AERIE_LIBRARY=library)
    wheel = glob.glob(folder + "/*.whl")[0]
    paths = [p for p in os.environ.get("PYTHONPATH", "").split(":") if p]
    tools = ":".join([*(p + "/bin" for p in paths), os.environ["PATH"]])
    if subprocess.run([sys.executable, "-c", "import auditwheel"], capture_output=True).returncode == 0 and \
            shutil.which("patchelf", path=tools):
        run("-m", "auditwheel", "repair", "--plat", "auto", "-w", folder + "/repaired", wheel, PATH=tools)
        wheel = glob.glob(folder + "/repaired/*.whl")[0]
        if "manylinux" not in wheel:
            sys.exit(f"auditwheel made {wheel}")
    return wheel


def main():
    library, aerie, mkmodel, mkhead = (os.path.abspath(p) for p in sys.argv[1:5])
    folder = tempfile.mkdtemp(prefix="aerie-python-")
    root = os.path.dirname(os.path.dirname(HERE))
    try:
        if subprocess.run([sys.executable, "-c", "import hatchling"], capture_output=True).returncode:
            print("skip: Python's hatchling is not there (scripts/fetch-oracles.sh brings it)")
            return 77
        wheel = build_wheel(root, library, folder)
        if subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", folder + "/venv"]).returncode:
            print("skip: Python's venv does not work here (Debian's package is python3-venv)")
            return 77
        python = folder + "/venv/bin/python"
        clean = {k: v for k, v in os.environ.items() if not k.startswith("AERIE_")}
        clean.update(AERIE_TEST_FOLDER=folder, AERIE_TEST_PROGRAM=aerie)
        if subprocess.run([python, "-c", "import cffi"], env=clean, capture_output=True).returncode:
            print("skip: Python's cffi is not there (scripts/fetch-oracles.sh brings it)")
            return 77
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", wheel], check=True, env=clean)
        subprocess.run([mkmodel, "--shape", "tiny", "--seed", "3", folder + "/m.gguf"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([mkhead, "--kind", "eagle3", folder + "/m.gguf", folder + "/m-eagle3.gguf"], check=True,
                       stdout=subprocess.DEVNULL)
        mkarch = os.path.join(os.path.dirname(mkmodel), "mkarch")
        for words in (("llama", "/seeing.gguf"), ("mmproj-gemma3:64", "/eye.gguf")):
            subprocess.run([mkarch, words[0], folder + words[1]], check=True, stdout=subprocess.DEVNULL)
        return subprocess.run([python, os.path.abspath(__file__)], env=clean, cwd=folder).returncode
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main() if len(sys.argv) > 4 else unittest.main())
