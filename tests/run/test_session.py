"""What is left of a real command whose leader was killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from pgdyno.run.host.session import find_session, note_session

# A child, a daemon that leaves the session, and the shell, which waits for both.
COMMAND = ["sh", "-c", "sleep 600 & echo $!; setsid sleep 600 & echo $!; wait"]


def test_children_count_until_they_end_and_daemons_do_not(tmp_path: Path) -> None:
    path = tmp_path / "session"
    with subprocess.Popen(
        note_session(COMMAND, path), start_new_session=True, stdout=subprocess.PIPE, text=True
    ) as leader:
        assert leader.stdout is not None
        child, daemon = (int(leader.stdout.readline()) for _ in range(2))
        try:
            while os.getsid(daemon) == leader.pid:
                pass
            assert set(find_session(path)) == {leader.pid, child}
            leader.kill()
            leader.wait()
            assert find_session(path) == (child,)
            os.kill(child, signal.SIGKILL)
            while find_session(path):
                pass
        finally:
            for pid in (child, daemon):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def test_a_file_of_no_session(tmp_path: Path) -> None:
    path = tmp_path / "session"
    assert find_session(path) == ()
    path.write_text("12 (sh")
    assert find_session(path) == ()
    stat = Path("/proc/self/stat").read_text()
    path.write_text(f"{stat}another boot\n")
    assert find_session(path) == ()
    # The number has gone to another process, which leads another session.
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text()
    fields = stat.rpartition(")")[2].split()
    path.write_text(stat.replace(f" {fields[19]} ", " 1 ") + boot_id)
    assert find_session(path) == ()
