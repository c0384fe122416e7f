"""How long pgdyno waits for a server to answer, and what it says when that was too long.

A timeout of the server's own is of no use against a server that hangs, so the client watches the clock. This module
cannot tell a slow server from a stuck one: each caller says how long its question may take.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import psycopg

from pgdyno.errors import StepFailedError

CONNECT_PATIENCE_S = 10
QUERY_PATIENCE_S = 60.0


class NoAnswerError(StepFailedError):
    """The server lives but does not answer."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            "the server does not answer",
            detail=detail,
            hint="it or its disk hangs: `dmesg` and the end of server.log may tell; `pgdyno resume` goes on",
        )


@contextlib.contextmanager
def limit(connection: psycopg.Connection[Any], seconds: float | None = None) -> Iterator[None]:
    """Hang up when what is done inside takes longer.

    Args:
        connection: On which the server is asked.
        seconds: None: `QUERY_PATIENCE_S`.

    Raises:
        NoAnswerError: It took longer; the connection is of no use any more.
    """
    seconds = seconds or QUERY_PATIENCE_S
    is_over = threading.Event()

    def hang_up() -> None:
        is_over.set()
        # Whoever waits for the socket then reads its end.
        with socket.socket(fileno=os.dup(connection.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, hang_up)
    timer.start()
    try:
        yield
    except psycopg.Error as exc:
        if is_over.is_set():
            raise NoAnswerError(f"no answer to a query within {seconds:g} s") from exc
        raise
    finally:
        timer.cancel()
        timer.join()
