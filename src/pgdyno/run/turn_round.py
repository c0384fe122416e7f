"""Run one round of loads that take turns on one server: every turn is a run of pgbench of two seconds or more.

Variants that differ only in clients, threads or mode need no server each. A frozen client would keep its locks, and the
others would wait for them; so a turn ends as a load does, with its clients' transactions, and the next one connects anew.
Each cycle has one turn of each member, in balanced random order, so that what disturbs the machine for seconds, and what
the loads change in the data, reaches all of them alike. The next round has a new server with restored data.

A turn counts from the moment that its clients are connected and warm. Nothing is judged here. What counts of a turn is
decided by its times: see `record.transactions.slices`.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import statistics
from collections.abc import Callable, Iterator, Sequence

from pgdyno.errors import PgdynoError
from pgdyno.plan.live import LEAST_TURN_S
from pgdyno.plan.order import draw_cycles
from pgdyno.record.pgbench.output import Progress
from pgdyno.record.samples.server_machine import SERVER_LOG
from pgdyno.run.change.kernel import changed_sysctls
from pgdyno.run.host.log import LOG
from pgdyno.run.live_member import LiveMember, OtherMemberFailedError
from pgdyno.run.measured_load import LostLogError, following_logs
from pgdyno.run.sample.machine_counters import MachineCounters
from pgdyno.run.trial import TrialOutcome, find_left_settings, read_before, to_trial_error
from pgdyno.run.turn_member import TurnMember

# What comes before a turn counts takes at most half of it.
_TURN_SETTLES = 2.0


def run_turn_round(
    members: Sequence[LiveMember],
    *,
    slice_s: float | None,
    seed: int,
    on_activity: Callable[[str], None],
    on_load: Callable[[Progress], None],
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[TrialOutcome, ...]:
    """Run the trials of one round in turns on the first member's server. Use it from the main thread.

    Args:
        members: What to run, at least two; their variants differ in clients, threads or mode.
        slice_s: The mean length of turns, which is 2 s at least, and more where connecting takes long; None: that.
        seed: Of the orders.
        on_activity: Receives what is being done.
        on_load: Receives about every second of each turn's load.
        should_stop: Asked after each cycle of turns; True ends the round in order.

    Returns:
        The record of each member's trial, in the order of the members. If one has failed, none is finished; an
        interruption by the user is not caught.
    """
    turns = [TurnMember(member) for member in members]
    running = _TurnRound(turns, draw=random.Random(seed), slice_s=slice_s)  # noqa: S311 - an order, not a secret
    stage, first = members[0].stage, members[0].trial
    sysctl = {name: value for variant in stage.variants_of(first) for name, value in variant.sysctl.items()}
    error: PgdynoError | None = None
    try:
        with changed_sysctls(sysctl) as kernel:
            running.run(on_activity=on_activity, on_load=on_load, should_stop=should_stop)
            kernel.check()
        for turn in turns:
            turn.seen.gaps = (*turn.seen.gaps, *find_left_settings(kernel))
    except (PgdynoError, OSError) as exc:
        error = to_trial_error(exc)
        LOG.warning("the round of turns fails: %s", error.reason, exc_info=exc)
    return tuple(turn.make_outcome(running.find_error(turn, error)) for turn in turns)


class _TurnRound:
    """One round, from the restored data to the end of the server."""

    def __init__(self, turns: Sequence[TurnMember], *, draw: random.Random, slice_s: float | None) -> None:
        self._turns = turns
        self._draw = draw
        self._blamed: TurnMember | None = None
        self._asked_s = slice_s

    def find_error(self, turn: TurnMember, error: PgdynoError | None) -> PgdynoError | None:
        """Return the error of a member's trial, if the round ended with one."""
        if error is None or self._blamed in {None, turn} or isinstance(error, LostLogError):
            return error
        assert self._blamed is not None  # noqa: S101 - it is none of the two
        return OtherMemberFailedError(f"the round ended because {self._blamed.name} failed", detail=error.reason)

    def run(
        self,
        *,
        on_activity: Callable[[str], None],
        on_load: Callable[[Progress], None],
        should_stop: Callable[[], bool],
    ) -> None:
        first = self._turns[0]
        stage, server = first.stage, first.stage.server
        on_activity("restoring")
        restore_s = server.reset(on_activity)
        with contextlib.ExitStack() as stack:
            stack.enter_context(server.running(stage.settings, log_path=first.folder / SERVER_LOG))
            on_activity("preparing caches")
            server.prepare_cache(stage.cache_of(first.trial))
            on_activity("warming up")
            for turn in self._draw.sample(self._turns, len(self._turns)):
                with self._blaming(turn):
                    turn.warm_up()
            read_before(server, first.seen, stage.servers_of(first.trial))
            for turn in self._turns:
                turn.take_shared(first, restore_s=restore_s)
            if first.is_here:
                os.sync()
            self._open_logs(stack)
            self._alternate(on_activity, on_load, should_stop)
            # It is nobody's turn any more.
            for turn in self._turns:
                turn.finish()

    def _open_logs(self, stack: contextlib.ExitStack) -> None:
        """Follow the logs of all turns until the stack ends."""
        first, seen = self._turns[0], [turn.seen for turn in self._turns]
        folders = [turn.folder for turn in self._turns]
        logs = stack.enter_context(following_logs(first.stage, first.trial, seen, folders=folders))
        for turn, log in zip(self._turns, logs, strict=True):
            stack.enter_context(turn.writing(log))

    @contextlib.contextmanager
    def _blaming(self, turn: TurnMember) -> Iterator[None]:
        """Note whose turn it is, for the error that ends the round, if one does."""
        self._blamed = turn
        yield
        self._blamed = None

    def _alternate(
        self,
        on_activity: Callable[[str], None],
        on_load: Callable[[Progress], None],
        should_stop: Callable[[], bool],
    ) -> None:
        settle_s = statistics.fmean(turn.settle_s for turn in self._turns)
        least_s = max(LEAST_TURN_S, _TURN_SETTLES * settle_s, self._asked_s or 0.0)
        duration_s = max(turn.trial.duration_s for turn in self._turns)
        cycles = max(1, math.floor(duration_s / least_s + 1e-9))
        slice_s = least_s if self._asked_s else max(least_s, duration_s / cycles)
        LOG.info("turns of %g s on average, of which the first %g s do not count", slice_s, settle_s)
        first = self._turns[0]
        counters = MachineCounters(None, first.stage.server.block_device, is_here=first.is_here)
        for number, order in enumerate(draw_cycles(len(self._turns), cycles, self._draw), start=1):
            for position, turn in enumerate(self._turns[index] for index in order):
                on_activity(f"measuring {turn.name}")
                with self._blaming(turn):
                    # All count for equally long, however long it takes to connect their clients.
                    turn.run(number, position, counted_s=slice_s - settle_s, counters=counters, on_load=on_load)
            if should_stop():
                break
