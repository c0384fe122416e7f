"""Define the table `search` of a study: a latency limit, the percentile that must hold it, and the resolution.

The rates to try are chosen while the study runs.
"""

from __future__ import annotations

from pgdyno.spec.table import StudyTable, check_share
from pgdyno.units import parse_seconds

# Below this, pgbench on the same machine spends more time on its clock than on the server.
_SHORTEST_LIMIT_MS = 0.1
_LONGEST_LIMIT_MS = 600_000.0
# Above this, a trial would need impractically many transactions: see plan/search.py.
_LEAST_PERCENTILE, _MOST_PERCENTILE = 50.0, 99.9


class SearchSpec(StudyTable, frozen=True, kw_only=True):
    """A search for the largest rate at which a workload holds a latency limit.

    Attributes:
        latency: Latency limit, such as `20ms`, counted from the scheduled start of a transaction.
        percentile: Percentage of transactions that must hold the limit.
        resolution: The search ends when the rate that holds and the rate that fails are this close.
    """

    latency: str
    percentile: float = 99.0
    resolution: str = "10%"

    def __post_init__(self) -> None:
        """Check ranges."""
        if not _SHORTEST_LIMIT_MS <= self.limit_ms <= _LONGEST_LIMIT_MS:
            raise ValueError(f"latency {self.latency} is not within {_SHORTEST_LIMIT_MS:g}ms to 10min")
        if not _LEAST_PERCENTILE <= self.percentile <= _MOST_PERCENTILE:
            raise ValueError(
                f"percentile {self.percentile:g} is not within {_LEAST_PERCENTILE:g} to {_MOST_PERCENTILE:g}"
            )
        check_share("resolution", self.resolution, 0.01, 0.5)

    @property
    def limit_ms(self) -> float:
        """Latency limit in milliseconds."""
        try:
            return parse_seconds(self.latency) * 1000.0
        except ValueError as exc:
            raise ValueError(f"latency {exc}") from exc

    @property
    def resolution_ratio(self) -> float:
        """Resolution of the answer, as a share."""
        return check_share("resolution", self.resolution, 0.01, 0.5)
