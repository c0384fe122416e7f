"""The journal of a folder: what is read from reports that are there, what is analysed anew, what cannot be read."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from pgdyno.analyse.comparison.verdict import Verdict, VerdictKind
from pgdyno.analyse.estimate import Estimate
from pgdyno.analyse.types import PartAnalysis
from pgdyno.flow.records.journal import read_journal
from pgdyno.flow.report import compose_report
from pgdyno.record.store import RecordStore
from pgdyno.report.documents.report import render_json
from pgdyno.report.sections.records.journal import JournalEntry, StudyJournal, find_best
from pgdyno.report.sections.records.kept import (
    ProvenGain,
    Retest,
    describe_answers,
    list_gains,
    list_retests,
    parse_kept,
)
from pgdyno.spec.study import ServerSpec, Study, WorkloadSpec
from pgdyno.spec.table import QueryMode
from pgdyno.spec.variant import ExperimentSpec, VariantSpec
from tests.records import Change, copy_record, edit
from tests.report.build_comparison import Effect, build_client_sweep, build_paired, build_split, compose
from tests.report.build_search import build_search


def words(folder: Path) -> str:
    console = Console(file=io.StringIO(), width=120, no_color=True)
    console.print(read_journal(folder).to_terminal())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def journal_of(folder: Path) -> StudyJournal:
    return read_journal(folder).journal


def write_report(record: Path) -> None:
    (record / "report.json").write_bytes(compose_report(RecordStore(record)).to_json())


def tamper(record: Path, tps: float, **report: Any) -> None:
    """Change what a record's report.json answers, so that one sees whether it is read."""

    def change(document: dict[str, Any]) -> None:
        document["workloads"][0]["tps"].update(value=tps, low=None, high=None)
        document.update(report)

    edit(record / "report.json", change)


def test_a_report_that_fits_its_record_is_read_and_not_written_again(tmp_path: Path) -> None:
    record = copy_record(tmp_path / "one")
    write_report(record)
    tamper(record, 123456.0)
    before = (record / "report.json").read_bytes()
    (entry,) = journal_of(tmp_path).entries
    assert entry.answers == ("tpcb-like: 123,000 TPS, n = 2",)
    assert (entry.question, entry.trials_finished_count) == ("How fast is this machine's PostgreSQL?", 2)
    assert (record / "report.json").read_bytes() == before


def test_an_interval_that_is_too_wide_is_told_and_not_left_out(tmp_path: Path) -> None:
    record = copy_record(tmp_path / "one")
    write_report(record)
    edit(record / "report.json", lambda one: one["workloads"][0]["tps"].update(value=7200.0, low=3100.0, high=17000.0))
    (entry,) = journal_of(tmp_path).entries
    assert entry.answers == ("tpcb-like: 7,200 TPS (3,100 – 17,000: too wide), n = 2",)


@pytest.mark.parametrize("stale", ["version", "trials", "damaged", "other", "none"])
def test_a_report_that_does_not_fit_is_not_believed(tmp_path: Path, stale: str) -> None:
    record = copy_record(tmp_path / "one")
    if stale != "none":
        write_report(record)
        tamper(record, 123456.0, **({"version": 99} if stale == "version" else {}))
    if stale == "trials":
        shutil.rmtree(record / "trials" / "0002")
    if stale in {"damaged", "other"}:
        (record / "report.json").write_text("{" if stale == "damaged" else '{"version": 1}')
    (entry,) = journal_of(tmp_path).entries
    (answer,) = entry.answers
    assert "123,000" not in answer
    assert answer.endswith(f"n = {1 if stale == 'trials' else 2}")
    # Looking does not write.
    assert (record / "report.json").exists() is (stale != "none")


def test_records_come_by_machine_and_time_and_those_that_cannot_be_read_last(tmp_path: Path) -> None:
    copy_record(tmp_path / "b-later", at="2026-11-23T01:00:00+09:00")
    copy_record(tmp_path / "c-latest", at="2026-11-22T23:00:00+00:00")
    copy_record(tmp_path / "a-other", study=lambda record: record["host"].update(cpu_count=64))
    newer = copy_record(tmp_path / "d-newer", study=lambda record: record.update(format_version=99))
    damaged = copy_record(tmp_path / "e-damaged")
    (damaged / "trials" / "0001" / "trial.json").write_text("{")
    empty = copy_record(tmp_path / "f-empty")
    shutil.rmtree(empty / "trials")
    journal = journal_of(tmp_path)
    # 01:00 in Tokyo is before 23:00 of the day before in London.
    assert [Path(entry.path).name for entry in journal.entries] == ["a-other", "f-empty", "b-later", "c-latest"]
    assert [Path(one.path).name for one in journal.unreadable] == ["d-newer", "e-damaged"]
    assert "newer format 99" in journal.unreadable[0].problem
    assert "damaged" in journal.unreadable[1].problem
    said = words(tmp_path)
    assert said.index("64 CPUs") < said.index("2 CPUs (AMD EPYC)") < said.index("Unreadable records")
    assert "no trial has ended" in said
    assert str(newer) in said.replace("\n", "") or "d-newer" in said
    assert json.loads(read_journal(tmp_path).to_json())["format"] == "pgdyno-journal"


def called(name: str) -> Change:
    return lambda record: record["host"].update(host_name=name)


def test_a_machine_is_headed_by_its_name_and_another_name_makes_no_other_machine(tmp_path: Path) -> None:
    copy_record(tmp_path / "before", at="2026-11-22T01:00:00+00:00")
    nameless = words(tmp_path).splitlines()[0]
    copy_record(tmp_path / "one", at="2026-11-22T02:00:00+00:00", study=called("alpha"))
    said = words(tmp_path)
    assert said.splitlines()[0] == f"alpha: {nameless}"
    assert "on alpha" not in said
    copy_record(tmp_path / "two", at="2026-11-22T03:00:00+00:00", study=called("beta"))
    entries = journal_of(tmp_path).entries
    assert [entry.host_name for entry in entries] == [None, "alpha", "beta"]
    assert len({entry.machine for entry in entries}) == 1
    said = words(tmp_path)
    assert said.splitlines()[0] == f"alpha, beta: {nameless}"
    assert [
        Path(line.partition(" on ")[0]).name for line in said.splitlines() if line.endswith((" on alpha", " on beta"))
    ] == ["one", "two"]


def test_an_empty_folder_and_none_at_all_say_how_to_begin(tmp_path: Path) -> None:
    assert "no records in" in words(tmp_path)
    assert "the folder above it" in " ".join(words(copy_record(tmp_path / "one")).split())
    # Its folder's name is long where the account's is, and the command then goes on in the next line.
    assert "bench --quick" in " ".join(words(tmp_path / "nowhere").split())


def test_comparisons_sweeps_and_searches_answer_in_a_line(tmp_path: Path) -> None:
    kept = parse_kept(render_json(build_paired()))
    answers = describe_answers(kept)
    assert len(answers) == len({one.workload for one in kept.experiment.comparisons}) if kept.experiment else False
    assert all(any(kind.value in answer for kind in VerdictKind) or "no pair" in answer for answer in answers)
    sweep = describe_answers(parse_kept(render_json(build_client_sweep())))
    assert "TPS is highest at" in sweep[0]
    search = describe_answers(parse_kept(render_json(build_search("settled"))))
    assert "p99 < 20 ms" in search[0]


def test_a_load_in_parts_has_an_answer_for_each_part_and_none_for_their_sum() -> None:
    raw = render_json(build_split())
    (whole,) = json.loads(raw)["experiment"]["comparisons"]
    assert whole["parts"] == ["part tpcb-like of split", "part select-only of split"]
    assert not {"tps", "latency_p95_ms"} & {one["metric"] for one in (*whole["questions"], *whole["noise"])}
    assert "tps" in whole["figures"][0]["estimates"]
    answers = describe_answers(kept := parse_kept(raw))
    assert [one.partition(": ")[0] for one in answers] == whole["parts"]
    assert ("slower" in answers[0], "faster" in answers[1], "inconclusive" in " ".join(answers)) == (True, True, False)
    assert [one.workload for one in list_retests(kept)] == whole["parts"][:1]


def test_a_load_in_parts_that_compares_nothing_shows_the_tps_of_each_and_not_their_sum() -> None:
    report = build_split()
    (whole,) = report.analysis.workloads
    tps = {"tpcb-like": 900.0, "select-only": 30_000.0}
    parts = tuple(
        PartAnalysis(
            name=part.name,
            endpoints=(part.endpoint,),
            clients=part.clients,
            tps=Estimate(value=tps[part.name], low=None, high=None, n=1, unit="tps"),
            latency_ms={},
            failed_count=0,
        )
        for part in whole.load.parts
    )
    whole = msgspec.structs.replace(whole, parts=parts)
    analysis = msgspec.structs.replace(report.analysis, workloads=(whole,), comparisons=(), part_comparisons=())
    document = json.loads(render_json(msgspec.structs.replace(report, analysis=analysis)))
    kept = parse_kept(json.dumps({**document, "experiment": None}).encode())
    assert describe_answers(kept) == (
        "part tpcb-like of split: 900 TPS, n = 1",
        "part select-only of split: 30,000 TPS, n = 1",
    )


def test_noise_that_was_told_apart_proves_nothing() -> None:
    quiet, loud = (parse_kept(render_json(build_paired(is_hard=is_hard))) for is_hard in (False, True))
    assert any("in doubt" in answer for answer in describe_answers(loud))
    assert list_gains(loud) == ()
    assert list_retests(loud) == ()
    assert quiet.experiment is not None
    durable = {variant.name for variant in quiet.experiment.variants if variant.is_durable}
    assert {gain.variant for gain in list_gains(quiet)} <= durable
    assert all(gain.verdict.kind is VerdictKind.FASTER for gain in list_gains(quiet))


def test_only_settings_that_the_reference_has_not_are_proven_and_none_beside_another_difference() -> None:
    own = {"commit_delay": 0, "work_mem": "8MB"}
    variants = (
        VariantSpec(name="reference", settings=own),
        VariantSpec(name="both", settings={**own, "commit_delay": 50}, sysctl={"vm.swappiness": 1}),
        VariantSpec(name="slower", settings={**own, "commit_delay": 1000}),
        VariantSpec(name="prepared", settings=own, mode=QueryMode.PREPARED),
        VariantSpec(name="prepared and more", settings={"commit_delay": 9}, mode=QueryMode.PREPARED),
        VariantSpec(name="small", settings={"commit_delay": 8}, scale=1),
        VariantSpec(name="segments", settings={"commit_delay": 7}, wal_segment_size="64MB"),
        VariantSpec(name="older", settings={"commit_delay": 6}, server=17),
    )
    effects = {one.name: Effect(tps=0.7 if one.name == "slower" else 1.3) for one in variants[1:] if one.name}
    study = Study(
        workload=(WorkloadSpec(name="tpcb-like"),), variant=variants, experiment=ExperimentSpec(minutes=600.0)
    )
    report = compose(study, {"tpcb-like": effects}, rounds=30, noise_ratio=0.01, round_s=60.0)
    kept = parse_kept(render_json(report))
    assert sum("faster" in answer for answer in describe_answers(kept)[0].split("; ")) == 2
    gains, retests = list_gains(kept), list_retests(kept)
    assert [(one.variant, one.settings) for one in gains] == [("both", {"commit_delay": "50", "vm.swappiness": "1"})]
    assert [one.settings for one in retests] == [{"commit_delay": "1000"}]


def test_what_only_the_reference_sets_is_part_of_what_is_proven() -> None:
    """Of several settings the gain may be that of one which the variant leaves out."""
    variants = (
        VariantSpec(name="reference", settings={"jit": "off", "work_mem": "4MB"}, sysctl={"vm.swappiness": 1}),
        VariantSpec(name="more", settings={"work_mem": "64MB"}, sysctl={"vm.swappiness": 1}),
        VariantSpec(name="bare"),
    )
    study = Study(
        server=ServerSpec(settings={"max_wal_size": "2GB", "work_mem": "8MB"}), workload=(WorkloadSpec(name="tpcb-like"),),
        variant=variants, experiment=ExperimentSpec(minutes=600.0),
    )  # fmt: skip
    effects = {name: Effect(tps=1.3) for name in ("more", "bare")}
    report = compose(study, {"tpcb-like": effects}, rounds=30, noise_ratio=0.01, round_s=60.0)
    gains = list_gains(parse_kept(render_json(report)))
    assert {one.variant: one.settings for one in gains} == {
        "more": {"work_mem": "64MB", "jit": "not set"},
        "bare": {"work_mem": "8MB", "jit": "not set", "vm.swappiness": "not set"},
    }


def verdict(effect_ratio: float) -> Verdict:
    return Verdict(
        kind=VerdictKind.FASTER, variant="tuned", metric="tps", n=9, effect_ratio=effect_ratio, low_ratio=0.01,
        high_ratio=1.0, confidence=0.95, delta_ratio=0.03, log10_e_value=3.0, pairs_needed=0, detectable_ratio=0.1,
    )  # fmt: skip


def entry(
    name: str, *, machine: str = "m", gains: tuple[ProvenGain, ...] = (), retests: tuple[Retest, ...] = ()
) -> JournalEntry:
    return JournalEntry(
        path=name, started_at=name, question="?", server="18", machine=machine, trials_finished_count=1,
        answers=(), gains=gains, retests=retests,
    )  # fmt: skip


def gain(effect_ratio: float, workload: str = "tpcb-like", **settings: str) -> ProvenGain:
    return ProvenGain(
        workload=workload, variant="tuned", reference="stock", settings=settings, verdict=verdict(effect_ratio)
    )


def test_what_was_proven_stands_until_the_same_machine_refutes_it() -> None:
    first = entry("1", gains=(gain(0.2, work_mem="8MB"), gain(0.1, wal_compression="lz4")))
    again = entry("2", gains=(gain(0.3, work_mem="8MB"),))
    refuted = entry("3", retests=(Retest(workload="tpcb-like", settings={"wal_compression": "lz4"}),))
    elsewhere = entry("4", machine="n", retests=(Retest(workload="tpcb-like", settings={"work_mem": "8MB"}),))
    other_load = entry("5", retests=(Retest(workload="select-only", settings={"work_mem": "8MB"}),))
    best = find_best([first, again, refuted, elsewhere, other_load])
    assert [(one.path, one.gain.verdict.effect_ratio) for one in best] == [("2", 0.3)]
    assert [one.path for one in find_best([first, refuted, first])] == ["1", "1"]
