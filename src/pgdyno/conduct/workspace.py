"""Where a study works, and what a plan needs of the machine there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from pgdyno.plan.experiment import find_server, identify_server, reference_server
from pgdyno.plan.places import Place
from pgdyno.plan.plan import Machine
from pgdyno.plan.types import PoolerProgram
from pgdyno.plan.variants import list_places, list_specs, name_places
from pgdyno.record.machine.disk_facts import DiskFacts
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.types import ServerFacts, StudyRecord
from pgdyno.run.cluster.home import check_home, choose_home, find_existing_folder
from pgdyno.run.cluster.wal_home import check_wal_home
from pgdyno.run.host.facts import read_disk_facts, read_host_facts
from pgdyno.run.host.process import ServerUser
from pgdyno.run.pooler.program import find_pgbouncer
from pgdyno.run.postgres.installation import read_named_facts
from pgdyno.run.preflight import VariantFolder
from pgdyno.spec.study import ServerKind, ServerSpec, Study


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

    def of_study(self, study: Study) -> Workspace:
        """Return the workspace of a study, whose reference may name a home of its own.

        Raises:
            SpecError: The variants of a sweep cannot be made.
        """
        home = list_places(study)[0].home
        return self if home is None else msgspec.structs.replace(self, home=Path(home), is_home_named=True)


class OtherDisks(msgspec.Struct, frozen=True, kw_only=True):
    """The disks that the places of a study name."""

    wals: Sequence[DiskFacts] = ()
    """Of pg_wal, where it does not lie with the data."""
    homes: Sequence[DiskFacts] = ()
    """Of the homes of variants, each with its path as the study names it."""


def machine_of(
    host: HostFacts,
    *,
    version_major: int,
    scales: frozenset[int] = frozenset(),
    others: OtherDisks | None = None,
    pooler: PoolerProgram | None = None,
    other_servers: Mapping[str, ServerFacts] | None = None,
) -> Machine:
    """Return what a plan needs of a machine, of its PostgreSQL and of the data that are loaded there.

    Args:
        host: The machine.
        version_major: Of its PostgreSQL.
        scales: Of the data that are loaded.
        others: The disks of its WAL and of further homes; None: all lie on that of the data.
        pooler: Its PgBouncer; None if the study needs none.
        other_servers: From `find_other_servers`; None: none are asked for.
    """
    others = others or OtherDisks()
    return Machine(
        version_major=version_major,
        cpu_count=host.usable_cpu_count,
        memory_bytes=host.usable_memory_bytes,
        disk_free_bytes=host.data_disk.free_bytes,
        loaded_scales=scales,
        wal_free_bytes=min((wal.free_bytes for wal in others.wals), default=None),
        homes_free_bytes={home.path: home.free_bytes for home in others.homes},
        pooler=pooler,
        other_majors={name: server.major for name, server in (other_servers or {}).items()},
    )


def find_other_servers(
    study: Study, find_programs: Callable[[ServerSpec], ServerFacts] = read_named_facts
) -> dict[str, ServerFacts]:
    """Find the PostgreSQL of each variant that runs on another one than the reference, by the variant's name.

    Raises:
        SpecError: The variants of a sweep cannot be made, or a folder named is no PostgreSQL.
        HostError: A PostgreSQL is missing.
    """
    own = identify_server(reference_server(study))
    known: dict[tuple[object, ...], ServerFacts] = {}
    found = {}
    for spec, _ in list_specs(study) if study.is_comparison else ():
        server = find_server(study.server, spec.server)
        key = identify_server(server)
        if key == own:
            continue
        if key not in known:
            known[key] = find_programs(server)
        found[spec.title] = known[key]
    return found


def read_machine(study: Study, home: Path, *, version_major: int) -> Machine:
    """Look at the machine that a study is going to run on, before its home is there.

    Raises:
        SpecError: The variants of a sweep cannot be made.
        HostError: A home, or a folder for pg_wal, cannot be used, or a PostgreSQL is missing.
    """
    places = list_places(study)
    check_homes(places, home)
    host = read_host_facts(find_existing_folder(home))
    return machine_of(
        host,
        version_major=version_major,
        others=read_other_disks(places),
        pooler=find_pooler(study),
        # Only a sweep that may run under any of them asks for them.
        other_servers=None if study.scaling is None else find_other_servers(study),
    )


def find_pooler(study: Study, user: ServerUser | None = None) -> PoolerProgram | None:
    """Find the program of the poolers that a study starts; None if it starts none.

    Args:
        study: The study.
        user: The account that will run it; None where nothing is run.

    Raises:
        HostError: It is not installed, or that account cannot run it.
    """
    starts_some = study.server.kind is not ServerKind.GIVEN and any(one.dsn is None for one in study.poolers.values())
    return find_pgbouncer(user) if starts_some else None


def list_variant_folders(study: Study, root: Path) -> tuple[VariantFolder, ...]:
    """List the folders of a study's variants that have places of their own, as far as they exist.

    Args:
        study: The study.
        root: The home of variants that name none.

    Raises:
        SpecError: The variants of a sweep cannot be made.
    """
    found = []
    for place, variants in list(name_places(study).items())[1:]:
        home = root if place.home is None else Path(place.home)
        found.append(VariantFolder(variants=variants, content="data", path=find_existing_folder(home)))
        if place.wal_home is not None:
            wal = find_existing_folder(Path(place.wal_home))
            found.append(VariantFolder(variants=variants, content="WAL", path=wal))
    return tuple(found)


def check_homes(places: Sequence[Place], home: Path) -> None:
    """Check the folders that the places of a study name for their data and for pg_wal.

    Args:
        places: The places.
        home: The home of those that name none.

    Raises:
        HostError: One of them cannot be used.
    """
    for place in places:
        own = home if place.home is None else Path(place.home)
        check_home(own)
        if place.wal_home is not None:
            check_wal_home(Path(place.wal_home), home=own)


def read_other_disks(places: Sequence[Place]) -> OtherDisks:
    """Read the disks of pg_wal and of further homes that the places of a study name, for `machine_of`."""
    wals = dict.fromkeys(place.wal_home for place in places if place.wal_home is not None)
    homes = dict.fromkeys(place.home for place in places if place.home is not None)
    return OtherDisks(
        wals=[read_disk_facts(find_existing_folder(Path(wal))) for wal in wals],
        homes=[msgspec.structs.replace(read_disk_facts(find_existing_folder(Path(home))), path=home) for home in homes],
    )
