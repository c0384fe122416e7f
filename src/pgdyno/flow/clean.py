"""`pgdyno clean`: remove the loaded clusters of a home, after asking."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.console import RenderableType

from pgdyno.conduct.ui import Ui
from pgdyno.conduct.workspace import Workspace
from pgdyno.errors import SpecError
from pgdyno.report.forms.plain import render_line
from pgdyno.run.cluster.home import open_home
from pgdyno.run.cluster.template import remove_template
from pgdyno.run.host.process import find_server_user
from pgdyno.units import format_bytes


class Cleaned(msgspec.Struct, frozen=True, kw_only=True):
    """The loaded clusters that were removed."""

    home: str
    removed: tuple[str, ...]
    freed_bytes: int

    def to_json(self) -> bytes:
        """Return the result as JSON."""
        return msgspec.json.encode(self)

    def to_terminal(self) -> RenderableType:
        """Return the result as a line."""
        if not self.removed:
            return render_line(f"nothing to remove in {self.home}")
        return render_line(
            f"removed {len(self.removed)} loaded clusters from {self.home}: {format_bytes(self.freed_bytes)} freed"
        )


def clean_home(place: Workspace, *, ui: Ui) -> Cleaned:
    """Remove every loaded cluster of a home, after asking."""
    with open_home(place.home, find_server_user(place.run_as)) as home:
        templates = sorted(home.templates.iterdir())
        sizes = {folder.name: _measure(folder) for folder in templates}
        names, size = tuple(sizes), sum(sizes.values())
        listed = [f"{name}: {format_bytes(one)}" for name, one in sizes.items()]
        question = f"remove {', '.join(listed)}?"
        if templates and not ui.confirm(question, default=False):
            raise SpecError("nothing was removed", detail="\n".join(listed), hint="--yes removes these loaded clusters")
        if not templates:
            return Cleaned(home=str(home.root), removed=(), freed_bytes=0)
        for folder in templates:
            remove_template(folder)
        return Cleaned(home=str(home.root), removed=names, freed_bytes=size)


def _measure(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
