"""Read pgbench's transaction log while it is written, free what was read, and pack it into the record.

The log lies in memory (/dev/shm), away from the disks under test. Every second a child of pgdyno takes the new whole
lines, adds them to the summary and to the packed parts, and punches what it has read out of the files. So a run of any
length holds only a few seconds of log. One child follows all logs of a round, or of a load in parts.

This is a child and not a thread, so its 0.17 CPU seconds a million transactions compete with nothing in pgdyno but the
scheduler, at a lower priority. A fault in it costs the latencies, not the trial. It outlives a killed pgdyno only for
as long as it takes to save what there is and to delete the log. Its imports (0.25 CPU seconds, 60 MB) end before it
reports that it is ready.

If the child dies, the trial goes on: the child leaves the files to its parent, which empties them from then on
(`LogStream.poll`) and reports the reason (`finish`). A deleted file would grow unseen until pgbench ends. This module
judges nothing about the latencies.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from pgdyno.errors import StepFailedError
from pgdyno.record.damage import NOT_JSON
from pgdyno.record.transactions.pack import PackedLog, TransactionPacker, prepare, write_summary
from pgdyno.record.transactions.parse import BLOCK_BYTES, LineCutter, LogColumns, ParsedBlock, parse_block
from pgdyno.record.transactions.summary import TransactionSummary
from pgdyno.record.transactions.tally import TransactionTally
from pgdyno.run.host import process
from pgdyno.run.host.helper import be_nice, helper_argv
from pgdyno.run.host.stale import name_of_this_process, remove_stale_folders
from pgdyno.run.load.release import read_release

MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108  # the place is the point: a log on a disk would disturb what is measured
ROOM_BYTES = 256 << 20
"""The free memory to require: a minute and a half of log at 90 000 TPS, in case the reader falls behind."""

_NICENESS = 10
_PERIOD_S = 1.0
_READY_TIMEOUT_S = 30.0
_DRAIN_TIMEOUT_S = 120.0
_LAST_WORDS_S = 5.0
_FOLDER_MARK = "pgdyno-log-"
_PAGE_BYTES = 4096
_HEAD_BYTES = 64
_READY = b"ready\n"

READER_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(64 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(128 << 20),
}
"""Each library gets one thread, because the load needs the cores. The allocator keeps its memory: returning it after
every block and faulting it in again cost a third of the reader's CPU time.
"""


class LogRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What pgbench logs of a load, and how soon the record has it."""

    columns: LogColumns = LogColumns.PLAIN
    sampling_rate: float = 1.0
    """pgbench's `--sampling-rate`."""
    latency_limit_us: int | None = None
    """pgbench's `--latency-limit`; None: there is none."""
    flush_period_s: float | None = None
    """The interval at which the record is brought up to date for observers; None: a part is written when it is full."""


class FollowedLog(msgspec.Struct, frozen=True, kw_only=True):
    """A log to follow: where it grows, where the packed form goes, and what pgbench was asked to log."""

    log_folder: str
    record_folder: str
    asked: LogRequest
    is_framed: bool = False
    """Whether the log is that of all threads of a pgbench elsewhere, in frames; see `run/link/far_load.py`."""
    is_held: bool = False
    """Whether the clients are held until all are connected: see `run/load/release.py`."""


class LogTask(msgspec.Struct, frozen=True, kw_only=True):
    """The child's task."""

    parent_pid: int
    logs: tuple[FollowedLog, ...]


class LogOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of following a log.

    `summary` is None if the reader died, and `packed` if the record could not be written. Both end early if the reader
    was stopped before the load had ended; `reason` says why. The reader itself measures `backlog_bytes` (the most that
    waited to be read), and `cpu_s` and `peak_memory_bytes` of all logs that it follows; they are None if it died.
    `notes` are circumstances that a report should mention.
    """

    summary: TransactionSummary | None = None
    packed: PackedLog | None = None
    reason: str | None = None
    cpu_s: float | None = None
    startup_cpu_s: float | None = None
    peak_memory_bytes: int | None = None
    backlog_bytes: int | None = None
    notes: tuple[str, ...] = ()


class LogStream:
    """The parent's side of a log: start it before pgbench, give pgbench `log_prefix`, and finish it after pgbench has ended."""

    def __init__(self, reader: _ReaderProcess, folder: Path, notes: tuple[str, ...]) -> None:
        self._reader = reader
        self._folder = folder
        self._notes = notes

    @property
    def log_prefix(self) -> Path:
        """Return the value of pgbench's `--log-prefix`."""
        return self._folder / "pgbench"

    @property
    def pid(self) -> int:
        """Return the reader's process id, to account for its CPU time."""
        return self._reader.child.pid

    def poll(self) -> bool:
        """Return whether the reader lives; if it does not, empty the log so that it cannot fill the memory."""
        if self._reader.child.poll() is None:
            return True
        for path in self._folder.glob("*"):
            os.truncate(path, 0)  # pgbench writes on at its own offset: the file stays sparse
        return False

    def finish(self) -> LogOutcome:
        """Let the reader take the rest of all its logs, stop it and delete the log.

        A fault of the reader raises nothing: see `reason`.
        """
        try:
            outcome = self._reader.finish()[str(self._folder)]
        finally:
            self.close()
        return msgspec.structs.replace(outcome, notes=(*self._notes, *outcome.notes))

    def close(self) -> None:
        """Stop the reader if it still runs, and delete the log."""
        self._reader.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class _ReaderProcess:
    """The child, which ends once for all logs that it follows."""

    def __init__(self, child: subprocess.Popen[bytes], logs: Sequence[FollowedLog]) -> None:
        self.child = child
        self._folders = [log.log_folder for log in logs]
        self._outcomes: dict[str, LogOutcome] = {}

    def finish(self) -> Mapping[str, LogOutcome]:
        """Let it take the rest, stop it, and return what became of each log, by its folder."""
        if not self._outcomes:
            try:
                output, _ = self.child.communicate(timeout=_DRAIN_TIMEOUT_S)
                outcomes = _decode_outcomes(output, self.child.returncode, count=len(self._folders))
            except subprocess.TimeoutExpired:
                lost = LogOutcome(reason=f"the log reader did not end within {_DRAIN_TIMEOUT_S:g} s")
                outcomes = [lost] * len(self._folders)
            self._outcomes = dict(zip(self._folders, outcomes, strict=True))
        return self._outcomes

    def close(self) -> None:
        """Stop it if it still runs."""
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe is not None:
                pipe.close()


def start_log_streams(
    asked: Mapping[Path, LogRequest],
    *,
    user: process.ServerUser,
    memory_folder: Path = MEMORY_FOLDER,
    is_framed: bool = False,
    is_held: bool = False,
) -> tuple[LogStream, ...]:
    """Create a folder for each log of pgbench and start one reader of all; return when the reader is ready.

    Call this from the main thread.

    Args:
        asked: What pgbench will log, by the folder for the packed parts and the summary, which holds no parts yet.
        user: The account of pgbench, which must be able to write the logs.
        memory_folder: The folder of the logs while they are read; without enough room, a temporary folder is used.
        is_framed: Whether the logs come from load hosts.
        is_held: Whether the clients of each load are held until `note_release`.

    Raises:
        HostError: The reader cannot be started.
        StepFailedError: The reader ended at once or did not become ready.
    """
    parent, notes = _choose_folder(memory_folder, user)
    remove_stale_folders(parent, _FOLDER_MARK)
    with contextlib.ExitStack() as stack:
        logs = []
        for record_folder, request in asked.items():
            folder = _make_folder(parent, user)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            logs.append(
                FollowedLog(
                    log_folder=str(folder),
                    record_folder=str(record_folder.absolute()),
                    asked=request,
                    is_framed=is_framed,
                    is_held=is_held,
                )
            )
        task = LogTask(parent_pid=os.getpid(), logs=tuple(logs))
        child = process.start(
            helper_argv("pgdyno.run.load.log_stream", msgspec.json.encode(task).decode()),
            death_signal="TERM",  # it saves what it has and deletes the logs
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**process.clean_environment(), **READER_ENVIRONMENT},
        )
        reader = _ReaderProcess(child, logs)
        stack.callback(reader.close)
        _await_ready(child)
        stack.pop_all()
    return tuple(LogStream(reader, Path(log.log_folder), notes) for log in logs)


def _make_folder(parent: Path, user: process.ServerUser) -> Path:
    folder = parent / f"{name_of_this_process(_FOLDER_MARK)}{os.urandom(4).hex()}"
    folder.mkdir(mode=0o700)
    if not user.is_self:
        os.chown(folder, user.uid, user.gid)
    return folder


def _choose_folder(preferred: Path, user: process.ServerUser) -> tuple[Path, tuple[str, ...]]:
    """Return the preferred folder if it has room, else a temporary folder that the account may enter and a note that says so."""
    try:
        free = shutil.disk_usage(preferred).free
    except OSError as exc:
        why = f"{preferred} cannot be used ({exc.strerror})"
    else:
        if free >= ROOM_BYTES and os.access(preferred, os.W_OK):
            return preferred, ()
        why = f"{preferred} has {free >> 20} MB of the {ROOM_BYTES >> 20} MB asked for"
    other = Path(user.temporary_folder)
    return other, (f"the transaction log was written to {other}: {why}",)


def _await_ready(child: subprocess.Popen[bytes]) -> None:
    assert child.stdout is not None  # noqa: S101  # started with a pipe
    said = b""
    if select.select([child.stdout], [], [], _READY_TIMEOUT_S)[0]:
        said = child.stdout.readline()
        if said == _READY:
            return
        # The child is about to end and to print the reason, which arrives piece by piece.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_LAST_WORDS_S)
    child.kill()
    rest = child.stdout.read()
    raise StepFailedError("the log reader did not start", detail=(said + rest).decode(errors="replace").strip())


def _decode_outcomes(output: bytes, exit_code: int, *, count: int) -> list[LogOutcome]:
    try:
        return msgspec.json.decode(output, type=list[LogOutcome])
    except NOT_JSON:
        last = output.decode(errors="replace").strip().rpartition("\n")[2]
        why = f"the log reader ended with exit code {exit_code}: {last or 'it said nothing'}"
        return [LogOutcome(reason=why)] * count


class _Thread:
    """The log of one thread of pgbench, as far as it was read."""

    def __init__(self) -> None:
        self.cutter = LineCutter()
        self.last_stamp_us = 0


class _Follower:
    """A growing file with the log of one thread, of which new content is read and freed."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR)
        self._freed_bytes = 0
        self.read_bytes = 0
        self._thread = _Thread()

    @property
    def threads(self) -> tuple[_Thread, ...]:
        """The threads whose logs are in the file."""
        return (self._thread,)

    @property
    def is_read(self) -> bool:
        """Whether the file ends where a whole log does."""
        return True

    def backlog_bytes(self) -> int:
        return os.fstat(self._descriptor).st_size - self.read_bytes

    def read(self) -> tuple[_Thread, bytes]:
        """Read the next block of whole lines; empty if nothing is new, or only part of a line."""
        return self._thread, self._thread.cutter.feed(self._read_bytes(BLOCK_BYTES))

    def free(self) -> bool:
        """Free the pages that were read; return False if the file system cannot."""
        until = self.read_bytes // _PAGE_BYTES * _PAGE_BYTES
        if until == self._freed_bytes:
            return True
        done = _punch_hole(self._descriptor, self._freed_bytes, until - self._freed_bytes)
        self._freed_bytes = until
        return done

    def _read_bytes(self, count: int) -> bytes:
        data = os.pread(self._descriptor, count, self.read_bytes)
        self.read_bytes += len(data)
        return data


class _FramedFollower(_Follower):
    """A growing file with the logs of all threads, in frames that name the thread and the size."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._threads: dict[int, _Thread] = {}
        self._head = b""
        self._left: tuple[_Thread, int] | None = None

    @property
    def threads(self) -> tuple[_Thread, ...]:
        return tuple(self._threads.values())

    @property
    def is_read(self) -> bool:
        return self._left is None and not self._head

    def read(self) -> tuple[_Thread, bytes]:
        if self._left is None:
            found = os.pread(self._descriptor, _HEAD_BYTES, self.read_bytes).split(b"\n", 1)
            if len(found) < 2:
                # The rest of the line is still on its way.
                self._head = found[0]
                return _Thread(), b""
            self.read_bytes += len(found[0]) + 1
            self._head = b""
            number, size = map(int, found[0].split())
            self._left = (self._threads.setdefault(number, _Thread()), size)
        thread, left = self._left
        data = self._read_bytes(min(left, BLOCK_BYTES))
        self._left = (thread, left - len(data)) if len(data) < left else None
        return thread, thread.cutter.feed(data)


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


def _punch_hole(descriptor: int, offset: int, length: int) -> bool:
    """Free the pages of a range, keeping the file's size: FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, fallocate(2)."""
    return bool(_LIBC.fallocate(descriptor, 0x02 | 0x01, offset, length) == 0)


class _Reader:
    """The work of the child on one log."""

    def __init__(self, log: FollowedLog) -> None:
        self._log = log
        self._folder = Path(log.log_folder)
        self._files: dict[str, _Follower] = {}
        self._asked = log.asked
        self._tally = TransactionTally(
            columns=log.asked.columns,
            sampling_rate=log.asked.sampling_rate,
            latency_limit_us=log.asked.latency_limit_us,
        )
        self._packer: TransactionPacker | None = TransactionPacker(Path(log.record_folder))
        self._release_us: int | None = None
        self._reason: str | None = None
        self._backlog_bytes = 0
        self._can_free = True

    def sweep(self, *, is_last: bool = False) -> None:
        """Take everything that is new since the last call. While the clients are held, take nothing, except at the last call."""
        if self._log.is_held and self._release_us is None:
            self._release_us = read_release(self._folder)
            if self._release_us is None and not is_last:
                return
        for path in sorted(self._folder.iterdir()):
            # One with a dot has what a shell prints before a log begins.
            if path.name not in self._files and not path.name.startswith("."):
                self._files[path.name] = (_FramedFollower if self._log.is_framed else _Follower)(path)
        self._backlog_bytes = max(self._backlog_bytes, sum(file.backlog_bytes() for file in self._files.values()))
        for file in self._files.values():
            before = -1
            while file.backlog_bytes() > 0 and file.read_bytes != before:
                before = file.read_bytes
                self._take(file)
                self._can_free &= file.free()
        threads = [thread for file in self._files.values() for thread in file.threads]
        if self._asked.flush_period_s is not None and threads and self._packer is not None:
            # Times ascend within a thread's log, so everything that ended before the slowest thread's last line is
            # known.
            known_until_us = min(thread.last_stamp_us for thread in threads)
            with self._giving_up_when_full():
                self._packer.flush(known_until_us=known_until_us or None, is_synced=False)

    def finish(self) -> LogOutcome:
        """Take the rest and write everything to the record."""
        self.sweep(is_last=True)
        for file in self._files.values():
            for thread in file.threads:
                self._tally.add_rest(thread.cutter.rest)
            if not file.is_read:
                self._reason = "the log from the load host was cut off"
        summary = self._tally.summary()
        packed: PackedLog | None = None
        try:
            if self._packer is not None:
                packed = self._packer.close()
            write_summary(Path(self._log.record_folder), summary)
        except OSError as exc:
            packed, self._reason = None, f"the packed transactions could not be written: {exc}"
        note = "what was read of the log could not be freed: its file system has no fallocate(2) for it"
        return LogOutcome(
            summary=summary,
            packed=packed,
            reason=self._reason,
            backlog_bytes=self._backlog_bytes,
            notes=() if self._can_free else (note,),
        )

    def _take(self, file: _Follower) -> None:
        thread, lines = file.read()
        parsed = parse_block(lines, self._asked.columns)
        if len(parsed.batch):
            thread.last_stamp_us = int(parsed.batch.stamp_us[-1])
        if self._release_us is not None:
            parsed = self._leave_out_early(parsed, self._release_us)
        self._tally.add_block(parsed)
        if self._packer is not None:
            with self._giving_up_when_full():
                self._packer.add(parsed.batch)

    def _leave_out_early(self, parsed: ParsedBlock, release_us: int) -> ParsedBlock:
        batch = parsed.batch
        is_early = batch.stamp_us - batch.latency_us < release_us
        if not is_early.any():
            return parsed
        self._tally.add_early(batch.choose(is_early))
        return msgspec.structs.replace(parsed, batch=batch.choose(~is_early))

    @contextlib.contextmanager
    def _giving_up_when_full(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:  # the disk of the record is full: the summary is still worth having
            self._packer, self._reason = None, f"the packed transactions could not be written: {exc}"


def main() -> None:
    """Follow the logs until standard input ends, which also happens when pgdyno is killed."""
    task = msgspec.json.decode(sys.argv[1], type=LogTask)
    # Each thread of each turn of a load has a file, and the usual soft limit is 1024.
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    try:
        be_nice(_NICENESS)
        is_asked_to_stop = False

        def stop(*_: object) -> None:
            nonlocal is_asked_to_stop
            is_asked_to_stop = True

        signal.signal(signal.SIGTERM, stop)
        prepare()
        readers = [_Reader(log) for log in task.logs]
        startup_cpu_s = _cpu_s()
        os.write(1, _READY)
        period_s = min(log.asked.flush_period_s or _PERIOD_S for log in task.logs)
        while not is_asked_to_stop and not select.select([0], [], [], period_s)[0]:
            for reader in readers:
                reader.sweep()
        outcomes = [reader.finish() for reader in readers]
        if is_asked_to_stop:
            why = "the log reader was told to stop before the load had ended: what came later is missing"
            outcomes = [
                msgspec.structs.replace(outcome, reason="; ".join(filter(None, (why, outcome.reason))))
                for outcome in outcomes
            ]
        spent = {"cpu_s": _cpu_s(), "startup_cpu_s": startup_cpu_s, "peak_memory_bytes": _peak_memory_bytes()}
        outcomes = [msgspec.structs.replace(outcome, **spent) for outcome in outcomes]
    finally:
        # A living parent empties and deletes the logs itself; pgbench may still be writing them.
        if os.getppid() != task.parent_pid:
            for log in task.logs:
                shutil.rmtree(log.log_folder, ignore_errors=True)
    sys.stdout.buffer.write(msgspec.json.encode(outcomes))


def _peak_memory_bytes() -> int:
    # ru_maxrss would count the process that this one was forked from. Source: getrusage(2), proc_pid_status(5).
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
