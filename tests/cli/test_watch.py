"""`--live` as users run it: the page is there while a real bench runs, and nothing is left when it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.error
import urllib.request
from typing import IO

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from pgdyno.record.store import RecordStore, open_record
from pgdyno.run.page_server import listen
from tests.cli.program import GENTLE, SMALL, Bench
from tests.ports import find_free_port
from tests.report.accessibility import find_barriers
from tests.report.browser import CHROMIUM, Browser

pytestmark = pytest.mark.cluster


def read_address(stream: IO[str] | None) -> str:
    assert stream is not None
    told = []
    for line in stream:
        told.append(line)
        if found := re.search(r"http://127\.0\.0\.1:\d+/[\w-]+/", line):
            return found[0]
    raise AssertionError(told)


def read_metrics(port: int) -> list[Sample]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=600) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
        families = text_string_to_metric_families(answer.read().decode())
        return [one for family in families for one in family.samples]


def test_the_page_follows_a_bench_to_its_end(bench: Bench) -> None:
    port = find_free_port()
    with bench.started("bench", *SMALL, *GENTLE, "--live", "--metrics-port", f"{port}") as process:
        address = read_address(process.stderr)
        with urllib.request.urlopen(address, timeout=600) as answer:
            assert b"<title>pgdyno" in answer.read()
        seen: dict[str, list[str]] = {}
        with urllib.request.urlopen(f"{address}events", timeout=600) as events:
            # The stream ends with the command.
            read_metrics(port)
            for line in events:
                if line.startswith(b"event: "):
                    data = next(events).removeprefix(b"data: ")
                    seen.setdefault(line[7:].decode().strip(), []).append(data.decode())
        process.communicate(timeout=600)
        assert process.returncode == 0
    assert {"course", "trials", "answers", "history", "seconds"} <= seen.keys()
    (course,) = json.loads(seen["course"][-1])
    assert (course["state"], course["finished_count"]) == ("ended", len(open_record(bench.record).read_trials()))
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=10)
    bench.assert_nothing_runs()


@pytest.mark.skipif(CHROMIUM is None and os.environ.get("CI") != "true", reason="no chromium is installed")
def test_a_browser_follows_a_bench_to_its_end(bench: Bench) -> None:
    # At the end of its command the page has half a minute, which a busy machine may need for other things: it is looked at before.
    with (
        Browser() as browser,
        bench.started("bench", *SMALL, *GENTLE, "--live", stops_at=RecordStore.write_trial) as process,
    ):
        address = read_address(process.stderr)
        browser.view(width=375, scheme="dark")
        browser.call("Page.navigate", url=address)
        browser.wait_for("document.querySelector('#link')?.textContent", lambda text: text == "connected")
        assert process.stands_still(), process.communicate()
        # Those of TPS and latency: on a busy machine, samplers may come too late to so short a trial.
        browser.wait_for("document.querySelectorAll('#now svg').length", lambda count: count >= 2)
        browser.wait_for(
            "document.querySelector('#counted').textContent", lambda text: text.startswith("1 of at most ")
        )
        assert browser.evaluate("document.documentElement.scrollWidth") <= 375
        assert find_barriers(browser) == []
        process.go_on()
        process.communicate(timeout=600)
        assert process.returncode == 0
        # The browser keeps what it showed last.
        browser.wait_for("document.querySelector('#link').textContent", lambda text: "the command has ended" in text)
        assert browser.evaluate("document.querySelectorAll('#now h2').length") >= 1
        assert all("ERR_" in text for text in browser.complaints)
        assert set(browser.requests) == {address, f"{address}events"}


def test_ctrl_c_ends_a_watch_of_a_record(bench: Bench) -> None:
    with listen(0) as taken:
        port = taken.getsockname()[1]
        measured = bench.run("bench", *SMALL, *GENTLE, "--metrics-port", f"{port}")
    # A port that another program has costs the metrics, and not the bench.
    assert (measured.returncode, f"there are no metrics: port {port} is not free" in measured.stderr) == (0, True)
    port = find_free_port()
    with bench.started("watch", "--metrics-port", f"{port}") as process:
        address = read_address(process.stderr)
        with urllib.request.urlopen(f"{address}events", timeout=600) as events:
            assert events.readline().startswith(b"event: ")
            told = {one.name: one.value for one in read_metrics(port)}
            assert (told["pgdyno_finished_trials_count"], told["pgdyno_is_measured"]) == (3, 0)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=600) == 130
    assert isinstance(process, subprocess.Popen)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=10)
