"""Find the files that pgdyno ships: studies, host files, and templates. A user names one by its path below `studies`."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from pgdyno.errors import did_you_mean

_PACKAGE = Path(__file__).parents[1]
_NAME = "studies"
_SUFFIX = ".toml"


def list_shipped() -> dict[str, Path]:
    """Return the shipped files by name, such as `tpcb-like` and `hosts/vm-4vcpu`: those of a folder stand together."""
    folder = _find_folder()
    paths = sorted(folder.rglob(f"*{_SUFFIX}"), key=lambda path: (path.parent, path))
    return {str(path.relative_to(folder)).removesuffix(_SUFFIX): path for path in paths}


def find_shipped(named: Path) -> Path:
    """Return the shipped file of a name, where no file of the user has it; else the path as it is.

    Args:
        named: A path, or the name of a shipped file: `tpcb-like`, `tpcb-like.toml` or `studies/tpcb-like.toml`.
    """
    # Returns False, not an error, in a folder without permission: the reader of the file says what is wrong.
    if os.path.lexists(named):
        return named
    return list_shipped().get(_name_shipped(named), named)


def suggest_shipped(named: Path) -> str:
    """Return a question that suggests the shipped file of a similar name; empty if there is none."""
    near = difflib.get_close_matches(_name_shipped(named), list_shipped(), n=1)
    return did_you_mean(near) if near else ""


def _name_shipped(named: Path) -> str:
    return str(named).removeprefix(f"{_NAME}/").removesuffix(_SUFFIX)


def _find_folder() -> Path:
    installed = _PACKAGE / _NAME
    # A clone has it at the top, where people look for it.
    return installed if installed.is_dir() else _PACKAGE.parents[1] / _NAME
