"""An empty cluster for each test that is not about how one is made."""

from __future__ import annotations

import pytest

from pgdyno.run.cluster.server import Server
from tests.homes import initdb


@pytest.fixture
def copied_initdb(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the product copy the empty cluster that its own initdb has made once in this run; `test_server` runs that."""
    real = Server.initdb
    monkeypatch.setattr(Server, "initdb", lambda server: initdb(server, real))
