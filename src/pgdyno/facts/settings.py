"""The settings that decide what a bench measures, and their built-in values: the typed reader of `settings.toml`.

A trial records only the settings that differ from what is built in. Whoever shows a value that is not among them needs
to know what is built in; for a version without a line here nothing is known, and nothing is guessed.
"""

from __future__ import annotations

import functools
import importlib.resources

import msgspec


class KeySetting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A setting of which every report shows the value."""

    name: str
    meaning: str
    boot: dict[str, str]
    """By a range of major versions, such as `15-17`; as pg_settings.boot_val has it, in units of `unit`."""
    unit: str | None = None
    """As pg_settings.unit has it, such as `8kB`."""

    def find_boot_value(self, version_major: int) -> str | None:
        """The built-in value in that major version; None where it is not known."""
        for versions, value in self.boot.items():
            first, _, last = versions.partition("-")
            if int(first) <= version_major <= int(last or first):
                return value
        return None


class _Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    setting: tuple[KeySetting, ...]


@functools.cache
def key_settings() -> tuple[KeySetting, ...]:
    """The settings that decide a result, in the order of a report."""
    text = importlib.resources.files("pgdyno.facts").joinpath("settings.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Settings).setting
