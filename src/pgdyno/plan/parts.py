"""Plan the parts of loads that run side by side as one, and refuse what cannot be measured with parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgdyno.errors import SpecError
from pgdyno.plan.experiment import Experiment, Variant, count_least_rounds
from pgdyno.plan.types import Machine, PlannedPart, PlannedWorkload
from pgdyno.spec.pooler import PRIMARY, REPLICAS
from pgdyno.spec.study import Study, WorkloadSpec
from pgdyno.spec.variant import DesignKind

# What a variant would change in all parts at once, whose values differ.
_OF_PARTS = ("clients", "threads", "endpoint", "scripts")


def plan_parts(workload: WorkloadSpec, machine: Machine) -> PlannedWorkload:
    """Plan a workload that has parts."""
    total = sum(part.clients for part in workload.parts)
    # Those of each load host, where the load comes from some.
    threads = min(total, machine.load_cpu_count or machine.cpu_count)
    parts = tuple(
        PlannedPart(
            name=part.name,
            scripts=part.weighted_scripts,
            clients=part.clients,
            threads=part.threads or max(1, min(part.clients, round(threads * part.clients / total))),
            endpoint=part.endpoint,
            rate_tps=part.rate_tps,
        )
        for part in workload.parts
    )
    rates = [part.rate_tps for part in parts if part.rate_tps is not None]
    return PlannedWorkload(
        name=workload.name,
        scripts=workload.weighted_scripts,
        mode=workload.mode,
        clients=total,
        threads=sum(part.threads for part in parts),
        # Of an open loop altogether; beside parts that run as fast as they can, a rate is no limit of the whole.
        rate_tps=sum(rates) if len(rates) == len(parts) else None,
        latency_limit_ms=workload.latency_limit_ms,
        max_tries=workload.max_tries,
        parts=parts,
    )


def count_compared(workloads: Sequence[PlannedWorkload]) -> int:
    """Count the loads that share an error rate: those of a study, or their parts, which have one of their own, if they are more."""
    return max(len(workloads), sum(len(workload.parts) for workload in workloads))


def find_least_rounds(experiment: Experiment, workloads: Sequence[PlannedWorkload]) -> int:
    """Return the fewest rounds that can give a verdict on every load, or on every part of them."""
    return count_least_rounds(experiment, count_compared(workloads))


def check_parts(study: Study, variants: Sequence[Variant]) -> None:
    """Refuse what cannot be measured with loads in parts.

    Raises:
        SpecError: The study asks for such a thing.
    """
    named = next((workload.name for workload in study.workload if workload.parts), None)
    for fact, why, hint in () if named is None else _find_refusals(study, variants):
        raise SpecError(f"workload {named} has parts: {fact}", detail=why, hint=hint)


def _find_refusals(study: Study, variants: Sequence[Variant]) -> Iterator[tuple[str, str, str]]:
    if study.search is not None or study.scaling is not None:
        why = "a rate or a number of clients would have to be divided among the parts"
        yield "it cannot be searched or swept over clients", why, "compare variants, or measure it by itself"
    if study.failover is not None:
        yield "it goes without a failover", "each part would need a successor", "leave out failover"
    if study.experiment.design is DesignKind.LIVE:
        why = "slices of live pairs freeze one pgbench at a time"
        yield "its variants cannot be compared live", why, "leave out design, or choose paired"
    for workload in study.workload:
        poolers = {part.endpoint for part in workload.parts} - {PRIMARY, REPLICAS}
        if len(poolers) > 1:
            why = "a trial runs one pooler"
            yield f"{' and '.join(sorted(poolers))} are two poolers", why, "let its parts connect to one of them"
    for variant in variants:
        if variant.load_hosts is not None:
            why = "a verdict on the number of load hosts is one on the whole load, and parts have their own"
            yield "variants cannot change load_hosts", why, "compare it on a load whose clients all do the same"
        for key in _OF_PARTS:
            if getattr(variant, key):
                why = f"{variant.name} would set it for all parts, which have their own"
                yield f"variants cannot change {key}", why, "compare settings, or make two workloads of it"
