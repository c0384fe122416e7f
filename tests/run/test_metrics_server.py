"""The server of metrics: a fresh text for each request, the last one where that takes long, and nothing to other pages."""

from __future__ import annotations

import http.client
import threading

import pytest

from pgdyno.run import metrics_server
from pgdyno.run.metrics_server import Scrapes, describe_metrics, serving_metrics
from pgdyno.run.page_server import HOST, listen


def ask(port: int, path: str = "/metrics", *, method: str = "GET", host: str = HOST) -> tuple[int, str | None, bytes]:
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    connection.request(method, path, headers={"Host": f"{host}:{port}"})
    answer = connection.getresponse()
    told = (answer.status, answer.getheader("Content-Type"), answer.read())
    connection.close()
    return told


def test_each_request_gets_a_text_that_is_younger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "_PATIENCE_S", 300.0)
    opened, scrapes = listen(0), Scrapes()
    port = opened.getsockname()[1]
    assert describe_metrics(opened) == f"http://{HOST}:{port}/metrics"
    is_over = threading.Event()

    def answer() -> None:
        while not is_over.wait(0.001):
            if scrapes.is_asked:
                scrapes.answer(f"{scrapes.asked}".encode(), asked=scrapes.asked)

    reader = threading.Thread(target=answer)
    reader.start()
    with serving_metrics(opened, media_type="text/x", scrapes=scrapes):
        try:
            assert [ask(port) for _ in range(2)] == [(200, "text/x", b"1"), (200, "text/x", b"2")]
        finally:
            is_over.set()
            reader.join()
        assert ask(port, "/") == (404, "text/plain", b"")
        assert ask(port, method="POST") == (404, "text/plain", b"")
        assert ask(port, host="elsewhere.example") == (404, "text/plain", b"")
        monkeypatch.setattr(metrics_server, "_PATIENCE_S", 0.01)
        assert ask(port) == (200, "text/x", b"2"), "nothing reads the record now"


def test_the_last_state_waits_for_a_system_that_asks_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(metrics_server, "monotonic_s", lambda: now[0])
    monkeypatch.setattr(metrics_server, "_PATIENCE_S", 0.0)
    scrapes = Scrapes()
    assert not scrapes.wait_for_last(), "nothing ever asked"
    for at_s in (100.0, 105.0):
        now[0] = at_s
        with scrapes.ask():
            pass
    scrapes.answer(b"1", asked=scrapes.asked)
    now[0] = 111.1
    assert not scrapes.wait_for_last(), "it stopped asking"
    now[0] = 80.0
    assert not scrapes.wait_for_last(), "the next request is too far away"
    now[0] = 105.0
    with scrapes.ask():
        assert scrapes.wait_for_last() is True


def test_before_the_first_text_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "_PATIENCE_S", 0.01)
    opened = listen(0)
    with serving_metrics(opened, media_type="text/x", scrapes=Scrapes()):
        assert ask(opened.getsockname()[1])[0] == 503
