"""Find the libpq that pgdyno itself connects with, so that pgbench connects as pgdyno does.

The embedded pgbench's own libpq was built without TLS and Kerberos: where a server offers TLS it would go without, and the
load would be another one than the record says.
"""

from __future__ import annotations

from pathlib import Path

import psycopg

from pgdyno.errors import HostError


def find_libpq() -> Path:
    """Return the file of the libpq that this process has loaded.

    Raises:
        HostError: None was loaded from a file.
    """
    # The kernel knows which one it is, whether psycopg brought it or the system has it.
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        path = Path(line.split(maxsplit=5)[-1])
        if path.name.startswith("libpq") and ".so" in path.name:
            return path
    raise HostError(f"psycopg {psycopg.__version__} has loaded no libpq", hint="remove .venv: it is made anew")
