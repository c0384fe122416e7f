"""Place threads on CPUs anew, at random.

A scheduler that has placed the threads of a load badly leaves them there for seconds. Where each variant of a round has a
load of its own, that would favour one of them in all of its slices.
Source: ADR 42.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pgdyno.run.host.topology import parse_cpus

_NODES = Path("/sys/devices/system/node")
# Source: proc_pid_stat(5): field 39, counted from the state, which is field 3.
_LAST_CPU = 39 - 3


@contextlib.contextmanager
def placed(groups: Sequence[Sequence[int]], draw: random.Random) -> Iterator[None]:
    """Place the threads of stopped processes on CPUs at random; thaw them in the block.

    In the block each thread may use the one CPU that it was given, and afterwards all that it could use before. The threads
    of a group are spread evenly. On a machine with several NUMA nodes each stays on its own, where its memory is. Threads
    that this account may not place stay where they are. What a process starts in the block may use that process's CPU alone,
    for as long as it lives: leave out those that start others.

    Args:
        groups: Ids of the processes that are spread together.
        draw: Decides.
    """
    before: dict[int, frozenset[int]] = {}
    try:
        for pids in groups:
            allowed = {thread: cpus for pid in pids for thread, cpus in _read_allowed(pid).items()}
            before |= allowed
            near = {thread: _keep_node(thread, cpus) for thread, cpus in allowed.items()}
            for thread, cpu in choose_cpus(near, draw).items():
                _set_affinity(thread, frozenset({cpu}))
        yield
    finally:
        for thread, cpus in before.items():
            _set_affinity(thread, cpus)


def choose_cpus(allowed: Mapping[int, frozenset[int]], draw: random.Random) -> dict[int, int]:
    """Choose a CPU for each thread at random: those with the same choice are spread over it evenly.

    Args:
        allowed: The CPUs from which to choose for each thread, at least one.
        draw: Decides.
    """
    hands: dict[frozenset[int], Iterator[int]] = {}
    chosen = {}
    for thread in draw.sample(sorted(allowed), len(allowed)):
        cpus = allowed[thread]
        if cpus not in hands:
            hands[cpus] = itertools.cycle(draw.sample(sorted(cpus), len(cpus)))
        chosen[thread] = next(hands[cpus])
    return chosen


def _read_allowed(pid: int) -> dict[int, frozenset[int]]:
    """Return the CPUs that each thread of a process may use; none, once it has ended."""
    try:
        with os.scandir(f"/proc/{pid}/task") as threads:
            return {int(one.name): frozenset(os.sched_getaffinity(int(one.name))) for one in threads}
    except OSError:
        return {}


def _set_affinity(thread: int, cpus: frozenset[int]) -> None:
    # It has ended; or it is of another account, without CAP_SYS_NICE; or the CPUs of its cgroup have just changed.
    with contextlib.suppress(OSError):
        os.sched_setaffinity(thread, cpus)


def _keep_node(thread: int, cpus: frozenset[int]) -> frozenset[int]:
    """Return those of some CPUs that are on the NUMA node on which a thread ran last; all, where there is one node."""
    nodes = _read_nodes()
    if len(nodes) < 2:
        return cpus
    try:
        words = Path(f"/proc/{thread}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return cpus
    last = int(words[_LAST_CPU])
    return next((cpus & node for node in nodes if last in node and cpus & node), cpus)


@functools.cache
def _read_nodes() -> tuple[frozenset[int], ...]:
    return tuple(parse_cpus(path.read_text(encoding="ascii")) for path in sorted(_NODES.glob("node[0-9]*/cpulist")))
