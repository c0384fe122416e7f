"""Define what EXPLAIN says of each statement of a load, under the settings of a variant."""

from __future__ import annotations

from typing import Any

import msgspec

PLANS = "plans"
"""Source name of gaps in the plans."""


class StatementPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A statement of a script with the plan that a session with a variant's settings makes of it."""

    variant: str = msgspec.field(name="arm")
    script: str
    """A built-in name or a path, as the plan of the study names it."""
    place: int
    """Among the statements of the script that have plans, from 1."""
    statement: str
    plan: dict[str, Any] | None
    """The one element of what EXPLAIN (FORMAT JSON, SETTINGS) gives; None if the server refused."""
    reason: str | None = None
    """Why there is no plan, in the server's own words."""
    values: dict[str, str] = {}
    """The values of the statement's variables for which it was planned."""
    unknown: tuple[str, ...] = ()
    """Variables whose values only a run of the script gives: the plan is the generic one."""
