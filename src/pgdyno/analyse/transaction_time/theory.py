"""Compute what the time model takes from queueing theory and statistics: clients at a thread, intervals of autocorrelated means."""

from __future__ import annotations

import math

from pgdyno.analyse.estimate import CONFIDENCE, t_quantile
from pgdyno.record.samples.series import Floats

# Above it, this few seconds cannot tell a correlation from a drift, and no interval would be wide enough.
_MAX_CORRELATION = 0.97
# Below it, clients do not meet at the thread.
_HARDLY_BUSY = 1e-6
_STEPS = 60


def count_clients_at_thread(busy_ratio: float, clients: int) -> float:
    """Compute the mean number of a thread's clients that are at the thread, served or queued, from its utilisation.

    A thread serves one client at a time, and each client returns after a time that does not depend on the others. With
    one client the number is the utilisation itself, with many it is u / (1 - u), and at a saturated thread it is every
    client.

    Args:
        busy_ratio: Share of the thread's time in which it has a CPU or waits for one.
        clients: Number of clients of the thread.

    Source: machine repair model, Kleinrock 1975, Queueing Systems I, section 3.8: with r the time away over that at the
    thread, the thread is idle for Erlang's B(n, r) of its time, and n - r u clients are at it.
    """
    if busy_ratio <= _HARDLY_BUSY:
        return busy_ratio
    if busy_ratio >= 1.0:
        return float(clients)
    # The time away is at least zero; at most, it leaves only the client that is served.
    low, high = 0.0, (clients - busy_ratio) / busy_ratio
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if 1.0 - _erlang_b(clients, middle) > busy_ratio:
            low = middle
        else:
            high = middle
    return clients - high * busy_ratio


def _erlang_b(servers: int, offered: float) -> float:
    blocked = 1.0
    for count in range(1, servers + 1):
        blocked = offered * blocked / (count + offered * blocked)
    return blocked


def autocorrelated_half_width(values: Floats) -> float:
    """Compute the half-width of the 95 % interval of a mean of autocorrelated values, such as the seconds of a load.

    The lag-one autocorrelation, corrected for its small-sample bias, says how many independent values the given ones
    are worth.

    Args:
        values: Three or more values, in their order.

    Sources: Bayley & Hammersley 1946, doi:10.2307/2983560, for the number of independent values; Kendall 1954,
    doi:10.1093/biomet/41.3-4.403, for the bias.
    """
    count = len(values)
    apart = values - values.mean()
    squares = float(apart @ apart)
    if squares <= 0.0:
        return 0.0
    seen = float(apart[1:] @ apart[:-1]) / squares
    correlation = (count * seen + 1.0) / (count - 4.0) if count > 4 else _MAX_CORRELATION
    correlation = min(max(correlation, 0.0), _MAX_CORRELATION)
    worth = max(2.0, count * (1.0 - correlation) / (1.0 + correlation))
    variance = squares / count / (1.0 - 1.0 / worth)
    return t_quantile(worth - 1.0, (1.0 + CONFIDENCE) / 2) * math.sqrt(variance / worth)
