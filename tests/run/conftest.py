"""An empty cluster for each test that is not about how one is made, and helpers for those not about these."""

from __future__ import annotations

import subprocess

import pytest

from pgdyno.run.cluster.server import Server
from pgdyno.spec.initdb import InitdbChoices, InitdbTable, combine_choices
from tests.forks import HelperPopen
from tests.homes import initdb


@pytest.fixture
def copied_initdb(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the product copy the empty cluster that its own initdb has made once in this run; `test_server` runs that."""
    real = Server.initdb

    def copy(server: Server, choices: InitdbTable = InitdbChoices()) -> None:  # noqa: B008 - it cannot change
        if combine_choices(choices) == InitdbChoices():
            initdb(server, real)
        else:
            real(server, choices)

    monkeypatch.setattr(Server, "initdb", copy)


@pytest.fixture
def forked_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the log readers and samplers of trials; `test_trial`, `test_logstream` and `test_samplers` start new Pythons."""
    monkeypatch.setattr(subprocess, "Popen", HelperPopen)
