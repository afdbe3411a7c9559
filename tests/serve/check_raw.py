"""Bytes that are nearly requests, at random: the server lives, and no byte of a body is ever taken for a request.

Each stream is made of requests, changed by some mutations: bytes put in, taken out, exchanged and doubled, lines moved, blanks,
NUL, lone line ends, wrong lengths and chunks. In bodies stand whole requests for paths that nothing else asks for, each with a
number of its own. The model of framing below reads the stream as RFC 9112 says and knows which requests it has and where the
first fault is; the server may answer those before the fault and nothing after it, and the log may show no path from inside a
body. A stream that was not changed is answered as a whole. Streams come in pieces or at once, all half-closed. Now and then
a well-formed request on a new connection is answered as ever.

AERIE_FUZZ_STREAMS and AERIE_FUZZ_SEED choose how many and which; each stream depends on the seed and its number alone.
"""
import os
import random
import re
import socket
import threading
import unittest

import rig
from rig import Server

TCHAR = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ODD = [b"\0", b"\r", b"\n", b"\r\n", b"\n\n", b"\r\n\r\n", b" ", b"\t", b":", b";", b": a\r\n", b" : ", b"\x0b", b"\x7f",
       b"\x80", b"\xff", b"0", b"9", b"a", b"f", b"-", b"+", b"0x", b",", b'"', b"%00", b"?", b"/", b"HTTP/1.1", b"HTTP/1.0",
       b"HTTP/0.9",
       b"Content-Length: 5\r\n", b"Content-Length : 5\r\n", b"content-length:0\r\n", b"Transfer-Encoding: chunked\r\n",
       b"Transfer-Encoding: identity\r\n", b"Transfer-Encoding : chunked\r\n", b"Host: localhost\r\n", b" folded\r\n",
       b"Expect: 100-continue\r\n", b"Connection: close\r\n", b"Connection: keep-alive\r\n", b"0\r\n\r\n", b"5\r\nabcde\r\n",
       b";a=b", b"GET /x HTTP/1.1\r\n", b"Upgrade: h2c\r\n", b"Trailer: X\r\n"]


class Fault(Exception):
    pass


class Reader:
    """Requests as RFC 9112 frames them; Fault at the first that is not well-formed, EOFError where more would have to come."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def line(self):
        end = self.data.find(b"\n", self.at)
        if end < 0:
            if re.search(rb"\r.", self.data[self.at:], re.S):
                raise Fault
            raise EOFError
        line, self.at = self.data[self.at:end + 1], end + 1
        if not line.endswith(b"\r\n") or b"\r" in line[:-2]:
            raise Fault
        return line[:-2]

    def take(self, n):
        if self.at + n > len(self.data):
            raise EOFError
        self.at += n
        return self.data[self.at - n:self.at]

    def fields(self):
        out = []
        while line := self.line():
            m = re.fullmatch(rb"([" + re.escape(TCHAR) + rb"]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)", line)
            if not m:
                raise Fault
            out.append((m.group(1).lower(), m.group(2)))
        return out

    def request(self):
        """The target of the next one."""
        while True:
            start = self.at
            if self.line():
                break
        line = self.data[start:self.at - 2]
        m = re.fullmatch(rb"([" + re.escape(TCHAR) + rb"]+) ([\x21-\x7e\x80-\xff]+) HTTP/(\d)\.(\d)", line)
        if not m:
            raise Fault
        fields = self.fields()
        lengths = [v for k, v in fields if k == b"content-length"]
        encodings = [v for k, v in fields if k == b"transfer-encoding"]
        if len(lengths) > 1 or len(encodings) > 1 or (lengths and encodings) or len([1 for k, _ in fields if k == b"host"]) > 1:
            raise Fault
        if lengths:
            if not re.fullmatch(rb"\d{1,18}", lengths[0]):
                raise Fault
            self.take(int(lengths[0]))
        if encodings:
            if encodings[0].lower() != b"chunked" or m.group(4) == b"0":
                raise Fault
            while True:
                size = self.line()
                if not re.fullmatch(rb"[0-9a-fA-F]{1,15}", size):
                    raise Fault
                if int(size, 16) == 0:
                    break
                self.take(int(size, 16))
                if self.take(2) != b"\r\n":
                    raise Fault
            for name, _ in self.fields():
                if name in (b"content-length", b"transfer-encoding", b"host"):
                    raise Fault
        return m.group(2)


def read_requests(data):
    """The targets of whole requests before the first fault or the end; where the one after them begins."""
    reader, targets, begun = Reader(data), [], 0
    try:
        while reader.at < len(data):
            targets.append(reader.request())
            begun = reader.at
    except (Fault, EOFError):
        pass
    return targets, begun


def tag(number):
    """What a path ends with, so that no mutation makes one stream's path of another's."""
    return "%d-%08x" % (number, number * 2654435761 % 2**32)


def make_stream(rng, number):
    """The bytes, before they are changed: some requests; inside of bodies stand others for paths of their own."""
    out = []
    n = rng.choice([1, 1, 2, 3])
    for i in range(n):
        inner = b"GET /inner/%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % tag(number).encode()
        body = rng.choice([inner, inner * 3, b'{"content": "x"}', b"\r\n" + inner, b"0\r\n\r\n" + inner])
        close = b"Connection: close\r\n" if i == n - 1 else b""
        long = b"X-Long: " + b"y" * rng.choice([3, 300, 3000]) + b"\r\n"
        more = b"".join(rng.choice([b"X-A: 1\r\n", b"Accept: */*\r\n", long, b"Cookie: a=b; c\r\n"])
                        for _ in range(rng.randrange(3)))
        kind = rng.random()
        head = b" /outer/%d HTTP/1.1\r\nHost: localhost\r\n" % number + more + close
        if kind < 0.25:
            out.append(b"GET" + head + b"\r\n")
        elif kind < 0.65:
            out.append(b"POST" + head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        else:
            chunks = b""
            at = 0
            while at < len(body):
                size = rng.choice([1, 5, 16, 100])
                part = body[at:at + size]
                chunks += b"%x\r\n" % len(part) + part + b"\r\n"
                at += size
            trailer = rng.choice([b"", b"", b"X-T: 1\r\n"])
            out.append(b"POST" + head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n" + trailer + b"\r\n")
    return b"".join(out)


def place(rng, data):
    """Mostly where it matters: at the ends of lines and around colons."""
    if rng.random() < 0.7:
        marks = [m.start() for m in re.finditer(rb"[\r\n: ;]", data)]
        if marks:
            return max(0, min(len(data), rng.choice(marks) + rng.choice([-1, 0, 0, 0, 1, 1, 2])))
    return rng.randint(0, len(data))


def mutate(rng, data):
    for _ in range(rng.choice([0, 1, 1, 1, 1, 2, 3, 6])):
        at, how = place(rng, data), rng.random()
        if how < 0.45:
            data = data[:at] + rng.choice(ODD) + data[at:]
        elif how < 0.6:
            data = data[:at] + data[at + rng.choice([1, 1, 2, 4, 20]):]
        elif how < 0.75:
            data = data[:at] + rng.choice(ODD) + data[at + 1:]
        elif how < 0.85:
            data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1:]
        elif how < 0.93:
            lines = data.split(b"\r\n")
            i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
            if rng.random() < 0.5:
                lines[i], lines[j] = lines[j], lines[i]
            else:
                lines.insert(i, lines[j])
            data = b"\r\n".join(lines)
        else:
            length = b"Content-Length: %d" % rng.choice([0, 1, 5, 17, 60, 10**6, 2**64 + 3])
            data = re.sub(rb"Content-Length: \d+", lambda m: length, data, count=1)
    return data


class Raw(unittest.TestCase):
    def exchange(self, server, rng, data):
        out = b""
        with socket.create_connection(("127.0.0.1", server.port), rig.patience(60)) as c:
            try:
                if rng.random() < 0.3:
                    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randint(1, 6)))
                    for a, b in zip([0, *cuts], [*cuts, len(data)]):
                        c.sendall(data[a:b])
                else:
                    c.sendall(data)
                c.shutdown(socket.SHUT_WR)  # a stream that is not whole ends here, and nobody waits
                while part := c.recv(65536):
                    out += part
            except OSError:  # it was refused, and more was sent
                pass
        return out

    def test_streams_made_wrong(self):
        n = int(os.environ.get("AERIE_FUZZ_STREAMS", 20000 // (8 if rig.SLOW > 1 else 1)))
        seed = int(os.environ.get("AERIE_FUZZ_SEED", 1))
        bad, lock = [], threading.Lock()
        n_whole = 0
        with Server("--max-connections-per-address", "0") as s:
            expected = s.post("/tokenize", {"content": "hello"}).json

            def work(k):
                nonlocal n_whole
                for number in range(k, n, 4):
                    rng = random.Random(seed * 1000003 + number)
                    plain = make_stream(rng, number)
                    data = mutate(rng, plain)
                    targets = read_requests(data)[0]
                    answer = self.exchange(s, rng, data)
                    n_answers = len(re.findall(rb"HTTP/1\.1 (?!100)\d\d\d ", answer))
                    # those before the fault, and one refusal
                    ok = n_answers <= len(targets) + 1 and (data != plain or n_answers == len(targets))
                    if number % 50 == 0:
                        ok = ok and s.post("/tokenize", {"content": "hello"}).json == expected
                    with lock:
                        n_whole += data == plain
                        if not ok:
                            bad.append((number, data, targets, answer))
            threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(bad[:3], [], f"{len(bad)} streams")
            self.assertGreater(n_whole, n // 20)
            self.assertEqual(s.post("/tokenize", {"content": "hello"}).json, expected)
        # every request that was taken for one stands where one begins
        told = [int(n) for n, rest in re.findall(r" /inner/(\d{1,12})(-[0-9a-f]{8})", s.log) if tag(int(n)) == n + rest]
        for number in sorted(set(told)):
            rng = random.Random(seed * 1000003 + number)
            data = mutate(rng, make_stream(rng, number))
            targets, begun = read_requests(data)
            inner = sum(b"/inner/" + tag(number).encode() in t for t in targets)
            inner += b" /inner/" in data[begun:].lstrip(b"\r\n").split(b"\n")[0]  # one with a fault is refused by its name
            self.assertLessEqual(told.count(number), inner, data)


if __name__ == "__main__":
    rig.main("__main__")
