"""Plan the failover of each trial, and refuse what cannot be measured with one."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pgdyno.errors import SpecError
from pgdyno.plan.loading import is_loading
from pgdyno.plan.types import Choice, PlannedFailover, PlannedWorkload
from pgdyno.spec.pooler import PRIMARY, REPLICAS
from pgdyno.spec.study import Study
from pgdyno.spec.variant import DesignKind

DESIGN_REASON = "each trial ends its primary, so it has one variant"
# The load is restarted and has to show that it goes on.
_LEAST_AFTER_S = 1.0
_EXAMPLE = "pgdyno compare --failover crash --set synchronous_commit=local --set synchronous_commit=on --standbys 1"


def check_failover(study: Study) -> None:
    """Refuse what a study with a failover cannot have.

    Raises:
        SpecError: The study has such a thing.
    """
    if study.failover is None:
        return
    for fact, why, hint in _find_refusals(study):
        raise SpecError(fact, detail=why, hint=hint)


def with_failover(
    study: Study, workloads: tuple[PlannedWorkload, ...], choices: list[Choice]
) -> tuple[PlannedWorkload, ...]:
    """Return the loads with the failover that each of their trials has, if the study asks for one."""
    if study.failover is None:
        return workloads
    asked, duration_s = study.failover, study.trials.duration_s
    at_s = asked.at_s
    if at_s is None:
        at_s = duration_s / 2
        choices.append(Choice(name="failover", value=f"after {at_s:g} s of load", reason="half of a trial's duration"))
    planned = PlannedFailover(
        kind=asked.how, at_s=at_s, after_s=duration_s - at_s, promote_within_s=asked.promote_within_s
    )
    return tuple(msgspec.structs.replace(workload, failover=planned) for workload in workloads)


def _find_refusals(study: Study) -> Iterator[tuple[str, str, str]]:
    asked = study.failover
    if asked is None:
        return
    if not study.server.standbys:
        why = "no standby is there that could take the primary's place"
        yield "a failover needs a standby", why, f"for example {_EXAMPLE}"
    if is_loading(study):
        yield "loading is measured without a failover", "pgbench -i cannot go on elsewhere", "leave out failover"
    if study.search is not None or study.sweep or study.scaling is not None:
        why = "each trial of theirs needs one server from its beginning to its end"
        yield "sweeps and searches go without a failover", why, f"compare variants: {_EXAMPLE}"
    asked_endpoints = [*(one.endpoint for one in study.workload), *(one.endpoint for one in study.variant)]
    if REPLICAS in asked_endpoints:
        why = "the load of a failover writes, and finds the standby that takes over by itself"
        yield "a failover is not measured with the endpoint replicas", why, "leave out --endpoint, or the failover"
    if pooler := next((name for name in asked_endpoints if name not in {None, PRIMARY, REPLICAS}), None):
        why = (
            "the clients find the standby that takes over by libpq's list of hosts, and a pooler knows one server only"
        )
        yield f"a failover is not measured through the pooler {pooler}", why, "leave out --endpoint, or the failover"
    if study.server.port is not None:
        why = "the standby that takes over listens on its own socket only"
        yield "a port makes no sense with a failover", why, "leave out port"
    if study.experiment.design not in {None, DesignKind.PAIRED} or study.experiment.slice is not None:
        yield "failovers can only be compared in paired trials", DESIGN_REASON, "leave out --design and slices"
    duration_s = study.trials.duration_s
    at_s = duration_s / 2 if asked.at_s is None else asked.at_s
    if duration_s - at_s < _LEAST_AFTER_S or at_s < 1.0:
        why = f"the primary ends after {at_s:g} s of load, and a trial has {duration_s:g} s of it"
        yield "too little load around the failover", why, "a longer --duration leaves at least 1 s on either side"
