"""Where a study works, and what a plan needs of the machine there."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pgdyno.plan.plan import Machine
from pgdyno.record.machine.disk_facts import DiskFacts
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.types import StudyRecord
from pgdyno.run.cluster.home import choose_home, find_existing_folder
from pgdyno.run.cluster.wal_home import check_wal_home
from pgdyno.run.host.facts import read_disk_facts, read_host_facts
from pgdyno.spec.study import Study


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """The folders in which a study works and writes, and the account that it runs PostgreSQL as."""

    home: Path
    is_home_named: bool
    out: Path | None
    run_as: str | None
    wal_home: Path | None = None
    """The folder of pg_wal on an emulated disk; None: as the study says."""

    @classmethod
    def make(cls, *, home: Path | None, out: Path | None, run_as: str | None) -> Workspace:
        """Fill in the default home."""
        return cls(home=choose_home(home), is_home_named=home is not None, out=out, run_as=run_as)

    def on_disk_of(self, record: StudyRecord) -> Workspace:
        """Return a workspace on the disk that a record measured, unless the user named a home."""
        if self.is_home_named or record.host is None or record.study.is_emulated:
            return self
        return msgspec.structs.replace(self, home=Path(record.host.data_disk.path))


def machine_of(
    host: HostFacts, *, version_major: int, scales: frozenset[int] = frozenset(), wal: DiskFacts | None = None
) -> Machine:
    """Return what a plan needs of a machine, of its PostgreSQL and of the data that are loaded there.

    Args:
        host: The machine.
        version_major: Of its PostgreSQL.
        scales: Of the data that are loaded.
        wal: The disk of pg_wal; None: it lies with the data.
    """
    return Machine(
        version_major=version_major,
        cpu_count=host.usable_cpu_count,
        memory_bytes=host.usable_memory_bytes,
        disk_free_bytes=host.data_disk.free_bytes,
        loaded_scales=scales,
        wal_free_bytes=None if wal is None else wal.free_bytes,
    )


def read_machine(study: Study, home: Path, *, version_major: int) -> Machine:
    """Look at the machine that a study is going to run on, before its home is there.

    Raises:
        HostError: The folder that the study names for pg_wal cannot be used.
    """
    wal = None
    if study.data.wal_home is not None:
        check_wal_home(Path(study.data.wal_home), home=home)
        wal = read_disk_facts(Path(study.data.wal_home))
    return machine_of(read_host_facts(find_existing_folder(home)), version_major=version_major, wal=wal)
