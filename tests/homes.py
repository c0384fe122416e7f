"""A pgdyno home for tests, in a folder that the server's account can reach (pytest's own are closed to it)."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pgdyno.run.cluster.home import Home, open_home
from pgdyno.run.host.process import find_server_user
from pgdyno.run.postgres.installation import Installation, find_installation
from pgdyno.spec.study import ServerKind, ServerSpec

SPECS = {18: ServerSpec(), 15: ServerSpec(kind=ServerKind.LOCAL, version=15)}


@contextlib.contextmanager
def reachable_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="pgdyno-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def some_home() -> Iterator[Home]:
    with reachable_folder() as folder, open_home(folder / "home", find_server_user()) as home:
        yield home


def installation_of(major: int, home: Home) -> Installation:
    return find_installation(SPECS[major], user=home.user, software_dir=home.software)
