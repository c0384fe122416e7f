"""Tell which variants an earlier run of a study had given up, from the trials that it left."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pgdyno.plan.plan import PlannedTrial


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
