"""Make one load by several pgbenches on this machine: their clients are connected, and then let go at one instant.

Each pgbench has a part of the load: an address, clients and scripts of its own. Their files are kept part by part, as those of
load hosts are, and merge in the same way. When one pgbench fails, all end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from pgdyno.record.durable import writing
from pgdyno.record.generators.parts import LOADS_DIR
from pgdyno.record.pgbench.output import Progress
from pgdyno.run.load.argv import LoadRun
from pgdyno.run.load.generator import RunningLoad
from pgdyno.run.load.host_run import CONNECTS_WITHIN_S
from pgdyno.run.load.joined import JoinedPgbenches, step_seed
from pgdyno.run.load.part_run import PartRun
from pgdyno.run.load.parts_load import PartMember, PartsLoad
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.load.process import ShouldAbort


class PgbenchParts(JoinedPgbenches):
    """Makes a load by several pgbenches on this machine; implements `LoadGenerator`. Use it from the main thread.

    Args:
        local: Runs each of them.
        parts: What each of them does.
    """

    def __init__(self, local: Pgbench, parts: Sequence[PartRun]) -> None:
        super().__init__(
            local,
            [part.name for part in parts],
            user=local.user,
            is_framed=False,
            lagging=[part.name for part in parts if part.rate_tps is not None],
        )
        self._parts = tuple(parts)
        self._pids: tuple[int, ...] = ()

    @property
    def part_pids(self) -> tuple[int, ...]:
        """The process ids of the running pgbenches."""
        return self._pids

    @contextlib.contextmanager
    def start_load(
        self,
        run: LoadRun,
        *,
        directory: Path,
        on_progress: Callable[[Progress], None] = lambda _: None,
        should_abort: ShouldAbort = lambda: None,
    ) -> Iterator[RunningLoad]:
        """Begin one load; see `LoadGenerator`."""
        members: list[PartMember] = []
        with contextlib.ExitStack() as stack:
            for number, part in enumerate(self._parts):
                place = directory / LOADS_DIR / part.name
                with writing(place):
                    place.mkdir(parents=True, exist_ok=True)
                member = PartMember(part, self._aim(run, number), place)
                started = self._name_scripts(part.name).start_load(
                    member.run,
                    directory=place,
                    on_progress=member.seconds.append,
                    should_abort=should_abort,
                )
                member.load = stack.enter_context(started)
                members.append(member)
            load = PartsLoad(members, run.duration_s, on_progress, should_abort)
            # A frozen pgbench is thawed before it is ended.
            stack.callback(load.freezer.thaw)
            load.release()
            self._pids = load.pids
            stack.callback(self._forget)
            yield load

    def _aim(self, run: LoadRun, number: int) -> LoadRun:
        """Return the run of one part of a load."""
        part = self._parts[number]
        return msgspec.structs.replace(
            part.aim(run),
            # All are ended together, when the time since their release is over.
            duration_s=run.duration_s + CONNECTS_WITHIN_S,
            random_seed=step_seed(run.random_seed, number),
            log_prefix=self._find_prefix(run, part.name),
        )

    def _name_scripts(self, name: str) -> Pgbench:
        """Return the pgbench of one part, which has a folder of its own for copies of scripts."""
        folder = self._local.script_directory
        if folder is None:
            return self._local
        return msgspec.structs.replace(self._local, script_directory=folder.with_name(f"{folder.name}-{name}"))

    def _forget(self) -> None:
        self._pids = ()
