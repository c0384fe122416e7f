"""Send metrics to an OpenTelemetry collector over HTTP.

Source: OpenTelemetry Protocol 1.5.0, “OTLP/HTTP”.
"""

from __future__ import annotations

import http.client
import os
import re
import urllib.error
import urllib.parse
import urllib.request

import msgspec

from pgdyno.errors import HostError, SpecError, why
from pgdyno.record.damage import NOT_JSON

_TIMEOUT_S = 30.0
# Source: OpenTelemetry Protocol Exporter specification: the variable that every exporter reads.
_HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
# Source: RFC 9110, sections 5.1 and 5.5; http.client writes values in Latin-1.
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_PATH = "/v1/metrics"
# Source: RFC 3986, sections 3.3 and 3.4. "%" is left as it is, since an address may be encoded already.
_PLAIN = "/?:@!$&'()*+,;=~%"
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
        except NOT_JSON:
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
        host, port = (parts.hostname or "").encode("idna").decode(), parts.port
    except ValueError as exc:
        raise _refuse(url, str(exc)) from exc
    if parts.scheme not in {"http", "https"} or not host or parts.username is not None:
        raise _refuse(url)
    path = _PATH if parts.path in {"", "/"} else urllib.parse.quote(parts.path, safe=_PLAIN)
    place = f"{f'[{host}]' if ':' in host else host}{'' if port is None else f':{port}'}"
    complete = urllib.parse.urlunsplit((parts.scheme, place, path, urllib.parse.quote(parts.query, safe=_PLAIN), ""))
    return Collector(url=complete, shown=f"{parts.scheme}://{place}{path}", headers=_read_headers())


def _refuse(url: str, detail: str = "") -> SpecError:
    # What stands before it may be a password, also where the address cannot be taken apart.
    if "@" in url:
        return SpecError(
            "--otlp takes no user and no password", hint=f'put them into {_HEADERS}="Authorization=Basic%20…"'
        )
    return SpecError(
        f"--otlp {url}: not an address of HTTP", detail=detail, hint="for example --otlp http://localhost:4318"
    )


def _read_headers() -> dict[str, str]:
    pairs = [pair.strip() for pair in os.environ.get(_HEADERS, "").split(",") if pair.strip()]
    if any("=" not in pair for pair in pairs):
        raise SpecError(f"{_HEADERS} is not NAME=VALUE,NAME=VALUE")
    named = [pair.split("=", 1) for pair in pairs]
    headers = {name.strip(): urllib.parse.unquote(value.strip()) for name, value in named}
    # Neither is repeated in an error: a token that ends in "=" passes for a name.
    if not all(map(_NAME.fullmatch, headers)):
        raise SpecError(f"{_HEADERS} has a name that no header can have", hint="NAME=VALUE,NAME=VALUE")
    if not all(map(_VALUE.fullmatch, headers.values())):
        raise SpecError(
            f"{_HEADERS} has a value that no header can have",
            detail="it contains a line break, another control character, or one that is not in Latin-1",
        )
    return headers
