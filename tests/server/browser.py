"""A real Chromium without a window, driven over its debugging pipe: Python's library suffices.

The pipe is two descriptors with JSON messages that end in a zero byte (Chrome DevTools Protocol).
"""

import base64
import functools
import http.server
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import pytest

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(
    PROGRAM is None,
    reason="NOT RUN: no Chromium; install it (Debian: apt-get install chromium)",
)
# The browser reads from 3 and writes to 4.
_PIPE = 'exec 3<&"$0" 4>&"$1"; shift; exec "$@"'
_FLAGS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu"),
    *("--disable-dev-shm-usage", "--disable-background-networking", "--disable-sync"),
    "--no-sandbox",  # root has no sandbox; the pages are the test's own
    "--host-resolver-rules=MAP *.example 127.0.0.1",
)


# Keys that type nothing, and their numbers.
_CODES = {"Tab": 9, "Enter": 13, "Escape": 27, "Space": 32, "PageUp": 33, "PageDown": 34}
_CODES |= {
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "Shift+Tab": 9,
}


class Browser:
    """A browser that resolves every name under `example` to 127.0.0.1."""

    def __init__(self) -> None:
        assert PROGRAM is not None
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        read, self._write = os.pipe()
        self._read, write = os.pipe()
        self._process = subprocess.Popen(
            [
                *("bash", "-c", _PIPE, str(read), str(write), PROGRAM, *_FLAGS),
                *(f"--user-data-dir={self._profile.name}", "about:blank"),
            ],
            pass_fds=(read, write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self._from = os.fdopen(self._read, "rb")
        self._number = 0
        self._session: str | None = None
        # The errors in pages: exceptions, and what the browser refused to do.
        self.errors: list[str] = []

    def __enter__(self) -> Self:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for part in ("Page", "Runtime", "Log"):
            self.call(f"{part}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._session = None
        self.call("Browser.close")
        self._process.wait(60)
        self._from.close()
        os.close(self._write)
        self._profile.cleanup()

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol, and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answer = self._until(lambda message: message.get("id") == self._number)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def go(self, address: str) -> None:
        """Load a page."""
        went = self.call("Page.navigate", url=address)
        assert "errorText" not in went, (address, went)
        # An address that differs in its fragment alone loads nothing.
        if "loaderId" in went:
            self._until(lambda message: message.get("method") == "Page.loadEventFired")

    def reload(self) -> None:
        """Load the page again."""
        self.call("Page.reload")
        self._until(lambda message: message.get("method") == "Page.loadEventFired")

    def run(self, script: str) -> Any:
        """Run a script in the page, wait for its promise, and return its value."""
        result = self.call(
            "Runtime.evaluate",
            expression=f"(async () => {{ {script} }})()",
            awaitPromise=True,
            returnByValue=True,
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, condition: str, patience_s: float = 30) -> None:
        """Wait until an expression is true in the page, looked at as each frame is drawn."""
        self.run(
            f"const end = performance.now() + {patience_s * 1000};"
            f"for (;;) {{ if (await ({condition})) return;"
            "if (performance.now() > end) throw new Error('it did not come true: ' + "
            f"{json.dumps(condition)} + ' in ' + document.body.innerText.slice(0, 3000));"
            "await new Promise(requestAnimationFrame); }"
        )

    def text(self) -> str:
        """The text of the page."""
        return str(self.run("return document.documentElement.textContent"))

    def press(self, *keys: str) -> None:
        """Press keys, each by its name or as the character that it types."""
        for key in keys:
            code = _CODES.get(key, 0)
            text = {"Enter": "\r", "Space": " "}.get(key, key if len(key) == 1 else None)
            name = {"Space": " ", "Shift+Tab": "Tab"}.get(key, key)
            same = {"key": name, "windowsVirtualKeyCode": code, "modifiers": 8 * ("Shift" in key)}
            down = {"text": text} if text else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", **same, **down)
            self.call("Input.dispatchKeyEvent", type="keyUp", **same)

    def type(self, text: str) -> None:
        """Put text where the focus is."""
        self.call("Input.insertText", text=text)

    def size(self, width: int, height: int, scale: float = 1) -> None:
        """Give the page this size."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )

    def prefer(self, scheme: str) -> None:
        """Prefer a light or a dark page."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def image(self, kind: str = "png") -> bytes:
        """Take a picture of the page."""
        quality = {} if kind == "png" else {"quality": 90}
        return base64.b64decode(self.call("Page.captureScreenshot", format=kind, **quality)["data"])

    def _until(self, wanted: Any) -> dict[str, Any]:
        while True:
            data = bytearray()
            while (byte := self._from.read(1)) != b"\0":
                assert byte, f"the browser ended with {self._process.wait(60)}"
                data += byte
            message: dict[str, Any] = json.loads(data)
            self._note(message)
            if wanted(message):
                return message

    def _note(self, message: dict[str, Any]) -> None:
        said = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            details = said["exceptionDetails"]
            thrown = details.get("exception", {}).get("description", "")
            self.errors.append(f"{details['text']} {thrown}")
        elif message.get("method") == "Log.entryAdded" and said["entry"]["level"] == "error":
            self.errors.append(f"{said['entry']['text']} {said['entry'].get('url', '')}")


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>page</title><iframe name=frame></iframe>")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
        pass


@contextmanager
def page() -> Iterator[int]:
    """Serve a page of another origin; give its port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Page)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
