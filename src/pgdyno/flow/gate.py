"""`--fail-if`, `--junit` and `--bmf`: judge a finished comparison, and write it for other programs.

What cannot work is refused before anything is measured. The gate is judged from the record alone, so that `report` judges a
finished record in the same way. The files are written whether or not the gate fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Group, RenderableType

from pgdyno.analyse.comparison.answers import COUNT_METRICS, JUDGED_METRICS
from pgdyno.analyse.comparison.gate import GateResult, judge_gate
from pgdyno.errors import ExitCode, HostError, SpecError, why
from pgdyno.flow.report import StudyReport
from pgdyno.flow.target import check_target
from pgdyno.record.durable import write_durably
from pgdyno.spec.gate import Condition, parse_conditions
from pgdyno.spec.study import Study

_ENDINGS = {"--junit": ".xml", "--bmf": ".json"}


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """What a user wants of a comparison besides its report."""

    conditions: tuple[Condition, ...] = ()
    junit: Path | None = None
    bmf: Path | None = None

    @property
    def is_asked(self) -> bool:
        """True if any of the options was given."""
        return bool(self.conditions or self.junit or self.bmf)


class GatedReport(msgspec.Struct, frozen=True, kw_only=True):
    """A report with the outcome of its gate; None without conditions."""

    report: StudyReport
    result: GateResult | None = None

    @property
    def exit_code(self) -> ExitCode:
        """Return PROBLEM_FOUND if the gate fails."""
        return ExitCode.PROBLEM_FOUND if self.result is not None and self.result.is_failed else ExitCode.OK

    def to_json(self) -> bytes:
        """Return the content of report.json, which has the verdicts; the gate is no part of the record."""
        return self.report.to_json()

    def to_terminal(self) -> RenderableType:
        """Return the report for the terminal, with the gate at the end."""
        shown = self.report.to_terminal()
        return shown if self.result is None else Group(shown, "", self.gate_to_terminal())

    def gate_to_terminal(self) -> RenderableType:
        """Return the outcome of the gate for the terminal; empty without one."""
        from pgdyno.report.forms.terminal import print_headlines  # noqa: PLC0415 - each form loads what it needs
        from pgdyno.report.sections.gate import build_gate  # noqa: PLC0415

        return print_headlines(() if self.result is None else (build_gate(self.result),))


def plan_gate(fail_if: Sequence[str], *, junit: Path | None, bmf: Path | None) -> Gate:
    """Read the options, and check that the files can be written.

    Raises:
        SpecError: A condition or a file is not one.
        HostError: A folder does not allow writing.
    """
    conditions = parse_conditions(fail_if, metrics=(*JUDGED_METRICS, *COUNT_METRICS))
    files = {option: path.resolve() for option, path in (("--junit", junit), ("--bmf", bmf)) if path is not None}
    for option, path in files.items():
        check_target(option, path, example=f"pgdyno{_ENDINGS[option]}")
    if len(set(files.values())) < len(files):
        raise SpecError(f"--junit and --bmf are one file: {junit}", hint="name two files")
    return Gate(conditions=conditions, junit=files.get("--junit"), bmf=files.get("--bmf"))


def check_gate(gate: Gate, study: Study) -> None:
    """Refuse a study whose report has no verdicts.

    Raises:
        SpecError: The study has none.
    """
    axes = [axis.name for axis in study.sweep]
    if not gate.is_asked or (study.is_comparison and axes != ["clients"]):
        return
    what = "a search for a rate" if study.search is not None else "a study without variants"
    raise SpecError(
        f"{'a sweep over clients' if axes else what} has no verdicts",
        detail="--fail-if, --junit and --bmf need verdicts on variants against a reference",
        hint="`pgdyno compare` gives verdicts, and so does a sweep over the levels of a setting",
    )


def apply_gate(gate: Gate, report: StudyReport) -> GatedReport:
    """Judge a report by the gate's conditions, and write its files.

    Raises:
        HostError: A file cannot be written.
    """
    found, experiment = report.report, report.report.record.plan.experiment
    if not gate.is_asked or experiment is None:
        return GatedReport(report=report)
    result = judge_gate(
        tuple(found.analysis.list_judged()),
        experiment,
        gate.conditions,
        dropped=found.record.refused_variants,
        family_count=found.analysis.count_families(),
    )
    if gate.junit is not None:
        from pgdyno.report.exports.junit import render_junit  # noqa: PLC0415 - each form loads what it needs

        _write(gate.junit, render_junit(found, result), found.record_dir)
    if gate.bmf is not None:
        from pgdyno.report.exports.bmf import render_bmf  # noqa: PLC0415

        _write(gate.bmf, render_bmf(found), found.record_dir)
    return GatedReport(report=report, result=result if gate.conditions else None)


def _write(path: Path, content: bytes, record_dir: str) -> None:
    try:
        write_durably(path, content)
    except OSError as exc:
        raise HostError(
            f"cannot write {path}",
            detail=why(exc),
            hint=f"the record is complete; `pgdyno report {record_dir}` writes the file with the same options",
        ) from exc
