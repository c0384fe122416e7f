"""Extract the error messages of a failed pgbench from its stderr, without its ordinary output.

The result says which script failed, and with which messages. It explains nothing: hints are
given where the load was started.
"""

from __future__ import annotations

import re
import signal
from collections import Counter

import msgspec

from pgdyno.record.pgbench.init import is_init_line, split_lines
from pgdyno.record.pgbench.output import parse_progress


class PgbenchFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why pgbench failed, in its own words."""

    words: str
    """Messages of pgbench, each kind once with its count; empty if pgbench was killed before it printed any."""
    signal_name: str | None
    """Signal that ended it, such as SIGKILL or `signal 40`; None if it exited by itself."""
    script_number: int | None
    """Number of the failed script, from 1; None if pgbench names none."""


_ABORT = re.compile(r"client \d+ (?:script (\d+) )?aborted(?: in command \d+ \([^)]*\) of script (\d+))?")
_ORDINARY = re.compile(
    r"starting vacuum.*end\.|NOTICE: .*|pgbench: setting random seed to \d+"
    r"|pgbench: client \d+ (?:got an error|repeats the transaction|ends the failed transaction).*"
)
_MESSAGE_BEGIN = re.compile(r"(?:pgbench: |ERROR: |FATAL: |PANIC: |WARNING: )")
_RUN_ABORTED = "pgbench: error: Run was aborted"


def is_client_abort(line: str) -> bool:
    """Return whether a line of stderr reports an aborted client, which changes the load from the requested one."""
    return line.startswith("pgbench: error: ") and _ABORT.search(line) is not None


def parse_failure(stderr: str, exit_code: int) -> PgbenchFailure:
    """Extract the error messages of a failed pgbench run or initialization.

    Args:
        stderr: Complete stderr of pgbench.
        exit_code: Return code as in `subprocess`: a negative value is the number of a signal.
    """
    messages: dict[str, list[str]] = {}
    repeats: Counter[str] = Counter()
    current: list[str] = []
    lines = split_lines(stderr)
    for line in lines:
        if _ORDINARY.fullmatch(line) or parse_progress(line) or is_init_line(line):
            continue
        if _MESSAGE_BEGIN.match(line) or not messages:
            # Clients fail alike: keep one message of each kind, whatever the client and the command.
            kind = re.sub(r"\b(client|command|query|thread) \d+", r"\1", line)
            repeats[kind] += 1
            current = [line]
            messages.setdefault(kind, current)
        else:
            current.append(line)
    aborts = [match for line in lines if is_client_abort(line) and (match := _ABORT.search(line))]
    scripts = [int(number) + 1 for match in aborts for number in match.groups() if number is not None]
    return PgbenchFailure(
        words=_format_words(messages, repeats),
        signal_name=_name_signal(-exit_code) if exit_code < 0 else None,
        script_number=scripts[0] if scripts else None,
    )


def _name_signal(number: int) -> str:
    # Only the first and the last real-time signal have a name.
    return next((known.name for known in signal.Signals if known == number), f"signal {number}")


def _format_words(messages: dict[str, list[str]], repeats: Counter[str]) -> str:
    # The closing message that the results are incomplete adds nothing where a reason precedes it.
    reasons = {kind: lines for kind, lines in messages.items() if not kind.startswith(_RUN_ABORTED)} or messages
    return "\n".join(
        "\n".join(lines) + (f"\n({repeats[kind]} times)" if repeats[kind] > 1 else "")
        for kind, lines in reasons.items()
    )
