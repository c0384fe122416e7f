"""An empty cluster for each test that is not about how one is made, and helpers for those not about these."""

from __future__ import annotations

import subprocess

import pytest

from pgdyno.run.cluster.server import Server
from tests import homes
from tests.forks import HelperPopen


@pytest.fixture
def copied_initdb(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the product copy the empty cluster that its own initdb has made once in this run."""
    monkeypatch.setattr(Server, "initdb", homes.copied_initdb)


@pytest.fixture
def forked_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the log readers and samplers of trials; `test_trial`, `test_logstream` and `test_samplers` start new Pythons."""
    monkeypatch.setattr(subprocess, "Popen", HelperPopen)
