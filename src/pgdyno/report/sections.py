"""What a workload's comparison shows, in its order, for every form that has room for tables."""

from __future__ import annotations

from pgdyno.report.answers import WorkloadAnswers
from pgdyno.report.comparison_tables import counts_table, matrix_table, verdict_table
from pgdyno.report.input import ReportInput
from pgdyno.report.sweep_tables import describe_law, law_table, loads_table
from pgdyno.report.table import Table


def list_parts(report: ReportInput, answers: WorkloadAnswers) -> tuple[Table | str, ...]:
    """The tables of a workload's comparison or sweep in their order, and the sentences between them."""
    experiment = report.record.plan.experiment
    if experiment is None:
        return ()
    sweep = answers.sweep
    parts: list[Table | str | None] = [matrix_table(answers, experiment), verdict_table(answers)]
    if sweep is not None:
        clients = {variant.clients: variant.name for variant in experiment.variants if variant.clients is not None}
        law = None if sweep.usl is None else law_table(sweep.usl)
        parts = [loads_table(answers, sweep, clients), describe_law(sweep), law]
    return tuple(part for part in (*parts, counts_table(answers)) if part is not None)
