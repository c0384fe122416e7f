"""Find the installed PgBouncer, and read its version."""

from __future__ import annotations

import re
import shutil

from pgdyno.errors import HostError
from pgdyno.plan.types import PoolerProgram
from pgdyno.run.host import process
from pgdyno.run.host.process import ServerUser

_NAME = "pgbouncer"
# Debian's place, which is not in the PATH of ordinary accounts.
_USUAL_PLACE = "/usr/sbin/pgbouncer"
_VERSION = re.compile(r"PgBouncer (?P<major>\d+)\.(?P<minor>\d+)")


def find_pgbouncer(user: ServerUser | None = None) -> PoolerProgram:
    """Find PgBouncer in PATH, or where Debian puts it.

    Args:
        user: The account that will run it; None: this one.

    Raises:
        HostError: It is not installed, or does not tell its version to that account.
    """
    path = shutil.which(_NAME) or shutil.which(_USUAL_PLACE)
    if path is None:
        raise HostError(
            "PgBouncer is not installed",
            detail=f"looked for {_NAME} in PATH, and for {_USUAL_PLACE}",
            hint="install the package pgbouncer; its service need not run",
        )
    done = process.run([path, "--version"], user=user)
    found = _VERSION.search(done.stdout)
    if found is None:
        account = "" if user is None or user.is_self else f" to {user.name}, which is to run it"
        detail = (done.stdout + done.stderr).strip()
        hint = "put one into PATH that this account can run, such as that of the package pgbouncer"
        raise HostError(f"{path} does not tell its version{account}", detail=detail, hint=hint)
    return PoolerProgram(path=path, version=(int(found["major"]), int(found["minor"])))
