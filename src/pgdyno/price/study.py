"""Compute what a record's machine and its workloads' transactions cost, with caveats.

The price is that of the machine that the user names; the TPS are those of the measured machine. A mismatch between the
two is reported. Scheduled rates are not capacities, and are not priced; the largest rate that holds a latency limit is. Loads in
parts are not priced either: the parts share the machine, and their transactions are unlike. Variants that alternate within one
trial are priced by the TPS of their own slices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pgdyno.analyse.estimate import Estimate, absent_estimate, scale_estimate
from pgdyno.analyse.search.rate_search import RateSearch
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.facts.instances import Instance, find_instance, list_instances
from pgdyno.facts.prices import Term
from pgdyno.price.alternatives import Alternatives, find_alternatives
from pgdyno.price.book import PriceBook
from pgdyno.price.cost import HostCost, price_host
from pgdyno.price.loading import Loading, price_loadings
from pgdyno.price.topology import Surroundings, TopologyPrice, price_topology
from pgdyno.price.worth import Load, Worth, cost_of_load, make_exact, share_of_full
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.types import StudyRecord
from pgdyno.spec.host import HostSpec
from pgdyno.units import format_bytes, format_cpus

# Source: MemTotal of EC2 instances is 2 to 8 % below the data sheet's memory, more on small ones: the kernel's own
# part.
_MEMORY_RATIO = 0.85
GIVEN_LOAD = "the given TPS"
"""The name of a full load whose TPS the user gives."""
_AVERAGE_LOAD = "your load"
_ARCHITECTURES = {"aarch64": "arm64", "amd64": "x86_64"}


class WorkloadWorth(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of a workload's transactions."""

    name: str
    durability_given_up: tuple[str, ...]
    """Settings with which a crash may lose committed transactions."""
    tps: Estimate
    tps_per_cpu: Estimate
    worths: tuple[Worth, ...]
    share_of_full: Estimate | None
    """The user's load as a share of full load; None if the user gave none."""
    reason: str | None
    """Why nothing is priced."""

    @property
    def is_average(self) -> bool:
        """True if this is the user's average load alone, on a machine of which nobody gives the TPS at full load."""
        return self.name == _AVERAGE_LOAD and self.tps.value is None


class StudyPrice(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of a record's machine and transactions."""

    cost: HostCost
    """Cost of the machine, or of all machines of a topology."""
    mismatch: str | None
    """Difference between the measured and the priced machine, or why it is not known; None if they may be the same."""
    load: Load | None
    workloads: tuple[WorkloadWorth, ...]
    alternatives: Alternatives
    cpu_count: float | None
    """CPUs of the measured machine; None if nobody saw it."""
    memory_bytes: int | None
    data_bytes: int | None
    """Size of the workloads' data."""
    data_to_memory_ratio: float | None
    """Ratio of the data's size to the memory; None if one of the two is not known."""
    topology: TopologyPrice | None = None
    """The machines that the cost is made of; None for the server alone."""
    loadings: tuple[Loading, ...] = ()
    """The cost of loading, of a record that measured that; it has no workloads."""

    @property
    def is_of_average(self) -> bool:
        """True if nothing but the user's average load is priced, because TPS at full load are not known."""
        return any(one.is_average for one in self.workloads)


class PriceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The machine, the load and the prices for a calculation."""

    host: HostSpec | None = None
    """The machine that the user names; None for the machine in the study or the record."""
    book: PriceBook = PriceBook()
    load: Load | None = None
    around: Surroundings = Surroundings()


def price_study(
    record: StudyRecord,
    analysis: StudyAnalysis,
    options: PriceOptions,
    *,
    losses: Mapping[str, Sequence[str]],
) -> StudyPrice:
    """Compute what a record's machine and transactions cost.

    Args:
        record: Record of the study.
        analysis: Analysis of the record.
        options: What to price.
        losses: Settings that give up durability, by the name of the analysed workload, or of one with a variant that takes turns in it.
    """
    host = options.host or find_host(record, options.book)
    topology, cost = _price(host, options, record)
    if record.host is None and Term.OWN.value in cost.absent:
        cost = msgspec.structs.replace(
            cost, absent={**cost.absent, Term.OWN.value: "the server's machine was not observed"}
        )
    loadings = price_loadings(record, analysis, cost, losses)
    # A load that connects to servers themselves needs no pooler, if the record also has loads through one.
    direct = {one.name for one in analysis.workloads if record.plan.find_pooler_of(one.load) is None}
    direct = direct if len(direct) < len(analysis.workloads) else set()
    if topology is not None and topology.has_pooler and direct:
        remark = "Loads that connect to servers themselves are priced without the pooler's machine."
        topology = msgspec.structs.replace(topology, remarks=(*topology.remarks, remark))
    # Of a record on loading, the data set is the empty cluster that each load begins with.
    data_bytes = None if record.dataset is None else record.dataset.total_bytes
    data_bytes = round(loadings[0].loaded_bytes or 0) or None if loadings else data_bytes
    memory_bytes = record.usable_memory_bytes
    return StudyPrice(
        cost=cost,
        mismatch=_find_mismatch(host, record.host),
        load=options.load,
        workloads=tuple(
            _weigh_workload(
                name,
                tps,
                cost=topology.without_pooler() if topology is not None and of in direct else cost,
                options=options,
                cpu_count=record.usable_cpu_count,
                given_up=tuple(losses.get(name, losses.get(of, ()))),
            )
            for name, of, tps in _list_tps(record, analysis)
        ),
        alternatives=find_alternatives(host, cost, options.book, price=lambda one: _price(one, options, record)[1]),
        cpu_count=record.usable_cpu_count,
        memory_bytes=memory_bytes,
        data_bytes=data_bytes,
        data_to_memory_ratio=None if data_bytes is None or memory_bytes is None else data_bytes / memory_bytes,
        topology=topology,
        loadings=loadings,
    )


def _price(
    host: HostSpec, options: PriceOptions, record: StudyRecord | None = None
) -> tuple[TopologyPrice | None, HostCost]:
    """Price a server with all that stands around it; the first is None for a server alone."""
    topology = price_topology(host, options.around, options.book, record=record)
    return topology, price_host(host, options.book) if topology is None else topology.cost


def price_machine(host: HostSpec, tps: float | None, options: PriceOptions) -> StudyPrice:
    """Compute what a machine costs that no record was made on, and its transactions at the TPS that the user gives.

    Args:
        host: The machine.
        tps: Its TPS at full load, taken as exact; None: not given.
        options: The prices and the load.
    """
    topology, cost = _price(host, options)
    sheet = None if host.instance is None else find_instance(host.instance)
    cpu_count = host.cpus or (None if sheet is None else sheet.cpu_count)
    memory_bytes = host.memory_bytes or (None if sheet is None else sheet.memory_bytes)
    return StudyPrice(
        cost=cost,
        mismatch=None,
        load=options.load,
        workloads=tuple(_weigh_given(tps, cost, options, cpu_count)),
        alternatives=find_alternatives(host, cost, options.book, price=lambda one: _price(one, options)[1]),
        topology=topology,
        cpu_count=cpu_count,
        memory_bytes=None if memory_bytes is None else round(memory_bytes),
        data_bytes=None,
        data_to_memory_ratio=None,
    )


def _weigh_given(
    tps: float | None, cost: HostCost, options: PriceOptions, cpu_count: float | None
) -> Iterator[WorkloadWorth]:
    """Weigh the TPS at full load that the user gives, or else the average load alone."""
    if tps is not None:
        full = make_exact(tps)
        yield _weigh_workload(GIVEN_LOAD, full, cost=cost, options=options, cpu_count=cpu_count, given_up=())
    elif options.load is not None and options.load.tps is not None:
        full, average = absent_estimate("TPS at full load are not given", unit="tps"), make_exact(options.load.tps)
        alone = _weigh_workload(_AVERAGE_LOAD, full, cost=cost, options=options, cpu_count=cpu_count, given_up=())
        worths = zip(cost_of_load(full, cost, None), cost_of_load(average, cost, None), strict=True)
        at_load = (msgspec.structs.replace(one, per_million_at_load=at.per_million) for one, at in worths)
        yield msgspec.structs.replace(alone, worths=tuple(at_load))


def find_host(record: StudyRecord, book: PriceBook) -> HostSpec:
    """Return the machine as the study declares it, with the instance type that the machine reported if it is known.

    What declares CPUs or memory, as each emulation does, or has a name that the user's prices have, is a machine by itself.
    """
    declared = record.study.host or HostSpec()
    if declared.cpus is not None or declared.memory is not None or book.has_own_machine(declared.name):
        return declared
    cpu = None if record.preflight is None else record.preflight.cpu
    product = None if cpu is None else cpu.product
    is_known = declared.instance is None and any(one.name == product for one in list_instances())
    return msgspec.structs.replace(declared, instance=product) if is_known else declared


def _weigh_workload(
    name: str,
    tps: Estimate,
    *,
    cost: HostCost,
    options: PriceOptions,
    cpu_count: float | None,
    given_up: tuple[str, ...],
) -> WorkloadWorth:
    is_known, load = tps.value is not None, options.load
    return WorkloadWorth(
        name=name,
        durability_given_up=given_up,
        tps=tps,
        tps_per_cpu=absent_estimate("the server's CPUs are not known", unit="tps")
        if cpu_count is None
        else scale_estimate(tps, 1 / cpu_count, unit="tps"),
        worths=cost_of_load(tps, cost, load) if is_known else (),
        share_of_full=share_of_full(tps, load) if is_known and load is not None else None,
        reason=None if is_known else tps.reason,
    )


def _list_tps(record: StudyRecord, analysis: StudyAnalysis) -> Iterator[tuple[str, str, Estimate]]:
    """Yield the TPS at full load of each load, with its name and the name of its analysed workload."""
    search = record.plan.search
    if search is None:
        for workload in analysis.workloads:
            if not workload.load.is_loading:
                yield from ((name, workload.name, tps) for name, tps in _list_own_tps(workload, analysis))
        return
    # Of the rates that a search tried, only the largest that holds its limit is a result.
    loops = [one for one in analysis.workloads if one.load.rate_tps is None]
    yield from ((one.name, one.name, one.tps) for one in loops)
    for one in analysis.searches:
        of = next((loop.name for loop in loops if loop.load.name == one.workload), "")
        yield f"{one.workload}, {search.limit}", of, _rate_within(one)


def _rate_within(search: RateSearch) -> Estimate:
    answer = search.answer
    # Before a rate certainly holds, the estimate is where the search would look next, and all rates may have failed.
    if answer is None or answer.estimate_tps is None or answer.holds_tps is None:
        return absent_estimate("it is not known which rate holds the limit", unit="tps")
    is_held = answer.fails_tps is not None
    return Estimate(
        value=answer.estimate_tps,
        low=answer.holds_tps if is_held else None,
        high=answer.fails_tps if is_held else None,
        n=answer.n,
        unit="tps",
        confidence=1 - answer.alpha,
        reason=None if is_held else "it is not settled which rates hold the limit and which fail it",
    )


def _list_own_tps(workload: WorkloadAnalysis, analysis: StudyAnalysis) -> Iterator[tuple[str, Estimate]]:
    """Yield the TPS of a workload at full load, those of each variant where several take turns in its trials, each with its name."""
    if workload.load.is_scheduled:
        rates = [part.rate_tps for part in workload.load.list_parts() if part.rate_tps is not None]
        reason = f"{sum(rates):,g} tps were scheduled, which is not what it can do"
        yield workload.name, msgspec.structs.replace(workload.tps, value=None, low=None, high=None, reason=reason)
        return
    if workload.load.parts:
        names = " and ".join(part.name for part in workload.load.parts)
        reason = (
            f"the transactions of its parts ({names}) are unlike, and the price of their sum is that of none of them"
        )
        yield workload.name, msgspec.structs.replace(workload.tps, value=None, low=None, high=None, reason=reason)
        return
    compared = next((one for one in analysis.comparisons if one.workload == workload.load.name), None)
    if compared is None or not any(trial.record.planned.is_block for trial in workload.trials):
        yield workload.name, workload.tps
        return
    for one in compared.figures:
        absent = absent_estimate("it has no round that ended", unit="tps")
        yield name_turn(workload, one.variant), one.estimates.get("tps", absent)


def name_turn(workload: WorkloadAnalysis, variant: str) -> str:
    """Return the name of a workload under one of the variants that take turns in its trials."""
    return f"{workload.name}, {variant}"


def _find_mismatch(host: HostSpec, seen: HostFacts | None) -> str | None:
    if host.instance is None:
        return None
    if seen is None:
        return f"it was not observed whether the measured machine is {host.instance}"
    sheet = find_instance(host.instance)
    architecture = _ARCHITECTURES.get(seen.architecture, seen.architecture)
    is_alike = (
        seen.usable_cpu_count == seen.cpu_count == sheet.cpu_count
        and _MEMORY_RATIO * sheet.memory_bytes <= seen.usable_memory_bytes
        and seen.memory_bytes <= sheet.memory_bytes
        and architecture == sheet.architecture
    )
    if is_alike:
        return None
    measured = f"{format_cpus(seen.cpu_count)} ({architecture}) with {format_bytes(seen.memory_bytes)}"
    if (seen.usable_cpu_count, seen.usable_memory_bytes) != (seen.cpu_count, seen.memory_bytes):
        usable = f"{format_cpus(seen.usable_cpu_count)} and {format_bytes(seen.usable_memory_bytes)}"
        measured += f", of which {usable} could be used"
    return f"measured was a machine of {measured}, and {_describe(sheet)}"


def _describe(sheet: Instance) -> str:
    cpus = format_cpus(sheet.cpu_count)
    return f"{sheet.name} has {cpus} ({sheet.architecture}) with {format_bytes(sheet.memory_bytes)}"
