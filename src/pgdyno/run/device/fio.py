"""Runs fio, one process for each job, on a file that it gets as its standard input.

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
from pgdyno.run.host.host import THIS_HOST
from pgdyno.run.host.process import ServerUser

_VERSION = re.compile(r"fio-(\d+)\.\d+")
# What it prints and what its options are called since fio 3.0.
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
"""Engines for more than one I/O at once, of which the first that a build has is taken; one at a time is a plain pread or
pwrite."""
_AT_ONCE = "psync"
# Often enough to see a burst end within a run; it takes a little longer each time.
_REPORT_MS = 125
_FILL_BYTES, _FILL_DEPTH = 2**20, 8
# A device that answers late is waited for this long after the run should be over.
_PATIENCE_S = 30.0


class Fio(msgspec.Struct, frozen=True, kw_only=True):
    """A fio that can be run."""

    program: str
    version: str
    """Such as `fio-3.33`."""
    queueing: str | None
    """Its engine for more than one I/O at once; None where this build has none."""

    @property
    def is_known(self) -> bool:
        """Whether this version's reports are those that pgdyno was made for."""
        return _major(self.version) == _KNOWN_MAJOR


def find_fio() -> Fio:
    """The fio of this machine.

    Raises:
        HostError: There is none, or one that is too old.
    """
    program = shutil.which("fio")
    if program is None:
        raise HostError("fio is missing", hint="install it: `apt-get install fio`")
    said = THIS_HOST.run([program, "--version"])
    version = said.stdout.strip()
    if _major(version) < _KNOWN_MAJOR:
        raise HostError(
            f"{program} is too old, or no fio",
            detail=version or said.stderr.strip(),
            hint=f"install fio {_KNOWN_MAJOR}: `apt-get install fio`",
        )
    engines = {line.strip() for line in THIS_HOST.run([program, "--enghelp"]).stdout.splitlines()}
    return Fio(program=program, version=version, queueing=next((one for one in QUEUEING if one in engines), None))


def lay_out(fio: Fio, scratch: Scratch, file_bytes: int, *, seed: int, most_s: float, user: ServerUser | None) -> int:
    """Write all of a file, with data that cannot be compressed, and have it on the disk.

    Args:
        fio: Writes it.
        scratch: The file.
        file_bytes: Its size.
        seed: Draws the data.
        most_s: After this long the rest is cut off.
        user: Whom to run fio as; None: as ourselves.

    Returns:
        The size that it has now.

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
    """Whether this fio and this file system can do a job."""
    return (scratch.takes_direct or not _is_direct(job)) and (fio.queueing is not None or job.depth == 1)


def run_job(
    fio: Fio, job: DiskJob, scratch: Scratch, file_bytes: int, *, seed: int, user: ServerUser | None
) -> FioReport:
    """Run a job once.

    Args:
        fio: Runs it.
        job: What to do; one that it can.
        scratch: The file, laid out.
        file_bytes: Its size.
        seed: Draws places and data.
        user: Whom to run fio as; None: as ourselves.

    Raises:
        HostError: fio cannot be started.
        StepFailedError: It fails.
    """
    # From another place each time, since a cache of the disk's may hold what the last run read or wrote first.
    begin = random.Random(seed).randrange(1 + file_bytes // 2 // job.block_bytes) * job.block_bytes  # noqa: S311
    offset = 0 if _DIRECTIONS[job.pattern].startswith("rand") else begin
    options = [
        *(f"--rw={_DIRECTIONS[job.pattern]}", f"--bs={job.block_bytes}"),
        *(f"--offset={offset}", f"--size={file_bytes - offset}"),
        *("--time_based=1", f"--runtime={job.runtime_s * 1000:.0f}ms"),
        *(["--fdatasync=1"] if job.is_flushed else []),
        *([] if job.read_ratio is None else [f"--rwmixread={job.read_ratio * 100:.0f}"]),
        *_engine(fio, job.depth, is_direct=_is_direct(job)),
    ]
    return _run(fio, scratch, options, seed=seed, most_s=job.runtime_s, user=user)


def _is_direct(job: DiskJob) -> bool:
    # PostgreSQL writes its WAL through the page cache, unless wal_sync_method says otherwise.
    return job.pattern is not Pattern.WAL


def _engine(fio: Fio, depth: int, *, is_direct: bool) -> tuple[str, ...]:
    engine = fio.queueing if depth > 1 and fio.queueing else _AT_ONCE
    return f"--ioengine={engine}", f"--iodepth={depth}", f"--direct={is_direct:d}"


def _run(
    fio: Fio, scratch: Scratch, options: list[str], *, seed: int, most_s: float, user: ServerUser | None
) -> FioReport:
    argv = [
        *(fio.program, "--name=job", f"--filename={AS_STDIN}", "--allow_file_create=0", "--fallocate=none", "--thread"),
        # No two blocks hold the same, and none can be compressed, since else a disk may be as fast as one likes. That is
        # fio's default: random data, changed a little for each block, which costs less CPU than new ones.
        # The seed draws the places too only where fio is not to repeat them: else each run asks for the same ones in the
        # same order, and what a disk caches of the first rounds is all that the later ones see.
        *("--randrepeat=0", f"--randseed={seed}"),
        *("--output-format=json", f"--status-interval={_REPORT_MS}ms", "--eta=never", "--disk_util=0"),
        f"--percentile_list={':'.join(f'{one:g}' for one in PERCENTILES)}",
        # From submission to completion: with a full queue, submitting itself may wait.
        *("--lat_percentiles=1", "--clat_percentiles=0"),
        *options,
    ]
    done = scratch.run(argv, user=user, timeout_s=most_s + _PATIENCE_S)
    if done.exit_code > 0:
        said = (done.stderr or done.stdout).strip()
        raise StepFailedError("fio failed", detail=said.splitlines()[0] if said else f"exit code {done.exit_code}")
    try:
        return parse_fio(done.stdout, load_s=most_s)
    except ValueError as exc:
        raise StepFailedError("fio cannot be understood", detail=str(exc)) from exc


def _major(version: str) -> int:
    match = _VERSION.match(version)
    return int(match[1]) if match else 0
