"""Answer requests on a socket without a word about what serves there, to few connections at a time, each for a limited time."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import urllib.parse
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from pgdyno.run.host.clock import monotonic_s

# Each has a thread, and any account or machine that reaches the port may open some.
_MOST_CONNECTIONS = 64
# For the head of a request, which fits into one packet; and for the answer, or until the next request begins.
_HEAD_S, _IDLE_S = 5.0, 60.0


@contextlib.contextmanager
def serve_socket(opened: socket.socket, handler: type[QuietHandler], *, name: str) -> Iterator[None]:
    """Answer requests on a socket, in threads, while the block runs."""
    server = _Server(opened.getsockname(), handler, bind_and_activate=False)
    server.socket.close()
    server.socket = opened
    thread = threading.Thread(target=server.serve_forever, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._free = threading.Semaphore(_MOST_CONNECTIONS)

    def verify_request(self, request: object, client_address: object) -> bool:  # noqa: ARG002 - socketserver's own
        """Return whether a connection is answered; one too many is closed."""
        return self._free.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a connection until it ends."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a browser that goes away in the middle of an answer is no error of the bench."""


class _Heads(io.RawIOBase):
    """Reads the heads of requests from a connection, each within a time that no byte prolongs.

    Args:
        connection: The connection.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._until_s: float | None = monotonic_s() + _HEAD_S

    def readable(self) -> bool:
        """Return True."""
        return True

    def end(self) -> None:
        """Note that a head has come; the next request may take its time to begin."""
        self._until_s = None

    def readinto(self, buffer: Any) -> int:
        """Read what has come.

        Raises:
            TimeoutError: The time is over.
        """
        within_s = _IDLE_S if self._until_s is None else self._until_s - monotonic_s()
        if within_s <= 0:
            raise TimeoutError
        self._connection.settimeout(within_s)
        count = self._connection.recv_into(buffer)
        self._connection.settimeout(_IDLE_S)
        if self._until_s is None:
            self._until_s = monotonic_s() + _HEAD_S
        return count


class QuietHandler(BaseHTTPRequestHandler):
    """Answers requests without a word about itself, and logs nothing."""

    names: frozenset[str] | None
    """The host names by which it may be asked; None: by any."""
    refused: ClassVar[HTTPStatus]
    policy: str = "default-src 'none'"
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S

    def setup(self) -> None:
        """Prepare to read requests."""
        super().setup()
        self.rfile.close()
        self._heads = _Heads(self.connection)
        self.rfile = io.BufferedReader(self._heads)

    @property
    def is_own(self) -> bool:
        """False for a page of another site whose name was made to mean this machine: it sends that name."""
        return self.names is None or _read_host(self.headers.get("Host", "")) in self.names

    def do_GET(self) -> None:
        """Answer a request."""
        self._heads.end()
        self.respond()

    def respond(self) -> None:
        """Answer a request; a class of its own says how."""
        raise NotImplementedError

    def head(self, status: HTTPStatus, kind: str, **more: str) -> None:
        """Send the head of an answer."""
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

    def answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        """Send a whole answer."""
        self.head(status, kind, Content_Length=str(len(body)))
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Tell nothing: not what serves here, and not what was wrong."""
        self.close_connection = True
        self.answer(self.refused, b"", "text/plain")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server names it so
        """Log nothing: the address in each line holds the token."""


def _read_host(header: str) -> str | None:
    try:
        return urllib.parse.urlsplit(f"//{header}").hostname
    except ValueError:
        return None
