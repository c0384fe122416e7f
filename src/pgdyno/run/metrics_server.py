"""Answer a monitoring system that asks for metrics, on this machine only.

A request is answered by whoever reads the record; this module does not know what the text says. There is no token, because
such systems have one fixed address; all that is told is figures with the names of records, workloads and variants.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from http import HTTPStatus
from typing import ClassVar

from pgdyno.run.page_server import HOST, QuietHandler, serve_socket

# Prometheus gives up after 10 s by default.
_PATIENCE_S = 8.0
METRICS_PATH = "/metrics"


class Scrapes:
    """The requests of monitoring systems, and the text that answers them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asked = self._answered = 0
        self._is_closed = False
        self._text: bytes | None = None

    @property
    def is_asked(self) -> bool:
        """True if a request waits for its answer."""
        return self._asked > self._answered

    def ask(self) -> bytes | None:
        """Wait for a text that is made after this request; return the last one if that takes long, None before the first."""
        with self._changed:
            self._asked += 1
            asked = self._asked
            self._changed.wait_for(lambda: self._answered >= asked or self._is_closed, _PATIENCE_S)
            return self._text

    def answer(self, text: bytes, *, asked: int) -> None:
        """Set the text that answers the first `asked` requests."""
        with self._changed:
            self._text, self._answered = text, asked
            self._changed.notify_all()

    @property
    def asked(self) -> int:
        """Number of requests so far."""
        return self._asked

    def close(self) -> None:
        """Let no request wait any longer."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


def describe_metrics(opened: socket.socket) -> str:
    """Return the address of the metrics."""
    return f"http://{HOST}:{opened.getsockname()[1]}{METRICS_PATH}"


@contextlib.contextmanager
def serving_metrics(opened: socket.socket, *, media_type: str, scrapes: Scrapes) -> Iterator[None]:
    """Serve metrics while the block runs."""
    handler = type("_Bound", (_Handler,), {"media_type": media_type, "scrapes": scrapes})
    with serve_socket(opened, handler, name="metrics"):
        try:
            yield
        finally:
            scrapes.close()


class _Handler(QuietHandler):
    media_type: str
    scrapes: Scrapes
    refused: ClassVar[HTTPStatus] = HTTPStatus.NOT_FOUND
    names = frozenset({HOST, "localhost"})

    def respond(self) -> None:
        """Answer with the metrics; with 404 whatever else is asked, also by a page of another site."""
        if not self.is_own or self.path.partition("?")[0] != METRICS_PATH:
            self.answer(HTTPStatus.NOT_FOUND, b"", "text/plain")
            return
        text = self.scrapes.ask()
        if text is None:
            self.answer(HTTPStatus.SERVICE_UNAVAILABLE, b"", "text/plain")
        else:
            self.answer(HTTPStatus.OK, text, self.media_type)
