"""`pgdyno clean`: remove the loaded clusters of a home, and stopped studies that were sent to this machine, after asking."""

from __future__ import annotations

import msgspec
from rich.console import Group, RenderableType

from pgdyno.conduct.ui import Ui
from pgdyno.conduct.workspace import Workspace
from pgdyno.errors import SpecError
from pgdyno.report.forms.plain import render_line
from pgdyno.run.cluster.home import open_home
from pgdyno.run.cluster.template import remove_template
from pgdyno.run.host.process import find_server_user
from pgdyno.run.host.program import machine_name
from pgdyno.run.host.tunables import read_folder_bytes
from pgdyno.run.over.stopped import find_stopped, remove_stopped
from pgdyno.units import count_things, format_bytes

_SENT_BACK = "a record on the machine that sent it stays, and is sent back if it is resumed"
_UNKNOWN = "no record names it: it was cut off from the machine that sent it as it began"
_ONLY_HERE = (
    "what its study has measured is only here; `pgdyno resume RECORD` brings it home, on the machine that sent it"
)


class Cleaned(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed."""

    home: str
    removed: tuple[str, ...]
    """The loaded clusters."""
    freed_bytes: int
    studies: tuple[str, ...] = ()
    """The folders of stopped studies that another machine has sent here."""
    kept: tuple[str, ...] = ()
    """The folders of those that have measured something which is nowhere else."""

    def to_json(self) -> bytes:
        """Return the result as JSON."""
        return msgspec.json.encode(self)

    def to_terminal(self) -> RenderableType:
        """Return the result as lines."""
        clusters, studies = len(self.removed), len(self.studies)
        lines = []
        if clusters:
            lines.append(f"removed {count_things(clusters, 'loaded cluster')} from {self.home}")
        if studies:
            lines.append(f"removed {count_things(studies, 'folder')} of stopped studies: {_SENT_BACK}")
        freed = f"{format_bytes(self.freed_bytes)} freed"
        lines.append(freed if lines else f"nothing to remove in {self.home}")
        lines += [f"{folder} stays: {_ONLY_HERE}" for folder in self.kept]
        return Group(*map(render_line, lines))


def clean_home(place: Workspace, *, ui: Ui) -> Cleaned:
    """Remove every loaded cluster of a home, and the stopped studies that are at home elsewhere or unknown, after asking."""
    with open_home(place.home, find_server_user(place.run_as)) as home:
        home.say_left_overs(ui.say)
        templates = sorted(home.templates.iterdir())
        # Who names a home on this machine means nothing beside it.
        stopped = () if place.is_home_named and machine_name() is None else find_stopped()
        sizes = {folder.name: read_folder_bytes(folder) for folder in templates}
        studies = {one.folder: one for one in stopped if one.is_removable}
        listed = [f"{name}: {format_bytes(one)}" for name, one in sizes.items()]
        listed += [
            f"{name}: {format_bytes(one.size_bytes)}, a stopped study: {_SENT_BACK if one.is_known else _UNKNOWN}"
            for name, one in studies.items()
        ]
        if listed and not ui.confirm(f"remove {', '.join(listed)}?", default=False):
            raise SpecError("nothing was removed", detail="\n".join(listed), hint="--yes removes these")
        for folder in templates:
            remove_template(folder)
        gone = [one for one in studies.values() if remove_stopped(one)]
        return Cleaned(
            home=str(home.root),
            removed=tuple(sizes),
            freed_bytes=sum(sizes.values()) + sum(one.size_bytes for one in gone),
            studies=tuple(one.folder for one in gone),
            kept=tuple(one.folder for one in stopped if not one.is_removable),
        )
