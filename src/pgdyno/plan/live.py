"""Tell whether variants can be compared live: with all of their servers up at once, of which one at a time runs.

Frozen time passes on the clocks of server, kernel and load generator, and all servers share the machine's memory. What
depends on one of these is compared by paired trials.
"""

from __future__ import annotations

from pgdyno.facts import gucs
from pgdyno.plan.experiment import Variant, changed_settings, changed_sysctls
from pgdyno.spec.study import CacheState, Study

# Source: PostgreSQL 18 manual, 19.11.1 and 19.11.3: each ends a session or statement by the server's clock.
_TIMEOUTS = (
    "statement_timeout",
    "transaction_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
)
# Source: PostgreSQL 18 manual, 19.5.2, 19.10: the server does this again after so much time, frozen or not.
_PERIODS = ("checkpoint_timeout", "autovacuum_naptime", "wal_writer_delay", "bgwriter_delay", "archive_timeout")


def find_live_obstacle(study: Study, variants: tuple[Variant, ...]) -> str | None:
    """Return why variants cannot be compared live; None if they can."""
    if any(workload.rate_tps is not None for workload in study.workload):
        return "a schedule of transactions (rate) runs on while its load is frozen"
    if study.trials.cache is CacheState.COLD:
        return "a cold cache warms up within the first slices"
    if study.server.port is not None:
        return "the servers of all variants are up at once and cannot share one port"
    for name in changed_sysctls(variants):
        rule = gucs.explain_effect(name)
        if rule.effect is not gucs.Effect.AT_ONCE:
            return f"{name} does not act at once, and all servers run under one kernel ({rule.why})"
    return _find_setting_obstacle(variants)


def _find_setting_obstacle(variants: tuple[Variant, ...]) -> str | None:
    for name in changed_settings(variants):
        if name in _PERIODS:
            return f"{name} counts the time in which a server is frozen"
    for name in _TIMEOUTS:
        if any(str(variant.server.settings.get(name, "0")) != "0" for variant in variants):
            return f"{name} counts the time in which a server is frozen, and would end sessions"
    return None
