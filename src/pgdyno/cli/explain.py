"""Define the command `explain`: what limits a record's loads, and what to do next."""

# ruff: noqa: PLC0415 - flows are imported when their command runs, which keeps --help fast
from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pgdyno.cli.given_options import PasswordCommandOption, take_password_command
from pgdyno.cli.live import ListenOption, LiveOption, LiveOptions, MetricsPortOption
from pgdyno.cli.option_values import given
from pgdyno.cli.options import (
    DEFAULT_RECORDS,
    HomeOption,
    JsonOption,
    QuietOption,
    RecordArgument,
    RecordsOption,
    RunAsOption,
    YesOption,
)
from pgdyno.cli.over import confirm_there
from pgdyno.cli.session import session
from pgdyno.errors import SpecError


def explain(
    record: RecordArgument = None,
    *,
    disk: Annotated[
        Path | None,
        typer.Option(
            help="Card of another disk from `pgdyno disk`: how much of the loads could that disk carry?",
            show_default=False,
        ),
    ] = None,
    confirm: Annotated[
        bool,
        typer.Option(
            "--confirm",
            help="Run an experiment that shows what limits a load, on the same workload, scale and kind of server;"
            " predicted minutes are shown first, and it writes its own record.",
        ),
    ] = False,
    workload: Annotated[
        str | None,
        typer.Option(
            help="With --confirm: the load to confirm. [default: the first with an experiment]",
            show_default=False,
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="With --confirm: time limit. [default: from the plan]", show_default=False),
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option(
            "--duration",
            "-T",
            help="With --confirm: measured load of one trial. [default: the record's, at most 10s]",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="With --confirm: folder for its record. [default: next to this record]", show_default=False),
    ] = None,
    password_command: PasswordCommandOption = None,
    records: RecordsOption = DEFAULT_RECORDS,
    home: HomeOption = None,
    run_as: RunAsOption = None,
    json: JsonOption = False,
    yes: YesOption = False,
    live: LiveOption = False,
    listen: ListenOption = None,
    metrics_port: MetricsPortOption = None,
    quiet: QuietOption = False,
) -> None:
    """Explain what limits a record's loads, how certain that is, what else it could be, and what to do next."""
    shown = LiveOptions(live, listen, metrics_port)
    with session(json=json, quiet=quiet or not confirm, yes=yes, live=shown if confirm else None) as (ui, show):
        from pgdyno.conduct.workspace import Workspace
        from pgdyno.flow.confirm.experiment import ConfirmOptions
        from pgdyno.flow.confirm.here import confirm as run_confirmation
        from pgdyno.flow.explain import explain as explain_record
        from pgdyno.flow.far_order import refuse_options
        from pgdyno.flow.records.find import find_record_to_read
        from pgdyno.record.far import read_far

        store = find_record_to_read(record, records, ui=ui)
        if confirm and disk is not None:
            raise SpecError("--disk assumes another disk, and --confirm measures this one", hint="leave one out")
        if confirm:
            take_password_command(password_command, dsn=store.read_record().study.server.dsn)
            wishes = ConfirmOptions(minutes=minutes, duration=duration)
            place = Workspace.make(out=out, home=home, run_as=run_as)
            if (far := read_far(store.path)) is not None:
                refuse_options([f"--{name.replace('_', '-')}" for name, value in shown._asdict().items() if value])
                show(confirm_there(store, far, workload=workload, wishes=wishes, place=place, ui=ui))
                return
            show(run_confirmation(store, workload=workload, wishes=wishes, place=place, ui=ui))
            return
        own = given(workload=workload, minutes=minutes, duration=duration, out=out)
        own |= given(password_command=password_command, home=home, run_as=run_as)
        said = [*own, *(name for name, value in shown._asdict().items() if value)]
        if said:
            option = f"--{said[0].replace('_', '-')}"
            raise SpecError(f"{option} applies only to an experiment", hint="add --confirm")
        show(explain_record(store, disk=disk))


EXPLAIN_EXAMPLES = (
    "Examples:\n\n`pgdyno explain` · the newest record\n\n"
    "`pgdyno explain pgdyno-records/20261121-093000-bench --json`\n\n"
    "`pgdyno explain --disk pgdyno-disks/gp3.json` · on another disk\n\n"
    "`pgdyno explain pgdyno-records/20261121-093000-bench --confirm --workload tpcb-like`"
)
