"""One API key learns nothing of another's requests from the prefix cache, slots, drafters and statistics. Times are printed;
the number of computed prompt tokens is asserted."""
import json
import os
import random
import shutil
import statistics
import subprocess
import time
import unittest

import rig
from rig import Server

A, B = ({"Authorization": f"Bearer {key}"} for key in ("alice", "bob"))
WATCHER = {"Authorization": "Bearer prometheus"}


def tokens(seed, n=200):
    rng = random.Random(seed)
    return [rng.randrange(3, 260) for _ in range(n)]


def cached(s, prompt, key, **fields):
    a = s.post("/v1/completions", {"prompt": prompt, "max_tokens": 2, "temperature": 0, "ignore_eos": True, **fields}, key)
    assert a.status == 200, a.body
    t = a.json["timings"]
    assert t["cache_n"] + t["prompt_n"] == len(prompt)
    assert a.json["usage"]["prompt_tokens_details"]["cached_tokens"] == t["cache_n"]
    return t["cache_n"]


class Scopes(unittest.TestCase):
    def server(self, *options, **more):
        return Server("-np", "4", "--api-key", "alice,bob", "--no-access-log", *options, **more)

    def test_no_token_of_another_key_is_cached(self):
        """Guesses, longer by a token each time, get the same figures whether or not the other key has sent them."""
        for spec in ("auto", "none", "ngram"):
            told = []
            for alice in (1, 2):
                with self.server("--spec-type", spec) as s:
                    cached(s, tokens(alice), A)
                    told.append([cached(s, tokens(1)[:n] + tokens(50 + n, 5), B) for n in range(1, 10)])
                    told[-1].append(cached(s, tokens(1), B))
                    self.assertGreater(cached(s, tokens(alice), A), 190)
            self.assertEqual(told[0], told[1], spec)
            self.assertGreater(max(told[0]), 0)  # what it has sent itself is found

    def test_running_answers_are_not_shared(self):
        with self.server() as s:
            secret, c = tokens(2), s.connect()
            c.request("POST", "/v1/completions", json.dumps({"prompt": secret, "max_tokens": 250, "ignore_eos": True,
                                                             "stream": True}), {**A, "Content-Type": "application/json"})
            answer = c.getresponse()
            answer.readline()
            self.assertEqual(cached(s, secret, B), 0)
            self.assertGreater(cached(s, secret, A), 190)
            answer.read()
            c.close()

    def test_saved_ngrams(self):
        """--lookup-cache-dynamic: after a restart a key drafts from its own text, and from no other key's. A damaged file is
        refused and stays as it is."""
        path = os.path.join(rig.FOLDER, "ngrams")

        def accepted(s, key):
            body = {"prompt": tokens(7), "max_tokens": 120, "temperature": 1, "seed": 5, "ignore_eos": True}
            a = s.post("/v1/completions", body, key).json
            return a["choices"][0]["text"], a["timings"].get("draft_n_accepted", 0)

        options = ["--spec-type", "ngram", "--lookup-cache-dynamic", path]
        rig.make_model("wide.gguf", "--embd", "512", "--ff", "1536", "--layers", "8")
        with self.server(*options, model="wide.gguf") as s:
            texts = [accepted(s, A)[0] for _ in range(3)]
        self.assertEqual(os.stat(path).st_mode & 0o077, 0)
        by = {"own": [], "other": []}
        for _ in range(10):  # whether drafts pay is measured; each key is the first of its servers
            for who, key in (("own", A), ("other", B)):
                shutil.copyfile(path, path + who)
                with self.server(*options[:-1], path + who, model="wide.gguf") as s:
                    text, n = accepted(s, key)
                self.assertEqual(text, texts[0])
                by[who].append(n)
            if max(by["own"]) > 40:
                break
        print("accepted from the file: own text", by["own"], "another key's", by["other"])
        self.assertGreater(max(by["own"]), 40)
        self.assertLess(max(by["other"]), 10)
        with open(path, "r+b") as f:
            f.seek(100)
            f.write(b"\xff\xff")
        with open(path, "rb") as f:
            damaged = f.read()
        model = os.path.join(rig.FOLDER, "wide.gguf")
        got = subprocess.run([rig.AERIE, "run", "-m", model, "-lcd", path, "-no-cnv", "-p", "a", "-n", "2"],
                             capture_output=True, text=True)
        self.assertEqual(got.returncode, 3)
        self.assertIn("cannot be used", got.stderr)
        with open(path, "rb") as f:
            self.assertEqual(f.read(), damaged)

    def test_salts(self):
        """Salts as in vLLM, in every dialect."""
        with Server("-np", "2") as s:
            prompt = tokens(3)
            self.assertEqual(cached(s, prompt, {}, cache_salt="x"), 0)
            self.assertEqual(cached(s, prompt, {}), 0)
            self.assertEqual(cached(s, prompt, {}, cache_salt="y"), 0)
            self.assertGreater(cached(s, prompt, {}, cache_salt="x"), 190)
            self.assertGreater(cached(s, prompt, {}), 190)
            text = "a long text that says nothing at all. " * 4
            chat = {"messages": [{"role": "user", "content": text}], "max_tokens": 2, "temperature": 0}
            dialects = [("/v1/chat/completions", chat, lambda a: a["timings"]["cache_n"]),
                        ("/v1/messages", chat, lambda a: a["timings"]["cache_n"]),
                        ("/v1/responses", {"input": text + "!", "max_output_tokens": 2, "temperature": 0},
                         lambda a: a["usage"]["input_tokens_details"]["cached_tokens"]),
                        ("/completion", {"prompt": text, "n_predict": 2, "temperature": 0}, lambda a: a["timings"]["cache_n"])]
            for path, body, n_cached in dialects:
                salt = path + "1"
                self.assertEqual(n_cached(s.post(path, {**body, "cache_salt": salt}).json), 0, path)
                self.assertGreater(n_cached(s.post(path, {**body, "cache_salt": salt}).json), 20, path)
                self.assertEqual(n_cached(s.post(path, {**body, "cache_salt": path + "2"}).json), 0, path)
            for salt in ("", 5, ["x"]):
                self.assertIn("'cache_salt'", s.post("/v1/completions", {"prompt": "a", "cache_salt": salt}).error)

    def test_salts_and_adapters_of_another_key(self):
        """A guessed salt, the same adapter, and an adapter switched for all bring nothing of another key's."""
        lora = rig.make_lora("scopes.lora.gguf")
        on = {"lora": [{"id": 0, "scale": 1}]}
        with self.server("--lora", lora, "--lora-init-without-apply") as s:
            ways = [{}, {"cache_salt": "mine"}, on, {"cache_salt": "mine", **on}]
            for i, (own, guess) in enumerate((own, guess) for own in ways for guess in ways):
                prompt = tokens(300 + i)
                self.assertEqual(cached(s, prompt, A, **own), 0)
                self.assertEqual(cached(s, prompt, B, **guess), 0, (own, guess))
                self.assertGreater(cached(s, prompt, A, **own), 190)
            prompt = tokens(400)
            self.assertEqual(cached(s, prompt, A), 0)
            self.assertEqual(s.post("/lora-adapters", [{"id": 0, "scale": 1}], A).status, 200)
            self.assertEqual(cached(s, prompt, B), 0)
            self.assertEqual(cached(s, prompt, A), 0)
            self.assertGreater(cached(s, prompt, A, lora=[]), 190)

    def test_sharing_can_be_asked_for(self):
        with self.server("--prefix-scope", "all") as s:
            self.assertEqual(cached(s, tokens(4), A), 0)
            self.assertGreater(cached(s, tokens(4), B), 190)
            self.assertEqual(cached(s, tokens(4), B, cache_salt="mine"), 0)
            self.assertEqual(s.get("/metrics", B).status, 200)
        with self.assertRaisesRegex(AssertionError, "--prefix-scope takes key or all; found 'x'"):
            self.server("--prefix-scope", "x")

    def test_slots_of_another_key(self):
        folder = os.path.join(rig.FOLDER, "scopes")
        os.mkdir(folder)
        with self.server("-np", "1", "--slot-save-path", folder) as s:
            prompt = tokens(5)
            cached(s, prompt, A)

            def act(action, key, name="x"):
                return s.post(f"/slots/0?action={action}", {"filename": name}, key)
            self.assertIn("nothing to save", act("save", B).error)
            self.assertEqual(act("save", A).status, 200)
            self.assertEqual(act("restore", B).status, 404)
            cached(s, tokens(6), B)
            self.assertIn("nothing to save", act("save", A, "y").error)
            self.assertEqual(act("save", B).status, 200)  # its own file of that name
        with self.server("-np", "1", "--slot-save-path", folder) as s:
            self.assertGreater(act("restore", A).json["n_restored"], 190)
            self.assertEqual(cached(s, prompt, B), 0)
            self.assertGreater(cached(s, prompt, A), 190)

    def test_who_may_watch(self):
        with self.server("--metrics-key", "prometheus") as s:
            for path, status in (("/metrics", 403), ("/slots", 200)):
                self.assertEqual([s.get(path, k).status for k in (WATCHER, A, {}, {"Authorization": "Bearer x"})],
                                 [200, status, 401, 401])
            for method, path in (("GET", "/v1/models"), ("GET", "/props"), ("POST", "/v1/completions"), ("POST", "/slots/0"),
                                 ("GET", "/nothing")):
                self.assertEqual(s.call(method, path, {"prompt": "a"} if method == "POST" else None, WATCHER).status, 403, path)
        with self.server() as s:
            a = s.get("/metrics", A)
            self.assertEqual(a.status, 403)
            self.assertIn("--metrics-key", a.error)
        with Server("--api-key", "alice") as s:
            self.assertEqual([s.get("/metrics", k).status for k in (A, {})], [200, 401])
        with Server(env={"AERIE_METRICS_KEY": "prometheus"}) as s:
            self.assertEqual([s.get("/metrics", k).status for k in (WATCHER, {})], [200, 401])
            self.assertEqual(s.get("/v1/models").status, 200)
        with self.assertRaisesRegex(AssertionError, "AERIE_METRICS_KEY .environment. is empty"):
            Server(env={"AERIE_METRICS_KEY": ""})

    def test_slots_that_run_tell_others_nothing(self):
        with self.server("--metrics-key", "prometheus", "-np", "1", "-c", "4096") as s:
            c = s.connect()
            c.request("POST", "/v1/completions", json.dumps({"prompt": tokens(7), "max_tokens": rig.many(3000), "stream": True,
                                                             "ignore_eos": True}), {**A, "Content-Type": "application/json"})
            answer = c.getresponse()
            answer.readline()
            for key, sees in ((A, True), (B, False), (WATCHER, True)):
                slot = s.get("/slots", key).json[0]
                self.assertTrue(slot["is_processing"])
                self.assertEqual([name in slot for name in ("n_prompt_tokens", "id_task", "next_token")], [sees] * 3)
            c.close()

    def test_times(self):
        """Of prompts that the other key has sent and of others: figures. What is asserted is that all of both was computed."""
        with self.server("-np", "1") as s:
            taken = {"known": [], "unknown": []}
            for i in range(8):
                cached(s, tokens(100 + i), A)
                for name, seed in (("known", 100 + i), ("unknown", 200 + i)):
                    begun = time.monotonic()
                    self.assertEqual(cached(s, tokens(seed), B), 0)
                    taken[name].append(1000 * (time.monotonic() - begun))
            for name, ms in taken.items():
                print(f"\n  {name}: median {statistics.median(ms):.1f} ms, {min(ms):.1f} to {max(ms):.1f}", end="")
            print()


if __name__ == "__main__":
    rig.main("__main__")
