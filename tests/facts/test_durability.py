"""Which settings are said to give up what."""

from __future__ import annotations

import pytest

from pgdyno.facts.durability import Loss, durability_given_up, explain_alike, find_given_up
from pgdyno.facts.durability import _rules as rules
from pgdyno.facts.gucs import VarType, find_guc
from pgdyno.facts.versions import TRIED_MAJORS
from tests.rows import each_row

STANDBY = {"synchronous_standby_names": "first 1 (a)"}


@each_row(
    [
        ({}, []),
        ({"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "wal_sync_method": "fdatasync"}, []),
        ({"fsync": "off"}, [("fsync", "off", Loss.DURABILITY)]),
        ({"FSYNC": "of"}, [("fsync", "off", Loss.DURABILITY)]),
        ({"fsync": "0"}, [("fsync", "off", Loss.DURABILITY)]),
        ({"fsync": "F"}, [("fsync", "off", Loss.DURABILITY)]),
        ({"fsync": "o"}, []),
        ({"full_page_writes": "no"}, [("full_page_writes", "off", Loss.DURABILITY)]),
        ({"synchronous_commit": "False"}, [("synchronous_commit", "off", Loss.DURABILITY)]),
        ({"synchronous_commit": "of"}, []),
        ({"synchronous_commit": "local"}, []),
        ({"synchronous_commit": "remote_write", "synchronous_standby_names": ""}, []),
        ({"synchronous_commit": "local", **STANDBY}, [("synchronous_commit", "local", Loss.DURABILITY)]),
        ({"synchronous_commit": "remote_write", **STANDBY}, [("synchronous_commit", "remote_write", Loss.DURABILITY)]),
        ({"synchronous_commit": "remote_apply", **STANDBY}, []),
        ({"wal_sync_method": "OPEN_DATASYNC"}, [("wal_sync_method", "open_datasync", Loss.DOUBT)]),
        ({"data_sync_retry": "1"}, [("data_sync_retry", "on", Loss.DOUBT)]),
    ]
)
def test_durability_given_up(settings: dict[str, str], expected: list[tuple[str, str, Loss]]) -> None:
    for major in TRIED_MAJORS:
        found = durability_given_up(settings, major)
        assert [(one.setting, one.value, one.kind) for one in found] == expected
        assert all(one.is_durability and "durability" in one.label for one in found)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("data_checksums", "off", Loss.DETECTION),
        ("zero_damaged_pages", "on", Loss.DETECTION),
        ("ignore_checksum_failure", "yes", Loss.DETECTION),
        ("wal_level", "minimal", Loss.RECOVERY),
        ("session_replication_role", "replica", Loss.INTEGRITY),
        ("autovacuum", "off", Loss.UPKEEP),
    ],
)
def test_what_else_is_given_up_is_not_called_durability(name: str, value: str, kind: Loss) -> None:
    assert [one.kind for one in find_given_up({name: value}, 18)] == [kind]
    assert durability_given_up({name: value}, 18) == ()


def test_the_gravest_comes_first_and_labels_say_what_a_crash_costs() -> None:
    settings = {"autovacuum": "off", "synchronous_commit": "off", "fsync": "off"}
    assert [one.setting for one in find_given_up(settings, 18)] == ["fsync", "synchronous_commit", "autovacuum"]
    labels = [one.label for one in durability_given_up(settings, 18)]
    assert labels == [
        "gives up durability: a crash of the machine may lose the whole cluster",
        "gives up durability: a crash loses the last transactions (up to 3 × wal_writer_delay)",
    ]


def test_levels_of_commit_are_alike_without_a_synchronous_standby() -> None:
    assert explain_alike("synchronous_commit", "on", "local", {}, 18) is not None
    assert explain_alike("Synchronous_Commit", "remote_write", "true", {"jit": "off"}, 15) is not None
    assert explain_alike("synchronous_commit", "on", "off", {}, 18) is None
    assert explain_alike("synchronous_commit", "on", "local", STANDBY, 18) is None
    assert explain_alike("jit", "on", "on", {}, 18) is None


def test_every_rule_speaks_of_a_value_that_servers_show() -> None:
    for rule in (*rules().gives_up, *rules().alike):
        for major in TRIED_MAJORS:
            guc = find_guc(rule.setting, major)
            assert guc is not None
            shown = {"on", "off"} if guc.vartype is VarType.BOOL else set(guc.values)
            assert set(rule.values) <= shown, rule.setting
