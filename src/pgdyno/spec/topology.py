"""Define what stands around a server: standbys and a pooler, for which `tune` derives settings and which `price` counts."""

from __future__ import annotations

from pgdyno.errors import SpecError
from pgdyno.facts.instances import find_instance
from pgdyno.spec.pooler import MOST_SIZE, PoolMode
from pgdyno.spec.table import StudyTable, check_range

MOST_STANDBYS = 100
_INSTANCES = ("standby_instance", "pooler_instance")


class TopologySpec(StudyTable, frozen=True, kw_only=True):
    """What stands around a server; absent keys are not said.

    Attributes:
        standbys: Number of standbys that stream from the server.
        standby_instance: Cloud instance of each standby, with volumes like the server's; absent: machines like the server's.
        pooler: When a pooler in front of the server takes a server connection back; absent: there is none.
        pool_size: Server connections of its pool; absent: derived.
        pooler_instance: Cloud instance that the pooler has for itself; absent: it runs beside the server.
    """

    standbys: int | None = None
    standby_instance: str | None = None
    pooler: PoolMode | None = None
    pool_size: int | None = None
    pooler_instance: str | None = None

    def __post_init__(self) -> None:
        """Refuse numbers out of range, unknown instances, and what is said of something that is not there."""
        if self.standbys is not None:
            check_range("standbys", self.standbys, 0, MOST_STANDBYS)
        if self.pool_size is not None:
            check_range("pool_size", self.pool_size, 1, MOST_SIZE)
        for key in _INSTANCES:
            name = getattr(self, key)
            try:
                _ = None if name is None else find_instance(name)
            except SpecError as exc:
                raise ValueError(f"{key} {name!r} is unknown; {exc.hint}") from exc

    @property
    def pool_mode(self) -> PoolMode | None:
        """The pooler's mode; None without a pooler. A size or an instance alone says that there is one, too."""
        is_said = self.pool_size is not None or self.pooler_instance is not None
        return PoolMode.TRANSACTION if self.pooler is None and is_said else self.pooler


def merge_topologies(said: TopologySpec, declared: TopologySpec | None) -> TopologySpec:
    """Return one topology with what is said on the command line, and otherwise what a file declares."""
    values = {
        key: getattr(said, key) if getattr(said, key) is not None else getattr(declared, key, None)
        for key in TopologySpec.__struct_fields__
    }
    return TopologySpec(**values)
