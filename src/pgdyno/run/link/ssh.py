"""Connect to another machine by the `ssh` program, with the user's own configuration, keys and known hosts.

One connection serves all programs that are started there. It is a child of this process, so that the kernel ends it with
pgdyno. It never asks anything, forwards nothing, and accepts no host key that the user's configuration would ask about.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pgdyno.errors import HostError
from pgdyno.run.host import process
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.host.log import LOG
from pgdyno.run.host.stale import name_of_this_process, remove_stale_folders
from pgdyno.spec.hosts import HostEntry

_MARK = "pgdynossh-"
ANSWERS_WITHIN_S = 30.0
SSH_FAILED = 255
_OPTIONS = (
    *("BatchMode=yes", "ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes", "PermitLocalCommand=no"),
    *("RemoteCommand=none", "RequestTTY=no", "EscapeChar=none", "Tunnel=no", "UpdateHostKeys=no", "LogLevel=ERROR"),
    # Of a peer that hangs, ssh knows within 20 s.
    *("ServerAliveInterval=5", "ServerAliveCountMax=3", "ControlPersist=no"),
)
# Source: OpenSSH 9.2, sshconnect.c, sshconnect2.c, readconf.c, ssh.c and misc.c.
_REFUSALS = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "the host key of {} has changed",
        "find out why before anything else: `ssh {}` says which line of known_hosts it is about",
    ),
    (
        "Host key verification failed",
        "the host key of {} is not known",
        "connect once by hand, compare the key and accept it: `ssh {}`",
    ),
    (
        "Permission denied",
        "{} does not let this account in",
        "`ssh -o BatchMode=yes {} true` must work without a password: name the account, or give ssh or its agent the key",
    ),
    ("Could not resolve hostname", "there is no machine {}", "name it as for `ssh {}`"),
    (
        "too long for Unix domain socket",
        "the path of the temporary folder is too long for the connection to {}",
        "name a shorter one: TMPDIR=/tmp",
    ),
    ("Connection refused", "no sshd answers at {}", "is it running, and on that port? `ssh {}` must work"),
    ("timed out", "{} does not answer", "is it up, and does a firewall let ssh through? `ssh {}` must work"),
    ("", "there is no way to {} by ssh", "`ssh -o BatchMode=yes {} true` must work first"),
)


class SshLink:
    """A connection to a machine. Use it from the main thread.

    Args:
        entry: The machine.
        folder: A private folder, with a short path.
    """

    def __init__(self, entry: HostEntry, folder: Path) -> None:
        self.entry = entry
        self.folder = folder
        self._socket = folder / "c"
        self._master: subprocess.Popen[bytes] | None = None

    @property
    def destination(self) -> str:
        """The machine as the user would give it to ssh."""
        return self.entry.ssh

    def connect(self) -> None:
        """Connect, unless the connection stands.

        Raises:
            HostError: There is no connection; it says why.
        """
        if self._master is not None and self._master.poll() is None:
            return
        self._socket.unlink(missing_ok=True)
        said = self.folder / "said"
        with said.open("wb") as stderr:
            argv = self._build_argv("-M", "-N")
            self._master = process.start(argv, death_signal="TERM", stderr=stderr)
        deadline_s = monotonic_s() + ANSWERS_WITHIN_S
        while not self._socket.exists():
            if self._master.poll() is not None:
                raise explain_refusal(self.destination, said.read_text(errors="replace"))
            if monotonic_s() > deadline_s:
                self.close()
                raise explain_refusal(self.destination, f"timed out after {ANSWERS_WITHIN_S:g} s")
            time.sleep(0.005)

    def start(self, command: str, *, stdout: int | IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a command there; it ends with pgdyno. Its standard input and error are pipes.

        Raises:
            HostError: There is no connection.
        """
        self.connect()
        argv = [*self._build_argv("-o", "ControlMaster=no"), command]
        return process.start(argv, death_signal="TERM", stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.PIPE)

    def close(self) -> None:
        """End the connection."""
        if self._master is not None:
            process.stop(self._master)
            self._master = None

    def _build_argv(self, *options: str) -> list[str]:
        common = (word for option in _OPTIONS for word in ("-o", option))
        return ["ssh", "-T", *options, "-S", str(self._socket), *common, "--", self.destination]


@contextmanager
def open_link(entry: HostEntry, make: Callable[[HostEntry, Path], SshLink] = SshLink) -> Iterator[SshLink]:
    """Connect to a machine for the length of a `with` block.

    Args:
        entry: The machine.
        make: Makes the link from that and a private folder.

    Raises:
        HostError: There is no connection; it says why.
    """
    # The path of a socket has 107 characters at most, and ssh appends 17 while it makes one.
    parent = Path(tempfile.gettempdir())
    remove_stale_folders(parent, _MARK)
    folder = Path(tempfile.mkdtemp(prefix=name_of_this_process(_MARK), dir=parent))
    link = make(entry, folder)
    try:
        link.connect()
        yield link
    finally:
        link.close()
        shutil.rmtree(folder, ignore_errors=True)


def explain_refusal(destination: str, said: str) -> HostError:
    """Return the error for what ssh says when it does not connect."""
    _, fact, hint = next(known for known in _REFUSALS if known[0] in said)
    LOG.warning("ssh %s: %s", destination, said.strip())
    # The warning of a changed key is a frame of at signs.
    lines = [line.strip() for line in said.splitlines() if line.strip(" @\r")]
    return HostError(fact.format(destination), detail="\n".join(lines), hint=hint.format(destination))
