"""Plan the poolers that a study's loads connect to: their sizes, and what cannot be measured through them.

A pool in transaction mode is chosen as small as PostgreSQL's own rule of thumb has it: a pool as large as the number of clients
would measure the way through the pooler only, and not what pooling is for.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pgdyno.errors import SpecError
from pgdyno.plan.experiment import Variant
from pgdyno.plan.loads import RESERVED_CONNECTIONS, allowed_clients
from pgdyno.plan.types import Choice, Machine, PlannedPooler, PlannedWorkload, apply_variant
from pgdyno.spec.pooler import PRIMARY, PoolerSpec, PoolMode
from pgdyno.spec.study import ServerKind, Study
from pgdyno.spec.table import QueryMode
from pgdyno.units import count_things

# Source: wiki.postgresql.org/wiki/Number_Of_Database_Connections: active connections = cores * 2 + effective spindles.
CONNECTIONS_PER_CPU = 2
"""Transactions under way at once that PostgreSQL's rule of thumb has for each CPU."""
# On curves of the Universal Scalability Law half as many sessions again as the knee of a sweep have 93 % or more of the highest TPS, and twice as
# many 94 % or more. That also leaves room for connections that are idle while a transaction's client thinks.
POOL_PER_KNEE = (1.5, 2.0)
"""How many connections a pool has for each of the knee's sessions: at least and at most."""
_CONNECTIONS_FOR_DISK = 1
HINT_MODE = "use --mode simple or extended, a pool in session mode, or a PgBouncer from 1.21 on"


class _Use(msgspec.Struct, frozen=True, kw_only=True):
    """A load that connects to a pooler, with the variant that it runs under."""

    load: PlannedWorkload
    variant: Variant | None

    @property
    def title(self) -> str:
        of = "" if self.variant is None else f" of {self.variant.name}"
        return f"workload {self.load.name}{of}"


def plan_poolers(
    study: Study,
    variants: Sequence[Variant],
    workloads: Sequence[PlannedWorkload],
    machine: Machine,
    choices: list[Choice],
) -> tuple[PlannedPooler, ...]:
    """Plan the poolers that loads connect to; those that none connects to are left out.

    Args:
        study: The study as requested.
        variants: The study's variants; empty without a comparison.
        workloads: Its planned loads.
        machine: Resources that the study may use.
        choices: List to which choices are appended.

    Raises:
        SpecError: A load cannot run through its pooler.
    """
    check_given_poolers(study)
    planned = []
    for name, asked in study.poolers.items():
        uses = [use for use in _list_uses(workloads, variants) if name in use.load.endpoints]
        if uses:
            planned.append(_plan_pooler(name, asked, uses, study=study, machine=machine, choices=choices))
    return tuple(planned)


def check_given_poolers(study: Study) -> None:
    """Refuse poolers without a connection string in front of a given server, before anything connects to it.

    Raises:
        SpecError: A load would connect to one.
    """
    if study.server.kind is not ServerKind.GIVEN:
        return
    for name, pooler in study.poolers.items():
        if pooler.dsn is None and name in study.endpoints:
            raise SpecError(
                f"the pooler {name} of a given server needs a connection string",
                detail="pgdyno starts poolers in front of its own servers only",
                hint=f"for example --endpoint {name}='host=db1 port=6432'; in a study file: dsn",
            )


def has_several_endpoints(study: Study, variants: Sequence[Variant]) -> bool:
    """Return whether variants of a comparison connect to different endpoints."""
    return any(
        len({variant.endpoint or workload.endpoint or PRIMARY for variant in variants}) > 1
        for workload in study.workload
    )


def _list_uses(workloads: Sequence[PlannedWorkload], variants: Sequence[Variant]) -> list[_Use]:
    if not variants:
        return [_Use(load=workload, variant=None) for workload in workloads]
    return [
        _Use(load=apply_variant(workload, variant), variant=variant) for workload in workloads for variant in variants
    ]


def _plan_pooler(
    name: str, asked: PoolerSpec, uses: Sequence[_Use], *, study: Study, machine: Machine, choices: list[Choice]
) -> PlannedPooler:
    if study.server.kind is not ServerKind.GIVEN and asked.dsn is not None:
        raise SpecError(
            f"the pooler {name} runs already, and the server is one that pgdyno starts",
            hint="name the server behind it with --dsn, or leave out its connection string: pgdyno then starts a PgBouncer",
        )
    if any(use.load.is_loading for use in uses):
        raise SpecError("loading is not measured through a pooler", hint="leave out --endpoint")
    most_clients = max(use.load.count_clients(name) for use in uses)
    _check_modes(name, asked, uses, machine)
    if asked.dsn is not None:
        _check_settings(name, uses, study)
        return PlannedPooler(name=name, mode=asked.mode, size=None, most_clients=most_clients, dsn=asked.dsn)
    size = asked.size
    if size is None:
        servers = [study.server if use.variant is None else use.variant.server for use in uses]
        direct = max(use.load.count_clients(PRIMARY) for use in uses)
        allowed = max(1, min(allowed_clients(server) for server in servers) - direct)
        choice = _choose_size(name, asked.mode, most_clients, allowed=allowed, cpu_count=machine.cpu_count)
        choices.append(choice)
        size = int(choice.value)
    elif asked.mode is PoolMode.SESSION and size < most_clients:
        raise SpecError(
            f"the pool {name} has {size} server connections for {most_clients} clients in session mode",
            detail="a session keeps its connection to its end: the clients without one would wait for all of the load",
            hint=f"give it {most_clients}, fewer clients, or transaction mode",
        )
    for use in uses:
        server = study.server if use.variant is None else use.variant.server
        allowed, direct = allowed_clients(server), use.load.count_clients(PRIMARY)
        if size + direct > allowed:
            beside = f" beside {count_things(direct, 'client')} of the server itself" if direct else ""
            raise SpecError(
                f"{use.title}: {size} server connections of the pool {name}{beside} do not fit into max_connections ="
                f" {allowed + RESERVED_CONNECTIONS}",
                detail=f"{RESERVED_CONNECTIONS} connections are kept for administration and sampling",
                hint=f"use a smaller pool, or set max_connections = {size + direct + 2 * RESERVED_CONNECTIONS}",
            )
    return PlannedPooler(name=name, mode=asked.mode, size=size, most_clients=most_clients, program=machine.pooler)


def _choose_size(name: str, mode: PoolMode, most_clients: int, *, allowed: int, cpu_count: float) -> Choice:
    if mode is PoolMode.SESSION:
        reason = "one for each client: a session keeps its connection to its end"
        return Choice(name=f"size of {name}", value=str(most_clients), reason=reason)
    wanted = choose_pool_size(cpu_count)
    size = max(1, min(wanted, most_clients, allowed))
    rule = f"{CONNECTIONS_PER_CPU} for each of {cpu_count:g} CPUs and one for the disk"
    reason = f"{rule}, PostgreSQL's rule of thumb"
    if size < wanted:
        most = "there are clients" if size == most_clients else "max_connections allows"
        reason = f"as many as {most}; {wanted} would be {rule}"
    return Choice(name=f"size of {name}", value=str(size), reason=reason)


def choose_pool_size(cpu_count: float, *, for_disk: int = _CONNECTIONS_FOR_DISK) -> int:
    """Return how many transactions a server should have under way at once.

    Args:
        cpu_count: Its CPUs.
        for_disk: Transactions that its disk serves meanwhile.
    """
    return max(2, round(CONNECTIONS_PER_CPU * cpu_count)) + for_disk


def _check_modes(name: str, asked: PoolerSpec, uses: Sequence[_Use], machine: Machine) -> None:
    """Refuse prepared statements that a PgBouncer does not keep for its clients; of other poolers, trying them tells."""
    program = machine.pooler
    if asked.mode is PoolMode.SESSION or program is None or program.keeps_statements:
        return
    for use in uses:
        if use.load.mode is QueryMode.PREPARED:
            version = ".".join(map(str, program.version))
            raise SpecError(
                f"{use.title}: prepared statements do not work through {name}",
                detail=f"PgBouncer {version} in transaction mode gives each transaction any server connection, and another"
                " client's statement of the same name may be there already",
                hint=HINT_MODE,
            )


def _check_settings(name: str, uses: Sequence[_Use], study: Study) -> None:
    """Refuse settings that sessions through a pooler cannot ask for."""
    for use in uses:
        server = study.server if use.variant is None else use.variant.server
        if server.settings:
            setting = next(iter(server.settings))
            raise SpecError(
                f"{use.title}: a session through {name} cannot ask for {setting}",
                detail="settings of sessions are options of their connections, which poolers refuse or forget",
                hint="compare settings without the pooler, or endpoints without settings",
            )
