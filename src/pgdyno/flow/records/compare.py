"""`pgdyno compare-records`: records that were made already, maybe on other machines, side by side.

First the gate, which refuses what would compare answers to different questions; then figures, and ratios where it lets
them pass. Refused records are shown all the same, without ratios, and the exit code says that the question was wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import RenderableType

from pgdyno.analyse.estimate import Estimate, exact_estimate
from pgdyno.analyse.records.comparison import RecordComparison, compare_records
from pgdyno.analyse.records.sides import Side, list_sides
from pgdyno.errors import ExitCode, HostError, SpecError, why
from pgdyno.explain.finding import Severity
from pgdyno.explain.preflight.study import find_preflight_doubts
from pgdyno.flow.report import compose_report
from pgdyno.flow.target import check_target
from pgdyno.flow.terminal import print_document
from pgdyno.record.durable import write_durably
from pgdyno.record.store import RecordStore, open_record, read_trial
from pgdyno.record.types import StudyRecord
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.sections.records.pairs import NamedRecord
from pgdyno.run.host.cache import keep_text
from pgdyno.run.host.program import program_name

if TYPE_CHECKING:
    from pgdyno.report.document import Document

FORMS = (".html", ".md", ".json")
"""The endings of the files that a document can be written to."""


class RecordsResult(msgspec.Struct, frozen=True, kw_only=True):
    """Records side by side."""

    records: tuple[NamedRecord, ...]
    comparisons: tuple[RecordComparison, ...]

    @property
    def exit_code(self) -> ExitCode:
        """SPEC where any of what was asked for is refused."""
        return ExitCode.SPEC if any(one.is_refused for one in self.comparisons) else ExitCode.OK

    def to_json(self) -> bytes:
        """Return all of it as a JSON document."""
        from pgdyno.report.documents.records import records_document  # noqa: PLC0415 - each form loads what it needs

        return msgspec.json.encode(records_document(self.records, self.comparisons))

    def to_terminal(self) -> RenderableType:
        """Return the form for the terminal."""
        from pgdyno.report.records import build_records  # noqa: PLC0415

        return print_document(build_records(self.records, self.comparisons), level=Level.HEADLINE)


def compare_named(paths: Sequence[Path], *, out: Path | None = None) -> RecordsResult:
    """Compare records, the first one with each other one.

    Args:
        paths: Their folders, or files in them.
        out: A file to write it into as well, whose name says in which form; None: none.

    Raises:
        SpecError: Less than two records, one of them twice, one that cannot be read or holds no result, or a form that
            is not known.
        HostError: The file cannot be written.
    """
    if len(paths) < 2:
        raise SpecError(
            "a comparison takes two records or more", hint="for example `pgdyno compare-records RECORD OTHER`"
        )
    check_out(out, example="records.md")
    stores = [open_record(path) for path in paths]
    refuse_copies(paths, stores)
    reports = [_read_report(store) for store in stores]
    result = RecordsResult(
        records=tuple(
            NamedRecord(path=str(path), record=report.record, per_month=_find_price(report))
            for path, report in zip(paths, reports, strict=True)
        ),
        comparisons=compare_records(
            [list_report_sides(store, report) for store, report in zip(stores, reports, strict=True)]
        ),
    )
    if out is not None:
        from pgdyno.report.records import build_records  # noqa: PLC0415 - each form loads what it needs

        write_document(out, build_records(result.records, result.comparisons), result.to_json)
    return result


def identify_record(store: RecordStore) -> tuple[object, ...]:
    """Return what a record has in common with its copies only.

    Raises:
        SpecError: It cannot be read.
    """
    record = store.read_record()
    host = record.host
    machine = None if host is None else (host.host_name, host.kernel, host.memory_bytes)
    # A job may start one command on many machines in the same second, and in containers they may have one name.
    first = next(iter(store.list_trial_files().values()), None)
    trial = None if first is None else read_trial(first)
    began = None if trial is None else (trial.clock_offset_s, trial.load_start_monotonic_s)
    return record.started_at, record.command, machine, record.name, began


def refuse_copies(paths: Sequence[Path], stores: Sequence[RecordStore]) -> None:
    """Refuse a record that is named twice, or a copy of it: it differs from itself only in its path."""
    seen: dict[tuple[object, ...], Path] = {}
    for path, store in zip(paths, stores, strict=True):
        made = identify_record(store)
        if made in seen:
            raise SpecError(
                f"{seen[made]} and {path} are one record",
                detail=f"both began at {store.read_record().started_at} by the same command",
                hint="name two different ones: `pgdyno list` shows the records",
            )
        seen[made] = path


def _read_report(store: RecordStore) -> ReportInput:
    report = compose_report(store).report
    if any(workload.is_loading for workload in report.record.plan.workloads):
        raise SpecError(
            f"{store.path} is about loading: compare-records compares TPS",
            detail="each of its reports has its loading times and verdicts, and `pgdyno price RECORD OTHER` what a load and a GB cost",
            hint="measure both in one study, which gives a verdict: `pgdyno compare --workload init`",
        )
    if any(workload.failover is not None for workload in report.record.plan.workloads):
        raise SpecError(
            f"{store.path} is about failovers: compare-records compares TPS",
            detail="each of its reports has its times without service and verdicts",
            hint="measure both in one study, which gives a verdict: `pgdyno compare --server 15 --server 18 --failover crash --standbys 1`",
        )
    if not any(trial.tps is not None for trial in report.analysis.trials):
        raise SpecError(
            f"{store.path} has no trial with a result: there is nothing to compare",
            hint=f"`pgdyno show {store.path}` says why",
        )
    return report


def list_report_sides(store: RecordStore, report: ReportInput) -> tuple[Side, ...]:
    """Return the loads of a record that can be compared, with what disturbed their measurement."""
    spoiling = find_preflight_doubts(report.record, report.analysis)
    return list_sides(
        report.record,
        report.analysis,
        script_hashes=hash_scripts(store, report.record),
        doubts=[finding.claim for finding in spoiling if finding.severity is Severity.CRITICAL],
    )


def _find_price(report: ReportInput) -> Estimate | None:
    """On the first of the terms that are known."""
    price = report.price
    if price is None or price.mismatch is not None or not price.cost.costs:
        return None
    return exact_estimate(price.cost.costs[0].per_month, unit=price.cost.currency)


def hash_scripts(store: RecordStore, record: StudyRecord) -> dict[str, str]:
    """Return the hash of each script file; a file that a record has lost is known by its name alone."""
    hashes = {}
    for name, place in store.name_scripts(record.plan).items():
        copy = store.path / place
        if copy.is_file():
            hashes[name] = hashlib.sha256(copy.read_bytes()).hexdigest()
    return hashes


def check_out(out: Path | None, *, example: str) -> None:
    """Refuse a file that a document cannot be written to.

    Raises:
        SpecError: Its form is not known, it is no file, or there is no such folder.
        HostError: The folder does not allow writing.
    """
    if out is None:
        return
    if out.suffix not in FORMS:
        raise SpecError(f"{out} has none of the forms {', '.join(FORMS)}", hint=f"for example --out {example}")
    # A symbolic link stays one.
    check_target("--out", out.resolve(), example=example)


def write_document(out: Path, document: Document, to_json: Callable[[], bytes]) -> None:
    """Write a document into a file, in the form that its ending says.

    Raises:
        HostError: The file cannot be written.
    """
    try:
        write_durably(out.resolve(), to_json() if out.suffix == ".json" else _render(document, out.suffix))
    except OSError as exc:
        raise HostError(f"cannot write {out}", detail=why(exc), hint="name another file with --out") from exc


def _render(document: Document, form: str) -> bytes:
    from pgdyno.report.document import name_program  # noqa: PLC0415 - each form loads what it needs

    document = name_program(document, program_name())
    if form == ".md":
        from pgdyno.report.forms.markdown import print_markdown  # noqa: PLC0415

        return print_markdown(document).encode()
    from pgdyno.report.forms.html import bundle_vega, name_vega, print_html  # noqa: PLC0415 - only a page needs charts

    return print_html(document, vega_js=keep_text(name_vega(), bundle_vega)).encode()
