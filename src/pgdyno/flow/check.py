"""`pgdyno check`: look at machine and server, change nothing, and say what would invalidate a measurement."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.console import RenderableType

from pgdyno.conduct.planned_server import describe_main_server, find_variant_obstacles
from pgdyno.conduct.request_check import check_settings, find_kernel_refusal
from pgdyno.conduct.workspace import (
    check_homes,
    find_other_servers,
    find_pooler,
    list_variant_folders,
    machine_of,
    read_other_disks,
)
from pgdyno.errors import ExitCode, HostError, SpecError, with_program
from pgdyno.explain.finding import Finding, Severity
from pgdyno.explain.preflight.rule_input import IntendedLoad, Intent
from pgdyno.explain.preflight.rules import DEFAULT_HORIZON_S, find_obstacles, should_wait
from pgdyno.flow.terminal import print_document
from pgdyno.plan.experiment import reference_server
from pgdyno.plan.loads import default_clients
from pgdyno.plan.plan import Plan, plan_study
from pgdyno.plan.scaling import plan_scaling
from pgdyno.plan.variants import list_places
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.machine.preflight import PreflightFacts, ServerOrigin, ServerSnapshot, Unseen
from pgdyno.record.types import ServerFacts
from pgdyno.run.cluster.home import find_existing_folder
from pgdyno.run.given.data_folder import DataFolder, find_meant_folder
from pgdyno.run.given.state import read_server_and_data
from pgdyno.run.host.process import find_server_user
from pgdyno.run.host.program import program_name
from pgdyno.run.postgres.installation import read_named_facts
from pgdyno.run.preflight import PreflightSubject, read_preflight
from pgdyno.spec.read import make_study
from pgdyno.spec.study import BUILTIN_SCRIPTS, ServerSpec, Study
from pgdyno.units import format_bytes, format_cpus, with_capital

_BRANCH_WRITER = "tpcb-like"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What a preflight found."""

    subject: str
    host: HostFacts
    facts: PreflightFacts
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> ExitCode:
        """Return PROBLEM_FOUND if a finding would invalidate a measurement."""
        return ExitCode.PROBLEM_FOUND if should_wait(self.findings) else ExitCode.OK

    def to_json(self) -> bytes:
        """Return the preflight as a JSON document."""
        from pgdyno.report.documents.check import check_document  # noqa: PLC0415 - each form loads what it needs

        return msgspec.json.encode(check_document(self.subject, self.findings, host=self.host, facts=self.facts))

    def to_terminal(self) -> RenderableType:
        """Return the form for the terminal."""
        from pgdyno.report.sections.conditions.preflight import build_check  # noqa: PLC0415

        return print_document(build_check(self.subject, self.findings, self.facts))


def make_default_study(server: dict[str, object], *, scale: int | None, clients: int | None) -> Study:
    """Return the study of a bench without options, with what the user named of it.

    Raises:
        SpecError: Something in it is not understood.
    """
    load = {} if clients is None else {"clients": clients}
    raw: dict[str, object] = {
        "server": server,
        "data": {} if scale is None else {"scale": scale},
        "workload": [{"name": name, **load} for name in BUILTIN_SCRIPTS],
    }
    return make_study(raw, source="pgdyno check", folder=Path.cwd())


def check_study(study: Study, *, home: Path, is_planned: bool) -> Check:
    """Look at the machine and at the server that a study would start here.

    Args:
        study: What is to be measured.
        home: Where the data would lie; it need not exist.
        is_planned: Whether this very study is going to run, so that its length is known.

    Raises:
        SpecError: The study cannot be right, wherever it runs, or its PostgreSQL refuses a setting.
        HostError: A PostgreSQL of it is missing, or /proc is.
    """
    server = reference_server(study)
    programs = read_named_facts(server)
    check_settings(study, programs.major)
    user = find_server_user()
    snapshot, refusal = describe_main_server(study, programs, user=user)
    if isinstance(refusal, SpecError):
        raise refusal
    places = list_places(study)
    further = list_variant_folders(study, home)
    home = home if places[0].home is None else Path(places[0].home)
    there = find_existing_folder(home)
    wal_home = None if places[0].wal_home is None else Path(places[0].wal_home)
    subject = PreflightSubject(
        data_dir=there,
        wal_dir=there if wal_home is None else find_existing_folder(wal_home),
        further=further,
        home=home,
        bindir=Path(programs.bindir),
        server=snapshot,
    )
    host, facts, _ = read_preflight(subject)
    if refusal is not None:
        uncounted = Unseen(what="how many huge pages the server would take (estimated instead)", reason=refusal.reason)
        facts = msgspec.structs.replace(facts, unseen=(uncounted, *facts.unseen))
    pooler = find_pooler(study)
    machine = machine_of(host, version_major=programs.major, others=read_other_disks(places), pooler=pooler)
    named = f"PostgreSQL {programs.version}, not started"
    refusal_of_kernel = find_kernel_refusal(study, programs.major)
    kernel = () if refusal_of_kernel is None else (_refused(refusal_of_kernel),)
    try:
        check_homes(places, home)
        if study.server.port is not None:
            from pgdyno.run.cluster.server import check_port  # noqa: PLC0415 - loaded only if a port is named

            check_port(study.server.port)
        plan = plan_study(study, machine)
        sweep = plan_scaling(study, plan, machine)
    except HostError as error:
        return _judge(named, host, facts, intent=Intent(horizon_s=DEFAULT_HORIZON_S), others=(_refused(error), *kernel))
    intent = intent_of(plan, *([] if sweep is None else [sweep]))
    if not is_planned:
        intent = msgspec.structs.replace(intent, horizon_s=DEFAULT_HORIZON_S)
    others = find_other_servers(study)
    refused = find_variant_obstacles(study, host, facts, main=programs, others=others, user=user)
    return _judge(named, host, facts, intent=intent, others=(*kernel, *refused))


def check_data(path: Path, *, named: ServerSpec | None, scale: int | None = None, clients: int | None = None) -> Check:
    """Look at the machine and at the user's server, by its data directory.

    Args:
        path: The data directory.
        named: The server that the user says it is; None: not checked.
        scale: Of pgbench's tables in it; None: not checked.
        clients: Of a load on them.

    Raises:
        SpecError: It is no data directory, or of another version than the user says.
        HostError: It may not be read, its programs are missing, or /proc is.
    """
    folder, programs = find_meant_folder(path, named)
    has_load = scale is not None or clients is not None
    snapshot, unseen = read_server_and_data(folder, wants_branches=has_load)
    snapshot = msgspec.structs.replace(snapshot, settings_said=programs.settings_said)
    subject = PreflightSubject(
        data_dir=folder.path,
        wal_dir=folder.path / "pg_wal",
        bindir=folder.bindir,
        program_user=folder.asker,
        server=snapshot,
    )
    host, facts, _ = read_preflight(subject)
    facts = msgspec.structs.replace(facts, unseen=(*unseen, *facts.unseen))
    loads = _loads_on(snapshot, scale, clients or default_clients(host.usable_cpu_count)) if has_load else ()
    intent = Intent(horizon_s=DEFAULT_HORIZON_S, loads=loads)
    return _judge(_describe_folder(folder, snapshot, programs), host, facts, intent=intent)


def _loads_on(snapshot: ServerSnapshot, scale: int | None, clients: int) -> tuple[IntendedLoad, ...]:
    """Return the built-in load at the named scale, or else on each database that has its tables."""
    scales: dict[str, int | None] = {_BRANCH_WRITER: scale}
    if scale is None and snapshot.branches:
        scales = {f"{_BRANCH_WRITER} in {database}": branches for database, branches in snapshot.branches.items()}
    return tuple(
        IntendedLoad(name=name, clients=clients, scale=each, is_writing_branches=True) for name, each in scales.items()
    )


def intent_of(plan: Plan, *following: Plan) -> Intent:
    """Return what a plan, and those that follow it with its data, are going to do, as the rules need it."""
    plans = (plan, *following)
    loads = tuple(load for one in plans for load in _list_loads(one))
    return Intent(
        horizon_s=sum(one.predicted_s for one in plans),
        dataset_bytes=round((plan.dataset_bytes or 0) / plan.scale * max(load.scale or plan.scale for load in loads)),
        loads=loads,
        live_clients=max(map(_count_live_clients, plans)),
    )


def _count_live_clients(plan: Plan) -> int:
    """Count the clients of all loads of a live round, the reference's twice; 0 where each load runs alone."""
    if plan.experiment is None or not plan.experiment.is_side_by_side:
        return 0
    members = (plan.experiment.reference, *plan.experiment.variants)
    return max(sum(member.clients or workload.clients for member in members) for workload in plan.workloads)


def _list_loads(plan: Plan) -> tuple[IntendedLoad, ...]:
    variants = plan.experiment.variants if plan.experiment else ()
    loads = {
        (workload.name, variant.clients or workload.clients, variant.scale or plan.scale): workload
        for workload in plan.workloads
        for variant in variants
    } or {(workload.name, workload.clients, plan.scale): workload for workload in plan.workloads}
    return tuple(
        IntendedLoad(
            name=name,
            clients=clients,
            scale=scale,
            is_writing_branches=any(script == _BRANCH_WRITER for script, _ in workload.scripts)
            # Of a load in parts only some clients write.
            and not (workload.parts and scale >= workload.writing_clients),
        )
        for (name, clients, scale), workload in loads.items()
    )


def _judge(
    server: str,
    host: HostFacts,
    facts: PreflightFacts,
    *,
    intent: Intent,
    others: tuple[Finding, ...] = (),
) -> Check:
    program = program_name()
    obstacles = (*others, *find_obstacles(host, facts, intent=intent))
    findings = tuple(
        msgspec.structs.replace(finding, advice=with_program(finding.advice, program)) for finding in obstacles
    )
    disk = host.data_disk
    size = f"{format_cpus(host.usable_cpu_count)}, {format_bytes(host.usable_memory_bytes)}"
    subject = f"{server}; {size}; data at {disk.path} ({disk.filesystem} on {disk.device})"
    return Check(subject=subject, host=host, facts=facts, findings=findings)


def _refused(error: HostError) -> Finding:
    return Finding(
        rule="cannot-run",
        severity=Severity.CRITICAL,
        claim=f"What is to be measured cannot run here: {error.fact}.",
        evidence=error.detail,
        why="It would end before its first trial.",
        advice=f"{with_capital(error.hint)}." if error.hint else "",
    )


def _describe_folder(folder: DataFolder, snapshot: ServerSnapshot, programs: ServerFacts) -> str:
    state = {
        ServerOrigin.RUNNING: f"running as pid {folder.pid}",
        ServerOrigin.FILES: "running, but it did not let us in" if folder.pid else "not running",
        ServerOrigin.PLANNED: "",
    }[snapshot.origin]
    return f"PostgreSQL {programs.version}, {state}"
