"""Follow a load that several pgbenches on this machine make, from the instant at which all of them begin to their end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from pgdyno.errors import PgdynoError, StepFailedError
from pgdyno.record.durable import write_durably, writing
from pgdyno.record.generators.merge import merge_progress
from pgdyno.record.generators.part import LoadPart
from pgdyno.record.generators.parts import PART_FILE
from pgdyno.record.pgbench.output import Progress
from pgdyno.run.host import process
from pgdyno.run.host.clock import monotonic_s, wall_clock_offset_s
from pgdyno.run.host.freezer import Freezer
from pgdyno.run.host.process_id import read_account
from pgdyno.run.load.argv import LoadRun
from pgdyno.run.load.generator import LoadOutcome, RunningLoad
from pgdyno.run.load.host_run import CONNECTS_WITHIN_S
from pgdyno.run.load.joined import JoinedOutcome, join_outcome
from pgdyno.run.load.part_run import PartRun
from pgdyno.run.load.process import ShouldAbort
from pgdyno.run.load.release import note_release

_LOOK_EVERY_S = 0.001


class PartMember:
    """One pgbench of a load that runs."""

    def __init__(self, part: PartRun, run: LoadRun, directory: Path) -> None:
        self.part = part
        self.run = run
        self.directory = directory
        self.seconds: list[Progress] = []
        self.load: RunningLoad | None = None
        self.outcome: LoadOutcome | None = None
        # pgbench reads the time of day once, as it starts, and its log counts on from there.
        self._epoch_offset_s = wall_clock_offset_s()
        self._start_s = monotonic_s()

    @property
    def running(self) -> RunningLoad:
        """Its pgbench, once it was started."""
        assert self.load is not None  # noqa: S101 - it was started at once
        return self.load

    def is_connected(self) -> bool:
        """Return whether its clients have their sockets and, where they are logged, its threads their logs."""
        pid, prefix = self.running.pid, self.run.log_prefix
        # Each thread opens its log before it connects; before that, pgbench has a connection for itself.
        logs = 0 if prefix is None else len(list(prefix.parent.glob(f"{prefix.name}.{pid}*")))
        return logs == (0 if prefix is None else self.run.threads) and _count_sockets(pid) >= self.run.clients

    def poll(self) -> None:
        """Look whether it has ended; an error names the part."""
        if self.outcome is not None:
            return
        try:
            self.outcome = self.running.poll()
        except PgdynoError as error:
            error.fact = f"{self.part.name}: {error.fact}"
            raise

    def note_release(self, release_s: float) -> None:
        """Note for the reader of its log when its clients are let go.

        Raises:
            StepFailedError: It cannot be written.
        """
        if self.run.log_prefix is not None:
            note_release(self.run.log_prefix.parent, release_s + self._epoch_offset_s)

    def write(self, release_s: float) -> LoadPart:
        """Write what the record keeps of it beside its files."""
        done, part = self.outcome, self.part
        made = LoadPart(
            host=part.name,
            argv=() if done is None else done.argv,
            pid=self.running.pid,
            clients=part.clients,
            threads=part.threads,
            start_far_s=self._start_s,
            epoch_offset_s=self._epoch_offset_s,
            release_near_s=release_s,
            end_far_s=None if done is None else done.end_monotonic_s,
            exit_code=None if done is None else done.exit_code,
            cpu_s=None if done is None else done.cpu_s,
            endpoint=part.endpoint,
            part=part.part,
            first_script=part.first_script,
        )
        with writing(self.directory):
            write_durably(self.directory / PART_FILE, msgspec.json.format(msgspec.json.encode(made), indent=1))
        return made


class PartsLoad:
    """A load that runs; implements `RunningLoad`."""

    def __init__(
        self,
        members: Sequence[PartMember],
        duration_s: float,
        on_progress: Callable[[Progress], None],
        should_abort: ShouldAbort,
    ) -> None:
        self.freezer = Freezer()
        self._members = members
        self._duration_s = duration_s
        self._on_progress = on_progress
        self._should_abort = should_abort
        self._release_s = 0.0
        self._is_told = False
        self._outcome: JoinedOutcome | None = None

    @property
    def pid(self) -> int:
        """The process id of the first pgbench."""
        return self._members[0].running.pid

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of all."""
        return tuple(member.running.pid for member in self._members)

    def release(self) -> None:
        """Wait until all clients are connected, and let all go at one instant.

        Raises:
            StepFailedError: A pgbench failed before, or connects too slowly.
            PgdynoError: What `should_abort` returned.
        """
        deadline_s = monotonic_s() + CONNECTS_WITHIN_S
        waiting = list(self._members)
        while waiting:
            for member in [one for one in waiting if one.is_connected()]:
                self.freezer.freeze([member.running.pid])
                waiting.remove(member)
            for member in waiting:
                member.poll()
            if waiting and (error := self._should_abort()) is not None:
                raise error
            if waiting and monotonic_s() > deadline_s:
                late = ", ".join(member.part.name for member in waiting)
                raise StepFailedError(f"the clients of {late} did not connect within {CONNECTS_WITHIN_S:g} s")
            time.sleep(_LOOK_EVERY_S)
        # All of them stand still now.
        still_s = monotonic_s()
        for member in self._members:
            member.note_release(still_s)
        self._release_s = monotonic_s()
        self.freezer.thaw()
        for member in self._members:
            member.write(self._release_s)

    def poll(self) -> JoinedOutcome | None:
        """Take what has come; return the outcome once all have ended."""
        if self._outcome is not None:
            return self._outcome
        if not self._is_told and monotonic_s() >= self._release_s + self._duration_s:
            self.end()
        for member in self._members:
            member.poll()
        while all(member.seconds for member in self._members):
            self._on_progress(merge_progress([member.seconds.pop(0) for member in self._members]))
        done = [member.outcome for member in self._members if member.outcome is not None]
        if len(done) < len(self._members):
            return None
        parts = [member.write(self._release_s) for member in self._members]
        self._outcome = join_outcome(
            parts,
            [one.stdout for one in done],
            start_s=self._release_s,
            end_s=min(one.end_monotonic_s for one in done),
            clock_offset_s=parts[0].epoch_offset_s,
        )
        return self._outcome

    def end(self) -> None:
        """End all in order; see `Running`."""
        self._is_told = True
        for member in self._members:
            if member.outcome is None:
                member.running.end()


def _count_sockets(pid: int) -> int:
    """Return how many sockets a process has open; 0 of one that has ended."""
    folder, count = Path(f"/proc/{pid}"), 0
    try:
        for entry in (folder / "fd").iterdir():
            # A descriptor may be gone meanwhile.
            with contextlib.suppress(FileNotFoundError):
                count += str(entry.readlink()).startswith("socket:")
    except PermissionError:
        return _count_as_owner(folder)
    except OSError:
        return 0
    return count


def _count_as_owner(folder: Path) -> int:
    """Count the sockets as the process's own account does: root in a container mostly may not see them.

    Another program looks: this process could only change the account of all of its threads.
    """
    try:
        account = read_account(folder)
    except OSError:
        return 0
    # Nobody may look at one that has changed its account and is not yet its own program.
    listed = process.run(["ls", "-l", f"{folder}/fd"], user=account)
    return listed.stdout.count(" -> socket:")
