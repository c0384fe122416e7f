"""The way from a machine that pgdyno was carried to, through this one, to load hosts: what goes to and fro, and what ends."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pgdyno.errors import HostError
from pgdyno.run.host.process import stop
from pgdyno.run.link.look import look_at
from pgdyno.run.link.relayed import RELAY_VARIABLE, open_load_link
from pgdyno.run.link.ssh import SshLink, open_link
from pgdyno.run.over import talk
from pgdyno.run.over.relay import _Relay, relaying
from pgdyno.spec.hosts import HostEntry, HostRole
from tests.hosts import Sshd
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster
SERVER = HostEntry(role=HostRole.SERVER, ssh="db1")
# The shell of this one prints something first.
LOAD = HostEntry(role=HostRole.LOAD, ssh="db2")
MUCH = 3 << 20


def run_through(entry: HostEntry, command: str, data: bytes, folder: Path) -> tuple[int, bytes, bytes]:
    """Run a command on a load host; gives its exit code and both outputs."""
    with open_load_link(entry) as link, (folder / "out").open("wb") as out:
        child = link.start(command, stdout=out)
        try:
            _, said = child.communicate(data, timeout=600)
        finally:
            stop(child)
        return child.returncode, (folder / "out").read_bytes(), said


def test_everything_goes_to_and_fro(by_ssh: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with relaying(SERVER, {"load": LOAD}) as variables:
        monkeypatch.setenv(RELAY_VARIABLE, variables[RELAY_VARIABLE])
        # As on a machine that has no way to a load host itself.
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        data = bytes(range(256)) * (MUCH // 256)
        code, out, said = run_through(LOAD, "cat; echo gone wrong >&2; exit 7", data, tmp_path)
        assert (code, said) == (7, b"gone wrong\n")
        assert out == b"hello from a shell\n" + data
        with open_load_link(LOAD) as link:
            look = look_at(link)
        assert look.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # The machine may ask for whatever it wants: no other is reached.
        code, out, said = run_through(HostEntry(role=HostRole.LOAD, ssh="db1"), "true", b"", tmp_path)
        assert (code, out) == (255, b"")
        assert b"no load host of this command: 'db1'" in said
        with open_load_link(LOAD) as link:
            left = link.start("exec sleep 300", stdout=subprocess.DEVNULL)
        socket = Path(variables[RELAY_VARIABLE])
    # All of it ends with the relay.
    assert left.wait(timeout=600) == 255
    left.communicate()
    assert wait_until(lambda: not socket.parent.exists())
    with pytest.raises(HostError, match="there is no way to db2 any more") as gone, open_load_link(LOAD):
        pass
    assert "`pgdyno resume`" in gone.value.hint


def test_one_that_takes_nothing_holds_up_no_other(
    by_ssh: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadline_s = time.monotonic() + 700
    with relaying(SERVER, {"load": LOAD}) as variables:
        monkeypatch.setenv(RELAY_VARIABLE, variables[RELAY_VARIABLE])

        def assert_others_go_on() -> None:
            assert time.monotonic() < deadline_s
            assert run_through(LOAD, "echo well >&2", b"", tmp_path)[::2] == (0, b"well\n")

        with open_load_link(LOAD) as link:
            # A program there whose input nobody reads.
            deaf = link.start("exec sleep 300", stdout=subprocess.DEVNULL)
            assert deaf.stdin is not None
            writer = threading.Thread(target=deaf.stdin.write, args=(bytes(16 << 20),), daemon=True)
            writer.start()
            while writer.is_alive():
                assert_others_go_on()
            # A program here that does not read what comes from there: that one is ended.
            ended = tmp_path / "ended"
            much = f"cat /dev/zero & cat > /dev/null; kill $!; touch {ended}"
            full = link.start(f"sh -c '{much}'", stdout=subprocess.PIPE)
            while not ended.exists():
                assert_others_go_on()
            assert_others_go_on()
            for child in (deaf, full):
                stop(child)
                child.communicate()


def test_a_load_host_that_is_not_reached_is_said_at_once(by_ssh: Sshd) -> None:
    unknown = HostEntry(role=HostRole.LOAD, ssh="unknown")
    with pytest.raises(HostError, match="the host key of unknown is not known"), relaying(SERVER, {"load": unknown}):
        pass


ASKING = """
import os, sys
asked = b'{"host": "db2", "command": "true"}'
os.write(1, b"1 open %d\\n" % len(asked) + asked)
with open("HEARD", "wb", buffering=0) as heard:
    while more := os.read(0, 1000):
        heard.write(more)
"""


class SlowLink(SshLink):
    """A way to a load host that does not answer until beats have come to the server's machine meanwhile."""

    def __init__(self, heard: Path, end: int) -> None:
        super().__init__(LOAD, heard.parent)
        self.heard, self.end = heard, end

    def connect(self) -> None:
        assert wait_until(lambda: b"\n\n\n" in self.heard.read_bytes())
        # That ends the relay.
        os.close(self.end)
        raise HostError("db2 does not answer")


@contextmanager
def standard_input() -> Iterator[int]:
    """A pipe in place of this process's standard input; gives its other end."""
    kept, (source, end) = os.dup(0), os.pipe()
    os.dup2(source, 0)
    try:
        yield end
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(source)


def test_a_load_host_that_does_not_answer_holds_back_no_beats(
    by_ssh: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(talk, "_BEATS_WITHIN_SILENCE", 1000)
    program, heard = tmp_path / "asking.py", tmp_path / "heard"
    program.write_text(ASKING.replace("HEARD", str(heard)))
    heard.touch()
    with standard_input() as end, open_link(SERVER) as link, talk.talking(link) as asking:
        asking.begin(program)
        _Relay(asking, {"db2": SlowLink(heard, end)}).serve()
    assert b"1 err 19\ndb2 does not answer" in heard.read_bytes()
