"""Add up the machines of a topology: the server, its standbys, and a pooler's own machine.

The machines that a load comes from are not counted: they only serve the measurement; in production the users' own
programs are in their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pgdyno.errors import SpecError
from pgdyno.facts.instances import find_instance
from pgdyno.facts.prices import Term
from pgdyno.price.book import PriceBook
from pgdyno.price.cost import HostCost, Part, add_up, price_host
from pgdyno.record.types import StudyRecord
from pgdyno.spec.host import HostSpec
from pgdyno.units import count_things

_SERVER, _POOLER = "server", "pooler"


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What stands around a server, as the user says; None and absent: as a host file or the record has it."""

    standbys: int | None = None
    standby_host: HostSpec | None = None
    """The machine of each standby; None: one like the server's."""
    pooler_host: HostSpec | None = None
    """The machine that a pooler has for itself; None: it runs beside the server."""


class MachineGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Equal machines of a topology."""

    role: str
    """Such as `2 standbys`."""
    count: int
    cost: HostCost
    """Cost of all of them."""


class TopologyPrice(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a topology, and what of it was measured."""

    groups: tuple[MachineGroup, ...]
    cost: HostCost
    """Cost of all machines."""
    remarks: tuple[str, ...]
    """What the TPS beside this price were measured on, and what is not counted, in sentences."""

    @property
    def machine_count(self) -> int:
        """Number of machines."""
        return sum(group.count for group in self.groups)

    @property
    def has_pooler(self) -> bool:
        """True if a pooler has a machine of its own."""
        return any(group.role == _POOLER for group in self.groups)

    def without_pooler(self) -> HostCost:
        """Return the cost without a pooler's own machine, on the terms on which the whole has one: tables compare both."""
        found = _add_groups([group for group in self.groups if group.role != _POOLER])
        costs = tuple(one for one in found.costs if self.cost.find(one.term) is not None)
        return msgspec.structs.replace(found, costs=costs, absent=self.cost.absent)


def price_topology(
    host: HostSpec, around: Surroundings, book: PriceBook, *, record: StudyRecord | None = None
) -> TopologyPrice | None:
    """Compute what a topology costs; return None for a server alone.

    Args:
        host: The server's machine, which may declare its topology.
        around: What the user says of it.
        book: Prices to use.
        record: The record that is priced, which may have measured standbys and a pooler; None without one.

    Raises:
        SpecError: A machine of standbys is named, and there are none.
    """
    standbys, measured = _count_standbys(host, around, record), _count_measured(record)
    standby, pooler = _find_standby(host, around), _find_pooler(host, around)
    pools = () if record is None else record.plan.poolers
    if not standbys and pooler is None and not measured and not pools and around.standby_host is None:
        return None
    if around.standby_host is not None and not standbys:
        raise SpecError("--standby-host names a machine, and there are no standbys", hint="add --standbys N")
    groups = [MachineGroup(role=_SERVER, count=1, cost=price_host(host, book))]
    if standbys:
        role = count_things(standbys, "standby")
        groups.append(MachineGroup(role=role, count=standbys, cost=_times(price_host(standby, book), standbys)))
    if pooler is not None:
        groups.append(MachineGroup(role=_POOLER, count=1, cost=price_host(pooler, book)))
    return TopologyPrice(
        groups=tuple(groups),
        cost=_add_groups(groups),
        remarks=(
            *_remark(record, standbys=standbys, measured=measured, has_machine=pooler is not None),
            *(_compare_sizes(host, standby) if standbys else ()),
            "The machines that a load comes from are not counted.",
        ),
    )


def _count_standbys(host: HostSpec, around: Surroundings, record: StudyRecord | None) -> int:
    """Return the number of standbys to be priced: as the user, else the host file, else the record says."""
    declared = None if host.topology is None else host.topology.standbys
    said = around.standbys if around.standbys is not None else declared
    return _count_measured(record) if said is None else said


def _count_measured(record: StudyRecord | None) -> int:
    return 0 if record is None else len(record.study.server.readers)


def _find_standby(host: HostSpec, around: Surroundings) -> HostSpec:
    if around.standby_host is not None:
        return _with_volumes(around.standby_host, host)
    declared = None if host.topology is None else host.topology.standby_instance
    return host if declared is None else _with_volumes(HostSpec(instance=declared), host)


def _with_volumes(standby: HostSpec, host: HostSpec) -> HostSpec:
    """Return a standby's machine, with volumes like the server's unless it declares its own: it holds the same data."""
    beside = _in_region(standby, host)
    if standby.disk is not None:
        return beside
    return msgspec.structs.replace(
        beside, disk=host.disk, wal_disk=host.wal_disk, root_disk=standby.root_disk or host.root_disk
    )


def _in_region(machine: HostSpec, host: HostSpec) -> HostSpec:
    """Return a machine of the server's region, unless it declares its own."""
    return msgspec.structs.replace(machine, region=machine.region or host.region)


def _find_pooler(host: HostSpec, around: Surroundings) -> HostSpec | None:
    if around.pooler_host is not None:
        return _in_region(around.pooler_host, host)
    declared = None if host.topology is None else host.topology.pooler_instance
    return None if declared is None else _in_region(HostSpec(instance=declared), host)


def _times(cost: HostCost, count: int) -> HostCost:
    """Return the cost of equal machines."""
    if count == 1:
        return cost
    costs = [add_up(one.term, *(_multiply(part, count) for part in one.parts)) for one in cost.costs]
    return msgspec.structs.replace(cost, costs=tuple(costs))


def _multiply(part: Part, count: int) -> Part:
    return msgspec.structs.replace(part, per_month=part.per_month * count, how=f"{count} times {part.how}")


def _add_groups(groups: Sequence[MachineGroup]) -> HostCost:
    """Add up machines on the terms on which all of them have a price."""
    server, *others = (group.cost for group in groups)
    costs, absent = [], {}
    terms = dict.fromkeys(
        name for group in groups for name in (*(one.term.value for one in group.cost.costs), *group.cost.absent)
    )
    for term in map(Term, terms):
        parts, lacking = [], ""
        for group in groups:
            found = group.cost.find(term)
            if found is None:
                lacking = lacking or _say_lack(group, term)
                continue
            parts += [msgspec.structs.replace(part, what=f"{group.role}: {part.what}") for part in found.parts]
        if lacking:
            absent[term.value] = lacking
        else:
            costs.append(add_up(term, *parts))
    return msgspec.structs.replace(
        server,
        name=_name(groups),
        costs=tuple(costs),
        absent=absent,
        left_out=tuple(_name_left_out(groups)),
        look_up="; ".join(dict.fromkeys(cost.look_up for cost in (server, *others) if cost.look_up)),
    )


def _name_left_out(groups: Sequence[MachineGroup]) -> Iterator[str]:
    """Name what is not counted, and of which machines; a pooler keeps no data."""
    by_part: dict[str, list[str]] = {}
    for group in groups:
        for part in group.cost.left_out:
            if not (group.role == _POOLER and part.startswith("the data")):
                by_part.setdefault(part, []).append(f"the {group.role.removeprefix('1 ')}")
    for part, roles in by_part.items():
        what, _, why = part.partition(" (")
        where = "each machine" if len(roles) == len(groups) else " and ".join(roles)
        yield f"{what} of {where} ({why}"


def _say_lack(group: MachineGroup, term: Term) -> str:
    return group.cost.absent.get(term.value, f"{group.cost.name}, the {group.role}, has no price {term.value}")


def _name(groups: Sequence[MachineGroup]) -> str:
    """Name all machines: `c7g.2xlarge with 2 standbys (r8g.large) and a pooler (c7g.medium)`."""
    server, *others = groups
    if not others:
        return server.cost.name
    named = [
        f"{'a ' if group.count == 1 and group.role == _POOLER else ''}{group.role}"
        + ("" if group.cost.name == server.cost.name else f" ({group.cost.name})")
        for group in others
    ]
    return f"{server.cost.name} with {' and '.join(named)}"


def _remark(record: StudyRecord | None, *, standbys: int, measured: int, has_machine: bool) -> Iterator[str]:
    """Say what the TPS were measured on, as far as it differs from what is priced, and what is not counted."""
    if record is not None and measured:
        yield (
            f"This record stands for {count_things(1 + measured, 'machine')}, the server and {count_things(measured, 'standby')}, which ran"
            " on one: they shared its CPUs and its disk, and no network lay between. On machines of their own, TPS differ."
        )
    if record is not None and standbys != measured:
        with_what = count_things(measured, "standby") if measured else "no standby"
        yield f"It was measured with {with_what}, and priced with {standbys or 'none'}: what the others cost in speed is not in its TPS."
    pools = () if record is None else record.plan.poolers
    if pools and not has_machine:
        yield "The pooler ran on the machine of the server, and adds none; with --pooler-host it is priced on one of its own."
    elif has_machine and record is not None:
        where = "beside the server" if pools else "without a pooler"
        yield f"The pooler has a machine of its own in this price; TPS were measured {where}."


def _compare_sizes(host: HostSpec, standby: HostSpec) -> Iterator[str]:
    counts = [one.cpus or (one.instance and find_instance(one.instance).cpu_count) for one in (host, standby)]
    if None not in counts and (counts[1] or 0) < (counts[0] or 0):
        yield (
            f"A standby of {counts[1]} CPUs beside a server of {counts[0]}: after a failover the service has only these, and it may fall behind"
            " in replay."
        )
