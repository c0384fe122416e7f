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

    Script files are not judged here: they are tried on a standby, of a given server as soon as it has data for them.

    Raises:
        SpecError: A load cannot run on standbys.
    """
    check_given_replicas(study)
    loads = [apply_variant(load, variant) for load in workloads for variant in variants] or workloads
    reading = [(load, part) for load in loads for part in load.list_parts() if part.endpoint == REPLICAS]
    for fact, why, hint in _find_refusals(study, reading) if reading else ():
        raise SpecError(fact, detail=why, hint=hint)


def check_given_replicas(study: Study) -> None:
    """Refuse to read from replicas of a given server that are not named, before it is connected to.

    Raises:
        SpecError: A load cannot reach what it would read from.
    """
    server = study.server
    if server.kind is not ServerKind.GIVEN or REPLICAS not in study.endpoints:
        return
    if not server.replicas:
        raise SpecError(
            "the endpoint replicas of a given server needs their connection strings",
            detail="pgdyno starts standbys of its own servers only",
            hint="for example --endpoint replicas='host=db2,db3 user=bench'; in a study file: replicas of [server]",
        )


def _find_refusals(
    study: Study, reading: Sequence[tuple[PlannedWorkload, PlannedPart]]
) -> Iterator[tuple[str, str, str]]:
    if not study.server.readers:
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
