"""A pgdyno home for tests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from pgdyno.run.cluster.home import Home, open_home
from pgdyno.run.cluster.server import Server
from pgdyno.run.host.process import find_server_user
from pgdyno.run.postgres.installation import Installation, find_installation
from pgdyno.spec.study import ServerKind, ServerSpec
from tests.shared import make_once, reachable_folder, shared_templates

SPECS = {18: ServerSpec(), 15: ServerSpec(kind=ServerKind.LOCAL, version=15)}


@contextlib.contextmanager
def some_home(*, is_empty: bool = True) -> Iterator[Home]:
    """An empty home; or one that has the templates of those before it, and leaves its own there."""
    with (
        reachable_folder() as folder,
        open_home(folder / "home", find_server_user()) as home,
        contextlib.nullcontext() if is_empty else shared_templates(home.templates),
    ):
        yield home


def initdb(server: Server, make: Callable[[Server], None] = Server.initdb) -> None:
    """Make a server's empty cluster, as `Server.initdb` has made it once in this run."""
    make_once(server.installation.bindir, f"home {server.home.user.uid}", server.home.data, lambda: make(server))


def installation_of(major: int, home: Home) -> Installation:
    return find_installation(SPECS[major], user=home.user, software_dir=home.software)
