"""List settings that would be faster but give up durability: shown with the loss, and never part of a set."""

from __future__ import annotations

from pgdyno.facts.durability import find_given_up
from pgdyno.facts.gucs import change_cost
from pgdyno.tune.draft import Draft
from pgdyno.tune.types import Derived, Layer, Target, WorkloadClass

_CANDIDATES = {
    "synchronous_commit": "commits no longer wait for the disk's flush.",
    "full_page_writes": "the WAL no longer takes whole pages after each checkpoint.",
    "fsync": "nothing waits for the disk at all: for data that can be loaded again.",
}


def list_what_ifs(draft: Draft) -> tuple[Derived, ...]:
    """List what writing workloads could gain by giving up durability, each with what is lost."""
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
        for name, gain in _CANDIDATES.items()
        if name not in given_up
        for loss in find_given_up({name: "off"}, subject.major)
    )
