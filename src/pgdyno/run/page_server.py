"""Serve one page and its updates to browsers, on this machine unless asked otherwise, and nothing without the token.

The updates are server-sent events. A browser that was gone asks again by itself, and gets the present state first.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus

from pgdyno.errors import HostError, SpecError, why
from pgdyno.run.quiet_server import QuietHandler, serve_socket

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


def listen(port: int, *, address: str = HOST) -> socket.socket:
    """Open the socket of a page; port 0 is a free one.

    Args:
        port: The port.
        address: An IP address of this machine, or 0.0.0.0 or :: for all of them.

    Raises:
        SpecError: Another program has the port, or the address is none of this machine.
        HostError: The machine lets no socket be opened.
    """
    family = socket.AF_INET if ipaddress.ip_address(address).version == 4 else socket.AF_INET6
    opened = None
    try:
        opened = socket.socket(family, socket.SOCK_STREAM)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((address, port))
        opened.listen(_MOST_BROWSERS)
    except OSError as exc:
        if opened is not None:
            opened.close()
        if address != HOST and exc.errno != errno.EADDRINUSE:
            hint = "`ip -brief address` lists this machine's addresses; 0.0.0.0 means all"
            named = _join(address, port) if port else address
            raise SpecError(f"the page cannot listen on {named}", detail=why(exc), hint=hint) from exc
        if port:
            raise SpecError(f"port {port} is not free", detail=why(exc), hint="name another one") from exc
        raise HostError("the page cannot be served", detail=why(exc)) from exc
    return opened


def describe_address(opened: socket.socket, token: str) -> str:
    """Return the address of the page, by this machine's name if it listens on all its addresses."""
    address, port = opened.getsockname()[:2]
    host = socket.gethostname() if ipaddress.ip_address(address).is_unspecified else address
    return f"http://{_join(host, port)}/{token}/"


def describe_readers(opened: socket.socket) -> str:
    """Warn of what others can see of a page that listens beyond this machine; empty for one that does not."""
    address, port = opened.getsockname()[:2]
    if ipaddress.ip_address(address).is_loopback:
        return ""
    return (
        f"the live page listens on {_join(address, port)}: anyone who can reach that port and has the page's address sees the"
        " machine, the settings, the figures and the findings of this record. The page and its address are sent without"
        " encryption: on a network that others can listen to, use ssh -L instead"
    )


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _list_own_names(opened: socket.socket) -> frozenset[str] | None:
    """Return the host names by which browsers may ask; None if it listens for other machines, which may use any name."""
    address = ipaddress.ip_address(opened.getsockname()[0])
    return frozenset({str(address), HOST, "localhost"}) if address.is_loopback else None


@contextlib.contextmanager
def serving(opened: socket.socket, *, token: str, html: bytes, policy: str, updates: Updates) -> Iterator[None]:
    """Serve a page and its updates while the block runs."""
    known = {"token": token, "html": html, "policy": policy, "updates": updates, "names": _list_own_names(opened)}
    with serve_socket(opened, type("_Bound", (_Handler,), known), name="page"):
        try:
            yield
        finally:
            updates.close()


class _Handler(QuietHandler):
    token: str
    html: bytes
    updates: Updates
    refused = HTTPStatus.FORBIDDEN

    def respond(self) -> None:
        """Answer a browser: the page, its updates, 404 for anything else of the page, or 403 without the token."""
        token, slash, name = self.path.partition("?")[0].removeprefix("/").partition("/")
        if not self.is_own or not secrets.compare_digest(token.encode(), self.token.encode()):
            self.answer(HTTPStatus.FORBIDDEN, b"", "text/plain")
        elif not slash:
            # A browser looks for the updates below the last slash.
            self.head(HTTPStatus.FOUND, "text/plain", Location=f"/{token}/", Content_Length="0")
        elif not name:
            self.answer(HTTPStatus.OK, self.html, "text/html; charset=utf-8")
        elif name != "events":
            self.answer(HTTPStatus.NOT_FOUND, b"", "text/plain")
        elif self.updates.watchers < _MOST_BROWSERS:
            self._stream()
        else:
            self.answer(HTTPStatus.FORBIDDEN, b"", "text/plain")

    def _stream(self) -> None:
        self.close_connection = True
        self.head(HTTPStatus.OK, "text/event-stream", Connection="close")
        with self.updates.follow() as take:
            while (news := take()) is not None:
                for name, content in news:
                    self.wfile.write(b"event: %s\ndata: %s\n\n" % (name.encode(), content))
                if not news:
                    self.wfile.write(b": still here\n\n")
