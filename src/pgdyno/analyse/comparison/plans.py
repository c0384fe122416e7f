"""Compare the plans of a load's statements between the variants of a comparison: their shape, not their costs and rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from pgdyno.analyse.types import TrialAnalysis
from pgdyno.record.plans import PLANS, StatementPlan
from pgdyno.record.types import why_missing

_SHAPE = (
    "Node Type",
    "Strategy",
    "Partial Mode",
    "Operation",
    "Join Type",
    "Command",
    "Parent Relationship",
    "Subplan Name",
    "CTE Name",
    "Relation Name",
    "Alias",
    "Index Name",
    "Scan Direction",
    "Function Name",
    "Parallel Aware",
    "Workers Planned",
    "Subplans Removed",
)
# As the text form of EXPLAIN names them. Source: PostgreSQL 18 src/backend/commands/explain.c, ExplainNode().
_AGGREGATES = {"Plain": "Aggregate", "Sorted": "GroupAggregate", "Hashed": "HashAggregate", "Mixed": "MixedAggregate"}
_JOINS = {"Nested Loop": "Nested Loop", "Hash Join": "Hash", "Merge Join": "Merge"}
_JIT = "compiled just in time"
_NO_JIT = "not compiled just in time"
_NO_NODE = "no further node"


class Node(msgspec.Struct, frozen=True):
    """A node of a plan: what is compared of it, and the nodes below it."""

    values: tuple[tuple[str, Any], ...]
    below: tuple[Node, ...] = ()


class Shape(msgspec.Struct, frozen=True):
    """What is compared of a plan."""

    top: Node
    is_jit: bool


class PlanGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Variants that plan a statement alike."""

    variants: tuple[str, ...] = msgspec.field(name="arms")
    node: str
    """The first node that differs from the reference's plan, such as `Seq Scan on pgbench_accounts`; of the reference's own
    group, the first that differs from the next group's."""


class PlanChange(msgspec.Struct, frozen=True, kw_only=True):
    """A variant that planned a statement differently in some trials."""

    variant: str = msgspec.field(name="arm")
    trials_count: int
    other_count: int
    """Trials with another plan than most."""
    node: str
    """The first node that differs, in most trials."""
    other_node: str


class StatementPlans(msgspec.Struct, frozen=True, kw_only=True):
    """A statement's plans under all variants."""

    script: str
    place: int
    statement: str
    name: str
    """What it does to which table, such as `UPDATE pgbench_accounts`; the whole statement where that is not its own name."""
    groups: tuple[PlanGroup, ...]
    """The variants by their plans, the reference's group first; one group if all are alike, none if no plan was given."""
    changes: tuple[PlanChange, ...]
    refused: dict[str, str]
    """Why there is no plan, by variant."""
    unknown: tuple[str, ...]
    """Variables whose values only a run gives: the plans are generic."""

    @property
    def differs(self) -> bool:
        """Whether variants plan it differently."""
        return len(self.groups) > 1


def compare_plans(trials: Iterable[TrialAnalysis], variants: Sequence[str]) -> tuple[StatementPlans, ...]:
    """Compare the plans of one workload's trials, in the order of the scripts; none where none were asked.

    Args:
        trials: Of the workload.
        variants: In their order, the reference first.
    """
    by_statement: dict[tuple[str, int], list[StatementPlan]] = {}
    for trial in trials:
        for plan in trial.record.plans or ():
            by_statement.setdefault((plan.script, plan.place), []).append(plan)
    compared = [_compare(plans, variants) for plans in by_statement.values()]
    names = Counter(one.name for one in compared)
    return tuple(
        one if names[one.name] == 1 else msgspec.structs.replace(one, name=" ".join(one.statement.split()))
        for one in compared
    )


def find_missing_plans(trials: Iterable[TrialAnalysis]) -> tuple[str, ...]:
    """Return why the plans of trials could not be asked for, each reason once."""
    reasons = (why_missing(trial.record.gaps, PLANS) for trial in trials)
    return tuple(dict.fromkeys(reason for reason in reasons if reason is not None))


def shape_of(plan: Mapping[str, Any]) -> Shape:
    """Return what is compared of a plan, as EXPLAIN (FORMAT JSON) gave it."""
    return Shape(_shape_node(plan["Plan"]), "JIT" in plan)


def find_difference(one: Shape, other: Shape) -> tuple[str, str] | None:
    """Name the first node that differs, from the top and from the left, in both plans; None if they are alike."""
    for node, counterpart in _walk(one.top, other.top):
        if node is None or counterpart is None or node.values != counterpart.values:
            return _name_node(node, counterpart), _name_node(counterpart, node)
    if one.is_jit != other.is_jit:
        return (_JIT, _NO_JIT) if one.is_jit else (_NO_JIT, _JIT)
    return None


def _compare(plans: Sequence[StatementPlan], variants: Sequence[str]) -> StatementPlans:
    shapes: dict[str, Counter[Shape]] = {}
    refused: dict[str, str] = {}
    for plan in plans:
        if plan.plan is None:
            refused.setdefault(plan.variant, plan.reason or "")
        else:
            shapes.setdefault(plan.variant, Counter())[shape_of(plan.plan)] += 1
    # In the order of the variants; of equally many plans, the first seen.
    usual = {name: shapes[name].most_common(1)[0][0] for name in variants if name in shapes}
    first = plans[0]
    return StatementPlans(
        script=first.script,
        place=first.place,
        statement=first.statement,
        name=_name_statement(first.statement, next(iter(usual.values()), None)),
        groups=tuple(_group(usual)),
        changes=tuple(change for name in usual for change in _list_changes(name, shapes[name])),
        refused={name: refused[name] for name in variants if name in refused},
        unknown=first.unknown,
    )


def _group(usual: Mapping[str, Shape]) -> Iterator[PlanGroup]:
    groups: dict[Shape, list[str]] = {}
    for name, shape in usual.items():
        groups.setdefault(shape, []).append(name)
    if not groups:
        return
    reference, *others = groups
    difference = find_difference(reference, others[0]) if others else None
    yield PlanGroup(variants=tuple(groups[reference]), node=difference[0] if difference else "")
    for shape in others:
        node = (find_difference(reference, shape) or ("", ""))[1]
        yield PlanGroup(variants=tuple(groups[shape]), node=node)


def _list_changes(variant: str, shapes: Counter[Shape]) -> Iterator[PlanChange]:
    (usual, count), *others = shapes.most_common()
    if not others:
        return
    node, other_node = find_difference(usual, others[0][0]) or ("", "")
    total = shapes.total()
    yield PlanChange(variant=variant, trials_count=total, other_count=total - count, node=node, other_node=other_node)


def _shape_node(node: Mapping[str, Any]) -> Node:
    values = tuple((key, node[key]) for key in _SHAPE if key in node)
    return Node(values, tuple(_shape_node(one) for one in node.get("Plans", ())))


def _walk(one: Node | None, other: Node | None) -> Iterator[tuple[Node | None, Node | None]]:
    yield one, other
    for below, counterpart in zip_longest(one.below if one else (), other.below if other else ()):
        yield from _walk(below, counterpart)


def _name_statement(statement: str, shape: Shape | None) -> str:
    """Name a statement by what it does to which table; by its text where the plan has no table."""
    top = {} if shape is None else dict(shape.top.values)
    if top.get("Relation Name") and top.get("Operation"):
        return f"{str(top['Operation']).upper()} {top['Relation Name']}"
    relations = [] if shape is None else list(dict.fromkeys(_list_relations(shape.top)))
    if relations and statement.lstrip().upper().startswith("SELECT"):
        return f"SELECT from {', '.join(sorted(relations))}"
    return " ".join(statement.split())


def _list_relations(node: Node) -> Iterator[str]:
    values = dict(node.values)
    if "Relation Name" in values:
        yield str(values["Relation Name"])
    for below in node.below:
        yield from _list_relations(below)


def _name_node(node: Node | None, other: Node | None) -> str:
    """Name a node as EXPLAIN does, with what else sets it apart from its counterpart."""
    if node is None:
        return _NO_NODE
    name, values = _title(dict(node.values)), dict(node.values)
    counterpart = {} if other is None else dict(other.values)
    if other is None or name != _title(counterpart):
        return name
    apart = [f"{key.lower()} {values.get(key, 'none')}" for key in _SHAPE if values.get(key) != counterpart.get(key)]
    return f"{name} ({', '.join(apart)})"


def _title(values: Mapping[str, Any]) -> str:
    kind = str(values["Node Type"])
    join = values.get("Join Type", "Inner")
    if kind in _JOINS and join != "Inner":
        kind = f"{_JOINS[kind]} {join} Join"
    if kind == "Aggregate":
        partial = f"{values['Partial Mode']} " if values.get("Partial Mode", "Simple") != "Simple" else ""
        kind = partial + _AGGREGATES.get(values.get("Strategy", ""), kind)
    if kind == "ModifyTable":
        kind = str(values.get("Operation", kind))
    parallel = "Parallel " if values.get("Parallel Aware") else ""
    backward = " Backward" if values.get("Scan Direction") == "Backward" else ""
    index = f" using {values['Index Name']}" if "Index Name" in values and kind != "Bitmap Index Scan" else ""
    target = values.get("Index Name") if kind == "Bitmap Index Scan" else None
    target = target or values.get("Relation Name") or values.get("Function Name") or values.get("CTE Name")
    alias = values.get("Alias")
    named = f" {alias}" if target and alias and alias != target and kind != "Bitmap Index Scan" else ""
    workers = values.get("Workers Planned")
    planned = f" with {workers} worker{'' if workers == 1 else 's'} planned" if workers else ""
    return f"{parallel}{kind}{backward}{index}{f' on {target}{named}' if target else ''}{planned}"
