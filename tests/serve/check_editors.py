"""The first requests of editors and agents (docs/editors.md), as files in tests/serve/clients say: each is answered as its
client expects. They are written from the clients' sources and documents; texts are shortened."""
import glob
import json
import os
import unittest

import rig
from rig import Server

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "clients")


def events(answer):
    return [(dict(x.split(": ", 1) for x in block.split("\n") if ": " in x and not x.startswith(":")))
            for block in answer.body.decode().split("\n\n") if block.strip() and not block.startswith(":")]


class Editors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        rig.make_model("tags.gguf", "--vocab-kind", "bpe-tags", "--vocab", "330")
        cls.s = Server("-np", "2", "-c", "16384", "-n", "200", "--chat-template-file", rig.template("tools"), model="tags.gguf")

    @classmethod
    def tearDownClass(cls):
        assert cls.s.stop() == 0, cls.s.log

    def check_stream(self, path, a):
        """It ends as its dialect says."""
        if path.startswith("/api/"):
            lines = [json.loads(x) for x in a.body.splitlines()]
            self.assertEqual([x["done"] for x in lines], [False] * (len(lines) - 1) + [True])
            return
        found = events(a)
        if path.startswith("/v1/messages"):
            self.assertEqual((found[0]["event"], found[-1]["event"]), ("message_start", "message_stop"))
        elif path.startswith("/v1/responses"):
            self.assertEqual(found[0]["event"], "response.created")
            self.assertIn(found[-1]["event"], ("response.completed", "response.incomplete"))
            last = json.loads(found[-1]["data"])["response"]
            self.assertEqual([json.loads(e["data"])["item"]["id"] for e in found if e["event"] == "response.output_item.done"],
                             [item["id"] for item in last["output"]])
        elif path == "/completion":
            self.assertTrue(json.loads(found[-1]["data"])["stop"])
        else:
            self.assertEqual(found[-1]["data"], "[DONE]")
            finish = [c["finish_reason"] for e in found[:-1] for c in json.loads(e["data"])["choices"]]
            self.assertIn(finish[-1], ("stop", "length", "tool_calls"))

    def replay(self, name):
        with open(os.path.join(FOLDER, name + ".json")) as f:
            for request in json.load(f)["requests"]:
                body = request.get("body")
                a = self.s.call(request["method"], request["path"], body, request.get("headers"))
                self.assertEqual(a.status, request.get("status", 200), (request["path"], a.body))
                if a.status != 200:
                    continue
                streams = body is not None and body.get("stream", request["path"] in ("/api/chat", "/api/generate"))
                if streams:
                    self.check_stream(request["path"], a)
                else:
                    a.json
                if request.get("json") and streams:
                    text = "".join(json.loads(e["data"])["delta"].get("text", "") for e in events(a)
                                   if e["event"] == "content_block_delta")
                    self.assertEqual(list(json.loads(text)), ["title"])


def add(name):
    setattr(Editors, "test_" + name.replace("-", "_"), lambda self: self.replay(name))


for file in sorted(glob.glob(os.path.join(FOLDER, "*.json"))):
    add(os.path.splitext(os.path.basename(file))[0])


if __name__ == "__main__":
    rig.main("__main__")
