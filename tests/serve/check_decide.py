"""Decision models behind the server: /v1/systemone with both kinds of heads, the same answers however they are computed, what
belongs to which span, and what is refused."""
import base64
import json
import math
import os
import random
import struct
import subprocess
import unittest
import zlib

import rig
from rig import Server

JSON = "{% macro text(v) %}{{ v if v is string else v | tojson(separators=[',', ':']) }}{% endmacro %}"
JOINT = JSON + ("S {% if images %}{{ sep }}{% for image in images %}{{ image }}{% endfor %}\n{% endif %}"
                "{{ sep }}{{ text(state) }}{% for q in questions %}{{ sep }}\nFIELD {{ loop.index }} {{ q.id }} {{ q.type }} "
                "{{ sep }}{{ mark_question }}{{ text(q.instructions) }}{% for o in q.options %}{{ sep }}\n{{ loop.index }}: "
                "{{ sep }}{{ mark_option }}{{ {'d': o.description, 'id': o.key} | tojson(separators=[',', ':']) }}"
                "{% endfor %}{{ sep }} END{% endfor %}{{ sep }}DECISIONS:")
# the tiny vocabulary's control tokens are the first, the mask and the separator
OWN = JSON + ("<|endoftext|>{{ type }}: {{ text(instructions) }}<|im_end|>{% for o in options %}<|im_start|> {{ o.key }}"
              "{% if o.description %}: {{ text(o.description) }}{% endif %}{% endfor %}<|im_end|>{{ text(state) }}<|im_end|>")
# language models whose answer is a label; the tiny vocabulary's tokens of letters are bytes
LETTERS = JSON + ("{% set letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz' %}"
                  "{% for i in images %}{{ i }}{% endfor %}{{ text(state) }} {{ type }} "
                  "{{ text(instructions) }}{% for o in options %} [{{ letters[loop.index0] }}] "
                  "{{ o.key }}{% if o.description %}: {{ text(o.description) }}{% endif %}{% endfor %} A:")
CODES = JSON + ("{{ text(state) }} {{ text(instructions) }}{% for q in questions or [] %} {{ q.id }}/{{ q.type }}{% endfor %}"
                "{% for o in options %} {{ o.label }}. {{ o.key }}{% endfor %} A:")
STATE = "I was charged twice."
QUESTIONS = {
    "route": {"type": "choice", "instructions": "Which team?",
              "criteria": {"shipping": None, "billing": "payments and refunds", "technical": {"b": 1, "a": [2]}}},
    "urgency": {"type": "score", "instructions": ["How", "urgent?"], "criteria": ["can wait", "this week", "today", "now"]},
    "angry": {"type": "noul", "instructions": "Is the customer angry?"},
    "refund": {"type": "noul", "instructions": "x", "criteria": {"true": "asked", "false": "not asked"}},
}
FILES = {"clef": JOINT, "modern-bert-decides": OWN}


def server(name, *more, template=None):
    text = FILES[name] if template is None else template
    return Server("--override-kv", "tokenizer.chat_template.systemone=str:" + text, "-c", "2048", *more, model=name + ".gguf")


def picture(seed, w=60, h=40):
    """A PNG of random pixels as a data: URL."""
    rng = random.Random(seed)
    rows = b"".join(b"\0" + rng.randbytes(3 * w) for _ in range(h))
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    data = b"\x89PNG\r\n\x1a\n" + b"".join(struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d))
                                            for n, d in chunks)
    return "data:image/png;base64," + base64.b64encode(data).decode()


def ask(s, questions=None, **fields):
    return s.post("/v1/systemone", {"state": STATE, "questions": QUESTIONS if questions is None else questions, **fields})


class Decide(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        mkarch = os.path.join(os.path.dirname(rig.MKMODEL), "mkarch")
        for name in FILES:
            subprocess.run([mkarch, name, os.path.join(rig.FOLDER, name + ".gguf")], check=True)

    def check_answers(self, answers):
        self.assertEqual(list(answers), list(QUESTIONS))
        route, urgency = answers["route"], answers["urgency"]
        self.assertEqual(set(route["probabilities"]), set(QUESTIONS["route"]["criteria"]))
        self.assertAlmostEqual(sum(route["probabilities"].values()), 1, 7)
        best = max(route["probabilities"].values())
        self.assertEqual(route["probabilities"][route["choice"]], best)
        self.assertAlmostEqual(route["confidence"], (best - 1 / 3) / (1 - 1 / 3), 7)
        p = list(urgency["probabilities"].values())
        self.assertEqual(list(urgency["probabilities"]), ["0", "1", "2", "3"])
        self.assertEqual(urgency["legend"], dict(zip("0123", QUESTIONS["urgency"]["criteria"])))
        self.assertAlmostEqual(urgency["score"], sum(i * x for i, x in enumerate(p)), 7)
        mode = p.index(max(p))
        self.assertAlmostEqual(urgency["confidence"], max(0, 1 - sum(x * abs(i - mode) for i, x in enumerate(p))), 7)
        for name in ("angry", "refund"):
            self.assertEqual(set(answers[name]), {"type", "noul"})
            self.assertTrue(0 < answers[name]["noul"] < 1)

    def test_answers(self):
        for name in FILES:
            bodies = []
            for more in ((), ("-t", "1", "-b", "5"), ("--cpu", "ref", "-t", "3")):
                with self.subTest(name, more=more), server(name, *more) as s:
                    a = ask(s)
                    self.assertEqual(a.status, 200, a.body)
                    self.assertEqual(a.json["usage"]["output_tokens"], 0)
                    self.check_answers(a.json["answers"])
                    self.assertEqual(ask(s).body, a.body)
                    bodies.append(a.body)
                    self.assertEqual(s.get("/v1/models").json["data"][0]["architecture"]["output_modalities"], ["decisions"])
            self.assertEqual(len(set(bodies)), 1, name)

    def test_prompt(self):
        """The pieces of a joint prompt are tokenized one by one; keys are sorted, and the options of a choice, too."""
        with server("clef") as s:
            question = {"type": "choice", "instructions": {"z": 1, "a": "é"}, "criteria": {"b": None, "a": {"d": 1, "c": 2}}}
            a = ask(s, {"q": question}, state={"y": [1.5, None], "x": "<<clef:sep>>"})
            self.assertEqual(a.status, 200, a.body)
            pieces = ["S ", '{"x":"<<clef sep>>","y":[1.5,null]}', "\nFIELD 1 q choice ", '{"a":"é","z":1}', "\n1: ",
                      '{"d":{"c":2,"d":1},"id":"a"}', "\n2: ", '{"d":null,"id":"b"}', " END", "DECISIONS:"]
            n = [s.post("/tokenize", {"content": piece}).json["count"] for piece in pieces]
            self.assertEqual(a.json["usage"]["input_tokens"], sum(n))
            self.assertEqual(list(a.json["answers"]["q"]["probabilities"]), ["a", "b"])
            # questions are decided together
            alone = ask(s, {"angry": QUESTIONS["angry"]}).json["answers"]["angry"]
            self.assertNotEqual(alone, ask(s).json["answers"]["angry"])

    def test_a_template_without_text_between_options(self):
        template = JOINT.replace("{{ sep }}\n{{ loop.index }}: {{ sep }}{{ mark_option }}", "{{ sep }}{{ mark_option }}")
        self.assertNotEqual(template, JOINT)
        with server("clef", template=template) as s:
            a = ask(s)
            self.assertEqual(a.status, 501, a.body)
            self.assertIn("without a text between them", a.json["error"]["message"])

    def test_temperature(self):
        """Of the file: for 3 to 5 options 0.75, for a choice of others 1.5, and 1 for what has none."""
        three = {"q": {"type": "choice", "instructions": "x", "criteria": {"a": None, "b": None, "c": None}}}
        with server("clef") as s, server("clef", "--override-kv", "clef.decision.temperature.choice.3_5=float:1.5") as warm:
            cold = ask(s, three).json["answers"]["q"]["probabilities"]
            flat = ask(warm, three).json["answers"]["q"]["probabilities"]
            power = {k: p ** 0.5 for k, p in cold.items()}
            for k in cold:
                self.assertAlmostEqual(flat[k], power[k] / sum(power.values()), 6)
            self.assertEqual(ask(s).json["answers"]["angry"], ask(warm).json["answers"]["angry"])

    def test_own_prompts(self):
        """A question's answer does not depend on other questions; long parts are cut to 40 tokens, the state is not."""
        with server("modern-bert-decides") as s:
            whole = ask(s).json
            n = 0
            for name in QUESTIONS:
                one = ask(s, {name: QUESTIONS[name]}).json
                self.assertEqual(one["answers"][name], whole["answers"][name])
                n += one["usage"]["input_tokens"]
            self.assertEqual(n, whole["usage"]["input_tokens"])
            long = {"q": {"type": "noul", "instructions": "y" * 200, "criteria": {"true": "a" * 99, "false": "b" * 99}}}
            a = ask(s, long, state="zz").json
            state = s.post("/tokenize", {"content": "zz"}).json["count"]
            # first, question, separator, two options, separator, state, separator
            self.assertEqual(a["usage"]["input_tokens"], 1 + (40 - 2 * 12) + 1 + 2 * 12 + 1 + state + 1)
            longer = ask(s, {"q": {**long["q"], "instructions": "y" * 250}}, state="zz").json
            self.assertEqual(a, longer)
            mark = ask(s, state="a<|im_start|>b").json  # the mark of an option in the request is none
            self.assertEqual(mark, ask(s, state="a b").json)

    def test_images(self):
        """They come before the state, from "images" or out of messages, and their pixels matter."""
        eye = os.path.join(rig.FOLDER, "eye.gguf")
        subprocess.run([os.path.join(os.path.dirname(rig.MKMODEL), "mkarch"), "mmproj-qwen35:64", eye], check=True)
        one, other = picture(1), picture(2, 40, 90)
        say = {"type": "text", "text": "hi <__media__>"} # what other programs take for a mark is text

        def turn(*content):
            return {"role": "user", "content": list(content)}

        def shown(url, wrapped=True):
            return {"type": "image_url", "image_url": {"url": url} if wrapped else url}

        bodies = set()
        for more in ((), ("-t", "1", "-b", "5"), ("--cpu", "ref", "-t", "3")):
            with self.subTest(more=more), server("clef", "--mmproj", eye, *more) as s:
                a = ask(s, images=[one, other], state=[turn(say), "x"])
                self.assertEqual(a.status, 200, a.body)
                bodies.add(a.body)
                if more:
                    continue
                self.check_answers(a.json["answers"])
                self.assertEqual(ask(s, state=[turn(shown(one), say, shown(other, False)), "x"]).body, a.body)
                self.assertEqual(ask(s, images=[one], state=[turn(say, shown(other)), "x"]).body, a.body)
                inside = ask(s, images=[one, other], state={"messages": [turn(say)], "id": 7})
                self.assertEqual(ask(s, state={"messages": [turn(say, shown(one), shown(other))], "id": 7}).body, inside.body)
                seen = {json.dumps(ask(s, state=[turn(say), "x"], **f).json["answers"]) for f in (
                    {}, {"images": None}, {"images": [one]}, {"images": [other]}, {"images": [other, one]},
                    {"images": [one, other]})}
                self.assertEqual(len(seen), 5) # the first two are the same
                text = ask(s, state=[turn(say), "x"]).json["usage"]["input_tokens"]
                rows = [ask(s, images=i, state=[turn(say), "x"]).json["usage"]["input_tokens"] - text
                        for i in ([one], [other], [one, other])]
                self.assertTrue(min(rows) > 2)
                self.assertEqual(s.get("/v1/models").json["data"][0]["architecture"]["input_modalities"], ["text", "image"])
        self.assertEqual(len(bodies), 1)
        with server("clef", "--mmproj", eye, "--max-images", "2") as s:
            for fields, word, field in (({"images": [one] * 3}, "--max-images", "images"),
                                        ({"images": [one, 5]}, "images[1]", "images"),
                                        ({"images": ["https://example.org/a.png"]}, "data: URL", "images"),
                                        ({"images": ["data:image/png;base64,AAAA"]}, "images[0]", "images"),
                                        ({"images": one}, "list", "images"),
                                        ({"state": [1, turn(shown("data:,"))]}, "state[1].content[0]", "state")):
                a = ask(s, **fields)
                self.assertEqual(a.status, 400, (fields, a.body))
                self.assertIn(word, a.error)
                self.assertEqual(a.json["error"]["param"], field)
            self.assertEqual(ask(s, images=[one]).status, 200)
        for template, status in ((JOINT.replace("{{ image }}", ""), 501),
                                 (JOINT.replace("{{ image }}", "{{ image }}" * 2), 500),
                                 (JOINT.replace("S {% if", "{{ mark_question }}{% if"), 500)):
            with server("clef", "--mmproj", eye, template=template) as s:
                self.assertEqual(ask(s, images=[one]).status, status, template)
        with server("modern-bert-decides", "--mmproj", eye) as s:
            self.assertTrue(s.logged("--mmproj has no effect"), s.log)
            self.assertIn("not about images", ask(s, images=[one]).error)

    def labelled(self, kind, template, *more):
        if not os.path.exists(os.path.join(rig.FOLDER, "qwen35.gguf")):
            tool = os.path.join(os.path.dirname(rig.MKMODEL), "mkarch")
            subprocess.run([tool, "qwen35", os.path.join(rig.FOLDER, "qwen35.gguf")], check=True)
        return Server("--override-kv", "tokenizer.chat_template.systemone=str:" + template, "--override-kv",
                      "qwen35.decision.type=str:" + kind, "-c", "2048", *more, model="qwen35.gguf")

    def token_probabilities(self, s, prompt, n):
        """The softmax over labels A, B, ... after a prompt, from log-probabilities of the whole vocabulary."""
        logs = []
        for i in range(n):
            a = s.post("/v1/completions", {"prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": 1,
                                           "grammar": f'root ::= "{chr(65 + i)}"'}).json["choices"][0]
            self.assertEqual(a["text"], chr(65 + i))
            logs.append(a["logprobs"]["token_logprobs"][0])
        p = [math.exp(x - max(logs)) for x in logs]
        return [x / sum(p) for x in p]

    def test_labels(self):
        """The probabilities are those of the labels as the next token of the prompt."""
        one = {"q": {"type": "choice", "instructions": "Which?", "criteria": {"b": "x", "a": None, "c": [1]}}}
        yes = {"q": {"type": "noul", "instructions": "Is it?"}}
        with self.labelled("openjev", LETTERS) as s:
            self.check_answers(ask(s).json["answers"])
            prompt = STATE + " choice Which? [A] b: x [B] a [C] c: [1] A:"
            a = ask(s, one).json
            for got, wanted in zip(a["answers"]["q"]["probabilities"].values(), self.token_probabilities(s, prompt, 3)):
                self.assertAlmostEqual(got, wanted, 6)
            self.assertEqual(a["usage"]["input_tokens"], s.post("/tokenize", {"content": prompt}).json["count"])
            p = self.token_probabilities(s, STATE + " noul Is it? [A] true [B] false A:", 2)
            self.assertAlmostEqual(ask(s, yes).json["answers"]["q"]["noul"], p[0], 6)
            self.assertEqual(ask(s, {"q": {**one["q"], "criteria": {str(i): None for i in range(52)}}}).status, 200)
            a = ask(s, {"q": {**one["q"], "criteria": {str(i): None for i in range(53)}}})
            self.assertEqual((a.status, "at most 52" in a.error), (400, True), a.body)
            self.assertEqual(s.get("/v1/models").json["data"][0]["architecture"]["output_modalities"], ["text", "decisions"])
            self.assertIn("mmproj", ask(s, images=[picture(1)]).error)
        with self.labelled("lev", CODES, "--override-kv", "qwen35.decision.temperature.choice.small=float:2") as s:
            p = self.token_probabilities(s, STATE + " Which? A. b B. a C. c A:", 3)
            back = self.token_probabilities(s, STATE + " Which? A. c B. a C. b A:", 3)[::-1]
            root = [[x ** 0.5 for x in k] for k in (p, back)] # the temperature is 2
            got = list(ask(s, one).json["answers"]["q"]["probabilities"].values())
            for i in range(3):
                self.assertAlmostEqual(got[i], sum(k[i] / sum(k) for k in root) / 2, 6)
            p = self.token_probabilities(s, STATE + " Is it? A. false B. true A:", 9)
            self.assertAlmostEqual(ask(s, yes).json["answers"]["q"]["noul"], sum(i * x for i, x in enumerate(p)) / 8, 6)
            a = ask(s, {"q": {**one["q"], "criteria": {str(i): None for i in range(27)}}})
            self.assertEqual((a.status, "at most 26" in a.error), (400, True), a.body)
            self.assertIn("not about images", ask(s, images=[picture(1)]).error)
        with self.labelled("nimble", CODES) as s:
            both = ask(s, {**one, "r": yes["q"]}).json["answers"]["q"]
            p = self.token_probabilities(s, STATE + " Which? q/choice r/noul A. b B. a C. c A:", 3)
            for got, wanted in zip(both["probabilities"].values(), p):
                self.assertAlmostEqual(got, wanted, 6)
        eye = os.path.join(rig.FOLDER, "eye.gguf")
        subprocess.run([os.path.join(os.path.dirname(rig.MKMODEL), "mkarch"), "mmproj-qwen35:64", eye], check=True)
        bodies = set()
        for more in ((), ("-t", "1", "-b", "7"), ("--cpu", "ref")):
            with self.labelled("openjev", LETTERS, "--mmproj", eye, *more) as s:
                a = ask(s, images=[picture(1), picture(2)])
                self.assertEqual(a.status, 200, a.body)
                self.check_answers(a.json["answers"])
                self.assertNotEqual(ask(s, images=[picture(2), picture(1)]).body, a.body)
                bodies.add(a.body)
        self.assertEqual(len(bodies), 1)
        with self.labelled("kev", LETTERS) as s:
            a = ask(s)
            self.assertEqual((a.status, "no decision model" in a.error), (501, True), a.body)

    def test_refusals(self):
        q = {"type": "noul", "instructions": "x"}
        wrong = [({"state": None}, "state"), ({"questions": {}}, "questions"), ({"questions": []}, "questions"),
                 ({"questions": {"q": 1}}, "object"), ({"questions": {"q": {**q, "type": "unknown"}}}, "choice, score or noul"),
                 ({"questions": {"q": {"type": "noul"}}}, "instructions"),
                 ({"questions": {"q": {**q, "criteria": []}}}, "criteria"),
                 ({"questions": {"q": {**q, "type": "choice"}}}, "criteria"),
                 ({"questions": {"q": {**q, "type": "choice", "criteria": {}}}}, "criteria"),
                 ({"questions": {"q": {**q, "type": "choice", "criteria": {str(i): None for i in range(256)}}}}, "at most 255"),
                 ({"questions": {"q": {**q, "type": "score", "criteria": ["one"]}}}, "2 to 10"),
                 ({"questions": {"q": {**q, "type": "score", "criteria": ["x"] * 11}}}, "2 to 10"),
                 ({"questions": {str(i): q for i in range(257)}}, "at most 256"),
                 ({"videos": ["x"]}, "videos"), ({"state": "x" * 3000}, "tokens")]
        for name in FILES:
            with self.subTest(name), server(name) as s:
                for fields, word in wrong:
                    a = ask(s, **fields)
                    self.assertEqual(a.status, 400, (fields, a.body))
                    self.assertIn(word, a.error)
                shown = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
                self.assertEqual(ask(s, images=["data:image/png;base64,"]).status, 501)
                self.assertEqual(ask(s, state=[{"role": "user", "content": [shown]}]).status, 501)
                a = s.post("/v1/completions", {"prompt": "a"})
                self.assertEqual(a.status, 400)
                self.assertIn("/v1/systemone", a.error)
                self.assertEqual(ask(s).status, 200)
        with server("clef") as s:
            self.assertIn("must not be empty", ask(s, {"q": {**q, "instructions": ""}}).error)
        for template in ("{{ sep }}{{ mark_option }}x", "{{ mark_question }}a{{ sep }}{{ mark_question }}b", "plain"):
            with server("clef", template=template) as s:
                self.assertEqual(ask(s).status, 500, template)
        with Server(model="clef.gguf") as s:
            a = ask(s)
            self.assertEqual(a.status, 501, a.body)
            self.assertIn("systemone", a.error)


if __name__ == "__main__":
    rig.main("__main__")
