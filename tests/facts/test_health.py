from __future__ import annotations

from pgdyno.analyse.health.assessment import _READERS
from pgdyno.facts.health import Basis, HealthCheck, Level, Threshold, Worse, health_checks
from tests.rows import each_row

CHECKS = list(health_checks().values())
UNITS = {"ratio": "_ratio", "s": "_s", "bytes/s": "_bytes_per_s", "times": "_ratio", "/min": "_per_min"}


def test_every_check_is_read_and_every_reader_has_a_check() -> None:
    assert list(_READERS) == [check.name for check in CHECKS]


@each_row(CHECKS)
def test_a_check_says_what_it_is_what_to_do_and_who_named_its_bounds(check: HealthCheck) -> None:
    assert check.name.endswith(UNITS[check.unit]) or check.name == "temp_bytes_per_s"
    assert check.meaning.endswith(".")
    bounds = [bound for bound in (check.warning, check.critical) if bound is not None]
    assert bool(bounds) is bool(check.action) is (check.unbounded is None)
    for bound in bounds:
        assert bound.source
        # What claims a manual names its place; what claims a guide names where it was published.
        assert bound.basis is not Basis.MANUAL or "manual, section" in bound.source
        assert bound.basis is not Basis.GUIDE or any(
            mark in bound.source for mark in (".com", ".io", ".ai", "prometheus")
        )


@each_row([check for check in CHECKS if check.critical])
def test_critical_lies_beyond_the_warning(check: HealthCheck) -> None:
    assert check.warning is not None
    assert check.critical is not None
    sign = 1 if check.worse is Worse.HIGHER else -1
    assert sign * (check.critical.at - check.warning.at) > 0
    assert check.judge(check.warning.at) is Level.GOOD
    assert check.judge(check.warning.at + sign * 1e-9) is Level.WARNING
    assert check.judge(check.critical.at + sign * 1e-9) is Level.CRITICAL
    assert check.judge(check.warning.at - sign * 1.0) is Level.GOOD


def test_without_bounds_nothing_is_judged() -> None:
    check = HealthCheck(
        name="x", title="x", unit="ratio", worse=Worse.LOWER, meaning="x.", action="", unbounded="nobody knows"
    )
    assert check.judge(0.0) is None
    bound = Threshold(at=1.0, basis=Basis.JUDGEMENT, source="x")
    only_critical = HealthCheck(
        name="x", title="x", unit="ratio", worse=Worse.LOWER, meaning="x.", action="x", critical=bound
    )
    assert (only_critical.judge(0.5), only_critical.judge(1.0)) == (Level.CRITICAL, Level.GOOD)
