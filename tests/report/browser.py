"""A real browser for tests: headless Chromium, driven over its DevTools pipe, and everything that a page asks for."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_PATIENCE_S = 300.0
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Browser(AbstractContextManager["Browser"]):
    """A browser with one page. The pipe is file descriptors 3 (commands) and 4 (answers), messages end in NUL."""

    def __init__(self) -> None:
        assert CHROMIUM is not None
        self._profile = tempfile.TemporaryDirectory(prefix="pgdyno-browser-", ignore_cleanup_errors=True)
        read_commands, self._commands = os.pipe()
        self._answers, write_answers = os.pipe()
        # The shell puts the ends where Chromium looks for them.
        line = f'exec "$@" 3<&{read_commands} 4>&{write_answers}'
        self._process = subprocess.Popen(
            ["bash", "-c", line, "bash", CHROMIUM, *_FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"],
            pass_fds=(read_commands, write_answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(read_commands)
        os.close(write_answers)
        self._received = b""
        self._number = 0
        self.requests: list[str] = []
        self.complaints: list[str] = []
        attached = self._call("Target.attachToTarget", session=None, targetId=self._find_page(), flatten=True)
        self._session: str = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._commands)
        os.close(self._answers)
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._profile.cleanup()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One DevTools command to the page."""
        return self._call(method, session=self._session, **params)

    def open(self, path: Path, *, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        """Show a file and wait until its charts are drawn."""
        self.requests.clear()
        self.complaints.clear()
        self.view(width=width, height=height, scheme=scheme)
        # Else the page shown so far could pass for the one to come.
        self.evaluate("delete document.documentElement.dataset.drawn")
        self.call("Page.navigate", url=path.as_uri())
        self.wait_for("document.documentElement?.dataset.drawn !== undefined", bool)

    def leave(self) -> None:
        """Show an empty page, and forget what was asked for: a live page whose server is gone asks for it again and again."""
        self.call("Page.navigate", url="about:blank")
        self.wait_for("location.href", lambda address: address == "about:blank")
        self.requests.clear()
        self.complaints.clear()

    def view(self, *, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        """Give the window another size, or its reader another taste; a page that is shown stays."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def wait_for(self, expression: str, is_reached: Callable[[Any], bool]) -> Any:
        """The value of a JavaScript expression as soon as it is what is waited for; a busy machine takes its time."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while not is_reached(seen := self.evaluate(expression)):
            assert time.monotonic() < deadline_s, (
                f"after {_PATIENCE_S:.0f} s {expression} is still {seen}; complaints: {self.complaints}"
            )
            time.sleep(0.05)
        return seen

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def renderers(self) -> list[int]:
        """The processes that draw its pages."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"--type=renderer" in words and self._profile.name.encode() in words:
                found.append(int(entry.name))
        return found

    def screenshot(self, *, is_full: bool = True) -> bytes:
        """The page as PNG."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=is_full)
        return base64.b64decode(answer["data"])

    def print_pdf(self) -> bytes:
        """The page as it would be printed on A4."""
        answer = self.call(
            "Page.printToPDF", printBackground=False, paperWidth=8.27, paperHeight=11.69, preferCSSPageSize=True
        )
        return base64.b64decode(answer["data"])

    def _find_page(self) -> str:
        """The browser answers before it has opened its page."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while True:
            for target in self._call("Target.getTargets", session=None)["targetInfos"]:
                if target["type"] == "page":
                    return str(target["targetId"])
            assert time.monotonic() < deadline_s, "the browser opens no page"
            time.sleep(0.05)

    def _call(self, method: str, *, session: str | None, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result
            self._notice(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            chunk = os.read(self._answers, 1 << 20)
            assert chunk, "the browser ended"
            self._received += chunk
        message, _, self._received = self._received.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def _notice(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(params["entry"]["text"])
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.complaints.append(details.get("exception", {}).get("description", details["text"]))
            case "Runtime.consoleAPICalled" if params["type"] in {"error", "warning"}:
                self.complaints.append(str(params["args"]))
