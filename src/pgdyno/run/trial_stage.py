"""The input of a trial, and its observations so far."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from pgdyno.plan.experiment import Variant
from pgdyno.plan.plan import Plan, PlannedTrial
from pgdyno.plan.types import PlannedPooler
from pgdyno.record.failover import FailoverRecord
from pgdyno.record.plans import StatementPlan
from pgdyno.record.statements import StatementCounts, StatementsLook
from pgdyno.record.types import Dataset, Gap, SettingFact, TableState
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.link.ssh import SshLink
from pgdyno.run.load.generator import InitOutcome, LoadGenerator, LoadOutcome
from pgdyno.run.switchback import Switchback
from pgdyno.run.under_test import LoadServer, ServerUnderTest, list_load_servers
from pgdyno.spec.study import Study
from pgdyno.spec.table import CacheState, SettingValue


class TrialStage(msgspec.Struct, frozen=True, kw_only=True):
    """The part that all trials of a study share; in a comparison, what those of one variant share."""

    server: ServerUnderTest
    """With `dataset` loaded."""
    generator: LoadGenerator
    dataset: Dataset
    study: Study
    plan: Plan
    settings: Mapping[str, SettingValue]
    """The settings that the server is started with."""
    cpu_count: float
    """CPUs that this process may use."""
    scripts: Mapping[str, Path] = {}
    """Script files, by their names in the plan, to the copies to run; others are read where they lie."""
    load_links: Mapping[str, SshLink] = {}
    """Load hosts by name, which are sampled; none if the load comes from this machine."""
    shared_hosts: frozenset[str] = frozenset()
    """Load hosts that are the server's machine, too."""

    def variants_of(self, trial: PlannedTrial) -> tuple[Variant, ...]:
        """Return the variants of a trial; none in a study that compares nothing."""
        experiment = self.plan.experiment
        return () if experiment is None else tuple(experiment.find_variant(name) for name in trial.variants)

    def pooler_of(self, trial: PlannedTrial) -> PlannedPooler | None:
        """Return the pooler that a trial's load connects to; None for the server itself."""
        return self.plan.find_pooler_of(self.plan.find_load(trial))

    def servers_of(self, trial: PlannedTrial) -> tuple[LoadServer, ...]:
        """Return the servers that a trial's load connects to, directly or through a pooler, while they run."""
        return list_load_servers(self.server, self.plan.find_load(trial))

    def cache_of(self, trial: PlannedTrial) -> CacheState:
        """Return the state of the caches with which a trial begins."""
        variants = self.variants_of(trial)
        return (variants[0].cache if variants else None) or self.study.trials.cache


class Observed(msgspec.Struct):
    """The observations of a trial so far. They become the trial's record, however the trial ends."""

    began_monotonic_s: float = msgspec.field(default_factory=monotonic_s)
    restore_s: float = 0.0
    log_sampling_rate: float = 1.0
    settings: tuple[SettingFact, ...] = ()
    counters_before: dict[str, float | None] = {}
    counters_after: dict[str, float | None] = {}
    tables_before: tuple[TableState, ...] = ()
    tables_after: tuple[TableState, ...] = ()
    statements_before: StatementsLook | None = None
    statements: tuple[StatementCounts, ...] | None = None
    plans: tuple[StatementPlan, ...] | None = None
    gaps: tuple[Gap, ...] = ()
    load: LoadOutcome | None = None
    init: InitOutcome | None = None
    checkpoint_s: float | None = None
    failover: FailoverRecord | None = None
    clock_offset_s: float | None = None
    warm_up_latency_s: float | None = None
    switchback: Switchback | None = None
