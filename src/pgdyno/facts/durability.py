"""What a setting gives up for its speed: the typed reader of `durability.toml`.

A figure won by losing what was committed is not to stand beside one of a durable server without a word of it. So that
every table, chart and verdict uses the same word, it is written here once. It judges single settings of one server:
unlogged tables, disks that lie and standbys that are away are not seen.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import importlib.resources
from collections.abc import Mapping

import msgspec

from pgdyno.facts.gucs import as_shown, find_guc, read_value


class Loss(enum.Enum):
    """What kind of thing is given up."""

    DURABILITY = "durability"
    DOUBT = "doubt"
    """Durable only where the hardware and the kernel do as they should."""
    DETECTION = "detection"
    RECOVERY = "recovery"
    INTEGRITY = "integrity"
    UPKEEP = "upkeep"


class GivenUp(msgspec.Struct, frozen=True, kw_only=True):
    """A setting with which something is given up."""

    setting: str
    value: str
    """As the server shows it."""
    kind: Loss
    label: str
    """To print beside a result; begins in lower case, without a full stop."""
    source: str

    @property
    def gist(self) -> str:
        """The label without what comes of it."""
        return self.label.partition(":")[0]

    @property
    def is_durability(self) -> bool:
        """Whether committed transactions are at stake, for certain or perhaps."""
        return self.kind in {Loss.DURABILITY, Loss.DOUBT}


class _GivesUp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    setting: str
    values: tuple[str, ...]
    kind: Loss
    label: str
    source: str
    needs: str | None = None


class _Alike(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    setting: str
    values: tuple[str, ...]
    unless: str
    why: str
    source: str


class _Rules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    gives_up: tuple[_GivesUp, ...]
    alike: tuple[_Alike, ...]


def find_given_up(settings: Mapping[str, str | float], major: int) -> tuple[GivenUp, ...]:
    """All that these settings give up, the gravest first.

    Args:
        settings: In force, or set by a variant; values as the server takes them. What is absent gives up nothing.
        major: The server's version; settings and values that it would refuse give up nothing.
    """
    shown = _show_values(settings, major)
    return tuple(
        GivenUp(setting=rule.setting, value=shown[rule.setting], kind=rule.kind, label=rule.label, source=rule.source)
        for rule in _rules().gives_up
        if shown.get(rule.setting) in rule.values and (rule.needs is None or shown.get(rule.needs))
    )


def durability_given_up(settings: Mapping[str, str | float], major: int) -> tuple[GivenUp, ...]:
    """What these settings give up of durability, for certain or perhaps; the arguments are those of `find_given_up`."""
    return tuple(one for one in find_given_up(settings, major) if one.is_durability)


def judged_settings() -> tuple[str, ...]:
    """The settings that must be known for `find_given_up` to see all."""
    names = [name for rule in _rules().gives_up for name in (rule.setting, rule.needs)]
    return tuple(dict.fromkeys(name for name in names if name is not None))


def explain_alike(name: str, one: str, other: str, settings: Mapping[str, str], major: int) -> str | None:
    """Why two different values of a setting do the same on a server with these settings; None if they do not.

    Args:
        name: The setting.
        one: A value of it.
        other: Another.
        settings: All others that are in force or set; what is absent is taken as built in.
        major: The server's version.
    """
    around = _show_values(settings, major)
    values = {_show_values({name: value}, major).get(name.lower()) for value in (one, other)}
    for rule in _rules().alike:
        if rule.setting == name.lower() and values <= set(rule.values) and not around.get(rule.unless):
            return rule.why
    return None


def _show_values(settings: Mapping[str, str | float], major: int) -> dict[str, str]:
    """The settings that such a server has, with values that it takes, as it shows them."""
    shown = {}
    for name, value in settings.items():
        guc = find_guc(name, major)
        if guc is None:
            continue
        with contextlib.suppress(ValueError):
            shown[guc.name] = as_shown(read_value(guc, as_shown(value)))
    return shown


@functools.cache
def _rules() -> _Rules:
    text = importlib.resources.files("pgdyno.facts").joinpath("durability.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Rules)
