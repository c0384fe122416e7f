"""A machine whose files are read: this one, or one that was captured."""

from __future__ import annotations

from pathlib import Path

from pgdyno.run.host.tree import Tree


class Host:
    """A machine.

    Args:
        root: `/`, or the folder of captured files.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    def open_tree(self) -> Tree:
        """Return its pseudo-files for one look, which keeps what could not be read."""
        return Tree(self.root)


THIS_HOST = Host()
