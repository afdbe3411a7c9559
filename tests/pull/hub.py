"""A hub on localhost: Hugging Face's list and files with their redirect, ollama's registry, plain files, a proxy; and their
faults.

A file's faults are a list; each request for its bytes takes the first one, and when none is left it is answered rightly.
"""
import hashlib
import json
import random
import socket
import struct
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULTS = ("drop", "reset", "drop-at-once", "garbage", "empty", "500", "503", "429", "416", "408", "loop", "to-file",
          "to-nowhere", "404", "403",
          "flipped", "short", "long", "other-range", "no-range", "html", "stall", "other-hash", "304", "no-length")
ENDLESS = 64 << 20  # bytes that the fault "endless" sends after the file, if nobody stops it


class File:
    def __init__(self, data, lfs=True):
        self.data, self.lfs = data, lfs
        self.sha256 = hashlib.sha256(data).hexdigest()
        self.faults, self.requests, self.slow, self.sent = [], [], 0, 0
        self.etag = self.sha256
        self.oid, self.linked = self.sha256, self.sha256  # what the list and the address say of it
        self.size = len(data)
        self.tower = None  # the File of what reads images for it, in ollama's manifest
        self.other = None  # what ranges are answered with, while whole answers are cut
        self.growing = None  # where answers are cut, which are whole whatever is asked for


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def say(self, code, body=b"", **headers):
        self.send_response(code)
        for name, value in {"Content-Length": len(body), **headers}.items():
            if value is not None:
                self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        hub = self.server.hub
        url = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(url.path)
        if url.netloc:
            hub.proxied.append(self.path)
        parts = path.strip("/").split("/")
        hub.seen.append((path, dict(self.headers)))
        try:
            if path.startswith("/api/models/") and path.endswith("/tree/main"):
                self.tree("/".join(parts[2:4]), dict(urllib.parse.parse_qsl(url.query)))
            elif len(parts) > 4 and parts[2:4] == ["resolve", "main"]:
                self.resolve("/".join(parts[:2]), "/".join(parts[4:]))
            elif parts[0] == "v2" and parts[3] == "manifests":
                self.manifest("/".join(parts[1:3]), parts[4])
            elif parts[0] == "v2" and parts[3] == "blobs":
                self.say(307, Location=f"{hub.elsewhere}/cdn/{'/'.join(parts[1:3])}/{parts[4]}")
            elif parts[0] == "cdn":
                self.bytes_of(hub.blobs.get(path[len("/cdn/"):]))
            else:
                self.say(404, b"Not Found")
        except (BrokenPipeError, ConnectionResetError):
            pass

    def tree(self, repo, query):
        hub = self.server.hub
        if repo not in hub.repos:
            return self.say(401, b'{"error":"Invalid username or password."}')
        if hub.gated and self.headers.get("Authorization") != "Bearer " + hub.gated:
            return self.say(403, b'{"error":"gated"}')
        names, page, per = list(hub.repos[repo]), int(query.get("cursor", 0)), hub.per_page
        items = [{"type": "directory", "path": "sub", "size": 0}]
        for name in names[page * per:(page + 1) * per]:
            f = hub.repos[repo][name]
            item = {"type": "file", "path": name, "size": len(f.data), "oid": "0" * 40}
            if f.lfs:
                item["lfs"] = {"oid": f.oid, "size": f.size, "pointerSize": 130}
                if f.size is None:
                    del item["lfs"]["size"]
            items.append(item)
        more = (page + 1) * per < len(names)
        link = f'<{hub.url}/api/models/{repo}/tree/main?recursive=true&cursor={page + 1}>; rel="next"' if more else None
        self.say(200, json.dumps(items).encode(), Link=link, Content_Type="application/json")

    def resolve(self, repo, name):
        hub = self.server.hub
        f = hub.repos.get(repo, {}).get(name)
        if not f:
            return self.say(404, b"Entry not found")
        linked = {"X_Linked_Etag": f'"{f.linked}"', "X_Linked_Size": len(f.data)} if f.lfs and f.linked else {}
        if f.faults and f.faults[0] == "other-hash":
            f.faults.pop(0)
            linked["X_Linked_Etag"] = '"' + "ab" * 32 + '"'
        self.say(302, Location=f"{hub.elsewhere}/cdn/{repo}/{urllib.parse.quote(name)}", X_Repo_Commit="c" * 40, **linked)

    def manifest(self, name, tag):
        hub = self.server.hub
        f = hub.repos.get(name, {}).get(tag)
        if not f:
            return self.say(404, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')
        tower = [{"mediaType": "application/vnd.ollama.image.projector", "digest": "sha256:" + f.tower.oid,
                  "size": len(f.tower.data)}] if f.tower else []
        self.say(200, json.dumps({"schemaVersion": 2, "layers": tower + [
            {"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:" + "1" * 64, "size": 3},
            {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + f.oid,
             "size": len(f.data)}]}).encode())

    def cut(self, hard):
        if hard:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR) if not hard else None
        self.close_connection = True
        self.connection.close() if hard else None

    def bytes_of(self, f):
        hub = self.server.hub
        if not f:
            return self.say(404, b"Not Found")
        fault = f.faults.pop(0) if f.faults else None
        wanted = self.headers.get("Range")
        start = int(wanted[6:].split("-")[0]) if wanted else 0
        if_range = self.headers.get("If-Range")
        if if_range and if_range != f'"{f.etag}"':
            start, wanted = 0, None
        f.requests.append((start, fault))
        data, total = f.data, len(f.data)
        if fault in ("500", "503", "429", "408", "403", "404"):
            return self.say(int(fault), b"<html>an error</html>", Retry_After=0 if fault == "503" else None)
        if fault == "304":
            return self.say(304, Content_Length=None)
        if fault == "html":
            return self.say(200, b"<!DOCTYPE html><title>Please log in</title>", Content_Type="text/html")
        if fault in ("loop", "to-file", "to-nowhere"):
            f.faults[:0] = ["loop"] * 20 if fault == "loop" and f.faults.count("loop") < 5 else []
            return self.say(302, Location={"loop": self.path, "to-file": "file:///etc/passwd",
                                           "to-nowhere": "http://127.0.0.1:1/x"}[fault])
        if fault == "garbage":
            self.wfile.write(bytes(random.Random(3).randbytes(200)))
            return self.cut(False)
        if fault in ("empty", "drop-at-once"):
            return self.cut(fault == "drop-at-once")
        if fault == "416" or (start >= total and start):
            return self.say(416, Content_Range=f"bytes */{total}")
        if fault == "flipped":
            middle = start + (total - start) // 2
            data = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1:]
        if not f.lfs and f.etag and self.headers.get("If-None-Match") == f'"{f.etag}"':
            return self.say(304, Content_Length=None, ETag=f'"{f.etag}"')
        if fault == "no-range":
            start, wanted = 0, None
        if f.other:
            fault = fault or ("drop" if not wanted else None)
            data = f.other if wanted and len(f.requests) < 100 else data
        cut = next(f.growing, None) if f.growing else None
        if cut:
            start, wanted = 0, None
        body = data[start:]
        length = {"short": len(body) - 1, "long": len(body) + 1}.get(fault, len(body))
        told = start + (7 if fault == "other-range" and start else 0)
        if fault == "other-range" and not start:
            wanted, told = "bytes=5-", 5
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {told}-{total - 1}/{total}")
        if f.etag:
            self.send_header("ETag", f'"{f.etag}"')
        if fault in ("no-length", "endless"):
            self.close_connection = True
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        if fault in ("drop", "reset", "stall"):
            body = body[:random.Random(total + start).randrange(len(body) + 1)]
        if fault == "short":
            body = body[:-1]
        if cut:
            body, fault = body[:cut], "drop"
        for i in range(0, len(body), 4096):
            self.wfile.write(body[i:i + 4096])
            if f.slow:
                time.sleep(f.slow)
        for _ in range(ENDLESS >> 12 if fault == "endless" else 0):
            self.wfile.write(bytes(4096))
            f.sent += 4096
        if fault == "stall":
            hub.stalled.wait(20)
        if fault in ("drop", "reset", "stall", "long"):
            self.cut(fault == "reset")


class Hub:
    """repos: "owner/name" -> {file or tag: File}"""

    def __init__(self):
        class Server(ThreadingHTTPServer):
            daemon_threads, request_queue_size = True, 256

            def handle_error(self, *args):
                pass
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.hub = self
        port = self.server.server_address[1]
        self.url, self.elsewhere = f"http://127.0.0.1:{port}", f"http://localhost:{port}"
        self.repos, self.blobs, self.seen, self.proxied = {}, {}, [], []
        self.per_page, self.gated, self.stalled = 1000, None, threading.Event()
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def add(self, repo, name, data, lfs=True):
        f = File(data, lfs)
        self.repos.setdefault(repo, {})[name] = f
        self.blobs[f"{repo}/{name}"] = self.blobs[f"{repo}/sha256:{f.sha256}"] = f
        return f

    def close(self):
        self.stalled.set()
        self.server.shutdown()
        self.server.server_close()
