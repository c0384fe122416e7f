"""Check, read and write kernel settings that are files below /sys.

Like `sysctl`, this module remembers nothing: write a change to the journal before making it. A file below /sys may also
be an action, or disable what a flush promises, so only known settings are accepted. None of them outlives a reboot by
itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from pgdyno.errors import HostError, RefusedValueError, SpecError
from pgdyno.run.change.pseudo_file import write_value

ROOT = Path("/sys")
# Source: the kernel's Documentation/ABI/stable/sysfs-block, Documentation/admin-guide/mm/transhuge.rst, md.rst and
# hugetlbpage.rst, Documentation/admin-guide/pm/cpufreq.rst and kernel/time/clocksource.c.
_SETTINGS = re.compile(
    r"""block/[^/]+/queue/(scheduler|read_ahead_kb|nr_requests|rq_affinity|nomerges|max_sectors_kb|wbt_lat_usec|add_random|iostats)
      | block/[^/]+/md/stripe_cache_size
      | kernel/mm/transparent_hugepage/(enabled|defrag|shmem_enabled|khugepaged/(defrag|pages_to_scan|scan_sleep_millisecs))
      | kernel/mm/hugepages/hugepages-\d+kB/(nr_hugepages|nr_overcommit_hugepages)
      | devices/system/clocksource/clocksource\d+/current_clocksource
      | devices/system/cpu/(cpu\d+/cpufreq|cpufreq/policy\d+)/(scaling_governor|energy_performance_preference)""",
    re.VERBOSE,
)
# The file that lists the values of a setting whose own file does not.
_LISTED = {"current_clocksource": "available_clocksource"}
# A new scheduler sets its own queue depth and its own throttling of writes. Source: the kernel's block/elevator.c,
# elevator_switch(), and block/bfq-iosched.c, bfq_init_queue().
_SCHEDULER = re.compile(r"(?P<queue>block/[^/]+/queue/)scheduler")
_RESET_BY_SCHEDULER = ("nr_requests", "wbt_lat_usec")
_POOL = re.compile(r"kernel/mm/hugepages/hugepages-(?P<size_kb>\d+)kB/(?P<name>nr_hugepages|nr_overcommit_hugepages)")
_FREQUENCY = re.compile(r"(?P<cpu>devices/system/cpu/cpu\d+/cpufreq)/(?P<name>\w+)")
_CHOICE = re.compile(r"\[(?P<chosen>[^\]]+)\]")


def is_known(name: str) -> bool:
    """Return whether a name is that of a setting below /sys which can be undone."""
    return _SETTINGS.fullmatch(_path_of(name)) is not None


def _path_of(name: str) -> str:
    return name.strip("/").removeprefix("sys/")


def check_sysfs(values: Mapping[str, str]) -> dict[str, str]:
    """Check whether settings can be changed here and undone, without changing any.

    Returns:
        The values by path below /sys.

    Raises:
        SpecError: A setting is unknown or missing, or does not take its value.
        HostError: This account or this machine does not permit the change.
    """
    wanted = {_path_of(name): value.strip() for name, value in values.items()}
    for name, value in wanted.items():
        if not _SETTINGS.fullmatch(name):
            raise SpecError(f"/sys/{name} is no setting that pgdyno knows how to undo")
        if not is_there(name):
            raise SpecError(f"there is no /sys/{name} on this machine")
        listed = (ROOT / name).with_name(_LISTED.get(Path(name).name, Path(name).name))
        choices = listed.read_text(encoding="utf-8")
        if (listed.name != Path(name).name or _CHOICE.search(choices)) and value not in choices.replace(
            "[", ""
        ).replace("]", "").split():
            raise SpecError(f"/sys/{name} does not take {value!r}", detail=f"it takes: {choices.strip()}")
    for name in wanted:
        if not os.access(ROOT / name, os.W_OK, effective_ids=True):
            raise HostError(
                f"this account may not change /sys/{name}" if os.geteuid() else "/sys is read-only here",
                detail=f"it is {read_value(name)}",
                hint="run pgdyno as root of the host itself, or leave settings below /sys out",
            )
    return wanted


def resolve_name(name: str) -> str:
    """Return the one name of a setting that has several: of huge pages that of the sysctl, of CPU frequencies that of the policy.

    Other names are returned as they are, but paths below /sys without /sys.
    """
    path = _path_of(name)
    if found := _POOL.fullmatch(path):
        # Source: the kernel's Documentation/admin-guide/mm/hugetlbpage.rst: the sysctl is the pool of the default size.
        default = re.search(
            r"^Hugepagesize: +(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE
        )
        return f"vm.{found['name']}" if default and default[1] == found["size_kb"] else path
    if found := _FREQUENCY.fullmatch(path):
        # Source: the kernel's Documentation/admin-guide/pm/cpufreq.rst: a link to the policy, which several CPUs may share.
        return f"{(ROOT / found['cpu']).resolve().relative_to(ROOT.resolve())}/{found['name']}"
    return path if is_known(name) else name


def reset_with(name: str) -> tuple[str, ...]:
    """Return the settings of this machine that a change of this one resets."""
    found = _SCHEDULER.fullmatch(name)
    names = [found["queue"] + other for other in _RESET_BY_SCHEDULER] if found else []
    return tuple(name for name in names if is_there(name))


def is_same_after_boot(name: str) -> bool:
    """Return whether the name means the same thing after a boot; a disk's name may then belong to another disk."""
    return not name.startswith("block/")


def is_there(name: str) -> bool:
    """Return whether the machine still has this setting; the settings of a disk go with it."""
    return (ROOT / name).is_file()


def read_value(name: str) -> str:
    """Read the chosen value if the kernel lists the choices, else the whole text.

    Raises:
        HostError: The file cannot be read.
    """
    try:
        text = (ROOT / name).read_text(encoding="utf-8", errors="replace").strip()
    except OSError as exc:
        raise HostError(f"cannot read /sys/{name}", detail=str(exc)) from exc
    found = _CHOICE.search(text)
    return found["chosen"] if found else text


def write_values(expected: Mapping[str, str]) -> None:
    """Set these values, those that reset others first, and read all of them back.

    Raises:
        SpecError: The kernel refuses a value.
        RefusedValueError: A value cannot be written, or the kernel took it differently.
    """
    for name, value in sorted(expected.items(), key=lambda item: not _SCHEDULER.fullmatch(item[0])):
        if read_value(name) != value:
            write_value(ROOT / name, value, name=f"/sys/{name}")
    for name, value in expected.items():
        if (found := read_value(name)) != value:
            raise RefusedValueError(
                f"the kernel did not take /sys/{name} = {value}", detail=f"it is {found} after setting it"
            )
