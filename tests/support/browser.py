"""A headless Chromium, spoken to in its DevTools protocol: what a page holds, and what it looks like."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from programs import program

_WINDOW = {"width": 1500, "height": 900, "newWindow": True}
_SECONDS = 180.0  # a page of MLflow's takes seconds on a free machine

Seen = TypeVar("Seen")
Picture = NDArray[np.uint8]
"""A page's picture (height, width, 3), blue, green and red from 0 to 255."""


def chromium() -> str:
    """Path of the browser."""
    return program("chromium", "chromium-browser", "google-chrome", package="chromium")


class Browser:
    """A browser that runs.

    Args:
        requests: Where it reads.
        answers: Where it writes.
    """

    def __init__(self, requests: int, answers: int) -> None:
        self._requests = os.fdopen(requests, "wb", buffering=0)
        self._answers = os.fdopen(answers, "rb")
        self._unread = b""
        self._number = 0

    def text_when(self, url: str, is_there: Callable[[str], bool]) -> str:
        """A page's HTML, frames aside, as soon as it holds what is waited for; after three minutes as it is."""
        expression = {"expression": "document.documentElement.outerHTML"}

        def look(session: str) -> str:
            # A page that has only begun to load has no element yet, and the answer no value.
            return str(self._ask("Runtime.evaluate", expression, session)["result"].get("value", ""))

        return self._when(url, look, is_there)

    def picture_when(self, url: str, is_there: Callable[[Picture], bool]) -> Picture:
        """A page's picture, as soon as it shows what is waited for; after three minutes as it is."""

        def look(session: str) -> Picture:
            png = base64.b64decode(self._ask("Page.captureScreenshot", {}, session)["data"])
            return np.asarray(cv2.imdecode(np.frombuffer(png, dtype=np.uint8), cv2.IMREAD_COLOR), dtype=np.uint8)

        return self._when(url, look, is_there)

    def _when(self, url: str, look: Callable[[str], Seen], is_there: Callable[[Seen], bool]) -> Seen:
        target = self._ask("Target.createTarget", {"url": url, **_WINDOW})["targetId"]
        session = self._ask("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        deadline = time.monotonic() + _SECONDS
        while not is_there(seen := look(session)) and time.monotonic() < deadline:
            time.sleep(0.2)
        self._ask("Target.closeTarget", {"targetId": target})
        return seen

    def _ask(self, method: str, parameters: dict[str, Any], session: str | None = None) -> dict[str, Any]:
        """Sends a request and gives its answer; what the browser tells by itself is passed over."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        self._requests.write(json.dumps(request | ({"sessionId": session} if session else {})).encode() + b"\0")
        while (answer := json.loads(self._read())).get("id") != self._number:
            pass
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _read(self) -> bytes:
        """A message, which ends with a zero byte."""
        while b"\0" not in self._unread:
            more = self._answers.read1()
            assert more, "the browser has ended"
            self._unread += more
        message, _, self._unread = self._unread.partition(b"\0")
        return message


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Starts a browser with its profile in a folder, and ends it. It listens on no port: it is spoken to by pipes."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={folder}"]
    (read, requests), (answers, write) = os.pipe(), os.pipe()
    # The browser reads from descriptor 3 and writes to 4; sh knows none above 9 to make them from.
    command = ["bash", "-c", f'exec "$@" 3<&{read} 4>&{write}', "bash", chromium(), *options]
    process = subprocess.Popen(command, pass_fds=(read, write), stderr=subprocess.DEVNULL, start_new_session=True)
    os.close(read)
    os.close(write)
    try:
        yield Browser(requests, answers)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
