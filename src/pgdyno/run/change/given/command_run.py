"""Run a command of the user's that changes settings of a given server, and wait until the server shows them.

Which values the command gets, in which form, is its contract with the user: docs/guide/your-server.md. The server may be
restarted meanwhile.
"""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pgdyno.errors import StepFailedError
from pgdyno.run.change.changes import ApplyCommand
from pgdyno.run.host import process
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.host.ctrl_c import uninterrupted
from pgdyno.run.host.session import end_session, find_session, note_session
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.lost import ReturnWatch

Connect = Callable[[], sql.Connection]
Tell = Callable[[str], None]
ENDS_WITHIN_S = 3600.0
"""How long the command may run: a service may restart a server for minutes, and wait for others before."""
SHOWN_WITHIN_S = 600.0
"""How long after its end the server may take to show the values."""
_LOOK_EVERY_S = 0.5
_MOST_LINES = 5


def read_command(text: str, folder: Path) -> ApplyCommand:
    """Return the command that a study names by its command line.

    Args:
        text: With a program that is an absolute path, or looked up in PATH.
        folder: Where it is run.
    """
    return ApplyCommand(argv=tuple(shlex.split(text)), folder=str(folder))


def run_command(
    command: ApplyCommand, values: Mapping[str, str], *, session: Path, on_activity: Tell = lambda _: None
) -> None:
    """Run a command to its end with settings on its standard input. Ctrl-C takes effect afterwards.

    Args:
        command: The command.
        values: In the server's own units, by name.
        session: The file that tells, after a kill, what still runs of it.
        on_activity: Receives what is run.

    Raises:
        HostError: It cannot be started, or neither ends nor can be ended.
        StepFailedError: It does not end, or with another exit code than 0.
    """
    lines = "".join(f"{name}={value}\n" for name, value in values.items())
    said = shlex.join(command.argv)
    on_activity(f"{said}: {lines.replace(chr(10), ' ').strip()}")
    with uninterrupted():
        try:
            done = process.run(
                note_session(command.argv, session),
                timeout_s=ENDS_WITHIN_S,
                cwd=command.folder,
                env=dict(os.environ),
                stdin=lines,
                leaves_daemons=True,
            )
        except StepFailedError:
            # What is left of it would disturb what puts the settings back.
            end_session(session)
            raise
    session.unlink(missing_ok=True)
    if done.exit_code != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-_MOST_LINES:]
        raise StepFailedError(
            f"the command that applies settings ended with exit code {done.exit_code}",
            detail="\n".join([f"{said}, with {', '.join(lines.splitlines())}", *last]),
            hint="run it by hand with these lines on its standard input",
        )


def await_shown(
    connect: Connect,
    values: Mapping[str, str],
    *,
    within_s: float = SHOWN_WITHIN_S,
    on_activity: Tell = lambda _: None,
    is_ended: threading.Event | None = None,
) -> None:
    """Wait until new sessions of a server show values, also while it is restarted.

    Args:
        connect: Connects to it.
        values: In the server's own units, by name.
        within_s: How long to wait.
        on_activity: Receives what is waited for.
        is_ended: Ends the wait.

    Raises:
        StepFailedError: It does not show them, with what was set and what was seen.
    """
    is_ended = is_ended or threading.Event()
    began_s, watch = monotonic_s(), ReturnWatch()
    while True:
        missing = _find_missing(connect, values, watch)
        if not missing:
            return
        waited_s = monotonic_s() - began_s
        if waited_s > within_s or is_ended.is_set():
            raise StepFailedError(
                f"the server does not show what the command was to set, {waited_s:.0f} s after its end",
                detail="; ".join(missing),
                hint="a command is to end when the values are in force, and to restart the server where they take it",
            )
        on_activity(f"waiting for the server, {waited_s:.0f} s of at most {within_s:.0f} s: {'; '.join(missing)}")
        is_ended.wait(_LOOK_EVERY_S)


def await_end(session: Path, on_activity: Tell) -> None:
    """Wait for what still runs of a command whose pgdyno was killed: it would disturb what puts its work back.

    Raises:
        StepFailedError: It still runs after ENDS_WITHIN_S.
    """
    deadline_s = monotonic_s() + ENDS_WITHIN_S
    while pids := find_session(session):
        said = f"pid {', '.join(map(str, pids))}"
        if monotonic_s() > deadline_s:
            raise StepFailedError(
                "the command of a killed pgdyno still runs, and could change settings once more",
                detail=f"after {ENDS_WITHIN_S:g} s: {said}",
                hint="end it, then restore once more",
            )
        on_activity(f"waiting for the command of a killed pgdyno: {said}")
        time.sleep(_LOOK_EVERY_S)


def _find_missing(connect: Connect, values: Mapping[str, str], watch: ReturnWatch) -> list[str]:
    """Return in words what a server does not show; nothing if it shows all."""
    try:
        with connect() as connection:
            found = sql.read_server_settings(connection, list(values))
    except StepFailedError as error:
        if not watch.may_return(error):
            raise
        return [f"no answer: {error.reason}"]
    missing = []
    for name, value in values.items():
        row = found.get(name, {})
        if row.get("setting") != value:
            waiting = ", which waits for a restart" if row.get("is_waiting") else ""
            missing.append(f"{name}: set {value}{waiting}, seen {row.get('setting', 'nothing')}")
    return missing
