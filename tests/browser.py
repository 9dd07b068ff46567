"""A headless Chromium, driven over a pipe by its DevTools protocol: no port, no driver, no package."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--hide-scrollbars", "--force-color-profile=srgb"),
    *("--remote-debugging-pipe", "--no-default-browser-check", "--mute-audio", "--disable-extensions"),
)
SOFTWARE = (
    *("--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"),
    *("--disable-accelerated-2d-canvas", "--disable-gpu-rasterization"),  # slower without a GPU
)
WITHOUT_WEBGL = ("--disable-gpu", "--disable-webgl", "--disable-webgl2", "--disable-3d-apis")


LAUNCH = (  # a browser reads commands from file 3 and answers to file 4
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)

TWO_PICTURES = """new Promise((done) =>
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 30))))"""


def chromium():
    """Its path. CI must have it; elsewhere a test is skipped without it."""
    path = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no Chromium here")
    return path


class Browser:
    """One page. `problems` are errors and warnings of its console, and requests that it made to anywhere."""

    def __init__(self, size=(1280, 800), webgl=True, flags=()):
        program, self._profile = chromium(), tempfile.mkdtemp(prefix="browser-")
        command_read, command_write = _pipe()
        answer_read, answer_write = _pipe()
        self._out, self._in = command_write, answer_read
        command = (
            program,
            *FLAGS,
            *(SOFTWARE if webgl else WITHOUT_WEBGL),
            *flags,
            f"--user-data-dir={self._profile}",
        )
        numbers = (str(command_read), str(answer_write))
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *numbers, *command, "about:blank"],
            pass_fds=(command_read, answer_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(command_read)
        os.close(answer_write)
        self._number, self._rest, self._events, self.problems = 0, b"", [], []
        targets = self._call("Target.getTargets", session=None)["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        attached = {"targetId": page["targetId"], "flatten": True}
        self._session = None
        self._session = self._call("Target.attachToTarget", session=None, **attached)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        self.resize(*size)
        self.prefer()

    def resize(self, width, height, scale=1, mobile=False):
        self._call(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": scale, "mobile": mobile},
        )
        self._call("Emulation.setTouchEmulationEnabled", enabled=mobile)

    def prefer(self, **features):
        """Media features, such as `prefers-color-scheme`, with underscores. By default nothing moves."""
        features = {"prefers_reduced_motion": "reduce", **features}
        named = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self._call("Emulation.setEmulatedMedia", features=named)

    def open(self, path, fragment=""):
        """Opens a page of the explorer and waits until it says that it is ready."""
        self.load(path, fragment)
        self.wait("document.documentElement.dataset.ready === 'yes'")
        self.settle()

    def load(self, path, fragment=""):
        """Loads a page, a file or an address, with all of its pictures."""
        self._call("Page.navigate", url="about:blank")
        address = path if str(path).startswith("http:") else Path(path).resolve().as_uri()
        self._call("Page.navigate", url=f"{address}{'#' if fragment else ''}{fragment}")
        self.wait("location.href !== 'about:blank' && document.readyState === 'complete'")

    def wait(self, condition, seconds=20.0):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if self.run(condition):
                    return
            except PageError:
                pass  # between two pages
            time.sleep(0.03)
        raise AssertionError(f"{condition} did not come true; the console said {self.problems}")

    def settle(self):
        """Waits until nothing moves on the maps, the address is written and the last picture drawn."""
        self.wait("views.every((view) => !view.moving) && !changed.size && !hashTimer")
        self.run(TWO_PICTURES)

    def run(self, script):
        """The value of an expression, or of what it promises."""
        answer = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise PageError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def move(self, x, y):
        self._mouse("mouseMoved", x, y)
        self.settle()

    def click(self, x, y, modifiers=0):
        self._mouse("mouseMoved", x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self._mouse(kind, x, y, button="left", clickCount=1, modifiers=modifiers)
        self.settle()

    def tap(self, x, y):
        self._call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self._call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.settle()

    def drag(self, start, end, steps=8):
        self._mouse("mouseMoved", *start)
        self._mouse("mousePressed", *start, button="left", clickCount=1)
        for step in range(1, steps + 1):
            at = [one + (other - one) * step / steps for one, other in zip(start, end, strict=True)]
            self._mouse("mouseMoved", *at, button="left", buttons=1)
        self._mouse("mouseReleased", *end, button="left", clickCount=1)
        self.settle()

    def scroll(self, x, y, amount):
        self._mouse("mouseWheel", x, y, deltaX=0, deltaY=amount)
        time.sleep(0.2)
        self.settle()

    def press(self, key, text=None):
        text = text if text is not None else key if len(key) == 1 else None
        described = {"key": key, **({"text": text} if text else {})}
        self._call("Input.dispatchKeyEvent", type="keyDown", **described)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def type(self, text):
        self._call("Input.insertText", text=text)

    def press_button(self, selector):
        """Clicks the middle of an element, as a person would."""
        x, y = self.middle(selector)
        self.click(x, y)

    def middle(self, selector):
        script = (
            f"(() => {{ const box = document.querySelector({json.dumps(selector)}).getBoundingClientRect(); "
        )
        return self.run(script + "return [box.x + box.width / 2, box.y + box.height / 2]; })()")

    def screenshot(self, path, full=False):
        answer = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        Path(path).write_bytes(base64.b64decode(answer["data"]))
        return Path(path)

    def close(self):
        try:
            self._call("Browser.close", session=None)
            self._process.wait(1)
        except (OSError, EOFError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        finally:
            os.close(self._in)
            os.close(self._out)
            shutil.rmtree(self._profile, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _mouse(self, kind, x, y, **more):
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def _call(self, method, session=True, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise PageError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._note(answer)

    def _note(self, event):
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.problems.append(
                " ".join(str(one.get("value", one.get("description"))) for one in parameters["args"])
            )
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.problems.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            address = parameters["request"]["url"]
            if not address.startswith(("file:", "data:", "blob:", "about:")):
                self.problems.append(f"request of {address}")

    def _read(self):
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], 60)
            if not ready:
                raise PageError("the browser does not answer")
            data = os.read(self._in, 2**20)
            if not data:
                raise EOFError("the browser has ended")
            self._rest += data
        first, self._rest = self._rest.split(b"\0", 1)
        return json.loads(first)


class PageError(Exception):
    """What went wrong in the page."""


def on_map(browser, elite, view=0):
    """Where an elite is on the screen."""
    return browser.run(
        f"(() => {{ const view = views[{view}], box = view.box.getBoundingClientRect(), "
        f"[x, y] = view.middle(view.tileOf({elite})); return [box.x + x, box.y + y]; }})()"
    )


def _pipe():
    """Two ends of a pipe, numbered so high that the browser's 3 and 4 are free."""
    ends = []
    for end in os.pipe():
        ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20))
        os.close(end)
    return ends
