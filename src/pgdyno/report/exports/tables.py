"""Lay a report's figures out as tables for other programs: trials, seconds, series, wait events, statements and curves.

Most names are those of report.json; nested figures are flattened (`latency_p99_ms`). What was not observed is null.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from pgdyno.analyse.failover import list_metrics
from pgdyno.analyse.series import ChartKind
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.types import TrialAnalysis, WorkloadAnalysis
from pgdyno.record.frames import pl

_SECONDS = (ChartKind.TPS, ChartKind.LATENCY)
_KEYS = {"workload": pl.String, "variants": pl.String, "trial": pl.Int64}


def list_tables(analysis: StudyAnalysis) -> dict[str, pl.DataFrame]:
    """Return the tables of a study by name; each row begins with its workload, variants and trial; in `curve`, clients take the place of the trial.

    Returns:
        `trials`: a row for each trial, with all figures and counts. `seconds`: TPS and latencies of each whole second, by
        `t_s` since the load began. `series`: every other series, a row for each observation. `waits`: client sessions
        by wait event. `statements`: mean latency of each command of the scripts over the warm-up. `curve`, only where
        the study or the sweep that followed it varied the number of clients: TPS and status of each.
    """
    trials = [(workload, trial) for workload in analysis.workloads for trial in workload.trials]
    points = list(_list_points(analysis))
    return {
        "trials": _make([_row(workload, trial, list_figures(trial)) for workload, trial in trials]),
        "seconds": _make([row for one in trials for row in _list_seconds(*one)]),
        "series": _make([row for one in trials for row in _list_series(*one)]),
        "waits": _make(
            [_row(workload, trial, msgspec.structs.asdict(one)) for workload, trial in trials for one in trial.waiting]
        ),
        "statements": _make(
            [
                _row(
                    workload,
                    trial,
                    {
                        "script": one.script,
                        "statement": one.statement,
                        "warm_up_latency_ms": one.latency_ms,
                    },
                )
                for workload, trial in trials
                for one in trial.statements
            ]
        ),
        **({"curve": _make(points)} if points else {}),
    }


def _list_points(analysis: StudyAnalysis) -> Iterator[dict[str, Any]]:
    followed = analysis.scaling
    yield from _list_curves(analysis, "")
    if followed is not None:
        yield from _list_curves(followed.analysis, followed.variant or "")


def _list_curves(analysis: StudyAnalysis, variant: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each number of clients, with the variant or level that it was measured at."""
    curves = [(workload, variant, sweep) for workload, sweep in analysis.sweeps.items()]
    curves += [(workload, level, sweep) for workload, of in analysis.crossed.items() for level, sweep in of.items()]
    for workload, level, sweep in curves:
        for point in sweep.points:
            figures = {"tps": point.tps, "to_best": point.to_best, "efficiency": point.efficiency}
            ends = {
                f"{name}{end}": getattr(figure, end[1:] or "value")
                for name, figure in figures.items()
                for end in ("", "_low", "_high")
            }
            status = None if point.status is None else point.status.word
            yield {
                "workload": workload,
                "variants": level,
                "clients": point.clients,
                "trials_count": point.tps.n,
                **ends,
                "status": status,
                "reason": point.reason,
            }


def _make(rows: list[dict[str, Any]]) -> pl.DataFrame:
    # All rows count for a column's type: the first ones may be null.
    return pl.DataFrame(rows, infer_schema_length=None) if rows else pl.DataFrame(schema=_KEYS)


def _row(workload: WorkloadAnalysis, trial: TrialAnalysis, values: dict[str, Any]) -> dict[str, Any]:
    planned = trial.record.planned
    keys = {"workload": workload.name, "variants": ", ".join(planned.variants), "trial": planned.number}
    return {**keys, **values}


def list_figures(trial: TrialAnalysis) -> dict[str, Any]:
    """Return the figures and counts of a trial by name."""
    planned, record = trial.record.planned, trial.record
    unit = "load" if trial.init_s else "transaction"
    return {
        "round": planned.round,
        "status": record.status.value,
        "error": None if record.error is None else record.error.fact,
        "duration_s": planned.duration_s,
        "tps": trial.tps,
        "pgbench_tps": trial.pgbench_tps,
        "latency_mean_ms": trial.latency_mean_ms,
        **{f"latency_{one.name}_ms": one.value_ms for one in trial.percentiles},
        "transactions_count": trial.transactions_count,
        "failed_count": trial.failed_count,
        "skipped_count": trial.skipped_count,
        "late_count": trial.late_count,
        "steady_from_s": trial.steady_from_s,
        "restore_s": record.restore_s,
        **trial.quoted,
        **trial.shares,
        **trial.init_s,
        **_list_failover(trial),
        **{f"{name}_per_{unit}": count for name, count in trial.counts_per_transaction.items()},
    }


def _list_failover(trial: TrialAnalysis) -> dict[str, Any]:
    seen = trial.failover
    if seen is None:
        return {}
    lost = {"lost_probes_count": seen.lost_probes, "lost_transactions_count": seen.lost_transactions}
    return {**list_metrics(seen), **lost, "confirmed_probes_count": seen.confirmed_probes}


def _list_seconds(workload: WorkloadAnalysis, trial: TrialAnalysis) -> Iterator[dict[str, Any]]:
    lines = [line for kind in _SECONDS for line in trial.charts.get(kind, ())]
    rows: dict[float, dict[str, Any]] = {}
    for line in lines:
        for t_s, value in zip(line.t_s, line.values, strict=True):
            rows.setdefault(t_s, {})[line.metric] = value
    for t_s, values in sorted(rows.items()):
        yield _row(workload, trial, {"t_s": t_s, **{line.metric: values.get(line.metric) for line in lines}})


def _list_series(workload: WorkloadAnalysis, trial: TrialAnalysis) -> Iterator[dict[str, Any]]:
    for kind, lines in trial.charts.items():
        for line in lines if kind not in _SECONDS else ():
            for t_s, value in zip(line.t_s, line.values, strict=True):
                names = {"chart": kind.value, "metric": line.metric, "label": line.label, "unit": line.unit}
                yield _row(workload, trial, {"t_s": t_s, **names, "value": value})
