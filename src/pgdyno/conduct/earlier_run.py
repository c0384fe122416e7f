"""Tell what an earlier run of a study left of a workload, from its trials: what it gave up, and whether it was cut short."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from pgdyno.plan.plan import PlannedTrial


class EarlierRun(msgspec.Struct, frozen=True, kw_only=True):
    """What an earlier run of pgdyno left of a workload that this run goes on with."""

    last_round: int = 0
    """The last round that began; 0 if none did."""
    given_up: frozenset[str] = frozenset()
    """Undecided variants that it had given up, and that this run tries again."""
    once_given_up: frozenset[str] = frozenset()
    """Those, and variants that it had given up and tried again."""
    was_cut: bool = False
    """Whether the last round ended before a trial that was still wanted."""


def find_given_up(planned: Sequence[PlannedTrial], ran: Mapping[int, int], failed: Collection[int]) -> set[str]:
    """Return the variants without which trials went on: their last one failed, or they never started.

    Args:
        planned: The trials of one workload, in their order.
        ran: The round of each of them that is finished, by number; at least one.
        failed: Numbers of trials that failed.
    """
    last_of_round = {of: number for number, of in sorted(ran.items())}
    names = {variant for one in planned for variant in one.variants}
    given_up: set[str] = set()
    for name in names:
        own = [one for one in planned if name in one.variants]
        tried = [one.number for one in own if one.number in ran or (one.number in failed and one.number < max(ran))]
        is_passed = any(one.number < last_of_round.get(one.round, 0) for one in own)
        if tried[-1] in failed if tried else is_passed:
            given_up.add(name)
    return given_up


def find_once_given_up(planned: Sequence[PlannedTrial], ran: Mapping[int, int], failed: Collection[int]) -> set[str]:
    """Return the variants that a round went on without, even if they were tried again later.

    The arguments are those of `find_given_up`.
    """
    last_of_round = {of: number for number, of in sorted(ran.items())}
    return {
        name
        for one in planned
        for name in one.variants
        if one.number not in ran
        and one.number < (max(ran) if one.number in failed else last_of_round.get(one.round, 0))
    }
