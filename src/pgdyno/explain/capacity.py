"""Explain what a machine can carry of each load: where its ceiling is, what limits it, how many clients are best.

Bounds are upper limits and not promises, and the wording says so. If a load stops below all of them, the finding says
that and names no cause, because `bottleneck` explains what limits a load. A load without any bound gets a finding that
says what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.analyse.capacity.clients import describe_pool
from pgdyno.analyse.capacity.types import Bound, BoundKind, BoundState, Capacity
from pgdyno.analyse.estimate import USEFUL_FACTOR, Estimate, is_too_wide
from pgdyno.analyse.series import ChartKind
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.sweep.knee import KNEE_RATIO
from pgdyno.analyse.transaction_time.shares import Certainty
from pgdyno.explain.commands import Command, MeasuredLoad, write_command, write_disk
from pgdyno.explain.finding import Finding, Severity
from pgdyno.plan.experiment import Variant, is_client_sweep
from pgdyno.plan.places import place_of
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.types import StudyRecord
from pgdyno.units import count_things, format_share

CEILING, CLIENTS, PASSED = "ceiling", "clients", "passed-limit"
"""Names of the rules."""
_CHARTS = {
    BoundKind.CPU: (ChartKind.CPU, ChartKind.RUN_QUEUE),
    BoundKind.LOAD_GENERATOR: (ChartKind.CPU,),
    BoundKind.FLUSHES: (ChartKind.WAITS, ChartKind.DISK_LATENCY),
    BoundKind.WAL: (ChartKind.WAL,),
    BoundKind.READS: (ChartKind.DISK_IOPS, ChartKind.DISK_LATENCY),
    BoundKind.WRITES: (ChartKind.DISK_IOPS, ChartKind.DISK_LATENCY),
    BoundKind.READ_BYTES: (ChartKind.DISK_THROUGHPUT,),
    BoundKind.WRITTEN_BYTES: (ChartKind.DISK_THROUGHPUT,),
    BoundKind.INSTANCE_IOPS: (ChartKind.DISK_IOPS,),
    BoundKind.INSTANCE_BYTES: (ChartKind.DISK_THROUGHPUT,),
}
_ADVICE = {
    BoundKind.CPU: "More CPUs raise it, and so does CPU time saved: prepared statements, a connection pool, pgbench elsewhere.",
    BoundKind.LOAD_GENERATOR: "Give pgbench more --threads, or a machine of its own: this is no limit of the server.",
    BoundKind.FLUSHES: "More clients share each flush; so does a disk that flushes sooner.",
}
# What the disk of pg_wal does, where that is apart.
_OF_WAL = frozenset({BoundKind.FLUSHES, BoundKind.WAL})
_DISK_ADVICE = "A disk that does more of it raises it; so does asking less of it: more memory for reads, larger max_wal_size for writes."
# Idle share of the CPUs from which on the CPU time of a transaction says little about its CPU time when they are full.
_IDLE_RATIO = 0.25
# Factor of the number of clients for the suggested sweep.
_MORE_CLIENTS = 4


def find_capacity_findings(record: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    """Yield a finding on the ceiling of each load, then the other findings on its capacity."""
    diagnosed = _list_diagnosed(analysis)
    for capacity in analysis.capacities:
        yield _find_ceiling(record, capacity, is_diagnosed=capacity.workload in diagnosed)
    for capacity in analysis.capacities:
        yield from _find_clients(record, capacity)
        yield from _find_passed(record, capacity)


def _list_diagnosed(analysis: StudyAnalysis) -> set[str]:
    """List the loads for which another finding already says what limits them, and what to do about it."""
    workloads = [*analysis.workloads, *([] if analysis.scaling is None else analysis.scaling.analysis.workloads)]
    return {
        name
        for workload in workloads
        if workload.bottleneck is not None and workload.bottleneck.certainty is not Certainty.UNKNOWN
        for name in (workload.name, workload.load.name)
    }


def _find_ceiling(record: StudyRecord, capacity: Capacity, *, is_diagnosed: bool) -> Finding:
    binding = capacity.binding
    is_of_load = binding is not None and binding.kind is BoundKind.LOAD_GENERATOR
    # Where nobody saw the server's machine, pgbench is all that has a bound: it limits the server only where it is reached.
    if binding is None or (is_of_load and record.host is None and capacity.standing is not BoundState.AT_BOUND):
        return _unknown(record, capacity)
    others = [bound for bound in capacity.bounds if bound is not binding and not bound.is_refuted]
    evidence = "; ".join(
        [
            _format_bound(binding),
            *(f"then {_format_bound(bound)}" for bound in others[:1]),
            *_name_other_clients(record, capacity),
        ]
    )
    is_settled = capacity.peak.high is not None
    return Finding(
        rule=CEILING,
        severity=Severity.NOTE,
        claim=_claim(capacity, binding),
        evidence=evidence,
        why=_why(capacity, binding),
        advice="" if is_diagnosed else _advise(capacity, binding),
        workload=capacity.workload,
        confirm="" if is_settled else _sweep_command(record, capacity),
        gain=_gain(capacity),
        shows=_CHARTS[binding.kind],
    )


_BESIDE_OTHERS = "Without the other programs, or with more clients, the load would get more of it."
_OF_IDLE = (
    " CPUs that fall idle and are woken for each transaction take more time for it than full ones: by up to the share that"
    " is idle."
)
_WHY = {
    BoundState.AT_BOUND: "A load near such a bound queues for it, and more clients only lengthen the queue.",
    BoundState.HELD: "Locks, latencies or the network hold it: more hardware of the kinds that are not used up would not help.",
    BoundState.BELOW: "Too few clients, locks or latencies kept it below: a bound is an upper limit, and no promise.",
    BoundState.UNKNOWN: "",
}


def _why(capacity: Capacity, binding: Bound) -> str:
    if binding.others_ratio:
        return _BESIDE_OTHERS
    if binding.kind is BoundKind.FLUSHES and capacity.standing is BoundState.AT_BOUND:
        return "Commits wait for flushes that they share: more clients share each of them, until something else ends first."
    if capacity.standing is BoundState.BELOW and capacity.others_ratio:
        return f"Other programs used up to {format_share(capacity.others_ratio)} of the CPUs. {_WHY[capacity.standing]}"
    eased = _OF_IDLE if binding.idle_ratio > _IDLE_RATIO else ""
    return f"{_WHY[capacity.standing]}{eased}"


def _claim(capacity: Capacity, binding: Bound) -> str:
    most, used = f"{_format_number(binding.tps.value)} TPS", format_share(binding.used.value)
    at_clients = f" with {count_things(capacity.clients, 'client')}" if binding.kind is BoundKind.FLUSHES else ""
    bound = f"{binding.kind.noun}{at_clients}"
    if is_too_wide(binding.tps):
        return f"The lowest bound is that of {bound}; {used} of it was used. More trials are needed to tell its TPS."
    if capacity.standing is BoundState.HELD:
        peak = _format_number(capacity.peak.value)
        return f"The load stops at {peak} TPS with no resource used up: {used} of the lowest bound ({bound}, {most})."
    if capacity.standing is BoundState.AT_BOUND:
        # Without figures, which are in the evidence: so the loads that are near the same ceiling are told together.
        return f"The load is near its ceiling, the limit of {bound}."
    if binding.idle_ratio > _IDLE_RATIO and binding.tps.low is not None:
        ends = f"{_format_number(binding.tps.low)} to {_format_number(binding.tps.high)} TPS"
        return f"The lowest bound is that of {bound}; {used} of it was used. Full, they allow {ends}."
    return f"The load reached {used} of the lowest bound: {bound}, {most}."


def _name_other_clients(record: StudyRecord, capacity: Capacity) -> Iterator[str]:
    """Say where the number of clients comes from if the study did not ask for it."""
    load = _find_load(record, capacity)
    if load is not None and capacity.clients != load.clients:
        yield f"both with {count_things(capacity.clients, 'client')}, the best load of the sweep"


def _unknown(record: StudyRecord, capacity: Capacity) -> Finding:
    reasons = dict.fromkeys(reason for name, reason in capacity.absent.items() if name != "next")
    # Nobody gets a shell on the machine of a managed service.
    may_watch = record.given is not None and record.host is None and record.given.service is None
    return Finding(
        rule=CEILING,
        severity=Severity.NOTE,
        claim=f"How much this {'server' if record.given else 'machine'} can carry of this load is not known.",
        evidence="; ".join(reasons) or "Every limit that is known was passed",
        advice="Name the server's machine with `--server-host`, as you would give it to ssh: its CPUs and disks are then watched."
        if may_watch
        else "",
        workload=capacity.workload,
        certainty=Certainty.UNKNOWN,
    )


def _gain(capacity: Capacity) -> str:
    following = capacity.next
    if following is None:
        return ""
    limit = f"up to the limit of {following.binds.noun} at {_format_number(following.tps.value)} TPS"
    gains = [f"{_change(following.gain)} at most, {limit}"] if _is_useful(following.gain) else []
    if _is_useful(following.gain_at_clients):
        gains.append(f"{_change(following.gain_at_clients)} at most by as many clients as now")
    return f"If {following.removed} were no limit: {'; '.join(gains)} (worked out, not measured)" if gains else ""


def _is_useful(gain: Estimate) -> bool:
    """Return whether an interval is narrow enough to be useful."""
    return gain.low is not None and gain.high is not None and 1.0 + gain.high <= USEFUL_FACTOR * (1.0 + gain.low)


def _advise(capacity: Capacity, binding: Bound) -> str:
    if binding.others_ratio:
        return "Stop the other programs that use the CPUs, or move them elsewhere, before buying more."
    # If the programs that used the CPUs are unknown, more CPUs may only serve others.
    is_blind = binding.kind is BoundKind.CPU and binding.others_ratio is None
    if capacity.standing is not BoundState.AT_BOUND or is_blind:
        return ""
    return _ADVICE.get(binding.kind, _DISK_ADVICE)


def _find_clients(record: StudyRecord, capacity: Capacity) -> Iterator[Finding]:
    advice = capacity.advice
    if advice.clients is not None and advice.low is not None and advice.high is not None:
        interval = f"[{advice.low:,} – {advice.high:,}]"
        yield Finding(
            rule=CLIENTS,
            severity=Severity.NOTE,
            claim=f"{count_things(advice.clients, 'client')} {interval} at work reach {KNEE_RATIO * 100:g} % of its highest TPS.",
            evidence=f"From the {advice.how}",
            why="More of them gain little: they queue, and transactions take longer.",
            advice=f"Let a pool open {describe_pool(advice.clients)}, and make the other clients wait there.",
            workload=capacity.workload,
            shows=(ChartKind.TPS,),
        )
    elif advice.is_hint and advice.low is not None and advice.low > capacity.clients:
        yield Finding(
            rule=CLIENTS,
            severity=Severity.NOTE,
            claim=f"{count_things(capacity.clients, 'client')} cannot reach this machine's ceiling: at least {advice.low:,} are needed.",
            evidence=f"{_format_number(capacity.ceiling.value)} TPS × the time of a transaction without waiting",
            workload=capacity.workload,
            confirm=_sweep_command(record, capacity),
        )


def _find_passed(record: StudyRecord, capacity: Capacity) -> Iterator[Finding]:
    load = _find_load(record, capacity)
    variant = None if load is None else _find_variant(record, capacity, load)
    for bound in capacity.bounds:
        if bound.is_refuted:
            is_of_wal = bound.kind in _OF_WAL and place_of(record.study.data, variant).wal_home is not None
            said = write_disk(record, variant, is_of_wal=is_of_wal)
            yield Finding(
                rule=PASSED,
                severity=Severity.NOTE,
                claim=f"The load used more than the known limit of {bound.kind.noun}.",
                evidence=_format_bound(bound),
                why="It can do more than its card or its declaration says: this is no bound.",
                advice=f"`{said}` measures it again." if said else "Measure that disk again.",
                workload=capacity.workload,
                shows=_CHARTS[bound.kind],
            )


def _find_load(record: StudyRecord, capacity: Capacity) -> PlannedWorkload | None:
    """Return the load of a capacity, which is named after it; the name of a variant may follow."""
    return next((one for one in record.plan.workloads if f"{capacity.workload}, ".startswith(f"{one.name}, ")), None)


def _sweep_command(record: StudyRecord, capacity: Capacity) -> str:
    clients = 2 ** (max(1, capacity.clients * _MORE_CLIENTS) - 1).bit_length()
    load = _find_load(record, capacity)
    said = ""
    if load is not None and load.scripts[0][0] == load.name:
        asked = MeasuredLoad(record=record, load=load, variant=_find_variant(record, capacity, load))
        axis = f"clients=1..{clients}"
        # At a rate, more clients do no more.
        said = write_command(asked, Command.SWEEP, axis, without=("clients", "threads", "rate"))
    return f"`{said}`" if said else f"A sweep over clients, 1 to {clients}"


def _find_variant(record: StudyRecord, capacity: Capacity, load: PlannedWorkload) -> Variant | None:
    """Return the variant whose capacity it is; of a sweep over clients the first, since all have one server."""
    experiment = record.plan.experiment
    if experiment is None:
        return None
    if capacity.workload == load.name:
        return experiment.reference if is_client_sweep(experiment) else None
    return experiment.find_variant(capacity.workload.removeprefix(f"{load.name}, "))


def _format_bound(bound: Bound) -> str:
    """Format a bound: `CPUs: 2 CPUs allow 1,000 TPS [880 – 1,140], 96 % used`."""
    used = f"{format_share(bound.used.value)} used, n = {bound.tps.n}"
    if is_too_wide(bound.tps):
        return f"{bound.kind.value}: {bound.how}, {used}"
    ends = f" [{_format_number(bound.tps.low)} – {_format_number(bound.tps.high)}]" if bound.tps.low is not None else ""
    return f"{bound.kind.value}: {_format_number(bound.tps.value)} TPS{ends} at most ({bound.how}), {used}"


def _change(gain: Estimate) -> str:
    ends = "" if gain.low is None or gain.high is None else f" [{gain.low * 100:+.0f}, {gain.high * 100:+.0f}]"
    return f"{(gain.value or 0.0) * 100:+.0f} %{ends}"


def _format_number(value: float | None) -> str:
    return "?" if value is None else f"{float(f'{value:.3g}'):,.10g}"
