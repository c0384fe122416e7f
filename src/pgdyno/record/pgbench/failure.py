"""Finds what a pgbench that ended badly, loading or running, had to say: its own words, without what goes well.

Pure text to values. It does not explain: which script, how many clients, which words; what to try is said where the
load was started.
"""

from __future__ import annotations

import re
import signal
from collections import Counter

import msgspec

from pgdyno.record.pgbench.init import is_init_line, split_lines
from pgdyno.record.pgbench.output import parse_progress


class PgbenchFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why pgbench ended badly, in its own words."""

    words: str
    """Its messages, each kind once with how often it came; empty when it was killed and could say nothing."""
    signal_name: str | None
    """Such as SIGKILL, or `signal 40`; None when it ended by itself."""
    script_number: int | None
    """From 1; None when it does not name one."""
    aborted_client_count: int


_ABORT = re.compile(r"client \d+ (?:script (\d+) )?aborted(?: in command \d+ \([^)]*\) of script (\d+))?")
_ORDINARY = re.compile(
    r"starting vacuum.*end\.|NOTICE: .*|pgbench: setting random seed to \d+"
    r"|pgbench: client \d+ (?:got an error|repeats the transaction|ends the failed transaction).*"
)
_MESSAGE_BEGIN = re.compile(r"(?:pgbench: |ERROR: |FATAL: |PANIC: |WARNING: )")
_RUN_ABORTED = "pgbench: error: Run was aborted"


def is_client_abort(line: str) -> bool:
    """Whether a line of stderr says that a client gave up, so that the load is no longer the one asked for."""
    return line.startswith("pgbench: error: ") and _ABORT.search(line) is not None


def parse_failure(stderr: str, exit_code: int) -> PgbenchFailure:
    """Find what a pgbench that ended badly, loading or running, had to say.

    Args:
        stderr: All of its stderr.
        exit_code: As `subprocess` gives it: negative is the number of a signal.
    """
    messages: dict[str, list[str]] = {}
    repeats: Counter[str] = Counter()
    current: list[str] = []
    lines = split_lines(stderr)
    for line in lines:
        if _ORDINARY.fullmatch(line) or parse_progress(line) or is_init_line(line):
            continue
        if _MESSAGE_BEGIN.match(line) or not messages:
            # Clients fail alike: one message for each kind, whatever the client and how far it had come.
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
        aborted_client_count=len(aborts),
    )


def _name_signal(number: int) -> str:
    # Real-time signals but the first and the last have no name.
    return next((known.name for known in signal.Signals if known == number), f"signal {number}")


def _format_words(messages: dict[str, list[str]], repeats: Counter[str]) -> str:
    # The last word, that the above results are incomplete, tells nothing where a reason stands before it.
    reasons = {kind: lines for kind, lines in messages.items() if not kind.startswith(_RUN_ABORTED)} or messages
    return "\n".join(
        "\n".join(lines) + (f"\n({repeats[kind]} times)" if repeats[kind] > 1 else "")
        for kind, lines in reasons.items()
    )
