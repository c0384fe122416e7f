"""`pgdyno clean --dsn`: drop what pgdyno has loaded into a given server, after asking."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing, nullcontext

import msgspec
from rich.console import RenderableType

from pgdyno.conduct.ui import Ui
from pgdyno.errors import HostError, SpecError
from pgdyno.record.machine.given_server import write_address
from pgdyno.report.forms.plain import render_line
from pgdyno.run.given.access import open_access
from pgdyno.run.given.database import drop_database
from pgdyno.run.given.lock import StudyLock, refuse_second_study
from pgdyno.run.given.own_databases import ForeignDatabase, OwnDatabase, list_databases
from pgdyno.run.given.probe import has_pooled_transactions
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
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
        HostError: A study is at work there, or it is a standby.
        StepFailedError: There is no connection, or the server refuses.
    """
    with open_access(dsn) as address:
        refuse_second_study(address)
        server = write_address(address.host, address.port)
        own, foreign = list_databases(address)
        asked = {one.name: f"{one.name}: {format_bytes(one.size_bytes)}" for one in own if not one.sessions}
        dropped: tuple[OwnDatabase, ...] = ()
        if asked:
            _refuse_standby(address, server)
            listed = list(asked.values())
            if not ui.confirm(f"drop {', '.join(listed)} from {server}?", default=False):
                raise SpecError("nothing was dropped", detail="\n".join(listed), hint="--yes drops these databases")
            with _keeping_studies_away(dsn, address):
                # A study may have begun and ended while the question was open.
                own, foreign = list_databases(address)
                dropped = tuple(one for one in own if one.name in asked and not one.sessions)
                for one in dropped:
                    drop_database(address, one)
        in_use = tuple(one for one in own if one.sessions)
        return CleanedServer(server=server, dropped=dropped, in_use=in_use, foreign=foreign)


def _refuse_standby(address: Address, server: str) -> None:
    with sql.connect(address) as connection:
        is_standby = sql.is_in_recovery(connection)
    if is_standby:
        raise HostError(
            f"{server} is a standby: its databases go when its primary drops them",
            hint="name the primary: of several hosts in the string, target_session_attrs=read-write takes it",
        )


def _keeping_studies_away(dsn: str, address: Address) -> AbstractContextManager[object]:
    """Return the context that keeps studies from beginning in a server; behind a pooler that shares sessions, refuse one that has begun."""
    if has_pooled_transactions(dsn):
        refuse_second_study(address)
        return nullcontext()
    return closing(StudyLock(address))
