"""Lock the places of a study's clusters: the homes of its variants, and the folders on other disks for their pg_wal."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pgdyno.errors import HostError
from pgdyno.plan.places import Place
from pgdyno.run.cluster.home import OTHER_HOME, Home, open_home
from pgdyno.run.cluster.wal_home import WAL_FOLDER, check_wal_home, find_note, open_wal_home, write_note
from pgdyno.run.host.process import ServerUser


@contextlib.contextmanager
def open_places(root: Path, user: ServerUser, places: Sequence[Place]) -> Iterator[Home]:
    """Lock the places of a study's clusters, clean them up as `open_home` does, and yield the home of the first, which knows them all.

    Args:
        root: The home of the command, for places that name none.
        user: The account that owns the servers and their files.
        places: Each place once.

    Raises:
        HostError: As for `open_home`; or two of the folders are one, or one is inside another.
    """
    wal_homes = [None if place.wal_home is None else Path(place.wal_home) for place in places]
    roots = [root if place.home is None else Path(place.home) for place in places]
    _check_apart(dict.fromkeys(roots))
    with contextlib.ExitStack() as stack:
        main = stack.enter_context(open_home(roots[0], user, wal_home=wal_homes[0]))
        if len(places) == 1:
            yield main
            return
        homes, wals = {roots[0]: main}, {wal_homes[0]: main.wal}
        for other, wal_home in zip(roots, wal_homes, strict=True):
            if other not in homes:
                homes[other] = stack.enter_context(_open_beside(main, other))
            if wal_home is None:
                continue
            check_wal_home(wal_home, home=other)
            if wal_home not in wals:
                wals[wal_home] = stack.enter_context(open_wal_home(wal_home, home=main.root, user=user)) / WAL_FOLDER
        is_wal_varied = len(set(wal_homes)) > 1
        made = {}
        for place, other, wal_home in zip(places, roots, wal_homes, strict=True):
            wal = wals[wal_home] if wal_home is not None else homes[other].make_own_wal() if is_wal_varied else None
            made[place] = Home(other, user, wal=wal)
        main.places = made
        yield main


@contextlib.contextmanager
def _open_beside(main: Home, root: Path) -> Iterator[Home]:
    """Lock a further home, and note it in the main one for as long as it is used."""
    note = find_note(main.root, OTHER_HOME, root)
    with contextlib.ExitStack() as after, open_home(root, main.user) as home:
        main.left_overs += home.left_overs
        write_note(note, root)
        after.callback(note.unlink, missing_ok=True)
        yield home


def _check_apart(roots: Iterable[Path]) -> None:
    for one, other in itertools.combinations([root.resolve() for root in roots], 2):
        if one.is_relative_to(other) or other.is_relative_to(one):
            raise HostError(
                "two homes are one folder, or one is inside the other",
                detail=f"{one} and {other}",
                hint="name folders beside each other, each on the disk to compare",
            )
