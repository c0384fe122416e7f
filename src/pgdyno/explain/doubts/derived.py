"""Find what speaks against derived settings: where they cost, and what the trials were too short to show.

The rules work as in `doubts.study`. If the set is slower than stock, that finding comes first in a report.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pgdyno.analyse.comparison.derived_gain import (
    CheckpointCycle,
    Gain,
    find_gains,
)
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.explain.commands import Command, MeasuredLoad, write_command
from pgdyno.explain.finding import Finding, Severity
from pgdyno.record.types import StudyRecord

SLOWER = "derived-slower"


def find_derived_doubts(record: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    """Yield everything that speaks against using a derived set as it was tried; nothing for a study without one."""
    gains = find_gains(record, analysis.comparisons, analysis.workloads)
    for gain in gains:
        if gain.is_slower:
            yield _costs(gain) if gain.layer is not None else _slower(record, gain)
    for gain in gains:
        if gain.layer is None and gain.short is not None:
            yield _too_short(gain.short)


def _slower(record: StudyRecord, gain: Gain) -> Finding:
    is_layered = record.tuned is not None and record.tuned.is_layered
    which = (
        "the table of layers shows which of them" if is_layered else f"{_write_layers(record, gain)} shows which layer"
    )
    return Finding(
        severity=Severity.CRITICAL,
        claim="The derived settings are slower than stock.",
        evidence=_describe(gain),
        advice=f"Do not use them as they are for this load; {which} costs it.",
        workload=gain.workload,
        rule=SLOWER,
        is_result=True,
    )


def _write_layers(record: StudyRecord, gain: Gain) -> str:
    """Write the command that tries each layer under the same load; in words, where no options say what it was."""
    load = next((one for one in record.plan.workloads if one.name == gain.workload), None)
    said = "" if load is None else write_command(MeasuredLoad(record=record, load=load), Command.BENCH, "--layers")
    return f"`{said}`" if said else "the same bench with --layers"


def _costs(gain: Gain) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        claim=f"The derived settings are faster without the layer {gain.layer}.",
        evidence=f"What the layer adds: {_describe(gain)}",
        advice="Leave it out for this load only if longer trials show the same: these held too few checkpoints for it."
        if gain.short is not None
        else "Leave it out for this load.",
        workload=gain.workload,
        rule="layer-costs",
        is_result=True,
    )


def _too_short(cycle: CheckpointCycle) -> Finding:
    low, high = min(cycle.counts), max(cycle.counts)
    count = "no" if high == 0 else f"{low}" if low == high else f"{low} to {high}"
    held = f"{count} checkpoint{'s' if high > 1 else ''}"
    return Finding(
        severity=Severity.WARNING,
        claim="Trials were too short to show what is gained by checkpointing less often.",
        evidence=(
            f"A trial of {cycle.duration_s:.0f} s contained {held} with stock settings, which have a checkpoint about"
            f" every {cycle.cycle_s:.0f} s"
        ),
        advice=(
            "Trials begin right after a checkpoint, when whole pages go to the WAL: stock is mostly in that phase, the"
            f" derived set rarely. Measure again with `--duration {math.ceil(cycle.wanted_s / 10.0) * 10}s`, which"
            " contains three, and one `--workload` at a time."
        ),
        workload=cycle.workload,
        rule="few-checkpoints",
    )


def _describe(gain: Gain) -> str:
    verdict = gain.verdict
    if verdict is None or verdict.effect_ratio is None or verdict.low_ratio is None or verdict.high_ratio is None:
        return "no interval"
    metric = "TPS" if verdict.metric == "tps" else verdict.metric
    effect, low, high = (ratio * 100.0 for ratio in (verdict.effect_ratio, verdict.low_ratio, verdict.high_ratio))
    return f"{metric} {effect:+.1f} % [{low:+.1f}, {high:+.1f}], {verdict.n} pairs"
