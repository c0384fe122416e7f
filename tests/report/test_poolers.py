"""The section on poolers: for readers of the terminal, and nothing where no load connects to one."""

from __future__ import annotations

import msgspec

from pgdyno.analyse.poolers import AtLooks, PoolerFigures, PoolerThread
from pgdyno.plan.types import PlannedPooler
from pgdyno.report.document import Prose, Section
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.sections.poolers import build_poolers
from pgdyno.report.table import Table
from pgdyno.spec.pooler import PoolMode
from tests.report.build_comparison import build_paired

FIGURES = PoolerFigures(
    name="pool",
    mode="transaction",
    size=5,
    version="PgBouncer 1.18.0",
    samples=9,
    queries_per_s=6000.0,
    transactions_per_s=1000.0,
    wait_ms=1.5,
    waiting_count=1.5,
    waiting_clients=AtLooks(mean=2.0, largest=7.0),
    active_servers=AtLooks(mean=4.5, largest=5.0),
    thread=PoolerThread(running_ratio=0.25, waiting_ratio=0.5),
)


def make_report(figures: PoolerFigures, *, size: int | None = 5, mode: PoolMode = PoolMode.TRANSACTION) -> ReportInput:
    """Give every trial of the second variant these figures."""
    report = build_paired()
    pooler = PlannedPooler(name="pool", mode=mode, size=size, most_clients=8)
    record = msgspec.structs.replace(report.record, plan=msgspec.structs.replace(report.record.plan, poolers=(pooler,)))
    _, *others = report.analysis.workloads
    pooled = [
        msgspec.structs.replace(
            workload,
            trials=tuple(msgspec.structs.replace(trial, pooler=figures) for trial in workload.trials),
        )
        for workload in others
    ]
    analysis = msgspec.structs.replace(report.analysis, workloads=(report.analysis.workloads[0], *pooled))
    return msgspec.structs.replace(report, record=record, analysis=analysis)


def test_a_load_through_a_pooler_has_a_row() -> None:
    report = make_report(FIGURES)
    (section,) = build_poolers(report)
    assert isinstance(section, Section)
    words, table = section.blocks
    assert isinstance(words, Prose)
    assert words.words.startswith("pool is PgBouncer 1.18.0 in transaction mode: a client has a server connection for")
    assert "its pool has 5 server connections" in words.words
    assert isinstance(table, Table)
    assert len(table.rows) == len(report.analysis.workloads) - 1
    row = dict(zip((column.title for column in table.columns), table.rows[0], strict=True))
    shown = {title: (cell.text, cell.detail) for title, cell in row.items()}
    assert shown["Pool"] == ("pool of 5", "")
    assert shown["Queries/s"] == ("6,000", "")
    assert shown["Wait, ms"] == ("1.50", "")
    assert shown["Waiting at looks"] == ("2.00", "up to 7.00")
    assert shown["Connections in use"] == ("4.50", "up to 5.00")
    assert shown["Its thread, %"] == ("25.0", "and 50.0 % waiting for a CPU")
    levels = {column.title: column.level for column in table.columns}
    assert levels["Waiting clients"] is Level.STANDARD
    assert levels["Queries/s"] is Level.HEADLINE


def test_what_was_not_said_is_absent_with_a_reason() -> None:
    silent = PoolerFigures(name="pool", mode="session", size=None, version="", samples=4)
    (section,) = build_poolers(make_report(silent, size=None, mode=PoolMode.SESSION))
    assert isinstance(section, Section)
    words, table = section.blocks
    assert isinstance(words, Prose)
    assert "whose version is not known, which ran already; it was taken to be in session mode" in words.words
    assert isinstance(table, Table)
    row = dict(zip((column.title for column in table.columns), table.rows[0], strict=True))
    assert row["Pool"].text == "pool"
    assert row["Queries/s"].note == "the pooler's console did not say"
    assert row["Its thread, %"].note == "the pooler's process was not sampled"


def test_a_mode_that_the_console_says_stands_beside_what_was_taken() -> None:
    for mode, told in (("session", "session mode: a client has"), ("statement", "statement mode.")):
        seen = msgspec.structs.replace(FIGURES, mode=mode, size=None)
        (section,) = build_poolers(make_report(seen, size=None))
        assert isinstance(section, Section)
        words = section.blocks[0]
        assert isinstance(words, Prose)
        assert f"was taken to be in transaction mode, and its console says {told}" in words.words


def test_without_samples_and_without_poolers() -> None:
    (section,) = build_poolers(make_report(msgspec.structs.replace(FIGURES, samples=0)))
    assert isinstance(section, Section)
    assert [type(block) for block in section.blocks] == [Prose, Prose]
    assert not list(build_poolers(build_paired()))
