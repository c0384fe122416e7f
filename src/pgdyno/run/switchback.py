"""Alternate the settings of a comparison's variants in slices, under one load that never stops.

One thread with a connection of its own changes the settings, waits out the change, and reads the machine's counters,
all on deadlines of the monotonic clock. A `SliceSchedule` decides what runs next and when enough is known; which variant
is better is never asked here. The main thread, which watches the load, looks in four times a second.

Every slice does the same, even if its variant is the same as before: two slices of one variant then differ by chance alone.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import msgspec

from pgdyno.errors import PgdynoError, StepFailedError
from pgdyno.plan.experiment import Variant
from pgdyno.record.pgbench.output import Progress
from pgdyno.record.transactions.slices import Slice, SlicePhase, SliceWriter
from pgdyno.run.change.kernel import KernelSettings
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.timeouts import NoAnswerError
from pgdyno.run.sample.machine_counters import Counts, MachineCounters, subtract_counts
from pgdyno.run.under_test import ServerUnderTest, SettingsChanger, SettingsSwitch

LEAST_WASHOUT_S = 0.05
# Transactions that began under the old settings are to end before anything counts. In a closed loop the rest of one takes
# about the mean latency; if latencies are exponential, 5 % take longer than three means.
_WASHOUT_LATENCIES = 3.0
# A slice whose change came late is prolonged until this share of it counts.
LEAST_COUNTED_RATIO = 0.5
_REVIEW_EVERY_S = 1.0
# The load's last moment belongs to no slice: clients end one after the other.
_BEFORE_END_S = 0.25
_END_PATIENCE_S = 5.0


def choose_washout_s(latency_s: float) -> float:
    """Choose the part of a slice that does not count, from the mean latency."""
    return max(LEAST_WASHOUT_S, _WASHOUT_LATENCIES * latency_s)


class SliceRound(msgspec.Struct, frozen=True, kw_only=True):
    """Slices to run one after the other."""

    phase: SlicePhase
    variants: tuple[str, ...]
    """In the order to run them; the reference comes twice."""
    slice_s: float
    """From one change of settings to the next."""


class SliceSchedule(Protocol):
    """The rule by which slices are run."""

    def next_round(self, slices: Sequence[Slice]) -> SliceRound | None:
        """Return what to run next, given all slices so far; None ends the load.

        Switching waits for the result, so return at once.
        """
        ...

    def review(self, folder: Path, slices: Sequence[Slice]) -> None:
        """Evaluate the slices so far, about once a second, in the main thread; may take a tenth of a second.

        Args:
            folder: The trial's, with the packed transactions so far.
            slices: All so far.
        """
        ...


class Switchback:
    """One block: use it around its load, in the main thread.

    Args:
        server: The running server, with the settings of the first variant in force.
        switch: The server's switch, prepared for the variants.
        variants: All that the schedule may ask for, the reference first.
        kernel: Holds the kernel settings of the variants.
        schedule: Decides which slices run.
        folder: The trial's; the slices are written into it.
        duration_s: The longest that the load will run.
        latency_s: Mean latency of the warm-up without the wait for scheduled starts; None if there was no warm-up: the
            load's first second is used instead.
    """

    def __init__(
        self,
        *,
        server: ServerUnderTest,
        switch: SettingsSwitch,
        variants: Sequence[Variant],
        kernel: KernelSettings,
        schedule: SliceSchedule,
        folder: Path,
        duration_s: float,
        latency_s: float | None,
    ) -> None:
        self._server = server
        self._switch = switch
        self._variants = {variant.name: variant for variant in variants}
        self._reference = variants[0]
        self._kernel = kernel
        self._schedule = schedule
        self._folder = folder
        self._duration_s = duration_s
        self._latency_s = latency_s
        self._slices: list[Slice] = []
        self._reviewed_s = 0.0
        self._load_end_s = 0.0
        self._stop = threading.Event()
        self._executor = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="switchback")
        self._switching: concurrent.futures.Future[None] | None = None
        self.slice_s: float | None = None
        """Length of a slice in the last round after the pilot; None before the first."""
        self.washout_s: float | None = None
        """None before the load runs."""

    def __enter__(self) -> Self:
        for variant in self._variants.values():
            # All values are journalled before the load, in which no file is to be flushed.
            self._kernel.hold(variant.sysctl)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._switching is not None:
            # A thread that waits for a hung server is left to its own timeout, or to the server's end.
            concurrent.futures.wait([self._switching], timeout=_END_PATIENCE_S)
        self._executor.shutdown(wait=False)
        if kind is None and (failure := self.find_failure()) is not None:
            raise failure

    def note_start(self) -> None:
        """Note that the load is being started now."""
        self._load_end_s = monotonic_s() + self._duration_s - _BEFORE_END_S

    def see(self, second: Progress) -> None:
        """Take a second of the load; the first in which a transaction ended begins the switching."""
        if self._switching is not None or second.tps <= 0:
            return
        seen_ms = (second.latency_average_ms or 0.0) - (second.lag_average_ms or 0.0)
        latency_s = seen_ms / 1e3 if self._latency_s is None else self._latency_s
        self.washout_s = choose_washout_s(latency_s)
        self._switching = self._executor.submit(self._run, self.washout_s)

    def find_failure(self) -> PgdynoError | None:
        """Return the error that ended the switching, if any; raise an error that is not pgdyno's own."""
        if self._switching is None or not self._switching.done():
            return None
        error = self._switching.exception()
        if error is None or isinstance(error, PgdynoError):
            return error
        raise error

    def review_if_due(self) -> bool:
        """Let the schedule review what has come, if it is time; return whether the load is to end."""
        if monotonic_s() - self._reviewed_s >= _REVIEW_EVERY_S:
            self._schedule.review(self._folder, tuple(self._slices))
            self._reviewed_s = monotonic_s()
        return self._switching is not None and self._switching.done()

    def _run(self, washout_s: float) -> None:
        """Switch variants in a thread beside the load."""
        with self._connected() as connection, SliceWriter(self._folder) as writer:
            changer = _Changer(self._switch.open(connection), self._kernel)
            counters = MachineCounters(connection, self._server.block_device, is_here=self._server.pid is not None)
            slicer = _Slicer(changer, counters, self._stop, washout_s=washout_s)
            counts: Counter[SlicePhase] = Counter()
            begin_s: float | None = monotonic_s()
            while begin_s is not None and (asked := self._schedule.next_round(tuple(self._slices))) is not None:
                if begin_s + asked.slice_s * len(asked.variants) > self._load_end_s:
                    break
                counts[asked.phase] += 1
                if asked.phase is SlicePhase.ROUND:
                    self.slice_s = asked.slice_s
                begin_s = self._run_round(asked, slicer, writer, number=counts[asked.phase], begin_s=begin_s)
            changer.change(self._reference)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sql.Connection]:
        with self._server.connect() as connection:
            try:
                yield connection
            except NoAnswerError:
                raise
            except StepFailedError as exc:
                if not connection.broken:
                    raise
                raise StepFailedError(
                    "the server broke off the session that changes settings",
                    detail=f"{exc.detail}\n{self._server.log_tail()}",
                    hint="one of its processes has crashed or was ended; the end of its log has the reason",
                ) from exc

    def _run_round(
        self, asked: SliceRound, slicer: _Slicer, writer: SliceWriter, *, number: int, begin_s: float
    ) -> float | None:
        """Run the slices of a round. Returns when the next one begins; None when it was stopped or the load is over.

        One that the end of the load cuts short is left out: a variant without its slice would look as if it had been decided
        before. After a failure what ran is kept, because it tells in which variant it failed.
        """
        ended: list[Slice] = []
        try:
            for position, name in enumerate(asked.variants):
                seen = slicer.run(self._variants[name], begin_s=begin_s, slice_s=asked.slice_s)
                if seen is None:
                    return None
                if seen.end_s > self._load_end_s:
                    ended.clear()
                    return None
                begin_s = seen.next_begin_s
                ended.append(
                    Slice(
                        phase=asked.phase,
                        round=number,
                        position=position,
                        variant=name,
                        begin_monotonic_s=seen.begin_s,
                        settled_monotonic_s=seen.settled_s,
                        end_monotonic_s=seen.end_s,
                        counts=seen.counts,
                    )
                )
        finally:
            for one in ended:
                writer.add(one)
            self._slices += ended
        return begin_s


class _Seen(msgspec.Struct, frozen=True, kw_only=True):
    begin_s: float
    settled_s: float
    end_s: float
    counts: Counts
    next_begin_s: float


class _Changer:
    """Puts a variant in force, in the kernel first and then in the server."""

    def __init__(self, settings: SettingsChanger, kernel: KernelSettings) -> None:
        self._settings = settings
        self._kernel = kernel

    def change(self, variant: Variant) -> None:
        self._kernel.switch(variant.sysctl)
        self._settings.change(variant)


class _Slicer:
    """Runs one slice after the other, on time."""

    def __init__(
        self, changer: _Changer, counters: MachineCounters, stop: threading.Event, *, washout_s: float
    ) -> None:
        self._changer = changer
        self._counters = counters
        self._stop = stop
        self._washout_s = washout_s

    def run(self, variant: Variant, *, begin_s: float, slice_s: float) -> _Seen | None:
        """Wait for `begin_s` and run a slice of `slice_s`, or longer if the change came late; None when it was stopped."""
        if self._is_stopped_before(begin_s):
            return None
        began_s = monotonic_s()
        self._changer.change(variant)
        if self._is_stopped_before(monotonic_s() + self._washout_s):
            return None
        settled_s, before = self._counters.read()
        end_s = max(begin_s + slice_s, settled_s + LEAST_COUNTED_RATIO * slice_s)
        if self._is_stopped_before(end_s):
            return None
        ended_s, after = self._counters.read()
        return _Seen(
            begin_s=began_s,
            settled_s=settled_s,
            end_s=ended_s,
            counts=subtract_counts(after, before),
            next_begin_s=end_s,
        )

    def _is_stopped_before(self, deadline_s: float) -> bool:
        return self._stop.wait(max(0.0, deadline_s - monotonic_s()))
