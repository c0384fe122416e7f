"""Install fio where the user has asked for it."""

from __future__ import annotations

import os
import shutil

from pgdyno.errors import HostError
from pgdyno.run.device.fio import Fio, find_fio
from pgdyno.run.host import process
from pgdyno.run.host.ctrl_c import uninterrupted
from pgdyno.run.host.process import Completed

_UPDATE_PATIENCE_S = 600.0


def install_fio() -> Fio:
    """Install the package of Debian or Ubuntu. Ctrl-C takes effect afterwards.

    Raises:
        HostError: This account may not install packages, this is another distribution, or apt-get fails.
    """
    apt_get = shutil.which("apt-get")
    if apt_get is None:
        raise HostError("there is no apt-get to install fio with", hint="install fio with this system's own tool")
    if os.geteuid() != 0:
        raise HostError("only root may install fio", hint="`sudo apt-get install fio`")
    environment = {**process.clean_environment(), "DEBIAN_FRONTEND": "noninteractive"}

    def install() -> Completed:
        # Killed in the middle, dpkg leaves packages half installed, and refuses others until it is repaired.
        with uninterrupted():
            argv = [apt_get, "install", "--yes", "--no-install-recommends", "fio"]
            return process.run(argv, timeout_s=None, env=environment)

    done = install()
    if done.exit_code != 0:
        # A container image has no package lists, and old lists name packages that are gone.
        updated = process.run([apt_get, "update"], timeout_s=_UPDATE_PATIENCE_S, env=environment)
        done = install() if updated.exit_code == 0 else updated
    if done.exit_code != 0:
        said = (done.stderr or done.stdout).strip()
        raise HostError("apt-get could not install fio", detail=said, hint="see what `apt-get install fio` lacks")
    return find_fio()
