"""One member of a live round: its server, its load, and what was observed of it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from pgdyno.errors import PgdynoError, StepFailedError
from pgdyno.facts.views import list_shared_counters
from pgdyno.plan.plan import PlannedTrial
from pgdyno.record.pgbench.output import Progress
from pgdyno.record.samples.server_machine import SERVER_LOG
from pgdyno.record.transactions.slices import Slice, SliceWriter
from pgdyno.record.trial_data import GENERATOR
from pgdyno.record.types import Gap
from pgdyno.run.host.clock import monotonic_s, wall_clock_offset_s
from pgdyno.run.host.freezer import Freezer
from pgdyno.run.host.log import LOG
from pgdyno.run.host.placement import placed
from pgdyno.run.load.generator import RunningLoad, TransactionLog
from pgdyno.run.load.process import poll_until_done
from pgdyno.run.load.watch import LoadWatch
from pgdyno.run.measured_load import LostLogError, finish_log, make_measured_run, warm_up
from pgdyno.run.plans import ask_plans
from pgdyno.run.sample import samplers
from pgdyno.run.trial import TrialOutcome, make_outcome, read_after, read_before, to_trial_error
from pgdyno.run.trial_stage import Observed, TrialStage

# pgbench's own alarm counts the time in which it is frozen; the round ends it much sooner.
_NO_END_S = 86_400.0
_SHARED = "several loads take turns on one server: its counters mix what all of them do"
# Where only pgbench is frozen, what is read at both ends of a load has the other loads in it, too.
_NO_SAMPLES_OF_GIVEN = (
    Gap(source=GENERATOR, reason="several loads take turns on this machine: its counters mix what all of them do"),
    Gap(source=samplers.SERVER, reason=_SHARED),
    Gap(source="counters of the whole server", reason=_SHARED),
)
_NO_SAMPLES = (
    Gap(source=samplers.OS, reason="one machine, several servers: its counters mix what all of them do"),
    Gap(source=samplers.SERVER, reason="one machine, several servers: a frozen one answers no sampler"),
)


def _keep_own(counters: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return the counters of the member's own database: those of the whole server are all members' together."""
    shared = list_shared_counters()
    return {name: value for name, value in counters.items() if name not in shared}


class LiveMember(msgspec.Struct, frozen=True, kw_only=True):
    """One variant in a live round.

    Attributes:
        stage: Its server, in a slot of its own unless loads take turns on it, with its settings.
        trial: What to run: one variant. The members of a round have the same workload and duration.
        folder: The empty folder of the record for the trial's files.
    """

    stage: TrialStage
    trial: PlannedTrial
    folder: Path


class OtherMemberFailedError(StepFailedError):
    """Another member of the round has failed, and ended this one."""


class MemberFailedError(Exception):
    """A member has failed, which ends the round; the member holds its error."""


class MemberRun:
    """A member while its round runs. Use it from the main thread, and `close` it however the round ends."""

    def __init__(self, member: LiveMember) -> None:
        self.trial = member.trial
        self.error: PgdynoError | None = None
        server = member.stage.server
        self.is_here = not server.unseen
        """Whether the server is one of pgdyno's own, which is frozen with its load."""
        self.seen = Observed(gaps=_NO_SAMPLES if self.is_here else (*server.unseen, *_NO_SAMPLES_OF_GIVEN))
        self.first_latency_s: float | None = None
        """Mean latency of the load's first second, or of the warm-up; None before."""
        self.has_begun = False
        """Whether the measured load runs, with all clients connected."""
        self.stage = member.stage
        self.folder = member.folder
        self._open = contextlib.ExitStack()
        self._freezer = Freezer()
        self._ran_s = 0.0
        self._thawed_s: float | None = monotonic_s()
        self._stream: TransactionLog | None = None
        self._load: RunningLoad | None = None
        self._load_begin_s = 0.0
        self._writer: SliceWriter | None = None
        self._last_line = (0.0, 0.0)

    @property
    def name(self) -> str:
        """The name of its variant; of its workload in a study that compares nothing."""
        return self.trial.variants[0] if self.trial.variants else self.trial.workload

    @property
    def sysctl(self) -> dict[str, str]:
        """The kernel settings of its variant."""
        return {name: value for variant in self.stage.variants_of(self.trial) for name, value in variant.sysctl.items()}

    @property
    def block_device(self) -> str | None:
        """The device that its data lie on; None where there is none."""
        return self.stage.server.block_device

    def ran_s(self) -> float:
        """Return the seconds in which it was not frozen."""
        return self._ran_s + (0.0 if self._thawed_s is None else monotonic_s() - self._thawed_s)

    @contextlib.contextmanager
    def blamed(self) -> Iterator[None]:
        """Note an error inside the block as the member's own and end the member at once.

        Raises:
            MemberFailedError: There was an error.
            LostLogError: The reader of all logs has ended, which is no member's fault.
        """
        try:
            yield
        except LostLogError:
            raise
        except (PgdynoError, OSError) as exc:
            self._fail(to_trial_error(exc))
            raise MemberFailedError from exc

    def restore(self, on_activity: Callable[[str], None]) -> None:
        """Make its cluster a copy of the loaded one."""
        self.seen.restore_s = self.stage.server.reset(on_activity)

    def prepare(self, on_activity: Callable[[str], None]) -> None:
        """Start its server, warm it up, and read what is in force and counted."""
        stage = self.stage
        pooler = stage.pooler_of(self.trial)
        self._open.enter_context(stage.server.running(stage.settings, log_path=self.folder / SERVER_LOG, pooler=pooler))
        self._open.callback(self.thaw)
        on_activity("preparing caches")
        stage.server.prepare_cache(stage.cache_of(self.trial))
        if self.trial.warm_up_s > 0:
            on_activity("warming up")
            warm_up(stage, self.trial, self.seen, folder=self.folder)
            self.first_latency_s = self.seen.warm_up_latency_s
        read_before(stage.server, self.seen, stage.servers_of(self.trial))
        if not self.is_here:
            self.seen.counters_before = _keep_own(self.seen.counters_before)

    def take_log(self, log: TransactionLog) -> None:
        """Have its load write to this log, which outlives it."""
        self._stream = log
        self._writer = self._open.enter_context(SliceWriter(self.folder))

    def start_load(self, on_load: Callable[[Progress], None]) -> None:
        """Start its load, which goes on until `end_load`."""
        assert self._stream is not None  # noqa: S101 - the round has started it
        server = self.stage.server
        self._watch = LoadWatch(
            server, duration_s=self.trial.duration_s, clock=self.ran_s, find_stall=server.find_stall
        )
        run = make_measured_run(self.stage, self.trial, self.seen, self._stream, duration_s=_NO_END_S)
        begun = self.stage.generator.start_load(
            run,
            directory=self.folder,
            on_progress=lambda second: self._see(second, on_load),
            should_abort=self.stage.server.find_failure,
        )
        self._load_begin_s = self.ran_s()
        self._last_line = (0.0, self._load_begin_s)
        self._load = self._open.enter_context(begun)
        # pgbench reads the time of day once, as it starts, and its log counts on from there.
        self.seen.clock_offset_s = wall_clock_offset_s()
        # A frozen pgbench would not end: this runs before it is stopped.
        self._open.callback(self.thaw)

    def freeze(self) -> None:
        """Freeze its load and, where they are pgdyno's own, its pooler and its server, with all processes of them."""
        if self._thawed_s is not None:
            self._ran_s, self._thawed_s = self.ran_s(), None
        loads = [] if self._load is None else [self._load.pid]
        server, pooler = self.stage.server, self.stage.server.pooler
        between = [] if pooler is None else [pooler.pid]
        self._freezer.freeze([*loads, *filter(None, [*between, server.pid])])

    def placed(self, draw: random.Random) -> contextlib.AbstractContextManager[None]:
        """Place its frozen threads on CPUs at random; thaw it in the block. See `placement.placed`.

        The postmaster is left out: a worker or a session that it starts in the block would keep its one CPU.
        """
        assert self._load is not None  # noqa: S101 - the round has started it
        load, postmaster = self._load.pid, self.stage.server.pid
        others = [pid for pid in self._freezer.stopped if pid not in (load, postmaster)]
        return placed(([load], others), draw)

    def thaw(self) -> None:
        """Let its server and its load go on."""
        self._freezer.thaw()
        if self._thawed_s is None:
            self._thawed_s = monotonic_s()

    def poll(self) -> None:
        """Look at its load and its server, frozen or not.

        Raises:
            PgdynoError: One of them has failed.
        """
        assert self._load is not None  # noqa: S101 - the round has started it
        if self._load.poll() is not None:
            raise StepFailedError("pgbench ended before its time", hint="something outside ended it")
        if (failure := self._find_failure()) is not None:
            raise failure

    def add_slice(self, ended: Slice) -> None:
        """Write one of its slices."""
        assert self._writer is not None  # noqa: S101 - it was opened with the log
        self._writer.add(ended)

    def end_load(self) -> None:
        """End its load in order, if there is one, and read what was counted.

        Raises:
            PgdynoError: The load, the server or the log's reader failed.
        """
        if self._load is None or not self.has_begun:
            return
        # A frozen pgbench takes the order when it is thawed, before it begins further transactions.
        self._load.end()
        self.thaw()
        self.seen.load = poll_until_done(self._load, should_abort=self._find_failure)
        self._load = None
        self._load_s = self.ran_s() - self._load_begin_s
        read_after(self.stage.server, self.seen, self.stage.servers_of(self.trial))
        if not self.is_here:
            self.seen.counters_after = _keep_own(self.seen.counters_after)

    def finish(self) -> None:
        """Read the rest of its log once the loads of all members have ended, ask for the plans, and end its server.

        Raises:
            PgdynoError: The server failed, or the log is lost.
        """
        if self.seen.load is not None:
            assert self._stream is not None  # noqa: S101 - its load wrote to it
            finish_log(self._stream, self.seen)
            ask_plans(self.stage, self.trial, self.seen)
        self._open.close()

    def close(self) -> None:
        """End what still runs of it, at once."""
        try:
            self._open.close()
        except PgdynoError as exc:
            self.error = self.error or exc

    def make_outcome(self, *, slice_s: float | None, washout_s: float | None) -> TrialOutcome:
        """Return its trial's record with the error that ended it, if one did. Call this once it is closed."""
        outcome = make_outcome(self.trial, self.seen, self.error)
        record = msgspec.structs.replace(outcome.record, slice_s=slice_s, washout_s=washout_s)
        done = None if self.seen.load is None else self.seen.load.summary.transaction_count
        # pgbench's own figure counts the time in which it was frozen.
        return msgspec.structs.replace(outcome, record=record, tps=None if done is None else done / self._load_s)

    def _see(self, second: Progress, on_load: Callable[[Progress], None]) -> None:
        self._watch.see(second)
        self.has_begun = True
        if self.first_latency_s is None and second.latency_average_ms is not None:
            self.first_latency_s = (second.latency_average_ms - (second.lag_average_ms or 0.0)) / 1e3
        (began_s, had_run_s), self._last_line = self._last_line, (second.elapsed_s, self.ran_s())
        # pgbench divides by the whole time since its last line; it has run in a part of it only.
        part_s = self._last_line[1] - had_run_s
        whole_s = max(part_s, second.elapsed_s - began_s)
        on_load(second if part_s <= 0 else msgspec.structs.replace(second, tps=second.tps * whole_s / part_s))

    def _find_failure(self) -> PgdynoError | None:
        is_log_read = self._stream is None or self._stream.poll()
        is_frozen = self._thawed_s is None
        failure = self.stage.server.find_failure() if is_frozen else self._watch.find_failure()
        return failure or (None if is_log_read or self._load is None else LostLogError("its reader has ended"))

    def _fail(self, error: PgdynoError) -> None:
        LOG.warning("trial %d of %s fails: %s", self.trial.number, self.name, error.reason, exc_info=error)
        self.error = error
        try:
            # The server's own end explains the failure of its load.
            self._open.__exit__(type(error), error, error.__traceback__)
        except PgdynoError as better:
            self.error = better
