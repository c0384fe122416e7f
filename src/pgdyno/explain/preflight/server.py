"""Define the rules about the intended server and load: durability, the wrong server, a scale that is too small."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pgdyno.explain.finding import Finding, Severity
from pgdyno.explain.preflight.rule_input import Rule, RuleInput
from pgdyno.explain.preflight.shared_memory import setting_number
from pgdyno.facts.durability import find_given_up, names_wal_file
from pgdyno.facts.gucs import as_shown, find_guc, same_value
from pgdyno.facts.memory_fit import BEYOND_RATIO, MemoryFit, classify_fit
from pgdyno.record.machine.preflight import ServerOrigin, ServerSnapshot
from pgdyno.units import format_bytes, with_capital

# Default port of clients. Source: PostgreSQL 18 manual, section 32.15, PGPORT.
_PORT = 5432
# VACUUM and ANALYZE estimate row counts. Source: PostgreSQL 18 manual, section 52.11, reltuples.
_COUNT_ERROR_RATIO = 0.1
# Values with which a server logs every statement, or every one that writes. Source: PostgreSQL 18 manual, section 19.8.2.
_CHATTY: Mapping[str, tuple[str, ...]] = {
    "log_min_duration_statement": ("0",),
    "log_min_duration_sample": ("0",),
    "log_statement": ("all", "mod"),
    "log_duration": ("on",),
}


def _durability(rule_input: RuleInput) -> Iterator[Finding]:
    server = rule_input.facts.server
    if server is None:
        return
    for one in find_given_up(server.settings, server.major):
        yield Finding(
            rule="durability" if one.is_durability else "given-up",
            severity=Severity.CRITICAL if one.is_durability else Severity.NOTE,
            claim=f"{with_capital(one.label)}.",
            evidence=f"{one.assignment} ({_describe_origin(server)})",
            why="Figures measured this way are not comparable with those of a durable server."
            if one.is_durability
            else "",
            advice=_reset(one.setting, server) if one.is_durability else "",
        )


def _describe_origin(server: ServerSnapshot) -> str:
    return {
        ServerOrigin.PLANNED: "as asked for",
        ServerOrigin.FILES: "in its configuration files",
        ServerOrigin.RUNNING: "in force",
    }[server.origin]


def _reset(name: str, server: ServerSnapshot) -> str:
    if server.origin is ServerOrigin.PLANNED:
        return f"Leave `--set {name}=...` out, or keep the label beside the result."
    guc = find_guc(name, server.major)
    value = guc.boot if guc else "on"
    return f"`ALTER SYSTEM SET {name} = '{value}'; SELECT pg_reload_conf();`, or keep the label beside the result."


def _wrong_server(rule_input: RuleInput) -> Iterator[Finding]:
    server = rule_input.facts.server
    if server is None:
        return
    if server.is_in_recovery:
        yield Finding(
            rule="wrong-server",
            severity=Severity.CRITICAL,
            claim="This server is a standby.",
            evidence=f"{server.data_dir}: pg_is_in_recovery() is true",
            why="It takes no writes, and it replays those of its primary while trials run.",
            advice="Measure the primary, or a restored copy.",
        )
    if server.active_sessions:
        yield Finding(
            rule="sessions-at-work",
            severity=Severity.CRITICAL,
            claim="Others are at work in this server.",
            evidence=f"{server.active_sessions} sessions that are not idle",
            why="Their transactions are in the figures, and they would wait for ours.",
            advice="See who: `SELECT pid, usename, application_name, state, query FROM pg_stat_activity WHERE state <> 'idle';`.",
        )


def _file_errors(rule_input: RuleInput) -> Iterator[Finding]:
    server = rule_input.facts.server
    if server is None or not server.file_errors:
        return
    is_running = server.origin is ServerOrigin.RUNNING
    yield Finding(
        rule="configuration-errors",
        severity=Severity.CRITICAL,
        claim=f"The server's configuration files hold errors: {'a restart would fail' if is_running else 'it does not start'}.",
        evidence="; ".join(server.file_errors),
        why="Until then a reload takes in a part of what they say, or nothing." if is_running else "",
        advice="Fix them until `SELECT * FROM pg_file_settings WHERE error IS NOT NULL;` lists only what waits for a restart."
        if is_running
        else "Fix them.",
    )


def _assertions(rule_input: RuleInput) -> Iterator[Finding]:
    server = rule_input.facts.server
    if server is not None and server.has_assertions:
        yield Finding(
            rule="assertions",
            severity=Severity.CRITICAL,
            claim="This PostgreSQL was built to check itself.",
            evidence="debug_assertions is on",
            why="It runs at a fraction of its speed, with other bottlenecks.",
            advice="Use a build without --enable-cassert, such as the distribution's.",
        )


def _archives_nothing(rule_input: RuleInput) -> Iterator[Finding]:
    server = rule_input.facts.server
    if server is None or server.settings.get("archive_mode", "off") == "off" or server.settings.get("archive_library"):
        return
    command = server.settings.get("archive_command")
    # A server that does not archive now shows its command as disabled. Without a command it keeps all of its WAL.
    if not command or command == "(disabled)" or names_wal_file(command):
        return
    yield Finding(
        rule="archives-nothing",
        severity=Severity.NOTE,
        claim="archive_command archives nothing: the server cannot be recovered to a point in time.",
        evidence=f"archive_mode = {server.settings['archive_mode']}, and archive_command names no WAL file (%p): {command}",
        why="Archiving takes time and a disk that these figures do not have.",
        advice="Measure with the archive_command that production has, or set archive_mode = off.",
    )


def _logging(rule_input: RuleInput) -> Iterator[Finding]:
    server = rule_input.facts.server
    if server is None:
        return
    is_sampled = setting_number(server, "log_statement_sample_rate") == 1.0
    chatty = [
        name
        for name, values in _CHATTY.items()
        if (name != "log_min_duration_sample" or is_sampled)
        and any(same_value(name, server.settings.get(name, ""), value, server.major) for value in values)
    ]
    if chatty:
        yield Finding(
            rule="logging",
            severity=Severity.WARNING,
            claim="The server writes every statement into its log.",
            evidence=", ".join(f"{name} = {server.settings[name]}" for name in chatty),
            why="The log is one pipe or file for all sessions, and often lies on the disk of the data.",
            advice="; ".join(f"`ALTER SYSTEM RESET {name};`" for name in chatty) + ", then `SELECT pg_reload_conf();`."
            if server.origin is not ServerOrigin.PLANNED
            else f"Leave {', '.join(chatty)} out.",
        )


def _few_branches(rule_input: RuleInput) -> Iterator[Finding]:
    for load in rule_input.intent.loads:
        if load.is_writing_branches and load.scale is not None and load.scale < load.clients:
            yield Finding(
                rule="scale-below-clients",
                severity=Severity.WARNING,
                claim="There are fewer branches than clients, so clients wait for each other's rows.",
                evidence=f"Scale {load.scale}, {load.clients} clients",
                advice=f"Use a scale of at least the clients, such as --scale {load.clients}, or what is measured is lock waiting.",
                workload=load.name,
            )


def _wrong_database(rule_input: RuleInput) -> Iterator[Finding]:
    server = rule_input.facts.server
    branches = server.branches if server else {}
    for load in rule_input.intent.loads if branches else ():
        scale = load.scale
        if scale is not None and all(abs(seen - scale) > _COUNT_ERROR_RATIO * seen for seen in branches.values()):
            yield Finding(
                rule="wrong-database",
                severity=Severity.CRITICAL,
                claim="This is not the server that is meant: none of its databases has pgbench's tables at that scale.",
                evidence=f"Scale {scale} is asked for; pgbench_branches has "
                + ", ".join(f"{seen} rows in {name}" for name, seen in branches.items()),
                why="Data of another size would be measured: pgbench counts the branches that it finds.",
                advice=f"Name another server or scale, or load it again: `pgbench -i -s {scale} DATABASE`.",
            )


def _wrong_port(rule_input: RuleInput) -> Iterator[Finding]:
    server = rule_input.facts.server
    if server is None or server.port in {None, server.client_port or _PORT}:
        return
    reported = f"PGPORT is {server.client_port}" if server.client_port else f"PGPORT is not set, which means {_PORT}"
    yield Finding(
        rule="wrong-port",
        severity=Severity.CRITICAL if server.client_port else Severity.NOTE,
        claim="Clients that are told no port look for another server.",
        evidence=f"This one listens at {server.port}; {reported}",
        why="pgbench and psql would load and show a server that was not checked.",
        advice=f"`export PGPORT={server.port}`, or `-p {server.port}` for each of them.",
    )


def _data_against_memory(rule_input: RuleInput) -> Iterator[Finding]:
    server, memory_bytes = rule_input.facts.server, rule_input.host.usable_memory_bytes
    data_bytes = rule_input.intent.dataset_bytes or (server.data_bytes if server else None)
    if not data_bytes:
        return
    ratio = data_bytes / memory_bytes
    fit = classify_fit(ratio)
    if fit is MemoryFit.WITHIN:
        claim = "The data fit into memory: once they are there, no disk is measured by reading them."
    elif fit is MemoryFit.ABOUT:
        claim = "The data are about as large as memory: how much of them is read from disk changes with small things."
    else:
        claim = "The data are larger than memory: the disk is in all figures of reads."
    yield Finding(
        rule="data-against-memory",
        severity=Severity.NOTE,
        claim=claim,
        evidence=f"{format_bytes(data_bytes)} of data, {data_bytes / memory_bytes:.2g} × {format_bytes(memory_bytes)} of memory",
        why="Results depend on the ratio of data to memory: compare only figures of equal ratios.",
        advice=f"To measure the disk, use {format_bytes(BEYOND_RATIO * memory_bytes)} of data or more."
        if fit is not MemoryFit.BEYOND
        else "",
    )


def effective_settings(settings: Mapping[str, str | float]) -> dict[str, str]:
    """Format the settings of a study as a server would show them."""
    return {name.lower(): as_shown(value) for name, value in settings.items()}


RULES: tuple[Rule, ...] = (
    _durability,
    _wrong_server,
    _wrong_database,
    _wrong_port,
    _file_errors,
    _assertions,
    _archives_nothing,
    _logging,
    _few_branches,
    _data_against_memory,
)
