"""Warn of a PostgreSQL that is newer than the versions that pgdyno was tried with: what is known of it, and what it lacks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from pgdyno.explain.finding import Finding, Severity
from pgdyno.explain.preflight.rule_input import Rule, RuleInput
from pgdyno.facts.versions import CATALOGUED_MAJORS, NEWEST_TRIED_MAJOR, OLDEST_MAJOR, is_untried
from pgdyno.record.described_settings import SettingsSaid

UNTRIED_VERSION = "untried-version"
# A line of names that can still be read.
_MOST_NAMED = 12


def find_untried(major: int, said: SettingsSaid | None, *, lost_counters: Sequence[str] = ()) -> Finding | None:
    """Say what is not known of a server's version; None for one that pgdyno was tried with.

    Args:
        major: Of the server.
        said: How its settings differ from those expected.
        lost_counters: What its trials say of counters that it does not have.
    """
    if not is_untried(major):
        return None
    is_read = major in CATALOGUED_MAJORS
    known = f"What is known of {major} was read in its manual and source" if is_read else f"Nothing is known of {major}"
    parts = [f"{known}; for the rest the facts of {max(_known_before(major))} stand in"]
    if said is not None and said.lacking:
        parts.append(f"settings that it should have and lacks: {_list_names(said.lacking)}")
    if said is not None and said.unknown:
        parts.append(f"its settings of which nothing is known: {_list_names(said.unknown)}")
    parts += lost_counters
    return Finding(
        rule=UNTRIED_VERSION,
        severity=Severity.WARNING,
        claim=f"PostgreSQL {major} is newer than the versions that this pgdyno was tried with ({OLDEST_MAJOR} to {NEWEST_TRIED_MAJOR}).",
        evidence="; ".join(parts),
        why="Counters are read where its own catalogue confirms them and are absent elsewhere; a default, a bound or the"
        " name of a wait may be another than the one that is assumed.",
        advice="Use a pgdyno that knows this version where there is one.",
    )


def _known_before(major: int) -> tuple[int, ...]:
    return (NEWEST_TRIED_MAJOR, *(one for one in CATALOGUED_MAJORS if one < major))


def _list_names(names: Collection[str]) -> str:
    shown = ", ".join(list(names)[:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def _untried(scene: RuleInput) -> Iterator[Finding]:
    server = scene.facts.server
    finding = None if server is None else find_untried(server.major, server.settings_said)
    if finding is not None:
        yield finding


RULES: tuple[Rule, ...] = (_untried,)
