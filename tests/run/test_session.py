"""What is left of a real command whose leader was killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from pgdyno.run.host.process import find_server_user
from pgdyno.run.host.session import end_session, find_session, note_session
from tests.loops import needs_root
from tests.shared import reachable_folder

# A child, a daemon that leaves the session, and the shell, which waits for both.
COMMAND = ["sh", "-c", "sleep 3600 & echo $!; setsid sleep 3600 & echo $!; wait"]


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


@needs_root
def test_a_process_of_another_account_is_waited_for_and_named() -> None:
    """What a command runs with sudo."""
    user = find_server_user()
    lines = (
        "import os, pathlib, sys",
        "from pgdyno.errors import HostError",
        "from pgdyno.run.host import session",
        "session._END_PATIENCE_S = 0.1",
        # After the imports: that account may not be able to read them.
        f"os.setgroups([]); os.setresgid(*[{user.gid}] * 3); os.setresuid(*[{user.uid}] * 3)",
        "try: session.end_session(pathlib.Path(sys.argv[1]))",
        "except HostError as error: print(error.detail)",
    )
    with reachable_folder() as folder:
        path = folder / "session"
        with subprocess.Popen(note_session(["sleep", "3600"], path), start_new_session=True) as command:
            try:
                while Path(f"/proc/{command.pid}/comm").read_text() != "sleep\n":
                    pass
                said = subprocess.run(
                    [sys.executable, "-c", "\n".join(lines), str(path)], check=True, capture_output=True, text=True
                )
                assert said.stdout == f"pid {command.pid} (sleep)\n"
                assert find_session(path) == (command.pid,)
            finally:
                command.kill()
        end_session(path)
        assert not path.exists()


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
