"""Find variants that are equivalent despite different notation, so that their difference is not read as an effect.

The catalogue of settings defines which values are equal; a server that was built or patched differently may deviate.
"""

from __future__ import annotations

import msgspec

from pgdyno.facts.durability import explain_alike
from pgdyno.facts.gucs import find_guc, same_value
from pgdyno.plan.experiment import Experiment, Variant
from pgdyno.spec.variant import show_value


class Identical(msgspec.Struct, frozen=True, kw_only=True):
    """Equivalent variants."""

    names: tuple[str, ...]
    why: str
    """Why different values are equivalent; empty if the values are the same."""


def find_identical(experiment: Experiment, *, version_major: int) -> tuple[Identical, ...]:
    """Return the groups of equivalent variants: 1GB and 1024MB, an explicit default, different names for one value.

    Args:
        experiment: The variants to compare.
        version_major: Major version of the reference's server, for the catalogue of settings.
    """
    groups: list[tuple[Variant, list[str], str]] = []
    for variant in experiment.variants:
        for number, (first, names, why) in enumerate(groups):
            found = _explain_same(first, variant, version_major)
            if found is not None:
                groups[number] = (first, [*names, variant.name], why or found)
                break
        else:
            groups.append((variant, [variant.name], ""))
    return tuple(Identical(names=tuple(names), why=why) for _, names, why in groups if len(names) > 1)


def _explain_same(one: Variant, other: Variant, major: int) -> str | None:
    """Return why two variants are equivalent, empty if their settings are the same; None if they are not equivalent."""
    if _without_settings(one) != _without_settings(other):
        return None
    why = ""
    shared = {name: show_value(value) for name, value in one.server.settings.items()}
    for name in {*one.server.settings, *other.server.settings}:
        here, there = (_value(variant, name, major) for variant in (one, other))
        if here is None or there is None:
            return None
        if same_value(name, here, there, major):
            continue
        alike = explain_alike(name, here, there, shared, major)
        if alike is None:
            return None
        why = alike
    return why


def _value(variant: Variant, name: str, major: int) -> str | None:
    """Return the value with which the variant's server runs; None if its build or an extension chooses it."""
    if name in variant.server.settings:
        return show_value(variant.server.settings[name])
    guc = find_guc(name, major)
    return None if guc is None or guc.boot is None else guc.boot


def _without_settings(variant: Variant) -> Variant:
    server = msgspec.structs.replace(variant.server, settings={})
    return msgspec.structs.replace(variant, name="", server=server, changed={}, levels={})
