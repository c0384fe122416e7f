from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pgdyno.errors import SpecError
from pgdyno.plan.pin import format_pinned, pin_study
from pgdyno.plan.plan import Machine, Plan, plan_study
from pgdyno.spec.read import make_study, parse_study, read_study
from pgdyno.spec.study import Study
from pgdyno.spec.variant import ExperimentSpec

HERE = Machine(version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=80_000_000_000)
ELSEWHERE = Machine(version_major=18, cpu_count=64, memory_bytes=512 << 30, disk_free_bytes=8_000_000_000_000)
OPEN = {"workload": [{"name": "tpcb-like"}, {"name": "select-only", "clients": 3}]}
COMPARISON = {**OPEN, "variant": [{}, {"settings": {"commit_delay": 50}}], "sweep": []}
SWEEP = {**OPEN, "sweep": [{"name": "clients", "levels": [1, 8]}]}


def decided(plan: Plan) -> tuple[object, ...]:
    return plan.scale, plan.workloads, plan.experiment and (plan.experiment.design, plan.experiment.budget_s)


@pytest.mark.parametrize("raw", [OPEN, COMPARISON, SWEEP], ids=["open", "comparison", "sweep"])
def test_a_pinned_study_is_the_same_on_another_machine(raw: dict[str, object]) -> None:
    asked = make_study(raw, source="test", folder=Path())
    plan = plan_study(asked, HERE)
    assert decided(plan_study(asked, ELSEWHERE)) != decided(plan)
    text = format_pinned(asked, plan, scripts={})
    again = parse_study(text, source="study.toml", folder=Path())
    assert decided(plan_study(again, ELSEWHERE)) == decided(plan)
    for choice in plan.choices:
        assert f"# {choice.name} = {choice.value}: {choice.reason}\n" in text


def test_a_choice_is_one_line_of_comment() -> None:
    kept = {"max_slot_wal_keep_size": "20GB\n"}
    asked = make_study({**OPEN, "server": {"standbys": 1, "settings": kept}}, source="test", folder=Path())
    again = parse_study(format_pinned(asked, plan_study(asked, HERE), scripts={}), source="study.toml", folder=Path())
    assert again.server.settings["max_slot_wal_keep_size"] == "20GB\n"


def test_nothing_but_what_was_open_is_changed() -> None:
    asked = make_study({**OPEN, "data": {"scale": 7}}, source="test", folder=Path())
    plan = plan_study(asked, HERE)
    pinned = pin_study(asked, plan, scripts={})
    freed = [
        msgspec.structs.replace(w, clients=o.clients, threads=o.threads)
        for w, o in zip(pinned.workload, asked.workload, strict=True)
    ]
    assert msgspec.structs.replace(pinned, workload=tuple(freed)) == asked


@pytest.mark.parametrize(
    ("table", "kept"), [({}, {}), ({"scaling": {}}, {"detect": "5%"}), ({"search": {"latency": "2s"}}, {"minutes": 50})]
)
def test_what_has_no_effect_is_not_pinned(tmp_path: Path, table: dict[str, object], kept: dict[str, object]) -> None:
    experiment = {"minutes": 50, "detect": "5%", **({} if "search" in table else {"design": "paired"})}
    asked = make_study({**OPEN, **table, "experiment": experiment}, source="bench", folder=Path())
    path = tmp_path / "study.toml"
    path.write_text(format_pinned(asked, plan_study(asked, HERE), scripts={}))
    assert read_study(path).experiment == ExperimentSpec(**kept)  # type: ignore[arg-type]


def test_scripts_are_those_in_the_record(tmp_path: Path) -> None:
    (tmp_path / "pay.sql").write_text("SELECT 1;\n")
    load = {"name": "mixed", "scripts": ["pay.sql@3", "select-only@7"], "clients": 2, "threads": 1}
    asked: Study = make_study({"workload": [load], "data": {"scale": 1}}, source="test", folder=tmp_path)
    plan = plan_study(asked, HERE)
    text = format_pinned(asked, plan, scripts={str(tmp_path / "pay.sql"): "scripts/1/pay.sql"})
    assert text.startswith("# The study as it was run.\n\n")
    record = tmp_path / "moved"
    (record / "scripts" / "1").mkdir(parents=True)
    (record / "scripts" / "1" / "pay.sql").write_text("SELECT 1;\n")
    again = parse_study(text, source="study.toml", folder=record)
    assert again.workload[0].weighted_scripts == ((f"{record}/scripts/1/pay.sql", 3), ("select-only", 7))


@pytest.mark.parametrize("table", [{"variant": [{"server": 17}, {"server": 18}]}, {"search": {"latency": "2s"}}])
def test_long_trials_have_the_most_minutes_of_a_study_or_are_refused(table: dict[str, object]) -> None:
    def plan(duration: str, **tables: object) -> Plan:
        load, trials = [{"name": "tpcb-like"}], {"duration": duration}
        asked = make_study({"workload": load, "trials": trials, **table, **tables}, source="test", folder=Path())
        planned = plan_study(asked, HERE)
        again = parse_study(format_pinned(asked, planned, scripts={}), source="study.toml", folder=Path())
        assert decided(plan_study(again, HERE)) == decided(planned)
        return planned

    longest = plan("8h")
    assert longest.predicted_s <= 14 * 86_400
    (minutes,) = [choice for choice in longest.choices if choice.name == "minutes"]
    assert (minutes.value, minutes.reason[:21]) == ("20160", "14 days are the most ")
    with pytest.raises(SpecError, match="20160 minutes are too few") as caught:
        plan("7d")
    assert caught.value.hint.startswith("shorter trials, ")
