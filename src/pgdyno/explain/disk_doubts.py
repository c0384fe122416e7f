"""What a reader must know before trusting a disk card: bursts, other loads, caches that lie, places that keep nothing.

Each rule is one small function over what was seen and estimated, silent where it has no evidence. A finding is `critical`
where the figures are not those of a disk, a `warning` where they need a word beside them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

from pgdyno.analyse.disk_card import DiskFigures, PlateauKind, bytes_per_s_of, iops_of
from pgdyno.analyse.disk_efficiency import Efficiency, Standing
from pgdyno.analyse.disk_entries import Entry, EntryKey
from pgdyno.explain.finding import Finding, Severity
from pgdyno.plan.disk import DiskJob, Pattern
from pgdyno.record.disk_card import DiskCard
from pgdyno.units import format_bytes

_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_REMOTE = ("nfs", "cifs", "smb", "9p", "fuse", "virtiofs", "ceph", "gluster", "lustre", "afs", "gfs", "ocfs")
# Disks that a hypervisor shows, behind a network most of them: what they say of rotating means nothing.
_VIRTUAL = re.compile(r"vd|xvd|rbd|nbd|drbd")
# A packet there and back within a data centre, and no more. Source: Dean & Barroso 2013, doi:10.1145/2408776.2408794,
# count 0.5 ms for it; placement next to each other and kernel bypass bring it to 50 µs.
_NETWORK_FLUSH_US = 50.0
# A quarter of a revolution at 15,000 a minute: the platter has not even come round.
_ROTATING_FLUSH_US = 1000.0
# No queue of any device is entered and left within so little.
_ANY_FLUSH_US = 3.0
# What others moved, of what the run itself did; a file system's own bookkeeping stays below it.
_OTHERS_RATIO = 0.10
_OTHERS_BYTES_PER_S = 1e6
_OTHERS_RUNS_RATIO = 0.1
_NOISE_RATIO = 0.15
# Below, fio still waits for the disk now and then.
_GENERATOR_RATIO = 0.9
_MOST_NAMED = 3
_DISAGREEMENT_FACTOR = 2.0
# Of two depths, one I/O at a time and many, the second is always more.
_SWEPT_DEPTHS = 3
_TITLES = {
    EntryKey.RANDOM_READ: "random reads",
    EntryKey.RANDOM_WRITE: "random writes",
    EntryKey.SEQUENTIAL_READ: "sequential reads",
    EntryKey.SEQUENTIAL_WRITE: "sequential writes",
    EntryKey.FLUSHES: "flushes",
}
# Rule, claim, why it matters and what to do, of figures that lie so beside their ceilings.
_STANDINGS = {
    Standing.BURST: (
        "above-lasting",
        "were measured above what lasts: this was burst.",
        "It is given for a while, from credits; under a load that goes on for hours it is taken back.",
        "Plan with {lasting}.",
    ),
    Standing.IMPOSSIBLE: (
        "above-declared",
        "were measured above all that is declared.",
        "Another disk was measured, a cache answered, or more was bought than the host file says.",
        "Compare the host file with what the provider's console says.",
    ),
    Standing.BELOW: (
        "below-ceiling",
        "stay below what is declared.",
        "Too few I/Os at once, an array's chunks, a slower path to the volumes, other loads on them, or credits used up.",
        "Look at each volume's own use while measuring: `iostat -x 1`.",
    ),
}


class DiskScene(msgspec.Struct, frozen=True, kw_only=True):
    """A card with all that is known of it."""

    card: DiskCard
    figures: DiskFigures
    entries: tuple[Entry, ...]
    efficiencies: tuple[Efficiency, ...] = ()
    beside: tuple[DiskCard, ...] = ()
    """Of the other paths that were measured at the same time."""

    def find(self, key: EntryKey) -> float | None:
        """The figure of that name; None where it was not measured."""
        return next((one.estimate.value for one in self.entries if one.key is key), None)


def find_disk_doubts(scene: DiskScene) -> tuple[Finding, ...]:
    """Everything that weakens a card's figures, worst first."""
    findings = [finding for rule in _RULES for finding in rule(scene)]
    order = list(Severity)
    return tuple(sorted(findings, key=lambda finding: order.index(finding.severity)))


def _file_system(scene: DiskScene) -> Iterator[Finding]:
    if scene.card.look is None:
        return
    facts = scene.card.look.facts
    where = f"File system {facts.filesystem} at {facts.path}"
    if facts.filesystem in _IN_MEMORY:
        yield Finding(
            rule="no-durability",
            severity=Severity.CRITICAL,
            claim="This is memory, not a disk: nothing that lies there is durable.",
            evidence=where,
            why="A flush has nothing to write to, and a power failure loses everything.",
            advice="Measure a path on a disk: `pgdyno disk PATH`.",
        )
    elif facts.filesystem == "overlay":
        yield Finding(
            rule="no-durability",
            severity=Severity.WARNING,
            claim="This is a container's own layer: what lies there goes with the container.",
            evidence=where,
            why="No database belongs there; a volume that is mounted may be another disk.",
            advice="Measure the volume that the data will lie on: `pgdyno disk PATH`.",
        )
    elif facts.filesystem.startswith(_REMOTE):
        yield Finding(
            rule="remote-file-system",
            severity=Severity.WARNING,
            claim="The file system is another machine's: its network, cache and clients are in these figures.",
            evidence=where,
            why="What a flush means is up to it.",
            advice="Read how it is exported (NFS: `sync`) before data lie there.",
        )
    off = sorted(set(facts.mount_options.split(",")) & {"nobarrier", "barrier=0"})
    if off:
        yield Finding(
            rule="no-durability",
            severity=Severity.CRITICAL,
            claim="Durability is given up: the file system does not flush the disk's cache.",
            evidence=f"Mount options: {', '.join(off)}",
            why="Flushes look fast, and a power failure loses what they promised.",
            advice=f"`mount -o remount,barrier=1 $(findmnt -no TARGET -T {facts.path})`, and measure again.",
        )
    if any(device.kind == "loop" for device in scene.card.look.devices):
        yield Finding(
            rule="loop-device",
            severity=Severity.NOTE,
            claim="This is a file that is used as a disk.",
            evidence=", ".join(f"/dev/{one.name}" for one in scene.card.look.devices if one.kind == "loop"),
            why="Each write goes through two file systems.",
        )


def _quick_flushes(scene: DiskScene) -> Iterator[Finding]:
    flushes, look = scene.find(EntryKey.FLUSHES), scene.card.look
    if not flushes or look is None or look.facts.filesystem in _IN_MEMORY:
        return
    flush_us = 1e6 / flushes
    leaves = [device for device in look.devices if device.kind == "disk"]
    virtual = [device.name for device in leaves if _VIRTUAL.match(device.name)]
    rotating = [device.name for device in leaves if device.is_rotational and device.name not in virtual]
    for least_us, names, what in (
        (_ROTATING_FLUSH_US, rotating, "a disk that rotates"),
        (_NETWORK_FLUSH_US, virtual, "a virtual disk, which mostly lies in a network"),
        (_ANY_FLUSH_US, [device.name for device in leaves], "any disk"),
    ):
        if names and flush_us < least_us:
            yield Finding(
                rule="flush-too-quick",
                severity=Severity.WARNING,
                claim="Flushes are too quick to have reached a disk: some cache answers for it.",
                evidence=f"{flush_us:.3g} µs each on {', '.join(names)}; {what} takes {least_us:g} µs or more",
                why="If that cache does not outlive a power failure, committed transactions do not either.",
                advice="Make sure that it has a battery or flash behind it: of a controller `storcli /c0/vall show all`,"
                " of a hypervisor its cache mode (`none` or `writethrough`, not `unsafe`).",
            )
            return


def _disagreement(scene: DiskScene) -> Iterator[Finding]:
    own, test = scene.find(EntryKey.FLUSHES), scene.find(EntryKey.FLUSH_TEST)
    if own and test and not 1 / _DISAGREEMENT_FACTOR < own / test < _DISAGREEMENT_FACTOR:
        yield Finding(
            rule="flush-disagreement",
            severity=Severity.WARNING,
            claim="fio and pg_test_fsync do not agree on how quick flushes are.",
            evidence=f"fio {own:,.0f} a second, pg_test_fsync {test:,.0f}",
            why="They ran one after the other: the disk, or what else was at work on it, changed in between.",
            advice="Measure again; plan with the lower one.",
        )


def _fades(scene: DiskScene) -> Iterator[Finding]:
    for fade in scene.figures.fades:
        ratio = fade.ratio
        when = (
            "from the first third of a run to its last" if fade.is_within_runs else "from the first round to the last"
        )
        yield Finding(
            rule="burst",
            severity=Severity.WARNING,
            claim=f"A burst was measured, which ends: {fade.what} fell meanwhile.",
            evidence=f"To {_percent(ratio.value)} [{_percent(ratio.low)} – {_percent(ratio.high)}] {when}, n = {ratio.n}",
            why="Credits of a cloud volume or a drive's cache give more at first than what lasts.",
            advice="Measure again at once: with credits and caches used up, it shows what lasts.",
        )


def _others(scene: DiskScene) -> Iterator[Finding]:
    direct = [run for run in scene.card.runs if not run.job.is_flushed and run.others_bytes_per_s is not None]
    disturbed = [
        run
        for run in direct
        if (run.others_bytes_per_s or 0.0) > max(_OTHERS_BYTES_PER_S, _OTHERS_RATIO * bytes_per_s_of(run))
    ]
    if disturbed and len(disturbed) > _OTHERS_RUNS_RATIO * len(direct):
        most = max(disturbed, key=lambda run: (run.others_bytes_per_s or 0.0) / max(bytes_per_s_of(run), 1.0))
        yield Finding(
            rule="others-on-device",
            severity=Severity.WARNING,
            claim="Others used the disk while it was measured: it can do more than this.",
            evidence=f"In {len(disturbed)} of {len(direct)} runs; most beside {_name_job(most.job)}: they moved"
            f" {_rate(most.others_bytes_per_s or 0.0)}, fio {_rate(bytes_per_s_of(most))}",
            why="What they took is missing from these figures, and they waited, too.",
            advice="`iotop -o` names them; measure again when they are done.",
        )


def _noise(scene: DiskScene) -> Iterator[Finding]:
    noise = scene.figures.noise_ratio
    # Where others were at work, that is why.
    if noise is not None and noise > _NOISE_RATIO and not any(_others(scene)):
        yield Finding(
            rule="noisy",
            severity=Severity.WARNING,
            claim="The disk does not do the same twice: intervals are wide.",
            evidence=f"Runs of one job differ by {_percent(noise)} (standard deviation), over {scene.figures.round_count} rounds",
            why="Neighbours on the same storage, garbage collection of an SSD, or a limit that lets go now and then.",
            advice="Measure longer, without --quick, and at another hour; plan with the lower ends.",
        )


def _generator(scene: DiskScene) -> Iterator[Finding]:
    busy = [run for run in scene.card.runs if run.cpu_ratio > _GENERATOR_RATIO]
    if busy:
        names = list(dict.fromkeys(_name_job(run.job) for run in sorted(busy, key=lambda run: -run.cpu_ratio)))
        more = f" and {len(names) - _MOST_NAMED} other patterns" if len(names) > _MOST_NAMED else ""
        most = max(busy, key=iops_of)
        yield Finding(
            rule="generator-limit",
            severity=Severity.WARNING,
            claim="fio itself was the limit, not the disk.",
            evidence=f"{_percent(most.cpu_ratio)} of a CPU at {iops_of(most):,.0f} IOPS: {', '.join(names[:_MOST_NAMED])}{more}",
            why="One process cannot ask for more: the disk may do more than this.",
            advice="Take these figures for what a single backend could get at most.",
        )


def _plateaus(scene: DiskScene) -> Iterator[Finding]:
    rising = [
        one
        for one in scene.figures.plateaus
        if one.kind is PlateauKind.NOT_REACHED and len(one.depths) >= _SWEPT_DEPTHS
    ]
    if rising:
        yield Finding(
            rule="no-plateau",
            severity=Severity.NOTE,
            claim=f"There is more to be had at greater depth: {' and '.join(f'{one.pattern.value}s' for one in rising)}.",
            evidence=", ".join(f"{one.pattern.value}: still rising at depth {one.depths[-1]}" for one in rising),
            why="The largest figure is what was asked for, not what the disk can do.",
        )


def _efficiency(scene: DiskScene) -> Iterator[Finding]:
    for standing, (rule, claim, why, advice) in _STANDINGS.items():
        found = [one for one in scene.efficiencies if one.standing is standing]
        if found:
            titles = _join([_TITLES[one.key] for one in found])
            lasting = ", ".join(f"{_amount(one, one.ceiling.value)} for {_TITLES[one.key]}" for one in found)
            yield Finding(
                rule=rule,
                severity=Severity.WARNING,
                claim=f"{titles[:1].upper()}{titles[1:]} {claim}",
                evidence=f"{'; '.join(map(_hold, found))}{f': {found[0].ceiling.how}' if len(found) == 1 else ''}",
                why=why,
                advice=advice.format(lasting=lasting),
            )


def _hold(one: Efficiency) -> str:
    measured, lasts = (_amount(one, value) for value in (one.measured.value or 0.0, one.ceiling.value))
    return f"{_TITLES[one.key]} {measured}, {_percent(one.ratio.value)} of the {lasts} that last"


def _join(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _shared_device(scene: DiskScene) -> Iterator[Finding]:
    look = scene.card.look
    if look is None or look.facts.block_device is None:
        return
    same = [one.name for one in scene.beside if one.look and one.look.facts.block_device == look.facts.block_device]
    if same:
        yield Finding(
            rule="same-device",
            severity=Severity.WARNING,
            claim=f"It shares its disk with {', '.join(same)}.",
            evidence=f"All on {look.facts.block_device}",
            why="Each was measured alone: together they get what one of them has.",
            advice="Do not add them up; WAL is apart only on another device.",
        )


def _neighbours(scene: DiskScene) -> Iterator[Finding]:
    if scene.card.neighbours:
        yield Finding(
            rule="servers-on-device",
            severity=Severity.NOTE,
            claim="A PostgreSQL server that was running lies on this disk.",
            evidence=", ".join(scene.card.neighbours),
            why="What it did meanwhile is missing from these figures, and it was slower.",
        )


def _name_job(job: DiskJob) -> str:
    size = "" if job.pattern in {Pattern.MIXED, Pattern.WRITE_AND_FLUSH} else f" {format_bytes(job.block_bytes)}"
    return f"{job.pattern.value}{size} at depth {job.depth}"


def _amount(one: Efficiency, value: float) -> str:
    if one.measured.unit == "bytes/s":
        return _rate(value)
    return f"{value:,.0f} {'a second' if one.key is EntryKey.FLUSHES else 'IOPS'}"


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:,.4g} MB/s"


def _percent(ratio: float | None) -> str:
    return "?" if ratio is None else f"{ratio * 100:.0f} %"


_RULES: tuple[Callable[[DiskScene], Iterator[Finding]], ...] = (
    _file_system,
    _quick_flushes,
    _disagreement,
    _fades,
    _others,
    _efficiency,
    _noise,
    _generator,
    _shared_device,
    _neighbours,
    _plateaus,
)
