"""Tell how much room on the disk data need, with the WAL that loading leaves in each cluster, and refuse what has none."""

from __future__ import annotations

from collections.abc import Sequence

from pgdyno.errors import HostError
from pgdyno.plan.experiment import Variant
from pgdyno.plan.types import Machine
from pgdyno.units import format_bytes

# Space for the WAL of a trial (max_wal_size is a soft limit of 1 GB), logs and records.
DISK_SLACK_BYTES = 3_000_000_000
# Space for the WAL of one server: max_wal_size, a soft limit, is 1 GB by default.
_WAL_BYTES = 1_100_000_000
# Source: SLOT_WAL of spec/study.py.
_SLOT_WAL_BYTES = 2_200_000_000
# Source: max_wal_size while data are loaded, run/cluster/template.py.
_LOADED_WAL_BYTES = 4_300_000_000


def has_wal_at_home(variants: Sequence[Variant], machine: Machine) -> bool:
    """Return whether the home holds the WAL of working copies, too."""
    return machine.wal_free_bytes is None or any(variant.wal_home is not None for variant in variants)


def slack_bytes_of(standbys: int) -> int:
    """Return the space for WAL, logs and records: of each standby, its WAL and what the server keeps for it."""
    return DISK_SLACK_BYTES + standbys * _WAL_BYTES + predict_kept_wal(standbys)


def predict_kept_wal(standbys: int) -> int:
    """Return the space for the WAL that a server keeps for its standbys: the same WAL for all of them."""
    return _SLOT_WAL_BYTES if standbys else 0


def check_wal_disk(data_bytes: int, machine: Machine, *, standbys: int) -> None:
    """Refuse data whose WAL does not fit on a disk of its own.

    Raises:
        HostError: It does not fit.
    """
    needed = predict_wal_disk_bytes(data_bytes, standbys=standbys)
    if machine.wal_free_bytes is not None and needed > machine.wal_free_bytes:
        raise HostError(
            "the WAL does not fit on its disk",
            detail=f"needs {format_bytes(needed)}; free are {format_bytes(machine.wal_free_bytes)}",
            hint="free some space, or use another disk with --wal-home",
        )


def predict_wal_disk_bytes(data_bytes: int, *, standbys: int) -> int:
    """Return the space on a disk for WAL alone: that of the working copies, and what the server keeps for its standbys."""
    return (1 + standbys) * predict_wal_bytes(data_bytes) + predict_kept_wal(standbys)


def predict_home_bytes(to_load_bytes: Sequence[int], largest_bytes: int, *, copies: int, has_wal: bool) -> int:
    """Return the space on the disk of the home: all loaded clusters and the working copies are there at the same time.

    Args:
        to_load_bytes: Bytes of data of each cluster that is still to be loaded.
        largest_bytes: Bytes of data of the largest cluster.
        copies: Number of working copies; none for a snapshot, which takes what a trial changes.
        has_wal: Whether the home holds their WAL, too.
    """
    copy_bytes = predict_loaded_bytes(largest_bytes) if has_wal else largest_bytes
    return sum(map(predict_loaded_bytes, to_load_bytes)) + copies * copy_bytes + slack_bytes_of(max(0, copies - 1))


def predict_wal_bytes(data_bytes: int) -> int:
    """Return the space for the WAL of one working copy."""
    return _WAL_BYTES + predict_loaded_wal(data_bytes)


def predict_loaded_wal(data_bytes: int) -> int:
    """Return the bytes of WAL that loading leaves, with which each trial begins."""
    # About as much as the data, and up to max_wal_size of then.
    return min(data_bytes, _LOADED_WAL_BYTES)


def predict_loaded_bytes(data_bytes: int) -> int:
    """Return the size of a loaded cluster: its data, and the WAL that loading leaves."""
    return data_bytes + predict_loaded_wal(data_bytes)


def find_most_data(room_bytes: float, clusters: int) -> float:
    """Return how many bytes of data each of so many clusters may have, so that all fit with the WAL that loading leaves."""
    each_bytes = room_bytes / clusters
    return max(each_bytes / 2, each_bytes - _LOADED_WAL_BYTES)


def check_homes(data_bytes: int, machine: Machine, *, standbys: int) -> None:
    """Refuse data that do not fit on the disks of variants with a home of their own.

    Raises:
        HostError: They do not fit.
    """
    needed = (1 + standbys) * (data_bytes + predict_wal_bytes(data_bytes)) + predict_kept_wal(standbys)
    for home, free_bytes in machine.homes_free_bytes.items():
        if needed > free_bytes:
            raise HostError(
                f"the data do not fit on the disk of {home}",
                detail=f"needs {format_bytes(needed)}; free are {format_bytes(free_bytes)}",
                hint="use a smaller scale, or free some space",
            )


def _name_copies(copies: int) -> str:
    if copies > 1:
        return f"working copies of the server and {copies - 1} standby{'s' * (copies > 2)}, "
    return "a working copy, " if copies else ""


def check_disk(
    scales: Sequence[int],
    to_load: Sequence[int],
    bytes_per_scale: float,
    machine: Machine,
    *,
    copies: int,
    has_wal: bool,
) -> None:
    """Refuse data that do not fit on the disk of the home.

    Args:
        scales: The scales of all variants.
        to_load: Those that are still to be loaded.
        bytes_per_scale: Bytes of data for each unit of scale.
        machine: The free space.
        copies: Number of working copies.
        has_wal: Whether the home holds their WAL, too.

    Raises:
        HostError: They do not fit.
    """
    loaded = [round(scale * bytes_per_scale) for scale in to_load]
    needed = predict_home_bytes(loaded, round(max(scales) * bytes_per_scale), copies=copies, has_wal=has_wal)
    if needed <= machine.disk_free_bytes:
        return
    hint = "use smaller scales or fewer servers, or free some space"
    if len(scales) == 1:
        of_data = copies + len(to_load)
        most_bytes = (
            find_most_data(machine.disk_free_bytes - slack_bytes_of(max(0, copies - 1)), of_data) if of_data else 0.0
        )
        fits = max(0, int(most_bytes / bytes_per_scale))
        hint = f"use a scale of at most {fits}" if fits else "free some space"
    raise HostError(
        f"scale {', '.join(map(str, sorted(set(scales))))} does not fit on the disk",
        detail=(
            f"needs {format_bytes(needed)} (loaded clusters, {_name_copies(copies)}WAL);"
            f" free are {format_bytes(machine.disk_free_bytes)}"
        ),
        hint=f"{hint}, or use another disk with --home",
    )
