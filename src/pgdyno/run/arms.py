"""Tries each variant's settings on an empty cluster, so that one the server refuses is heard of before the first trial.

Kernel settings of the variant are in force meanwhile, because a server may need them (huge pages), and a value that the
kernel refuses shows only when it is set. An arm that does not start is no reason to give up the others: it comes back
with the server's words.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence

import msgspec

from pgdyno.errors import PgdynoError
from pgdyno.plan.experiment import Arm, has_same_server
from pgdyno.record.types import ErrorFact
from pgdyno.run.home import Home
from pgdyno.run.installation import Installation
from pgdyno.run.kernel import changed_sysctls
from pgdyno.run.server import Server

# Before a server has read its settings it has its own prefix, afterwards the one that pgdyno gives it.
_LOG_LINE = re.compile(r"(?:[\d.]+\|\d+\|[^|]*\|\w{5}\||\S+ \S+ \S+ \[\d+\] )[A-Z]+\d?:  ?(?P<text>.*)")
_PLACE = re.compile(r" in file \"[^\"]*\" line \d+")
_NO_REASON = ("database system is shut down", "starting PostgreSQL", "listening on", "contains errors")


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
            refused |= _try_all(
                server, [each.arm for each in arms if each.installation.bindir == installation.bindir], on_activity
            )
        finally:
            server.abandon()
            shutil.rmtree(home.data, ignore_errors=True)
            log_path.unlink(missing_ok=True)
    return refused


def _try_all(server: Server, arms: Sequence[Arm], on_activity: Callable[[str], None]) -> dict[str, ErrorFact]:
    refused, tried = {}, list[tuple[Arm, ErrorFact | None]]()
    for arm in arms:
        # Arms that differ in their load alone start alike.
        like = next((seen for seen in tried if has_same_server(seen[0], arm)), None)
        if like is None:
            on_activity(arm.name)
            like = (arm, _try_arm(server, arm))
            tried.append(like)
        if like[1] is not None:
            refused[arm.name] = like[1]
    return refused


def _try_arm(server: Server, arm: Arm) -> ErrorFact | None:
    try:
        with changed_sysctls(arm.sysctl):
            server.start(arm.server.settings)
    except PgdynoError as exc:
        return ErrorFact(fact=exc.fact, detail=_words_of(exc.detail), hint=exc.hint)
    finally:
        server.abandon()
    return None


def _words_of(said: str) -> str:
    """What the server complains of, without what its log puts before each line, and without where pgdyno wrote it."""
    texts = [found["text"] if (found := _LOG_LINE.fullmatch(line)) else line for line in said.splitlines()]
    told = [_PLACE.sub("", text) for text in texts if not any(words in text for words in _NO_REASON)]
    return "\n".join(told) or said
