"""Apply the preflight rules to a study's record: the machine before the first trial, and the settings of its servers."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.explain.finding import Finding, Severity, worst_first
from pgdyno.explain.preflight.given import find_given_obstacles
from pgdyno.explain.preflight.given_rules import FAR, TIMEOUTS
from pgdyno.explain.preflight.own_servers import find_servers_without_huge_pages, look_at_trials
from pgdyno.explain.preflight.replicas import find_replica_obstacles
from pgdyno.explain.preflight.rule_input import Intent
from pgdyno.explain.preflight.rules import find_obstacles
from pgdyno.explain.preflight.shared_memory import HUGE_PAGES
from pgdyno.explain.preflight.version import UNTRIED_VERSION, find_untried
from pgdyno.plan.variants import most_connections, most_on_each_replica, name_asked_settings
from pgdyno.record.machine.disk_facts import UNKNOWN_DISK
from pgdyno.record.machine.preflight import PreflightFacts
from pgdyno.record.types import LOST_COUNTERS, StudyRecord
from pgdyno.spec.study import Study

# An emulation is made of loop devices, of limits of control groups and of fewer CPUs.
_EMULATED = frozenset({"cgroup-limit", "cpu-affinity", "loop-device"})


def list_obstacles(record: StudyRecord, analysis: StudyAnalysis) -> tuple[Finding, ...]:
    """List everything that the preflight rules find in a study's record, worst first."""
    # `find_version_doubts` says what is not known of a version, with what the trials did not find.
    found = tuple(one for one in _find_obstacles(record, analysis) if one.rule != UNTRIED_VERSION)
    return without_emulation(found, record.study)


def without_emulation(findings: tuple[Finding, ...], study: Study) -> tuple[Finding, ...]:
    """Leave out what only says by which means the machine of a study is emulated."""
    return tuple(one for one in findings if not study.is_emulated or one.rule not in _EMULATED)


def _find_obstacles(record: StudyRecord, analysis: StudyAnalysis) -> tuple[Finding, ...]:
    if record.host is None or record.given is not None:
        return (*_find_of_given(record, analysis), *_find_of_watched(record))
    facts = record.preflight or PreflightFacts()
    servers = look_at_trials(record, analysis)
    facts = msgspec.structs.replace(facts, server=next(iter(servers.values()), None))
    dataset_bytes = record.plan.dataset_bytes if record.dataset is None else record.dataset.total_bytes
    intent = Intent(horizon_s=record.plan.predicted_s, dataset_bytes=dataset_bytes)
    found = [one for one in find_obstacles(record.host, facts, intent=intent) if one.rule != HUGE_PAGES]
    if facts.memory is not None:
        found += find_servers_without_huge_pages(servers, facts.memory, record.host)
    return worst_first(found)


def _find_of_watched(record: StudyRecord) -> tuple[Finding, ...]:
    """Find what the machine of a given server shows. Its disks are left out: what is advised for them is for pgdyno's own data."""
    if record.host is None:
        return ()
    return find_obstacles(msgspec.structs.replace(record.host, data_disk=UNKNOWN_DISK))


def _find_of_given(record: StudyRecord, analysis: StudyAnalysis) -> tuple[Finding, ...]:
    if record.given is None:
        return ()
    has_own = record.study.data.database is None
    found = [
        *find_given_obstacles(
            record.given,
            clients=most_connections(record.study),
            has_password=False,
            makes_database=has_own,
            may_write=has_own or record.are_writes_allowed,
            named_replicas=len(record.replicas),
        )
    ]
    on_each, asked = most_on_each_replica(record.study), name_asked_settings(record.study)
    for name, replica in zip(record.study.server.readers, record.replicas, strict=False):
        found += find_replica_obstacles(replica, record.given, name=name, clients=on_each, asked=asked)
    networks = [workload.network for workload in analysis.workloads if workload.network is not None]
    # What was measured beside the load says more.
    is_measured = any(network.ratio.value is not None for network in networks)
    settled = {TIMEOUTS, FAR} if is_measured else {TIMEOUTS}
    return tuple(one for one in found if one.rule not in settled)


def find_preflight_doubts(record: StudyRecord, analysis: StudyAnalysis) -> tuple[Finding, ...]:
    """Find the obstacles that weaken the figures, in the form of all other doubts; notes stay in the preflight's own table."""
    return tuple(
        _as_doubt(finding) for finding in list_obstacles(record, analysis) if finding.severity is not Severity.NOTE
    )


def find_version_doubts(record: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    """Say what is not known of each such version that a study ran on, and which counters its trials did not find."""
    own = record.server.major
    variants = record.plan.experiment.variants if record.plan.experiment is not None else ()
    for major in dict.fromkeys((own, *(variant.server.version or own for variant in variants))):
        said = record.server.settings_said if major == own else None
        finding = find_untried(major, said, lost_counters=_find_lost(analysis, major))
        if finding is not None:
            yield _as_doubt(finding)


def _as_doubt(finding: Finding) -> Finding:
    """Return a finding whose effect follows its evidence, as in all other doubts."""
    evidence = ". ".join(filter(None, [finding.evidence, finding.why.rstrip(".")]))
    return msgspec.structs.replace(finding, evidence=evidence, why="")


def _find_lost(analysis: StudyAnalysis, major: int) -> tuple[str, ...]:
    """List what trials say of this version; a study may run on several."""
    gaps = (gap for trial in analysis.trials for gap in trial.record.gaps)
    said = dict.fromkeys(gap.reason for gap in gaps if gap.source == LOST_COUNTERS)
    return tuple(reason for reason in said if f"PostgreSQL {major} " in reason)
