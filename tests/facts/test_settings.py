"""What `settings.toml` says is built in, against the servers themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pgdyno.facts.settings import key_settings
from pgdyno.facts.versions import TRIED_MAJORS
from pgdyno.run.postgres import sql
from tests.facts.clusters import VERSIONS, Cluster


@pytest.mark.parametrize("major", VERSIONS)
def test_built_in_values_are_the_servers(major: int, cluster_of: Callable[[int], Cluster]) -> None:
    names = [setting.name for setting in key_settings()]
    with sql.connect(cluster_of(major).address) as connection:
        rows = connection.execute("SELECT name, boot_val, unit FROM pg_settings WHERE name = ANY(%s)", [names])
        built_in = {row["name"]: (row["boot_val"], row["unit"]) for row in rows}
    assert {one.name: (one.find_boot_value(major), one.unit) for one in key_settings()} == built_in


def test_every_supported_version_is_known_and_no_other() -> None:
    for setting in key_settings():
        assert all(setting.find_boot_value(major) for major in TRIED_MAJORS)
        assert setting.find_boot_value(TRIED_MAJORS[0] - 1) is None
