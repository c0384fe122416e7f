"""The page's server: nothing without the token, the present state to every browser, and a clear word for a taken port."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.errors import SpecError
from pgdyno.run import quiet_server
from pgdyno.run.page_server import HOST, Updates, describe_address, describe_readers, listen, serving
from tests.waiting import wait_until

TOKEN = "the-token"


class Served:
    def __init__(self, port: int, updates: Updates) -> None:
        self.port, self.updates = port, updates
        self.closing = contextlib.ExitStack()

    def ask(self, path: str, *, method: str = "GET", host: str = HOST) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=60)
        self.closing.callback(connection.close)
        connection.request(method, path, headers={"Host": f"{host}:{self.port}"})
        return self.closing.enter_context(connection.getresponse())


@pytest.fixture
def served() -> Iterator[Served]:
    opened, updates = listen(0), Updates()
    with serving(opened, token=TOKEN, html=b"<p>page", policy="default-src 'none'", updates=updates):
        running = Served(opened.getsockname()[1], updates)
        with running.closing:
            yield running


@pytest.mark.parametrize("address", ["0.0.0.0", "::1"])
def test_a_page_for_others_answers_by_any_name_to_the_token_alone(address: str) -> None:
    with_ipv6 = Path("/proc/net/if_inet6")
    if ":" in address and not (with_ipv6.exists() and f"{1:032x} " in with_ipv6.read_text()):
        pytest.skip("this machine has no ::1")
    with contextlib.closing(listen(0, address=address)) as opened:
        port = opened.getsockname()[1]
        is_wide = address == "0.0.0.0"
        assert (
            describe_address(opened, TOKEN) == f"http://{socket.gethostname() if is_wide else '[::1]'}:{port}/{TOKEN}/"
        )
        assert ("anyone who can reach that port" in describe_readers(opened)) is is_wide
        with serving(opened, token=TOKEN, html=b"<p>page", policy="default-src 'none'", updates=Updates()):
            for path, host, status in (
                (f"/{TOKEN}/", "bench7.example", 200 if is_wide else 403),
                (f"/{TOKEN}/", "[::1]", 200),
                (f"/{TOKEN}/", "[::", 200 if is_wide else 403),
                ("/wrong/", "[::1]", 403),
            ):
                connection = http.client.HTTPConnection("::1" if ":" in address else HOST, port, timeout=60)
                connection.request("GET", path, headers={"Host": f"{host}:{port}"})
                assert connection.getresponse().status == status, (path, host)
                connection.close()


def test_an_address_of_another_machine_is_refused() -> None:
    # Source: RFC 5737, an address for documentation, which no machine has.
    with pytest.raises(SpecError, match=r"cannot listen on 192\.0\.2\.1:80") as refused:
        listen(80, address="192.0.2.1")
    assert "0.0.0.0 means all" in refused.value.hint


def read_event(answer: http.client.HTTPResponse) -> tuple[str, str]:
    # A comment comes after a silence.
    while (name := answer.readline().decode().strip()).startswith(":"):
        assert answer.readline() == b"\n"
    data, end = (answer.readline().decode().strip() for _ in range(2))
    assert end == ""
    return name.removeprefix("event: "), data.removeprefix("data: ")


@pytest.mark.parametrize(
    ("path", "method", "host"),
    [
        ("/", "GET", HOST),
        ("/wrong/", "GET", HOST),
        ("/wrong/events", "GET", HOST),
        ("/t%C3%BCr/", "GET", HOST),
        (f"/{TOKEN}/", "POST", HOST),
        (f"/{TOKEN}/", "GET", "elsewhere.example"),
    ],
)
def test_without_the_token_nothing_is_told(served: Served, path: str, method: str, host: str) -> None:
    answer = served.ask(path, method=method, host=host)
    assert (answer.status, answer.read(), answer.getheader("Server")) == (403, b"", None)


def test_the_page_comes_with_its_policy(served: Served) -> None:
    answer = served.ask(f"/{TOKEN}/")
    assert (answer.status, answer.read()) == (200, b"<p>page")
    assert answer.getheader("Content-Security-Policy") == "default-src 'none'"


@pytest.mark.parametrize("path", ["other", "events/", "events/anything", "/events", "/"])
def test_nothing_else_is_below_the_page(served: Served, path: str) -> None:
    answer = served.ask(f"/{TOKEN}/{path}")
    assert (answer.status, answer.read()) == (404, b"")


def test_an_address_without_its_last_slash_leads_to_the_page(served: Served) -> None:
    answer = served.ask(f"/{TOKEN}?from=chat")
    assert (answer.status, answer.getheader("Location"), answer.read()) == (302, f"/{TOKEN}/", b"")
    assert served.ask("/wrong").status == 403


def test_a_request_has_a_few_seconds_however_often_a_part_of_it_comes(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiet_server, "_HEAD_S", 0.5)

    def is_closed(connection: socket.socket) -> bool:
        try:
            connection.sendall(b"x")
            return connection.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    for begun in (b"", b"GET / HTTP/1.1\r\nHost: "):
        with socket.create_connection((HOST, served.port), timeout=60) as slow:
            slow.settimeout(0.01)
            slow.sendall(begun)
            assert wait_until(lambda slow=slow: is_closed(slow))  # type: ignore[misc]


def test_a_connection_that_is_kept_may_ask_again_later(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = http.client.HTTPConnection(HOST, served.port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", f"/{TOKEN}/")
        assert connection.getresponse().read() == b"<p>page"
        monkeypatch.setattr(quiet_server, "_HEAD_S", 0.05)
        # Longer than a head may take: nothing of it has come yet.
        assert not select.select([connection.sock], [], [], 0.2)[0]
        connection.request("GET", f"/{TOKEN}/")
        assert connection.getresponse().read() == b"<p>page"


def test_every_browser_gets_the_present_state_and_what_changes(served: Served) -> None:
    served.updates.put({"course": b"1"})
    first = served.ask(f"/{TOKEN}/events")
    assert read_event(first) == ("course", "1")
    served.updates.put({"course": b"1", "answers": b"2"})
    assert read_event(first) == ("answers", "2")
    # The second comes later, or is the first again after it was gone.
    second = served.ask(f"/{TOKEN}/events")
    assert [read_event(second), read_event(second)] == [("course", "1"), ("answers", "2")]
    served.updates.close()
    assert first.read() == second.read() == b""


def test_a_browser_that_is_gone_is_followed_no_longer_and_nothing_is_said(
    served: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    served.updates.put({"course": b"1"})
    with socket.create_connection((HOST, served.port), timeout=60) as browser:
        browser.sendall(f"GET /{TOKEN}/events HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        assert wait_until(lambda: served.updates.watchers == 1)
    numbers = itertools.count(2)

    def is_gone() -> bool:
        served.updates.put({"course": f"{next(numbers)}".encode()})
        return served.updates.watchers == 0

    assert wait_until(is_gone)
    back = served.ask(f"/{TOKEN}/events")
    assert read_event(back) == ("course", f"{next(numbers) - 1}")
    assert capfd.readouterr() == ("", "")


def test_a_taken_port_is_refused_with_its_number() -> None:
    with listen(0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SpecError, match=f"port {port}"):
            listen(port)


def test_one_connection_too_many_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet_server, "_MOST_CONNECTIONS", 1)
    monkeypatch.setattr(quiet_server, "_HEAD_S", 300.0)
    opened = listen(0)
    here = opened.getsockname()
    with serving(opened, token=TOKEN, html=b"", policy="default-src 'none'", updates=Updates()):
        for _ in range(2):
            with (
                socket.create_connection(here, timeout=60) as first,
                socket.create_connection(here, timeout=60) as second,
            ):
                assert second.recv(1) == b""
                first.sendall(b"GET / HTTP/1.0\r\n\r\n")
                assert first.makefile("rb").readline() == b"HTTP/1.1 403 Forbidden\r\n"
                # Its place is free once its thread has ended.
                assert wait_until(lambda: "process_request_thread" not in " ".join(map(str, threading.enumerate())))


def test_a_port_that_another_page_has_is_no_wrong_address() -> None:
    with listen(0, address="0.0.0.0") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SpecError, match=f"port {port} is not free"):
            listen(port, address="0.0.0.0")
