"""Run fio, one process for each job, on a file that it gets as its standard input.

Where fio is missing, the error says how to get it. A run that fails does not end the others: the caller decides.
"""

from __future__ import annotations

import os
import random
import re
import shutil

import msgspec

from pgdyno.errors import HostError, StepFailedError
from pgdyno.plan.disk import DiskJob, Pattern
from pgdyno.record.device.fio import PERCENTILES, FioReport, parse_fio
from pgdyno.run.device.scratch import AS_STDIN, Scratch
from pgdyno.run.host import process
from pgdyno.run.host.process import ServerUser

_VERSION = re.compile(r"fio-(\d+)\.\d+")
# The major version whose output and options pgdyno knows; they are the same since fio 3.0.
_KNOWN_MAJOR = 3
_DIRECTIONS = {
    Pattern.RANDOM_READ: "randread",
    Pattern.RANDOM_WRITE: "randwrite",
    Pattern.SEQUENTIAL_READ: "read",
    Pattern.SEQUENTIAL_WRITE: "write",
    Pattern.MIXED: "randrw",
    Pattern.WRITE_AND_FLUSH: "randwrite",
    Pattern.WAL: "write",
}
QUEUEING = ("libaio", "io_uring")
"""Engines for more than one I/O at once; the first one that a build has is taken. A single I/O at a time is a plain
pread or pwrite.
"""
_AT_ONCE = "psync"
# Short enough to see a burst end within a run; each report takes fio a little time.
_REPORT_MS = 125
# A long run has no more reports than this: each has 10 kB, and is a part of the run on the card.
_MOST_REPORTS = 100
_FILL_BYTES, _FILL_DEPTH = 2**20, 8
# A run on a slow device may last this much longer than planned.
_PATIENCE_S = 30.0


class Fio(msgspec.Struct, frozen=True, kw_only=True):
    """An fio program that can be run."""

    program: str
    version: str
    """The version, such as `fio-3.33`."""
    queueing: str | None
    """The engine for more than one I/O at once; None if this build has none."""

    @property
    def is_known(self) -> bool:
        """True if pgdyno knows the reports of this version."""
        return _major(self.version) == _KNOWN_MAJOR


def find_fio() -> Fio:
    """Find this machine's fio.

    Raises:
        HostError: There is no fio, or one that is too old.
    """
    program = shutil.which("fio")
    if program is None:
        raise HostError("fio is missing", hint="install it: `apt-get install fio`")
    said = process.run([program, "--version"])
    version = said.stdout.strip()
    if _major(version) < _KNOWN_MAJOR:
        raise HostError(
            f"{program} is too old, or is not fio",
            detail=version or said.stderr.strip(),
            hint=f"install fio {_KNOWN_MAJOR}: `apt-get install fio`",
        )
    engines = {line.strip() for line in process.run([program, "--enghelp"]).stdout.splitlines()}
    return Fio(program=program, version=version, queueing=next((one for one in QUEUEING if one in engines), None))


def lay_out(fio: Fio, scratch: Scratch, file_bytes: int, *, seed: int, most_s: float, user: ServerUser | None) -> int:
    """Write the whole file with incompressible data, and flush it to the disk.

    Args:
        fio: The program that writes it.
        scratch: The file.
        file_bytes: Its size.
        seed: The seed of the random data.
        most_s: The time after which the rest of the file is cut off.
        user: The account to run fio as; None: the present one.

    Returns:
        The size of the file now.

    Raises:
        HostError: fio cannot be started.
        StepFailedError: It fails.
    """
    options = [
        *("--rw=write", f"--bs={_FILL_BYTES}", f"--size={file_bytes}", f"--runtime={most_s:g}", "--end_fsync=1"),
        "--refill_buffers=1",
        *_engine(fio, _FILL_DEPTH if fio.queueing else 1, is_direct=scratch.takes_direct),
    ]
    report = _run(fio, scratch, options, seed=seed, most_s=most_s, user=user)
    if report.moved_bytes < file_bytes:
        os.ftruncate(scratch.descriptor, report.moved_bytes)
    return report.moved_bytes


def can_run(fio: Fio, job: DiskJob, scratch: Scratch) -> bool:
    """Return whether this fio and this file system can run a job."""
    return (scratch.takes_direct or not _is_direct(job)) and (fio.queueing is not None or job.depth == 1)


def run_job(
    fio: Fio, job: DiskJob, scratch: Scratch, file_bytes: int, *, seed: int, user: ServerUser | None
) -> FioReport:
    """Run a job once.

    Args:
        fio: The program that runs it.
        job: A job that `can_run` accepts.
        scratch: The file, laid out.
        file_bytes: Its size.
        seed: The seed of random offsets and data.
        user: The account to run fio as; None: the present one.

    Raises:
        HostError: fio cannot be started.
        StepFailedError: It fails.
    """
    # Each run begins at another offset, because a cache of the disk may hold what the last run read or wrote first.
    begin = random.Random(seed).randrange(1 + file_bytes // 2 // job.block_bytes) * job.block_bytes  # noqa: S311
    offset = 0 if _DIRECTIONS[job.pattern].startswith("rand") else begin
    options = [
        *(f"--rw={_DIRECTIONS[job.pattern]}", f"--bs={job.block_bytes}"),
        *(f"--offset={offset}", f"--size={file_bytes - offset}"),
        *("--time_based=1", f"--runtime={job.runtime_s * 1000:.0f}ms"),
        *(["--fdatasync=1"] if job.is_flushed else []),
        *([] if job.read_ratio is None else [f"--rwmixread={job.read_ratio * 100:.0f}"]),
        *_engine(fio, job.depth, is_direct=_is_direct(job), processes=job.processes),
        # Each process has offsets of its own: fio makes its seed of randseed and its number.
        *([] if job.processes == 1 else [f"--numjobs={job.processes}", "--group_reporting=1"]),
    ]
    return _run(fio, scratch, options, seed=seed, most_s=job.runtime_s, user=user, processes=job.processes)


def _is_direct(job: DiskJob) -> bool:
    # PostgreSQL writes its WAL through the page cache, unless wal_sync_method says otherwise.
    return job.pattern is not Pattern.WAL


def _engine(fio: Fio, depth: int, *, is_direct: bool, processes: int = 1) -> tuple[str, ...]:
    engine = fio.queueing if depth > 1 and fio.queueing else _AT_ONCE
    return f"--ioengine={engine}", f"--iodepth={depth // processes}", f"--direct={is_direct:d}"


def _run(
    fio: Fio,
    scratch: Scratch,
    options: list[str],
    *,
    seed: int,
    most_s: float,
    user: ServerUser | None,
    processes: int = 1,
) -> FioReport:
    report_ms = max(_REPORT_MS, most_s * 1000 / _MOST_REPORTS)
    argv = [
        *(fio.program, "--name=job", f"--filename={AS_STDIN}", "--allow_file_create=0", "--fallocate=none", "--thread"),
        # No two blocks hold the same data, and none can be compressed; otherwise a disk could appear arbitrarily fast.
        # That is fio's default: random data, changed a little for each block, which costs less CPU than new data. With
        # randrepeat=0 the seed also determines the offsets: otherwise each run would use the same offsets in the same
        # order, and later rounds would see only what a disk cached in the first.
        *("--randrepeat=0", f"--randseed={seed}"),
        *("--output-format=json", f"--status-interval={report_ms:.0f}ms", "--eta=never", "--disk_util=0"),
        f"--percentile_list={':'.join(f'{one:g}' for one in PERCENTILES)}",
        # Latency from submission to completion: with a full queue, submitting itself may wait.
        *("--lat_percentiles=1", "--clat_percentiles=0"),
        *options,
    ]
    done = scratch.run(argv, user=user, timeout_s=most_s + _PATIENCE_S)
    if done.exit_code > 0:
        said = (done.stderr or done.stdout).strip()
        raise StepFailedError("fio failed", detail=said.splitlines()[0] if said else f"exit code {done.exit_code}")
    try:
        return parse_fio(done.stdout, load_s=most_s, processes=processes)
    except ValueError as exc:
        raise StepFailedError("fio's output cannot be read", detail=str(exc)) from exc


def _major(version: str) -> int:
    match = _VERSION.match(version)
    return int(match[1]) if match else 0
