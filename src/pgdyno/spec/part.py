"""Define the parts of a load: several pgbenches side by side, each with scripts, clients and an endpoint of its own."""

from __future__ import annotations

import math
import re

from pgdyno.spec.table import StudyTable, check_range, split_weight

MOST_PARTS = 8
# It becomes the name of a folder in the record.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,30}")


class PartSpec(StudyTable, frozen=True, kw_only=True):
    """One part of a load.

    Attributes:
        name: Name in reports.
        scripts: Built-in names or script files with weights, as of a workload. Absent: the built-in script with the part's name.
        clients: Connections.
        threads: pgbench's threads; absent: the part's share of the CPUs, at least one.
        rate_tps: Open loop: its transactions are scheduled at this rate, and latency counts from the scheduled start.
        endpoint: What its clients connect to: `primary`, `replicas`, which are the standbys, or a pooler by its name.
    """

    name: str
    scripts: tuple[str, ...] = ()
    clients: int
    threads: int | None = None
    rate_tps: float | None = None
    endpoint: str = "primary"

    def __post_init__(self) -> None:
        """Check the name and ranges."""
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"name {self.name!r} is no name: a letter, then letters, digits, _ and -, at most 31 in all"
            )
        check_range("clients", self.clients, 1, 10_000)
        if self.threads is not None:
            check_range("threads", self.threads, 1, self.clients)
        if self.rate_tps is not None and not (math.isfinite(self.rate_tps) and self.rate_tps > 0):
            raise ValueError(f"part {self.name}: rate_tps {self.rate_tps:g} is not above 0")
        for script, weight in self.weighted_scripts:
            check_range(f"weight of {script}", weight, 1, 1_000_000)

    @property
    def weighted_scripts(self) -> tuple[tuple[str, int], ...]:
        """Name or path of each script with its weight.

        Raises:
            ValueError: What follows the last `@` is not a whole number.
        """
        return tuple(split_weight(text) for text in self.scripts or (self.name,))
