"""Define the commands on studies: run one, show its steps, go on with one, and list those that pgdyno ships."""

# ruff: noqa: PLC0415 - flows are imported when their command runs, which keeps --help fast
from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pgdyno.cli.gate import BmfOption, FailIfOption, JunitOption, show_gated
from pgdyno.cli.given_options import (
    AllowOption,
    PasswordCommandOption,
    read_allowed,
    take_password_command,
)
from pgdyno.cli.live import ListenOption, LiveOption, LiveOptions, MetricsPortOption
from pgdyno.cli.option_values import (
    emulate_host,
    put_restoring,
    put_wal_home,
)
from pgdyno.cli.options import (
    DEFAULT_RECORDS,
    HomeOption,
    JsonOption,
    OutOption,
    QuietOption,
    RecordArgument,
    RecordsOption,
    RestoreCommandOption,
    RestoreOption,
    RunAsOption,
    WalHomeOption,
    YesOption,
)
from pgdyno.cli.over import go_over_if_studied, resume_there
from pgdyno.cli.session import session
from pgdyno.errors import SpecError

STUDIES_EXAMPLES = (
    "Examples:\n\n`pgdyno studies`\n\n"
    "`pgdyno studies template > mine.toml` · every key of a study, explained; then `pgdyno run mine.toml`\n\n"
    "`pgdyno studies hosts/template > host.toml` · the same for a machine, for --host and --emulate"
)


def studies(
    name: Annotated[str | None, typer.Argument(help="Print this file, to be changed.", show_default=False)] = None,
    *,
    json: JsonOption = False,
) -> None:
    """List the studies, host files and templates that pgdyno ships, or print one of them.

    `run`, `plan` and `check` take the name of a study as it stands in the list, --host and --emulate that of a host file.
    """
    with session(json=json, quiet=True, yes=True) as (ui, show):
        from pgdyno.cli.terminal.output import write_out
        from pgdyno.flow.studies import read_shipped, view_shipped

        if name is None:
            show(view_shipped())
            return
        if json:
            raise SpecError("a study is printed as TOML", hint="leave --json out; the list has the path of each file")
        text = read_shipped(name)
        ui.close()
        write_out(text)


EmulateOption = Annotated[
    bool,
    typer.Option("--emulate", help="Run on an emulation of the machine that the study's [host] declares. Needs root."),
]

RUN_EXAMPLES = "Examples:\n\n`pgdyno run tpcb-like` · a study that pgdyno ships\n\n`pgdyno run mine.toml --out results/mine --json`"


def run(
    study: Annotated[Path, typer.Argument(help="A study file, or the name of one that `studies` lists.")],
    *,
    password_command: PasswordCommandOption = None,
    allow: AllowOption = None,
    fail_if: FailIfOption = None,
    junit: JunitOption = None,
    bmf: BmfOption = None,
    out: OutOption = None,
    home: HomeOption = None,
    wal_home: WalHomeOption = None,
    emulate: EmulateOption = False,
    restore: RestoreOption = None,
    restore_command: RestoreCommandOption = None,
    run_as: RunAsOption = None,
    json: JsonOption = False,
    yes: YesOption = False,
    live: LiveOption = False,
    listen: ListenOption = None,
    metrics_port: MetricsPortOption = None,
    quiet: QuietOption = False,
) -> None:
    """Run a study from a file."""
    with session(json=json, quiet=quiet, yes=yes, live=LiveOptions(live, listen, metrics_port)) as (ui, show):
        from pgdyno.conduct.workspace import Workspace
        from pgdyno.flow.gate import apply_gate, check_gate, plan_gate
        from pgdyno.flow.run import run_study
        from pgdyno.spec.read import read_study

        named = read_study(study)
        go_over_if_studied(named, study, ui)
        gate = plan_gate(fail_if or [], junit=junit, bmf=bmf)
        asked = put_restoring(put_wal_home(named, wal_home), restore, restore_command)
        asked = emulate_host(asked, is_asked=emulate)
        check_gate(gate, asked)
        allowed = read_allowed(allow, dsn=asked.server.dsn)
        take_password_command(password_command, dsn=asked.server.dsn)
        place = Workspace.make(out=out, home=home, run_as=run_as)
        # A study that declares its disk is compared with the measured disk.
        wants_card = asked.host is not None
        report = run_study(
            asked,
            folder=study.parent,
            allowed=allowed,
            name=study.stem,
            place=place,
            ui=ui,
            measures_disk=wants_card,
        )
        show_gated(apply_gate(gate, report), show, json=json)


PLAN_EXAMPLES = "Examples:\n\n`pgdyno plan tpcb-like` · a study that pgdyno ships\n\n`pgdyno plan mine.toml`"


def plan(
    study: Annotated[Path, typer.Argument(help="A study file, or the name of one that `studies` lists.")],
    *,
    home: HomeOption = None,
    wal_home: WalHomeOption = None,
    emulate: EmulateOption = False,
    restore: RestoreOption = None,
    restore_command: RestoreCommandOption = None,
    json: JsonOption = False,
) -> None:
    """Show a study's steps and predicted minutes without running it."""
    with session(json=json, quiet=False, yes=True) as (ui, show):
        from pgdyno.conduct.workspace import Workspace
        from pgdyno.flow.plan import PlanView, view_plan
        from pgdyno.spec.read import read_study

        named = read_study(study)
        go_over_if_studied(named, study, ui)
        asked = put_restoring(put_wal_home(named, wal_home), restore, restore_command)
        asked = emulate_host(asked, is_asked=emulate)
        view: PlanView = view_plan(asked, place=Workspace.make(out=None, home=home, run_as=None))
        show(view)


RESUME_EXAMPLES = "Example:\n\n`pgdyno resume pgdyno-records/20261121-093000-bench`"


def resume(
    record: RecordArgument = None,
    *,
    records: RecordsOption = DEFAULT_RECORDS,
    password_command: PasswordCommandOption = None,
    allow: AllowOption = None,
    fail_if: FailIfOption = None,
    junit: JunitOption = None,
    bmf: BmfOption = None,
    home: HomeOption = None,
    run_as: RunAsOption = None,
    json: JsonOption = False,
    yes: YesOption = False,
    live: LiveOption = False,
    listen: ListenOption = None,
    metrics_port: MetricsPortOption = None,
    quiet: QuietOption = False,
) -> None:
    """Continue a study that was stopped by Ctrl-C, a failure, a crash or kill -9."""
    with session(json=json, quiet=quiet, yes=yes, live=LiveOptions(live, listen, metrics_port)) as (ui, show):
        from pgdyno.conduct.finished import is_finished
        from pgdyno.conduct.workspace import Workspace
        from pgdyno.flow.gate import apply_gate, check_gate, plan_gate
        from pgdyno.flow.records.find import find_record
        from pgdyno.flow.resume import resume_study
        from pgdyno.record.far import read_far

        gate, store = plan_gate(fail_if or [], junit=junit, bmf=bmf), find_record(record, records, ui=ui)
        if (far := read_far(store.path)) is not None and not is_finished(store):
            valued = {"--junit": junit, "--bmf": bmf, "--listen": listen, "--metrics-port": metrics_port}
            valued |= {"--home": home, "--run-as": run_as, "--password-command": password_command}
            options = [word for name, value in valued.items() if value is not None for word in (name, str(value))]
            options += [word for condition in fail_if or [] for word in ("--fail-if", condition)]
            options += [word for what in allow or [] for word in ("--allow", what)]
            flags = {"--json": json, "--yes": yes, "--quiet": quiet, "--live": live}
            resume_there(store, far, [*options, *(name for name, is_set in flags.items() if is_set)], ui)
        study = store.read_record().study
        check_gate(gate, study)
        allowed = read_allowed(allow, dsn=study.server.dsn)
        take_password_command(password_command, dsn=study.server.dsn)
        resumed = resume_study(store, allowed=allowed, place=Workspace.make(out=None, home=home, run_as=run_as), ui=ui)
        show_gated(apply_gate(gate, resumed), show, json=json)
