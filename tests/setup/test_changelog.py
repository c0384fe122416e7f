"""The changelog names this version, and tools/changelog.py puts fragments where they belong."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from types import ModuleType

import pytest

from pgdyno import __version__

from .conftest import TREE

CHANGELOG = """\
# Changelog

## 0.2.0 (2026-11-22)

### Added

- One.

### Measurements

- Two.

## 0.1.0 (2026-11-20)

### Fixed

- Three.
"""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("changelog_tool", TREE / "tools" / "changelog.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((TREE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    newest = re.search(
        r"^## (\S+) \(\d{4}-\d\d-\d\d\)$", (TREE / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert newest is not None
    assert __version__ == project["version"] == newest[1]


def test_fragments_have_a_known_type(tool: ModuleType) -> None:
    names = [path.name for path in (TREE / "changelog.d").iterdir() if path.name != "README.md"]
    assert [name for name in names if not re.fullmatch(rf"[\w-]+\.({'|'.join(tool.HEADINGS)})\.md", name)] == []


def test_items_go_below_their_headings(tool: ModuleType) -> None:
    items = {"measurement": ["Four\nlines.\n\nAnd more."], "fixed": ["Five."]}
    text = tool.add_items(CHANGELOG, items, version="0.2.0", date="2026-11-22")
    old, new = (
        "### Measurements\n\n- Two.\n",
        "### Fixed\n\n- Five.\n\n### Measurements\n\n- Two.\n- Four\n  lines.\n\n  And more.\n",
    )
    assert text == CHANGELOG.replace(old, new)


def test_a_new_version_comes_first(tool: ModuleType) -> None:
    text = tool.add_items(CHANGELOG, {"added": ["Four."]}, version="0.3.0", date="2026-12-01")
    head, rest = CHANGELOG.split("## 0.2.0", 1)
    assert text == f"{head}## 0.3.0 (2026-12-01)\n\n### Added\n\n- Four.\n\n## 0.2.0{rest}"
