"""Conversations that come back after the KV cache has given up their pages: from memory (--cache-ram), from files
(--cache-disk), after a restart and after a kill. The answers are those of a server that keeps nothing; what is kept shows in
cache_n alone."""
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import rig
from rig import Server

A, B = ({"Authorization": f"Bearer {key}"} for key in ("alice", "bob"))
WATCHER = {"Authorization": "Bearer watcher"}
N = 10  # conversations, of which the KV cache holds one or two


def tokens(seed, n=300):
    rng = random.Random(seed)
    return [rng.randrange(3, 260) for _ in range(n)]


def ask(s, prompt, key=None):
    a = s.post("/v1/completions", {"prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True}, key)
    assert a.status == 200, a.body
    settle(s)
    return a.json["choices"][0]["text"], a.json["timings"]["cache_n"]


def figure(s, name):
    found = re.search(rf"^aerie:conversations{name}\{{[^}}]*\}} (\S+)$", s.get("/metrics", WATCHER).body.decode(), re.M)
    return float(found.group(1))


def settle(s):
    """Waits for what has ended to be copied: on a busy machine the next request would take the pages before."""
    end = time.monotonic() + rig.patience(30)
    while figure(s, "_uncopied_tokens"):
        assert time.monotonic() < end, s.log
        time.sleep(0.01)


def wait_for(s, name, least):
    end = time.monotonic() + rig.patience(30)
    while figure(s, name) < least:
        assert time.monotonic() < end, f"{name} stays at {figure(s, name)}, below {least}"
        time.sleep(0.02)


class Conversations(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="aerie-conversations-")

    def tearDown(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def server(self, *options, **more):
        return Server("-np", "1", "-c", "512", "--no-access-log", "--metrics-key", "watcher", *options, **more)

    def files(self):
        return sorted(os.path.join(at, name) for at, _, names in os.walk(self.folder) for name in names)

    def rounds(self, s):
        """Every conversation twice, the second time in another order and one turn longer."""
        told = {}
        for i in range(N):
            told[i] = ask(s, tokens(i))[0]
        order = random.Random(5).sample(range(N), N)
        again = {i: ask(s, tokens(i) + tokens(100 + i, 20)) for i in order}
        return told, {i: again[i][0] for i in range(N)}, [again[i][1] for i in order]

    def test_they_come_back_from_memory(self):
        with self.server("--cache-ram", "0") as s:
            *plain, cached = self.rounds(s)
            self.assertLess(sum(n > 200 for n in cached), N // 2)
        for options in ((), ("--spec-type", "none"), ("-ctk", "q8_0", "-ctv", "q8_0")):
            if "q8_0" in options:
                with self.server("--cache-ram", "0", *options) as s:
                    *plain, _ = self.rounds(s)
            with self.server(*options) as s:
                *kept, cached = self.rounds(s)
                self.assertEqual(kept, plain)
                self.assertEqual(sum(n >= 256 for n in cached), N)  # whole pages
                self.assertGreaterEqual(figure(s, "_restored_total"), N - 2)
                self.assertGreaterEqual(figure(s, "_restored_tokens_total"), 256 * (N - 2))

    def test_states_are_those_of_their_ends(self):
        """Of a recurrent model a conversation is of use to what goes on from its end. Once one was restored in vain, a shorter
        one that a request contains is taken instead of a longer one that it leaves, and is kept beside it."""
        mkarch = os.path.join(os.path.dirname(rig.MKMODEL), "mkarch")
        subprocess.run([mkarch, "qwen35", os.path.join(rig.FOLDER, "hybrid.gguf")], check=True, stdout=subprocess.DEVNULL)
        few = "--ctx-checkpoints", "1"  # states that the cache itself keeps

        def told(s):
            def one(prompt):
                a = s.post("/v1/completions", {"prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": 3})
                self.assertEqual(a.status, 200, a.body)
                settle(s)
                return a.json["choices"][0]["text"], a.json["timings"]["cache_n"]

            def others(seed):
                for i in range(3):
                    one(tokens(seed + i, 400))
            answers = [one(tokens(1))]
            others(20)
            answers.append(one(tokens(1, 200) + tokens(2, 30)))
            others(30)
            short = tokens(3, 200)
            answers.append(one(short))
            answers.append(one(short + tokens(4, 150)))
            others(40)
            answers.append(one(short + tokens(5, 100)))
            return answers
        with self.server("--cache-ram", "0", *few, model="hybrid.gguf") as s:
            plain = told(s)
        with self.server("--spec-type", "none", *few, model="hybrid.gguf") as s:
            kept = told(s)
        self.assertEqual([a for a, _ in kept], [a for a, _ in plain])
        self.assertEqual(plain[-1][1], 0)
        self.assertGreaterEqual(kept[-1][1], 192)

    def test_memory_has_a_limit(self):
        with self.server("--cache-ram", "1") as s:
            for i in range(60):
                ask(s, tokens(i, 440))
                self.assertLessEqual(figure(s, "_ram_bytes"), 1 << 20)
            wait_for(s, "_ram_bytes", 1)
            wait_for(s, "", 1)

    def test_of_ones_own_key_alone(self):
        with self.server("--api-key", "alice,bob", "--cache-disk", self.folder) as s:
            for i in range(N):
                ask(s, tokens(i), A)
            self.assertEqual([ask(s, tokens(i), B)[1] for i in range(N)], [0] * N)
            self.assertEqual(sum(ask(s, tokens(i), A)[1] >= 256 for i in range(N)), N)
        with self.server("--api-key", "alice,bob", "--cache-disk", self.folder) as s:
            self.assertEqual([ask(s, tokens(i, 200) + [5], B)[1] >= 128 for i in range(N)], [True] * N)  # its own by now
            self.assertEqual(ask(s, tokens(77), B)[1], 0)

    def test_files_outlive_the_server(self):
        with self.server("--cache-ram", "0") as s:
            *plain, _ = self.rounds(s)
        for end in (signal.SIGTERM, signal.SIGKILL):
            shutil.rmtree(self.folder)
            s = self.server("--cache-disk", self.folder)
            told = [ask(s, tokens(i))[0] for i in range(N)]
            self.assertEqual(told, [plain[0][i] for i in range(N)])
            if end == signal.SIGKILL:
                end_time = time.monotonic() + rig.patience(30)
                while sum(f.endswith(".tokens") for f in self.files()) < N and time.monotonic() < end_time:
                    time.sleep(0.02)
            s.process.send_signal(end)
            s.process.wait(rig.patience(60))
            s.process.stderr.close()
            self.assertEqual(len(self.files()), 2 * N)
            self.assertEqual({os.stat(f).st_mode & 0o777 for f in self.files()}, {0o600})
            with self.server("--cache-disk", self.folder) as s:
                self.assertEqual(figure(s, ""), N)
                again = [ask(s, tokens(i) + tokens(100 + i, 20)) for i in range(N)]
                self.assertEqual([t for t, _ in again], [plain[1][i] for i in range(N)])
                self.assertEqual(sum(n >= 256 for _, n in again), N)
                self.assertEqual(figure(s, "_damaged_total"), 0)

    def test_damaged_files_are_none(self):
        with self.server("--cache-disk", self.folder) as s:
            told = [ask(s, tokens(i))[0] for i in range(4)]
        kv = [f for f in self.files() if f.endswith(".kv")]
        self.assertEqual(len(kv), 4)
        with open(kv[0], "r+b") as f:  # a byte of the keys and values
            f.seek(os.path.getsize(kv[0]) // 2)
            byte = f.read(1)
            f.seek(-1, os.SEEK_CUR)
            f.write(bytes([byte[0] ^ 1]))
        os.truncate(kv[1], os.path.getsize(kv[1]) - 7)
        with open(kv[2].replace(".kv", ".tokens"), "r+b") as f:
            f.seek(-2, os.SEEK_END)
            f.write(b"\xff")
        os.unlink(kv[3].replace(".kv", ".tokens"))
        with open(kv[0] + ".tmp", "w", encoding="utf-8") as f:
            f.write("of somebody else")
        with self.server("--cache-disk", self.folder) as s:
            self.assertEqual(figure(s, ""), 2)  # the last two are seen at once
            again = [ask(s, tokens(i)) for i in range(4)]
            self.assertEqual([t for t, _ in again], told)
            self.assertEqual([n for _, n in again], [0, 0, 0, 0])
            self.assertEqual(figure(s, "_damaged_total"), 2)
        self.assertTrue(os.path.exists(kv[0] + ".tmp"))

    def test_another_model_has_other_files(self):
        with self.server("--cache-disk", self.folder) as s:
            ask(s, tokens(1))
        other = os.path.join(rig.FOLDER, "other.gguf")
        subprocess.run([rig.MKMODEL, "--seed", "9", other], check=True)
        with self.server("--cache-disk", self.folder, model="other.gguf") as s:
            self.assertEqual(figure(s, ""), 0)
            self.assertEqual(ask(s, tokens(1))[1], 0)

    def test_a_full_disk(self):
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", self.folder], check=False,
                                               capture_output=True).returncode:
            self.skipTest("no file system can be mounted")
        try:
            with self.server("--cache-disk", self.folder) as s:
                told = [ask(s, tokens(i))[0] for i in range(N)]
                self.assertEqual(s.logged("no more conversations are written"), 1, s.log)
                again = [ask(s, tokens(i)) for i in range(N)]
                self.assertEqual([t for t, _ in again], told)
                self.assertEqual(sum(n >= 256 for _, n in again), N)  # memory keeps them
            self.assertEqual([f for f in self.files() if not f.endswith((".kv", ".tokens"))], [])
        finally:
            subprocess.run(["umount", "-l", self.folder], check=False)

    def test_disk_has_a_limit_and_needs_a_folder(self):
        with self.server("--cache-disk", self.folder, "--cache-disk-limit", "1") as s:
            for i in range(30):
                ask(s, tokens(i, 440))
        self.assertLessEqual(sum(os.path.getsize(f) for f in self.files()), 1 << 20)
        self.assertGreater(len(self.files()), 0)
        blocked = os.path.join(self.folder, "file")
        with open(blocked, "w", encoding="utf-8"):
            pass
        s = self.server("--cache-disk", blocked, wait=False)
        self.assertEqual(s.stop(), 1, s.log)
        self.assertIn(f"--cache-disk {blocked}: Not a directory", s.log)
        late = os.path.join(self.folder, "late")  # one that becomes unusable later is done without
        with self.server("--models-dir", rig.FOLDER, "--cache-disk", late, model=None) as s:
            os.rmdir(late)
            shutil.copy(blocked, late)
            self.assertEqual(s.post("/v1/completions", {"prompt": "a", "max_tokens": 4}).status, 200)
            self.assertGreater(s.logged("cannot be used"), 0, s.log)
        with self.server("--cache-disk", self.folder, "--cache-ram", "0") as s:
            self.assertGreater(s.logged("--cache-ram 0 keeps no conversations"), 0, s.log)


class TooLong(unittest.TestCase):
    """Conversations that are longer than the context."""
    def talk(self, n, words=12):
        turns = [{"role": "system", "content": "Be brief."}]
        for i in range(n):
            turns += [{"role": "user", "content": f"q{i} " * words}, {"role": "assistant", "content": f"a{i} " * words}]
        return [*turns, {"role": "user", "content": "last"}]

    def say(self, s, messages, path="/v1/chat/completions", **fields):
        return s.post(path, {"messages": messages, "max_tokens": 6, "temperature": 0, **fields})

    def test_oldest_turns_go(self):
        whole = self.talk(40)
        with Server("-np", "2", "-c", "512", "--context-shift", "--no-access-log") as s:
            a = self.say(s, whole)
            self.assertEqual(a.status, 200, a.body)
            n = a.json["timings"]["n_dropped_turns"]
            self.assertTrue(0 < n < 40)
            self.assertLessEqual(a.json["usage"]["prompt_tokens"], 512 - 6)
            kept = self.say(s, [whole[0], *whole[1 + 2 * n:]], truncation="disabled")
            self.assertEqual(kept.status, 200)
            self.assertEqual(kept.json["choices"][0]["message"], a.json["choices"][0]["message"])
            self.assertEqual(kept.json["usage"]["prompt_tokens"], a.json["usage"]["prompt_tokens"])
            self.assertNotIn("n_dropped_turns", kept.json["timings"])
            more = self.say(s, [whole[0], *whole[1 + 2 * (n - 1):]], truncation="disabled")  # one more would not have fitted
            self.assertGreater(more.json["usage"]["prompt_tokens"] if more.status == 200 else 512, 512 - 6 - 1)
            self.assertEqual(self.say(s, whole, truncation="disabled").status, 400)
            long = self.say(s, [{"role": "user", "content": "x" * 9000}])
            self.assertEqual(long.status, 400)
            self.assertIn("512", long.error)

    def test_a_request_may_ask(self):
        whole = self.talk(40)
        with Server("-np", "1", "-c", "512", "--no-access-log") as s:
            self.assertEqual(self.say(s, whole).status, 400)
            self.assertEqual(self.say(s, whole, truncation="auto").status, 200)
            self.assertIn("truncation", self.say(s, whole, truncation="perhaps").error)
            self.assertIn("truncation", self.say(s, whole, truncation=1).error)
            a = s.post("/v1/responses", {"input": whole, "max_output_tokens": 6, "truncation": "auto"})
            self.assertEqual(a.status, 200, a.body)
            self.assertEqual(s.post("/v1/responses", {"input": whole, "max_output_tokens": 6}).status, 400)


if __name__ == "__main__":
    rig.main("__main__")
