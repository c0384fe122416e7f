from __future__ import annotations

import msgspec

from pgdyno.analyse.estimate import absent_estimate, estimate_over_trials
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.transaction_time.network import NetworkEstimate
from pgdyno.analyse.transaction_time.shares import Bottleneck, Certainty, Resource
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.explain.finding import Finding, Severity
from pgdyno.explain.network import ADVICE, find_network_shares
from tests.analyse.joined import make_workload
from tests.report.build import build_report

NETWORK = NetworkEstimate(
    is_far=True,
    ratio=estimate_over_trials([0.60, 0.62, 0.64], unit="ratio"),
    median_ratio=estimate_over_trials([0.7, 0.7, 0.7], unit="ratio"),
    ping_ms=estimate_over_trials([0.51, 0.51, 0.51], unit="ms"),
    exchanges_count=7.0,
)
NOBODYS = Bottleneck(resource=Resource.UNKNOWN, certainty=Certainty.UNKNOWN, evidence=())


def tell(network: NetworkEstimate | None, bottleneck: Bottleneck = NOBODYS) -> list[Finding]:
    one = absent_estimate("", unit="tps")
    load = make_workload("tpcb-like")
    workload = WorkloadAnalysis(
        name="w", load=load, tps=one, latency_ms={}, trials=(), bottleneck=bottleneck, network=network
    )
    return list(find_network_shares(build_report().record, StudyAnalysis(workloads=(workload,))))


def test_a_large_share_is_told_with_what_to_do() -> None:
    (found,) = tell(NETWORK)
    assert found.claim == "The network takes at least 62 % [57, 67] of a transaction: 7 exchanges of 0.51 ms."
    assert "with their median it would be 70 %" in found.evidence
    assert (found.severity, found.advice) == (Severity.WARNING, ADVICE)


def test_advice_is_not_given_twice() -> None:
    (found,) = tell(NETWORK, msgspec.structs.replace(NOBODYS, resource=Resource.NETWORK))
    assert (found.severity, found.advice) == (Severity.WARNING, "")


def test_a_small_share_is_a_note() -> None:
    (found,) = tell(
        msgspec.structs.replace(NETWORK, ratio=estimate_over_trials([0.1], unit="ratio"), exchanges_count=1.0)
    )
    assert found.claim == "The network takes at least 10 % of a transaction: 1 exchange of 0.51 ms."
    assert (found.severity, found.advice) == (Severity.NOTE, "")


def test_a_quick_round_trip_is_mostly_the_work_of_both_ends() -> None:
    (found,) = tell(msgspec.structs.replace(NETWORK, is_far=False))
    assert found.claim.startswith("The network takes at most 62 %")
    assert "what both ends do" in found.evidence
    assert found.severity is Severity.NOTE


def test_what_is_not_known_is_said_with_its_reason() -> None:
    (found,) = tell(msgspec.structs.replace(NETWORK, ratio=absent_estimate("no ping ran", unit="ratio")))
    assert (found.claim, found.evidence) == (
        "How much of a transaction the network takes is not known.",
        "no ping ran",
    )
    assert tell(None) == []
