"""Define the signs of each resource that a trial shows beside its clients' time, for `diagnosis`; `sign_reading` reads them.

Signs are utilisation, queues, device times and counters, each only where it was observed; what is missing is listed in
`absent`. A missing sign is None, never 0. `evidence_rules` decides what a sign says for or against a resource.
"""

from __future__ import annotations

import msgspec

from pgdyno.analyse.poolers import PoolerFigures
from pgdyno.analyse.standbys import StandbyFigures
from pgdyno.analyse.thresholds import THRESHOLDS
from pgdyno.analyse.transaction_time.shares import TransactionTime
from pgdyno.analyse.types import GeneratorFigures
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.samples.os_series import share_of_left
from pgdyno.spec.study import BUILTIN_SCRIPTS
from pgdyno.units import format_cpus, format_share

_WRITING_SCRIPTS = frozenset({"tpcb-like"})


class Signs(msgspec.Struct, kw_only=True):
    """The signs of a trial beside its clients' time."""

    load: PlannedWorkload
    scale: int
    time: TransactionTime | None
    shares: dict[str, float | None]
    usable_cpu_count: float | None
    """None if nobody saw the server's machine: then full CPUs may be behind any wait."""
    cpus_seen_count: int | None
    """CPUs that the shares refer to; more than the usable ones if they were not told apart."""
    throttled_ratio: float | None
    """Mean share of the quota's periods in which it ran out."""
    writing_ratio: float | None
    """Share of the load in which checkpoints wrote."""
    pages_to_wal: float | None
    """Bytes of data that PostgreSQL wrote over those of WAL."""
    reading: float | None
    """Mean number of reads under way at the device."""
    server_flushing_ratio: float | None
    """Share of the load during which the server flushed WAL, by its own clock."""
    device_flushing_ratio: float | None
    """Share of the load during which the device flushed, for any program."""
    read_ms: float | None
    """Read time per transaction, by the server's own clock."""
    flush_use_ratio: float | None
    """TPS over the TPS that the disk card allows this many clients that wait for flushes."""
    images_count: float | None
    """Full-page images per transaction."""
    busy_ratio: float | None
    """Utilisation of the device."""
    absent: list[str]
    standbys: StandbyFigures | None = None
    """What was seen of the standbys; None without any."""
    pooler: PoolerFigures | None = None
    """What was seen of the load's pooler; None without one."""
    may_sleep: bool = False
    """True if a script of the load has `\\sleep`: its clients then wait for themselves."""
    round_trip_ms: float | None = None
    """Time of an empty statement to a given server and back, before the load."""
    generators: tuple[GeneratorFigures, ...] = ()
    """What each load host did; none if the load came from the machine that pgdyno ran on."""
    waits_for_flushes: bool = True
    """False if fsync or synchronous_commit is off: then backends wait for WAL to be written only, as wal_buffers are full."""
    has_wal_apart: bool = False
    """True if pg_wal is known to lie on a disk without data."""

    @property
    def has_cpu_wait_counts(self) -> bool:
        """True if the kernel counted how long backends waited for a CPU."""
        return self.time is not None and self.time.queueing_ratio is not None

    @property
    def own_cpu_ratio(self) -> float | None:
        """The load's own share of the CPUs that it may use."""
        busy, others = self.shares.get("cpu_busy_ratio"), self.shares.get("cpu_others_ratio")
        if busy is None or others is None or self.usable_cpu_count is None:
            return None
        seen = self.cpus_seen_count if self.is_cpu_subset and self.cpus_seen_count else self.usable_cpu_count
        return (busy - others - self.emulation_ratio) * seen / self.usable_cpu_count

    @property
    def others_ratio(self) -> float | None:
        """Other programs' share of the CPUs that the load may use; None if it was not told apart."""
        return None if self.is_cpu_subset else self.shares.get("cpu_others_ratio")

    @property
    def emulation_ratio(self) -> float:
        """Share of the CPUs' time that an emulation's own threads used; 0 of a real machine."""
        return self.shares.get("cpu_emulation_ratio") or 0.0

    @property
    def stolen_ratio(self) -> float:
        """Share of the CPUs' time that the hypervisor gave to other guests; 0 if the load may use only some of them."""
        return 0.0 if self.is_cpu_subset else self.shares.get("cpu_steal_ratio") or 0.0

    @property
    def cpu_use_ratio(self) -> float | None:
        """Busy share of the time that the hypervisor left the CPUs; None if it was not sampled."""
        busy = self.shares.get("cpu_busy_ratio")
        return None if busy is None else share_of_left(busy, self.stolen_ratio)

    @property
    def cpu_use(self) -> str:
        """How busy the CPUs were, in words, such as `90 % busy and 10 % stolen by the hypervisor`."""
        busy = self.shares.get("cpu_busy_ratio") or 0.0
        is_full = busy >= THRESHOLDS.full_cpu_ratio
        beside = "" if is_full else f" and {format_share(self.stolen_ratio)} stolen by the hypervisor"
        return f"{format_share(busy)} busy{beside}"

    @property
    def is_cpu_subset(self) -> bool:
        """True if the load may use only some of the observed CPUs: what others used of these is then unknown."""
        seen, usable = self.cpus_seen_count, self.usable_cpu_count
        return seen is not None and usable is not None and usable < seen

    @property
    def saturated_cpu(self) -> str | None:
        """Why the CPUs are full of this load, whatever its backends seem to wait for; None if they are not."""
        busy, others, own = self.cpu_use_ratio, self.shares.get("cpu_others_ratio"), self.own_cpu_ratio
        if busy is None or others is None or own is None or self.usable_cpu_count is None:
            return None
        if self.is_cpu_subset:
            least, cpus = THRESHOLDS.full_own_ratio, format_cpus(self.usable_cpu_count)
            return (
                f"the load itself used {format_share(own)} of its {cpus}, which is all of it" if own >= least else None
            )
        # If waits for a CPU were counted, the shares contain them already, unless the load itself fills all CPUs.
        own = share_of_left(own, self.stolen_ratio)
        is_own = own >= THRESHOLDS.full_own_ratio if self.has_cpu_wait_counts else others < THRESHOLDS.others_ratio
        is_full = busy >= THRESHOLDS.full_cpu_ratio and is_own
        return f"all CPUs {self.cpu_use}, so that no more clients bring more TPS" if is_full else None

    @property
    def ambiguous_cpu(self) -> str | None:
        """Why any wait may be a queue for the CPUs: they are full, not of this load alone, and waits for them were not counted."""
        busy, others = self.cpu_use_ratio, self.shares.get("cpu_others_ratio")
        if (
            busy is None
            or busy < THRESHOLDS.full_cpu_ratio
            or self.has_cpu_wait_counts
            or self.saturated_cpu is not None
        ):
            return None
        whose = (
            "it is not known with what"
            if others is None
            else f"{format_share(others)} with programs that are no part of the study"
        )
        return f"all CPUs {self.cpu_use}, {whose}, and how long backends waited for one was not counted"

    @property
    def saturated_generator(self) -> str | None:
        """Why pgbench has no time left in its busiest thread; None if it has."""
        ratio = self.generator_ratio
        if ratio is None:
            return None
        if ratio < THRESHOLDS.full_thread_ratio:
            # A thread that is held back is not busy all the time, and yet does all that it can.
            full = self.full_generator
            is_sure = full is not None and (full.sent_ratio or 0.0) >= THRESHOLDS.sure_generator_ratio
            return self.generator_use if is_sure and ratio >= THRESHOLDS.idle_thread_ratio else None
        if (busiest := self.busiest_generator) is not None:
            return f"pgbench's busiest thread on {busiest.host} had a CPU or waited for one {format_share(ratio)} of the time"
        return f"pgbench's busiest thread had a CPU or waited for one {format_share(ratio)} of the time"

    @property
    def busiest_generator(self) -> GeneratorFigures | None:
        """The load host with pgbench's busiest thread; None if the load came from the machine that pgdyno ran on."""
        return max(self.generators, key=lambda one: one.thread_ratio or 0.0, default=None)

    @property
    def full_generator(self) -> GeneratorFigures | None:
        """The load host that sent the most of what it can send; None if each can send much more than it did."""
        sent = [one for one in self.generators if (one.sent_ratio or 0.0) >= THRESHOLDS.full_generator_ratio]
        return max(sent, key=lambda one: one.sent_ratio or 0.0, default=None)

    @property
    def generator_use(self) -> str | None:
        """What the load host that sent the most of what it can send did, in words; None if each can send much more."""
        full = self.full_generator
        if full is None:
            return None
        share = format_share(full.sent_ratio or 0.0)
        return (
            f"{full.host} sent {full.sent_per_s or 0.0:,.0f} statements a second, {share} of the"
            f" {full.empty_per_s or 0.0:,.0f} empty ones that it can send"
        )

    @property
    def generator_room(self) -> str | None:
        """What load hosts can send beside what they sent, in words; None if that is not known of one of them."""
        if not self.generators or any(one.sent_ratio is None for one in self.generators):
            return None
        return "; ".join(
            f"{one.host} can send {one.empty_per_s or 0.0:,.0f} empty statements a second, and sent {one.sent_per_s or 0.0:,.0f}"
            for one in self.generators
        )

    @property
    def saturated_pooler(self) -> str | None:
        """Why the pooler's thread has no time left; None if it has, or is only as short of CPUs as all others."""
        ratio = None if self.time is None else self.time.pooler_ratio
        thread = None if self.pooler is None else self.pooler.thread
        if ratio is None or thread is None or ratio < THRESHOLDS.full_thread_ratio:
            return None
        return (
            f"the pooler's thread had a CPU {format_share(thread.running_ratio)} of the time, and waited for one"
            f" {format_share(thread.waiting_ratio)}"
        )

    @property
    def is_cpu_short(self) -> bool:
        """True if backends queue for the CPUs, so that more of them at a time would do no more."""
        queueing = None if self.time is None else self.time.queueing_ratio
        return self.saturated_cpu is not None or (queueing or 0.0) >= THRESHOLDS.queueing_ratio

    @property
    def idle_cpus(self) -> str | None:
        """Why there are CPUs for more clients; None if there are too few, or backends queue for one, or that was not observed."""
        busy = self.own_cpu_ratio if self.is_cpu_subset else self.cpu_use_ratio
        if busy is None or self.usable_cpu_count is None or not self.has_cpu_wait_counts or self.is_cpu_short:
            return None
        if busy >= THRESHOLDS.idle_cpu_ratio or (self.throttled_ratio or 0.0) >= THRESHOLDS.throttled_ratio:
            return None
        whose = f" with this load, which may use {format_cpus(self.usable_cpu_count)}" if self.is_cpu_subset else ""
        return f"the CPUs were {format_share(busy)} busy{whose}: each client waits for one of them at a time"

    @property
    def generator_ratio(self) -> float | None:
        """Share of time that pgbench's busiest thread had a CPU or waited for one; only had one, if waits were not counted."""
        counted = None if self.time is None else self.time.generator_ratio
        return self.shares.get("load_generator_thread_ratio") if counted is None else counted

    @property
    def has_no_think_time(self) -> bool:
        """True if the clients have no think time, and pgbench's own time was counted."""
        counted = self.time is not None and self.time.generator_ratio is not None
        return counted and all(name in BUILTIN_SCRIPTS for name, _ in self.load.scripts)

    @property
    def has_few_branches(self) -> bool:
        """True if there are more clients than branches, so that they must meet at the same rows."""
        is_writing = any(name in _WRITING_SCRIPTS for name, _ in self.load.scripts)
        return is_writing and self.scale < self.load.writing_clients

    @property
    def has_chance_locks(self) -> bool:
        """True if clients update rows, of which there are so many that they meet at one only by chance."""
        is_builtin = all(name in BUILTIN_SCRIPTS for name, _ in self.load.scripts)
        return is_builtin and self.load.writing_clients > 0 and self.scale >= self.load.clients

    @property
    def flushes_behind_writes(self) -> str | None:
        """Why WAL flushes may wait behind pages of data; None on a disk without data, or if its card explains them."""
        pages, writing = self.pages_to_wal, self.writing_ratio
        if self.has_wal_apart or pages is None or pages < THRESHOLDS.pages_to_wal_ratio:
            return None
        if writing is None or writing < THRESHOLDS.writing_ratio:
            return None
        if self.flush_use_ratio is not None and self.flush_use_ratio >= THRESHOLDS.flushing_ratio:
            return None
        images = "" if not self.images_count else f", {self.images_count:.2g} full-page images a transaction"
        return (
            f"checkpoints wrote {format_share(writing)} of the time{images}; "
            f"PostgreSQL wrote {pages:.2g} bytes of data for each of WAL"
        )
