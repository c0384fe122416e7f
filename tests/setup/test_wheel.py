"""What users install is whole: the built wheel runs by itself, and the runtime lock has all that the package imports."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_bytes
from importlib.metadata import distribution
from pathlib import Path

import pytest

from pgdyno.record.store import RecordStore
from pgdyno.record.types import TrialStatus
from tests.shared import reachable_folder

from .conftest import TREE, environment, read_lock

IMPORT_ALL = """\
import importlib, pkgutil, pgdyno
for module in pkgutil.walk_packages(pgdyno.__path__, "pgdyno."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""
TRIAL = ("--scale", "1", "--clients", "2", "--rate", "100", "--duration", "1s", "--warm-up", "0s", "--rounds", "1")


@dataclass(frozen=True, kw_only=True)
class Installed:
    """The wheel in an environment of its own, and an empty folder to work in."""

    venv: Path
    folder: Path

    @property
    def site(self) -> Path:
        (site,) = (self.venv / "lib").glob("python*/site-packages")
        return site

    def run(self, *arguments: str | Path, is_on_path: bool = True) -> str:
        """Run the program as the shell finds it, or by its path."""
        program = self.venv / "bin" / "pgdyno"
        path = {"PATH": f"{program.parent}:{environment()['PATH']}"} if is_on_path else {}
        return run("pgdyno" if is_on_path else program, *arguments, cwd=self.folder, **path)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, TREE, cwd=folder)
    (path,) = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Iterator[Installed]:
    # Where the server's account can read it.
    with reachable_folder() as folder:
        made = Installed(venv=folder / "venv", folder=folder / "empty")
        made.folder.mkdir()
        run(sys.executable, "-m", "venv", "--without-pip", made.venv, cwd=folder)
        link_runtime_packages(made.site)
        pip = f'. {TREE}/tools/environment.sh; exec "$0" -I -c "$pip" install --quiet --no-deps --no-index "$1"'
        run("sh", "-c", pip, made.venv / "bin" / "python", wheel, cwd=folder)
        yield made


def list_files(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    held = {name for name in archive.namelist() if ".dist-info/" not in name}
    studies = {f"pgdyno/studies/{name}" for name in list_files(TREE / "studies")}
    # Packages for other machines are fetched by it.
    assert held == list_files(TREE / "src") | studies | {"pgdyno/requirements.lock"}
    assert {"pgdyno/py.typed", "pgdyno/studies/template.toml"} <= held
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in archive.namelist())


def test_metadata_say_what_it_needs(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = message_from_bytes(archive.read(name))
    promised = [f"Programming Language :: Python :: 3.{minor}" for minor in range(11, 15)]
    assert set(promised) <= set(metadata.get_all("Classifier") or ())
    assert (metadata["License-Expression"], metadata["Requires-Python"]) == ("Apache-2.0", ">=3.11")
    environment_sh = (TREE / "tools" / "environment.sh").read_text(encoding="utf-8")
    assert "oldest_minor=11\n" in environment_sh
    assert "newest_minor=14 " in environment_sh


def link_runtime_packages(site: Path) -> None:
    """What requirements.lock names, and nothing else, from the environment that runs the tests."""
    for pinned in read_lock("requirements.lock"):
        package = distribution(pinned.split("==")[0])
        for top in {file.parts[0] for file in package.files or ()} - {".."}:
            (site / top).unlink(missing_ok=True)
            (site / top).symlink_to(Path(str(package.locate_file(top))))


def run(*argv: str | Path, cwd: Path, **env: str) -> str:
    done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=cwd, env=environment(**env))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_installed_wheel_runs_with_the_runtime_lock_alone(installed: Installed) -> None:
    assert installed.run("--version").startswith("pgdyno ")
    python = installed.venv / "bin" / "python"
    origin = run(python, "-I", "-c", IMPORT_ALL + "print(pgdyno.__file__)", cwd=installed.folder)
    assert Path(origin.strip()) == installed.site / "pgdyno" / "__init__.py"


def test_its_studies_are_inside_and_its_hints_can_be_pasted(installed: Installed) -> None:
    files = json.loads(installed.run("studies", "--json"))["files"]
    assert {Path(file["path"]).relative_to(installed.site) for file in files} == {
        Path("pgdyno/studies", name) for name in list_files(TREE / "studies")
    }
    assert "  pgdyno plan tpcb-like\n" in installed.run("plan", "--help")
    by_path = installed.run("plan", "--help", is_on_path=False)
    assert f"  {installed.venv}/bin/pgdyno plan tpcb-like\n" in by_path


@pytest.mark.cluster
def test_installed_wheel_plans_and_measures_from_an_empty_folder(installed: Installed) -> None:
    home = ("--home", str(installed.folder.parent / "home"))
    steps = json.loads(installed.run("plan", "tpcb-like", "--json", *home))["plan"]["steps"]
    assert "trial" in {step["kind"] for step in steps}
    installed.run("bench", "--stock-only", "--no-disk", "--workload", "select-only", *TRIAL, *home, "--out", "record")
    record = RecordStore(installed.folder / "record")
    (trial,) = record.read_trials()
    assert trial.status is TrialStatus.FINISHED
    assert record.read_record().command[0] == "pgdyno"
    assert "TPS" in (record.path / "report.md").read_text(encoding="utf-8")
    assert (record.path / "report.html").stat().st_size > 0
