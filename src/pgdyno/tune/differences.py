"""Decide which derived settings differ from those in force."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from pgdyno.facts.gucs import find_guc, same_value
from pgdyno.facts.versions import is_untried
from pgdyno.tune.types import Derived, DerivedSettings, Target


class SettingDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A derived setting beside the value in force."""

    derived: Derived
    now: str | None
    """As the server or the kernel has it; None where it cannot be read, and for advice."""
    is_same: bool


def find_differences(
    tuning: DerivedSettings, now: Mapping[str, str], *, waiting: Collection[str] = ()
) -> tuple[SettingDifference, ...]:
    """Put each derived setting beside the value in force, in the set's order; see `find_difference`."""
    return tuple(
        find_difference(derived, now, major=tuning.subject.major, waiting=waiting) for derived in tuning.settings
    )


def find_difference(
    derived: Derived, now: Mapping[str, str], *, major: int, waiting: Collection[str] = ()
) -> SettingDifference:
    """Put a derived setting beside the value in force.

    Args:
        derived: The setting.
        now: Values in force, by name; a setting of PostgreSQL that is not among them has its default.
        major: Of PostgreSQL.
        waiting: Settings whose value in force is replaced at the next restart, and that therefore count as different.
    """
    found = now.get(derived.name)
    if derived.target is not Target.POSTGRESQL:
        return SettingDifference(
            derived=derived, now=found, is_same=found is not None and found.split() == derived.value.split()
        )
    guc = find_guc(derived.name, major)
    # The default of a setting is not known in a version that was not tried.
    found = guc.boot if found is None and guc is not None and not is_untried(major) else found
    is_same = (
        found is not None and derived.name not in waiting and same_value(derived.name, found, derived.value, major)
    )
    return SettingDifference(derived=derived, now=found, is_same=is_same)
