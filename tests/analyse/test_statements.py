"""Shares of statements over trials."""

from __future__ import annotations

import msgspec
import pytest

from pgdyno.analyse.statements import rank_statements
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.record.statements import StatementCounts
from tests.analyse.experiments import in_rounds
from tests.report.build import build_report

TRIAL = build_report().analysis.workloads[0].trials[0]


def count(query: str, exec_ms: float, *, queryid: int = 1) -> StatementCounts:
    fields = dict.fromkeys(StatementCounts.__struct_fields__, 0)
    changes = {"query": query, "queryid": queryid, "calls": 10, "rows": 20, "wal_bytes": 50, "exec_ms": exec_ms}
    return StatementCounts(**{**fields, **changes})  # type: ignore[arg-type]


def count_in(*statements: StatementCounts) -> TrialAnalysis:
    record = msgspec.structs.replace(TRIAL.record, statements=statements or None)
    return msgspec.structs.replace(TRIAL, record=record, transactions_count=5)


def test_a_share_has_an_interval_over_trials_and_lies_between_0_and_1() -> None:
    first, second = rank_statements(in_rounds([count_in(count("a", 9.0), count("b", 1.0)), count_in(count("a", 5.0))]))
    assert (first.query, first.share.value, first.share.n) == ("a", pytest.approx(0.95), 2)
    assert first.share.low is not None
    assert 0.0 < first.share.low < 0.95
    assert (first.share.high, second.share.low) == (1.0, 0.0)
    assert (first.calls_per_transaction, first.mean_ms, first.rows_per_call, first.wal_bytes_per_call) == (2, 0.7, 2, 5)


def test_the_same_text_is_one_statement_and_those_beyond_ten_are_others() -> None:
    many = [count(f"q{number}", 1.0) for number in range(12)]
    uses = rank_statements([count_in(count("a", 2.0), count("a", 2.0, queryid=2), *many)])
    assert [len(uses), uses[0].query, uses[-1].query] == [11, "a", None]
    assert uses[0].share.value == 0.25
    assert uses[-1].share.value == pytest.approx(3 / 16)
    assert sum(use.share.value or 0.0 for use in uses) == pytest.approx(1.0)
    assert uses[0].share.low is None


def test_trials_without_statements_have_no_part() -> None:
    assert rank_statements([count_in()]) == ()
    (use,) = rank_statements([count_in(), count_in(count("a", 1.0))])
    assert use.share.n == 1


def test_trials_whose_server_was_frozen_have_no_part() -> None:
    """Their times hold the pauses."""
    frozen = count_in(count("a", 900.0), count("b", 1.0))
    frozen = msgspec.structs.replace(frozen, record=msgspec.structs.replace(frozen.record, slice_s=0.5))
    first, second = rank_statements([frozen, count_in(count("a", 2.0), count("b", 2.0))])
    assert (first.share.value, first.share.n) == (0.5, 1)
    assert (first.mean_ms, second.mean_ms) == (0.2, 0.2)
    assert rank_statements([frozen]) == ()
