"""The files and the exit code of a gate, from a report that is already there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from pgdyno.analyse.comparison.parts import PartComparison
from pgdyno.errors import ExitCode, HostError, SpecError
from pgdyno.flow.gate import GatedReport, apply_gate, check_gate, plan_gate
from pgdyno.flow.report import StudyReport
from tests.report.build import build_report
from tests.report.build_comparison import build_client_sweep, build_paired, build_product, build_switchback
from tests.report.build_search import build_search


def test_files_are_written_whether_or_not_the_gate_fails(tmp_path: Path) -> None:
    for number, (report, text, code) in enumerate(
        [(build_switchback(), "slower", 1), (build_paired(), "slower", 0), (build_paired(), "inconclusive", 1)]
    ):
        junit, bmf = tmp_path / f"{number}.xml", tmp_path / f"{number}.json"
        gated = apply_gate(plan_gate([text], junit=junit, bmf=bmf), StudyReport(report=report))
        assert gated.exit_code == code
        failures = int(ET.fromstring(junit.read_bytes()).attrib["failures"])
        assert bool(failures) == bool(code)
        assert "tpcb-like: " in next(iter(json.loads(bmf.read_bytes())))
        assert gated.to_json() == StudyReport(report=report).to_json()
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".json", ".json", ".xml", ".xml", ".xml"]


def test_a_load_in_parts_is_judged_by_its_parts_and_not_by_their_sum(tmp_path: Path) -> None:
    report, junit, bmf = build_switchback(), tmp_path / "a.xml", tmp_path / "a.json"
    slower, same = report.analysis.comparisons
    named = msgspec.structs.replace(slower, workload="part writers of select-only")
    parts = (PartComparison(workload="select-only", part="writers", comparison=named),)

    def judge(*wholes: object) -> GatedReport:
        analysis = msgspec.structs.replace(report.analysis, comparisons=wholes, part_comparisons=parts)
        of = StudyReport(report=msgspec.structs.replace(report, analysis=analysis))
        return apply_gate(plan_gate(["tps<-10%"], junit=junit, bmf=bmf), of)

    gated = judge(same)
    assert gated.result is not None
    assert {one.workload for one in gated.result.failures} == {"part writers of select-only"}
    assert gated.result.false_ratio == report.record.plan.experiment.alpha  # type: ignore[union-attr]
    cases = [
        (one.attrib["classname"], one.attrib["name"]) for one in ET.fromstring(junit.read_bytes()).iter("testcase")
    ]
    assert any(of == "pgdyno.part writers of select-only" and name.endswith(": tps") for of, name in cases)
    assert any(of == "pgdyno.select-only" and name.endswith("wal_bytes") for of, name in cases)
    assert not any(of == "pgdyno.select-only" and name.endswith(": tps") for of, name in cases)
    assert any(name.startswith("part writers of select-only: ") for name in json.loads(bmf.read_bytes()))
    # Loads without parts are a family of their own.
    beside = judge(slower, same)
    assert beside.result is not None
    assert beside.result.false_ratio == 2 * gated.result.false_ratio


def test_without_conditions_there_is_no_gate(tmp_path: Path) -> None:
    report = StudyReport(report=build_switchback())
    assert apply_gate(plan_gate([], junit=None, bmf=None), report).result is None
    files = apply_gate(plan_gate([], junit=tmp_path / "a.xml", bmf=None), report)
    assert files.result is None
    assert files.exit_code is ExitCode.OK
    assert (tmp_path / "a.xml").exists()


def test_a_link_keeps_its_place_and_an_old_file_its_content_until_the_new_one_is_whole(tmp_path: Path) -> None:
    (tmp_path / "real.xml").write_text("old")
    (tmp_path / "link.xml").symlink_to(tmp_path / "real.xml")
    gate = plan_gate([], junit=tmp_path / "link.xml", bmf=None)
    assert (tmp_path / "real.xml").read_text() == "old"
    apply_gate(gate, StudyReport(report=build_paired()))
    assert (tmp_path / "link.xml").is_symlink()
    assert (tmp_path / "real.xml").read_bytes().startswith(b"<?xml")


def test_a_file_that_can_no_longer_be_written(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    gate = plan_gate(["slower"], junit=tmp_path / "gone" / "a.xml", bmf=None)
    (tmp_path / "gone").rmdir()
    with pytest.raises(HostError) as caught:
        apply_gate(gate, StudyReport(report=build_switchback()))
    assert "pgdyno report pgdyno-records/20261121-0930-compare" in caught.value.hint
    assert caught.value.detail == f"{tmp_path}/gone/a.xml: No such file or directory"


def test_files_that_cannot_be_written_are_refused_at_once(tmp_path: Path) -> None:
    for path, words in (
        (tmp_path, "not a file"),
        (Path("/dev/null"), "not a file"),
        (tmp_path / "no" / "a.xml", "there is no folder"),
    ):
        with pytest.raises(SpecError, match=words):
            plan_gate([], junit=None, bmf=path)
    with pytest.raises(SpecError, match="one file"):
        plan_gate([], junit=tmp_path / "a", bmf=tmp_path / "." / "a")
    # Root may write to all folders, it seems, and to this one nobody can.
    for option in ("junit", "bmf"):
        with pytest.raises(HostError, match=f"--{option} /proc/x: the folder does not allow writing"):
            plan_gate([], **{"junit": None, "bmf": None, option: Path("/proc/x")})
    if os.geteuid():
        tmp_path.chmod(0o500)
        with pytest.raises(HostError, match="does not allow writing"):
            plan_gate([], junit=tmp_path / "a.xml", bmf=None)
        tmp_path.chmod(0o700)


def test_a_study_without_verdicts_is_refused(tmp_path: Path) -> None:
    gate, none = plan_gate(["slower"], junit=None, bmf=None), plan_gate([], junit=None, bmf=None)
    for report, words in (
        (build_report(), "a study without variants"),
        (build_search("settled"), "a search for a rate"),
        (build_client_sweep(), "a sweep over clients"),
    ):
        with pytest.raises(SpecError, match=f"{words} has no verdicts"):
            check_gate(gate, report.record.study)
        check_gate(none, report.record.study)
    for report in (build_paired(), build_product()):
        check_gate(gate, report.record.study)
