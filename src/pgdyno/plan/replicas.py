"""Refuse loads that cannot run on standbys: those that write, and those of studies that have no standbys to read from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgdyno.errors import SpecError
from pgdyno.plan.experiment import Variant
from pgdyno.plan.types import PlannedPart, PlannedWorkload, apply_variant
from pgdyno.spec.pooler import REPLICAS
from pgdyno.spec.study import BUILTIN_SCRIPTS, READING_SCRIPTS, ServerKind, Study

_EXAMPLE = "pgdyno compare --endpoint primary --endpoint replicas --standbys 1 --workload select-only"


def check_replicas(study: Study, variants: Sequence[Variant], workloads: Sequence[PlannedWorkload]) -> None:
    """Refuse loads that connect to standbys and cannot run there.

    Script files are not judged here: they are tried on a standby before anything is loaded.

    Raises:
        SpecError: A load cannot run on standbys.
    """
    if study.server.kind is ServerKind.GIVEN:
        refuse_given_replicas(study)
    loads = [apply_variant(load, variant) for load in workloads for variant in variants] or workloads
    reading = [(load, part) for load in loads for part in load.list_parts() if part.endpoint == REPLICAS]
    for fact, why, hint in _find_refusals(study, reading) if reading else ():
        raise SpecError(fact, detail=why, hint=hint)


def refuse_given_replicas(study: Study) -> None:
    """Refuse standbys as an endpoint in front of a given server, before it is connected to.

    Raises:
        SpecError: A load would read from standbys.
    """
    levels = (level for axis in study.sweep if axis.name == "endpoint" for level in axis.levels)
    workloads, variants = ({one.endpoint for one in study.workload}, {one.endpoint for one in study.variant})
    if REPLICAS in {*levels, *workloads, *variants}:
        raise SpecError(
            "the endpoint replicas is for standbys that pgdyno starts",
            detail="pgdyno loads data of its own for each trial, and does not wait until replicas of yours have them",
            hint=f"replicas of a server of yours cannot be measured yet; with a server of pgdyno's own: `{_EXAMPLE}`",
        )


def _find_refusals(
    study: Study, reading: Sequence[tuple[PlannedWorkload, PlannedPart]]
) -> Iterator[tuple[str, str, str]]:
    if not study.server.standbys:
        yield (
            "the endpoint replicas needs standbys",
            "this study has none",
            f"set standbys = 1 in [server], or --standbys 1; for example `{_EXAMPLE}`",
        )
    for load, part in reading:
        if load.is_loading:
            yield "loading cannot run on a standby", "a standby only reads", "leave out --endpoint"
        what = f"part {part.name} of {load.name}" if load.parts else f"workload {load.name}"
        for name, _ in part.scripts:
            if name in BUILTIN_SCRIPTS and name not in READING_SCRIPTS:
                why = f"{name} writes, and a standby only reads"
                hint = (
                    f"choose a load that only reads, such as --workload {min(READING_SCRIPTS)}, or the endpoint primary"
                )
                yield f"{what} cannot run on a standby", why, hint
