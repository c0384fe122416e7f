"""Find and unmount what is mounted in a folder, before the folder is removed: a mounted disk is not pgdyno's to empty."""

from __future__ import annotations

from pathlib import Path

from pgdyno.errors import HostError
from pgdyno.run.host import process
from pgdyno.run.host.facts import read_mount_words


def list_mounts(folder: Path) -> list[Path]:
    """Return the mount points in a folder and the folder itself if it is one, in the order to unmount them."""
    resolved = folder.resolve()
    places = [Path(words[4]) for words in read_mount_words()]
    # Of two mounts on one place the later one is listed later, and is unmounted first.
    return [place for place in reversed(places) if place.is_relative_to(resolved)]


def unmount_all(folder: Path) -> list[Path]:
    """Unmount everything that is mounted in a folder, or on it, and return where that was.

    Raises:
        HostError: Something stays mounted.
    """
    places = list_mounts(folder)
    for place in places:
        done = process.run(["umount", "--", str(place)])
        if done.exit_code != 0:
            raise HostError(
                f"cannot unmount {place}",
                detail=done.stderr.strip(),
                hint="a restore command has mounted it: unmount it by hand, as root",
            )
    return places
