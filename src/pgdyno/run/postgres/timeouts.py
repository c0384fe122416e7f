"""Limit how long pgdyno waits for a server's answer, and report when the limit is exceeded.

A timeout in the server does not help against a server that hangs, so the client measures the time. This module cannot
distinguish a slow server from one that hangs: each caller states how long its query may take.
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
SLOW_DISK_BYTES_PER_S = 5_000_000
"""The rate of the slowest volumes, at which whole tables are read, and databases are read and written."""


class NoAnswerError(StepFailedError):
    """The error of a server that runs but does not answer."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            "the server does not answer",
            detail=detail,
            hint="it or its disk hangs: `dmesg` on its machine and the end of its log may tell; `pgdyno resume` continues",
        )


@contextlib.contextmanager
def limit(connection: psycopg.Connection[Any], seconds: float | None = None) -> Iterator[None]:
    """Close the connection if the block takes longer than the limit.

    Args:
        connection: The connection that the block uses.
        seconds: The limit; None: `QUERY_PATIENCE_S`.

    Raises:
        NoAnswerError: The block took longer; the connection is unusable.
    """
    seconds = seconds or QUERY_PATIENCE_S
    is_over = threading.Event()

    def hang_up() -> None:
        is_over.set()
        # A read that waits on the socket then gets its end.
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
