"""Send metrics to an OpenTelemetry collector over HTTP.

Source: OpenTelemetry Protocol 1.5.0, “OTLP/HTTP”.
"""

from __future__ import annotations

import http.client
import os
import urllib.error
import urllib.parse
import urllib.request

import msgspec

from pgdyno.errors import HostError, SpecError, why

_TIMEOUT_S = 30.0
# Source: OpenTelemetry Protocol Exporter specification: the variable that every exporter reads.
_HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
_PATH = "/v1/metrics"
_LONGEST_ANSWER = 100_000


class _PartialSuccess(msgspec.Struct, rename="camel"):
    # 64-bit integers may be text in this encoding.
    rejected_data_points: int | str = 0
    error_message: str = ""


class _Answer(msgspec.Struct, rename="camel"):
    partial_success: _PartialSuccess | None = None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    # Another place must not get the token, and a redirected request would lose its body.
    def redirect_request(self, *_: object) -> None:
        return None


class Collector(msgspec.Struct, frozen=True, kw_only=True):
    """Where metrics are sent to."""

    url: str
    shown: str
    """The address without user, password and query."""
    headers: dict[str, str]

    def send(self, body: bytes) -> None:
        """Send a request of OTLP as JSON.

        Raises:
            HostError: The collector cannot be reached, or refuses what is sent or part of it.
        """
        headers = {**self.headers, "Content-Type": "application/json"}
        request = urllib.request.Request(self.url, data=body, headers=headers)  # noqa: S310 - http and https only, see below
        try:
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=_TIMEOUT_S) as response:
                answer = response.read(_LONGEST_ANSWER)
        except urllib.error.HTTPError as exc:
            with exc:
                detail = f"{exc.code} {exc.reason}\n{exc.read(1000).decode(errors='replace')}".strip()
            raise HostError(
                f"{self.shown} refuses the metrics", detail=detail, hint=f"a token is read from {_HEADERS}"
            ) from exc
        except (OSError, http.client.HTTPException) as exc:
            reason = exc.reason if isinstance(exc, urllib.error.URLError) else exc
            detail = why(reason) if isinstance(reason, OSError) else str(reason)
            raise HostError(f"{self.shown} cannot be reached", detail=detail, hint="start the collector first") from exc
        try:
            partial = msgspec.json.decode(answer or b"{}", type=_Answer).partial_success
        except msgspec.DecodeError:
            # The status said that it took them.
            return
        if partial is not None and int(partial.rejected_data_points or 0):
            raise HostError(f"{self.shown} refuses {partial.rejected_data_points} values", detail=partial.error_message)


def make_collector(url: str) -> Collector:
    """Return the collector at an address; a bare one is completed by the path that collectors have.

    Raises:
        SpecError: It is no address of HTTP, or a header in the environment is none.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise SpecError(f"--otlp {url}: {exc}", hint="for example --otlp http://localhost:4318") from exc
    if parts.scheme not in {"http", "https"} or not host:
        raise SpecError(f"--otlp {url}: not an address of HTTP", hint="for example --otlp http://localhost:4318")
    if parts.username is not None or parts.password is not None:
        raise SpecError(
            "--otlp takes no user and no password", hint=f'put them into {_HEADERS}="Authorization=Basic%20…"'
        )
    path = _PATH if parts.path in {"", "/"} else parts.path
    named = f"[{host}]" if ":" in host else host
    shown = f"{parts.scheme}://{named}{'' if port is None else f':{port}'}{path}"
    complete = urllib.parse.urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))
    return Collector(url=complete, shown=shown, headers=_read_headers())


def _read_headers() -> dict[str, str]:
    pairs = [pair.strip() for pair in os.environ.get(_HEADERS, "").split(",") if pair.strip()]
    if any("=" not in pair for pair in pairs):
        raise SpecError(f"{_HEADERS} is not NAME=VALUE,NAME=VALUE")
    named = (pair.split("=", 1) for pair in pairs)
    return {name.strip(): urllib.parse.unquote(value.strip()) for name, value in named}
