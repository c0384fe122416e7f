"""Metrics are sent to a collector over HTTP; what it refuses is told in its words, and no secret is."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pgdyno.errors import HostError, SpecError
from pgdyno.run.collector import make_collector


class Receiver(http.server.BaseHTTPRequestHandler):
    """Keeps what is sent, and answers as its server says."""

    server: Any

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.path, dict(self.headers), body))
        status, headers, answer = self.server.answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    def do_GET(self) -> None:
        self.server.seen.append((self.path, dict(self.headers), b""))

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Any]:
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.seen, server.answer = [], (200, {}, b'{"partialSuccess":{}}')
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_request_arrives_with_its_token(receiver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20canary, x-scope=a=b")
    collector = make_collector(receiver.url)
    collector.send(b"{}")
    make_collector(f"{receiver.url}/otlp/metrics?team=1").send(b"{}")
    make_collector(f"{receiver.url}/ü/a%20b?team=ü&x=%2F").send(b"{}")
    (path, headers, body), (other, _, _), (encoded, _, _) = receiver.seen
    assert (path, body, headers["Content-Type"]) == ("/v1/metrics", b"{}", "application/json")
    assert (headers["Authorization"], headers["X-Scope"]) == ("Bearer canary", "a=b")
    assert other == "/otlp/metrics?team=1"
    assert encoded == "/%C3%BC/a%20b?team=%C3%BC&x=%2F"
    assert collector.shown == f"{receiver.url}/v1/metrics"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((401, {}, b"no token"), "401 Unauthorized\nno token"),
        ((307, {"Location": "http://127.0.0.1:1/elsewhere"}, b""), "307 Temporary Redirect"),
        ((200, {}, b'{"partialSuccess":{"rejectedDataPoints":"7","errorMessage":"too old"}}'), "too old"),
    ],
)
def test_what_a_collector_refuses_is_an_error(
    receiver: Any, answer: object, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer canary")
    receiver.answer = answer
    with pytest.raises(HostError, match="refuses") as refused:
        make_collector(receiver.url).send(b"{}")
    assert refused.value.detail == words
    assert "canary" not in f"{refused.value.fact}{refused.value.detail}{refused.value.hint}"
    assert len(receiver.seen) == 1


def test_a_collector_that_is_not_there() -> None:
    # A port that is bound and not listened on refuses every connection, and is given to nobody else.
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        collector = make_collector(f"http://127.0.0.1:{bound.getsockname()[1]}")
        with pytest.raises(HostError, match="cannot be reached"):
            collector.send(b"{}")


@pytest.mark.parametrize(
    "url", ["localhost:4318", "ftp://x", "http://", "http://x:y", "file:///etc/passwd", "http://a..b:4318"]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(SpecError):
        make_collector(url)


@pytest.mark.parametrize("place", ["x", "a..b:4318", "x:no-port", "[x", "/x"])
def test_a_password_in_the_address_is_refused_and_not_repeated(place: str) -> None:
    with pytest.raises(SpecError, match="takes no user and no password") as refused:
        make_collector(f"http://me:canary@{place}")
    assert "canary" not in f"{refused.value.fact}{refused.value.detail}{refused.value.hint}"


@pytest.mark.parametrize(
    "headers",
    ["Authorization=Bearer%20canary%0A", "Authorization=canary€", "a=1,b=canary%00", "Bearer canary==", "=canary"],
)
def test_what_no_header_can_be_is_refused_and_not_repeated(headers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", headers)
    with pytest.raises(SpecError, match="OTEL_EXPORTER_OTLP_HEADERS") as refused:
        make_collector("http://x")
    assert "canary" not in f"{refused.value.fact}{refused.value.detail}{refused.value.hint}"


def test_a_name_of_other_letters_is_sent_as_its_ascii_form() -> None:
    assert make_collector("http://bücher.example:4318").url == "http://xn--bcher-kva.example:4318/v1/metrics"
