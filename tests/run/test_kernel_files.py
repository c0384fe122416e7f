"""Kernel settings below /sys as variants of a study: changed, put back, also after kill -9, with what a scheduler resets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.errors import HostError, SpecError
from pgdyno.facts.gucs import Effect, effect_of
from pgdyno.plan.live import find_sysctl_obstacle
from pgdyno.run.change.journal import Journal
from pgdyno.run.change.kernel import changed_sysctls, restore_left_overs
from pgdyno.run.change.kernel_file import check_values, read_value, write_values
from pgdyno.run.host.process import call_as, find_server_user
from pgdyno.spec.variant import VariantSpec, is_sysctl
from tests.loops import Loop, mounted_loop, needs_root
from tests.run.test_kernel import holder, leave_changed, outcomes
from tests.sysctls import SETTING, needs_proc_sys, own_network, read_sysctl

THP = "kernel/mm/transparent_hugepage/enabled"


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    with mounted_loop(tmp_path, "ext4", 32 * 2**20) as made:
        names = [f"block/{made.name}/queue/{name}" for name in ("scheduler", "nr_requests")]
        before = {name: read_value(name) for name in names}
        try:
            yield made
        finally:
            # The next disk of this name would begin with them.
            write_values(before)


def read(loop: Loop, name: str) -> str:
    text = (Path("/sys/block") / loop.name / "queue" / name).read_text().strip()
    return text[text.index("[") + 1 : text.index("]")] if "[" in text else text


def other_scheduler(loop: Loop) -> tuple[str, str]:
    """Its scheduler, and one that it is not."""
    text = (Path("/sys/block") / loop.name / "queue" / "scheduler").read_text()
    now = read(loop, "scheduler")
    return now, next(one for one in text.replace("[", "").replace("]", "").split() if one != now)


@needs_root
def test_a_scheduler_and_what_it_resets_are_put_back(loop: Loop, journal: Journal) -> None:
    queue = f"block/{loop.name}/queue"
    now, other = other_scheduler(loop)
    requests = str(int(read(loop, "nr_requests")) // 2)
    (Path("/sys") / queue / "nr_requests").write_text(requests)
    with own_network(), changed_sysctls({f"{queue}/scheduler": other, SETTING: "77"}, journal=journal) as kernel:
        assert (read(loop, "scheduler"), read_sysctl(SETTING)) == (other, "77")
        chosen = read(loop, "nr_requests")
        kernel.switch({})
        assert (read(loop, "scheduler"), read(loop, "nr_requests")) == (now, requests)
        kernel.switch({f"{queue}/scheduler": other, f"{queue}/nr_requests": requests})
        assert (read(loop, "scheduler"), read(loop, "nr_requests")) == (other, requests)
        kernel.switch({f"{queue}/scheduler": other})
        assert read(loop, "nr_requests") == chosen, "not that of the variant before"
    assert (read(loop, "scheduler"), read(loop, "nr_requests")) == (now, requests)
    assert journal.read() == ()


@needs_root
def test_what_a_kill_leaves_is_put_back(loop: Loop, journal: Journal) -> None:
    queue = f"block/{loop.name}/queue"
    now, other = other_scheduler(loop)
    before = read(loop, "read_ahead_kb")
    leave_changed(journal, {f"{queue}/scheduler": other, f"{queue}/read_ahead_kb": "64"})
    assert (read(loop, "scheduler"), read(loop, "read_ahead_kb")) == (other, "64")
    undone = outcomes(journal)
    assert undone[f"{queue}/scheduler"] == undone[f"{queue}/read_ahead_kb"] == "undone"
    assert (read(loop, "scheduler"), read(loop, "read_ahead_kb")) == (now, before)
    assert restore_left_overs(journal) == ()


@needs_root
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_depth_that_was_held_before_the_scheduler_is_put_back_after_it(
    loop: Loop, journal: Journal, *, is_killed: bool
) -> None:
    depth, scheduler = f"block/{loop.name}/queue/nr_requests", f"block/{loop.name}/queue/scheduler"
    now, other = other_scheduler(loop)
    requests = str(int(read(loop, "nr_requests")) // 2)
    named = str(int(requests) // 2)
    (Path("/sys") / depth).write_text(requests)
    if is_killed:
        then = f"kernel.hold({ {depth: named} }); kernel.switch({ {scheduler: other} }); os.kill(os.getpid(), 9)"
        with holder(journal, {}, then=then) as child:
            child.wait()
        assert read(loop, "scheduler") == other
        assert outcomes(journal)[depth] == "undone"
    else:
        with changed_sysctls({}, journal=journal) as kernel:
            kernel.hold({depth: named})
            kernel.switch({scheduler: other})
            kernel.switch({depth: named})
            assert (read(loop, "scheduler"), read(loop, "nr_requests")) == (now, named)
            kernel.switch({scheduler: other})
    assert (read(loop, "scheduler"), read(loop, "nr_requests")) == (now, requests)
    assert journal.read() == ()


@needs_root
def test_a_depth_that_the_scheduler_chose_is_no_other_programs(loop: Loop, journal: Journal) -> None:
    depth, scheduler = f"block/{loop.name}/queue/nr_requests", f"block/{loop.name}/queue/scheduler"
    _, other = other_scheduler(loop)
    requests = str(int(read(loop, "nr_requests")) // 2)
    (Path("/sys") / depth).write_text(requests)
    with changed_sysctls({scheduler: other}, journal=journal) as kernel:
        requests = str(int(requests) // 2)
        kernel.switch({scheduler: other, depth: requests})
        assert (read(loop, "scheduler"), read(loop, "nr_requests")) == (other, requests)


@needs_root
def test_a_depth_that_the_scheduler_of_a_killed_pgdyno_elsewhere_chose_is_not_the_original(
    loop: Loop, journal: Journal, tmp_path: Path
) -> None:
    depth, scheduler = f"block/{loop.name}/queue/nr_requests", f"block/{loop.name}/queue/scheduler"
    now, other = other_scheduler(loop)
    requests = str(int(read(loop, "nr_requests")) // 2)
    (Path("/sys") / depth).write_text(requests)
    # Of another container it is seen by its notes in devtmpfs.
    leave_changed(Journal(tmp_path / "elsewhere"), {scheduler: other})
    with changed_sysctls({scheduler: other}, journal=journal):
        assert read(loop, "scheduler") == other
    assert (read(loop, "scheduler"), read(loop, "nr_requests")) == (now, requests)
    assert journal.read() == ()


@needs_root
def test_somebody_else_who_sets_it_is_told(loop: Loop, journal: Journal) -> None:
    name = f"block/{loop.name}/queue/read_ahead_kb"
    with changed_sysctls({name: "64"}, journal=journal) as kernel:
        (Path("/sys") / name).write_text("32")
        with pytest.raises(HostError, match=f"another program has changed {name}"):
            kernel.switch({name: "16"})
    assert read(loop, "read_ahead_kb") == "32"


@needs_root
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (THP, "sometimes", "does not take 'sometimes'"),
        ("devices/system/clocksource/clocksource0/current_clocksource", "sundial", "does not take 'sundial'"),
        ("/sys/block/nosuch/queue/scheduler", "none", "there is no /sys/block/nosuch"),
        ("kernel/mm/ksm/run", "1", "this kernel has no setting"),
    ],
)
def test_what_is_refused(name: str, value: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        check_values({name: value})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"vm.swappiness": "low"}, "vm.swappiness cannot be low"),
        ({"vm.dirty_ratio": "5", "vm.dirty_bytes": "9000000"}, "exclude each other"),
        ({"vm.swappiness": "10", "kernel.ostype": "x"}, "can be read only"),
        ({"vm.swappiness": "10", "/sys/block/nosuch/queue/scheduler": "none"}, "there is no /sys/block/nosuch"),
        ({"vm.swappiness": "10", "mount:/nosuch:commit": "5"}, "no file system is mounted at /nosuch"),
    ],
)
def test_what_no_account_may_set_comes_before_what_this_one_may_not(values: dict[str, str], words: str) -> None:
    def check() -> None:
        with pytest.raises(HostError):
            check_values({"vm.swappiness": "10"})
        with pytest.raises(SpecError, match=words):
            check_values(values)

    call_as(find_server_user(), check)


@needs_root
@needs_proc_sys
def test_a_setting_of_two_names_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sizes = [folder.name for folder in Path("/sys/kernel/mm/hugepages").iterdir()]
    pools = {f"/sys/kernel/mm/hugepages/{size}/nr_hugepages": "0" for size in sizes}
    if not pools:
        pytest.skip("this kernel has no huge pages")
    if not all(os.access(pool, os.W_OK, effective_ids=True) for pool in pools):
        pytest.skip("/sys is not writable here")
    size = next(line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines() if "Hugepagesize" in line)
    own = f"/sys/kernel/mm/hugepages/hugepages-{size}kB/nr_hugepages"
    assert check_values(pools).keys() == {name.removeprefix("/sys/") for name in pools if name != own} | {
        "vm.nr_hugepages"
    }
    for other in ("vm.nr_hugepages", own.removeprefix("/sys/")):
        with pytest.raises(SpecError, match=f"^{own} and {other} are one setting"):
            check_values({own: "0", other: "1"})
    if (Path("/proc/sys/vm") / "nr_hugepages_mempolicy").exists():
        for other in ("vm.nr_hugepages", own):
            with pytest.raises(SpecError, match="are one setting"):
                check_values({other: "0", "vm.nr_hugepages_mempolicy": "1"})
        assert check_values({"vm.nr_hugepages_mempolicy": "0"}) == {"vm.nr_hugepages_mempolicy": "0"}
    (policy := tmp_path / "devices/system/cpu/cpufreq/policy0").mkdir(parents=True)
    (policy / "scaling_governor").write_text("powersave\n")
    (link := tmp_path / "devices/system/cpu/cpu1/cpufreq").parent.mkdir()
    link.symlink_to(policy)
    monkeypatch.setattr("pgdyno.run.change.sysfs.ROOT", tmp_path)
    governor = "devices/system/cpu/cpufreq/policy0/scaling_governor"
    assert check_values({"devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance"}) == {
        governor: "performance"
    }


def test_their_names_are_those_of_kernel_settings() -> None:
    for name in (THP, f"/sys/{THP}", "block/vda/queue/scheduler"):
        assert is_sysctl(name)
        assert VariantSpec(sysctl={name: "never"}).sysctl == {name: "never"}
        # All servers of a live round run under one kernel.
        assert find_sysctl_obstacle(name) is not None
    assert not is_sysctl("auto_explain.log_min_duration")
    assert effect_of(THP) is Effect.NOT_WHILE_RUNNING
