"""An empty cluster for each test that is not about how one is made, and helpers for those not about these."""

from __future__ import annotations

import subprocess

import pytest

from pgdyno.run.cluster.server import Server
from pgdyno.run.sample import samplers
from tests import homes
from tests.forks import HelperPopen


@pytest.fixture(autouse=True)
def awaited_samplers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the first samples as long as it takes: where Python starts slowly, a load would begin without them."""
    monkeypatch.setattr(samplers, "_READY_WITHIN_S", 300.0)


@pytest.fixture
def copied_initdb(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the product copy the empty cluster that its own initdb has made once in this run."""
    monkeypatch.setattr(Server, "initdb", homes.copied_initdb)


@pytest.fixture
def forked_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the log readers and samplers of trials; `test_trial`, `test_logstream` and `test_samplers` start new Pythons."""
    monkeypatch.setattr(subprocess, "Popen", HelperPopen)
