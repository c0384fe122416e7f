"""Define the command line: each command reads its options, calls one flow, shows the result and sets the exit code.

Results go to stdout, everything else to stderr. With `--json`, stdout is one JSON document, even for an error.
"""

# ruff: noqa: PLC0415 - flows are imported when their command runs, which keeps --help fast
from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pgdyno import __version__
from pgdyno.cli.commands import PlainCommand, PlainGroup
from pgdyno.cli.disk import DISK_EXAMPLES, disk
from pgdyno.cli.experiments import COMPARE_EXAMPLES, SWEEP_EXAMPLES, compare, sweep
from pgdyno.cli.explain import EXPLAIN_EXAMPLES, explain
from pgdyno.cli.gate import BmfOption, FailIfOption, JunitOption, show_gated
from pgdyno.cli.given_options import (
    AllowOption,
    DatabaseOption,
    DsnOption,
    InitOption,
    PasswordCommandOption,
    ServerHostOption,
    check_server_host,
    read_allowed,
    take_password_command,
)
from pgdyno.cli.hosts import HOSTS_EXAMPLES, hosts
from pgdyno.cli.live import ListenOption, LiveOption, LiveOptions, MetricsPortOption
from pgdyno.cli.machine import CHECK_EXAMPLES, CLEAN_EXAMPLES, RESTORE_EXAMPLES, check, clean, restore
from pgdyno.cli.option_values import (
    data_table,
    emulate_host,
    given,
    put_emulated,
    put_restoring,
    put_wal_home,
    refuse_others,
    server_table,
)
from pgdyno.cli.options import (
    DEFAULT_RECORDS,
    BindirOption,
    ClientsOption,
    DiskOption,
    EmulateOption,
    HomeOption,
    JsonOption,
    ModeOption,
    OutOption,
    QuietOption,
    RateOption,
    RecordArgument,
    RecordsOption,
    RestoreCommandOption,
    RestoreOption,
    RunAsOption,
    ScaleOption,
    ServerOption,
    StandbysOption,
    ThreadsOption,
    WalHomeOption,
    YesOption,
)
from pgdyno.cli.price import PRICE_EXAMPLES, price
from pgdyno.cli.publish import PUBLISH_EXAMPLES, publish
from pgdyno.cli.records import (
    COMPARE_RECORDS_EXAMPLES,
    EXPORT_EXAMPLES,
    HISTORY_EXAMPLES,
    JOURNAL_EXAMPLES,
    LIST_EXAMPLES,
    REPORT_EXAMPLES,
    SHOW_EXAMPLES,
    compare_records,
    export,
    history,
    journal,
    list_records,
    report,
    show,
)
from pgdyno.cli.session import fail, session
from pgdyno.cli.studies import STUDIES_EXAMPLES, studies
from pgdyno.cli.tune import TUNE_EXAMPLES, tune
from pgdyno.cli.watch import WATCH_EXAMPLES, watch
from pgdyno.errors import ExitCode, with_program
from pgdyno.run.host.program import program_name

app = typer.Typer(
    name="pgdyno",
    help="A dynamometer for PostgreSQL: measure a server and its machine, with error bars.",
    cls=PlainGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(is_asked: bool) -> None:  # noqa: FBT001 - typer calls it so
    if is_asked:
        typer.echo(f"pgdyno {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Measure PostgreSQL as on a test bench."""


@app.command(
    epilog="Examples:\n\n`pgdyno bench` · compare stock with derived settings on three workloads, then sweep clients: 15 minutes\n\n"
    "`pgdyno bench --quick` · the same on tpcb-like only, with wider intervals: 5 minutes\n\n"
    "`pgdyno bench --layers --workload tpcb-like` · also measure what each layer of settings gains: up to an hour\n\n"
    "`pgdyno bench --stock-only --workload select-only --mode prepared` · measure without comparing\n\n"
    "`pgdyno bench --server 15 --scale 100 --clients 16 --set shared_buffers=2GB` · the same setting in both variants\n\n"
    "`pgdyno bench --dsn postgresql://bench@db1/postgres --quick` · measure a server of yours as it stands: 5 minutes\n\n"
    "`pgdyno bench --quick --emulate hosts/c7g.2xlarge-gp3-raid10` · rehearse on the disks of another machine\n\n"
    "`pgdyno bench --workload pay.sql@3 --workload select-only@7` · mix your script and a built-in 3 to 7"
)
def bench(
    *,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Take 5 minutes: one workload (tpcb-like), wider intervals."),
    ] = False,
    stock_only: Annotated[
        bool,
        typer.Option(
            "--stock-only", help="Measure the server as it is: without derived settings, without a sweep over clients."
        ),
    ] = False,
    layers: Annotated[
        bool,
        typer.Option(
            "--layers", help="Also measure the derived settings without each layer, to see which layers help."
        ),
    ] = False,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Time limit of the whole job, which ends sooner if all is decided. [default: 15; --quick: 5; --layers: 60;"
            " more if trials are long or many]",
            show_default=False,
        ),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            help="A built-in (tpcb-like, simple-update, select-only) or a script file; those with @WEIGHT are mixed into"
            " one workload. [default: the three built-ins; --quick: tpcb-like]",
            show_default=False,
        ),
    ] = None,
    scale: ScaleOption = None,
    clients: ClientsOption = None,
    threads: ThreadsOption = None,
    mode: ModeOption = None,
    rate: RateOption = None,
    latency_limit: Annotated[
        str | None, typer.Option(help="Count transactions slower than this, such as 20ms.", show_default=False)
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option(
            "--duration",
            "-T",
            help="Measured load of one trial, such as 60s. [default: 4s; --quick: 3s; --layers: 20s; --stock-only: 30s]",
            show_default=False,
        ),
    ] = None,
    warm_up: Annotated[
        str | None,
        typer.Option(
            help="Unmeasured load before it. [default: 1s; --layers: 3s; --stock-only: 5s]", show_default=False
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            help="Trials of each workload and variant. [default: from --minutes; --stock-only: 5]",
            show_default=False,
        ),
    ] = None,
    cache: Annotated[str | None, typer.Option(help="warm, cold or asis. [default: warm]", show_default=False)] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of the trials' order and of pgbench's random numbers. [default: 1]", show_default=False
        ),
    ] = None,
    server: ServerOption = None,
    pg_bindir: BindirOption = None,
    standbys: StandbysOption = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Server setting NAME=VALUE for both stock and derived; may be repeated.",
            show_default=False,
        ),
    ] = None,
    dsn: DsnOption = None,
    server_host: ServerHostOption = None,
    init: InitOption = None,
    database: DatabaseOption = None,
    password_command: PasswordCommandOption = None,
    allow: AllowOption = None,
    port: Annotated[
        int | None, typer.Option(help="Also listen on 127.0.0.1:PORT, so that psql can connect.", show_default=False)
    ] = None,
    design: Annotated[
        str | None,
        typer.Option(
            help="live (both servers are up, slices of load alternate between them) or paired (trials in turn)."
            " [default: live, where it can be; --layers: paired]",
            show_default=False,
        ),
    ] = None,
    disk: DiskOption = True,
    out: OutOption = None,
    home: HomeOption = None,
    wal_home: WalHomeOption = None,
    emulate: EmulateOption = None,
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
    """Measure PostgreSQL on this machine: with stock settings, with derived settings, and by number of clients."""
    load = given(clients=clients, threads=threads, mode=mode, rate_tps=rate, latency_limit=latency_limit)
    with session(json=json, quiet=quiet, yes=yes, live=LiveOptions(live, listen, metrics_port)) as (ui, show):
        from pgdyno.conduct.workspace import Workspace
        from pgdyno.flow.bench import bench as run_bench
        from pgdyno.flow.compose_bench import choose_goal, compose_study

        allowed = read_allowed(allow, dsn=dsn)
        check_server_host(server_host, dsn=dsn)
        take_password_command(password_command, dsn=dsn)
        if dsn is not None:
            from pgdyno.flow.given.bench import bench_given, compose_given
            from pgdyno.run.given.conninfo import hide_secrets

            own = {
                "server": server,
                "pg-bindir": pg_bindir,
                "set": settings,
                "port": port,
                "standbys": standbys,
                "home": home,
                "wal-home": wal_home,
                "emulate": emulate,
                "restore": restore,
                "restore-command": restore_command,
                "run-as": run_as,
            }
            questions = {"layers": layers, "minutes": minutes, "design": design}
            refuse_others("--dsn", **own, **questions)
            study = compose_given(
                dsn=hide_secrets(dsn),
                server_host=server_host,
                workloads=workload or [],
                load=load,
                data=data_table(scale=scale, init=init, database=database, workloads=workload),
                trials=given(rounds=rounds, duration=duration, warm_up=warm_up, cache=cache, seed=seed),
                is_quick=quick,
                folder=Path.cwd(),
            )
            place = Workspace.make(out=out, home=None, run_as=None)
            show(bench_given(study, dsn=dsn, allowed=allowed, sweeps_clients=not stock_only, place=place, ui=ui))
            return
        goal = choose_goal(is_quick=quick, is_stock_only=stock_only, is_layered=layers, minutes=minutes, rounds=rounds)
        tables = {
            "server": server_table(
                server=server, bindir=pg_bindir, port=port, settings=settings or [], standbys=standbys
            ),
            "data": data_table(
                scale=scale,
                init=init,
                database=database,
                wal_home=wal_home,
                restore=restore,
                restore_command=restore_command,
                workloads=workload,
            ),
            "trials": given(rounds=rounds, duration=duration, warm_up=warm_up, cache=cache, seed=seed),
            "experiment": given(minutes=minutes, design=design),
        }
        study = compose_study(workloads=workload or [], load=load, tables=tables, goal=goal, folder=Path.cwd())
        study = put_emulated(study, emulate)
        place = Workspace.make(out=out, home=home, run_as=run_as)
        show(run_bench(study, goal=goal, rounds=rounds, measures_disk=disk, place=place, ui=ui))


@app.command(
    epilog="Examples:\n\n`pgdyno run tpcb-like` · a study that pgdyno ships\n\n`pgdyno run mine.toml --out results/mine --json`"
)
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
    emulate: Annotated[
        bool,
        typer.Option(
            "--emulate", help="Run on an emulation of the machine that the study's [host] declares. Needs root."
        ),
    ] = False,
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

        gate = plan_gate(fail_if or [], junit=junit, bmf=bmf)
        asked = put_restoring(put_wal_home(read_study(study), wal_home), restore, restore_command)
        asked = emulate_host(asked, is_asked=emulate)
        check_gate(gate, asked)
        allowed = read_allowed(allow, dsn=asked.server.dsn)
        take_password_command(password_command, dsn=asked.server.dsn)
        place = Workspace.make(out=out, home=home, run_as=run_as)
        # A study that declares its disk is compared with the measured disk.
        wants_card = asked.host is not None
        report = run_study(asked, allowed=allowed, name=study.stem, place=place, ui=ui, measures_disk=wants_card)
        show_gated(apply_gate(gate, report), show, json=json)


@app.command(epilog="Examples:\n\n`pgdyno plan tpcb-like` · a study that pgdyno ships\n\n`pgdyno plan mine.toml`")
def plan(
    study: Annotated[Path, typer.Argument(help="A study file, or the name of one that `studies` lists.")],
    *,
    home: HomeOption = None,
    wal_home: WalHomeOption = None,
    restore: RestoreOption = None,
    restore_command: RestoreCommandOption = None,
    json: JsonOption = False,
) -> None:
    """Show a study's steps and predicted minutes without running it."""
    with session(json=json, quiet=False, yes=True) as (_, show):
        from pgdyno.conduct.workspace import Workspace
        from pgdyno.flow.plan import PlanView, view_plan
        from pgdyno.spec.read import read_study

        asked = put_restoring(put_wal_home(read_study(study), wal_home), restore, restore_command)
        view: PlanView = view_plan(asked, place=Workspace.make(out=None, home=home, run_as=None))
        show(view)


@app.command(epilog="Example:\n\n`pgdyno resume pgdyno-records/20261121-0930-bench`")
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
        from pgdyno.conduct.workspace import Workspace
        from pgdyno.flow.find_record import find_record
        from pgdyno.flow.gate import apply_gate, check_gate, plan_gate
        from pgdyno.flow.resume import resume_study

        gate, store = plan_gate(fail_if or [], junit=junit, bmf=bmf), find_record(record, records)
        study = store.read_record().study
        check_gate(gate, study)
        allowed = read_allowed(allow, dsn=study.server.dsn)
        take_password_command(password_command, dsn=study.server.dsn)
        resumed = resume_study(store, allowed=allowed, place=Workspace.make(out=None, home=home, run_as=run_as), ui=ui)
        show_gated(apply_gate(gate, resumed), show, json=json)


app.command(epilog=REPORT_EXAMPLES)(report)
app.command(epilog=SHOW_EXAMPLES)(show)
app.command(epilog=WATCH_EXAMPLES)(watch)
app.command(epilog=EXPORT_EXAMPLES)(export)
app.command("list", epilog=LIST_EXAMPLES)(list_records)
app.command(epilog=CLEAN_EXAMPLES)(clean)
app.command(epilog=RESTORE_EXAMPLES)(restore)
app.command(epilog=CHECK_EXAMPLES)(check)
app.command(epilog=HOSTS_EXAMPLES)(hosts)
app.command(epilog=DISK_EXAMPLES)(disk)
app.command(epilog=TUNE_EXAMPLES)(tune)
app.command(epilog=COMPARE_EXAMPLES)(compare)
app.command(epilog=SWEEP_EXAMPLES)(sweep)
app.command(epilog=EXPLAIN_EXAMPLES)(explain)
app.command("compare-records", epilog=COMPARE_RECORDS_EXAMPLES)(compare_records)
app.command(epilog=HISTORY_EXAMPLES)(history)
app.command(epilog=PUBLISH_EXAMPLES)(publish)
app.command(epilog=JOURNAL_EXAMPLES)(journal)
app.command(epilog=PRICE_EXAMPLES)(price)
app.command(epilog=STUDIES_EXAMPLES)(studies)

# Typer may bundle its own click, and has no public name for click's usage error.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def run_program() -> None:
    """Run the command on the command line."""
    program = program_name()
    for command in app.registered_commands:
        command.cls = PlainCommand
        command.epilog = with_program(command.epilog or "", program)
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name=program, standalone_mode=False)
        sys.exit(code if sys.argv[1:] else ExitCode.SPEC)
    except _UsageError as error:
        from pgdyno.cli.usage import describe_usage_error

        names = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]
        fail(describe_usage_error(error, sys.argv[1:], commands=names), json="--json" in sys.argv[1:])
