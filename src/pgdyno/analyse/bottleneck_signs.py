"""What a trial shows of each resource beside its clients' time: the witnesses that `bottleneck` asks.

Utilisation, queues, device times and counters, each only where it was seen; what was not is said in `absent`. A witness
that says nothing is None, never a 0.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pgdyno.analyse.bottleneck_thresholds import THRESHOLDS
from pgdyno.analyse.disk_join import UseKind
from pgdyno.analyse.time_share import Resource, TransactionTime
from pgdyno.analyse.types import ChartKind, Series, TrialAnalysis
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.types import StudyRecord
from pgdyno.spec.study import BUILTIN_SCRIPTS

_WRITING_SCRIPTS = frozenset({"tpcb-like"})


class Signs(msgspec.Struct, kw_only=True):
    """What was seen of a trial beside its clients' time."""

    load: PlannedWorkload
    scale: int
    tps: float | None
    time: TransactionTime | None
    shares: dict[str, float | None]
    throttled_ratio: float | None
    """Mean share of the quota's periods in which it ran out."""
    writing_ratio: float | None
    """Share of the load in which checkpoints wrote."""
    written_to_wal: float | None
    """Bytes that the device wrote over those of WAL."""
    reading: float | None
    """Mean number of reads that the device had under way."""
    server_flushing_ratio: float | None
    """Share of the load in which the server flushed WAL, by its own clock."""
    device_flushing_ratio: float | None
    """Likewise the device, for whomever."""
    read_ms: float | None
    """Of a transaction, by the server's own clock."""
    flush_use_ratio: float | None
    """TPS over what the disk's card allows so many clients that wait for flushes."""
    images_count: float | None
    """Full-page images of a transaction."""
    busy_ratio: float | None
    """Of the device."""
    absent: list[str]

    @property
    def kept_schedule(self) -> str | None:
        """That a scheduled rate was kept, which then is all that limits it."""
        rate, tps = self.load.rate_tps, self.tps
        if rate is None or tps is None or tps < THRESHOLDS.kept_rate_ratio * rate:
            return None
        return f"{tps:,.0f} TPS of a scheduled {rate:,.0f}: the clients' schedule is kept, and nothing else limits it"

    @property
    def full_cpu(self) -> str | None:
        """Why the CPUs are full of this load, where the backends' own waits for them were not counted."""
        busy, others = self.shares.get("cpu_busy_ratio"), self.shares.get("cpu_others_ratio") or 0.0
        counted = self.time is not None and self.time.queueing_ratio is not None
        if busy is None or busy < THRESHOLDS.full_cpu_ratio or others >= THRESHOLDS.others_ratio:
            return None
        # Where they were, the shares have it already, unless all CPUs are the load's own.
        if counted and busy - others < THRESHOLDS.full_cpu_ratio:
            return None
        return f"all CPUs {percent(busy)} busy, so that no more clients bring more TPS"

    @property
    def is_generator_full(self) -> bool:
        """Whether pgbench's busiest thread has no time left."""
        return self.full_generator is not None

    @property
    def full_generator(self) -> str | None:
        """Why pgbench has no time left."""
        ratio = self.generator_ratio
        if ratio is None or ratio < THRESHOLDS.full_thread_ratio:
            return None
        return f"pgbench's busiest thread had a CPU or waited for one {percent(ratio)} of the time"

    @property
    def generator_ratio(self) -> float | None:
        """Of pgbench's busiest thread, having a CPU or waiting for one; having one, where no more was seen."""
        counted = None if self.time is None else self.time.generator_ratio
        return self.shares.get("load_generator_thread_ratio") if counted is None else counted

    @property
    def cannot_think(self) -> bool:
        """Whether clients ask on at once, and it was seen how long pgbench needs for it."""
        counted = self.time is not None and self.time.generator_ratio is not None
        return counted and all(name in BUILTIN_SCRIPTS for name, _ in self.load.scripts)

    @property
    def has_few_branches(self) -> bool:
        """Whether clients must meet at the same rows."""
        return self.scale < self.load.clients and any(name in _WRITING_SCRIPTS for name, _ in self.load.scripts)

    @property
    def has_chance_locks(self) -> bool:
        """Whether rows are drawn from so many that clients meet only by chance."""
        return self.scale >= self.load.clients and all(name in BUILTIN_SCRIPTS for name, _ in self.load.scripts)

    @property
    def flushes_behind_writes(self) -> str | None:
        """Why flushes of WAL wait behind pages of data."""
        written = self.written_to_wal
        if written is None or written < THRESHOLDS.written_to_wal_ratio:
            return None
        if (self.writing_ratio or 0.0) >= THRESHOLDS.writing_ratio:
            images = "" if not self.images_count else f", {self.images_count:.2g} full-page images a transaction"
            return (
                f"checkpoints wrote {percent(self.writing_ratio or 0.0)} of the time{images}; "
                f"the disk wrote {written:.2g} bytes for each of WAL"
            )
        if (self.busy_ratio or 0.0) >= THRESHOLDS.busy_device_ratio:
            return f"the disk was {percent(self.busy_ratio or 0.0)} busy and wrote {written:.2g} bytes for each of WAL"
        return None

    def support(self, resource: Resource) -> tuple[str, ...]:
        """What else says that it is this resource, each from a source of its own."""
        return tuple(_SUPPORT[resource](self)) if resource in _SUPPORT else ()

    def contradict(self, resource: Resource) -> str | None:
        """What speaks against a resource that has the largest share."""
        if resource is Resource.CLIENT and (self.generator_ratio or 0.0) > THRESHOLDS.idle_thread_ratio:
            return f"pgbench's busiest thread was {percent(self.generator_ratio or 0.0)} busy"
        return None

    def against(self, resource: Resource, ratio: float) -> str:
        """What speaks against a resource that has not the largest share."""
        small = f"only {percent(ratio)} of the clients' time"
        queueing = None if self.time is None else self.time.queueing_ratio
        if resource is Resource.CPU and queueing is not None:
            return f"{small}; backends that could run had no CPU {percent(queueing)} of that time"
        if resource is Resource.WAL_FLUSH and self.flush_use_ratio is not None:
            return f"{small}; {percent(self.flush_use_ratio)} of the TPS that the disk's flushes allow"
        if resource is Resource.LOAD_GENERATOR and self.generator_ratio is not None:
            return f"{small}; pgbench's busiest thread was busy {percent(self.generator_ratio)} of the time"
        return small


def read_signs(record: StudyRecord, load: PlannedWorkload, trial: TrialAnalysis) -> Signs:
    """What a trial shows beside its clients' time."""
    iops, await_ms = _mean(trial, ChartKind.DISK_IOPS, "reads"), _mean(trial, ChartKind.DISK_LATENCY, "read")
    written, wal = _mean(trial, ChartKind.DISK_THROUGHPUT, "written"), _mean(trial, ChartKind.WAL, "WAL")
    flushes = None if trial.disk is None else trial.disk.find(UseKind.FLUSHES)
    return Signs(
        load=load,
        scale=_find_scale(record, trial),
        tps=trial.tps,
        time=trial.time,
        shares=trial.shares,
        throttled_ratio=_mean(trial, ChartKind.CPU_QUOTA, "throttled"),
        writing_ratio=_find_writing_ratio(trial),
        written_to_wal=None if written is None or not wal else written / wal,
        reading=_multiply(iops, await_ms),
        server_flushing_ratio=_multiply(trial.counts_per_transaction.get("wal_sync_ms"), trial.tps),
        device_flushing_ratio=_multiply(
            _mean(trial, ChartKind.DISK_IOPS, "flushes"), _mean(trial, ChartKind.DISK_LATENCY, "flush")
        ),
        read_ms=trial.counts_per_transaction.get("blk_read_ms"),
        flush_use_ratio=None if flushes is None else flushes.ratio,
        images_count=trial.counts_per_transaction.get("wal_fpi_count"),
        busy_ratio=trial.shares.get("disk_util_ratio"),
        absent=list(_list_absent(trial)),
    )


def percent(ratio: float) -> str:
    """A share, to whole percents."""
    return f"{ratio * 100:.0f} %"


def _find_scale(record: StudyRecord, trial: TrialAnalysis) -> int:
    """Of a trial's data: its variant's own, or the study's."""
    experiment, arms = record.plan.experiment, trial.record.planned.arms
    own = None if experiment is None or len(arms) != 1 else experiment.find_arm(arms[0]).scale
    return record.plan.scale if own is None else own


def _list_absent(trial: TrialAnalysis) -> Iterator[str]:
    if trial.time is not None:
        yield from (f"{what}: {why}" for what, why in trial.time.absent.items())
    if trial.shares.get("cpu_busy_ratio") is None:
        yield "how busy the CPUs were"
    if trial.shares.get("disk_util_ratio") is None:
        yield "what the data's disk did"
    if trial.disk is None:
        yield "what the data's disk can do: there is no card of it"


def _multiply(per_s: float | None, each_ms: float | None) -> float | None:
    """How many are under way at a time, by Little's law."""
    return None if per_s is None or each_ms is None else per_s * each_ms / 1000.0


def _find_writing_ratio(trial: TrialAnalysis) -> float | None:
    start_s, end_s = trial.record.load_start_monotonic_s, trial.record.load_end_monotonic_s
    if start_s is None or end_s is None or end_s <= start_s:
        return None
    length_s = end_s - start_s
    written_s = sum(
        min(length_s, length_s if event.until_s is None else event.until_s) - max(0.0, event.t_s)
        for event in trial.events
        if event.kind == "checkpoint"
    )
    return min(1.0, written_s / length_s)


def _mean(trial: TrialAnalysis, kind: ChartKind, label: str) -> float | None:
    line: Series | None = next((line for line in trial.charts.get(kind, ()) if line.label == label), None)
    values = [] if line is None else [value for value in line.values if value is not None]
    return sum(values) / len(values) if values else None


def _support_cpu(signs: Signs) -> Iterator[str]:
    time = signs.time
    if signs.throttled_ratio is not None and signs.throttled_ratio >= THRESHOLDS.throttled_ratio:
        yield f"the control group's CPU quota ran out in {percent(signs.throttled_ratio)} of its periods"
    if time is not None and time.queueing_ratio is not None and time.queueing_ratio >= THRESHOLDS.queueing_ratio:
        yield f"backends that could run had no CPU {percent(time.queueing_ratio)} of that time"
    if time is not None and time.running_ms is not None:
        yield f"the kernel counted {time.running_ms:.3g} ms of CPU time of the server's backends in a transaction"
    busy, others = signs.shares.get("cpu_busy_ratio"), signs.shares.get("cpu_others_ratio")
    if busy is not None and others is not None and others >= THRESHOLDS.mentioned_ratio:
        yield f"the CPUs were {percent(busy)} busy, of which {percent(others)} with programs that are no part of the study"


def _support_flush(signs: Signs) -> Iterator[str]:
    for who, ratio in (("server", signs.server_flushing_ratio), ("disk", signs.device_flushing_ratio)):
        if ratio is not None and ratio >= THRESHOLDS.flushing_ratio:
            yield f"a flush was under way {percent(min(1.0, ratio))} of the time, by the {who}'s own clock"
    if signs.flush_use_ratio is not None:
        yield f"{percent(signs.flush_use_ratio)} of the TPS that the disk's flushes allow, by its card"


def _support_reads(signs: Signs) -> Iterator[str]:
    share = None if signs.time is None else signs.time.find(Resource.DATA_READ)
    if share is None:
        return
    waiting = share.ratio * signs.load.clients
    if signs.reading is not None and _agree(signs.reading, waiting):
        yield f"the device had {signs.reading:.2g} reads under way while {waiting:.2g} backends waited for one"
    if signs.read_ms is not None and _agree(signs.read_ms, share.ms):
        yield f"reads took {signs.read_ms:.3g} ms of a transaction by the server's own clock"


def _agree(one: float, other: float) -> bool:
    return one > 0.0 and max(one / other, other / one) <= THRESHOLDS.agreeing_factor


def _support_writes(signs: Signs) -> Iterator[str]:
    if signs.busy_ratio is not None and signs.busy_ratio >= THRESHOLDS.busy_device_ratio:
        yield f"the data's disk had a request under way {percent(signs.busy_ratio)} of the time"


def _support_locks(signs: Signs) -> Iterator[str]:
    if signs.has_few_branches:
        branches = "one branch" if signs.scale == 1 else f"{signs.scale} branches"
        yield f"{signs.load.clients} clients update the rows of {branches}"


def _support_generator(signs: Signs) -> Iterator[str]:
    if signs.full_generator is not None:
        yield signs.full_generator


def _support_client(signs: Signs) -> Iterator[str]:
    ratio = signs.generator_ratio
    if ratio is not None and ratio <= THRESHOLDS.idle_thread_ratio:
        yield f"pgbench's busiest thread had time left: busy {percent(ratio)} of it"


_SUPPORT = {
    Resource.CPU: _support_cpu,
    Resource.WAL_FLUSH: _support_flush,
    Resource.DATA_READ: _support_reads,
    Resource.DATA_WRITE: _support_writes,
    Resource.LOCK: _support_locks,
    Resource.LOAD_GENERATOR: _support_generator,
    Resource.CLIENT: _support_client,
}
