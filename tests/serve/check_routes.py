"""Every route with every kind of model: an answer in the shape of its dialect, and the server goes on. The routes are read from
the server's own table, so a new one is tried without a line here."""
import copy
import functools
import json
import os
import re
import subprocess
import unittest

import openapi
import rig
from rig import Server

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
ROW = re.compile(r'^    \{"(\w+)", "([^"]+)", (\w+), (\w+)', re.M)


def routes():
    """(method, path, whose shape of errors) of each row of the table."""
    with open(os.path.join(ROOT, "app/serve/routes.c")) as f:
        source = f.read()
    rows = ROW.findall(source)
    assert len(rows) == source.count("\n    {\"") > 40, "a row of routes.c is written in a way that this test does not read"
    def shape(path):
        return "ollama" if path.startswith("/api/") else "messages" if path.startswith("/v1/messages") else "openai"
    return [(method, path, shape(path)) for method, path, _, _ in rows]


# What answers every route that takes an object: each reads the fields that it knows.
FITS = {"prompt": "a", "messages": [{"role": "user", "content": "a"}], "input": "a", "content": "a", "tokens": [200],
        "query": "q", "documents": ["a", "b"], "input_prefix": "a", "input_suffix": "b", "filename": "f",
        "max_tokens": 2, "max_output_tokens": 2, "n_predict": 2, "options": {"num_predict": 2}, "temperature": 0}
ODD = {"/lora-adapters": [], **{path: {k: v for k, v in FITS.items() if k != "prompt"}  # routes that refuse it
                               for path in ("/v1/responses", "/v1/responses/input_tokens", "/responses",
                                                             "/responses/input_tokens")}}
STORE = {"/api/push", "/api/create", "/api/copy", "/api/delete"}  # what the server does not do
GENERATE = {"/v1/completions", "/v1/chat/completions", "/chat/completions", "/completions", "/completion", "/infill",
            "/v1/responses", "/responses", "/v1/messages", "/api/chat", "/api/generate", "/slots/0?action=save"}
RANK = {"/rerank", "/reranking", "/v1/rerank", "/v1/reranking"}
WRONG = [None, True, -1, 0.5, "x", "", [], [[]], {}, {"a": 1}]


def expected(kind, path):
    """The status of a request that fits."""
    if path in STORE or path.startswith("/api/blobs/"):
        return 501
    if path in ("/api/pull", "/models/unload"):
        return 200
    if kind == "broken":
        return 500
    if kind == "decoder" and path.startswith("/slots"):
        return 400  # no request has run there
    if kind == "decoder" and path == "/infill":
        return 501  # the model has no such tokens
    if kind != "decoder" and path in GENERATE:
        return 400
    if kind != "reranker" and path in RANK:
        return 400
    if path == "/v1/systemone":
        return 501  # no model here has a decision head
    return 200


def check_shape(t, shape, answer, what):
    """An error as the dialect has it."""
    e = answer.json["error"]
    if shape == "ollama":
        t.assertIsInstance(e, str, what)
        return
    if shape == "messages":
        t.assertEqual(answer.json["type"], "error", what)
    else:
        t.assertEqual(shape, "openai", what)
    t.assertIsInstance(e["message"], str, what)
    t.assertIsInstance(e["type"], str, what)


def bodies(path, name):
    """Empty ones, one that fits, and that with one field of another type or left out; whether it fits."""
    fits = ODD.get(path, FITS)
    if isinstance(fits, dict):
        fits = {**fits, "model": name}
    yield b"", None
    yield b"{}", None
    yield b"[]", None
    yield b"null", None
    yield b"{\"", None
    yield json.dumps(fits).encode(), True
    if isinstance(fits, dict):
        yield json.dumps({**fits, "stream": True}).encode(), True
        for i, field in enumerate(sorted(fits)):
            for k in range(3):
                wrong = copy.deepcopy(fits)
                wrong[field] = WRONG[(3 * i + k) % len(WRONG)]
                yield json.dumps(wrong).encode(), None
            wrong = {k: v for k, v in fits.items() if k != field}
            yield json.dumps(wrong).encode(), None


@functools.cache
def described():
    """The operations of docs/openapi.json, by method and path as the table writes it."""
    return {(method, re.sub(r"\{\w+\}", "*", path)): operation for method, path, operation in openapi.operations()}


class Routes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = cls.folder = os.path.join(rig.FOLDER, "kinds")
        cls.slots = os.path.join(rig.FOLDER, "slots")
        os.mkdir(folder)
        os.mkdir(cls.slots)
        mkarch = os.path.join(os.path.dirname(rig.MKMODEL), "mkarch")
        for name, arch in (("encoder", "bert"), ("reranker", "bert-rank")):
            subprocess.run([mkarch, arch, os.path.join(folder, name + ".gguf")], check=True, stdout=subprocess.DEVNULL)
        rig.make_model("kinds/decoder.gguf", "--seed", "3")
        with open(os.path.join(folder, "decoder.gguf"), "rb") as f, open(os.path.join(folder, "broken.gguf"), "wb") as out:
            out.write(f.read(3000))

    def test_the_openapi_file_has_these_routes(self):
        self.assertEqual(sorted(described()), sorted((method, path) for method, path, _ in routes()))

    def one(self, s, route, path, body, kind, fits):
        method, _, shape = route
        what = f"{kind}: {method} {path} {body[:300]!r}"
        try:
            a = s.call(method, path, body)
        except OSError as e:
            self.fail(f"{what}: {e!r}; {s.log[-2000:]}")
        self.assertIsNone(s.process.poll(), f"{what}: {s.log[-2000:]}")
        self.assertTrue(a.status == 200 or 400 <= a.status < 500 or a.status in (500, 501, 503), f"{what}: {a.status}")
        self.assertTrue(a.status != 500 or kind == "broken", f"{what}: {a.body[:300]}")
        if a.status != 200:
            check_shape(self, shape, a, what)
        operation = described()[route[:2]]
        self.assertIn(str(a.status), operation["responses"], what)
        if a.headers["Content-Type"] == "application/json":
            schema = openapi.answer(operation, a.status)
            self.assertTrue(schema and openapi.allows(schema, a.json), f"{what}: {a.status}: {a.body[:300]}")
        if fits:
            self.assertEqual(a.status, expected(kind, path), f"{what}: {a.body[:300]}")

    def every_route(self, s, kind, router):
        for route in routes():
            method, path, _ = route
            path = path.replace("/slots/*", "/slots/0?action=save").replace("*", kind)
            names = [kind, None, "nobody"] if router else [kind]
            for name in names:
                mark = "&" if "?" in path else "?"
                asked = path + (f"{mark}model={name}" if name and router else "")
                if method == "GET":
                    self.one(s, route, asked, b"", kind, None)
                    c = s.connect()
                    c.request("HEAD", asked)
                    self.assertEqual(c.getresponse().read(), b"")
                    c.close()
                    continue
                for body, fits in bodies(path, name) if name == kind else [(b"{}", None)]:
                    self.one(s, route, asked if path == "/lora-adapters" else path, body, kind, fits)
        self.assertEqual(s.get("/health").status, 200, s.log)

    def texts_are_ranked(self, s):
        """Text Embeddings Inference has `texts`, and its answer is a list, as from llama.cpp's server."""
        jina = s.post("/v1/rerank", {"query": "q", "documents": ["a", "b c", "d"], "return_documents": True}).json["results"]
        for more in ({}, {"return_text": True}):
            tei = s.post("/rerank", {"query": "q", "texts": ["a", "b c", "d"], **more}).json
            self.assertEqual(tei, [{"index": r["index"], "score": r["relevance_score"],
                                    **({"text": r["document"]["text"]} if more else {})} for r in jina])
        self.assertEqual(len(s.post("/rerank", {"query": "q", "texts": ["a", "b"], "top_n": 1}).json), 1)
        for texts in ([], [1]):
            refused = s.post("/rerank", {"query": "q", "texts": texts})
            self.assertEqual((refused.status, refused.json["error"]["param"]), (400, "texts"), refused.body)

    def test_alone(self):
        for kind in ("decoder", "encoder", "reranker"):
            with self.subTest(kind), Server("-m", os.path.join(self.folder, kind + ".gguf"), "--slot-save-path", self.slots,
                                            "--no-access-log", model=None) as s:
                if kind == "reranker":
                    self.texts_are_ranked(s)
                self.every_route(s, kind, False)

    def test_in_a_folder(self):
        """Loaded and let go again, by whoever asks."""
        with Server("--models-dir", self.folder, "--models-max", "1", "--slot-save-path", self.slots, "--no-access-log",
                    "--sleep-idle-seconds", "0", model=None) as s:
            for kind in ("encoder", "broken", "reranker", "decoder"):
                self.every_route(s, kind, True)


if __name__ == "__main__":
    rig.main("__main__")
