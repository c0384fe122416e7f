"""Where a home is, and where else to look for what was measured of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgdyno.run.cluster.home import default_home, homes_to_read
from pgdyno.run.host.process import acting_as, find_server_user

ROOTS = Path("/var/lib/pgdyno")


def test_an_ordinary_user_reads_what_root_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGDYNO_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with acting_as(find_server_user()):
        home = default_home()
        assert home == tmp_path / "pgdyno"
        assert homes_to_read(home) == (home, ROOTS)
        assert homes_to_read(tmp_path / "named") == (tmp_path / "named",)
        monkeypatch.setenv("PGDYNO_HOME", str(home))
        assert homes_to_read(home) == (home,), "somebody chose it"


def test_roots_home_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGDYNO_HOME", raising=False)
    assert homes_to_read(ROOTS) == (ROOTS,)
