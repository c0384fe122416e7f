"""`pgdyno clean` and `disk` in a home where something was left."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pgdyno.conduct.ui import Ui
from pgdyno.conduct.workspace import Workspace
from pgdyno.errors import SpecError
from pgdyno.flow.clean import clean_home
from pgdyno.flow.disk import DiskQuestion, measure_disks
from pgdyno.spec.study import ServerSpec
from tests.loops import needs_root
from tests.shared import reachable_folder


class Heard(Ui):
    """Keeps what is said, and agrees to nothing."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def confirm(self, question: str, *, default: bool) -> bool:
        return False


@needs_root
@pytest.mark.parametrize("command", ["clean", "disk"])
def test_what_is_unmounted_is_named(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise SpecError("not to be measured")

    monkeypatch.setattr("pgdyno.flow.disk._find_tools", refuse)
    with reachable_folder() as folder:
        home, kept, ui = folder / "home", folder / "kept", Heard()
        clean_home(Workspace.make(out=None, home=home, run_as=None), ui=ui)
        assert ui.said == []
        for made in (kept, home / "work/data"):
            made.mkdir()
        subprocess.run(["mount", "--bind", str(kept), str(home / "work/data")], check=True)
        if command == "clean":
            clean_home(Workspace.make(out=None, home=home, run_as=None), ui=ui)
        else:
            question = DiskQuestion(
                paths=(Path(folder),),
                is_quick=True,
                server=ServerSpec(),
                host=None,
                home=home,
                out=None,
                may_install=False,
            )
            with pytest.raises(SpecError, match="not to be measured"):
                measure_disks(question, ui)
        assert ui.said == [f"ended what was left behind: the mount at {home}/work/data"]
