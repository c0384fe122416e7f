"""Find the installed PgBouncer, and read its version."""

from __future__ import annotations

import re
import shutil

from pgdyno.errors import HostError
from pgdyno.plan.types import PoolerProgram
from pgdyno.run.host.host import THIS_HOST

_NAME = "pgbouncer"
# Debian's place, which is not in the PATH of ordinary accounts.
_USUAL_PLACE = "/usr/sbin/pgbouncer"
_VERSION = re.compile(r"PgBouncer (?P<major>\d+)\.(?P<minor>\d+)")


def find_pgbouncer() -> PoolerProgram:
    """Find PgBouncer in PATH, or where Debian puts it.

    Raises:
        HostError: It is not installed, or does not tell its version.
    """
    path = shutil.which(_NAME) or shutil.which(_USUAL_PLACE)
    if path is None:
        raise HostError(
            "PgBouncer is not installed",
            detail=f"looked for {_NAME} in PATH, and for {_USUAL_PLACE}",
            hint="install the package pgbouncer; its service need not run",
        )
    done = THIS_HOST.run([path, "--version"])
    found = _VERSION.search(done.stdout)
    if found is None:
        raise HostError(f"{path} does not tell its version", detail=(done.stdout + done.stderr).strip())
    return PoolerProgram(path=path, version=(int(found["major"]), int(found["minor"])))
