"""A real Chromium without a window, driven by Playwright.

Scripts run by the debugging protocol: a page that allows no evaluation is driven as it is.
"""

import base64
import functools
import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import pytest
from playwright.sync_api import ConsoleMessage, sync_playwright

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(
    PROGRAM is None,
    reason="NOT RUN: no Chromium; install it (Debian: apt-get install chromium)",
)
_FLAGS = (
    "--no-sandbox",  # root has no sandbox; the pages are the test's own
    "--host-resolver-rules=MAP *.example 127.0.0.1",
)


class Browser:
    """A browser that resolves every name under `example` to 127.0.0.1."""

    def __init__(self) -> None:
        assert PROGRAM is not None
        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(executable_path=PROGRAM, args=_FLAGS)
        self._page = self._browser.new_page(no_viewport=True)
        self._protocol = self._page.context.new_cdp_session(self._page)
        # The errors in pages: exceptions, and what the browser refused to do.
        self.errors: list[str] = []
        self._page.on("pageerror", lambda error: self.errors.append(str(error)))
        self._page.on("console", self._note)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._browser.close()
        self._playwright.stop()

    def go(self, address: str) -> None:
        """Load a page."""
        self._page.goto(address)

    def reload(self) -> None:
        """Load the page again."""
        self._page.reload()

    def run(self, script: str) -> Any:
        """Run a script in the page, wait for its promise, and return its value."""
        result = self._protocol.send(
            "Runtime.evaluate",
            {
                "expression": f"(async () => {{ {script} }})()",
                "awaitPromise": True,
                "returnByValue": True,
            },
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
            self._page.keyboard.press(key)

    def type(self, text: str) -> None:
        """Put text where the focus is."""
        self._page.keyboard.insert_text(text)

    def size(self, width: int, height: int, scale: float = 1) -> None:
        """Give the page this size."""
        self._protocol.send(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False},
        )

    def prefer(self, scheme: str) -> None:
        """Prefer a light or a dark page."""
        self._page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")

    def image(self, kind: str = "png") -> bytes:
        """Take a picture of the page."""
        quality = {} if kind == "png" else {"quality": 90}
        taken = self._protocol.send("Page.captureScreenshot", {"format": kind, **quality})
        return base64.b64decode(taken["data"])

    def _note(self, said: ConsoleMessage) -> None:
        if said.type == "error":
            self.errors.append(f"{said.text} {said.location.get('url', '')}".rstrip())


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
