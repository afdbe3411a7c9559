"""llama_server.py - llama.cpp's speculation, measured for bench/peers.py --spec through the one of its programs that does
every kind and says how long generation took: llama-server. A server is started for each configuration, asked to answer every
prompt, put into the chat template by it, and stopped; what it reports as `timings` (tokens and milliseconds of generation,
without the prompt) counts.

Needs only Python 3.
"""
import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

NGRAM_LOOKUP = 3  # tokens that must match before a draft is taken from the text


class Failed(Exception):
    """A sentence for the user."""


def configurations(draft_n, head, more):
    """[(name, options)]: plain, n-gram and, with a head, EAGLE-3, each over all n; `more`: the user's own"""
    found = [("plain", [])]
    for kind in ("ngram-simple", "ngram-map-k"):
        lookup = ["--spec-type", kind, f"--spec-{kind}-size-n", str(NGRAM_LOOKUP)]
        found += [(f"{kind} {n}", lookup + [f"--spec-{kind}-size-m", str(n)]) for n in draft_n]
    if head:
        eagle3 = ["--spec-type", "draft-eagle3", "-md", head]
        found += [(f"draft-eagle3 {n}", eagle3 + ["--spec-draft-n-max", str(n)]) for n in draft_n]
    return found + more


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """with Server(...) as server: server.answer(...)"""

    def __init__(self, folder, environment, model, threads, context, options):
        self.program = os.path.join(folder, "llama-server")
        self.words = [self.program, "-m", model, "-t", str(threads), "-c", str(context), "-np", "1", "--host", "127.0.0.1"]
        self.words += ["--jinja"] + options
        self.environment = environment

    def __enter__(self):
        self.log = tempfile.TemporaryFile()
        self.port = free_port()
        try:
            self.process = subprocess.Popen(self.words + ["--port", str(self.port)], env=self.environment,
                                            stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)
        except OSError as error:
            self.log.close()
            raise Failed(f"{self.program}: {error.strerror}; a folder with llama.cpp's llama-server is needed") from None
        try:
            self.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def failed(self, what):
        self.log.seek(0)
        lines = self.log.read().decode("utf-8", "replace").strip().splitlines()
        return Failed(f"'{' '.join(self.words)}' {what}: {' / '.join(lines[-3:])}")

    def wait(self, seconds=600):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise self.failed(f"ended with {self.process.returncode}")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as reply:
                    if reply.status == 200:
                        return
            except OSError:  # not listening yet, or still loading (503)
                pass
            time.sleep(0.2)
        raise self.failed(f"was not ready after {seconds} s")

    def post(self, path, body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=3600) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            raise self.failed(f"answered {path} with {error.code} {error.read(200).decode('utf-8', 'replace')}") from None
        except (OSError, ValueError) as error:
            raise self.failed(f"did not answer {path} ({error!r})") from None

    def answer(self, prompt, n, temperature, seed):
        """(tokens, seconds, drafted, accepted) of the answer to one prompt"""
        try:
            text = self.post("/apply-template", {"messages": [{"role": "user", "content": prompt}]})["prompt"]
            body = {"prompt": text, "n_predict": n, "temperature": temperature, "seed": seed, "top_k": 40, "top_p": 0.95,
                    "min_p": 0.05, "repeat_penalty": 1.0, "stream": False}
            timings = self.post("/completion", body)["timings"]
            return (int(timings["predicted_n"]), float(timings["predicted_ms"]) / 1e3, int(timings.get("draft_n", 0)),
                    int(timings.get("draft_n_accepted", 0)))
        except (ValueError, KeyError, TypeError) as error:
            raise self.failed(f"gave no timings ({error!r})") from None
