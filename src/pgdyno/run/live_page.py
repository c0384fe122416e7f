"""Serve the page and the metrics of a record beside its measurement, in a process of its own that ends with it.

This process opens the sockets, so that the addresses are known at once; the other one takes them, with the token in its
environment, where no list of processes shows it. It has the lowest priority, and the measurement never waits for it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from pgdyno.errors import PgdynoError
from pgdyno.run.host import process
from pgdyno.run.host.program import PROGRAM_VARIABLE, program_name
from pgdyno.run.metrics_server import describe_metrics
from pgdyno.run.page_server import HOST, Listener, describe_address, describe_readers, listen

_VARIABLE = "PGDYNO_PAGE"
# One heap and no pool of threads: what a reading used is used again by the next one.
_FRUGAL = {"MALLOC_ARENA_MAX": "1", "POLARS_MAX_THREADS": "1"}
# For the browser and the monitoring system to see the end, and after which time the user is told.
_END_S, _SILENT_S = 30.0, 2.0
END_SIGNAL = signal.SIGTERM
"""Ends the page of a measurement that ended by itself; SIGINT ends that of one that was stopped."""


class PageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be served of a record, and where."""

    address: str | None = HOST
    """The IP address of the page; None: no page."""
    port: int = 0
    """0 is a free one."""
    metrics_port: int | None = None
    """The port of the metrics on this machine; None: no metrics."""


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """The sockets of a record's page and metrics; None for what is not served."""

    page: Listener | None
    token: str
    metrics: Listener | None


class _Handed(msgspec.Struct, frozen=True, kw_only=True):
    page: int | None
    token: str
    metrics: int | None


class LivePage:
    """The page and the metrics of the record that this process measures.

    Args:
        request: What is to be served, and where.
    """

    def __init__(self, request: PageRequest) -> None:
        self._request = request
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def is_open(self) -> bool:
        """True once anything is served."""
        return self._child is not None

    def open(self, record: Path) -> tuple[str, ...]:
        """Start serving a record, which need not exist yet; say what is served where, and what cannot be.

        The measurement is worth more than its page: nothing that fails here is raised.
        """
        with contextlib.ExitStack() as sockets:
            said: list[str] = []
            served = _open_sockets(self._request, said, sockets)
            handed = _Handed(page=_number(served.page), token=served.token, metrics=_number(served.metrics))
            opened = tuple(one for one in (handed.page, handed.metrics) if one is not None)
            if opened:
                argv = [sys.executable, "-m", "pgdyno", "watch", str(record.absolute())]
                environment = {
                    **process.clean_environment(),
                    **_FRUGAL,
                    PROGRAM_VARIABLE: program_name(),
                    _VARIABLE: msgspec.json.encode(handed).decode(),
                }
                try:
                    self._child = process.start(argv, env=environment, inherited=opened)
                except PgdynoError as error:
                    return (f"there is no live page: {error.reason}",)
            return tuple(said)

    def close(self, *, is_stopped: bool, say: Callable[[str], None]) -> None:
        """End the page, and the metrics once their last state was asked for; at once if the user stopped the command.

        Args:
            is_stopped: Whether the user stopped the command, or it failed. Otherwise all that Ctrl-C ends is the wait.
            say: Prints a line.
        """
        if self._child is None:
            return
        try:
            self._child.send_signal(signal.SIGINT if is_stopped else END_SIGNAL)
            self._wait(say)
        except KeyboardInterrupt:
            if is_stopped:
                raise
        except subprocess.TimeoutExpired:
            pass
        finally:
            self._child.kill()
            self._child.wait()

    def _wait(self, say: Callable[[str], None]) -> None:
        assert self._child is not None  # noqa: S101 - the caller looked
        try:
            self._child.wait(_SILENT_S)
        except subprocess.TimeoutExpired:
            # True as well of a process that nobody watches and that is only slow to end on a busy machine.
            served = "live page" if self._request.address is not None else "metrics server"
            say(f"the {served} hands out the last state and ends, within {_END_S:.0f} s; Ctrl-C ends it at once")
            self._child.wait(_END_S)


def open_served(request: PageRequest) -> tuple[Served, tuple[str, ...]]:
    """Open the sockets of what is to be served; also return the lines that say where it is.

    Raises:
        SpecError: A port or an address cannot be had.
        HostError: The machine lets no socket be opened.
    """
    page = metrics = None
    # One that cannot be guessed.
    token, said = secrets.token_urlsafe(16), []
    if request.metrics_port is not None:
        metrics = listen(request.metrics_port)
        said.append(f"metrics: {describe_metrics(metrics)}")
    if request.address is not None:
        page = listen(request.port, address=request.address)
        said += filter(None, (describe_readers(page), f"live page: {describe_address(page, token)}"))
    return Served(page=page, token=token, metrics=metrics), tuple(said)


def _open_sockets(request: PageRequest, said: list[str], sockets: contextlib.ExitStack) -> Served:
    """Open what can be opened, and note in `said` where it is, or why it cannot be."""
    found: dict[str, Served] = {}
    for name, one in _split(request):
        try:
            found[name], lines = open_served(one)
        except PgdynoError as error:
            lines = (f"there {'is no' if name == 'live page' else 'are no'} {name}: {error.reason}",)
        said += lines
    page, metrics = found.get("live page"), found.get("metrics")
    served = Served(
        page=None if page is None else page.page,
        token="" if page is None else page.token,
        metrics=None if metrics is None else metrics.metrics,
    )
    for opened in (served.page, served.metrics):
        if opened is not None:
            sockets.enter_context(opened)
    return served


def _split(request: PageRequest) -> Iterator[tuple[str, PageRequest]]:
    """Yield the page and the metrics of a request, since one may fail without the other."""
    if request.address is not None:
        yield "live page", PageRequest(address=request.address, port=request.port)
    if request.metrics_port is not None:
        yield "metrics", PageRequest(address=None, metrics_port=request.metrics_port)


def _number(opened: Listener | None) -> int | None:
    return None if opened is None else opened.fileno()


def take_over() -> Served | None:
    """Return the sockets and the token that the starting process made; None in a process that a user started."""
    text = os.environ.get(_VARIABLE)
    if text is None:
        return None
    handed = msgspec.json.decode(text, type=_Handed)
    page, metrics = (None if one is None else socket.socket(fileno=one) for one in (handed.page, handed.metrics))
    return Served(page=page, token=handed.token, metrics=metrics)
