"""Several models: queries load nothing, a broken model unloads no other, and the model of requests that name none."""
import ctypes
import json
import os
import struct
import time
import unittest

import rig
from check_routes import routes
from rig import Server


def states(s):
    return {m["id"]: m["status"]["value"] for m in s.get("/v1/models").json["data"]}


def use(s, **fields):
    return s.post("/v1/completions", {"prompt": "which", "max_tokens": 8, "temperature": 0, "ignore_eos": True, **fields})


class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = os.path.join(rig.FOLDER, "several")
        os.mkdir(cls.folder)
        for i, name in enumerate(("good", "other")):
            rig.make_model(f"several/{name}.gguf", "--seed", str(5 + i))
        with open(os.path.join(cls.folder, "good.gguf"), "rb") as f:
            whole = f.read()
        for name, data in (("a-random", os.urandom(4000)), ("b-short", whole[:len(whole) // 2]), ("c-head", whole[:2000]),
                           ("d-empty", b""), ("e-tokens", whole.replace(b"tokenizer.ggml.tokens", b"tokenizer.ggml.tokenz")),
                           ("f-tensor", whole.replace(b"output_norm.weight", b"output_norm.height"))):
            with open(os.path.join(cls.folder, name + ".gguf"), "wb") as f:
                f.write(data)
        cls.broken = ["a-random", "b-short", "c-head", "d-empty", "e-tokens", "f-tensor"]

    def test_looking_changes_nothing(self):
        """No GET or HEAD of the server's table loads, unloads or wakes a model."""
        with Server("--models-dir", self.folder, "--models-max", "1", "--no-access-log", model=None) as s:
            self.assertTrue(s.logged(f"has {len(self.broken) + 2} models"), s.log)
            loaded = {}
            for name in (None, "good"):
                if name:
                    self.assertEqual(use(s, model=name).status, 200)
                    loaded = {name: "loaded"}
                expected = {**dict.fromkeys([*self.broken, "good", "other"], "unloaded"), **loaded}
                for method in ("GET", "HEAD"):
                    for row, path, _ in routes():
                        for model in ("other", "good", "a-random", None):
                            if row != "GET":
                                continue
                            s.call(method, path.replace("*", model or "other") + (f"?model={model}" if model else ""))
                            self.assertEqual(states(s), expected, (method, path, model))
            self.assertTrue(s.get("/props?model=other").json["is_sleeping"])
            self.assertFalse(s.get("/props").json["is_sleeping"])
            self.assertEqual(s.get("/props?model=nobody").status, 404)
            self.assertEqual(s.get("/lora-adapters?model=other").json["error"]["code"], "model_not_loaded")

    def test_a_header_is_read_for_the_plan_and_for_the_model(self):
        libc, opened = ctypes.CDLL(None), 0x20
        events = libc.inotify_init1(os.O_NONBLOCK)
        with Server("--models-dir", self.folder, "-t", "1", model=None) as s:
            self.assertEqual(s.get("/v1/models").status, 200)
            libc.inotify_add_watch(events, os.path.join(self.folder, "good.gguf").encode(), opened | 0x10)  # and closed
            self.assertEqual(use(s, model="good").status, 200)
            seen = os.read(events, 1 << 16)
        os.close(events)
        n = sum(mask == opened for _, mask, _, _ in struct.iter_unpack("iIII", seen))
        self.assertLessEqual(n, 4)  # also to look for a drafter in it, and for its weights

    def test_a_broken_model_drives_out_nobody(self):
        for options in (("--models-max", "1"), ("--models-memory", "1")):
            with Server("--models-dir", self.folder, *options, model=None) as s:
                self.assertEqual(use(s, model="good").status, 200)
                for name in self.broken:
                    a = use(s, model=name)
                    self.assertEqual((a.status, "could not be loaded" in a.error), (500, True), name)
                    self.assertEqual((states(s)["good"], states(s)[name]), ("loaded", "failed"))
                if options[0] == "--models-memory":  # nor does one that is too large
                    a = use(s, model="other")
                    self.assertEqual((a.status, "--models-memory allows 1" in a.error), (503, True), a.body)
                    self.assertEqual(states(s)["good"], "loaded")
                self.assertNotIn("is unloaded", s.log)

    def test_models_are_loaded_and_unloaded_by_name(self):
        with Server("--models-dir", self.folder, model=None) as s:
            self.assertEqual(s.post("/models/load", {"model": "good"}).json, {"success": True})
            self.assertEqual(states(s)["good"], "loaded")
            for _ in range(2):  # what is unloaded already stays so
                self.assertEqual(s.post("/models/unload", {"model": "good"}).json, {"success": True})
                self.assertTrue(s.logged("is unloaded"), s.log)
                while states(s)["good"] in ("loaded", "unloading"):  # the line comes a moment before
                    time.sleep(0.01)
                self.assertEqual(states(s)["good"], "unloaded")
            self.assertEqual(s.post("/models/load", {"model": "d-empty"}).status, 500)
            for path in ("/models/load", "/models/unload"):
                self.assertEqual([s.post(path, body).status for body in ({}, {"model": ""}, {"model": 3}, {"model": "nobody"})],
                                 [400, 400, 400, 404])
            self.assertEqual(use(s, model="good").status, 200)

    def test_a_single_model_is_unloaded_only_by_its_name(self):
        with Server() as s:
            for path in ("/models/load", "/models/unload"):
                a = s.post(path, {"model": "nobody"})
                self.assertEqual((a.status, a.json["error"]["code"]), (404, "model_not_found"))
            for path, more in (("/api/generate", {}), ("/api/chat", {"messages": []})):
                a = s.post(path, {"model": "nobody", "keep_alive": 0, **more})
                self.assertEqual((a.status, "no model 'nobody'" in a.json["error"]), (404, True), a.body)
            self.assertEqual(set(states(s).values()), {"loaded"})
            self.assertNotIn("is unloaded", s.log)
            self.assertEqual(s.post("/models/unload", {"model": "m:latest"}).json, {"success": True})
            self.assertTrue(s.logged("is unloaded"), s.log)

    def test_a_request_that_names_no_model(self):
        with Server(model="several/good.gguf") as s:
            good = use(s).json["choices"]
        with Server(model="several/other.gguf") as s:
            other = use(s).json["choices"]
        self.assertNotEqual(good, other)
        for most in ("1", "0"):
            with Server("--models-dir", self.folder, "--models-max", most, model=None) as s:
                self.assertEqual(use(s).json["choices"], good)  # the first that is not broken
                self.assertEqual(use(s, model="other").json["choices"], other)
                self.assertEqual(use(s).json["choices"], other)  # the one that was loaded last
                self.assertEqual(s.get("/props").json["model_alias"], "other")
                self.assertEqual(use(s, model="b-short").status, 500)
                self.assertEqual(use(s).json["choices"], other)
        with Server("--models-dir", self.folder, "--default-model", "other", model=None) as s:
            self.assertEqual(use(s, model="good").json["choices"], good)
            self.assertEqual(use(s).json["choices"], other)
        with self.assertRaisesRegex(AssertionError, "--default-model 'nobody' is not one of the 8 models"):
            Server("--models-dir", self.folder, "--default-model", "nobody", model=None)
        only = os.path.join(rig.FOLDER, "only-broken")
        os.mkdir(only)
        for name in ("x", "y"):
            with open(os.path.join(only, name + ".gguf"), "wb") as f:
                f.write(b"GGUF")
        with Server("--models-dir", only, model=None) as s:
            self.assertEqual([use(s).status for _ in range(2)], [500, 500])

    def test_the_curve_is_measured_once_and_never_while_answers_run(self):
        with Server("-np", "1", "-c", "4096") as s:
            c = s.connect()
            c.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": rig.many(3500), "stream": True,
                                                             "ignore_eos": True}), {"Content-Type": "application/json"})
            c.getresponse().readline()
            points = s.get("/aerie/curve").json["points"]
            if s.get("/slots").json[0]["is_processing"]:  # then it was so meanwhile, too
                self.assertEqual(points, [])
            c.close()
            while s.get("/slots").json[0]["is_processing"]:
                pass
            points = s.get("/aerie/curve").json["points"]
            self.assertEqual([p["n"] for p in points], [1, 2, 4, 8, 16])
            self.assertEqual(s.get("/aerie/curve").json["points"], points)

    def test_pages_of_other_sites(self):
        """A browser's <img>, <script> or <link> sends no Origin, but says where the page is from."""
        with Server() as s:
            for site in ("cross-site", "same-site"):
                for path in ("/props", "/v1/models", "/aerie/curve", "/health", "/", "/metrics", "/nothing"):
                    for mode in ("no-cors", "cors", None, "navigate"):
                        headers = {"Sec-Fetch-Site": site, **({"Sec-Fetch-Mode": mode} if mode else {})}
                        followed = mode == "navigate" and path in ("/", "/health")  # a link to the page
                        self.assertEqual(s.get(path, headers).status, 200 if followed else 403, (path, headers))
            for site in ("same-origin", "none"):
                self.assertEqual(s.get("/props", {"Sec-Fetch-Site": site}).status, 200)
            a = s.post("/v1/completions", {"prompt": "a"}, {"Sec-Fetch-Site": "cross-site"})
            self.assertEqual((a.status, "--cors-origins" in a.error), (403, True))
        with Server("--cors-origins", "https://good.example") as s:
            fetch = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
            self.assertEqual(s.get("/props", {**fetch, "Origin": "https://good.example"}).status, 200)
            self.assertEqual(s.get("/props", fetch).status, 403)
        with Server("--cors-origins", "*") as s:
            self.assertEqual(s.get("/props", {"Sec-Fetch-Site": "cross-site"}).status, 200)


if __name__ == "__main__":
    rig.main("__main__")
