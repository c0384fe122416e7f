"""Choose which derived settings can be tried in trials, and group them into layers that are left out in turn.

A layer is left out together with settings that make sense only with it, so that the rest is what a user would run
without that layer. Settings that are not tried are listed with the reason, so that a partly tested set is not presented
as fully tested.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pgdyno.facts.gucs import find_guc, same_value
from pgdyno.facts.versions import is_untried
from pgdyno.tune.types import Derived, DerivedSettings, Layer, Target, TuningSubject

REST = "the rest"
_GROUPS = {
    Layer.KERNEL: Layer.KERNEL.value,
    Layer.MEMORY: Layer.MEMORY.value,
    Layer.WAL: Layer.WAL.value,
    Layer.BACKGROUND_WRITER: Layer.BACKGROUND_WRITER.value,
    Layer.PLANNER: Layer.PLANNER.value,
}
# Huge pages are reserved for shared memory: without it they would only take memory from everything else.
_ALSO_WITHOUT = {Layer.MEMORY.value: ("vm.nr_hugepages",)}
_NOT_OURS = {
    Target.SYSFS: "block devices and memory management are not changed while something is measured",
    Target.STORAGE: "it is advice for creating the volumes",
    Target.LIMIT: "it is a limit of the service that starts the server",
    Target.POOLER: "it is the pooler's, and no setting of the server",
}
# Settings that affect all programs of a machine and make none of them faster are not tried.
_GUARDS = frozenset({"vm.overcommit_memory", "vm.overcommit_ratio", "vm.overcommit_kbytes"})
_GUARDS_REASON = "it guards memory and speeds up nothing, and every other program would run under it meanwhile"
_LOGS_REASON = "trials log what pgdyno reads, with and without the set"
_SAME_REASON = "it has this value already"


class LayerPart(msgspec.Struct, frozen=True, kw_only=True):
    """A layer of the settings that are tried."""

    name: str
    settings: tuple[Derived, ...]
    also_without: tuple[str, ...] = ()
    """Names of other layers' settings that are left out with it."""


class TrialSet(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a derived set that are tried: each is in one layer, or left out with the reason."""

    layers: tuple[LayerPart, ...]
    left_out: dict[str, str]

    def settings(self, *, without: LayerPart | None = None) -> dict[str, str]:
        """Return PostgreSQL's settings, of all layers or all but one."""
        return self._of(Target.POSTGRESQL, without)

    def sysctls(self, *, without: LayerPart | None = None) -> dict[str, str]:
        """Return the kernel settings, of all layers or all but one."""
        return self._of(Target.SYSCTL, without)

    def _of(self, target: Target, without: LayerPart | None) -> dict[str, str]:
        gone = () if without is None else without.also_without
        return {
            one.name: one.value
            for layer in self.layers
            if layer is not without
            for one in layer.settings
            if one.target is target and one.name not in gone
        }


def choose_trial_set(tuning: DerivedSettings, *, fixed: Mapping[str, str], refused: Mapping[str, str]) -> TrialSet:
    """Choose which settings of a set are tried, by layer.

    Args:
        tuning: The derived set.
        fixed: PostgreSQL settings that the stock variant has as well, by name.
        refused: Kernel settings that cannot be changed on this machine, with the reasons.
    """
    left_out: dict[str, str] = {}
    groups: dict[str, list[Derived]] = {name: [] for name in (*_GROUPS.values(), REST)}
    for one in tuning.settings:
        reason = _find_reason(one, tuning.subject, fixed, refused)
        if reason is None:
            groups[_GROUPS.get(one.layer, REST)].append(one)
        else:
            left_out[one.name] = reason
    layers = tuple(
        LayerPart(name=name, settings=tuple(settings), also_without=_ALSO_WITHOUT.get(name, ()))
        for name, settings in groups.items()
        if settings
    )
    return TrialSet(layers=layers, left_out=left_out)


def stock_value(setting: Derived, subject: TuningSubject) -> str | None:
    """Return a setting's value without tuning: PostgreSQL's default or the kernel's current value; None if unknown."""
    if setting.target is Target.SYSCTL:
        return subject.kernel.sysctls.get(setting.name)
    guc = find_guc(setting.name, subject.major) if setting.target is Target.POSTGRESQL else None
    return None if guc is None or is_untried(subject.major) else guc.boot


def _find_reason(
    one: Derived, subject: TuningSubject, fixed: Mapping[str, str], refused: Mapping[str, str]
) -> str | None:
    """Return why a setting is not tried; None if it is tried."""
    if one.target in _NOT_OURS:
        return _NOT_OURS[one.target]
    if one.name in _GUARDS:
        return _GUARDS_REASON
    if one.layer is Layer.LOGGING and one.name.startswith("log_"):
        return _LOGS_REASON
    if one.name in fixed:
        return "it was given with --set, and holds with and without the set"
    if _is_stock(one, subject):
        return _SAME_REASON
    return refused.get(one.name)


def _is_stock(one: Derived, subject: TuningSubject) -> bool:
    stock = stock_value(one, subject)
    if stock is None:
        return False
    if one.target is Target.SYSCTL:
        return stock.split() == one.value.split()
    return same_value(one.name, stock, one.value, subject.major)
