"""The section on standbys: for readers of the terminal, and nothing where a study has none."""

from __future__ import annotations

import msgspec

from pgdyno.analyse.standbys import ClientWaits, Spread, Stage, StandbyCpu, StandbyFigures, StandbyLag
from pgdyno.analyse.transaction_time.shares import Resource
from pgdyno.report.document import Prose, Section
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.sections.standbys import build_standbys
from pgdyno.report.table import Table
from tests.report.build_comparison import build_paired


def make_figures(variant: str) -> StandbyFigures:
    spread = Spread(mean=2048.0, usual=2048.0, largest=65536.0, n=9)
    lag = StandbyLag(
        variant=variant,
        name="standby1",
        states=("streaming",),
        sync_states=("sync",),
        lag_bytes=dict.fromkeys(Stage, spread),
        lag_ms={Stage.WRITE: Spread(mean=0.25, usual=0.25, largest=3.0, n=4)},
    )
    waits = ClientWaits(
        variant=variant, looks=9, sessions=4.0, ratios={Resource.STANDBY: 0.75, Resource.DATA_READ: 0.25}
    )
    cpu = StandbyCpu(name="standby1", cpus=0.25, replaying=0.1, receiving=0.1)
    return StandbyFigures(lags=(lag,), waits=(waits,), cpus=(cpu,), waited=(Stage.WRITE, Stage.FLUSH))


def make_report(standbys: int, settings: dict[str, str | int | float | bool]) -> ReportInput:
    report = build_paired()
    server = msgspec.structs.replace(report.record.study.server, standbys=standbys, settings=settings)
    record = msgspec.structs.replace(report.record, study=msgspec.structs.replace(report.record.study, server=server))
    workloads = tuple(
        msgspec.structs.replace(
            workload,
            trials=tuple(
                msgspec.structs.replace(trial, standbys=make_figures(trial.record.planned.variants[0]))
                for trial in workload.trials
            ),
        )
        for workload in report.analysis.workloads
    )
    analysis = msgspec.structs.replace(report.analysis, workloads=workloads)
    return msgspec.structs.replace(report, record=record, analysis=analysis)


def test_lags_and_waits_have_a_row_for_each_variant() -> None:
    (section,) = build_standbys(make_report(1, {"synchronous_commit": "on"}))
    assert isinstance(section, Section)
    words, *tables = section.blocks
    assert isinstance(words, Prose)
    assert (
        "shares its CPUs (0.25 of 2 CPUs over the load, which count as the study's own use and not as that of other programs)"
        in words.words
    )
    assert "synchronous_standby_names = '*'" in words.words
    variants = {variant.name for variant in build_paired().record.study.variant} or None
    for table in tables:
        assert isinstance(table, Table)
        assert table.level is Level.HEADLINE
        names = [row[0].text for row in table.rows]
        assert len(names) == len(set(names)) >= 2
        assert variants is None or set(names) <= variants | {
            title.title for title in build_paired().record.study.variant
        }
    lags, waits = (
        next(one for one in tables if one.caption.startswith(words)) for words in ("How far", "What the load")
    )
    assert isinstance(lags, Table)
    assert isinstance(waits, Table)
    row = dict(zip((column.title for column in lags.columns), lags.rows[0], strict=True))
    assert (row["Bytes not replayed"].text, row["Bytes not replayed"].detail) == ("2 kB", "up to 64 kB")
    assert row["Time until written, ms"].text == "0.250"
    assert (
        row["Time until replayed, ms"].note
        == "nothing was written while it was sampled, and the server forgets the time"
    )
    seen = dict(zip((column.title for column in waits.columns), waits.rows[0], strict=True))
    assert (seen["synchronous standby, %"].text, seen["others, %"].text) == ("75.0", "25.0")


def test_a_study_without_standbys_has_no_such_section() -> None:
    assert list(build_standbys(make_report(0, {}))) == []


def test_what_pgdyno_did_not_set_is_not_said() -> None:
    (section,) = build_standbys(make_report(2, {"synchronous_standby_names": "2 (*)"}))
    (words, *_) = section.blocks
    assert isinstance(words, Prose)
    assert words.words.startswith("standby1 and standby2 stream from the server")
    assert "pgdyno set" not in words.words
