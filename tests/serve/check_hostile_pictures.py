"""Pictures that are damaged, lie about themselves or unpack to gigabytes, and addresses that lead elsewhere: 400, and the
server answers on. A sample of 10,000; all of them:

    AERIE_SERVE_EVERY=1 tests/serve/check_hostile_pictures.py build/aerie build/tests/mkmodel
"""
import base64
import os
import random
import socket
import struct
import subprocess
import threading
import unittest
import zlib

import rig
from rig import Server

EVERY = int(os.environ.get("AERIE_SERVE_EVERY", 40))
JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRkxOUlNSMj5aYVpQYEpRUk//"
    "2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT0//wAARCAAOABIDASIAAhEB"
    "AxEB/8QAHwAAAQUBAQEBAQEAAAAAAAAAAAECAwQFBgcICQoL/8QAtRAAAgEDAwIEAwUFBAQAAAF9AQIDAAQRBRIhMUEGE1FhByJxFDKBkaEII0KxwRVS0fAk"
    "M2JyggkKFhcYGRolJicoKSo0NTY3ODk6Q0RFRkdISUpTVFVWV1hZWmNkZWZnaGlqc3R1dnd4eXqDhIWGh4iJipKTlJWWl5iZmqKjpKWmp6ipqrKztLW2t7i5"
    "usLDxMXGx8jJytLT1NXW19jZ2uHi4+Tl5ufo6erx8vP09fb3+Pn6/8QAHwEAAwEBAQEBAQEBAQAAAAAAAAECAwQFBgcICQoL/8QAtREAAgECBAQDBAcFBAQA"
    "AQJ3AAECAxEEBSExBhJBUQdhcRMiMoEIFEKRobHBCSMzUvAVYnLRChYkNOEl8RcYGRomJygpKjU2Nzg5OkNERUZHSElKU1RVVldYWVpjZGVmZ2hpanN0dXZ3"
    "eHl6goOEhYaHiImKkpOUlZaXmJmaoqOkpaanqKmqsrO0tba3uLm6wsPExcbHyMnK0tPU1dbX2Nna4uPk5ebn6Onq8vP09fb3+Pn6/9oADAMBAAIRAxEAPwDk"
    "rXS+ny1r22l9PlrbtbBOOla9tYJx0qIVTHAZk9DnBpfH3aK7MWCY7UVv7U+g/tJn/9k=")
PROGRESSIVE = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRkxOUlNSMj5aYVpQYEpRUk//"
    "2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT0//wgARCAAOABIDASIAAhEB"
    "AxEB/8QAFgABAQEAAAAAAAAAAAAAAAAABAUA/8QAFgEBAQEAAAAAAAAAAAAAAAAAAgMF/9oADAMBAAIQAxAAAAGQxrCJutamh//EABgQAQEBAQEAAAAA"
    "AAAA"
    "AAAAAAACAxIT/9oACAEBAAEFApyTk8kwmHD/xAAXEQEAAwAAAAAAAAAAAAAAAAAAAwQU/9oACAEDAQE/AYLLS//EABcRAQADAAAAAAAAAAAAAAAAAAABAhL/"
    "2gAIAQIBAT8BizT/xAAUEAEAAAAAAAAAAAAAAAAAAAAg/9oACAEBAAY/Al//xAAYEAEAAwEAAAAAAAAAAAAAAAAAARFhcf/aAAgBAQABPyHJg4RoVX//2gAM"
    "AwEAAgADAAAAEKsP/8QAFxEBAAMAAAAAAAAAAAAAAAAAAAERIf/aAAgBAwEBPxCbFn//xAAUEQEAAAAAAAAAAAAAAAAAAAAQ/9oACAECAQE/ED//xAAZEAAC"
    "AwEAAAAAAAAAAAAAAAAAAQMRIUH/2gAIAQEAAT8QQFCMDGjOiK+H/9k=")
WEBP = base64.b64decode("UklGRlwAAABXRUJQVlA4IFAAAAAQBACdASoSAA4APtFipk0oJiOiMAgBABoJbACdMoR3ACm7+VL"
    "tExuvgAD+9Jvnr2uL/VZJXUA9uzSYU7vUaxRxT8"
                        "mzkyXzOhHUQOdztwAAAA==")
LOSSLESS = base64.b64decode("UklGRioAAABXRUJQVlA4TB4AAAAvEUADALmM6H/sIqL/ASEB4YL/g0V1GuYgJgC46yg=")


def chunk(name, data, length=None):
    return struct.pack(">I", len(data) if length is None else length) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(w, h, rows, *more, colour=2, end=True):
    """rows: the packed rows. more: chunks before them."""
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, colour, 0, 0, 0)) + b"".join(more) +
            chunk(b"IDAT", rows) + (chunk(b"IEND", b"") if end else b""))


def small_png(seed=1, w=18, h=14):
    rng = random.Random(seed)
    return png(w, h, zlib.compress(b"".join(b"\0" + bytes(rng.randrange(256) for _ in range(3 * w)) for _ in range(h))))


def zeros(n):
    """n zero bytes, packed: a thousandth of their size."""
    pack, out = zlib.compressobj(9), []
    for at in range(0, n, 1 << 20):
        out.append(pack.compress(bytes(min(1 << 20, n - at))))
    return b"".join(out) + pack.flush()


def lying_sizes(rng, kind, data):
    """The header's width and height replaced."""
    w, h = (rng.choice((0, 1, 17, 5000, 16384, 16385, 65535, 70000, 1 << 31, (1 << 32) - 1)) for _ in range(2))
    data = bytearray(data)
    if kind == "png":
        data[16:24] = struct.pack(">II", w, h)
        if rng.random() < 0.8:
            data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    elif kind in ("jpeg", "progressive"):
        at = max(data.find(b"\xff\xc0"), data.find(b"\xff\xc2"))
        data[at + 5:at + 9] = struct.pack(">HH", h & 0xFFFF, w & 0xFFFF)
    elif kind == "webp":
        data[26:30] = struct.pack("<HH", w & 0x3FFF, h & 0x3FFF)
    else:
        data[21:25] = struct.pack("<I", (w & 0x3FFF) | (h & 0x3FFF) << 14)
    return bytes(data)


def damaged(rng):
    kind, data = rng.choice((("png", small_png()), ("jpeg", JPEG), ("progressive", PROGRESSIVE), ("webp", WEBP),
                             ("lossless", LOSSLESS)))
    what = rng.randrange(8)
    if what == 0:
        return data[:rng.randrange(len(data))]
    if what == 1:
        return lying_sizes(rng, kind, data)
    if what == 2:  # a part twice, or left out
        a, b = sorted(rng.randrange(len(data)) for _ in range(2))
        return data[:b] + data[a:] if rng.random() < 0.5 else data[:a] + data[b:]
    if what == 3:  # the head of one format, the rest of another
        other = rng.choice((small_png(), JPEG, PROGRESSIVE, WEBP, LOSSLESS))
        cut = rng.randrange(4, 40)
        return data[:cut] + other[cut:]
    if what == 4:  # a length or marker of extreme values
        at = rng.randrange(len(data) - 4)
        return data[:at] + rng.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\x80\0\0\0")) + data[at + 4:]
    out = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        out[rng.randrange(len(out))] = rng.randrange(256)
    return bytes(out)


def bombs():
    """(name, picture, whether it may be answered): small files of large contents."""
    exif = b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + b"\x12\x01\x03\0\x01\0\0\0\x06\0\0\0" * 20
    yield "100 million pixels", png(10000, 10000, zeros(1 << 20)), False
    yield "a side too long", png(16385, 1, zeros(50000)), False
    yield "too narrow", png(1, 900, zeros(4 * 900)), False
    yield "rows that go on for 64 MB", png(18, 14, zeros(64 << 20)), True  # what follows the last row is not unpacked
    yield "rows that end early", png(4000, 4000, zeros(100)), False
    yield "a profile of 64 MB", png(18, 14, zlib.compress(bytes(14 * 55)), chunk(b"iCCP", b"p\0\0" + zeros(64 << 20))), True
    yield "a text of 64 MB", png(18, 14, zlib.compress(bytes(14 * 55)), chunk(b"zTXt", b"t\0\0" + zeros(64 << 20))), True
    yield "2,000 texts", png(18, 14, zlib.compress(bytes(14 * 55)), *[chunk(b"tEXt", b"t\0x")] * 2000), True
    yield "a chunk of 2 GB", b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 0x7FFFFFFF) + b"IHDR" + bytes(20), False
    yield "EXIF of 2 GB", png(18, 14, zlib.compress(bytes(14 * 55)), chunk(b"eXIf", exif, 0x7FFFFFFF)), False
    scan = PROGRESSIVE[PROGRESSIVE.rfind(b"\xff\xda"):-2]
    yield "20,000 scans", PROGRESSIVE[:-2] + scan * 20000 + b"\xff\xd9", False
    yield "EXIF that points everywhere", JPEG[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + JPEG[2:], True
    yield "a RIFF of 4 GB", WEBP[:4] + b"\xff\xff\xff\xff" + WEBP[8:], False
    body = b"VP8X" + struct.pack("<I", 10) + b"\x02\0\0\0" + struct.pack("<I", 16383)[:3] * 2
    yield "an animation", b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body, False


class Hostile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        tools = os.path.dirname(os.path.abspath(rig.MKMODEL))
        for name, kind in (("v.gguf", "llama"), ("eye.gguf", "mmproj-gemma3:64")):
            subprocess.run([os.path.join(tools, "mkarch"), kind, os.path.join(rig.FOLDER, name)], check=True)

    def server(self, *options):
        return Server("-np", "4", "-c", "2048", "--no-access-log", "--mmproj", os.path.join(rig.FOLDER, "eye.gguf"), *options,
                      model="v.gguf")

    def ask(self, s, address, n=1):
        return s.post("/v1/chat/completions", {"temperature": 0, "max_tokens": n, "messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": address}}, {"type": "text", "text": "?"}]}]})

    def show(self, s, data, n=1):
        return self.ask(s, "data:image/png;base64," + base64.b64encode(data).decode(), n)

    def well(self, s, want=None):
        """The server answers, and with the same text as before."""
        a = self.show(s, small_png(), 8)
        self.assertEqual(a.status, 200, a.body)
        text = a.json["choices"][0]["message"]["content"]
        self.assertIn(want, (None, text))
        return text

    def test_damaged(self):
        n = max(10000 // EVERY, 20)
        counts = {}
        with self.server() as s:
            want = self.well(s)
            bad = []

            def run(part):
                for i in range(part, n, 4):
                    data = damaged(random.Random(i))
                    a = self.show(s, data)
                    counts[a.status] = counts.get(a.status, 0) + 1
                    if a.status not in (200, 400) or (a.status == 400 and not a.error):
                        bad.append((i, a.status, a.body))
            threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(bad, [])
            self.assertEqual(sum(counts.values()), n)
            self.assertGreater(counts.get(400, 0), n // 2, counts)
            self.well(s, want)
        if EVERY == 1:
            print(counts)

    def test_bombs(self):
        with self.server() as s:
            want = self.well(s)
            for name, data, answered in bombs():
                a = self.show(s, data)
                self.assertIn(a.status, (200, 400) if answered else (400,), (name, a.body))
                self.assertLess(len(a.body), 4096, name)
            self.well(s, want)
            with open(f"/proc/{s.process.pid}/status", encoding="utf-8") as f:
                most = int(next(x for x in f if x.startswith("VmHWM")).split()[1])
            with open(rig.AERIE, "rb") as f:
                plain = b"__asan_init" not in f.read()
            if plain:
                self.assertLess(most, 200000, "KiB at most")

    def test_addresses(self):
        """No spelling of an address makes the server connect to it."""
        with socket.socket() as trap, self.server() as s:
            trap.bind(("127.0.0.1", 0))
            trap.listen(16)
            trap.setblocking(False)
            port = trap.getsockname()[1]
            want = self.well(s)
            for host in ("127.0.0.1", "localhost", "[::1]", "0x7f.1", "0x7f000001", "2130706433", "127.1", "017700000001", "0",
                         "[::ffff:127.0.0.1]", "user@127.0.0.1", "127.0.0.1.", "169.254.169.254", "metadata", "10.0.0.1"):
                for scheme in ("http", "https", "HTTP", "ftp", "gopher", " http"):
                    a = self.ask(s, f"{scheme}://{host}:{port}/a.png")
                    self.assertEqual(a.status, 400, (scheme, host, a.body))
            for other in (f"//127.0.0.1:{port}/a.png", "file:///etc/passwd", "file://localhost/etc/passwd", "/etc/passwd",
                          "\\\\127.0.0.1\\a", "data:text/html,<img>", "javascript:0", "blob:x",
                          "data:image/svg+xml;base64,PHN2Zz4="):
                a = self.ask(s, other)
                self.assertEqual(a.status, 400, (other, a.body))
                self.assertNotIn("root:", str(a.body))
            with self.assertRaises(BlockingIOError):
                trap.accept()
            self.well(s, want)


if __name__ == "__main__":
    rig.main("__main__")
