"""One member of a round of turns: its load, which begins and ends in each of its turns, and what was observed of it."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator

import msgspec

from pgdyno.errors import PgdynoError, StepFailedError
from pgdyno.record.generators.turns import merge_turns, name_turn
from pgdyno.record.pgbench.output import PgbenchSummary, Progress, parse_summary
from pgdyno.record.transactions.slices import Slice, SlicePhase, SliceWriter
from pgdyno.record.trial_data import GENERATOR
from pgdyno.record.types import Gap, why_missing
from pgdyno.run.host.clock import monotonic_s, wall_clock_offset_s
from pgdyno.run.live_member import LiveMember
from pgdyno.run.load.generator import LoadOutcome, RunningLoad, TransactionLog
from pgdyno.run.load.joined import step_seed
from pgdyno.run.load.process import poll_until_done
from pgdyno.run.load.watch import LoadWatch
from pgdyno.run.measured_load import LostLogError, finish_log, make_measured_run, warm_up
from pgdyno.run.plans import ask_plans
from pgdyno.run.sample import samplers
from pgdyno.run.sample.machine_counters import MachineCounters, subtract_counts
from pgdyno.run.switchback import LEAST_COUNTED_RATIO
from pgdyno.run.trial import TrialOutcome, make_outcome
from pgdyno.run.trial_stage import Observed
from pgdyno.units import sum_if_known

# Each turn ends by an order.
_NO_END_S = 86_400.0
_LOOK_EVERY_S = 0.05
# Starting pgbench takes a few hundredths of a second, and so does noticing its end, from which its begin is counted; connecting may take longer than it did in the warm-up.
_STARTING_S = 0.15
_CONNECTINGS = 1.5
# pgbench reports its first second from the begin of its threads on, or as soon as all their clients are connected.
_FIRST_LINE_S = 1.0
# Source: ADR 41: after that, new sessions are about as fast as old ones.
_FIRST_STATEMENTS_S = 0.4
# A clock that is set by more than this would put transactions into other turns.
_CLOCK_CHANGE_S = 0.01
_MIXED = "several loads take turns on one server: what is seen of it mixes what all of them do"
_NOT_SAMPLED = (samplers.OS, samplers.SERVER, "counters of the whole server")


class TurnsOutcome(LoadOutcome, frozen=True, kw_only=True):
    """A load whose turns have all ended. Its times are from the begin of the first to the end of the last."""

    stdouts: tuple[bytes, ...]

    @property
    def summary(self) -> PgbenchSummary:
        """What pgbench printed in all turns, merged."""
        return merge_turns([parse_summary(stdout.decode(errors="replace")) for stdout in self.stdouts])


class TurnMember:
    """A member while its round runs. Use it from the main thread."""

    def __init__(self, member: LiveMember) -> None:
        self.trial = member.trial
        self.stage = member.stage
        self.folder = member.folder
        unseen = self.stage.server.unseen
        self.is_here = not unseen
        """Whether the server is one of pgdyno's own, on this machine."""
        # The machine of the load is another one then, or may be.
        sources = _NOT_SAMPLED if self.is_here else (GENERATOR, *_NOT_SAMPLED)
        mixed = (Gap(source=one, reason=_MIXED) for one in sources if why_missing(unseen, one) is None)
        self.seen = Observed(gaps=(*unseen, *mixed))
        self.settle_s = 0.0
        """How long after its begin a turn counts, as far as the warm-up tells."""
        self._slice_s: float | None = None
        self._turns: list[LoadOutcome] = []
        self._stream: TransactionLog | None = None
        self._writer: SliceWriter | None = None

    @property
    def name(self) -> str:
        """The name of its variant."""
        return self.trial.variants[0]

    def warm_up(self) -> None:
        """Load the server before anything counts, and learn how long connecting takes."""
        connecting_s = 0.0
        if self.trial.warm_up_s > 0:
            warmed = warm_up(self.stage, self.trial, self.seen, folder=self.folder)
            # None where the warm-up ended before all clients were connected.
            connecting_ms = warmed.initial_connection_time_ms
            connecting_s = self.trial.warm_up_s if connecting_ms is None else connecting_ms / 1e3
        self.settle_s = _STARTING_S + _CONNECTINGS * connecting_s + _FIRST_STATEMENTS_S

    def take_shared(self, first: TurnMember, *, restore_s: float) -> None:
        """Take what the first member has observed of the server that all share."""
        self.seen.settings = first.seen.settings
        if self is first:
            self.seen.restore_s = restore_s
            # They have the turns of all members in them, and so would their differences.
            self.seen.counters_before, self.seen.tables_before, self.seen.statements_before = {}, (), None
            return
        if self.is_here:
            reason = f"the server's log of the round lies with trial {first.trial.number}"
            self.seen.gaps = (*self.seen.gaps, Gap(source="server log", reason=reason))

    @contextlib.contextmanager
    def writing(self, log: TransactionLog) -> Iterator[None]:
        """Have all its turns write to this log, and write their times, for the length of a `with` block."""
        with SliceWriter(self.folder) as writer:
            self._stream, self._writer = log, writer
            yield

    def run(
        self,
        number: int,
        position: int,
        *,
        counted_s: float,
        counters: MachineCounters,
        on_load: Callable[[Progress], None],
    ) -> None:
        """Run a turn to its end, and write its times.

        Args:
            number: Of the turn, from 1.
            position: In its cycle, from 0.
            counted_s: For how long it counts; for less where its clients are connected late.
            counters: Of the machine.
            on_load: Told every progress line.

        Raises:
            PgdynoError: The load, the server or the log's reader failed.
        """
        turn = _Turn(self, self._log, number, on_load)
        settle_s, slice_s = self.settle_s, self.settle_s + counted_s
        self._slice_s = slice_s
        self._note_clock()
        begin_s = monotonic_s()
        with turn.loading() as load:
            turn.wait(load, until_s=begin_s + settle_s)
            settled_s, before = counters.read()
            turn.wait(load, until_s=max(begin_s + slice_s, settled_s + LEAST_COUNTED_RATIO * slice_s))
            # pgbench does not take an order to end before its load runs.
            while turn.begun_s is None:
                turn.wait(load, until_s=monotonic_s() + _LOOK_EVERY_S)
            if turn.begun_s > begin_s + settle_s - _FIRST_STATEMENTS_S + _FIRST_LINE_S:
                # It may have begun just then: connecting took longer than in the warm-up.
                turn.wait(load, until_s=turn.begun_s + _FIRST_STATEMENTS_S + LEAST_COUNTED_RATIO * slice_s)
            end_s, after = counters.read()
            load.end()
            outcome = poll_until_done(load, should_abort=turn.find_failure)
        self._turns.append(outcome)
        counts = subtract_counts(after, before)
        warm_s = _find_begin_s(outcome) + _FIRST_STATEMENTS_S
        if warm_s > settled_s:
            # What the machine did before is in its counters.
            settled_s, counts = warm_s, dict.fromkeys(counts)
        assert self._writer is not None  # noqa: S101 - the round has opened it
        self._writer.add(
            Slice(
                phase=SlicePhase.ROUND,
                round=number,
                position=position,
                variant=self.name,
                begin_monotonic_s=begin_s,
                settled_monotonic_s=settled_s,
                end_monotonic_s=end_s,
                counts=counts,
            )
        )

    def finish(self) -> None:
        """Read the rest of the log, and ask for the plans.

        Raises:
            PgdynoError: The log is lost.
        """
        first, last = self._turns[0], self._turns[-1]
        self.seen.load = TurnsOutcome(
            argv=first.argv,
            pid=first.pid,
            exit_code=0,
            start_monotonic_s=first.start_monotonic_s,
            end_monotonic_s=last.end_monotonic_s,
            cpu_s=sum_if_known([turn.cpu_s for turn in self._turns]),
            stdout=b"",
            stdouts=tuple(turn.stdout for turn in self._turns),
        )
        finish_log(self._log, self.seen)
        ask_plans(self.stage, self.trial, self.seen)

    def make_outcome(self, error: PgdynoError | None) -> TrialOutcome:
        """Return its trial's record, with the error that ended it, if one did."""
        outcome = make_outcome(self.trial, self.seen, error)
        washout_s = None if self._slice_s is None else self.settle_s
        record = msgspec.structs.replace(outcome.record, slice_s=self._slice_s, washout_s=washout_s)
        return msgspec.structs.replace(outcome, record=record)

    @property
    def _log(self) -> TransactionLog:
        assert self._stream is not None  # noqa: S101 - the round has opened it
        return self._stream

    def _note_clock(self) -> None:
        """Note how the wall clock differs as the first turn begins; pgbench reads it in each turn anew.

        Raises:
            StepFailedError: It was set since.
        """
        offset_s = wall_clock_offset_s()
        if self.seen.clock_offset_s is None:
            self.seen.clock_offset_s = offset_s
        changed_s = offset_s - self.seen.clock_offset_s
        if abs(changed_s) > _CLOCK_CHANGE_S:
            raise StepFailedError(
                f"the machine's clock was set by {changed_s:+.3f} s while the round ran",
                hint="turns are found in pgbench's log by the time of day; let the clock settle, and run it again",
            )


def _find_begin_s(turn: LoadOutcome) -> float:
    """Return when the load of a turn began at the latest, with all its clients connected."""
    printed = turn.summary
    connected_s = turn.start_monotonic_s + (printed.initial_connection_time_ms or 0.0) / 1e3
    # pgbench looks at its tables through a connection of its own, before it begins to measure how long connecting takes.
    # Its TPS are those of the time from then until its last transaction ended.
    loaded_s = (printed.transaction_count or 0) / printed.tps if printed.tps else math.inf
    return max(connected_s, turn.end_monotonic_s - loaded_s)


class _Turn:
    """One run of a member's load."""

    def __init__(
        self, member: TurnMember, log: TransactionLog, number: int, on_load: Callable[[Progress], None]
    ) -> None:
        self.begun_s: float | None = None
        """When the load was first seen to run, with all clients connected; None before."""
        self._member = member
        self._log = log
        self._number = number
        self._on_load = on_load
        server = member.stage.server
        self._watch = LoadWatch(server, duration_s=member.trial.duration_s, find_stall=server.find_stall)

    def loading(self) -> contextlib.AbstractContextManager[RunningLoad]:
        """Begin the load, and end it with the `with` block at the latest."""
        member = self._member
        run = make_measured_run(member.stage, member.trial, member.seen, self._log, duration_s=_NO_END_S)
        return member.stage.generator.start_load(
            msgspec.structs.replace(run, random_seed=step_seed(run.random_seed, self._number)),
            directory=name_turn(member.folder, self._number),
            on_progress=self._see,
            should_abort=self.find_failure,
        )

    def wait(self, load: RunningLoad, *, until_s: float) -> None:
        """Wait, and look at the load and the server meanwhile.

        Raises:
            PgdynoError: One of them has failed.
        """
        while True:
            if load.poll() is not None:
                raise StepFailedError("pgbench ended before its time", hint="something outside ended it")
            if (failure := self.find_failure()) is not None:
                raise failure
            if (left_s := until_s - monotonic_s()) <= 0:
                return
            time.sleep(min(left_s, _LOOK_EVERY_S))

    def find_failure(self) -> PgdynoError | None:
        """Return the error to end the load with, if there is one."""
        is_log_read = self._log.poll()
        return self._watch.find_failure() or (None if is_log_read else LostLogError("its reader has ended"))

    def _see(self, second: Progress) -> None:
        self.begun_s = self.begun_s or monotonic_s()
        self._watch.see(second)
        self._on_load(second)
