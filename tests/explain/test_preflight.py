"""Every rule of the preflight, proven by a machine that breaks it, and silent on one that does not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pgdyno.explain.finding import Finding, Severity
from pgdyno.explain.preflight.rule_input import IntendedLoad, Intent
from pgdyno.explain.preflight.rules import RULES, find_obstacles, should_wait
from pgdyno.explain.preflight.shared_memory import find_crowding, find_idle_pool, find_standby_crowding
from pgdyno.explain.preflight.study import list_obstacles
from pgdyno.flow.check import Check, intent_of
from pgdyno.plan.plan import Machine, plan_study
from pgdyno.record.machine.disk_facts import DiskFacts
from pgdyno.record.machine.preflight import (
    BusyProcess,
    CgroupLimit,
    DiskActivity,
    FurtherDisk,
    LimitKind,
    LoadProgram,
    OtherServer,
    ProcessLimits,
    ServerOrigin,
    ServerSnapshot,
    Timer,
)
from pgdyno.record.types import SettingFact
from pgdyno.report.documents.check import name_kept_severity
from pgdyno.spec.read import make_study
from tests.proc_trees import Scenario, look, read_scenarios, read_tree
from tests.report.build import build_report
from tests.rows import each_row

SCENARIOS = read_scenarios()
QUIET = Scenario(name="quiet")
GB_IN_PAGES = str(1024**3 // 8192)


def words_of(findings: tuple[Finding, ...]) -> str:
    return "\n".join(f"{one.claim} {one.evidence} {one.why} {one.advice}" for one in findings)


def severities(findings: tuple[Finding, ...]) -> dict[str, str]:
    """The worst severity of each rule."""
    return {one.rule: name_kept_severity(one) for one in reversed(findings)}


def test_a_quiet_machine_raises_nothing(tmp_path: Path) -> None:
    host, facts = look(tmp_path, QUIET)
    assert facts.activity is not None
    assert facts.memory is not None
    assert facts.devices
    assert facts.unseen == ()
    found = find_obstacles(host, facts)
    assert found == ()
    assert Check(subject="", host=host, facts=facts, findings=found).exit_code == 0


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_what_spoils(tmp_path: Path, scenario: Scenario) -> None:
    found = find_obstacles(*look(tmp_path, scenario))
    assert severities(found) == scenario.expect
    for words in scenario.says:
        assert words in words_of(found)
    assert all(one.evidence and one.why and one.rule for one in found)
    assert should_wait(found) == ("spoils" in scenario.expect.values())
    assert "geheim" not in repr(found), "arguments of others' commands may be passwords"


def test_scenarios_name_their_source() -> None:
    assert all(scenario.source for scenario in SCENARIOS)
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)


def test_a_captured_machine(tmp_path: Path) -> None:
    tree = read_tree("captured-small-vm")
    found = find_obstacles(*look(tmp_path, QUIET, base="captured-small-vm"))
    assert severities(found) == tree["expect"]


SERVER = ServerSnapshot(
    origin=ServerOrigin.RUNNING,
    major=18,
    data_dir="/srv/pg",
    settings={"shared_buffers": GB_IN_PAGES, "huge_pages": "try", "huge_pages_status": "on", "fsync": "on"},
    is_in_recovery=False,
    active_sessions=0,
    huge_pages_bytes=1024**3,
    has_assertions=False,
)


@pytest.mark.parametrize(
    ("changes", "rule", "severity", "words"),
    [
        ({"settings": {"fsync": "off"}}, "durability", Severity.CRITICAL, "ALTER SYSTEM SET fsync = 'on'"),
        ({"settings": {"synchronous_commit": "off"}}, "durability", Severity.CRITICAL, "synchronous_commit = off"),
        ({"settings": {"full_page_writes": "off"}}, "durability", Severity.CRITICAL, "half-written"),
        ({"settings": {"data_checksums": "off"}}, "given-up", Severity.NOTE, "go unseen"),
        (
            {"settings": {"fsync": "0"}, "origin": ServerOrigin.PLANNED, "data_dir": None},
            "durability",
            Severity.CRITICAL,
            "Leave `--set fsync=...` out",
        ),
        ({"is_in_recovery": True}, "wrong-server", Severity.CRITICAL, "standby"),
        ({"port": 5433}, "wrong-port", Severity.NOTE, "listens at 5433; PGPORT is not set, which means 5432"),
        ({"port": 5432, "client_port": 5433}, "wrong-port", Severity.CRITICAL, "export PGPORT=5432"),
        ({"data_bytes": 2 * 10**9}, "data-against-memory", Severity.NOTE, "1.86 GB of data, 0.12 × 15.3 GB"),
        ({"active_sessions": 2}, "sessions-at-work", Severity.CRITICAL, "2 sessions"),
        ({"has_assertions": True}, "assertions", Severity.CRITICAL, "--enable-cassert"),
        ({"file_errors": ("x.conf, line 3: foo",)}, "configuration-errors", Severity.CRITICAL, "a restart would fail"),
        (
            {"origin": ServerOrigin.FILES, "settings": {}, "file_errors": ("x.conf, line 3: foo",)},
            "configuration-errors",
            Severity.CRITICAL,
            "it does not start. x.conf, line 3: foo",
        ),
        (
            {"settings": {"archive_mode": "on", "archive_command": "/bin/date"}},
            "archives-nothing",
            Severity.NOTE,
            "names no WAL file (%p): /bin/date",
        ),
        ({"settings": {"log_statement": "all"}}, "logging", Severity.WARNING, "log_statement = all"),
        ({"settings": {"log_statement": "ALL"}}, "logging", Severity.WARNING, "log_statement = ALL"),
        ({"settings": {"log_duration": "yes"}}, "logging", Severity.WARNING, "log_duration = yes"),
        ({"settings": {"log_min_duration_sample": "0"}}, "logging", Severity.WARNING, "log_min_duration_sample = 0"),
        ({"settings": {"log_min_duration_statement": "0ms"}}, "logging", Severity.WARNING, "statement = 0ms"),
        ({"settings": {"log_min_duration_statement": "0"}}, "logging", Severity.WARNING, "log_min_duration_statement"),
        (
            {"settings": {"shared_buffers": GB_IN_PAGES, "huge_pages": "try", "huge_pages_status": "off"}},
            "huge-pages",
            Severity.WARNING,
            "huge_pages_status = off",
        ),
        # Before 17 there is no status: what the postmaster has mapped tells.
        (
            {"major": 15, "settings": {"shared_buffers": GB_IN_PAGES}, "huge_pages_bytes": 0},
            "huge-pages",
            Severity.WARNING,
            "got none",
        ),
        (
            {"origin": ServerOrigin.PLANNED, "data_dir": None, "settings": {"shared_buffers": "4GB"}},
            "huge-pages",
            Severity.WARNING,
            "about 2129 of 2 MB needed, 200 free",
        ),
        (
            {
                "origin": ServerOrigin.PLANNED,
                "data_dir": None,
                "settings": {"shared_buffers": "4GB", "shared_memory_size_in_huge_pages": "2117"},
            },
            "huge-pages",
            Severity.WARNING,
            "would get none. 2117 of 2 MB needed, 200 free",
        ),
        (
            {"origin": ServerOrigin.FILES, "settings": {"shared_memory_size_in_huge_pages": "250"}},
            "huge-pages",
            Severity.NOTE,
            "sysctl vm.nr_hugepages=250",
        ),
        # What a start would need, of a machine with 15.3 GB, 1.9 GB of swap and 400 MB of huge pages.
        (
            {"origin": ServerOrigin.PLANNED, "data_dir": None, "settings": {"shared_buffers": "60GB"}},
            "no-start",
            Severity.CRITICAL,
            "about 61.4 GB of shared memory; 15.3 GB of memory and 1.91 GB of swap",
        ),
        (
            {"origin": ServerOrigin.FILES, "huge_pages_bytes": None, "settings": {"shared_buffers": "15GB"}},
            "too-much-shared-memory",
            Severity.CRITICAL,
            "14.9 GB of memory besides 400 MB of huge pages",
        ),
        (
            {
                "origin": ServerOrigin.PLANNED,
                "data_dir": None,
                "settings": {"huge_pages": "on", "shared_memory_size_in_huge_pages": "201"},
            },
            "no-start",
            Severity.CRITICAL,
            "201 of 2 MB needed, 200 free With on",
        ),
        (
            {
                "origin": ServerOrigin.PLANNED,
                "data_dir": None,
                "settings": {"huge_pages": "on", "shared_memory_size_in_huge_pages": "9000"},
            },
            "no-start",
            Severity.CRITICAL,
            "Lower shared_buffers: vm.nr_hugepages=9000 would be 17.6 GB of 15.3 GB",
        ),
        (
            {"waiting": {"shared_buffers": str(60 * 1024**3 // 8192)}},
            "no-start",
            Severity.CRITICAL,
            "would not start again",
        ),
        (
            {"waiting": {"huge_pages": "on", "shared_buffers": str(2 * 1024**3 // 8192)}},
            "no-start",
            Severity.CRITICAL,
            "712 free; waiting for a restart: huge_pages = on, shared_buffers = 262144",
        ),
    ],
)
def test_what_is_wrong_with_a_server(
    tmp_path: Path, changes: dict[str, object], rule: str, severity: Severity, words: str
) -> None:
    found = find_obstacles(*look(tmp_path, QUIET, server=msgspec.structs.replace(SERVER, **changes)))
    assert [(one.rule, one.severity) for one in found] == [(rule, severity)]
    assert words in words_of(found)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"settings": {"huge_pages": "off"}},
        {"port": 5432},
        {"port": 5433, "client_port": 5433},
        {"branches": {"bench": 10}},
        {"settings": {"log_min_duration_statement": "250", "log_statement": "ddl"}},
        {"settings": {"log_min_duration_sample": "0", "log_statement_sample_rate": "0.01", "log_duration": "false"}},
        {"major": 15, "settings": {"shared_buffers": GB_IN_PAGES}},
        {"origin": ServerOrigin.PLANNED, "data_dir": None, "settings": {"shared_buffers": "256MB"}},
        {"settings": {"huge_pages": "on", "shared_memory_size_in_huge_pages": "200"}, "origin": ServerOrigin.PLANNED},
        {
            "settings": {"huge_pages": "on", "shared_memory_size_in_huge_pages": "300"},
            "origin": ServerOrigin.PLANNED,
            "planned_pool": 300,
        },
        # A restart gives its own huge pages back.
        {"waiting": {"huge_pages": "on", "shared_buffers": GB_IN_PAGES}},
        {"settings": {"shared_buffers": "4GB", "huge_page_size": "1GB"}, "origin": ServerOrigin.PLANNED},
    ],
)
def test_a_server_with_nothing_wrong(tmp_path: Path, changes: dict[str, object]) -> None:
    assert find_obstacles(*look(tmp_path, QUIET, server=msgspec.structs.replace(SERVER, **changes))) == ()


@pytest.mark.parametrize(
    ("changes", "idle"),
    [
        (None, "2000 of 2000 huge pages idle: 3.91 GB of 15.3 GB"),
        ({}, "2000 of 2000"),
        ({"huge_pages_bytes": None, "origin": ServerOrigin.FILES, "settings": {"huge_pages": "off"}}, "2000 of 2000"),
        (
            {"huge_pages_bytes": None, "origin": ServerOrigin.FILES, "settings": {"shared_buffers": "1GB"}},
            "1452 of 2000",
        ),
        ({"huge_pages_bytes": None, "origin": ServerOrigin.FILES, "settings": {"shared_buffers": "3600MB"}}, ""),
    ],
)
def test_huge_pages_that_nobody_uses(tmp_path: Path, changes: dict[str, object] | None, idle: str) -> None:
    server = None if changes is None else msgspec.structs.replace(SERVER, **changes)
    host, facts = look(tmp_path, QUIET, server=server)
    assert facts.memory is not None
    memory = msgspec.structs.replace(facts.memory, huge_pages_total=2000, huge_pages_free=2000)
    found = find_obstacles(host, msgspec.structs.replace(facts, memory=memory))
    assert [one.rule for one in found] == ["idle-huge-pages"] * bool(idle)
    assert idle in words_of(found)


@pytest.mark.parametrize(
    ("pool", "standbys", "settings", "idle"),
    [
        # Of a published case: shared_buffers = 4GB takes 2,107 of the 3,000.
        (3000, 0, {"huge_pages": "on"}, "893 of 3000 huge pages idle: 1.74 GB of 15.3 GB"),
        (2150, 0, {"huge_pages": "on"}, ""),
        (4300, 1, {"huge_pages": "on"}, ""),
        (3000, 0, {"huge_pages": "off"}, "3000 of 3000"),
        # What the machine has now is not what the trials have.
        (0, 0, {"huge_pages": "off"}, ""),
        (None, 0, {"huge_pages": "off"}, ""),
    ],
)
def test_huge_pages_that_a_study_makes_for_nobody(
    tmp_path: Path, pool: int | None, standbys: int, settings: dict[str, str], idle: str
) -> None:
    host, facts = look(tmp_path, QUIET, server=SERVER)
    assert facts.memory is not None
    memory = msgspec.structs.replace(facts.memory, huge_pages_total=2000, huge_pages_free=2000)
    counted = {"shared_memory_size_in_huge_pages": "2107", **settings}
    server = msgspec.structs.replace(
        SERVER, origin=ServerOrigin.PLANNED, huge_pages_bytes=None, settings=counted, planned_pool=pool
    )
    found = find_idle_pool(server, memory, host, standbys=standbys)
    assert (found is not None) == bool(idle)
    if found is not None:
        assert idle in found.evidence
        assert found.advice == f"vm.nr_hugepages = {2107 if settings['huge_pages'] == 'on' else 0} is enough."


def test_too_much_shared_memory_also_without_huge_pages_of_the_default_size(tmp_path: Path) -> None:
    large = {"shared_buffers": "60GB"}
    host, facts = look(tmp_path, QUIET, server=SERVER)
    assert facts.memory is not None
    for settings, page_bytes in ((large, 0), ({**large, "huge_page_size": "1GB"}, 2 * 1024**2)):
        server = msgspec.structs.replace(SERVER, origin=ServerOrigin.PLANNED, settings=settings)
        memory = msgspec.structs.replace(facts.memory, huge_page_bytes=page_bytes)
        (found,) = find_obstacles(host, msgspec.structs.replace(facts, memory=memory, server=server))
        assert (found.rule, "refuses that much shared memory" in found.claim) == ("no-start", True)
        half = msgspec.structs.replace(server, settings={**settings, "shared_buffers": "10GB"})
        assert find_crowding([half], memory, host) is None
        crowding = find_crowding([half, half], memory, host)
        assert crowding is not None
        assert crowding.rule == "too-much-shared-memory"
        assert find_standby_crowding(half, memory, host, standbys=0) is None
        beside = find_standby_crowding(half, memory, host, standbys=1)
        assert beside is not None
        assert "its standbys" in beside.claim


def test_a_kernel_that_promises_no_more_than_it_has(tmp_path: Path) -> None:
    server = msgspec.structs.replace(SERVER, origin=ServerOrigin.PLANNED, settings={"shared_buffers": "12GB"})
    host, facts = look(tmp_path, QUIET, server=server)
    assert facts.memory is not None
    strict = msgspec.structs.replace(
        facts.memory, overcommit_memory=2, commit_limit_bytes=10 * 1024**3, committed_bytes=2 * 1024**3
    )
    (found,) = find_obstacles(host, msgspec.structs.replace(facts, memory=strict))
    assert (found.rule, "8 GB below CommitLimit" in found.evidence) == ("no-start", True)
    generous = msgspec.structs.replace(facts.memory, overcommit_memory=1)
    huge = msgspec.structs.replace(server, settings={"shared_buffers": "60GB"})
    (found,) = find_obstacles(host, msgspec.structs.replace(facts, memory=generous, server=huge))
    assert found.rule == "too-much-shared-memory"


@pytest.mark.parametrize(
    ("ratio", "advice"),
    [
        ("50", "`sysctl vm.overcommit_ratio=90`, or more swap."),
        ("97", "More swap."),
        ("0", "More swap, or a larger vm.overcommit_kbytes."),
        (None, "More swap, or a larger vm.overcommit_ratio."),
    ],
)
def test_no_limit_is_raised_by_a_lower_ratio(tmp_path: Path, ratio: str | None, advice: str) -> None:
    host, facts = look(tmp_path, next(one for one in SCENARIOS if "overcommit" in one.expect))
    settings = {} if ratio is None else {"vm.overcommit_ratio": ratio}
    found = find_obstacles(msgspec.structs.replace(host, kernel_settings=settings), facts)
    assert [one.advice for one in found if one.rule == "overcommit"] == [advice]


def test_swap_is_not_advised_against_what_tune_derives(tmp_path: Path) -> None:
    (found,) = find_obstacles(*look(tmp_path, next(one for one in SCENARIOS if one.name == "swapping")))
    assert "vm.swappiness=1" not in found.advice
    assert "`pgdyno tune` derives vm.swappiness" in found.advice


@pytest.mark.parametrize("kind", LimitKind)
def test_a_limit_is_raised_by_what_can_raise_it(tmp_path: Path, kind: LimitKind) -> None:
    host, facts = look(tmp_path, QUIET)
    (device, *_) = facts.devices
    is_of_disk = kind.name.startswith(("READ", "WRITE"))
    limit = CgroupLimit(kind=kind, group="/box", value=1.0, device=device.name if is_of_disk else None)
    (found,) = find_obstacles(host, msgspec.structs.replace(facts, limits=(limit,)))
    assert "`systemctl set-property UNIT " in found.advice
    # Source: docker-update(1).
    assert ("docker update" in found.advice) is (kind in {LimitKind.CPU, LimitKind.MEMORY, LimitKind.TASKS})
    assert ("start the container again with another `--device-" in found.advice) is is_of_disk
    assert "memory-reservation" not in found.advice
    # Below ZFS nobody knows the devices.
    disk = msgspec.structs.replace(host.data_disk, filesystem="zfs", device="tank/data", block_device=None)
    pooled = msgspec.structs.replace(facts, limits=(limit,), devices=(), wal=disk, wal_devices=())
    (found,) = find_obstacles(msgspec.structs.replace(host, data_disk=disk), pooled)
    assert (found.severity is Severity.NOTE) is is_of_disk
    assert ("which may be a disk of data or WAL, or not" in found.claim) is is_of_disk
    # The same where only the WAL's are unknown; memory has none.
    limit = msgspec.structs.replace(limit, device="sdz" if is_of_disk else None)
    for filesystem, is_told in (("zfs", True), ("tmpfs", not is_of_disk)):
        wal = msgspec.structs.replace(disk, filesystem=filesystem)
        pooled = msgspec.structs.replace(facts, limits=(limit,), wal=wal, wal_devices=())
        told = [one for one in find_obstacles(host, pooled) if one.rule == "cgroup-limit"]
        assert [one.severity is Severity.NOTE for one in told] == [is_of_disk] * is_told


def test_an_array_may_be_one_of_a_disk_whose_devices_are_unknown(tmp_path: Path) -> None:
    name = "RAID check of disks that hold neither data nor WAL"
    host, facts = look(tmp_path, next(one for one in SCENARIOS if one.name == name))
    zfs = msgspec.structs.replace(host.data_disk, filesystem="zfs", device="tank/wal", block_device=None)
    found = find_obstacles(host, msgspec.structs.replace(facts, wal=zfs, wal_devices=()))
    (sync,) = [one for one in found if one.rule == "raid-sync"]
    assert sync.severity is Severity.CRITICAL
    assert sync.claim == "A RAID array is working on itself: md0, which may hold data or WAL, or not."
    assert "trials on them are slower" in sync.why


def _find_huge_pages(folder: Path, **sizes: str) -> list[Finding]:
    """What a study says of huge pages, whose variants have shared_buffers of these sizes; without one, a study of one server."""
    report = build_report(names=("tpcb-like",))
    (workload,) = report.analysis.workloads
    host, facts = look(folder, QUIET)
    assert facts.memory is not None
    memory = msgspec.structs.replace(facts.memory, huge_page_bytes=2 * 1024**2, huge_pages_total=0, huge_pages_free=0)
    preflight = msgspec.structs.replace(facts, memory=memory)
    trials = []
    for (name, size), trial in zip(sizes.items(), workload.trials, strict=False):
        planned = msgspec.structs.replace(trial.record.planned, variants=() if name == "none" else (name,))
        values = {"shared_buffers": size, "huge_pages_status": "off"}
        settings = tuple(
            SettingFact(name=key, value=value, unit=None, boot_value=None, source="") for key, value in values.items()
        )
        own = msgspec.structs.replace(trial.record, planned=planned, settings=settings)
        trials.append(msgspec.structs.replace(trial, record=own))
    workloads = (msgspec.structs.replace(workload, trials=tuple(trials)),)
    found = list_obstacles(
        msgspec.structs.replace(report.record, preflight=preflight, host=host),
        msgspec.structs.replace(report.analysis, workloads=workloads),
    )
    return [one for one in found if one.rule == "huge-pages"]


def test_missing_huge_pages_of_a_study_are_those_of_a_variants_own_server(tmp_path: Path) -> None:
    (found,) = _find_huge_pages(tmp_path / "1", stock="128MB", derived="1536MB")
    assert found.claim == "huge_pages = try, and the server of variant derived got none."
    assert found.severity is Severity.WARNING
    assert "restart" not in found.advice
    assert found.advice.endswith("then measure again: pgdyno starts its servers anew.")
    (alone,) = _find_huge_pages(tmp_path / "2", none="2GB")
    assert alone.claim == "huge_pages = try, and the server got none."
    (both,) = _find_huge_pages(tmp_path / "3", one="2GB", other="4GB")
    assert both.claim == "huge_pages = try, and the servers got none."
    assert int(re.findall(r"vm.nr_hugepages=(\d+)", both.advice)[0]) > 2048


def test_wal_of_somebodys_server_on_the_data_disk(tmp_path: Path) -> None:
    shared = next(one for one in SCENARIOS if one.name == "WAL on the disk of the data")
    (found,) = find_obstacles(*look(tmp_path, shared, server=SERVER))
    assert found.severity is Severity.WARNING
    assert "ln -sfn /OTHER/DISK/pg_wal /srv/pg/pg_wal`" in found.advice


def test_wal_of_somebodys_server_in_memory_is_moved_from_where_it_lies(tmp_path: Path) -> None:
    in_memory = next(one for one in SCENARIOS if one.name == "WAL in memory")
    host, facts = look(tmp_path, in_memory, server=SERVER)
    (found,) = find_obstacles(host, facts)
    assert found.advice == (
        f"Stop the server, then `mv {tmp_path}/wal /OTHER/DISK/pg_wal && ln -sfn /OTHER/DISK/pg_wal /srv/pg/pg_wal`."
    )


def test_wal_as_records_noted_it_before_its_mount_options(tmp_path: Path) -> None:
    host, facts = look(tmp_path, QUIET)
    text = {"path": "/w", "filesystem": "ext4", "block_device": "nvme1n1", "size_bytes": 10**12, "free_bytes": 10**9}
    old = msgspec.structs.replace(facts, wal=msgspec.convert(text, DiskFacts), wal_devices=())
    assert [one.claim.split(" is ")[0] for one in find_obstacles(host, old)] == ["The disk of the WAL"]
    with_data = {**text, "filesystem": host.data_disk.filesystem, "size_bytes": host.data_disk.size_bytes}
    assert find_obstacles(host, msgspec.structs.replace(old, wal=msgspec.convert(with_data, DiskFacts))) == ()


def test_a_variants_own_disk_is_judged_like_that_of_the_reference_and_named(tmp_path: Path) -> None:
    host, facts = look(tmp_path, QUIET)
    device = msgspec.structs.replace(
        facts.devices[0], name="sdz", kind="loop", scheduler="bfq", schedulers=("bfq", "none"), read_ahead_kb=8
    )
    disk = msgspec.structs.replace(
        host.data_disk,
        path="/mnt/fast",
        device="/dev/sdz",
        mount_options="rw,nobarrier",
        free_bytes=1,
        filesystem="xfs",
    )
    busy = DiskActivity(device="sdz", busy_ratio=1.0, read_bytes_per_s=1e8, written_bytes_per_s=0.0)
    assert facts.activity is not None
    facts = msgspec.structs.replace(facts, activity=msgspec.structs.replace(facts.activity, disks=(busy,)))
    assert find_obstacles(host, facts) == (), "the disk is nobody's"
    further = FurtherDisk(
        variants=("fast", "xfs"), content="data", disk=disk, devices=(device, *facts.devices), inodes_free_ratio=0.01
    )
    found = find_obstacles(host, msgspec.structs.replace(facts, further=(further,)))
    rules = {"disk-busy", "disk-full", "mount-options", "io-scheduler", "loop-device", "read-ahead"}
    assert {one.rule for one in found} == rules
    named = [one.claim for one in found if "of variants fast, xfs" in one.claim]
    assert {one.claim for one in found if one.rule in rules - {"disk-busy", "io-scheduler", "read-ahead"}} == set(named)
    unflushed = msgspec.structs.replace(further, disk=msgspec.structs.replace(disk, write_cache="write through"))
    without = find_obstacles(host, msgspec.structs.replace(facts, further=(unflushed,)))
    for judged, is_critical in ((found, True), (without, False)):
        assert any("does not flush the disk's cache" in one.claim for one in judged) is is_critical
    # btrfs refuses a value.
    assert any(one.advice.startswith("`mount -o remount,barrier $(") for one in found)
    (full,) = [one for one in found if one.severity is Severity.CRITICAL and one.rule == "disk-full"]
    assert re.fullmatch(r"\S+ \S+ free, \d % of \S+ \S+", full.evidence)
    assert full.advice.endswith("Give the data of variants fast, xfs another folder, by home of the variant.")


def test_a_slow_clock(tmp_path: Path) -> None:
    host, facts = look(tmp_path, QUIET)
    assert facts.clock is not None

    def found(read_ns: float, steal_ratio: float) -> list[str]:
        clock = msgspec.structs.replace(facts.clock, read_ns=read_ns, steal_ratio=steal_ratio)
        return [one.rule for one in find_obstacles(host, msgspec.structs.replace(facts, clock=clock))]

    assert found(99.0, 0.01) == []
    assert found(101.0, 0.0) == ["clock-read"]
    kept = msgspec.structs.replace(facts.clock, read_ns=101.0, is_read_ns_kept=True)
    (slow,) = find_obstacles(host, msgspec.structs.replace(facts, clock=kept))
    assert "measured by an earlier command" in slow.evidence
    stolen = msgspec.structs.replace(facts.clock, steal_ratio=0.02)
    (steal,) = find_obstacles(host, msgspec.structs.replace(facts, clock=stolen))
    assert "`pgdyno bench` and `pgdyno compare`" in steal.advice, "bench alternates too"
    power = msgspec.structs.replace(host, clock_source="timebase", architecture="ppc64le")
    for read_ns, rules in ((24.0, []), (101.0, ["clock-read"]), (None, [])):
        timed = msgspec.structs.replace(facts.clock, source="timebase", read_ns=read_ns)
        obstacles = find_obstacles(power, msgspec.structs.replace(facts, clock=timed))
        assert [one.rule for one in obstacles] == rules, read_ns
    assert found(40.0, 0.02) == ["steal"], "an idle machine shows none: it is seen while a whole CPU is asked for"


def test_steal_while_no_clock_is_timed(tmp_path: Path) -> None:
    host, facts = look(tmp_path, QUIET)
    assert facts.clock is not None
    assert facts.activity is not None
    assert facts.clock.steal_ratio is None

    def found(stolen_ticks: int) -> list[str]:
        activity = msgspec.structs.replace(facts.activity, window_s=0.4, cpu_count=2, steal_ratio=stolen_ticks / 80)
        return [one.rule for one in find_obstacles(host, msgspec.structs.replace(facts, activity=activity))]

    assert found(1) == [], "which is 1.2 % of a look as short as that"
    assert found(2) == ["steal"]


def test_little_room(tmp_path: Path) -> None:
    host, facts = look(tmp_path, QUIET)

    def found(used_ratio: float, inodes_ratio: float | None = None) -> list[tuple[str, Severity]]:
        free_bytes = int(host.data_disk.size_bytes * (1 - used_ratio))
        disk = msgspec.structs.replace(host.data_disk, free_bytes=free_bytes)
        full = msgspec.structs.replace(host, data_disk=disk)
        there = msgspec.structs.replace(facts, inodes_free_ratio=inodes_ratio)
        return [(one.rule, one.severity) for one in find_obstacles(full, there)]

    assert found(0.89) == []
    assert found(0.92) == [("disk-full", Severity.WARNING)]
    assert found(0.99) == [("disk-full", Severity.CRITICAL)]
    assert found(0.5, 0.01) == [("disk-full", Severity.WARNING)]
    assert facts.wal is not None
    wal = msgspec.structs.replace(facts.wal, free_bytes=facts.wal.size_bytes // 100)
    (of_wal,) = find_obstacles(host, msgspec.structs.replace(facts, wal=wal))
    assert "disk of the WAL" in of_wal.claim


def test_what_a_load_asks_for(tmp_path: Path) -> None:
    host, facts = look(tmp_path, QUIET)

    def found(**changes: object) -> list[str]:
        load = IntendedLoad(name="tpcb-like", clients=16, scale=16, is_writing_branches=True)
        intent = Intent(horizon_s=60.0, loads=(msgspec.structs.replace(load, **changes),))
        return [one.rule for one in find_obstacles(host, facts, intent=intent)]

    assert found() == []
    assert found(scale=15) == ["scale-below-clients"]
    assert found(scale=1, is_writing_branches=False) == []
    assert found(clients=1000, scale=1000) == ["process-limits"]


def test_loads_that_are_up_at_once_need_processes_for_all_of_them_and_files_each_for_itself(tmp_path: Path) -> None:
    host, facts = look(tmp_path, QUIET)
    tasks = CgroupLimit(kind=LimitKind.TASKS, group="/pod", value=1000.0)
    limited = ProcessLimits(open_files=300, processes=1000)
    facts = msgspec.structs.replace(facts, process_limits=limited, limits=(tasks,))
    machine = Machine(cpu_count=4, memory_bytes=64 << 30, disk_free_bytes=1 << 40, version_major=18)

    def found(design: str, *variants: dict[str, Any]) -> list[str]:
        raw = {
            "data": {"scale": 10},
            "workload": [{"name": "select-only", "clients": 200}],
            "server": {"settings": {"max_connections": 300}},
            "variant": variants,
            "experiment": {"design": design, "minutes": 60},
        }
        plan = plan_study(make_study(raw, source="a test", folder=tmp_path), machine)
        obstacles = find_obstacles(host, facts, intent=intent_of(plan))
        return [one.evidence for one in obstacles if one.rule in {"process-limits", "cgroup-limit"}]

    settings = [{"settings": {"shared_buffers": value}} for value in ("64MB", "128MB")]
    assert found("live", *settings) == [
        "1000, needed are about 1300 with 600 clients",
        "1000 processes and threads, set on /pod",
    ]
    assert found("paired", *settings) == []
    # Loads that take turns are connected one at a time.
    assert found("live", {"clients": 100}, {"clients": 200}) == []


def test_data_of_another_scale_than_the_one_meant(tmp_path: Path) -> None:
    host, facts = look(tmp_path, QUIET, server=msgspec.structs.replace(SERVER, branches={"bench": 10, "old": 100}))

    def found(scale: int | None) -> list[Finding]:
        load = IntendedLoad(name="tpcb-like", clients=1, scale=scale, is_writing_branches=True)
        return list(find_obstacles(host, facts, intent=Intent(horizon_s=60.0, loads=(load,))))

    assert [found(scale) for scale in (None, 10, 101)] == [[], [], []]
    (only,) = found(12)
    assert (only.rule, only.severity) == ("wrong-database", Severity.CRITICAL)
    assert only.evidence == "Scale 12 is asked for; pgbench_branches has 10 rows in bench, 100 rows in old"


@pytest.mark.parametrize(
    ("ratio", "words"), [(0.1, "fit into memory"), (0.8, "as large as memory"), (1.2, "as large"), (4.0, "larger than")]
)
def test_how_large_the_data_are_against_memory(tmp_path: Path, ratio: float, words: str) -> None:
    host, facts = look(tmp_path, QUIET)
    intent = Intent(horizon_s=60.0, dataset_bytes=round(ratio * host.usable_memory_bytes))
    (found,) = find_obstacles(host, facts, intent=intent)
    assert (found.rule, found.severity) == ("data-against-memory", Severity.NOTE)
    assert words in found.claim
    assert f"{ratio:.2g} × " in found.evidence


def test_timers_beyond_the_study_are_left_alone(tmp_path: Path) -> None:
    timers = next(one for one in SCENARIOS if one.name == "systemd's timers")
    host, facts = look(tmp_path, timers)
    assert find_obstacles(host, facts, intent=Intent(horizon_s=300.0)) == ()
    assert "fstrim" not in words_of(find_obstacles(host, facts, intent=Intent(horizon_s=900.0)))


def test_a_job_is_judged_by_its_own_name(tmp_path: Path) -> None:
    host, facts = look(tmp_path, QUIET)

    def judge(job: str) -> list[Severity]:
        timers = (Timer(name="/etc/crontab, line 3", job=job, due_s=60.0),)
        found = find_obstacles(host, msgspec.structs.replace(facts, timers=timers), intent=Intent(horizon_s=900.0))
        return [one.severity for one in found]

    for light in ("logrotate", "logrotate, ntpsec", "dpkg"):
        assert judge(light) == [], light
    for unknown in ("capture-stats", "irqbalance-report", "rapport-refresh", "logrotate, warehouse-refresh"):
        assert judge(unknown) == [Severity.NOTE], unknown
    heavy = "apt-daily.service btrfs-balance.service plocate e2scrub_all pg_dumpall mdcheck_start.service raid-check.service"
    packaged = "apticron mdraid-check raidcheck checkarray slocate btrfsbalance.timer"
    for name in (
        *heavy.split(),
        *packaged.split(),
        "logrotate, apt-compat",
        "dnf-makecache.service",
        "clamscan",
        "freshclam",
        "mysqldump",
    ):
        assert judge(name) == [Severity.CRITICAL], name


@pytest.mark.parametrize(
    ("files", "what"),
    [
        (
            {"proc/2/stat": "2 (sleep) S 1 0 0 0 -1 0 0 0 0 0 0 5 0 0 20 0 1 0 5 0 0"},
            "processes and timers of the host",
        ),
        (
            {"proc/self/mountinfo": "30 21 0:40 / / rw,noatime shared:9 - zfs tank/data rw,xattr,posixacl"},
            "what other programs do on the disk of @DATA@, and which limits it has",
        ),
        (
            {
                "proc/self/mountinfo": "22 21 0:20 / /proc rw,hidepid=invisible - proc proc rw,hidepid=invisible\n"
                "30 21 259:1 / @DATA@ rw - xfs /dev/nvme0n1p1 rw\n31 21 259:3 / @WAL@ rw - xfs /dev/nvme1n1 rw"
            },
            "processes of other accounts",
        ),
    ],
)
def test_who_cannot_be_seen_is_said(tmp_path: Path, files: dict[str, str], what: str) -> None:
    _, facts = look(tmp_path, Scenario(name="hidden", files=files))
    assert [one.what for one in facts.unseen] == [what.replace("@DATA@", str(tmp_path / "data"))]


def test_a_held_home(tmp_path: Path) -> None:
    host, facts = look(tmp_path, QUIET)
    held = msgspec.structs.replace(facts, home_holder_pid=77)
    assert [one.evidence for one in find_obstacles(host, held)] == ["pid 77 holds its lock"]
    # Named once.
    both = msgspec.structs.replace(held, load_programs=(LoadProgram(pid=77, name="pgdyno"),))
    assert [one.evidence for one in find_obstacles(host, both)] == ["pgdyno (pid 77)"]


def test_advice_names_who_and_ends_nothing_of_others(tmp_path: Path) -> None:
    host, facts = look(tmp_path, QUIET)
    busiest = tuple(BusyProcess(pid=pid, name="pytest", user="root", cpu_count=1.0) for pid in (26195, 26285))
    assert facts.activity is not None
    activity = msgspec.structs.replace(facts.activity, cpu_count=2, busy_ratio=1.0, busiest=busiest)
    (found,) = find_obstacles(host, msgspec.structs.replace(facts, activity=activity))
    assert found.advice == "Stop pytest of root, or wait until it is done."


@pytest.mark.parametrize(
    ("data_dir", "advice"),
    [
        ("/var/lib/postgresql/15/main", "`systemctl stop postgresql`"),
        ("/var/lib/pgsql/data", "`systemctl stop postgresql`"),
        ("/var/lib/pgsql/16/data", "`systemctl stop postgresql-16`"),
        ("/var/tmp/x/data", "`pg_ctl -D /var/tmp/x/data stop`"),
    ],
)
def test_only_a_packaged_server_is_stopped_by_its_unit(tmp_path: Path, data_dir: str, advice: str) -> None:
    host, facts = look(tmp_path, QUIET)
    servers = (OtherServer(pid=5, data_dir=data_dir, cpu_count=None),)
    (found,) = find_obstacles(host, msgspec.structs.replace(facts, servers=servers))
    assert found.advice == f"Ask whose it is, and stop it for the time of measuring: {advice}."


@pytest.mark.parametrize(("busiest", "named"), [("/c", "/c"), (None, "THEIR_DATA_DIRECTORY")])
def test_of_other_servers_the_busiest_is_named_first(tmp_path: Path, busiest: str | None, named: str) -> None:
    host, facts = look(tmp_path, QUIET)
    loads = {"/a": None, "/b": 0.2, busiest: 1.14}
    servers = tuple(OtherServer(pid=5, data_dir=path, cpu_count=cpus) for path, cpus in loads.items())
    (found,) = find_obstacles(host, msgspec.structs.replace(facts, servers=servers))
    assert (
        found.advice == f"Ask whose they are, and stop them for the time of measuring: `pg_ctl -D {named} stop` first."
    )
    assert found.evidence.endswith("1.14 CPUs, pid 5 in /b, 0.20 CPUs, pid 5 in /a")


def test_a_record_of_before_there_was_a_preflight(tmp_path: Path) -> None:
    host, _ = look(tmp_path, QUIET)
    old = msgspec.structs.replace(
        host, cpu_limit=0.5, memory_limit_bytes=4, governor="powersave", cpu_busy_before_ratio=0.5
    )
    assert {one.rule for one in find_obstacles(old)} == {"busy-machine", "cgroup-limit", "governor"}


def is_proven(rule: str) -> bool:
    """Whether a scenario or a test above breaks it."""
    in_scenarios = any(rule in scenario.expect for scenario in SCENARIOS)
    return in_scenarios or f'"{rule}"' in Path(__file__).read_text(encoding="utf-8")


def test_every_rule_is_broken_somewhere() -> None:
    package = Path(__file__).parents[2] / "src/pgdyno/explain"
    named = {
        part.split('"', 1)[0]
        for file in package.glob("preflight_*.py")
        for part in file.read_text(encoding="utf-8").split('rule="')[1:]
    }
    assert {rule for rule in named if not is_proven(rule)} == set()
    assert len(RULES) == len(set(RULES))


ROWS = read_tree("rows")["row"]


@each_row(ROWS)
def test_every_row_of_what_one_must_be_warned_of_has_its_rules(row: dict[str, Any]) -> None:
    if "proven" in row:
        assert row["because"]
        assert row["by"] in (Path(__file__).parents[2] / row["proven"]).read_text(encoding="utf-8")
    else:
        assert row["rules"]
        assert [rule for rule in row["rules"] if not is_proven(rule)] == []
