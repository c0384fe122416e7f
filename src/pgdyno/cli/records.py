"""Define the commands `report`, `show`, `list`, `compare-records`, `history` and `journal`, which evaluate records."""

# ruff: noqa: PLC0415 - flows are imported when their command runs, which keeps --help fast
from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from pgdyno.cli.gate import BmfOption, FailIfOption, JunitOption, show_gated
from pgdyno.cli.options import DEFAULT_RECORDS, JsonOption, QuietOption, RecordArgument, RecordsOption
from pgdyno.cli.session import session
from pgdyno.errors import SpecError

REPORT_EXAMPLES = (
    "Examples:\n\n`pgdyno report pgdyno-records/20261121-093000-bench`\n\n"
    "`pgdyno report pgdyno-records/20261121-093000-compare --fail-if slower --junit pgdyno.xml`"
)
SHOW_EXAMPLES = (
    "Examples:\n\n`pgdyno show` · the newest record here\n\n`pgdyno show pgdyno-records/20261121-093000-bench --json`"
)
LIST_EXAMPLES = "Example:\n\n`pgdyno list --records results`"
COMPARE_RECORDS_EXAMPLES = (
    "Examples:\n\n`pgdyno compare-records pgdyno-records/20261120-093000-bench pgdyno-records/20261121-093000-bench`\n\n"
    "`pgdyno compare-records c7g/20261121-093000-bench r8g/20261121-093000-bench m7i/20261121-093000-bench` · compare two machines with the first\n\n"
    "`pgdyno compare-records before after --out before-after.html` · write an HTML page; .md and .json work as well"
)
EXPORT_EXAMPLES = (
    "Examples:\n\n`pgdyno export --csv tables` · the newest record here\n\n"
    "`pgdyno export pgdyno-records/20261121-093000-bench --parquet tables`\n\n"
    "`pgdyno export --openmetrics bench.om` · `promtool tsdb create-blocks-from openmetrics bench.om` takes it in\n\n"
    "`pgdyno export --otlp http://localhost:4318`\n\n"
    "`pgdyno export pgdyno-records/20261121-093000-compare --junit pgdyno.xml`"
)
HISTORY_EXAMPLES = (
    "Examples:\n\n`pgdyno history` · all records here\n\n"
    "`pgdyno history pgdyno-records /srv/nightly --out history.html` · write an HTML page; .md and .json work as well"
)
JOURNAL_EXAMPLES = (
    "Examples:\n\n`pgdyno journal` · questions, answers, and the best settings so far\n\n"
    "`pgdyno journal --records /srv/results --json`"
)


def report(
    record: RecordArgument = None,
    *,
    records: RecordsOption = DEFAULT_RECORDS,
    fail_if: FailIfOption = None,
    junit: JunitOption = None,
    bmf: BmfOption = None,
    json: JsonOption = False,
) -> None:
    """Write a record's reports again, without measuring."""
    with session(json=json, quiet=True, yes=True) as (ui, show):
        from pgdyno.flow.gate import apply_gate, check_gate, plan_gate
        from pgdyno.flow.records.find import find_record_to_read
        from pgdyno.flow.report import write_reports

        gate, store = plan_gate(fail_if or [], junit=junit, bmf=bmf), find_record_to_read(record, records, ui=ui)
        check_gate(gate, store.read_record().study)
        show_gated(apply_gate(gate, write_reports(store)), show, json=json)


def show(
    record: RecordArgument = None,
    *,
    records: RecordsOption = DEFAULT_RECORDS,
    json: JsonOption = False,
) -> None:
    """Show a record's result in the terminal."""
    with session(json=json, quiet=True, yes=True) as (ui, show_result):
        from pgdyno.flow.records.find import find_record_to_read
        from pgdyno.flow.report import compose_report

        show_result(compose_report(find_record_to_read(record, records, ui=ui)))


def list_records(*, records: RecordsOption = DEFAULT_RECORDS, json: JsonOption = False) -> None:
    """List the records in a folder."""
    with session(json=json, quiet=True, yes=True) as (_, show):
        from pgdyno.flow.records.list import view_records

        _check_named(records)
        show(view_records(records))


def compare_records(
    records: Annotated[
        list[Path],
        typer.Argument(metavar="RECORD", help="Folders of two records or more; the first is the reference."),
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="Also write the result to a file: NAME.html, NAME.md or NAME.json.", show_default=False),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare records of one or several machines that answer the same question.

    Records that answer different questions are not compared: their figures are shown without ratios, with the reasons,
    and the exit code is 2. There is never a verdict between records, because their trials did not alternate.
    """
    with session(json=json, quiet=True, yes=True) as (ui, show):
        from pgdyno.flow.records.compare import compare_named
        from pgdyno.flow.records.find import find_record_to_read

        for record in records:
            find_record_to_read(record, DEFAULT_RECORDS, ui=ui)
        result = compare_named(records, out=out)
        show(result)
        if result.exit_code:
            raise SystemExit(result.exit_code)


def export(
    record: RecordArgument = None,
    *,
    csv: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write CSV files into this folder.", show_default=False)
    ] = None,
    parquet: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write Parquet files into this folder.", show_default=False)
    ] = None,
    openmetrics: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write OpenMetrics text with time stamps into this file.", show_default=False
        ),
    ] = None,
    otlp: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Send metrics to this OpenTelemetry collector, as JSON over HTTP; OTEL_EXPORTER_OTLP_HEADERS may hold"
            " its token.",
            show_default=False,
        ),
    ] = None,
    junit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write JUnit XML into this file: a test case for each variant, workload and metric.",
            show_default=False,
        ),
    ] = None,
    bmf: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write Bencher Metric Format JSON into this file, with intervals.", show_default=False
        ),
    ] = None,
    records: RecordsOption = DEFAULT_RECORDS,
    json: JsonOption = False,
) -> None:
    """Write a record's figures as tables, as metrics of every second, trial and verdict, or its verdicts for CI.

    `report` and the commands that compare take --junit and --bmf, too, with conditions of --fail-if.
    """
    with session(json=json, quiet=True, yes=True) as (ui, show):
        from pgdyno.flow.records.export import (
            TableFormat,
            export_openmetrics,
            export_record,
            export_verdicts,
            send_otlp,
        )
        from pgdyno.flow.records.find import find_record_to_read

        if len([one for one in (csv, parquet, openmetrics, otlp, junit, bmf) if one is not None]) != 1:
            raise SpecError(
                "export takes one form",
                hint="add --csv DIR, --parquet DIR, --openmetrics FILE, --otlp URL, --junit FILE or --bmf FILE",
            )
        store = find_record_to_read(record, records, ui=ui)
        if openmetrics is not None:
            show(export_openmetrics(store, openmetrics))
        elif otlp is not None:
            show(send_otlp(store, otlp))
        elif csv is not None:
            show(export_record(store, csv, TableFormat.CSV))
        elif parquet is not None:
            show(export_record(store, parquet, TableFormat.PARQUET))
        else:
            show(export_verdicts(store, junit=junit, bmf=bmf))


def history(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FOLDER", help="Folders that hold records.", show_default=f"{DEFAULT_RECORDS}"),
    ] = None,
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="Also write the result to a file: NAME.html, NAME.md or NAME.json.", show_default=False),
    ] = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Show how the answers to the same question changed over time, and what else changed at that moment.

    Records belong together if they ask the same of the same machine. The level of TPS and p99 is tested for changes; of 100
    histories without a change at most 5 are said to have one.
    """
    with session(json=json, quiet=quiet, yes=True) as (ui, show):
        from pgdyno.flow.records.history import read_history

        show(read_history(folders or [DEFAULT_RECORDS], out=out, ui=ui))


def journal(*, records: RecordsOption = DEFAULT_RECORDS, json: JsonOption = False) -> None:
    """List the studies in a folder by machine and time, with questions, answers and the best settings so far."""
    with session(json=json, quiet=True, yes=True) as (_, show):
        from pgdyno.flow.records.journal import read_journal

        _check_named(records)
        show(read_journal(records))


def _check_named(records: Path) -> None:
    if records != DEFAULT_RECORDS and not os.path.isdir(records):  # noqa: PTH112 - False, not an error, in a folder that is closed to us
        what = "not a folder" if os.path.lexists(records) else "there is no such folder"
        raise SpecError(f"--records {records}: {what}", hint="name a folder that holds records")
