"""Find what weakens a disk card: bursts, other loads, noise, declared figures, and the place of the measurement.

Each rule is one small function over observed and estimated figures; it yields nothing if it lacks evidence. A finding
is `critical` if the figures are not those of a disk, and a `warning` if they need a comment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pgdyno.analyse.disk.card import Drift, PlateauKind, bytes_per_s_of, iops_of
from pgdyno.analyse.disk.efficiency import Attainment, Efficiency
from pgdyno.analyse.disk.entries import DiskFigureKey
from pgdyno.explain.disk import location
from pgdyno.explain.disk.rule_input import DiskRuleInput, Rule
from pgdyno.explain.finding import Finding, Severity, worst_first
from pgdyno.plan.disk import FULL_CPU_RATIO, DiskJob, Pattern
from pgdyno.units import format_bytes, format_share, with_capital

# Bytes moved by others over those of the run itself; a file system's own bookkeeping stays below it.
_OTHERS_RATIO = 0.10
_OTHERS_BYTES_PER_S = 1e6
_OTHERS_RUNS_RATIO = 0.1
_NOISE_RATIO = 0.15
_MAX_NAMED = 3
_DISAGREEMENT_FACTOR = 2.0
# With two depths, one and many, the second is always faster.
_SWEPT_DEPTHS = 3
_TITLES = {
    DiskFigureKey.RANDOM_READ: "random reads",
    DiskFigureKey.RANDOM_WRITE: "random writes",
    DiskFigureKey.SEQUENTIAL_READ: "sequential reads",
    DiskFigureKey.SEQUENTIAL_WRITE: "sequential writes",
    DiskFigureKey.FLUSHES: "flushes",
}
# Rule, claim, effect and advice for figures by their position relative to their ceilings.
_STANDINGS = {
    Attainment.BURST: (
        "above-lasting",
        "were measured above what lasts: this was burst.",
        "It is given for a while, from credits; under a load that goes on for hours it is taken back.",
        "Plan with {lasting}.",
    ),
    Attainment.IMPOSSIBLE: (
        "above-declared",
        "were measured above all that is declared.",
        "Another disk was measured, a cache answered, or more was bought than the host file says.",
        "Compare the host file with what the provider's console says.",
    ),
    Attainment.BELOW: (
        "below-ceiling",
        "stay below what is declared.",
        "Too few I/Os at once, an array's chunks, a slower path to the volumes, other loads on them, or credits used up.",
        "Look at each volume's own use while measuring: `iostat -x 1`.",
    ),
}


def find_disk_doubts(rule_input: DiskRuleInput) -> tuple[Finding, ...]:
    """Find everything that weakens a card's figures, worst first."""
    return worst_first(finding for rule in _RULES for finding in rule(rule_input))


def list_disk_doubts(findings: Iterable[Finding], *, of: Sequence[str] = ()) -> tuple[Finding, ...]:
    """Return a card's findings that weaken a study's disk figures; the study's preflight already covers the place.

    Args:
        findings: Findings of the card.
        of: The variants whose disk it is; empty for that of the reference.
    """
    card = f"Disk card of {', '.join(of)}" if of else "Disk card"
    return tuple(
        msgspec.structs.replace(finding, claim=f"{card}: {finding.claim[:1].lower()}{finding.claim[1:]}")
        for finding in findings
        if finding.severity is Severity.WARNING and finding.rule != "no-durability"
    )


def _disagreement(rule_input: DiskRuleInput) -> Iterator[Finding]:
    own, test = rule_input.find(DiskFigureKey.FLUSHES), rule_input.find(DiskFigureKey.FLUSH_TEST)
    if own and test and not 1 / _DISAGREEMENT_FACTOR < own / test < _DISAGREEMENT_FACTOR:
        yield Finding(
            rule="flush-disagreement",
            severity=Severity.WARNING,
            claim="fio and pg_test_fsync do not agree on how quick flushes are.",
            evidence=f"fio {own:,.0f} a second, pg_test_fsync {test:,.0f}",
            why="They ran one after the other: the disk, or what else was at work on it, changed in between.",
            advice="Measure again; plan with the lower one.",
        )


def _fades(rule_input: DiskRuleInput) -> Iterator[Finding]:
    for fade in rule_input.figures.fades:
        yield Finding(
            rule="burst",
            severity=Severity.WARNING,
            claim=f"A burst was measured, which ends: {fade.what} fell meanwhile.",
            evidence=_describe_drift(fade),
            why="Credits of a cloud volume or a drive's cache give more at first than what lasts.",
            advice="Measure again at once: with credits and caches used up, it shows what lasts.",
        )


def _rises(rule_input: DiskRuleInput) -> Iterator[Finding]:
    for rise in rule_input.figures.rises:
        yield Finding(
            rule="not-steady",
            severity=Severity.WARNING,
            claim=f"The disk was not steady: {rise.what} rose meanwhile.",
            evidence=_describe_drift(rise),
            why="Another load on it ended, or a cache, an array or a volume was still being filled: the mean is of two states.",
            advice="Measure again: it shows whether that has come to its end.",
        )


def _describe_drift(drift: Drift) -> str:
    ratio = drift.ratio
    when = "from the first third of a run to its last" if drift.is_within_runs else "from the first round to the last"
    return (
        f"To {format_share(ratio.value)} [{format_share(ratio.low)} – {format_share(ratio.high)}] {when}, n = {ratio.n}"
    )


def _others(rule_input: DiskRuleInput) -> Iterator[Finding]:
    direct = [run for run in rule_input.card.runs if not run.job.is_flushed and run.others_bytes_per_s is not None]
    disturbed = [
        run
        for run in direct
        if (run.others_bytes_per_s or 0.0) > max(_OTHERS_BYTES_PER_S, _OTHERS_RATIO * bytes_per_s_of(run))
    ]
    if disturbed and len(disturbed) > _OTHERS_RUNS_RATIO * len(direct):
        most = max(disturbed, key=lambda run: (run.others_bytes_per_s or 0.0) / max(bytes_per_s_of(run), 1.0))
        yield Finding(
            rule="others-on-device",
            severity=Severity.WARNING,
            claim="Other programs used the disk while it was measured: it can do more than this.",
            evidence=f"In {len(disturbed)} of {len(direct)} runs, most during {_name_job(most.job)}: others"
            f" {_rate(most.others_bytes_per_s or 0.0)}, fio {_rate(bytes_per_s_of(most))}",
            why="Their share is missing from these figures.",
            advice="`iotop -o` names them, and an array at work on itself as `md0_resync`; measure again when they are done.",
        )


def _noise(rule_input: DiskRuleInput) -> Iterator[Finding]:
    noise = rule_input.figures.noise_ratio
    # If others used the disk, they explain the noise.
    if noise is not None and noise > _NOISE_RATIO and not any(_others(rule_input)):
        yield Finding(
            rule="noisy",
            severity=Severity.WARNING,
            claim="The disk does not do the same twice: intervals are wide.",
            evidence=f"Runs of one job differ by {format_share(noise)} (standard deviation), over {rule_input.figures.round_count} rounds",
            why="Neighbours on the same storage, garbage collection of an SSD, or a limit that lets go now and then.",
            advice="Measure longer, without --quick, and at another hour; plan with the lower ends.",
        )


def _generator(rule_input: DiskRuleInput) -> Iterator[Finding]:
    busy = [run for run in rule_input.card.runs if run.cpu_ratio > FULL_CPU_RATIO]
    if busy:
        names = list(dict.fromkeys(_name_job(run.job) for run in sorted(busy, key=lambda run: -run.cpu_ratio)))
        more = f" and {len(names) - _MAX_NAMED} other patterns" if len(names) > _MAX_NAMED else ""
        most = max(busy, key=iops_of)
        yield Finding(
            rule="generator-limit",
            severity=Severity.WARNING,
            claim="fio itself was the limit, not the disk.",
            evidence=f"{format_share(most.cpu_ratio)} of a CPU{' each' if most.job.processes > 1 else ''} at {iops_of(most):,.0f} IOPS: {', '.join(names[:_MAX_NAMED])}{more}",
            why=f"{_count_processes(most.job)} cannot ask for more: the disk may do more than this.",
            advice="Take these figures for the least that the disk can do.",
        )


def _count_processes(job: DiskJob) -> str:
    return "One process of fio" if job.processes == 1 else f"{job.processes} processes of fio"


def _plateaus(rule_input: DiskRuleInput) -> Iterator[Finding]:
    rising = [
        one
        for one in rule_input.figures.plateaus
        if one.kind is PlateauKind.NOT_REACHED and len(one.depths) >= _SWEPT_DEPTHS
    ]
    if rising:
        yield Finding(
            rule="no-plateau",
            severity=Severity.NOTE,
            claim=f"There is more to be had at greater depth: {' and '.join(f'{one.pattern.value}s' for one in rising)}.",
            evidence=", ".join(f"{one.pattern.value}: still rising at depth {one.depths[-1]}" for one in rising),
            why="The largest figure is what was asked for, not what the disk can do.",
        )


def _efficiency(rule_input: DiskRuleInput) -> Iterator[Finding]:
    for standing, (rule, claim, why, advice) in _STANDINGS.items():
        found = [one for one in rule_input.efficiencies if one.standing is standing]
        if found:
            titles = _join([_TITLES[one.key] for one in found])
            lasting = ", ".join(f"{_amount(one, one.ceiling.value)} for {_TITLES[one.key]}" for one in found)
            yield Finding(
                rule=rule,
                severity=Severity.WARNING,
                claim=f"{with_capital(titles)} {claim}",
                evidence=f"{'; '.join(map(_format_efficiency, found))}{f': {found[0].ceiling.how}' if len(found) == 1 else ''}",
                why=why,
                advice=advice.format(lasting=lasting),
            )


def _format_efficiency(one: Efficiency) -> str:
    measured, lasts = (_amount(one, value) for value in (one.measured.value or 0.0, one.ceiling.value))
    return f"{_TITLES[one.key]} {measured}, {format_share(one.ratio.value)} of the {lasts} that last"


def _join(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _name_job(job: DiskJob) -> str:
    size = "" if job.pattern in {Pattern.MIXED, Pattern.WRITE_AND_FLUSH} else f" {format_bytes(job.block_bytes)}"
    return f"{job.pattern.value}{size} at depth {job.depth}"


def _amount(one: Efficiency, value: float) -> str:
    if one.measured.unit == "bytes/s":
        return _rate(value)
    return f"{value:,.0f} {'a second' if one.key is DiskFigureKey.FLUSHES else 'IOPS'}"


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:,.4g} MB/s"


_RULES: tuple[Rule, ...] = (
    *location.RULES,
    _disagreement,
    _fades,
    _rises,
    _others,
    _efficiency,
    _noise,
    _generator,
    _plateaus,
)
