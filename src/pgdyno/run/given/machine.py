"""Find the machine of a given server: a session of the server must have its process there.

What ssh reaches may be another machine than the one that the connection string leads to, so that is checked: a backend's
title ends in the port of its client, and the kernel knows which process id it has in the server's own namespace.
"""

from __future__ import annotations

from pgdyno.errors import HostError, PgdynoError
from pgdyno.run.host.log import LOG
from pgdyno.run.host.process_id import read_place
from pgdyno.run.link.look import FarLook, ServerSession, look_at
from pgdyno.run.link.ssh import SshLink
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.sample.child import WatchedMachine


class ServerMachine:
    """The machine of a given server, reached by ssh. Make it with `find_machine`.

    Args:
        link: The connection to it.
        address: The server.
        look: What was seen of it.
        started_at: When the server had started then.
    """

    def __init__(self, link: SshLink, address: Address, look: FarLook, started_at: str) -> None:
        self.look = look
        self._link = link
        self._address = address
        self._started_at = started_at

    @property
    def is_here(self) -> bool:
        """True if it is this machine, with the same process ids."""
        return self.look.place == read_place()

    def watch(self, started_at: str) -> WatchedMachine:
        """Return what samplers need; after a restart of the server its process has another id.

        Args:
            started_at: When the server has started.
        """
        if started_at != self._started_at:
            try:
                self.look = _look_for(self._link, self._address)
                self._started_at = started_at
            except PgdynoError as exc:
                # The samplers will miss the process, and say so.
                LOG.warning("the restarted server is not found on %s: %s", self._link.destination, exc.reason)
        pid, server_pid = self.look.postmaster_pid, self.look.session_pid
        if pid is None:
            raise RuntimeError("a machine without the server is not watched")
        return WatchedMachine(
            link=self._link,
            postmaster_pid=pid,
            is_here=self.is_here,
            has_same_pids=server_pid == self.look.asked_pid,
        )


def find_machine(link: SshLink, address: Address) -> ServerMachine:
    """Look at a machine, and make sure that the server runs there.

    Raises:
        HostError: The server does not run there, or this account does not see its processes.
        StepFailedError: The machine or the server does not answer.
    """
    with sql.connect(address) as connection:
        started_at = sql.read_start_time(connection)
    return ServerMachine(link, address, _look_for(link, address), started_at)


def _look_for(link: SshLink, address: Address) -> FarLook:
    with sql.connect(address) as connection:
        session = sql.read_own_session(connection)
        where = "[local]" if session["port"] is None else f"({session['port']})"
        look = look_at(link, ServerSession(pid=session["pid"], where=where, data_directory=session["data_directory"]))
    if look.session_pid is None or look.postmaster_pid is None:
        raise HostError(
            f"the server does not run on {link.destination}",
            detail=f"none of the processes that the account sees there is the session with pid {session['pid']}",
            hint="name the machine that the server itself runs on, not one of a pooler or a proxy; with hidepid, /proc shows an"
            " account its own processes only",
        )
    return look
