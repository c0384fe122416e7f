"""Read what `postgres --describe-config` prints, and compare it with the settings that pgdyno expects of the version.

The program lists its settings without a cluster and without starting. It leaves out those that no configuration file
holds, and the values that it prints are not the built-in ones: only the names are taken.

Source: PostgreSQL 18 src/backend/utils/misc/help_config.c, GucInfoMain(), displayStruct() and printMixedStruct().
"""

from __future__ import annotations

import msgspec

from pgdyno.facts.gucs import all_gucs

_NEVER_LISTED_CATEGORIES = ("Developer Options", "Preset Options")
# Source: `postgres --describe-config` of PostgreSQL 18 beside its pg_settings.
_NEVER_LISTED = frozenset(
    {
        *("application_name", "config_file", "restrict_nonsystem_relation_kind"),
        *("transaction_deferrable", "transaction_isolation", "transaction_read_only"),
    }
)


class SettingsSaid(msgspec.Struct, frozen=True, kw_only=True):
    """Tells how the settings that a server's program describes differ from those that pgdyno expects of its version."""

    lacking: tuple[str, ...] = ()
    """Expected, and not there."""
    unknown: tuple[str, ...] = ()
    """There, and nothing is known of them."""


def compare_described(text: str, major: int) -> SettingsSaid:
    """Find the settings of that version that a program lacks, and those that it has beyond them; `text` is what it printed."""
    described = {name for line in text.splitlines() if (name := line.partition("\t")[0])}
    known = {guc.name: guc for guc in all_gucs(major)}
    expected = {
        name
        for name, guc in known.items()
        if guc.not_everywhere is None
        and not guc.category.startswith(_NEVER_LISTED_CATEGORIES)
        and name not in _NEVER_LISTED
    }
    return SettingsSaid(lacking=tuple(sorted(expected - described)), unknown=tuple(sorted(described - known.keys())))
