"""The settings that others would choose: the typed reader of rival_settings.toml, for a server as it is.

What a server's version or build does not take is left out and told, so that a rival is neither refused nor helped.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from pgdyno.facts.durability import durability_given_up
from pgdyno.facts.gucs import find_guc, read_value
from pgdyno.record.types import ServerFacts
from pgdyno.spec.table import SettingValue
from pgdyno.tune.subject import find_missing_values


class Rival(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A calculator or a case study; `at` has what depends on the memory, by its size."""

    name: str
    source: str
    inputs: str
    settings: dict[str, SettingValue]
    at: dict[str, dict[str, SettingValue]]
    sysctl: dict[str, int] = {}
    is_usual: bool = True
    """Whether it is compared unless others are named."""

    def settings_at(self, memory: str) -> dict[str, SettingValue]:
        """All of its settings at one of the sizes."""
        return {**self.settings, **self.at[memory]}


class _Rivals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    rival: tuple[Rival, ...]


def read_rivals() -> tuple[Rival, ...]:
    """All of them; each says each size."""
    text = Path(__file__).with_name("rival_settings.toml").read_bytes()
    rivals = msgspec.toml.decode(text, type=_Rivals).rival
    assert len({frozenset(rival.at) for rival in rivals}) == 1, "a rival lacks a size"
    for rival in rivals:
        given_up = durability_given_up({n: str(v) for n, v in rival.settings.items()}, 18)
        assert not given_up, f"{rival.name} is not durable: {given_up}"
    return rivals


def keep_taken(
    settings: dict[str, SettingValue], server: ServerFacts
) -> tuple[dict[str, SettingValue], dict[str, str]]:
    """The settings that a server takes, and why the others are left out, by name."""
    missing = find_missing_values(server)
    taken, left = {}, {}
    for name, value in settings.items():
        guc = find_guc(name, server.major)
        if guc is None:
            left[name] = f"PostgreSQL {server.major} has none"
        elif str(value) in missing.get(guc.name, ()):
            left[name] = f"{value}: this build lacks it"
        else:
            read_value(guc, str(value))
            taken[name] = value
    return taken, left
