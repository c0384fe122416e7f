"""Run one live round: the servers of all variants are up at once, exactly one runs, and the others are frozen.

Trials that follow each other do not share the machine's slow noise; slices of half a second do. Each member has a server
of its own, started from its own copy of the data, warmed and checkpointed, and a pgbench of its own that is connected to
it all the time. In a slice one member runs, load and server; all other processes of the round are frozen, so that no
checkpoint, autovacuum or flush of theirs falls into it. On a given server, which all members share, only the loads are
frozen, and each has a copy of the data, so that locks of a frozen client keep nobody waiting. Each cycle has one slice of each member, in balanced random order.

Nothing is judged here. What counts of a slice is decided by its times: see `record.transactions.slices`.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import time
from collections.abc import Callable, Sequence

from pgdyno.errors import PgdynoError
from pgdyno.plan.live import HUGE_PAGES, LEAST_SLICE_S
from pgdyno.plan.order import draw_cycles
from pgdyno.record.pgbench.output import Progress
from pgdyno.record.transactions.slices import Slice, SlicePhase
from pgdyno.run.change.kernel import KernelSettings, changed_sysctls
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.host.log import LOG
from pgdyno.run.live_member import LiveMember, MemberFailedError, MemberRun, OtherMemberFailedError
from pgdyno.run.measured_load import LostLogError, following_logs
from pgdyno.run.sample.machine_counters import MachineCounters, subtract_counts
from pgdyno.run.switchback import LEAST_COUNTED_RATIO, choose_washout_s
from pgdyno.run.trial import TrialOutcome, find_left_settings, to_trial_error

# The washout takes at most a third of a slice.
_SLICE_WASHOUTS = 3.0
_LOOK_EVERY_S = 0.1


def run_live_round(
    members: Sequence[LiveMember],
    *,
    slice_s: float | None,
    seed: int,
    on_activity: Callable[[str], None],
    on_load: Callable[[Progress], None],
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[TrialOutcome, ...]:
    """Run the trials of one round, all at once. Use it from the main thread.

    Args:
        members: What to run, at least two.
        slice_s: How long a member runs at a time; None: half a second, or longer where latencies are long.
        seed: Of the orders.
        on_activity: Receives what is being done.
        on_load: Receives about every second of each member's measured load, with the TPS while it ran.
        should_stop: Asked before each cycle of slices; True ends the round in order.

    Returns:
        The record of each member's trial, in the order of the members. If one has failed, none is finished; an
        interruption by the user is not caught.
    """
    runs = [MemberRun(member) for member in members]
    live = _LiveRound(runs, draw=random.Random(seed), slice_s=slice_s)  # noqa: S311 - an order, not a secret
    kernel: KernelSettings | None = None
    try:
        with changed_sysctls({}) as kernel:
            live.run(kernel, on_activity=on_activity, on_load=on_load, should_stop=should_stop)
    except (PgdynoError, OSError) as exc:
        error = to_trial_error(exc)
        LOG.warning("the live round fails: %s", error.reason, exc_info=exc)
        # A server that has died explains what else failed, such as the reader of all logs.
        if failed := next((run for run in runs if run.error is not None), None):
            _tell_others(runs, failed)
        for run in runs:
            run.error = run.error or error
    for run in runs:
        run.seen.gaps = (*run.seen.gaps, *(() if kernel is None else find_left_settings(kernel)))
    return tuple(run.make_outcome(slice_s=live.slice_s, washout_s=live.washout_s) for run in runs)


class _LiveRound:
    """One round, from the restored data to the end of all servers."""

    def __init__(self, runs: Sequence[MemberRun], *, draw: random.Random, slice_s: float | None) -> None:
        self._runs = runs
        self._draw = draw
        self.slice_s = slice_s
        """None before it is chosen."""
        self.washout_s: float | None = None

    def run(
        self,
        kernel: KernelSettings,
        *,
        on_activity: Callable[[str], None],
        on_load: Callable[[Progress], None],
        should_stop: Callable[[], bool],
    ) -> None:
        # The logs outlive all loads: one member that fails leaves those of the others to be read.
        with contextlib.ExitStack() as logs, contextlib.ExitStack() as stack:
            for run in self._runs:
                stack.callback(run.close)
                # All values are journalled before the load, in which no file is to be flushed.
                kernel.hold(run.sysctl)
            try:
                self._prepare(kernel, on_activity)
                on_activity("measuring")
                self._open_logs(logs)
                self._start_loads(on_load)
                self._alternate(kernel, should_stop)
                for run in self._runs:
                    with run.blamed():
                        run.end_load()
                for run in self._runs:
                    with run.blamed():
                        run.finish()
            except MemberFailedError:
                self._end_others()

    def _prepare(self, kernel: KernelSettings, on_activity: Callable[[str], None]) -> None:
        """Bring up all servers, each while the others are not there yet or frozen."""
        for run in self._runs:
            on_activity("restoring")
            with run.blamed():
                run.restore(on_activity)
        # The server that asks for huge pages starts last: any other would take them.
        for run in sorted(self._shuffled(), key=lambda run: HUGE_PAGES in run.sysctl):
            with run.blamed():
                kernel.switch(run.sysctl)
                run.prepare(on_activity)
                run.freeze()
        # Pages of the copies that the kernel writes back in the middle of a slice stall that slice alone.
        if all(run.is_here for run in self._runs):
            os.sync()

    def _open_logs(self, stack: contextlib.ExitStack) -> None:
        """Follow the logs of all loads until the stack ends."""
        first, seen, folders = self._runs[0], [run.seen for run in self._runs], [run.folder for run in self._runs]
        logs = stack.enter_context(following_logs(first.stage, first.trial, seen, folders=folders))
        for run, log in zip(self._runs, logs, strict=True):
            with run.blamed():
                run.take_log(log)

    def _start_loads(self, on_load: Callable[[Progress], None]) -> None:
        """Start all loads and freeze them once their clients are connected and run."""
        for run in self._shuffled():
            with run.blamed():
                run.thaw()
                run.start_load(on_load)
        while not all(run.has_begun for run in self._runs):
            self._poll()
            time.sleep(_LOOK_EVERY_S)
        for run in self._runs:
            with run.blamed():
                run.freeze()

    def _alternate(self, kernel: KernelSettings, should_stop: Callable[[], bool]) -> None:
        latencies_s = [run.first_latency_s for run in self._runs if run.first_latency_s is not None]
        washout_s = choose_washout_s(max(latencies_s, default=0.0))
        slice_s = self.slice_s or max(LEAST_SLICE_S, _SLICE_WASHOUTS * washout_s)
        self.slice_s, self.washout_s = slice_s, washout_s
        LOG.info("live round: slices of %g s, of which the first %g s do not count", slice_s, washout_s)
        # In use, the pages stay reserved while other servers run.
        reserved = {name: value for run in self._runs for name, value in run.sysctl.items() if name == HUGE_PAGES}
        counters = [MachineCounters(None, run.block_device, is_here=run.is_here) for run in self._runs]
        duration_s = max(run.trial.duration_s for run in self._runs)
        # All at once: how many threads there are to place does not change the orders of a seed.
        cycles = list(draw_cycles(len(self._runs), math.ceil(duration_s / slice_s - 1e-9), self._draw))
        for number, order in enumerate(cycles, start=1):
            if should_stop():
                return
            for position, index in enumerate(order):
                run = self._runs[index]
                kernel.switch({**reserved, **run.sysctl})
                # With hundreds of sessions placing them takes as long as the shortest washout.
                with run.placed(self._draw):
                    begin_s = monotonic_s()
                    run.thaw()
                self._wait(begin_s + washout_s)
                settled_s, before = counters[index].read()
                self._wait(max(begin_s + slice_s, settled_s + LEAST_COUNTED_RATIO * slice_s))
                end_s, after = counters[index].read()
                with run.blamed():
                    run.freeze()
                    run.add_slice(
                        Slice(
                            phase=SlicePhase.ROUND,
                            round=number,
                            position=position,
                            variant=run.name,
                            begin_monotonic_s=begin_s,
                            settled_monotonic_s=settled_s,
                            end_monotonic_s=end_s,
                            counts=subtract_counts(after, before),
                        )
                    )

    def _wait(self, deadline_s: float) -> None:
        """Wait and look at all members meanwhile; what a frozen one does not do is no failure."""
        while True:
            self._poll()
            if (left_s := deadline_s - monotonic_s()) <= 0:
                return
            time.sleep(min(left_s, _LOOK_EVERY_S))

    def _poll(self) -> None:
        for run in self._runs:
            with run.blamed():
                run.poll()

    def _end_others(self) -> None:
        """End in order what is left of a round in which a member has failed, and say which."""
        failed = next(run for run in self._runs if run.error is not None)
        for end in (MemberRun.end_load, MemberRun.finish):
            for run in self._runs:
                if run.error is None:
                    # Who has failed first is told: it may be why the log of another is lost.
                    with contextlib.suppress(MemberFailedError, LostLogError), run.blamed():
                        end(run)
        _tell_others(self._runs, failed)

    def _shuffled(self) -> list[MemberRun]:
        return self._draw.sample(self._runs, len(self._runs))


def _tell_others(runs: Sequence[MemberRun], failed: MemberRun) -> None:
    """Tell the members without an error of their own which one has failed."""
    assert failed.error is not None  # noqa: S101 - it has failed
    for run in runs:
        run.error = run.error or OtherMemberFailedError(
            f"the live round ended because {failed.name} failed", detail=failed.error.reason
        )
