"""What the disk of a study's data reads and writes, for a plan: as its machine is declared, else as a card of the home says."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pgdyno.analyse.disk.demand import DiskLimits, find_limits
from pgdyno.analyse.disk.layout_ceiling import compute_ceilings, limits_of
from pgdyno.conduct.cards.known import find_cards
from pgdyno.plan.restoring import MEMORY_SHARE
from pgdyno.plan.types import Machine
from pgdyno.run.cluster.home import find_existing_folder
from pgdyno.run.host.tunables import read_tunables
from pgdyno.spec.study import Study
from pgdyno.units import format_bytes

# Source: with 31 GB of data, a card of 0.5 GB said 2.3 GB/s where one of 16 GB said 1.2, as restoring did (a virtual machine).
_MANY_FILES = 8


def with_disk_rates(machine: Machine, study: Study, home: Path) -> Machine:
    """Return a machine with the rates of its disk, each None where neither the study nor a card of the home tells it."""
    host = study.host
    if host is not None and host.disk is not None:
        ceilings = compute_ceilings(host.disk, limits_of(host))
        if ceilings.write_bytes_per_s is not None:
            read, pages = ceilings.read_bytes_per_s, ceilings.random_write_iops
            return msgspec.structs.replace(
                machine,
                write_bytes_per_s=ceilings.write_bytes_per_s.value,
                read_bytes_per_s=None if read is None else read.value,
                random_write_iops=None if pages is None else pages.value,
            )
    card = find_cards(home, read_tunables(find_existing_folder(home))).data
    limits = DiskLimits() if card is None else find_limits(card[0])
    return msgspec.structs.replace(
        machine,
        write_bytes_per_s=limits.write_bytes_per_s,
        read_bytes_per_s=limits.read_bytes_per_s,
        random_write_iops=limits.random_write_iops,
        rates_file_bytes=None if card is None else card[0].file_bytes,
    )


def describe_small_file(machine: Machine, data_bytes: int, home: Path) -> str | None:
    """Warn of rates that a cache behind the disk may have shown, where data are read from the disk itself; None without a reason."""
    file_bytes = machine.rates_file_bytes
    is_held = data_bytes <= MEMORY_SHARE * machine.memory_bytes
    if file_bytes is None or is_held or data_bytes < _MANY_FILES * file_bytes:
        return None
    return (
        f"the disk's rates are those of a test file of {format_bytes(file_bytes)}, which a cache behind the disk may have held:"
        f" `pgdyno disk --home {home} --file-size {max(1, round(data_bytes / 2**31))}GB` measures it for data of {format_bytes(data_bytes)}"
    )
