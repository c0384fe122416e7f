"""Run a load through a failover: the primary ends under it, a standby takes over, and the load goes on there.

pgbench cannot go on after a lost connection: its clients abort, and it ends. So a second pgbench begins as soon as a session can
write, by libpq's list of hosts, which is what an application's connection pool does, too. A prober, which writes a row every 10 ms
through the same list, is an application that reconnects by itself: it measures how long the service was away.

pgdyno is the cluster manager here: it knows at once that the primary is gone, and asks for the promotion in the same moment. The time
in which a real one finds out is not in any figure.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from pgdyno.errors import PgdynoError, StepFailedError
from pgdyno.plan.plan import PlannedTrial, PlannedWorkload
from pgdyno.plan.types import PlannedFailover
from pgdyno.record.failover import AFTER_DIR, PROBES_FILE, FailoverRecord, read_probes, write_failover
from pgdyno.record.pgbench.output import Progress
from pgdyno.record.types import Gap
from pgdyno.run.host.clock import monotonic_s, wall_clock_offset_s
from pgdyno.run.host.helper import helper_argv
from pgdyno.run.load.argv import LoadRun
from pgdyno.run.load.generator import LoadOutcome, RunningLoad, TransactionLog
from pgdyno.run.load.process import poll_until_done
from pgdyno.run.load.watch import LoadWatch
from pgdyno.run.measured_load import find_log_gaps, make_measured_run, start_log
from pgdyno.run.own_server import OwnServer
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.sample.child import Child
from pgdyno.run.sample.samplers import LOAD_LABEL, SERVER, Samplers
from pgdyno.run.trial_stage import Observed, TrialStage
from pgdyno.spec.failover import FailoverKind

PROBER = "prober"
_NOT_SAMPLED = Gap(source=SERVER, reason="not sampled: the server ends while it is loaded")
# Scripts of which each transaction leaves one row in pgbench_history.
_WITH_HISTORY = frozenset({"tpcb-like", "simple-update"})
_READY_WITHIN_S = 30.0
_CONNECT_EVERY_S = 0.01
_LOOK_EVERY_S = 0.25
_ABORT_WITHIN_S = 60.0
_CONNECT_PATIENCE_S = 5
# pgbench ends with its connections, and never because its time is over.
_SPARE_S = 3600.0


def measure_failover(
    stage: TrialStage,
    trial: PlannedTrial,
    seen: Observed,
    *,
    folder: Path,
    on_activity: Callable[[str], None],
    on_load: Callable[[Progress], None],
) -> None:
    """Run the measured load of a trial through its failover.

    Raises:
        StepFailedError: The load, a server or the promotion failed.
    """
    server, load = stage.server, stage.plan.find_load(trial)
    if load.failover is None or not isinstance(server, OwnServer):
        raise RuntimeError("no failover is planned here")
    # A row lost is found by its number only if every transaction is logged.
    seen.log_sampling_rate = 1.0
    history_before = _prepare(server, load)
    samplers = Samplers(directory=folder, address=server.address, left_out=frozenset({SERVER}))
    after_folder = folder / AFTER_DIR
    after_folder.mkdir()
    with contextlib.ExitStack() as stack:
        before_log = stack.enter_context(contextlib.closing(start_log(stage, trial, seen, folder=folder)))
        after_log = stack.enter_context(contextlib.closing(start_log(stage, trial, seen, folder=after_folder)))
        stack.enter_context(samplers)
        prober = stack.enter_context(_probing(folder, msgspec.structs.replace(server.hosts_address, dbname="postgres")))
        run = _Run(stage, trial, seen, load.failover, server=server, samplers=samplers, prober=prober, on_load=on_load)
        steps = run.fail_over(folder, before_log, after_log, on_activity=on_activity)
        prober.stop()
        seen.failover = _conclude(server, steps, history_before=history_before, folder=folder)
        write_failover(folder, seen.failover)
        gaps = (*find_log_gaps(before_log.finish()), *find_log_gaps(after_log.finish()))
    sampled = (Gap(source=gap.source, reason=gap.reason) for gap in samplers.gaps)
    seen.gaps = tuple(dict.fromkeys([*seen.gaps, _NOT_SAMPLED, *sampled, *gaps]))


class _Run:
    """One load through one failover."""

    def __init__(
        self,
        stage: TrialStage,
        trial: PlannedTrial,
        seen: Observed,
        planned: PlannedFailover,
        *,
        server: OwnServer,
        samplers: Samplers,
        prober: Child,
        on_load: Callable[[Progress], None],
    ) -> None:
        self._stage = stage
        self._trial = trial
        self._seen = seen
        self._planned = planned
        self._server = server
        self._hosts = server.hosts_address
        self._samplers = samplers
        self._prober = prober
        self._on_load = on_load
        self._watch = LoadWatch(server, find_stall=server.find_stall)

    def fail_over(
        self, folder: Path, before_log: TransactionLog, after_log: TransactionLog, *, on_activity: Callable[[str], None]
    ) -> FailoverRecord:
        """Load the primary, end it, promote a standby, and load that; return the steps."""
        generator = self._stage.generator
        before = msgspec.structs.replace(self._make_run(before_log, self._planned.at_s + _SPARE_S), ends_on_abort=False)
        after = self._make_run(after_log, self._planned.after_s)
        self._seen.clock_offset_s = wall_clock_offset_s()
        load_start_s = monotonic_s()
        with generator.start_load(
            before, directory=folder, on_progress=self._see, should_abort=self._find_failure
        ) as load:
            self._samplers.follow(LOAD_LABEL, load.pid)
            self._let_run(load)
            on_activity("failing over")
            told_s = self._server.end_primary(is_crash=self._planned.kind is FailoverKind.CRASH)
            gone_s = monotonic_s()
            standby, unreplayed_bytes = self._server.promote()
            asked_s = monotonic_s()
            connected_s = self._await_session(asked_s, standby)
            clock_offset_s = wall_clock_offset_s()
            with generator.start_load(
                after,
                directory=folder / AFTER_DIR,
                on_progress=lambda second: self._see(_later(second, connected_s - load_start_s)),
                should_abort=self._find_failure,
            ) as second:
                self._samplers.follow(LOAD_LABEL, second.pid)
                self._seen.load = self._await_abort(load)
                on_activity("measuring")
                poll_until_done(second, should_abort=self._find_failure)
        return FailoverRecord(
            kind=self._planned.kind,
            standby=standby,
            told_s=told_s,
            gone_s=gone_s,
            asked_s=asked_s,
            connected_s=connected_s,
            clock_offset_s=clock_offset_s,
            unreplayed_bytes=unreplayed_bytes,
        )

    def _make_run(self, log: TransactionLog, duration_s: float) -> LoadRun:
        run = make_measured_run(self._stage, self._trial, self._seen, log, duration_s=duration_s)
        return msgspec.structs.replace(run, address=self._hosts)

    def _see(self, second: Progress) -> None:
        self._watch.see(second)
        self._on_load(second)

    def _find_failure(self) -> PgdynoError | None:
        if (failure := self._watch.find_failure()) is not None:
            return failure
        if self._prober.is_alive:
            return None
        self._prober.stop()
        return StepFailedError(f"the {PROBER} ended before the load", detail=self._prober.failure)

    def _let_run(self, load: RunningLoad) -> None:
        """Follow the load until the instant of the failover."""
        until_s = monotonic_s() + self._planned.at_s
        while (left_s := until_s - monotonic_s()) > 0:
            if (failure := self._find_failure()) is not None:
                raise failure
            if load.poll() is not None:
                raise StepFailedError("the load ended before the failover", detail=self._server.log_tail())
            time.sleep(min(left_s, _LOOK_EVERY_S))

    def _await_session(self, asked_s: float, standby: str) -> float:
        """Return when a session that can write was opened."""
        looked_s, refusal = asked_s, ""
        while (now_s := monotonic_s()) < asked_s + self._planned.promote_within_s:
            try:
                sql.connect(self._hosts, patience_s=_CONNECT_PATIENCE_S).close()
            except StepFailedError as exc:
                refusal = exc.detail
            else:
                return monotonic_s()
            if now_s > looked_s + _LOOK_EVERY_S:
                looked_s = now_s
                if (failure := self._server.find_failure()) is not None:
                    raise failure
            time.sleep(_CONNECT_EVERY_S)
        raise StepFailedError(
            f"{standby} was not promoted within {self._planned.promote_within_s:g} s",
            detail=f"{refusal}\n{self._server.log_tail()}",
            hint="where it has much WAL to replay, raise promote_within of [failover]",
        )

    def _await_abort(self, load: RunningLoad) -> LoadOutcome:
        """Return what the first pgbench leaves: it ends when its last client has lost its connection."""
        until_s = monotonic_s() + _ABORT_WITHIN_S
        while (outcome := load.poll()) is None:
            if monotonic_s() > until_s:
                raise StepFailedError(f"pgbench did not end within {_ABORT_WITHIN_S:g} s after its server")
            time.sleep(_CONNECT_EVERY_S)
        return outcome


def _prepare(server: OwnServer, load: PlannedWorkload) -> int | None:
    """Make the prober's table, and return the rows of pgbench_history if each transaction of the load adds one."""
    with server.connect(database="postgres") as connection:
        sql.create_probes(connection)
    if not _WITH_HISTORY.issuperset(name for name, _ in load.scripts):
        return None
    with server.connect() as connection:
        return sql.count_history(connection)


def _conclude(server: OwnServer, steps: FailoverRecord, *, history_before: int | None, folder: Path) -> FailoverRecord:
    """Return the steps with what the standby that took over has of the rows that were written."""
    tried = read_probes(folder).number
    with server.connect(database="postgres") as connection:
        missing = set(range(1, int(tried.max(initial=0)) + 1)).difference(sql.read_probes(connection))
    history_after = None
    if history_before is not None:
        with server.connect() as connection:
            history_after = sql.count_history(connection)
    return msgspec.structs.replace(
        steps, missing_probes=tuple(sorted(missing)), history_before=history_before, history_after=history_after
    )


@contextlib.contextmanager
def _probing(folder: Path, address: Address) -> Iterator[Child]:
    """Run the prober for the length of a `with` block."""
    prober = Child(
        PROBER, helper_argv("pgdyno.run.sample.prober", "--conninfo", address.conninfo()), folder / PROBES_FILE
    )
    try:
        until_s = monotonic_s() + _READY_WITHIN_S
        # The header and a write.
        while not prober.has_lines(2):
            if not prober.is_alive or monotonic_s() > until_s:
                prober.stop()
                raise StepFailedError(f"the {PROBER} does not begin", detail=prober.failure)
            time.sleep(_CONNECT_EVERY_S)
        yield prober
    finally:
        if prober.is_alive:
            prober.stop()


def _later(second: Progress, by_s: float) -> Progress:
    return msgspec.structs.replace(second, elapsed_s=second.elapsed_s + by_s)
