"""A headless Chromium for tests, driven through the DevTools protocol over a pair of pipes: no port, no library."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-default-apps",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--mute-audio", "--remote-debugging-pipe",
)  # fmt: skip
# A browser that does not answer by then is broken; no test depends on how long it takes.
PATIENCE = 120.0
# Windows codes of keys that are not characters.
KEY_CODES = {"Enter": 13, "Tab": 9, "Home": 36, "End": 35, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39,
             "ArrowDown": 40}  # fmt: skip


def find_browser() -> str | None:
    """Path of a browser, None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One tab of a running browser."""

    def __init__(self, reader: int, writer: int) -> None:
        self._reader, self._writer = reader, writer
        self._numbers = itertools.count(1)
        self._rest = b""
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its result; events that come in between are kept."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._writer, json.dumps(message).encode() + b"\0")
        while True:
            prediction = self._receive()
            if prediction.get("id") == number:
                assert "error" not in prediction, (method, prediction["error"])
                result: dict[str, Any] = prediction["result"]
                return result
            self.events.append(prediction)

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._reader], [], [], max(deadline - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            piece = os.read(self._reader, 1 << 20)
            assert piece, "the browser has ended"
            self._rest += piece
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def open(self, path: str | Path) -> None:
        """Load a file and wait until it is complete."""
        self.events.clear()
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def run(self, expression: str) -> Any:
        """Value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def settle(self) -> None:
        """Wait until what was asked for is painted."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def set_size(self, width: int, height: int, is_phone: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=is_phone
        )

    def set_media(self, **features: str) -> None:
        """Such as ``prefers_color_scheme="dark"``."""
        named = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", features=named)

    def press(self, key: str, shift: bool = False) -> None:
        """Press and release a key."""
        is_character = len(key) == 1
        code = KEY_CODES.get(key) or ord(key.upper())
        about: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        text = {"text": key} if is_character else {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **about, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def middle_of(self, selector: str) -> tuple[float, float]:
        """Middle of an element, scrolled into view."""
        x, y = self.run(
            f"(e => {{ e.scrollIntoView({{block: 'center', behavior: 'instant'}}); "
            "const r = e.getBoundingClientRect(); "
            f"return [r.x + r.width / 2, r.y + r.height / 2]; }})(document.querySelector({json.dumps(selector)}))"
        )
        return x, y

    def click(self, selector: str) -> None:
        self.drag(selector, 0, 0)

    def drag(self, selector: str, dx: float, dy: float) -> None:
        """Press on an element, move, release; without a move that is a click."""
        x, y = self.middle_of(selector)
        self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        if dx or dy:
            self.mouse("mouseMoved", x + dx / 2, y + dy / 2, button="left", buttons=1)
            self.mouse("mouseMoved", x + dx, y + dy, button="left", buttons=1)
        self.mouse("mouseReleased", x + dx, y + dy, button="left", clickCount=1)

    def requests(self) -> list[str]:
        """Addresses that the page has asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """Errors and warnings of the console."""
        found = []
        for event in self.events:
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(json.dumps(event["params"]["exceptionDetails"]))
            elif event.get("method") == "Log.entryAdded":
                found.append(event["params"]["entry"]["text"])
            elif event.get("method") == "Runtime.consoleAPICalled":
                found.append(json.dumps(event["params"]["args"]))
        return found

    def save_picture(self, path: str | Path, is_whole_page: bool = False) -> None:
        result = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=is_whole_page)
        Path(path).write_bytes(base64.b64decode(result["data"]))


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """A browser with an empty profile that ends with the block."""
    program = find_browser()
    assert program is not None
    to_browser, from_browser = os.pipe(), os.pipe()

    # The browser reads commands from descriptor 3 and writes to 4; a shell puts the pipes there.
    shell = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
    with tempfile.TemporaryDirectory(prefix="metasilvae-browser-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            ["bash", "-c", shell, "bash", str(to_browser[0]), str(from_browser[1]), program, *FLAGS,
             f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_browser[0], from_browser[1]), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=os.environ | {"HOME": profile},
        )  # fmt: skip
        os.close(to_browser[0])
        os.close(from_browser[1])
        try:
            yield Browser(from_browser[0], to_browser[1])
        finally:
            # At the end of its commands the browser leaves.
            os.close(to_browser[1])
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(from_browser[0])
