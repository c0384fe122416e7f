"""Which huge pages give way where the kernel cannot make them: derived ones, unless the study needs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from pgdyno.conduct.short_pool import give_way, is_derived
from pgdyno.conduct.ui import Ui
from pgdyno.errors import ShortPoolError
from pgdyno.plan.design import choose_design
from pgdyno.record.store import RecordStore
from pgdyno.record.types import StudyRecord
from pgdyno.spec.study import ServerSpec
from pgdyno.spec.variant import DesignKind
from tests.report.build_derived import build_derived

POOL = "vm.nr_hugepages"
ERROR = ShortPoolError(POOL, asked=2915, made=2800)


class Said:
    """Collects what the user is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def make_store(folder: Path, record: StudyRecord) -> RecordStore:
    store = RecordStore(folder / "record")
    store.create(record, study_toml="")
    return store


def change_derived(**changes: Any) -> StudyRecord:
    record = build_derived().record
    experiment = record.plan.experiment
    assert experiment is not None
    stock, derived = experiment.variants
    variants = (stock, msgspec.structs.replace(derived, **changes))
    changed = msgspec.structs.replace(experiment, variants=variants)
    return msgspec.structs.replace(record, plan=msgspec.structs.replace(record.plan, experiment=changed))


def test_the_record_no_longer_asks_for_them(tmp_path: Path) -> None:
    said, store = Said(), make_store(tmp_path, build_derived().record)
    assert give_way(store, ERROR, ui=cast("Ui", said))
    record = store.read_record()
    assert record.plan.experiment is not None
    assert not any(POOL in one.sysctl for one in (*record.study.variant, *record.plan.experiment.variants))
    assert record.tuned is not None
    assert "2800 of 2915" in (record.tuned.find(POOL).left_out or "")
    assert not any(POOL in layer.settings for layer in record.tuned.layers)
    assert not is_derived(ERROR, record.tuned)
    assert POOL not in (store.path / "study.toml").read_text()
    assert "2800 of 2915 huge pages" in said.lines[0]


def test_the_reason_for_the_design_no_longer_names_them(tmp_path: Path) -> None:
    record = change_derived(server=ServerSpec(settings={"work_mem": "16MB"}))
    study = msgspec.structs.replace(
        record.study, experiment=msgspec.structs.replace(record.study.experiment, design=DesignKind.LIVE)
    )
    experiment = record.plan.experiment
    assert experiment is not None
    design, reason = choose_design(study, experiment.variants, version_major=record.server.major)
    assert POOL in reason
    live = msgspec.structs.replace(experiment, design=design, reason=reason)
    plan = msgspec.structs.replace(record.plan, experiment=live)
    store = make_store(tmp_path, msgspec.structs.replace(record, study=study, plan=plan))
    assert give_way(store, ERROR, ui=cast("Ui", Said()))
    smaller = store.read_record().plan.experiment
    assert smaller is not None
    assert smaller.design is DesignKind.LIVE
    assert POOL not in smaller.reason


def test_what_the_user_named_is_not_derived() -> None:
    assert is_derived(ERROR, build_derived().record.tuned)
    assert not is_derived(ERROR, None)


def test_variants_that_would_be_the_same_without_them_keep_them(tmp_path: Path) -> None:
    stock = build_derived().record.plan.experiment
    assert stock is not None
    record = change_derived(server=stock.reference.server)
    check_kept(make_store(tmp_path, record))


def test_a_server_that_would_not_start_without_them_keeps_them(tmp_path: Path) -> None:
    experiment = build_derived().record.plan.experiment
    assert experiment is not None
    server = experiment.variants[1].server
    server = msgspec.structs.replace(server, settings={**server.settings, "huge_pages": "on"})
    check_kept(make_store(tmp_path, change_derived(server=server)))


def check_kept(store: RecordStore) -> None:
    before = store.read_record()
    with pytest.raises(ShortPoolError):
        give_way(store, ERROR, ui=cast("Ui", Said()))
    assert store.read_record() == before
