"""The settings that decide what a bench measures: the typed reader of `settings.toml`.

A trial records only the settings that differ from what is built in. Whoever shows a value that is not among them needs
to know what is built in; the catalogue tells, and for a version that it does not know, nothing is guessed.
"""

from __future__ import annotations

import functools
import importlib.resources

import msgspec

from pgdyno.facts.gucs import find_guc
from pgdyno.facts.versions import NEWEST_TRIED_MAJOR


class KeySetting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A setting of which every report shows the value."""

    name: str
    meaning: str

    @property
    def unit(self) -> str | None:
        """As pg_settings.unit has it, such as `8kB`."""
        guc = find_guc(self.name, NEWEST_TRIED_MAJOR)
        return guc.unit if guc else None

    def find_boot_value(self, version_major: int) -> str | None:
        """The built-in value in that major version, in units of `unit`; None where it is not known."""
        guc = find_guc(self.name, version_major)
        return guc.boot if guc else None


class _Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    setting: tuple[KeySetting, ...]


@functools.cache
def key_settings() -> tuple[KeySetting, ...]:
    """The settings that decide a result, in the order of a report."""
    text = importlib.resources.files("pgdyno.facts").joinpath("settings.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Settings).setting
