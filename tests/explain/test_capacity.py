from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

import msgspec
import pytest

from pgdyno.analyse.disk.demand import UseKind
from pgdyno.analyse.study import find_capacities
from pgdyno.analyse.sweep.scaling import ClientSweep
from pgdyno.analyse.transaction_time.shares import Bottleneck, Certainty, Resource
from pgdyno.explain.capacity import CEILING, CLIENTS, PASSED, find_capacity_findings
from pgdyno.explain.finding import Finding
from pgdyno.spec.host import HostSpec
from pgdyno.spec.study import DataSpec
from tests.analyse.loads import Nature, draw_limits, draw_load, make_analysis
from tests.analyse.test_capacity import WRITING, sweep_of

SWEEP = "`pgdyno sweep clients=1..32 --set shared_buffers=4GB --scale 100 --home /var/lib/pgdyno/clusters --workload tpcb-like`"


def find(
    nature: Nature,
    *,
    sweep: ClientSweep | None = None,
    trials: int = 4,
    study: Mapping[str, object] = MappingProxyType({}),
) -> dict[str, Finding]:
    limits = draw_limits(nature, sd=0.01) if nature.limits else None
    record, workload = draw_load(nature, sd=0.01, limits=limits, trials=trials)
    record = msgspec.structs.replace(record, study=msgspec.structs.replace(record.study, **study))
    analysis = make_analysis(workload, sweeps={} if sweep is None else {"tpcb-like": sweep})
    if sweep is not None:
        best = max(sweep.points, key=lambda point: point.to_best.value or 0.0).clients
        load = msgspec.structs.replace(workload.load, clients=best)
        analysis = msgspec.structs.replace(analysis, workloads=(msgspec.structs.replace(workload, load=load),))
    capacities = find_capacities(record, analysis, limits)
    found = list(find_capacity_findings(record, msgspec.structs.replace(analysis, capacities=capacities)))
    assert len({finding.rule for finding in found}) == len(found)
    return {finding.rule: finding for finding in found}


def test_a_load_at_its_bound_is_told_what_comes_next() -> None:
    shares = {Resource.CPU: 0.5, Resource.WAL_FLUSH: 0.3}
    finding = find(msgspec.structs.replace(WRITING, tps=1900.0, shares=shares))[CEILING]
    assert finding.claim == "The load is near its ceiling, the limit of the CPUs."
    assert re.match(r"CPUs: 2,\d00 TPS .*2 CPUs.*, 9\d % used", finding.evidence), finding.evidence
    assert "then WAL flushes" in finding.evidence
    assert "prepared" in finding.advice
    assert finding.gain.startswith("If the CPUs were no limit: +")
    assert finding.gain.endswith("(worked out, not measured)")
    assert finding.confirm == SWEEP
    assert finding.workload == "tpcb-like"


@pytest.mark.parametrize("name", ["tpcb-like", "tpcb-like, stock"])
def test_a_load_is_not_taken_for_one_whose_name_its_own_begins_with(name: str) -> None:
    record, workload = draw_load(msgspec.structs.replace(WRITING, tps=1900.0), sd=0.01)
    # The capacity below is of 8 clients, which only the load of the shorter name was asked for.
    loads = [
        msgspec.structs.replace(workload.load, name=load, clients=clients)
        for load, clients in (("tpcb", 8), ("tpcb-like", 4))
    ]
    record = msgspec.structs.replace(record, plan=msgspec.structs.replace(record.plan, workloads=tuple(loads)))
    analysis = make_analysis(msgspec.structs.replace(workload, name=name))
    capacities = find_capacities(record, analysis, None)
    finding, *_ = find_capacity_findings(record, msgspec.structs.replace(analysis, capacities=capacities))
    assert finding.evidence.endswith("; both with 8 clients, the best load of the sweep")
    assert finding.confirm == SWEEP


def test_what_to_do_is_said_once() -> None:
    nature = msgspec.structs.replace(WRITING, tps=1900.0)
    record, workload = draw_load(nature, sd=0.01)
    for certainty, says in ((Certainty.STRONG, False), (Certainty.UNKNOWN, True)):
        verdict = Bottleneck(resource=Resource.CPU, certainty=certainty, evidence=())
        analysis = make_analysis(msgspec.structs.replace(workload, bottleneck=verdict))
        capacities = find_capacities(record, analysis, None)
        finding, *_ = find_capacity_findings(record, msgspec.structs.replace(analysis, capacities=capacities))
        assert bool(finding.advice) is says


def test_a_bound_is_told_with_its_clients_where_these_move_it() -> None:
    limits = {**WRITING.limits, UseKind.FLUSHES: 300.0}
    finding = find(msgspec.structs.replace(WRITING, tps=1150.0, limits=limits))[CEILING]
    assert "the limit of WAL flushes with 8 clients" in finding.claim
    assert "More clients share each flush" in finding.advice


def test_others_on_the_cpus_are_sent_away_before_any_are_bought() -> None:
    finding = find(msgspec.structs.replace(WRITING, tps=1150.0, others_ratio=0.4))[CEILING]
    assert "of which others used up to 40 %" in finding.evidence
    assert finding.why.startswith("Without the other programs")
    assert finding.advice.startswith("Stop the other programs that use the CPUs")


def test_others_on_the_cpus_are_told_where_another_bound_is_lower() -> None:
    limits = {**WRITING.limits, UseKind.FLUSHES: 300.0}
    finding = find(msgspec.structs.replace(WRITING, tps=438.0, others_ratio=0.4, limits=limits))[CEILING]
    assert "WAL flushes" in finding.claim
    assert finding.why.startswith("Other programs used up to 40 % of the CPUs. Too few clients,")


def test_a_load_below_its_bounds_is_told_of_no_cause() -> None:
    finding = find(msgspec.structs.replace(WRITING, tps=800.0))[CEILING]
    assert (
        finding.claim
        == "The lowest bound is that of the CPUs; 40 % of it was used. Full, they allow 1,970 to 3,240 TPS."
    )
    assert "is idle" in finding.why
    assert finding.advice == ""
    assert "no promise" in finding.why


def test_a_load_that_is_held_is_told_so_and_needs_no_other_sweep() -> None:
    sweep = sweep_of({n: min(300.0 * n, 600.0) for n in (1, 2, 4, 8, 16, 32)}, sd=0.004)
    found = find(msgspec.structs.replace(WRITING, tps=600.0), sweep=sweep)
    assert found[CEILING].claim.startswith("The load stops at 60")
    assert "with no resource used up" in found[CEILING].claim
    assert found[CEILING].confirm == ""
    assert found[CLIENTS].claim.startswith("2 clients [2 – 2] at work reach 90 % of its highest TPS")
    assert found[CLIENTS].advice == "Let a pool open 3 to 4 connections, and make the other clients wait there."


def test_too_few_clients_are_told_how_many_it_takes() -> None:
    finding = find(msgspec.structs.replace(WRITING, clients=1, tps=500.0))[CLIENTS]
    assert finding.claim == "1 client cannot reach this machine's ceiling: at least 4 are needed."


def test_a_card_that_was_surpassed_is_to_be_made_again() -> None:
    finding = find(msgspec.structs.replace(WRITING, limits={**WRITING.limits, UseKind.READS: 100.0}))[PASSED]
    assert finding.claim == "The load used more than the known limit of random reads."
    assert "`pgdyno disk /var/lib/pgdyno/clusters`" in finding.advice


def test_the_disk_that_was_surpassed_is_the_one_to_measure() -> None:
    apart, emulated = {"data": DataSpec(wal_home="/mnt/wal")}, {"host": HostSpec(emulate=True)}
    for kind, study, words in (
        (UseKind.FLUSHES, {}, "`pgdyno disk /var/lib/pgdyno/clusters` measures it again."),
        (UseKind.FLUSHES, apart, "`pgdyno disk /mnt/wal` measures it again."),
        (UseKind.READS, apart, "`pgdyno disk /var/lib/pgdyno/clusters` measures it again."),
        (UseKind.READS, emulated, "Measure that disk again."),
    ):
        nature = msgspec.structs.replace(WRITING, limits={**WRITING.limits, kind: 100.0})
        assert find(nature, study=study)[PASSED].advice == words


def test_what_lacks_is_named_where_nothing_is_known() -> None:
    finding = find(Nature(cpu_s=None, generator_s=None))[CEILING]
    assert finding.certainty is Certainty.UNKNOWN
    assert "the CPUs were not sampled" in finding.evidence
    assert "the disk has no card" in finding.evidence


@pytest.mark.parametrize("trials", [1, 2])
def test_few_trials_gain_nothing_that_is_no_number(trials: int) -> None:
    finding = find(msgspec.structs.replace(WRITING, tps=1900.0), trials=trials)[CEILING]
    assert "?" not in finding.claim + finding.evidence
    if trials == 1:
        assert finding.gain == ""
