"""Commands that repeat a question: pasted, they ask it of the same disks, server, data and caches."""

from __future__ import annotations

import shlex

import msgspec
import pytest
import typer

from pgdyno.cli.commands import PlainGroup
from pgdyno.cli.main import app
from pgdyno.explain.commands import (
    Command,
    MeasuredLoad,
    is_confirmable,
    write_command,
    write_comparison,
    write_disk,
)
from pgdyno.plan.experiment import Variant
from pgdyno.plan.places import Place
from pgdyno.record.types import PlaceFacts, StudyRecord
from pgdyno.spec.host import HostSpec
from pgdyno.spec.hosts import HostEntry, HostRole
from pgdyno.spec.initdb import InitdbChoices
from pgdyno.spec.study import DataSpec, RestorePolicy, ServerKind, ServerSpec
from pgdyno.spec.table import CacheState
from tests.given import SERVER
from tests.report.build_comparison import build_paired


def put_apart(data: DataSpec, **changes: object) -> MeasuredLoad:
    """A variant with a server, disks, a cluster and caches of its own."""
    record = build_paired().record
    experiment = record.plan.experiment
    assert experiment is not None
    assert record.host is not None
    reference, other, *_ = experiment.variants
    server = ServerSpec(
        kind=ServerKind.LOCAL, bindir="/opt/pg/bin", settings={"work_mem": "8MB", "search_path": "a b"}, standbys=2
    )
    variant = msgspec.structs.replace(
        other, server=server, home="/mnt/fast", cache=CacheState.COLD, initdb=InitdbChoices(checksums=False), **changes
    )
    disk = record.host.data_disk
    there = msgspec.structs.replace(disk, path="/mnt/fast")
    record = msgspec.structs.replace(
        record,
        plan=msgspec.structs.replace(record.plan, experiment=replace_variants(record, reference, variant)),
        study=msgspec.structs.replace(record.study, data=data),
        places=(
            PlaceFacts(place=Place(None, data.wal_home), data_disk=disk, wal=disk),
            PlaceFacts(place=Place("/mnt/fast", data.wal_home), data_disk=there, wal=there),
        ),
    )
    load = next(one for one in record.plan.workloads if len(one.scripts) == 1)
    return MeasuredLoad(record=record, load=load, variant=variant)


def replace_variants(record: StudyRecord, *variants: Variant) -> object:
    assert record.plan.experiment is not None
    return msgspec.structs.replace(record.plan.experiment, variants=variants)


def parse(text: str) -> dict[str, object]:
    """The options of a command line, by pgdyno's own parser; it refuses those that a command does not have."""
    program, verb, *words = shlex.split(text)
    assert program == "pgdyno"
    group = typer.main.get_command(app)
    assert isinstance(group, PlainGroup)
    return group.commands[verb].make_context(verb, words).params


@pytest.mark.parametrize("command", [Command.COMPARE, Command.SWEEP])
def test_a_command_says_all_that_its_load_had(command: Command) -> None:
    data = DataSpec(wal_home="/mnt/wal", restore=RestorePolicy.NONE)
    asked = put_apart(data, sysctl={"vm.dirty_bytes": "1000000"})
    if command is Command.COMPARE:
        said = parse(write_comparison(asked, "commit_delay", (0, 50)))
        kept = "work_mem=8MB search_path='a b'"
        assert said["settings"] == [f"commit_delay=0 {kept}", f"commit_delay=50 {kept}"]
    else:
        said = parse(write_command(asked, command, "clients=1..64", without=("clients", "threads")))
        assert said["settings"] == ["work_mem=8MB", "search_path=a b"], "each --set of a sweep has one value, unquoted"
        assert said["clients"] is None
    single = {name: value[0] if isinstance(value, list) else value for name, value in said.items() if value}
    assert single["standbys"] == 2
    place = {name: str(single[name]) for name in ("home", "wal_home", "restore")}
    assert place == {"home": "/mnt/fast", "wal_home": "/mnt/wal", "restore": "none"}
    assert {name: single[name] for name in ("initdb", "cache", "sysctl", "workload")} == {
        "initdb": "checksums=off",
        "cache": "cold",
        "sysctl": "vm.dirty_bytes=1000000",
        "workload": asked.load.name,
    }
    bindir = single["server"] if command is Command.COMPARE else single["pg_bindir"]
    assert str(bindir) == "/opt/pg/bin"
    assert int(str(single["scale"])) == asked.scale
    assert write_disk(asked.record, asked.variant) == "pgdyno disk /mnt/fast"
    assert write_disk(asked.record, asked.variant, is_of_wal=True) == "pgdyno disk /mnt/wal"


def test_the_usual_is_not_said() -> None:
    asked = put_apart(DataSpec())
    assert asked.record.host is not None
    disk = msgspec.structs.replace(asked.record.host.data_disk, path="/var/lib/pgdyno")
    record = msgspec.structs.replace(
        asked.record, host=msgspec.structs.replace(asked.record.host, data_disk=disk), places=()
    )
    plain = MeasuredLoad(record=record, load=asked.load)
    said = parse(write_command(plain, Command.BENCH, "--layers"))
    assert said["layers"]
    assert {
        name for name in ("home", "wal_home", "restore", "restore_command", "cache") if said[name] is not None
    } == set()
    assert write_disk(record) == "pgdyno disk"


def test_what_no_option_says_has_no_command() -> None:
    assert write_command(put_apart(DataSpec(fillfactor=80)), Command.COMPARE) == ""
    assert write_command(put_apart(DataSpec()), Command.BENCH) == "", "no option of bench turns checksums off"
    asked = put_apart(DataSpec())
    study = msgspec.structs.replace(asked.record.study, host=HostSpec(emulate=True))
    emulated = msgspec.structs.replace(asked.record, study=study)
    assert write_command(msgspec.structs.replace(asked, record=emulated), Command.SWEEP) == ""
    for changes in ({"max_tries": 3}, {"rate_tps": 500.0, "latency_limit_ms": 20.0}):
        load = msgspec.structs.replace(asked.load, **changes)
        for command in (Command.COMPARE, Command.SWEEP):
            assert write_command(msgspec.structs.replace(asked, load=load), command) == "", changes


@pytest.mark.parametrize("command", list(Command))
def test_a_load_at_a_rate_is_asked_about_at_that_rate(command: Command) -> None:
    record = put_apart(DataSpec()).record
    load = msgspec.structs.replace(record.plan.workloads[0], rate_tps=512.5)
    asked = MeasuredLoad(record=record, load=load)
    said = parse(write_command(asked, command, *(["clients=1,8"] if command is Command.SWEEP else [])))
    assert said["rate"] == 512.5
    # Without a rate, a limit only counts.
    limited = msgspec.structs.replace(asked, load=msgspec.structs.replace(load, latency_limit_ms=20.0))
    assert "--rate" not in write_command(limited, command, without=("rate",)) != ""
    if command is Command.BENCH:
        assert parse(write_command(limited, command))["latency_limit"] == "20ms"


def test_a_load_between_machines_is_repeated_between_them() -> None:
    asked = put_apart(DataSpec())
    hosts = {
        "db": HostEntry(role=HostRole.SERVER, ssh="me@db1"),
        "load": HostEntry(role=HostRole.LOAD, ssh="load1"),
    }

    def write(load: HostEntry) -> str:
        server = msgspec.structs.replace(asked.record.study.server, address="10.0.0.5")
        study = msgspec.structs.replace(asked.record.study, hosts={**hosts, "load": load}, server=server)
        record = msgspec.structs.replace(asked.record, study=study)
        own = MeasuredLoad(record=record, load=asked.load, variant=asked.variant)
        return write_comparison(own, "work_mem", ["1MB", "8MB"])

    options = parse(write(hosts["load"]))
    assert options["server_host"] == "me@db1"
    assert options["load_host"] == ["load1"]
    assert options["server_address"] == "10.0.0.5"
    assert write(msgspec.structs.replace(hosts["load"], pgbench="/opt/pgbench")) == ""


@pytest.mark.parametrize(
    ("typed", "prefix"),
    [
        (("on", "db1", "bench"), ["on", "db1"]),
        (("bench", "--server-host", "db1"), ["on", "db1"]),
        (("compare", "--server-host=db1", "--quick"), ["on", "db1"]),
        (("bench", "--quick"), []),
        ((), []),
    ],
)
def test_a_command_goes_to_the_machine_that_the_study_ran_on(typed: tuple[str, ...], prefix: list[str]) -> None:
    asked = put_apart(DataSpec())
    asked = msgspec.structs.replace(asked, record=msgspec.structs.replace(asked.record, command=("pgdyno", *typed)))
    for said in (write_command(asked, Command.SWEEP, "clients=1..64"), write_disk(asked.record)):
        assert shlex.split(said)[1 : 1 + len(prefix) + 1] == [*prefix, "sweep" if "sweep" in said else "disk"]


def test_a_given_server_is_asked_again_from_the_machine_that_reached_it() -> None:
    record = build_paired().record
    load = msgspec.structs.replace(next(one for one in record.plan.workloads if len(one.scripts) == 1), clients=8)
    server = ServerSpec(kind=ServerKind.GIVEN, dsn="service=bench", settings={"work_mem": "8MB"})
    record = msgspec.structs.replace(record, given=SERVER, study=msgspec.structs.replace(record.study, server=server))
    for typed, is_from_here in (
        (("bench", "--dsn", "service=bench", "--server-host", "db1"), True),
        (("on", "db1", "bench"), False),
    ):
        asked = MeasuredLoad(record=msgspec.structs.replace(record, command=("pgdyno", *typed)), load=load)
        said = write_comparison(asked, "synchronous_commit", ("on", "off"))
        assert is_confirmable(asked.record) is is_from_here
        assert bool(said) is not is_from_here
    words = shlex.split(said)
    assert words[:3] == ["pgdyno", "on", "db1"]
    params = parse(shlex.join(["pgdyno", *words[3:]]))
    assert params["dsn"] == "service=bench"
    assert params["settings"] == ["synchronous_commit=on work_mem=8MB", "synchronous_commit=off work_mem=8MB"]
    # What only --apply-with sets cannot be said.
    changed = msgspec.structs.replace(server, apply="./apply.sh")
    study = msgspec.structs.replace(record.study, server=changed)
    unsaid = MeasuredLoad(record=msgspec.structs.replace(asked.record, study=study), load=load)
    assert write_comparison(unsaid, "synchronous_commit", ("on", "off")) == ""
