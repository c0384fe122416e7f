"""Derive the settings of a PgBouncer in front of the server: its mode, its pool, its clients, the statements that it keeps."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pgdyno.plan.endpoints import POOL_PER_KNEE
from pgdyno.plan.types import KEEPS_STATEMENTS_SINCE
from pgdyno.spec.pooler import PoolMode
from pgdyno.tune.draft import Draft
from pgdyno.tune.pooling import (
    ASKED,
    describe_knee,
    find_reads_at_once,
    find_usable_knee,
    spare_connections,
)
from pgdyno.tune.types import Known, Layer, MeasuredKnee, Origin, Pooling, Target
from pgdyno.units import format_cpus

_CONFIG = "PgBouncer's manual, config"
_RULE = "PostgreSQL wiki, “Number Of Database Connections”"
_FORMULAS = {
    False: "upper end of the knee's interval, at least 1.5 times the knee and at most twice, or the most clients that were tried; no more than clients",
    True: "upper end of the interval of the knee over pool sizes, at least 1.5 times the knee and at most twice, or the largest pool that was tried; no more than clients",
}
# Source: PgBouncer 1.24's own default.
_KEPT_STATEMENTS = 200
# Source: PgBouncer's manual, features: 2 kB for each connection by default.
_CLIENT_KB = 2
# Open files that a service may have without LimitNOFILE. Source: systemd's DefaultLimitNOFILE, 1024 of them soft.
_USUAL_FILES = 1024


def derive_pooler(draft: Draft) -> None:
    """Decide PgBouncer's settings, if there is to be one; `with_pool` has chosen its pool."""
    pooling = draft.subject.pooling
    if pooling is None or pooling.size is None:
        return
    _put_mode(draft, pooling.mode)
    _put_size(draft, pooling, pooling.size)
    most = _put_clients(draft, pooling.clients)
    if _keeps_statements(pooling):
        _put(
            draft,
            "max_prepared_statements",
            str(_KEPT_STATEMENTS),
            reason="prepared statements of the protocol then work in transaction mode, as many as a client usually has.",
            formula=f"no input: {_KEPT_STATEMENTS}, as PgBouncer has built in from 1.24 on; only in transaction mode, and only from 1.21 on",
            trades="memory for each statement on each server connection",
        )
    draft.notes += _note(draft, pooling, pooling.size, most)


def list_left_to_user(pooling: Pooling) -> Iterator[str]:
    """Say what of PgBouncer's configuration is not derived, each in a sentence."""
    yield "[databases], listen_addr, auth_type and auth_file of PgBouncer are not derived: they say who connects from where."
    if pooling.mode is PoolMode.SESSION or _keeps_statements(pooling):
        return
    if pooling.version is None:
        yield (
            f"max_prepared_statements = {_KEPT_STATEMENTS} is for PgBouncer 1.21 or later, whose version is not known here: an"
            " earlier one does not start with it, and prepared statements of the protocol fail there in transaction mode."
        )
    else:
        version = ".".join(map(str, pooling.version))
        yield (
            f"PgBouncer {version} keeps no prepared statements in transaction mode, so that drivers must not use those of the protocol:"
            " 1.21 and later have max_prepared_statements."
        )


def _keeps_statements(pooling: Pooling) -> bool:
    is_new = pooling.version is not None and pooling.version >= KEEPS_STATEMENTS_SINCE
    return is_new and pooling.mode is PoolMode.TRANSACTION


def _put_mode(draft: Draft, mode: PoolMode) -> None:
    reasons = {
        PoolMode.TRANSACTION: "a server connection goes back after each transaction, so that few of them serve many clients.",
        PoolMode.SESSION: "a client keeps its server connection, so that only the time of connecting is saved.",
    }
    trades = {
        PoolMode.TRANSACTION: "a session keeps nothing beyond its transaction: no SET, LISTEN, advisory locks, temporary tables or PREPARE",
        PoolMode.SESSION: "as many server connections as clients",
    }
    _put(
        draft,
        "pool_mode",
        mode.value,
        reason=reasons[mode],
        formula="no input: as you ask, transaction unless --pool-mode says otherwise",
        trades=trades[mode],
    )


def _put_size(draft: Draft, pooling: Pooling, size: Known) -> None:
    subject, knee = draft.subject, find_usable_knee(draft.subject)
    formula, source = "as declared", f"{_CONFIG}, default_pool_size"
    inputs: tuple[Known, ...] = (size,)
    reason = f"it is {size.how}."
    if size.how in ASKED:
        is_short = pooling.mode is PoolMode.SESSION and size.value < pooling.clients.value
        reason = f"you set it{'; clients beyond it wait until others disconnect' if is_short else ''}."
    elif pooling.mode is PoolMode.SESSION:
        reason, formula = "in session mode each client keeps a connection.", "the expected clients"
    elif size.origin is Origin.MEASURED and knee is not None:
        reason, formula = _explain_knee(knee, size.value, pooling.clients.value), _FORMULAS[knee.is_of_pool]
        source += "; docs/guide/sweep.md for the knee"
    elif size.origin is Origin.ASSUMED:
        reads = find_reads_at_once(subject)
        rule = f"2 for each of {subject.cpus.value:g} CPUs and {reads} for the disk"
        reason = f"by PostgreSQL's rule of thumb {rule} can be at work; a sweep over clients of your load finds a better one."
        if size.value == pooling.clients.value:
            reason = f"there are no more clients; by PostgreSQL's rule of thumb {rule} could be at work."
        formula = "2 × CPUs + what the disk reads at once (random reads a second × latency of one) × share of data beyond the memory, from 1 to 2 × CPUs; no more than clients"
        inputs = (size, subject.cpus, subject.disk.random_read_iops, subject.dataset, subject.memory)
        source += f"; {_RULE}, whose spindles are taken for what a disk of another kind reads at once"
    _put(
        draft,
        "default_pool_size",
        f"{size.value:.0f}",
        reason=reason,
        formula=formula,
        inputs=inputs,
        source=source,
        trades="a transaction beyond it waits for a connection; it counts for each pair of database and user",
    )


def _explain_knee(knee: MeasuredKnee, size: float, clients: float) -> str:
    of = " of a pool" if knee.is_of_pool else " at work"
    if knee.is_beyond:
        return f"your load still gained at {knee.clients:.0f} {knee.unit}s{of}, the most that the sweep tried."
    gains = f"your load reaches 90 % of its highest TPS with {describe_knee(knee)}{of}"
    if size == clients:
        return f"{gains}; there are no more clients than the pool has connections."
    if knee.low is not None and (knee.high is None or knee.high > POOL_PER_KNEE[1] * knee.clients):
        return f"{gains}; the pool is twice that, as it may be more."
    if knee.high is not None and size == math.ceil(knee.high):
        return f"{gains}, and the pool is as large as its upper end."
    return f"{gains}, and the pool is half as large again."


def _put_clients(draft: Draft, clients: Known) -> int:
    most = math.ceil((clients.value + spare_connections(clients.value)) / 10) * 10
    _put(
        draft,
        "max_client_conn",
        str(most),
        reason=f"it is the expected clients and some more; each costs PgBouncer about {_CLIENT_KB} kB, and the server nothing.",
        formula="clients + a tenth, at least 5, in tens",
        inputs=(clients,),
        trades="an open file of PgBouncer's for each",
    )
    return most


def _note(draft: Draft, pooling: Pooling, size: Known, most: int) -> Iterator[str]:
    subject = draft.subject
    yield (
        f"the pool of {size.value:.0f} is for one pair of database and user: with several, divide it among them (pool_size in [databases]),"
        " or raise max_connections by each further pool."
    )
    knee = pooling.knee
    if pooling.no_knee_reason:
        yield f"the pool does not follow from a measurement: {pooling.no_knee_reason}."
    elif knee is not None and find_usable_knee(subject) is None:
        yield (
            f"the pool does not follow from the sweep of {knee.how}: this machine has {format_cpus(subject.cpus.value)}, and a knee moves with"
            " them."
        )
    elif knee is not None and size.origin is Origin.MEASURED:
        yield from _doubt(knee)
    files = most + size.value
    if files > _USUAL_FILES:
        yield (
            f"PgBouncer opens up to {files:,.0f} files, one for each client and server connection: give its service"
            f" LimitNOFILE={math.ceil(files * 1.1 / 1000) * 1000:.0f} or more."
        )
    yield from list_left_to_user(pooling)


def _doubt(knee: MeasuredKnee) -> Iterator[str]:
    """Say what the sweep left open, and what settles it."""
    load, more = ("pool", "larger pools and at least as many clients") if knee.is_of_pool else ("load", "more clients")
    if knee.is_beyond:
        yield f"TPS still grew at the largest {load} of {knee.how}, so that the pool may be too small: sweep with {more}."
    elif knee.low is None:
        yield (
            f"the knee of {knee.how} has no interval, because too few {load}s were repeated: a longer sweep gives it one."
        )
    elif knee.high is None:
        yield (
            f"the knee of {knee.how} may lie higher, as its interval has no upper end, so that the pool is twice the knee: sweep for longer, or"
            f" with {more}."
        )


def _put(
    draft: Draft,
    name: str,
    value: str,
    *,
    reason: str,
    formula: str,
    trades: str,
    inputs: tuple[Known, ...] = (),
    source: str = "",
) -> None:
    draft.put_outside(
        name,
        value,
        target=Target.POOLER,
        layer=Layer.POOLER,
        reason=reason,
        formula=formula,
        inputs=inputs,
        source=source or f"{_CONFIG}, {name}",
        trades=trades,
    )
