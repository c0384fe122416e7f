from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import msgspec
import pytest

from pgdyno.cli.terminal.display import Display
from pgdyno.errors import HostError, PgdynoError
from pgdyno.flow.hosts import view_hosts
from pgdyno.record.machine.disk_facts import UNKNOWN_DISK
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.samples.clock import fit_clock
from pgdyno.record.samples.files import find_missed, read_os_samples
from pgdyno.run.host.facts import read_host_facts
from pgdyno.run.host.freezer import Freezer
from pgdyno.run.link.far_program import BURST_COUNT, FarProgram
from pgdyno.run.link.look import FarLook, look_at
from pgdyno.run.link.ssh import SshLink, open_link
from pgdyno.run.sample import os_sampler
from pgdyno.spec.hosts import HostEntry, HostRole
from tests.hosts import Sshd
from tests.run.trees import is_alive
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

SAMPLER = Path(os_sampler.__file__)
# The conductor, in a process of its own, so that it can be killed.
CONDUCTOR = """
    import sys
    from pathlib import Path
    from pgdyno.run.link.far_program import FarProgram
    from pgdyno.run.link.ssh import open_link
    from pgdyno.run.sample import os_sampler
    from pgdyno.spec.hosts import HostEntry, HostRole

    with open_link(HostEntry(role=HostRole.SERVER, ssh="db1")) as link:
        silence = sys.argv[2]
        program = FarProgram(
            link, Path(os_sampler.__file__), ["0.2", silence], output=Path(sys.argv[1]), silence_s=int(silence)
        )
        sys.stdin.read()
        program.stop()
        print(program.failure)
"""


def host(name: str, python: str | None = None) -> HostEntry:
    return HostEntry(role=HostRole.SERVER, ssh=name, python=python)


def far_pid(output: Path) -> int:
    """The sampler's own process id, which it prints with its first sample after it follows itself."""

    def lines() -> list[bytes]:
        return [line for line in output.read_bytes().split(b"\n")[:-1] if b'"process.sampler_os":[' in line]

    assert wait_until(lambda: output.exists() and bool(lines()))
    pid: int = msgspec.json.decode(lines()[0])["process.sampler_os"][0]
    return pid


def steady(facts: HostFacts) -> HostFacts:
    """Leave out what changes by itself, and what an account may not see of a machine."""
    return msgspec.structs.replace(facts, load_average_1min=0.0, data_disk=UNKNOWN_DISK, kernel_settings={}, absent={})


def look_undisturbed(link: SshLink, folder: Path) -> tuple[HostFacts, FarLook]:
    """Look at this machine directly and by a link, at a time when no other test changes it."""
    while True:
        before, look, after = read_host_facts(folder), look_at(link), read_host_facts(folder)
        if steady(before) == steady(after):
            return before, look


def test_a_machine_is_what_its_own_files_say(by_ssh: Sshd, tmp_path: Path) -> None:
    known_hosts = (by_ssh.folder / "known_hosts").read_bytes()
    for name in ("db1", "db2"):  # the shell of db2 prints something first
        with open_link(host(name)) as link:
            folder, (here, look) = link.folder, look_undisturbed(link, tmp_path)
        assert look.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip(), name
        assert look.pid_namespace == str(Path("/proc/self/ns/pid").readlink())
        assert steady(look.facts) == steady(here)
        assert set(look.facts.kernel_settings) == set(here.kernel_settings)
        assert len(look.exchanges) >= BURST_COUNT
        fit = fit_clock(look.exchanges)
        assert abs(fit.offset_s) <= fit.uncertainty_s
        assert not folder.exists()
    assert (by_ssh.folder / "known_hosts").read_bytes() == known_hosts


def test_each_kind_of_bad_luck_is_told_from_the_others(by_ssh: Sshd, tmp_path: Path) -> None:
    old = tmp_path / "python3.6"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.6.8\nexit 1\n')
    old.chmod(0o755)
    for entry, words in {
        host("unknown"): "the host key of unknown is not known",
        host("changed"): "the host key of changed has changed",
        host("stranger"): "stranger does not let this account in",
        host("closed"): "no sshd answers at closed",
        host("nowhere.invalid"): "there is no machine nowhere.invalid",
        host("db1", "/nowhere/python3"): "db1 has no Python 3.7 or later: pgdyno: 1: /nowhere/python3: not found",
        host("db1", str(old)): "db1 has no Python 3.7 or later: Python 3.6.8",
        host("db2", str(old)): "db2 has no Python 3.7 or later: Python 3.6.8",
    }.items():
        with pytest.raises(HostError) as caught, open_link(entry) as link:
            look_at(link)
        assert caught.value.reason.startswith(words)
        assert caught.value.hint, words


def test_a_python_is_named_by_its_path_below_the_home_there(by_ssh: Sshd) -> None:
    folder = by_ssh.home / "my own"
    folder.mkdir()
    (folder / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "python").chmod(0o755)
    try:
        with open_link(host("db1", "~/my own/python")) as link:
            assert look_at(link).python == platform.python_version()
    finally:
        shutil.rmtree(folder)
    with pytest.raises(HostError) as caught, open_link(host("db1", "~/my own/python")) as link:
        look_at(link)
    assert f"{folder}/python: not found" in caught.value.detail


def test_a_machine_whose_standard_error_does_not_come_through_is_told_beside_the_others(
    by_ssh: Sshd, tmp_path: Path
) -> None:
    mute = tmp_path / "python3-mute"
    mute.write_text(f'#!/bin/sh\nexec {sys.executable} "$@" 2>/dev/null\n')
    mute.chmod(0o755)
    seen = view_hosts({"mute": host("db1", str(mute)), "other": host("db2")}, ui=Display(quiet=True)).hosts
    assert seen[0].problem is not None
    assert seen[0].problem.fact == "db1 does not say its time"
    assert (seen[1].problem, seen[1].round_trip_s is not None) == (None, True)


def test_a_temporary_folder_with_a_long_path_is_what_is_said(
    by_ssh: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (long := tmp_path / ("x" * 90)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with (
        pytest.raises(HostError, match="temporary folder is too long for the connection to db1"),
        open_link(host("db1")),
    ):
        pass
    assert not [*long.iterdir()]


def test_without_an_ssh_program_that_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PgdynoError, match="cannot start ssh"), open_link(host("db1")):
        pass


def test_a_program_there_ends_with_the_conductor_or_its_link(by_ssh: Sshd, tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": by_ssh.path}
    code = textwrap.dedent(CONDUCTOR)
    output = tmp_path / "killed.jsonl"
    conductor = subprocess.Popen([sys.executable, "-c", code, output, "600"], stdin=subprocess.PIPE, env=environment)
    pid = far_pid(output)
    assert is_alive(pid)
    conductor.kill()
    conductor.communicate()
    assert wait_until(lambda: not is_alive(pid))
    # A link that hangs: only the silence tells the program there.
    hung = tmp_path / "hung.jsonl"
    with open_link(host("db1")) as link:
        program = FarProgram(link, SAMPLER, ["0.2", "5"], output=hung, silence_s=5)
        pid = far_pid(hung)
        assert link._master is not None
        os.kill(link._master.pid, signal.SIGSTOP)
        assert wait_until(lambda: not is_alive(pid))
        os.kill(link._master.pid, signal.SIGCONT)
        program.stop()
        assert program.failure.startswith("the link to db1 was lost, or nothing went through it for 5 s")
        # The connection stands, and what comes next uses it.
        assert look_at(link).facts.memory_bytes > 0
        # One that was lost is made again.
        link._master.kill()
        link._master.wait()
        assert look_at(link).facts.memory_bytes > 0


def test_a_program_there_that_was_halted_goes_on(by_ssh: Sshd, tmp_path: Path) -> None:
    """For longer than its silence may last: the words that came meanwhile wait for it."""
    output, silence_s = tmp_path / "os.jsonl", 8
    with open_link(host("db1")) as link:
        program = FarProgram(link, SAMPLER, ["0.2", str(silence_s)], output=output, silence_s=silence_s)
        pid = far_pid(output)
        # The alarm is set by the first word, and a halt before it would be one of the start.
        wait_until(lambda: len(program.exchanges) >= BURST_COUNT)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(silence_s + 1)
        seen = output.read_bytes().count(b"\n")
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: program.has_lines(seen + 3) or not program.is_alive)
        program.stop()
    assert program.failure == ""
    samples = read_os_samples(output)
    assert samples.end == "stdin closed"
    assert max(one.to_s - one.from_s for one in find_missed(samples)) > silence_s


@pytest.mark.parametrize(
    ("silence_s", "said"), [(30, ""), (5, "the link to db1 was lost, or nothing went through it for 5 s")]
)
def test_a_conductor_that_was_halted_says_so_if_it_was_for_too_long(
    by_ssh: Sshd, tmp_path: Path, silence_s: int, said: str
) -> None:
    output, freezer = tmp_path / "os.jsonl", Freezer()
    argv = [sys.executable, "-c", textwrap.dedent(CONDUCTOR), output, str(silence_s)]
    environment = {**os.environ, "PATH": by_ssh.path}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as conductor:
        pid = far_pid(output)
        try:
            freezer.freeze([conductor.pid])
            if said:
                wait_until(lambda: not is_alive(pid))
            else:
                time.sleep(8)
        finally:
            freezer.thaw()
        assert conductor.communicate()[0].partition(": ")[0].strip() == said
        assert conductor.returncode == 0
    assert (read_os_samples(output).end == "stdin closed") is (not said)


def test_a_program_that_fails_there_says_why(by_ssh: Sshd, tmp_path: Path) -> None:
    source = tmp_path / "far.py"
    source.write_text('import sys\nsys.exit("no such thing there")\n')
    with open_link(host("db2")) as link:
        program = FarProgram(link, source, [], output=tmp_path / "out")
        assert wait_until(lambda: not program.is_alive)
        program.stop()
    assert program.failure == "the program on db2 ended with exit code 1: no such thing there"
    assert (tmp_path / "out").read_bytes() == b""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a time namespace")
def test_a_clock_a_thousand_seconds_ahead_is_found(by_ssh: Sshd, tmp_path: Path) -> None:
    ahead = tmp_path / "python-ahead"
    ahead.write_text(f'#!/bin/sh\nexec unshare --time --monotonic 1000 --fork --kill-child {sys.executable} "$@"\n')
    ahead.chmod(0o755)
    with open_link(host("db1", str(ahead))) as link:
        program = FarProgram(link, SAMPLER, ["0.1", "9"], output=tmp_path / "os.jsonl", silence_s=9)
        began_s = time.monotonic()
        assert wait_until(lambda: {one.burst for one in program.exchanges} >= {0, 1, 2})
        program.stop()
        ended_s = time.monotonic()
    assert program.failure == ""
    fit = fit_clock(program.exchanges)
    assert abs(fit.offset_s - 1000.0) <= fit.uncertainty_s
    samples = read_os_samples(tmp_path / "os.jsonl")
    times_s = fit.to_near(samples.frame["t_s"].to_numpy())
    assert samples.end == "stdin closed"
    assert began_s - 10.0 < times_s[0] < times_s[-1] < ended_s + fit.uncertainty_s
