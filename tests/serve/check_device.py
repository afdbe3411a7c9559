"""A model on a device: `--device emu`, where the build has it. The device may be lost, or too small."""
import concurrent.futures
import os
import socket
import subprocess
import time
import unittest

import rig
from rig import Server


def ask(s, i, **fields):
    return s.post("/v1/completions", {"prompt": f"number {i}", "max_tokens": 6, "temperature": 0, "ignore_eos": True, **fields})


def has_emu():
    said = subprocess.run([rig.AERIE, "--version"], capture_output=True, text=True, check=True).stdout
    return any("emu" in line for line in said.splitlines() if line.startswith("gpu drivers:"))


def received(datagrams):
    out = []
    try:
        while True:
            out.append(datagrams.recv(100))
    except BlockingIOError:
        return out


class Device(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not has_emu():
            raise unittest.SkipTest("this build has no emulation")

    def test_a_lost_device_costs_the_answers_and_no_more(self):
        """Each request is answered with a sentence, and the server ends as it is told. The model is loaded again, which opens
        the device again."""
        for launch in ("1", "70", "400"):  # an answer takes more than 70
            with Server("--device", "emu", "-np", "4", "--no-access-log", env={"AERIE_EMU_LOSE": launch}) as s:
                with concurrent.futures.ThreadPoolExecutor(4) as pool:
                    answers = list(pool.map(lambda i: ask(s, i), range(4)))
                for a in [*answers, *(ask(s, i) for i in range(9, 40 if launch == "400" else 10))]:
                    self.assertIn(a.status, (200, 500), a.body)
                    if a.status == 500:
                        self.assertIn("the device was lost at launch " + launch, a.error)
                s.wait_until(lambda: ask(s, 0).status == (200 if launch == "400" else 500))
                self.assertGreater(s.logged("so the model is loaded again"), 0)
                self.assertEqual(s.post("/tokenize", {"content": "abc"}).status, 200)
            self.assertEqual(s.stop(), 0)

    def test_a_device_that_does_not_come_back(self):
        """A server none of whose models can answer any more is not healthy."""
        with Server("--device", "emu", "-np", "1", "--no-access-log", "--stuck-after", "1",
                    env={"AERIE_EMU_LOSE": "70", "AERIE_EMU_GONE": "1"}) as s:
            s.wait_until(lambda: ask(s, 1).status == 500 and s.get("/health").status == 503)
            health = s.get("/health").json
            self.assertEqual(health["status"], "device lost")
            self.assertIn("was lost or hangs", health["error"]["message"])
            self.assertEqual(ask(s, 1).status, 500)
            self.assertGreater(s.logged("the device is gone"), 0)
        self.assertEqual(s.stop(), 0)

    def test_a_device_that_is_lost_again_and_again(self):
        """The model rests after three reloads without an answer. Until there is one, the server counts as stuck, although the
        model is loaded in between."""
        watchdog = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        watchdog.bind(os.path.join(rig.FOLDER, "notify"))
        watchdog.setblocking(False)
        with Server("--device", "emu", "-np", "1", "--no-access-log", "--stuck-after", "1",
                    env={"AERIE_EMU_LOSE": "1", "NOTIFY_SOCKET": watchdog.getsockname(), "WATCHDOG_USEC": "3000"}) as s:
            s.wait_until(lambda: b"WATCHDOG=1" in received(watchdog))
            self.rests(s)
            self.assertEqual(s.get("/health").json["status"], "device lost")
            s.wait_until(lambda: s.get("/health").status == 200)
            received(watchdog)
            time.sleep(1)  # on a slow machine this sees less
            self.assertNotIn(b"WATCHDOG=1", received(watchdog))
            self.rests(s)
            self.assertEqual(s.logged("so the model is loaded again"), 3)
        watchdog.close()

    def rests(self, s):
        answers = [ask(s, 1)]
        while answers[-1].status == 500:
            self.assertLess(len(answers), 20)
            self.assertIn("the device was lost at launch 1", answers[-1].error)
            answers.append(ask(s, 1))
        self.assertEqual(answers[-1].status, 503)
        self.assertRegex(answers[-1].error, r"was lost [45] times without an answer in between; .* again in \d+ s")
        self.assertIn(int(answers[-1].headers["Retry-After"]), range(1, 16))

    def test_an_embedder_on_a_lost_device(self):
        """As with answers: vectors or a sentence, never other vectors."""
        def embed(s):
            return s.post("/v1/embeddings", {"input": ["one text", "another"]})
        with Server("--device", "emu", "-np", "1", "--no-access-log", env={"AERIE_EMU_LOSE": "400"}) as s:
            first = embed(s).json["data"]
            s.wait_until(lambda: self.is_vector_or_sentence(embed(s), first) == 500)
            s.wait_until(lambda: self.is_vector_or_sentence(embed(s), first) == 200)
            self.assertGreater(s.logged("so the model is loaded again"), 0)
        self.assertEqual(s.stop(), 0)

    def is_vector_or_sentence(self, answer, vectors):
        if answer.status == 200:
            self.assertEqual(answer.json["data"], vectors)
        else:
            self.assertIn("the device was lost at launch", answer.error)
        return answer.status

    def test_a_device_that_hangs_is_given_up(self):
        """The requests that wait for it are answered when the limit is over, later ones at once."""
        with Server("--device", "emu", "-np", "4", "--no-access-log",
                    env={"AERIE_EMU_HANG": "90", "AERIE_GPU_LIMIT": "0.5"}) as s:
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                answers = list(pool.map(lambda i: ask(s, i), range(4)))
            for a in [*answers, ask(s, 7)]:
                self.assertEqual(a.status, 500, a.body)
                self.assertIn("the device made no progress for 0.5 s and is given up", a.error)
            self.assertGreater(s.logged("so the model is loaded again"), 0)
        self.assertEqual(s.stop(), 0)

    def test_other_models_go_on(self):
        """A server of several models on a device that has room for the small one: the large one is refused, and the small one
        answers before and after."""
        folder = os.path.join(rig.FOLDER, "two")
        os.mkdir(folder)
        rig.make_model("two/small.gguf")
        rig.make_model("two/too-large.gguf", "--layers", "250", "--seed", "2")
        with Server("--models-dir", folder, "--models-max", "2", "--device", "emu", "-np", "1", model=None,
                    env={"AERIE_EMU_MEMORY": str(160 << 20)}) as s:
            before = ask(s, 1, model="small")
            self.assertEqual(before.status, 200, before.body)
            for _ in range(2):
                refused = ask(s, 1, model="too-large")
                self.assertEqual(refused.status, 503, refused.body)
                self.assertIn("'too-large' could not be loaded: ", refused.error)
                self.assertIn("fewer layers on the device (-ngl)", refused.error)
                self.assertGreater(s.logged("of memory (weights "), 0)
                again = ask(s, 1, model="small")
                self.assertEqual((again.status, again.json["choices"]), (200, before.json["choices"]), again.body)

    def test_a_model_that_is_larger_than_the_device_is_refused(self):
        s = Server("--device", "emu", wait=False, env={"AERIE_EMU_MEMORY": "1000000"})
        s.process.wait(rig.patience(60))
        self.assertNotEqual(s.stop(), 0)
        self.assertTrue(s.logged("of memory (weights "), s.log)
        self.assertTrue(s.logged("or fewer layers on the device (-ngl)"), s.log)


if __name__ == "__main__":
    rig.main("__main__")
