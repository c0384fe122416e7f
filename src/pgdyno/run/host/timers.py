"""Find the jobs that the machine starts by itself: systemd's timers and cron's lines, with the time until each.

If neither systemd nor a cron daemon runs, nothing will start, whatever files exist. Other schedulers (at, a cluster's
own, a hypervisor's snapshots) are not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from pgdyno.errors import PgdynoError
from pgdyno.record.machine.crontab import CronLine, find_next, parse_crontab
from pgdyno.record.machine.preflight import Timer, Unseen
from pgdyno.run.host import process
from pgdyno.run.host.tree import Tree

_DAY_S = 86_400.0
_PATIENCE_S = 5.0
_CRON_DAEMONS = frozenset({"cron", "crond", "anacron", "fcron", "busybox crond"})
_SYSTEM_TABLES = ("etc/crontab",)
_TABLE_FOLDER = "etc/cron.d"
# The folder on Debian and others, and the folder of the RHEL family.
_USER_TABLES = ("var/spool/cron/crontabs", "var/spool/cron")
# With anacron, cron itself runs hourly jobs only. Source: Debian's /etc/crontab tests for it, RHEL's has none but
# hourly.
_ANACRON = "usr/sbin/anacron"


class _Row(msgspec.Struct):
    """A row of `systemctl list-timers --output=json`; times in microseconds since the epoch, 0 or null for never."""

    unit: str
    activates: str | None = None
    next: int | None = None


def read_timers(
    tree: Tree, *, process_names: Iterable[str], now: datetime
) -> tuple[tuple[Timer, ...], tuple[Unseen, ...]]:
    """Find the jobs that are due within a day, soonest first, and what could not be read.

    Args:
        tree: The machine.
        process_names: The names of all running processes, among which is a cron daemon's if one runs.
        now: The present time, with time zone.
    """
    unseen: list[Unseen] = []
    timers = list(_read_systemd(tree, now=now, unseen=unseen))
    if _CRON_DAEMONS & set(process_names):
        timers += _read_cron(tree, now=now)
        for folder in _USER_TABLES:
            reason = tree.refused.get(f"/{folder}")
            if reason:
                unseen.append(Unseen(what=f"crontabs of the accounts in /{folder}", reason=reason))
    return tuple(sorted(timers, key=lambda timer: timer.due_s)), tuple(unseen)


def parse_systemd_timers(text: str, *, now: datetime) -> tuple[Timer, ...]:
    """Parse the output of `systemctl list-timers --output=json`; keep timers that are due within a day.

    Raises:
        msgspec.DecodeError: The text is something else.
    """
    rows = msgspec.json.decode(text, type=list[_Row])
    timers = []
    for row in rows:
        due_s = (row.next or 0) / 1e6 - now.timestamp()
        # A timer whose service runs at this moment has no next time.
        if 0 <= due_s <= _DAY_S:
            timers.append(Timer(name=row.unit, job=row.activates or row.unit, due_s=due_s))
    return tuple(timers)


def _read_systemd(tree: Tree, *, now: datetime, unseen: list[Unseen]) -> Iterator[Timer]:
    # Source: sd_booted(3).
    if not tree.exists("run/systemd/system"):
        return
    try:
        if tree.is_live:
            argv = ["systemctl", "list-timers", "--all", "--no-pager", "--output=json"]
            done = process.run(argv, timeout_s=_PATIENCE_S)
            text, said = done.stdout, done.stderr.strip()
        else:
            text, said = tree.read("run/systemd/list-timers.json") or "", ""
        yield from parse_systemd_timers(text, now=now)
    except PgdynoError as error:
        unseen.append(Unseen(what="systemd's timers", reason=error.reason))
    except msgspec.DecodeError as error:
        unseen.append(Unseen(what="systemd's timers", reason=said or str(error)))


def _read_cron(tree: Tree, *, now: datetime) -> Iterator[Timer]:
    tables = [*_SYSTEM_TABLES, *(f"{_TABLE_FOLDER}/{name}" for name in tree.list(_TABLE_FOLDER))]
    for path in tables:
        yield from _read_table(tree, path, has_user=True, now=now)
    for folder in _USER_TABLES:
        for name in tree.list(folder):
            if tree.path(f"{folder}/{name}").is_file():
                yield from _read_table(tree, f"{folder}/{name}", has_user=False, now=now)


def _read_table(tree: Tree, path: str, *, has_user: bool, now: datetime) -> Iterator[Timer]:
    for line in parse_crontab(tree.read(path) or "", has_user=has_user):
        job = _describe_job(tree, line)
        if job and (due_s := find_next(line, now=now, within_s=_DAY_S)) is not None:
            yield Timer(name=f"/{path}, line {line.number}", job=job, due_s=due_s)


def _describe_job(tree: Tree, line: CronLine) -> str:
    """Name what a cron line starts; empty if it will find nothing to do."""
    if line.defers_to_systemd and tree.exists("run/systemd/system"):
        return ""
    if not line.program.startswith("/"):
        return line.program
    if tree.exists(_ANACRON) and not line.program.endswith("hourly"):
        return ""
    # Source: run-parts(8): names with dots, such as .placeholder, are not run.
    return ", ".join(name for name in tree.list(line.program.lstrip("/")) if "." not in name)
