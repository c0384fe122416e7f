"""`pgdyno clean --dsn`: drop what pgdyno has loaded into a given server, after asking."""

from __future__ import annotations

import msgspec
from rich.console import RenderableType

from pgdyno.conduct.ui import Ui
from pgdyno.errors import SpecError
from pgdyno.report.forms.plain import render_line
from pgdyno.run.given.access import open_access
from pgdyno.run.given.database import drop_database
from pgdyno.run.given.lock import refuse_second_study
from pgdyno.run.given.own_databases import ForeignDatabase, OwnDatabase, list_databases
from pgdyno.units import count_things, format_bytes


class CleanedServer(msgspec.Struct, frozen=True, kw_only=True):
    """The databases that were dropped, and those that were left."""

    server: str
    dropped: tuple[OwnDatabase, ...]
    in_use: tuple[OwnDatabase, ...]
    """Pgdyno's own with sessions: a study may run there."""
    foreign: tuple[ForeignDatabase, ...]

    def to_json(self) -> bytes:
        """Return the result as JSON."""
        return msgspec.json.encode(self)

    def to_terminal(self) -> RenderableType:
        """Return the result, a line for each kind."""
        lines = [f"nothing to drop in {self.server}"]
        if self.dropped:
            freed = format_bytes(sum(one.size_bytes for one in self.dropped))
            lines = [f"dropped {count_things(len(self.dropped), 'database')} from {self.server}: {freed} freed"]
        lines += [f"left: {one.name}, in use by {count_things(one.sessions, 'session')}" for one in self.in_use]
        lines += [f"left: {one.name}: {one.reason}" for one in self.foreign]
        return render_line("\n".join(lines))


def clean_given(dsn: str, *, ui: Ui) -> CleanedServer:
    """Drop every database of pgdyno's own that nobody uses, after asking.

    Args:
        dsn: The connection string.
        ui: Asks.

    Raises:
        SpecError: It is no connection string, or the user said no.
        HostError: A study is at work there.
        StepFailedError: There is no connection, or the server refuses.
    """
    with open_access(dsn) as address:
        refuse_second_study(address)
        own, foreign = list_databases(address)
        in_use = tuple(one for one in own if one.sessions)
        unused = tuple(one for one in own if not one.sessions)
        listed = [f"{one.name}: {format_bytes(one.size_bytes)}" for one in unused]
        if unused and not ui.confirm(f"drop {', '.join(listed)}?", default=False):
            raise SpecError("nothing was dropped", detail="\n".join(listed), hint="--yes drops these databases")
        for one in unused:
            drop_database(address, one)
        return CleanedServer(server=address.host, dropped=unused, in_use=in_use, foreign=foreign)
