"""Hold a set of settings while it is being derived.

Rules add their decisions here one after another, and later rules read the decisions of earlier ones. Values that the
user fixed are kept, and settings that the version lacks are left out. A setting that no rule decides has the server's
current value. This module decides no value itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from pgdyno.errors import HostError, SpecError
from pgdyno.facts.famous_lines import LineVerdict, famous_names
from pgdyno.facts.gucs import (
    ChangeCost,
    Guc,
    VarType,
    as_shown,
    change_cost,
    find_guc,
    read_value,
    same_value,
    unknown_guc,
)
from pgdyno.facts.versions import is_untried
from pgdyno.spec.setting import find_setting, read_setting
from pgdyno.tune.types import Derived, Known, Layer, Origin, Target, TuningSubject
from pgdyno.units import is_time_unit, unit_size

KB, MB, GB = 1024, 1024**2, 1024**3
ANYWHERE = "no input: the same on every machine"
"""Formula of a setting without inputs."""

_LAYERS = {
    "Resource Usage / Background Writer": Layer.BACKGROUND_WRITER,
    "Resource Usage / Cost-Based Vacuum Delay": Layer.AUTOVACUUM,
    "Resource Usage / I/O": Layer.IO,
    "Resource Usage / Asynchronous Behavior": Layer.IO,
    "Resource Usage / Worker Processes": Layer.PARALLEL,
    "Resource Usage / Memory": Layer.MEMORY,
    "Write-Ahead Log": Layer.WAL,
    "Query Tuning": Layer.PLANNER,
    "Vacuuming": Layer.AUTOVACUUM,
    "Autovacuum": Layer.AUTOVACUUM,
    "Connections": Layer.CONNECTIONS,
    "Replication": Layer.REPLICATION,
    "Reporting": Layer.LOGGING,
    "Statistics": Layer.LOGGING,
}
_JUDGED = {
    LineVerdict.DERIVED: "else it is derived where it matters",
    LineVerdict.NEEDED: "one case needs that",
    LineVerdict.LEFT: "else it is left alone",
}


class Draft:
    """The decisions so far.

    Args:
        subject: What the settings are derived for.
        fixed: Values that the user fixed, by the names of PostgreSQL settings.

    Raises:
        SpecError: The version lacks the setting, or would refuse the value.
    """

    def __init__(self, subject: TuningSubject, fixed: Mapping[str, str]) -> None:
        self.subject = subject
        self.notes: list[str] = []
        self.decided: dict[str, Derived] = {}
        # Rules compare words: `no` of huge_pages counts as the `off` that a server shows for it.
        self.fixed = dict(_check_fixed(name, value, subject) for name, value in fixed.items())

    def guc(self, name: str) -> Guc | None:
        """Return the setting of this version; None if this server lacks it."""
        return None if name in self.subject.lacking else find_guc(name, self.subject.major)

    def is_fixed(self, name: str) -> bool:
        """Return whether the user fixed the setting."""
        return name in self.fixed

    def number(self, name: str) -> float:
        """Return the value of a numeric setting, as for `text`; sizes in bytes, times in s."""
        guc = self._existing(name)
        value = self.text(name)
        number = read_value(guc, value)
        if isinstance(number, (bool, str)):
            raise TypeError(f"{name} is no number")
        return number * unit_size(guc.unit)

    def text(self, name: str) -> str:
        """Return the value of a setting: fixed, decided, the server's current one, or the built-in default."""
        if name in self.fixed:
            return self.fixed[name]
        if name in self.decided:
            return self.decided[name].value
        return self.subject.settings.get(name, self._existing(name).boot or "")

    def values(self) -> dict[str, str]:
        """Return PostgreSQL's settings so far, including fixed ones."""
        decided = {one.name: one.value for one in self.decided.values() if one.target is Target.POSTGRESQL}
        return decided | self.fixed

    def _existing(self, name: str) -> Guc:
        guc = self.guc(name)
        if guc is None and name in self.fixed:
            return unknown_guc(name, self.subject.major)
        if guc is None and name in self.subject.lacking:
            raise HostError(
                f"this PostgreSQL {self.subject.major} has no {name}",
                detail="other settings are derived from it, and this version is newer than the versions that pgdyno was tried with",
                hint="derive for an older version, or use a newer pgdyno",
            )
        if guc is None:
            raise LookupError(f"PostgreSQL {self.subject.major} has no setting {name}")
        return guc

    def put(
        self,
        name: str,
        value: str,
        *,
        layer: Layer,
        reason: str,
        source: str,
        formula: str = ANYWHERE,
        inputs: tuple[Known, ...] = (),
        trades: str = "",
        keeps_default: bool = False,
    ) -> None:
        """Decide a PostgreSQL setting, unless the version lacks it.

        A value equal to the built-in default is left out as well, unless the server has another value, which must be
        reset.

        Args:
            name: Name of the setting.
            value: Value that the server accepts.
            layer: Layer of the setting.
            reason: Reason in one sentence.
            source: Source of the formula and its constants.
            formula: Formula in words and names of inputs.
            inputs: Inputs of the formula.
            trades: Disadvantage of the setting.
            keeps_default: Whether to keep the setting even if the value is the built-in default.
        """
        guc = self._existing(name) if name in self.fixed else self.guc(name)
        if guc is None:
            return
        major = self.subject.major
        # What a version that was not tried has built in is not known.
        is_known = guc.boot is not None and not is_untried(major)
        is_built_in = is_known and same_value(name, guc.boot or "", value, major)
        if name in self.fixed:
            is_same = same_value(name, self.fixed[name], value, major)
            reason = reason if is_same else f"you set it; derived, it would be {value}: {reason}"
            value, inputs = self.fixed[name], (*inputs, _fixed_input(guc, self.fixed[name]))
        elif is_built_in and not keeps_default and name not in self.subject.settings:
            return
        self.decided[name] = Derived(
            name=name,
            value=value,
            target=Target.POSTGRESQL,
            layer=layer,
            reason=reason,
            formula=formula,
            inputs=inputs,
            source=source,
            change=change_cost(name, major),
            trades=trades,
        )

    def put_outside(
        self,
        name: str,
        value: str,
        *,
        target: Target,
        layer: Layer,
        reason: str,
        source: str,
        formula: str = ANYWHERE,
        inputs: tuple[Known, ...] = (),
        trades: str = "",
    ) -> None:
        """Decide something other than a PostgreSQL setting; see `put` for the arguments."""
        change = {
            Target.SYSCTL: ChangeCost.KERNEL,
            Target.SYSFS: ChangeCost.KERNEL,
            Target.LIMIT: ChangeCost.RESTART,
            Target.POOLER: ChangeCost.RELOAD,
        }
        self.decided[name] = Derived(
            name=name,
            value=value,
            target=target,
            layer=layer,
            reason=reason,
            formula=formula,
            inputs=inputs,
            source=source,
            change=change.get(target),
            trades=trades,
        )

    def put_remaining_fixed(self) -> None:
        """Add the fixed settings that no rule derives."""
        for name, value in self.fixed.items():
            if name not in self.decided:
                guc, line = self._existing(name), famous_names().get(name)
                otherwise = "nothing is derived for it."
                if line is not None:
                    otherwise = f"{_JUDGED[line.verdict]}. {line.why}"
                self.put(
                    name,
                    value,
                    layer=next(
                        (layer for begin, layer in _LAYERS.items() if guc.category.startswith(begin)), Layer.OTHER
                    ),
                    reason=f"you set it; {otherwise}",
                    formula="as declared",
                    source="the user" if line is None else f"the user; {line.source}",
                )


def _check_fixed(name: str, value: str, subject: TuningSubject) -> tuple[str, str]:
    """Return the name and the value that a server shows for a fixed setting; numbers stay as the user wrote them."""
    guc = find_setting(name, subject.major)
    read = read_setting(guc, name, value)
    if read in subject.missing_values.get(guc.name, ()):
        raise SpecError(f"{name} cannot be {value}", detail="this build of PostgreSQL lacks it")
    return guc.name, as_shown(read) if guc.vartype in {VarType.BOOL, VarType.ENUM} else value


def _fixed_input(guc: Guc, value: str) -> Known:
    """Return a fixed value as an input; a non-numeric value counts as 1."""
    number = read_value(guc, value)
    is_number = not isinstance(number, (bool, str))
    unit = "count" if not guc.unit else "s" if is_time_unit(guc.unit) else "bytes"
    return Known(
        name=guc.name,
        value=float(number) * unit_size(guc.unit) if is_number else 1.0,
        unit=unit if is_number else "count",
        origin=Origin.DECLARED,
        how=f"you want {value}",
    )


def size(value_bytes: float) -> str:
    """Format a size in PostgreSQL's notation, in whole kB: 1536 MB is `1536MB`, 4096 MB is `4GB`."""
    kilobytes = int(value_bytes // KB)
    for unit, factor in (("GB", KB * KB), ("MB", KB)):
        if kilobytes and kilobytes % factor == 0:
            return f"{kilobytes // factor}{unit}"
    return f"{kilobytes}kB"


def most_bytes(name: str, major: int) -> float:
    """Return the greatest value of a size that the version takes; infinite if that is not known."""
    guc = find_guc(name, major)
    return math.inf if guc is None or guc.max_value is None else float(guc.max_value) * unit_size(guc.unit)


def round_down(value: float) -> float:
    """Round down to a size with at most 4 significant binary digits.

    A figure such as 4864 MB would look more precise than it is: nothing that is derived here is known to 12 %.
    """
    return value // _step(value) * _step(value)


def round_up(value: float) -> float:
    """Round up to a size with at most 4 significant binary digits."""
    return -(-value // _step(value)) * _step(value)


def _step(value: float) -> int:
    step = 1
    while value >= step * 16:
        step *= 2
    return step
