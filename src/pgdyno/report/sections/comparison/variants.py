"""Describe the variants of an experiment: what each sets, what it gives up, whether it dropped out."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.explain.doubts.comparison import find_losses
from pgdyno.facts.durability import GivenUp, Loss
from pgdyno.plan.experiment import Experiment, Variant
from pgdyno.record.types import ErrorFact, StudyRecord
from pgdyno.report.format import ABSENT
from pgdyno.report.table import Cell, Table, columns, text
from pgdyno.spec.initdb import show_choices, show_usual
from pgdyno.spec.study import ServerSpec
from pgdyno.spec.variant import OF_PLACE, WITH_DATA, show_value

_MOST_SHOWN = 3


class VariantText(msgspec.Struct, frozen=True, kw_only=True):
    """A variant as text."""

    name: str
    is_reference: bool
    values: dict[str, str]
    """What it sets, by name: `commit_delay`, or for a load `clients`."""
    clients: int | None
    """The number of clients that it sets; None for the workload's own."""
    below: str
    """The disks of the places that it names, such as `xfs on vdb`; empty without any."""
    given_up: tuple[GivenUp, ...]
    """The losses of durability, the gravest first."""
    error: ErrorFact | None
    """The error with which it dropped out; None when it did not."""

    @property
    def sets(self) -> tuple[str, ...]:
        """What it sets, such as `commit_delay = 50`."""
        return tuple(f"{name} = {value}" for name, value in self.values.items())

    @property
    def tag(self) -> str:
        """The label beside its name wherever a number stands: `gives up durability`, or nothing."""
        return next((one.gist for one in self.given_up if one.is_durability), "")

    @property
    def is_durable(self) -> bool:
        """True if its settings surely keep committed transactions."""
        return not any(one.is_durability for one in self.given_up)

    @property
    def title(self) -> str:
        """The name with its tag."""
        return f"{self.name} ({self.tag})" if self.tag else self.name

    @property
    def content(self) -> str:
        """The settings that the name stands for, where the name does not say them, and the disks of its places."""
        if self.name.replace(" ", "") == ",".join(one.replace(" ", "") for one in self.sets):
            return self.below
        more = len(self.sets) - _MOST_SHOWN
        said = (*self.sets[:_MOST_SHOWN], *([f"{more} more"] if more > 0 else []), *filter(None, [self.below]))
        return ", ".join(said) or "sets nothing"


def describe_variants(record: StudyRecord, experiment: Experiment) -> dict[str, VariantText]:
    """Describe all variants by name, in their order."""
    return {variant.name: _describe(record, experiment, variant) for variant in experiment.variants}


def find_variant_of(workload: WorkloadAnalysis, variants: dict[str, VariantText]) -> VariantText | None:
    """Return the variant of all trials of a workload; None where several alternated, or nothing was compared."""
    tried = {trial.record.planned.variants for trial in workload.trials}
    names = next(iter(tried)) if len(tried) == 1 else ()
    return variants[names[0]] if len(names) == 1 else None


def shared_losses(variants: dict[str, VariantText]) -> tuple[GivenUp, ...]:
    """Return the losses of durability that all variants which ran share, and so the whole study."""
    ran = [variant.given_up for variant in variants.values() if variant.error is None]
    of_first = ran[0] if ran else ()
    return tuple(one for one in of_first if one.kind is Loss.DURABILITY and all(one in other for other in ran))


def variants_table(variants: dict[str, VariantText]) -> Table | None:
    """Build the table of what each variant sets and what it gives up; None where the names say it all.

    It has a row for each setting where these outnumber the variants, else one for each variant.
    """
    of = tuple(variants.values())
    if not any(variant.content or variant.given_up or variant.error for variant in of):
        return None
    names = tuple(dict.fromkeys(name for variant in of for name in variant.values))
    if len(names) > max(len(of), _MOST_SHOWN):
        return _turned_table(of, names)
    rows = tuple(
        (
            text(variant.name),
            text(", ".join((*variant.sets, *filter(None, [variant.below]))) or "nothing"),
            _loss_cell(variant),
            _part_cell(variant),
        )
        for variant in of
    )
    return Table(caption="Variants", columns=columns("Variant", "Sets", "Gives up", "Part"), rows=rows)


def _turned_table(of: Sequence[VariantText], names: Sequence[str]) -> Table:
    rows = [(text("Part"), *map(_part_cell, of)), (text("Gives up"), *map(_loss_cell, of))]
    if any(variant.below for variant in of):
        rows.append((text("Disks"), *(text(variant.below) for variant in of)))
    rows += [(text(name), *(text(variant.values.get(name)) for variant in of)) for name in names]
    remark = f"{ABSENT}: the variant does not set it."
    return Table(caption="Variants", columns=columns("", *(one.name for one in of)), rows=tuple(rows), remark=remark)


def _loss_cell(variant: VariantText) -> Cell:
    return text("; ".join(dict.fromkeys(one.label for one in variant.given_up)) or "nothing")


def _part_cell(variant: VariantText) -> Cell:
    error = variant.error
    if error is not None:
        return text(f"dropped out: {error.fact}", note=error.detail or error.hint or None)
    return text("the reference" if variant.is_reference else "compared with the reference")


def _describe(record: StudyRecord, experiment: Experiment, variant: Variant) -> VariantText:
    servers = {_name_server(other.server) for other in experiment.variants}
    return VariantText(
        name=variant.name,
        is_reference=variant.name == experiment.reference.name,
        values=_list_values(experiment, variant, has_own_server=len(servers) > 1),
        clients=variant.clients,
        below=_describe_disks(record, variant),
        given_up=find_losses(record, variant),
        error=record.refused_variants.get(variant.name),
    )


def _list_values(experiment: Experiment, variant: Variant, *, has_own_server: bool) -> dict[str, str]:
    said = {
        "server": _name_server(variant.server) if has_own_server else None,
        "scale": variant.scale,
        "mode": None if variant.mode is None else variant.mode.value,
        "clients": variant.clients,
        "threads": variant.threads,
        "load_hosts": variant.load_hosts,
        "endpoint": variant.endpoint,
        "cache": None if variant.cache is None else variant.cache.value,
        **{key: getattr(variant, key) for key in OF_PLACE},
        **_list_choices(experiment, variant),
        **variant.changed,
        **variant.sysctl,
    }
    return {name: show_value(value) for name, value in said.items() if value is not None}


def _list_choices(experiment: Experiment, variant: Variant) -> dict[str, str]:
    """List the choices of initdb in which variants differ."""
    own = show_choices(variant.initdb)
    names = dict.fromkeys(name for other in experiment.variants for name in show_choices(other.initdb))
    differing = [name for name in names if len({getattr(other.initdb, name) for other in experiment.variants}) > 1]
    return {name: own.get(name) or show_usual(name) for name in differing}


def _describe_disks(record: StudyRecord, variant: Variant) -> str:
    if not record.places:
        return ""
    there = record.places[record.find_place((variant.name,))]
    disks = [there.data_disk] if variant.home is not None else []
    disks += [there.wal] if variant.wal_home not in {None, WITH_DATA} else []
    return ", ".join(f"{disk.filesystem} on {disk.shown_device}" for disk in disks)


def _name_server(server: ServerSpec) -> str:
    return str(server.version or server.bindir or server.kind.value)
