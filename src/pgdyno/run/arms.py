"""Tries each variant's settings on an empty cluster, so that one the server refuses is heard of before the first trial.

An arm that does not start is no reason to give up the others: it comes back with the server's words.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence

import msgspec

from pgdyno.errors import PgdynoError
from pgdyno.plan.experiment import Arm
from pgdyno.record.types import ErrorFact
from pgdyno.run.home import Home
from pgdyno.run.installation import Installation
from pgdyno.run.server import Server

TRY_S = 1.0
"""About how long an arm takes."""


class ArmServer(msgspec.Struct, frozen=True, kw_only=True):
    """An arm and the PostgreSQL it runs on."""

    arm: Arm
    installation: Installation


def try_arms(home: Home, arms: Sequence[ArmServer], *, on_activity: Callable[[str], None]) -> dict[str, ErrorFact]:
    """Start each arm's server once on an empty cluster, thrown away afterwards. From the main thread.

    Returns:
        The arms that do not start, by name, with the reason.

    Raises:
        StepFailedError: initdb failed.
    """
    refused: dict[str, ErrorFact] = {}
    for installation in {str(each.installation.bindir): each.installation for each in arms}.values():
        shutil.rmtree(home.data, ignore_errors=True)
        log_path = home.work / "try-arms.log"
        server = Server(installation=installation, home=home, log_path=log_path)
        try:
            on_activity("initdb")
            server.initdb()
            for each in arms:
                if each.installation.bindir == installation.bindir:
                    on_activity(each.arm.name)
                    error = _try_settings(server, each.arm.server.settings)
                    if error is not None:
                        refused[each.arm.name] = error
        finally:
            server.abandon()
            shutil.rmtree(home.data, ignore_errors=True)
            log_path.unlink(missing_ok=True)
    return refused


def _try_settings(server: Server, settings: Mapping[str, str | int | float | bool]) -> ErrorFact | None:
    try:
        server.start(settings)
    except PgdynoError as exc:
        return ErrorFact(fact=exc.fact, detail=exc.detail, hint=exc.hint)
    finally:
        server.abandon()
    return None
