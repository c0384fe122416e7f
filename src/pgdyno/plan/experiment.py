"""What a comparison consists of: its variants with no setting left open, their design, and the orders in which they run.

`variants.py` makes the variants, `design.py` chooses how they are compared, and `order.py` how often.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import msgspec

from pgdyno.spec.study import ServerKind, ServerSpec, Study
from pgdyno.spec.table import QueryMode, SettingValue
from pgdyno.spec.variant import DesignKind

EFFECT_VARIANCE = 3.0
"""What evidence bets on: the mean log ratio has this variance, in units of a pair's noise. It is fixed before any data."""


class Variant(msgspec.Struct, frozen=True, kw_only=True):
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
    """What is compared, how, and how sure the answer must be. The first variant is the reference."""

    variants: tuple[Variant, ...] = msgspec.field(name="arms")
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
    def reference(self) -> Variant:
        """The variant that the others are compared with."""
        return self.variants[0]

    def find_variant(self, name: str) -> Variant:
        """The variant of that name."""
        return next(variant for variant in self.variants if variant.name == name)


def has_same_server(one: Variant, other: Variant) -> bool:
    """Whether two variants' servers and kernels are set alike: they may differ in their loads."""
    return (one.server, one.sysctl) == (other.server, other.sysctl)


def count_starts(variants: Sequence[Variant]) -> int:
    """How many servers must be started to try all variants: one for those that differ in their loads alone."""
    return len(
        [
            variant
            for n, variant in enumerate(variants)
            if not any(has_same_server(variant, other) for other in variants[:n])
        ]
    )


def is_client_sweep(experiment: Experiment) -> bool:
    """Whether the variants differ in their clients alone."""
    return all(set(variant.levels) == {"clients"} for variant in experiment.variants)


def count_least_rounds(experiment: Experiment, workloads_count: int) -> int:
    """The fewest rounds after which anything can be decided: 4 for one question at 95 %, 2 for a sweep over clients.

    Source: of a sweep over clients, analyse/sweep/client_trials.py: the noise shows in loads that were repeated.
    """
    if is_client_sweep(experiment):
        return 2
    questions = (len(experiment.variants) - 1) * workloads_count
    return least_pairs(experiment.alpha / questions)


def least_pairs(alpha: float) -> int:
    """The fewest pairs that can show anything at this level, however far apart.

    Source: the supremum over t of the e-process in analyse/comparison/e_process.py, (1 + n g)^((n - 1) / 2), must exceed 1 / alpha.
    """
    return next(n for n in itertools.count(2) if (n - 1) / 2 * math.log1p(n * EFFECT_VARIANCE) > -math.log(alpha))


def draw_orders(variants: Sequence[str], draw: random.Random) -> list[list[str]]:
    """Orders of as many rounds as there are variants, in which each variant takes each place once: a random Latin square.

    A drift within rounds then falls on all variants alike and not only on average. Source: `benchmarks/verdicts.py --simulate`,
    steep drift: 0.0 % false verdicts against 4.4 % with an order drawn for each round by itself.
    """
    size = len(variants)
    rows, columns = draw.sample(range(size), size), draw.sample(range(size), size)
    return [[variants[(row + column) % size] for column in columns] for row in rows]


def reference_server(study: Study) -> ServerSpec:
    """The server that a study is mainly about: in a comparison that of its reference."""
    named: SettingValue | None = study.variant[0].server if study.variant else None
    for axis in study.sweep:
        if axis.name == "server":
            named = axis.levels[0]
    return study.server if named is None else find_server(study.server, str(named))


def changed_settings(variants: tuple[Variant, ...]) -> tuple[str, ...]:
    """Names of the server settings in which any two variants differ, sorted."""
    names = {name for variant in variants for name in variant.server.settings}
    return tuple(sorted(n for n in names if len({str(variant.server.settings.get(n)) for variant in variants}) > 1))


def changed_sysctls(variants: tuple[Variant, ...]) -> tuple[str, ...]:
    """Names of the kernel settings in which any two variants differ, sorted."""
    names = {name for variant in variants for name in variant.sysctl}
    return tuple(sorted(n for n in names if len({variant.sysctl.get(n) for variant in variants}) > 1))


def find_server(base: ServerSpec, named: str | int) -> ServerSpec:
    """Return the server of a variant: `embedded`, a major version or a folder of programs, with the base's port."""
    text = str(named)
    if text == "embedded":
        return ServerSpec(port=base.port)
    if text.isascii() and text.isdigit():
        return ServerSpec(kind=ServerKind.LOCAL, version=int(text), port=base.port)
    return ServerSpec(kind=ServerKind.LOCAL, bindir=text, port=base.port)


def identify_server(server: ServerSpec) -> tuple[object, ...]:
    """What two variants on the same PostgreSQL have in common."""
    return server.kind, server.version, server.bindir
