"""Parse crontabs: which lines run a program, and when they run next.

The parser knows the syntax of Vixie cron and its successors (Debian's cron, cronie): names, ranges, steps, lists, and
nicknames such as `@daily`. It skips lines that it does not understand. Only the program of a command is kept, because
arguments may contain passwords.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import PurePath

import msgspec

# Source: crontab(5): minute, hour, day of month, month, day of week, in which 0 and 7 are Sunday.
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_PART = re.compile(r"(?:\*|(\w+)(?:-(\w+))?)(?:/(\d+))?")
# Commands before the one that counts, with their arguments, which may hold any character in quotes.
_BEFORE = re.compile(
    r"""(?:if\s+)?(?:(?:test|cd|command\s+-v|sleep|export|set|umask|\.|source)\s(?:[^&|;'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")*"""
    r"""|\[\s[^\]]*\]\s*)(?:&&|\|\||;)\s*(?:then\s+)?"""
)
# What the shell replaces by its output; it may read a secret, or be one.
_SUBSTITUTED = re.compile(r"\$\([^()]*\)|`[^`]*`")
_RUNS_PARTS = re.compile(r"run-parts\s+(?:-\S+\s+)*(?P<folder>/[^\s;&|)}]+)")

# Programs that run another one: the letters of their options that have a value, and the number of words before that program.
# Source: their manual pages.
_WRAPPERS: dict[str, tuple[str, int]] = {
    **dict.fromkeys(("chronic", "cronic", "nohup", "setsid", "systemd-inhibit"), ("", 0)),
    **dict.fromkeys(("sh", "bash", "dash", "ksh", "zsh"), ("oO", 0)),
    "chrt": ("TPD", 1),
    "doas": ("uC", 0),
    "env": ("uCS", 0),
    "exec": ("a", 0),
    "flock": ("wE", 1),
    "ionice": ("cn", 0),
    "nice": ("n", 0),
    "runuser": ("ugGsw", 1),
    "stdbuf": ("ioe", 0),
    "su": ("gGsw", 1),
    "sudo": ("ugpChDRrtTU", 0),
    "systemd-cat": ("tp", 0),
    "taskset": ("", 1),
    "time": ("fo", 0),
    "timeout": ("ks", 1),
}
_LONG_WITH_VALUE = frozenset(
    (
        *("--adjustment", "--chdir", "--class", "--classdata", "--group", "--kill-after", "--shell", "--signal"),
        *("--conflict-exit-code", "--timeout", "--unset", "--user", "--wait"),
    )
)
# With some programs, such as setsid, `--wait` has no value. Any other long option may have one, perhaps a secret.
_LONG_WITHOUT_VALUE = frozenset(
    (
        *("--", "--batch", "--cpu-list", "--exclusive", "--foreground", "--fork", "--idle", "--ignore"),
        *("--ignore-environment", "--login", "--no-fork", "--non-interactive", "--nonblock", "--noprofile", "--norc"),
        *("--preserve-env", "--preserve-status", "--set-home", "--shared", "--verbose", "--wait"),
    )
)
# Of these, `-c` is followed by a command in one word.
_TAKES_TEXT = frozenset(("sh", "bash", "dash", "ksh", "zsh", "su", "runuser", "flock"))
_USER_OPTION = re.compile(r"-u|--user")
_TEXT_OPTION = re.compile(r"-[a-zA-Z]*c|--command")


class CronLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a crontab that runs something."""

    number: int
    """Number of the line, from 1."""
    fields: tuple[frozenset[int], ...]
    """Minutes, hours, days of the month, months, days of the week (Sunday is 0)."""
    is_any_day: bool
    """True if a day must match both day fields; otherwise one of them is enough. Source: crontab(5)."""
    program: str
    """Program without its arguments and what runs it, such as nice; for run-parts, the folder."""
    defers_to_systemd: bool = False
    """True if the line first checks for systemd, and leaves the work to a timer where systemd runs."""

    def is_due(self, at: datetime) -> bool:
        """Return whether the line starts in that minute."""
        minutes, hours, days, months, weekdays = self.fields
        if at.minute not in minutes or at.hour not in hours or at.month not in months:
            return False
        in_month, in_week = at.day in days, at.isoweekday() % 7 in weekdays
        return (in_month and in_week) if self.is_any_day else (in_month or in_week)


def parse_crontab(text: str, *, has_user: bool) -> tuple[CronLine, ...]:
    """Return the lines that run a program.

    Args:
        text: Text of a crontab.
        has_user: Whether a user name precedes the command, as in /etc/crontab and /etc/cron.d.
    """
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        if not words or words.startswith("#") or re.match(r"\w+\s*=", words):
            continue
        first, *rest = words.split(None, 1)
        parts = " ".join([_NICKNAMES.get(first.lower(), first), *rest]).split(None, 6 if has_user else 5)
        if len(parts) < (7 if has_user else 6):
            continue
        try:
            fields = tuple(_parse_field(part, place) for place, part in enumerate(parts[:5]))
        except ValueError:
            continue
        weekdays = frozenset(day % 7 for day in fields[4])
        found.append(
            CronLine(
                number=number,
                fields=(*fields[:4], weekdays),
                is_any_day=parts[2].startswith("*") or parts[4].startswith("*"),
                program=_name_program(parts[-1]),
                defers_to_systemd="/run/systemd/system" in parts[-1],
            )
        )
    return tuple(found)


def find_next(line: CronLine, *, now: datetime, within_s: float) -> float | None:
    """Return the seconds until a line starts next; None if it does not start within `within_s`."""
    minute = now.replace(second=0, microsecond=0) + timedelta(minutes=1)
    for at in _minutes(minute, now + timedelta(seconds=within_s)):
        if line.is_due(at):
            return (at - now).total_seconds()
    return None


def _minutes(first: datetime, last: datetime) -> Iterator[datetime]:
    at = first
    while at <= last:
        yield at
        at += timedelta(minutes=1)


def _parse_field(text: str, place: int) -> frozenset[int]:
    low, high = _RANGES[place]
    values: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(part)
        start = low if match[1] is None else _parse_value(match[1], place)
        # `5/10` runs from 5 to the end of the range, like `5-59/10`.
        end = high if match[1] is None or (match[2] is None and match[3]) else start
        end = _parse_value(match[2], place) if match[2] else end
        if not low <= start <= end <= high:
            raise ValueError(part)
        values.update(range(start, end + 1, max(1, int(match[3] or 1))))
    return frozenset(values)


def _parse_value(word: str, place: int) -> int:
    names = {3: _MONTHS, 4: _DAYS}.get(place, ())
    if word.lower() in names:
        return names.index(word.lower()) + (1 if place == 3 else 0)
    return int(word)


def _name_program(command: str) -> str:
    runs_parts = _RUNS_PARTS.search(command)
    if runs_parts:
        return runs_parts["folder"]
    rest = command
    while (outer := _SUBSTITUTED.sub("$", rest)) != rest:
        rest = outer
    while (test := _BEFORE.match(rest)) and rest[test.end() :]:
        rest = rest[test.end() :]
    try:
        words = shlex.split(rest)
    except ValueError:
        words = rest.split()
    program = ""
    while words:
        word, *words = words
        name = PurePath(word.strip("(){}'\"!;&|")).name
        if not name or "=" in word.partition("/")[0]:
            continue
        program = name
        if name not in _WRAPPERS:
            break
        text, words = _skip_options(name, words)
        if text is not None:
            return _name_program(text) or name
    return program


def _skip_options(wrapper: str, words: list[str]) -> tuple[str | None, list[str]]:
    """Return the command that a wrapper runs: as text, or None and its words, none where an option is unknown."""
    letters, before_count = _WRAPPERS[wrapper]
    while words and (before_count or words[0].startswith("-")):
        word, *words = words
        if wrapper in _TAKES_TEXT and words and _TEXT_OPTION.fullmatch(word):
            return words[0], []
        if not word.startswith("-"):
            before_count -= 1
        elif _has_value_behind(word, letters):
            words = words[1:]
        elif word.startswith("--") and "=" not in word and word not in _LONG_WITHOUT_VALUE:
            return None, []
        if wrapper == "runuser" and _USER_OPTION.match(word):
            # Then there is no shell, and the command follows at once.
            before_count = 0
    return None, words


def _has_value_behind(option: str, letters: str) -> bool:
    """Return whether the next word is the value of an option; a letter's value may be in the same word, as in `-uroot`."""
    if not letters:
        return False
    if option.startswith("--"):
        # `--shell` has a value only where -s has one; with sudo neither has.
        return option in _LONG_WITH_VALUE and (option != "--shell" or "s" in letters)
    return re.fullmatch(rf"-[^{letters}]*[{letters}]", option) is not None
