"""Divide a trial's load among the servers that its clients connect to, and read what these count together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pgdyno.plan.plan import PlannedTrial, PlannedWorkload
from pgdyno.plan.types import PlannedPart
from pgdyno.run.load.group import PgbenchGroup
from pgdyno.run.load.joined import share_clients
from pgdyno.run.load.part_run import PartRun
from pgdyno.run.load.parts import PgbenchParts
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.trial_stage import TrialStage
from pgdyno.run.under_test import LoadServer, ServerUnderTest
from pgdyno.spec.pooler import PRIMARY, REPLICAS


def divide_load(stage: TrialStage, trial: PlannedTrial) -> TrialStage:
    """Return the stage with what makes a trial's load: one pgbench for each part, and for each standby that its clients read from.

    The servers run. A load of one kind of clients at one address stays with the one pgbench of the stage, or with one on each
    load host.
    """
    load, generator = stage.plan.find_load(trial), stage.generator
    if not (load.parts or REPLICAS in load.endpoints) or not isinstance(generator, Pgbench | PgbenchGroup):
        return stage
    runs = tuple(_list_runs(stage, load))
    if len(runs) < 2:
        return stage
    made = PgbenchParts(generator, runs) if isinstance(generator, Pgbench) else generator.in_parts(runs)
    return msgspec.structs.replace(stage, generator=made)


def _list_runs(stage: TrialStage, load: PlannedWorkload) -> Iterator[PartRun]:
    first = 0
    for part in load.list_parts():
        scripts = tuple((str(stage.scripts.get(name, name)), weight) for name, weight in part.scripts)
        for name, address, clients in _share_clients(stage.server, part):
            yield PartRun(
                name=name if not load.parts else part.name if part.clients == clients else f"{part.name}-{name}",
                endpoint=name,
                address=address,
                scripts=scripts,
                mode=load.mode,
                clients=clients,
                threads=max(1, part.threads * clients // part.clients),
                rate_tps=None if part.rate_tps is None else part.rate_tps * clients / part.clients,
                part=part.name if load.parts else "",
                first_script=first,
            )
        first += len(scripts)


def _share_clients(server: ServerUnderTest, part: PlannedPart) -> Iterator[tuple[str, Address, int]]:
    """Yield the name and address of each server that a part's clients connect to, and how many of them: as evenly as they can be.

    Fewer standbys are read than there are if there are fewer clients.
    """
    if part.endpoint != REPLICAS:
        yield part.endpoint, server.direct_address if part.endpoint == PRIMARY else server.load_address, part.clients
        return
    shares = share_clients(part.clients, len(server.readers))
    for reader, clients in zip(server.readers, shares, strict=False):
        yield reader.name, reader.load_address, clients


def warm_readers(server: ServerUnderTest, loaded: Sequence[LoadServer]) -> None:
    """Read tables and indexes into shared_buffers of the standbys that a load reads from."""
    for one in loaded:
        if one.address != server.address:
            with sql.connect(one.address) as connection:
                sql.warm_dataset(connection)


def read_counters(
    server: ServerUnderTest, connection: sql.Connection, loaded: Sequence[LoadServer]
) -> dict[str, float | None]:
    """Read the counters of all servers that a load connects to, added up; None for what none of them counts.

    Args:
        server: The server.
        connection: To another database of it than the loaded one.
        loaded: Those that the load connects to.
    """
    found = []
    for one in loaded:
        if one.address == server.address:
            found.append(sql.read_counters(connection, watched_database=server.address.dbname))
            continue
        with sql.connect(one.address.aside()) as other:
            found.append(sql.read_counters(other, watched_database=one.address.dbname))
    return {name: sql.add_counts(values.get(name) for values in found) for name in found[0]}
