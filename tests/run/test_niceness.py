"""A process that is nice is so beside other sessions, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until

CODE = """
import os
from pathlib import Path
from pgdyno.run.host.helper import be_nice
be_nice(7)
print(os.getpriority(os.PRIO_PROCESS, 0), Path("/proc/self/autogroup").read_text().split()[-1])
"""


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel has no groups of sessions")
def test_a_session_of_its_own_is_nice_and_that_of_a_terminal_is_not() -> None:
    def be_nice(*, leads: bool) -> tuple[str, ...]:
        command = [sys.executable, "-c", CODE] if leads else ["sh", "-c", '"$0" -c "$1"; exit', sys.executable, CODE]
        done = subprocess.run(command, start_new_session=True, check=True, capture_output=True, text=True)
        return tuple(done.stdout.split())

    # Whoever runs the tests may be nice, too, and no process is nicer than 19; a new session's group begins at 0.
    own = str(min(19, os.getpriority(os.PRIO_PROCESS, 0) + 7))
    # A kernel lets an account other than root set one in 0.1 s.
    assert wait_until(lambda: be_nice(leads=True) == (own, "7"))
    assert be_nice(leads=False) == (own, "0")
