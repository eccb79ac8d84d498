"""A real browser without a window, driven over a pipe by the DevTools protocol; nothing but Chromium is needed."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def program() -> str | None:
    """The first browser on the PATH."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Chromium:
    """One page in one browser; what went wrong in it and what it asked for are collected.

    Attributes:
        errors: messages of the console at level error or warning, and exceptions.
        requests: every address that the page asked for.
    """

    def __init__(self, folder: Path) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._answers: dict[int, Any] = {}
        self._events: list[str] = []
        self._count = 0
        self._rest = b""
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()

        def hand_over() -> None:
            # The browser reads commands from descriptor 3 and answers on 4.
            above = [fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (theirs_in, theirs_out)]
            os.dup2(above[0], 3)
            os.dup2(above[1], 4)

        options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe")
        quiet = ("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")
        self._process = subprocess.Popen(
            [str(program()), *options, *quiet, f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=hand_over,  # noqa: PLW1509  (no threads here)
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out = ours_in, ours_out
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.wait(10)
        os.close(self._in)
        os.close(self._out)

    def call(self, method: str, **parameters: Any) -> Any:
        """One command and its answer."""
        self._count += 1
        number = self._count
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        self._until(lambda: number in self._answers, method)
        answer = self._answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def open(self, file: Path, *, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        """Load a file and wait until its script says that it is ready."""
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._events.clear()
        self.call("Page.navigate", url=file.as_uri())
        self._until(lambda: "Page.loadEventFired" in self._events, f"loading {file}")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def picture(self, file: Path, *, clip: dict[str, float] | None = None) -> None:
        """A picture of the whole page, or of a part of it."""
        if clip is None:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"]}
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip={**clip, "scale": 1})["data"]
        file.write_bytes(base64.b64decode(data))

    def _until(self, done: Any, what: str, seconds: float = 120.0) -> None:
        end = time.monotonic() + seconds
        while not done():
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            read = os.read(self._in, 1 << 20) if ready else b""
            assert read, f"the browser gave no answer: {what}"
            *messages, self._rest = (self._rest + read).split(b"\0")
            for message in messages:
                self._take(json.loads(message))

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._answers[message["id"]] = message
            return
        method, found = message["method"], message.get("params", {})
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(found["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and found["type"] in ("error", "warning", "assert"):
            self.errors.append(str(found["args"]))
        elif method == "Log.entryAdded" and found["entry"]["level"] in ("error", "warning"):
            self.errors.append(str(found["entry"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(found["request"]["url"])
