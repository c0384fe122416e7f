"""Check the machine that a study runs on and keep it for that study: its home is locked until the study ends."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from pgdyno import __version__
from pgdyno.analyse.disk.demand import find_limits
from pgdyno.conduct.cards.rates import with_disk_rates
from pgdyno.conduct.cards.study import StudyCard
from pgdyno.conduct.emulation import emulating, with_emulated_rates
from pgdyno.conduct.load.own import OwnLoad, ready_own_load
from pgdyno.conduct.mounts import check_mounts
from pgdyno.conduct.planned_server import describe_main_server, find_variant_obstacles
from pgdyno.conduct.ui import Ui
from pgdyno.conduct.undo_words import describe_undo
from pgdyno.conduct.workspace import (
    Workspace,
    find_other_servers,
    find_pooler,
    list_variant_folders,
    machine_of,
    read_other_disks,
)
from pgdyno.errors import HostError
from pgdyno.explain.finding import Severity
from pgdyno.explain.preflight.rules import find_obstacles
from pgdyno.explain.preflight.shared_memory import NO_START
from pgdyno.explain.preflight.study import without_emulation
from pgdyno.plan.experiment import reference_server
from pgdyno.plan.places import Place
from pgdyno.plan.plan import CHECK_S, Machine
from pgdyno.plan.variants import list_places, reference_data
from pgdyno.record.device.disk_card import ClockTest
from pgdyno.record.machine.host_facts import KERNELS_MEMORY_RATIO, HostFacts, match_known
from pgdyno.record.machine.preflight import PreflightFacts
from pgdyno.record.types import PlaceFacts, ServerFacts, StudyRecord
from pgdyno.run.change.changes import UndoOutcome
from pgdyno.run.change.emulation.note import undo_left_emulations
from pgdyno.run.change.kernel import restore_left_overs, undo_own
from pgdyno.run.cluster.home import Home
from pgdyno.run.cluster.places import open_places
from pgdyno.run.cluster.server import check_port, psql_command
from pgdyno.run.cluster.template import find_loaded_scales
from pgdyno.run.host.facts import read_disk_facts
from pgdyno.run.host.log import LOG, pending_log
from pgdyno.run.host.process import find_server_user
from pgdyno.run.host.program import program_name
from pgdyno.run.postgres.installation import Installation, find_installation
from pgdyno.run.preflight import PreflightSubject, read_preflight
from pgdyno.spec.study import ServerSpec, Study
from pgdyno.units import format_bytes, format_cpus


class ReadyMachine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that was checked, and that no other pgdyno uses while a study runs."""

    home: Home
    installation: Installation
    host: HostFacts
    preflight: PreflightFacts
    machine: Machine
    """The part of it that a plan is made from."""
    clock: ClockTest | None
    """The test of its clock; None if it could not be run."""
    places: tuple[PlaceFacts, ...] = ()
    """The disks of the variants' clusters, as the record has them."""
    other_servers: dict[str, ServerFacts] = {}
    """PostgreSQL of each variant that runs on another one than the reference, by its name."""
    load: OwnLoad | None = None
    """Load hosts, from which the trials' loads come; None if they come from this machine."""

    def with_card(self, card: StudyCard | None) -> ReadyMachine:
        """Return the machine with what the card of its disk says, and the seconds that measuring the card still takes."""
        if card is None:
            return self
        machine = msgspec.structs.replace(self.machine, disk_card_s=card.expected_s)
        return msgspec.structs.replace(self, machine=machine).with_write_speed(card)

    def with_write_speed(self, card: StudyCard) -> ReadyMachine:
        """Return the machine with what the card of its disk says; the seconds of measuring it stay as they were planned."""
        # Where variants have disks of their own, the slowest one counts: restoring writes to all of them.
        disks = [find_limits(disk.kept) for disk in (card, *card.others) if disk.kept is not None]
        written = [disk.write_bytes_per_s for disk in disks if disk.write_bytes_per_s is not None]
        read = [disk.read_bytes_per_s for disk in disks if disk.read_bytes_per_s is not None]
        pages = [disk.random_write_iops for disk in disks if disk.random_write_iops is not None]
        # A card that is still to be measured says nothing yet.
        machine = msgspec.structs.replace(
            self.machine,
            write_bytes_per_s=min(written, default=self.machine.write_bytes_per_s),
            read_bytes_per_s=min(read, default=self.machine.read_bytes_per_s),
            random_write_iops=min(pages, default=self.machine.random_write_iops),
        )
        return msgspec.structs.replace(self, machine=machine)


@contextmanager
def ready_machine(study: Study, place: Workspace, ui: Ui) -> Iterator[ReadyMachine]:
    """Lock the home, clean up what a killed run left, find PostgreSQL, and check the machine, emulated if that is asked.

    Raises:
        HostError: The machine cannot run the study: the home is in use, the port is taken, PostgreSQL is missing.
        SpecError, StepFailedError: As for `emulating`.
    """
    with pending_log(), emulating(study, place, ui) as there:
        LOG.info("pgdyno %s, pid %d: %s", __version__, os.getpid(), shlex.join([program_name(), *sys.argv[1:]]))
        ui.begin_step("check", predicted_s=CHECK_S)
        if study.server.port is not None:
            check_port(study.server.port)
        user = find_server_user(there.run_as)
        places = list_places(study)
        if there.wal_home is not None:
            places = (msgspec.structs.replace(places[0], wal_home=str(there.wal_home)),)
        with open_places(there.home, user, places) as home, ExitStack() as stack:
            stack.callback(_put_back, ui)
            yield _with_load_hosts(study, _check(study, home, places, ui), stack, ui)


def _check(study: Study, home: Home, places: Sequence[Place], ui: Ui) -> ReadyMachine:
    """Clean up what a killed run left, find PostgreSQL, and look at the machine."""
    user = home.user
    _clean_up(home, ui)
    homes = (home, *home.places.values())
    check_mounts(study, [path for one in homes for path in (one.root, one.wal) if path is not None], ui)

    def find_programs(named: ServerSpec) -> ServerFacts:
        return find_installation(named, user=user, software_dir=home.software).facts

    installation = find_installation(reference_server(study), user=user, software_dir=home.software)
    others = find_other_servers(study, find_programs)
    # A setting that the server refuses is reported later, when the variants are tried, with the variant's name.
    snapshot, _ = describe_main_server(study, installation.facts, user=user)
    root = next((there.root for place, there in home.places.items() if place.home is None), home.root)
    host, preflight, clock = read_preflight(
        PreflightSubject(
            data_dir=home.root,
            wal_dir=home.root if home.wal is None else home.wal.parent,
            further=list_variant_folders(study, root),
            home=home.root,
            bindir=installation.bindir,
            program_user=user,
            clock_file=home.clock_test,
            server=snapshot,
        )
    )
    cpus = f"{format_cpus(host.usable_cpu_count)}, {format_bytes(host.usable_memory_bytes)}"
    disk = f"{host.data_disk.filesystem} on {host.data_disk.device}"
    wal = None if home.wal is None else preflight.wal
    if wal is not None:
        disk = f"{disk}, pg_wal on {wal.filesystem} on {wal.device}"
    ui.end_step(f"PostgreSQL {installation.facts.version}, {cpus}, data on {disk}")
    for finding in without_emulation(find_obstacles(host, preflight), study):
        if finding.rule == NO_START:
            hint = f"{finding.advice[:1].lower()}{finding.advice[1:].rstrip('.')}"
            raise HostError(f"t{finding.claim[1:].rstrip('.')}", detail=finding.evidence, hint=hint)
        if finding.severity is not Severity.NOTE:
            ui.show_finding(finding)
    for finding in find_variant_obstacles(
        study,
        host,
        preflight,
        main=installation.facts,
        others=others,
        user=user,
    ):
        ui.show_finding(finding)
    if study.server.port is not None:
        ui.say(f"to watch the server while a trial runs: {psql_command(home, study.server.port)}")
    machine = machine_of(
        host,
        version_major=installation.facts.major,
        scales=find_loaded_scales(home, installation, reference_data(study)),
        others=read_other_disks(places),
        pooler=find_pooler(study, home.user),
        other_servers=others,
    )
    return ReadyMachine(
        home=home,
        installation=installation,
        host=host,
        preflight=preflight,
        machine=with_emulated_rates(with_disk_rates(machine, study, home.root), study),
        clock=clock,
        places=tuple(_read_places(home)),
        other_servers=others,
    )


def _with_load_hosts(study: Study, ready: ReadyMachine, stack: ExitStack, ui: Ui) -> ReadyMachine:
    if not study.load_hosts:
        return ready
    load = ready_own_load(
        study,
        home=ready.home,
        installation=ready.installation,
        cpu_count=ready.machine.cpu_count,
        stack=stack,
        ui=ui,
    )
    machine = msgspec.structs.replace(ready.machine, load_cpu_count=load.ready.least.usable_cpu_count)
    return msgspec.structs.replace(ready, machine=machine, load=load)


def _read_places(home: Home) -> Iterator[PlaceFacts]:
    """Read the disks of the places of a study's clusters; nothing where all lie in one."""
    for place, there in home.places.items():
        wal_dir = there.root if place.wal_home is None else Path(place.wal_home)
        yield PlaceFacts(place=place, data_disk=read_disk_facts(there.root), wal=read_disk_facts(wal_dir))


def check_same(
    record: StudyRecord,
    host: HostFacts,
    preflight: PreflightFacts | None,
    server: ServerFacts,
    ready_places: Sequence[PlaceFacts] = (),
    *,
    other_servers: Mapping[str, ServerFacts] | None = None,
) -> None:
    """Make sure that trials of now may be put beside those of a record.

    Args:
        record: The record.
        host: The machine of now.
        preflight: Its state.
        server: The PostgreSQL of the reference.
        ready_places: The disks of the variants' clusters.
        other_servers: The PostgreSQL of each variant that does not run on the reference's, by the variant's name; None if no such
            variant is going to run.

    Raises:
        HostError: The machine, its disk or PostgreSQL differ.
    """
    then_and_now = [(record.server, server)]
    then_and_now += [(record.other_servers.get(name, now), now) for name, now in (other_servers or {}).items()]
    for was, now in then_and_now:
        if was.version_num != now.version_num:
            raise HostError(
                f"the record was made with PostgreSQL {was.version}, here is {now.version}",
                hint="install that version again, or begin a new study",
            )
    if record.host is None:
        raise HostError(
            "the record is of a server whose machine was not seen: nothing here can be put beside it",
            hint="begin a new study",
        )
    # The same emulated disk is another loop device each time.
    identify = _identify_without_disks if record.study.is_emulated else _identity
    then, here = (
        (*identify(one, of), *(facts for place in places[1:] for facts in _identify_place(place)))
        for one, of, places in ((record.host, record.preflight, record.places), (host, preflight, ready_places))
    )
    memory_ratio = host.memory_bytes / record.host.memory_bytes
    if not match_known(then, here) or abs(memory_ratio - 1.0) > KERNELS_MEMORY_RATIO:
        raise HostError(
            "the record was made on another machine, disk or kernel",
            detail=f"then {then}, {record.host.memory_bytes} bytes\nnow  {here}, {host.memory_bytes} bytes",
            hint="trials of two machines do not belong in one estimate: begin a new study",
        )


def _clean_up(home: Home, ui: Ui) -> None:
    """End the servers and put back the kernel settings that a killed run has left."""
    home.say_left_overs(ui.say)
    for undo in (*undo_left_emulations(), *restore_left_overs()):
        ui.say(f"a killed pgdyno had left {undo.change.what} changed: {describe_undo(undo)}")


def _put_back(ui: Ui) -> None:
    """Put back what a trial could not, and say what stays changed.

    What ended the study, such as Ctrl-C, stays its end.
    """
    try:
        undone = undo_own()
    except HostError as error:
        ui.say(f"a trial may have left kernel settings changed: {error.reason}; `pgdyno restore` tries again")
        return
    # One that is as before was only left in the journal, which could not be written.
    for undo in (one for one in undone if one.outcome is not UndoOutcome.UNNEEDED):
        again = "; `pgdyno restore` tries again" if undo.outcome is UndoOutcome.FAILED else ""
        ui.say(f"a trial had left {undo.change.what} changed: {describe_undo(undo)}{again}")


def _identify_place(place: PlaceFacts) -> tuple[str | None, ...]:
    return place.data_disk.block_device, place.data_disk.filesystem, place.wal.block_device, place.wal.filesystem


def _identify_without_disks(host: HostFacts, _: PreflightFacts | None = None) -> tuple[str | int | None, ...]:
    return (*host.cpu_identity, host.kernel)


def _identity(host: HostFacts, preflight: PreflightFacts | None) -> tuple[str | int | None, ...]:
    disk, wal = host.data_disk, None if preflight is None else preflight.wal
    machine = (*_identify_without_disks(host), disk.block_device, disk.filesystem)
    # Older records have no device of the WAL's file system.
    if wal is None or wal.device in {"", disk.device}:
        return machine
    return (*machine, wal.block_device, wal.filesystem)
