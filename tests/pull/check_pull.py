"""`aerie pull` and -m hf:... against a hub on this machine, with faults: a right file or a clear error, never a wrong file in
place.

usage: check_pull.py AERIE MKMODEL MKHEAD; a test's name may follow.
"""
import concurrent.futures
import contextlib
import glob
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hub as hubs  # noqa: E402

AERIE = MKMODEL = MKHEAD = FOLDER = None
MODEL = HEAD = b""
N_ROUNDS = 25  # of pulls and removals at once
N_PULLS = int(os.environ.get("AERIE_TEST_PULLS", "44"))  # each with 1 to 4 faults


def read(path):
    with open(path, "rb") as file:
        return file.read()


def grey_png(w=8, h=8):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress((b"\0" + b"Z" * w) * h)) + chunk(b"IEND", b""))


def small_gguf(part, n_parts):
    """A file with one tensor, part `part` (from 0) of a split model."""
    def text(t):
        return struct.pack("<Q", len(t)) + t.encode()
    keys = [text("general.architecture") + struct.pack("<I", 8) + text("llama")]
    if n_parts > 1:
        keys += [text(key) + struct.pack("<IH", 2, n) for key, n in (("split.no", part), ("split.count", n_parts))]
    tensor = text(f"t{part}") + struct.pack("<IQIQ", 1, 64, 0, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(keys)) + b"".join(keys) + tensor
    return head + bytes(-len(head) % 32) + bytes([part] * 256)


class Case(unittest.TestCase):
    def setUp(self):
        self.hub = hubs.Hub()
        self.addCleanup(self.hub.close)
        self.home = tempfile.mkdtemp(dir=FOLDER)
        self.addCleanup(shutil.rmtree, self.home, True)

    def environment(self, cache=None, **more):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("AERIE_", "HF_", "OLLAMA_"))
                 and not k.lower().endswith("_proxy")}
        return {**clean, "HOME": self.home, "XDG_CACHE_HOME": cache or os.path.join(self.home, "cache"),
                "HF_ENDPOINT": self.hub.url,
                "AERIE_OLLAMA_REGISTRY": self.hub.url, **more}

    def start(self, *words, cache=None, before=None, **more):
        return subprocess.Popen([AERIE, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True,
                                env=self.environment(cache, **more), preexec_fn=before)

    def run_it(self, *words, status=0, **more):
        process = self.start(*words, **more)
        out, err = process.communicate(timeout=600)
        self.assertEqual(process.returncode, status, f"{words}: {err}{out}")
        process.out, process.err = out, err
        if status:
            self.assertEqual(out, "")
            self.assertRegex(err, r"\A(aerie: .*\n)+\Z")
        return process

    def pull(self, *words, **more):
        return self.run_it("pull", "-q", *words, **more)

    def files(self, cache=None):
        """Files with a visible name, by their path in the cache."""
        root = os.path.join(cache or os.path.join(self.home, "cache"), "aerie/models")
        return {os.path.relpath(os.path.join(d, n), root): read(os.path.join(d, n)) for d, _, names in os.walk(root)
                for n in names
                if not n.startswith(".")}


class Pull(Case):
    def test_quantization_is_chosen_as_llama_cpp_does(self):
        h = self.hub
        for name in ("README.md", "m-Q8_0.gguf", "m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "mmproj-m-Q8_0.gguf", "UD/m-UD-IQ1_M.gguf",
                     "../x.gguf",
                     ".hidden.gguf", "a\nb.gguf"):
            h.add("o/r", name, MODEL + name.encode())
        h.per_page = 2  # pages of the list
        for what, name in (("hf:o/r", "m-Q4_K_M.gguf"), ("hf:o/r:q8_0", "m-Q8_0.gguf"), ("hf:o/r:Q4_K_S", "m-Q4_K_S.gguf"),
                           ("hf:o/r:UD-IQ1_M", "UD/m-UD-IQ1_M.gguf"), ("hf:o/r/m-Q8_0.gguf", "m-Q8_0.gguf")):
            out = self.pull(what).out
            self.assertTrue(out.endswith("/cache/aerie/models/hf/o/r/" + name + "\n"), out)
            self.assertEqual(read(out[:-1]), h.repos["o/r"][name].data)
        for what, sentence in (("hf:o/r:Q4_K", "has no 'Q4_K'; it has UD/m-UD-IQ1_M.gguf, m-Q4_K_M.gguf"),
                               ("hf:o/none", "HF_TOKEN"),
                               ("hf:o/r/no.gguf", "has no 'no.gguf'")):
            self.assertIn(sentence, self.pull(what, status=1).err)
        for what in ("hf:o", "hf:o/r:", "hf:../r", "hf:o/r/../../x.gguf", "hf:o/r:Q4 K", "ollama:", "ollama:a/b/c", "m.gguf",
                     "https://host/",
                     "http://host/x.html", "http:///m.gguf", "http://../m.gguf", "hf:" + "o" * 500 + "/r", ""):
            self.pull(what, status=2)
        self.assertEqual(self.pull("hf:o/r", "--json").out and json.loads(self.pull("hf:o/r", "--json").out)["files"][0][
            "sha256"],
                         h.repos["o/r"]["m-Q4_K_M.gguf"].sha256)

    def test_an_empty_repository(self):
        self.hub.repos["o/r"] = {}
        self.assertIn("contains no model", self.pull("hf:o/r", status=1).err)

    def test_split_model_and_drafter_come_along(self):
        h = self.hub
        for i in (1, 2, 3):
            h.add("o/r", f"big/m-Q4_0-0000{i}-of-00003.gguf", MODEL + bytes([i]))
        h.add("o/r", "big/m-eagle3-head.gguf", HEAD)
        out = self.pull("hf:o/r:Q4_0").out[:-1]
        self.assertTrue(out.endswith("big/m-Q4_0-00001-of-00003.gguf"), out)
        self.assertEqual(sorted(os.path.basename(f) for f in self.files()),
                         ["m-Q4_0-00001-of-00003.gguf", "m-Q4_0-00002-of-00003.gguf", "m-Q4_0-00003-of-00003.gguf",
                          "m-Q4_0-eagle3.gguf"])
        del h.repos["o/r"]["big/m-Q4_0-00002-of-00003.gguf"]
        self.assertIn("lacks 'big/m-Q4_0-00002", self.pull("hf:o/r", status=1).err)

    def test_other_commands_pull_first_and_then_need_no_network(self):
        h = self.hub
        f = h.add("o/r", "m-Q4_0.gguf", MODEL)
        head = h.add("o/r", "m-eagle3.gguf", HEAD)
        first = self.run_it("run", "-hf", "o/r", "-p", "a b", "-n", "8", "--temp", "0", "-no-cnv", "-c", "128", "--stats")
        self.assertIn("eagle3", first.err)  # the head beside the model drafts
        self.assertEqual((len(f.requests), len(head.requests)), (1, 1))
        h.close()
        again = self.run_it("run", "-m", "hf:o/r", "-p", "a b", "-n", "8", "--temp", "0", "-no-cnv", "-c", "128", "--offline")
        self.assertEqual(first.out, again.out)
        self.run_it("inspect", "hf:o/r", "--keys")
        self.assertIn("forbids downloading it", self.run_it("tokenize", "-hf", "o/other", "-p", "a", "--offline", status=1).err)
        self.assertIn("exclude each other", self.run_it("tokenize", "-m", "x", "-hf", "o/r", "-p", "a", status=2).err)
        self.run_it("tokenize", "-hf", "o/r", "-hff", "m-Q4_0.gguf", "-p", "a", status=1, HF_ENDPOINT="http://127.0.0.1:1")

    def test_a_drafter_that_fails_costs_a_line(self):
        self.hub.add("o/r", "m-Q4_0.gguf", MODEL)
        self.hub.add("o/r", "m-mtp.gguf", HEAD).faults = ["404"]
        process = self.run_it("pull", "hf:o/r")
        self.assertIn("the drafter beside the model is left out", process.err)
        self.assertEqual(list(self.files()), ["hf/o/r/m-Q4_0.gguf"])
        left = os.listdir(os.path.join(self.home, "cache/aerie/models/hf/o/r"))
        self.assertEqual([name for name in left if name.endswith(".part")], [])  # an answer without bytes leaves none
        self.pull("hf:o/r")
        self.assertEqual(len(self.files()), 2)
        self.assertEqual(len(self.hub.repos["o/r"]["m-Q4_0.gguf"].requests), 1)  # what is there is not fetched again

    def test_what_reads_images_comes_along(self):
        h = self.hub
        eye = os.path.join(self.home, "eye.gguf")
        subprocess.run([os.path.join(os.path.dirname(MKMODEL), "mkarch"), "mmproj-gemma3:64", eye], check=True)
        for name in ("m-Q4_0.gguf", "big/n-Q8_0.gguf"):
            h.add("o/r", name, MODEL)
        for name in ("mmproj-F32.gguf", "mmproj-BF16.gguf", "mmproj-F16.gguf", "mmproj-F16.imatrix.gguf",
                     "big/eye-mmproj.gguf"):
            h.add("o/r", name, read(eye) + name.encode())
        self.pull("hf:o/r:Q4_0")
        self.assertEqual(sorted(self.files()), ["hf/o/r/m-Q4_0.gguf", "hf/o/r/mmproj-F16.gguf"])
        self.pull("hf:o/r:Q8_0")  # of the model's own folder, under a name that is found
        self.assertIn("hf/o/r/big/mmproj-eye-mmproj.gguf", self.files())
        picture = os.path.join(self.home, "grey.png")
        with open(picture, "wb") as file:
            file.write(grey_png())
        words = ("-p", "a b", "-n", "4", "--temp", "0", "-c", "128", "--image", picture)
        first = self.run_it("run", "-hf", "o/r:Q4_0", *words)
        self.assertIn("images are read by", first.err)
        self.run_it("run", "-hf", "o/r:Q4_0", *words, "--no-mmproj", status=2)
        h.repos["o/r"]["mmproj-F16.gguf"].faults = ["404"]
        missing = self.run_it("pull", "hf:o/r:Q4_0", cache=os.path.join(self.home, "other"))
        self.assertIn("the part that reads images is left out", missing.err)
        none = os.path.join(self.home, "none")
        self.pull("hf:o/r:Q4_0", "--no-mmproj", cache=none)
        self.assertEqual(list(self.files(none)), ["hf/o/r/m-Q4_0.gguf"])
        model = h.add("library/see", "1b", MODEL)
        model.tower = h.add("library/see", "tower", read(eye))
        self.assertEqual(read(self.pull("ollama:see:1b").out[:-1]), MODEL)
        self.assertEqual(self.files()["ollama/library/see/mmproj-see-1b.gguf"], read(eye))
        self.assertIn("mmproj-see-1b.gguf", self.run_it("run", "-m", "ollama:see:1b", *words).err)

    def test_ollama(self):
        f = self.hub.add("library/smol", "135m", MODEL)
        self.hub.add("me/smol", "latest", MODEL + b"2")
        self.assertEqual(read(self.pull("ollama:smol:135m").out[:-1]), MODEL)
        self.assertEqual(read(self.pull("ollama:me/smol").out[:-1]), MODEL + b"2")
        self.pull("ollama:smol:135m")
        self.assertEqual(len(f.requests), 1)
        self.assertIn("is not there", self.pull("ollama:smol:7b", status=1).err)

    def test_list_and_rm(self):
        h = self.hub
        self.assertIn("nothing was pulled", self.run_it("list").err)
        self.assertIn("was not pulled", self.run_it("rm", "hf:o/r", status=1).err)
        self.assertFalse(os.path.exists(os.path.join(self.home, "cache")))  # asking makes no folders
        h.add("o/r", "m-Q4_K_M.gguf", MODEL)
        h.add("o/r", "sub/m-Q8_0.gguf", MODEL + b"8")
        h.add("library/smol", "135m", MODEL + b"o")
        for what in ("hf:o/r", "hf:o/r:q4_k_m", "hf:o/r:Q8_0", "ollama:smol:135m"):
            self.pull(what)
        self.pull("hf:o/r", "--no-drafter")
        names = ["hf:o/r", "hf:o/r:Q8_0", "hf:o/r:q4_k_m", "ollama:smol:135m"]
        self.assertEqual([line.split()[0] for line in self.run_it("list").out.splitlines()], ["NAME"] + names)
        listed = json.loads(self.run_it("list", "--json").out)["models"]
        self.assertEqual([(m["name"], m["bytes"], m["whole"]) for m in listed],
                         list(zip(names, (len(MODEL), len(MODEL) + 1, len(MODEL), len(MODEL) + 1), [True] * 4)))
        self.assertEqual(read(listed[1]["files"][0]["path"]), MODEL + b"8")
        self.run_it("rm", "-q", "hf:o/r")  # another name means its file too
        self.assertEqual(sorted(self.files()), ["hf/o/r/m-Q4_K_M.gguf", "hf/o/r/sub/m-Q8_0.gguf",
                                                "ollama/library/smol/smol-135m.gguf"])
        self.assertIn("1 file,", self.run_it("rm", "hf:o/r:q4_k_m").err)
        self.assertIn("was not pulled", self.run_it("rm", "hf:o/r:q4_k_m", status=1).err)
        os.truncate(listed[1]["files"][0]["path"], 10)
        self.assertIn("files are missing", self.run_it("list").out)
        self.run_it("rm", "hf:o/r:Q8_0", "ollama:smol:135m")
        self.assertEqual(os.listdir(os.path.join(self.home, "cache/aerie/models")), [])
        self.assertIn("forbids downloading it", self.run_it("tokenize", "-hf", "o/r", "-p", "a", "--offline", status=1).err)
        self.run_it("rm", status=2)
        self.assertIn("not a pulled model", self.run_it("rm", "m.gguf", status=2).err)
        for wrong in ("hf:../r", "hf:o/r/../../x.gguf", "hf:o", "https://host/"):
            self.run_it("rm", wrong, status=2)
        # pulls and removals at once: each ends well, and what is there at the end is whole
        processes = [self.start(*words, "hf:o/r") for _ in range(6) for words in (("pull", "-q"), ("rm", "-q"))]
        for process in processes:
            out, err = process.communicate(timeout=600)
            self.assertTrue(process.returncode == 0 or "was not pulled" in err, err)
        self.assertEqual(read(self.pull("hf:o/r").out[:-1]), MODEL)

    def test_pulls_beside_removals_of_neighbours(self):
        """rm takes away the folders that it leaves empty, which a pull beside it is just making."""
        for name in "abcd":
            self.hub.add("o/" + name, "m.gguf", MODEL)

        def loop(name):
            for _ in range(N_ROUNDS):
                self.assertEqual(read(self.pull("hf:o/" + name).out[:-1]), MODEL)
                self.run_it("rm", "-q", "hf:o/" + name)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(loop, "ab"))
            ended = threading.Event()

            def prune():  # what rm does at its end, all the time
                models = os.path.join(self.home, "cache/aerie/models")
                while not ended.is_set():
                    for folder in ("hf/o/c", "hf/o/d", "hf/o", "hf", "."):
                        with contextlib.suppress(OSError):
                            os.rmdir(os.path.join(models, folder))
            pruner = pool.submit(prune)
            try:
                list(pool.map(loop, "cd"))
            finally:
                ended.set()
            pruner.result()
        os.makedirs(os.path.join(self.home, "cache/aerie/models"), exist_ok=True)
        self.assertEqual(os.listdir(os.path.join(self.home, "cache/aerie/models")), [])
        os.symlink("/nowhere/at/all", os.path.join(self.home, "link"))
        self.assertIn("cannot make the folder", self.pull("hf:o/a", status=1, cache=os.path.join(self.home, "link")).err)

    def test_address(self):
        f = self.hub.add("o/r", "m.gguf", MODEL, lfs=False)
        url = self.hub.url + "/cdn/o/r/m.gguf?signature=secret"
        out = self.pull(url).out[:-1]
        self.assertEqual(read(out), MODEL)
        self.pull(url)
        self.assertEqual([r for r, _ in f.requests], [0, 0])  # the second time it is not modified
        self.assertEqual(self.pull(url, "--sha256", f.sha256.upper()).out[:-1], out)
        self.pull(url, "--sha256", "12", status=2)
        for fault in ("html", "no-length"):  # nobody knows its hash
            f.faults, f.etag = [fault, "html"], "new" + fault
            f.data = MODEL[:-7]
            self.assertIn("not a complete GGUF file", self.pull(url, status=3).err)
            self.assertNotIn("secret", self.pull(url, status=3).err)
            self.assertEqual(read(out), MODEL)
        other = self.hub.add("o/r", "n.gguf", MODEL, lfs=False)
        other.faults = ["drop"]  # continued by If-Range
        self.assertEqual(read(self.pull(self.hub.url + "/cdn/o/r/n.gguf").out[:-1]), MODEL)
        self.assertGreater(other.requests[1][0], 0)
        other.etag = None
        other.faults = ["drop", "drop"]
        os.unlink(self.pull("--offline", self.hub.url + "/cdn/o/r/n.gguf").out[:-1])
        self.assertEqual(read(self.pull(self.hub.url + "/cdn/o/r/n.gguf").out[:-1]), MODEL)
        self.assertEqual([r for r, _ in other.requests[-3:]], [0, 0, 0])
        linked = self.hub.add("o/r", "l.gguf", b"GGUF but nothing else")
        page = self.hub.url + "/o/r/blob/main/l.gguf"  # a page of the hub: its file, whose hash the hub tells
        self.assertEqual(read(self.pull(page).out[:-1]), linked.data)

    def test_token_goes_to_the_hub_alone(self):
        self.hub.add("o/r", "m.gguf", MODEL)
        self.hub.gated = "hf_secret"
        self.assertIn("HF_TOKEN", self.pull("hf:o/r", status=1).err)
        self.assertIn("the token may not read it", self.pull("hf:o/r", status=1, HF_TOKEN="hf_wrong").err)
        self.hub.seen.clear()
        self.pull("hf:o/r", HF_TOKEN="hf_secret")
        shown = [path for path, headers in self.hub.seen if "Authorization" in headers]
        self.assertEqual(shown, ["/api/models/o/r/tree/main", "/o/r/resolve/main/m.gguf"])
        self.pull(self.hub.elsewhere + "/cdn/o/r/m.gguf", HF_TOKEN="hf_secret")
        self.assertNotIn("Authorization", self.hub.seen[-1][1])

    def test_proxy(self):
        self.hub.add("o/r", "m.gguf", MODEL)
        self.hub.elsewhere = "http://cdn.invalid"
        self.pull("hf:o/r", HF_ENDPOINT="http://hub.invalid", http_proxy=self.hub.url)
        self.assertEqual(len(self.hub.proxied), 3)

    def test_a_newer_file_replaces_the_older(self):
        self.hub.add("o/r", "m.gguf", MODEL)
        out = self.pull("hf:o/r").out[:-1]
        f = self.hub.add("o/r", "m.gguf", MODEL + b"newer")
        f.faults = ["flipped"]
        self.assertIn("SHA-256", self.pull("hf:o/r", status=1).err)
        self.assertEqual(read(out), MODEL)  # a failure leaves the old one
        self.pull("hf:o/r")
        self.assertEqual(read(out), MODEL + b"newer")


class Names(Case):
    """Models as ollama's users name them, and positional arguments."""
    RUN = ("--ids", "-n", "8", "--temp", "0", "-no-cnv", "-c", "128")

    def file(self, *path, data):
        path = os.path.join(self.home, *path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def ollama(self, name, data, root=".ollama/models", blob=True):
        """A model as ollama keeps it; name: HOST/OWNER/NAME/TAG."""
        digest = hashlib.sha256(data).hexdigest()
        layers = [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + digest, "size": len(data)},
                  {"mediaType": "application/vnd.ollama.image.params", "digest": "sha256:" + "0" * 64, "size": 1}]
        self.file(root, "manifests", name, data=json.dumps({"schemaVersion": 2, "layers": layers}).encode())
        return self.file(root, "blobs", "sha256-" + digest, data=data) if blob else None

    def snapshot(self, repo, name, data, root="cache/huggingface/hub", revision="a" * 40, main=True):
        """A file as huggingface_hub keeps it: a link to a blob."""
        folder = os.path.join(root, "models--" + repo.replace("/", "--"))
        blob = self.file(folder, "blobs", hashlib.sha256(data).hexdigest(), data=data)
        path = os.path.join(self.home, folder, "snapshots", revision, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(os.path.relpath(blob, os.path.dirname(path)), path)
        if main:
            self.file(folder, "refs/main", data=revision.encode())
        return path

    def tree(self):
        return sorted((d, f, os.lstat(os.path.join(d, f)).st_mtime_ns) for d, _, files in os.walk(self.home) for f in files)

    def test_what_was_pulled(self):
        h = self.hub
        h.add("library/smol", "135m", MODEL)
        h.add("library/smol", "latest", MODEL + b"latest")
        h.add("me/smol", "latest", MODEL + b"mine")
        h.add("o/Tiny-GGUF", "tiny-Q4_K_M.gguf", MODEL + b"hf")
        h.add("o/Tiny-GGUF", "tiny-Q8_0.gguf", MODEL + b"hf8")
        expected = self.run_it("run", "-m", self.pull("ollama:smol:135m").out[:-1], "-p", "a b", *self.RUN).out
        for what in ("ollama:smol", "ollama:me/smol", "hf:o/Tiny-GGUF", "hf:o/Tiny-GGUF:Q8_0"):
            self.pull(what)
        n = len(h.seen)
        for name, meant in (("smol:135m", "smol-135m"), ("smol", "smol-latest"), ("smol:latest", "smol-latest"),
                            ("me/smol", "me/smol/smol-latest"), ("tiny-gguf:q8_0", "Tiny-GGUF/tiny-Q8_0"),
                            ("o/Tiny-GGUF:q8_0", "tiny-Q8_0"), ("hf.co/o/tiny-gguf:Q8_0", "tiny-Q8_0"),
                            ("tiny-q4_k_m", "tiny-Q4_K_M"), ("Tiny-GGUF", "Tiny-GGUF/tiny-")):
            said = self.run_it("tokenize", "-m", name, "-p", "a").err
            self.assertIn(f"'{name}' is '", said)
            self.assertIn("pulled before", said)
            self.assertIn(meant, self.run_it("list", "--json").out)
            self.assertIn(meant, self.run_it("run", name, "a b", "--json", *self.RUN[1:]).out, name)
        self.assertEqual(len(h.seen), n)  # without the network
        self.assertEqual(self.run_it("run", "smol:135m", "a", "b", "-q", *self.RUN).out, expected)
        self.assertIn("'smol:135m' is taken as 'ollama:smol:135m'", self.run_it("pull", "smol:135m").err)
        self.assertIn("is removed", self.run_it("rm", "smol:135m").err)
        self.assertIn("not a pulled model", self.run_it("rm", "smol:135m", status=1).err)

    def test_ollamas_store(self):
        blob = self.ollama("registry.ollama.ai/library/llama3.2/1b", MODEL)
        other = self.ollama("registry.ollama.ai/me/own/latest", MODEL + b"2")
        hub = self.ollama("hf.co/o/Some-GGUF/Q4_K_M", MODEL + b"3")
        before = self.tree()
        for name, path in (("llama3.2:1b", blob), ("me/own", other), ("me/own:latest", other),
                           ("hf.co/o/Some-GGUF:Q4_K_M", hub)):
            self.assertIn(f"'{name}' is '{path}', in ollama's store", self.run_it("inspect", name, "--keys").err)
            self.assertIn(path, self.run_it("tokenize", "-m", name, "-p", "a").err)
        listed = json.loads(self.run_it("list", "--json").out)["models"]
        self.assertEqual([(m["name"], m["source"], m["bytes"], [f["path"] for f in m["files"]]) for m in listed],
                         [("hf.co/o/Some-GGUF:Q4_K_M", "ollama", len(MODEL) + 1, [hub]),
                          ("llama3.2:1b", "ollama", len(MODEL), [blob]), ("me/own:latest", "ollama", len(MODEL) + 1, [other])])
        self.assertTrue(all(f["path"].endswith(f["sha256"]) for m in listed for f in m["files"]))
        rows = [line.split() for line in self.run_it("list").out.splitlines()]
        self.assertEqual([(r[0], r[-1]) for r in rows], [("NAME", "SOURCE")] + [(m["name"], "ollama") for m in listed])
        odd = self.ollama("registry.ollama.ai/me/r\x1b[31md/latest", MODEL + b"5")
        said = self.run_it("list").out
        self.assertIn("me/r\\x1b[31md:latest", said)
        self.assertNotIn("\x1b", said)
        shutil.rmtree(os.path.join(self.home, ".ollama/models/manifests/registry.ollama.ai/me/r\x1b[31md"))
        os.remove(odd)
        for m in listed:
            self.assertIn(f"'ollama rm {m['name']}' removes it", self.run_it("rm", m["name"], status=1).err)
        self.assertEqual(self.tree(), before)  # read only
        moved = os.path.join(self.home, "elsewhere")
        os.rename(os.path.join(self.home, ".ollama/models"), moved)
        self.assertIn("elsewhere/blobs", self.run_it("inspect", "llama3.2:1b", OLLAMA_MODELS=moved).err)
        error = self.run_it("run", "llama3.2:2b", "a", status=1, OLLAMA_MODELS=moved).err
        self.assertIn("is taken as 'ollama:llama3.2:2b'", error)
        self.assertIn("did you mean 'llama3.2:1b'", error)
        self.ollama("registry.ollama.ai/library/gone/latest", MODEL + b"4", blob=False)
        for content in (b"", b"[]", b"{", json.dumps({"layers": [{"mediaType": "application/vnd.ollama.image.model",
                                                               "digest": "sha256:../../../etc/passwd"}]}).encode()):
            self.file(".ollama/models/manifests/registry.ollama.ai/library/bad/latest", data=content)
            for name in ("gone", "bad"):  # the registry is asked
                self.assertIn("is not there", self.run_it("run", name, "a", status=1).err)

    def test_hugging_faces_cache(self):
        self.snapshot("o/Old-GGUF", "old-Q4_K_M.gguf", MODEL + b"0", revision="b" * 40, main=False)
        path = self.snapshot("o/Tiny-GGUF", "sub/tiny-Q4_K_M.gguf", MODEL)
        large = self.snapshot("o/Tiny-GGUF", "tiny-Q8_0.gguf", MODEL + b"8")
        os.symlink("../nowhere", os.path.join(os.path.dirname(large), "q-Q4_K_M.gguf"))  # its blob was removed
        before = self.tree()
        for name, file in (("o/Tiny-GGUF", path), ("Tiny-GGUF", path), ("tiny-gguf:q8_0", large), ("o/Tiny-GGUF:Q8_0", large),
                           ("hf.co/o/Tiny-GGUF", path), ("Old-GGUF", "old-Q4_K_M.gguf")):
            said = self.run_it("inspect", name, "--keys").err
            self.assertIn("in Hugging Face's cache", said, name)
            self.assertIn(file, said)
        listed = json.loads(self.run_it("list", "--json").out)["models"]
        self.assertEqual([(m["name"], m["source"]) for m in listed],
                         [(n, "huggingface") for n in ("hf.co/o/Old-GGUF:Q4_K_M", "hf.co/o/Tiny-GGUF:Q4_K_M",
                                                       "hf.co/o/Tiny-GGUF:Q8_0")])
        for m in listed:  # each name means the file that is listed
            self.assertIn(m["files"][0]["path"], self.run_it("inspect", m["name"], "--keys").err)
            self.assertIn("'hf cache rm model/o/", self.run_it("rm", m["name"], status=1).err)
        self.assertEqual(self.tree(), before)
        hub = os.path.join(self.home, "hub")
        os.rename(os.path.join(self.home, "cache/huggingface/hub"), hub)
        for more in ({"HF_HUB_CACHE": hub}, {"HF_HOME": self.home}, {"HUGGINGFACE_HUB_CACHE": hub}):
            self.assertIn("hub/models--o--Tiny-GGUF", self.run_it("inspect", "Tiny-GGUF", **more).err)
        self.assertIn("did you mean 'Tiny-GGUF'", self.run_it("run", "Tiny-GUF", "a", status=1, HF_HOME=self.home).err)

    def test_a_path_is_not_a_name(self):
        os.makedirs(os.path.join(self.home, "m"))
        with open(os.path.join(self.home, "m/own-q4.gguf"), "wb") as f:
            f.write(MODEL)
        for name, said in (("m/own-q4", "did you mean 'm/own-q4.gguf'?"), ("m/other", "write ollama:m/other for")):
            self.assertIn(said, self.run_it("run", name, "-p", "a", status=1, before=lambda: os.chdir(self.home)).err)

    def test_else_it_is_ollamas_library(self):
        f = self.hub.add("library/smol", "latest", MODEL)
        self.hub.add("o/r", "m-Q4_K_M.gguf", MODEL + b"2")
        first = self.run_it("run", "smol", "-p", "a b", *self.RUN)
        self.assertIn("'smol' is not a model on this machine; it is taken as 'ollama:smol:latest'", first.err)
        self.assertEqual(self.run_it("run", "smol", "a b", *self.RUN).out, first.out)
        self.assertEqual(len(f.requests), 1)
        self.assertEqual(read(self.pull("hf.co/o/r").out[:-1]), MODEL + b"2")
        for words in (("run", "nosuch", "a"), ("pull", "nosuch"), ("embed", "nosuch", "-p", "a"), ("inspect", "nosuch")):
            error = self.run_it(*words, status=1).err
            self.assertIn("ollama:nosuch:latest", error)
            self.assertIn("hf:OWNER/REPO", error)
        self.assertIn("did you mean 'smol'", self.run_it("run", "smoll", "a", status=1).err)
        self.assertIn("--offline", self.run_it("run", "other", "a", "--offline", status=1).err)
        n = len(self.hub.seen)
        for name in ("./smol", "models/m.gguf", "m.gguf", "-m nosuch", "-m m.gguf", "/smol", "a/b/c"):  # paths, and -m
            self.run_it("run", *name.split(), "-p", "a", status=3)
        self.assertEqual(len(self.hub.seen), n)

    def test_models_as_arguments(self):
        path = self.file("m.gguf", data=MODEL)
        expected = self.run_it("run", "-m", path, "-p", "a b", *self.RUN).out
        for words in ((path, "-p", "a b"), (path, "a b"), ("-n", "8", path, "a", "b"), (path, "--", "a b")):
            self.assertEqual(self.run_it("run", *self.RUN, *words).out, expected, words)
        self.assertEqual(self.run_it("run", path, "-p", "a b", *self.RUN, AERIE_MODEL="/none.gguf").out, expected)
        for command in (("perplexity", path, "-p"), ("template", path), ("bench", "speed", path), ("embed", path, "-p", "a")):
            error = self.start(*command).communicate(timeout=600)[1]
            self.assertNotIn("takes options only", error)
        text = self.file("text.txt", data=b"a b c " * 200)
        self.run_it("perplexity", path, "-f", text, "-c", "32")
        for words, said in ((("run", "-m", path, "a b"), "-m names the model"), (("run", path, "-"), "found '-'"),
                            (("embed", path, path), "takes one model"), (("run", ""), "found ''"),
                            (("bench", "speed", path, "x"), "takes one model")):
            self.assertIn(said, self.run_it(*words, status=2).err)
        self.assertIn("Why is", self.run_it("run", "Why is the sky blue?", status=2).err)
        self.assertIn("usage: aerie run [options] [MODEL [PROMPT ...]]", self.run_it("run", "--help").out)


class Faults(Case):
    def check(self, repo, f, cache, process):
        """A right file or a clear error."""
        name = f"hf/{repo}/m.gguf"
        files = self.files(cache)
        self.assertIn(process.returncode, (0, 1), process.err)
        if process.returncode == 0:
            self.assertEqual(list(files), [name])
        else:
            self.assertRegex(process.err, r"\Aaerie: '?.{20,}\n\Z")
            self.assertEqual(process.out, "")
        for data in files.values():
            self.assertEqual(data, f.data)

    def one(self, i):
        rng = random.Random(i)
        repo, cache = f"o/r{i}", os.path.join(self.home, str(i))
        f = self.hub.add(repo, "m.gguf", MODEL + rng.randbytes(rng.choice((1, 5000, 100000))))
        f.faults = [hubs.FAULTS[i % len(hubs.FAULTS)]] + rng.choices(hubs.FAULTS, k=rng.randrange(4))
        faults = list(f.faults)
        statuses = []
        for turn in range(4):  # the last one finds no faults, but what the others left
            if turn == 3:
                f.faults = []
            process = self.start("pull", "-q", "hf:" + repo, "--stall", "1", "--retries", "2", cache=cache)
            process.out, process.err = process.communicate(timeout=600)
            try:
                self.check(repo, f, cache, process)
            except AssertionError as error:
                raise AssertionError(f"faults {faults}, turn {turn}: {error}") from error
            statuses.append(process.returncode)
            if not f.faults and process.returncode == 0:
                break
        self.assertEqual(statuses[-1], 0, f"faults {faults}: {process.err}")
        return len(faults), statuses

    def test_faults(self):
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            results = list(pool.map(self.one, range(N_PULLS)))
        n = sum(n for n, _ in results)
        print(f"{n} faults in {len(results)} pulls: {sum(s[0] == 0 for _, s in results)} succeeded at once, "
              f"{sum(s[0] != 0 for _, s in results)} with an error first", file=sys.stderr)
        self.assertGreaterEqual(n, 2 * N_PULLS)

    def test_kill(self):
        f = self.hub.add("o/r", "m.gguf", MODEL + random.Random(1).randbytes(400000))
        f.slow = 0.002
        rng = random.Random(5)
        for _ in range(12):
            process = self.start("pull", "-q", "hf:o/r")
            time.sleep(rng.uniform(0.02, 0.15))
            process.send_signal(signal.SIGKILL)
            process.communicate()
            for data in self.files().values():
                self.assertEqual(data, f.data)
        f.slow = 0.05
        process = self.start("pull", "-q", "hf:o/r")  # once when a part is surely there, however slow the machine is
        while process.poll() is None and not any(os.path.getsize(p) for p in glob.glob(
                os.path.join(self.home, "cache/aerie/models/hf/o/r/.*.part"))):
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        f.slow = 0
        self.assertEqual(read(self.pull("hf:o/r").out[:-1]), f.data)
        self.assertTrue(any(start > 0 for start, _ in f.requests), f.requests)  # continued, not begun again

    def test_two_at_once(self):
        f = self.hub.add("o/r", "m.gguf", MODEL + random.Random(2).randbytes(200000))
        f.slow = 0.005
        processes = [self.start("pull", "hf:o/r") for _ in range(4)]
        waited = 0
        for process in processes:
            out, err = process.communicate(timeout=600)
            self.assertEqual(process.returncode, 0, err)
            self.assertEqual(read(out[:-1]), f.data)
            waited += "waiting for it" in err
        self.assertEqual(len(f.requests), 1)
        self.assertEqual(waited, 3)

    def test_interrupt(self):
        f = self.hub.add("o/r", "m.gguf", MODEL)
        f.slow = 0.5
        process = self.start("pull", "hf:o/r")
        while not f.requests:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=600)
        self.assertEqual(process.returncode, 130)
        self.assertEqual(self.files(), {})

    def test_two_versions_of_a_file(self):
        """Whole answers are cut, and what continues them is another file's: tried once more, not for ever."""
        f = self.hub.add("o/r", "m.gguf", MODEL + bytes(1000))
        f.other = MODEL[:-1000] + bytes(2000)
        error = self.pull("hf:o/r", status=1).err
        self.assertIn("two versions", error)
        self.assertLess(len(f.requests), 20)
        self.assertEqual(self.files(), {})
        f = self.hub.add("o/r", "n.gguf", MODEL + bytes(1000))
        f.growing = iter(range(1000, 100000, 1000))  # each answer is whole again, and cut a little later
        self.assertIn("two versions", self.pull("hf:o/r/n.gguf", status=1).err)
        self.assertLess(len(f.requests), 20)

    def test_hashes_that_are_none(self):
        f = self.hub.add("o/r", "m.gguf", MODEL)
        f.linked = None
        right = f.sha256
        for oid in (right.upper(), "sha256:" + right, "SHA256:" + right.upper()):
            f.oid, f.faults = oid, ["flipped"]
            self.assertIn("SHA-256", self.pull("hf:o/r", status=1).err)
            self.assertEqual(read(self.pull("hf:o/r").out[:-1]), MODEL)
            self.run_it("rm", "-q", "hf:o/r")
        for oid in (right[:-1], right + "0", right[:-1] + "g", "", "sha256:", "md5:" + right, 7, [right]):
            f.oid = oid
            self.assertIn("'m.gguf' with a SHA-256 that is not", self.pull("hf:o/r", status=1).err, oid)
        f.oid = None
        for linked in (right[:-1], "0" * 40):
            f.linked = linked
            self.assertIn(f"'{chr(34)}{linked}{chr(34)}', which is not a SHA-256", self.run_it("pull", "hf:o/r").err)
            self.run_it("rm", "-q", "hf:o/r")
        for linked in (right.upper(), 'W/"' + right):
            f.linked, f.faults = linked.replace('W/"', ""), ["flipped"]
            self.assertIn("SHA-256", self.pull("hf:o/r", status=1).err)
        o = self.hub.add("library/s", "latest", MODEL)
        o.oid, o.faults = right.upper(), ["flipped"]
        self.hub.blobs["library/s/sha256:" + o.oid] = o
        self.assertIn("SHA-256", self.pull("ollama:s", status=1).err)
        self.assertEqual(read(self.pull("ollama:s").out[:-1]), MODEL)
        o.oid = right[1:]
        self.assertIn("SHA-256", self.pull("ollama:s", status=1).err)
        url = self.hub.url + "/cdn/o/r/m.gguf"
        f.faults = ["flipped"]
        self.assertIn("SHA-256", self.pull(url, "--sha256", "SHA256:" + right.upper(), status=1).err)
        for wrong in (right[:-1], "", right + "0", "x" * 64):
            self.pull(url, "--sha256", wrong, status=2)

    def test_a_body_without_length(self):
        """Nobody knows its hash either: its own tables say where it ends."""
        f = self.hub.add("o/r", "m.gguf", MODEL, lfs=False)
        url = self.hub.url + "/cdn/o/r/m.gguf"
        f.etag = None
        for data in (MODEL, b"GGUF", b"not found", b"<html>" * 100, MODEL[:20000]):
            f.data, f.faults, f.sent = data, ["endless"], 0
            error = self.pull(url, status=3).err
            self.assertRegex(error, "continues after byte|is not a complete GGUF file|cannot tell where it ends", data[:20])
            self.assertLess(f.sent, hubs.ENDLESS / 2)
            self.assertEqual(self.files(), {})
        for data in (MODEL[:-1000], MODEL[:3000], b"GGUF", b""):
            f.data, f.faults = data, ["no-length"]
            self.assertIn("is not a complete GGUF file", self.pull(url, status=3).err)
        f.data, f.faults = MODEL, ["no-length"]
        self.assertEqual(read(self.pull(url).out[:-1]), MODEL)
        f.data, f.faults = MODEL + bytes(100000), []  # announced
        self.assertIn("after the end of its tensors", self.pull(url).err)
        f = self.hub.add("o/h", "m.gguf", MODEL)  # a known hash, but no length
        f.size, f.faults = None, ["endless"]
        self.assertIn("continues after byte", self.pull("hf:o/h", status=3).err)
        self.assertLess(f.sent, hubs.ENDLESS / 2)
        for size in (-1, "12", 1.5):
            f.size = size
            self.assertIn("a size that is not a number", self.pull("hf:o/h", status=1).err)
        left = [n for _, _, names in os.walk(self.home) for n in names if n.endswith(".part")]
        self.assertEqual(left, [])

    def test_parts_without_length(self):
        parts = [small_gguf(i, 3) for i in range(3)]
        for i, data in enumerate(parts):
            self.hub.add("o/s", f"m-0000{i + 1}-of-00003.gguf", data, lfs=False).faults = ["no-length"]
        url = self.hub.url + "/cdn/o/s/m-00001-of-00003.gguf"
        self.pull(url)
        self.assertEqual(sorted(self.files().values()), sorted(parts))
        files = self.hub.repos["o/s"]
        for i, (data, fault, said) in enumerate(((parts[1] + b"x", "endless", "continues after byte"),
                                                 (parts[2], None, "part 3 of 3"), (small_gguf(0, 1), None, "part 1 of 1"),
                                                 (parts[1][:-8], None, "before its last tensor"))):
            f = files["m-00002-of-00003.gguf"]
            f.data, f.etag, f.faults = data, f"new{i}", [fault] if fault else []
            self.assertIn(said, self.pull(url, status=3).err)
        f = self.hub.add("o/s", "alone.gguf", parts[1], lfs=False)
        self.assertIn("part 2 of 3", self.pull(self.hub.url + "/cdn/o/s/alone.gguf", status=3).err)

    def test_full_disk(self):
        f = self.hub.add("o/r", "m.gguf", MODEL + bytes(300000))

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))
        self.assertIn("File too large", self.pull("hf:o/r", status=1, before=limit).err)
        self.assertEqual(self.files(), {})
        self.pull("hf:o/r")
        self.assertEqual([start for start, _ in f.requests], [0, 100000])
        disk = os.path.join(self.home, "disk")
        os.mkdir(disk)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True).returncode:
            return  # only root may
        try:
            error = self.pull("hf:o/r", status=1, cache=disk).err
            self.assertRegex(error, "No space left on device; .* are needed and .* are free")
            self.assertEqual(self.files(disk), {})
            parts = [self.hub.add("o/s", f"m-0000{i}-of-00002.gguf", bytes(40000)) for i in (1, 2)]
            self.assertIn("cannot pull 'hf:o/s'", self.pull("hf:o/s", status=1, cache=disk).err)
            self.assertEqual([f.requests for f in parts], [[], []])  # each would fit, but not both
            f = self.hub.add("o/u", "m.gguf", MODEL + bytes(300000), lfs=False)
            for fault in ("drop", "no-length"):
                f.faults, before = [fault], shutil.disk_usage(disk).free
                self.pull(self.hub.url + "/cdn/o/u/m.gguf", status=1, cache=disk)
                self.assertGreater(shutil.disk_usage(disk).free, before - 20000)  # nobody would continue a part
        finally:
            subprocess.run(["umount", disk], check=True)

    def test_folders_that_cannot_be_written(self):
        self.hub.add("o/r", "m.gguf", MODEL)
        with open(os.path.join(self.home, "file"), "w") as file:
            file.write("x")
        self.assertIn("cannot make the folder", self.pull("hf:o/r", status=1, cache=os.path.join(self.home, "file")).err)
        where = os.path.join(self.home, "cache/aerie/models/hf/o/r")
        os.makedirs(os.path.join(where, "m.gguf"))
        self.assertIn("cannot move", self.pull("hf:o/r", status=1).err)
        os.rmdir(os.path.join(where, "m.gguf"))
        part = next(n for n in os.listdir(where) if n.endswith(".part")) if any(n.endswith(".part")
                                                                                for n in os.listdir(where)) else \
            f".m.gguf.{hashlib.sha256(MODEL).hexdigest()[:16]}.part"
        path = os.path.join(where, part)
        if os.path.exists(path):
            os.unlink(path)
        os.symlink("/etc/passwd", path)
        self.assertIn("cannot write", self.pull("hf:o/r", status=1).err)
        os.unlink(path)
        with open(path, "wb") as file:  # rubbish that an earlier pull left
            file.write(b"x" * 100)
        process = self.run_it("pull", "hf:o/r")
        self.assertIn("fetched from the start", process.err)
        self.assertEqual(read(process.out[:-1]), MODEL)


if __name__ == "__main__":
    AERIE, MKMODEL, MKHEAD = (os.path.abspath(p) for p in sys.argv[1:4])
    FOLDER = tempfile.mkdtemp(prefix="aerie-pull-")
    try:
        probe = {k: v for k, v in os.environ.items() if k != "XDG_CACHE_HOME"}
        probe.update(HF_ENDPOINT="http://127.0.0.1:1", HOME=FOLDER + "/nobody")
        said = subprocess.run([AERIE, "pull", "hf:a/b", "--retries", "0"], env=probe, capture_output=True, text=True).stderr
        if "built without libcurl" in said:
            print("skip: aerie was built without libcurl")
            sys.exit(77)
        subprocess.run([MKMODEL, "--shape", "tiny", "--seed", "3", FOLDER + "/m.gguf"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([MKHEAD, "--kind", "eagle3", FOLDER + "/m.gguf", FOLDER + "/h.gguf"], check=True,
                       stdout=subprocess.DEVNULL)
        MODEL, HEAD = read(FOLDER + "/m.gguf"), read(FOLDER + "/h.gguf")
        threading.stack_size(1 << 20)
        unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
