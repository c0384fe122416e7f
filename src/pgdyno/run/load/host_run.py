"""Run one pgbench on a load host: start it there, take what it says, and know when and why it ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections import deque
from collections.abc import Mapping
from pathlib import Path

import msgspec

from pgdyno.errors import HostError, PgdynoError, StepFailedError
from pgdyno.record.damage import NOT_JSON
from pgdyno.record.durable import write_durably, writing
from pgdyno.record.generators.part import LoadPart
from pgdyno.record.generators.parts import CLOCK_FILE, PART_FILE
from pgdyno.record.samples.clock import ClockExchange, fit_clock
from pgdyno.record.trial_data import STDERR_FILE, STDOUT_FILE
from pgdyno.run.host import process
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.link import far_load
from pgdyno.run.link.boot import SILENCE_S
from pgdyno.run.link.far_program import FarProgram
from pgdyno.run.link.ssh import ANSWERS_WITHIN_S, SshLink
from pgdyno.run.load.argv import LoadRun, build_argv
from pgdyno.run.load.part_run import PartRun
from pgdyno.run.load.pgbench import copy_script
from pgdyno.run.load.release import note_release
from pgdyno.run.postgres.address import Address
from pgdyno.spec.hosts import HostEntry
from pgdyno.spec.study import BUILTIN_SCRIPTS

_PASSFILE = "passfile"
# Parameters that libpq of 15 does not have: the version that brought them, and their default. Source: release notes of 16 to
# 18; src/interfaces/libpq/fe-connect.c, PQconninfoOptions.
_NEWER = {
    "sslcertmode": (16, "allow"),
    "require_auth": (16, ""),
    "load_balance_hosts": (16, "disable"),
    "gssdelegation": (16, "0"),
    "sslnegotiation": (17, "postgres"),
    "min_protocol_version": (18, "3.0"),
    "max_protocol_version": (18, "3.0"),
    "sslkeylogfile": (18, ""),
}
_KILLS_WITHIN_S = 5.0
_LAST_LINES = 20
CONNECTS_WITHIN_S = 60.0
"""How long the clients may take to connect."""
_FOLDER, _SECRET = "{folder}", "{secret}"


class FoundPgbench(msgspec.Struct, frozen=True, kw_only=True):
    """The pgbench of a load host."""

    program: str
    version: str
    major: int
    """Major version."""
    memory_folder_bytes: int
    """Free room in /dev/shm."""


class LoadHost(msgspec.Struct, frozen=True, kw_only=True):
    """A load host that is reached.

    Attributes:
        name: Its name in the study.
        link: The connection to it.
        pgbench: What its loads run, from `ask_pgbench`.
    """

    name: str
    link: SshLink
    pgbench: FoundPgbench

    @property
    def entry(self) -> HostEntry:
        """The machine as the study names it."""
        return self.link.entry


class _Started(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    program_pid: int
    argv: tuple[str, ...]
    start_s: float
    epoch_offset_s: float


class _Done(msgspec.Struct, frozen=True, kw_only=True):
    exit_code: int
    end_s: float
    cpu_s: float
    own_cpu_s: float
    stdout: str


class _Failed(msgspec.Struct, frozen=True, kw_only=True):
    fact: str
    detail: str
    hint: str


class _Word(msgspec.Struct, frozen=True, kw_only=True):
    found: FoundPgbench | None = None
    started: _Started | None = None
    connected: bool | None = None
    stderr: str | None = None
    note: str | None = None
    done: _Done | None = None
    failed: _Failed | None = None


def ask_pgbench(link: SshLink, name: str) -> FoundPgbench:
    """Return which pgbench a load host has.

    Raises:
        HostError: It has none that pgdyno can use, or is not reached.
        StepFailedError: The program there does not answer.
    """
    words = _Words(link, name, _make_request(link.entry), output=link.folder / "found")
    deadline_s = monotonic_s() + ANSWERS_WITHIN_S
    try:
        while True:
            words.hear()
            if words.found is not None:
                return words.found
            words.check()
            # It may answer with its clock all the same.
            if monotonic_s() > deadline_s:
                raise StepFailedError(f"{name} has not said within {ANSWERS_WITHIN_S:g} s which pgbench it has")
            words.wait()
    finally:
        words.stop()


class _Words:
    """What the program on a load host says."""

    def __init__(self, link: SshLink, name: str, request: bytes, *, output: Path, clock: Path | None = None) -> None:
        self.name = name
        self.found: FoundPgbench | None = None
        self.started: _Started | None = None
        self.connected: bool | None = None
        self.done: _Done | None = None
        self.stderr: list[str] = []
        self.notes: list[str] = []
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self.is_silent = False
        self._heard_s = monotonic_s()
        self._exchange_count = 0
        self.program = FarProgram(
            link,
            Path(far_load.__file__),
            [str(SILENCE_S)],
            output=output,
            clock=clock,
            request=request,
            silence_s=SILENCE_S,
            is_heard=True,
        )

    def take(self) -> None:
        """Take what has come, and make sure that more can come.

        Raises:
            HostError: The machine cannot run pgbench.
            StepFailedError: The link is lost, or the program there has failed.
        """
        self.hear()
        self.check()

    def hear(self) -> None:
        """Take what has come; raise the error that the program there reports."""
        heard = self.program.heard
        if heard or len(self.program.exchanges) > self._exchange_count:
            self._heard_s = monotonic_s()
        self._exchange_count = len(self.program.exchanges)
        while heard:
            self._take_line(heard.popleft())

    def check(self) -> None:
        """Raise an error if the link is lost, or the program there has ended, before pgbench has."""
        if self.done is None and not self.program.is_alive:
            self.program.stop()
            self.hear()
            if self.done is None:
                raise self._explain_end()
        if self.done is None and monotonic_s() - self._heard_s > SILENCE_S:
            self.is_silent = True
            raise StepFailedError(
                f"the load from {self.name} is lost",
                detail=f"nothing has come from there for {SILENCE_S} s",
                hint="the network hangs, or the program there was stopped",
            )

    def wait(self) -> None:
        """Wait a moment for more."""
        self.program.wait_heard()

    def stop(self) -> None:
        """End pgbench and the program."""
        self.program.stop()

    def _explain_end(self) -> StepFailedError:
        """Return the error for a program there that has ended early."""
        program = self.program
        return StepFailedError(
            f"the load from {self.name} is lost",
            detail="\n".join([program.failure or "the program there ended", *self._last_lines]),
            hint=f"`ssh {program.link.destination}` must stay connected" if program.has_lost_link else "",
        )

    def _take_line(self, line: bytes) -> None:
        try:
            word = msgspec.json.decode(line, type=_Word)
        except NOT_JSON:
            # Of Python itself: why the program failed.
            self._last_lines.append(line.decode(errors="replace"))
            return
        if word.failed is not None:
            kind = StepFailedError if self.started is not None else HostError
            raise kind(f"{self.name}: {word.failed.fact}", detail=word.failed.detail, hint=word.failed.hint)
        if word.found is not None:
            self.found = word.found
            # What comes before is of the account's shell.
            self._last_lines.clear()
        self.started = word.started or self.started
        self.connected = self.connected if word.connected is None else word.connected
        self.done = word.done or self.done
        if word.stderr is not None:
            self.stderr.append(word.stderr)
        if word.note is not None:
            self.notes.append(word.note)


class HostRun:
    """A run of pgbench on a load host. Use it from the main thread, and `close` it.

    Args:
        host: The load host.
        run: What to run there.
        directory: The folder for its files, made if missing.
        log: The file that gets the framed transaction log; None without one.
        part: The part of the load that it makes there; None of a load without parts.
    """

    def __init__(
        self, host: LoadHost, run: LoadRun, directory: Path, *, log: Path | None, part: PartRun | None = None
    ) -> None:
        self.host = host
        self.run = run
        self.directory = directory
        self.name = host.name if part is None else f"{part.name} on {host.name}"
        """What errors call it."""
        self._of = part
        self._log = log
        self._release_near_s: float | None = None
        self._release_far_s: float | None = None
        self._part: LoadPart | None = None
        with writing(directory):
            directory.mkdir(parents=True, exist_ok=True)
            self._stderr = (directory / STDERR_FILE).open("wb")
        # What the account's shell prints before is cut off before anybody reads it.
        output = directory / "printed" if log is None else log.with_name(f".{log.name}")
        try:
            request = _make_request(host.entry, run=run, directory=directory, pgbench=host.pgbench)
            self._words = _Words(host.link, self.name, request, output=output, clock=directory / CLOCK_FILE)
        except BaseException:
            self._stderr.close()
            output.unlink(missing_ok=True)
            raise
        if log is None:
            output.unlink()
        else:
            output.rename(log)

    @property
    def pid(self) -> int | None:
        """Pgbench's process id there; None before it is started."""
        return None if self._words.started is None else self._words.started.pid

    @property
    def is_connected(self) -> bool:
        """True once all clients are connected and pgbench waits for `release`, or once it has ended before that."""
        return self._words.connected is not None

    @property
    def notes(self) -> tuple[str, ...]:
        """What a report should mention of it."""
        return tuple(self._words.notes)

    @property
    def exchanges(self) -> tuple[ClockExchange, ...]:
        """All with the clock there so far."""
        return tuple(self._words.program.exchanges)

    @property
    def round_trip_s(self) -> float:
        """Seconds of the slowest of the exchanges with the clock there so far."""
        return max((one.round_trip_s for one in self.exchanges), default=0.0)

    @property
    def is_done(self) -> bool:
        """True once pgbench has ended."""
        return self._words.done is not None

    @property
    def exit_code(self) -> int:
        """Pgbench's exit code; negative: the number of the signal that ended it."""
        return 0 if self._words.done is None else self._words.done.exit_code

    def poll(self) -> str:
        """Take what has come, and return what pgbench has written to stderr since the last call.

        Raises:
            HostError, StepFailedError: As for `_Words.take`.
        """
        self._words.take()
        text, self._words.stderr = "".join(self._words.stderr), []
        self._stderr.write(text.encode())
        self._stderr.flush()
        return text

    def wait(self) -> None:
        """Wait a moment for news."""
        self._words.wait()

    def begin(self) -> None:
        """Start pgbench; `release` lets its clients go."""
        self._words.program.say("begin\n")

    def release(self, near_s: float) -> None:
        """Let the clients go at an instant of this machine's clock; `note_release` notes it."""
        self._release_near_s = near_s
        self._release_far_s = fit_clock(self.exchanges).to_far(near_s)
        self._words.program.say(f"go {round(self._release_far_s * 1e9)}\n")

    def note_release(self) -> None:
        """Note in the record, and for the reader of the log, when the clients are let go."""
        if self._log is not None and self._words.started is not None and self._release_far_s is not None:
            note_release(self._log.parent, self._release_far_s + self._words.started.epoch_offset_s)
        self._write_part()

    def end(self) -> None:
        """End pgbench in order."""
        self._words.program.say("end\n")

    def begin_close(self, by_s: float) -> None:
        """Begin to end what runs there, so that `close` waits for it until this instant at the latest."""
        self._words.program.begin_stop(by_s)

    def close(self) -> LoadPart | None:
        """End pgbench at once if it still runs, keep its files, and return its part; None if it was not started."""
        if self._stderr.closed:
            return self._part
        try:
            if self._words.is_silent and self._words.started is not None:
                self._kill_there(self._words.started.program_pid)
            self._words.stop()
            if not self.is_done and self._words.program.is_deaf:
                # Each other part of the load there would wait as long for a link that hangs.
                self.host.link.close()
            # Why it ended early was said before, or is not asked any more.
            with contextlib.suppress(PgdynoError):
                self.poll()
            os.fsync(self._stderr.fileno())
        finally:
            self._stderr.close()
        with writing(self.directory):
            done = self._words.done
            write_durably(self.directory / STDOUT_FILE, b"" if done is None else done.stdout.encode())
        self._write_part()
        return self._part

    def _kill_there(self, pid: int) -> None:
        """Kill a program that may have been stopped: neither the end of its input nor an alarm would end it."""
        command = f"exec sh -c 'grep -qa pgdyno /proc/{pid}/cmdline && kill -KILL {pid}'"
        # Where the link hangs, the program's alarm ends it.
        with (
            contextlib.suppress(PgdynoError, OSError, subprocess.TimeoutExpired),
            Path(os.devnull).open("wb") as nothing,
        ):
            child = self.host.link.start(command, stdout=nothing)
            try:
                child.communicate(timeout=_KILLS_WITHIN_S)
            finally:
                process.stop(child)
                child.communicate()

    def _write_part(self) -> None:
        started, done, of = self._words.started, self._words.done, self._of
        if started is None:
            return
        self._part = LoadPart(
            host=self.host.name,
            argv=started.argv,
            pid=started.pid,
            clients=self.run.clients,
            threads=self.run.threads,
            start_far_s=started.start_s,
            epoch_offset_s=started.epoch_offset_s,
            release_near_s=self._release_near_s,
            end_far_s=None if done is None else done.end_s,
            exit_code=None if done is None else done.exit_code,
            cpu_s=None if done is None else done.cpu_s,
            stream_cpu_s=None if done is None else done.own_cpu_s,
            notes=self.notes,
            endpoint=None if of is None else of.endpoint,
            part="" if of is None else of.part,
            first_script=0 if of is None else of.first_script,
            folder="" if of is None else self.directory.name,
        )
        with writing(self.directory):
            write_durably(self.directory / PART_FILE, msgspec.json.format(msgspec.json.encode(self._part), indent=1))


def _make_request(
    entry: HostEntry, *, run: LoadRun | None = None, directory: Path | None = None, pgbench: FoundPgbench | None = None
) -> bytes:
    """Return the first line for the program on a load host; without a run it only asks which pgbench is there."""
    request: dict[str, object] = {"pgbench": entry.pgbench, "argv": None, "scripts": {}, "secret": None}
    if run is not None and directory is not None and pgbench is not None:
        major = pgbench.major
        scripts, texts = _take_scripts(run, directory)
        there = msgspec.structs.replace(
            run,
            # The program there ends pgbench when its time since the release is over.
            duration_s=run.duration_s + CONNECTS_WITHIN_S,
            scripts=scripts,
            address=_adapt_address(run.address, major, entry),
            log_prefix=None if run.log_prefix is None else Path(_FOLDER) / "log",
        )
        request |= {
            # Without a name, each pgbench there would be asked for its version again.
            "pgbench": pgbench.program,
            "argv": build_argv(there, "pgbench", major)[1:],
            "scripts": texts,
            "secret": _read_secret(run.address),
            "clients": run.clients,
            "threads": run.threads,
            "duration_s": run.duration_s,
            "is_logged": run.log_prefix is not None,
        }
    return msgspec.json.encode(request) + b"\n"


def _take_scripts(run: LoadRun, directory: Path) -> tuple[tuple[tuple[str, int], ...], Mapping[str, str]]:
    """Keep a copy of each script file, and return what pgbench there runs, and the files' texts by name."""
    scripts, texts = [], {}
    for number, (name, weight) in enumerate(run.scripts, start=1):
        if name in BUILTIN_SCRIPTS:
            scripts.append((name, weight))
            continue
        copy = copy_script(Path(name), directory / f"script-{number}-{Path(name).name}")
        # Each byte as a character: it need not be UTF-8.
        texts[copy.name] = copy.read_bytes().decode("latin-1")
        scripts.append((f"{_FOLDER}/{copy.name}", weight))
    return tuple(scripts), texts


def _adapt_address(address: Address, major: int, entry: HostEntry) -> Address:
    """Return the address for a libpq there, which may be older, with the place of the password file.

    Raises:
        HostError: That libpq lacks a parameter that is needed.
    """
    parameters = dict(address.parameters)
    for name, (since, default) in _NEWER.items():
        if major >= since or name not in parameters:
            continue
        if (value := parameters.pop(name)) not in {default, ""}:
            raise HostError(
                f"pgbench {major} on {entry.ssh} does not know {name}={value}",
                hint=f"install pgbench {since} or later there, or leave {name} out of the connection string",
            )
    if _PASSFILE in parameters:
        parameters[_PASSFILE] = _SECRET
    return msgspec.structs.replace(address, parameters=parameters, inherited=())


def _read_secret(address: Address) -> str | None:
    """Return the password file's text; None if the server wants no password."""
    if _PASSFILE not in address.parameters:
        return None
    # Another one may have been written since the last load.
    return os.pread(address.inherited[0], 1 << 16, 0).decode()
