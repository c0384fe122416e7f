"""Serve the page of a record beside its measurement, in a process of its own that ends with it.

This process opens the socket, so that the address is known at once; the other one takes it, with the token in its
environment, where no list of processes shows it. It has the lowest priority, and the measurement never waits for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from pgdyno.run.host import process
from pgdyno.run.page_server import (
    HOST,
    Listener,
    describe_address,
    describe_readers,
    listen,
    make_token,
    take_socket,
)

_VARIABLE = "PGDYNO_PAGE"
# For the browser to see the end.
_END_S = 10.0


class PageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Where a page is to be served."""

    address: str = HOST
    port: int = 0
    """0 is a free one."""


class LivePage:
    """The page of the record that this process measures.

    Args:
        request: Where it is to be served.
    """

    def __init__(self, request: PageRequest) -> None:
        self._request = request
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def is_open(self) -> bool:
        """True once the page has an address."""
        return self._child is not None

    def open(self, record: Path) -> tuple[str, ...]:
        """Start serving the page of a record, which need not exist yet, and say where, with a warning of other readers.

        Raises:
            HostError: The page cannot be served.
            SpecError: The address or the port cannot be had.
        """
        token = make_token()
        with listen(self._request.port, address=self._request.address) as opened:
            argv = [sys.executable, "-m", "pgdyno", "watch", str(record.absolute())]
            environment = {**process.clean_environment(), _VARIABLE: f"{opened.fileno()} {token}"}
            self._child = process.start(argv, env=environment, inherited=(opened.fileno(),))
            said = (describe_readers(opened), f"live page: {describe_address(opened, token)}")
            return tuple(filter(None, said))

    def close(self) -> None:
        """End the page."""
        if self._child is None:
            return
        self._child.terminate()
        try:
            self._child.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


def take_over() -> tuple[Listener, str] | None:
    """Return the socket and the token that the starting process made; None in a process that a user started."""
    handed = os.environ.get(_VARIABLE)
    if handed is None:
        return None
    descriptor, _, token = handed.partition(" ")
    return take_socket(int(descriptor)), token
