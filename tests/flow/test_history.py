"""`pgdyno history`: which records belong together, and what is said of a change."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console

from pgdyno.analyse.episodes.types import Episode, EpisodeKind
from pgdyno.analyse.estimate import Estimate
from pgdyno.analyse.history.histories import History, Result, collect_histories
from pgdyno.analyse.records.sides import Side
from pgdyno.cli.terminal.display import Display
from pgdyno.errors import HostError, SpecError
from pgdyno.flow.records import history, results
from pgdyno.flow.records.history import HistoryResult, read_history
from pgdyno.record.store import RecordStore
from pgdyno.report.charts.history import history_chart
from pgdyno.report.document import list_charts
from pgdyno.report.history import build_history, describe_change, describe_differences, describe_move
from tests.given import SERVER
from tests.records import copy_record
from tests.report.vega import check_vega_lite

UI = Display(quiet=True)
BEGAN = datetime(2026, 10, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "pgdyno"


def test_a_record_is_analysed_once_until_it_changes(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = copy_record(tmp_path / "records/one")
    analysed: list[Path] = []

    def count(store: RecordStore) -> Iterator[Result]:
        analysed.append(store.path)
        yield from listed(store)

    listed = results._analyse
    monkeypatch.setattr(results, "_analyse", count)
    first = read(record.parent)
    assert (read(record.parent), len(analysed)) == (first, 1)
    os.utime(record / "trials/0001/trial.json")
    assert (read(record.parent), len(analysed)) == (first, 2)
    assert [path.name[:8] for path in cache.iterdir()] == ["history-"], "the old answer is replaced"
    monkeypatch.setattr(results, "__version__", "0.0.0")
    assert (read(record.parent), len(analysed)) == (first, 3)
    (record / "trials/0001/nowhere").symlink_to("/nonexistent/file")
    assert (read(record.parent), len(analysed)) == (first, 4)
    # A record that is still being measured changes too often to be kept.
    with RecordStore(record).locked():
        assert (read(record.parent), len(analysed)) == (first, 5)
    (kept,) = cache.iterdir()
    kept.write_bytes(b"damaged")
    assert (read(record.parent), len(analysed)) == (first, 6)


def test_a_name_that_is_no_text_spoils_no_other_record(tmp_path: Path) -> None:
    copy_record(tmp_path / "one")
    copy_record(Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")))
    result = read_history([tmp_path], ui=UI)
    assert result.unreadable == (f"{tmp_path}/caf\\xe9: {tmp_path}/caf\\xe9 has a name that is not UTF-8",)
    assert json.loads(result.to_json())


def read(folder: Path) -> tuple[History, ...]:
    return read_history([folder], ui=UI).histories


def words(result: HistoryResult) -> str:
    console = Console(file=io.StringIO(), width=200, no_color=True)
    console.print(result.to_terminal())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def results_of(side: Side, levels: list[float]) -> list[Result]:
    """Results of one question whose TPS has these levels, day by day."""
    made = []
    for day, tps in enumerate(levels):
        estimate = Estimate(value=tps, low=tps * 0.99, high=tps * 1.01, n=3, unit="tps")
        workload = msgspec.structs.replace(side.workload, tps=estimate, latency_ms={})
        changed = msgspec.structs.replace(side, workload=workload)
        made.append(Result(path=f"records/{day}", began=BEGAN + timedelta(days=day), side=changed))
    return made


@pytest.fixture
def side(tmp_path: Path) -> Side:
    copy_record(tmp_path / "one")
    return read(tmp_path)[0].results[0].side


def test_records_belong_together_if_they_ask_one_machine_the_same(tmp_path: Path) -> None:
    def newer(record: dict[str, Any]) -> None:
        record["server"].update(version="18.7", version_num=180007)

    def bigger(record: dict[str, Any]) -> None:
        record["host"].update(cpu_count=8, memory_bytes=4 * record["host"]["memory_bytes"])

    def busier(record: dict[str, Any]) -> None:
        record["plan"]["workloads"][0].update(clients=8)

    for day, (name, change) in enumerate(
        {"a": None, "b": newer, "c": None, "bigger": bigger, "busier": busier}.items(), 1
    ):
        copy_record(tmp_path / name, at=f"2026-10-0{day}T10:00:00+00:00", study=change)
    histories = read(tmp_path)
    found = {tuple(Path(one.path).name for one in history.results): history for history in histories}
    assert found.keys() == {("a", "b", "c"), ("bigger",), ("busier",)}
    assert len(histories[0].results) == 3
    assert [found[name].move for name in (("a", "b", "c"), ("busier",))] == [None, None]
    # Hardware cannot change within a history; the one that begins with it says what it was before.
    move = found["bigger",].move
    assert move is not None
    said = describe_move(move)
    assert said.startswith("Another machine was asked the same before, last at 2026-10-03 10:00 UTC (c): ")
    assert "CPUs from 2 CPUs (AMD EPYC) to 8 CPUs (AMD EPYC); memory from 23.5 GB to 94.2 GB." in said


def on(result: Result, **record: Any) -> Result:
    """Return a result whose record differs in these fields."""
    changed = msgspec.structs.replace(result.side.record, **record)
    return msgspec.structs.replace(result, side=msgspec.structs.replace(result.side, record=changed))


def test_no_move_is_told_where_it_may_be_the_same_machine(side: Side) -> None:
    seen, later = results_of(side, [3000.0, 3010.0])
    first, second = on(seen, host=None, given=SERVER), on(later, host=None, given=SERVER)
    for unlike in ((first, on(later, given=SERVER)), (seen, second), (on(seen, host=None), on(later, host=None))):
        histories = collect_histories(unlike)
        assert [(len(one.results), one.move) for one in histories] == [(1, None)] * 2
    assert len(collect_histories([first, second])) == 1


def test_a_move_whose_difference_no_rule_lists_is_a_whole_sentence(side: Side) -> None:
    first, later = results_of(side, [3000.0, 3010.0])
    host = side.record.host
    assert host is not None
    elsewhere = msgspec.structs.replace(SERVER, host="db2.example")
    limited = msgspec.structs.replace(host, cpu_limit=1.0)
    wider = msgspec.structs.replace(limited, cpu_count=host.cpu_count * 2)
    for before, after in (
        (on(first, host=None, given=SERVER), on(later, host=None, given=elsewhere)),
        (on(first, host=limited), on(later, host=wider)),
    ):
        (move,) = [one.move for one in collect_histories([before, after]) if one.move is not None]
        assert describe_move(move) == "Another machine was asked the same before, last at 2026-10-01 00:00 UTC (0)."


def test_a_record_that_does_not_name_its_cores_joins_no_unlike_machines(tmp_path: Path) -> None:
    for day, core in enumerate(("Neoverse-V1", None, "Neoverse-V2", "Neoverse-V1"), 1):

        def run_on(record: dict[str, Any], core: str | None = core) -> None:
            record["host"].update(cpu_model="aarch64", cpu_core=core)

        copy_record(tmp_path / f"{day}", at=f"2026-10-0{day}T10:00:00+00:00", study=run_on)
    assert {tuple(Path(one.path).name for one in history.results) for history in read(tmp_path)} == {
        ("1", "2", "4"),
        ("3",),
    }


def test_a_change_says_how_much_since_when_and_what_else_changed(side: Side) -> None:
    random = np.random.default_rng(2)
    levels = [level * math.exp(random.normal(0, 0.01)) for level in [3000.0] * 12 + [2700.0] * 8]
    results = results_of(side, levels)
    server = msgspec.structs.replace(side.record.server, version="18.9", version_num=180009)
    record = msgspec.structs.replace(side.record, server=server)
    for day in range(12, 20):
        results[day] = msgspec.structs.replace(
            results[day], side=msgspec.structs.replace(results[day].side, record=record)
        )
    (history,) = collect_histories(results)
    (change,) = history.changes
    assert (change.metric, change.place) == ("tps", 12)
    assert change.ratio.value == pytest.approx(0.9, abs=0.01)
    assert change.ratio.low is not None
    assert change.ratio.high is not None
    assert change.ratio.low < 0.9 < change.ratio.high
    assert "since 2026-10-13 00:00 UTC (12)" in describe_change(history, change)
    assert describe_differences(change) == "What else changed: PostgreSQL from 18.6 to 18.9."
    assert "changes" in history_chart(history).marks
    result = HistoryResult(histories=(history,), unreadable=())
    document = json.loads(result.to_json())
    assert document["histories"][0]["changes"][0]["path"] == "records/12"
    said = words(result)
    assert "TPS -1" in said
    assert "at most 5" in said
    assert "the number of trials stands in its place" in said


def with_events(result: Result, *, checkpoints: int, has_cliff: bool, duration_s: float = 60.0) -> Result:
    """Return a result whose trials had so many checkpoints, and a cliff or none."""
    cliff = Episode(
        kind=EpisodeKind.CLIFF, metric="tps", from_s=4.0, until_s=None, before=4e3, after=2e3, change_ratio=-0.5
    )
    trials = tuple(
        msgspec.structs.replace(
            trial,
            events=tuple(event for event in trial.events if event.kind == "checkpoint")[:checkpoints],
            episodes=(cliff,) * has_cliff,
            record=msgspec.structs.replace(
                trial.record, planned=msgspec.structs.replace(trial.record.planned, duration_s=duration_s)
            ),
        )
        for trial in result.side.workload.trials
    )
    workload = msgspec.structs.replace(result.side.workload, trials=trials)
    return msgspec.structs.replace(result, side=msgspec.structs.replace(result.side, workload=workload))


def test_a_fall_stays_in_its_history_if_it_takes_the_checkpoint_of_a_trial_away_or_brings_cliffs(side: Side) -> None:
    random = np.random.default_rng(5)
    results = results_of(side, [t * math.exp(random.normal(0, 0.01)) for t in [3000.0] * 20 + [2000.0] * 8])
    (history,) = collect_histories(
        [with_events(one, checkpoints=int(day < 20), has_cliff=day >= 20) for day, one in enumerate(results)]
    )
    (change,) = history.changes
    assert change.place == 20
    assert change.ratio.value == pytest.approx(2 / 3, abs=0.01)
    said = describe_differences(change)
    assert "checkpoints in a trial from 60 s, 1 checkpoints to 60 s, 0 checkpoints" in said
    assert "cliff from in 0 of 2 trials to in 2 of 2 trials" in said


def test_longer_trials_that_meet_a_checkpoint_or_a_cliff_ask_another_question(side: Side) -> None:
    before, after = results_of(side, [3000.0, 2000.0])
    short = with_events(before, checkpoints=0, has_cliff=False)
    assert len(collect_histories([short, with_events(after, checkpoints=0, has_cliff=False, duration_s=600.0)])) == 1
    for checkpoints, has_cliff in ((1, False), (0, True)):
        long = with_events(after, checkpoints=checkpoints, has_cliff=has_cliff, duration_s=600.0)
        assert len(collect_histories([short, long])) == 2


def test_a_history_without_a_change_says_so_and_a_short_one_how_many_it_takes(side: Side) -> None:
    random = np.random.default_rng(4)
    levels = [3000 * math.exp(random.normal(0, 0.02)) for _ in range(15)]
    (quiet,) = collect_histories(results_of(side, levels))
    (short,) = collect_histories(results_of(side, levels[:4]))
    assert "No change of TPS or p99 was found in 15 results." in words(HistoryResult(histories=(quiet,), unreadable=()))
    assert "4 results are too few to show a change: it takes 9." in words(
        HistoryResult(histories=(short,), unreadable=())
    )


@pytest.mark.parametrize("levels", [[17950.123] * 3, [17950.123, 17950.124, 17951.2]])
def test_the_axis_of_results_that_are_nearly_equal_has_room_for_labels_of_few_digits(
    side: Side, levels: list[float]
) -> None:
    (history,) = collect_histories(results_of(side, levels))
    chart = history_chart(history)
    check_vega_lite(chart)
    low, high = chart.spec["layer"][-1]["encoding"]["y"]["scale"]["domain"]
    assert (low, high) == pytest.approx((17771, 18130), abs=2)


def test_a_copy_of_a_record_in_another_folder_counts_once(tmp_path: Path) -> None:
    first, copy = copy_record(tmp_path / "here/one"), copy_record(tmp_path / "nightly/one")
    other = copy_record(tmp_path / "nightly/two", at="2026-11-23T10:00:00+00:00")
    result = read_history([tmp_path / "here", tmp_path / "nightly"], ui=UI)
    (found,) = result.histories
    assert [one.path for one in found.results] == [str(first), str(other)]
    assert result.unreadable == (f"{copy}: a copy of {first}",)


def test_two_machines_that_began_in_the_same_second_are_no_copies(tmp_path: Path) -> None:
    def rename(record: dict[str, Any]) -> None:
        record["host"]["host_name"] = "db2"

    def start_later(trial: dict[str, Any]) -> None:
        trial["load_start_monotonic_s"] += 0.25

    copy_record(tmp_path / "one")
    copy_record(tmp_path / "two", study=rename)
    copy_record(tmp_path / "three", trial=start_later)
    result = read_history([tmp_path], ui=UI)
    assert result.unreadable == ()
    assert sum(len(one.results) for one in result.histories) == 3


def test_a_copy_counts_where_the_record_itself_cannot_be_read(tmp_path: Path) -> None:
    first, copy = copy_record(tmp_path / "here/one"), copy_record(tmp_path / "nightly/one")
    next(first.glob("trials/*/trial.json")).write_text("{")
    result = read_history([tmp_path / "here", tmp_path / "nightly"], ui=UI)
    assert [one.path for found in result.histories for one in found.results] == [str(copy)]
    (said,) = result.unreadable
    assert said.startswith(f"{first}: ")


def test_a_page_is_written_and_a_broken_record_is_named(tmp_path: Path) -> None:
    records = tmp_path / "records"
    for day in (1, 2):
        copy_record(records / f"{day}", at=f"2026-10-0{day}T10:00:00+00:00")
    copy_record(records / "broken")
    (records / "broken" / "record.json").write_text("{")
    page = tmp_path / "history.html"
    result = read_history([records], out=page, ui=UI)
    assert "Results of tpcb-like" in page.read_text()
    assert str(records / "broken") in words(result)
    read_history([records], out=tmp_path / "history.md", ui=UI)
    read_history([records], out=tmp_path / "history.json", ui=UI)
    assert json.loads((tmp_path / "history.json").read_bytes())["histories"][0]["results"][0]["trials"] == 2


def test_a_page_is_written_where_a_link_leads(tmp_path: Path) -> None:
    copy_record(tmp_path / "records" / "one")
    target, link = tmp_path / "www" / "history.html", tmp_path / "history.html"
    target.parent.mkdir()
    target.write_text("of yesterday")
    link.symlink_to(target)
    read_history([tmp_path / "records"], out=link, ui=UI)
    assert link.is_symlink()
    assert "<title>" in target.read_text()


def test_the_chart_is_vega_lite(side: Side) -> None:
    for levels in ([3000.0, 3010.0], [3000.0, 3010.0, 3005.0, 2990.0, 2995.0, 2700.0, 2710.0, 2690.0, 2705.0]):
        (history,) = collect_histories(results_of(side, levels))
        check_vega_lite(history_chart(history))
        assert list_charts(build_history([history]).blocks)


@pytest.mark.parametrize("name", ["history.pdf", "history"])
def test_a_form_that_is_not_known(tmp_path: Path, name: str) -> None:
    with pytest.raises(SpecError, match="none of the forms"):
        read_history([tmp_path], out=tmp_path / name, ui=UI)


def test_a_file_that_cannot_be_written_is_refused_before_records_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_record(tmp_path / "one")
    monkeypatch.setattr(history, "identify_record", lambda _: pytest.fail("a record is read"))
    (tmp_path / "folder.html").mkdir()
    for out, words in ((tmp_path / "folder.html", "not a file"), (tmp_path / "no/a.html", "there is no folder")):
        with pytest.raises(SpecError, match=f"--out {out}: {words}"):
            read_history([tmp_path], out=out, ui=UI)
    with pytest.raises(HostError, match=r"--out /proc/a\.html: the folder does not allow writing"):
        read_history([tmp_path], out=Path("/proc/a.html"), ui=UI)


def test_no_folder_and_no_records(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is no folder"):
        read_history([tmp_path / "away"], ui=UI)
    with pytest.raises(SpecError, match="no records in"):
        read_history([tmp_path], ui=UI)
