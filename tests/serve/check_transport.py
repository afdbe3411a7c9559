"""The layers below requests: bytes that are not requests, connections, the log, sockets with a path, signals."""
import fcntl
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time
import unittest

import rig
from rig import Server

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
POST = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"


def statuses(answer):
    return re.findall(rb"HTTP/1\.1 (\d+) ", answer)


def metric(server, name):
    found = re.search(rf"^{re.escape(name)} (\d+)$", server.get("/metrics").body.decode(), re.M)
    return int(found.group(1))


def wait_until(what, seconds=60):
    end = time.monotonic() + rig.patience(seconds)
    while not what() and time.monotonic() < end:
        time.sleep(0.02)
    return what()


class Framing(unittest.TestCase):
    def test_headers_that_end_elsewhere_for_others(self):
        """What follows would be a request of its own to libmicrohttpd or to a proxy in front."""
        n = b"%d" % len(HEALTH)
        heads = {
            "a blank after the name": b"Content-Length : " + n + b"\r\n",
            "a tab after the name": b"Content-Length\t: " + n + b"\r\n",
            "no name": b": a\r\nContent-Length: " + n + b"\r\n",
            "no name, in the middle": b"X: 1\r\n: a\r\nContent-Length: " + n + b"\r\n",
            "Transfer-Encoding and a blank": b"Transfer-Encoding : chunked\r\nContent-Length: " + n + b"\r\n",
            "NUL in a name": b"Content-Length\0: " + n + b"\r\n",
            "NUL in a value": b"X: a\0b\r\nContent-Length: " + n + b"\r\n",
            "NUL in the length": b"Content-Length: " + n + b"\0\r\n",
            "a control character": b"X: a\x0bb\r\nContent-Length: " + n + b"\r\n",
            "DEL": b"X: a\x7f\r\nContent-Length: " + n + b"\r\n",
            "a line folded": b"X: a\r\n Content-Length: 3\r\nContent-Length: " + n + b"\r\n",
            "a line folded by a tab": b"X: a\r\n\tb\r\nContent-Length: " + n + b"\r\n",
            "a lone line feed": b"X: a\nContent-Length: " + n + b"\r\n",
            "a lone carriage return": b"X: a\rContent-Length: " + n + b"\r\n",
            "a name in quotes": b'"Content-Length": ' + n + b"\r\n",
            "a name beyond ASCII": b"Content-Length\xa0: " + n + b"\r\n",
            "a blank first": b" Host: evil.example\r\nContent-Length: " + n + b"\r\n",
            "a line without a colon": b"Content-Length " + n + b"\r\n",
            "lengths": b"Content-Length: 0\r\nContent-Length: " + n + b"\r\n",
            "the same length twice": b"Content-Length: " + n + b"\r\ncontent-length: " + n + b"\r\n",
            "a list of lengths": b"Content-Length: " + n + b", " + n + b"\r\n",
            "a sign": b"Content-Length: +" + n + b"\r\n",
            "a negative length": b"Content-Length: -" + n + b"\r\n",
            "a hexadecimal length": b"Content-Length: 0x10\r\n",
            "an empty length": b"Content-Length: \r\n",
            "a length beyond 64 bits": b"Content-Length: 18446744073709551617\r\n",
            "length and chunks": b"Transfer-Encoding: chunked\r\nContent-Length: " + n + b"\r\n",
            "another encoding": b"Transfer-Encoding: identity\r\nContent-Length: " + n + b"\r\n",
            "an encoding and a blank": b"Transfer-Encoding: chunked \r\n",
            "encodings": b"Transfer-Encoding: chunked, chunked\r\n",
            "an encoding with a control character": b"Transfer-Encoding: \x0bchunked\r\n",
            "hosts": b"hOST: evil.example\r\nContent-Length: " + n + b"\r\n",
        }
        with Server() as s:
            for name, head in heads.items():
                a = s.raw(POST + head + b"\r\n" + HEALTH)
                self.assertEqual(statuses(a), [b"400"], (name, a))
            for line in (b" POST /tokenize HTTP/1.1", b"POST  /tokenize HTTP/1.1", b"POST /tokenize  HTTP/1.1",
                         b"POST /tokenize HTTP/1.1 ", b"POST /tok enize HTTP/1.1", b"POST /tokenize\0 HTTP/1.1",
                         b"POST\t/tokenize HTTP/1.1", b"POST /tokenize HTTP/1.1\x0b", b"P\0ST /tokenize HTTP/1.1",
                         b"POST /tokenize HTTP/1.x", b"POST /tokenize http/1.1", b"POST /tokenize\rHTTP/1.1",
                         b"POST /tokenize", b"PO@ST /tokenize HTTP/1.1", b"POST /tokenize HTTP/1.1\n"):
                a = s.raw(line + b"\r\nHost: localhost\r\nContent-Length: " + n + b"\r\n\r\n" + HEALTH)
                self.assertLessEqual(len(statuses(a)), 1, (line, a))
                self.assertNotIn(b"200", statuses(a), (line, a))

    def test_chunks_that_end_elsewhere_for_others(self):
        body = b'{"content": "x"}'
        head = POST + b"Transfer-Encoding: chunked\r\n\r\n"
        with Server() as s:
            for name, chunks in {
                "an extension": b"10;a=b\r\n" + body + b"\r\n0\r\n\r\n",
                "an extension of the last": b"10\r\n" + body + b"\r\n0;a\r\n\r\n",
                "a blank": b"10 \r\n" + body + b"\r\n0\r\n\r\n",
                "a lone line feed after the size": b"10\n" + body + b"\r\n0\r\n\r\n",
                "a lone line feed after the data": b"10\r\n" + body + b"\n0\r\n\r\n",
                "a lone line feed at the end": b"10\r\n" + body + b"\r\n0\r\n\n",
                "a chunk that is longer": b"f\r\n" + body + b"\r\n0\r\n\r\n",
                "a sign": b"+10\r\n" + body + b"\r\n0\r\n\r\n",
                "0x": b"0x10\r\n" + body + b"\r\n0\r\n\r\n",
                "beyond 64 bits": b"10000000000000010\r\n" + body + b"\r\n0\r\n\r\n",
                "a trailer without a name": b"10\r\n" + body + b"\r\n0\r\nX: 1\r\n: a\r\n\r\n",
                "a trailer with a blank": b"10\r\n" + body + b"\r\n0\r\nX : 1\r\n\r\n",
                "a length in the trailer": b"10\r\n" + body + b"\r\n0\r\nContent-Length: 5\r\n\r\n",
                "an encoding in the trailer": b"10\r\n" + body + b"\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
            }.items():
                for pause in (False, True):
                    with socket.create_connection(("127.0.0.1", s.port), rig.patience(30)) as c:
                        c.sendall(head)
                        try:
                            for i in range(len(chunks) if pause else 0):  # the bytes come one by one
                                c.sendall(chunks[i:i + 1])
                            c.sendall((b"" if pause else chunks) + HEALTH)
                        except OSError:
                            pass  # it has been refused already
                        a = b""
                        try:
                            while part := c.recv(65536):
                                a += part
                        except ConnectionResetError:
                            pass
                    self.assertIn(statuses(a), ([b"400"], [b"413"] if "64" in name else [b"400"]), (name, pause, a))
            for chunks in (b"10\r\n" + body + b"\r\n0\r\n\r\n", b"0010\r\n" + body + b"\r\n000\r\nX: 1\r\n\r\n",
                           b"".join(b"1\r\n%c\r\n" % b for b in body) + b"0\r\n\r\n"):
                self.assertEqual(statuses(s.raw(head + chunks + HEALTH)), [b"200", b"200"], chunks)

    def test_what_is_well_formed_is_served(self):
        body = b'{"content": "x"}'
        length = b"Content-Length: %d\r\n" % len(body)
        with Server() as s:
            for head in (length, b"X:\r\n" + length, b"X: \t a b \xc3\xa9\xff \t\r\n" + length,
                         b"content-LENGTH:%d\r\n" % len(body),
                         b"!#$%&'*+-.^_`|~09aZ: 1\r\n" + length, b"Expect: 100-continue\r\n" + length):
                a = s.raw(POST + head + b"\r\n" + body + b"\r\n" + HEALTH)  # an empty line may follow a body
                self.assertEqual([x for x in statuses(a) if x != b"100"], [b"200", b"200"], (head, a))
            many = s.raw(b"".join(POST + length + b"\r\n" + body for _ in range(50)) + HEALTH)
            self.assertEqual(statuses(many), [b"200"] * 51)
            # the first is answered before the second is refused
            a = s.raw(POST + length + b"\r\n" + body + POST + b"X : 1\r\n\r\n" + HEALTH)
            self.assertEqual(statuses(a), [b"200", b"400"], a)
            a = s.raw(b"POST /tokenize HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HEALTH)
            self.assertEqual(statuses(a), [b"400"], a)


class Connections(unittest.TestCase):
    def test_silent_connections_shut_nobody_out(self):
        with Server("--max-connections", "40") as s:
            held = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(100)]
            for _ in range(3):
                self.assertEqual(s.post("/v1/completions", {"prompt": "x", "max_tokens": 1}).status, 200)
            self.assertGreater(metric(s, "aerie:connections_evicted_total"), 50)
            for c in held:
                c.close()
            # who has asked for something stays longer than who has not, and is not ended while it is answered
            keep = s.connect()
            s.call("GET", "/health", connection=keep)
            held = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(60)]
            self.assertEqual(s.call("GET", "/health", connection=keep).status, 200)
            for c in held:
                c.close()

    def test_a_limit_for_each_address(self):
        with Server("--max-connections", "30", "--max-connections-per-address", "10") as s:
            other = socket.create_connection(("127.0.0.1", s.port), source_address=("127.0.0.2", 0))
            held = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(40)]
            self.assertEqual(s.get("/health").status, 200)
            self.assertLessEqual(metric(s, "aerie:connections"), 11)
            other.sendall(HEALTH)  # of another address: it has not made room
            self.assertIn(b"200", other.recv(1000))
            for c in (*held, other):
                c.close()

    def test_few_descriptors(self):
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        fewer = rig.subprocess.Popen
        try:
            rig.subprocess.Popen = lambda *args, **more: fewer(*args, preexec_fn=few, **more)
            s = Server()
        finally:
            rig.subprocess.Popen = fewer
        with s:
            self.assertGreater(s.logged("connections at a time instead"), 0, s.log)
            most = int(re.search(r"(\d+) connections at a time instead of --max-connections 512", s.log).group(1))
            self.assertLess(most, 128)
            held = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(300)]

            def ticks():
                with open(f"/proc/{s.process.pid}/stat") as f:
                    return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))
            self.assertEqual(s.post("/v1/completions", {"prompt": "x", "max_tokens": 1}).status, 200)
            before = ticks()
            time.sleep(1)
            self.assertLess(ticks() - before, 60)  # it does not spin
            self.assertLess(s.descriptors(), 128)
            for c in held:
                c.close()
            self.assertEqual(s.post("/v1/completions", {"prompt": "x", "max_tokens": 1}).status, 200)

    def test_time_in_which_the_server_did_not_run_does_not_count(self):
        with Server() as s:
            held = [socket.create_connection(("127.0.0.1", s.port), rig.patience(60)) for _ in range(200)]
            for c in held[::2]:
                c.sendall(HEALTH[:20])
            time.sleep(0.5)
            s.process.send_signal(signal.SIGSTOP)
            time.sleep(12)  # longer than a header may take
            for i, c in enumerate(held):
                c.sendall(HEALTH[20:] if i % 2 == 0 else HEALTH)
            s.process.send_signal(signal.SIGCONT)
            for c in held:
                self.assertIn(b"200 OK", c.recv(1000))
                c.close()

    def test_who_sends_no_more_is_answered(self):
        body = json.dumps({"prompt": "x", "max_tokens": rig.many(1500), "ignore_eos": True}).encode()
        streamed = json.dumps({"prompt": "x", "max_tokens": rig.many(600), "ignore_eos": True, "stream": True}).encode()
        with Server("-np", "1", "-c", "2048") as s:
            post = POST.replace(b"/tokenize", b"/v1/completions")
            for text in (HEALTH, *(post + b"Content-Length: %d\r\n\r\n" % len(x) + x for x in (body, streamed))):
                with socket.create_connection(("127.0.0.1", s.port), rig.patience(120)) as c:
                    c.sendall(text)
                    c.shutdown(socket.SHUT_WR)
                    a = b""
                    while part := c.recv(65536):
                        a += part
                self.assertEqual([x for x in statuses(a) if x != b"100"], [b"200"], a[:300])
                self.assertTrue(b"ok" in a or b"length" in a, a[-300:])


class Log(unittest.TestCase):
    def start(self, *options):
        """A server whose log nobody reads; its process, port and the reading end."""
        r, w = os.pipe()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        p = subprocess.Popen([rig.AERIE, "serve", "-m", os.path.join(rig.FOLDER, "m.gguf"), "-t", "1", "-c", "512", "--port",
                              str(port), *options], stderr=w, stdin=subprocess.DEVNULL)
        os.close(w)
        s = object.__new__(Server)
        s.port = port
        self.assertTrue(wait_until(lambda: self.answers(s)))
        return p, s, r

    @staticmethod
    def answers(s):
        try:
            return s.get("/health").status == 200
        except OSError:
            return False

    def test_a_log_that_nobody_reads(self):
        p, s, r = self.start()
        try:
            c = s.connect()
            n = 0
            path = "/health?" + "x" * 10
            while not n % 500 or n < 30000:
                if s.call("GET", "/" + "y" * 95, connection=c).status != 404:
                    break
                n += 1
                if n % 500 == 0 and metric(s, "aerie:log_lines_lost_total"):
                    break
            lost = metric(s, "aerie:log_lines_lost_total")
            self.assertGreater(lost, 0, n)
            self.assertEqual(s.get(path).status, 200)
            text = b""
            os.set_blocking(r, False)

            def drain():
                nonlocal text
                while True:
                    try:
                        part = os.read(r, 65536)
                    except BlockingIOError:
                        return
                    if not part:
                        return
                    text += part

            def said():
                drain()
                s.get("/health")
                return b" lost here" in text
            self.assertTrue(wait_until(said))
            drain()
            told = sum(int(x) for x in re.findall(rb"aerie: (\d+) lines? of the log (?:was|were) lost here", text))
            self.assertGreaterEqual(told, lost)
            lines = text.count(b" 404 ")
            self.assertGreaterEqual(lines + told, n)  # none is missing without being counted
            c.close()
        finally:
            p.terminate()
            self.assertEqual(p.wait(rig.patience(60)), 0)
            os.close(r)

    def test_it_ends_all_the_same(self):
        p, s, r = self.start()
        c = s.connect()
        for _ in range(2000):
            self.assertEqual(s.call("GET", "/" + "y" * 95, connection=c).status, 404)
        p.terminate()
        self.assertEqual(p.wait(rig.patience(60)), 0)
        c.close()
        os.close(r)

    def test_every_line_in_its_order(self):
        with Server() as s:
            c = s.connect()
            for i in range(500):
                self.assertEqual(s.call("GET", f"/{i}", connection=c).status, 404)
            c.close()
        self.assertEqual(re.findall(r"GET /(\d+) 404", s.log), [str(i) for i in range(500)])


class Sockets(unittest.TestCase):
    def ask(self, path):
        with socket.socket(socket.AF_UNIX) as c:
            c.settimeout(rig.patience(30))
            c.connect(path)
            c.sendall(HEALTH)
            return c.recv(1000)

    def works(self, path):
        try:
            return b" 200 " in self.ask(path)
        except OSError:
            return False

    def test_a_successor_keeps_its_socket(self):
        folder = os.path.join(rig.FOLDER, "sockets")
        os.mkdir(folder)
        path = os.path.join(folder, "a.sock")
        first = Server("--host", path, wait=False)
        self.assertTrue(wait_until(lambda: self.works(path)))
        second = Server("--host", path, wait=False)  # it is in use
        self.assertEqual(second.stop(), 1, second.log)
        self.assertIn("in use", second.log)
        self.assertTrue(self.works(path))
        os.unlink(path)
        second = Server("--host", path, wait=False)
        self.assertTrue(wait_until(lambda: self.works(path)))
        self.assertEqual(first.stop(), 0)
        self.assertTrue(self.works(path))
        self.assertEqual(os.listdir(folder), ["a.sock"])
        self.assertEqual(second.stop(), 0)
        self.assertEqual(os.listdir(folder), [])
        with open(path, "w") as f:
            f.write("not a socket")
        third = Server("--host", path, wait=False)
        self.assertEqual(third.stop(), 1)
        self.assertEqual(os.listdir(folder), ["a.sock"])
        os.unlink(path)

    def test_many_start_at_once_and_one_serves(self):
        path = os.path.join(rig.FOLDER, "many.sock")
        with socket.socket(socket.AF_UNIX) as left:  # by a server that has ended
            left.bind(path)
        all_of_them = []
        threads = [threading.Thread(target=lambda: all_of_them.append(Server("--host", path, wait=False))) for _ in range(5)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        running = [s for s in all_of_them if s.process.poll() is None and s.port is not None]
        self.assertEqual(len(running), 1, [s.log for s in all_of_them])
        self.assertTrue(wait_until(lambda: self.works(path)))
        for s in all_of_them:
            s.stop()
        self.assertFalse(os.path.exists(path))


class Names(unittest.TestCase):
    def test_names_of_files_that_are_not_utf8(self):
        folder = os.fsencode(os.path.join(rig.FOLDER, "names"))
        os.mkdir(folder)
        for name in (b"\xff\xfe.gguf", b"\xff\xfd.gguf", b'a"b\\\nc.gguf', b"good.gguf"):
            shutil.copy(os.path.join(rig.FOLDER, "m.gguf"), os.path.join(folder, name))
        with Server("--models-dir", os.fsdecode(folder), model=None) as s:
            for path in ("/metrics", "/v1/models", "/models", "/api/tags", "/api/ps", "/slots", "/health",
                         "/v1/models/good"):
                a = s.get(path)
                self.assertEqual(a.status, 200, path)
                a.body.decode()
            lines = s.get("/metrics").body.decode().split("\n")
            series = [line.rsplit(" ", 1)[0] for line in lines if line and line[0] != "#"]
            self.assertEqual(len(series), len(set(series)))  # each once, as Prometheus wants it
            a = s.post("/v1/completions", {"model": "\ufffd\ufffd", "prompt": "x"})
            self.assertEqual(a.status, 404)
            a.json


class Numbers(unittest.TestCase):
    def test_whole_numbers_from_2_to_the_63_on(self):
        with Server("-c", "128") as s:
            def ask(seed, **fields):
                body = json.dumps({"prompt": [5, 6, 7], "max_tokens": 12, "ignore_eos": True, "seed": seed, "temperature": 5,
                                   "top_k": 0, "top_p": 1, "min_p": 0, **fields}).encode()
                a = s.post("/v1/completions", body)
                self.assertEqual(a.status, 200, a.body)
                return a.json["choices"][0]["text"]
            seeds = [2**63 - 1, 2**63, 2**63 + 1, 2**63 + 2, 2**64 - 2, 2**64 - 1]
            texts = [ask(x) for x in seeds]
            self.assertEqual(len(set(texts)), len(seeds))  # each is a seed of its own, and its neighbour another
            self.assertEqual([ask(x) for x in seeds], texts)
            # a word that looks like one, and a list that holds one, change nothing
            self.assertEqual(ask(2**63 + 1, user='"seed": 18446744073709551615', metadata={"a": [2**63 + 7, 10**40]}), texts[2])
            a = s.post("/api/generate", {"model": "m", "prompt": "x", "stream": False, "raw": True, "options": {
                "seed": 2**64 - 1, "num_predict": 2}})
            self.assertEqual(a.status, 200, a.body)
            a = s.post("/completion", {"prompt": [5], "n_predict": 1, "seed": 2**64 - 1})
            self.assertEqual(a.json["generation_settings"]["seed"], str(2**64 - 1))
            for body in ({"seed": 2**64}, {"seed": 10**30}, {"prompt": [2**63]}, {"max_tokens": 2**64 - 1},
                         {"top_k": 2**63}):
                a = s.post("/v1/completions", {"prompt": [5], "max_tokens": 1, **body})
                self.assertEqual(a.status, 400, (body, a.body))
                self.assertIn(next(iter(body)), a.error)


class Leftovers(unittest.TestCase):
    def test_what_a_killed_server_left_of_slots(self):
        folder = os.path.join(rig.FOLDER, "slots")
        os.makedirs(os.path.join(folder, "0123456789abcdef"))
        left = [".a.aerie-AbC123", "0123456789abcdef/.a.aerie-AbC124"]
        stays = ["a.aerie-AbC123", ".a.aerie-AbC12", ".profile", "session.backup", "0123456789abcdef/b"]
        for name in left + stays:
            with open(os.path.join(folder, name), "w") as f:
                f.write("x")
        held = open(os.path.join(folder, ".b.aerie-AbC123"), "w")
        fcntl.flock(held, fcntl.LOCK_EX)  # another server writes it
        with Server("--slot-save-path", folder, "-np", "1") as s:
            self.assertFalse(any(os.path.exists(os.path.join(folder, name)) for name in left))
            for name in (*stays, ".b.aerie-AbC123"):
                self.assertTrue(os.path.exists(os.path.join(folder, name)), name)
            for name in (".b.aerie-AbC123", ".a.aerie-AbC123"):
                for action in ("save", "restore"):
                    self.assertEqual(s.post(f"/slots/0?action={action}", {"filename": name}).status, 400)
            self.assertEqual(s.post("/v1/completions", {"prompt": "x", "max_tokens": 2}).status, 200)
            self.assertEqual(s.post("/slots/0?action=save", {"filename": "c" * 200}).status, 200)
            self.assertEqual(s.post("/slots/0?action=restore", {"filename": "c" * 200}).status, 200)
        held.close()

    def test_a_server_killed_while_it_saves(self):
        folder = os.path.join(rig.FOLDER, "killed")
        os.mkdir(folder)
        for i in range(6):
            s = Server("--slot-save-path", folder, "-np", "1")
            self.assertEqual([x for x in os.listdir(folder) if x != "a"], [])  # of those before

            def save():
                try:
                    while s.post("/slots/0?action=save", {"filename": "a"}).status == 200:
                        pass
                except Exception:  # noqa: BLE001
                    pass
            self.assertEqual(s.post("/v1/completions", {"prompt": "x" * 300, "max_tokens": 2}).status, 200)
            threads = [threading.Thread(target=save) for _ in range(3)]
            for t in threads:
                t.start()
            time.sleep(0.2 + 0.01 * i)
            s.process.kill()
            for t in threads:
                t.join()
            s.stop()


if __name__ == "__main__":
    rig.main("__main__")
