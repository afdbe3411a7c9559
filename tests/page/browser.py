"""A headless Chromium, driven over the pipe of its debugging protocol; needs nothing but Python's own library.

    with Browser(find()) as browser:
        page = browser.page(width=1280, height=800)
        page.go("http://127.0.0.1:8080/")
        page.wait("document.querySelector('#prompt') !== null")
"""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time


def find():
    """The path of a Chromium, or None."""
    for name in (os.environ.get("AERIE_CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "chrome"):
        path = name and shutil.which(name)
        if path:
            return path
    return None


class Failure(Exception):
    pass


class Browser:
    def __init__(self, path):
        self.folder = tempfile.mkdtemp(prefix="aerie-page-")
        into, self.out = os.pipe()
        self.source, back = os.pipe()
        command = [path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                   "--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio",
                   "--hide-scrollbars", "--force-device-scale-factor=1", "--remote-debugging-pipe",
                   "--user-data-dir=" + self.folder, "about:blank"]

        def descriptors():  # Chromium reads commands from 3 and writes answers to 4
            high = [os.dup2(fd, 100 + i) for i, fd in enumerate((into, back))]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(command, preexec_fn=descriptors, close_fds=False, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(into)
        os.close(back)
        self.rest, self.n, self.events = b"", 0, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
        except (Failure, OSError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def read(self):
        while b"\0" not in self.rest:
            piece = os.read(self.source, 1 << 16)
            if not piece:
                raise Failure("Chromium has gone")
            self.rest += piece
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **params):
        self.n += 1
        request = {"id": self.n, "method": method, "params": params}
        if session:
            request["sessionId"] = session
        os.write(self.out, json.dumps(request).encode() + b"\0")
        while True:
            message = self.read()
            if message.get("id") == self.n:
                if "error" in message:
                    raise Failure(f"{method}: {message['error']['message']}")
                return message["result"]
            self.events.append(message)

    def page(self, width, height, phone=False, dark=False):
        context = self.call("Target.createBrowserContext")["browserContextId"]  # its own storage
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Page(self, session, width, height, phone, dark)


class Page:
    def __init__(self, browser, session, width, height, phone, dark):
        self.browser, self.session = browser, session
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1,
                  mobile=phone)
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"}])

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def go(self, address):
        self.js("window.beforeGoing = true")
        self.call("Page.navigate", url=address)
        self.wait("!window.beforeGoing && document.readyState === 'complete' && location.href !== 'about:blank'")

    def js(self, code):
        """The value of an expression, promises awaited."""
        result = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True, userGesture=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise Failure(f"{code}: {details.get('exception', {}).get('description', details['text'])}")
        return result["result"].get("value")

    def wait(self, code, seconds=300):
        end = time.monotonic() + seconds
        while not self.js(code):
            if time.monotonic() > end:
                raise Failure(f"never true: {code}")
            time.sleep(0.03)

    def click(self, selector):
        """A click with the mouse, in the middle of what is seen of an element."""
        self.wait(f"document.querySelector({json.dumps(selector)})?.getClientRects().length > 0")
        box = self.js(f"""(() => {{ const e = document.querySelector({json.dumps(selector)}); 
            e.scrollIntoView({{block: "nearest"}});
            const r = e.getBoundingClientRect(), x = r.x + r.width / 2, y = r.y + r.height / 2;
            const top = document.elementFromPoint(x, y); return {{x, y, hit: e === top || e.contains(top)}}; }})()""")
        if not box["hit"]:
            raise Failure(f"{selector} is covered by something")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box["x"], y=box["y"], button="left", clickCount=1)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def key(self, name, code=None, modifiers=0):
        numbers = {"Enter": 13, "Escape": 27, "Tab": 9, "Backspace": 8, "a": 65}
        extra = {"text": "\r"} if name == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=code or name, modifiers=modifiers,
                      windowsVirtualKeyCode=numbers[name], **(extra if kind == "keyDown" else {}))

    def text(self, selector):
        return self.js(f"document.querySelector({json.dumps(selector)})?.innerText")

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def complaints(self):
        """What the console says of errors, broken rules of the content security policy included."""
        self.js("0")
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            if event["method"] == "Runtime.exceptionThrown":
                details = event["params"]["exceptionDetails"]
                found.append(details.get("exception", {}).get("description", details["text"]))
            elif event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                found.append(event["params"]["entry"]["text"] + " " + event["params"]["entry"].get("url", ""))
        return found
