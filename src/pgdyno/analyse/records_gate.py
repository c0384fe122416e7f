"""Whether two records may be compared at all, before any figure of one is divided by one of the other.

Every rule looks at both and yields what differs, in one of three kinds. *Refused*: the figures answer different questions,
so their ratio answers none. *To be declared*: the ratio means something only beside this. *Free*: it is what one compares
machines, versions or settings for, or cannot matter. What a rule lacks evidence of it does not wave through: it declares it.

Nothing is ever decided here between records. Their trials did not alternate, so whatever changed from one hour to the
other, or from one machine to the other, is in their difference, and no number of trials takes it out.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator

import msgspec

from pgdyno.analyse.record_sides import Side
from pgdyno.analyse.types import WHOLE_CYCLES
from pgdyno.facts.durability import durability_given_up
from pgdyno.facts.gucs import find_guc
from pgdyno.facts.settings import key_settings
from pgdyno.record.types import HostFacts
from pgdyno.spec.study import BUILTIN_SCRIPTS
from pgdyno.units import format_bytes, format_cpus, is_time_unit, unit_size

_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
# A load that only reads writes a little, too: hints, and what the server does by itself.
_WRITES_BYTES = 100.0
# Shares of data that memory holds, so close that a miss is about as frequent.
_SAME_RATIO = 1.25
_SAME_LENGTH = 1.5
# As doubts have them: a generator thread this busy is the limit itself; neighbours show in the figures from here on.
_GENERATOR_RATIO, _STEAL_RATIO, _OTHERS_RATIO = 0.9, 0.01, 0.1
_FAILED_RATIO = 0.01


class Standing(enum.Enum):
    """What a difference between two records means for comparing them, gravest first."""

    REFUSED = "refused"
    DECLARED = "to be declared"
    FREE = "free"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Something in which two records differ, or a weakness of one or both."""

    standing: Standing
    subject: str
    first: str
    """What it is in the first record."""
    other: str
    why: str = ""
    """What it does to a comparison, as a clause; empty where the subject says it."""
    hint: str = ""
    """What to try instead, of a refusal."""


def pass_gate(first: Side, other: Side) -> tuple[Difference, ...]:
    """All in which two sides differ, refusals first; without a refusal they may be compared."""
    found = [difference for rule in _RULES for difference in rule(first, other)]
    order = list(Standing)
    return tuple(sorted(found, key=lambda one: order.index(one.standing)))


def _load(first: Side, other: Side) -> Iterator[Difference]:
    """What was asked of the server, and how."""
    if first.scripts != other.scripts:
        yield _refuse("scripts", *(_name_scripts(side) for side in (first, other)),
                      why="other transactions are another question", hint="run the same workload on both")  # fmt: skip
    lost = [", ".join(_lost_scripts(side)) or "kept" for side in (first, other)]
    if set(lost) != {"kept"}:
        yield _declare("scripts' text", *lost, why="what is not in the record may be another text of one name")
    one, two = first.load, other.load
    if one.mode is not two.mode:
        yield _refuse("query mode", one.mode.value, two.mode.value, why="parsing and planning anew takes CPU of its own",
                      hint=f"--mode {one.mode.value} on both")  # fmt: skip
    if one.clients != two.clients:
        yield _refuse("clients", str(one.clients), str(two.clients), why="TPS and latency follow the number of clients",
                      hint=f"--clients {one.clients} on both, or a sweep over clients on each")  # fmt: skip
    limits = [None if load.rate_tps is None else load.latency_limit_ms for load in (one, two)]
    # In a closed loop a limit only counts.
    if one.rate_tps != two.rate_tps or limits[0] != limits[1]:
        yield _refuse("rate and latency limit", _say_rate(first), _say_rate(other),
                      why="at a scheduled rate TPS is given, and what comes too late is skipped", hint="ask both for the same")  # fmt: skip
    if one.max_tries != two.max_tries:
        yield _declare("tries of a failed transaction", str(one.max_tries), str(two.max_tries))
    if one.threads != two.threads:
        yield _declare("pgbench's threads", str(one.threads), str(two.threads), why="each needs a CPU of its own")


def _data(first: Side, other: Side) -> Iterator[Difference]:
    """How much there was to read, and how much of it memory held."""
    specs = [msgspec.structs.replace(side.record.study.data, scale=None) for side in (first, other)]
    for name in specs[0].__struct_fields__:
        one, two = (getattr(spec, name) for spec in specs)
        # Who generates the rows does not change them.
        if one != two and name != "generate":
            yield _refuse(f"tables' {name}", _plain(one), _plain(two), why="other tables", hint="load both alike")
    ratios = [side.data_bytes / side.record.host.usable_memory_bytes for side in (first, other)]
    shown = [f"scale {side.scale:,}, {ratio * 100:.3g} % of memory" for side, ratio in zip((first, other), ratios, strict=True)]  # fmt: skip
    far = max(ratios) / min(ratios) > _SAME_RATIO
    if first.scale != other.scale and far:
        yield _refuse("data to memory", *shown, why="scale decides how much memory holds, and how often clients want the same row",
                      hint="load the same --scale, or the same share of memory")  # fmt: skip
    elif first.scale != other.scale:
        yield _declare("data to memory", *shown, why="the same share of memory, and not the same data")
    elif (ratios[0] > 1) != (ratios[1] > 1):
        yield _declare("data to memory", *shown, why="only one of the two memories holds all data")
    elif far:
        yield _free("data to memory", *shown)


def _durability(first: Side, other: Side) -> Iterator[Difference]:
    """What a crash would take."""
    given = [
        ("not recorded",)
        if not side.settings
        else tuple(f"{one.setting} = {one.value}" for one in durability_given_up(side.settings, side.version_major))
        for side in (first, other)
    ]
    shown = [", ".join(one) or "durable" for one in given]
    if given[0] != given[1]:
        yield _refuse(
            "durability", *shown, why="one gives up what the other pays for", hint="give both the same settings"
        )
    elif given[0]:
        yield _declare("durability", *shown, why="neither keeps what was committed")
    filesystems = [side.record.host.data_disk.filesystem for side in (first, other)]
    if len({name in _IN_MEMORY for name in filesystems}) > 1:
        yield _refuse("data's file system", *filesystems, why="what lies in memory is gone when the machine stops",
                      hint="lay both on a disk: --home DIR")  # fmt: skip


def _state(first: Side, other: Side) -> Iterator[Difference]:
    """What a trial began with."""
    one, two = (side.record.study.trials for side in (first, other))
    if one.cache is not two.cache:
        yield _refuse("caches", one.cache.value, two.cache.value, why="a cold run reads what a warm one has",
                      hint=f"--cache {one.cache.value} on both")  # fmt: skip
    warm_ups = [side.trials[0].record.planned.warm_up_s for side in (first, other)]
    if warm_ups[0] != warm_ups[1]:
        shown = [f"{warm_up_s:g} s" for warm_up_s in warm_ups]
        if min(warm_ups) == 0:
            yield _refuse("warm-up", *shown, why="plans and caches of the sessions are cold in one of the two",
                          hint="give both the same --warm-up")  # fmt: skip
        else:
            yield _declare("warm-up", *shown)


def _length(first: Side, other: Side) -> Iterator[Difference]:
    """Whether both met what comes with time: checkpoints, and full memory."""
    lengths = [side.trials[0].record.planned.duration_s for side in (first, other)]
    shown = [f"{length_s:g} s" for length_s in lengths]
    is_far = max(lengths) / min(lengths) > _SAME_LENGTH
    if not any(map(_writes, (first, other))):
        if is_far:
            yield _free("length of a trial", *shown)
        return
    counts = [sorted(trial.checkpoint_count for trial in side.trials)[len(side.trials) // 2] for side in (first, other)]
    cycles = [f"{length}, {count} checkpoints" for length, count in zip(shown, counts, strict=True)]
    if (counts[0] == 0) != (counts[1] == 0):
        yield _refuse("checkpoints in a trial", *cycles, why="before the first checkpoint nearly no page has to reach the disk",
                      hint="make trials of both long enough for several: --duration")  # fmt: skip
    elif counts[0] and min(counts) < WHOLE_CYCLES:
        yield _declare("checkpoints in a trial", *cycles, why="parts of a cycle, and not the same part")
    elif not counts[0]:
        yield _declare("checkpoints in a trial", *cycles, why="neither pays for one: a long run is slower on both")
    if is_far:
        yield _declare("length of a trial", *shown, why="data grow and memory fills for longer in one")


def _validity(first: Side, other: Side) -> Iterator[Difference]:
    """Whether each figure is the server's own."""
    generator, steal, others = (
        [_mean_share(side, name) for side in (first, other)]
        for name in ("load_generator_thread_ratio", "cpu_steal_ratio", "cpu_others_ratio")
    )
    if _any_above(generator, _GENERATOR_RATIO):
        yield _refuse("pgbench's busiest thread", *map(_percent, generator), why="it is pgbench's own limit that is seen",
                      hint="more --threads, or pgbench on another machine")  # fmt: skip
    if _any_above(steal, _STEAL_RATIO):
        yield _declare("CPU taken by the hypervisor", *map(_percent, steal), why="neighbours are in the figures")
    if _any_above(others, _OTHERS_RATIO):
        yield _declare("CPU used by other programs", *map(_percent, others), why="they are in the figures")
    failed = [_failed_ratio(side) for side in (first, other)]
    if _any_above(failed, _FAILED_RATIO):
        yield _declare("failed transactions", *map(_percent, failed), why="they took time and count for nothing")
    lost = [len(side.workload.trials) - len(side.trials) for side in (first, other)]
    if any(lost):
        yield _declare("trials without a result", *map(str, lost))
    shifted = [
        sum(any(e.kind == "level shift" for e in trial.events) for trial in side.trials) for side in (first, other)
    ]
    if any(shifted):
        yield _declare("trials that changed their level", *map(str, shifted), why="their mean mixes two states")


def _trials(first: Side, other: Side) -> Iterator[Difference]:
    counts = [len(side.trials) for side in (first, other)]
    if min(counts) == 1:
        yield _declare("trials", *map(str, counts), why="one trial has no interval")
    elif counts[0] != counts[1]:
        yield _free("trials", *map(str, counts))


def _software(first: Side, other: Side) -> Iterator[Difference]:
    if first.version_major != other.version_major:
        yield _declare("PostgreSQL", first.version, other.version, why="its pgbench is another one, too")
    elif first.version != other.version:
        yield _free("PostgreSQL", first.version, other.version)
    tools = [side.record.tool_versions.get("pgdyno", "not recorded") for side in (first, other)]
    if tools[0] != tools[1]:
        yield _declare("pgdyno", *tools, why="what it measures may have changed: see its changelog")
    kernels = [side.record.host.kernel for side in (first, other)]
    if kernels[0] != kernels[1]:
        yield _free("kernel", *kernels)


def _machine(first: Side, other: Side) -> Iterator[Difference]:
    hosts = [side.record.host for side in (first, other)]
    facts = {
        "CPUs": [f"{format_cpus(host.usable_cpu_count)} ({host.cpu_model})" for host in hosts],
        "memory": [format_bytes(host.usable_memory_bytes) for host in hosts],
        "disk": [_say_disk(host) for host in hosts],
        "hypervisor": [host.virtualization or "none seen" for host in hosts],
    }
    for subject, (one, two) in facts.items():
        if one != two:
            yield _free(subject, one, two)
    if first.arm is not None or other.arm is not None:
        names = ["–" if side.arm is None else side.arm.name for side in (first, other)]
        if names[0] != names[1]:
            yield _declare("variant", *names, why="only its record compares variants")
    # Those that decide a bench, and what anybody set.
    named = dict.fromkeys(one.name for one in key_settings())
    named |= dict.fromkeys(name for side in (first, other) for name in _asked(side))
    for name in named:
        one, two = (_say_setting(side, name) for side in (first, other))
        if one != two:
            yield _free(name, one, two)


def _say_setting(side: Side, name: str) -> str:
    fact = next((one for one in side.trials[0].record.settings if one.name == name), None)
    if fact is None:
        guc = find_guc(name, side.version_major)
        value, unit = (None, None) if guc is None else (guc.boot, guc.unit)
    else:
        value, unit = fact.value, fact.unit
    if value is None:
        return "not known"
    if unit is None or is_time_unit(unit) or not value.isdecimal():
        return f"{value}{unit or ''}"
    return format_bytes(int(value) * unit_size(unit))


def _asked(side: Side) -> tuple[str, ...]:
    server = side.record.study.server if side.arm is None else side.arm.server
    return tuple(server.settings)


def _writes(side: Side) -> bool:
    return any((trial.counts_per_transaction.get("wal_bytes") or 0.0) > _WRITES_BYTES for trial in side.trials)


def _mean_share(side: Side, name: str) -> float | None:
    seen = [value for trial in side.trials if (value := trial.shares.get(name)) is not None]
    return sum(seen) / len(seen) if seen else None


def _failed_ratio(side: Side) -> float | None:
    done = sum(trial.transactions_count or 0 for trial in side.trials)
    failed = sum(trial.failed_count or 0 for trial in side.trials)
    return failed / (done + failed) if done + failed else None


def _any_above(values: list[float | None], bound: float) -> bool:
    return any(value is not None and value > bound for value in values)


def _percent(value: float | None) -> str:
    return "not seen" if value is None else f"{value * 100:.3g} %"


def _plain(value: object) -> str:
    return str(value.value if isinstance(value, enum.Enum) else value).lower()


def _say_rate(side: Side) -> str:
    load = side.load
    rate = "closed loop" if load.rate_tps is None else f"{load.rate_tps:g} TPS"
    return rate if load.latency_limit_ms is None else f"{rate}, limit {load.latency_limit_ms:g} ms"


def _say_disk(host: HostFacts) -> str:
    disk = host.data_disk
    return f"{disk.filesystem} on {disk.block_device or disk.device}, {format_bytes(disk.size_bytes)}"


def _name_scripts(side: Side) -> str:
    return ", ".join(f"{name.rpartition('/')[2]}@{weight}" for name, weight in side.load.scripts)


def _lost_scripts(side: Side) -> list[str]:
    """Script files of which a record holds only the name."""
    known = zip(side.load.scripts, side.scripts, strict=True)
    return [
        name.rpartition("/")[2] for (name, _), (content, _) in known if content == name and name not in BUILTIN_SCRIPTS
    ]


def _refuse(subject: str, first: str, other: str, *, why: str, hint: str) -> Difference:
    return Difference(standing=Standing.REFUSED, subject=subject, first=first, other=other, why=why, hint=hint)


def _declare(subject: str, first: str, other: str, *, why: str = "") -> Difference:
    return Difference(standing=Standing.DECLARED, subject=subject, first=first, other=other, why=why)


def _free(subject: str, first: str, other: str) -> Difference:
    return Difference(standing=Standing.FREE, subject=subject, first=first, other=other)


_RULES: tuple[Callable[[Side, Side], Iterator[Difference]], ...] = (
    _load,
    _data,
    _durability,
    _state,
    _length,
    _validity,
    _trials,
    _software,
    _machine,
)
