"""Reach load hosts from a machine that pgdyno was carried to: by way of the machine that sent it, which has the keys."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from pgdyno.errors import HostError
from pgdyno.run.host import process
from pgdyno.run.link import relay_client
from pgdyno.run.link.ssh import SshLink, open_link
from pgdyno.spec.hosts import HostEntry

RELAY_VARIABLE = "PGDYNO_RELAY"


class RelayedLink(SshLink):
    """A way to a machine through a relay's socket; see `SshLink`.

    Args:
        entry: The machine.
        folder: A private folder.
        relay: The socket.
    """

    def __init__(self, entry: HostEntry, folder: Path, relay: Path) -> None:
        super().__init__(entry, folder)
        self._relay = relay

    def connect(self) -> None:
        """Make sure that the relay is there: the connections are made at its other end.

        Raises:
            HostError: The relay is gone.
        """
        if not self._relay.is_socket():
            raise HostError(
                f"there is no way to {self.destination} any more",
                detail=f"{self._relay}, which leads to the machine that pgdyno came from, is gone",
                hint="check that that machine is connected and that pgdyno still runs there; `pgdyno resume` there continues the study",
            )

    def start(self, command: str, *, stdout: int | IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a command there; see `SshLink.start`."""
        self.connect()
        argv = [sys.executable, "-S", "-I", relay_client.__file__, str(self._relay), self.destination, command]
        return process.start(argv, death_signal="TERM", stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.PIPE)


def open_load_link(entry: HostEntry) -> AbstractContextManager[SshLink]:
    """Connect to a load host for the length of a `with` block: by ssh, or through the machine that pgdyno came from.

    Raises:
        HostError: There is no connection; it says why.
    """
    relay = os.environ.get(RELAY_VARIABLE)
    if not relay:
        return open_link(entry)
    return open_link(entry, make=lambda one, folder: RelayedLink(one, folder, Path(relay)))
