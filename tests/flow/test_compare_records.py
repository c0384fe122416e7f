"""Records side by side: what is refused, what is declared, what may differ, and what stands in each form."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from pgdyno.analyse.records.difference import DifferenceGravity, RecordDifference
from pgdyno.errors import ExitCode, SpecError
from pgdyno.flow.records.compare import RecordsResult, compare_named
from tests.records import RECORDS, WRITING, Change, copy_record, edit, with_setting

FIRST = RECORDS / WRITING


def compare(other: Path) -> RecordsResult:
    return compare_named([FIRST, other])


def differences(result: RecordsResult, standing: DifferenceGravity) -> dict[str, RecordDifference]:
    (comparison,) = result.comparisons
    (pair,) = comparison.pairs
    return {one.subject: one for one in pair.differences if one.standing is standing}


def words(result: RecordsResult, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width, no_color=True)
    console.print(result.to_terminal())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def load(record: dict[str, Any]) -> dict[str, Any]:
    (workload,) = record["plan"]["workloads"]
    return dict(workload)


def change_load(**changed: Any) -> Change:
    return lambda record: record["plan"]["workloads"][0].update(changed)


def test_two_records_of_one_study_are_a_difference_and_no_verdict(tmp_path: Path) -> None:
    result = compare(copy_record(tmp_path / "again"))
    assert result.exit_code is ExitCode.OK
    assert not differences(result, DifferenceGravity.REFUSED)
    (pair,) = result.comparisons[0].pairs
    tps = next(figure for figure in pair.figures if figure.metric == "tps")
    assert tps.ratio is not None
    assert (tps.ratio.value, tps.ratio.n) == (1.0, 2)
    assert tps.ratio.low is not None
    assert tps.ratio.high is not None
    assert tps.ratio.low < 1 < tps.ratio.high
    said = words(result)
    assert "machines that look alike, 29 hours apart, 2 trials each: a difference, not a verdict." in said
    assert "`pgdyno compare` runs both in turn" in said
    assert not {"faster", "slower", "equivalent"} & set(said.split())


def test_arm_machines_of_unlike_cores_are_not_one(tmp_path: Path) -> None:
    def cores(name: str | None) -> Change:
        return lambda record: record["host"].update(cpu_model="aarch64", cpu_core=name)

    names = ("Neoverse-V1", "Neoverse-V2", None)
    paths = [
        copy_record(tmp_path / str(name), at=f"2026-12-0{day}T10:00:00+00:00", study=cores(name))
        for day, name in enumerate(names, start=1)
    ]
    unlike = compare_named(paths[:2])
    assert "different machines" in words(unlike)
    assert "Arm cores" in differences(unlike, DifferenceGravity.FREE)
    earlier = compare_named(paths[1:])
    assert "machines that look alike" in words(earlier), "an earlier record does not name its cores"
    assert "Arm cores" not in differences(earlier, DifferenceGravity.FREE)


def test_one_trial_each_on_different_machines(tmp_path: Path) -> None:
    def bigger(record: dict[str, Any]) -> None:
        record["host"].update(cpu_count=8, cpu_model="Graviton", memory_bytes=4 * record["host"]["memory_bytes"])

    paths = [copy_record(tmp_path / "a"), copy_record(tmp_path / "b", at="2026-12-01T10:00:00+00:00", study=bigger)]
    for path in paths:
        shutil.rmtree(path / "trials" / "0002")
    result = compare_named(paths)
    assert "different machines, one trial each: a difference, not a verdict." in words(result)
    assert "pgdyno compare" not in words(result)
    assert {"trials"} <= set(differences(result, DifferenceGravity.DECLARED))
    free = differences(result, DifferenceGravity.FREE)
    assert {"CPUs", "memory"} <= set(free)
    figures = {figure.metric: figure for figure in result.comparisons[0].pairs[0].figures}
    assert figures["tps"].ratio is not None
    assert (figures["tps"].ratio.value, figures["tps"].ratio.low) == (1.0, None)
    # Four times the CPUs and the same TPS.
    assert figures["tps_per_cpu"].ratio is not None
    assert figures["tps_per_cpu"].ratio.value == pytest.approx(0.25)


def test_a_refused_record_is_shown_without_ratios_and_the_question_was_wrong(tmp_path: Path) -> None:
    result = compare(copy_record(tmp_path / "other", study=change_load(clients=8), trial=with_setting("fsync", "off")))
    assert result.exit_code is ExitCode.SPEC
    assert set(differences(result, DifferenceGravity.REFUSED)) == {"clients", "durability"}
    # The figures stand, and no ratio does.
    (pair,) = result.comparisons[0].pairs
    assert all(figure.ratio is None for figure in pair.figures)
    assert pair.figures[0].first.value is not None
    said = words(result)
    assert "B is not compared with A, for 2 reasons" in said
    assert (
        "refused: clients: 4 in A, 8 in B; TPS and latency follow the number of clients. Instead: --clients 4" in said
    )
    assert "×" not in said
    assert json.loads(result.to_json())["is_refused"] is True


def test_settings_that_are_close_differ(tmp_path: Path) -> None:
    # 1234 and 1237.5 MB
    paths = [
        copy_record(tmp_path / pages, at=at, trial=with_setting("shared_buffers", pages, "16384", "8kB"))
        for pages, at in (("157952", "2026-11-22T10:00:00+00:00"), ("158400", "2026-11-23T10:00:00+00:00"))
    ]
    found = differences(compare_named(paths), DifferenceGravity.FREE)["shared_buffers"]
    assert (found.first, found.other) == ("1234MB", "1267200kB")


def test_scripts_of_ones_own_are_known_by_their_content(tmp_path: Path) -> None:
    own = change_load(scripts=[["/home/a/pay.sql", 1]])
    paths = [copy_record(tmp_path / name, at=f"2026-11-2{day}T10:00:00+00:00", study=own) for day, name in ((2, "a"), (3, "b"))]  # fmt: skip
    result = compare_named(paths)
    assert "scripts' text" in differences(result, DifferenceGravity.DECLARED)
    kept = [keep_script(path, "SELECT 1;") for path in paths]
    result = compare_named(paths)
    assert "scripts' text" not in differences(result, DifferenceGravity.DECLARED)
    assert not differences(result, DifferenceGravity.REFUSED)
    kept[1].write_text("SELECT 2;")
    assert "scripts" in differences(compare_named(paths), DifferenceGravity.REFUSED)


def keep_script(path: Path, text: str) -> Path:
    from pgdyno.record.store import RecordStore

    store = RecordStore(path)
    (place,) = store.name_scripts(store.read_record().plan).values()
    (path / place).parent.mkdir(parents=True)
    (path / place).write_text(text)
    return path / place


def test_records_with_nothing_in_common_are_refused_and_named() -> None:
    result = compare_named([FIRST, RECORDS / "v1-pg15"])
    assert result.exit_code is ExitCode.SPEC
    assert "Only in A: tpcb-like." in words(result)
    assert "Only in B: simple-update." in words(result)
    assert "refused: the records have no comparable load" in words(result)


def test_the_same_record_twice_or_a_copy_of_it_is_no_comparison(tmp_path: Path) -> None:
    shutil.copytree(FIRST, tmp_path / "copy")
    for other in (FIRST, FIRST / "record.json", tmp_path / "copy"):
        with pytest.raises(SpecError, match="are one record"):
            compare(other)


def test_bad_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="two records or more"):
        compare_named([FIRST])
    with pytest.raises(SpecError, match="is not a record"):
        compare(tmp_path)
    newer = copy_record(tmp_path / "newer", study=lambda record: record.update(format_version=99))
    with pytest.raises(SpecError, match="newer format 99"):
        compare(newer)
    empty = copy_record(tmp_path / "empty")
    shutil.rmtree(empty / "trials")
    with pytest.raises(SpecError, match="no trial that ended"):
        compare(empty)
    failed = copy_record(
        tmp_path / "failed",
        trial=lambda trial: trial.update(status="failed", error={"fact": "the server went away"}),
    )
    with pytest.raises(SpecError, match="no trial with a result"):
        compare(failed)
    with pytest.raises(SpecError, match="none of the forms"):
        compare_named([FIRST, copy_record(tmp_path / "fine")], out=tmp_path / "a.pdf")
    with pytest.raises(SpecError, match=r"--out .*/no/a\.md: there is no folder"):
        compare_named([FIRST, empty], out=tmp_path / "no" / "a.md")
    damaged = copy_record(tmp_path / "damaged")
    (damaged / "record.json").write_text("{")
    with pytest.raises(SpecError, match="damaged"):
        compare(damaged)


def test_a_record_cut_short_and_without_samplers_is_compared_by_what_it_has(tmp_path: Path) -> None:
    other = copy_record(tmp_path / "cut")
    (other / "trials" / "0002" / "trial.json").unlink()
    for name in ("os.parquet", "server.parquet"):
        (other / "trials" / "0001" / name).unlink()
    (other / "trials" / "0001" / "transactions" / "summary.json").unlink()
    result = compare(other)
    figures = {figure.metric: figure for figure in result.comparisons[0].pairs[0].figures}
    assert figures["tps"].other.n == 1
    # Without its log it has no latencies; nothing is invented.
    assert figures["latency_p99_ms"].other.value is None
    assert figures["latency_p99_ms"].ratio is not None
    assert figures["latency_p99_ms"].ratio.value is None
    assert "too few" not in words(result)
    msgspec.json.decode(result.to_json())


def test_every_form_says_the_same(tmp_path: Path) -> None:
    other = copy_record(tmp_path / "other")
    result = compare_named([FIRST, other], out=tmp_path / "side.md")
    markdown = (tmp_path / "side.md").read_text()
    compare_named([FIRST, other], out=tmp_path / "side.json")
    document = json.loads((tmp_path / "side.json").read_bytes())
    compare_named([FIRST, other], out=tmp_path / "side.html")
    page = (tmp_path / "side.html").read_text()
    sentence = document["against_first"][0]["pairs"][0]["sentence"]
    assert sentence in markdown
    assert "a difference, not a verdict." in page
    assert "side by side" in page
    assert '"dots"' in page
    tps = document["against_first"][0]["pairs"][0]["figures"][0]
    assert tps["metric"] == "tps"
    assert tps["ratio"]["value"] == 1.0
    assert [record["name"] for record in document["records"]] == ["A", "B"]
    assert "| TPS |" in markdown
    assert words(result).count("TPS") >= 2


def test_a_name_with_markup_stays_text(tmp_path: Path) -> None:
    other = copy_record(tmp_path / "a*b<i>", study=lambda record: record["host"].update(cpu_model="<b>|*x*"))
    compare_named([FIRST, other], out=tmp_path / "side.md")
    compare_named([FIRST, other], out=tmp_path / "side.html")
    assert "\\<b>\\|\\*x\\*" in (tmp_path / "side.md").read_text()
    assert "<b>|" not in (tmp_path / "side.html").read_text()


def test_a_third_record_stands_against_the_first_one_too(tmp_path: Path) -> None:
    fine = copy_record(tmp_path / "fine")
    other = copy_record(tmp_path / "other", at="2026-11-25T10:00:00+00:00", study=change_load(clients=16))
    result = compare_named([FIRST, fine, other])
    assert [one.is_refused for one in result.comparisons] == [False, True]
    assert result.exit_code is ExitCode.SPEC
    said = words(result)
    assert "B reaches ×1.0" in said
    assert "C is not compared with A, for one reason" in said


def test_edit_changes_what_is_compared(tmp_path: Path) -> None:
    """The helper itself: a change that changes nothing would let every other test pass."""
    other = copy_record(tmp_path / "other")
    edit(other / "record.json", change_load(clients=8))
    assert load(json.loads((other / "record.json").read_text()))["clients"] == 8
    assert load(json.loads((FIRST / "record.json").read_text()))["clients"] == 4


def test_different_machines_are_told_by_how_much_each_carries(tmp_path: Path) -> None:
    def priced(instance: str, cpus: int) -> Change:
        def change(record: dict[str, Any]) -> None:
            record["host"].update(cpu_count=cpus, cpu_model=instance)
            record["study"]["host"] = {"instance": instance}

        return change

    paths = [
        copy_record(tmp_path / "small", study=priced("c7g.large", 2)),
        copy_record(tmp_path / "large", at="2026-12-01T10:00:00+00:00", study=priced("c7g.xlarge", 4)),
    ]
    result = compare_named(paths)
    if differences(result, DifferenceGravity.REFUSED):
        pytest.fail(f"refused: {differences(result, DifferenceGravity.REFUSED)}")
    said = words(result)
    assert "Recommended machine by load" in said
    (tiers,) = json.loads(result.to_json())["tiers"].values()
    # The same trials on both: the second carries as much.
    assert [tier["host"]["name"] for tier in tiers["tiers"]] == ["A"]
    assert tiers["left_out"]["B"].startswith("A carries as much")
    out = tmp_path / "tiers.md"
    compare_named(paths, out=out)
    assert "## Recommended machine by load" in out.read_text()
    page = tmp_path / "tiers.html"
    compare_named(paths, out=page)
    assert "Recommended machine by load" in page.read_text()


def test_one_machine_has_no_tiers(tmp_path: Path) -> None:
    result = compare(copy_record(tmp_path / "again"))
    assert json.loads(result.to_json())["tiers"] == {}
    assert "Which machine" not in words(result)
