"""Serve one page and its updates to browsers on this machine, and nothing to a reader without the token.

The updates are server-sent events. A browser that was gone asks again by itself, and gets the present state first.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pgdyno.errors import HostError, SpecError

HOST = "127.0.0.1"
Listener = socket.socket
# A comment that keeps the connection, and shows within this time that a browser is gone.
_SILENCE_S = 15.0
_PARTING_S = 1.0
_MOST_BROWSERS = 16


class Updates:
    """The present state of the page's parts, as JSON by name, and a signal when one of them changes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._version = 0
        self._parts: dict[str, tuple[int, bytes]] = {}
        self._watchers = 0
        self._is_closed = False

    @property
    def watchers(self) -> int:
        """Number of browsers that follow the updates now."""
        return self._watchers

    def put(self, parts: Mapping[str, bytes]) -> None:
        """Set parts; those that have not changed are not sent again."""
        with self._changed:
            for name, content in parts.items():
                if name not in self._parts or self._parts[name][1] != content:
                    self._version += 1
                    self._parts[name] = (self._version, content)
            self._changed.notify_all()

    def close(self) -> None:
        """End all streams once they have sent the present state; a browser that takes nothing is not waited for."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._watchers, _PARTING_S)

    def wait_for_watcher(self, timeout_s: float) -> bool:
        """Wait until a browser follows, or for `timeout_s` at most; return whether one does."""
        with self._changed:
            self._changed.wait_for(lambda: self._watchers > 0 or self._is_closed, timeout_s)
            return self._watchers > 0

    @contextlib.contextmanager
    def follow(self) -> Iterator[Callable[[], list[tuple[str, bytes]] | None]]:
        """Yield a function that waits for changed parts; it returns an empty list after a silence, None at the end."""
        seen = 0

        def take() -> list[tuple[str, bytes]] | None:
            nonlocal seen
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self._version > seen, _SILENCE_S)
                news = [(name, content) for name, (version, content) in self._parts.items() if version > seen]
                seen = self._version
                return None if self._is_closed and not news else news

        with self._changed:
            self._watchers += 1
            self._changed.notify_all()
        try:
            yield take
        finally:
            with self._changed:
                self._watchers -= 1
                self._changed.notify_all()


def listen(port: int) -> socket.socket:
    """Open the socket of a page on this machine; port 0 is a free one.

    Raises:
        SpecError: Another program has the port.
        HostError: The machine lets no socket be opened.
    """
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((HOST, port))
        opened.listen(_MOST_BROWSERS)
    except OSError as exc:
        opened.close()
        hint = "leave --port out for a free one"
        if port:
            raise SpecError(f"the page cannot have port {port}", detail=str(exc), hint=hint) from exc
        raise HostError("the page cannot be served", detail=str(exc)) from exc
    return opened


def take_socket(descriptor: int) -> socket.socket:
    """Return the listening socket that the caller of this process opened."""
    return socket.socket(fileno=descriptor)


def make_token() -> str:
    """Make a token that cannot be guessed."""
    return secrets.token_urlsafe(16)


def describe_address(opened: socket.socket, token: str) -> str:
    """Return the address of the page."""
    return f"http://{HOST}:{opened.getsockname()[1]}/{token}/"


@contextlib.contextmanager
def serving(opened: socket.socket, *, token: str, html: bytes, policy: str, updates: Updates) -> Iterator[None]:
    """Serve a page and its updates while the block runs."""
    handler = type("_Bound", (_Handler,), {"token": token, "html": html, "policy": policy, "updates": updates})
    server = _Server(opened.getsockname(), handler, bind_and_activate=False)
    server.socket.close()
    server.socket = opened
    thread = threading.Thread(target=server.serve_forever, name="page", daemon=True)
    thread.start()
    try:
        yield
    finally:
        updates.close()
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a browser that goes away in the middle of an answer is no error of the bench."""


class _Handler(BaseHTTPRequestHandler):
    token: str
    html: bytes
    policy: str
    updates: Updates
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        """Answer a browser: the page, its updates, or 403 whatever else is asked."""
        _, token, *rest = [*self.path.partition("?")[0].split("/"), ""]
        # A page of another site whose name was made to mean this machine sends that name.
        is_own = self.headers.get("Host", "").partition(":")[0] in {HOST, "localhost"}
        if not is_own or not secrets.compare_digest(token.encode(), self.token.encode()):
            self._answer(HTTPStatus.FORBIDDEN, b"", "text/plain")
        elif rest[0] == "events" and self.updates.watchers < _MOST_BROWSERS:
            self._stream()
        elif rest[0] == "":
            self._answer(HTTPStatus.OK, self.html, "text/html; charset=utf-8")
        else:
            self._answer(HTTPStatus.FORBIDDEN, b"", "text/plain")

    def _head(self, status: HTTPStatus, kind: str, **more: str) -> None:
        self.send_response_only(status)
        headers = {
            "Content-Type": kind,
            "Cache-Control": "no-store",
            "Content-Security-Policy": self.policy,
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            **{name.replace("_", "-"): value for name, value in more.items()},
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self._head(status, kind, Content_Length=str(len(body)))
        self.wfile.write(body)

    def _stream(self) -> None:
        self.close_connection = True
        self._head(HTTPStatus.OK, "text/event-stream", Connection="close")
        with self.updates.follow() as take:
            while (news := take()) is not None:
                for name, content in news:
                    self.wfile.write(b"event: %s\ndata: %s\n\n" % (name.encode(), content))
                if not news:
                    self.wfile.write(b": still here\n\n")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Tell nothing: not what serves here, and not what was wrong."""
        self.close_connection = True
        self._answer(HTTPStatus.FORBIDDEN, b"", "text/plain")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server names it so
        """Log nothing: the address in each line holds the token."""
