"""Turns variants and sweeps into arms with nothing left open, and chooses how they are compared.

Pure. What changing a setting costs comes from `facts/`; the choice between switchback and paired trials follows from it
and is explained. Which arm is better is never said here.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import msgspec

from pgdyno.errors import SpecError
from pgdyno.spec.study import ServerKind, ServerSpec, Study
from pgdyno.spec.table import QueryMode, SettingValue
from pgdyno.spec.variant import DesignKind, SweepSpec, VariantSpec

# A switchback's load is made anew after this long: what a crash may cost, and how far the data may grow.
LONGEST_BLOCK_S = 120.0
SHORTEST_BLOCK_S = 20.0


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
        SpecError: Two variants have one name, or a design was asked for that cannot be.
    """
    if not study.is_comparison:
        return None
    variants = study.variant or tuple(_variants_of(study.sweep))
    levels = [_levels_of(variant, study.sweep) for variant in variants]
    arms = tuple(_make_arm(study.server, variant, level) for variant, level in zip(variants, levels, strict=True))
    names = [arm.name for arm in arms]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise SpecError(
            f"several variants are named {', '.join(repeated)}",
            detail="variants without a name are called by what they set",
            hint="give each its own name, or leave one out",
        )
    # Arms on other versions have other settings; those servers say themselves what they do not know.
    _check_names(tuple(arm for arm in arms if _identity(arm.server) == _identity(arms[0].server)), version_major)
    design, reason = _choose_design(study, arms, version_major)
    return Experiment(
        arms=arms,
        design=design,
        reason=reason,
        budget_s=None if study.experiment.minutes is None else study.experiment.minutes * 60.0,
        alpha=study.experiment.alpha,
        detect_ratio=study.experiment.detect_ratio,
        slice_s=study.experiment.slice_s,
    )


def count_least_rounds(experiment: Experiment, workloads_count: int) -> int:
    """The fewest rounds after which anything can be decided: 5 for one question at 95 %.

    Source: the supremum over t of the e-process in analyse/evidence.py, (1 + n)^((n - 1) / 2), must exceed the number of
    questions over alpha.
    """
    questions = (len(experiment.arms) - 1) * workloads_count
    return next(n for n in itertools.count(2) if (1 + n) ** ((n - 1) / 2) > questions / experiment.alpha)


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


def find_identical(experiment: Experiment, *, version_major: int) -> tuple[tuple[str, str], ...]:
    """Pairs of arms that set the same in different words, such as 1GB and 1024MB."""
    return tuple(
        (one.name, other.name)
        for one, other in itertools.combinations(experiment.arms, 2)
        if _is_same(one, other, version_major)
    )


def changed_settings(arms: tuple[Arm, ...]) -> tuple[str, ...]:
    """Names of the server settings in which any two arms differ, sorted."""
    names = {name for arm in arms for name in arm.server.settings}
    return tuple(sorted(n for n in names if len({str(arm.server.settings.get(n)) for arm in arms}) > 1))


def changed_sysctls(arms: tuple[Arm, ...]) -> tuple[str, ...]:
    """Names of the kernel settings that any arm sets, sorted."""
    return tuple(sorted({name for arm in arms for name in arm.sysctl}))


def _variants_of(axes: tuple[SweepSpec, ...]) -> list[VariantSpec]:
    return [
        _variant_of(dict(zip((axis.name for axis in axes), levels, strict=True)))
        for levels in itertools.product(*(axis.levels for axis in axes))
    ]


def _variant_of(levels: dict[str, SettingValue]) -> VariantSpec:
    raw: dict[str, object] = {}
    for name, level in levels.items():
        if name in {"clients", "threads", "scale", "mode", "server"}:
            raw[name] = level
        else:
            table = "sysctl" if is_sysctl(name) else "settings"
            raw[table] = {**raw.get(table, {}), name: level}  # type: ignore[dict-item]
    try:
        return msgspec.convert(raw, VariantSpec, strict=False)
    except msgspec.ValidationError as exc:
        raise SpecError(f"sweep: {exc}", hint="for example clients=1,2,4 or commit_delay=0,50") from exc


def is_sysctl(name: str) -> bool:
    """Whether a name is the kernel's rather than PostgreSQL's: its first part is a folder of /proc/sys.

    Source: Documentation/admin-guide/sysctl of the Linux kernel.
    """
    head, dot, _ = name.partition(".")
    return bool(dot) and head in {"vm", "kernel", "net", "fs", "dev", "user", "abi"}


def _levels_of(variant: VariantSpec, axes: tuple[SweepSpec, ...]) -> dict[str, str]:
    named: dict[str, object] = {
        "clients": variant.clients,
        "threads": variant.threads,
        "scale": variant.scale,
        "mode": variant.mode.value if variant.mode else None,
        "server": variant.server,
        **variant.settings,
        **variant.sysctl,
    }
    return {axis.name: str(named[axis.name]) for axis in axes}


def _make_arm(base: ServerSpec, variant: VariantSpec, levels: dict[str, str]) -> Arm:
    server = base if variant.server is None else _find_server(base, variant.server)
    return Arm(
        name=variant.title,
        server=msgspec.structs.replace(server, settings={**base.settings, **variant.settings}),
        changed=variant.settings,
        sysctl={name: str(value) for name, value in variant.sysctl.items()},
        scale=variant.scale,
        mode=variant.mode,
        clients=variant.clients,
        threads=variant.threads,
        levels=levels,
    )


def _find_server(base: ServerSpec, named: str | int) -> ServerSpec:
    text = str(named)
    if text == "embedded":
        return ServerSpec(port=base.port)
    if text.isdigit():
        return ServerSpec(kind=ServerKind.LOCAL, version=int(text), port=base.port)
    return ServerSpec(kind=ServerKind.LOCAL, bindir=text, port=base.port)


def _choose_design(study: Study, arms: tuple[Arm, ...], major: int) -> tuple[DesignKind, str]:
    asked = study.experiment.design
    hindrance, is_final = _find_hindrance(study, arms, major)
    if asked is DesignKind.SWITCHBACK and hindrance is not None and is_final:
        raise SpecError(
            "these variants cannot alternate under one load", detail=hindrance, hint='leave design out, or "paired"'
        )
    if asked is not None:
        return asked, "as the study asks for"
    if hindrance is not None:
        return DesignKind.PAIRED, hindrance
    names = (*changed_settings(arms), *changed_sysctls(arms))
    them = "it" if len(names) == 1 else "them"
    return DesignKind.SWITCHBACK, f"{', '.join(names)}: a running server takes {them} at once"


def _find_hindrance(study: Study, arms: tuple[Arm, ...], major: int) -> tuple[str | None, bool]:
    """Why the arms cannot alternate under one load, and whether that is impossible rather than unwise."""
    for what in ("server", "scale", "mode", "clients", "threads"):
        values = {_identity(arm.server) if what == "server" else getattr(arm, what) for arm in arms}
        if len(values) > 1:
            return f"{what} cannot change under a running load", True
    is_prepared = any(workload.mode is QueryMode.PREPARED for workload in study.workload)
    hindrances = [_hindrance_of(name, major, is_prepared=is_prepared) for name in changed_settings(arms)]
    hindrances += [_hindrance_of_sysctl(name) for name in changed_sysctls(arms)]
    # What is impossible is said before what is unwise.
    found = sorted(filter(None, hindrances), key=lambda each: not each[1])
    return found[0] if found else (None, False)


def _hindrance_of(name: str, major: int, *, is_prepared: bool) -> tuple[str, bool] | None:
    from pgdyno.facts import gucs  # noqa: PLC0415 - a large catalogue, needed for comparisons only

    if gucs.is_custom_name(name):
        return f"{name} is an extension's, which alone knows when it takes effect", False
    cost = gucs.change_cost(name, major)
    if cost not in {gucs.ChangeCost.SESSION, gucs.ChangeCost.RELOAD}:
        return f"{name} takes {_COST_WORDS[cost.value]}", True
    rule = gucs.explain_effect(name)
    if rule.effect is gucs.Effect.SLOW:
        return f"{name} acts over longer than a slice ({rule.why})", False
    if rule.effect is gucs.Effect.NEW_PLANS and is_prepared:
        return f"{name} acts when a statement is planned, and prepared ones keep their plans", False
    return None


def _hindrance_of_sysctl(name: str) -> tuple[str, bool] | None:
    from pgdyno.facts import gucs  # noqa: PLC0415 - as above

    rule = gucs.explain_effect(name)
    if rule.effect is gucs.Effect.AT_ONCE:
        return None
    if rule.effect is gucs.Effect.NOT_WHILE_RUNNING:
        return f"{name} takes a restart of the server ({rule.why})", True
    return f"{name} acts over longer than a slice ({rule.why})", False


def _check_names(arms: tuple[Arm, ...], major: int) -> None:
    from pgdyno.facts import gucs  # noqa: PLC0415 - as above

    for arm in arms:
        for name in arm.changed:
            if gucs.is_custom_name(name):
                continue
            guc = gucs.find_guc(name, major)
            if guc is None:
                raise _unknown_setting(name, major)
            if gucs.change_cost(name, major) in {gucs.ChangeCost.INITDB, gucs.ChangeCost.FIXED}:
                raise SpecError(
                    f"{name} cannot be varied",
                    detail="it is fixed when a cluster is made or PostgreSQL is built",
                    hint="compare two clusters of your own builds with --server DIR --server DIR",
                )


def _unknown_setting(name: str, major: int) -> SpecError:
    from pgdyno.facts import gucs  # noqa: PLC0415 - as above

    nearest, others = gucs.nearest_gucs(name, major), gucs.majors_with(name)
    hint = f"did you mean {' or '.join(nearest)}?" if nearest else ""
    if others:
        hint = f"PostgreSQL {', '.join(map(str, others))} has it: choose the server with --server"
    return SpecError(f"PostgreSQL {major} has no setting {name}", hint=hint)


_COST_WORDS = {
    "kernel": "a change of the kernel's settings",
    "new sessions": "new sessions",
    "restart": "a restart",
    "initdb": "a new initdb",
    "fixed": "another build",
}


def _identity(server: ServerSpec) -> tuple[object, ...]:
    return server.kind, server.version, server.bindir


def _is_same(one: Arm, other: Arm, major: int) -> bool:
    from pgdyno.facts.gucs import same_value  # noqa: PLC0415 - as above

    if (_identity(one.server), one.sysctl, one.scale, one.mode, one.clients, one.threads) != (
        _identity(other.server),
        other.sysctl,
        other.scale,
        other.mode,
        other.clients,
        other.threads,
    ):
        return False
    names = {*one.server.settings, *other.server.settings}
    return all(
        name in one.server.settings
        and name in other.server.settings
        and same_value(name, str(one.server.settings[name]), str(other.server.settings[name]), major)
        for name in names
    )
