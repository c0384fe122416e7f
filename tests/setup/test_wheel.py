"""What users install is whole: the built wheel runs by itself, and the runtime lock has all that the package imports."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from .conftest import TREE, environment

IMPORT_ALL = """\
import importlib, pkgutil, pgdyno
for module in pkgutil.walk_packages(pgdyno.__path__, "pgdyno."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


def copy_tree(to: Path) -> Path:
    """The tracked and the new files of this tree, as a fresh clone would have them."""
    caches = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "pgdyno-records")
    shutil.copytree(TREE, to, ignore=caches, symlinks=True)
    return to


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = copy_tree(tmp_path_factory.mktemp("wheel") / "tree")
    argv = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tree / "dist"), str(tree)]
    subprocess.run(argv, check=True, capture_output=True, env=environment())
    (path,) = (tree / "dist").iterdir()
    return path


def test_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    source = TREE / "src"
    wanted = {str(p.relative_to(source)) for p in source.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == wanted
    assert "pgdyno/py.typed" in held
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in zipfile.ZipFile(wheel).namelist())


def test_installed_wheel_runs(wheel: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = (venv / "lib").glob("python*/site-packages")
    # A folder named in a .pth file brings its packages, but not its own .pth files, which would bring this tree's src.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", venv, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(pip, check=True, env=environment())
    said = [
        subprocess.run(argv, check=True, capture_output=True, text=True, cwd=tmp_path, env=environment()).stdout
        for argv in (
            [venv / "bin" / "pgdyno", "--version"],
            [venv / "bin" / "pgdyno", "--help"],
            [venv / "bin" / "python", "-c", IMPORT_ALL + "print(pgdyno.__file__)"],
        )
    ]
    assert said[0].startswith("pgdyno ")
    assert "bench" in said[1]
    assert Path(said[2].strip()) == site / "pgdyno" / "__init__.py"


def test_runtime_lock_is_enough_to_import_everything(tmp_path: Path) -> None:
    tree = copy_tree(tmp_path / "clone")
    said = subprocess.run(
        [tree / "pgdyno", "--version"], check=False, capture_output=True, text=True, cwd="/", env=environment()
    )
    assert said.returncode == 0, said.stderr
    python = tree / ".venv" / "bin" / "python"
    done = subprocess.run([python, "-I", "-c", IMPORT_ALL], check=False, capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
