"""A reset of the server's statistics under a load leaves no false figure, and stops no report."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgdyno.flow.report import compose_report
from pgdyno.record.store import open_record
from pgdyno.record.types import RESET_COUNTERS
from tests.records import Change, copy_record


def reset(**after: float) -> Change:
    """Leaves these counters as they would be if the statistics had been reset a moment before they were read."""
    return lambda trial: trial["counters_after"].update(after)


def test_a_reset_of_the_wal_counters_leaves_the_report_without_them(tmp_path: Path) -> None:
    # 60 MB of images since the reset, less than before the load: the others have grown beyond what they were.
    folder = copy_record(tmp_path / "record", trial=reset(wal_bytes=60_000_000))
    report = compose_report(open_record(folder)).report
    trials = report.analysis.workloads[0].trials
    for trial in trials:
        counts = trial.counts_per_transaction
        assert counts["wal_bytes"] is None
        assert counts["wal_records_count"] is None
        assert counts["wal_insert_lsn_bytes"]
        assert counts["xact_commit_count"]
        assert RESET_COUNTERS in trial.gaps
        assert trial.shares["cache_hit_ratio"] is not None
    assert not any(finding.rule == "damaged-file" for finding in report.findings)


@pytest.mark.parametrize("name", ["blks_read_pages", "blks_hit_pages", "tup_fetched_count"])
def test_a_hit_ratio_needs_counters_that_were_not_reset(tmp_path: Path, name: str) -> None:
    folder = copy_record(tmp_path / "record", trial=reset(**{name: 3}))
    trials = compose_report(open_record(folder)).report.analysis.workloads[0].trials
    for trial in trials:
        assert trial.shares["cache_hit_ratio"] is None
        assert trial.counts_per_transaction["blks_read_pages"] is None
        assert trial.counts_per_transaction["wal_bytes"]
        health = {row.check: row for row in trial.health}
        assert health["cache_hit_ratio"].reason == RESET_COUNTERS.reason
        assert trial.disk is None or trial.disk.missed_blocks_per_s is None


def test_a_database_that_was_dropped_is_no_reset(tmp_path: Path) -> None:
    folder = copy_record(tmp_path / "record", trial=reset(server_xact_commit_count=3))
    trials = compose_report(open_record(folder)).report.analysis.workloads[0].trials
    for trial in trials:
        assert trial.record.growth("server_xact_commit_count") is None
        assert trial.record.growth("xact_commit_count")
        assert RESET_COUNTERS not in trial.gaps
