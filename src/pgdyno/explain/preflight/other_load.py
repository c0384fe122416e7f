"""Define the rules about other activity: CPUs and disks in use, loads, servers, and jobs that are about to start."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pgdyno.explain.finding import Finding, Severity
from pgdyno.explain.preflight.rule_input import Rule, RuleInput
from pgdyno.record.machine.preflight import LAZY_INIT, Activity, BusyProcess, OtherServer, Timer
from pgdyno.units import format_bytes, format_bytes_per_s

# Source: our own machines: an idle one is 1 to 3 % busy with its own upkeep.
_BUSY_RATIO = 0.1
# A process that uses half a CPU takes it from the load, however many CPUs there are.
_BUSY_CPUS = 0.5
_SERVER_CPUS = 0.1
# Source: proc_diskstats, io_ms: half a second contains stray writes of journals; a tenth of it is a load.
_DISK_BUSY_RATIO = 0.1
# Data directories of the servers that units of packages start: `postgresql` of Debian's and Red Hat's, `postgresql-16` of
# PGDG's for Red Hat. Source: their unit files.
_PACKAGED = re.compile(r"/var/lib/(?:postgresql|pgsql(?:/(?P<major>\d+))?)/")
_PGDYNO = "pgdyno"
_DIRTY_BYTES = 256 * 1024**2
# Jobs that read or write much, or lock packages for minutes, by the names that distributions and vendors use. Short ones
# are also parts of other words: capture, irqbalance.
_HEAVY_JOB = re.compile(
    r"zypper|packagekit|unattended|fstrim|scrub|mdcheck|mdadm|defrag|updatedb|man-db|backup|dump|backrest|barman|wal-g|restic"
    r"|rsnapshot|snapper|timeshift|rsync|duplicity|clamav|clamd?scan|freshclam|rkhunter|aidecheck|vacuum|reindex|fwupd|snapd"
    r"|apticron|apt-listbugs|mdraid|checkarray|raidcheck|slocate|btrfsbalance"
    r"|(?<![a-z0-9])(?:apt|aptitude|dnf5?|yum|raid|balance|trim|[mp]?locate|borg|borgmatic|clam|aide)(?![a-z0-9])",
    re.IGNORECASE,
)
# Jobs that finish in a moment.
_LIGHT_JOB = re.compile(
    r"(?<![a-z0-9])(?:systemd-tmpfiles|logrotate|dpkg-db-backup|motd|sysstat|sa1|ua-timer|phpsession|certbot|ntp|chrony"
    r"|e2scrub_reap|apport|update-notifier)|^dpkg$",
    re.IGNORECASE,
)


def _busy(rule_input: RuleInput) -> Iterator[Finding]:
    activity = rule_input.facts.activity
    ratio = activity.busy_ratio if activity else rule_input.host.cpu_busy_before_ratio
    if ratio is None or (ratio <= _BUSY_RATIO and not (activity and is_busy(activity))):
        return
    yield Finding(
        rule="busy-machine",
        severity=Severity.CRITICAL if ratio > _BUSY_RATIO else Severity.WARNING,
        claim="Something else was running: it uses the CPUs that are to be measured.",
        evidence=describe_busy(activity) if activity else f"CPUs {ratio * 100:.0f} % busy before the first step",
        why="Its share varies from trial to trial, and so do the figures.",
        advice=advise_stop(activity),
    )


# Processes that use less are not worth a name.
_NAMED_CPUS = 0.05


def is_busy(activity: Activity) -> bool:
    """Return whether other programs use so much of a machine's CPUs that a load there would lack it."""
    return activity.busy_ratio > _BUSY_RATIO or any(one.cpu_count > _BUSY_CPUS for one in activity.busiest)


def advise_stop(activity: Activity | None) -> str:
    """Advise to stop what uses the CPUs, by name where that is known."""
    # Names the program and gives no command: advice stays in reports for weeks, and a pid is soon another process's.
    who = _list_names(one for one in (activity.busiest if activity else ()) if _can_be_ended(one))
    return f"Stop {who}, or wait until it is done." if who else "Stop it (`top` names it), or wait."


def describe_busy(activity: Activity) -> str:
    """Describe how busy the CPUs of a machine were, and with what."""
    named = [
        f"{one.name} {one.cpu_count:.2f} CPUs (pid {one.pid}{f', {one.user}' if one.user else ''})"
        for one in activity.busiest
        if one.cpu_count >= _NAMED_CPUS
    ]
    known = sum(one.cpu_count for one in activity.busiest)
    hidden = activity.busy_ratio * activity.cpu_count - known
    if hidden > max(_BUSY_CPUS / 5, known):
        named.append(f"{hidden:.2f} CPUs by processes that ended or are hidden")
    said = f"{activity.cpu_count} CPUs {activity.busy_ratio * 100:.0f} % busy over {activity.window_s:.1f} s"
    return said + (f": {', '.join(named)}" if named else "")


def _can_be_ended(one: BusyProcess) -> bool:
    # A server must be stopped in another way.
    return one.cpu_count > _BUSY_CPUS / 5 and not one.is_kernel and one.name != "postgres"


def _list_names(processes: Iterable[BusyProcess]) -> str:
    return ", ".join(dict.fromkeys(f"{one.name} of {one.user}" if one.user else one.name for one in processes))


def _load_programs(rule_input: RuleInput) -> Iterator[Finding]:
    programs = [one for one in rule_input.facts.load_programs if one.name != LAZY_INIT]
    servers = [one for one in rule_input.facts.servers if one.is_of_pgdyno]
    if programs or servers:
        is_pgdyno = servers or any(one.name == _PGDYNO for one in programs)
        named = [f"{one.name} (pid {one.pid})" for one in programs]
        named += [f"{_PGDYNO}'s own PostgreSQL server ({_describe_server(one)})" for one in servers]
        yield Finding(
            rule="load-running",
            severity=Severity.CRITICAL,
            claim=f"Another {'pgdyno is measuring' if is_pgdyno else 'load is running'} on this machine.",
            evidence=", ".join(named),
            why="Two loads slow each other.",
            advice="Wait for it, or end it if it is yours.",
        )
    holder = rule_input.facts.home_holder_pid
    if holder is not None and all(one.pid != holder for one in programs):
        yield Finding(
            rule="load-running",
            severity=Severity.CRITICAL,
            claim="Another pgdyno is at work in the same home.",
            evidence=f"pid {holder} holds its lock" if holder else "A process of another container holds its lock",
            why="Two loads slow each other; the second is refused.",
            advice="Wait for it.",
        )


def _unfinished_file_system(rule_input: RuleInput) -> Iterator[Finding]:
    threads = [one for one in rule_input.facts.load_programs if one.name == LAZY_INIT]
    if threads and any(folder.disk.filesystem == "ext4" for folder in rule_input.folders):
        yield Finding(
            rule="unfinished-file-system",
            severity=Severity.WARNING,
            claim="The kernel still writes the tables of inodes of a new ext4 file system.",
            evidence=f"Its thread {LAZY_INIT} is there (pid {threads[0].pid})",
            # Source: Linux, Documentation/admin-guide/ext4.rst, init_itable: it waits ten times as long as it has written.
            why="It takes up to a tenth of its disk's time, which may be another disk than the data's, and stops in some later trial.",
            advice="Wait until it is gone, or make the file system with `-E lazy_itable_init=0,lazy_journal_init=0`.",
        )


def _servers(rule_input: RuleInput) -> Iterator[Finding]:
    meant = rule_input.facts.server.data_dir if rule_input.facts.server else None
    others = sorted(
        (
            one
            for one in rule_input.facts.servers
            if not one.is_of_pgdyno and (one.data_dir is None or one.data_dir != meant)
        ),
        key=lambda one: one.cpu_count or 0.0,
        reverse=True,
    )
    if not others:
        return
    busy = [one for one in others if (one.cpu_count or 0.0) > _SERVER_CPUS]
    packaged = [_PACKAGED.match(one.data_dir or "") for one in others]
    units = dict.fromkeys(f"postgresql-{one['major']}" if one["major"] else "postgresql" for one in packaged if one)
    yield Finding(
        rule="other-servers",
        severity=Severity.CRITICAL if busy else Severity.NOTE,
        claim=f"{'Another PostgreSQL server is' if len(others) == 1 else 'Other PostgreSQL servers are'} running here"
        + (", and at work." if busy else "."),
        evidence=", ".join(
            _describe_server(one) + (f", {one.cpu_count:.2f} CPUs" if one.cpu_count else "") for one in others
        ),
        why="It holds memory, and its checkpoints and autovacuum come at any time."
        if len(others) == 1
        else "They hold memory, and their checkpoints and autovacuum come at any time.",
        advice=("Ask whose it is, and stop it" if len(others) == 1 else "Ask whose they are, and stop them")
        + " for the time of measuring: "
        + (
            f"`systemctl stop {' '.join(units)}`."
            if all(packaged)
            else f"`pg_ctl -D {others[0].data_dir or 'THEIR_DATA_DIRECTORY'} stop`{' first' if len(others) > 1 else ''}."
        ),
    )


def _describe_server(one: OtherServer) -> str:
    return f"pid {one.pid}" + (f" in {one.data_dir}" if one.data_dir else "")


def _busy_disks(rule_input: RuleInput) -> Iterator[Finding]:
    activity = rule_input.facts.activity
    ours = rule_input.device_names
    busy = [
        one for one in (activity.disks if activity else ()) if one.device in ours and one.busy_ratio > _DISK_BUSY_RATIO
    ]
    if busy:
        yield Finding(
            rule="disk-busy",
            severity=Severity.CRITICAL,
            claim="Another program is using the disk that is to be measured.",
            evidence=", ".join(
                f"{one.device} busy {one.busy_ratio * 100:.0f} % of the time, {format_bytes_per_s(one.read_bytes_per_s)} read,"
                f" {format_bytes_per_s(one.written_bytes_per_s)} written"
                for one in busy
            ),
            why="Commits and reads wait behind it.",
            advice="Find it with `iotop -oba -n 3` or `pidstat -d 1 3`, and stop it or wait.",
        )


def _dirty(rule_input: RuleInput) -> Iterator[Finding]:
    memory = rule_input.facts.memory
    if memory is not None and memory.dirty_bytes > _DIRTY_BYTES:
        yield Finding(
            rule="writeback-pending",
            severity=Severity.WARNING,
            claim="Data of something that ran before are still to be written to disk.",
            evidence=f"{format_bytes(memory.dirty_bytes)} dirty or under writeback",
            why="The kernel writes them while trials run, and flushes wait behind that.",
            advice="Write them now: `sync`.",
        )


def _timers(rule_input: RuleInput) -> Iterator[Finding]:
    due = [timer for timer in rule_input.facts.timers if timer.due_s <= rule_input.intent.horizon_s]
    heavy = [timer for timer in due if _is_heavy(timer)]
    unknown = [timer for timer in due if not _is_heavy(timer) and not all(map(_LIGHT_JOB.search, _list_jobs(timer)))]
    if heavy:
        units = " ".join(timer.name for timer in heavy if timer.name.endswith(".timer"))
        yield Finding(
            rule="timer-due",
            severity=Severity.CRITICAL,
            claim=f"{'A job that works' if len(heavy) == 1 else 'Jobs that work'} the disk or the CPUs will start soon.",
            evidence=_list_timers(heavy),
            why="It falls into some trials and not into others.",
            advice=f"Hold it back and start it again afterwards: `systemctl stop {units}`, then `systemctl start {units}`."
            if units
            else f"Measure after it, or put a # before it for the time: {heavy[0].name}.",
        )
    if unknown:
        yield Finding(
            rule="timer-due",
            severity=Severity.NOTE,
            claim="Jobs will start by themselves soon.",
            evidence=_list_timers(unknown),
            why="Whether they disturb, only you know.",
        )


def _is_heavy(timer: Timer) -> bool:
    return any(_HEAVY_JOB.search(job) and not _LIGHT_JOB.search(job) for job in _list_jobs(timer))


def _list_jobs(timer: Timer) -> list[str]:
    return timer.job.split(", ")


def _list_timers(timers: list[Timer]) -> str:
    return "; ".join(f"{timer.job} in {timer.due_s / 60:.0f} min ({timer.name})" for timer in timers)


def _battery(rule_input: RuleInput) -> Iterator[Finding]:
    if rule_input.facts.is_on_battery:
        yield Finding(
            rule="on-battery",
            severity=Severity.CRITICAL,
            claim="This machine runs on its battery.",
            evidence="A battery of /sys/class/power_supply is discharging",
            why="Its CPU is held back by an amount that changes with the charge.",
            advice="Plug it in.",
        )


RULES: tuple[Rule, ...] = (
    _busy,
    _load_programs,
    _unfinished_file_system,
    _servers,
    _busy_disks,
    _dirty,
    _timers,
    _battery,
)
