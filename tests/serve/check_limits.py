"""Permissions and limits: keys, hosts, origins, sizes, slow clients, signals."""
import ctypes
import http.client
import json
import os
import re
import signal
import socket
import threading
import time
import unittest

import rig
from rig import Server, chat, many


def post_head(path, n, *more):
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {n}", *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


class Limits(unittest.TestCase):
    def test_keys(self):
        path = os.path.join(rig.FOLDER, "keys")
        with open(path, "w") as f:
            f.write("# ours\nfirst-key\n\nsecond key with spaces  \n")
        with Server("--api-key-file", path, env={"AERIE_API_KEY": "third,fourth"}) as s:
            for key in ("first-key", "second key with spaces", "third", "fourth"):
                self.assertEqual(s.get("/v1/models", {"Authorization": f"Bearer {key}"}).status, 200, key)
                self.assertEqual(s.get("/v1/models", {"x-api-key": key}).status, 200, key)
            for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer first-ke"}, {"x-api-key": "first-key2"},
                            {"Authorization": "Basic first-key"}, {"Authorization": "first-key"}, {"x-api-key": "x" * 600},
                            {"x-api-key": "# ours"}):
                for method, path in (("GET", "/v1/models"), ("POST", "/v1/chat/completions"), ("GET", "/nothing"),
                                     ("GET", "/slots"),
                                     ("GET", "/metrics"), ("GET", "/props")):
                    a = s.call(method, path, chat("x") if method == "POST" else None, headers)
                    self.assertEqual(a.status, 401, (headers, path))
                    self.assertEqual(a.json["error"]["code"], "invalid_api_key")
                    self.assertEqual(a.headers["WWW-Authenticate"], "Bearer")
            self.assertEqual(s.get("/health").status, 200)
            self.assertNotIn("first-key", s.log)
            with open(f"/proc/{s.process.pid}/cmdline") as f:
                self.assertNotIn("third", f.read())

    def test_a_key_that_is_empty_is_none(self):
        for name in ("AERIE_API_KEY", "AERIE_API_KEY_FILE"):
            with self.assertRaisesRegex(AssertionError, f"{name} .environment. is empty"):
                Server(env={name: ""})
            with Server("--api-key", "k", env={name: ""}) as s:
                self.assertEqual(s.get("/v1/models").status, 401)

    def test_hosts_and_origins(self):
        with Server("--cors-origins", "https://good.example, http://other:3000") as s:
            for host in ("localhost", f"127.0.0.1:{s.port}", "[::1]:80", "10.0.0.7", "app.localhost:1"):
                self.assertEqual(s.get("/health", {"Host": host}).status, 200, host)
            for host in ("evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", "notlocalhost",
                         ""):
                self.assertEqual(s.get("/health", {"Host": host}).status, 403, host)
            own = {"Host": f"localhost:{s.port}", "Origin": f"http://localhost:{s.port}"}
            a = s.get("/v1/models", own)
            self.assertEqual((a.status, a.headers["Access-Control-Allow-Origin"]), (200, None))
            for origin in ("https://evil.example", "null", "https://good.example.evil", "http://good.example"):
                self.assertEqual(s.post("/v1/chat/completions", chat("x"), {"Origin": origin}).status, 403, origin)
                self.assertEqual(s.call("OPTIONS", "/v1/chat/completions", None, {"Origin": origin}).status, 403)
            a = s.post("/v1/chat/completions", chat("x"), {"Origin": "https://good.example"})
            self.assertEqual((a.status, a.headers["Access-Control-Allow-Origin"]), (200, "https://good.example"))
            self.assertIsNone(a.headers["Access-Control-Allow-Credentials"])
            a = s.call("OPTIONS", "/v1/chat/completions", None, {"Origin": "http://other:3000"})
            self.assertEqual(a.status, 204)
            self.assertIn("Authorization", a.headers["Access-Control-Allow-Headers"])
        with Server("--allowed-hosts", "Llm.example") as s:
            self.assertEqual(s.get("/health", {"Host": "llm.example:443"}).status, 200)
            self.assertEqual(s.get("/health", {"Host": "other.example"}).status, 403)

    def test_sizes(self):
        with Server("--max-body", "1") as s:
            big = json.dumps({"prompt": "x" * (1 << 20)}).encode()
            head = s.raw(post_head("/v1/completions", len(big)))  # no body need come
            self.assertIn(b" 413 ", head.split(b"\r\n")[0])
            for _ in range(3):  # a client that sends the whole body first can still read the answer
                a = s.call("POST", "/v1/completions", json.dumps({"prompt": "x" * (12 << 20)}).encode())
                self.assertEqual((a.status, a.json["error"]["type"]), (413, "invalid_request_error"))
            chunks = b"".join(b"10000\r\n" + b"x" * 65536 + b"\r\n" for _ in range(20)) + b"0\r\n\r\n"
            a = s.raw(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: "
                      b"chunked\r\n\r\n" + chunks)
            self.assertIn(b" 413 ", a.split(b"\r\n")[0])
            for size in (20000, 40000, 500000):
                a = s.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Long: " + b"y" * size
                          + b"\r\n\r\n")
                self.assertIn(a.split(b"\r\n")[0][9:12], (b"431", b"413", b"400") if size > 32768 else (b"200", b"431"), size)
            self.assertEqual(s.raw(b"GET /" + b"z" * 60000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")[9:10], b"4")
            self.assertEqual(s.post("/v1/completions", {"prompt": "x", "max_tokens": 1}).status, 200)

    def test_what_is_not_http(self):
        with Server() as s:
            for text in (b"\0\0\0\0\r\n\r\n", b"hello\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n",
                         b"GET / HTTP/9.9\r\n\r\n",
                         post_head("/v1/completions", -5), post_head("/v1/completions", "99999999999999999999999"),
                         post_head("/v1/completions", "x"),
                         b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
                         b"chunked\r\n\r\nzz\r\n",
                         b"GET /%00%ff/..%2f HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"):
                with socket.create_connection(("127.0.0.1", s.port), rig.patience(10)) as c:
                    c.sendall(text)
                    c.shutdown(socket.SHUT_WR)
                    try:
                        c.recv(100)
                    except ConnectionResetError:
                        pass
            self.assertEqual(s.get("/health").status, 200)

    def test_requests_whose_end_or_host_is_uncertain(self):
        """What a proxy in front may have understood otherwise is refused; what follows on the connection is not a request."""
        after = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        with Server("--api-key", "k") as s:
            key = b"Host: localhost\r\nx-api-key: k\r\n"
            post = b"POST /tokenize HTTP/1.1\r\n" + key
            body = b'{"content": "x"}'
            length, chunks = b"Content-Length: %d\r\n" % len(body), b"10\r\n" + body + b"\r\n0\r\n\r\n"
            for head in (length + b"Content-Length: 3\r\n\r\n", length + length + b"\r\n",
                         length + b"Transfer-Encoding: chunked\r\n\r\n", b"Transfer-Encoding: xchunked\r\n\r\n",
                         b"Transfer-Encoding: chunked\r\n" + length + b"\r\n", b"Host: other\r\n" + length + b"\r\n",
                         b"Transfer-Encoding: gzip, chunked\r\n\r\n",
                         b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"):
                a = s.raw(post + head + (chunks if b"hunked" in head else body) + after)
                self.assertEqual((a[9:12], a.count(b"HTTP/1.1 ")), (b"400", 1), (head, a))
            for head, content in ((length, body), (b"Transfer-Encoding: Chunked\r\n", chunks)):
                a = s.raw(post + head + b"\r\n" + content + after)
                self.assertEqual(a.count(b"HTTP/1.1 200"), 2, (head, a))
            # refused before the body is asked for
            a = s.raw(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" + length + b"Expect: 100-continue\r\n\r\n")
            self.assertEqual(a[9:12], b"401", a)
            a = s.raw(post + length + b"Expect: 100-continue\r\nConnection: close\r\n\r\n" + body)
            self.assertEqual((a[9:12], a.count(b"HTTP/1.1 200")), (b"100", 1), a)
            # as a proxy is asked
            end = b" HTTP/1.1\r\n" + key + b"Connection: close\r\n\r\n"
            for url, status in ((b"http://localhost/props", b"200"), (b"HTTP://127.0.0.1:1/health?x=http://y", b"200"),
                                (b"http://localhost", b"200"), (b"http://evil.example/props", b"403"), (b"http://", b"403"),
                                (b"/props%00", b"404"), (b"/%00", b"404"), (b"/%2", b"404"), (b"/%70rops", b"200")):
                self.assertEqual(s.raw(b"GET " + url + end)[9:12], status, url)
            many_tokens = s.post("/detokenize", {"tokens": [5] * 300000}, {"x-api-key": "k"})  # in linear time
            self.assertEqual(many_tokens.status, 200)

    def test_slow_clients_are_ended_and_others_served(self):
        with Server("--max-connections", "40") as s:
            start = time.monotonic()
            slow = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(20)]
            for c in slow:
                c.sendall(b"GET /health HTTP/1.1\r\nHost: loc")
            ended = 0
            while ended < len(slow) and time.monotonic() < start + 25 * rig.SLOW:
                for c in slow:
                    try:
                        c.sendall(b"a")
                    except OSError:
                        pass
                self.assertEqual(s.post("/v1/completions", {"prompt": "x", "max_tokens": 1}).status, 200)
                time.sleep(0.5)
                ended = sum(self.is_ended(c) for c in slow)
            self.assertEqual(ended, len(slow))
            self.assertGreater(time.monotonic() - start, 8)
            for c in slow:
                c.close()

    @staticmethod
    def is_ended(c):
        c.setblocking(False)
        try:
            return c.recv(1000) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def test_a_client_that_reads_nothing_holds_up_nobody(self):
        """The server listens on a socket that was passed on, with a small buffer: some kilobytes fill it."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            with Server("-np", "2", "--timeout", "2", listener=listener) as s:
                body = json.dumps({"prompt": "x", "max_tokens": 100, "ignore_eos": True, "stream": True,
                                   "logprobs": 20}).encode()
                c = socket.socket()
                c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                c.connect(("127.0.0.1", s.port))
                c.sendall(post_head("/v1/completions", len(body)) + body)
                end = time.monotonic() + rig.patience(60)
                while 'reason="length"} 1' not in s.get("/metrics").body.decode():  # it is generated to its end
                    self.assertEqual(s.post("/v1/completions", {"prompt": "y", "max_tokens": 9, "stop": "\n",
                                                                "grammar": 'root ::= "a"'}).status, 200)
                    self.assertLess(time.monotonic(), end)
                self.assertGreater(s.logged("(cut off)"), 0, s.log)
                c.close()

    @staticmethod
    def present(s):
        """The number of requests that are being answered or wait for it."""
        return sum(map(int, re.findall(r"num_requests_(?:running|waiting){[^}]*} (\d+)", s.get("/metrics").body.decode())))

    def test_requests_per_key(self):
        with Server("--api-key", "a,b", "--max-requests-per-key", "1", "-np", "2", "-c", "65536") as s:
            data = json.dumps(chat("x", max_tokens=60000, ignore_eos=True)).encode()
            held = socket.create_connection(("127.0.0.1", s.port), rig.patience(60))  # until the client hangs up
            held.sendall(post_head("/v1/chat/completions", len(data), "x-api-key: a") + data)
            rig.wait_for(lambda: rig.busy(s, {"x-api-key": "b"}) == 1)
            a = s.post("/v1/completions", {"prompt": "x", "max_tokens": 1}, {"x-api-key": "a"})
            self.assertEqual((a.status, a.headers["Retry-After"]), (429, "1"))
            self.assertEqual(s.post("/v1/completions", {"prompt": "x", "max_tokens": 1}, {"x-api-key": "b"}).status, 200)
            held.close()
            rig.wait_for(lambda: rig.busy(s, {"x-api-key": "b"}) == 0)
            rig.wait_for(lambda: s.post("/v1/completions", {"prompt": "x", "max_tokens": 1}, {"x-api-key": "a"}).status == 200)

    def test_running_answers_end_after_a_signal(self):
        for how in (signal.SIGTERM, signal.SIGINT):
            s = Server("-np", "2", "-c", "2048", "--grace", "100")
            keep = s.connect()
            s.call("GET", "/health", connection=keep)
            answers = []

            def ask(stream):
                answers.append(s.post("/v1/chat/completions", chat("x", max_tokens=many(900), ignore_eos=True, stream=stream)))
            threads = [threading.Thread(target=ask, args=(stream,)) for stream in (True, False, True, False)]
            for t in threads:
                t.start()
            # a request that the server has not seen yet may be refused: wait until all are there, or all have ended
            rig.wait_for(lambda: self.present(s) == 4 or len(answers) == 4)
            s.process.send_signal(how)
            end = time.monotonic() + rig.patience(20)
            while True:  # nobody new is let in
                try:
                    socket.create_connection(("127.0.0.1", s.port), 5).close()
                except (ConnectionRefusedError, ConnectionResetError):  # reset: it waited when the socket was closed
                    break
                self.assertLess(time.monotonic(), end)
                time.sleep(0.01)
            try:
                self.assertEqual(s.call("POST", "/v1/completions", {"prompt": "x"}, connection=keep).status, 503)
            except (OSError, http.client.HTTPException):  # the last answer was given meanwhile, and the server has ended
                pass
            for t in threads:
                t.join()
            self.assertEqual(s.stop(0), 0)
            self.assertEqual([a.status for a in answers], [200] * 4)
            for a in answers:
                n = a.json["usage"]["completion_tokens"] if a.body.startswith(b"{") else a.events[-2]["timings"]["predicted_n"]
                self.assertEqual(n, many(900))
            keep.close()

    def test_grace_ends_and_a_second_signal_ends_at_once(self):
        for options, second in ((("--grace", "0"), False), (("--grace", "1000"), True)):
            s = Server("-np", "1", "-c", "2048", *options)
            answers = []

            def ask():
                try:
                    answers.append(s.post("/v1/chat/completions", chat("x", max_tokens=many(1900), ignore_eos=True)).status)
                except OSError:
                    answers.append(None)
                except Exception:  # noqa: BLE001
                    answers.append(None)
            t = threading.Thread(target=ask)
            t.start()
            rig.wait_for(lambda: rig.busy(s) == 1 or answers)
            start = time.monotonic()
            s.process.send_signal(signal.SIGTERM)
            if second:
                time.sleep(0.3)
                s.process.send_signal(signal.SIGTERM)
            self.assertEqual(s.process.wait(rig.patience(30)), 0)
            self.assertLess(time.monotonic() - start, 5 * rig.SLOW)
            t.join()
            self.assertIn(answers[0], (503, None, 200))
            s.stop()

    def hold(self, process):
        """Stops the thread that computes, and no other; a function that lets it go on, or (ends) waits for its end."""
        ptrace = ctypes.CDLL(None, use_errno=True).ptrace
        ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        seize, interrupt, detach, wall = 0x4206, 0x4207, 17, 0x40000000

        def ticks(thread):
            try:
                with open(f"/proc/{process.pid}/task/{thread}/stat") as f:
                    return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))
            except OSError:  # it has ended
                return 0
        threads = {int(t): ticks(t) for t in os.listdir(f"/proc/{process.pid}/task")}
        busiest, end = process.pid, time.monotonic() + rig.patience(30)
        while ticks(busiest) - threads[busiest] < 6 and time.monotonic() < end:
            time.sleep(0.05)
            busiest = max(threads, key=lambda t: ticks(t) - threads[t])
        if ptrace(seize, busiest, None, None):
            self.skipTest("no thread may be held here: " + os.strerror(ctypes.get_errno()))
        ptrace(interrupt, busiest, None, None)
        os.waitpid(busiest, wall)

        def let_go(ends=False):
            if not ends:
                self.assertEqual(ptrace(detach, busiest, None, None), 0)
            end = time.monotonic() + rig.patience(30)
            while ends and not os.waitpid(busiest, wall | os.WNOHANG)[0] and time.monotonic() < end:
                time.sleep(0.02)
        return let_go

    def test_health_tells_of_a_pass_that_hangs(self):
        ask = chat("x", max_tokens=60000, ignore_eos=True)
        with Server("-np", "2", "-c", "65536", "-t", "1", "--stuck-after", "1", "--grace", "1") as s:
            waits = socket.create_connection(("127.0.0.1", s.port), rig.patience(60))
            data = json.dumps(ask).encode()  # not as a stream, the sending of which takes time too
            waits.sendall(post_head("/v1/chat/completions", len(data)) + data)
            rig.wait_for(lambda: rig.busy(s) == 1)
            rig.wait_for(lambda: s.get("/health").status == 200)  # a busy machine may stop a step for a second, too
            let_go = self.hold(s.process)
            rig.wait_for(lambda: s.get("/health").status != 200)
            a = s.get("/health")
            self.assertEqual((a.status, a.json["status"]), (503, "stuck"))
            self.assertGreater(a.json["seconds_since_step"], 1)
            for path in ("/slots", "/metrics", "/v1/models", "/props"):  # what tells why goes on answering
                self.assertEqual(s.get(path).status, 200, path)
            let_go()
            rig.wait_for(lambda: s.get("/health").status == 200)
            let_go = self.hold(s.process)
            for _ in range(2):  # it ends all the same
                s.process.send_signal(signal.SIGTERM)
                time.sleep(0.5)
            let_go(ends=True)
            self.assertEqual(s.process.wait(rig.patience(30)), 0)
            waits.close()

    def test_health_is_good_only_when_the_model_answers(self):
        all_cpus = os.sched_getaffinity(0)
        for i in range(5):
            try:  # on one CPU, sometimes, requests and the look for idle models come while the model is being loaded
                os.sched_setaffinity(0, {min(all_cpus)} if i % 2 else all_cpus)
                s = Server(wait=False)
            finally:
                os.sched_setaffinity(0, all_cpus)
            with s:
                seen = []
                while not seen or seen[-1] != 200:
                    seen.append(s.get("/health").status)
                    self.assertIn(seen[-1], (200, 503))
                self.assertEqual(s.post("/v1/completions", {"prompt": "x", "max_tokens": 1}).status, 200)

    def test_options(self):
        def refused(status, text, *options):
            s = Server(*options, wait=False, model=None)
            try:
                self.assertEqual(s.process.wait(rig.patience(30)), status, s.log)
            finally:
                s.process.kill()
                s.stop()
            self.assertIn(text, s.log)
            return s
        m = os.path.join(rig.FOLDER, "m.gguf")
        refused(2, "needs a model")
        refused(2, "names no file", "-m", "")
        refused(2, "same name", "-m", m, "-m", m)
        for missing in (("-m", "missing.gguf"), ("-m", m, "-md", "missing.gguf"), ("-m", m, "--mmproj", "missing.gguf"),
                        ("-m", m, "--lora", "missing.gguf"), ("-m", m, "--chat-template-file", "missing.gguf"),
                        ("-m", os.path.join(rig.FOLDER, "text.txt"))):
            with open(os.path.join(rig.FOLDER, "text.txt"), "w") as f:
                f.write("no model")
            s = refused(3, os.path.basename(missing[-1]), *missing)
            self.assertNotIn("listening", s.log)
        refused(3, "--models-dir", "--models-dir", os.path.join(rig.FOLDER, "missing"))
        refused(2, "--alias", "-m", m, "-m", "x=" + m, "--alias", "y")
        refused(1, "cannot listen on 192.0.2.1: it is not an address of this machine; --host", "-m", m, "--host", "192.0.2.1")
        refused(1, "--host", "-m", m, "--host", "no such host")
        refused(1, "cannot listen", "-m", m, "--host", os.path.join(rig.FOLDER, "missing", "x.sock"))
        refused(2, "--reasoning-format", "-m", m, "--reasoning-format", "x")
        refused(3, "contains no API key", "-m", m, "--api-key-file", "/dev/null")
        refused(3, "cannot open", "-m", m, "--api-key-file", os.path.join(rig.FOLDER, "missing"))
        refused(2, "--port", "-m", m, "--port", "70000")
        with Server() as s:
            refused(1, "cannot listen", "-m", m, "--port", str(s.port))

    def test_a_unix_socket(self):
        path = os.path.join(rig.FOLDER, "a.sock")
        for _ in range(2):
            s = Server("--host", path, wait=False)
            end = time.monotonic() + rig.patience(30)
            out = b""
            while b" 200 " not in out and time.monotonic() < end:
                try:
                    with socket.socket(socket.AF_UNIX) as c:
                        c.connect(path)
                        c.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                        out = c.recv(1000)
                except OSError:
                    time.sleep(0.05)
            self.assertIn(b" 200 ", out)
            s.process.kill()  # it leaves the socket behind, and the next one starts all the same
            s.process.wait()
            s.stop()

    def config(self, text, *options, env=None, fails=True):
        path = os.path.join(rig.FOLDER, "serve.conf")
        with open(path, "wb") as f:
            f.write(text)
        s = Server("--config", path, *options, model=None, wait=not fails, env=env)
        if fails:
            self.assertEqual(s.stop(), 2, s.log)
        return s

    def test_options_from_a_file(self):
        model = os.path.join(rig.FOLDER, "m.gguf").encode()
        text = (b"# ours\r\n\n  model = " + model + b"\nalias \"from file\"\r\n--max-n=3\nno-slots\nmax-queue\t=\t5 \n"
                b"no-metrics = off\ngrace = 1\nn-predict = 9")
        ask = {"prompt": "abc", "ignore_eos": True}
        for options, env, n, name in ((), {}, 9, "from file"), (("-a", "mine"), {"AERIE_PREDICT": "4"}, 4, "mine"), \
                (("-n", "2"), {"AERIE_PREDICT": "4", "AERIE_ALIAS": "theirs"}, 2, "theirs"):
            with self.config(text, *options, env=env, fails=False) as s:
                self.assertEqual([m["id"] for m in s.get("/v1/models").json["data"]], [name])
                self.assertEqual(s.post("/v1/completions", ask).json["usage"]["completion_tokens"], n)
                self.assertIn("--max-n", s.post("/v1/completions", {**ask, "n": 4}).error)
                self.assertEqual((s.get("/metrics").status, s.get("/slots").status == 200), (200, False))
        for line, said in ((b"nothing = 1", "--nothing is not an option"), (b"max-n = 0", "--max-n"),
                           (b"max-n", "needs a value"),
                           (b"max-n = x y", "'x y'"), (b"no-slots = perhaps", "on or off"), (b"config = x", "cannot be used"),
                           (b"= 5", "not an option"), (b"\xff\xfe = 5", "not an option"), (b"x" * 5000, "not an option"),
                           (b"alias = ", "needs a value"), (b"nothing: 1", "not an option")):
            s = self.config(b"# first\n\n" + line + b"\n")
            self.assertIn("serve.conf, line 3: ", s.log)
            self.assertIn(said, s.log)
        self.assertIn("NUL", self.config(b"max-n = 1\0").log)
        self.config(b"")  # no model
        for path in (rig.FOLDER, os.path.join(rig.FOLDER, "missing.conf")):
            s = Server("--config", path, wait=False)
            self.assertIn(s.stop(), (2, 3), s.log)
            self.assertIn(path, s.log)

    def test_no_text_of_a_request_is_logged(self):
        with Server() as s:
            s.post("/v1/chat/completions", chat("a secret thing"))
            s.post("/v1/completions", {"prompt": "a secret thing", "temperature": "secret"})
            s.get("/health?secret=thing")
        self.assertIn("POST /v1/chat/completions 200", s.log)
        self.assertNotIn("secret", s.log)


if __name__ == "__main__":
    rig.main("__main__")
