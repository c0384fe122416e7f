"""Expand the variants and sweeps of a study into complete variants, and draw the orders in which they run.

`design.py` chooses how they are compared, `order.py` how often. Which variant is better is not judged here.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence

import msgspec

from pgdyno.errors import SpecError
from pgdyno.spec.study import ServerKind, ServerSpec, Study
from pgdyno.spec.table import QueryMode, SettingValue
from pgdyno.spec.variant import MOST_VARIANTS, DesignKind, VariantSpec, make_variant, show_value

EFFECT_VARIANCE = 3.0
"""Prior variance of the mean log ratio in the e-process, in units of a pair's noise, fixed before any data."""


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """A variant with all choices made.

    `server.settings` are all settings of the server's start, `changed` those that the variant itself sets, and `levels`
    its levels in a sweep. A load field that is None takes the workload's value.
    """

    name: str
    server: ServerSpec
    changed: dict[str, SettingValue] = {}
    sysctl: dict[str, str] = {}
    scale: int | None = None
    mode: QueryMode | None = None
    clients: int | None = None
    threads: int | None = None
    levels: dict[str, str] = {}


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison: its variants, its design and its error rate. The first variant is the reference."""

    variants: tuple[Variant, ...] = msgspec.field(name="arms")
    design: DesignKind
    reason: str
    """Why this design was chosen."""
    budget_s: float | None
    """Time budget; None until a plan has chosen it."""
    alpha: float
    detect_ratio: float
    slice_s: float | None = None
    """Length of a switchback's slices; None if a pilot chooses it."""

    @property
    def reference(self) -> Variant:
        """The variant that the others are compared with."""
        return self.variants[0]

    def find_variant(self, name: str) -> Variant:
        """Return the variant with that name."""
        return next(variant for variant in self.variants if variant.name == name)


def plan_experiment(study: Study, *, version_major: int) -> Experiment | None:
    """Make the variants of a study and choose the design; return None for a study without a comparison.

    Args:
        study: The study as requested.
        version_major: Major version of the study's own server, for the catalogue of settings.

    Raises:
        SpecError: Two variants have the same name, there are too many variants, a setting cannot be varied, or the
            requested design is impossible.
    """
    if not study.is_comparison:
        return None
    from pgdyno.plan.design import check_names, choose_design  # noqa: PLC0415 - a large catalogue, for comparisons only

    specs = _list_specs(study)
    variants = tuple(_make_variant(study.server, spec, levels, version_major) for spec, levels in specs)
    names = [variant.name for variant in variants]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise SpecError(
            f"several variants are named {', '.join(repeated)}",
            detail="a variant without a name is named after its settings",
            hint="give each its own name, or leave one out",
        )
    # Servers of other versions have other settings, and refuse unknown ones themselves.
    own = tuple(
        variant for variant in variants if identify_server(variant.server) == identify_server(variants[0].server)
    )
    check_names(own, version_major=version_major)
    design, reason = choose_design(study, variants, version_major=version_major)
    return Experiment(
        variants=variants,
        design=design,
        reason=reason,
        budget_s=None if study.experiment.minutes is None else study.experiment.minutes * 60.0,
        alpha=study.experiment.alpha,
        detect_ratio=study.experiment.detect_ratio,
        slice_s=study.experiment.slice_s,
    )


def has_same_server(one: Variant, other: Variant) -> bool:
    """Return whether two variants have the same server and kernel settings; their loads may differ."""
    return (one.server, one.sysctl) == (other.server, other.sysctl)


def count_starts(variants: Sequence[Variant]) -> int:
    """Count the servers to start to try all variants; variants that differ only in their loads share one."""
    return len(
        [
            variant
            for n, variant in enumerate(variants)
            if not any(has_same_server(variant, other) for other in variants[:n])
        ]
    )


def is_client_sweep(experiment: Experiment) -> bool:
    """Return whether the variants differ only in their number of clients."""
    return all(set(variant.levels) == {"clients"} for variant in experiment.variants)


def count_least_rounds(experiment: Experiment, workloads_count: int) -> int:
    """Return the fewest rounds that can give a verdict: 4 for one question at 95 %, 2 for a sweep over clients.

    Source: for a sweep over clients, analyse/sweep/client_trials.py: the noise is estimated from repeated loads.
    """
    if is_client_sweep(experiment):
        return 2
    questions = (len(experiment.variants) - 1) * workloads_count
    return least_pairs(experiment.alpha / questions)


def least_pairs(alpha: float) -> int:
    """Return the fewest pairs that can give a verdict at this level, however large the difference.

    Source: the supremum over t of the e-process in analyse/comparison/e_process.py, (1 + n g)^((n - 1) / 2), must
    exceed 1 / alpha.
    """
    return next(n for n in itertools.count(2) if (n - 1) / 2 * math.log1p(n * EFFECT_VARIANCE) > -math.log(alpha))


def draw_orders(variants: Sequence[str], draw: random.Random) -> list[list[str]]:
    """Draw the orders of as many rounds as there are variants: a random Latin square.

    Each variant takes each position once, so that drift within rounds affects all variants equally, not only on
    average.
    Source: `benchmarks/verdicts.py --simulate`, steep drift: 0.0 % false verdicts against 4.4 % with an order drawn for
    each round independently.
    """
    size = len(variants)
    rows, columns = draw.sample(range(size), size), draw.sample(range(size), size)
    return [[variants[(row + column) % size] for column in columns] for row in rows]


def reference_server(study: Study) -> ServerSpec:
    """Return the study's main server: in a comparison that of its reference."""
    named: SettingValue | None = study.variant[0].server if study.variant else None
    for axis in study.sweep:
        if axis.name == "server":
            named = axis.levels[0]
    return study.server if named is None else _find_server(study.server, str(named))


def changed_settings(variants: tuple[Variant, ...]) -> tuple[str, ...]:
    """Return the sorted names of the server settings in which any two variants differ."""
    names = {name for variant in variants for name in variant.server.settings}
    return tuple(sorted(n for n in names if len({str(variant.server.settings.get(n)) for variant in variants}) > 1))


def changed_sysctls(variants: tuple[Variant, ...]) -> tuple[str, ...]:
    """Return the sorted names of the kernel settings in which any two variants differ."""
    names = {name for variant in variants for name in variant.sysctl}
    return tuple(sorted(n for n in names if len({variant.sysctl.get(n) for variant in variants}) > 1))


def _list_specs(study: Study) -> list[tuple[VariantSpec, dict[str, str]]]:
    """List each variant with its levels in a sweep; a sweep may have one variant as its base."""
    axes = [axis.name for axis in study.sweep]
    if len(set(axes)) < len(axes):
        raise SpecError(f"both axes of the sweep are {axes[0]}", hint="one axis can hold all of its levels")
    count = math.prod(len(axis.levels) for axis in study.sweep) if axes else len(study.variant)
    if count > MOST_VARIANTS:
        raise SpecError(f"{count} variants are more than {MOST_VARIANTS}", hint="sweep fewer levels, or one axis")
    if not axes:
        return [(spec, {}) for spec in study.variant]
    points = [
        dict(zip(axes, levels, strict=True)) for levels in itertools.product(*(axis.levels for axis in study.sweep))
    ]
    base = study.variant[0] if study.variant else VariantSpec()
    return [
        (_merge_level(base, make_variant(point)), {name: show_value(level) for name, level in point.items()})
        for point in points
    ]


def _merge_level(base: VariantSpec, level: VariantSpec) -> VariantSpec:
    """Merge a level of a sweep into its base variant, named after the level's own settings."""
    return VariantSpec(
        name=level.title,
        settings={**base.settings, **level.settings},
        sysctl={**base.sysctl, **level.sysctl},
        server=base.server if level.server is None else level.server,
        scale=base.scale if level.scale is None else level.scale,
        mode=level.mode or base.mode,
        clients=level.clients or base.clients,
        threads=level.threads or base.threads,
    )


def _make_variant(base: ServerSpec, spec: VariantSpec, levels: dict[str, str], major: int) -> Variant:
    server = base if spec.server is None else _find_server(base, spec.server)
    changed = _with_canonical_names(spec.settings, major)
    return Variant(
        name=spec.title,
        server=msgspec.structs.replace(server, settings={**_with_canonical_names(base.settings, major), **changed}),
        changed=changed,
        sysctl={name: str(value) for name, value in spec.sysctl.items()},
        scale=spec.scale,
        mode=spec.mode,
        clients=spec.clients,
        threads=spec.threads,
        levels=levels,
    )


def _with_canonical_names(settings: Mapping[str, SettingValue], major: int) -> dict[str, SettingValue]:
    """Return the settings under the server's spelling, so that `Work_Mem` and `work_mem` are the same setting."""
    from pgdyno.facts.gucs import find_guc  # noqa: PLC0415 - as above

    found = {name: find_guc(name, major) for name in settings}
    return {name if (guc := found[name]) is None else guc.name: value for name, value in settings.items()}


def _find_server(base: ServerSpec, named: str | int) -> ServerSpec:
    text = str(named)
    if text == "embedded":
        return ServerSpec(port=base.port)
    if text.isascii() and text.isdigit():
        return ServerSpec(kind=ServerKind.LOCAL, version=int(text), port=base.port)
    return ServerSpec(kind=ServerKind.LOCAL, bindir=text, port=base.port)


def identify_server(server: ServerSpec) -> tuple[object, ...]:
    """Return a key that is equal for variants on the same PostgreSQL."""
    return server.kind, server.version, server.bindir
