"""The page opened in headless Chromium, as a person would."""

import contextlib
import json
import os
import shutil
import subprocess

import pytest

from elites.reports.study.report import study_report
from tests.made_up import make_run

OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--window-size=1000,900", "--remote-debugging-pipe"),
)


def chromium():
    """Its path. CI must have it; elsewhere the test is skipped where it is missing."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("CI has no Chromium to open the page in")
        pytest.skip("there is no Chromium to open the page in")
    return path


class Browser:
    """A page in Chromium, spoken to over its debugging pipe."""

    def __init__(self, profile):
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        arguments = [chromium(), *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        script = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "browser", *arguments],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._number, self._buffer, self.events = 0, b"", []

    def call(self, method, session=None, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        return self.until(lambda answer: answer.get("id") == self._number)["result"]

    def until(self, wanted):
        while True:
            while b"\0" not in self._buffer:
                data = os.read(self._from, 65536)
                assert data, "Chromium has ended"
                self._buffer += data
            line, _, self._buffer = self._buffer.partition(b"\0")
            message = json.loads(line)
            self.events.append(message)
            if wanted(message):
                return message

    def close(self):
        self._process.kill()
        self._process.wait()
        for descriptor in (self._to, self._from):
            with contextlib.suppress(OSError):
                os.close(descriptor)


LOOK = """JSON.stringify({
  title: document.title,
  pictures: [...document.images].map(image => image.naturalWidth),
  sections: [...document.querySelectorAll('h2')].map(heading => heading.textContent),
  verdicts: [...document.querySelectorAll('td.verdict')].map(cell => cell.textContent),
  links: [...document.querySelectorAll('nav a')].every(link => document.querySelector(link.hash)),
  wide: document.documentElement.scrollWidth, window: innerWidth,
})"""


def test_the_page_opens_without_errors(tmp_path):
    study = tmp_path / "study"
    for algorithm in ("pga-map-elites", "map-elites"):
        for seed in range(2):
            make_run(study, algorithm, "qd-hopper", seed, evaluations=200, loss=0.1)
    study_report(study)
    browser = Browser(tmp_path / "profile")
    try:
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            browser.call(f"{domain}.enable", session)
        browser.call("Page.navigate", session, url=(study / "report" / "index.html").as_uri())
        browser.until(lambda message: message.get("method") == "Page.loadEventFired")
        seen = browser.call("Runtime.evaluate", session, expression=LOOK)["result"]["value"]
    finally:
        browser.close()
    wrong = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled", "Network.loadingFailed")
    assert [event for event in browser.events if event.get("method") in wrong] == []
    requests = [e for e in browser.events if e.get("method") == "Network.requestWillBeSent"]
    requests = [event["params"]["request"]["url"] for event in requests]
    assert [url for url in requests if not url.startswith(("data:", "file:"))] == []
    page = json.loads(seen)
    assert page["title"] == "Study study"
    assert len(page["pictures"]) == 6
    assert all(width > 300 for width in page["pictures"])
    assert page["sections"][0] == "What was run"
    assert page["sections"][-1] == "The paper's claims"
    assert len(page["verdicts"]) == 12
    assert page["links"]
    assert page["wide"] <= page["window"], "the page is wider than its window"
