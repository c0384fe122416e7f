"""What a load added to pg_stat_statements, also where the view forgot something meanwhile."""

from __future__ import annotations

from typing import Any

from pgdyno.record.statements import StatementCounts, StatementsLook, read_statement, subtract
from tests.rows import each_row


def count(queryid: int, calls: int, **more: Any) -> StatementCounts:
    fields = dict.fromkeys(StatementCounts.__struct_fields__, 0)
    fields |= {"query": f"SELECT {queryid}", "queryid": queryid, "calls": calls, "exec_ms": calls * 2.0}
    return StatementCounts(**{**fields, "plan_ms": None, "read_ms": None, "write_ms": None, **more})


def look(*statements: StatementCounts, evicted: int = 0, reset: str = "then") -> StatementsLook:
    return StatementsLook(statements=statements, evicted_count=evicted, reset_at=reset)


def test_only_what_was_called_in_between_is_counted_and_only_its_growth() -> None:
    before = look(count(1, 5, wal_bytes=100, plan_ms=1.0), count(2, 7))
    after = look(count(1, 8, wal_bytes=160, plan_ms=2.5), count(2, 7), count(3, 1))
    growth = subtract(before, after)
    assert growth.flaw is None
    assert growth.statements == (count(1, 3, wal_bytes=60, plan_ms=1.5), count(3, 1))


FLAWS = (
    ("reset", look(count(1, 9), reset="now"), [], "reset"),
    ("evicted", look(count(1, 9), evicted=1), [(1, 4)], "forgot"),
    ("evicted and called again", look(count(1, 2), evicted=1), [(1, 2)], "forgot"),
    ("one was reset", look(count(1, 2)), [(1, 2)], "forgot"),
    ("one is gone", look(count(3, 4)), [(3, 4)], "forgot"),
    ("nothing is tracked", look(count(1, 5)), [], "track"),
)


@each_row(FLAWS)
def test_what_the_view_lost_is_said(name: str, after: StatementsLook, calls: list[tuple[int, int]], flaw: str) -> None:
    growth = subtract(look(count(1, 5)), after)
    assert [(one.queryid, one.calls) for one in growth.statements] == calls, name
    assert flaw in (growth.flaw or "")


OLD = {"blk_read_time": 1.5, "blk_write_time": 2.5}
NEW = {"shared_blk_read_time": 1.5, "shared_blk_write_time": 2.5, "local_blk_read_time": 9.0, "wal_buffers_full": 9}


@each_row((("15", OLD), ("18", NEW)))
def test_the_columns_of_all_versions_are_read(version: str, times: dict[str, float]) -> None:
    blocks = {f"{kind}_blks_{did}": 3 for kind in ("shared", "temp") for did in ("hit", "read", "dirtied", "written")}
    wal = {"wal_records": 4, "wal_fpi": 5, "wal_bytes": 6}
    row = {"queryid": -1, "query": None, "calls": 1, "rows": 2, "total_exec_time": 0.5, "total_plan_time": 0.25}
    timed = read_statement({**row, **blocks, **wal, **times}, has_plan_time=True, has_io_time=True)
    assert (timed.query, timed.exec_ms, timed.plan_ms, timed.read_ms, timed.write_ms) == ("", 0.5, 0.25, 1.5, 2.5), (
        version
    )
    assert (timed.rows, timed.temp_written_pages, timed.wal_bytes) == (2, 3, 6)
    untimed = read_statement({**row, **blocks, **wal, **times}, has_plan_time=False, has_io_time=False)
    assert (untimed.plan_ms, untimed.read_ms, untimed.write_ms) == (None, None, None)
