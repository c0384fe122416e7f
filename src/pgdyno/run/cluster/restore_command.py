"""Have a command of the user's restore the working cluster, and verify what it has made.

For data that take long to copy: a snapshot of LVM, ZFS or a cloud volume, or a copy that shares blocks (reflink). What the
command gets and is to leave is its contract with the user: docs/guide/restoring.md. It runs in a session of its own, so that
nothing of it outlives Ctrl-C, and the next pgdyno in the home ends what a killed one has left of it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import struct
from collections.abc import Iterator
from pathlib import Path

from pgdyno.errors import HostError, StepFailedError
from pgdyno.run.cluster.home import Home
from pgdyno.run.host import process
from pgdyno.run.host.session import end_session, note_session
from pgdyno.run.postgres.hints import hint_for

_CONTRACT = "docs/guide/restoring.md has what the command must leave, with examples"
_MOST_LINES = 5
_MOST_DIFFERENCES = 3
# Source: PostgreSQL 15 to 18 src/include/catalog/pg_control.h: system_identifier, two version numbers, DBState.
_CONTROL = struct.Struct("=QIII")
_STATES = {
    1: "shut down",
    2: "shut down in recovery",
    3: "shutting down",
    4: "in crash recovery",
    5: "in archive recovery",
    6: "in production",
}


def restore_by_command(command: str, *, template: Path, home: Home) -> None:
    """Run the command, and check that the home's working cluster is then what the template is.

    Args:
        command: The command line.
        template: The data folder of the loaded cluster.
        home: The home; its `data` is the folder to fill.

    Raises:
        HostError: The command cannot be started, or what it has started cannot be ended.
        StepFailedError: It failed, or left something else.
    """
    argv = shlex.split(command)
    environment = process.clean_environment() | {
        "PGDYNO_TEMPLATE": str(template),
        "PGDYNO_DATA": str(home.data),
        "PGDYNO_SLOT": "main" if home.work == home.root / "work" else home.work.name,
        "PGDYNO_USER": home.user.name,
    }
    try:
        # It takes as long as it takes, as a copy does.
        noted = note_session(argv, home.restore_session)
        done = process.run(noted, timeout_s=None, env=environment, leaves_daemons=True)
    except BaseException:
        # Ctrl-C must not end as the failure of a trial. The home is left, and entered, only once the session has ended.
        with contextlib.suppress(HostError):
            end_session(home.restore_session)
        raise
    end_session(home.restore_session)
    if done.exit_code != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-_MOST_LINES:]
        raise StepFailedError(
            f"the restore command ended with exit code {done.exit_code}",
            detail="\n".join([command, *last]),
            hint=hint_for(done.stderr) or "run it by hand with the variables of docs/guide/restoring.md",
        )
    wrong = next(_find_faults(template, home), None)
    if wrong is not None:
        raise StepFailedError("the restore command did not restore the loaded cluster", detail=wrong, hint=_CONTRACT)


def _find_faults(template: Path, home: Home) -> Iterator[str]:
    """Yield what keeps the working cluster from being the template's like, the most telling first."""
    data = home.data
    if data.is_symlink() or not data.is_dir():
        yield f"{data} is {'a link' if data.is_symlink() else 'no folder'}"
        return
    if os.path.samestat(data.stat(), template.stat()):
        yield f"{data} is the loaded cluster itself, which no trial may change"
        return
    if (owner := data.stat().st_uid) != home.user.uid:
        yield f"{data} belongs to the account {owner}, not to {home.user.name}"
    yield from _compare_control(template, data)
    wanted, found = _list_files(template), _list_files(data)
    names = sorted(name for name in {*wanted, *found} if wanted.get(name) != found.get(name))
    if names:
        listed = [f"{name}: {_say(wanted.get(name))} loaded, {_say(found.get(name))} restored" for name in names]
        more = [f"and {len(names) - _MOST_DIFFERENCES} more"] if len(names) > _MOST_DIFFERENCES else []
        yield "\n".join([f"{data} differs from {template}:", *listed[:_MOST_DIFFERENCES], *more])


def _compare_control(template: Path, data: Path) -> Iterator[str]:
    """Yield how the control files differ: they have the cluster's identity, its state, and its last checkpoint."""
    wanted = (template / "global/pg_control").read_bytes()
    try:
        found = (data / "global/pg_control").read_bytes()
    except FileNotFoundError:
        yield f"there is no global/pg_control in {data}"
        return
    if found == wanted:
        return
    if len(found) < _CONTROL.size:
        yield f"global/pg_control in {data} is cut off"
        return
    (identifier, *_, state), (other, *_, _) = _CONTROL.unpack_from(found), _CONTROL.unpack_from(wanted)
    if identifier != other:
        yield f"{data} is a cluster with the system identifier {identifier}; the loaded one has {other}"
    elif state != 1:
        yield f"{data} is of a server that was {_STATES.get(state, 'in an unknown state')}, not shut down"
    else:
        yield f"{data} has another last checkpoint than the loaded cluster: it is of an earlier or a later time"


def _list_files(folder: Path) -> dict[str, int]:
    """Return the size of each file in a folder, by its path there."""
    found = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            found[str(path.relative_to(folder))] = path.lstat().st_size
    return found


def _say(size: int | None) -> str:
    return "absent" if size is None else f"{size:,} bytes"
