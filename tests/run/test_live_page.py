"""What cannot be served beside a measurement is said, and does not stop it; nor does its end hold up the command."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from pathlib import Path

import pytest

from pgdyno.run import live_page
from pgdyno.run.host import process
from pgdyno.run.live_page import LivePage, PageRequest
from pgdyno.run.page_server import listen
from tests.waiting import wait_until


def test_a_port_or_an_address_that_cannot_be_had_is_said_and_nothing_is_started(tmp_path: Path) -> None:
    with listen(0) as taken:
        port = taken.getsockname()[1]
        # Source: RFC 5737, an address for documentation, which no machine has.
        page = LivePage(PageRequest(address="192.0.2.1", port=80, metrics_port=port))
        no_page, no_metrics = page.open(tmp_path / "record")
    assert no_page.startswith("there is no live page: the page cannot listen on 192.0.2.1:80")
    assert no_metrics.startswith(f"there are no metrics: port {port} is not free")
    assert not page.is_open
    page.close(is_stopped=False, say=print)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_ctrl_c_ends_the_wait_for_the_last_look_and_spoils_no_result(
    is_stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_page, "_SILENT_S", 0.0)
    page = LivePage(PageRequest())
    child = process.start(["sh", "-c", "trap '' INT TERM; echo ready; exec sleep 3600"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.readline() == b"ready\n"
    page._child = child
    said: list[str] = []

    def press(text: str) -> None:
        said.append(text)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) if is_stopped else contextlib.nullcontext():
        page.close(is_stopped=is_stopped, say=press)
    assert said == ["the live page hands out the last state and ends, within 30 s; Ctrl-C ends it at once"]
    assert child.returncode == -signal.SIGKILL


def test_the_page_names_the_program_as_the_user_called_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGDYNO_PROGRAM", "../pgdyno")
    page = LivePage(PageRequest())
    (said,) = page.open(tmp_path / "record")
    assert said.startswith("live page: http://127.0.0.1:")
    assert page._child is not None
    environment = Path(f"/proc/{page._child.pid}/environ")
    # Until it has become another program, it shows nothing or what is its parent's.
    is_named = wait_until(lambda: b"PGDYNO_PROGRAM=../pgdyno" in environment.read_bytes().split(b"\0"))
    page.close(is_stopped=True, say=print)
    assert is_named
