"""The order of slots while requests wait (--max-turn): no request keeps all of them, no client's requests keep another client's
waiting, and no answer has another byte. Asserted is the order of events: which answers go on after which have ended."""
import json
import re
import time
import unittest

import rig
from rig import Server

A, B = ({"Authorization": f"Bearer {key}"} for key in ("alice", "bob"))


def given(s, key=None, least=0):
    """Counted when an answer ends, which may be a moment after its client has gone."""
    end = time.monotonic() + rig.patience(60)
    while count(s, key) < least and time.monotonic() < end:
        time.sleep(0.02)
    return count(s, key)


def count(s, key):
    return int(re.search(r"^aerie:slots_given_total\{[^}]*\} (\d+)", s.get("/metrics", key).body.decode(), re.M).group(1))


def ask(prompt, n_tokens, **fields):
    return {"prompt": prompt, "max_tokens": n_tokens, "temperature": 1, "seed": 5, "ignore_eos": True, **fields}


def begin(s, body, n, key=None):
    """A streamed answer, read until each of its n choices has begun."""
    c, begun = s.connect(), set()
    headers = {"Content-Type": "application/json", **(key or {})}
    c.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), headers)
    answer = c.getresponse()
    assert answer.status == 200, answer.read()
    while len(begun) < n:
        line = answer.readline()
        if line.startswith(b"data: {"):
            begun |= {choice["index"] for choice in json.loads(line[6:])["choices"]}
    return c, answer


LONG = ("-c", "16384", "--no-access-log", "--cache-ram", "0", "--max-body", "8")


class Turns(unittest.TestCase):
    def test_one_request_does_not_keep_all_slots(self):
        with Server(*LONG, "-np", "4") as s:
            c, answer = begin(s, ask("a", rig.many(15000), n=4), 4)
            for i in range(5):
                self.assertEqual(s.post("/v1/completions", ask("b", 3)).status, 200)
            self.assertGreater(rig.busy(s), 0)  # the long one goes on
            c.close()
            answer.close()
            self.assertGreater(given(s, least=1), 0)

    def test_long_answers_make_way_for_short_ones(self):
        """Requests that are one answer each."""
        with Server(*LONG, "-np", "2", "--max-turn", "16") as s:
            streams = [begin(s, ask("a", rig.many(15000), seed=i), 1) for i in range(2)]
            self.assertEqual(s.post("/v1/completions", ask("b", 3)).status, 200)
            self.assertGreater(rig.busy(s), 0)
            for c, answer in streams:
                c.close()
                answer.close()
            self.assertGreater(given(s, least=1), 0)

    def test_keys_have_equal_shares(self):
        with Server(*LONG, "-np", "2", "--max-turn", "16", "--api-key", "alice,bob", "--metrics-key", "m") as s:
            streams = [begin(s, ask("a", rig.many(15000), seed=i), 1, A) for i in range(2)]
            self.assertEqual(s.post("/v1/completions", ask("b", 3), B).status, 200)
            for c, answer in streams:
                c.close()
                answer.close()
            self.assertGreater(given(s, {"Authorization": "Bearer m"}, 1), 0)

    def test_nobody_fills_the_queue_for_others(self):
        with Server(*LONG, "-np", "1", "--max-turn", "16", "--max-queue", "4", "--api-key", "alice,bob",
                    "--metrics-key", "m") as s:
            waiting, end, status = [], time.monotonic() + rig.patience(60), 200
            while status != 503:  # until all places are taken
                self.assertLess(time.monotonic(), end)
                waiting.append(s.connect())
                waiting[-1].request("POST", "/v1/completions", json.dumps(ask("a", rig.many(15000), seed=len(waiting))),
                                    {"Content-Type": "application/json", **A})
                status = s.post("/v1/completions", ask("c", 3), A).status
            self.assertEqual(s.post("/v1/completions", ask("b", 3), B).status, 200)
            self.assertEqual(s.post("/v1/completions", ask("b", 3, n=4), B).status, 503)  # more than its part
            for c in waiting:
                c.close()

    def test_answers_have_the_same_bytes(self):
        bodies = [ask("a b c", 60, n=3, seed=i) for i in range(4)] + [ask("x", 20, logprobs=2, seed=i) for i in range(8)]
        with Server("-np", "2") as s:
            alone = [[c["text"] for c in s.post("/v1/completions", b).json["choices"]] for b in bodies]
        with Server("-np", "2", "--max-turn", "4") as s:
            got, threads = [None] * len(bodies), []

            def run(i):
                got[i] = [c["text"] for c in s.post("/v1/completions", bodies[i]).json["choices"]]

            for i in range(len(bodies)):
                threads.append(rig.threading.Thread(target=run, args=(i,)))
                threads[-1].start()
            for t in threads:
                t.join()
            self.assertEqual(got, alone)
            self.assertGreater(given(s), 0)
            self.assertEqual(rig.busy(s), 0)

    def test_in_the_order_of_arrival(self):
        with Server("-np", "1", "--max-turn", "0") as s:
            c, answer = begin(s, ask("a", 300), 1)
            self.assertEqual(s.post("/v1/completions", ask("b", 3)).status, 200)
            self.assertEqual(given(s), 0)
            self.assertIn(b"[DONE]", answer.read())
            c.close()


if __name__ == "__main__":
    rig.main("__main__")
