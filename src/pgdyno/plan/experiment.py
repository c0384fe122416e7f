"""Plan a comparison: its variants with no setting left open, their design, and the orders in which they run.

`variants.py` makes the variants, `design.py` chooses how they are compared, and `order.py` how often.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import msgspec

from pgdyno.spec.initdb import InitdbChoices
from pgdyno.spec.study import ServerKind, ServerSpec, Study
from pgdyno.spec.table import CacheState, QueryMode, SettingValue
from pgdyno.spec.variant import DesignKind, is_server_folder

EFFECT_VARIANCE = 3.0
"""Prior variance of the mean log ratio in the e-process, in units of a pair's noise, fixed before any data."""
LEAST_TESTED_PAIRS = 4
"""Fewest pairs that the t-test of the final look takes. With three it calls up to 5.3 % of identical variants different
where slices stall (ADR 16)."""
_WIDEST_TESTED = 3.0
"""Half-width of the final look's interval, in standard deviations of a pair, above which it is not planned."""
OF_LOAD_ALONE = ("clients", "threads", "mode")
# What a variant of the same server may have beside its load.
_OF_TRIAL = ("scale", "load_hosts", "endpoint", "scripts", "cache", "home", "wal_home")


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """A variant with all choices made.

    `server.settings` are all settings of the server's start, `changed` those that the variant itself sets, and `levels`
    its levels in a sweep. A load field that is None takes the workload's value, a place that is None the study's. `initdb` has the choices of its cluster, wherever they were made.
    """

    name: str
    server: ServerSpec
    changed: dict[str, SettingValue] = {}
    sysctl: dict[str, str] = {}
    scale: int | None = None
    mode: QueryMode | None = None
    clients: int | None = None
    threads: int | None = None
    load_hosts: int | None = None
    endpoint: str | None = None
    scripts: tuple[tuple[str, int], ...] = ()
    """Name or path of each script with its weight; empty where the workload's run."""
    cache: CacheState | None = None
    home: str | None = None
    wal_home: str | None = None
    initdb: InitdbChoices = InitdbChoices()
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
    """Length of slices or turns; None if a switchback's pilot chooses it, or a live round by its latencies."""
    takes_turns: bool = False
    """Whether the loads of a live round take turns on one server; False in older plans, and where each has its own server."""
    final_look: bool = False
    """Whether half of the error rate belongs to a t-test at the planned end; False in older plans and sweeps over clients."""
    extra_rounds: bool = False
    """Whether open questions get more rounds if minutes are left; False in older plans, switchbacks and sweeps over clients."""

    @property
    def reference(self) -> Variant:
        """The variant that the others are compared with."""
        return self.variants[0]

    @property
    def is_side_by_side(self) -> bool:
        """Whether all loads of a live round are up at once, each with a server or a copy of the data of its own."""
        return self.design is DesignKind.LIVE and not self.takes_turns

    def list_differing_in(self, field: str) -> tuple[Variant, ...]:
        """Return the variants that differ from the reference in a field, and in nothing else."""
        return tuple(one for one in self.variants if _differ_only_in(self.reference, one, field))

    def find_variant(self, name: str) -> Variant:
        """Return the variant with that name."""
        return next(variant for variant in self.variants if variant.name == name)


def has_same_server(one: Variant, other: Variant) -> bool:
    """Return whether two variants have the same server, cluster and kernel settings; their loads may differ."""
    return (one.server, one.sysctl, one.initdb) == (other.server, other.sysctl, other.initdb)


def differ_in_load(variants: Sequence[Variant]) -> bool:
    """Return whether variants differ in clients, threads or mode, and in nothing else: they send the same to the same server."""
    first = variants[0]
    is_same = all(
        has_same_server(one, first) and all(getattr(one, name) == getattr(first, name) for name in _OF_TRIAL)
        for one in variants
    )
    return is_same and len({tuple(getattr(one, name) for name in OF_LOAD_ALONE) for one in variants}) > 1


def _differ_only_in(one: Variant, other: Variant, field: str) -> bool:
    first, second = (
        msgspec.structs.replace(variant, **{"name": "", "levels": {}, field: None}) for variant in (one, other)
    )
    return first == second and getattr(one, field) != getattr(other, field)


def differ_in_settings_alone(one: Variant, other: Variant) -> bool:
    """Return whether nothing but their settings of the server and of the kernel can make two variants differ."""
    first, second = (
        msgspec.structs.replace(
            variant,
            name="",
            levels={},
            changed={},
            sysctl={},
            server=msgspec.structs.replace(variant.server, settings={}),
        )
        for variant in (one, other)
    )
    return first == second


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


def list_crossed_levels(experiment: Experiment) -> dict[str, dict[int, str]]:
    """Return the variants of a sweep over clients and another axis: by the level of that axis, such as `mode=prepared`, then by clients.

    Other comparisons have no such levels.
    """
    axes = list(experiment.reference.levels)
    crossed = [axis for axis in axes if axis != "clients"]
    levels: dict[str, dict[int, str]] = {}
    for variant in experiment.variants if crossed and "clients" in axes else ():
        if variant.clients is not None:
            levels.setdefault(f"{crossed[0]}={variant.levels[crossed[0]]}", {})[variant.clients] = variant.name
    return levels


def has_several_scripts(experiment: Experiment) -> bool:
    """Return whether variants run different scripts."""
    return len({variant.scripts for variant in experiment.variants}) > 1


def count_least_rounds(experiment: Experiment, compared_count: int) -> int:
    """Return the fewest rounds that can give a verdict: 4 for one question at 95 %, 2 for a sweep over clients.

    Args:
        experiment: The experiment.
        compared_count: What `parts.count_compared` returns of its loads.

    Source: for a sweep over clients, analyse/sweep/client_trials.py: the noise is estimated from repeated loads.
    """
    if is_client_sweep(experiment):
        return 2
    return count_rounds_for(experiment, (len(experiment.variants) - 1) * compared_count)


def count_rounds_for(experiment: Experiment, questions: int) -> int:
    """Return the fewest rounds that can answer so many questions. Whether the reference differs from itself (A/A) is a question, too."""
    if not experiment.final_look:
        return least_pairs(experiment.alpha / questions)
    level = experiment.alpha / 2 / questions
    return min(least_tested_pairs(level), least_pairs(level))


def least_pairs(alpha: float) -> int:
    """Return the fewest pairs that can give a verdict at this level, however large the difference.

    Source: the supremum over t of the e-process in analyse/comparison/e_process.py, (1 + n g)^((n - 1) / 2), must
    exceed 1 / alpha.
    """
    return next(n for n in itertools.count(2) if (n - 1) / 2 * math.log1p(n * EFFECT_VARIANCE) > -math.log(alpha))


def least_tested_pairs(alpha: float) -> int:
    """Return the fewest pairs with which a final look at this level is planned; its interval is then narrow enough.

    Source: ADR 16, which also has the rates of false verdicts with fewer.
    """
    from scipy.special import stdtrit  # noqa: PLC0415 - only comparisons need it

    return next(
        n for n in itertools.count(LEAST_TESTED_PAIRS) if -stdtrit(n - 1, alpha / 2) <= _WIDEST_TESTED * math.sqrt(n)
    )


def reference_server(study: Study) -> ServerSpec:
    """Return the study's main server: in a comparison that of its reference."""
    named: SettingValue | None = study.variant[0].server if study.variant else None
    for axis in study.sweep:
        if axis.name == "server":
            named = axis.levels[0]
    return find_server(study.server, None if named is None else str(named))


def changed_settings(variants: tuple[Variant, ...]) -> tuple[str, ...]:
    """Return the sorted names of the server settings in which any two variants differ."""
    names = {name for variant in variants for name in variant.server.settings}
    return tuple(sorted(n for n in names if len({str(variant.server.settings.get(n)) for variant in variants}) > 1))


def changed_sysctls(variants: tuple[Variant, ...]) -> tuple[str, ...]:
    """Return the sorted names of the kernel settings in which any two variants differ."""
    names = {name for variant in variants for name in variant.sysctl}
    return tuple(sorted(n for n in names if len({variant.sysctl.get(n) for variant in variants}) > 1))


def find_server(base: ServerSpec, named: str | int | None) -> ServerSpec:
    """Return the server of a variant: `embedded`, a major version or a folder of programs, with the base's port, address and standbys.

    Where it names none, it has the base itself.
    """
    if named is None:
        return base
    text, kept = str(named), ServerSpec(port=base.port, address=base.address, standbys=base.standbys)
    if text == "embedded":
        return kept
    if is_server_folder(text):
        return msgspec.structs.replace(kept, kind=ServerKind.LOCAL, bindir=text)
    return msgspec.structs.replace(kept, kind=ServerKind.LOCAL, version=int(text))


def identify_server(server: ServerSpec) -> tuple[object, ...]:
    """Return a key that is equal for variants on the same PostgreSQL."""
    return server.kind, server.version, server.bindir
