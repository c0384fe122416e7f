"""Say how much of a transaction the way to a server of the user's takes, and what of it cannot be told apart."""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.analyse.estimate import Estimate, is_too_wide
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.transaction_time.network import NetworkEstimate
from pgdyno.analyse.transaction_time.shares import Resource
from pgdyno.explain.finding import Finding, Severity
from pgdyno.record.types import StudyRecord
from pgdyno.units import format_share

NETWORK = "network"
ADVICE = (
    "Run pgdyno beside the server, or take more clients; for an application, make fewer exchanges in a transaction."
)
MUCH_RATIO = 0.2
"""Share of a transaction from which on its way to the server and back must be read together with the figures."""


def find_network_shares(record: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    """Yield a finding for each load of a server that is reached over a network; of a search, for those in a closed loop."""
    for workload in analysis.workloads:
        is_one_of_many = record.plan.search is not None and workload.load.rate_tps is not None
        if workload.network is not None and not is_one_of_many:
            found = workload.bottleneck
            is_advised = found is not None and found.resource is Resource.NETWORK
            yield _explain(workload.name, workload.network, is_advised=is_advised)


def _explain(workload: str, network: NetworkEstimate, *, is_advised: bool) -> Finding:
    ratio, ping = network.ratio, network.ping_ms
    if ratio.value is None or ping.value is None or network.exchanges_count is None:
        return Finding(
            severity=Severity.NOTE,
            rule=NETWORK,
            claim="How much of a transaction the network takes is not known.",
            evidence=ratio.reason or "",
            workload=workload,
        )
    exchanges = (
        f"{network.exchanges_count:.3g} exchange{'' if network.exchanges_count == 1 else 's'} of {ping.value:.2g} ms"
    )
    if network.is_local:
        return Finding(
            severity=Severity.NOTE,
            rule=NETWORK,
            claim=f"No network is in a transaction: at most {_format(ratio)} of it are waits for a CPU in its {exchanges}.",
            evidence=f"client and server are on one machine; an exchange is {_name_exchange(network)}: where CPUs are idle,"
            " it takes 0.05 to 0.1 ms there",
            workload=workload,
        )
    is_much = network.is_far and ratio.value >= MUCH_RATIO
    return Finding(
        severity=Severity.WARNING if is_much else Severity.NOTE,
        rule=NETWORK,
        claim=f"The network takes {'about' if network.is_far else 'at most'} {_format(ratio)} of a transaction:"
        f" {exchanges}.",
        evidence=f"an exchange is {_name_exchange(network)}, with the work of both ends, 0.05 to 0.1 ms; {_add(network)}",
        advice=ADVICE if is_much and not is_advised else "",
        workload=workload,
    )


def _name_exchange(network: NetworkEstimate) -> str:
    if network.median_ratio.value is None:
        return "the median of the empty statements that load hosts sent to the server before the trials"
    return "the quickest of the empty statements that one more client sent beside the load"


def _add(network: NetworkEstimate) -> str:
    """Say what cannot be told apart."""
    if not network.is_far:
        return "in one this quick, that may be all"
    if network.median_ratio.value is None:
        return "uneven delays, and waits for a CPU at either end, are in it and cannot be told apart"
    return (
        f"with their median it would be {format_share(network.median_ratio.value)}: between the two are uneven delays,"
        " and waits for a CPU at either end, which cannot be told apart"
    )


def _format(ratio: Estimate) -> str:
    interval = ""
    if ratio.low is not None and ratio.high is not None and not is_too_wide(ratio):
        interval = f" [{ratio.low * 100:.0f}, {ratio.high * 100:.0f}]"
    return f"{format_share(ratio.value)}{interval}"
