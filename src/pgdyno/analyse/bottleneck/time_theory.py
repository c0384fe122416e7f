"""What the time model takes from queueing theory and statistics: who is at a thread, and how sure a mean of seconds is."""

from __future__ import annotations

import math

from pgdyno.record.samples.os_series import Floats

_CONFIDENCE = 0.95
# Above it so few seconds cannot tell a correlation from a drift, and no width would be enough.
_MOST_CORRELATION = 0.97
# Below it nobody meets another at the thread.
_HARDLY_BUSY = 1e-6
_STEPS = 60


def count_at_thread(busy_ratio: float, clients: int) -> float:
    """How many of its clients a thread has with it, at work or waiting, that is busy so much of its time.

    A thread serves one client at a time, and each comes back after a time that does not hang on the others: with one
    client that is the busy share itself, with many u / (1 - u), with a thread that is always busy all who are not away.

    Args:
        busy_ratio: Share of its time, having a CPU or waiting for one.
        clients: Of the thread.

    Source: machine repair model, Kleinrock 1975, Queueing Systems I, section 3.8: with r the time away over that at the
    thread, it is idle Erlang's B(n, r) of its time, and n - r u are with it.
    """
    if busy_ratio <= _HARDLY_BUSY:
        return busy_ratio
    if busy_ratio >= 1.0:
        return float(clients)
    # The time away is none at least, and at most what leaves no client but the one that is served.
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


def half_width(values: Floats) -> float:
    """Of the 95 % interval of a mean whose values follow each other, as seconds of a load do.

    The correlation of neighbours, freed of the bias that few values give it, says how many independent values they are
    worth.

    Args:
        values: Three and more, in their order.

    Sources: Bayley & Hammersley 1946, doi:10.2307/2983560, for the number of independent values; Kendall 1954,
    doi:10.1093/biomet/41.3-4.403, for the bias.
    """
    from scipy.special import stdtrit  # noqa: PLC0415 - as in `estimate`

    count = len(values)
    apart = values - values.mean()
    squares = float(apart @ apart)
    if squares <= 0.0:
        return 0.0
    seen = float(apart[1:] @ apart[:-1]) / squares
    correlation = (count * seen + 1.0) / (count - 4.0) if count > 4 else _MOST_CORRELATION
    correlation = min(max(correlation, 0.0), _MOST_CORRELATION)
    worth = max(2.0, count * (1.0 - correlation) / (1.0 + correlation))
    variance = squares / count / (1.0 - 1.0 / worth)
    return float(stdtrit(worth - 1.0, (1.0 + _CONFIDENCE) / 2)) * math.sqrt(variance / worth)
