"""A pgdyno home for tests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from pgdyno.run.cluster.home import Home, open_home
from pgdyno.run.cluster.server import Server
from pgdyno.run.host.process import find_server_user
from pgdyno.run.postgres.installation import Installation, find_installation
from pgdyno.spec.initdb import InitdbChoices, InitdbTable, combine_choices
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


_REAL_INITDB, _USUAL = Server.initdb, InitdbChoices()


def copied_initdb(server: Server, choices: InitdbTable = _USUAL) -> None:
    """Stand for `Server.initdb`: copy the empty cluster that it has made once in this run; `test_server` runs the real one."""
    if combine_choices(choices) == _USUAL:
        initdb(server, _REAL_INITDB)
    else:
        _REAL_INITDB(server, choices)


def installation_of(major: int, home: Home) -> Installation:
    return find_installation(SPECS[major], user=home.user, software_dir=home.software)
