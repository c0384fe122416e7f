"""Plan the clients and threads of every load: choose what the study leaves open, refuse what is impossible.

Variants may have their own clients and threads. Each variant is checked against the settings of its own server.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence

from pgdyno.errors import SpecError
from pgdyno.plan.experiment import Variant
from pgdyno.plan.loading import plan_loading_workload
from pgdyno.plan.parts import plan_parts
from pgdyno.plan.types import Choice, Machine, PlannedWorkload, apply_variant
from pgdyno.spec.pooler import PRIMARY, REPLICAS
from pgdyno.spec.study import ServerKind, ServerSpec, Study, WorkloadSpec
from pgdyno.spec.variant import VariantSpec
from pgdyno.units import count_things, parse_in_unit

# Reserved beside pgbench's own connections: superuser_reserved_connections (3) and pgdyno's two.
RESERVED_CONNECTIONS = 5
DEFAULT_MAX_CONNECTIONS = 100


def plan_loads(
    study: Study, variants: Sequence[Variant], machine: Machine, choices: list[Choice]
) -> tuple[PlannedWorkload, ...]:
    """Plan the loads of all workloads completely.

    Args:
        study: The study as requested.
        variants: The study's variants; empty without a comparison.
        machine: Resources that the study may use.
        choices: List to which choices are appended.

    Raises:
        SpecError: A load does not fit the settings of its server.
    """
    workloads = tuple(_plan_workload(workload, variants, study, machine, choices) for workload in study.workload)
    check_load_hosts(study, {variant.name: variant for variant in variants})
    _check_variants(workloads, variants)
    return workloads


def _plan_workload(
    workload: WorkloadSpec, variants: Sequence[Variant], study: Study, machine: Machine, choices: list[Choice]
) -> PlannedWorkload:
    if workload.is_loading:
        return plan_loading_workload()
    if workload.parts:
        planned = plan_parts(workload, machine)
        if not variants:
            _check_load(f"workload {workload.name}", planned, study.server)
        return planned
    of_variants = [variant.clients for variant in variants]
    clients = workload.clients
    if clients is None and of_variants:
        # If every variant has its own value, the workload's is never used: the reference's value stands for it.
        clients = of_variants[0] if None not in of_variants else None
    if clients is None:
        allowed = min(allowed_clients(server) for server in (study.server, *(variant.server for variant in variants)))
        clients = _choose_clients(workload.name, machine, allowed, choices)
    most_clients = max([each or clients for each in of_variants], default=clients)
    threads = workload.threads
    if threads is None:
        threads = max(1, min(most_clients, int(machine.load_cpu_count or machine.cpu_count)))
    elif threads > most_clients:
        raise _too_many_threads(f"workload {workload.name}", threads, most_clients)
    planned = PlannedWorkload(
        name=workload.name,
        scripts=workload.weighted_scripts,
        mode=workload.mode,
        clients=clients,
        threads=threads,
        rate_tps=workload.rate_tps,
        latency_limit_ms=workload.latency_limit_ms,
        max_tries=workload.max_tries,
        endpoint=workload.endpoint or PRIMARY,
    )
    if not variants:
        _check_load(f"workload {workload.name}", planned, study.server)
    return planned


def check_load_hosts(study: Study, variants: Mapping[str, Variant | VariantSpec]) -> None:
    """Refuse a variant with more load hosts than the study names, or than it has clients.

    Args:
        study: The study as requested.
        variants: By name, also as requested: before a load host is reached.

    Raises:
        SpecError: There is such a variant.
    """
    named, most = len(study.load_hosts), max((variant.load_hosts or 0 for variant in variants.values()), default=0)
    if most > named:
        raise SpecError(
            f"load_hosts is {most}, and the study names {count_things(named, 'load host')}",
            hint='name each machine that the load comes from: --load-host DEST, or a table [hosts.NAME] with role = "load"',
        )
    for (name, variant), workload in itertools.product(variants.items(), study.workload):
        if clients := variant.clients or workload.asked_clients:
            _check_shares(f"workload {workload.name} of {name}", variant.load_hosts, clients)


def _check_variants(workloads: tuple[PlannedWorkload, ...], variants: Sequence[Variant]) -> None:
    for workload in workloads:
        for variant in variants:
            clients, what = variant.clients or workload.clients, f"workload {workload.name} of {variant.name}"
            # With fewer clients than the workload has threads, use fewer threads, unless the threads are under test.
            if variant.threads is not None and variant.threads > clients:
                raise _too_many_threads(what, variant.threads, clients)
            _check_shares(what, variant.load_hosts, clients)
            _check_load(what, apply_variant(workload, variant), variant.server)


def _check_shares(what: str, load_hosts: int | None, clients: int) -> None:
    if load_hosts is not None and load_hosts > clients:
        raise SpecError(
            f"{what}: {load_hosts} load hosts for {count_things(clients, 'client')}",
            hint="each load host has a client or more: set clients to at least the number of load hosts",
        )


def _too_many_threads(what: str, threads: int, clients: int) -> SpecError:
    return SpecError(
        f"{what}: {threads} threads for {clients} clients",
        hint="a pgbench thread serves one or more clients: set threads to at most the number of clients",
    )


def _check_load(what: str, load: PlannedWorkload, server: ServerSpec) -> None:
    # Through a pooler clients have no connection of their own; the pool's size is checked instead.
    _check_clients(what, load.count_clients(PRIMARY), server)
    on_each = -(-load.count_clients(REPLICAS) // max(1, len(server.readers)))
    _check_clients(f"{what}, on each standby", on_each, server)


def _check_clients(what: str, clients: int, server: ServerSpec) -> None:
    allowed = allowed_clients(server)
    if clients > allowed:
        raise SpecError(
            f"{what}: {clients} clients do not fit into max_connections = {allowed + RESERVED_CONNECTIONS}",
            detail=f"{RESERVED_CONNECTIONS} connections are kept for administration and sampling",
            hint=f"use fewer clients, or set max_connections = {clients + 2 * RESERVED_CONNECTIONS}",
        )


def _choose_clients(name: str, machine: Machine, allowed_clients: int, choices: list[Choice]) -> int:
    wanted = default_clients(machine.cpu_count)
    clients = max(1, min(wanted, allowed_clients))
    reason = f"4 for each of {machine.cpu_count:g} CPUs: enough to keep them and the disk busy"
    if clients < wanted:
        reason = f"as many as max_connections allows; {wanted} would be 4 for each CPU"
    choices.append(Choice(name=f"clients of {name}", value=str(clients), reason=reason))
    return clients


def default_clients(cpu_count: float) -> int:
    """Return the number of clients of a load that does not specify it."""
    return max(4, round(4 * cpu_count))


def allowed_clients(server: ServerSpec) -> int:
    """Return the number of connections that a server with its settings leaves for pgbench; a given one is asked itself."""
    if server.kind is ServerKind.GIVEN:
        return sys.maxsize
    asked = {name.lower(): value for name, value in server.settings.items()}.get(
        "max_connections", DEFAULT_MAX_CONNECTIONS
    )
    try:
        if isinstance(asked, bool):
            raise ValueError  # noqa: TRY004, TRY301 - handled like any other invalid value
        return int(parse_in_unit(str(asked), None, is_integer=True)) - RESERVED_CONNECTIONS
    except ValueError:
        raise SpecError(
            f"max_connections = {asked} is not a whole number", hint="for example max_connections = 200"
        ) from None
