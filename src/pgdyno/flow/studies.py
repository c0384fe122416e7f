"""`pgdyno studies`: the files that pgdyno ships, and the text of one of them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
from rich.console import RenderableType

from pgdyno.errors import SpecError
from pgdyno.report.forms.plain import Heading, render_rows
from pgdyno.spec.shipped import list_shipped, suggest_shipped

_TEMPLATE = "template"
_OF_TEMPLATE = "every key, with its default or an example"


class ShippedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A shipped file in a list."""

    name: str
    about: str
    """A study's question, or the machine of a host file."""
    path: str


class ShippedList(msgspec.Struct, frozen=True, kw_only=True):
    """The files that pgdyno ships."""

    files: tuple[ShippedFile, ...]

    def to_json(self) -> bytes:
        """Return the list as JSON."""
        return msgspec.json.encode(self)

    def to_terminal(self) -> RenderableType:
        """Return the list as a table."""
        return render_rows(
            (Heading("name", is_whole=True), Heading("content")), ((f.name, f.about) for f in self.files)
        )


def view_shipped() -> ShippedList:
    """List the shipped files."""
    files = []
    for name, path in list_shipped().items():
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        is_template = name.rpartition("/")[2] == _TEMPLATE
        about = _OF_TEMPLATE if is_template else table.get("question") or table["name"]
        files.append(ShippedFile(name=name, about=about, path=str(path)))
    return ShippedList(files=tuple(files))


def read_shipped(name: str) -> str:
    """Return the text of a shipped file.

    Raises:
        SpecError: There is none of that name.
    """
    shipped = list_shipped()
    if name in shipped:
        return shipped[name].read_text(encoding="utf-8")
    raise SpecError(
        f"pgdyno ships no study or host file {name}",
        hint=suggest_shipped(Path(name)) or "`pgdyno studies` lists what it ships",
    )
