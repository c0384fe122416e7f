"""Describe verdicts, each with its interval and its pairs, for reports, progress lines and tables.

A change always appears with its interval. An inconclusive verdict never says that two variants do not differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from pgdyno.analyse.comparison.verdict import Verdict, VerdictKind
from pgdyno.analyse.sweep.statuses import LoadStatus
from pgdyno.report.format import EffectText, format_effect, format_more_time, format_roughly, format_within
from pgdyno.units import count_things

METRIC_WORDS = {
    "tps": "TPS",
    "latency_p50_ms": "p50",
    "latency_p95_ms": "p95",
    "latency_p99_ms": "p99",
    "init_s": "loading time",
    "init_tables_s": "dropping and creating tables",
    "init_generate_s": "generating rows",
    "init_vacuum_s": "vacuum",
    "init_primary_keys_s": "primary keys",
    "init_foreign_keys_s": "foreign keys",
    "init_checkpoint_s": "checkpoint after loading",
    "outage_s": "time without service",
    "load_outage_s": "time without service by pgbench",
    "promotion_s": "promotion",
    "wal_bytes": "WAL",
    "wal_fpi_count": "full-page images",
    "wal_sync_count": "WAL syncs",
    "device_flush_count": "disk flushes",
    "blks_read_pages": "pages read",
    "device_read_bytes": "data read from disk",
    "device_write_bytes": "data written to disk",
    "cpu_ms": "CPU time",
}
"""Names of the metrics for readers; counts are per transaction, or of a whole load."""
_AMOUNTS = frozenset({"wal_bytes", "cpu_ms", "device_read_bytes", "device_write_bytes"})
"""Metrics of which there is less, and not fewer."""
HUES = {
    VerdictKind.FASTER: "green",
    VerdictKind.SLOWER: "vermilion",
    VerdictKind.EQUIVALENT: "blue",
    VerdictKind.INCONCLUSIVE: "slate",
    VerdictKind.MORE: "amber",
    VerdictKind.LESS: "sky",
}
MARKS = {
    VerdictKind.FASTER: "▲",
    VerdictKind.SLOWER: "▼",
    VerdictKind.EQUIVALENT: "=",
    VerdictKind.INCONCLUSIVE: "?",
    VerdictKind.MORE: "▲",
    VerdictKind.LESS: "▼",
}
"""Shown beside the colour, for readers who cannot see it."""
STATUS_HUES = {
    "underused": "sky",
    "linear": "blue",
    "peak": "green",
    "contended": "amber",
    "collapse": "vermilion",
    "undecided": "slate",
}
"""The hue of each status of a load in a sweep over clients."""


def name_status(status: LoadStatus | None) -> str:
    """Name the status of a load in a sweep over clients."""
    return "undecided" if status is None else status.word


def name_levels(verdicts: Iterable[Verdict]) -> str:
    """Return the confidence of the intervals of some verdicts: `99.1 %`, or `99.1 to 99.3 %`; empty without any."""
    levels = sorted({verdict.confidence for verdict in verdicts})
    if not levels:
        return ""
    low, high = (f"{math.floor(level * 1000 + 1e-9) / 10:g}" for level in (levels[0], levels[-1]))
    return f"{low if low == high else f'{low} to {high}'} %"


def effect_of(verdict: Verdict) -> EffectText:
    """Return the change that a verdict rests on."""
    return format_effect(verdict.effect_ratio, verdict.low_ratio, verdict.high_ratio)


def name_verdict(verdict: Verdict) -> str:
    """Name the verdict, such as `equivalent within ±3 %`."""
    if verdict.kind is VerdictKind.EQUIVALENT:
        return f"equivalent within {format_within(verdict.delta_ratio)}"
    return str(verdict.kind.value)


def state_verdict(verdict: Verdict, *, variant: str, reference: str, workload: str) -> str:
    """State the verdict as a clause: `commit_delay=1000 is slower than stock on tpcb-like`."""
    match verdict.kind:
        case VerdictKind.INCONCLUSIVE:
            return f"{variant} against {reference} on {workload} is {name_verdict(verdict)}"
        case VerdictKind.EQUIVALENT:
            return f"{variant} and {reference} are {name_verdict(verdict)} on {workload}"
        case VerdictKind.MORE | VerdictKind.LESS:
            metric = METRIC_WORDS[verdict.metric]
            less = "less" if verdict.metric in _AMOUNTS else "fewer"
            word = "more" if verdict.kind is VerdictKind.MORE else less
            return f"{variant} causes {word} {metric} than {reference} on {workload}"
        case _:
            return f"{variant} is {name_verdict(verdict)} than {reference} on {workload}"


def describe_change(verdict: Verdict) -> str:
    """Describe the change with its interval and metric, or why there is none yet."""
    metric = METRIC_WORDS[verdict.metric]
    if verdict.low_ratio is None:
        return f"{metric} has no interval yet ({verdict.reason})" if verdict.reason else f"{metric} has no interval yet"
    return f"{metric} {effect_of(verdict)}"


def count_pairs(verdict: Verdict) -> str:
    """Count the pairs: `41 pairs`."""
    return count_things(verdict.n, "pair")


def describe_verdict(verdict: Verdict) -> str:
    """Describe the verdict on a variant in a line: `commit_delay=1000 slower: TPS -22.5 % [-25.1, -19.7], 41 pairs`."""
    return f"{verdict.variant} {name_verdict(verdict)}: {describe_change(verdict)}, {count_pairs(verdict)}"


def describe_outlook(verdict: Verdict, *, round_s: float | None) -> str:
    """Estimate how much more time an inconclusive question needs, and what its budget could have shown.

    Args:
        verdict: An inconclusive verdict.
        round_s: The duration of a round; None if it is not known.
    """
    if verdict.pairs_needed is not None and round_s is not None:
        takes = f"about {format_more_time(verdict.pairs_needed * round_s)} of this study would settle it"
    elif verdict.reason is not None and verdict.low_ratio is not None:
        takes = verdict.reason
    elif verdict.low_ratio is None or verdict.pairs_needed is not None:
        takes = "how much more time it would take is not known yet"
    else:
        takes = "no affordable number of such pairs would settle it"
    parts = [takes]
    if verdict.detectable_ratio is not None:
        parts.append(f"this budget could have detected {format_roughly(verdict.detectable_ratio)}")
    look = verdict.final_look
    if look is not msgspec.UNSET and not look.is_made and look.n is not None and look.detectable_ratio is not None:
        parts.append(f"the final look, after {look.n:,} pairs, could detect {format_roughly(look.detectable_ratio)}")
    return "; ".join(parts)
