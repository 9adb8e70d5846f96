"""Chromium without a window, driven by its DevTools protocol over two pipes: real input events."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--remote-debugging-pipe",
)
_SECONDS = 60.0
_VIRTUAL_KEYS = {
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
}


class Browser:
    """One process; pages are opened one after the other."""

    def __init__(self, program: str, profile: str) -> None:
        # Chromium reads commands from descriptor 3 and answers on 4: bash can put them there.
        its_end, to = os.pipe()
        answers, its_other_end = os.pipe()
        command = [program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        move = f'exec "$@" 3<&{its_end} 4>&{its_other_end}'
        self._process = subprocess.Popen(
            ["bash", "-c", move, "bash", *command],
            pass_fds=(its_end, its_other_end),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(its_end)
        os.close(its_other_end)
        self._to, self._answers = to, answers
        self._rest = b""
        self._number = 0
        self._session: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._to)
        os.close(self._answers)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command of the protocol and its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], _SECONDS)
            assert ready, "chromium does not answer"
            data = os.read(self._answers, 1 << 16)
            assert data, "chromium has ended"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def open(self, url: str, width: int = 1280, height: int = 900) -> None:
        """Loads a page in a window of that size."""
        self._session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.call("Page.enable")
        self.resize(width, height)
        self.call("Page.navigate", url=url)
        self.wait(f"document.readyState === 'complete' && location.href === {json.dumps(url)}")

    def resize(self, width: int, height: int) -> None:
        """The size of the window, in px."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def js(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until an expression is true."""
        end = time.monotonic() + _SECONDS
        while not self.js(condition):
            assert time.monotonic() < end, f"not within {_SECONDS:g} s: {condition}"
            time.sleep(0.02)

    def move(self, x: float, y: float) -> None:
        """The mouse to a place in the window, in px."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x: float, y: float) -> None:
        """The left button, at a place in the window."""
        self.move(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def key(self, name: str) -> None:
        """A key by its name (``Enter``, ``ArrowUp``), or one character."""
        text = {"text": "\r"} if name == "Enter" else {"text": name} if len(name) == 1 else {}
        code = _VIRTUAL_KEYS.get(name, 0)
        down = "keyDown" if text else "rawKeyDown"
        self.call("Input.dispatchKeyEvent", type=down, key=name, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name, windowsVirtualKeyCode=code)

    def type(self, text: str) -> None:
        """Characters, each a key."""
        for one in text:
            self.key(one)

    def screenshot(self, path: Path) -> None:
        """What the window shows, as PNG."""
        import base64

        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextmanager
def browser(program: str) -> Iterator[Browser]:
    """A Chromium with a temporary profile."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        Browser(program, profile) as found,
    ):
        yield found
