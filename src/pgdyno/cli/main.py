"""List the commands, and run the one on the command line.

Results go to stdout, everything else to stderr. With `--json`, stdout is one JSON document, even for an error.
"""

# ruff: noqa: PLC0415 - flows are imported when their command runs, which keeps --help fast
from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from copy import copy
from typing import Annotated, TextIO, cast

import typer

from pgdyno import __version__
from pgdyno.cli.bench import BENCH_EXAMPLES, bench
from pgdyno.cli.commands import PlainCommand, PlainGroup
from pgdyno.cli.disk import DISK_EXAMPLES, disk
from pgdyno.cli.experiments import COMPARE_EXAMPLES, SWEEP_EXAMPLES, compare, sweep
from pgdyno.cli.explain import EXPLAIN_EXAMPLES, explain
from pgdyno.cli.hosts import HOSTS_EXAMPLES, hosts
from pgdyno.cli.machine import CHECK_EXAMPLES, CLEAN_EXAMPLES, RESTORE_EXAMPLES, check, clean, restore
from pgdyno.cli.over import ON_EXAMPLES, on
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
from pgdyno.cli.session import fail, fail_refused
from pgdyno.cli.studies import (
    PLAN_EXAMPLES,
    RESUME_EXAMPLES,
    RUN_EXAMPLES,
    STUDIES_EXAMPLES,
    plan,
    resume,
    run,
    studies,
)
from pgdyno.cli.tune import TUNE_EXAMPLES, tune
from pgdyno.cli.watch import WATCH_EXAMPLES, watch
from pgdyno.errors import ExitCode, with_program
from pgdyno.run.host.program import name_for_shell, program_name

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


app.command(epilog=BENCH_EXAMPLES)(bench)
app.command(epilog=RUN_EXAMPLES)(run)
app.command(epilog=PLAN_EXAMPLES)(plan)
app.command(epilog=RESUME_EXAMPLES)(resume)
app.command(epilog=REPORT_EXAMPLES)(report)
app.command(epilog=SHOW_EXAMPLES)(show)
app.command(epilog=WATCH_EXAMPLES)(watch)
app.command(epilog=EXPORT_EXAMPLES)(export)
app.command("list", epilog=LIST_EXAMPLES)(list_records)
app.command(epilog=CLEAN_EXAMPLES)(clean)
app.command(epilog=RESTORE_EXAMPLES)(restore)
app.command(epilog=CHECK_EXAMPLES)(check)
app.command(epilog=HOSTS_EXAMPLES)(hosts)
app.command(epilog=ON_EXAMPLES, context_settings={"allow_interspersed_args": False})(on)
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


def _wants_json(words: Sequence[str]) -> bool:
    return not {"--json", "--form=json"}.isdisjoint(words) or ("--form", "json") in itertools.pairwise(words)


def run_program() -> None:
    """Run the command on the command line."""
    if sys.stdout is None:
        from pgdyno.cli.terminal.output import ClosedStdout

        sys.stdout = cast("TextIO", ClosedStdout())
    program = program_name()
    named = {each.name or each.callback.__name__: each for each in app.registered_commands if each.callback}
    for command in named.values():
        command.cls = PlainCommand
        command.epilog = with_program(command.epilog or "", program)
    # Typer would make the options of all commands, which takes a quarter of the time until a command begins its work.
    needed = copy(app)
    needed.registered_commands = [named[word] for word in sys.argv[1:2] if word in named] or app.registered_commands
    name = name_for_shell()
    if name is not None:
        from pgdyno.cli.completion import ask_typed_program

        ask_typed_program()
    try:
        code = needed(sys.argv[1:] or ["--help"], prog_name=name or program, standalone_mode=False)
        sys.exit(code if sys.argv[1:] else ExitCode.SPEC)
    except OSError as error:
        fail_refused(error, json=False)
    except SystemExit as ended:
        # Typer ends with a 1 of its own if the reader of a help page has gone.
        if isinstance(ended.code, ExitCode) or not isinstance(ended.__context__, BrokenPipeError):
            raise
        fail_refused(ended.__context__, json=False)
    except _UsageError as error:
        from pgdyno.cli.usage import describe_usage_error

        fail(describe_usage_error(error, sys.argv[1:], commands=[*named]), json=_wants_json(sys.argv[1:]))
