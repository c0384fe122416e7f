"""Under which settings the sweep over clients runs: those that are proven to be faster than stock, else stock."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pgdyno.analyse.comparison.answers import Comparison
from pgdyno.analyse.comparison.verdict import VerdictKind
from pgdyno.conduct.client_sweep import begin_scaling, choose_winner
from pgdyno.conduct.study import PlannedStudy, create_record, draft_record
from pgdyno.conduct.ui import Ui
from pgdyno.plan.plan import Machine, plan_study
from pgdyno.record.store import RecordStore
from pgdyno.record.tuned import DERIVED, STOCK
from pgdyno.record.types import ServerFacts
from pgdyno.spec.read import parse_study, read_study
from tests.report.build_comparison import build_paired, build_product
from tests.report.build_derived import build_derived, build_layers

MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=24 * 1024**3, disk_free_bytes=90 * 1024**3)


class Quiet(Ui):
    """Shows nothing."""


def comparison_of(workload: str, *, is_hard: bool = False) -> Comparison:
    return next(one for one in build_derived(is_hard=is_hard).analysis.comparisons if one.workload == workload)


def test_what_is_proven_to_be_faster_wins() -> None:
    winner = choose_winner(comparison_of("tpcb-like"), is_layered=False, without=())
    assert winner.name == DERIVED
    assert winner.reason == "proven to be faster than stock on tpcb-like"


@pytest.mark.parametrize(("workload", "is_hard"), [("select-only", False), ("tpcb-like", True)])
def test_what_is_slower_or_undecided_does_not(workload: str, is_hard: bool) -> None:
    winner = choose_winner(comparison_of(workload, is_hard=is_hard), is_layered=False, without=())
    assert winner.name == STOCK
    assert winner.reason == f"nothing is proven to be faster on {workload}"


def test_of_a_set_taken_apart_it_is_the_whole_or_stock() -> None:
    layered = build_layers().analysis.comparisons[0]
    assert layered.reference == DERIVED
    assert choose_winner(layered, is_layered=True, without=()).name == DERIVED
    turned = tuple(
        msgspec.structs.replace(q, verdict=msgspec.structs.replace(q.verdict, kind=VerdictKind.INCONCLUSIVE))
        if q.variant == STOCK
        else q
        for q in layered.questions
    )
    undecided = msgspec.structs.replace(layered, questions=turned)
    assert choose_winner(undecided, is_layered=True, without=()).name == STOCK
    assert choose_winner(undecided, is_layered=True, without={STOCK}).name == DERIVED


def test_of_several_the_fastest_wins_and_without_stock_the_reference_stands_for_it() -> None:
    (product,) = build_product().analysis.comparisons
    effects = {
        q.variant: q.verdict.effect_ratio or 0.0
        for q in product.questions
        if q.metric == product.primary and q.verdict.kind is VerdictKind.FASTER
    }
    assert choose_winner(product, is_layered=False, without=()).name == max(
        effects, key=lambda variant: effects[variant]
    )
    (paired,) = build_paired().analysis.comparisons
    assert choose_winner(paired, is_layered=False, without=()).name in {paired.reference, "shared_buffers=1GB"}


def test_a_variant_of_the_users_named_stock_is_one_of_several() -> None:
    (product,) = build_product().analysis.comparisons
    names = [q.variant for q in product.questions if q.metric == product.primary]
    winner = choose_winner(product, is_layered=False, without=())
    other = next(name for name in names if name != winner.name)
    named = msgspec.structs.replace(
        product,
        questions=tuple(
            msgspec.structs.replace(q, variant=STOCK) if q.variant == other else q for q in product.questions
        ),
    )
    assert choose_winner(named, is_layered=False, without=()) == winner


def test_the_study_of_the_sweep_reads_anywhere(tmp_path: Path) -> None:
    (tmp_path / "mine.sql").write_text("SELECT 1;\n")
    text = '[[workload]]\nname = "mine"\nscripts = ["mine.sql"]\n[scaling]\n'
    study = parse_study(text, source="a test", folder=tmp_path)
    planned = PlannedStudy(study=study, plan=plan_study(study, MACHINE), scaling=None)
    server = ServerFacts(version="18.6", version_num=180006, bindir="/bin")
    store = RecordStore(tmp_path / "record")
    create_record(store, draft_record(planned, name="bench", server=server))
    store.keep_scripts(planned.plan)
    begin_scaling(store, machine=MACHINE, facts=server, ui=Quiet())
    moved = store.path.rename(tmp_path / "moved") / "clients"
    (script,) = read_study(moved / "study.toml").workload[0].weighted_scripts
    assert Path(script[0]).is_relative_to(moved)
    assert Path(script[0]).read_text() == "SELECT 1;\n"


def test_the_sweep_does_not_run_under_what_dropped_out() -> None:
    (product,) = build_product().analysis.comparisons
    ranking = sorted(
        (q for q in product.questions if q.metric == product.primary and q.verdict.kind is VerdictKind.FASTER),
        key=lambda q: -(q.verdict.effect_ratio or 0.0),
    )
    first, second, *_ = (q.variant for q in ranking)
    assert choose_winner(product, is_layered=False, without={first}).name == second
    none = choose_winner(product, is_layered=False, without={q.variant for q in ranking})
    assert none.name == product.reference
    assert none.reason == f"what is proven to be faster dropped out on {product.workload}"
