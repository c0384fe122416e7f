"""Build the tables of a workload and its trials."""

from __future__ import annotations

from collections.abc import Sequence

from pgdyno.analyse.comparison.answers import INIT_METRICS
from pgdyno.analyse.types import TrialAnalysis, WorkloadAnalysis
from pgdyno.facts.metrics import all_metrics
from pgdyno.record.types import TrialStatus
from pgdyno.report.format import (
    ABSENT,
    format_confidence,
    format_count,
    format_estimate,
    format_moment,
    format_number,
    format_percent,
    format_seconds,
    format_value,
    is_useless,
)
from pgdyno.report.sections.head import advise_trials, has_idle_trial, is_mixed, name_trial
from pgdyno.report.table import Cell, Table, absent, code, columns, number, text
from pgdyno.report.verdict_words import METRIC_WORDS
from pgdyno.units import count_subject

_NOT_OBSERVED = "not observed; the reason is under “Not observed”"
_NO_STEADY_PART = "no steady part was determined: TPS and latencies cover the whole load"
_SLICES = "TPS and latencies cover the counted part of each slice or turn"
# The counts that explain most of a result, whatever the noise.
_KEY_COUNTS = (
    "wal_bytes", "wal_fpi_count", "wal_sync_count", "blks_hit_pages", "blks_read_pages", "io_write_bytes", "backend_written_pages",
)  # fmt: skip
_MOST_COLUMNS = 8
_SHARES = {
    "cpu_busy_ratio": "CPU busy",
    "cpu_busiest_core_ratio": "Busiest core",
    "cpu_steal_ratio": "CPU taken by the hypervisor",
    "cpu_server_ratio": "CPU used by server, pgbench and pgdyno",
    "cpu_standbys_ratio": "CPU used by standbys",
    "cpu_others_ratio": "CPU used by other programs",
    "cpu_emulation_ratio": "System time beside the study (emulation)",
    "load_generator_thread_ratio": "Busiest pgbench thread",
    "load_generator_cpu_ratio": "CPU busy where pgbench ran",
    "load_generator_others_ratio": "CPU used by other programs where pgbench ran",
    "disk_util_ratio": "Disk busy",
    "wal_disk_util_ratio": "WAL disk busy",
    "cache_hit_ratio": "Page accesses served by shared_buffers",
}


def result_table(workload: WorkloadAnalysis) -> Table:
    """Build the table of a workload's TPS and latency over its trials."""
    rows = []
    for name, estimate in (("TPS", workload.tps), *workload.latency_ms.items()):
        label = {"mean": "mean latency", "max": "max (steady part)"}.get(name, name)
        shown = format_estimate(estimate)
        unit = "" if estimate.value is None or name == "TPS" else f" {estimate.unit}"
        rows.append(
            (
                text(label),
                Cell(
                    text=f"{shown.value}{unit}", note=shown.reason if estimate.value is None else None, is_strong=True
                ),
                Cell(
                    text=shown.interval or ABSENT,
                    note=None if is_useless(estimate) else shown.reason,
                ),
                text(str(estimate.n)),
            )
        )
    heading = f"{format_confidence(workload.tps)} interval"
    return Table(
        caption="Result over all trials",
        columns=columns("", "Mean" if has_idle_trial(workload) else "Geometric mean", heading, "n", numbers_from=1),
        rows=tuple(rows),
        remark=advise_trials(workload) or "",
    )


def trials_table(workload: WorkloadAnalysis) -> Table:
    """Build a row for each trial."""
    names = list(dict.fromkeys(p.name for trial in workload.trials for p in trial.percentiles))
    has_skipped = any(trial.skipped_count for trial in workload.trials)
    has_late = any(trial.late_count is not None for trial in workload.trials)
    has_claim = any(trial.pgbench_tps is not None for trial in workload.trials)
    titles = ["Trial", "TPS", *["TPS by pgbench"] * has_claim, "mean ms"]
    titles += [f"{name} ms (steady part)" if name == "max" else f"{name} ms" for name in names]
    titles += ["transactions", "failed"]
    titles += ["skipped"] * has_skipped + ["above limit"] * has_late + ["steady from"]
    rows = []
    for trial in workload.trials:
        reason = _failure(trial)
        percentiles = {p.name: p for p in trial.percentiles}
        cells = [
            text(title_trial(workload, trial)),
            number(trial.tps, format_number, reason),
            *[number(trial.pgbench_tps, format_number, reason)] * has_claim,
            number(trial.latency_mean_ms, format_number, reason or _why_no_latency(trial)),
        ]
        for name in names:
            seen = percentiles.get(name)
            cells.append(number(seen.value_ms if seen else None, format_number, (seen and seen.reason) or reason))
        cells.append(number(trial.transactions_count, format_count, reason))
        cells.append(number(trial.failed_count, format_count, reason))
        cells += [number(trial.skipped_count, format_count, reason)] * has_skipped
        cells += [number(trial.late_count, format_count, reason)] * has_late
        cells.append(number(trial.steady_from_s, format_seconds, reason or _why_no_steady_part(trial)))
        rows.append(tuple(cells))
    remark = _explain_steady_parts(workload)
    if has_claim:
        remark += f"{' ' if remark else ''}“TPS by pgbench” is pgbench's own TPS over the whole load."
    return Table(caption="Each trial", columns=columns(*titles, numbers_from=1), rows=tuple(rows), remark=remark)


def loading_table(workload: WorkloadAnalysis) -> Table:
    """Build a row for each trial that loaded the data: the seconds of the whole and of its steps."""
    names = [name for name in INIT_METRICS if any(name in trial.init_s for trial in workload.trials)]
    rows = tuple(
        (
            text(title_trial(workload, trial)),
            *(number(trial.init_s.get(name), "{:.2f}".format, _failure(trial) or _NOT_OBSERVED) for name in names),
        )
        for trial in workload.trials
    )
    titles = columns("Trial", *(f"{METRIC_WORDS[name]}, s" for name in names), numbers_from=1)
    return Table(caption="Each trial", columns=titles, rows=rows)


def _why_no_latency(trial: TrialAnalysis) -> str | None:
    # The maximum lacks what the mean lacks: any transaction.
    return next((one.reason for one in trial.percentiles if one.name == "max"), None)


def _why_no_steady_part(trial: TrialAnalysis) -> str:
    return _NO_STEADY_PART if trial.record.slice_s is None else _SLICES


def _explain_steady_parts(workload: WorkloadAnalysis) -> str:
    """Explain which part of each trial the figures cover; nothing where footnotes say it for every trial."""
    lack = [trial.steady_from_s is None for trial in workload.trials if trial.tps is not None]
    if lack and all(lack):
        return ""
    where = ", where it was determined" if any(lack) else ""
    return f"TPS and latencies cover the steady part{where}; MSER-5 determines how much of the beginning is left out."


def blocks_table(workload: WorkloadAnalysis) -> Table:
    """Build a row for each trial within which variants alternated; its TPS would be a mixture and is left out."""
    rows = []
    for trial in workload.trials:
        reason = _failure(trial)
        slice_s = trial.record.slice_s
        rows.append(
            (
                text(name_trial(trial)),
                text(format_seconds(trial.record.planned.duration_s)),
                number(slice_s, lambda seconds: f"{seconds:g} s", reason or "no slice length was recorded"),
                number(trial.transactions_count, format_count, reason),
                number(trial.failed_count, format_count, reason),
                text(", ".join(trial.record.planned.variants)),
            )
        )
    titles = columns("Trial", "Planned", "Slice", "transactions", "failed", numbers_from=1)
    return Table(caption="Each trial", columns=(*titles, *columns("Variants")), rows=tuple(rows))


def counts_table(workload: WorkloadAnalysis) -> Table | None:
    """Build the table of the counts of a transaction that explain the most."""
    return _counts_table(f"Per {_name_unit(workload)}", workload, _KEY_COUNTS)


def all_counts_table(workload: WorkloadAnalysis) -> Table | None:
    """Build the table of every other count of a transaction that is not 0."""
    moved = dict.fromkeys(n for trial in workload.trials for n, value in trial.counts_per_transaction.items() if value)
    others = [name for name in moved if name not in _KEY_COUNTS]
    return _counts_table(f"Other counters, per {_name_unit(workload)}", workload, others)


def shares_table(workload: WorkloadAnalysis) -> Table | None:
    """Build the table of mean resource use: CPU, disk and cache; a trial that nothing watched has no column."""
    watched = [trial for trial in workload.trials if set(trial.shares.values()) - {None}]
    trials, remark = choose_columns(workload, watched)
    rows = tuple(
        (
            text(_SHARES.get(name, name)),
            *(_share_cell(trial, name) for trial in trials),
        )
        for name in (*_SHARES, *dict.fromkeys(n for trial in trials for n in trial.shares if n not in _SHARES))
        if any(name in trial.shares for trial in trials)
    )
    titles = columns("", *(title_trial(workload, trial) for trial in trials), numbers_from=1)
    return Table(caption="Mean resource use", columns=titles, rows=rows, remark=remark) if rows else None


def _share_cell(trial: TrialAnalysis, name: str) -> Cell:
    share, resolution_ratio = trial.shares.get(name), trial.resolutions.get(name)
    if share == 0.0 and resolution_ratio is not None:
        least = format_percent(resolution_ratio).removeprefix("<")
        reason = f"less than {least}, which is what the kernel's ticks tell from 0 over this load"
        return Cell(text=format_percent(share), note=reason)
    return number(share, format_percent, _NOT_OBSERVED)


def statements_table(workload: WorkloadAnalysis) -> Table | None:
    """Build the table of the mean latency of each statement of the scripts."""
    measured = [trial for trial in workload.trials if trial.statements]
    if not measured:
        return None
    trials, remark = choose_columns(workload, measured)
    has_failures = any(one.failures is not None for trial in measured for one in trial.statements)
    has_scripts = len({one.script for trial in measured for one in trial.statements}) > 1
    rows = []
    for position, one in enumerate(trials[0].statements):
        label = f"{one.script}: {one.statement}" if has_scripts else one.statement
        cells = [code(label)]
        same = [trial.statements[position] if position < len(trial.statements) else None for trial in trials]
        cells += [number(each.latency_ms if each else None, format_number, None) for each in same]
        if has_failures:
            of_all = (each for trial in measured for each in trial.statements[position : position + 1])
            cells.append(text(format_count(sum(each.failures or 0 for each in of_all))))
        rows.append(tuple(cells))
    titles = ["Statement", *(f"{title_trial(workload, trial)}, ms" for trial in trials), *["failures"] * has_failures]
    return Table(
        caption="Mean latency of each statement, during the warm-up",
        columns=columns(*titles, numbers_from=1),
        rows=tuple(rows),
        remark=remark,
    )


def events_table(trial: TrialAnalysis) -> Table | None:
    """Build the table of the events during a trial."""
    rows = tuple(
        (
            text(format_moment(event.t_s)),
            text("" if event.until_s is None else format_seconds(event.until_s - event.t_s)),
            text(event.kind),
            text(event.text),
        )
        for event in trial.events
    )
    return Table(caption="Events", columns=columns("At", "Took", "Event", "What was seen"), rows=rows) if rows else None


def _name_unit(workload: WorkloadAnalysis) -> str:
    return "load" if workload.load.is_loading else "transaction"


def _counts_table(caption: str, workload: WorkloadAnalysis, names: Sequence[str]) -> Table | None:
    counts = [(trial, trial.counts_per_transaction) for trial in workload.trials]
    counted = [trial for trial, seen in counts if any(seen.get(name) is not None for name in names)]
    trials, remark = choose_columns(workload, counted)
    metrics = all_metrics()
    rows = []
    for name in names:
        values = [trial.counts_per_transaction.get(name) for trial in trials]
        if all(value is None for value in values):
            continue
        metric = metrics.get(name)
        unit = metric.unit if metric else ""
        cells = (absent(_NOT_OBSERVED) if value is None else text(format_value(value, unit)) for value in values)
        rows.append((code(name), *cells, text(metric.meaning if metric else None)))
    titles = columns("", *(title_trial(workload, trial) for trial in trials), numbers_from=1)
    if not rows:
        return None
    return Table(caption=caption, columns=(*titles, *columns("Meaning")), rows=tuple(rows), remark=remark)


def choose_columns(
    workload: WorkloadAnalysis, trials: Sequence[TrialAnalysis], *, what: str = "them"
) -> tuple[Sequence[TrialAnalysis], str]:
    """Choose the trials that have a column in a table, as many as a page is wide; return also a remark on the others.

    Args:
        workload: The load; its representative trial, of which a report says the most, has a column.
        trials: All trials that could have one.
        what: What `pgdyno export` writes of the others.
    """
    left = len(trials) - _MOST_COLUMNS
    if left <= 0:
        return trials, ""
    not_shown = f"{count_subject(left, 'more trial')} not shown"
    late = [trial for trial in trials[_MOST_COLUMNS:] if trial is workload.representative]
    shown = [*trials[: _MOST_COLUMNS - len(late)], *late]
    return shown, f"{not_shown}: `pgdyno export` writes {what}."


def title_trial(workload: WorkloadAnalysis, trial: TrialAnalysis) -> str:
    """Name a trial at the head of a column: `trial 2 (median)`."""
    what = "observed" if trial.record.planned.is_observed else name_rank(workload, trial)
    return f"{name_trial(trial)} ({what})" if what else name_trial(trial)


def name_rank(workload: WorkloadAnalysis, trial: TrialAnalysis) -> str:
    """Name the place of the representative among several measured trials: `median`, or of an even number `upper median`."""
    count = len(workload.ranked)
    if trial is not workload.representative or trial.record.planned.is_observed or is_mixed(trial) or count == 1:
        return ""
    return "median" if count % 2 else "upper median"


def _failure(trial: TrialAnalysis) -> str | None:
    if trial.record.status is not TrialStatus.FAILED:
        return None
    return f"{name_trial(trial)} failed: {trial.record.error.fact if trial.record.error else 'no reason recorded'}"
