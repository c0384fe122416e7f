"""Threads that are placed anew: one CPU each while they are thawed, evenly, and then all that they could use before."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from pgdyno.run.host.placement import choose_cpus, placed
from pgdyno.run.host.process import ServerUser, call_as
from pgdyno.run.host.topology import parse_cpus
from tests.run.trees import read_affinities

THREE_THREADS = """
import threading
for _ in range(2):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print(flush=True)
input()
"""
CPUS = frozenset(os.sched_getaffinity(0))


@pytest.fixture
def child() -> Iterator[int]:
    """A process with three threads."""
    argv = [sys.executable, "-c", THREE_THREADS]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.stdin.close()


def test_threads_are_spread_evenly_and_at_random() -> None:
    cpus, few = frozenset(range(4)), frozenset({1, 3})
    allowed = {**dict.fromkeys(range(100, 110), cpus), **dict.fromkeys(range(200, 205), few), 300: frozenset({2})}
    draw = random.Random(1)
    seen: dict[int, Counter[int]] = {thread: Counter() for thread in allowed}
    for _ in range(400):
        chosen = choose_cpus(allowed, draw)
        assert chosen.keys() == allowed.keys()
        assert sorted(Counter(chosen[thread] for thread in range(100, 110)).values()) == [2, 2, 3, 3]
        assert sorted(Counter(chosen[thread] for thread in range(200, 205)).values()) == [2, 3]
        for thread, cpu in chosen.items():
            seen[thread][cpu] += 1
    for thread, counts in seen.items():
        # Every CPU as often as any other: 100 and 200 times, with a standard deviation of at most 10.
        assert set(counts) == allowed[thread]
        assert all(abs(count - 400 / len(allowed[thread])) < 50 for count in counts.values())
    assert choose_cpus(allowed, random.Random(2)) == choose_cpus(dict(reversed(allowed.items())), random.Random(2))


@pytest.mark.parametrize(
    ("text", "cpus"), [("0\n", {0}), ("0-3,8,10-11\n", {0, 1, 2, 3, 8, 10, 11}), ("\n", set()), ("5,7", {5, 7})]
)
def test_the_kernels_lists_of_cpus(text: str, cpus: set[int]) -> None:
    assert parse_cpus(text) == cpus


def test_each_thread_has_one_cpu_in_the_block_and_all_of_its_own_afterwards(child: int) -> None:
    least = min(CPUS)
    os.sched_setaffinity(child, {least})
    before = read_affinities(child)
    assert sorted(map(len, before.values())) == sorted([1, len(CPUS), len(CPUS)])
    with placed(((child,), (child + 1_000_000_000,)), random.Random(3)):
        within = read_affinities(child)
        assert [len(cpus) for cpus in within.values()] == [1, 1, 1]
        assert within.pop(child) == {least}
        assert len(set[int]().union(*within.values())) == min(2, len(CPUS))
    assert read_affinities(child) == before


def test_threads_get_all_of_their_cpus_back_however_the_block_ends(child: int) -> None:
    before = read_affinities(child)
    with pytest.raises(KeyboardInterrupt), placed(((child,),), random.Random(3)):
        raise KeyboardInterrupt
    assert read_affinities(child) == before


def test_a_process_that_ends_in_the_block_is_no_error(child: int) -> None:
    with placed(((child,),), random.Random(3)):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert read_affinities(child) == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a process that another account may not place")
def test_threads_of_another_account_stay_where_they_are(child: int) -> None:
    before = read_affinities(child)

    def place() -> bool:
        with placed(((child,),), random.Random(3)):
            return read_affinities(child) == before

    assert call_as(ServerUser(name="nobody", uid=65534, gid=65534), place)
    assert read_affinities(child) == before
