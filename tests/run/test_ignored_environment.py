"""PG* variables of the environment while several threads connect at once."""

from __future__ import annotations

import os

import pytest

from pgdyno.run.given.password_command import PasswordCommand
from pgdyno.run.postgres.sql import _ignored_environment


def test_variables_stay_hidden_until_the_last_connection_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "db1")
    command = PasswordCommand(["printenv", "PGHOST"])
    one, other = _ignored_environment(), _ignored_environment()
    with one:
        other.__enter__()
        assert "PGHOST" not in os.environ
    assert "PGHOST" not in os.environ
    assert command.get() == "db1", "it has what it had when the program began"
    other.__exit__(None, None, None)
    assert os.environ["PGHOST"] == "db1"
