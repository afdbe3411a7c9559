"""Many clients at once: every answer has the bytes of the same request alone; none is lost, doubled or mixed; what clients that
go away held comes back.

AERIE_SERVE_REQUESTS and AERIE_SERVE_CLIENTS choose how many; 10,000 requests by 64 clients take some minutes:

    AERIE_SERVE_REQUESTS=10000 AERIE_SERVE_CLIENTS=64 tests/serve/check_laws.py build/aerie build/tests/mkmodel -k alone
"""
import concurrent.futures
import http.client
import json
import os
import random
import re
import select
import signal
import socket
import threading
import time
import unittest

import rig
from rig import Server, chat


def requests(rng, n):
    """Requests of mixed lengths and settings: (path, body)."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}, "required": ["a", "b"]}
    out = []
    for i in range(n):
        fields = {"max_tokens": rng.randint(1, 24), "seed": rng.randint(0, 2**40), "temperature": rng.choice([0, 0.7, 1, 1.5]),
                  "ignore_eos": rng.random() < 0.7}
        if rng.random() < 0.3:
            fields.update(top_p=0.8, top_k=rng.randint(1, 50), min_p=0.01)
        if rng.random() < 0.2:
            fields.update(frequency_penalty=0.5, presence_penalty=0.2, repeat_penalty=1.1)
        if rng.random() < 0.2:
            fields["stop"] = rng.sample("abcdefghijklmnop", 3)
        if rng.random() < 0.15:
            fields.update(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
                          ignore_eos=False)
        if rng.random() < 0.2:
            fields["n"] = rng.randint(1, 3)
        if rng.random() < 0.3:
            fields["logprobs"] = 2
        # half of the prompts begin alike, so that prefixes are shared; some are long
        text = ("shared beginning " * rng.randint(0, 8)) + "".join(rng.choices("abc def", k=rng.randint(1, 60)))
        how = rng.random()
        if how < 0.4:
            if "logprobs" in fields:
                fields.update(logprobs=True, top_logprobs=2)
            out.append(("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **fields}))
        elif how < 0.8:
            out.append(("/v1/completions", {"prompt": text + str(i), **fields}))
        elif how < 0.9:
            out.append(("/completion", {"prompt": text + str(i), **fields, "n_predict": fields["max_tokens"]}))
        else:
            fields = {k: v for k, v in fields.items() if k in ("max_tokens", "seed", "temperature", "top_p", "top_k")}
            out.append(("/v1/messages", {"messages": [{"role": "user", "content": text}], **fields}))
    return out


# what differs from one answer to the next: names, times, and figures that tell what was cached or drafted
OWN = {"id", "created", "created_at", "timings", "total_duration", "load_duration", "prompt_eval_duration", "eval_duration",
       "input_tokens_details", "item_id", "prompt_tokens_details", "completion_tokens_details", "input_tokens",
       "cache_read_input_tokens"}


def plain(node):
    if isinstance(node, dict):
        return {k: plain(v) for k, v in node.items() if k not in OWN}
    return [plain(v) for v in node] if isinstance(node, list) else node


def said(answer):
    """What an answer says, without names and times."""
    return json.dumps(plain(answer), sort_keys=True)


def said_streamed(events):
    """The same of a stream, texts and reasons only."""
    out = {}
    for e in events:
        for c in e["choices"] if e != "[DONE]" else []:
            piece = c["text"] if "text" in c else c["delta"].get("content", "")
            text, reason = out.get(c["index"], ("", None))
            out[c["index"]] = (text + piece, c["finish_reason"] or reason)
    return [out[i] for i in sorted(out)]


def texts(answer):
    return [(c["text"] if "text" in c else c["message"]["content"], c["finish_reason"]) for c in answer["choices"]]


class Laws(unittest.TestCase):
    def run_all(self, server, jobs, n_threads, rng):
        """Each job by one of many threads, three in ten left in the middle; what the others say, by job."""
        answers, failures, lock = {}, [], threading.Lock()
        kinds = [("whole", 35), ("stream", 35), ("leave", 15), ("leave early", 15)]
        plans = [(i, rng.choices([k for k, _ in kinds], [n for _, n in kinds])[0]) for i in range(len(jobs))]
        todo = list(reversed(plans))

        def work(keeps):
            """keeps: one connection for many requests."""
            kept = None
            while True:
                with lock:
                    if not todo:
                        break
                    i, how = todo.pop()
                path, body = jobs[i]
                if how == "stream" and not path.endswith("/completions"):
                    how = "whole"
                try:
                    if how.startswith("leave"):
                        if kept:
                            kept.close()  # on a busy machine the server might end it meanwhile: it is idle
                        self.leave(server, path, {**body, "stream": how == "leave", "max_tokens": 100, "ignore_eos": True})
                        continue
                    if keeps and not kept:
                        kept = server.connect()
                    a = server.call("POST", path, {**body, "stream": how == "stream"}, connection=kept)
                    more = self.more_than_an_answer(kept)
                    with lock:
                        if a.status != 200 or more:
                            failures.append((i, how, a.status, a.body, more))
                        elif i in answers:
                            failures.append((i, how, "twice"))
                        else:
                            answers[i] = ("stream", said_streamed(a.events)) if how == "stream" else ("whole", said(a.json))
                except Exception as e:  # noqa: BLE001
                    with lock:
                        failures.append((i, how, repr(e)))
                    if kept:
                        kept.close()
                    kept = None
            if kept:
                kept.close()
        threads = [threading.Thread(target=work, args=(k % 2 == 0,)) for k in range(n_threads)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual((failures[:5], len(failures)), ([], 0))
        self.assertEqual(sorted(answers), sorted(i for i, how in plans if not how.startswith("leave")))
        return answers

    @staticmethod
    def more_than_an_answer(connection):
        """Bytes that lie on a kept connection after an answer has been read."""
        if not connection or not connection.sock or not select.select([connection.sock], [], [], 0)[0]:
            return b""
        return connection.sock.recv(1000)

    def leave(self, server, path, body):
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        with socket.create_connection(("127.0.0.1", server.port), rig.patience(60)) as s:
            s.sendall(head + data)
            if body["stream"]:
                s.recv(random.choice([1, 500, 3000]))
            else:
                time.sleep(random.random() * 0.02)

    def idle(self, server):
        end = time.monotonic() + rig.patience(60)
        while time.monotonic() < end:
            if not any(s["is_processing"] for s in server.get("/slots").json):
                return
            time.sleep(0.02)
        self.fail("slots are not given back: " + server.log)

    def test_every_answer_is_that_of_the_request_alone(self):
        rng = random.Random(11)
        n = int(os.environ.get("AERIE_SERVE_REQUESTS", 480 // (8 if rig.SLOW > 1 else 1)))
        n_clients = int(os.environ.get("AERIE_SERVE_CLIENTS", 24))
        jobs = requests(rng, n)
        with Server("-np", "16", "--no-access-log", "--max-connections", "2000",
                    "--max-connections-per-address", "2000", "--max-queue", "2000") as server:
            keep = server.connect()
            alone = [server.call("POST", path, body, connection=keep).json for path, body in jobs]
            keep.close()
            self.idle(server)
            server.get("/health")
            time.sleep(0.2)
            before = server.descriptors()
            memory, n_answers = [], 0
            for turn in range(4):
                some = jobs[turn * n // 4:(turn + 1) * n // 4]
                expected = alone[turn * n // 4:(turn + 1) * n // 4]
                answers = self.run_all(server, some, n_clients, rng)
                for i, (how, what) in answers.items():
                    self.assertEqual(what, texts(expected[i]) if how == "stream" else said(expected[i]), some[i])
                self.idle(server)
                memory.append(server.memory())
                n_answers += len(answers)
            end = time.monotonic() + rig.patience(20)
            while server.descriptors() > before and time.monotonic() < end:
                time.sleep(0.05)
            self.assertLessEqual(server.descriptors(), before)
            # the allocator's arenas come and go with threads: 100 to 130 MiB over 14 such turns, without a trend
            self.assertLess(min(memory[2:]), max(memory[:2]) * 1.2 + 16384, memory)
            if "AERIE_SERVE_REQUESTS" in os.environ:
                print(f"{n} requests by {n_clients} clients: {n_answers} answers, all as alone, and {n - n_answers} left; KiB "
                      f"after each quarter: {memory}; descriptors before and after: {before}, {server.descriptors()}")

    def test_adapters_are_each_request_s_own(self):
        a, b = rig.make_lora("a.gguf", "--seed", "1"), rig.make_lora("b.gguf", "--seed", "2", "--rank", "4")
        lists = [None, [], [{"id": 0, "scale": 1}], [{"id": 1, "scale": -0.5}],
                 [{"id": 1, "scale": 0.5}, {"id": 0, "scale": 1}],
                 [{"id": 0, "scale": 0}]]
        body = {"prompt": "Once upon a time there was a long prompt", "max_tokens": 12, "temperature": 0, "ignore_eos": True}

        def ask(server, lora):
            answer = server.post("/v1/completions", body if lora is None else {**body, "lora": lora})
            self.assertEqual(answer.status, 200, answer.body)
            return answer.json["choices"][0]["text"]

        with Server("-np", "1", "--spec-type", "none", "-t", "1") as plain:
            base = ask(plain, None)
            self.assertEqual(plain.get("/lora-adapters").json, [])
            self.assertIn("no adapter 0", plain.post("/v1/completions", {**body, "lora": lists[2]}).error)
        with Server("-np", "8", "--lora", a, "--lora-scaled", f"{b}:0.25", "--lora-init-without-apply") as server:
            alone = [ask(server, lora) for lora in lists]
            self.assertEqual([alone[0], alone[1], alone[5]], [base] * 3)
            self.assertEqual(len({base, *alone}), 4)
            for _ in range(2):  # all at once, and again with prefixes
                with concurrent.futures.ThreadPoolExecutor(12) as pool:
                    self.assertEqual(list(pool.map(lambda lora: ask(server, lora), lists * 2)), alone * 2)
            listed = server.get("/lora-adapters").json
            self.assertEqual([(x["id"], x["scale"], os.path.basename(x["path"])) for x in listed],
                             [(0, 0, "a.gguf"), (1, 0, "b.gguf")])
            self.assertEqual(server.post("/lora-adapters", [{"id": 0, "scale": 1}]).json, {"success": True})
            self.assertEqual([ask(server, None), ask(server, lists[3])], [alone[2], alone[3]])
            self.assertEqual(ask(server, []), base)  # an empty list: none
            for bad, why in (([{"id": 2, "scale": 1}], "no adapter 2"), ([{"id": 0}], "number 'scale'"),
                             ([{"id": 0.5, "scale": 1}], "no adapter"),
                             ([{"id": 0, "scale": 1}] * 2, "twice"), ([{"id": 0, "scale": 1e30}], "1e6"), ([5], "objects")):
                for path, sent in (("/v1/completions", {**body, "lora": bad}), ("/lora-adapters", bad)):
                    answer = server.post(path, sent)
                    self.assertEqual(answer.status, 400)
                    self.assertIn(why, answer.error)
            self.assertEqual(server.post("/lora-adapters", {"id": 0}).status, 400)
            self.assertEqual(server.post("/v1/completions", {**body, "lora": "x"}).status, 400)
        with Server("-np", "1", "--lora", a, "--lora-scaled", f"{b}:-0.5") as server:
            self.assertEqual([x["scale"] for x in server.get("/lora-adapters").json], [1, -0.5])
            self.assertEqual(ask(server, lists[2]), alone[2])

    def test_one_place_and_no_speculation_say_the_same(self):
        jobs = requests(random.Random(5), 40 // (4 if rig.SLOW > 1 else 1))
        with Server("-np", "16") as one:
            expected = [said(one.post(path, body).json) for path, body in jobs]
        with Server("-np", "1", "--spec-type", "none", "-t", "1", "-ub", "7") as other:
            self.assertEqual([said(other.post(path, body).json) for path, body in jobs], expected)

    def test_an_answer_that_nobody_waits_for_ends(self):
        with Server("-np", "1", "-c", "65536") as server:
            body = {**chat("go on", max_tokens=60000, ignore_eos=True)}
            for stream in (True, False):
                data = json.dumps({**body, "stream": stream}).encode()
                s = socket.create_connection(("127.0.0.1", server.port), rig.patience(60))
                s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(
                    data) + data)
                while not server.get("/slots").json[0]["is_processing"]:
                    time.sleep(0.005)
                waiting = threading.Thread(target=server.post, args=("/v1/completions", {"prompt": "x", "max_tokens": 1}))
                waiting.start()
                s.close()
                waiting.join(rig.patience(60))
                self.assertFalse(waiting.is_alive())
                self.idle(server)
            metrics = server.get("/metrics").body.decode()
            self.assertIn('finished_reason="abort"} 2', metrics)

    def test_who_leaves_the_queue_ends_nobody_else(self):
        with Server("-np", "1", "-c", "2048") as server:
            ask = chat("go on", max_tokens=rig.many(900), ignore_eos=True)
            expected = said(server.post("/v1/chat/completions", ask).json)
            answers = []
            runs = threading.Thread(target=lambda: answers.append(server.post("/v1/chat/completions", ask)))
            runs.start()
            while not server.get("/slots").json[0]["is_processing"] and not answers:
                time.sleep(0.002)
            for stream in (True, False, True):
                self.begin(server, wait=False, stream=stream).close()
            runs.join()
            self.idle(server)
            self.assertEqual([said(a.json) for a in answers], [expected])
            # each of the three ended by itself: aborted, or answered before it showed that nobody is there
            metrics = server.get("/metrics").body.decode()
            ended = {reason: int(n) for reason, n in re.findall(r'finished_reason="(\w+)"} (\d+)', metrics)}
            self.assertEqual(ended["abort"] + ended["length"] + ended["stop"], 2 + 3, ended)
            self.assertEqual(ended["error"], 0)

    def test_a_full_queue_is_said(self):
        with Server("-np", "1", "--max-queue", "1", "-c", "32768") as server:
            held = [self.begin(server, max_tokens=30000), self.begin(server, wait=False, max_tokens=30000)]
            end = time.monotonic() + rig.patience(60)
            while b"num_requests_waiting{model_name=\"m\"} 1" not in server.get("/metrics").body and time.monotonic() < end:
                time.sleep(0.005)
            for n in (1, 2):
                a = server.post("/v1/completions", {"prompt": "x", "max_tokens": 1, "n": n})
                self.assertEqual(a.status, 503, a.body)
                self.assertGreaterEqual(int(a.headers["Retry-After"]), 1)
                self.assertIn("--max-queue", a.error)
            for n in (3, 1):  # as many as could never be held, however long a client waits
                a = server.post("/v1/completions", {"prompt": ["x", "y", "z"] if n == 1 else "x", "max_tokens": 1, "n": n})
                self.assertEqual(a.status, 400, a.body)
                self.assertIn("--max-queue", a.error)
            pages = int(re.search(r'vllm:cache_config_info{model_name="m",block_size="\d+",num_gpu_blocks="(\d+)"} 1',
                                  server.get("/metrics").body.decode()).group(1))
            # an answer's header comes before its first pass
            while self.kv_use(server) * pages < 0.99 and time.monotonic() < end:
                time.sleep(0.005)
            self.assertGreater(self.kv_use(server) * pages, 0.99)
            for s in held:
                s.close()
            self.idle(server)
            end = time.monotonic() + rig.patience(10)
            while self.kv_use(server) and time.monotonic() < end:
                time.sleep(0.02)
            self.assertEqual(self.kv_use(server), 0)
            self.assertEqual(server.post("/v1/completions", {"prompt": "x", "max_tokens": 1}).status, 200)

    @staticmethod
    def kv_use(server):
        """The part of the KV cache in use, by both of its names."""
        text = server.get("/metrics").body.decode()
        use = [float(re.search(r"vllm:%s{[^}]*} (\S+)" % name, text).group(1))
               for name in ("kv_cache_usage_perc", "gpu_cache_usage_perc")]
        assert 0 <= use[0] <= 1 and abs(use[0] - use[1]) < 0.5, text
        return use[0]

    def begin(self, server, wait=True, **fields):
        """A socket on which a long stream has been asked for, and (wait) has begun."""
        data = json.dumps({**chat("go on", ignore_eos=True, stream=True), **fields}).encode()
        s = socket.create_connection(("127.0.0.1", server.port), rig.patience(60))
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        if wait:
            s.recv(1)
        return s

    def test_a_signal_under_load_cuts_nobody_off(self):
        """Clients that go on asking, on new connections and on kept ones: each answer that begins is whole."""
        jobs = requests(random.Random(3), 24)
        server = Server("-np", "4", "--grace", "600", "--no-access-log")
        expected = [said(server.post(path, body).json) for path, body in jobs]
        wrong, n_whole, lock, signalled = [], [0, 0], threading.Lock(), threading.Event()

        def work(k):
            kept = server.connect() if k % 2 else None
            for turn in range(100000):
                i = (k + turn) % len(jobs)
                late = signalled.is_set()
                try:
                    a = server.call("POST", *jobs[i], connection=kept)
                except (ConnectionError, http.client.BadStatusLine):  # nobody is let in any more
                    if not signalled.is_set():
                        wrong.append((i, "refused"))
                    break
                except Exception as e:  # noqa: BLE001
                    wrong.append((i, repr(e)))
                    break
                with lock:
                    if a.status == 200 and said(a.json) == expected[i]:
                        n_whole[late] += 1
                    elif a.status != 503 or not signalled.is_set():
                        wrong.append((i, a.status, a.body))
                if a.status != 200:
                    break
        threads = [threading.Thread(target=work, args=(k,)) for k in range(12)]
        for t in threads:
            t.start()
        while n_whole[0] < 30 and not wrong:
            time.sleep(0.005)
        signalled.set()
        server.process.send_signal(signal.SIGTERM)
        for t in threads:
            t.join()
        self.assertEqual(server.stop(0), 0, server.log)
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    rig.main("__main__")
