"""Read what a trial has left so far while it still runs: samples, the server's log, and pgbench's progress lines.

Nothing here waits for, locks or writes a file, so that a reader disturbs no trial.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from pgdyno.errors import PgdynoError
from pgdyno.plan.types import PlannedTrial
from pgdyno.record.generators.merge import merge_progress
from pgdyno.record.generators.parts import find_part_folders
from pgdyno.record.pgbench.output import Progress, parse_progress
from pgdyno.record.samples.files import OsSamples, ServerSamples, read_server_samples
from pgdyno.record.samples.server_machine import read_server_machine
from pgdyno.record.serverlog import read_serverlog
from pgdyno.record.trial_data import SERVER_LOG, TrialData
from pgdyno.record.types import TrialRecord, TrialStatus

_PROGRESS_FILE = "pgbench.stderr"


class RunningTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A trial that has no `trial.json` yet: its data so far, and the seconds that pgbench has told."""

    data: TrialData
    seconds: tuple[Progress, ...]


def read_running_trial(folder: Path, planned: PlannedTrial, *, has_samples: bool = True) -> RunningTrial | None:
    """Read a trial that runs; return None before its measured load began.

    Without samples and log, reading takes so little that it can be repeated every second.

    Its status is FAILED, because nothing may count it before its `trial.json` says that it finished.
    """
    files = [place / _PROGRESS_FILE for place in find_part_folders(folder) or (folder,)]
    try:
        of_files = [_read_seconds(path) for path in files]
        told_epoch_s = max(path.stat().st_mtime for path in files)
    except OSError:
        return None
    seconds = tuple(merge_progress(same) for same in zip(*of_files, strict=False))
    machine, server = _read_samples(folder) if has_samples else (None, None)
    # Of a server elsewhere, the machine's header has that machine's clock.
    header = (server and server.header) or (machine and machine.header)
    offset_s = header.wall_s - header.monotonic_s if header else 0.0
    # pgbench writes each line when its second ends.
    end_s = told_epoch_s - offset_s
    start_s = end_s - (seconds[-1].elapsed_s if seconds else 0.0)
    record = TrialRecord(
        planned=planned,
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
    try:
        log = read_serverlog(folder / SERVER_LOG, clock_offset_s=offset_s) if has_samples else ()
    except OSError:
        log = ()
    data = TrialData(
        record=record, pgbench=None, warm_up=None, transactions=None, os=machine, server=server, log=log, gaps=()
    )
    return RunningTrial(data=data, seconds=seconds)


def _read_seconds(path: Path) -> list[Progress]:
    # A last line without its end is still being written.
    lines = path.read_text(errors="replace").split("\n")[:-1]
    return [one for line in lines if (one := parse_progress(line)) is not None]


def _read_samples(folder: Path) -> tuple[OsSamples | None, ServerSamples | None]:
    """Read both samplers' files; None for one that is not there yet, or that is being packed just now."""
    machine, server = None, None
    # Of a server elsewhere there may be the one without the other.
    with contextlib.suppress(PgdynoError, OSError, ValueError):
        machine = read_server_machine(folder)
    with contextlib.suppress(PgdynoError, OSError):
        server = read_server_samples(folder)
    return machine, server
