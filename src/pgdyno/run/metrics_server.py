"""Answer a monitoring system that asks for metrics, on this machine only.

The caller, which reads the record, answers each request; this module does not know what the text says. There is no token, because
such systems have one fixed address; an answer holds only figures and the names of records, workloads and variants.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from http import HTTPStatus
from typing import ClassVar

from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.page_server import HOST
from pgdyno.run.quiet_server import QuietHandler, serve_socket

# Prometheus gives up after 10 s by default.
_PATIENCE_S = 8.0
# The command ends that much later, so that the last state is asked for once.
_LONGEST_STAY_S = 16.0
# A system asks a little late now and then.
_LATENESS_RATIO = 1.2
_PARTING_S = 1.0
METRICS_PATH = "/metrics"


class Scrapes:
    """The requests of monitoring systems, and the text that answers them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asked = self._answered = 0
        self._is_closed = False
        self._text: bytes | None = None
        self._open_count = 0
        self._asked_s: tuple[float, ...] = ()

    @property
    def is_asked(self) -> bool:
        """True if a request waits for its answer."""
        return self._asked > self._answered

    @contextlib.contextmanager
    def ask(self) -> Iterator[bytes | None]:
        """Yield a text that is made after this request; the last one if that takes long, None before the first.

        The request is over when the block ends: the end of the command waits for that.
        """
        with self._changed:
            self._asked += 1
            self._open_count += 1
            self._asked_s = (*self._asked_s[-1:], monotonic_s())
            asked = self._asked
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._answered >= asked or self._is_closed, _PATIENCE_S)
            text = self._text
        try:
            yield text
        finally:
            with self._changed:
                self._open_count -= 1
                self._changed.notify_all()

    def wait_for_last(self) -> bool:
        """Wait until a system that asks again and again asks once more; return whether it does, soon enough."""
        with self._changed:
            if len(self._asked_s) < 2:
                return False
            before_s, last_s = self._asked_s
            left_s = last_s + (last_s - before_s) * _LATENESS_RATIO - monotonic_s()
            if left_s > _LONGEST_STAY_S:
                return False
            return self._changed.wait_for(lambda: self.is_asked, left_s)

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
        """Let no request wait any longer, and wait until those that came are answered."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._open_count, _PARTING_S)


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
        """Answer with the metrics, and with 404 to any other request, also one by a page of another site."""
        if not self.is_own or self.path.partition("?")[0] != METRICS_PATH:
            self.answer(HTTPStatus.NOT_FOUND, b"", "text/plain")
            return
        with self.scrapes.ask() as text:
            if text is None:
                self.answer(HTTPStatus.SERVICE_UNAVAILABLE, b"", "text/plain")
            else:
                self.answer(HTTPStatus.OK, text, self.media_type)
