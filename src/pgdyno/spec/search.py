"""What a search for the largest rate asks: a latency limit, the percentile that must hold it, and how closely.

Which rates are tried is chosen while the study runs; nothing here knows how fast a server is.
"""

from __future__ import annotations

from pgdyno.spec.table import StudyTable, check_share
from pgdyno.units import parse_seconds

# Below, a pgbench on the same machine is busier with its clock than with the server.
_SHORTEST_LIMIT_MS = 0.1
_LONGEST_LIMIT_MS = 600_000.0
# Beyond, a trial would need more transactions than anybody waits for: see plan/search.py.
_LEAST_PERCENTILE, _MOST_PERCENTILE = 50.0, 99.9


class SearchSpec(StudyTable, frozen=True, kw_only=True):
    """The largest rate at which every workload holds a latency limit.

    Attributes:
        latency: The limit, such as `20ms`. It counts from the scheduled start of a transaction.
        percentile: How many of 100 transactions must hold it.
        resolution: The search ends when the rate that holds and the one that fails are this close.
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
        """The limit in milliseconds."""
        try:
            return parse_seconds(self.latency) * 1000.0
        except ValueError as exc:
            raise ValueError(f"latency {exc}") from exc

    @property
    def resolution_ratio(self) -> float:
        """How close the answer is to be, as a share."""
        return check_share("resolution", self.resolution, 0.01, 0.5)
