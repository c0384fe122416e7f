"""What is said of a PostgreSQL that is newer than the versions that pgdyno was tried with."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pgdyno.explain.finding import Severity
from pgdyno.explain.preflight.rules import find_obstacles, should_wait
from pgdyno.explain.preflight.version import UNTRIED_VERSION, find_untried
from pgdyno.facts.versions import NEWEST_TRIED_MAJOR
from pgdyno.record.described_settings import SettingsSaid
from pgdyno.record.machine.preflight import ServerOrigin, ServerSnapshot
from pgdyno.report.sections.conditions.preflight import summarise
from pgdyno.report.severity_words import name_severity
from tests.proc_trees import Scenario, look

SAID = SettingsSaid(lacking=("commit_delay",), unknown=tuple(f"new_{number}" for number in range(15)))


def test_a_tried_version_is_nothing_to_speak_of() -> None:
    assert find_untried(NEWEST_TRIED_MAJOR, None) is None


def test_what_is_not_known_is_said() -> None:
    finding = find_untried(99, SAID, lost_counters=("this PostgreSQL 99 does not have pg_stat_wal.wal_bytes",))
    assert finding is not None
    assert finding.severity is Severity.WARNING
    assert finding.claim == "PostgreSQL 99 is newer than the versions that this pgdyno was tried with (15 to 18)."
    assert "Nothing is known of 99; for the rest the facts of 19 stand in" in finding.evidence
    assert "lacks: commit_delay" in finding.evidence
    assert "new_11 and 3 more" in finding.evidence
    assert "pg_stat_wal.wal_bytes" in finding.evidence
    read = find_untried(19, None)
    assert read is not None
    assert "was read in its manual and source; for the rest the facts of 18 stand in" in read.evidence


def test_a_preflight_calls_it_not_tried_and_lets_it_pass(tmp_path: Path) -> None:
    host, facts = look(tmp_path, Scenario(name="quiet"))
    server = ServerSnapshot(origin=ServerOrigin.PLANNED, major=99, settings_said=SAID)
    (finding,) = find_obstacles(host, msgspec.structs.replace(facts, server=server))
    assert finding.rule == UNTRIED_VERSION
    assert not should_wait((finding,))
    assert name_severity(finding) == "not tried"
    assert summarise((finding,)) == "1 version that was not tried"
