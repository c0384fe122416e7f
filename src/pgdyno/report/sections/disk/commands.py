"""Write the shell script that makes a declared storage: array, file system, mount, fstab and udev rules.

pgdyno never runs it. Devices are variables that the user fills in, and nothing is written before every check passed.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from pgdyno.analyse.disk.raid import has_parity
from pgdyno.report.sections.disk.layout import describe_declared
from pgdyno.tune.new_storage import NewFileSystem

_WIDTH = 100
# Source: mke2fs(8).
_WHOLE_EXT4 = "lazy_itable_init=0,lazy_journal_init=0"
_PASS = {"xfs": 0, "ext4": 2}
"""Order of file systems in the check at boot. Source: fstab(5); fsck.xfs(8), which checks nothing."""
_CHECKS = """
fail() {
    echo "$0: $*; nothing was changed" >&2
    exit 1
}

[ "$(id -u)" = 0 ] || fail "only root can make file systems"
"""
_CHECK_DEVICES = """
    [ -b "$device" ] || fail "$device is no block device"
    name=$(basename "$(readlink -f "$device")")
    case " $seen " in *" $name "*) fail "$device is named twice" ;; esac
    seen="$seen $name"
    [ -d "/sys/class/block/$name/queue" ] || fail "$device is a partition: name a whole disk"
    [ -z "$(ls "/sys/class/block/$name/holders")" ] || fail "$device is part of an array or of LVM"
    if findmnt --source "/dev/$name" > /dev/null; then fail "$device is mounted"; fi
    # Two programs look for what is on it. Exit code 2 of blkid: it found nothing.
    found=$(wipefs -n "$device")
    [ -z "$found" ] || fail "$device is not empty: $found"
    code=0
    blkid -p "$device" > /dev/null 2>&1 || code=$?
    [ "$code" = 2 ] || fail "$device is not empty, or cannot be read (blkid)"
done
"""
_CHECK_FOLDERS = """
    case $folder in /*) ;; *) fail "$folder does not begin with /" ;; esac
    case $folder in *[[:space:]\\\\]*) fail "$folder has a character that fstab cannot hold" ;; esac
    if [ -d "$folder" ] && [ -n "$(ls -A "$folder")" ]; then fail "$folder is not empty"; fi
    if mountpoint -q "$folder"; then fail "$folder is a mount point"; fi
    if findmnt --fstab --tab-file "$etc/fstab" --mountpoint "$folder" > /dev/null; then fail "$etc/fstab has $folder"; fi
done
"""


def format_storage_script(systems: Sequence[NewFileSystem], *, name: str) -> str:
    """Return a script for sh that makes some file systems.

    Args:
        systems: File systems, with those that are made first at the front.
        name: Name of the machine.
    """
    lines = ["#!/bin/sh", *_head(systems, name), "set -eu", "", *_variables(systems)]
    lines += ["", "# --- checks: nothing is written before all of them pass", *_checks(systems)]
    for system in systems:
        lines += ["", f"# --- {system.role}", *_make(system)]
    return "\n".join([*lines, "", *_tail(systems)]) + "\n"


def _head(systems: Sequence[NewFileSystem], name: str) -> Iterator[str]:
    yield from _comment(f"Makes the storage of {name}. pgdyno wrote this script, and ran none of it.")
    for system in systems:
        yield from _comment(f"{system.role}: {describe_declared(system.declared)}")
    yield from _comment("IT DESTROYS ALL THAT IS ON THE DEVICES THAT YOU NAME BELOW.")
    yield from _comment("Read it, fill in the devices, and run it as root: sh FILE")


def _comment(words: str) -> list[str]:
    # A name that the user gave may contain a line end, which would end the comment.
    return textwrap.wrap(" ".join(words.split()), _WIDTH, initial_indent="# ", subsequent_indent="#   ")


def _variables(systems: Sequence[NewFileSystem]) -> Iterator[str]:
    yield "# Whole disks, by names that stay the same after a boot, such as /dev/disk/by-id/NAME."
    for system in systems:
        yield from (f"{variable}=" for variable in _devices(system))
    yield "# Where they are mounted."
    yield from (f"{system.role}_folder=/mnt/pg{system.role}" for system in systems)
    yield "# Lines are added to fstab and to udev/rules.d in this folder; another one shows them without effect."
    yield "etc=/etc"


def _devices(system: NewFileSystem) -> list[str]:
    return [f"{system.role}_{number + 1}" for number in range(system.declared.count)]


def _quoted(names: Sequence[str]) -> str:
    return " ".join(f'"${name}"' for name in names)


def _checks(systems: Sequence[NewFileSystem]) -> Iterator[str]:
    devices = [device for system in systems for device in _devices(system)]
    yield from (f': "${{{device}:?is not set: name the device at the top of the script}}"' for device in devices)
    yield from _CHECKS.strip("\n").splitlines()
    yield f"for tool in {' '.join(_tools(systems))}; do"
    yield '    command -v "$tool" > /dev/null || fail "$tool is missing"'
    yield "done"
    yield "seen="
    yield f"for device in {_quoted(devices)}; do"
    yield from _CHECK_DEVICES.strip("\n").splitlines()
    yield '[ -f "$etc/fstab" ] || fail "there is no $etc/fstab"'
    yield f"for folder in {_quoted([f'{system.role}_folder' for system in systems])}; do"
    yield from _CHECK_FOLDERS.strip("\n").splitlines()
    if len(systems) > 1:
        yield '[ "$data_folder" != "$wal_folder" ] || fail "data and wal need a folder each"'
    for system in systems:
        path = _array(system)
        if path is not None:
            yield f'[ ! -e {path} ] || fail "{path} exists already"'
        if system.declared.lvm_stripes:
            group = f"pg{system.role}"
            yield f'if vgs {group} > /dev/null 2>&1; then fail "the volume group {group} exists already"; fi'


def _tools(systems: Sequence[NewFileSystem]) -> list[str]:
    tools = {
        "wipefs",
        "blkid",
        "findmnt",
        "mountpoint",
        "blockdev",
        *(f"mkfs.{system.filesystem}" for system in systems),
    }
    if any(system.declared.raid is not None for system in systems):
        tools.add("mdadm")
    if any(system.declared.lvm_stripes for system in systems):
        tools |= {"vgs", "pvcreate", "vgcreate", "lvcreate"}
    return sorted(tools)


def _array(system: NewFileSystem) -> str | None:
    """Return the path of the array or logical volume that is made; None of a single disk."""
    if system.declared.raid is not None:
        return f"/dev/md/pg{system.role}"
    return f"/dev/pg{system.role}/{system.role}" if system.declared.lvm_stripes else None


def _make(system: NewFileSystem) -> Iterator[str]:
    role, devices = system.role, _devices(system)
    yield from _make_array(system)
    options = f" {system.mkfs_options}" if system.mkfs_options else ""
    if system.filesystem == "ext4":
        yield from _comment("The tables of inodes are written now: else the kernel writes them beside the first loads.")
        options = f"{options},{_WHOLE_EXT4}" if options else f" -E {_WHOLE_EXT4}"
    yield f'mkfs.{system.filesystem} -q{options} "${role}"'
    yield f'uuid=$(blkid -p -s UUID -o value "${role}")'
    for judged in system.judged:
        yield from _comment(f"{', '.join(judged.seen)} is declared: the file system {judged.claim} {judged.why}")
    yield f'mkdir -p "${role}_folder"'
    yield f'mount -t {system.filesystem} -o {system.mount_options} "${role}" "${role}_folder"'
    line = f"UUID=$uuid ${role}_folder {system.filesystem} {system.mount_options} 0 {_PASS[system.filesystem]}"
    # A line that does not end would take ours into itself.
    yield '[ -z "$(tail -c1 "$etc/fstab")" ] || echo >> "$etc/fstab"'
    yield f'echo "{line}" >> "$etc/fstab"'
    if system.read_ahead_kb is not None:
        # A sector of blockdev has 512 bytes.
        yield f'blockdev --setra {system.read_ahead_kb * 2} "${role}"'
        yield from _rule("$uuid", "read_ahead_kb", str(system.read_ahead_kb))
    if system.scheduler is not None:
        yield f"for device in {_quoted(devices)}; do"
        yield '    name=$(basename "$(readlink -f "$device")")'
        yield f'    if grep -qw {system.scheduler} "/sys/class/block/$name/queue/scheduler"; then'
        yield f'        echo {system.scheduler} > "/sys/class/block/$name/queue/scheduler"'
        yield "    fi"
        yield '    id=$(blkid -p -s UUID -o value "$device")'
        yield from (f"    {line}" for line in _rule("$id", "scheduler", system.scheduler))
        yield "done"


def _make_array(system: NewFileSystem) -> Iterator[str]:
    role, disk, devices = system.role, system.declared, _quoted(_devices(system))
    if disk.chunk_bytes is not None and system.chunk_kb is not None and system.chunk_kb * 1024 > disk.chunk_bytes:
        yield from _comment(
            f"The host file says chunk {disk.chunk}. With {system.chunk_kb} kB a read of a few pages in a row needs one disk,"
            " not two."
        )
    if disk.raid is not None:
        chunk = "" if system.chunk_kb is None or disk.raid == 1 else f" --chunk={system.chunk_kb}K"
        # Without a bitmap, a power failure is followed by a pass over the whole array. mdadm asks if it is not said.
        bitmap = " --bitmap=internal" if disk.raid != 0 else ""
        if has_parity(disk):
            # Source: md(4), "RAID456 write journal" and "PPL".
            yield from _comment(
                f"A power failure can leave parity that does not fit its data. If a disk of this RAID {disk.raid} fails before md has"
                " mended that, data are lost that were written long before: the write hole of md(4)."
            )
        yield (
            f"mdadm --create {_array(system)} --run --level={disk.raid} --raid-devices={disk.count}{chunk}{bitmap} {devices}"
        )
    elif disk.lvm_stripes:
        yield f"pvcreate -q {devices}"
        yield f"vgcreate -q pg{role} {devices}"
        yield (
            f"lvcreate -q --yes --name {role} --extents 100%FREE --stripes {disk.lvm_stripes}"
            f" --stripesize {system.chunk_kb}k pg{role}"
        )
    yield f"{role}={_array(system) or f'${role}_1'}"


def _rule(uuid: str, attribute: str, value: str) -> Iterator[str]:
    """Add a line to udev's rules: names of devices change at a boot, the UUID of what is on them does not."""
    yield 'mkdir -p "$etc/udev/rules.d"'
    rule = f'SUBSYSTEM==\\"block\\", ENV{{ID_FS_UUID}}==\\"{uuid}\\", ATTR{{queue/{attribute}}}=\\"{value}\\"'
    yield f'echo "{rule}" >> "$etc/udev/rules.d/90-pgdyno-storage.rules"'


def _tail(systems: Sequence[NewFileSystem]) -> Iterator[str]:
    if any(system.declared.raid is not None for system in systems):
        yield from _comment(
            "udev assembles the arrays at boot. To name them in the initial RAM disk, too, as Debian does: mdadm --detail"
            " --scan >> /etc/mdadm/mdadm.conf; update-initramfs -u"
        )
    yield from (f'findmnt --mountpoint "${system.role}_folder"' for system in systems)
