"""Derive all settings for a subject: run the rules of each layer in order of dependency, then check that memory and disk suffice.

Numbers of processes come before the memory that they share, memory before the WAL, and PostgreSQL's settings before the
kernel's, which provide what PostgreSQL needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from pgdyno.facts.durability import find_given_up
from pgdyno.facts.gucs import change_cost
from pgdyno.facts.versions import NEWEST_TRIED_MAJOR, OLDEST_MAJOR, is_untried
from pgdyno.tune.checkpoints import COMPRESSIONS, interval_s, recovery_s, with_bound_rate
from pgdyno.tune.disk.classes import name_after
from pgdyno.tune.draft import Draft
from pgdyno.tune.memory import check_memory, server_bytes
from pgdyno.tune.pooling import with_pool
from pgdyno.tune.room import describe_unfit_data
from pgdyno.tune.rules.io import derive_io, derive_writer
from pgdyno.tune.rules.kernel import derive_kernel, derive_limits
from pgdyno.tune.rules.memory import derive_memory
from pgdyno.tune.rules.planner import derive_autovacuum, derive_planner
from pgdyno.tune.rules.pooler import derive_pooler
from pgdyno.tune.rules.sessions import derive_connections, derive_logging, derive_parallelism
from pgdyno.tune.rules.standbys import derive_standbys, find_absence
from pgdyno.tune.rules.storage import derive_storage
from pgdyno.tune.rules.wal import derive_wal
from pgdyno.tune.rules.wal_pace import compression_of, distance_of, rate_of
from pgdyno.tune.types import Derived, DerivedSettings, Estimated, Layer, Target, TuningSubject, WorkloadClass
from pgdyno.units import format_bytes, format_bytes_per_s

_NR_HUGEPAGES = "vm.nr_hugepages"
# Settings that would be faster but give up durability.
_WHAT_IFS = {
    "synchronous_commit": "commits no longer wait for the disk's flush.",
    "full_page_writes": "the WAL no longer takes whole pages after each checkpoint.",
    "fsync": "nothing waits for the disk at all: for data that can be loaded again.",
}
_LAYERS = (
    derive_connections,
    derive_pooler,
    derive_parallelism,
    derive_autovacuum,
    derive_memory,
    derive_wal,
    derive_standbys,
    derive_writer,
    derive_io,
    derive_planner,
    derive_logging,
    derive_kernel,
    derive_limits,
    derive_storage,
)


def derive(subject: TuningSubject, *, fixed: Mapping[str, str] | None = None) -> DerivedSettings:
    """Derive the settings for a subject.

    Args:
        subject: Machine, disk, server and load.
        fixed: PostgreSQL settings that the user fixed, by name; all other settings are derived to fit them.

    Raises:
        SpecError: The version lacks a fixed setting, or the set exceeds memory or disk.
    """
    if subject.wal_disk is not None:
        subject = msgspec.structs.replace(subject, wal_disk=name_after(subject.wal_disk, "pg_wal"))
    draft = Draft(with_bound_rate(subject), fixed or {})
    draft.subject = with_pool(draft)
    for layer in _LAYERS:
        layer(draft)
    draft.put_remaining_fixed()
    subject = draft.subject
    draft.notes[:0] = (
        *_describe_untried(subject),
        *subject.remarks,
        *describe_unfit_data(subject),
        *_describe_given_up(draft),
    )
    memory = check_memory(subject, draft.values())
    _warn_of_low_memory(draft, server_bytes(subject, memory))
    return DerivedSettings(
        subject=subject,
        settings=tuple(draft.decided.values()),
        memory=memory,
        estimates=_estimate(draft),
        what_ifs=_list_what_ifs(draft),
        notes=tuple(draft.notes),
    )


def _describe_untried(subject: TuningSubject) -> Iterator[str]:
    if is_untried(subject.major):
        yield (
            f"PostgreSQL {subject.major} is newer than the versions that this pgdyno was tried with ({OLDEST_MAJOR} to {NEWEST_TRIED_MAJOR}):"
            " its own defaults are not known here, so that a value may be the default already; the rules are those of the"
            f" versions before it, and settings that are new in it are not derived, except io_max_workers in place of io_workers."
        )


def _describe_given_up(draft: Draft) -> list[str]:
    in_force = {**draft.subject.settings, **draft.fixed}
    return [
        f"{loss.setting} = {loss.value}, which {'you set' if draft.is_fixed(loss.setting) else 'the server keeps unless you --set it'}, {loss.label}."
        for loss in find_given_up(in_force, draft.subject.major)
    ]


def leave_out(tuning: DerivedSettings, refused: Mapping[str, str]) -> DerivedSettings:
    """Drop the settings that the server refuses, given by name with its words, and say so in the notes."""
    notes = tuple(
        f"{one.name} = {one.value} is left out: this PostgreSQL {tuning.subject.major} refuses it ({refused[one.name]})."
        for one in tuning.settings
        if one.name in refused
    )
    kept = tuple(one for one in tuning.settings if one.name not in refused)
    return msgspec.structs.replace(tuning, settings=kept, notes=(*notes, *tuning.notes))


def with_huge_pages(tuning: DerivedSettings, pages: int) -> DerivedSettings:
    """Return the set with the number of huge pages that the server computed; unchanged if the set reserves none.

    Args:
        tuning: The derived set.
        pages: Output of `postgres -C shared_memory_size_in_huge_pages` with these settings.
    """
    settings = tuple(
        msgspec.structs.replace(
            one,
            value=str(pages + tuning.subject.kernel.others_huge_pages),
            formula="shared_memory_size_in_huge_pages, which the server computed with these settings, plus those of other programs",
        )
        if one.name == _NR_HUGEPAGES
        else one
        for one in tuning.settings
    )
    return msgspec.structs.replace(tuning, settings=settings)


def _warn_of_low_memory(draft: Draft, needed_bytes: float) -> None:
    available = draft.subject.kernel.available_bytes
    if available is not None and needed_bytes > available:
        draft.notes.insert(
            0,
            f"only {format_bytes(available)} of the memory are free now, and the server may need {format_bytes(needed_bytes)}: "
            "the settings are for a dedicated machine; if other programs run on it, declare the server's share as memory in a host file.",
        )


def _estimate(draft: Draft) -> tuple[Estimated, ...]:
    subject, disk = draft.subject, draft.subject.disk
    max_wal, timeout_s = draft.number("max_wal_size"), draft.number("checkpoint_timeout")
    compression, distance = compression_of(draft), distance_of(draft, max_wal)
    found = [
        Estimated(
            what="recovery after a crash",
            value=recovery_s(subject, max_wal, compression),
            unit="s",
            how="about the worst: max_wal_size is replayed, and each page written of which it holds an image"
            + (f"; {compression} leaves {COMPRESSIONS[compression][1]:.0%} of one" if compression != "off" else ""),
        ),
        Estimated(
            what="checkpoint interval",
            value=interval_s(subject, compression, timeout_s=timeout_s, distance_bytes=distance),
            unit="s",
            how=f"checkpoint_timeout or max_wal_size / (1 + checkpoint_completion_target) at {format_bytes_per_s(rate_of(draft).value)}",
        ),
        *find_absence(draft),
    ]
    background, dirty = (draft.decided.get(f"vm.dirty_{name}") for name in ("background_bytes", "bytes"))
    if background is not None and dirty is not None:
        found += [
            Estimated(
                what="wait of a flush behind other writes",
                value=float(background.value) / disk.writeback.bytes_per_s,
                unit="s",
                how=f"vm.dirty_background_bytes / ({disk.writeback.words})",
            ),
            Estimated(
                what="longest wait, after a burst",
                value=float(dirty.value) / disk.scattered.bytes_per_s,
                unit="s",
                how=f"vm.dirty_bytes / ({disk.scattered.words}), if every page is a write of its own",
            ),
        ]
    return tuple(found)


def _list_what_ifs(draft: Draft) -> tuple[Derived, ...]:
    """List what writing workloads could gain by giving up durability, each with what is lost; never part of a set."""
    subject = draft.subject
    given_up = {one.setting for one in find_given_up({**subject.settings, **draft.fixed}, subject.major)}
    if subject.workload is WorkloadClass.OLTP_READ:
        return ()
    return tuple(
        Derived(
            name=name,
            value=loss.value,
            target=Target.POSTGRESQL,
            layer=Layer.WAL,
            reason=gain,
            formula="what each commit or page would be spared; not proposed",
            inputs=(subject.disk.flush_s,),
            source=loss.source,
            change=change_cost(name, subject.major),
            trades=loss.label,
        )
        for name, gain in _WHAT_IFS.items()
        if name not in given_up
        for loss in find_given_up({name: "off"}, subject.major)
    )
