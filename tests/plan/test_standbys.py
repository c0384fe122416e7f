"""Which commits wait for a study's standbys, what such a study is refused, and the room that its copies take."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest

from pgdyno.errors import HostError, SpecError
from pgdyno.plan.pin import pin_study
from pgdyno.plan.plan import Machine, Plan, plan_study
from pgdyno.plan.standbys import count_waited
from pgdyno.spec.read import make_study
from pgdyno.spec.study import Study
from pgdyno.spec.variant import DesignKind

MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**11)
NAMES, COMMIT = "synchronous_standby_names", "synchronous_commit"


def make(
    *values: str,
    standbys: int = 1,
    settings: dict[str, object] | None = None,
    workload: str = "tpcb-like",
    **tables: object,
) -> Study:
    raw: dict[str, object] = {
        "server": {"standbys": standbys, "settings": settings or {}},
        "workload": [{"name": workload}],
        "variant": [{"settings": {COMMIT: value}} for value in values],
        **tables,
    }
    return make_study(raw, source="test", folder=Path("/"))


def list_names(plan: Plan) -> set[object]:
    assert plan.experiment is not None
    return {variant.server.settings.get(NAMES) for variant in plan.experiment.variants}


def test_commits_wait_for_any_standby_where_a_variant_asks_for_that_and_none_says_for_whom() -> None:
    rows = [
        (("local", "on"), {}, {"*"}),
        (("off", "remote_apply"), {}, {"*"}),
        (("off", "true"), {}, {"*"}),
        (("off", "local"), {}, {None}),
        # The built-in value of synchronous_commit is on, too: nobody asked for it.
        (("off", "local"), {COMMIT: "remote_write"}, {"*"}),
        (("local", "on"), {NAMES: "ANY 1 (standby1)"}, {"ANY 1 (standby1)"}),
        (("local", "on"), {NAMES: ""}, {""}),
    ]
    for values, settings, expected in rows:
        plan = plan_study(make(*values, settings=settings), MACHINE)
        assert list_names(plan) == expected, (values, settings)
        told = {choice.name: choice.value for choice in plan.choices}
        assert told["standbys"] == "standby1"
        assert told.get(NAMES) == ("*" if expected == {"*"} else None), (values, settings)
        assert ("commits that wait for a standby" in told) == (expected in ({None}, {""})), (values, settings)
    for values, reasons in (
        (("local", "off"), []),
        (("local", "on"), []),
        (
            ("off", "remote_apply"),
            [
                "without standbys, commits with remote_apply wait for the server's own flush only, as with on; --standbys 1 starts one"
            ],
        ),
    ):
        plan = plan_study(make(*values, standbys=0), MACHINE)
        assert list_names(plan) == {None}
        told = [choice.reason for choice in plan.choices if choice.name == "commits that wait for a standby"]
        assert told == reasons, values


def test_the_pinned_study_says_for_whom_commits_wait() -> None:
    study = make("local", "on")
    assert pin_study(study, plan_study(study, MACHINE), scripts={}).server.settings == {NAMES: "*"}
    alone = make_study(
        {"server": {"standbys": 2, "settings": {COMMIT: "on"}}, "workload": [{"name": "tpcb-like"}]},
        source="test",
        folder=Path("/"),
    )
    plan = plan_study(alone, MACHINE)
    assert pin_study(alone, plan, scripts={}).server.settings == {COMMIT: "on", NAMES: "*"}
    assert {choice.name: choice.value for choice in plan.choices}["standbys"] == "standby1 to standby2"


def test_synchronous_modes_alternate_and_live_pairs_are_refused() -> None:
    plan = plan_study(make("local", "on", "remote_apply"), MACHINE)
    assert plan.experiment is not None
    assert plan.experiment.design is DesignKind.SWITCHBACK
    with pytest.raises(SpecError, match="cannot be compared live") as caught:
        plan_study(make("local", "on", experiment={"design": "live"}), MACHINE)
    assert "standbys of its own" in caught.value.detail
    paired = plan_study(make("local", "on", experiment={"design": "paired"}), MACHINE)
    assert paired.experiment is not None
    assert paired.experiment.design is DesignKind.PAIRED


def test_what_standbys_cannot_have_is_refused_before_loading() -> None:
    rows = [
        (make("local", "on", data={"restore": "none"}), "need their data copied"),
        (make("local", "on", data={"restore": "command", "restore_command": "/bin/true"}), "need their data copied"),
        (make("local", "on", workload="init"), "without standbys"),
        (make("local", "on", settings={"wal_level": "minimal"}), "cannot stream"),
        (make("local", "on", settings={"max_wal_senders": 1}, standbys=2), "cannot stream"),
        (make("local", "on", settings={"max_replication_slots": "0"}), "cannot stream"),
        (make("local", "on", settings={NAMES: "db2"}), "would wait forever"),
        (make("local", "on", settings={NAMES: "FIRST 2 (*)"}), "would wait forever"),
        (make("local", "on", standbys=0, settings={NAMES: "*"}), "would wait forever"),
    ]
    for study, words in rows:
        with pytest.raises(SpecError) as caught:
            plan_study(study, MACHINE)
        assert words in caught.value.fact, study
        assert caught.value.detail, study
        assert caught.value.hint, study
    # Of a value that is no number, PostgreSQL's catalogue says so.
    plan_study(make("local", "on", settings={"max_wal_senders": "²"}), MACHINE)
    # Commits that wait for no standby do not care for its name.
    plan_study(make("local", "off", settings={NAMES: "db2"}), MACHINE)


def test_the_syntax_of_synchronous_standby_names_is_read() -> None:
    rows = [
        ("", 2, (0, 0)),
        ("*", 2, (1, 2)),
        ("standby1", 2, (1, 1)),
        ('"standby2", other', 2, (1, 1)),
        ("2 (standby1, standby2)", 2, (2, 2)),
        ("any 2 (*)", 3, (2, 3)),
        ("FIRST 1 (other)", 1, (1, 0)),
    ]
    for text, standbys, expected in rows:
        assert count_waited(text, standbys) == expected, text


def test_the_copies_of_standbys_are_counted() -> None:
    # Each cluster has the WAL that loading left, as much as the data.
    for standbys, needed in ((0, 3.0e9 + 4 * 100 * 15.7e6), (2, 3.0e9 + 2 * 1.1e9 + 2.2e9 + 8 * 100 * 15.7e6)):
        study = make("local", "on", standbys=standbys, data={"scale": 100})
        if standbys == 0:
            study = make("local", "off", standbys=0, data={"scale": 100})
        enough = Machine(version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=round(needed * 1.001))
        less = Machine(version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=round(needed * 0.999))
        plan = plan_study(study, enough)
        with pytest.raises(HostError, match="does not fit") as caught:
            plan_study(study, less)
        assert ("2 standbys" in caught.value.detail) is (standbys == 2)
        assert plan.between is not None
        assert plan.between.server_s == 2.0 + standbys


def test_the_home_of_a_variant_has_room_for_its_standbys_and_the_wal_kept_for_them() -> None:
    named = make(data={"scale": 10}, variant=[{"home": "/a"}, {"home": "/b"}])
    # A server and its standby with their data and WAL, and what the one keeps for the other.
    needed = 2 * (10 * 15.7e6 + 1.1e9 + 10 * 15.7e6) + 2.2e9
    for free_bytes, fits in ((needed * 1.001, True), (needed * 0.999, False)):
        machine = msgspec.structs.replace(MACHINE, homes_free_bytes={"/b": round(free_bytes)})
        with nullcontext() if fits else pytest.raises(HostError, match="do not fit on the disk of /b"):
            plan_study(named, machine)
