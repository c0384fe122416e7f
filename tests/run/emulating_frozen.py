"""Freeze a server on an emulated disk, print its processes, and be killed.

The umask is as on hardened machines, and PATH as after `su` without a hyphen.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from pgdyno.run.change.emulation import note
from pgdyno.run.change.emulation.groups import Rates
from pgdyno.run.change.emulation.machine import EmulatedDisk, EmulatedMachine, emulated
from pgdyno.run.cluster.home import open_home
from pgdyno.run.cluster.server import Server
from pgdyno.run.host.freezer import Freezer
from pgdyno.run.host.process import find_server_user
from tests.homes import initdb, installation_of


def main(base: Path, notes: Path) -> None:
    note._FOLDER = notes
    os.umask(0o077)
    os.environ["PATH"] = "/usr/bin:/bin"
    rates = Rates(read_iops=10**5, write_iops=10**5, read_bytes_per_s=10**9, write_bytes_per_s=10**9)
    disk = EmulatedDisk(
        name="data", size_bytes=320 * 2**20, filesystem="ext4", mount_options="", rates=rates, flush_s=0.0, read_s=0.0
    )
    machine = EmulatedMachine(disks=(disk,), cpu_count=None, memory_bytes=2**30)
    with emulated(machine, base=base) as folders, open_home(folders["data"] / "home", find_server_user()) as home:
        server = Server(installation=installation_of(15, home), home=home, log_path=folders["data"] / "server.log")
        initdb(server)
        server.start({})
        freezer = Freezer()
        freezer.freeze([server.pid])
        sys.stdout.write(json.dumps(freezer.stopped))
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
