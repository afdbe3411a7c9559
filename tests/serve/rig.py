"""Shared by the tests of `aerie serve`: a server on a free port with a tiny random model, and requests by the standard library.

Each check_*.py is called with the program and mkmodel, and runs its unittest cases; AERIE_SERVE_ARGS adds options to every
server.
"""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

AERIE = MKMODEL = FOLDER = None
RUNNING = []  # servers; those that a failed test leaves are ended, since one that outlives it holds its output open
SLOW = 1  # how many times as long to wait, under sanitizers


def patience(seconds):
    """How long to wait for what takes at most so many seconds on a quiet machine: a busy one may take ten times as long."""
    return 10 * seconds * SLOW


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        e = self.json["error"]
        return e if isinstance(e, str) else e["message"]  # a string in ollama's dialect

    @property
    def events(self):
        """Data of server-sent events, [DONE] included; comments left out."""
        out = []
        for block in self.body.decode().split("\n\n"):
            lines = [line for line in block.split("\n") if line and not line.startswith(":")]
            data = [line[6:] for line in lines if line.startswith("data: ")]
            if data:
                out.append(data[0] if data[0] == "[DONE]" else json.loads(data[0]))
        return out


# Passes a socket on as systemd does: as descriptor 3 of the process that LISTEN_PID names.
PASS_ON = """import os, sys
os.dup2(int(sys.argv[1]), 3)
os.execve(sys.argv[2], sys.argv[2:], {**os.environ, "LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"})"""


class Server:
    def __init__(self, *options, model="m.gguf", wait=True, env=None, listener=None):
        """listener: the socket to listen on, instead of one of the server's own."""
        model_options = ["-m", os.path.join(FOLDER, model)] if model else []
        self.run([AERIE, "serve", *model_options, "--port", "0", "-t", "2", "-c", "512",
                  *os.environ.get("AERIE_SERVE_ARGS", "").split(), *options], wait, env, listener)

    def run(self, command, wait, env=None, listener=None):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("AERIE_")}
        # a second signal ends the server at once, without joining its threads
        clean["TSAN_OPTIONS"] = (clean.get("TSAN_OPTIONS", "") + " report_thread_leaks=0").strip()
        passed = [listener.fileno()] if listener else []
        if listener:
            command = [sys.executable, "-c", PASS_ON, str(passed[0]), *command]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, pass_fds=passed,
                                        env={**clean, **(env or {})})
        RUNNING.append(self.process)
        self.lines, self.port, self.ready = [], listener.getsockname()[1] if listener else None, threading.Event()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        if not self.ready.wait(patience(60)) or self.port is None:
            try:
                self.process.wait(patience(30))
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise AssertionError("the server did not say where it listens: " + "".join(self.lines)) from None
            if wait:
                raise AssertionError("the server did not start: " + "".join(self.lines))
        if wait and self.port:
            self.wait_ready()

    def read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.search(r"listening on (?:http://[^ ]*:(\d+)|/.*|the socket passed by systemd)$", line)
            if found:
                self.port = int(found.group(1) or self.port or 0)
                self.ready.set()
        self.ready.set()

    @property
    def log(self):
        """What was read so far, or all of it once the process has ended. While it runs, `logged` waits for a text."""
        if self.process.poll() is not None:
            self.reader.join(patience(10))
        return "".join(self.lines)

    def logged(self, text):
        """How often the log has the text; a thread of the server writes it, so the first may come a moment after an answer."""
        end = time.monotonic() + patience(30)
        while text not in self.log and time.monotonic() < end:
            time.sleep(0.01)
        return self.log.count(text)

    @staticmethod
    def wait_until(holds):
        """Asks again and again until it holds; fails if it never does."""
        end = time.monotonic() + patience(30)
        while not holds():
            if time.monotonic() > end:
                raise AssertionError("it never holds")
            time.sleep(0.02)

    def wait_ready(self):
        end = time.monotonic() + patience(120)
        while time.monotonic() < end:
            if self.get("/health").status == 200:
                return
            time.sleep(0.02)
        raise AssertionError("the model is not loaded: " + self.log)

    def connect(self, timeout=120):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience(timeout))

    def call(self, method, path, body=None, headers=None, connection=None):
        c = connection or self.connect()
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        c.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
        r = c.getresponse()
        out = Answer(r.status, r.headers, r.read())
        if not connection:
            c.close()
        return out

    def get(self, path, headers=None):
        return self.call("GET", path, None, headers)

    def post(self, path, body, headers=None):
        return self.call("POST", path, body, headers)

    def raw(self, text, timeout=30):
        """Bytes as they are; what comes back until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), patience(timeout)) as s:
            s.sendall(text)
            out = b""
            while True:
                try:
                    part = s.recv(65536)
                except ConnectionResetError:
                    break
                if not part:
                    break
                out += part
            return out

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def memory(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))

    def stop(self, how=signal.SIGTERM):
        """The exit status."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            status = self.process.wait(patience(60))
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError("the server does not end: " + self.log)
        self.reader.join(patience(10))
        self.process.stderr.close()
        return status

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        status = self.stop()
        if kind is None and status != 0:
            raise AssertionError(f"exit status {status}: {self.log}")


def chat(text, **fields):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 16, "temperature": 0, **fields}


def wait_for(holds):
    """Waits until the function returns what is true."""
    end = time.monotonic() + patience(60)
    while not holds():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.005)


def busy(s, headers=None):
    """The number of requests that are being answered."""
    return sum(slot["is_processing"] for slot in s.get("/slots", headers or {}).json)


def many(n):
    """Tokens of an answer that shall take a while: fewer where each takes longer."""
    return n if SLOW == 1 else n // 6


def make_model(name, *options):
    subprocess.run([MKMODEL, "--shape", "tiny", *options, os.path.join(FOLDER, name)], check=True, stderr=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL)


# ChatML with the tools that the request has, which the plain one lacks.
TOOLS_TEMPLATE = """{% if tools %}{{ tools | tojson }}
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def template(name, text=TOOLS_TEMPLATE):
    """The path of a file with a chat template."""
    path = os.path.join(FOLDER, name + ".jinja")
    with open(path, "w") as f:
        f.write(text)
    return path


def make_lora(name, *options, model="m.gguf"):
    """The file's path."""
    path = os.path.join(FOLDER, name)
    subprocess.run([os.path.join(os.path.dirname(MKMODEL), "mklora"), *options, os.path.join(FOLDER, model), path], check=True)
    return path


def main(module_name):
    """Arguments: the program, mkmodel, and what unittest takes. A test's thread that dies of an exception fails the run: what
    it had still to ask or to check would be missed in silence."""
    global AERIE, MKMODEL, FOLDER, SLOW
    died = []

    def dies(what):
        died.append(what.exc_type)
        report(what)
    report, threading.excepthook = threading.excepthook, dies
    AERIE, MKMODEL = sys.argv[1:3]
    with open(AERIE, "rb") as f:
        SLOW = 10 if b"__tsan_init" in f.read() or os.environ.get("AERIE_SLOW") else 1
    FOLDER = tempfile.mkdtemp(prefix="aerie-serve-")
    try:
        if b"built without libmicrohttpd" in subprocess.run([AERIE, "serve"], stderr=subprocess.PIPE).stderr:
            print("skip: the program was built without libmicrohttpd")
            sys.exit(77)
        make_model("m.gguf")
        program = unittest.main(module_name, argv=[sys.argv[0], *sys.argv[3:]], exit=False, verbosity=2)
    finally:
        for process in RUNNING:
            process.kill()  # does nothing to one that has been waited for
        shutil.rmtree(FOLDER, ignore_errors=True)
    if died:
        print(f"{len(died)} of the tests' threads died, the first of {died[0].__name__}")
    sys.exit(0 if program.result.wasSuccessful() and not died else 1)
