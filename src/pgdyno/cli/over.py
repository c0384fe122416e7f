"""Define the command `on`, and run a command whose --server-host names no server of the user's on that machine."""

# ruff: noqa: PLC0415 - flows are imported when their command runs, which keeps --help fast
from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from pgdyno.cli.session import session
from pgdyno.errors import SpecError

if TYPE_CHECKING:
    from pgdyno.record.far import FarRecord
    from pgdyno.record.store import RecordStore
    from pgdyno.spec.hosts import HostEntry
    from pgdyno.spec.study import Study

ON_EXAMPLES = (
    "Examples:\n\n`pgdyno on db1 bench --quick` · the same as `bench --server-host db1 --quick`\n\n"
    "`pgdyno on db1 run mine.toml` · a study, with the scripts that it names\n\n"
    "`pgdyno on db1 check` · problems on that machine\n\n"
    "`pgdyno on root@db1 tune --pgdata /var/lib/postgresql/18/main` · settings for a server there\n\n"
    "`pgdyno on db1 clean --yes` · remove the clusters that pgdyno has loaded there"
)
_SERVER_HOST = "--server-host"


def on(
    machine: Annotated[str, typer.Argument(metavar="DEST", help="The machine as you would give it to ssh.")],
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND", help="The command with its options, as you would type it there."),
    ],
) -> None:
    """Run a command of pgdyno on another machine, which needs sshd and Python 3.11 or later; its record comes home.

    pgdyno is carried to ~/.cache there, once for each version. Relative paths of files are of this machine, and go along;
    absolute ones are of that machine. The command is one of bench, compare, sweep, run, check, clean, disk, plan, restore
    and tune; `resume RECORD` continues there by itself.
    """
    with session(json="--json" in command, quiet="--quiet" in command or "-q" in command, yes=True) as (ui, _):
        go_over(machine, command, ui)


def go_over(machine: str, words: Sequence[str], ui: Any) -> NoReturn:
    """Run a command line on another machine, and exit with its exit code."""
    from pgdyno.flow.far_order import make_entry

    _go_to(make_entry(machine), words, ui)


def go_over_if_studied(study: Study, path: Path | None, ui: Any) -> None:
    """Run this command on the machine of a study's server, if the study names one for a server of pgdyno's own.

    Args:
        study: The study.
        path: Its file here, as the command line names it; None: there is none.
        ui: Shows the progress.

    Raises:
        SpecError: This is another machine to which the command was sent.
    """
    if study.server.dsn is not None or study.server_host is None:
        return
    from pgdyno.run.host.program import machine_name

    entry, here = study.server_host[1], machine_name()
    if here == entry.ssh:
        return
    if here is not None:
        raise SpecError(
            f"the study names {entry.ssh} as the machine of its server",
            hint=f"leave out `on {here}`: the study goes there by itself",
        )
    _go_to(entry, _name_from_here(path, sys.argv[1:]), ui)


def _name_from_here(study: Path | None, words: Sequence[str]) -> list[str]:
    """Return the words with the study by a relative path: an absolute one would be looked for on the other machine."""
    if study is None or not study.is_absolute():
        return list(words)
    named = os.path.relpath(study.parent.resolve() / study.name)
    return [named if Path(word) == study else word for word in words]


def _go_to(entry: HostEntry, words: Sequence[str], ui: Any) -> NoReturn:
    from pgdyno.flow.far_order import read_load_hosts, read_order
    from pgdyno.flow.over import run_over

    order, loads = read_order(words, entry.ssh), read_load_hosts(words)
    raise SystemExit(run_over(entry, order, loads=loads, ui=ui, before_output=ui.close))


def go_over_if_named(machine: str | None, *, dsn: str | None, ui: Any) -> None:
    """Run this command on the machine of --server-host, unless that is the machine of a given server."""
    if machine is not None and dsn is None:
        go_over(machine, _without_server_host(sys.argv[1:]), ui)


def resume_there(store: RecordStore, far: FarRecord, options: Sequence[str], ui: Any) -> NoReturn:
    """Go on with a study where it was begun, and exit with the exit code."""
    from pgdyno.flow.over import resume_over

    raise SystemExit(resume_over(store, far, options, ui=ui, before_output=ui.close))


def confirm_there(store: RecordStore, far: FarRecord, *, ui: Any, **asked: Any) -> Any:
    """Run the experiment about a record where that was made, and return the explanation; exit where the experiment does not end."""
    from pgdyno.flow.confirm.there import confirm_over
    from pgdyno.flow.explain import Explanation
    from pgdyno.flow.report import write_reports

    if code := confirm_over(store, far, ui=ui, before_output=ui.close, **asked):
        raise SystemExit(code)
    return Explanation(report=write_reports(store).report)


def _without_server_host(words: Sequence[str]) -> list[str]:
    kept: list[str] = []
    is_value = False
    for word in words:
        if is_value:
            is_value = False
        elif word == _SERVER_HOST:
            is_value = True
        elif not word.startswith(f"{_SERVER_HOST}="):
            kept.append(word)
    return kept
