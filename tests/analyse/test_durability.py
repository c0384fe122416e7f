"""What mount options give up of durability, as they were in force or as a variant has them."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import msgspec

from pgdyno.analyse.durability import find_disk_losses, find_standby_losses
from pgdyno.plan.experiment import Experiment, Variant
from pgdyno.record.types import StudyRecord
from pgdyno.spec.study import ServerSpec
from pgdyno.spec.variant import DesignKind
from tests.analyse.test_records_gate import changed
from tests.records import Change
from tests.rows import each_row

OF_DATA = ["barrier of the file system of the data"]


def with_options(options: str, **disk: Any) -> Change:
    """The data's file system mounted with these options."""
    return lambda record: record["host"]["data_disk"].update(mount_options=options, **disk)


def emulated(record: dict[str, Any]) -> None:
    with_options("rw,nobarrier", write_cache="write through")(record)
    record["study"]["host"] = {"emulate": True, "cpus": 1, "memory": "1GB", "disk": {"kind": "local-ssd"}}


def with_wal_disk(record: dict[str, Any]) -> None:
    disk = {**record["host"]["data_disk"], "device": "/dev/vdz", "mount_options": "rw,barrier=0", "path": "/wal/pg"}
    record["preflight"] = {"wal": disk}


def names(record: StudyRecord, variant: Variant | None = None) -> list[str]:
    return [one.setting for one in find_disk_losses(record, variant)]


ROWS: dict[str, tuple[Change, list[str]]] = {
    "barriers as usual": (with_options("rw,relatime"), []),
    "none": (with_options("rw,nobarrier"), OF_DATA),
    "spelt otherwise": (with_options("rw,barrier=0", write_cache="write back"), OF_DATA),
    "a device without a cache to lose": (with_options("rw,nobarrier", write_cache="write through"), []),
    "emulated, for one that may have a cache": (emulated, OF_DATA),
    "of pg_wal": (with_wal_disk, ["barrier of the file system of pg_wal"]),
    "no machine seen": (lambda record: record.update(host=None), []),
}


@each_row(ROWS)
def test_options_in_force(case: str) -> None:
    """A device without a cache that could be lost needs no flushes."""
    change, expected = ROWS[case]
    assert names(changed(study=change).record) == expected


def test_what_a_variant_has_them_remounted_with_wins() -> None:
    on, off = (changed(study=with_options(options)).record for options in ("rw", "rw,nobarrier"))
    assert on.host is not None
    mount = PurePosixPath(on.host.data_disk.path).parent

    def variant(sysctl: dict[str, str]) -> Variant:
        return Variant(name="mine", server=ServerSpec(), changed={}, sysctl=sysctl)

    for name, record, sysctl, expected in (
        ("off", on, {f"mount:{mount}:barrier": "off"}, OF_DATA),
        ("on again", off, {f"mount:{mount}:barrier": "on"}, []),
        ("another option", off, {f"mount:{mount}:commit": "30"}, OF_DATA),
        ("another mount", on, {"mount:/elsewhere:barrier": "off"}, []),
        ("the nearest mount", on, {"mount:/:barrier": "off", f"mount:{mount}:barrier": "on"}, []),
        ("a kernel setting", on, {"vm.swappiness": "1"}, []),
    ):
        assert names(record, variant(sysctl)) == expected, name


def test_a_variant_that_waits_for_no_standby_is_marked_beside_one_that_does() -> None:
    waiting, empty, unset = (
        Variant(name=name, server=ServerSpec(standbys=1, settings=settings))
        for name, settings in (
            ("any", {"synchronous_standby_names": "*"}),
            ("empty", {"synchronous_standby_names": ""}),
            ("unset", {"synchronous_commit": "on"}),
        )
    )
    for variants, standbys, expected in (
        ((waiting, empty), 1, {"any": 0, "empty": 1}),
        ((unset, waiting), 1, {"any": 0, "unset": 1}),
        # Where none waits, none gives up what another has.
        ((unset, empty), 1, {"unset": 0, "empty": 0}),
        ((waiting, empty), 0, {"any": 0, "empty": 0}),
    ):
        record = make_comparison(variants, standbys=standbys)
        found = {one.name: [loss.setting for loss in find_standby_losses(record, one)] for one in variants}
        assert found == {name: ["synchronous_standby_names"] * count for name, count in expected.items()}


def make_comparison(variants: tuple[Variant, ...], *, standbys: int) -> StudyRecord:
    record = changed().record
    experiment = Experiment(
        variants=variants,
        design=DesignKind.PAIRED,
        reason="",
        budget_s=60.0,
        alpha=0.05,
        detect_ratio=0.03,
        slice_s=None,
    )
    server = msgspec.structs.replace(record.study.server, standbys=standbys)
    return msgspec.structs.replace(
        record,
        plan=msgspec.structs.replace(record.plan, experiment=experiment),
        study=msgspec.structs.replace(record.study, server=server),
    )
