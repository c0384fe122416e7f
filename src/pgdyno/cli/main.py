"""The command line: arguments in, one flow call, output and exit code. Flows are imported when a command runs.

Results go to stdout, everything else to stderr; `--json` makes stdout one JSON document, of an error too.
"""

# ruff: noqa: PLC0415 - flows are imported when their command runs, which keeps --help quick
from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from pgdyno import __version__
from pgdyno.errors import ExitCode, HostError, InterruptedStudyError, PgdynoError, SpecError, StepFailedError

app = typer.Typer(
    name="pgdyno",
    help="A dynamometer for PostgreSQL: measures a server and its machine, and says how sure it is.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Answer every question with yes.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
HomeOption = Annotated[
    Path | None,
    typer.Option(
        help="Where pgdyno keeps its clusters: the disk that is measured. [default: /var/lib/pgdyno for root,"
        " else ~/.local/share/pgdyno]",
        show_default=False,
    ),
]
RunAsOption = Annotated[
    str | None,
    typer.Option(help="As root: the account PostgreSQL runs as. [default: postgres, else nobody]", show_default=False),
]
OutOption = Annotated[
    Path | None, typer.Option(help="The record's folder. [default: pgdyno-records/TIME-NAME]", show_default=False)
]
RecordArgument = Annotated[
    Path | None, typer.Argument(help="A record's folder. [default: the newest]", show_default=False)
]
RecordsOption = Annotated[Path, typer.Option("--records", help="The folder that holds records.")]
DEFAULT_RECORDS = Path("pgdyno-records")


@app.callback(invoke_without_command=True)
def root(
    *, version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False
) -> None:
    """Measure PostgreSQL as on a test bench."""
    if version:
        typer.echo(f"pgdyno {__version__}")
        raise typer.Exit


@app.command(
    epilog="Examples:\n\n`pgdyno bench` · the three built-in workloads on the embedded PostgreSQL, about 11 minutes\n\n"
    "`pgdyno bench --quick --workload select-only --mode prepared`\n\n"
    "`pgdyno bench --server 15 --scale 100 --clients 16 --set shared_buffers=2GB`\n\n"
    "`pgdyno bench --workload pay.sql@3 --workload select-only@7` · own script and a built-in, mixed 3 to 7"
)
def bench(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="A rough answer within 3 minutes.")] = False,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            help="A built-in (tpcb-like, simple-update, select-only) or a script file; with @WEIGHT, all weighted ones"
            " form one mixed workload. [default: the three built-ins]",
            show_default=False,
        ),
    ] = None,
    scale: Annotated[
        int | None, typer.Option(help="pgbench's scale; 15 MB each. [default: from the machine]", show_default=False)
    ] = None,
    clients: Annotated[
        int | None, typer.Option("--clients", "-c", help="Connections. [default: 4 for each CPU]", show_default=False)
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", "-j", help="pgbench's threads. [default: the CPUs]", show_default=False)
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option("--mode", "-M", help="simple, extended or prepared. [default: simple]", show_default=False),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Open loop: schedule this many transactions a second.", show_default=False)
    ] = None,
    latency_limit: Annotated[
        str | None, typer.Option(help="Count transactions slower than this, such as 20ms.", show_default=False)
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option(
            "--duration",
            "-T",
            help="Measured load of one trial, such as 60s. [default: 30s; --quick: 8s]",
            show_default=False,
        ),
    ] = None,
    warm_up: Annotated[
        str | None, typer.Option(help="Load before it. [default: 5s; --quick: 2s]", show_default=False)
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Trials of each workload. [default: 5; --quick: 3]", show_default=False)
    ] = None,
    cache: Annotated[str | None, typer.Option(help="warm or cold. [default: warm]", show_default=False)] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of the trials' order and pgbench's numbers. [default: 1]", show_default=False)
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            help="`embedded` or an installed major version such as 15. [default: embedded]", show_default=False
        ),
    ] = None,
    pg_bindir: Annotated[
        Path | None, typer.Option(help="Program folder of another PostgreSQL.", show_default=False)
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A server setting, NAME=VALUE; may be repeated.", show_default=False),
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Also listen on 127.0.0.1:PORT, to look on with psql.", show_default=False)
    ] = None,
    out: OutOption = None,
    home: HomeOption = None,
    run_as: RunAsOption = None,
    json: JsonOption = False,
    yes: YesOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure this machine's PostgreSQL: check, load, warm up, trials, report."""
    load = _given(clients=clients, threads=threads, mode=mode, rate_tps=rate, latency_limit=latency_limit)
    with _session(json=json, quiet=quiet, yes=yes) as (ui, show):
        from pgdyno.flow.bench import bench as run_bench
        from pgdyno.flow.bench import compose_study
        from pgdyno.flow.study import Place

        given = {
            "server": _server_table(server=server, bindir=pg_bindir, port=port, settings=settings or []),
            "data": _given(scale=scale),
            "trials": _given(rounds=rounds, duration=duration, warm_up=warm_up, cache=cache, seed=seed),
        }
        study = compose_study(workloads=workload or [], load=load, tables=given, is_quick=quick, folder=Path.cwd())
        show(run_bench(study, place=Place.make(out=out, home=home, run_as=run_as), is_quick=quick, ui=ui))


@app.command(
    epilog="Examples:\n\n`pgdyno run studies/tpcb-like.toml`\n\n`pgdyno run mine.toml --out results/mine --json`"
)
def run(
    study: Annotated[Path, typer.Argument(help="A study file; studies/template.toml explains every key.")],
    *,
    out: OutOption = None,
    home: HomeOption = None,
    run_as: RunAsOption = None,
    json: JsonOption = False,
    yes: YesOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run a declared study."""
    with _session(json=json, quiet=quiet, yes=yes) as (ui, show):
        from pgdyno.flow.study import Place, run_study
        from pgdyno.spec.read import read_study

        asked = read_study(study)
        show(run_study(asked, name=study.stem, place=Place.make(out=out, home=home, run_as=run_as), ui=ui))


@app.command(epilog="Example:\n\n`pgdyno plan studies/tpcb-like.toml`")
def plan(
    study: Annotated[Path, typer.Argument(help="A study file.")],
    *,
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Show a study's steps and minutes without running it."""
    with _session(json=json, quiet=False, yes=True) as (_, show):
        from pgdyno.flow.listing import PlanView, view_plan
        from pgdyno.flow.study import Place
        from pgdyno.spec.read import read_study

        view: PlanView = view_plan(read_study(study), place=Place.make(out=None, home=home, run_as=None))
        show(view)


@app.command(epilog="Example:\n\n`pgdyno resume pgdyno-records/20261121-0930-bench`")
def resume(
    record: RecordArgument = None,
    *,
    records: RecordsOption = DEFAULT_RECORDS,
    home: HomeOption = None,
    run_as: RunAsOption = None,
    json: JsonOption = False,
    yes: YesOption = False,
    quiet: QuietOption = False,
) -> None:
    """Go on where a study stopped: after Ctrl-C, a failure, a crash or kill -9."""
    with _session(json=json, quiet=quiet, yes=yes) as (ui, show):
        from pgdyno.flow.study import Place, find_record, resume_study

        show(resume_study(find_record(record, records), place=Place.make(out=None, home=home, run_as=run_as), ui=ui))


@app.command(epilog="Example:\n\n`pgdyno report pgdyno-records/20261121-0930-bench`")
def report(
    record: RecordArgument = None,
    *,
    records: RecordsOption = DEFAULT_RECORDS,
    json: JsonOption = False,
) -> None:
    """Write a record's reports again, without measuring."""
    with _session(json=json, quiet=True, yes=True) as (_, show):
        from pgdyno.flow.report import write_reports
        from pgdyno.flow.study import find_record

        show(write_reports(find_record(record, records)))


@app.command(
    epilog="Examples:\n\n`pgdyno show` · the newest record here\n\n`pgdyno show pgdyno-records/20261121-093000-bench --json`"
)
def show(
    record: RecordArgument = None,
    *,
    records: RecordsOption = DEFAULT_RECORDS,
    json: JsonOption = False,
) -> None:
    """Show a record's result on the terminal."""
    with _session(json=json, quiet=True, yes=True) as (_, show_result):
        from pgdyno.flow.report import compose_report
        from pgdyno.flow.study import find_record

        show_result(compose_report(find_record(record, records)))


@app.command("list", epilog="Example:\n\n`pgdyno list --records results`")
def list_records(*, records: RecordsOption = DEFAULT_RECORDS, json: JsonOption = False) -> None:
    """List the records of a folder."""
    with _session(json=json, quiet=True, yes=True) as (_, show):
        from pgdyno.flow.listing import view_records

        show(view_records(records))


@app.command(epilog="Example:\n\n`pgdyno clean --yes`")
def clean(
    *, home: HomeOption = None, run_as: RunAsOption = None, json: JsonOption = False, yes: YesOption = False
) -> None:
    """Remove loaded clusters from pgdyno's home; records stay."""
    with _session(json=json, quiet=True, yes=yes) as (ui, show):
        from pgdyno.flow.listing import clean_home
        from pgdyno.flow.study import Place

        show(clean_home(Place.make(out=None, home=home, run_as=run_as), ui=ui))


@app.command(epilog="Example:\n\n`sudo pgdyno restore`")
def restore(*, json: JsonOption = False) -> None:
    """Put back what a killed pgdyno has left changed on this host."""
    with _session(json=json, quiet=True, yes=True) as (_, show):
        from pgdyno.flow.restore import restore_host

        show(restore_host())


def main() -> None:
    """The program's entry point."""
    app(prog_name="pgdyno")


def _given(**options: object) -> dict[str, object]:
    return {key: value for key, value in options.items() if value is not None}


def _server_table(
    *, server: str | None, bindir: Path | None, port: int | None, settings: list[str]
) -> dict[str, object]:
    pairs = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise SpecError(f"--set {text}: not of the form NAME=VALUE", hint="for example --set shared_buffers=2GB")
        pairs[name.strip()] = value.strip()
    table = _given(port=port, settings=pairs or None)
    if bindir is not None:
        return {**table, "kind": "local", "bindir": str(bindir.absolute())}
    if server is None or server == "embedded":
        return table
    if not server.isdigit():
        raise SpecError(f"--server {server}: neither `embedded` nor a major version", hint="for example --server 15")
    return {**table, "kind": "local", "version": int(server)}


@contextmanager
def _session(*, json: bool, quiet: bool, yes: bool) -> Iterator[tuple[Any, Any]]:
    """The display and the function that shows a result; errors become their words and their exit code."""
    from pgdyno.cli.display import Display
    from pgdyno.cli.output import Result, show_result

    for number in (signal.SIGTERM, signal.SIGHUP):
        # nohup has it ignored, and means it.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        with Display(quiet=quiet or json, assume_yes=yes) as ui:

            def show(result: Result) -> None:
                ui.close()
                show_result(result, as_json=json)

            yield ui, show
    except PgdynoError as error:
        _fail(error, json=json)
    except KeyboardInterrupt:
        _fail(InterruptedStudyError("stopped"), json=json)
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not complain of it while it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(ExitCode.STEP) from None
    except OSError as error:
        # The last net: a file or folder that this account may not read or write, or a full disk.
        _fail(HostError(f"the machine refuses: {error.strerror or error}", detail=str(error)), json=json)
    except Exception as error:  # noqa: BLE001 - a user gets words and an exit code, and we get the place
        _fail(_describe_bug(error), json=json)


def _describe_bug(error: Exception) -> StepFailedError:
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "pgdyno" in frame.filename]
    places = "\n".join(f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in ours)
    return StepFailedError(
        f"pgdyno has a bug: {type(error).__name__}: {error}",
        detail=places,
        hint="please report these lines; what was finished is kept, and `pgdyno resume` goes on",
    )


def _interrupt(number: int, _frame: object) -> None:
    # The same way out as Ctrl-C: everything started is ended, what was finished is kept.
    raise KeyboardInterrupt(signal.Signals(number).name)


def _fail(error: PgdynoError, *, json: bool) -> None:
    from pgdyno.cli.output import show_error

    show_error(error, as_json=json)
    raise SystemExit(error.exit_code)
