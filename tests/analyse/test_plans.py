"""Plans are compared by their shape: what was scanned and joined how, and not what it was thought to cost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pgdyno.analyse.comparison.plans import compare_plans, find_difference, shape_of
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.record.plans import StatementPlan
from tests.report.build import build_report

VARIANTS = ("a", "b", "c")


def node(kind: str, *below: dict[str, Any], **more: object) -> dict[str, Any]:
    plans = {"Plans": list(below)} if below else {}
    return {"Node Type": kind, "Plan Rows": 1, **{key.replace("_", " "): value for key, value in more.items()}, **plans}


def scan(kind: str = "Seq Scan", table: str = "t", **more: object) -> dict[str, Any]:
    return node(kind, **{"Relation_Name": table, "Alias": table, **more})


def plan(top: dict[str, Any], **more: object) -> dict[str, Any]:
    return {"Plan": top, "Settings": {}, **more}


INDEX = scan("Index Scan", Index_Name="t_pkey", Scan_Direction="Forward")


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        (scan(), scan(Plan_Rows=9, Total_Cost=3.5, Filter="(a = 1)", Disabled=True), None),
        (INDEX, scan(), ("Index Scan using t_pkey on t", "Seq Scan on t")),
        (
            node("ModifyTable", INDEX, Operation="Update", Relation_Name="t", Alias="t"),
            node("ModifyTable", scan(), Operation="Update", Relation_Name="t", Alias="t"),
            ("Index Scan using t_pkey on t", "Seq Scan on t"),
        ),
        (
            INDEX,
            INDEX | {"Index Name": "other", "Scan Direction": "Backward"},
            ("Index Scan using t_pkey on t", "Index Scan Backward using other on t"),
        ),
        (
            node("Hash Join", scan(), node("Hash", scan(table="u")), Join_Type="Inner"),
            node("Nested Loop", scan(), scan(table="u"), Join_Type="Left"),
            ("Hash Join", "Nested Loop Left Join"),
        ),
        (
            node("Hash Join", scan(), node("Hash", scan(table="u")), Join_Type="Inner"),
            node("Hash Join", scan(table="u"), node("Hash", scan()), Join_Type="Inner"),
            ("Seq Scan on t", "Seq Scan on u"),
        ),
        (
            node("Gather", scan(Parallel_Aware=True), Workers_Planned=1),
            node("Gather", scan(Parallel_Aware=True), Workers_Planned=2),
            ("Gather with 1 worker planned", "Gather with 2 workers planned"),
        ),
        (scan(Parallel_Aware=True), scan(Parallel_Aware=False), ("Parallel Seq Scan on t", "Seq Scan on t")),
        (
            node("Aggregate", scan(), Strategy="Hashed", Partial_Mode="Partial"),
            node("Aggregate", scan(), Strategy="Sorted", Partial_Mode="Simple"),
            ("Partial HashAggregate", "GroupAggregate"),
        ),
        (
            node("Bitmap Heap Scan", node("Bitmap Index Scan", Index_Name="i"), Relation_Name="t", Alias="x"),
            node("Bitmap Heap Scan", node("Bitmap Index Scan", Index_Name="j"), Relation_Name="t", Alias="x"),
            ("Bitmap Index Scan on i", "Bitmap Index Scan on j"),
        ),
        (node("Append", scan(), scan(table="u")), node("Append", scan()), ("Seq Scan on u", "no further node")),
        (
            scan(Parent_Relationship="Outer"),
            scan(Parent_Relationship="InitPlan"),
            ("Seq Scan on t (parent relationship Outer)", "Seq Scan on t (parent relationship InitPlan)"),
        ),
    ],
)
def test_the_first_node_that_differs(
    one: dict[str, Any], other: dict[str, Any], difference: tuple[str, str] | None
) -> None:
    assert find_difference(shape_of(plan(one)), shape_of(plan(other))) == difference
    back = None if difference is None else difference[::-1]
    assert find_difference(shape_of(plan(other)), shape_of(plan(one))) == back


def test_compiling_just_in_time() -> None:
    jit, plain = shape_of(plan(scan(), JIT={"Functions": 3})), shape_of(plan(scan()))
    assert find_difference(jit, plain) == ("compiled just in time", "not compiled just in time")
    assert find_difference(jit, shape_of(plan(scan(), JIT={"Functions": 4}))) is None


def asked(variant: str, top: dict[str, Any] | None, **more: Any) -> StatementPlan:
    given = {"script": "s.sql", "place": 1, "statement": "SELECT a\nFROM t", **more}
    return StatementPlan(variant=variant, plan=None if top is None else plan(top), **given)


def trial(*plans: StatementPlan) -> TrialAnalysis:
    made = build_report().analysis.workloads[0].trials[0]
    return msgspec.structs.replace(made, record=msgspec.structs.replace(made.record, plans=plans or None))


def test_variants_with_the_same_plan_are_one_group() -> None:
    (one,) = compare_plans([trial(asked("b", scan())), trial(asked("a", INDEX)), trial(asked("c", scan()))], VARIANTS)
    assert one.differs
    assert one.name == "SELECT from t"
    assert [(group.variants, group.node) for group in one.groups] == [
        (("a",), "Index Scan using t_pkey on t"),
        (("b", "c"), "Seq Scan on t"),
    ]
    (alike,) = compare_plans([trial(asked("a", INDEX)), trial(asked("b", INDEX))], VARIANTS)
    assert not alike.differs
    assert compare_plans([trial()], VARIANTS) == ()


def test_a_plan_that_changes_between_trials_is_no_difference_of_variants() -> None:
    trials = [trial(asked("a", INDEX), asked("b", top)) for top in (INDEX, INDEX, scan())]
    (one,) = compare_plans(trials, VARIANTS)
    assert not one.differs
    (change,) = one.changes
    assert (change.variant, change.trials_count, change.other_count) == ("b", 3, 1)
    assert (change.node, change.other_node) == ("Index Scan using t_pkey on t", "Seq Scan on t")


def test_what_the_server_refused() -> None:
    refusal = asked("b", None, reason="no such table")
    (one,) = compare_plans([trial(asked("a", INDEX), refusal)], VARIANTS)
    assert (one.refused, one.differs) == ({"b": "no such table"}, False)
    (none,) = compare_plans([trial(refusal)], VARIANTS)
    assert (none.groups, none.name) == ((), "SELECT a FROM t")


def test_statements_of_one_name_are_told_apart_by_their_text() -> None:
    update = node("ModifyTable", INDEX, Operation="Update", Relation_Name="t", Alias="t")
    (first, second, third) = compare_plans(
        [
            trial(
                asked("a", INDEX),
                asked("a", scan(), place=2, statement="SELECT  b FROM t"),
                asked("a", update, place=3),
            )
        ],
        VARIANTS,
    )
    assert [first.name, second.name, third.name] == ["SELECT a FROM t", "SELECT b FROM t", "UPDATE t"]
