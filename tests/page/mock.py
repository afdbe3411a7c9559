"""A server that serves the page's files and streams answers that a test chooses; it keeps the requests that it gets."""
import http.server
import json
import pathlib
import re
import threading
import time

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "app" / "serve" / "page"
TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
HEADER = (FOLDER / "page.h").read_text()
POLICY = "".join(re.findall(r'"((?:[^"\\])*)"', HEADER.split("SERVE_PAGE_POLICY")[1].split("#endif")[0]))
CURVE = ((1, 1), (2, 1.05), (4, 1.2), (8, 1.6), (16, 2.6))

WRONG_KEY = {"error": {"message": "an API key is needed: Authorization: Bearer KEY", "code": "invalid_api_key"}}


def tokens_of(request):
    """Of four letters each, and some around each message; a picture is 50."""
    def n(content):
        if isinstance(content, str):
            return len(content) // 4
        return sum(50 if part["type"] == "image_url" else len(part["text"]) // 4 for part in content)
    return 10 + sum(5 + n(m["content"]) for m in request["messages"])


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        self.end_headers()
        self.wfile.write(body)

    def json(self, value, status=200):
        self.reply(status, "application/json", json.dumps(value).encode())

    def do_GET(self):
        path = self.path.split("?")[0]
        file = FOLDER / ("index.html" if path == "/" else path[1:])
        if path == "/v1/models":
            if self.server.key and self.headers["Authorization"] != "Bearer " + self.server.key:
                return self.json(WRONG_KEY, 401)
            modalities = ["text"] + ["image"] * self.server.sees
            self.json({"object": "list", "data": [{"id": name, "meta": {"n_ctx": self.server.n_ctx or 100000},
                                                   "architecture": {"input_modalities": modalities}}
                                                  for name in self.server.models]})
        elif path == "/aerie/curve":
            self.json({"points": [{"n": n, "seconds": 0.02 * t} for n, t in CURVE]})
        elif file.suffix in TYPES and file.parent == FOLDER and file.is_file():
            self.reply(200, TYPES[file.suffix], file.read_bytes())
        else:
            self.json({"error": {"message": "there is no such path"}}, 404)

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.headers, request))
        answer = self.server.answer
        if self.server.key and self.headers["Authorization"] != "Bearer " + self.server.key:
            return self.json(WRONG_KEY, 401)
        if self.server.n_ctx and tokens_of(request) >= self.server.n_ctx:
            return self.json({"error": {"message": "the prompt has many tokens", "code": "context_length_exceeded"}}, 400)
        if isinstance(answer, tuple):  # a status and a body
            return self.reply(answer[0], "application/json", answer[1].encode())
        if isinstance(answer, int):
            return self.json({"error": {"message": "the answer of a test"}}, answer)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.close_connection = True
        self.end_headers()
        try:
            self.stream(answer, tokens_of(request))
        except OSError:
            self.server.gone += 1

    def stream(self, answer, n_prompt):
        """Tokens of about four letters; every third pass accepts two drafted ones."""
        tokens = re.findall(r"\s?\S{1,4}|\s", answer["text"])
        passes = [0, 0, 1, 2]
        for i, text in enumerate(tokens):
            delta = {"reasoning_content" if i < answer.get("thought", 0) else "content": text}
            self.chunk({"choices": [{"index": 0, "delta": delta, "finish_reason": None}],
                        "origins": [{"id": i, "text": text, "depth": passes[i % 4]}]})
            time.sleep(answer.get("pause", 0))
        if answer.get("broken"):
            return
        n = len(tokens)
        timings = {"cache_n": 5, "prompt_n": n_prompt - 5, "predicted_n": n, "predicted_ms": 20.0 * n,
                   "predicted_plain_ms": 30.0 * n,
                   "predicted_per_second": 50.0, "draft_n": n, "draft_n_accepted": n // 2, "n_passes": n - n // 2,
                   "draft_by_depth": [{"depth": 1, "drafted": 40, "tried": 40, "accepted": 30},
                                      {"depth": 2, "drafted": 40, "tried": 30, "accepted": 12}]}
        self.chunk({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "timings": timings})
        self.wfile.write(b"data: [DONE]\n\n")

    def chunk(self, value):
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
        self.wfile.flush()


class Mock(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer, self.requests, self.models, self.gone = {"text": "Hello."}, [], ["tiny"], 0
        self.n_ctx, self.key, self.sees = 0, "", False  # 0: nothing is too long; "": for all
        self.address = "http://127.0.0.1:%d/" % self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()
