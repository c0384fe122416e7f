"""Mount options as variants: remounted and put back, also after kill -9, on file systems of a study's own only."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from pgdyno.conduct.mounts import check_mounts
from pgdyno.errors import HostError, InterruptedStudyError, SpecError
from pgdyno.facts.gucs import Effect, effect_of
from pgdyno.plan.experiment import Variant
from pgdyno.run.change import kernel as kernel_settings
from pgdyno.run.change.journal import Journal
from pgdyno.run.change.kernel import changed_sysctls, restore_left_overs
from pgdyno.run.change.kernel_file import check_values
from pgdyno.run.cluster.home import open_home
from pgdyno.run.host.process import find_server_user
from pgdyno.run.trial import _kernel_settings
from pgdyno.run.trial_stage import Observed
from pgdyno.spec.study import ServerSpec, Study, WorkloadSpec
from pgdyno.spec.variant import SweepSpec, VariantSpec, is_sysctl
from tests.loops import Loop, mounted, mounted_loop, needs_root
from tests.run.test_kernel import leave_changed, outcomes
from tests.shared import reachable_folder


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[Loop]:
    with mounted_loop(tmp_path, "ext4", 32 * 2**20) as made:
        yield made


def read(folder: Path) -> set[str]:
    """What the kernel itself says of the mount."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return next(set(line.split()[3].split(",")) for line in lines if line.split()[1] == str(folder))


@needs_root
def test_options_are_remounted_one_by_one_and_put_back(ext4: Loop, journal: Journal) -> None:
    folder = ext4.folder
    subprocess.run(["mount", "-o", "remount,nosuid,nodev", str(ext4.device), str(folder)], check=True)
    before = read(folder)
    name = f"mount:{folder}"
    with changed_sysctls({f"{name}:atime": "noatime", f"{name}:commit": "30"}, journal=journal) as kernel:
        assert read(folder) == before - {"relatime"} | {"noatime", "commit=30"}, "and nosuid, nodev stay"
        kernel.switch({f"{name}:discard": "on", f"{name}:lazytime": "on"})
        assert read(folder) == before | {"discard", "lazytime"}
        kernel.switch({f"{name}:atime": "strictatime"})
        assert read(folder) == before - {"relatime"}
        kernel.switch({f"{name}:barrier": "off"})
        assert read(folder) == before | {"nobarrier"}
        (folder / "still").write_text("writable")
    assert read(folder) == before
    assert journal.read() == ()


@needs_root
def test_what_a_kill_leaves_is_put_back(ext4: Loop, journal: Journal) -> None:
    before, name = read(ext4.folder), f"mount:{ext4.folder}"
    leave_changed(journal, {f"{name}:commit": "60", f"{name}:lazytime": "on"})
    assert read(ext4.folder) == before | {"commit=60", "lazytime"}
    assert outcomes(journal) == {f"{name}:commit": "undone", f"{name}:lazytime": "undone"}
    assert read(ext4.folder) == before
    assert restore_left_overs(journal) == ()


@needs_root
def test_somebody_else_who_remounts_it_is_told(ext4: Loop, journal: Journal) -> None:
    name = f"mount:{ext4.folder}:commit"
    with changed_sysctls({name: "30"}, journal=journal) as kernel:
        subprocess.run(["mount", "-o", "remount,commit=7", str(ext4.device), str(ext4.folder)], check=True)
        with pytest.raises(HostError, match=f"another program has changed {name}"):
            kernel.switch({name: "40"})
    assert "commit=7" in read(ext4.folder)


@needs_root
def test_a_trial_during_which_somebody_else_remounts_it_fails(
    ext4: Loop, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_settings, "Journal", lambda: journal)
    variant = Variant(name="30", server=ServerSpec(), sysctl={f"mount:{ext4.folder}:commit": "30"})
    stage = SimpleNamespace(variants_of=lambda _: (variant,))
    seen = Observed()

    def run_trial(*, is_disturbed: bool) -> None:
        with _kernel_settings(stage, None, seen):  # type: ignore[arg-type] - what of them is used
            assert "commit=30" in read(ext4.folder)
            if is_disturbed:
                subprocess.run(["mount", "-o", "remount,commit=7", str(ext4.device), str(ext4.folder)], check=True)

    run_trial(is_disturbed=False)
    with pytest.raises(HostError, match=r"another program has changed mount:.*:commit meanwhile"):
        run_trial(is_disturbed=True)
    assert "commit=7" in read(ext4.folder)
    assert journal.read() == ()


@needs_root
@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("data", "writeback", "data of .* cannot be changed by a remount"),
        ("nobarrier", "on", "nobarrier of .* has no value"),
        ("barrier", "0", "barrier cannot be 0"),
        ("commit", "0", "commit cannot be 0"),
        ("commit", "030", "commit cannot be 030"),
        ("atime", "on", "atime cannot be on"),
        ("usrquota", "on", "no option that pgdyno knows how to undo"),
    ],
)
def test_what_is_refused_of_ext4(ext4: Loop, option: str, value: str, words: str) -> None:
    before = read(ext4.folder)
    with pytest.raises(SpecError, match=words):
        check_values({f"mount:{ext4.folder}:{option}": value})
    assert read(ext4.folder) == before


@needs_root
def test_xfs_takes_fewer_and_the_systems_own_none(tmp_path: Path, journal: Journal) -> None:
    with mounted_loop(tmp_path, "xfs", 320 * 2**20) as xfs:
        before = read(xfs.folder)
        for option in ("discard", "commit", "allocsize", "barrier"):
            with pytest.raises(SpecError, match="cannot be changed"):
                check_values({f"mount:{xfs.folder}:{option}": "on"})
        with changed_sysctls({f"mount:{xfs.folder}:lazytime": "on"}, journal=journal):
            assert "lazytime" in read(xfs.folder)
        assert read(xfs.folder) == before
        # A remount that names neither goes over to inode64 since Linux 5.6.
        subprocess.run(["mount", "-o", "remount,inode32", str(xfs.folder)], check=True)
        before = read(xfs.folder)
        assert "inode32" in before
        with changed_sysctls({f"mount:{xfs.folder}:lazytime": "on"}, journal=journal):
            assert read(xfs.folder) == before | {"lazytime"}
        assert read(xfs.folder) == before
    for folder, words in (
        ("/", "system's own"),
        ("/usr", "system's own"),
        (str(tmp_path), "no file system is mounted"),
    ):
        with pytest.raises(SpecError, match=words):
            check_values({f"mount:{folder}:atime": "noatime"})


class Answering:
    """A user who answers every question alike."""

    def __init__(self, *, answer: bool) -> None:
        self.answer = answer
        self.asked: list[str] = []

    def confirm(self, question: str, *, default: bool) -> bool:
        assert default is False
        self.asked.append(question)
        return self.answer


@needs_root
def test_what_else_lies_there_is_asked_about(ext4: Loop, tmp_path: Path) -> None:
    name = f"mount:{ext4.folder}:commit"
    study = Study(
        workload=(WorkloadSpec(name="tpcb-like"),),
        variant=(VariantSpec(name="5"), VariantSpec(name="30", sysctl={name: "30"})),
    )
    home = ext4.folder / "pg" / "home"
    home.mkdir(parents=True)
    ui = Answering(answer=False)
    check_mounts(study, [home], ui)  # type: ignore[arg-type] - what of it is used
    assert ui.asked == [], "lost+found is the file system's"
    with pytest.raises(SpecError, match="nothing of this study lies on"):
        check_mounts(study, [tmp_path], ui)  # type: ignore[arg-type] - as above
    (ext4.folder / "pg" / "mail").mkdir()
    (home / "clusters").mkdir()
    with pytest.raises(InterruptedStudyError):
        check_mounts(study, [home], ui)  # type: ignore[arg-type] - as above
    assert ui.asked[0].endswith(f"it also holds {ext4.folder}/pg/mail. Continue?")
    check_mounts(study, [home], Answering(answer=True))  # type: ignore[arg-type] - as above
    barriers = msgspec.structs.replace(
        study, variant=(VariantSpec(name="on"), VariantSpec(name="off", sysctl={f"mount:{ext4.folder}:barrier": "off"}))
    )
    with pytest.raises(SpecError, match=r"does not vary the barriers of .*, because other files lie there"):
        check_mounts(barriers, [home], Answering(answer=True))  # type: ignore[arg-type] - as above
    (ext4.folder / "pg" / "mail").rmdir()
    check_mounts(barriers, [home], Answering(answer=False))  # type: ignore[arg-type] - as above
    with mounted(str(home), tmp_path / "bound", "--bind"):
        check_mounts(study, [home], shown := Answering(answer=True))  # type: ignore[arg-type] - as above
        assert shown.asked[0].endswith(f"it also holds {tmp_path}/bound. Continue?")
    check_mounts(msgspec.structs.replace(study, variant=()), [tmp_path], ui)  # type: ignore[arg-type] - as above


@needs_root
def test_what_pgdyno_makes_in_a_home_that_is_the_mount_point_is_its_own() -> None:
    """So it is in a WAL home that is one, whose lock lies beside pgdyno's folder."""
    with reachable_folder() as beside, mounted_loop(beside, "ext4", 64 * 2**20) as ext4:
        option = f"mount:{ext4.folder}:barrier"
        study = Study(
            workload=(WorkloadSpec(name="tpcb-like"),),
            variant=(VariantSpec(name="on"), VariantSpec(name="off", sysctl={option: "off"})),
        )
        ui = Answering(answer=False)
        with open_home(beside / "home", find_server_user(), wal_home=ext4.folder) as home:
            assert home.wal is not None
            check_mounts(study, [home.root, home.wal], ui)  # type: ignore[arg-type] - what of it is used
        with open_home(ext4.folder, find_server_user()) as home:
            own = [home.root, home.make_own_wal()]
            (ext4.folder / ".clock.json.0badc0de.partial").touch()
            check_mounts(study, own, ui)  # type: ignore[arg-type] - as above
            (ext4.folder / "mail").mkdir()
            with pytest.raises(SpecError, match="does not vary the barriers") as caught:
                check_mounts(study, own, ui)  # type: ignore[arg-type] - as above
            assert caught.value.detail.endswith(f"damage {ext4.folder}/mail as well")
        assert ui.asked == []


def test_their_names_are_those_of_kernel_settings() -> None:
    name = "mount:/mnt/data:commit"
    assert is_sysctl(name)
    assert VariantSpec(sysctl={name: "30"}).title == f"{name}=30"
    assert SweepSpec(name=name, levels=(5, 30)).levels == (5, 30)
    assert effect_of(name) is Effect.SLOW, "a remount writes all that is dirty: no slice may begin with it"
