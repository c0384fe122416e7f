"""Define the tables of a study file for connection poolers, and the names of the endpoints that a load connects to."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping

import msgspec

from pgdyno.errors import SpecError
from pgdyno.spec.complaint import name_line, read_complaint
from pgdyno.spec.table import StudyTable, check_range

PRIMARY = "primary"
"""The endpoint of a load that connects to the server itself."""
MOST_SIZE = 10_000
REPLICAS = "replicas"
"""The endpoint of a load that reads from the standbys, among which its clients are divided."""
# It becomes part of a log's name, and of labels in the samples.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,30}")


class PoolMode(enum.Enum):
    """When a pooler takes a server connection back from its client."""

    TRANSACTION = "transaction"
    SESSION = "session"


class PoolerSpec(StudyTable, frozen=True, kw_only=True):
    """A connection pooler that a load may connect to: a PgBouncer that pgdyno starts, or any pooler that runs already.

    Attributes:
        mode: When a server connection goes back to the pool: at the end of each transaction, or of the session. Of a pooler that runs
            already, what it is known to do; absent: `transaction`.
        size: Server connections of the pool; absent: chosen from the machine and the clients.
        dsn: Connection string of a pooler that runs already in front of a given server, without a password; absent: pgdyno starts a
            PgBouncer in front of its own server.
    """

    mode: PoolMode = PoolMode.TRANSACTION
    size: int | None = None
    dsn: str | None = None

    def __post_init__(self) -> None:
        """Refuse a size of a pooler that pgdyno does not start, and one that is out of range."""
        if self.size is not None:
            check_range("size", self.size, 1, MOST_SIZE)
        if self.dsn is not None and self.size is not None:
            raise ValueError("size is for a pooler that pgdyno starts: one that runs already has its own")


def find_sharing(poolers: Mapping[str, PoolerSpec]) -> frozenset[str]:
    """Return the names of poolers whose clients share server connections, in place of holding one each."""
    return frozenset(name for name, pooler in poolers.items() if pooler.mode is PoolMode.TRANSACTION)


def check_poolers(raw: object, *, source: str, text: str = "") -> None:
    """Check the poolers of a TOML document, or of a command line, whose errors then name an option.

    Args:
        raw: Its table `poolers`.
        source: Name of the file in errors.
        text: The TOML text, so that errors can name lines.

    Raises:
        SpecError: A key or a value is invalid.
    """
    for name, table in raw.items() if isinstance(raw, dict) else ():
        try:
            msgspec.convert(table, PoolerSpec)
        except msgspec.ValidationError as exc:
            found = read_complaint(str(exc), PoolerSpec)
            choices = f"one of {', '.join(found.choices)}" if found.choices else ""
            if not text:
                said = found.fact.removeprefix(f"{found.key} ")
                raise SpecError(f"--pool-{found.key} {said}", hint=choices) from exc
            where = name_line(source, text, f"poolers.{name}.{found.path}".rstrip("."))
            hint = choices or "the keys are mode, size and dsn"
            raise SpecError(f"{where}: pooler {name}: {found.fact}", hint=hint) from exc


def check_pooler_name(name: str) -> None:
    """Check the name of a pooler.

    Raises:
        ValueError: It is no name, or one that means something else.
    """
    if name in {PRIMARY, REPLICAS}:
        raise ValueError(f"poolers {name} is the name of another endpoint")
    if not _NAME.fullmatch(name):
        raise ValueError(f"poolers {name!r} is no name: a letter, then letters, digits and _, at most 31 in all")
