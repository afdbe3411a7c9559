"""A model on a device: `--device emu`, where the build has it. The device may be lost, or too small."""
import concurrent.futures
import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
import unittest

import check_decide
import check_vision
import rig
from rig import Server


def ask(s, i, **fields):
    return s.post("/v1/completions", {"prompt": f"number {i}", "max_tokens": 6, "temperature": 0, "ignore_eos": True, **fields})


def ask_all(s, n):
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        return list(pool.map(lambda i: ask(s, i), range(n)))


def tell_all(s, n):
    """Streams of the dialect whose streams have the most to begin with."""
    body = {"max_tokens": 6, "temperature": 0, "ignore_eos": True, "stream": True}
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        asked = [{**body, "messages": [{"role": "user", "content": f"number {i}"}]} for i in range(n)]
        return list(pool.map(lambda each: s.post("/v1/messages", each), asked))


def words(stream):
    """The text of a stream, how often it began, and how it ended."""
    text = [e["delta"]["text"] for e in stream.events if e["type"] == "content_block_delta"]
    return "".join(text), sum(e["type"] == "message_start" for e in stream.events), stream.events[-1]["type"]


def has_emu():
    said = subprocess.run([rig.AERIE, "--version"], capture_output=True, text=True, check=True).stdout
    return any("emu" in line for line in said.splitlines() if line.startswith("gpu drivers:"))


class Device(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not has_emu():
            raise unittest.SkipTest("this build has no emulation")

    def test_a_device_that_is_lost_before_any_answer(self):
        """Each request is answered with a sentence, and the server ends as it is told. The model is loaded again, which opens
        the device again."""
        for launch in ("1", "70"):  # an answer takes more than 70
            with Server("--device", "emu", "-np", "4", "--no-access-log", env={"AERIE_EMU_LOSE": launch}) as s:
                for a in [*ask_all(s, 4), ask(s, 9)]:
                    self.assertIn(a.status, (500, 503), a.body)
                    self.assertRegex(a.error, f"the device was lost at launch {launch}|was lost . times without an answer")
                self.assertGreater(s.logged("so the model is loaded again"), 0)
                self.assertEqual(s.get("/v1/models").status, 200)
            self.assertEqual(s.stop(), 0)

    def test_requests_outlive_the_device(self):
        """Those that run and those that wait when the device is lost get the answers that they would have got."""
        with Server("-np", "4", "--no-access-log") as s:
            wanted = [a.json["choices"] for a in ask_all(s, 64)]
        with Server("--device", "emu", "-np", "4", "--no-access-log", env={"AERIE_EMU_LOSE": "3000"}) as s:
            answers = ask_all(s, 64)  # of which the device outlives some 52
            self.assertEqual([a.status for a in answers], [200] * 64, [a.body for a in answers if a.status != 200][:1])
            self.assertEqual([a.json["choices"] for a in answers], wanted)
            self.assertGreater(s.logged("so the model is loaded again"), 0)
            for i in range(40):  # one after the other, of which the device outlives fewer, and more often than it may fail
                self.assertEqual(ask(s, i).json["choices"], wanted[i])
            self.assertGreater(s.logged("so the model is loaded again"), 2)

    def test_streams_that_wait_outlive_the_device(self):
        """Those of which no token was computed when the device is lost go on after the beginning that they have sent. The
        others, at most as many as run at once, end with an error."""
        with Server("-np", "4", "--no-access-log") as s:
            wanted = [words(a) for a in tell_all(s, 64)]
        with Server("--device", "emu", "-np", "4", "--no-access-log", env={"AERIE_EMU_LOSE": "3000"}) as s:
            answers = tell_all(s, 64)
            self.assertGreater(s.logged("so the model is loaded again"), 0)
            broken = [a for a in answers if a.events[-1]["type"] == "error"]
            self.assertLessEqual(len(broken), 4 * s.logged("so the model is loaded again"))
            for a in broken:
                self.assertIn("the device was lost at launch 3000", a.events[-1]["error"]["message"])
            for a, whole in zip(answers, wanted):
                self.assertTrue(a in broken or words(a) == whole, a.body)

    def test_a_stream_ends_with_its_device(self):
        """Tokens that were sent are not sent again. An answer that nothing was sent of outlives it, although the client of the
        stream, and that of a long answer, do not read for a while, and so do files of slots, but not what a slot holds."""
        text, n = {"prompt": "a", "temperature": 0, "ignore_eos": True}, 0

        def ask_slowly(path, body):
            c = s.connect()
            c.sock = socket.socket()
            c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            c.sock.connect(("127.0.0.1", s.port))
            c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            return c
        with socket.socket() as listener, contextlib.ExitStack() as at_end:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # also of what it accepts, so that it is full soon
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            s = at_end.enter_context(Server("--device", "emu", "-np", "2", "--spec-type", "none", "--no-access-log",
                                            "--slot-save-path", rig.FOLDER, env={"AERIE_EMU_LOSE": "1500"}, listener=listener))
            long = ask_slowly("/tokenize", {"content": "words " * 5000, "with_pieces": True})
            c = ask_slowly("/v1/completions", {**text, "max_tokens": 300, "stream": True, "logprobs": 20})
            stream = c.getresponse()
            while n < 10:
                n += b"choices" in stream.readline()
            self.assertEqual(s.post("/v1/completions", {**text, "max_tokens": 37}).status, 200)  # some 1370 launches
            rest = [line for line in stream.read().split(b"\n") if line]
            self.assertGreater(len(rest), 15)
            self.assertIn(b"the device was lost at launch 1500", rest[-1])
            c.close()
            answer = json.loads(long.getresponse().read())
            self.assertEqual(answer["count"], len(answer["tokens"]))
            self.assertGreater(answer["count"], 4000)
            long.close()
            saved = s.post("/slots/0?action=save", {"filename": "slot"})
            self.assertEqual(saved.status, 200, saved.body)
            broken = s.post("/v1/completions", {**text, "max_tokens": 60, "stream": True})
            self.assertIn("the device was lost at launch 1500", str(broken.events[-1]))
            empty = s.post("/slots/0?action=save", {"filename": "slot"})  # asked at once, so it waits for the device
            self.assertEqual(empty.status, 500, empty.body)
            self.assertIn("slot 0 has nothing to save: the device of the model was lost", empty.error)
            restored = s.post("/slots/0?action=restore", {"filename": "slot"})
            self.assertEqual(restored.status, 200, restored.body)
            self.assertEqual(restored.json["n_restored"], saved.json["n_saved"] - 1)
            self.assertEqual(s.post("/slots/0?action=erase", None).status, 200)

    def test_failures_without_a_loss(self):
        """A request whose own passes fail gets an error, and the model, whose device works, is not loaded again."""
        with Server("--device", "emu", "-np", "1", "--no-access-log", env={"AERIE_EMU_FAIL": "1-3:launch"}) as s:
            failed = ask(s, 1)
            self.assertEqual(failed.status, 500, failed.body)
            self.assertIn("call 3, launch, failed", failed.error)
            self.assertEqual(ask(s, 1).status, 200)
            self.assertNotIn("the model is loaded again", s.log)

    def test_a_model_that_was_replaced(self):
        """The tokens of a request are not those of another model."""
        path = os.path.join(rig.FOLDER, "replaced.gguf")
        shutil.copy(os.path.join(rig.FOLDER, "m.gguf"), path)
        rig.make_model("other.gguf", "--seed", "2")
        with Server("--device", "emu", "--no-access-log", model="replaced.gguf", env={"AERIE_EMU_LOSE": "300"}) as s:
            os.replace(os.path.join(rig.FOLDER, "other.gguf"), path)
            answers = [ask(s, 1), ask(s, 2)]  # the device outlives one of them
            self.assertEqual([a.status for a in answers], [200, 500])
            self.assertIn("the file of 'replaced' was replaced", answers[1].error)
            self.assertEqual(ask(s, 3).status, 200)

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
        model is loaded in between. It does not wait for a reader of what it tells systemd."""
        watchdog = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        watchdog.bind(os.path.join(rig.FOLDER, "notify"))
        watchdog.setblocking(False)

        def heard():
            said = []
            with contextlib.suppress(BlockingIOError):
                while True:
                    said.append(watchdog.recv(100))
            return said
        with Server("--device", "emu", "-np", "1", "--no-access-log", "--stuck-after", "1",
                    env={"AERIE_EMU_LOSE": "1", "NOTIFY_SOCKET": watchdog.getsockname(), "WATCHDOG_USEC": "3000"}) as s:
            s.wait_until(lambda: b"WATCHDOG=1" in heard())
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other, contextlib.suppress(BlockingIOError):
                other.setblocking(False)
                while True:
                    other.sendto(b"no room is left", watchdog.getsockname())
            body = {"model": "m", "prompt": "a", "stream": False, "keep_alive": 0}  # it is idle, and is not unloaded for that
            self.rests(lambda: s.post("/api/generate", body))
            self.assertEqual(s.get("/health").json["status"], "device lost")
            s.wait_until(lambda: s.get("/health").status == 200)
            heard()
            time.sleep(1)  # on a slow machine this sees less
            self.assertNotIn(b"WATCHDOG=1", heard())
            self.rests(lambda: ask(s, 1))
            self.assertEqual(s.logged("so the model is loaded again"), 3)
        watchdog.close()

    def rests(self, asks):
        answers = [asks()]
        while answers[-1].status == 500:
            self.assertLess(len(answers), 20)
            self.assertIn("the device was lost at launch 1", answers[-1].error)
            answers.append(asks())
        self.assertEqual(answers[-1].status, 503)
        self.assertRegex(answers[-1].error, r"was lost [45] times without an answer in between; .* again in \d+ s")
        self.assertIn(int(answers[-1].headers["Retry-After"]), range(1, 16))

    def test_an_embedder_on_a_lost_device(self):
        """As with answers: the requests are answered by the device that is opened again, with the same vectors."""
        def embed(s):
            return s.post("/v1/embeddings", {"input": ["one text", "another"]})
        with Server("--device", "emu", "-np", "1", "--no-access-log", env={"AERIE_EMU_LOSE": "1000"}) as s:
            first = embed(s).json["data"]  # the device outlives some 27
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                for a in pool.map(lambda _: embed(s), range(40)):
                    self.assertEqual((a.status, a.json.get("data")), (200, first), a.body)
            self.assertGreater(s.logged("so the model is loaded again"), 0)
        self.assertEqual(s.stop(), 0)

    def test_pictures_on_a_lost_device(self):
        """They are read again where reading them failed, whether the device was lost or not."""
        check_vision.setUpModule()
        options = ("-np", "1", "--no-access-log", "--mmproj", check_vision.at("eye.gguf"))

        def see(s, i):
            content = [check_vision.part(check_vision.png(i)), {"type": "text", "text": "What?"}]
            return s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], "max_tokens": 2,
                                                   "temperature": 0})
        with Server(*options, model="v.gguf") as s:
            wanted = [see(s, i).json["choices"] for i in range(4)]
        with Server("--device", "emu", *options, model="v.gguf",
                    env={"AERIE_EMU_FAIL": "1:launch", "AERIE_EMU_LOSE": "260"}) as s:
            for i in range(4):
                a = see(s, i)
                self.assertEqual((a.status, a.json.get("choices")), (200, wanted[i]), a.body)
            self.assertGreater(s.logged("so the model is loaded again"), 0)

    def test_decisions_on_a_lost_device(self):
        """Likewise."""
        path = os.path.join(rig.FOLDER, "modern-bert-decides.gguf")
        subprocess.run([os.path.join(os.path.dirname(rig.MKMODEL), "mkarch"), "modern-bert-decides", path], check=True)
        with Server("--device", "emu", "-np", "1", "--no-access-log", "--override-kv",
                    "tokenizer.chat_template.systemone=str:" + check_decide.OWN, model="modern-bert-decides.gguf",
                    env={"AERIE_EMU_LOSE": "500"}) as s:
            questions = {"angry": check_decide.QUESTIONS["angry"]}
            first = check_decide.ask(s, questions)
            self.assertEqual(first.status, 200, first.body)
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                for a in pool.map(lambda _: check_decide.ask(s, questions), range(20)):
                    self.assertEqual((a.status, a.json.get("answers")), (200, first.json["answers"]), a.body)
            self.assertGreater(s.logged("so the model is loaded again"), 0)
        self.assertEqual(s.stop(), 0)

    def test_a_device_that_hangs_is_given_up(self):
        """The requests that wait for it are answered when the limit is over, later ones at once."""
        with Server("--device", "emu", "-np", "4", "--no-access-log",
                    env={"AERIE_EMU_HANG": "90", "AERIE_GPU_LIMIT": "0.5"}) as s:
            for a in [*ask_all(s, 4), ask(s, 7)]:
                self.assertIn(a.status, (500, 503), a.body)
                self.assertRegex(a.error, "the device made no progress for 0.5 s and is given up|was lost . times without")
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
