"""A start of the program, or of a helper, by a fork is what a start by a new Python is."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import msgspec
import pytest

from pgdyno.errors import PgdynoError
from pgdyno.run.host import process
from pgdyno.run.host.freezer import is_stopped
from pgdyno.run.host.helper import helper_argv
from pgdyno.run.load.log_stream import FollowedLog, LogRequest, LogTask
from tests.forks import HelperPopen
from tests.ready_program import Program, run_program


def test_a_fork_has_the_arguments_folder_environment_streams_and_exit_code_of_a_new_python(tmp_path: Path) -> None:
    (tmp_path / "pgdyno-records" / "one").mkdir(parents=True)
    environment = {**os.environ, "PGDYNO_PROGRAM": "./pgdyno", "COLUMNS": "60"}
    for words, code in ((("show", "nowhere"), 2), (("list", "--json"), 0), (("bench", "--scale", "0", "--json"), 2)):
        forked, fresh = (run_program(words, cwd=tmp_path, env=environment, prefix=way) for way in ((), ("env",)))
        assert (forked.returncode, forked.stdout, forked.stderr) == (code, fresh.stdout, fresh.stderr)
        assert fresh.returncode == code


@pytest.mark.parametrize("prefix", [(), ("env",)])
def test_a_program_that_stops_itself_stands_still_until_it_is_let_go_on(prefix: tuple[str, ...]) -> None:
    # It stops once, at its only error.
    words = ("list", "--records", "/nowhere")
    done = run_program(words, prefix=prefix)
    for is_there in (True, False):
        asked: list[bool] = []

        def condition(asked: list[bool] = asked, is_there: bool = is_there) -> bool:
            asked.append(is_stopped(process.pid))
            return is_there

        with Program(
            words, prefix=prefix, stops_at=PgdynoError.__init__, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stands_still(condition) is is_there
            process.go_on()
            assert process.communicate() == (done.stdout, done.stderr)
        assert (process.returncode, asked) == (done.returncode, [True])


def look_at_reader(log_folder: Path) -> dict[str, object]:
    """Start a log reader, and return what /proc has of it, and its end."""
    record_folder = f"{log_folder}-record"
    log = FollowedLog(log_folder=str(log_folder), record_folder=record_folder, asked=LogRequest())
    task = LogTask(parent_pid=os.getpid(), logs=(log,))
    given, kept = os.pipe()
    argv = helper_argv("pgdyno.run.load.log_stream", msgspec.json.encode(task).decode())
    reader = process.start(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, inherited=[given]
    )
    os.close(given)
    assert reader.stdout is not None
    said, place = reader.stdout.readline(), Path(f"/proc/{reader.pid}")
    found = {
        "said": said,
        "command line": (place / "cmdline").read_bytes().rstrip(b"\0").replace(bytes(log_folder), b""),
        "folder": (place / "cwd").readlink(),
        "pipe": (place / "fd" / str(given)).readlink() == Path(f"/proc/self/fd/{kept}").readlink(),
        "parent": re.findall(r"PPid:.*", (place / "status").read_text()),
        "is a leader": os.getsid(reader.pid) == reader.pid,
    }
    os.close(kept)
    out, err = reader.communicate(timeout=600)
    return {**found, "packed": json.loads(out)[0]["packed"], "err": err, "exit code": reader.returncode}


def test_a_forked_helper_is_as_one_of_a_new_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(name: str) -> tuple[dict[str, object], tuple[int, bytes]]:
        (tmp_path / name).mkdir()
        seen = look_at_reader(tmp_path / name)
        argv = helper_argv("pgdyno.run.sample.pinger", "--conninfo", "host=/nowhere port=1 user=x dbname=x")
        pinger = process.start(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        _, err = pinger.communicate(timeout=600)
        return seen, (pinger.returncode, err)

    fresh = look("one")
    monkeypatch.setattr(subprocess, "Popen", HelperPopen)
    forked = look("two")
    assert fresh[0]["pipe"]
    assert fresh[0]["is a leader"]
    assert forked == fresh
    assert fresh[1][0] == 1
