"""Machines to reach by ssh: one real sshd of this account, on several loopback addresses, and a private ssh configuration.

`ssh` is found in PATH as ever: a script of the same name comes first there, which names the configuration. Nothing of the
account's own ~/.ssh is read or changed.
"""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.ports import find_free_port
from tests.shared import reachable_folder

SSHD = Path("/usr/sbin/sshd")


class Sshd:
    """A running sshd, and what its clients need."""

    def __init__(self, folder: Path, port: int, home: Path) -> None:
        self.folder = folder
        self.port = port
        self.home = home
        """The account's home on the machines, empty at first."""

    @property
    def path(self) -> str:
        """PATH with an ssh that knows the machines db1, db2, and others that are wrong in one thing each."""
        return f"{self.folder / 'bin'}:{os.environ['PATH']}"


def _keygen(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)


_SSHD_CONFIG = """
Port {port}
ListenAddress 127.0.0.1
ListenAddress 127.0.0.2
ListenAddress 127.0.0.3
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/user_key.pub
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxStartups 100
SetEnv HOME={home} XDG_CACHE_HOME={home}/.cache
# The shell of one of the machines prints something before it does what it is told.
Match LocalAddress 127.0.0.2
ForceCommand echo hello from a shell; exec sh -c "$SSH_ORIGINAL_COMMAND"
"""
_SSH_CONFIG = """
Host {name}
  HostName {address}
  HostKeyAlias {name}
  Port {port}
  User {account}
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  IdentityAgent none
  GlobalKnownHostsFile /dev/null
  UserKnownHostsFile {folder}/known_hosts
"""
_ADDRESSES = {
    "db1": "127.0.0.1",
    "db2": "127.0.0.2",
    # Each is wrong in one thing: no known key, another key than it had, no such account, no sshd.
    "unknown": "127.0.0.3",
    "changed": "127.0.0.3",
    "stranger": "127.0.0.3",
    "closed": "127.0.0.4",
}
_LISTENING = ("127.0.0.1", "127.0.0.2", "127.0.0.3")


@contextmanager
def running_sshd(folder: Path) -> Iterator[Sshd]:
    """Run an sshd in a folder of its own."""
    with reachable_folder() as home, _running_sshd(folder, home) as sshd:
        yield sshd


@contextmanager
def _running_sshd(folder: Path, home: Path) -> Iterator[Sshd]:
    _keygen(folder / "host_key")
    _keygen(folder / "user_key")
    _keygen(folder / "other_key")
    key, other = ((folder / f"{name}.pub").read_text().strip() for name in ("host_key", "other_key"))
    known = [f"{name} {key}" for name in _ADDRESSES if name not in {"unknown", "changed"}]
    (folder / "known_hosts").write_text("\n".join([*known, f"changed {other}", ""]))
    if os.geteuid() == 0:
        # As root it separates its privileges, into a folder that the package makes when it starts.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with _listening_daemon(folder, home) as port:
        _write_client(folder, port)
        yield Sshd(folder, port, home)


@contextmanager
def _listening_daemon(folder: Path, home: Path) -> Iterator[int]:
    """Start sshd on a port that all of its addresses have free."""
    for _ in range(20):
        port = find_free_port()
        (folder / "sshd_config").write_text(_SSHD_CONFIG.format(folder=folder, port=port, home=home))
        argv = [SSHD, "-D", "-e", "-f", folder / "sshd_config", *_list_leniency(folder / "sshd_config")]
        with (folder / "sshd.log").open("wb") as stderr:
            daemon = subprocess.Popen(argv, stderr=stderr)
        try:
            if _is_listening(daemon, folder / "sshd.log", port):
                yield port
                return
        finally:
            daemon.terminate()
            daemon.wait()
    raise AssertionError((folder / "sshd.log").read_text())


def _list_leniency(config: Path) -> Sequence[str]:
    """List the option that lets a stranger of one test not keep those of the next out; before 9.8 OpenSSH never did, nor knows it."""
    lenient = ("-o", "PerSourcePenalties=no")
    is_known = subprocess.run([SSHD, "-t", "-f", config, *lenient], check=False, capture_output=True).returncode == 0
    return lenient if is_known else ()


def _is_listening(daemon: subprocess.Popen[bytes], log: Path, port: int) -> bool:
    """Wait until it listens on all addresses; returns False where another program has taken the port on one meanwhile."""
    deadline_s = time.monotonic() + 600
    while True:
        is_running, said = daemon.poll() is None, log.read_text()
        if f"Bind to port {port} on " in said:
            return False
        if all(f"Server listening on {address} port {port}." in said for address in _LISTENING):
            return True
        assert is_running, said
        assert time.monotonic() < deadline_s, said
        time.sleep(0.01)


def _write_client(folder: Path, port: int) -> None:
    """Write the configuration of ssh, and a program of that name that uses it."""
    accounts = {"stranger": "nobody-here"}
    config = [
        _SSH_CONFIG.format(
            folder=folder, port=port, name=name, address=address, account=accounts.get(name, getpass.getuser())
        )
        for name, address in _ADDRESSES.items()
    ]
    (folder / "ssh_config").write_text("".join(config))
    (folder / "bin").mkdir()
    real = shutil.which("ssh")
    (folder / "bin/ssh").write_text(f'#!/bin/sh\nexec {real} -F {folder}/ssh_config "$@"\n')
    (folder / "bin/ssh").chmod(0o755)
