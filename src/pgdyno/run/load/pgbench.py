"""Run pgbench, to load data and to make a load.

pgbench runs as the server's unprivileged account and never outlives the call, however the call ends. Its output is kept
byte for byte.

The first client that gives up ends the run, because the remaining load would not be the requested one. This module
judges no result, and leaves the tables as they are: no vacuum, no truncation before the load.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile

import msgspec

from pgdyno.errors import HostError, SpecError, StepFailedError
from pgdyno.record.durable import writing
from pgdyno.record.pgbench.failure import is_client_abort, parse_failure
from pgdyno.record.pgbench.init import parse_init, parse_init_progress
from pgdyno.record.pgbench.output import Progress, parse_progress
from pgdyno.record.trial_data import STDERR_FILE, STDOUT_FILE
from pgdyno.run.host import process
from pgdyno.run.host.process import ServerUser
from pgdyno.run.load.argv import InitRun, LoadRun, build_argv, build_init_argv, connect_options
from pgdyno.run.load.generator import InitOutcome, LoadOutcome, RunningLoad, RunsOneLoad
from pgdyno.run.load.log_stream import LogRequest, LogStream, start_log_streams
from pgdyno.run.load.process import (
    Invocation,
    PgbenchProcess,
    ShouldAbort,
    clean_environment,
    poll_until_done,
    running_pgbench,
)
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.hints import hint_for
from pgdyno.run.postgres.installation import Installation
from pgdyno.spec.study import BUILTIN_SCRIPTS

_ASK_PATIENCE_S = 15.0
# Source: pgbench's manual, Notes, Exit Status: errors while the load ran, such as lost connections.
_ABORTED = 2
# Source: PostgreSQL 18 manual, pgbench, "Failures and Serialization/Deadlock Retries".
_ENDS = "pgbench goes on after serialization failures and deadlocks only"
_CORRECT = "correct the script, and begin anew: `pgdyno resume` runs the copy that the record keeps"


class Pgbench(RunsOneLoad, msgspec.Struct, frozen=True, kw_only=True):
    """Runs pgbench as a program of its own. Use it from the main thread.

    Attributes:
        installation: Whose pgbench.
        user: The account that it runs as.
        script_directory: A folder that `user` can reach, made for the copies of script files of each load and removed after
            it; None: the folder of the outputs, which `user` must be able to reach.
        libpq: Another libpq than the one that it was built with; only where `user` is this account.
    """

    installation: Installation
    user: ServerUser
    script_directory: Path | None = None
    libpq: Path | None = None

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
        aborts: list[str] = []

        def take_line(line: str) -> None:
            if (progress := parse_progress(line)) is not None:
                on_progress(progress)
            elif is_client_abort(line):
                aborts.append(line)

        with self._made_script_directory():
            staged = self._stage_scripts(run, directory)
            argv = build_argv(staged, self.installation.program("pgbench"), self.installation.facts.major)
            with self._running(argv, run.address, directory, on_line=take_line) as running:
                yield _PgbenchLoad(run, running, directory, aborts, should_abort)

    def start_logs(self, directories: Sequence[Path], asked: LogRequest) -> tuple[LogStream, ...]:
        """Start to follow the transaction logs of loads to come; see `LoadGenerator`."""
        return start_log_streams(dict.fromkeys(directories, asked), user=self.user)

    def ask(self, options: Sequence[str], *, script: str = "", address: Address | None = None) -> str:
        """Run pgbench for what it prints on stderr; see `LoadGenerator`."""
        connection = () if address is None else connect_options(address)
        argv = (self.installation.program("pgbench"), *options, *connection)
        inherited = () if address is None else address.inherited
        with TemporaryFile() as stdin, TemporaryFile() as stderr:
            stdin.write(script.encode())
            stdin.seek(0)
            child = process.start(
                argv, user=self.user, stdin=stdin, stderr=stderr, env=clean_environment(self.libpq), inherited=inherited
            )
            try:
                child.wait(timeout=_ASK_PATIENCE_S)
            except subprocess.TimeoutExpired as exc:
                raise StepFailedError(f"pgbench did not end within {_ASK_PATIENCE_S:g} s") from exc
            finally:
                process.stop(child)
            stderr.seek(0)
            return stderr.read().decode(errors="replace")

    def run_init(
        self,
        run: InitRun,
        *,
        directory: Path,
        on_activity: Callable[[str], None] = lambda _: None,
        on_start: Callable[[int], None] = lambda _: None,
        should_abort: ShouldAbort = lambda: None,
    ) -> InitOutcome:
        """Load pgbench's tables; see `LoadGenerator`."""

        def take_line(line: str) -> None:
            if (progress := parse_init_progress(line)) is not None:
                share = "" if progress.percent is None else f" {progress.percent:.0f} %"
                on_activity(progress.step + share)

        with writing(directory):
            directory.mkdir(parents=True, exist_ok=True)
        argv = build_init_argv(run, self.installation.program("pgbench"))
        with self._running(argv, run.address, directory, on_line=take_line) as running:
            on_start(running.pid)
            done = poll_until_done(running, should_abort=should_abort)
        stderr = (directory / STDERR_FILE).read_bytes().decode(errors="replace")
        steps = parse_init(stderr)
        if done.exit_code != 0 or steps is None:
            raise should_abort() or _failure(f"loading scale {run.scale} failed", stderr, done.exit_code)
        return InitOutcome(invocation=done, total_s=steps.total_s, steps_s=steps.step_durations_s)

    def _running(
        self, argv: tuple[str, ...], address: Address, directory: Path, *, on_line: Callable[[str], None]
    ) -> contextlib.AbstractContextManager[PgbenchProcess]:
        return running_pgbench(
            argv, self.user, directory, on_line=on_line, inherited=address.inherited, libpq=self.libpq
        )

    @contextlib.contextmanager
    def _made_script_directory(self) -> Iterator[None]:
        if self.script_directory is None:
            yield
            return
        self.script_directory.mkdir(exist_ok=True)
        self.script_directory.chmod(0o755)
        try:
            yield
        finally:
            shutil.rmtree(self.script_directory, ignore_errors=True)

    def _stage_scripts(self, run: LoadRun, directory: Path) -> LoadRun:
        """Keep a copy of each script file, and name a copy that pgbench's account can read."""
        directory.mkdir(parents=True, exist_ok=True)
        staged = []
        for number, (name, weight) in enumerate(run.scripts, start=1):
            if name in BUILTIN_SCRIPTS:
                staged.append((name, weight))
                continue
            copy = copy_script(Path(name), directory / f"script-{number}-{Path(name).name}")
            if self.script_directory is not None:
                copy = copy_script(copy, self.script_directory / copy.name)
            self._check_readable(copy)
            # pgbench runs in another folder.
            staged.append((str(copy.absolute()), weight))
        return msgspec.structs.replace(run, scripts=tuple(staged))

    def _check_readable(self, path: Path) -> None:
        if not self.user.is_self and process.run(["test", "-r", str(path)], user=self.user).exit_code != 0:
            raise HostError(
                f"the account {self.user.name} cannot read a script file",
                detail=str(path),
                hint="put the record into a folder that every account may enter",
            )


class _PgbenchLoad:
    """A load that runs; implements `RunningLoad`."""

    def __init__(
        self, run: LoadRun, running: PgbenchProcess, directory: Path, aborts: list[str], should_abort: ShouldAbort
    ) -> None:
        self._run = run
        self._running = running
        self._directory = directory
        self._aborts = aborts
        self._should_abort = should_abort

    @property
    def pid(self) -> int:
        """The process id of pgbench."""
        return self._running.pid

    def poll(self) -> LoadOutcome | None:
        """Take what pgbench has said; return the outcome once it has ended."""
        done = self._running.poll()
        if done is not None:
            return conclude(self._run, done, self._directory, self._should_abort)
        if self._aborts and self._run.ends_on_abort:
            stderr = (self._directory / STDERR_FILE).read_bytes()
            # A dead server explains its clients' failures, so it is asked first.
            raise self._should_abort() or load_failure(self._run, stderr, exit_code=0)
        return None

    def end(self) -> None:
        """End pgbench in order; see `Running`."""
        self._running.end()


def copy_script(source: Path, target: Path) -> Path:
    """Copy a script file byte for byte, so that all accounts can read it, and return the copy.

    Raises:
        SpecError: It cannot be read.
    """
    try:
        shutil.copyfile(source, target)
        target.chmod(0o644)
    except OSError as exc:
        raise SpecError(
            f"cannot read script file {source}", detail=str(exc), hint="correct scripts in the study"
        ) from exc
    return target


def conclude(run: LoadRun, done: Invocation, directory: Path, should_abort: ShouldAbort) -> LoadOutcome:
    """Read the outputs of a load that has ended; raise its error if it failed."""
    if done.exit_code not in ({0} if run.ends_on_abort else {0, _ABORTED}):
        raise should_abort() or load_failure(run, (directory / STDERR_FILE).read_bytes(), done.exit_code)
    return LoadOutcome(**msgspec.structs.asdict(done), stdout=(directory / STDOUT_FILE).read_bytes())


def load_failure(run: LoadRun, stderr: bytes, exit_code: int) -> StepFailedError:
    """Return the error of a load that failed, from what pgbench said."""
    text = stderr.decode(errors="replace")
    number = parse_failure(text, exit_code).script_number
    scripts = [name for name, _ in run.scripts] if number is None else [run.scripts[number - 1][0]]
    fact = "pgbench failed" if number is None else f"pgbench failed in script {scripts[0]}"
    return _failure(fact, text, exit_code, is_users=any(name not in BUILTIN_SCRIPTS for name in scripts))


def _failure(fact: str, stderr: str, exit_code: int, *, is_users: bool = False) -> StepFailedError:
    """Return the error of a failed pgbench.

    Args:
        fact: What failed.
        stderr: What pgbench printed there.
        exit_code: Its exit code.
        is_users: Whether it may be a script of the user's that is wrong.
    """
    failure = parse_failure(stderr, exit_code)
    if failure.signal_name is not None and not failure.words:
        hint = "something outside ended it"
        if exit_code == -signal.SIGKILL:
            hint += "; `dmesg` tells whether the kernel was out of memory"
        return StepFailedError(f"{fact}: it was ended by {failure.signal_name}", hint=hint)
    return StepFailedError(
        fact, detail=failure.words or f"exit code {exit_code}", hint=_hint(failure.words, is_users=is_users)
    )


def _hint(words: str, *, is_users: bool) -> str:
    if "too many clients" in words or "remaining connection slots" in words:
        return "lower clients, or raise max_connections"
    if "administrator command" in words:
        return "somebody ended its sessions, or stopped the server"
    if "backend died" in words or "terminating connection" in words or "server closed the connection" in words:
        return "the end of the server's log has the reason"
    if not is_users or not ("script" in words or "in command" in words):
        return hint_for(words)
    return hint_for(words) or (f"{_ENDS}; {_CORRECT}" if "ERROR: " in words else _CORRECT)
