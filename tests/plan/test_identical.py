from __future__ import annotations

import pytest

from pgdyno.plan.identical import find_identical
from tests.plan.test_experiment import experiment_of, of_setting, study, vary


def groups_of(*variants: dict[str, object], major: int = 18) -> list[tuple[str, ...]]:
    planned = experiment_of(vary(*variants), major)
    return [same.names for same in find_identical(planned, version_major=major)]


def test_the_same_values_in_different_words() -> None:
    found = groups_of(
        {"name": "a", "settings": {"shared_buffers": "1GB", "fsync": "on"}},
        {"name": "b", "settings": {"shared_buffers": "1024MB", "fsync": True}},
        {"name": "c", "settings": {"shared_buffers": 131072, "fsync": "yes"}, "clients": 3},
        {"name": "d", "settings": {"shared_buffers": "1GB", "fsync": "off"}},
    )
    assert found == [("a", "b")]


def test_former_names() -> None:
    assert groups_of({"settings": {"Work_Mem": "5MB"}}, {"settings": {"sort_mem": "5120"}}) == [
        ("Work_Mem=5MB", "sort_mem=5120")
    ]


@pytest.mark.parametrize(
    ("setting", "value"), [("commit_delay", 0), ("work_mem", "4MB"), ("synchronous_commit", "on"), ("wal_buffers", -1)]
)
def test_a_default_that_is_written_out(setting: str, value: object) -> None:
    assert groups_of({"name": "stock"}, {"name": "said", "settings": {setting: value}}) == [("stock", "said")]
    assert groups_of({"name": "stock"}, {"name": "other", "settings": {"commit_delay": 7}}) == []


def test_an_extensions_setting_has_no_default_that_is_known() -> None:
    assert groups_of({"name": "stock"}, {"name": "said", "settings": {"auto_explain.sample_rate": 1}}) == []


def test_values_that_do_the_same_while_no_standby_is_waited_for() -> None:
    planned = experiment_of(of_setting("synchronous_commit", "on", "off", "local", "remote_write"))
    found = find_identical(planned, version_major=18)
    (same,) = found
    assert same.names == tuple(f"synchronous_commit={value}" for value in ("on", "local", "remote_write"))
    assert "without synchronous standbys" in same.why
    waiting = {"settings": {"synchronous_standby_names": "other"}}
    waited = study(server=waiting, sweep=[{"name": "synchronous_commit", "levels": ["on", "local", "remote_write"]}])
    assert find_identical(experiment_of(waited), version_major=18) == ()
