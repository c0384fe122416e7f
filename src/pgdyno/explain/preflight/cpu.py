"""Rules about the CPUs, the clock, and what a hypervisor or a control group takes of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pgdyno.explain.finding import Finding, Severity
from pgdyno.explain.preflight.rule_input import Rule, RuleInput
from pgdyno.record.machine.preflight import CgroupLimit, LimitKind
from pgdyno.units import format_bytes

# Clock sources that are read without a system call. Source: Linux arch/x86/include/asm/vdso/clocksource.h, arch/arm64
# likewise; vdso_clock_mode of arch/powerpc/kernel/time.c.
_FAST_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "timebase")
# Source: PostgreSQL 18 manual, pg_test_timing: most fast systems are below 100 ns; a slow clock takes 1000.
_READ_NS = 100.0
# Source: our methods: above 1 % of stolen time, neighbours show in the figures.
_STEAL_RATIO = 0.01
# The kernel counts stolen time in these; one alone may have begun long before. Source: proc_stat(5), USER_HZ.
_TICK_S = 0.01
# Source: Amazon EC2 user guide, "Burstable performance instances": families t2, t3, t3a and t4g.
_BURSTABLE = re.compile(r"t[2-4][ag]?\.\w+")
_CLOCK_FILE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
_FEW_TASKS = 500
# Source: docker-update(1), which has no option for I/O, and on cgroup v2 sets memory.low by --memory-reservation;
# systemd.resource-control(5).
_DOCKER = {
    LimitKind.CPU: "`docker update --cpus=N CONTAINER`",
    LimitKind.MEMORY: "`docker update --memory=SIZE CONTAINER`",
    LimitKind.READ_BYTES: "start the container again with another `--device-read-bps`",
    LimitKind.WRITE_BYTES: "start the container again with another `--device-write-bps`",
    LimitKind.READ_COUNT: "start the container again with another `--device-read-iops`",
    LimitKind.WRITE_COUNT: "start the container again with another `--device-write-iops`",
    LimitKind.TASKS: "`docker update --pids-limit=-1 CONTAINER`",
}
_SYSTEMD = {
    LimitKind.CPU: "CPUQuota=",
    LimitKind.MEMORY: "MemoryMax=infinity",
    LimitKind.MEMORY_HIGH: "MemoryHigh=infinity",
    LimitKind.READ_BYTES: "IOReadBandwidthMax=",
    LimitKind.WRITE_BYTES: "IOWriteBandwidthMax=",
    LimitKind.READ_COUNT: "IOReadIOPSMax=",
    LimitKind.WRITE_COUNT: "IOWriteIOPSMax=",
    LimitKind.TASKS: "TasksMax=infinity",
}
_LIMIT_WHY = {
    LimitKind.CPU: "Once the quota of a tenth of a second is used up everything stands still until the next: latency jumps.",
    LimitKind.MEMORY: "The page cache counts, too: data beyond the limit are read from disk, whatever the machine has free.",
    LimitKind.MEMORY_HIGH: "Above it every allocation waits for memory to be freed first.",
    LimitKind.TASKS: "Each client is a process: beyond the limit connections fail.",
}
_IO_WHY = "It is the limit that is measured, not the disk."


def _clock_source(rule_input: RuleInput) -> Iterator[Finding]:
    source, clock = rule_input.host.clock_source, rule_input.facts.clock
    # Other architectures have fast clocks of other names.
    is_fast = clock is not None and clock.read_ns is not None and clock.read_ns <= _READ_NS
    if source is None or source in _FAST_CLOCKS or is_fast:
        return
    better = next((name for name in _FAST_CLOCKS if clock and name in clock.available), None)
    yield Finding(
        rule="clock-source",
        severity=Severity.WARNING,
        claim="The clock source is slow to read, which makes timing itself a load.",
        evidence=f"It is {source}; fast ones are {', '.join(_FAST_CLOCKS)}",
        why="pgbench, EXPLAIN ANALYZE and track_io_timing read it for each transaction, row or block.",
        advice=f"Choose a fast one: `echo {better} > {_CLOCK_FILE}`."
        if better
        else f"Choose a fast one in {_CLOCK_FILE}; where the kernel offers none, use another kind of machine.",
    )


def _clock_read(rule_input: RuleInput) -> Iterator[Finding]:
    clock = rule_input.facts.clock
    if clock is not None and clock.read_ns is not None and clock.read_ns > _READ_NS:
        when = ", measured by an earlier command since the machine was started" if clock.is_read_ns_kept else ""
        yield Finding(
            rule="clock-read",
            severity=Severity.WARNING,
            claim="Reading the clock takes long.",
            evidence=f"pg_test_timing: {clock.read_ns:.0f} ns a reading (limit {_READ_NS:.0f} ns), clock source {clock.source}{when}",
            why="EXPLAIN ANALYZE and track_io_timing then slow down what they time.",
            advice=f"See what the kernel offers: `cat {_CLOCK_FILE.replace('current', 'available')}`; leave track_io_timing off until then.",
        )


def _steal(rule_input: RuleInput) -> Iterator[Finding]:
    activity, clock = rule_input.facts.activity, rule_input.facts.clock
    ratio = None
    if activity and activity.steal_ratio * activity.window_s * activity.cpu_count > 1.5 * _TICK_S:
        ratio = activity.steal_ratio
    if clock and clock.steal_ratio is not None:
        # The longer measurement, which requested a whole CPU: an idle machine shows no steal.
        ratio = clock.steal_ratio
    if ratio is not None and ratio > _STEAL_RATIO:
        boot = rule_input.facts.cpu.steal_since_boot_ratio if rule_input.facts.cpu else None
        yield Finding(
            rule="steal",
            severity=Severity.CRITICAL,
            claim="The hypervisor takes CPU time away.",
            evidence=f"{ratio * 100:.1f} % stolen just now (limit {_STEAL_RATIO * 100:.0f} %)"
            + ("" if boot is None else f", {boot * 100:.1f} % since boot"),
            why="Neighbours affect the figures.",
            advice="Use a dedicated host or another time; until then trust only ratios of interleaved trials, as `pgdyno bench` and `pgdyno compare` run them.",
        )


def _governor(rule_input: RuleInput) -> Iterator[Finding]:
    seen = rule_input.facts.cpu.governors if rule_input.facts.cpu else tuple(filter(None, [rule_input.host.governor]))
    if any(one != "performance" for one in seen):
        yield Finding(
            rule="governor",
            severity=Severity.WARNING,
            claim="The CPU's frequency is not held at its highest.",
            evidence=f"Governor {', '.join(seen)}",
            why="Short transactions between waits run at a low frequency, and the frequency follows the load.",
            advice="For the time of measuring: `cpupower frequency-set -g performance`.",
        )


def _frequency(rule_input: RuleInput) -> Iterator[Finding]:
    activity, cpu = rule_input.facts.activity, rule_input.facts.cpu
    if activity is not None and activity.throttled_count:
        yield Finding(
            rule="thermal-throttling",
            severity=Severity.CRITICAL,
            claim="The CPU is too hot and slows itself down.",
            evidence=f"{activity.throttled_count} throttling events in {activity.window_s:.1f} s",
            why="Later trials run slower than earlier ones.",
            advice="Let it cool down, and fix its cooling.",
        )
    if cpu is not None and cpu.is_boosting and not cpu.is_virtual:
        yield Finding(
            rule="boost",
            severity=Severity.NOTE,
            claim="The CPU may run above its base frequency.",
            evidence=f"Boost is allowed ({cpu.frequency_driver or 'driver not known'})",
            why="How far depends on heat and on how many cores work, so one client gains more than many.",
            advice="For figures that repeat: `echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo`, or"
            " `echo 0 > /sys/devices/system/cpu/cpufreq/boost`.",
        )


def _kind_of_machine(rule_input: RuleInput) -> Iterator[Finding]:
    cpu = rule_input.facts.cpu
    if cpu is None:
        return
    if cpu.product is not None and _BURSTABLE.fullmatch(cpu.product):
        yield Finding(
            rule="burstable",
            severity=Severity.CRITICAL,
            claim="This kind of machine has CPU credits: it is fast until they are used up.",
            evidence=f"Instance type {cpu.product}",
            why="A trial's figure depends on what ran in the hours before.",
            advice="Measure on a kind without credits, such as m, c or r.",
        )
    if cpu.is_virtual:
        yield Finding(
            rule="virtual-machine",
            severity=Severity.NOTE,
            claim="This is a virtual machine.",
            evidence=", ".join(filter(None, [rule_input.host.virtualization, cpu.product])) or "The CPU says so",
            why="What its neighbours do to disk, network and caches of the CPU is not counted as steal.",
        )
    if cpu.mitigations:
        names = [one.split(":", 1)[0] for one in cpu.mitigations]
        yield Finding(
            rule="mitigations",
            severity=Severity.NOTE,
            claim="Mitigations of flaws of the CPU are in force.",
            evidence=", ".join(names),
            why="They slow down system calls and context switches: compare only with machines that have the same ones.",
        )


def _limits(rule_input: RuleInput) -> Iterator[Finding]:
    limits = rule_input.facts.limits or tuple(_limits_of_old_records(rule_input))
    for limit in limits:
        if not _is_below_host(limit, rule_input):
            continue
        # Where a disk's device is not known, a limit may be one of another disk.
        is_sure = limit.device is None or limit.device in rule_input.device_names
        ways = (_DOCKER.get(limit.kind), f"`systemctl set-property UNIT {_SYSTEMD[limit.kind]}`")
        yield Finding(
            rule="cgroup-limit",
            severity=Severity.WARNING if is_sure else Severity.NOTE,
            claim=f"A control group gives less than the machine has: {limit.kind.value}"
            + ("." if is_sure else f" of {limit.device}, which may be a disk of data or WAL, or not."),
            evidence=f"{_format_limit(limit, rule_input)}, set on {limit.group}",
            why=_LIMIT_WHY.get(limit.kind, _IO_WHY),
            advice=f"Raise it ({'; '.join(filter(None, ways))}), or take the figures for those of a server with this limit.",
        )
    cpu = rule_input.facts.cpu
    if cpu is not None and cpu.online_count is not None and cpu.online_count > rule_input.host.cpu_count:
        yield Finding(
            rule="cpu-affinity",
            severity=Severity.NOTE,
            claim="pgdyno may use only some of the CPUs.",
            evidence=f"{rule_input.host.cpu_count} of {cpu.online_count} CPUs, by a cpuset or an affinity mask",
            why="Server and load share those, while others on the machine use the rest.",
            advice="`taskset -pc $$` shows and changes it.",
        )


def _limits_of_old_records(rule_input: RuleInput) -> Iterator[CgroupLimit]:
    """Yield the limits that records without a preflight contain."""
    if rule_input.host.cpu_limit is not None:
        yield CgroupLimit(kind=LimitKind.CPU, group="its control group", value=rule_input.host.cpu_limit)
    if rule_input.host.memory_limit_bytes is not None:
        yield CgroupLimit(kind=LimitKind.MEMORY, group="its control group", value=rule_input.host.memory_limit_bytes)


def _is_below_host(limit: CgroupLimit, rule_input: RuleInput) -> bool:
    if limit.kind is LimitKind.CPU:
        return limit.value < rule_input.host.cpu_count
    if limit.kind in {LimitKind.MEMORY, LimitKind.MEMORY_HIGH}:
        return limit.value < rule_input.host.memory_bytes
    if limit.kind is LimitKind.TASKS:
        return limit.value < max(_FEW_TASKS, 2 * rule_input.clients_at_once)
    return limit.device in rule_input.device_names or not rule_input.knows_all_devices


def _format_limit(limit: CgroupLimit, rule_input: RuleInput) -> str:
    if limit.kind is LimitKind.CPU:
        return f"{limit.value:g} of {rule_input.host.cpu_count} CPUs"
    if limit.kind in {LimitKind.MEMORY, LimitKind.MEMORY_HIGH}:
        return f"{format_bytes(limit.value)} of {format_bytes(rule_input.host.memory_bytes)}"
    if limit.kind is LimitKind.TASKS:
        return f"{limit.value:g} processes and threads"
    amount = format_bytes(limit.value) if "bandwidth" in limit.kind.value else f"{limit.value:g} operations"
    return f"{amount}/s on {limit.device}"


RULES: tuple[Rule, ...] = (
    _clock_source,
    _clock_read,
    _steal,
    _governor,
    _frequency,
    _kind_of_machine,
    _limits,
)
