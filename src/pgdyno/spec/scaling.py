"""The sweep over clients that follows a comparison: of which workload, over which numbers of clients, how long.

Under which settings it runs is not asked: under those that won, which nobody knows before.
"""

from __future__ import annotations

from pgdyno.spec.table import StudyTable, check_range
from pgdyno.spec.variant import MOST_MINUTES


class ScalingSpec(StudyTable, frozen=True, kw_only=True):
    """How TPS follows the number of clients, asked of the settings that won.

    Attributes:
        workload: Which of the study's; absent: the first.
        clients: Numbers of clients, rising. A fit of the curve takes six, and 1 among them.
        minutes: The longest it may take, beside the comparison's own; absent: chosen as for any sweep.
    """

    workload: str | None = None
    clients: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    minutes: float | None = None

    def __post_init__(self) -> None:
        """Check ranges."""
        if len(self.clients) < 2:
            raise ValueError("clients are too few: a sweep needs at least two numbers of them")
        for number in self.clients:
            check_range("clients", number, 1, 10_000)
        if any(one >= other for one, other in zip(self.clients, self.clients[1:], strict=False)):
            raise ValueError("clients do not rise: each number once, the smallest first")
        if self.minutes is not None and not 0.5 <= self.minutes <= MOST_MINUTES:
            raise ValueError(f"minutes {self.minutes:g} is not within 0.5 to {MOST_MINUTES}")
