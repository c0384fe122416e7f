"""kill -9 while settings are applied to a real server and to the kernel: `restore` brings back the first state, exactly.

Every instant between two effects of pgdyno's own is tried (files opened to be written, renamed, removed; processes
started; signals sent), and random ones, which also fall while the server stops and starts. PGDYNO_KILLS=200 kills that
many times at random instants, instead of a few, and tries every instant with both servers; it takes some ten minutes.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.run.change.changes import TuningState
from pgdyno.run.change.tuning_restore import restore_tuning
from tests.applying import RELOADED, RESTARTED, SYSCTLS, SYSFS, Bench, some_bench
from tests.sysctls import needs_proc_sys

pytestmark = [pytest.mark.cluster, needs_proc_sys]
_KILLS = int(os.environ.get("PGDYNO_KILLS", "0"))
# For each line of input it forks a pgdyno that applies, and kills itself before its so manieth effect.
_APPLIER = """
import os, signal, sys
from pathlib import Path
from pgdyno.run.change.apply import apply_tuning
from pgdyno.run.change.prepare_apply import find_named_server, prepare_apply
from pgdyno.run.change.journal import Journal

data, bindir, folder, settings, sysctls, sysfs = Path({data!r}), Path({bindir!r}), Path({folder!r}), {settings!r}, {sysctls!r}, {sysfs!r}
EFFECTS = {{"os.rename", "os.remove", "os.mkdir", "os.kill", "os.chown", "os.chmod", "subprocess.Popen"}}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
last = 0

def watch(event, arguments):
    global last
    if event in EFFECTS or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING):
        last -= 1
        if last == 0:
            os.kill(os.getpid(), signal.SIGKILL)

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        try:
            server = find_named_server(data, bindir=bindir)
            prepared = prepare_apply(server, settings=settings, sysctls=sysctls, sysfs=sysfs, etc=folder)
            print("begins", os.getpid(), flush=True)
            last = int(line)
            sys.addaudithook(watch)
            apply_tuning(prepared, may_restart=True, journal=Journal(folder / "journal"))
        except BaseException as error:
            print("failed", repr(error), getattr(error, "detail", ""), flush=True)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    print("killed" if os.WIFSIGNALED(status) else "ended", flush=True)
"""


class Applier:
    """Another pgdyno that applies settings again and again."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child

    def begin(self, *, killed_before: int = 0) -> int:
        assert self._child.stdin is not None
        print(killed_before, file=self._child.stdin, flush=True)
        word, pid = self._read().split()
        assert word == "begins"
        return int(pid)

    def end(self) -> str:
        return self._read()

    def _read(self) -> str:
        assert self._child.stdout is not None
        said = self._child.stdout.readline().strip()
        assert said, self._child.communicate()
        return said


@contextlib.contextmanager
def applier(bench: Bench, settings: dict[str, str]) -> Iterator[Applier]:
    code = _APPLIER.format(
        data=str(bench.cluster.data),
        bindir=str(bench.cluster.bin_directory),
        folder=str(bench.folder),
        settings=settings,
        sysctls=SYSCTLS,
        sysfs=SYSFS,
    )
    pipe = subprocess.PIPE
    child = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    try:
        yield Applier(child)
    finally:
        child.kill()
        child.communicate()


def restore(bench: Bench, *, may_restart: bool = False) -> None:
    for undo in restore_tuning(bench.journal, may_restart=may_restart):
        assert undo.outcome.value in {"undone", "unneeded"}, undo
        assert not undo.reason, undo


@pytest.mark.parametrize("version_major", [18, 15])
def test_before_each_of_its_effects(version_major: int, tmp_path: Path) -> None:
    with some_bench(version_major, tmp_path) as bench, applier(bench, RELOADED) as other:
        before = bench.state()
        halfway = 0
        # With the older server every fifth will do, and all of them with PGDYNO_KILLS.
        stride = 1 if _KILLS or version_major == 18 else 5
        tried = 0
        for effect in range(1, 200, stride):
            tried += 1
            other.begin(killed_before=effect)
            ended = other.end()
            halfway += bench.conf.read_bytes() != before["conf"][0]
            restore(bench)
            assert bench.is_forgotten()
            assert bench.state() == before, f"killed before effect {effect}"
            if ended != "killed":
                break
        assert ended == "ended", ended
        assert effect > 20
        assert 0.1 * tried < halfway < 0.9 * tried


@pytest.mark.parametrize("version_major", [18, 15])
def test_at_random_instants_while_it_restarts_the_server(version_major: int, tmp_path: Path) -> None:
    chance = random.Random(os.urandom(8) if _KILLS else version_major)
    with some_bench(version_major, tmp_path) as bench, applier(bench, {**RELOADED, **RESTARTED}) as other:
        before = bench.state()
        begun = time.monotonic()
        other.begin()
        assert other.end() == "ended"
        whole_s = time.monotonic() - begun
        assert bench.show("shared_buffers") == ("48MB",)
        restore_tuning(bench.journal, may_restart=True)
        assert bench.state() == before
        for _ in range(_KILLS or 4):
            pid = other.begin()
            time.sleep(chance.uniform(0, whole_s))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
            other.end()
            # Of what was not finished it is known that a restart was allowed; one that comes late needs to be told.
            tuning = bench.journal.read_tuning()
            restore(bench, may_restart=tuning is not None and tuning.state is TuningState.APPLIED)
            assert bench.is_forgotten()
            assert bench.state() == before
