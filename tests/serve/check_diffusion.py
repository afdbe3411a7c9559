"""A model that denoises behind the server: completions and chats in every dialect, streamed as far as the text is known, many
at once; and what cannot be."""
import os
import subprocess
import threading
import unittest

import rig
from rig import Server

FILE = "llada.gguf"


def write_model():
    mkarch = os.path.join(os.path.dirname(rig.MKMODEL), "mkarch")
    subprocess.run([mkarch, "llada", os.path.join(rig.FOLDER, FILE)], check=True)


def ask(s, seed=3, n=40, **fields):
    return s.post("/v1/completions", {"prompt": [5, 6, 7, 8, 9], "max_tokens": n, "temperature": 0.9, "seed": seed,
                                      "ignore_eos": True, "return_tokens": True, **fields})


class Diffusion(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        write_model()

    def test_answers(self):
        with Server("--diffusion-steps", "9", "--diffusion-block-length", "10", "-np", "3", model=FILE) as s:
            self.assertEqual(ask(s).status, 200)
            alone = {i: ask(s, i).body and ask(s, i).json["choices"][0]["text"] for i in range(6)}
            self.assertGreater(len(set(alone.values())), 1)
            got = {}
            threads = [threading.Thread(target=lambda i=i: got.update({i: ask(s, i).json["choices"][0]["text"]}))
                       for i in range(6)]
            [t.start() for t in threads]
            [t.join() for t in threads]
            self.assertEqual(got, alone)
            a = ask(s, 2, stream=True)
            pieces = [e["choices"][0]["text"] for e in a.events if e != "[DONE]" and e["choices"]]
            self.assertEqual("".join(pieces), alone[2])
            self.assertGreater(len([p for p in pieces if p]), 1)  # block by block, not all at the end
            chat = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 12, "seed": 1}
            self.assertEqual(s.post("/v1/chat/completions", chat).status, 200)
            self.assertEqual(s.post("/v1/messages", chat).status, 200)
            self.assertEqual(s.post("/completion", {"prompt": "abc", "n_predict": 9, "seed": 1}).status, 200)
            self.assertEqual(s.post("/api/generate", {"model": "llada", "prompt": "abc", "stream": False,
                                                      "options": {"num_predict": 9}}).status, 200)

    def test_refusals(self):
        with Server(model=FILE) as s:
            for fields, word in (({"grammar": 'root ::= "a"'}, "grammar"), ({"logprobs": 2}, "log-probabilities"),
                                 ({"frequency_penalty": 1.5}, "penalties"),
                                 ({"response_format": {"type": "json_object"}}, "grammar")):
                a = ask(s, **fields)
                self.assertEqual(a.status, 400, a.body)
                self.assertIn(word, a.error)
            self.assertEqual(ask(s).status, 200)


if __name__ == "__main__":
    rig.main("__main__")
