"""A file that pgdyno ships is found by its name, and never in place of one of the user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgdyno.errors import SpecError
from pgdyno.spec.host import read_host
from pgdyno.spec.prices import read_prices
from pgdyno.spec.read import read_study
from pgdyno.spec.shipped import find_shipped, list_shipped

STUDIES = Path(__file__).parents[2] / "studies"


def test_every_shipped_file_has_a_name() -> None:
    assert set(list_shipped().values()) == set(STUDIES.rglob("*.toml"))
    assert list(list_shipped())[:3] == ["failover", "pooler-clients", "pooler"]


def test_names_lead_to_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {
        "tpcb-like": "tpcb-like.toml",
        "tpcb-like.toml": "tpcb-like.toml",
        "studies/tpcb-like.toml": "tpcb-like.toml",
        "published/commit-delay": "published/commit-delay.toml",
        "hosts/c7g.2xlarge-io2": "hosts/c7g.2xlarge-io2.toml",
    }
    for name, file in names.items():
        assert find_shipped(Path(name)) == STUDIES / file, name
    for name in ("nowhere", "commit-delay", "../pyproject", "/tpcb-like", "hosts", "x" * 5000):
        assert find_shipped(Path(name)) == Path(name), name
    with pytest.raises(SpecError) as misspelt:
        read_study(Path("studies/tpcb-lik.toml"))
    assert misspelt.value.hint == "did you mean tpcb-like?"
    assert read_study(Path("tpcb-like")).question
    assert read_host(Path("hosts/vm-4vcpu")).cpus == 4
    assert read_prices(Path("prices/template")).currency == "USD"


def test_a_file_of_the_user_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tpcb-like").write_text('question = "Mine?"\nworkload = [{ name = "select-only" }]\n')
    Path("select-only").symlink_to("gone")
    assert read_study(Path("tpcb-like")).question == "Mine?"
    assert find_shipped(Path("select-only")) == Path("select-only")
