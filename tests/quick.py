"""What stands for parts of the program that only take long, in tests of the whole program; tests of those parts run the real ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pgdyno.conduct.load import hosts
from pgdyno.flow.live import watch
from pgdyno.run.cluster.server import Server
from pgdyno.run.given import probe
from tests.homes import copied_initdb


def hurry(put: Callable[[Any, str, object], None] = setattr) -> None:
    """Let this process run them."""
    put(Server, "initdb", copied_initdb)
    # How what others do in a user's server is seen is tested by tests/run/test_privileges.py.
    # What pgdyno's own sessions in a pooler report late, 21 transactions, must not look like the work of others: 20 in a second.
    put(probe, "_WATCH_S", 0.6)
    # Empty statements take all CPUs meanwhile. A report looks no closer at them than whether the load is near their rate.
    put(hosts, "EMPTY_S", 1.0)
    # At the lowest priority, a page waits for minutes beside other tests.
    put(watch, "_NICEST", 0)
