"""What users install is whole: the built wheel runs by itself, and the runtime lock has all that the package imports."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

from .conftest import TREE, environment, read_lock

IMPORT_ALL = """\
import importlib, pkgutil, pgdyno
for module in pkgutil.walk_packages(pgdyno.__path__, "pgdyno."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, TREE, cwd=folder)
    (path,) = folder.iterdir()
    return path


def test_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    source = TREE / "src"
    wanted = {str(p.relative_to(source)) for p in source.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == wanted
    assert "pgdyno/py.typed" in held
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in zipfile.ZipFile(wheel).namelist())


def link_runtime_packages(site: Path) -> None:
    """What requirements.lock names, and nothing else, from the environment that runs the tests."""
    for pinned in read_lock("requirements.lock"):
        package = distribution(pinned.split("==")[0])
        for top in {file.parts[0] for file in package.files or ()} - {".."}:
            (site / top).unlink(missing_ok=True)
            (site / top).symlink_to(Path(str(package.locate_file(top))))


def run(*argv: str | Path, cwd: Path) -> str:
    done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=cwd, env=environment())
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_installed_wheel_runs_with_the_runtime_lock_alone(wheel: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=tmp_path)
    (site,) = (venv / "lib").glob("python*/site-packages")
    link_runtime_packages(site)
    pip = f'. {TREE}/tools/environment.sh; exec "$0" -I -c "$pip" install --quiet --no-deps --no-index "$1"'
    run("sh", "-c", pip, venv / "bin" / "python", wheel, cwd=tmp_path)
    assert run(venv / "bin" / "pgdyno", "--version", cwd=tmp_path).startswith("pgdyno ")
    assert "bench" in run(venv / "bin" / "pgdyno", "--help", cwd=tmp_path)
    origin = run(venv / "bin" / "python", "-c", IMPORT_ALL + "print(pgdyno.__file__)", cwd=tmp_path)
    assert Path(origin.strip()) == site / "pgdyno" / "__init__.py"
