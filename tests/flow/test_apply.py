"""What `pgdyno tune --apply` says of what it did."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from pgdyno.flow.apply import AppliedTuning
from pgdyno.run.change.apply import Applied

THP, READ_AHEAD = "kernel/mm/transparent_hugepage/enabled", "block/sda/queue/read_ahead_kb"


def told(advice_count: int = 0, **others: Any) -> str:
    facts: dict[str, Any] = {
        "settings": {"work_mem": "16MB"},
        "waiting": (),
        "waiting_reason": "",
        "was_restarted": False,
        "sysctls": {},
        "sysfs": {},
        "at_boot": {},
        "left_out": (),
        "remarks": (),
        **others,
    }
    console = Console(width=200)
    with console.capture() as capture:
        console.print(
            AppliedTuning(applied=Applied(**facts), was_running=True, advice_count=advice_count).to_terminal()
        )
    return capture.get()


def test_what_a_boot_sets_again_and_what_it_does_not() -> None:
    text = told(
        sysctls={"vm.swappiness": "10"},
        sysfs={THP: "madvise", READ_AHEAD: "4096"},
        at_boot={"/etc/sysctl.d/60-pgdyno.conf": ("vm.swappiness",), "/etc/tmpfiles.d/60-pgdyno.conf": (THP,)},
    )
    lines = [line.strip() for line in text.splitlines()]
    for heading, values in (
        ("in force in the kernel, and again at each boot by /etc/sysctl.d/60-pgdyno.conf", "vm.swappiness = 10"),
        ("in force in the kernel, and again at each boot by /etc/tmpfiles.d/60-pgdyno.conf", f"{THP} = madvise"),
        ("in force in the kernel, until the next boot", f"{READ_AHEAD} = 4096"),
    ):
        assert lines[lines.index(heading) + 1] == values


def test_what_is_left_to_the_user_and_where_it_stands() -> None:
    assert "left to you" not in told()
    assert told(4).endswith("starts the server, which the same command shows without --apply\n")


def test_huge_pages_that_wait_are_not_in_force() -> None:
    pool, path = "vm.nr_hugepages", "/etc/sysctl.d/60-pgdyno.conf"
    text = told(waiting=("shared_buffers", pool), waiting_reason="none was asked for", at_boot={path: (pool,)})
    assert "in force in the kernel" not in text
    assert f"shared_buffers, {pool}" in text
