"""Check whether two records ask the same question: load, data, durability, start state, and events during their trials.

These are the rules of `comparison` that may refuse a comparison. Each looks at both sides and yields their differences.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

import msgspec

from pgdyno.analyse.durability import find_disk_losses
from pgdyno.analyse.episodes.types import EpisodeKind
from pgdyno.analyse.records.difference import UNSEEN, RecordDifference, declare, free, refuse
from pgdyno.analyse.records.sides import Side
from pgdyno.analyse.types import WHOLE_CYCLES, TrialAnalysis
from pgdyno.facts.durability import durability_given_up
from pgdyno.facts.memory_fit import MemoryFit, classify_fit
from pgdyno.spec.initdb import INITDB_KEYS
from pgdyno.spec.pooler import REPLICAS
from pgdyno.spec.study import BUILTIN_SCRIPTS, RestorePolicy
from pgdyno.units import PAGE_BYTES, format_bytes

# Shares of data that memory holds, similar enough for misses to be about equally frequent.
_SAME_RATIO = 1.25
_SAME_LENGTH = 1.5
_SAME_READS = 1.5
# The keys of [data] that change nothing in the tables, or are looked at elsewhere: the place where rows are generated, that of
# pg_wal, what initdb chooses, and how data are restored.
_SAME_TABLES = frozenset({"generate", "init", "database", "wal_home", "restore", "restore_command", *INITDB_KEYS})
# A page in a hundred transactions: less than a hundredth of what a disk in use delivers.
_RARE_READ_BYTES = PAGE_BYTES / 100
_UNEVEN = (EpisodeKind.STALL, EpisodeKind.RECOVERY, EpisodeKind.DECLINE)


def load(first: Side, other: Side) -> Iterator[RecordDifference]:
    """Compare what was asked of the server, and how."""
    if first.scripts != other.scripts:
        yield refuse("scripts", *(_name_scripts(side) for side in (first, other)),
                      why="other transactions are another question", hint="run the same workload on both")  # fmt: skip
    lost = [", ".join(_lost_scripts(side)) or "kept" for side in (first, other)]
    if set(lost) != {"kept"}:
        yield declare("scripts' text", *lost, why="what is not in the record may be another text of one name")
    one, two = first.load, other.load
    if one.mode is not two.mode:
        yield refuse("query mode", one.mode.value, two.mode.value, why="parsing and planning each statement again takes CPU time",
                      hint=f"--mode {one.mode.value} on both")  # fmt: skip
    if one.clients != two.clients:
        yield refuse("clients", str(one.clients), str(two.clients), why="TPS and latency follow the number of clients",
                      hint=f"--clients {one.clients} on both, or a sweep over clients on each")  # fmt: skip
    limits = [None if load.rate_tps is None else load.latency_limit_ms for load in (one, two)]
    # In a closed loop the limit is only used for counting.
    if one.rate_tps != two.rate_tps or limits[0] != limits[1]:
        yield refuse("rate and latency limit", _describe_rate(first), _describe_rate(other),
                      why="at a scheduled rate TPS is given, and what comes too late is skipped", hint="ask both for the same")  # fmt: skip
    failovers = [_describe_failover(side) for side in (first, other)]
    if failovers[0] != failovers[1]:
        yield refuse("failover", *failovers, why="where the primary ends, TPS covers the load until then only", hint="ask both for the same")  # fmt: skip
    if one.max_tries != two.max_tries:
        yield declare("tries of a failed transaction", str(one.max_tries), str(two.max_tries))
    yield from _ways(first, other)


def _ways(first: Side, other: Side) -> Iterator[RecordDifference]:
    """Compare where the load came from, and what it went through."""
    one, two = first.load, other.load
    standbys = [side.record.study.server.standbys for side in (first, other)]
    if standbys[0] != standbys[1]:
        yield refuse("standbys", *map(str, standbys), why="a standby on the same machine takes CPUs and disk, and commits may wait for it",
                      hint=f"--standbys {standbys[0]} on both")  # fmt: skip
    ways = [_describe_endpoint(side) for side in (first, other)]
    if ways[0] != ways[1]:
        yield refuse("endpoint", *ways, why="a pooler takes CPU time and says how many transactions run at a time, and a standby replays WAL",
                      hint="connect both alike; `compare --endpoint primary --endpoint pool` compares the two ways")  # fmt: skip
    if first.hosts != other.hosts:
        yield declare("load hosts", str(first.hosts), str(other.hosts), why="one may have been the limit, and where pgbench runs beside the server it takes CPUs from it")  # fmt: skip
    if one.threads != two.threads:
        yield declare("pgbench's threads", str(one.threads), str(two.threads), why="each needs a CPU of its own")


def _describe_endpoint(side: Side) -> str:
    pooler = side.record.plan.find_pooler_of(side.load)
    size = "" if pooler is None or pooler.size is None else f" of {pooler.size} connections"
    pool = "" if pooler is None else f"pool in {pooler.mode.value} mode{size}"
    if side.load.parts:
        return ", ".join((*(part.words for part in side.load.parts), *filter(None, [pool])))
    count = len(side.record.replicas) if side.load.endpoint == REPLICAS else 0
    return pool or (f"{count} replicas of a given server" if count else side.load.endpoint)


def data(first: Side, other: Side) -> Iterator[RecordDifference]:
    """Compare how much data there was to read, and how much of it fitted into memory."""
    specs = [msgspec.structs.replace(side.record.study.data, scale=None) for side in (first, other)]
    for name in specs[0].__struct_fields__:
        one, two = (getattr(spec, name) for spec in specs)
        if one != two and name not in _SAME_TABLES:
            yield refuse(f"tables' {name}", _plain(one), _plain(two), why="other tables", hint="load both alike")
    named = [side.record.study.data.database for side in (first, other)]
    if any(named):
        shown = [side.data_name for side in (first, other)]
        yield declare("tables", *shown, why="a database is measured as it is, and what was in it is not in the record")
        return
    files = [_name_file(side) for side in (first, other)]
    if files[0] != files[1]:
        yield refuse("tables", *files, why="other data", hint="load both from the same file")
        return
    yield from _data_to_memory(first, other)


def _data_to_memory(first: Side, other: Side) -> Iterator[RecordDifference]:
    memories = [side.record.usable_memory_bytes for side in (first, other)]
    ratios = [
        side.data_bytes / memory for side, memory in zip((first, other), memories, strict=True) if memory is not None
    ]
    if len(ratios) < len(memories):
        shown = [f"{side.data_name}, memory {UNSEEN if memory is None else f'of {format_bytes(memory)}'}" for side, memory in zip((first, other), memories, strict=True)]  # fmt: skip
        yield declare("data to memory", *shown, why="it is not known how much of the data memory held")
        return
    shown = [f"{side.data_name}, {ratio * 100:.3g} % of memory" for side, ratio in zip((first, other), ratios, strict=True)]  # fmt: skip
    reads = [_read_bytes(side) for side in (first, other)]
    if None not in reads:
        shown = [f"{words}, {format_bytes(read or 0.0)} read for a transaction" for words, read in zip(shown, reads, strict=True)]  # fmt: skip
    far = max(ratios) / min(ratios) > _SAME_RATIO
    if first.scale != other.scale and far:
        yield refuse("data to memory", *shown, why="scale decides how much memory holds, and how often clients want the same row",
                      hint="load the same --scale, or the same share of memory")  # fmt: skip
    elif first.scale != other.scale:
        yield declare("data to memory", *shown, why="the same share of memory, and not the same data")
    elif (why := _tell_reads_apart(reads, ratios)) is not None:
        yield declare("data to memory", *shown, why=why)
    elif far:
        yield free("data to memory", *shown)


def _tell_reads_apart(reads: list[float | None], ratios: list[float]) -> str | None:
    """Return why the two sides read their disks unequally; None if both do alike.

    Args:
        reads: What each read of its device for a transaction, in bytes; None if not counted.
        ratios: The data of each, in memories.
    """
    low, high = sorted(read or 0.0 for read in reads)
    if None not in reads:
        if high < _RARE_READ_BYTES:
            return None
        if low < _RARE_READ_BYTES:
            return "only one of the two reads its disk"
        return "one reads its disk more often" if high / low > _SAME_READS else None
    fits = [classify_fit(ratio) for ratio in ratios]
    if fits[0] is not fits[1]:
        return "memory holds more of the data in one, and reads of the disk were not counted"
    # Where memory holds a part, its share decides how many reads miss it.
    is_unlike = max(ratios) / min(ratios) > _SAME_RATIO
    if fits[0] is MemoryFit.WITHIN or not is_unlike:
        return None
    return "memory holds another part of the data, and reads of the disk were not counted"


def _read_bytes(side: Side) -> float | None:
    """Return what the device read for a transaction, the mean of the trials; None if one did not count it."""
    reads = [trial.counts_per_transaction.get("device_read_bytes") for trial in side.trials]
    known = [read for read in reads if read is not None]
    return sum(known) / len(known) if known and len(known) == len(reads) else None


def _name_file(side: Side) -> str:
    """Name what the data were made by; files of one content have one name."""
    data = side.record.dataset
    return (
        "pgbench's" if data is None or data.file_sha256 is None else f"of an SQL file, SHA-256 {data.file_sha256[:12]}"
    )


def durability(first: Side, other: Side) -> Iterator[RecordDifference]:
    """Compare what a crash would lose."""
    given = [_list_losses(side) for side in (first, other)]
    shown = [", ".join(one) or "durable" for one in given]
    if given[0] != given[1]:
        yield refuse(
            "durability",
            *shown,
            why="one gives up what the other pays for",
            hint="give both the same settings and mount options",
        )
    elif given[0]:
        yield declare("durability", *shown, why="neither keeps what was committed")
    hosts = [side.record.host for side in (first, other)]
    disks = [host.data_disk for host in hosts if host is not None]
    if len(disks) < len(hosts):
        shown = [UNSEEN if host is None else host.data_disk.filesystem for host in hosts]
        yield declare("data's file system", *shown, why="it is not known what a stop of the machine would leave")
    elif disks[0].is_in_memory != disks[1].is_in_memory:
        shown = [disk.filesystem for disk in disks]
        yield refuse("data's file system", *shown, why="what lies in memory is gone when the machine stops",
                      hint="lay both on a disk: --home DIR")  # fmt: skip


def _list_losses(side: Side) -> tuple[str, ...]:
    """List what a side's settings and mount options give up of durability."""
    if not side.settings:
        return ("not recorded",)
    losses = (*find_disk_losses(side.record, side.variant), *durability_given_up(side.settings, side.version_major))
    return tuple(one.assignment for one in losses)


def state(first: Side, other: Side) -> Iterator[RecordDifference]:
    """Compare the state in which trials began."""
    one, two = first.cache, other.cache
    if one is not two:
        yield refuse("caches", one.value, two.value, why="a cold run reads what a warm one has",
                      hint=f"--cache {one.value} on both")  # fmt: skip
    warm_ups = [side.trials[0].record.planned.warm_up_s for side in (first, other)]
    if warm_ups[0] != warm_ups[1]:
        shown = [f"{warm_up_s:g} s" for warm_up_s in warm_ups]
        if min(warm_ups) == 0:
            yield refuse("warm-up", *shown, why="plans and caches of the sessions are cold in one of the two",
                          hint="give both the same --warm-up")  # fmt: skip
        else:
            yield declare("warm-up", *shown)
    yield from _restoring(first, other)


def _restoring(first: Side, other: Side) -> Iterator[RecordDifference]:
    policies = [side.record.study.data.restore for side in (first, other)]
    if policies[0] is policies[1]:
        return
    shown = [policy.value for policy in policies]
    if not any(map(_writes, (first, other))):
        yield free("restoring between trials", *shown)
    elif RestorePolicy.NONE in policies:
        yield refuse("restoring between trials", *shown, why="the data of one aged from trial to trial",
                      hint="give both the same --restore")  # fmt: skip
    else:
        yield declare(
            "restoring between trials", *shown, why="the first write to a block that a snapshot shares takes longer"
        )


def length(first: Side, other: Side) -> Iterator[RecordDifference]:
    """Compare whether both met what comes with time: checkpoints and full memory."""
    shown = [f"{side.trials[0].record.planned.duration_s:g} s" for side in (first, other)]
    is_far = not last_alike(first, other)
    if not any(map(_writes, (first, other))):
        if is_far:
            yield free("length of a trial", *shown)
        return
    medians = [_count_checkpoints(side) for side in (first, other)]
    counts = [count for count in medians if count is not None]
    cycles = [
        f"{length}, {'checkpoints not counted' if count is None else f'{count} checkpoints'}"
        for length, count in zip(shown, medians, strict=True)
    ]
    if len(counts) < len(medians):
        yield declare("checkpoints in a trial", *cycles, why="one may have paid for more of them than the other")
    elif (counts[0] == 0) != (counts[1] == 0):
        yield refuse("checkpoints in a trial", *cycles, why="before the first checkpoint nearly no page has to reach the disk",
                      hint="make trials of both long enough for several: --duration")  # fmt: skip
    elif counts[0] and min(counts) < WHOLE_CYCLES:
        yield declare("checkpoints in a trial", *cycles, why="parts of a cycle, and not the same part")
    elif not counts[0]:
        yield declare("checkpoints in a trial", *cycles, why="neither pays for one: a long run is slower on both")
    if is_far:
        yield declare("length of a trial", *shown, why="data grow and memory fills for longer in one")


def last_alike(first: Side, other: Side) -> bool:
    """Return whether the trials of both were meant to last about as long."""
    lengths = [side.trials[0].record.planned.duration_s for side in (first, other)]
    return max(lengths) / min(lengths) <= _SAME_LENGTH


def course(first: Side, other: Side) -> Iterator[RecordDifference]:
    """Compare whether each trial stayed in one state from beginning to end."""
    fallen = [sum(_has(trial, EpisodeKind.CLIFF) for trial in side.trials) for side in (first, other)]
    shown = [f"in {count} of {len(side.trials)} trials" for count, side in zip(fallen, (first, other), strict=True)]
    often = [2 * count >= len(side.trials) for count, side in zip(fallen, (first, other), strict=True)]
    if often[0] != often[1]:
        yield refuse("cliff", *shown, why="a mean over a cliff is of two states, and the other may still stand before its own",
                     hint="make trials of both several times as long as it took to come")  # fmt: skip
    elif any(fallen):
        yield declare("cliff", *shown, why="means are of two states")
    uneven = [sum(_has(trial, *_UNEVEN) for trial in side.trials) for side in (first, other)]
    if any(uneven):
        yield declare("stalls and slow changes", *(f"in {count} trials" for count in uneven), why="means hide them")
    reasons = [
        next((trial.episodes_absent for trial in side.trials if trial.episodes_absent), None) for side in (first, other)
    ]
    if any(reasons) and any(map(_writes, (first, other))):
        shown = ["looked for" if reason is None else "not looked for" for reason in reasons]
        yield declare("cliffs and stalls", *shown, why="; ".join(dict.fromkeys(filter(None, reasons))))


def _has(trial: TrialAnalysis, *kinds: EpisodeKind) -> bool:
    return any(one.metric == "tps" and one.kind in kinds for one in trial.episodes)


def _count_checkpoints(side: Side) -> int | None:
    counts = sorted(count for trial in side.trials if (count := trial.checkpoint_count) is not None)
    return counts[len(counts) // 2] if counts else None


def _writes(side: Side) -> bool:
    return any(trial.is_writing for trial in side.trials)


def _lost_scripts(side: Side) -> list[str]:
    """List the script files of which a record holds only the name."""
    known = zip(side.load.scripts, side.scripts, strict=True)
    return [
        name.rpartition("/")[2] for (name, _), (content, _) in known if content == name and name not in BUILTIN_SCRIPTS
    ]


def _plain(value: object) -> str:
    return str(value.value if isinstance(value, enum.Enum) else value).lower()


def _describe_rate(side: Side) -> str:
    load = side.load
    rate = "closed loop" if load.rate_tps is None else f"{load.rate_tps:g} TPS"
    return rate if load.latency_limit_ms is None else f"{rate}, limit {load.latency_limit_ms:g} ms"


def _describe_failover(side: Side) -> str:
    planned = side.load.failover
    return "none" if planned is None else f"{planned.kind.value} after {planned.at_s:g} s"


def _name_scripts(side: Side) -> str:
    return ", ".join(f"{name.rpartition('/')[2]}@{weight}" for name, weight in side.load.scripts)
