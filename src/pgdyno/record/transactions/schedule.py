"""How far pgbench came with its schedule: what tells a load that fell behind from one that was slow only now and then.

With `--rate`, pgbench takes the next scheduled start when a client is free. Starts that no client was free for when the
load ended appear nowhere, neither in its counts nor in its log; only the last one that was taken shows how many they are.
"""

from __future__ import annotations

from pathlib import Path

from pgdyno.record.transactions.pack import read_packed
from pgdyno.record.transactions.parse import TransactionOutcome


def read_last_scheduled_s(folder: Path, *, latency_limit_ms: float) -> float:
    """The last scheduled start that pgbench took, in seconds since the Unix epoch.

    Args:
        folder: Of a trial's packed transactions, made with a rate and a limit.
        latency_limit_ms: A skipped transaction was scheduled at least so long before.

    Raises:
        OSError: The transactions cannot be read.
        ValueError: They are damaged, or there are none.
    """
    last_us = 0
    for batch in read_packed(folder):
        skipped = batch.outcome == TransactionOutcome.SKIPPED
        scheduled_us = batch.stamp_us - batch.latency_us
        scheduled_us[skipped] -= round(latency_limit_ms * 1000)
        last_us = max(last_us, int(scheduled_us.max(initial=0)))
    if not last_us:
        raise ValueError("no transaction was logged")
    return last_us / 1e6
