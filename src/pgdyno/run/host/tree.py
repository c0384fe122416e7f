"""Read the pseudo-files of a machine, below a folder that may hold a captured copy of them.

A reader gets a file's text or None. The reason of each refusal is kept, so that a report can distinguish what does not
exist from what this account may not see.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")
"""The files of this machine."""
_SWAPPED = str.maketrans("./", "/.")
_OCTAL = re.compile(r"\\([0-7]{3})")


class Tree:
    """The files of /proc, /sys and /etc below `root`.

    Args:
        root: `/`, or the folder of a captured tree.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.refused: dict[str, str] = {}
        """Paths that exist but could not be read, with the reason."""

    @property
    def is_live(self) -> bool:
        """True if the files are those of the machine itself."""
        return self.root == ROOT

    def path(self, name: str) -> Path:
        """Return the path of a file such as `proc/stat`."""
        return self.root / name

    def read(self, name: str) -> str | None:
        """Read a file's text without surrounding blanks; None if it cannot be read."""
        try:
            return self.path(name).read_text(encoding="utf-8", errors="replace").strip()
        except OSError as exc:
            if exc.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ESRCH}:
                self.refused[f"/{name}"] = exc.strerror or str(exc)
            return None

    def read_int(self, name: str) -> int | None:
        """Read a file with one whole number; None if it cannot be read or holds something else."""
        text = self.read(name)
        return int(text) if text is not None and text.lstrip("-").isdigit() else None

    def read_table(self, name: str) -> dict[str, int]:
        """Read a file of `name value` lines, such as /proc/vmstat and /proc/meminfo, with kB converted to bytes."""
        table = {}
        for line in (self.read(name) or "").splitlines():
            words = line.replace(":", " ").split()
            if len(words) >= 2 and words[1].lstrip("-").isdigit():
                table[words[0]] = int(words[1]) * (1024 if words[2:] == ["kB"] else 1)
        return table

    def glob(self, pattern: str) -> Iterator[str]:
        """Yield the names below the root that match a pattern, sorted."""
        for path in sorted(self.root.glob(pattern)):
            yield str(path.relative_to(self.root))

    def list(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; none if it cannot be read."""
        try:
            return sorted(entry.name for entry in self.path(folder).iterdir())
        except OSError as exc:
            if exc.errno not in {errno.ENOENT, errno.ENOTDIR}:
                self.refused[f"/{folder}"] = exc.strerror or str(exc)
            return []

    def exists(self, name: str) -> bool:
        """Return whether there is such a file or folder."""
        return self.path(name).exists()


def split_mounts(text: str) -> list[list[str]]:
    """Return the words of each mount in the text of a process's mountinfo."""
    # The kernel writes any other character of a name as it is, and nothing for an empty source.
    return [[_unescape(word) for word in line.split(" ")] for line in text.split("\n") if line]


def find_block_device(root: Path, numbers: str) -> Path | None:
    """Return the folder of a block device in sysfs by its `major:minor`; None if sysfs does not show it.

    Podman masks /sys/dev/block, which then is empty, or cannot be read.
    """
    link = root / "sys/dev/block" / numbers
    if os.path.exists(link):  # noqa: PTH110 - of a folder that cannot be read, Path.exists() raises an error
        return link.resolve()
    tree = Tree(root)
    names = (name for name in tree.list("sys/class/block") if tree.read(f"sys/class/block/{name}/dev") == numbers)
    return next(((root / "sys/class/block" / name).resolve() for name in names), None)


def find_mounted_device(root: Path, source: str) -> Path | None:
    """Return the folder of a block device in sysfs by its name in the mount table; None if that names none.

    Btrfs gives its mounts a number of no device. A container may lack the names in /dev.
    """
    if not source.startswith("/dev/"):
        return None
    named = root / source.lstrip("/")
    tree = Tree(root)
    titles = (path for path in tree.glob("sys/block/dm-*/dm/name") if tree.read(path) == named.name)
    names = (named.resolve().name, named.name, *(path.split("/")[2] for path in titles))
    return next(
        ((root / "sys/class/block" / name).resolve() for name in names if tree.exists(f"sys/class/block/{name}")), None
    )


def bracketed(text: str | None) -> str | None:
    """Return the choice in brackets, as in `always [madvise] never`."""
    if text is None or "[" not in text:
        return text
    return text.split("[", 1)[1].split("]", 1)[0]


def swap_dots(name: str) -> str:
    """Convert a setting's name to its path below /proc/sys, or a path to the name.

    In a name the parts are divided by dots, and a dot within a part is written as a slash. Source: sysctl(8).
    """
    return name.translate(_SWAPPED)


def _unescape(word: str) -> str:
    """Decode a word of mountinfo, in which blanks and the like are octal.

    Source: Linux fs/proc_namespace.c, mangle().
    """
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), word)
