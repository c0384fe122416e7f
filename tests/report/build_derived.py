"""Inputs of reports that prove derived settings, made up for tests: the set is small and by hand, verdicts are the real ones."""

from __future__ import annotations

import functools

import msgspec

from pgdyno.explain.doubts.derived import find_derived_doubts
from pgdyno.record.tuned import DERIVED, STOCK, Tuned, TunedInput, TunedLayer, TunedSetting
from pgdyno.report.input import ReportInput
from pgdyno.spec.study import DataSpec, ServerSpec, Study, TrialsSpec, WorkloadSpec
from pgdyno.spec.variant import ExperimentSpec, VariantSpec
from tests.report.build import HOSTILE
from tests.report.build_comparison import Effect, compose

_MEMORY = TunedInput(name="memory", value=25.2e9, unit="bytes", origin="measured", how="/proc/meminfo")
_SETTINGS = (
    ("shared_buffers", "5632MB", "16384", "postgresql", "memory", "memory that no other process gets"),
    ("work_mem", "16MB", "4096", "postgresql", "memory", ""),
    ("max_wal_size", "6656MB", "1024", "postgresql", "WAL and checkpoints", "a longer recovery after a crash"),
    ("wal_compression", "pglz", "off", "postgresql", "WAL and checkpoints", "CPU time"),
    ("random_page_cost", "1.4", "4", "postgresql", "planner", ""),
    ("vm.nr_hugepages", "2915", "0", "sysctl", "kernel", "the pages are the server's alone"),
    ("log_lock_waits", "on", "off", "postgresql", "logging", "lines in the log"),
    ("vm.overcommit_memory", "2", None, "sysctl", "kernel", ""),
)
_LEFT_OUT = {"log_lock_waits": "trials log what pgdyno reads", "vm.overcommit_memory": "it guards memory"}
_LAYERS = {
    "kernel": ("vm.nr_hugepages",),
    "memory": ("shared_buffers", "work_mem"),
    "WAL and checkpoints": ("max_wal_size", "wal_compression"),
    "planner": ("random_page_cost",),
}


def build_tuned(*, is_layered: bool, is_hostile: bool = False) -> Tuned:
    """A set of eight, two of which are not tried."""
    reason = HOSTILE if is_hostile else "it is so by the figures of this machine."
    return Tuned(
        derived_for="oltp-write, 8 clients, 1.46 GB of data",
        settings=tuple(
            TunedSetting(
                name=name, value=value, stock=stock, target=target, layer=layer, reason=reason, formula="memory / 4",
                inputs=(_MEMORY,), source="PostgreSQL 18 manual", trades=trades, left_out=_LEFT_OUT.get(name),
            )
            for name, value, stock, target, layer, trades in _SETTINGS
        ),
        layers=tuple(
            TunedLayer(name=name, settings=names, variant=f"without {name}" if is_layered else None)
            for name, names in _LAYERS.items()
        ),
        notes=("assumed, and worth measuring or declaring: flush latency.",),
    )  # fmt: skip


@functools.cache
def build_derived(*, is_hard: bool = False) -> ReportInput:
    """Stock against derived on two workloads; when hard the set costs on one of them, and text tries to be markup."""
    study = _study(VariantSpec(name=STOCK), _with(), workloads=("tpcb-like", "select-only"))
    effects = {
        "tpcb-like": {DERIVED: Effect(tps=0.8 if is_hard else 1.3)},
        "select-only": {DERIVED: Effect(tps=1.0, rounds=6)},
    }
    return _compose(study, effects, build_tuned(is_layered=False, is_hostile=is_hard))


def build_mixed(*, layers: dict[str, float] | None = None, stock: float = 0.7, is_loud: bool = False) -> ReportInput:
    """The derived set against stock on two loads, the second of which it makes slower.

    Args:
        layers: The TPS on the second load without each layer, as a multiple of those with all; they are 0.7 on the first.
        stock: The same of stock on the first load.
        is_loud: Whether the second load tells identical variants apart.
    """
    layers = layers or {}
    variants = [VariantSpec(name=f"without {name}", settings={"jit": "off"}) for name in layers]
    study = _study(_with(), VariantSpec(name=STOCK), *variants, workloads=("tpcb-like", "select-only"))
    effects = {
        "tpcb-like": {STOCK: Effect(tps=stock), **{f"without {name}": Effect(tps=0.7) for name in layers}},
        "select-only": {STOCK: Effect(tps=1.4), **{f"without {name}": Effect(tps=tps) for name, tps in layers.items()}},
    }
    loud = frozenset({"select-only"}) if is_loud else frozenset()
    return _compose(study, effects, build_tuned(is_layered=bool(layers)), rounds=30, loud=loud)


@functools.cache
def build_layers() -> ReportInput:
    """Layers of which one gains, one costs, one is close to nothing and one is not told."""
    names = {"kernel": 1.0, "memory": 0.75, "WAL and checkpoints": 1.15, "planner": 1.0}
    variants = [VariantSpec(name=f"without {name}", settings={"jit": "off"}) for name in names]
    study = _study(_with(), VariantSpec(name=STOCK), *variants, workloads=("tpcb-like",))
    effects = {f"without {name}": Effect(tps=tps) for name, tps in names.items()}
    effects["without planner"] = Effect(rounds=7)
    return _compose(study, {"tpcb-like": {STOCK: Effect(tps=0.7), **effects}}, build_tuned(is_layered=True), rounds=60)


def _with() -> VariantSpec:
    settings = {name: value for name, value, _, target, _, _ in _SETTINGS if target == "postgresql"}
    return VariantSpec(name=DERIVED, settings=settings, sysctl={"vm.nr_hugepages": "2915"})


def _study(*variants: VariantSpec, workloads: tuple[str, ...]) -> Study:
    return Study(
        question="How fast is this machine's PostgreSQL, and are settings derived for it faster?",
        server=ServerSpec(settings={"synchronous_commit": "on"}),
        data=DataSpec(scale=50),
        workload=tuple(WorkloadSpec(name=name, clients=8) for name in workloads),
        trials=TrialsSpec(duration="10s", warm_up="2s"),
        variant=variants,
        experiment=ExperimentSpec(minutes=240.0),
    )


def _compose(
    study: Study,
    effects: dict[str, dict[str, Effect]],
    tuned: Tuned,
    *,
    rounds: int = 14,
    loud: frozenset[str] = frozenset(),
) -> ReportInput:
    report = compose(study, effects, rounds=rounds, noise_ratio=0.03, round_s=51.0, loud=loud)
    record = msgspec.structs.replace(report.record, name="bench", tuned=tuned)
    findings = (*find_derived_doubts(record, report.analysis), *report.findings)
    return msgspec.structs.replace(report, record=record, findings=findings)
