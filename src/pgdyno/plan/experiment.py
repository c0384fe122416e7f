"""Turns variants and sweeps into arms with nothing left open, and draws the orders in which they run.

How they are compared is chosen in `design.py`, how often in `order.py`. Which arm is better is never said here.
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
"""What evidence bets on: the mean log ratio has this variance, in units of a pair's noise. It is fixed before any data."""


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """A variant with nothing left open.

    `server.settings` are all that the server is started with; `changed` those of them that the variant itself sets,
    `levels` its place in a sweep. None for the load: as the workload says.
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
    """What is compared, how, and how sure the answer must be. The first arm is the reference."""

    arms: tuple[Arm, ...]
    design: DesignKind
    reason: str
    """Why this design."""
    budget_s: float | None
    """The longest it may take; None until a plan has chosen it."""
    alpha: float
    detect_ratio: float
    slice_s: float | None = None
    """Of a switchback; None where a pilot chooses it."""

    @property
    def reference(self) -> Arm:
        """The arm that the others are compared with."""
        return self.arms[0]

    def find_arm(self, name: str) -> Arm:
        """The arm of that name."""
        return next(arm for arm in self.arms if arm.name == name)


def plan_experiment(study: Study, *, version_major: int) -> Experiment | None:
    """Make the arms of a study and choose the design; None for a study that compares nothing.

    Args:
        study: What was asked for.
        version_major: Of the study's own server, whose settings are looked up.

    Raises:
        SpecError: Two variants have one name, they are too many, a setting cannot be varied, or a design was asked for
            that cannot be.
    """
    if not study.is_comparison:
        return None
    from pgdyno.plan.design import check_names, choose_design  # noqa: PLC0415 - a large catalogue, for comparisons only

    variants = _list_variants(study)
    arms = tuple(_make_arm(study.server, variant, levels, version_major) for variant, levels in variants)
    names = [arm.name for arm in arms]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise SpecError(
            f"several variants are named {', '.join(repeated)}",
            detail="variants without a name are called by what they set",
            hint="give each its own name, or leave one out",
        )
    # Arms on other versions have other settings; those servers say themselves what they do not know.
    own = tuple(arm for arm in arms if identify_server(arm.server) == identify_server(arms[0].server))
    check_names(own, version_major=version_major)
    design, reason = choose_design(study, arms, version_major=version_major)
    return Experiment(
        arms=arms,
        design=design,
        reason=reason,
        budget_s=None if study.experiment.minutes is None else study.experiment.minutes * 60.0,
        alpha=study.experiment.alpha,
        detect_ratio=study.experiment.detect_ratio,
        slice_s=study.experiment.slice_s,
    )


def has_same_server(one: Arm, other: Arm) -> bool:
    """Whether two arms' servers and kernels are set alike: they may differ in their loads."""
    return (one.server, one.sysctl) == (other.server, other.sysctl)


def count_starts(arms: Sequence[Arm]) -> int:
    """How many servers must be started to try all arms: one for those that differ in their loads alone."""
    return len([arm for n, arm in enumerate(arms) if not any(has_same_server(arm, other) for other in arms[:n])])


def is_client_sweep(experiment: Experiment) -> bool:
    """Whether the arms differ in their clients alone."""
    return all(set(arm.levels) == {"clients"} for arm in experiment.arms)


def count_least_rounds(experiment: Experiment, workloads_count: int) -> int:
    """The fewest rounds after which anything can be decided: 4 for one question at 95 %, 2 for a sweep over clients.

    Source: of a sweep over clients, analyse/client_trials.py: the noise shows in loads that were repeated.
    """
    if is_client_sweep(experiment):
        return 2
    questions = (len(experiment.arms) - 1) * workloads_count
    return least_pairs(experiment.alpha / questions)


def least_pairs(alpha: float) -> int:
    """The fewest pairs that can show anything at this level, however far apart.

    Source: the supremum over t of the e-process in analyse/evidence.py, (1 + n g)^((n - 1) / 2), must exceed 1 / alpha.
    """
    return next(n for n in itertools.count(2) if (n - 1) / 2 * math.log1p(n * EFFECT_VARIANCE) > -math.log(alpha))


def draw_orders(arms: Sequence[str], draw: random.Random) -> list[list[str]]:
    """Orders of as many rounds as there are arms, in which each arm takes each place once: a random Latin square.

    A drift within rounds then falls on all arms alike and not only on average. Source: `benchmarks/verdicts.py --simulate`,
    steep drift: 0.0 % false verdicts against 4.4 % with an order drawn for each round by itself.
    """
    size = len(arms)
    rows, columns = draw.sample(range(size), size), draw.sample(range(size), size)
    return [[arms[(row + column) % size] for column in columns] for row in rows]


def reference_server(study: Study) -> ServerSpec:
    """The server that a study is mainly about: in a comparison that of its reference."""
    named: SettingValue | None = study.variant[0].server if study.variant else None
    for axis in study.sweep:
        if axis.name == "server":
            named = axis.levels[0]
    return study.server if named is None else _find_server(study.server, str(named))


def changed_settings(arms: tuple[Arm, ...]) -> tuple[str, ...]:
    """Names of the server settings in which any two arms differ, sorted."""
    names = {name for arm in arms for name in arm.server.settings}
    return tuple(sorted(n for n in names if len({str(arm.server.settings.get(n)) for arm in arms}) > 1))


def changed_sysctls(arms: tuple[Arm, ...]) -> tuple[str, ...]:
    """Names of the kernel settings in which any two arms differ, sorted."""
    names = {name for arm in arms for name in arm.sysctl}
    return tuple(sorted(n for n in names if len({arm.sysctl.get(n) for arm in arms}) > 1))


def _list_variants(study: Study) -> list[tuple[VariantSpec, dict[str, str]]]:
    """Each variant with its levels in a sweep, which one variant may be the base of."""
    axes = [axis.name for axis in study.sweep]
    if len(set(axes)) < len(axes):
        raise SpecError(f"both axes of the sweep are {axes[0]}", hint="one axis can hold all of its levels")
    count = math.prod(len(axis.levels) for axis in study.sweep) if axes else len(study.variant)
    if count > MOST_VARIANTS:
        raise SpecError(f"{count} variants are more than {MOST_VARIANTS}", hint="sweep fewer levels, or one axis")
    if not axes:
        return [(variant, {}) for variant in study.variant]
    points = [
        dict(zip(axes, levels, strict=True)) for levels in itertools.product(*(axis.levels for axis in study.sweep))
    ]
    base = study.variant[0] if study.variant else VariantSpec()
    return [
        (_put_upon(base, make_variant(point)), {name: show_value(level) for name, level in point.items()})
        for point in points
    ]


def _put_upon(base: VariantSpec, level: VariantSpec) -> VariantSpec:
    """A level of a sweep with all that its base says, called by what it sets itself."""
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


def _make_arm(base: ServerSpec, variant: VariantSpec, levels: dict[str, str], major: int) -> Arm:
    server = base if variant.server is None else _find_server(base, variant.server)
    changed = _with_servers_names(variant.settings, major)
    return Arm(
        name=variant.title,
        server=msgspec.structs.replace(server, settings={**_with_servers_names(base.settings, major), **changed}),
        changed=changed,
        sysctl={name: str(value) for name, value in variant.sysctl.items()},
        scale=variant.scale,
        mode=variant.mode,
        clients=variant.clients,
        threads=variant.threads,
        levels=levels,
    )


def _with_servers_names(settings: Mapping[str, SettingValue], major: int) -> dict[str, SettingValue]:
    """The settings under the names that the server shows, so that `Work_Mem` and `work_mem` are seen to be one."""
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
    """What two arms on the same PostgreSQL have in common."""
    return server.kind, server.version, server.bindir
