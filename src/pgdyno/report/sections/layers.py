"""Describe derived settings in a report: the speed with and without them, and what each layer gained.

Every gain appears with its interval. A layer without a proven gain is called undecided, never ineffective.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pgdyno.analyse.comparison.answers import SPEED_METRICS
from pgdyno.analyse.comparison.derived_gain import Advice, CheckpointCycle, Gain, find_checkpoint_cycles, find_gains
from pgdyno.analyse.comparison.verdict import VerdictKind
from pgdyno.explain.doubts.derived import SLOWER
from pgdyno.facts.gucs import show_mode
from pgdyno.record.tuned import DERIVED, STOCK, Tuned, TunedLayer, TunedSetting
from pgdyno.report.document import Block, Prose, Section, Tone
from pgdyno.report.format import format_seconds
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.lists import join_names
from pgdyno.report.sections.comparison.tables import change_cell, figure_cell
from pgdyno.report.setting_words import show_setting
from pgdyno.report.table import Cell, Table, absent, code, columns, text
from pgdyno.report.verdict_words import (
    HUES,
    MARKS,
    METRIC_WORDS,
    count_pairs,
    describe_change,
    describe_outlook,
    name_verdict,
    state_verdict,
)
from pgdyno.units import with_capital

_BRIEF_METRICS = ("tps", "latency_p99_ms")
_NAMES = {Advice.UNDECIDED: "undecided here"}
# The verdict that an advice looks like.
_KINDS = {
    Advice.KEEP: VerdictKind.FASTER,
    Advice.DROP: VerdictKind.SLOWER,
    Advice.EQUIVALENT: VerdictKind.EQUIVALENT,
    Advice.UNDECIDED: VerdictKind.INCONCLUSIVE,
}
_GAIN_REMARK = (
    "A layer's gain compares the whole set with the set without this layer, in pairs within a round: a positive gain"
    " means that the layer helps. The gains of the layers do not add up to the gain of the set."
)


def build_gain(report: ReportInput) -> Iterator[Block]:
    """Yield whether the derived settings are faster, and which layer causes it; nothing without derived settings."""
    tuned = report.record.tuned
    if tuned is None:
        return
    # That the set is slower comes before everything else.
    for one in report.findings:
        if one.rule == SLOWER:
            words = f"{one.claim} On {one.workload}: {one.evidence}. {one.advice}"
            yield Prose(words=words, tone=Tone.ALARM, level=Level.HEADLINE)
    blocks: list[Block] = []
    if tuned.is_layered:
        blocks += [
            Prose(strong=f"{claim}:", words=f"{figures}.", level=Level.HEADLINE)
            for claim, figures in describe_proofs(report)
        ]
    blocks += [table for table in (layers_table(report), speeds_table(report)) if table is not None]
    yield Section(title="", list_title="Derived settings against stock", id="layers", blocks=tuple(blocks))


def build_derived(report: ReportInput) -> Iterator[Section]:
    """Yield the section on the derived settings: all of them, each with its reason."""
    table = derived_table(report)
    if table is not None:
        words = tuple(Prose(words=one) for one in describe_trial_set(report))
        yield Section(title="Derived settings", id="derived", blocks=(*words, table), is_listed=True)


def describe_proofs(report: ReportInput) -> tuple[tuple[str, str], ...]:
    """Return whether the set is faster than stock, for each workload, with the figures."""
    return tuple(_describe_proof(gain) for gain in _find_gains(report) if gain.layer is None)


def describe_trial_set(report: ReportInput) -> tuple[str, ...]:
    """Describe the derived set: for which machine, what was tried, and what was not; a paragraph each."""
    tuned = report.record.tuned
    if tuned is None:
        return ()
    tried = sum(setting.left_out is None for setting in tuned.settings)
    with_own = report.record.study.server.settings
    both = (
        f" The study's own {join_names([f'{n} = {v}' for n, v in with_own.items()])} applied both with and without the set."
        if with_own
        else ""
    )
    others = "; the others are listed with the reason" if tried < len(tuned.settings) else ""
    return (
        f"Settings were derived for {tuned.derived_for}; {tried} of {len(tuned.settings)} were tested{others}.{both}",
        *_describe_left_out(tuned),
        *_describe_cycles(report),
    )


def speeds_table(report: ReportInput) -> Table | None:
    """Build the table of the server's speed without and with the set; None without a set."""
    if report.record.tuned is None:
        return None
    rows = []
    for comparison in report.analysis.comparisons:
        for variant in (STOCK, DERIVED):
            figures = (figure_cell(comparison, variant, metric) for metric in SPEED_METRICS)
            rows.append((text(comparison.workload), text(variant), *figures))
    titles = [METRIC_WORDS[metric] for metric in SPEED_METRICS]
    details = [METRIC_WORDS[metric] for metric in SPEED_METRICS if metric not in _BRIEF_METRICS]
    remark = "Each row has its own figures over its rounds, with 95 % intervals; only pairs show which is faster."
    return Table(
        caption="Speed with and without the derived settings",
        columns=columns("Workload", "Settings", *titles, numbers_from=2, details=details),
        rows=tuple(rows),
        remark=remark,
        level=Level.HEADLINE,
    )


def layers_table(report: ReportInput) -> Table | None:
    """Build the table of each layer's gain; None where layers were not taken apart."""
    tuned = report.record.tuned
    if tuned is None or not tuned.is_layered:
        return None
    workloads = [comparison.workload for comparison in report.analysis.comparisons]
    found, rows = _find_gains(report), []
    for layer in tuned.layers:
        if layer.variant is None:
            continue
        gains = tuple(gain for gain in found if gain.layer == layer.name)
        names = ", ".join(f"{name} = {tuned.find(name).value}" for name in layer.settings)
        rows.append(
            (
                Cell(text=layer.name, detail=f"({names})"),
                *(_gain_cell(gain) for gain in gains),
                _advice_cell(gains),
                text(describe_trades(tuned, layer) or "nothing"),
            )
        )
    titles = ("Layer", *(f"Gain on {name}" for name in workloads))
    return Table(
        caption="Gain of each layer",
        columns=(*columns(*titles, numbers_from=1), *columns("Verdict", "Trade-off", details=("Trade-off",))),
        rows=tuple(rows),
        remark=_GAIN_REMARK,
        level=Level.HEADLINE,
    )


def derived_table(report: ReportInput) -> Table | None:
    """Build the table of the whole set: stock, derived, why; None without a set."""
    tuned, major = report.record.tuned, report.record.server.major
    if tuned is None:
        return None
    rows = []
    for layer in dict.fromkeys(setting.layer for setting in tuned.settings):
        for one in tuned.settings:
            if one.layer == layer:
                stock = (
                    absent("not known here") if one.stock is None else code(show_setting(one.name, one.stock, major))
                )
                tried = text("yes" if one.left_out is None else "no", note=one.left_out)
                derived = code(show_mode(one.name, one.value))
                rows.append((code(one.name), text(one.layer), stock, derived, tried, text(_explain(one))))
    titles = columns("Setting", "Layer", "Stock", "Derived", "Tried", "Why")
    notes = " ".join(note if note.endswith(".") else f"{note}." for note in tuned.notes)
    return Table(caption="All derived settings", columns=titles, rows=tuple(rows), remark=notes)


def describe_trades(tuned: Tuned, layer: TunedLayer) -> str:
    """Describe what a layer costs besides speed."""
    seen: dict[str, list[str]] = {}
    for name in layer.settings:
        if trade := tuned.find(name).trades:
            seen.setdefault(trade, []).append(name)
    return "; ".join(f"{', '.join(names)}: {trade}" for trade, names in seen.items())


def describe_gain(gain: Gain) -> str:
    """Describe a gain with its interval and pairs and, where it is undecided, what would settle it."""
    verdict = gain.verdict
    if verdict is None:
        return "not measured"
    figures = f"{describe_change(verdict)}, {count_pairs(verdict)}"
    return figures if verdict.is_decided else f"{figures}; {describe_outlook(verdict, round_s=gain.round_s)}"


def _find_gains(report: ReportInput) -> tuple[Gain, ...]:
    return find_gains(report.record, report.analysis.comparisons, report.analysis.workloads)


def _describe_proof(gain: Gain) -> tuple[str, str]:
    if gain.verdict is None:
        return f"{DERIVED} against {STOCK} on {gain.workload} has no verdict", "it was not measured"
    claim = state_verdict(gain.verdict, variant=DERIVED, reference=STOCK, workload=gain.workload)
    return claim, describe_gain(gain)


def _standing(gain: Gain) -> str:
    if gain.verdict is None:
        return "not measured"
    return name_verdict(gain.verdict) if gain.advice is Advice.EQUIVALENT else str(gain.advice.value)


def _find_shown(advices: Collection[Advice]) -> Advice:
    """Find the advice to show: a loss anywhere comes first, a gain anywhere second; a lone doubt makes the rest undecided."""
    shown = next((one for one in (Advice.DROP, Advice.KEEP, Advice.UNDECIDED) if one in advices), None)
    return shown or (Advice.EQUIVALENT if advices else Advice.UNDECIDED)


def _advice_cell(gains: tuple[Gain, ...]) -> Cell:
    advices = {gain.advice for gain in gains}
    shown = _find_shown(advices)
    is_proven = shown in {Advice.KEEP, Advice.DROP}
    short = "weigh" if {Advice.KEEP, Advice.DROP} <= advices else _NAMES.get(shown, shown.value)
    outlooks = [f"{gain.workload}: {words}" for gain in gains if (words := _describe_doubt(gain))]
    standings = [f"{gain.workload} {_standing(gain)}" for gain in gains]
    if len(gains) == 1:
        # The cell has said the word.
        standings = [_standing(gains[0]).removeprefix(shown.value).strip()]
    return Cell(
        text=f"{MARKS[_KINDS[shown]]} {short}",
        detail="; ".join(standings),
        is_strong=is_proven,
        hue=HUES[_KINDS[shown]],
        note="; ".join(outlooks) or None,
    )


def _describe_doubt(gain: Gain) -> str:
    """Describe why a gain is undecided, or what would settle it; nothing where it is decided."""
    if gain.is_slower and gain.short is not None:
        return f"slower in trials of {format_seconds(gain.short.duration_s)}, too short to show what is gained by checkpointing less often"
    if gain.verdict is None or gain.verdict.is_decided:
        return ""
    return describe_outlook(gain.verdict, round_s=gain.round_s)


def _gain_cell(gain: Gain) -> Cell:
    return absent("not measured") if gain.verdict is None else change_cell(gain.verdict)


def _explain(one: TunedSetting) -> str:
    trades = f" Trade-off: {one.trades}." if one.trades else ""
    return f"{with_capital(one.reason.rstrip('.'))}.{trades}"


def _describe_left_out(tuned: Tuned) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for setting in tuned.settings:
        if setting.left_out is not None:
            reasons.setdefault(setting.left_out, []).append(setting.name)
    if reasons:
        said = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in reasons.items())
        yield f"Part of the set, but not tested: {said}."


def _describe_cycles(report: ReportInput) -> Iterator[str]:
    """Count the checkpoints in the trials: a verdict on WAL settings depends on them."""
    by_workload: dict[str, list[CheckpointCycle]] = {}
    for cycle in find_checkpoint_cycles(report.record, report.analysis.workloads):
        by_workload.setdefault(cycle.workload, []).append(cycle)
    for workload, cycles in by_workload.items():
        held = join_names([_describe_cycle(cycle) for cycle in cycles])
        length = format_seconds(cycles[0].duration_s)
        yield f"On {workload}, trials of {length}, each started just after a checkpoint, contained {held}."


def _describe_cycle(cycle: CheckpointCycle) -> str:
    low, high = min(cycle.counts), max(cycle.counts)
    held = "no checkpoint" if high == 0 else f"{low}" if low == high else f"{low} to {high}"
    return (
        f"{held} with {cycle.variant} settings (at this WAL rate a checkpoint starts about every"
        f" {format_seconds(round(cycle.cycle_s))})"
    )
