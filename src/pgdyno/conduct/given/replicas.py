"""Look at the replicas of a server of the user's that a study reads from, and refuse what is none, before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from pgdyno.conduct.given.refusal import tell_or_refuse
from pgdyno.conduct.load.hosts import ReadyLoad, predict_ways_s, reach_from_each
from pgdyno.conduct.ui import Ui
from pgdyno.explain.preflight.replicas import find_replica_obstacles
from pgdyno.plan.variants import most_on_each_replica, name_asked_settings
from pgdyno.record.machine.given_server import GivenServer
from pgdyno.run.given.replicas import Replicas, open_replicas
from pgdyno.run.postgres.address import Address
from pgdyno.spec.study import Study

# Two seconds of them watch what others do there.
_EACH_S = 3.0


@contextmanager
def reach_replicas(
    study: Study, primary: GivenServer, address: Address, *, is_busy_allowed: bool, ui: Ui
) -> Iterator[Replicas]:
    """Connect to each replica, look at it, and wait until it has replayed what the primary has written by now.

    Args:
        study: What is meant.
        primary: What was seen of the given server.
        address: Where that is reached.
        is_busy_allowed: Whether to load servers that others use.
        ui: Shows the progress.

    Raises:
        SpecError: One has no valid connection string, or is named twice.
        HostError: One is no standby of the server, or must not be loaded.
        StepFailedError: There is no connection to one, or it does not replay.
    """
    if not study.server.replicas:
        yield Replicas()
        return
    ui.begin_step("check the replicas", predicted_s=_EACH_S * len(study.server.replicas))
    clients, asked = most_on_each_replica(study), name_asked_settings(study)
    with open_replicas(study.server.replicas, address) as replicas:
        replicas.check_distinct()
        for one in replicas:
            found = find_replica_obstacles(one.seen, primary, name=one.name, clients=clients, asked=asked)
            tell_or_refuse(found, is_busy_allowed=is_busy_allowed, ui=ui)
        replicas.await_replay(address, address.dbname, on_activity=ui.show_activity)
        ui.end_step("; ".join(f"{one.name}: PostgreSQL {one.seen.version} at {one.seen.address}" for one in replicas))
        yield replicas


def check_ways(load: ReadyLoad, replicas: Replicas, ui: Ui) -> ReadyLoad:
    """Make sure that each load host reaches each replica, and return the load with the time that an empty statement takes.

    Raises:
        HostError: A load host does not reach one, or reaches another server.
        StepFailedError: A load host or a replica does not answer.
    """
    if not any(replicas):
        return load
    count = len([*replicas])
    ui.begin_step("load hosts to replicas", predicted_s=predict_ways_s(len(load.hosts), count))
    reached = [reach_from_each(load, one.title, one.way, seen_at=one.way, ui=ui) for one in replicas]
    ui.end_step(f"all get to {', '.join(one.name for one in replicas)}")
    hosts = (
        msgspec.structs.replace(host, replica_round_trips_s=tuple(each[host.name].round_trip_s for each in reached))
        for host in load.hosts
    )
    return msgspec.structs.replace(load, hosts=tuple(hosts))
