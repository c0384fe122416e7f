"""Tell whether variants can be compared live: with all of their servers up at once, of which one at a time runs.

Frozen time passes on the clocks of server, kernel and load generator, and all servers share the machine's memory. What
depends on one of these is compared by paired trials.
"""

from __future__ import annotations

import math

from pgdyno.facts import gucs
from pgdyno.plan.experiment import Variant, changed_settings, changed_sysctls, differ_in_load
from pgdyno.spec.pooler import PRIMARY
from pgdyno.spec.study import RestorePolicy, Study
from pgdyno.spec.table import CacheState
from pgdyno.units import format_bytes, parse_in_unit, unit_size

# Source: PostgreSQL 18 manual, 19.11.1 and 19.11.3: each ends a session or statement by the server's clock.
TIMEOUTS = (
    "statement_timeout",
    "transaction_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
)
"""Settings that end a session or a statement, frozen or not."""
# Source: PostgreSQL 18 manual, 19.5.2, 19.5.3, 19.10.1: the server does this once in so much time, frozen or not. In
# seconds: a round ends sooner than any of them acts.
_SELDOM_S = {"checkpoint_timeout": 300.0, "archive_timeout": 0.0, "autovacuum_naptime": 60.0}
# Source: PostgreSQL 18 manual, 19.4.4, 19.5.1: the same several times in each slice.
_OFTEN_S = {"bgwriter_delay": 0.2, "wal_writer_delay": 0.2}
# Source: PostgreSQL 18 manual, 19.5.2, 19.12: how fast a checkpoint writes, and when a waiting session looks for a
# deadlock, goes by the server's clock.
_PACED = ("checkpoint_completion_target", "deadlock_timeout")
LEAST_SLICE_S = 0.5
"""Least seconds in which one variant runs. A freeze and a thaw take milliseconds."""
HUGE_PAGES = "vm.nr_hugepages"
"""The one kernel setting that a server takes when it starts, and that may then stay while others run."""
LEAST_TURN_S = 2.0
"""Least seconds of a turn: connecting, the first statements of new sessions and the end take a third of it. Source: ADR 41."""
# Seconds that turns take for a second of load: pgbench starts and ends in each. Source: ADR 41.
_TURNS_RATIO = 1.05
# The samplers read once a second.
_LONGEST_OBSERVED_S = 10.0
_OBSERVED_TRIALS, _OBSERVED_OF_TURNS = 3.0, 0.6
# Restoring, starting and stopping of one server.
_MEMBER_S = 10.0


def choose_observed_s(duration_s: float, *, takes_turns: bool) -> float:
    """Choose the seconds of the trial of each variant that the samplers watch, from those of a trial in a round.

    Loads that take turns are many: their observed trials together take less time than a round.
    """
    trials = _OBSERVED_OF_TURNS if takes_turns else _OBSERVED_TRIALS
    return min(_LONGEST_OBSERVED_S, float(math.ceil(trials * duration_s)))


def predict_turns_s(duration_s: float) -> float:
    """Predict the seconds of all turns of a load in a round, from those of a trial."""
    return _TURNS_RATIO * max(LEAST_TURN_S, duration_s)


def takes_turns(study: Study, variants: tuple[Variant, ...]) -> bool:
    """Return whether live loads take turns on one server, because they differ in nothing that belongs to it.

    A load's turn is a run of pgbench, which ends with its clients' transactions: a frozen client would keep its locks.
    """
    if not differ_in_load(variants):
        return False
    # What goes on beside a load does not begin and end with it; a turn at a rate has few transactions, and one that begins
    # with a cold cache warms it up for the next.
    is_beside = bool(study.load_hosts or study.server.standbys)
    is_cold = any((variant.cache or study.trials.cache) is CacheState.COLD for variant in variants)
    is_plain = all(not workload.parts and workload.rate_tps is None for workload in study.workload)
    endpoints = {variants[0].endpoint, *(workload.endpoint for workload in study.workload)}
    return is_plain and endpoints <= {None, PRIMARY} and not is_beside and not is_cold


def find_live_obstacle(study: Study, variants: tuple[Variant, ...]) -> str | None:
    """Return why variants cannot be compared live; None if they can."""
    if (obstacle := _find_study_obstacle(study, variants)) is not None:
        return obstacle
    for name in changed_sysctls(variants):
        if (obstacle := find_sysctl_obstacle(name)) is not None:
            return obstacle
    if sum(HUGE_PAGES in variant.sysctl for variant in (variants[0], *variants)) > 1:
        return f"{HUGE_PAGES} is set for one of the servers only: the others would take its pages"
    member_s = _MEMBER_S + study.trials.warm_up_s + study.trials.duration_s
    return _find_setting_obstacle(variants, round_s=(1 + len(variants)) * member_s)


def find_given_live_obstacle(study: Study, variants: tuple[Variant, ...], *, withheld: frozenset[str]) -> str | None:
    """Return why variants cannot be compared live on a given server, whose own processes are never frozen; None if they can.

    Args:
        study: The study as requested.
        variants: What is compared.
        withheld: Settings that its sessions may not choose for themselves, in lower case.
    """
    if (obstacle := _find_given_load_obstacle(study)) is not None:
        return obstacle
    names = changed_settings(variants)
    if names and study.server.apply is not None:
        return "the command changes settings of the whole server, which all variants share"
    if (shared := next((name for name in names if name.lower() in withheld), None)) is not None:
        return f"{shared} is one of the whole server, which all variants share"
    if "deadlock_timeout" in names:
        return "deadlock_timeout counts the time in which a client is frozen"
    return _find_timeout(variants, "a client is frozen")


def find_crowding(variants_count: int, *, dataset_bytes: int | None, shared_buffers_bytes: int | None) -> str | None:
    """Return why live loads on a given server would take its memory from each other; None if they do not.

    Source: ADR 26: with copies larger than shared_buffers, effects came out smaller than in paired trials, the least
    load's most of all.

    Args:
        variants_count: How many loads are compared; the reference comes twice.
        dataset_bytes: Size of the data; None if that is not known before they are loaded.
        shared_buffers_bytes: Of the server; None if it is not known.
    """
    if shared_buffers_bytes is None:
        return None
    copies = variants_count + 1
    if dataset_bytes is None:
        return f"whether {copies} copies of the data fit into shared_buffers shows only when they are loaded"
    if copies * dataset_bytes <= shared_buffers_bytes:
        return None
    return (
        f"{copies} copies of the data, {format_bytes(copies * dataset_bytes)}, do not fit into shared_buffers,"
        f" {format_bytes(shared_buffers_bytes)}: loads that take pages from each other seem to differ less than they do"
    )


def _find_load_obstacle(study: Study) -> str | None:
    if any(workload.parts for workload in study.workload):
        return "a load in parts has several pgbenches, and slices freeze one"
    if any(workload.rate_tps is not None for workload in study.workload):
        return "a schedule of transactions (rate) runs on while its load is frozen"
    if study.load_hosts:
        return "a pgbench on a load host is not frozen and thawed quickly enough"
    return None


def _find_given_load_obstacle(study: Study) -> str | None:
    if study.poolers:
        return (
            "a pooler in between takes no options, by which sessions outlive the time in which their client is frozen"
        )
    if study.server.replicas:
        return "a frozen reader would hold up a replica's replay, or be cancelled by it"
    if study.data.database is not None:
        return "a frozen client would keep its locks in the named database, of which the variants have no copies of their own"
    return _find_load_obstacle(study)


def _find_timeout(variants: tuple[Variant, ...], when: str) -> str | None:
    for name in TIMEOUTS:
        if any(_seconds_of(variant, name) > 0 for variant in variants):
            return f"{name} counts the time in which {when}, and would end sessions"
    return None


def _find_study_obstacle(study: Study, variants: tuple[Variant, ...]) -> str | None:
    if (obstacle := _find_load_obstacle(study)) is not None:
        return obstacle
    if any((variant.cache or study.trials.cache) is CacheState.COLD for variant in variants):
        return "a cold cache warms up within the first slices"
    if study.data.restore is RestorePolicy.NONE:
        return "each server has its own copy of the data, and these are not to be copied (restore = none)"
    if study.server.standbys:
        return "each server would need standbys of its own, and a frozen one sends nothing to them"
    if study.server.port is not None:
        return "the servers of all variants are up at once and cannot share one port"
    return None


def find_sysctl_obstacle(name: str) -> str | None:
    """Return why variants that differ in a kernel setting cannot be compared live; None if they can."""
    rule = gucs.explain_effect(name)
    if rule.effect is gucs.Effect.AT_ONCE or name == HUGE_PAGES:
        return None
    return f"{name} does not act at once, and all servers run under one kernel ({rule.why})"


def _find_setting_obstacle(variants: tuple[Variant, ...], *, round_s: float) -> str | None:
    for name in changed_settings(variants):
        values_s = [_seconds_of(variant, name) for variant in variants]
        is_seldom = name in _SELDOM_S and any(0 < value_s <= round_s for value_s in values_s)
        is_often = name in _OFTEN_S and any(value_s > LEAST_SLICE_S / 2 for value_s in values_s)
        if is_seldom or is_often or name in _PACED:
            return f"{name} counts the time in which a server is frozen"
    return _find_timeout(variants, "a server is frozen")


def _seconds_of(variant: Variant, name: str) -> float:
    """Return a period of a variant in seconds, by default the built-in one."""
    value = variant.server.settings.get(name)
    if value is None:
        return {**_SELDOM_S, **_OFTEN_S}.get(name, 0.0)
    unit = "s" if name in _SELDOM_S else "ms"
    try:
        return parse_in_unit(str(value), unit, is_integer=False) * unit_size(unit)
    except ValueError:
        # The server refuses it when the variants are tried.
        return 0.0
