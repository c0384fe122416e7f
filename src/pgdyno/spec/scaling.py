"""Define the table `scaling` of a study: the client sweep that follows a comparison.

The settings are not specified, because the sweep runs under those that won the comparison.
"""

from __future__ import annotations

from pgdyno.spec.table import StudyTable, check_range
from pgdyno.spec.variant import MOST_MINUTES, DesignKind


class ScalingSpec(StudyTable, frozen=True, kw_only=True):
    """A sweep that measures how TPS scales with the number of clients, under the settings that won.

    Attributes:
        workload: Workload of the study; absent: the first.
        clients: Numbers of clients, ascending. Fitting the curve takes six, including 1.
        minutes: Time budget in addition to the comparison's; absent: chosen as for any sweep.
        design: How the numbers of clients are compared, `live` or `paired`; absent: chosen as for any sweep.
    """

    workload: str | None = None
    clients: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    minutes: float | None = None
    design: DesignKind | None = None

    def __post_init__(self) -> None:
        """Check ranges."""
        if len(self.clients) < 2:
            raise ValueError("clients are too few: a sweep needs at least two numbers of them")
        for number in self.clients:
            check_range("clients", number, 1, 10_000)
        if any(one >= other for one, other in zip(self.clients, self.clients[1:], strict=False)):
            raise ValueError("clients are not in ascending order: give each number once, the smallest first")
        if self.minutes is not None and not 0.5 <= self.minutes <= MOST_MINUTES:
            raise ValueError(f"minutes {self.minutes:g} is not within 0.5 to {MOST_MINUTES}")
