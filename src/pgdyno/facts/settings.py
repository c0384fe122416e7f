"""Read `settings.toml`: the settings that matter most for a result.

A trial records only settings that differ from built-in defaults. To show the others, a report needs the defaults from
the catalogue. For versions that the catalogue does not know, the default is None.
"""

from __future__ import annotations

import functools

import msgspec

from pgdyno.facts.data_file import read_toml
from pgdyno.facts.gucs import find_guc
from pgdyno.facts.versions import NEWEST_TRIED_MAJOR


class KeySetting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A setting whose value every report shows."""

    name: str
    meaning: str

    @property
    def unit(self) -> str | None:
        """Unit from pg_settings.unit, such as `8kB`."""
        guc = find_guc(self.name, NEWEST_TRIED_MAJOR)
        return guc.unit if guc else None

    def find_boot_value(self, version_major: int) -> str | None:
        """Find the built-in default of a major version, in `unit`; return None if unknown."""
        guc = find_guc(self.name, version_major)
        return guc.boot if guc else None


class _Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    setting: tuple[KeySetting, ...]


@functools.cache
def key_settings() -> tuple[KeySetting, ...]:
    """Return the key settings, in the order of the report."""
    return read_toml("settings.toml", _Settings).setting
