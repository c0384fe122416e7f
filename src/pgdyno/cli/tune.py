"""Define the command `tune`, which derives settings for a machine, a server and a load."""

# ruff: noqa: PLC0415 - flows are imported when their command runs, which keeps --help fast
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgdyno.cli.endpoints import PoolerOption, PoolModeOption, TunedPoolSizeOption, TunedStandbysOption, read_topology
from pgdyno.cli.given_options import PasswordCommandOption, read_allowed, take_password_command
from pgdyno.cli.option_values import choose, read_amount, read_pairs, refuse_others, server_table
from pgdyno.cli.options import BindirOption, HomeOption, JsonOption, RunAsOption, ServerOption, YesOption
from pgdyno.cli.session import session
from pgdyno.errors import SpecError

if TYPE_CHECKING:
    from pgdyno.flow.tune import TuneResult

TUNE_EXAMPLES = (
    "Examples:\n\n`pgdyno tune` · for a new PostgreSQL on this machine\n\n"
    "`sudo pgdyno tune --pgdata /var/lib/postgresql/15/main` · for an existing server, running or not\n\n"
    "`pgdyno tune --server 15 --workload oltp-write --dataset 20GB --connections 200 --form conf > pgdyno.conf`\n\n"
    "`pgdyno tune --host r8g.2xlarge --dataset 500GB` · for another machine\n\n"
    "`pgdyno tune --dsn postgresql://bench@db1/postgres --host r8g.2xlarge` · for a server of yours on that machine; --apply"
    " applies what it takes by a reload\n\n"
    "`pgdyno tune --standbys 2 --pooler --connections 500` · with two standbys, and PgBouncer in front of the server\n\n"
    "`pgdyno tune --pooler --record pgdyno-records/20261121-093000-sweep --form pgbouncer` · a pool by the knee of your sweep\n\n"
    "`pgdyno tune --disk-card pgdyno-disks/20261121-093000-db1-data.json` · with the figures that `pgdyno disk` measured\n\n"
    "`pgdyno tune --explain shared_buffers` · show formula, inputs and source\n\n"
    "`sudo pgdyno tune --pgdata /var/lib/postgresql/15/main --apply --restart` · apply the settings; `pgdyno restore` undoes them"
)


def tune(
    *,
    server: ServerOption = None,
    pg_bindir: BindirOption = None,
    pgdata: Annotated[
        Path | None,
        typer.Option(
            "--pgdata",
            "-D",
            readable=False,
            help="Data directory of an existing server, running or not; without --apply it is only read.",
            show_default=False,
        ),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(help="oltp-write, oltp-read, mixed or analytic. [default: mixed]", show_default=False),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="Size of the data, such as 20GB. [default: the server's; else assumed]", show_default=False),
    ] = None,
    connections: Annotated[
        int | None,
        typer.Option(help="Maximum number of sessions. [default: the server's; else 100]", show_default=False),
    ] = None,
    clients: Annotated[
        int | None,
        typer.Option(
            "--clients", "-c", help="Sessions that are active at once. [default: 4 for each CPU]", show_default=False
        ),
    ] = None,
    recovery: Annotated[
        str | None,
        typer.Option(help="Longest allowed recovery after a crash. [default: 5min]", show_default=False),
    ] = None,
    stall: Annotated[
        str | None,
        typer.Option(
            help="Longest allowed delay of a flush by the kernel's writeback. [default: 1s]", show_default=False
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(help="A record that measured your load: WAL rate, clients, size of the data.", show_default=False),
    ] = None,
    disk_card: Annotated[
        list[str] | None,
        typer.Option(
            help="Card of the data's disk from `pgdyno disk`, then one of the WAL's disk; `none` uses none."
            " [default: the newest of the last 30 days for these disks]",
            show_default=False,
        ),
    ] = None,
    dsn: Annotated[
        str | None,
        typer.Option(
            metavar="CONNINFO",
            help="Connection string of a server of yours, whose machine --host names; '' for what plain psql would reach.",
            show_default=False,
        ),
    ] = None,
    password_command: PasswordCommandOption = None,
    host: Annotated[
        str | None,
        typer.Option(help="Another machine: an instance such as r8g.2xlarge, or a TOML file.", show_default=False),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME=VALUE to use instead of deriving it; may be repeated.", show_default=False),
    ] = None,
    form: Annotated[
        str, typer.Option(help="table, explain, diff, conf, alter-system, sysctl, pgbouncer or json.")
    ] = "table",
    explain: Annotated[
        list[str] | None,
        typer.Option(
            help="Show one setting's formula, inputs and source, or why a famous line such as kernel.sem is left alone; may"
            " be repeated.",
            show_default=False,
        ),
    ] = None,
    standbys: TunedStandbysOption = None,
    pooler: PoolerOption = False,
    pool_mode: PoolModeOption = None,
    pool_size: TunedPoolSizeOption = None,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply",
            help="Apply the settings, after asking: to the server of --pgdata and to this kernel, or to that of --dsn.",
        ),
    ] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="busy", help="With --apply and --dsn: change the server although others use it.", show_default=False
        ),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart/--no-restart", help="With --apply: restart the server if a setting needs it.")
    ] = False,
    kernel: Annotated[
        bool,
        typer.Option(
            "--kernel/--no-kernel", help="--no-kernel derives only the server's settings and leaves the kernel alone."
        ),
    ] = True,
    home: HomeOption = None,
    run_as: RunAsOption = None,
    json: JsonOption = False,
    yes: YesOption = False,
) -> None:
    """Derive settings for PostgreSQL and the kernel, each with its reason.

    Nothing is measured, and without --apply nothing is changed. PostgreSQL's own program checks every value and
    computes the huge pages before anything is shown. For conf, alter-system and --apply, an empty cluster is first
    started with the settings.
    """
    with session(json=json or form == "json", quiet=True, yes=yes) as (ui, show):
        from pgdyno.cli.terminal.output import write_out
        from pgdyno.flow.check import make_default_study
        from pgdyno.flow.tune import Form, TuneRequest
        from pgdyno.flow.tune import tune as derive
        from pgdyno.run.cluster.home import choose_home
        from pgdyno.tune.subject import LoadHints
        from pgdyno.tune.types import WorkloadClass

        if dsn is not None:
            refuse_others("--dsn", pgdata=pgdata, server=server, pg_bindir=pg_bindir, home=home, run_as=run_as)
        _refuse_contradictions(
            host=host,
            pgdata=pgdata,
            is_given=dsn is not None,
            is_applied=apply,
            may_restart=restart,
            form=form,
            leaves_kernel=not kernel,
        )
        _refuse_other_forms(form, is_json=json, explained=explain or [], is_applied=apply)
        if allow and not apply:
            raise SpecError("--allow needs --apply", hint="add --apply")
        allowed = read_allowed(allow, dsn=dsn)
        take_password_command(password_command, dsn=dsn)
        others = [word for word in allow or [] if word != "busy"]
        if others:
            raise SpecError(f"--allow {others[0]} is for a load, and tune runs none", hint="tune knows --allow busy")
        chosen = choose("--form", form, Form)
        named = make_default_study(
            server_table(server=server, bindir=pg_bindir, port=None, settings=[]), scale=None, clients=None
        ).server
        question = TuneRequest(
            server=named if server is not None or pg_bindir is not None else None,
            data_dir=pgdata,
            host=host,
            record=record,
            cards=None if disk_card is None else tuple(Path(one) for one in disk_card if one != "none"),
            wishes=LoadHints(
                workload=None if workload is None else choose("--workload", workload, WorkloadClass),
                dataset_bytes=read_amount("--dataset", dataset, "B", "20GB"),
                connections=_check_count("--connections", connections),
                active=_check_count("--clients", clients),
                recovery_s=read_amount("--recovery", recovery, "s", "5min"),
                stall_s=read_amount("--stall", stall, "s", "500ms"),
                leaves_kernel=not kernel,
                topology=read_topology(standbys=standbys, pooler=pooler, mode=pool_mode, size=pool_size),
            ),
            fixed=read_pairs(settings or []),
            home=choose_home(home),
            run_as=run_as,
        )
        if apply:
            from pgdyno.flow.apply import apply as apply_settings
            from pgdyno.flow.given.apply import apply_given

            def show_first(tuned: TuneResult) -> None:
                if not json:
                    ui.console.print(tuned.to_terminal())

            if dsn is None:
                show(apply_settings(question, may_restart=restart, ui=ui, show=show_first))
            else:
                show(apply_given(question, dsn=dsn, is_busy_allowed=allowed.is_busy, ui=ui, show=show_first))
            return
        if dsn is None:
            tuned = derive(question, form=chosen, explained=tuple(explain or ()))
        else:
            from pgdyno.flow.given.tune import tune_given

            tuned = tune_given(question, dsn=dsn, form=chosen, explained=tuple(explain or ()))
        text = tuned.to_text() if not (json or explain) else None
        if text is None:
            show(tuned)
        else:
            ui.close()
            write_out(text)


def _refuse_contradictions(
    *,
    host: str | None,
    pgdata: Path | None,
    is_given: bool,
    is_applied: bool,
    may_restart: bool,
    form: str,
    leaves_kernel: bool,
) -> None:
    if host is not None and pgdata is not None:
        raise SpecError("--host and --pgdata name two machines", hint="leave one of them out")
    if is_given and (may_restart or form == "sysctl"):
        raise SpecError(
            f"{'--restart' if may_restart else '--form sysctl'} is for a server of this machine",
            hint="pgdyno does not restart a given server; without --dsn, --host derives for the kernel, too",
        )
    if may_restart and not is_applied:
        raise SpecError("--restart needs --apply", hint="add --apply")
    if form == "sysctl" and leaves_kernel:
        raise SpecError("--form sysctl is a file for the kernel", hint="leave --no-kernel out")


def _refuse_other_forms(form: str, *, is_json: bool, explained: Sequence[str], is_applied: bool) -> None:
    """Refuse a form beside what has one of its own."""
    said, explain = f"--form {form}", f"--explain {explained[0] if explained else ''}"
    clashes = (
        (is_applied and form != "table", said, "--apply", ""),
        (is_applied and explained, explain, "--apply", ""),
        (
            explained and (is_json or form == "json"),
            explain,
            "--json" if is_json else said,
            ": the JSON has every setting's reason",
        ),
        (form not in {"table", "json"} and is_json, said, "--json", ""),
        (form not in {"table", "json"} and explained, said, "--explain", ""),
    )
    for is_so, one, other, why in clashes:
        if is_so:
            raise SpecError(f"{one} does not go with {other}", hint=f"leave one of them out{why}")


def _check_count(option: str, count: int | None) -> int | None:
    if count is not None and count < 1:
        raise SpecError(f"{option} {count}: not a number above 0", hint=f"leave {option} out to have it chosen")
    return count
