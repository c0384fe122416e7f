"""Merge what several pgbenches printed and logged, on load hosts or in parts.

Counts and latencies over the whole load are exact: histograms merge without loss. A second of the wall clock on another
machine is the nearest one of the first machine, so that it may be off by half a second where their wall clocks differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from pgdyno.record.generators.part import LoadPart
from pgdyno.record.pgbench.output import PgbenchSummary, Progress, ScriptResult, StatementResult
from pgdyno.record.transactions.histogram import LatencyHistogram
from pgdyno.record.transactions.summary import ScriptSummary, SecondSummary, TransactionSummary

_Printed = TypeVar("_Printed", ScriptResult, StatementResult)
_SUMS = (
    *("transaction_count", "failed_count", "serialization_failure_count", "deadlock_failure_count", "retried_count"),
    *("retry_count", "skipped_count", "tps"),
)
_SUMS_OF_RUN = ("client_count", "thread_count", "above_limit_count")
_SUMS_OF_LOG = ("ok_count", "failed_count", "serialization_count", "deadlock_count", "skipped_count")


def merge_pgbench(parts: Sequence[PgbenchSummary]) -> PgbenchSummary:
    """Merge what several pgbenches printed about one load."""
    first = parts[0]
    if len(parts) == 1:
        return first
    weights = [part.transaction_count or 0 for part in parts]
    sums = {name: _add([getattr(part, name) for part in parts]) for name in (*_SUMS, *_SUMS_OF_RUN)}
    mean_ms, stddev_ms = _pool(parts, weights)
    return msgspec.structs.replace(
        first,
        **sums,
        latency_average_ms=mean_ms,
        latency_stddev_ms=stddev_ms,
        latency_includes_failures=any(part.latency_includes_failures for part in parts),
        schedule_lag_average_ms=_average_lag([part.schedule_lag_average_ms for part in parts], weights),
        schedule_lag_max_ms=_most([part.schedule_lag_max_ms for part in parts]),
        initial_connection_time_ms=_most([part.initial_connection_time_ms for part in parts]),
        statements=_merge_statements([part.statements for part in parts], weights),
        scripts=tuple(_merge_script(each) for each in zip_printed([part.scripts for part in parts])),
        unknown_lines=tuple(line for part in parts for line in part.unknown_lines),
    )


def merge_load(parts: Sequence[tuple[LoadPart, PgbenchSummary]]) -> PgbenchSummary:
    """Merge what all pgbenches of a load printed; of a load in parts, the scripts of each follow those of the part before."""
    groups: dict[int, list[PgbenchSummary]] = {}
    for part, summary in parts:
        groups.setdefault(part.first_script, []).append(summary)
    merged = [(first, merge_pgbench(of)) for first, of in sorted(groups.items())]
    if len(merged) == 1:
        return merged[0][1]
    scripts = tuple(script for first, summary in merged for script in _list_scripts(first, summary))
    whole = merge_pgbench([summary for _, summary in merged])
    return msgspec.structs.replace(whole, transaction_type="multiple scripts", statements=(), scripts=scripts)


def _list_scripts(first: int, summary: PgbenchSummary) -> Iterator[ScriptResult]:
    """List the results of a part's scripts, numbered as those of the whole load; pgbench has no list of a single one."""
    for script in summary.scripts:
        yield msgspec.structs.replace(script, number=first + script.number)
    if not summary.scripts:
        kept = {*ScriptResult.__struct_fields__} & {*PgbenchSummary.__struct_fields__}
        values = {name: getattr(summary, name) for name in kept}
        yield ScriptResult(number=first + 1, name=summary.transaction_type or "", **values)


def shift_scripts(part: LoadPart, summary: TransactionSummary) -> TransactionSummary:
    """Return a part's transactions with its scripts numbered as those of the whole load."""
    if not part.first_script:
        return summary
    scripts = tuple(msgspec.structs.replace(one, script=one.script + part.first_script) for one in summary.scripts)
    return msgspec.structs.replace(summary, scripts=scripts)


def _merge_script(parts: Sequence[ScriptResult]) -> ScriptResult:
    weights = [part.transaction_count or 0 for part in parts]
    sums = {name: _add([getattr(part, name) for part in parts]) for name in (*_SUMS, "attempted_count")}
    mean_ms, stddev_ms = _pool(parts, weights)
    statements = _merge_statements([part.statements for part in parts], weights)
    return msgspec.structs.replace(
        parts[0], **sums, latency_average_ms=mean_ms, latency_stddev_ms=stddev_ms, statements=statements
    )


def _merge_statements(
    parts: Sequence[tuple[StatementResult, ...]], weights: Sequence[float]
) -> tuple[StatementResult, ...]:
    printing = [weight for part, weight in zip(parts, weights, strict=True) if part]
    return tuple(
        StatementResult(
            text=each[0].text,
            latency_average_ms=_average([one.latency_average_ms for one in each], printing),
            failure_count=sum(one.failure_count for one in each),
            retry_count=_whole(_add([one.retry_count for one in each])),
        )
        for each in zip_printed(parts)
    )


def zip_printed(parts: Sequence[tuple[_Printed, ...]]) -> Iterator[tuple[_Printed, ...]]:
    """Yield for each script or statement what the pgbenches printed of it; one in which no transaction ended printed nothing."""
    return zip(*filter(None, parts), strict=False)


def _pool(
    parts: Sequence[PgbenchSummary] | Sequence[ScriptResult], weights: Sequence[float]
) -> tuple[float | None, float | None]:
    """Return mean and standard deviation of the latencies of all parts."""
    means = [part.latency_average_ms for part in parts]
    mean = _average(means, weights)
    squares = [
        None
        if part.latency_average_ms is None or part.latency_stddev_ms is None
        else part.latency_stddev_ms**2 + part.latency_average_ms**2
        for part in parts
    ]
    square = _average(squares, weights)
    return mean, None if mean is None or square is None else math.sqrt(max(0.0, square - mean**2))


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _add(values: Sequence[float | None]) -> float | None:
    known = _known(values)
    return sum(known) if known else None


def _most(values: Sequence[float | None]) -> float | None:
    return max(_known(values), default=None)


def _average(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    pairs = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None and weight]
    total = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / total if total else None


def _average_lag(lags: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """Return the mean lag of all transactions; those of a pgbench without a schedule have none."""
    return _average([lag or 0.0 for lag in lags], weights) if _known(lags) else None


def merge_progress(parts: Sequence[Progress]) -> Progress:
    """Merge the progress of several pgbenches in the same second of their loads."""
    weights = [part.tps for part in parts]
    return Progress(
        elapsed_s=max(part.elapsed_s for part in parts),
        tps=sum(weights),
        latency_average_ms=_average([part.latency_average_ms for part in parts], weights),
        latency_stddev_ms=_average([part.latency_stddev_ms for part in parts], weights),
        failed_count=sum(part.failed_count for part in parts),
        lag_average_ms=_average_lag([part.lag_average_ms for part in parts], weights),
        skipped_count=_whole(_add([part.skipped_count for part in parts])),
        retried_count=_whole(_add([part.retried_count for part in parts])),
        retry_count=_whole(_add([part.retry_count for part in parts])),
        has_silent_part=any(part.tps == 0 for part in parts),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def merge_transactions(parts: Sequence[tuple[TransactionSummary, float]]) -> TransactionSummary:
    """Merge the transactions of several pgbenches.

    Args:
        parts: The summary of each, and the seconds by which its stamps are behind those of the first.
    """
    summaries = [summary for summary, _ in parts]
    first = summaries[0]
    if len(parts) == 1:
        return first
    stamps = [
        (summary.first_stamp_us + round(1e6 * behind_s), (summary.last_stamp_us or 0) + round(1e6 * behind_s))
        for summary, behind_s in parts
        if summary.first_stamp_us is not None
    ]
    malformed = [one.first_malformed_line for one in summaries if one.first_malformed_line is not None]
    return TransactionSummary(
        version=first.version,
        columns=first.columns,
        sampling_rate=first.sampling_rate,
        latency_limit_us=first.latency_limit_us,
        first_stamp_us=min((begin for begin, _ in stamps), default=None),
        last_stamp_us=max((end for _, end in stamps), default=None),
        retried_count=_whole(_add([one.retried_count for one in summaries])),
        retries_count=_whole(_add([one.retries_count for one in summaries])),
        malformed_lines_count=sum(one.malformed_lines_count for one in summaries),
        first_malformed_line=next(iter(malformed), None),
        cut_lines_count=sum(one.cut_lines_count for one in summaries),
        scripts=_merge_scripts(summaries),
        seconds=_merge_seconds(parts),
        early_count=sum(one.early_count for one in summaries),
    )


def _merge_scripts(summaries: Sequence[TransactionSummary]) -> tuple[ScriptSummary, ...]:
    numbers = sorted({one.script for summary in summaries for one in summary.scripts})
    merged = []
    for number in numbers:
        same = [one for summary in summaries for one in summary.scripts if one.script == number]
        merged.append(
            ScriptSummary(
                script=number,
                **{name: sum(getattr(one, name) for one in same) for name in _SUMS_OF_LOG},
                late_count=_whole(_add([one.late_count for one in same])),
                histogram=_merge_histograms([one.histogram for one in same]),
            )
        )
    return tuple(merged)


def _merge_seconds(parts: Sequence[tuple[TransactionSummary, float]]) -> tuple[SecondSummary, ...]:
    by_epoch_s: dict[int, list[SecondSummary]] = {}
    for summary, behind_s in parts:
        for second in summary.seconds:
            by_epoch_s.setdefault(second.epoch_s + round(behind_s), []).append(second)
    return tuple(
        SecondSummary(
            epoch_s=epoch_s,
            failed_count=sum(one.failed_count for one in same),
            skipped_count=sum(one.skipped_count for one in same),
            late_count=_whole(_add([one.late_count for one in same])),
            histogram=_merge_histograms([one.histogram for one in same]),
        )
        for epoch_s, same in sorted(by_epoch_s.items())
    )


def _merge_histograms(packed: Sequence[bytes]) -> bytes:
    return LatencyHistogram.merged(LatencyHistogram.from_bytes(one) for one in packed).to_bytes()
