"""Check, read and write kernel settings under /proc/sys.

This module writes no journal and remembers nothing: to change a setting, use `kernel`. It refuses settings whose change
cannot be undone: one-way switches, actions, and settings that change others.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path

from pgdyno.errors import HostError, RefusedValueError, ShortPoolError, SpecError, did_you_mean, putting_off
from pgdyno.run.change.pseudo_file import write_value
from pgdyno.run.host.process_id import look_at
from pgdyno.run.host.tree import swap_dots

_ROOT = Path("/proc/sys")
# Setting one of a pair makes the other 0, which means that it is not in use. Source: the kernel's
# Documentation/admin-guide/sysctl/vm.rst, and the handlers in mm/page-writeback.c and mm/util.c.
_PAIRS = (
    ("vm.dirty_background_ratio", "vm.dirty_background_bytes"),
    ("vm.dirty_ratio", "vm.dirty_bytes"),
    ("vm.overcommit_ratio", "vm.overcommit_kbytes"),
)
PARTNERS = {name: partner for pair in _PAIRS for name, partner in (pair, pair[::-1])}
UNUSED = "0"
# The kernel creates as many huge pages as it finds contiguous memory for, which is little after hours of work.
_POOLS = frozenset({"vm.nr_hugepages", "vm.nr_hugepages_mempolicy"})
_COMPACT = "vm.compact_memory"
_POOL_TRIES = 3
# Source: the kernel's Documentation/admin-guide/sysctl/kernel.rst and LSM/Yama.rst.
_ONE_WAY = re.compile(
    r"kernel\.(modules_disabled|kexec_load_disabled|kexec_load_limit_\w+|unprivileged_bpf_disabled|yama\.ptrace_scope)$"
)
# Source: the kernel's Documentation/networking/ip-sysctl.rst: these overwrite the settings of the interfaces.
_CHANGES_OTHERS = re.compile(r"net\.ipv[46]\.(ip_forward$|conf\.(all|default)\.|neigh\.default\.)")
# The kernel also takes hexadecimal and octal numbers. Source: the kernel's kernel/sysctl.c, proc_get_long().
_NUMBERS = re.compile(r"-?(0x[0-9a-fA-F]+|[0-9]+)(\s+-?(0x[0-9a-fA-F]+|[0-9]+))*")
_HEX, _OCTAL = re.compile(r"0x[0-9a-fA-F]+"), re.compile(r"0[0-7]+")
# Masks of CPUs are hexadecimal without 0x. Source: Linux, net/core/sysctl_net_core.c.
_MASKS = frozenset({"net.core.flow_limit_cpu_bitmap", "net.core.rps_default_mask"})
# Source: namespaces(7) and the manual pages it names.
_NAMESPACES = (
    (re.compile(r"net\."), "net"),
    (re.compile(r"kernel\.(sem|shm|msg)|fs\.mqueue\."), "ipc"),
    (re.compile(r"kernel\.(host|domain)name$"), "uts"),
    (re.compile(r"user\."), "user"),
)


def resolve_sysctl(name: str) -> str:
    """Return the canonical name: `net.ipv4.conf.eth0/100.rp_filter` for `net/ipv4/conf/eth0.100/rp_filter`.

    Raises:
        SpecError: This kernel has no such setting.
    """
    first_separator = next((letter for letter in name if letter in "./"), ".")
    path = name if first_separator == "/" else swap_dots(name)
    if not {"", ".", ".."} & set(path.split("/")) and "\0" not in path and (_ROOT / path).is_file():
        return swap_dots(path)
    known = (str((Path(folder) / file).relative_to(_ROOT)) for folder, _, files in os.walk(_ROOT) for file in files)
    near = difflib.get_close_matches(swap_dots(path), [swap_dots(path) for path in known], n=3)
    hint = did_you_mean(near) if near else "`sysctl -a` lists what this kernel has"
    raise SpecError(f"this kernel has no setting {name!r}", hint=hint)


def check_sysctls(values: Mapping[str, str]) -> dict[str, str]:
    """Check whether settings can be changed here and undone, without changing any.

    Of a value this checks only that it is a number where the present one is. The kernel alone knows whether it accepts
    the value, which shows when the value is set.

    Returns:
        The settings by canonical name; one blank separates several numbers in a value, which are as the kernel shows them.

    Raises:
        SpecError: A setting is unknown, its change could not be undone, its value is no number, or two exclude each other.
        HostError: This account or this machine does not permit the change.
    """
    wanted = {resolve_sysctl(name): " ".join(value.split()) for name, value in values.items()}
    refused: list[HostError] = []
    for name, value in wanted.items():
        _check_undoable(name)
        with putting_off(refused):
            _check_writable(name)
        with putting_off(refused):
            wanted[name] = _as_shown(name, value)
        partner = PARTNERS.get(name)
        if partner in wanted:
            raise SpecError(
                f"{name} and {partner} exclude each other",
                detail="setting one of them makes the other 0",
                hint="set only one of them",
            )
    if refused:
        raise refused[0]
    return wanted


def _as_shown(name: str, value: str) -> str:
    if name in _MASKS or not _NUMBERS.fullmatch(now := read_value(name)):
        return value
    if not _NUMBERS.fullmatch(value):
        raise SpecError(f"{name} cannot be {value or 'empty'}", detail=f"it is {now} now", hint="it takes a number")
    return value if "x" in now else as_decimal(name, value)


def as_decimal(name: str, value: str) -> str:
    """Return a value as the kernel shows it, which takes hexadecimal and octal numbers and shows decimal ones."""
    return value if name in _MASKS else " ".join(map(_show, value.split()))


def _show(word: str) -> str:
    sign, digits = ("-", word[1:]) if word.startswith("-") else ("", word)
    if _HEX.fullmatch(digits):
        return f"{sign}{int(digits, 16)}"
    return f"{sign}{int(digits, 8)}" if _OCTAL.fullmatch(digits) else word


def is_there(name: str) -> bool:
    """Return whether the setting still exists; the settings of a network interface go with it."""
    return _path(name).is_file()


def read_value(name: str) -> str:
    """Read a setting by its resolved name; several numbers have one blank between them.

    Raises:
        SpecError: It is an action that has no value.
        HostError: This account may not read it.
    """
    try:
        text = _path(name).read_text(encoding="utf-8", errors="replace")
    except PermissionError as exc:
        if os.geteuid() == 0:
            raise SpecError(f"{name} is an action, not a setting", detail="it cannot be read") from exc
        raise HostError(f"this account may not read {name}", detail=str(exc), hint="run pgdyno as root") from exc
    except OSError as exc:
        raise HostError(f"cannot read {name}", detail=str(exc)) from exc
    return text.strip().replace("\t", " ")


def write_values(expected: Mapping[str, str]) -> None:
    """Set values by canonical name, with both members of each pair, and read all of them back.

    Raises:
        SpecError: The kernel refuses a value.
        ShortPoolError: The kernel made fewer huge pages.
        RefusedValueError: A value cannot be written, or the kernel took it differently.
    """
    for pair in _PAIRS:
        if all(expected.get(name) == UNUSED for name in pair):
            _set_both_unused(*pair)
    for name, value in expected.items():
        # A setting becomes unused when its partner is set; many kernels refuse a direct write of 0.
        is_unused = value == UNUSED and expected.get(PARTNERS.get(name, ""), UNUSED) != UNUSED
        if not is_unused and read_value(name) != value:
            write_value(_path(name), value, name=name)
        if name in _POOLS:
            _fill_pool(name, value)
    for name, value in expected.items():
        if (found := read_value(name)) != value:
            if name in _POOLS and value.isdecimal() and int(found) < int(value):
                raise ShortPoolError(name, asked=int(value), made=int(found))
            raise RefusedValueError(
                f"the kernel did not take {name} = {value}",
                detail=f"it is {found} after setting it",
                hint="ask for a value that the kernel takes as it is",
            )


def _set_both_unused(ratio: str, amount: str) -> None:
    """Set both members of a pair to 0; the kernel takes that of the ratio only, which makes the other 0."""
    if read_value(amount) != UNUSED:
        # A ratio that stays the same leaves the amount. Source: Linux, mm/page-writeback.c, dirty_ratio_handler().
        write_value(_path(ratio), "1", name=ratio)
    if read_value(ratio) != UNUSED:
        write_value(_path(ratio), UNUSED, name=ratio)


def find_pools(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the memory pools among these settings whose size would change."""
    return tuple(name for name, value in values.items() if name in _POOLS and read_value(name) != value)


def _fill_pool(name: str, value: str) -> None:
    for _ in range(_POOL_TRIES):
        if read_value(name) == value:
            return
        # Source: the kernel's Documentation/admin-guide/sysctl/vm.rst, compact_memory: it moves pages together.
        with contextlib.suppress(HostError):
            write_value(_path(_COMPACT), "1", name=_COMPACT)
        write_value(_path(name), value, name=name)


def find_namespace(name: str) -> str | None:
    """Return the kernel namespace in which this process sees a setting, such as `net:[4026531833]`; None if global."""
    kind = next((kind for pattern, kind in _NAMESPACES if pattern.match(name)), None)
    return None if kind is None else str(Path(f"/proc/thread-self/ns/{kind}").readlink())


def namespace_exists(namespace: str) -> bool | None:
    """Return whether a process lives in a namespace, or a mount keeps it; None: this account may not see all processes."""
    kind = namespace.split(":", maxsplit=1)[0]
    if f" {namespace} ".encode() in Path("/proc/self/mountinfo").read_bytes():
        return True
    are_all_seen = True
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - names are all that is needed
        try:
            if look_at(int(name), lambda process: str((process / "ns" / kind).readlink())) == namespace:
                return True
        except PermissionError:
            # The first process of a container may not be seen by any other: what it started lives where it does.
            are_all_seen = are_all_seen and name == "1"
        except OSError:
            # It has ended.
            continue
    return False if are_all_seen else None


def _path(name: str) -> Path:
    return _ROOT / swap_dots(name)


def _check_undoable(name: str) -> None:
    if _ONE_WAY.match(name):
        raise SpecError(f"{name} cannot be undone", detail="only a reboot restores the old value")
    if _CHANGES_OTHERS.match(name):
        raise SpecError(
            f"{name} changes the settings of interfaces, too",
            detail="pgdyno could not restore each interface's own value",
            hint="name the interface, as in net.ipv4.conf.eth0.rp_filter",
        )


def _check_writable(name: str) -> None:
    path = _path(name)
    if os.access(path, os.W_OK, effective_ids=True):
        return
    if path.stat().st_mode & 0o222 == 0:
        raise SpecError(f"{name} can be read only", detail="the kernel permits no change")
    if os.geteuid() != 0:
        raise HostError(
            "changing kernel settings needs root",
            detail=f"{name} was to be changed by the account with uid {os.geteuid()}",
            hint="run pgdyno as root, or leave kernel settings out",
        )
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        raise HostError(
            "/proc/sys is read-only here",
            detail=f"{name} was to be changed",
            hint="usual in containers: use the host itself or a privileged container, or leave kernel settings out",
        )
    raise HostError(
        f"{name} cannot be changed here",
        detail="this is not the machine's own root, but that of a container",
        hint="use the host itself, or leave kernel settings out",
    )
