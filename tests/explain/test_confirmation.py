"""What experiments say of bottlenecks: proven, refuted or open, and what becomes of the findings."""

from __future__ import annotations

import msgspec
import pytest

from pgdyno.analyse.comparison.answers import Comparison, Question
from pgdyno.analyse.comparison.verdict import Verdict, VerdictKind
from pgdyno.analyse.transaction_time.shares import Bottleneck, Certainty, Resource
from pgdyno.explain.bottleneck import find_bottlenecks
from pgdyno.explain.confirmation import (
    ConfirmationOutcome,
    Confirmed,
    confirm_analysis,
    confirm_findings,
    judge_confirmation,
)
from pgdyno.record.confirmation import Confirmation
from pgdyno.spec.study import ServerKind, ServerSpec
from tests.given import SERVER
from tests.report.build import build_report

ASKED = Confirmation(
    record="../confirm",
    workload="select-only",
    resource="CPU",
    reference="mode=simple",
    changed="mode=prepared",
    expects="faster",
    is_what_if=False,
)
FOUND = Bottleneck(
    resource=Resource.CPU,
    certainty=Certainty.LIKELY,
    evidence=("99 % of the CPUs busy",),
    rivals=((Resource.CLIENT, "only 9 % of the time"),),
)


def _verdict(kind: VerdictKind, effect: float) -> Verdict:
    return Verdict(
        variant="mode=prepared",
        metric="tps",
        kind=kind,
        n=12,
        effect_ratio=effect,
        low_ratio=effect - 0.02,
        high_ratio=effect + 0.02,
        confidence=0.95,
        delta_ratio=0.05,
        log10_e_value=3.0,
        pairs_needed=0,
        detectable_ratio=None,
    )


def _judge(
    kind: VerdictKind,
    effect: float,
    *,
    expects: str = "faster",
    noise: VerdictKind = VerdictKind.EQUIVALENT,
    is_specific: bool = True,
    least_ratio: float = 0.0,
) -> Confirmed:
    def ask(variant: str, verdict: Verdict) -> Question:
        return Question(variant=variant, metric="tps", at_s=(), log_ratios=(), spent_s=60.0, verdict=verdict)

    comparison = Comparison(
        workload="select-only",
        primary="tps",
        reference="mode=simple",
        figures=(),
        questions=(ask("mode=prepared", _verdict(kind, effect)),),
        noise=(ask("mode=simple", _verdict(noise, 0.0)),),
        rounds=12,
        round_s=5.0,
    )
    asked = msgspec.structs.replace(ASKED, expects=expects, is_specific=is_specific, least_ratio=least_ratio)
    judged = judge_confirmation(asked, comparison, place="records/confirm")
    assert judged is not None
    return judged


@pytest.mark.parametrize(
    ("kind", "effect", "least", "outcome"),
    [
        (VerdictKind.FASTER, 0.38, 0.3, ConfirmationOutcome.PROVEN),
        # What giving up durability gains almost everywhere.
        (VerdictKind.FASTER, 0.08, 0.3, ConfirmationOutcome.REFUTED),
        (VerdictKind.FASTER, 0.30, 0.3, ConfirmationOutcome.OPEN),
        (VerdictKind.FASTER, 0.06, 0.0, ConfirmationOutcome.OPEN),
        (VerdictKind.EQUIVALENT, 0.0, 0.3, ConfirmationOutcome.REFUTED),
        (VerdictKind.SLOWER, -0.2, 0.3, ConfirmationOutcome.REFUTED),
        (VerdictKind.INCONCLUSIVE, 0.1, 0.3, ConfirmationOutcome.OPEN),
    ],
)
def test_the_verdict_decides_by_as_much_as_a_limit_takes(
    kind: VerdictKind, effect: float, least: float, outcome: ConfirmationOutcome
) -> None:
    assert _judge(kind, effect, least_ratio=least).outcome is outcome


@pytest.mark.parametrize(
    ("kind", "effect", "expects", "outcome"),
    [
        (VerdictKind.FASTER, 0.38, "faster", ConfirmationOutcome.FITS),
        (VerdictKind.EQUIVALENT, 0.0, "faster", ConfirmationOutcome.AGAINST),
        (VerdictKind.SLOWER, -0.2, "faster", ConfirmationOutcome.AGAINST),
        (VerdictKind.EQUIVALENT, 0.0, "slower", ConfirmationOutcome.AGAINST),
        (VerdictKind.EQUIVALENT, 0.0, "equivalent", ConfirmationOutcome.FITS),
        (VerdictKind.FASTER, 0.2, "equivalent", ConfirmationOutcome.FITS),
        (VerdictKind.SLOWER, -0.4, "equivalent", ConfirmationOutcome.AGAINST),
        (VerdictKind.INCONCLUSIVE, 0.0, "equivalent", ConfirmationOutcome.OPEN),
    ],
)
def test_what_other_limits_would_answer_alike_speaks_for_or_against_it(
    kind: VerdictKind, effect: float, expects: str, outcome: ConfirmationOutcome
) -> None:
    assert _judge(kind, effect, expects=expects, is_specific=False).outcome is outcome


def test_what_tells_identical_variants_apart_proves_nothing() -> None:
    assert _judge(VerdictKind.FASTER, 0.38, noise=VerdictKind.SLOWER).outcome is ConfirmationOutcome.OPEN


def test_a_variant_that_was_never_measured_says_nothing() -> None:
    judged = _judge(VerdictKind.FASTER, 0.38)
    comparison = Comparison(
        workload="select-only", primary="tps", reference="a", figures=(), questions=(), noise=(), rounds=0, round_s=None
    )
    assert judge_confirmation(judged.asked, comparison, place="x") is None


def _explain(
    confirmed: Confirmed, bottleneck: Bottleneck = FOUND
) -> tuple[Bottleneck, str, str, Certainty | None, str]:
    report = build_report(names=("select-only", "tpcb-like"))
    found = tuple(msgspec.structs.replace(one, bottleneck=bottleneck) for one in report.analysis.workloads)
    analysis = confirm_analysis(msgspec.structs.replace(report.analysis, workloads=found), [confirmed])
    (own, other) = analysis.workloads
    assert other.bottleneck == bottleneck
    assert own.bottleneck is not None
    findings = confirm_findings(
        tuple(find_bottlenecks(report.record, analysis)), [confirmed], record_dir="records/first"
    )
    assert findings[1].certainty is bottleneck.certainty
    assert findings[1].confirm.startswith(
        "`pgdyno explain records/first --confirm --workload tpcb-like`: mode=prepared should be"
    )
    told = findings[0]
    return own.bottleneck, told.claim, told.gain, told.certainty, told.confirm


def test_what_is_proven_stands_with_what_was_measured() -> None:
    bottleneck, claim, gain, certainty, confirm = _explain(_judge(VerdictKind.FASTER, 0.38))
    assert (bottleneck.certainty, bottleneck.rivals) == (Certainty.PROVEN, FOUND.rivals)
    assert bottleneck.evidence[0] == (
        "experiment on CPU (proven): mode=prepared in place of mode=simple: TPS +38.0 % [+36.0, +40.0], 12 pairs, so it does limit this load"
    )
    assert (claim, certainty, confirm) == ("The CPUs limit this load.", Certainty.PROVEN, "")
    assert gain == "TPS +38.0 % [+36.0, +40.0], 12 pairs with mode=prepared"


def test_what_fits_is_surer_and_its_gain_is_told() -> None:
    bottleneck, _, gain, certainty, confirm = _explain(_judge(VerdictKind.FASTER, 0.38, is_specific=False))
    assert (certainty, confirm) == (Certainty.STRONG, "")
    assert bottleneck.evidence[0].endswith("12 pairs, which fits, and would with some other limits, too")
    assert gain == "TPS +38.0 % [+36.0, +40.0], 12 pairs with mode=prepared"


def test_what_is_refuted_is_unknown_and_not_replaced_by_the_next_guess() -> None:
    bottleneck, claim, _, certainty, confirm = _explain(_judge(VerdictKind.EQUIVALENT, 0.0))
    assert (bottleneck.resource, bottleneck.certainty) == (Resource.UNKNOWN, Certainty.UNKNOWN)
    assert (claim, certainty, confirm) == ("What limits this load is not known.", Certainty.UNKNOWN, "")


def test_what_is_refuted_is_not_named_by_its_part_either() -> None:
    found = msgspec.structs.replace(FOUND, part="the last of them")
    _, claim, *_ = _explain(_judge(VerdictKind.EQUIVALENT, 0.0), found)
    assert claim == "What limits this load is not known."


def test_what_speaks_against_a_limit_leaves_it_likely_at_best() -> None:
    sure = msgspec.structs.replace(FOUND, certainty=Certainty.STRONG)
    bottleneck, claim, gain, certainty, confirm = _explain(_judge(VerdictKind.EQUIVALENT, 0.0, is_specific=False), sure)
    assert (claim, certainty, confirm) == ("The CPUs probably limit this load.", Certainty.LIKELY, "")
    assert bottleneck.evidence[0].startswith("experiment on CPU (against it): mode=prepared in place of mode=simple")
    assert bottleneck.evidence[0].endswith("12 pairs, which speaks against it: faster was expected")
    assert "mode=prepared" not in gain


def test_what_is_open_says_how_to_go_on() -> None:
    bottleneck, _, _, certainty, confirm = _explain(_judge(VerdictKind.INCONCLUSIVE, 0.1))
    assert certainty is Certainty.LIKELY
    assert bottleneck.evidence[0].endswith("which settles nothing yet")
    assert confirm.startswith("`pgdyno resume records/confirm`: mode=prepared should be faster")


def test_an_experiment_on_another_resource_changes_nothing() -> None:
    confirmed = _judge(VerdictKind.FASTER, 0.38)
    other = msgspec.structs.replace(confirmed, asked=msgspec.structs.replace(ASKED, resource="WAL flush"))
    bottleneck, _, _, certainty, _ = _explain(other)
    assert (bottleneck, certainty) == (FOUND, Certainty.LIKELY)


def test_a_what_if_proves_the_limit_and_is_no_gain() -> None:
    confirmed = _judge(VerdictKind.FASTER, 0.38)
    what_if = msgspec.structs.replace(confirmed, asked=msgspec.structs.replace(ASKED, is_what_if=True))
    bottleneck, _, gain, certainty, _ = _explain(what_if)
    assert certainty is Certainty.PROVEN
    assert "a what-if that gives up durability" in bottleneck.evidence[0]
    assert "mode=prepared" not in gain


def test_what_confirm_does_not_reach_is_compared_on_the_machine_that_did() -> None:
    report = build_report(names=("select-only",))
    found = tuple(msgspec.structs.replace(one, bottleneck=FOUND) for one in report.analysis.workloads)
    analysis = msgspec.structs.replace(report.analysis, workloads=found)
    server = ServerSpec(kind=ServerKind.GIVEN, dsn="service=bench")
    for apply, begins in ((None, "`pgdyno on db1 compare --mode simple --mode prepared "), ("./apply.sh", "")):
        study = msgspec.structs.replace(report.record.study, server=msgspec.structs.replace(server, apply=apply))
        command = ("pgdyno", "on", "db1", "bench", "--dsn", "service=bench")
        there = msgspec.structs.replace(report.record, given=SERVER, study=study, command=command)
        (told,) = find_bottlenecks(there, analysis)
        assert told.confirm.startswith(begins)
        assert bool(told.confirm) is bool(begins)
        assert "explain" not in told.confirm
