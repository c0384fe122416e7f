"""Build the command that runs a Python program on another machine, where nothing of it is written.

The program comes through standard input. A shell on that machine looks for a Python that is new enough; Python prints
`READY`, reads the program's compressed source, waits for a line, and runs it. What stands before `READY` was printed by
the account's own shell. A program that is sent imports the standard library only, and runs on `LEAST_PYTHON`.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import zlib
from collections.abc import Sequence

from pgdyno.errors import HostError, PgdynoError, StepFailedError
from pgdyno.run.host import process
from pgdyno.run.link.ssh import SSH_FAILED, explain_refusal
from pgdyno.spec.hosts import HostEntry

READY = b"pgdyno is here"
NO_PYTHON = b"pgdyno finds no Python"
LEAST_PYTHON = (3, 7)
SILENCE_S = 30
"""Seconds without a word from this machine after which a program there ends, whatever has happened to the link."""
_NEWEST_MINOR = 14
ENDS_WITHIN_S = 20.0
"""Seconds that a program there has to end once its input is closed."""
# Neither a backslash nor an exclamation mark: they mean something to fish and csh even between quotes. The alarm's default
# action is the kernel's own, which also ends a program that hangs in a write.
_BOOT = """
import os, signal, sys, zlib
signal.alarm(int(sys.argv.pop(1)))
size = int(sys.argv.pop(1))
os.write(1, b"READY" + bytes([10]))
data = bytes()
while len(data) < size:
 more = os.read(0, size - len(data))
 if not more: sys.exit(0)
 data += more
while more not in (bytes(), bytes([10])): more = os.read(0, 1)
if not more: sys.exit(0)
exec(compile(zlib.decompress(data), "pgdyno", "exec"))
""".replace("READY", READY.decode())


def pack_program(source: str) -> bytes:
    """Return what is sent of a program."""
    return zlib.compress(source.encode(), 9)


def build_command(
    size: int,
    arguments: Sequence[str],
    *,
    python: str | None,
    silence_s: int = SILENCE_S,
    least: tuple[int, int] = LEAST_PYTHON,
    preferred: str = "python3",
) -> str:
    """Return the line for the shell of the account on the other machine.

    Args:
        size: Bytes of the packed program.
        arguments: Of the program.
        python: The Python that the user named; None: the first one that is new enough.
        silence_s: Seconds after which the kernel ends it, unless the program asks for more time.
        least: The oldest Python that the program runs on.
        preferred: The Python that is tried first, where the user named none.
    """
    newer = (f"python3.{minor}" for minor in range(_NEWEST_MINOR, least[1] - 1, -1))
    names = (preferred, "python3", *newer) if python is None else (python,)
    candidates = " ".join(map(_quote, names))
    first = _quote("python3" if python is None else python)
    is_old = f"import sys; sys.exit(sys.version_info < {least})"
    script = (
        f'for p in {candidates}; do "$p" -S -I -c "{is_old}" 2>/dev/null && exec "$p" -S -I -c "$@"; done;'
        f' echo "{NO_PYTHON.decode()}"; {first} -V 2>&1; exit 127'
    )
    boot = f"exec({json.dumps(_BOOT)})"
    return "exec " + shlex.join(["sh", "-c", script, "pgdyno", boot, str(silence_s), str(size), *arguments])


def _quote(program: str) -> str:
    # The account's home there.
    return f'"$HOME"/{shlex.quote(program[2:])}' if program.startswith("~/") else shlex.quote(program)


def end_program(child: subprocess.Popen[bytes], *, within_s: float = ENDS_WITHIN_S) -> bool:
    """End a program there by closing its input; if that takes too long, stop the ssh here that reaches it.

    Returns:
        Whether closing its input was enough.
    """
    if child.stdin is not None:
        # What it did not take any more is lost with it.
        with contextlib.suppress(OSError):
            child.stdin.close()
    try:
        child.wait(timeout=within_s)
    except subprocess.TimeoutExpired:
        process.stop(child)
        return False
    return True


def explain_no_start(
    entry: HostEntry, *, printed: bytes, said: bytes, code: int | None, least: tuple[int, int] = LEAST_PYTHON
) -> PgdynoError:
    """Return the error for a program that does not start there.

    Args:
        entry: The machine.
        printed: What came on standard output.
        said: What came on standard error.
        code: The exit code of ssh; None: it has not ended.
        least: The oldest Python that the program runs on.
    """
    if NO_PYTHON in printed:
        needed = ".".join(map(str, least))
        return HostError(
            f"{entry.ssh} has no Python {needed} or later",
            detail=printed.partition(NO_PYTHON)[2].decode(errors="replace").strip(),
            hint=f"python = {entry.python!r} must name one there"
            if entry.python is not None
            else "install python3 there, or name one with python = in its [hosts] table"
            if least == LEAST_PYTHON
            else f"install Python {needed} there, such as the package python{needed}; it needs to be in the account's PATH",
        )
    words = (printed + said).decode(errors="replace").strip()
    if code == SSH_FAILED:
        return explain_refusal(entry.ssh, words)
    return StepFailedError(
        f"no program starts on {entry.ssh}",
        detail=words or f"exit code {code}",
        hint=f"the account's shell must run commands: `ssh {entry.ssh} true`",
    )
