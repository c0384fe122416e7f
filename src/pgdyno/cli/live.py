"""Define the options that show a measurement elsewhere while it runs."""

from __future__ import annotations

import ipaddress
import urllib.parse
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from pgdyno.errors import SpecError

if TYPE_CHECKING:
    from pgdyno.run.live_page import PageRequest

LiveOption = Annotated[
    bool,
    typer.Option("--live", help="Serve a page that shows the progress, on this machine only; its address is printed."),
]
ListenOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Serve the live page to other machines, too, at this IP address of this one, such as 0.0.0.0 or 10.0.0.7:8080.",
        show_default=False,
    ),
]

MetricsPortOption = Annotated[
    int | None,
    typer.Option(
        metavar="PORT",
        help="Serve the present figures as OpenMetrics text on this port of 127.0.0.1, for Prometheus.",
        min=1,
        max=65535,
        show_default=False,
    ),
]


class LiveOptions(NamedTuple):
    """The options as given."""

    live: bool
    listen: str | None
    metrics_port: int | None


def request_page(given: LiveOptions) -> PageRequest | None:
    """Return what is to be served, and where; None without anything.

    Raises:
        SpecError: An option is wrong, or needs another one.
    """
    if not given.live:
        if given.listen is not None:
            raise SpecError("--listen says where the live page listens, and there is none", hint="add --live")
        if given.metrics_port is None:
            return None
        from pgdyno.run.live_page import PageRequest  # noqa: PLC0415 - few commands serve anything

        return PageRequest(address=None, metrics_port=given.metrics_port)
    return request_watched(given.listen, port=0, metrics_port=given.metrics_port)


def request_watched(listen: str | None, *, port: int, metrics_port: int | None) -> PageRequest:
    """Return where a page is to be served, and the metrics beside it.

    Raises:
        SpecError: An option is wrong, two of them name the page's port, or page and metrics have the same one.
    """
    from pgdyno.run.live_page import PageRequest  # noqa: PLC0415 - loaded when it is needed, which keeps --help fast
    from pgdyno.run.page_server import HOST  # noqa: PLC0415 - as above

    address, named = (HOST, 0) if listen is None else read_listen(listen)
    if port and named:
        raise SpecError("--port and --listen both name a port", hint="leave one out")
    port = port or named
    if port and port == metrics_port and (address == HOST or ipaddress.ip_address(address).is_unspecified):
        raise SpecError(f"page and metrics are both to listen on port {port} of {HOST}", hint="name two ports")
    return PageRequest(address=address, port=port, metrics_port=metrics_port)


def read_listen(text: str) -> tuple[str, int]:
    """Read an IP address with or without a port; port 0 is a free one.

    Raises:
        SpecError: The text is no IP address, or its port is no port.
    """
    try:
        return str(ipaddress.ip_address(text)), 0
    except ValueError:
        pass
    try:
        parts = urllib.parse.urlsplit(f"//{text}")
        address, port = str(ipaddress.ip_address(parts.hostname or "")), parts.port
    except ValueError as exc:
        raise SpecError(
            f"--listen {text}: not an IP address, with or without a port",
            detail=str(exc),
            hint="for example --listen 10.0.0.7, --listen 0.0.0.0:8080 for all addresses, or --listen '[::1]:8080'",
        ) from exc
    if parts.netloc != text or "@" in text or port is None:
        raise SpecError(f"--listen {text}: not an IP address", hint="for example --listen 0.0.0.0:8080")
    return address, port
