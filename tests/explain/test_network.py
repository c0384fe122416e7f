from __future__ import annotations

import msgspec

from pgdyno.analyse.estimate import absent_estimate, estimate_over_trials
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.transaction_time.network import NetworkEstimate
from pgdyno.analyse.transaction_time.shares import Bottleneck, Certainty, Resource
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.explain.finding import Finding, Severity
from pgdyno.explain.network import ADVICE, find_network_shares
from pgdyno.explain.preflight.given import find_given_obstacles
from pgdyno.explain.preflight.given_rules import FAR
from pgdyno.record.machine.given_server import RoundTrip
from tests.analyse.joined import make_workload
from tests.given import SERVER
from tests.report.build import build_report
from tests.rows import each_row

NETWORK = NetworkEstimate(
    is_far=True,
    is_local=False,
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
    assert found.claim == "The network takes about 62 % [57, 67] of a transaction: 7 exchanges of 0.51 ms."
    assert "with their median it would be 70 %" in found.evidence
    assert (found.severity, found.advice) == (Severity.WARNING, ADVICE)


def test_what_load_hosts_sent_before_the_trials_is_called_that() -> None:
    (found,) = tell(msgspec.structs.replace(NETWORK, median_ratio=absent_estimate("", unit="ratio")))
    assert "the median of the empty statements that load hosts sent to the server before the trials" in found.evidence
    assert "beside the load" not in found.evidence
    assert "with their median" not in found.evidence


def test_advice_is_not_given_twice() -> None:
    (found,) = tell(NETWORK, msgspec.structs.replace(NOBODYS, resource=Resource.NETWORK))
    assert (found.severity, found.advice) == (Severity.WARNING, "")


def test_a_small_share_is_a_note() -> None:
    (found,) = tell(
        msgspec.structs.replace(NETWORK, ratio=estimate_over_trials([0.1], unit="ratio"), exchanges_count=1.0)
    )
    assert found.claim == "The network takes about 10 % of a transaction: 1 exchange of 0.51 ms."
    assert (found.severity, found.advice) == (Severity.NOTE, "")


def test_a_quick_round_trip_is_mostly_the_work_of_both_ends() -> None:
    (found,) = tell(msgspec.structs.replace(NETWORK, is_far=False))
    assert found.claim.startswith("The network takes at most 62 %")
    assert "in one this quick, that may be all" in found.evidence
    assert found.severity is Severity.NOTE


def test_waits_for_a_cpu_are_no_network() -> None:
    (found,) = tell(msgspec.structs.replace(NETWORK, is_far=False, is_local=True))
    assert found.claim.startswith("No network is in a transaction: at most 62 % [57, 67] of it are waits for a CPU")
    assert "7 exchanges of 0.51 ms" in found.claim
    assert "client and server are on one machine" in found.evidence
    assert (found.severity, found.advice) == (Severity.NOTE, "")


@each_row(
    [
        (0.023, False, "at most 6.2 of tpcb-like"),
        (0.00025, False, "at most 570 of tpcb-like"),
        (0.00015, False, None),
        # A busy machine answers itself late, too.
        (0.0005, True, None),
        (0.002, True, "at most 71 of tpcb-like"),
    ]
)
def test_it_is_said_before_anything_is_loaded(round_trip_s: float, is_local: bool, said: str | None) -> None:
    trip = RoundTrip(median_s=round_trip_s, n=400)
    server = msgspec.structs.replace(SERVER, round_trip=trip, is_local=is_local)
    found = [one for one in find_given_obstacles(server, clients=8, has_password=False) if one.rule == FAR]
    assert len(found) == (said is not None)
    assert all((said or "") in one.claim for one in found)
    assert all("tpcb-like makes 7" in one.evidence and one.severity is Severity.WARNING for one in found)


def test_what_is_not_known_is_said_with_its_reason() -> None:
    (found,) = tell(msgspec.structs.replace(NETWORK, ratio=absent_estimate("no ping ran", unit="ratio")))
    assert (found.claim, found.evidence) == (
        "How much of a transaction the network takes is not known.",
        "no ping ran",
    )
    assert tell(None) == []
