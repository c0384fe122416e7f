"""The whole job's report, made up for tests: stock against derived, and the sweep over clients that followed."""

from __future__ import annotations

import functools

import msgspec

from pgdyno.analyse.study_types import ScalingStudy
from pgdyno.plan.types import Choice
from pgdyno.record.tuned import DERIVED
from pgdyno.report.input import ReportInput
from tests.report.build_comparison import LOADS, build_client_sweep
from tests.report.build_derived import build_derived


@functools.cache
def build_bench(*, rounds: int = 3, loads: tuple[int, ...] = LOADS) -> ReportInput:
    """Derived settings that are faster, under which TPS climbs, has a peak and falls."""
    report, sweep = build_derived(), build_client_sweep(rounds=rounds, loads=loads)
    chosen = Choice(name="settings", value=DERIVED, reason="proven to be faster than stock on tpcb-like")
    record = msgspec.structs.replace(
        sweep.record, plan=msgspec.structs.replace(sweep.record.plan, choices=(chosen, *sweep.record.plan.choices))
    )
    scaling = ScalingStudy(record=record, analysis=sweep.analysis, variant=DERIVED)
    return msgspec.structs.replace(report, analysis=msgspec.structs.replace(report.analysis, scaling=scaling))
