"""Model a closed loop of clients whose transactions end with a flush: group commit, and rows locked until the flush is over.

Benchmarks measure the errors (benchmarks/models.py); ADR 0009 explains the choice of models. No predicted quantity is
an input of its own model, and no constant is fitted to what is predicted.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from pgdyno.analyse.models.checks import check_positive

Floats = npt.NDArray[np.float64]

# With more clients, flushes or CPUs are the limit by far, and the chain takes seconds to solve.
_MAX_CLIENTS = 128


class CommitForecast(msgspec.Struct, frozen=True, kw_only=True):
    """The predicted result of a closed loop of committing clients."""

    tps: float
    batch_count: float
    """Mean number of transactions that a flush makes durable."""
    work_s: float
    """Time of a transaction until it waits for a flush, slowed down by the other clients at work."""


class RowLocks(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of which each transaction locks one at random until its commit is durable."""

    rows_count: float
    work_before_s: float
    """Time of a transaction until it locks the row, slowed down by the other clients at work."""


def ceiling_tps(clients: int, *, flush_s: float) -> float:
    """Compute the TPS that flushes alone allow: of one client, or of two halves of the clients that take turns.

    A client that commits during a flush waits for its end, and shares the next flush with all clients that wait by
    then.

    Args:
        clients: Clients in a closed loop, each with one transaction at a time.
        flush_s: Time to write and flush a little WAL.
    """
    check_positive(clients=clients, flush_s=flush_s)
    return 1.0 / flush_s if clients == 1 else clients / (2.0 * flush_s)


def unflushed_tps(clients: int, *, think_s: float, cpu_s: float, cpu_count: float) -> tuple[float, ...]:
    """Compute TPS of 1 to `clients` clients with everything except waiting for flushes.

    Args:
        clients: The largest number of clients.
        think_s: Time of one client's transaction without its flush, client and round trips included.
        cpu_s: CPU time of one transaction, client included.
        cpu_count: Number of CPUs available for it.
    """
    check_positive(clients=clients, think_s=think_s, cpu_s=cpu_s, cpu_count=cpu_count)
    return tuple(min(n / think_s, cpu_count / cpu_s) for n in range(1, clients + 1))


def predict_commit_tps(unflushed: Sequence[float], *, flush_s: float | Sequence[float]) -> CommitForecast:
    """Predict TPS of a closed loop in which each transaction ends with a flush, shared by all clients that wait for it.

    The model is a Markov chain over batch sizes. While a flush is under way the other clients work: with n of them at
    work, one finishes at the rate unflushed[n-1] and waits. The next flush serves all waiting clients; if there are
    none, it begins with the first one that arrives. The rates unflushed stand for all interference between n clients:
    CPUs, sockets, locks. They do not include the row locks that a transaction holds while it waits for its flush.

    Limits: 1/(Z+F) for one client; N/2 per batch and N/(2F) for more clients whose work Z is short compared with the
    flush F; and unflushed[N-1] if flushes cost nothing. For very many clients it is the smaller of the last two.

    If flush times vary, batches gather during the long flushes, and the short ones end before many clients have
    arrived: the more they vary, the smaller the mean batch. Consecutive flush times are taken as independent.

    Source: Chandy, Herzog & Woo 1975, doi:10.1147/rd.191.0036, for work as one server with a load-dependent rate;
    Bailey 1954, Journal of the Royal Statistical Society B 16, for chains at the ends of batches; PostgreSQL 18,
    access/transam/xlog.c, XLogFlush, for which commits share a flush.

    Args:
        unflushed: TPS of 1, 2, … N clients without waiting for flushes; N is the number of clients.
        flush_s: Time to write and flush a little WAL; several values are equally likely.
    """
    from scipy.linalg import expm  # noqa: PLC0415 - most commands predict nothing

    # scipy's expm divides by the difference of neighbouring rates: a difference in the last digit alone is noise.
    rates = np.array([float(f"{rate:.9g}") for rate in unflushed])
    times_s = np.atleast_1d(np.asarray(flush_s, dtype=np.float64))
    mean_s = float(times_s.mean())
    check_positive(
        clients=rates.size, flush_s=float(times_s.min()), **{f"unflushed[{n}]": rate for n, rate in enumerate(rates)}
    )
    clients = rates.size
    if clients > _MAX_CLIENTS:
        tps = min(float(rates[-1]), ceiling_tps(clients, flush_s=mean_s))
        work_s = max(0.0, clients / tps - 2.0 * mean_s)
        return CommitForecast(tps=tps, batch_count=tps * mean_s, work_s=work_s)
    # Row n: the distribution of how many of n clients are still at work when a flush ends.
    falling = _departure_generator(rates)
    still = np.mean([expm(falling * one) for one in times_s], axis=0)
    # The integral of the number at work from the beginning of a flush to its end.
    at_work_s = np.zeros(clients + 1)
    at_work_s[1:] = np.linalg.solve(falling[1:, 1:], still[1:, 1:] - np.eye(clients)) @ np.arange(1, clients + 1)
    following = np.zeros((clients, clients))
    idle_s = np.empty(clients)
    for batch in range(1, clients + 1):
        others = clients - batch
        nobody = still[others, others]
        following[batch - 1, :others] = still[others, :others][::-1]
        following[batch - 1, 0] += nobody
        idle_s[batch - 1] = nobody / rates[-1]
    share = _stationary_distribution(following)
    batch_count = float(share @ np.arange(1, clients + 1))
    worked_s = float(share @ (at_work_s[:clients][::-1] + clients * idle_s))
    return CommitForecast(
        tps=batch_count / float(mean_s + share @ idle_s), batch_count=batch_count, work_s=worked_s / batch_count
    )


def list_pgbench_row_locks(branches_count: int, *, work_s: float) -> tuple[RowLocks, ...]:
    """Return the row locks of tpcb-like: a branch from the fifth of its seven statements on, a teller from the fourth on.

    Source: PostgreSQL 18, bin/pgbench/pgbench.c, builtin_script and ntellers.

    Args:
        branches_count: Number of branches, which is the scale.
        work_s: Time of a transaction, divided equally between its statements.
    """
    return tuple(
        RowLocks(rows_count=branches_count * each, work_before_s=work_s * statements / 7)
        for each, statements in ((1, 4), (10, 3))
    )


def subtract_row_waits(tps: float, *, clients: int, kept: Sequence[RowLocks]) -> float:
    """Reduce a rate by the time that transactions wait for rows that others keep locked until their flush is over.

    Each row is a queue whose service time is the time that a transaction holds it, which is nearly constant; an
    arriving client sees the queue that the other clients would form without it. The model leaves out the locks that a
    client holds while it waits, and the CPU that it then leaves to others: if CPUs are the limit, it subtracts too
    much.

    Source: Kleinrock 1975, Queueing Systems I, 5.8, M/D/1; Reiser & Lavenberg 1980, doi:10.1145/322186.322195, arrival
    theorem of closed networks.

    Args:
        tps: Rate without that waiting.
        clients: Number of clients in a closed loop.
        kept: Row locks of a transaction.
    """
    from scipy.optimize import brentq  # noqa: PLC0415 - most commands predict nothing

    check_positive(tps=tps, clients=clients)
    for one in kept:
        check_positive(rows_count=one.rows_count)
    cycle_s = clients / tps
    held = [(one.rows_count, max(0.0, cycle_s - one.work_before_s)) for one in kept]
    # With a shorter cycle, a row would be locked for more than all of the time.
    least_s = max([cycle_s, *((clients - 1) * held_s / rows for rows, held_s in held)])

    def missing_s(longer_s: float) -> float:
        busy = [((clients - 1) * held_s / rows / longer_s, held_s) for rows, held_s in held]
        return longer_s - cycle_s - sum(held_s * share / (2.0 * (1.0 - share)) for share, held_s in busy)

    low_s, high_s = least_s * (1.0 + 1e-9), least_s * 2.0
    while missing_s(high_s) < 0.0:
        high_s *= 2.0
    return clients / (low_s if missing_s(low_s) >= 0.0 else float(brentq(missing_s, low_s, high_s)))


def _departure_generator(rates: Floats) -> Floats:
    """Build the generator of the number of clients at work, 0 to N, while none returns to work."""
    size = rates.size + 1
    generator = np.zeros((size, size))
    at_work = np.arange(1, size)
    generator[at_work, at_work - 1] = rates
    generator[at_work, at_work] = -rates
    return generator


def _stationary_distribution(following: Floats) -> Floats:
    """Compute the stationary distribution of a chain, given by rows of transition probabilities."""
    size = following.shape[0]
    equations = np.vstack([following.T - np.eye(size), np.ones(size)])
    shares: Floats = np.linalg.lstsq(equations, np.append(np.zeros(size), 1.0), rcond=None)[0]
    return shares
