"""Explain what limits each load: the claim, its evidence, other possible causes, an experiment to confirm it, the gain.

A gain is an upper bound, from the share of time and from the unused CPUs: what TPS could be if the resource were free,
not what a change will bring. If no claim is possible, the finding says what is missing.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

import msgspec

from pgdyno.analyse.bottleneck.sign_reading import read_signs
from pgdyno.analyse.bottleneck.signs import Signs
from pgdyno.analyse.comparison.verdict import VerdictKind
from pgdyno.analyse.series import ChartKind
from pgdyno.analyse.statements import EXECUTION, rank_statements
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.thresholds import THRESHOLDS
from pgdyno.analyse.transaction_time.shares import ONE_CPU, WRITING_WAL, Bottleneck, Certainty, Resource
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.explain import network
from pgdyno.explain.commands import find_variant, is_confirmable
from pgdyno.explain.finding import Finding, Rival, Severity
from pgdyno.explain.intervention import Intervention, choose_intervention
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.types import StudyRecord
from pgdyno.units import with_capital

LIMITS = "limits"
"""The rule of findings on what limits a load: one for each load, which a first page shows before all others."""
# A larger bound would only say that nearly all of the time goes there.
_MAX_GAIN = 9.0
_NOUNS: Mapping[Resource, str] = {
    Resource.CPU: "the CPUs",
    Resource.WAL_FLUSH: "waiting for WAL to be durable",
    Resource.WAL_LOCK: "WAL insertion",
    Resource.DATA_READ: "reading data",
    Resource.DATA_WRITE: "writing data, as checkpoints do,",
    Resource.TEMP_FILE: "temporary files",
    Resource.STANDBY: "the synchronous standby",
    Resource.LOCK: "contention for rows and locks",
    Resource.LIGHTWEIGHT_LOCK: "contention for lightweight locks",
    Resource.POOL: "the number of the pool's server connections",
    Resource.POOLER: "the pooler",
    Resource.NETWORK: "the network",
    Resource.CLIENT: "the client",
    Resource.LOAD_GENERATOR: "pgbench itself",
}
_OF_MACHINE = frozenset({Resource.CPU, Resource.WAL_FLUSH, Resource.DATA_READ, Resource.DATA_WRITE, Resource.TEMP_FILE})
_PLURAL = frozenset({Resource.CPU, Resource.TEMP_FILE})
_ADVICE: Mapping[Resource, str] = {
    Resource.CPU: "More or faster CPUs, or less work in a transaction: prepared statements, fewer round trips.",
    Resource.WAL_FLUSH: "A disk with quicker flushes, or more clients that share each of them.",
    Resource.WAL_LOCK: "Fewer clients at a time through a pool, or less WAL in a transaction.",
    Resource.DATA_READ: "More memory for the data, or a disk that reads sooner.",
    Resource.DATA_WRITE: "A larger max_wal_size, so that checkpoints come less often, or a disk that writes more.",
    Resource.TEMP_FILE: "A larger work_mem, as far as memory holds it for all sessions, so that sorts and hashes need no files.",
    Resource.STANDBY: "A quicker standby or way to it, or a synchronous_commit that waits for less of it.",
    Resource.LOCK: "Spread the rows that all clients update; for pgbench, a scale above the clients.",
    Resource.LIGHTWEIGHT_LOCK: "Fewer clients at a time through a pool; the wait events name the lock.",
    Resource.POOL: "A larger pool, as far as the server's CPUs and disk have room for more transactions at a time.",
    Resource.POOLER: "A second PgBouncer at the same port (so_reuseport), a pooler with several threads, or no pooler in between.",
    Resource.NETWORK: network.ADVICE,
    Resource.CLIENT: "The server has time left: more clients, or clients that ask sooner.",
    Resource.LOAD_GENERATOR: "Give pgbench more --threads or a machine of its own: this is no limit of the server.",
}
# What a statement's time or pages stand for. A commit's flush is not in the execution of any statement.
_DIVIDED: Mapping[Resource, tuple[str, tuple[str, ...]]] = {
    Resource.CPU: ("execution time", EXECUTION),
    Resource.LOCK: ("execution time", EXECUTION),
    Resource.LIGHTWEIGHT_LOCK: ("execution time", EXECUTION),
    Resource.DATA_READ: ("the pages read", ("read_pages",)),
    Resource.TEMP_FILE: ("the pages of temporary files", ("temp_read_pages", "temp_written_pages")),
}
_PART_ADVICE: Mapping[str, str] = {
    ONE_CPU: "More clients, where there is work for them, or faster CPUs, not more of them; or less work in a transaction:"
    " prepared statements, fewer round trips.",
    WRITING_WAL: "Larger wal_buffers, a disk that writes more, or less WAL in a transaction; no commit waits for a flush here.",
}
_QUERY_WIDTH = 100
_CHARTS: Mapping[Resource, tuple[ChartKind, ...]] = {
    Resource.CPU: (ChartKind.CPU, ChartKind.RUN_QUEUE, ChartKind.CPU_QUOTA),
    Resource.WAL_FLUSH: (ChartKind.WAITS, ChartKind.DISK_LATENCY),
    Resource.WAL_LOCK: (ChartKind.WAITS, ChartKind.WAL),
    Resource.DATA_READ: (ChartKind.WAITS, ChartKind.DISK_IOPS, ChartKind.DISK_LATENCY, ChartKind.CACHE_HITS),
    Resource.DATA_WRITE: (ChartKind.BUFFER_WRITES, ChartKind.DISK_THROUGHPUT, ChartKind.DIRTY_MEMORY),
    Resource.TEMP_FILE: (ChartKind.WAITS, ChartKind.DISK_THROUGHPUT),
    Resource.STANDBY: (ChartKind.WAITS,),
    Resource.LOCK: (ChartKind.WAITS,),
    Resource.LIGHTWEIGHT_LOCK: (ChartKind.WAITS,),
    Resource.POOL: (ChartKind.WAITS, ChartKind.CPU),
    Resource.POOLER: (ChartKind.WAITS, ChartKind.CPU),
    Resource.NETWORK: (ChartKind.WAITS,),
    Resource.CLIENT: (ChartKind.WAITS, ChartKind.CPU),
    Resource.LOAD_GENERATOR: (ChartKind.CPU, ChartKind.WAITS),
    Resource.UNKNOWN: (ChartKind.WAITS,),
}
_EXPECTED: Mapping[VerdictKind, str] = {
    VerdictKind.FASTER: "faster",
    VerdictKind.SLOWER: "slower",
    VerdictKind.EQUIVALENT: "as fast",
}


class _Gain(msgspec.Struct, frozen=True, kw_only=True):
    """The largest possible growth of TPS, as a ratio minus one."""

    value: float
    low: float | None
    high: float | None
    held_by: str = ""
    """The next limit; empty if no other limit was observed."""
    were: str = "if it took no time"


def find_bottlenecks(record: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    """Yield a finding for each load that has a finished trial."""
    for workload in analysis.workloads:
        if workload.bottleneck is not None:
            yield _explain(record, workload, workload.bottleneck)


def _explain(record: StudyRecord, workload: WorkloadAnalysis, found: Bottleneck) -> Finding:
    trial = workload.limit_trial
    intervention = choose_intervention(
        found,
        record,
        load=workload.load,
        variant=None if trial is None else find_variant(record, trial.record.planned.variants),
        shown=None if trial is None else trial.record.values,
    )
    signs = None if trial is None else read_signs(record, workload.load, trial)
    # Where CPUs are idle, other programs take none from the load.
    others_ratio = None if signs is None or found.is_of_one_cpu else signs.others_ratio
    gain = None if signs is None or found.share is None else _bound_gain(found, signs)
    charts = {} if trial is None else trial.charts
    return Finding(
        severity=Severity.NOTE,
        rule=LIMITS,
        claim=_claim(found, _name_place(found.resource, record)),
        evidence="; ".join((*found.evidence, *_name_statement(workload, found), *_describe_absent(found)))
        or "Where its time goes was not observed",
        advice=_advise(found, workload.load, others_ratio),
        workload=workload.name,
        why=" ".join(f"Not a cause but an effect: {symptom}." for symptom in found.symptoms),
        rivals=tuple(
            _list_rivals(found, signs, others_ratio, _name_place(found.resource, record) or " on this machine")
        ),
        confirm="" if intervention is None or found.certainty is Certainty.PROVEN else _confirm(intervention, record),
        gain="" if gain is None else _describe_gain(gain),
        gain_ratio=None if gain is None else gain.value,
        certainty=found.certainty,
        shows=tuple(kind for kind in _CHARTS[found.resource] if kind in charts),
        trial=None if trial is None else trial.record.planned.number,
    )


def _name_place(resource: Resource, record: StudyRecord) -> str:
    """Name the machine that a limit is on, where server and load have one each; empty where one machine has both."""
    server, load = record.server_host, record.load_host
    if record.load_hosts and resource is Resource.LOAD_GENERATOR:
        # The diagnosis names it.
        return ""
    if record.load_hosts and record.given is None:
        named, host = record.study.server_host, record.host
        name = _choose_name(named[0], named[1].ssh, record) if named is not None else host and host.host_name
        return f" on {name}" if name is not None and resource in _OF_MACHINE else ""
    if server is None or (server.is_load_host and not record.load_hosts):
        return ""
    if resource is Resource.LOAD_GENERATOR:
        return "" if load is None or load.host_name is None else f" on {load.host_name}"
    return f" on {_choose_name(server.name, server.ssh, record)}" if resource in _OF_MACHINE else ""


def _choose_name(name: str, ssh: str, record: StudyRecord) -> str:
    # A machine that is a load host, too, may have two names in a study; ssh has one for it.
    return ssh if any(host.ssh == ssh for host in record.load_hosts) else name


def _claim(found: Bottleneck, place: str) -> str:
    noun = found.part or _NOUNS.get(found.resource)
    if noun is None:
        return "What limits this load is not known."
    probably = " probably" if found.certainty is Certainty.LIKELY else ""
    limits = "limit" if found.resource in _PLURAL and not found.part else "limits"
    return f"{with_capital(noun)}{place}{probably} {limits} this load."


def _name_statement(workload: WorkloadAnalysis, found: Bottleneck) -> Iterator[str]:
    """Name the statement that takes the most of what limits the load, if that happens while statements execute."""
    if found.resource not in _DIVIDED:
        return
    work, counters = _DIVIDED[found.resource]
    for use in rank_statements(workload.trials, divided=counters)[:1]:
        share, bounds = use.share, ""
        if share.low is not None and share.high is not None:
            bounds = f" ({share.low * 100:.0f} to {share.high * 100:.0f} %, n = {share.n})"
        query = textwrap.shorten(use.query or "", _QUERY_WIDTH, placeholder=" …")
        yield f"{(share.value or 0.0) * 100:.0f} %{bounds} of {work} by pg_stat_statements: `{query}`"


def _describe_absent(found: Bottleneck) -> Iterator[str]:
    if found.absent and found.certainty in {Certainty.LIKELY, Certainty.UNKNOWN}:
        yield from (f"not observed: {what}" for what in found.absent)


def _advise(found: Bottleneck, load: PlannedWorkload, others: float | None) -> str:
    if found.resource is Resource.CLIENT and load.rate_tps is not None:
        return "A higher rate, or none, shows what the server can do."
    if _are_others_to_stop(found, others):
        return "Stop the other programs that use the CPUs, or move them elsewhere, and measure again."
    return _PART_ADVICE.get(found.part) or _ADVICE.get(found.resource, "")


def _are_others_to_stop(found: Bottleneck, others: float | None) -> bool:
    is_short = found.resource is Resource.CPU and not found.is_of_one_cpu
    return is_short and others is not None and others >= THRESHOLDS.others_stopped_ratio


def _list_rivals(found: Bottleneck, signs: Signs | None, others: float | None, place: str) -> Iterator[Rival]:
    for resource, against in found.rivals:
        is_writing = resource is Resource.WAL_FLUSH and signs is not None and not signs.waits_for_flushes
        yield Rival(cause=WRITING_WAL if is_writing else _NOUNS[resource].rstrip(","), against=against)
    if found.resource is Resource.CPU and others is not None and others >= THRESHOLDS.others_mentioned_ratio:
        against = f"they used {others * 100:.0f} % of the CPUs; stop them and measure again"
        yield Rival(cause=f"other programs{place}", against=against)


def _bound_gain(found: Bottleneck, signs: Signs) -> _Gain | None:
    """Bound the gain if the resource took no time; for CPUs of which none is idle, if no backend had to wait for one.

    More clients use the CPUs that the speed of one leaves idle.

    Source: asymptotic bounds, Lazowska et al. 1984, chapter 5.
    """
    if found.is_of_one_cpu:
        left = _cpu_left(found, signs)
        return None if left is None else _Gain(value=min(_MAX_GAIN, left), low=None, high=None, held_by="the CPUs")
    share, time = found.share, signs.time
    if share is None or time is None:
        return None
    is_queue = found.resource is Resource.CPU
    part: float | None = time.queueing_ratio if is_queue else 1.0
    if part is None:
        return None
    value = _growth_without(part * share.ratio)
    low = None if share.low_ratio is None else _growth_without(part * share.low_ratio)
    high = None if share.high_ratio is None else _growth_without(part * share.high_ratio)
    left = _cpu_left(found, signs)
    if left is not None and left < value:
        return _Gain(value=left, low=None if low is None else min(low, left), high=left, held_by="the CPUs")
    if left is not None and high is not None:
        high = min(high, left)
    if is_queue:
        return _Gain(value=value, low=low, high=high, were="if every waiting backend had a CPU")
    return _Gain(value=value, low=low, high=high)


def _growth_without(ratio: float) -> float:
    """Compute the growth of TPS if this share of the time vanished, capped where a bound stops being useful."""
    return min(_MAX_GAIN, ratio / (1.0 - ratio)) if ratio < 1.0 else _MAX_GAIN


def _cpu_left(found: Bottleneck, signs: Signs) -> float | None:
    """Compute how much the load could grow until it fills the CPUs; None where it lacks CPUs, or its use of them is not known.

    Where other programs are to be stopped, the load may take their share of the CPUs as well.
    """
    own, others = signs.own_cpu_ratio, signs.others_ratio
    is_theirs = _are_others_to_stop(found, others)
    lacks_cpus = found.resource is Resource.CPU and not (is_theirs or found.is_of_one_cpu)
    if own is None or own <= 0.0 or lacks_cpus:
        return None
    taken = signs.stolen_ratio + signs.emulation_ratio + (0.0 if is_theirs else others or 0.0)
    return max(0.0, (1.0 - taken) / own - 1.0)


def _describe_gain(gain: _Gain) -> str:
    interval = ""
    if gain.low is not None and gain.high is not None and not gain.held_by:
        interval = f" [{gain.low * 100:+.0f}, {gain.high * 100:+.0f}{' and more' if gain.high >= _MAX_GAIN else ''}]"
    beyond = " and more" if gain.value >= _MAX_GAIN else ""
    until = f", until {gain.held_by} are full" if gain.held_by else f", {gain.were}"
    return f"up to {gain.value * 100:+.0f} %{beyond} TPS{interval}{until}; expected, not measured"


def _confirm(intervention: Intervention, record: StudyRecord) -> str:
    command = intervention.command or ("pgdyno explain --confirm" if is_confirmable(record) else "")
    if not command:
        return ""
    what_if = "a what-if that gives up durability; " if intervention.is_what_if else ""
    expected = f"{intervention.varied}={intervention.levels[1]} should be {_EXPECTED[intervention.expects]}"
    return f"`{command}`: {what_if}{expected}. {intervention.why}"
