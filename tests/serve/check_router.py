"""`aerie router`: repeatable answers, and servers that are lost, that answer wrongly, or that have another model."""
import http.server
import json
import os
import re
import signal
import socket
import threading
import time
import unittest

import rig
from rig import Server

REPEAT = {"Aerie-Repeat": "abcdefghijklmnopqrstuvwx 1764316000 77"}
LOOK = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {
    "type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}}}


class Router(Server):
    def __init__(self, servers, *options, wait=True, env=None):
        urls = [s if isinstance(s, str) else f"http://127.0.0.1:{s.port}" for s in servers]
        self.run([rig.AERIE, "router", *urls, "--port", "0", *options], wait, env)

    def metric(self, name, server=None, headers=None):
        labels = r'\{server="%s"\}' % re.escape(f"http://127.0.0.1:{server.port}") if server else ""
        text = self.get("/metrics", headers).body.decode()
        return int(re.search(rf"^aerie_router_{name}{labels} (\d+)$", text, re.M).group(1))

    def wait_for(self, up):
        """Waits until this many servers are up."""
        end = time.monotonic() + rig.patience(60)
        while self.get("/health").json["servers_up"] != up:
            assert time.monotonic() < end, self.log
            time.sleep(0.02)


class Liar:
    """A server that claims to have the same model, and treats requests as the test says."""
    def __init__(self, models, answer):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def reply(self, status, kind, body):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                self.reply(200, "application/json", b"{}" if self.path == "/health" else models)

            def do_POST(self):
                self.body = self.rfile.read(int(self.headers["Content-Length"]))
                answer(self)

            def log_message(self, *_):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def hang_up(handler):
    """Some bytes of a stream, and then no more."""
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"a\r\ndata: {}\n\n\r\n")
    handler.wfile.flush()
    time.sleep(0.3)  # the router gives them on
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def long_ask(i, n=rig.many(3000), **fields):
    return {"prompt": f"number {i}", "max_tokens": n, "temperature": 1, "seed": i, "ignore_eos": True, "stream": True, **fields}


def texts(answer):
    """The text of a stream of /v1/completions, which must be complete."""
    assert answer.status == 200, answer.body
    events = answer.events
    assert events and events[-1] == "[DONE]", answer.body[-300:]
    return "".join(e["choices"][0]["text"] for e in events[:-1])


def all_of(router, n, chaos=None, begun=lambda: True):
    """n streams at once; chaos() while they run."""
    out = [None] * n

    def ask(i):
        out[i] = texts(router.post("/v1/completions", long_ask(i)))
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    if chaos:
        end = time.monotonic() + rig.patience(60)
        while not begun() and time.monotonic() < end:
            time.sleep(0.01)
        chaos()
    for t in threads:
        t.join()
    return out


BIG = ("-np", "8", "-c", "32768", "-t", "1", "--max-queue", "64")


def drafts(server):
    """How many drafted tokens a server has accepted."""
    told = server.get("/metrics").body.decode()
    return int(re.search(r"^vllm:spec_decode_num_accepted_tokens_total\S* (\d+)", told, re.M).group(1))


class Expected(unittest.TestCase):
    def test_what_is_expected_is_drafted_and_changes_no_byte(self):
        ask = {"prompt": "x", "max_tokens": 200, "temperature": 1, "seed": 3, "ignore_eos": True}
        with Server("-np", "2", "--spec-type", "ngram", "--spec-fixed", "-t", "1") as s:
            plain = s.post("/v1/completions", ask).json["choices"][0]["text"]
            alone = drafts(s)
        for field, text in (("aerie_expected", plain), ("prediction", {"type": "content", "content": plain}),
                            ("aerie_expected", plain[:50] + "no" * 300 + plain[60:])):
            with Server("-np", "2", "--spec-type", "ngram", "--spec-fixed", "-t", "1") as s:
                got = s.post("/v1/completions", {**ask, field: text}).json["choices"][0]["text"]
                self.assertEqual(got, plain)
                self.assertGreater(drafts(s), alone + 5, field)
                for bad in (7, [], {}, True, "a\0b", "x" * ((1 << 20) + 1)):
                    self.assertEqual(s.post("/v1/completions", {**ask, "aerie_expected": bad}).status, 400, str(bad)[:20])
                for fine in (None, "", "\ud83d", "<|im_end|>" * 9):
                    got = s.post("/v1/completions", {**ask, "aerie_expected": fine})
                    self.assertEqual(got.json["choices"][0]["text"], plain)
                for hint in (7, "x", {"content": 7}, {"content": [1]}, []):  # a hint of OpenAI's is no reason to refuse
                    self.assertEqual(s.post("/v1/completions", {**ask, "prediction": hint}).status, 200, hint)

    def test_a_replay_hands_over_what_the_client_has(self):
        bodies = []

        def note(handler):
            bodies.append(json.loads(handler.body))
            handler.reply(503, "application/json", b"{}")
        ask = {**long_ask(1, 6000), "prompt": 'a "quoted" prompt'}
        a = Server("-np", "2", "-c", "8192", "-t", "1")
        with Liar(a.get("/v1/models").body, note) as b, Router([a, b], "--wait", "3") as router:
            connection = router.connect()
            connection.request("POST", "/v1/completions", json.dumps(ask), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            had = answer.read(50000)
            a.stop(signal.SIGKILL)
            had += answer.read()
            connection.close()
        events = [e for e in rig.Answer(200, {}, had).events if e != "[DONE]" and "choices" in e]
        text = "".join(e["choices"][0]["text"] for e in events)
        expected = bodies[-1].pop("aerie_expected")
        self.assertEqual(bodies[-1], ask)
        self.assertGreater(len(expected), 20)
        self.assertEqual(expected, text)


class Repeatable(unittest.TestCase):
    def test_every_dialect_gives_the_same_bytes_on_other_servers(self):
        message = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 12, "temperature": 1}
        asks = [("/v1/chat/completions", {**message, "stream_options": {"include_usage": True}, "n": 2, "logprobs": True}),
                ("/v1/chat/completions", {**message, "tools": [LOOK], "tool_choice": "required"}),
                ("/v1/completions", {"prompt": "x", "max_tokens": 12, "return_origins": True}),
                ("/completion", {"prompt": "x", "n_predict": 12, "timings_per_token": True}),
                ("/v1/messages", message), ("/v1/responses", {"input": "hello", "max_output_tokens": 12}),
                ("/api/chat", {"messages": message["messages"], "options": {"num_predict": 12}}),
                ("/api/generate", {"prompt": "x", "options": {"num_predict": 12}})]
        with Server("-np", "1", "--spec-type", "none", "-t", "1") as a, Server("-np", "4") as b:
            for path, body in asks:
                for stream in (False, True):
                    seen = {s.post(path, {**body, "stream": stream}, REPEAT).body for s in (a, b, b)}
                    self.assertEqual(len(seen), 1, (path, stream, seen))
            plain = [a.post(*asks[0]).body for _ in range(2)]  # without the header the seed is another one each time
            self.assertNotEqual(*plain)
            got = a.post(*asks[0], REPEAT)
            self.assertEqual((got.headers["X-Request-Id"], got.json["id"], got.json["created"]),
                             ("req_abcdefghijklmnopqrstuvwx", "chatcmpl-abcdefghijklmnopqrstuvwx", 1764316000))
            for bad in ("", "x 1 1", "abcdefghijklmnopqrstuvwx", "abcdefghijklmnopqrstuvwx 1", "abcdefghijklmnopqrstuvwx 1 ",
                        "abcdefghijklmnopqrstuvwx -1 1", "abcdefghijklmnopqrstuvwx 1 -1", "abcdefghijklmnopqrstuvwx 1 1 1",
                        "abcdefghijklmnopqrstuvw\" 1 1", "abcdefghijklmnopqrstuvwx 99999999999999999999 1"):
                self.assertEqual(a.post(*asks[0], {"Aerie-Repeat": bad}).status, 400, bad)


    def test_a_client_may_ask_for_it_through_a_router(self):
        body = {"prompt": "x", "max_tokens": 12, "temperature": 1}
        with Server() as a, Router([a]) as r:
            r.wait_for(1)
            for stream in (False, True):
                direct = a.post("/v1/completions", {**body, "stream": stream}, REPEAT).body
                self.assertEqual(r.post("/v1/completions", {**body, "stream": stream}, REPEAT).body, direct)


class Lost(unittest.TestCase):
    def test_streams_go_on_when_a_server_is_killed(self):
        with Server(*BIG) as a, Server(*BIG) as b, Router([a, b], "--canary", "0") as r:
            r.wait_for(2)
            quiet = all_of(r, 16)
            self.assertEqual(len(set(quiet)), 16)
            doomed = Server(*BIG)
            with Router([a, doomed], "--canary", "0") as r2:
                r2.wait_for(2)

                def busy():
                    return r2.metric("active_requests", doomed) >= 4
                self.assertEqual(all_of(r2, 16, lambda: (time.sleep(0.2), doomed.stop(signal.SIGKILL)), busy), quiet)
                self.assertGreater(r2.metric("replays_total"), 0)
                self.assertEqual(r2.metric("failed_total"), 0)
                r2.wait_for(1)

    def test_a_stopped_server_is_found(self):
        with Server(*BIG) as a, Server(*BIG) as b, Router([a, b], "--canary", "0", "--check-limit", "1") as r:
            r.wait_for(2)
            quiet = all_of(r, 8)

            def stop():
                b.process.send_signal(signal.SIGSTOP)
            try:
                self.assertEqual(all_of(r, 8, stop, lambda: r.metric("active_requests", b) >= 2), quiet)
            finally:
                b.process.send_signal(signal.SIGCONT)
            r.wait_for(2)

    def test_the_only_server_comes_back(self):
        port = socket.create_server(("127.0.0.1", 0))
        first = Server(*BIG, listener=port)
        with Router([first], "--canary", "0", "--wait", str(60 * rig.SLOW)) as r:
            r.wait_for(1)
            quiet = all_of(r, 4)
            again = []

            def restart():
                first.stop(signal.SIGKILL)
                again.append(Server(*BIG, listener=port))
            self.assertEqual(all_of(r, 4, restart, lambda: r.metric("active_requests", first) == 4), quiet)
        again[0].stop()
        port.close()

    def test_a_server_that_is_not_ready_is_waited_for(self):
        answers = []

        def loading(handler):
            answers.append(len(answers))
            body = b'{"error":{"message":"the model is being loaded"}}' if len(answers) < 3 else b'{"choices":[]}'
            handler.send_response(503 if len(answers) < 3 else 200)
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Content-Length", str(len(body)))
            if len(answers) < 3:
                handler.send_header("Aerie-Ready", "no")
            handler.end_headers()
            handler.wfile.write(body)
        with Server() as real:
            models = real.get("/v1/models").body
        for wait in ("60", "0"):
            answers.clear()
            with Liar(models, loading) as liar, Router([liar], "--wait", wait, wait=False) as r:
                r.wait_for(1)
                got = r.post("/v1/completions", {"prompt": "x"})
                self.assertEqual((got.status, len(answers)), (200, 3) if wait == "60" else (503, 1))

    def test_a_full_server_is_waited_for_after_a_loss(self):
        """It is no reason to end an answer that was accepted before."""
        asked = []

        def lost_then_full(handler):
            asked.append(1)
            if len(asked) == 1:
                handler.connection.shutdown(socket.SHUT_RDWR)
                handler.close_connection = True
            else:
                handler.reply(503 if len(asked) < 4 else 200, "application/json", b'{"error":{"message":"full"}}')
        with Server() as real:
            models = real.get("/v1/models").body
        with Liar(models, lost_then_full) as liar, Router([liar], "--wait", "60", "--canary", "0") as r:
            r.wait_for(1)
            self.assertEqual(r.post("/v1/completions", {"prompt": "x"}).status, 200)
            self.assertEqual(len(asked), 4)

    def test_without_a_server(self):
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            port = nobody.getsockname()[1]
        with Router([f"http://127.0.0.1:{port}"], "--wait", "0", wait=False) as r:
            self.assertEqual(r.get("/health").status, 503)
            got = r.post("/v1/completions", {"prompt": "x"})
            self.assertEqual((got.status, got.headers["Retry-After"]), (503, "2"))
            self.assertIn("no server is up", got.error)
            self.assertEqual(r.get("/v1/models").status, 503)
            self.assertTrue(r.logged("Couldn't connect"))

    def test_a_request_that_ends_servers_ends_too(self):
        with Server() as real:
            models = real.get("/v1/models").body
            with Liar(models, hang_up) as a, Router([a], "--replays", "2", "--wait", "30", wait=False) as r:
                r.wait_for(1)
                got = r.post("/v1/completions", long_ask(1))
                self.assertEqual(got.status, 200)
                self.assertEqual(got.body.count(b"data: {}\n\n"), 1)
                self.assertIn("--replays", got.events[-1]["error"]["message"])
                self.assertEqual(r.metric("replays_total"), 2)


    def test_one_answer_that_ends_takes_no_server_down(self):
        with Server() as real:
            models = real.get("/v1/models").body
            with Liar(models, hang_up) as liar, Router([liar], "--replays", "1", "--canary", "0") as r:
                r.wait_for(1)
                r.post("/v1/completions", long_ask(1))
                self.assertEqual(r.metric("losses_total", liar), 0)
                self.assertEqual(r.metric("server_up", liar), 1)

    def test_a_full_server_is_no_liar(self):
        def full(handler):
            handler.reply(503, "application/json", b'{"error":{"message":"full"}}')
        with Server() as real:
            models = real.get("/v1/models").body
            with Liar(models, hang_up) as a, Liar(models, full) as b, Router([a, b], "--replays", "1", "--canary", "0") as r:
                r.wait_for(2)
                for i in range(8):
                    got = r.post("/v1/completions", long_ask(i))
                    if b"data: {}" in got.body:
                        break
                self.assertIn("--replays", got.events[-1]["error"]["message"])
                self.assertEqual(r.metric("differences_total"), 0)

    def test_a_server_that_shuts_down_ends_its_answers(self):
        with Server(*BIG) as a, Server(*BIG, "--grace", str(60 * rig.SLOW)) as b, Router([a, b], "--canary", "0") as r:
            r.wait_for(2)
            quiet = all_of(r, 8)

            def term():
                b.process.send_signal(signal.SIGTERM)
            self.assertEqual(all_of(r, 8, term, lambda: r.metric("active_requests", b) >= 2), quiet)
            self.assertEqual(r.metric("failed_total"), 0)
            self.assertEqual(b.process.wait(rig.patience(60)), 0)

    def test_all_servers_may_be_replaced(self):
        rig.make_model("next.gguf", "--seed", "10")
        listener = socket.create_server(("127.0.0.1", 0))
        names = [f"m={os.path.join(rig.FOLDER, f)}" for f in ("m.gguf", "next.gguf")]
        first = Server("-m", names[0], model=None, listener=listener)
        with Router([first]) as r:
            r.wait_for(1)
            first.stop()
            r.wait_for(0)
            with Server("-m", names[1], model=None, listener=listener):
                r.wait_for(1)
        listener.close()


class Wrong(unittest.TestCase):
    def test_bytes_that_differ_are_not_given(self):
        with Server(*BIG) as real:
            models = real.get("/v1/models").body
            with Liar(models, hang_up) as liar, Router([liar, real], "--wait", "5") as r:
                r.wait_for(2)
                for i in range(8):  # until the liar has one
                    got = r.post("/v1/completions", long_ask(i, 20))
                    if b"data: {}" in got.body:
                        break
                    r.wait_for(2)
                self.assertEqual(got.body.count(b"data: {}\n\n"), 1)
                self.assertIn("different answers", got.events[-1]["error"]["message"])
                self.assertEqual(r.metric("differences_total"), 1)
                self.assertGreater(r.logged("differ"), 0, r.log)

    def test_the_canary_finds_a_lie(self):
        def lie(handler):
            handler.reply(200, "application/json", b'{"choices":[{"text":"lie"}]}')
        with Server() as real:
            models = real.get("/v1/models").body
            with Liar(models, lie) as liar, Router([real, liar], "--canary", "1") as r:
                r.wait_for(2)
                self.assertEqual(r.post("/v1/completions", {"prompt": "x", "max_tokens": 4}).status, 200)
                r.logged("gave different bytes")
                self.assertEqual((r.metric("canaries_total"), r.metric("differences_total")), (1, 1))
        with Server() as a, Server("--spec-type", "none") as b, Router([a, b], "--canary", "1") as r:
            r.wait_for(2)
            for stream in (False, True):
                self.assertEqual(r.post("/v1/completions", {"prompt": "x", "max_tokens": 9, "stream": stream}).status, 200)
            end = time.monotonic() + rig.patience(30)
            while r.metric("canaries_total") < 2 and time.monotonic() < end:
                time.sleep(0.02)
            self.assertEqual((r.metric("canaries_total"), r.metric("differences_total")), (2, 0))

    def test_another_model_takes_no_part(self):
        rig.make_model("other.gguf", "--seed", "9")
        names = [f"m={os.path.join(rig.FOLDER, f)}" for f in ("m.gguf", "other.gguf")]
        with Server("-m", names[0], model=None) as a, Server("-m", names[1], model=None) as b:
            with Router([a], wait=True) as r:
                r.wait_for(1)
            with Router([a, b]) as r:
                self.assertEqual(r.logged("another file than that of the other servers"), 1)
                self.assertEqual(r.get("/health").json["servers_up"], 1)
            with Router([a, b], "--mixed") as r:
                r.wait_for(2)


class Use(unittest.TestCase):
    def test_beginnings_stay_with_their_server(self):
        with Server("-c", "4096") as a, Server("-c", "4096") as b, Router([a, b], "--canary", "0") as r:
            r.wait_for(2)
            for one in range(4):
                text, before = f"{one} " * 300, None
                for turn in range(3):
                    counts = [r.metric("requests_total", s) for s in (a, b)]
                    self.assertEqual(r.post("/v1/completions", {"prompt": text, "max_tokens": 1}).status, 200)
                    rises = [r.metric("requests_total", s) - n for s, n in zip((a, b), counts)]
                    self.assertIn(rises, ([1, 0], [0, 1]))
                    self.assertIn(before, (None, rises))
                    before, text = rises, text + "and more " * 40
            self.assertGreater(min(r.metric("requests_total", s) for s in (a, b)), 0)

    def test_a_busy_server_sends_on(self):
        def full(handler):
            handler.reply(503, "application/json", b'{"error":{"message":"full"}}')
        with Server() as real:
            models = real.get("/v1/models").body
            with Liar(models, full) as liar, Router([liar, real]) as r:
                r.wait_for(2)
                for _ in range(4):
                    self.assertEqual(r.post("/v1/completions", {"prompt": "x", "max_tokens": 2}).status, 200)
            with Liar(models, full) as liar, Router([liar]) as r:
                r.wait_for(1)
                got = r.post("/v1/completions", {"prompt": "x"})
                self.assertEqual((got.status, got.error), (503, "full"))

    def test_keys_paths_and_errors(self):
        key = {"Authorization": "Bearer alice"}
        with Server("--api-key", "alice,bob") as a:
            with Router([a], "--api-key", "bob,alice", "--metrics-key", "eve") as r:
                r.wait_for(1)
                body = {"prompt": "x", "max_tokens": 2}
                self.assertEqual(r.post("/v1/completions", body).status, 401)
                self.assertEqual(r.post("/v1/completions", body, key).status, 200)
                self.assertEqual(r.get("/v1/models", key).json["data"][0]["id"], "m")
                self.assertEqual(r.get("/props?model=m", key).status, 200)
                self.assertEqual(r.post("/tokenize", {"content": "x"}, key).status, 200)
                self.assertEqual(r.get("/metrics", key).status, 403)
                self.assertEqual(r.metric("server_up", a, {"Authorization": "Bearer eve"}), 1)
                self.assertEqual(r.post("/slots/0?action=save", {}, key).status, 501)
                self.assertEqual(r.get("/nothing", key).status, 404)
                self.assertEqual(r.post("/v1/completions", {"prompt": 1.5}, key).status, 400)
                self.assertIn(b"<html", r.get("/").body)
                self.assertEqual(r.post("/v1/messages", {"max_tokens": 1}, key).json["type"], "error")
            with Router([a], wait=False) as r:
                self.assertEqual(r.logged("refuses the router's API key (status 401)"), 1)
                self.assertEqual(r.get("/health").status, 503)
            with Router([a], wait=True, env={"AERIE_SERVER_KEY": "bob"}) as r:
                r.wait_for(1)

    def test_unix_sockets(self):
        path = os.path.join(rig.FOLDER, "a.sock")
        a = Server("--host", path, wait=False)
        with Router([f"unix:{path}"]) as r:
            self.assertEqual(r.post("/v1/completions", {"prompt": "x", "max_tokens": 2}).status, 200)
        a.stop()

    def test_routers_in_a_circle(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        with Server() as a:
            with Router([a, f"http://127.0.0.1:{port}"], "--port", str(port)) as r:
                self.assertTrue(r.logged("it is this router itself"))
                r.wait_for(1)
                self.assertEqual(r.post("/v1/completions", {"prompt": "x", "max_tokens": 2}).status, 200)
            with Router([a]) as first, Router([first]) as second:  # one after another is not a circle
                second.wait_for(1)
                self.assertEqual(second.post("/v1/completions", {"prompt": "x", "max_tokens": 2}).status, 200)
                got = second.post("/v1/completions", {"prompt": "x"}, {"Aerie-Hops": "4"})
                self.assertEqual(got.status, 508)
                self.assertIn("in a circle", got.error)

    def test_options(self):
        def refused(status, text, *words):
            r = Router(words, wait=False)
            try:
                self.assertEqual(r.process.wait(rig.patience(30)), status, r.log)
            finally:
                r.process.kill()
                r.stop()
            self.assertIn(text, r.log)
        refused(2, "needs the servers' URLs")
        refused(2, "http://HOST:PORT", "localhost:1")
        refused(2, "without a path", "http://a/b")
        refused(2, "without a path", "http://u:p@a")
        refused(2, "http://HOST:PORT", "unix:")
        refused(2, "given twice", "http://a:1", "http://a:1")
        refused(2, "64 servers", *(f"http://a:{i}" for i in range(1, 66)))
        refused(2, "--canary", "http://a:1", "--canary", "2")
        refused(2, "-m", "http://a:1", "-m", "x.gguf")

    def test_a_client_that_leaves_ends_its_request(self):
        with Server(*BIG) as a, Router([a], "--canary", "0") as r:
            r.wait_for(1)
            c = r.connect()
            c.request("POST", "/v1/completions", json.dumps(long_ask(1, 20000)), {"Content-Type": "application/json"})
            c.getresponse().read(64)
            c.close()
            end = time.monotonic() + rig.patience(60)
            while (r.metric("active_requests", a) or a.get("/slots").json[0]["is_processing"]) and time.monotonic() < end:
                time.sleep(0.02)
            self.assertEqual(r.metric("active_requests", a), 0)
            self.assertFalse(any(s["is_processing"] for s in a.get("/slots").json))


if __name__ == "__main__":
    rig.main(__name__)
