"""A sampler's process, here or on another machine, and the file that it writes."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import msgspec

from pgdyno.errors import HostError, PgdynoError, describe_failure
from pgdyno.run.host import process
from pgdyno.run.link.boot import SILENCE_S
from pgdyno.run.link.far_program import FarProgram
from pgdyno.run.link.ssh import SshLink
from pgdyno.run.sample import os_sampler

# On a very busy machine a sampler writes its last line late; killing it earlier would leave a gap.
_STOP_WITHIN_S = 20.0
# What it would still write counts for nothing where the load has failed, often because nothing answers the sampler, either.
_STOP_FAILED_WITHIN_S = 2.0


class WatchedMachine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine of a given server, to be watched through ssh while a load runs."""

    link: SshLink
    postmaster_pid: int
    """As that machine counts processes."""
    is_here: bool
    """Whether it is this machine: then its sampler follows the load, too."""
    has_same_pids: bool
    """Whether the server knows its processes by the numbers that the machine has for them; not in a container."""


class Child:
    """A sampler process and its output file."""

    def __init__(self, source: str, argv: list[str], path: Path, *, inherited: tuple[int, ...] = ()) -> None:
        self.source = source
        self.path = path
        self.started_s = time.monotonic()
        self.failure = ""
        self.process: subprocess.Popen[bytes] | None = None
        try:
            with path.open("ab") as output:
                self.process = process.start(
                    argv,
                    # Another signal would find it blocked while it waits for a server that does not answer.
                    death_signal="KILL",
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.PIPE,
                    inherited=inherited,
                )
        except (HostError, OSError) as exc:
            self.failure = str(exc)

    @property
    def is_alive(self) -> bool:
        """Return whether it lives."""
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int | None:
        """The process id here; None if it was not started."""
        return None if self.process is None else self.process.pid

    def has_lines(self, count: int) -> bool:
        """Return whether its file has so many lines."""
        return self.path.exists() and self.path.read_bytes().count(b"\n") >= count

    def say(self, line: str) -> None:
        """Write a line to its standard input."""
        if self.process is None or self.process.stdin is None:
            return
        try:
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()
        except OSError as exc:
            self.failure = self.failure or f"it does not listen any more: {exc}"

    def stop(self, *, has_failed: bool = False) -> None:
        """Stop the sampler; if it had ended earlier, `failure` says why.

        Args:
            has_failed: Whether the load has failed: then the sampler is killed if it does not end within 2 s, else within 20 s.
        """
        if self.process is None:
            return
        died = self.process.poll() is not None
        code = process.stop(self.process, patience_s=_STOP_FAILED_WITHIN_S if has_failed else _STOP_WITHIN_S)
        said = self.process.stderr.read().decode(errors="replace").strip() if self.process.stderr else ""
        for stream in (self.process.stdin, self.process.stderr):
            if stream is not None:
                stream.close()
        if died or code != 0:
            how = f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            self.failure = ": ".join(part for part in (how, said) if part)


class FarSampler:
    """The OS sampler on another machine, like a `Child`: one that is lost leaves a gap, and fails no trial."""

    def __init__(
        self,
        source: str,
        link: SshLink,
        interval_s: float,
        path: Path,
        *,
        clock: Path | None = None,
        process: int | None = None,
    ) -> None:
        self.source = source
        self.path = path
        self.started_s = time.monotonic()
        self.failure = ""
        self.pid = None
        self._program: FarProgram | None = None
        arguments = [str(interval_s), str(SILENCE_S), *([] if process is None else [str(process)])]
        try:
            self._program = FarProgram(link, Path(os_sampler.__file__), arguments, output=path, clock=clock)
        except (PgdynoError, OSError) as exc:
            self.failure = describe_failure(exc)

    @property
    def is_alive(self) -> bool:
        """Return whether it, and the link to it, lives."""
        return self._program is not None and self._program.is_alive

    def has_lines(self, count: int) -> bool:
        """Return whether its file has so many lines."""
        return self._program is not None and self._program.has_lines(count)

    def say(self, line: str) -> None:
        """Write a line to its standard input."""
        if self._program is not None:
            self._program.say(line)

    def stop(self, *, has_failed: bool = False) -> None:  # noqa: ARG002 - as a `Child`; it answers, or its link is lost
        """Stop it; if it had ended earlier, `failure` says why."""
        if self._program is not None:
            self._program.stop()
            self.failure = self._program.failure
