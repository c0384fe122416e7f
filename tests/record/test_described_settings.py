"""What a program says of its settings, beside what is expected of its version."""

from __future__ import annotations

import pytest

from pgdyno.facts.versions import NEWEST_TRIED_MAJOR
from pgdyno.record.described_settings import SettingsSaid, compare_described
from pgdyno.run.host.process import run
from pgdyno.run.postgres.installation import is_embedded, read_named_facts
from pgdyno.spec.study import ServerSpec


@pytest.fixture(scope="module")
def described() -> str:
    """The embedded server's own."""
    assert is_embedded(NEWEST_TRIED_MAJOR)
    return run([f"{read_named_facts(ServerSpec()).bindir}/postgres", "--describe-config"]).stdout


def test_a_program_of_a_tried_version_has_what_is_expected_and_no_more(described: str) -> None:
    assert compare_described(described, NEWEST_TRIED_MAJOR) == SettingsSaid()
    assert read_named_facts(ServerSpec()).settings_said is None


def test_what_it_lacks_and_what_is_unknown_of_it_are_told_apart(described: str) -> None:
    lines = [line for line in described.splitlines() if not line.startswith("commit_delay\t")]
    said = compare_described(
        "\n".join([*lines, "quantum_buffers\tsighup\tResource Usage\tINTEGER"]), NEWEST_TRIED_MAJOR
    )
    assert said == SettingsSaid(lacking=("commit_delay",), unknown=("quantum_buffers",))


def test_the_same_program_beside_what_was_read_of_19(described: str) -> None:
    said = compare_described(described, 19)
    assert {"io_min_workers", "io_max_workers"} <= set(said.lacking)
    assert set(said.unknown) == {"io_workers", "escape_string_warning"}
