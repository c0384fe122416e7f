"""Read what a trial has left so far while it still runs: samples, the server's log, and pgbench's progress lines.

Nothing here waits for, locks or writes a file, so that a reader disturbs no trial.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from pgdyno.errors import PgdynoError
from pgdyno.plan.types import PlannedTrial
from pgdyno.record.damage import NOT_JSON
from pgdyno.record.durable import write_durably, writing
from pgdyno.record.generators.merge import merge_progress
from pgdyno.record.generators.parts import find_part_folders
from pgdyno.record.pgbench.output import Progress, parse_progress
from pgdyno.record.samples.files import (
    OS_FILE,
    SERVER_FILE,
    OsSamples,
    ServerSamples,
    read_os_samples,
    read_server_samples,
)
from pgdyno.record.samples.growing import GrowingLines, GrowingSamples
from pgdyno.record.samples.rows import OsHeader, OsRows, ServerHeader, ServerRows
from pgdyno.record.samples.server_machine import SERVER_LOG, convert_to_near, find_wall_offset_s
from pgdyno.record.serverlog import read_serverlog
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import TrialRecord, TrialStatus

PLANNED_FILE = "planned.json"
_PROGRESS_FILE = "pgbench.stderr"


def write_planned(folder: Path, trial: PlannedTrial) -> None:
    """Write what a trial is about to run, into its folder, where that is not in the plan of its record.

    Raises:
        StepFailedError: It cannot be written.
    """
    with writing(folder / PLANNED_FILE):
        write_durably(folder / PLANNED_FILE, msgspec.json.format(msgspec.json.encode(trial), indent=1))


def read_planned(folder: Path) -> PlannedTrial | None:
    """Read what a trial that has begun runs; return None if that is in the plan of its record, or the folder is gone."""
    try:
        return msgspec.json.decode((folder / PLANNED_FILE).read_bytes(), type=PlannedTrial)
    except (OSError, *NOT_JSON):
        return None


class RunningTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A trial that has no `trial.json` yet: its data so far, and the per-second progress that pgbench has reported."""

    data: TrialData
    seconds: tuple[Progress, ...]


class _GrowingProgress:
    """Reads the per-second progress of one pgbench."""

    def __init__(self, path: Path) -> None:
        self._lines = GrowingLines(path)
        self._seconds: list[Progress] = []

    def read(self) -> list[Progress]:
        """Return all seconds so far.

        Raises:
            OSError: The file is not there.
        """
        is_other, lines = self._lines.read()
        if is_other:
            self._seconds.clear()
        told = (parse_progress(line.decode(errors="replace")) for line in lines)
        self._seconds += [one for one in told if one is not None]
        return self._seconds


class RunningTrialReader:
    """Reads a running trial repeatedly, each time only what is new.

    Args:
        folder: The trial's.
        planned: The trial.
    """

    def __init__(self, folder: Path, planned: PlannedTrial) -> None:
        self.folder, self.planned = folder, planned
        self._progress: dict[Path, _GrowingProgress] = {}
        self._machine = GrowingSamples(folder / OS_FILE, OsHeader, OsRows)
        self._server = GrowingSamples(folder / SERVER_FILE, ServerHeader, ServerRows)

    def read(self, *, has_samples: bool = True) -> RunningTrial | None:
        """Read the trial; return None if its measured load has not begun.

        Without samples and log, reading takes so little that it can be repeated every second.

        Its status is FAILED, because nothing may count it before its `trial.json` says that it finished.
        """
        try:
            told_epoch_s, seconds = self._read_progress()
        except OSError:
            return None
        machine, server = self._read_samples() if has_samples else (None, None)
        # If the server is on another machine, the headers of its samples have that machine's clock.
        offset_s = find_wall_offset_s(server, machine) or 0.0
        # pgbench writes each line when its second ends.
        end_s = told_epoch_s - offset_s
        start_s = end_s - (seconds[-1].elapsed_s if seconds else 0.0)
        try:
            log = read_serverlog(self.folder / SERVER_LOG, clock_offset_s=offset_s) if has_samples else ()
        except OSError:
            log = ()
        record = TrialRecord(
            planned=self.planned,
            status=TrialStatus.FAILED,
            error=None,
            argv=(),
            clock_offset_s=offset_s,
            restore_s=0.0,
            load_start_monotonic_s=start_s,
            load_end_monotonic_s=end_s,
            load_cpu_s=None,
            log_sampling_rate=1.0,
            settings=(),
            counters_before={},
            counters_after={},
            gaps=(),
        )
        data = TrialData(
            record=record, pgbench=None, warm_up=None, transactions=None, os=machine, server=server, log=log, gaps=()
        )
        return RunningTrial(data=data, seconds=seconds)

    def _read_progress(self) -> tuple[float, tuple[Progress, ...]]:
        """Return when the last second was reported, and what all pgbenches of the load have reported.

        Raises:
            OSError: A file is not there.
        """
        paths = [place / _PROGRESS_FILE for place in find_part_folders(self.folder) or (self.folder,)]
        told = [self._progress.setdefault(path, _GrowingProgress(path)).read() for path in paths]
        told_epoch_s = max(path.stat().st_mtime for path in paths)
        if len(told) == 1:
            return told_epoch_s, tuple(told[0])
        return told_epoch_s, tuple(merge_progress(same) for same in zip(*told, strict=False))

    def _read_samples(self) -> tuple[OsSamples | None, ServerSamples | None]:
        """Read both samplers' files, packed already or not; None for one that is not there yet."""
        machine, server = None, None
        # If the server is on another machine, there may be one of the files without the other.
        with contextlib.suppress(PgdynoError, OSError, ValueError):
            seen = self._machine.read()
            grown = None if seen is None else OsSamples(header=seen[0], frame=seen[1], end=None, torn="")
            machine = convert_to_near(grown or read_os_samples(self.folder), self.folder)
        with contextlib.suppress(PgdynoError):
            told = self._server.read()
            grown_server = None if told is None else ServerSamples(header=told[0], frame=told[1], end=None, torn="")
            server = grown_server or read_server_samples(self.folder)
        return machine, server
