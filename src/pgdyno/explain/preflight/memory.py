"""Rules about memory: its pages, swap, NUMA, overcommit, and the limits of processes."""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.explain.finding import Finding, Severity
from pgdyno.explain.preflight.rule_input import Rule, RuleInput
from pgdyno.units import format_bytes

_LOW_RATIO = 0.1
# Source: Docker's default for /dev/shm is 64 MB; one parallel hash join needs more.
_SMALL_SHM_BYTES = 256 * 1024**2
_NEVER_OVERCOMMIT = 2
_OVERCOMMIT_RATIO = "vm.overcommit_ratio"
# The rest is for the kernel itself, which CommitLimit does not count.
_HIGH_RATIO = 90
_COMMIT_SLACK_BYTES = 1024**3
# Files and processes besides those of the clients: the server's own, psql, samplers.
_OWN_FILES = 64
_OWN_PROCESSES = 100
_THP_FILE = "/sys/kernel/mm/transparent_hugepage/enabled"


def _transparent_huge_pages(rule_input: RuleInput) -> Iterator[Finding]:
    if rule_input.host.transparent_huge_pages == "always":
        yield Finding(
            rule="transparent-huge-pages",
            severity=Severity.WARNING,
            claim="Transparent huge pages are set to always.",
            evidence=f"{_THP_FILE} says so",
            why="A server stalls while the kernel compacts memory, at unpredictable times.",
            advice=f"`echo madvise > {_THP_FILE}`, and transparent_hugepage=madvise on the kernel's command line to keep it.",
        )


def _swap(rule_input: RuleInput) -> Iterator[Finding]:
    memory, activity = rule_input.facts.memory, rule_input.facts.activity
    if memory is None or memory.swap_used_bytes <= 0:
        return
    moved = sum(filter(None, [activity.swapped_in_pages, activity.swapped_out_pages])) if activity else 0
    yield Finding(
        rule="swap-in-use",
        severity=Severity.CRITICAL if moved else Severity.WARNING,
        claim="Memory is being swapped at this moment." if moved else "Swap is in use.",
        evidence=f"{format_bytes(memory.swap_used_bytes)} swapped out"
        + (f", {moved} pages moved in {activity.window_s:.1f} s" if moved and activity else ""),
        why="What was swapped out is read from disk when it is next touched, in the middle of a trial.",
        advice="Free memory, then bring everything back: `swapoff -a && swapon -a`; `pgdyno tune` derives vm.swappiness from the disk's speed.",
    )


def _low_memory(rule_input: RuleInput) -> Iterator[Finding]:
    memory = rule_input.facts.memory
    if memory is None or memory.available_bytes is None:
        return
    if memory.available_bytes < _LOW_RATIO * rule_input.host.memory_bytes:
        yield Finding(
            rule="memory-full",
            severity=Severity.WARNING,
            claim="Memory is nearly full.",
            evidence=f"{format_bytes(memory.available_bytes)} of {format_bytes(rule_input.host.memory_bytes)} available",
            why="There is no room for a page cache: reads go to disk, and the kernel reclaims memory while trials run.",
            advice="See who has it, `ps -eo pid,rss,comm --sort=-rss | head`, and stop that.",
        )
    left_bytes = memory.commit_limit_bytes - memory.committed_bytes
    if memory.overcommit_memory == _NEVER_OVERCOMMIT and left_bytes < _COMMIT_SLACK_BYTES:
        yield Finding(
            rule="overcommit",
            severity=Severity.WARNING,
            claim="The kernel has promised nearly all the memory it may promise.",
            evidence=f"{format_bytes(max(0, left_bytes))} below CommitLimit, vm.overcommit_memory = 2",
            why="A server does not start, or a query fails, while memory is free.",
            advice=_choose_commit_advice(rule_input.host.kernel_settings.get(_OVERCOMMIT_RATIO, "")),
        )


def _choose_commit_advice(ratio: str) -> str:
    """Choose what raises CommitLimit.

    Args:
        ratio: The vm.overcommit_ratio in force; `0` where vm.overcommit_kbytes replaces it, empty where it is not known.
    """
    if not ratio.isdigit():
        return f"More swap, or a larger {_OVERCOMMIT_RATIO}."
    if int(ratio) == 0:
        return "More swap, or a larger vm.overcommit_kbytes."
    return f"`sysctl {_OVERCOMMIT_RATIO}={_HIGH_RATIO}`, or more swap." if int(ratio) < _HIGH_RATIO else "More swap."


def _numa(rule_input: RuleInput) -> Iterator[Finding]:
    memory = rule_input.facts.memory
    if memory is None or memory.numa_nodes < 2:
        return
    if memory.numa_balancing:
        yield Finding(
            rule="numa-balancing",
            severity=Severity.WARNING,
            claim="The kernel moves memory between NUMA nodes by itself.",
            evidence=f"{memory.numa_nodes} nodes, kernel.numa_balancing = {memory.numa_balancing}",
            why="It takes pages of shared memory away to see who uses them: faults and migrations during the load.",
            advice="`sysctl kernel.numa_balancing=0`.",
        )
    if memory.zone_reclaim_mode:
        yield Finding(
            rule="zone-reclaim",
            severity=Severity.WARNING,
            claim="The kernel drops cached data of a NUMA node while others have memory free.",
            evidence=f"{memory.numa_nodes} nodes, vm.zone_reclaim_mode = {memory.zone_reclaim_mode}",
            why="Part of the memory is no page cache.",
            advice="`sysctl vm.zone_reclaim_mode=0`.",
        )


def _shared_memory_files(rule_input: RuleInput) -> Iterator[Finding]:
    memory = rule_input.facts.memory
    if memory is not None and memory.shm_size_bytes is not None and memory.shm_size_bytes < _SMALL_SHM_BYTES:
        yield Finding(
            rule="small-shm",
            severity=Severity.WARNING,
            claim="The room for shared memory files is small.",
            evidence=f"/dev/shm is limited to {format_bytes(memory.shm_size_bytes)}",  # noqa: S108 - no file is made
            why="Parallel queries keep their shared memory there, and fail when it is full.",
            advice="`mount -o remount,size=1G /dev/shm`; of a container, start it with `docker run --shm-size=1g`.",
        )


def _process_limits(rule_input: RuleInput) -> Iterator[Finding]:
    limits = rule_input.facts.process_limits
    if limits is None:
        return
    # Each pgbench may open so many files; processes and threads are counted for all of an account's together.
    of_load, at_once = rule_input.most_clients, rule_input.clients_at_once
    for name, limit, clients, needed, option in (
        ("open files", limits.open_files, of_load, of_load + _OWN_FILES, "-n"),
        ("processes", limits.processes, at_once, 2 * at_once + _OWN_PROCESSES, "-u"),
    ):
        if limit is not None and limit < needed:
            yield Finding(
                rule="process-limits",
                severity=Severity.CRITICAL,
                claim=f"This account may have too few {name}.",
                evidence=f"{limit}, needed are about {needed} with {clients} clients",
                why="Some clients cannot connect.",
                advice=f"`ulimit {option} {max(4096, 2 * needed)}` in the shell that starts pgdyno.",
            )


RULES: tuple[Rule, ...] = (
    _transparent_huge_pages,
    _swap,
    _low_memory,
    _numa,
    _shared_memory_files,
    _process_limits,
)
