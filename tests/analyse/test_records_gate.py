"""The gate between two records, rule by rule: a real record beside itself with one fact changed."""

from __future__ import annotations

import functools
import json
from typing import Any

import msgspec
import pytest

from pgdyno.analyse.episodes.types import Episode, EpisodeKind
from pgdyno.analyse.estimate import Estimate, estimate_geometric_mean
from pgdyno.analyse.records.comparison import LIMIT, TPS_PER_CPU, compare_records, list_differences
from pgdyno.analyse.records.difference import DifferenceGravity, RecordDifference
from pgdyno.analyse.records.groups import group_sides
from pgdyno.analyse.records.sides import Side, hours_apart, list_sides, look_alike, pair_sides
from pgdyno.analyse.search.latency_limit import LimitAnswer
from pgdyno.analyse.search.rate_search import RateSearch
from pgdyno.analyse.study import analyse_study
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.trial.latency import PERCENTILES
from pgdyno.analyse.trial.parts import estimate_parts
from pgdyno.analyse.types import PartFigures, Percentile, TrialAnalysis
from pgdyno.plan.experiment import Experiment, Variant
from pgdyno.plan.search import Search
from pgdyno.plan.types import PlannedPart
from pgdyno.record.store import RecordStore
from pgdyno.record.trial_data import read_trial_data
from pgdyno.record.types import StudyRecord
from pgdyno.spec.study import ServerSpec
from pgdyno.spec.table import NOT_RECORDED
from pgdyno.spec.variant import DesignKind
from tests.records import RECORDS, WRITING, Change, with_setting
from tests.rows import each_row


@functools.cache
def analysed() -> tuple[StudyRecord, StudyAnalysis]:
    store = RecordStore(RECORDS / WRITING)
    record = store.read_record()
    trials = [read_trial_data(store.trial_dir(trial.planned.number), trial) for trial in store.read_trials()]
    return record, analyse_study(record, trials)


def base() -> Side:
    """As if its trials were long enough to look for cliffs in."""
    (side,) = list_sides(*analysed(), script_hashes={})
    trials = tuple(msgspec.structs.replace(trial, episodes_absent=None) for trial in side.workload.trials)
    return msgspec.structs.replace(side, workload=msgspec.structs.replace(side.workload, trials=trials))


def changed(*, study: Change | None = None, trial: Change | None = None, side: Side | None = None) -> Side:
    """The side with its record.json or its trials' trial.json changed."""
    side = side or base()
    record = _apply(side.record, study)
    trials = [msgspec.structs.replace(one, record=_apply(one.record, trial)) for one in side.workload.trials]
    load = record.plan.workloads[0]
    return msgspec.structs.replace(
        side,
        record=record,
        load=load,
        scripts=load.scripts,
        workload=msgspec.structs.replace(side.workload, trials=tuple(trials)),
    )


def _apply(value: Any, change: Change | None) -> Any:
    if change is None:
        return value
    document = json.loads(msgspec.json.encode(value))
    change(document)
    return msgspec.convert(document, type(value))


def with_trials(**changes: Any) -> Side:
    side = base()
    trials = tuple(msgspec.structs.replace(one, **changes) for one in side.workload.trials)
    return msgspec.structs.replace(side, workload=msgspec.structs.replace(side.workload, trials=trials))


def differences(first: Side, other: Side, standing: DifferenceGravity) -> dict[str, RecordDifference]:
    return {one.subject: one for one in list_differences(first, other) if one.standing is standing}


def change_load(**load: Any) -> Change:
    return lambda record: record["plan"]["workloads"][0].update(load)


def test_a_record_beside_itself_differs_in_nothing() -> None:
    assert list_differences(base(), base()) == ()


def test_where_nobody_looked_for_cliffs_that_is_declared() -> None:
    (side,) = list_sides(*analysed(), script_hashes={})
    (one,) = list_differences(side, side)
    assert (one.standing, one.subject) == (DifferenceGravity.DECLARED, "cliffs and stalls")
    assert (one.first, one.other) == ("not looked for", "not looked for")
    assert "too short" in one.why


def fell(kind: EpisodeKind, *trials: bool) -> Side:
    side = base()
    episode = Episode(kind=kind, metric="tps", from_s=4.0, until_s=None, before=4e3, after=2e3, change_ratio=-0.5)
    fallen = tuple(
        msgspec.structs.replace(trial, episodes=(episode,) if has else ())
        for trial, has in zip(side.workload.trials, trials, strict=True)
    )
    return msgspec.structs.replace(side, workload=msgspec.structs.replace(side.workload, trials=fallen))


def test_a_run_that_fell_off_a_cliff_is_not_compared_with_one_before_its_own() -> None:
    both, one = fell(EpisodeKind.CLIFF, True, True), fell(EpisodeKind.CLIFF, True, False)
    refusal = differences(base(), both, DifferenceGravity.REFUSED)["cliff"]
    assert (refusal.first, refusal.other) == ("in 0 of 2 trials", "in 2 of 2 trials")
    assert not differences(both, one, DifferenceGravity.REFUSED)
    assert "two states" in differences(both, one, DifferenceGravity.DECLARED)["cliff"].why
    stalled = fell(EpisodeKind.STALL, True, False)
    assert list(differences(base(), stalled, DifferenceGravity.DECLARED)) == ["stalls and slow changes"]
    assert list_differences(base(), fell(EpisodeKind.SAWTOOTH, True, True)) == ()


def made_by(sha256: str | None, name: str = "schema.sql") -> Side:
    def change(record: dict[str, Any]) -> None:
        record["dataset"]["file_sha256"] = sha256
        record["study"]["data"] = {} if sha256 is None else {"init": f"/somewhere/{sha256}/{name}"}
        record["study"]["workload"][0] |= {"name": "mine", "scripts": ["mine.sql"]}
        record["plan"]["data_name"] = None if sha256 is None else name

    return changed(study=change)


def test_data_of_an_sql_file_are_the_same_if_its_content_is() -> None:
    one, moved, other = made_by("1234"), made_by("1234", "moved.sql"), made_by("5678")
    assert not differences(one, moved, DifferenceGravity.REFUSED)
    refusal = differences(one, other, DifferenceGravity.REFUSED)["tables"]
    assert (refusal.first, refusal.other) == ("of an SQL file, SHA-256 1234", "of an SQL file, SHA-256 5678")
    assert "tables" in differences(made_by(None), one, DifferenceGravity.REFUSED)


def test_of_a_named_database_nobody_knows_what_was_in_it() -> None:
    def change(record: dict[str, Any]) -> None:
        record["study"]["data"] = {"database": "app"}
        record["plan"]["data_name"] = "database app"

    named = changed(study=change)
    declared = differences(named, named, DifferenceGravity.DECLARED)["tables"]
    assert (declared.first, declared.other) == ("database app", "database app")
    assert differences(base(), named, DifferenceGravity.DECLARED)["tables"].first == "scale 5"


FAILOVER = {"kind": "crash", "at_s": 4.0, "after_s": 4.0, "promote_within_s": 60.0}
REFUSED: dict[str, tuple[str, Change | None, Change | None]] = {
    "other transactions": ("scripts", change_load(scripts=[["simple-update", 1]]), None),
    "other weights": ("scripts", change_load(scripts=[["tpcb-like", 2]]), None),
    "another mode": ("query mode", change_load(mode="simple"), None),
    "more clients": ("clients", change_load(clients=8), None),
    "a rate": ("rate and latency limit", change_load(rate_tps=100.0), None),
    "a failover": ("failover", change_load(failover=FAILOVER), None),
    "another scale": ("data to memory", lambda record: record["plan"].update(scale=500), None),
    "other tables": ("tables' fillfactor", lambda record: record["study"]["data"].update(fillfactor=80), None),
    "fsync off": ("durability", None, with_setting("fsync", "off")),
    "asynchronous commits": ("durability", None, with_setting("synchronous_commit", "off")),
    "data in memory": ("data's file system", lambda record: record["host"]["data_disk"].update(filesystem="tmpfs"), None),
    "no barriers": ("durability", lambda record: record["host"]["data_disk"].update(mount_options="rw,nobarrier"), None),
    "a cold cache": ("caches", lambda record: record["study"]["trials"].update(cache="cold"), None),
    "aged data": ("restoring between trials", lambda record: record["study"]["data"].update(restore="none"), None),
    "a standby": ("standbys", lambda record: record["study"]["server"].update(standbys=1), None),
    "no warm-up": ("warm-up", None, lambda trial: trial["planned"].update(warm_up_s=0.0)),
}  # fmt: skip


@each_row(REFUSED)
def test_what_answers_another_question_is_refused_with_its_reason_and_a_way_out(case: str) -> None:
    subject, study, trial = REFUSED[case]
    for pair in ((base(), changed(study=study, trial=trial)), (changed(study=study, trial=trial), base())):
        refused = differences(*pair, DifferenceGravity.REFUSED)
        assert list(refused) == [subject]
        assert refused[subject].first != refused[subject].other
        assert refused[subject].why
        assert refused[subject].hint
        (comparison,) = compare_records([[pair[0]], [pair[1]]])
        assert comparison.is_refused
        assert all(figure.ratio is None for figure in comparison.pairs[0].figures)


RESTORED = {"restore": "command", "restore_command": "clone"}
DECLARED: dict[str, tuple[str, Change | None, Change | None]] = {
    "threads": ("pgbench's threads", change_load(threads=4), None),
    "tries": ("tries of a failed transaction", change_load(max_tries=5), None),
    "a version": ("PostgreSQL", lambda record: record["server"].update(version="17.5", version_num=170005), None),
    "pgdyno": ("pgdyno", lambda record: record["tool_versions"].update(pgdyno="0.0.1"), None),
    "warm-up": ("warm-up", None, lambda trial: trial["planned"].update(warm_up_s=5.0)),
    "a snapshot": ("restoring between trials", lambda record: record["study"]["data"].update(RESTORED), None),
    "length": ("length of a trial", None, lambda trial: trial["planned"].update(duration_s=60.0)),
}  # fmt: skip


@pytest.mark.parametrize("case", DECLARED)
def test_what_must_be_said_beside_a_ratio_is_declared(case: str) -> None:
    subject, study, trial = DECLARED[case]
    other = changed(study=study, trial=trial)
    assert list(differences(base(), other, DifferenceGravity.DECLARED)) == [subject]
    assert not differences(base(), other, DifferenceGravity.REFUSED)


FREE: dict[str, tuple[str, Change]] = {
    "CPUs": ("CPUs", lambda record: record["host"].update(cpu_count=16)),
    "disk": ("disk", lambda record: record["host"]["data_disk"].update(size_bytes=10**12)),
    "kernel": ("kernel", lambda record: record["host"].update(kernel="7.0")),
    "minor version": ("PostgreSQL", lambda record: record["server"].update(version="18.7", version_num=180007)),
    "I/O scheduler": ("I/O scheduler", lambda record: record["host"]["data_disk"].update(scheduler="bfq")),
    "read-ahead": ("read-ahead", lambda record: record["host"]["data_disk"].update(read_ahead_kb=4096)),
    "huge pages": ("transparent huge pages", lambda record: record["host"].update(transparent_huge_pages="never")),
    "more memory": ("memory", lambda record: record["host"].update(memory_bytes=26_000_000_000)),
}


def test_wal_on_a_disk_of_its_own_is_named() -> None:
    def with_wal(device: str) -> Change:
        def change(record: dict[str, Any]) -> None:
            disk = record["host"]["data_disk"]
            record["preflight"] = {
                "wal": disk if device == "data" else {**disk, "device": device, "block_device": "vdb"}
            }

        return change

    together, apart, older = (changed(study=with_wal(device)) for device in ("data", "/dev/vdb", ""))
    (found,) = differences(together, apart, DifferenceGravity.FREE).values()
    assert (found.subject, found.first) == ("disk of pg_wal", "that of the data")
    assert "on vdb" in found.other
    assert not differences(older, apart, DifferenceGravity.FREE)


@pytest.mark.parametrize("case", FREE)
def test_what_one_compares_for_may_differ(case: str) -> None:
    subject, study = FREE[case]
    assert list(differences(base(), changed(study=study), DifferenceGravity.FREE)) == [subject]
    assert not differences(base(), changed(study=study), DifferenceGravity.REFUSED)
    assert not differences(base(), changed(study=study), DifferenceGravity.DECLARED)


def with_kernel(**settings: str) -> Side:
    return changed(study=lambda record: record["host"].update(kernel_settings=settings))


def test_what_initdb_chose_and_where_pg_wal_lies_are_no_other_tables() -> None:
    chosen = {"checksums": False, "wal_segment_size": "64MB", "wal_home": "/mnt/wal"}
    other = changed(study=lambda record: record["study"]["data"].update(chosen))
    assert differences(base(), other, DifferenceGravity.REFUSED) == {}
    free = differences(base(), other, DifferenceGravity.FREE)
    assert [(one.subject, one.first, one.other) for one in free.values()] == [
        ("initdb's checksums", "on", "off"),
        ("initdb's wal_segment_size", "16MB", "64MB"),
    ]


def test_two_phases_of_kernel_tuning_do_not_look_alike() -> None:
    tuned = {"vm.swappiness": "60", "vm.dirty_bytes": "100000000"}
    found = differences(
        with_kernel(**{"vm.swappiness": "60", "vm.dirty_bytes": "0"}), with_kernel(**tuned), DifferenceGravity.FREE
    )
    assert [(one.first, one.other) for one in found.values()] == [("0", "100000000")]
    # An earlier pgdyno's record does not say what it had.
    assert list_differences(base(), with_kernel(**tuned)) == ()


def test_in_a_closed_loop_a_latency_limit_only_counts() -> None:
    assert list_differences(base(), changed(study=change_load(latency_limit_ms=20.0))) == ()
    loads = [change_load(rate_tps=100.0, latency_limit_ms=limit_ms) for limit_ms in (20.0, 50.0)]
    first, other = (changed(study=load) for load in loads)
    assert list(differences(first, other, DifferenceGravity.REFUSED)) == ["rate and latency limit"]


def test_a_run_that_never_met_a_checkpoint_is_not_compared_with_one_that_did() -> None:
    without = with_trials(events=())
    refusal = differences(base(), without, DifferenceGravity.REFUSED)["checkpoints in a trial"]
    assert (refusal.first, refusal.other) == ("8 s, 9 checkpoints", "8 s, 0 checkpoints")
    assert not differences(without, without, DifferenceGravity.REFUSED)
    assert "neither pays" in differences(without, without, DifferenceGravity.DECLARED)["checkpoints in a trial"].why
    # A load that only reads meets none that matters.
    reading = with_trials(events=(), counts_per_transaction={"wal_bytes": 3.0})
    assert list_differences(reading, with_trials(counts_per_transaction={"wal_bytes": 3.0})) == ()


def test_parts_of_a_cycle_are_declared() -> None:
    events = base().workload.trials[0].events
    one = with_trials(events=tuple(event for event in events if event.kind == "checkpoint")[:1])
    assert "parts of a cycle" in differences(base(), one, DifferenceGravity.DECLARED)["checkpoints in a trial"].why


VALIDITY: dict[str, tuple[str, DifferenceGravity, dict[str, Any]]] = {
    "generator": (
        "pgbench's busiest thread",
        DifferenceGravity.REFUSED,
        {"shares": {"cpu_busy_ratio": 0.5, "load_generator_thread_ratio": 0.97}},
    ),
    "steal": (
        "CPU taken by the hypervisor",
        DifferenceGravity.DECLARED,
        {"shares": {"cpu_busy_ratio": 0.5, "cpu_steal_ratio": 0.05}},
    ),
    "others": (
        "CPU used by other programs",
        DifferenceGravity.DECLARED,
        {"shares": {"cpu_busy_ratio": 0.5, "cpu_others_ratio": 0.3}},
    ),
    "no samplers": ("the machine under the load", DifferenceGravity.DECLARED, {"shares": {}}),
    "failures": ("failed transactions", DifferenceGravity.DECLARED, {"failed_count": 10**5}),
}


@pytest.mark.parametrize("case", VALIDITY)
def test_figures_that_are_not_the_servers_own_are_not_passed_in_silence(case: str) -> None:
    subject, standing, trials = VALIDITY[case]
    assert list(differences(base(), with_trials(**trials), standing)) == [subject]


def test_what_spoils_a_measurement_by_its_own_report_is_said_once() -> None:
    hot = msgspec.structs.replace(base(), doubts=("The CPU is too hot.",))
    (one,) = list_differences(base(), hot)
    assert (one.standing, one.first, one.other, one.why) == (
        DifferenceGravity.DECLARED,
        "none",
        "1 of them",
        "The CPU is too hot.",
    )
    assert list_differences(hot, hot)[0].why == "The CPU is too hot."


def test_trials_without_a_result_and_single_ones_are_declared() -> None:
    side = base()
    first, second = side.workload.trials
    lost: tuple[TrialAnalysis, ...] = (first, msgspec.structs.replace(second, tps=None))
    lame = msgspec.structs.replace(side, workload=msgspec.structs.replace(side.workload, trials=lost))
    assert set(differences(side, lame, DifferenceGravity.DECLARED)) == {"trials without a result", "trials"}


def test_durability_is_equal_or_refused_and_said_where_nobody_keeps_it() -> None:
    unsafe = changed(trial=with_setting("synchronous_commit", "off"))
    assert not differences(unsafe, unsafe, DifferenceGravity.REFUSED)
    assert "neither keeps" in differences(unsafe, unsafe, DifferenceGravity.DECLARED)["durability"].why
    unknown = changed(trial=lambda trial: trial.update(settings=[]))
    assert differences(base(), unknown, DifferenceGravity.REFUSED)["durability"].other == "not recorded"


def test_the_same_share_of_memory_lets_other_scales_pass() -> None:
    def bigger(record: dict[str, Any]) -> None:
        record["host"]["memory_bytes"] *= 4
        record["plan"]["scale"] *= 4

    other = changed(study=bigger)
    assert not differences(base(), other, DifferenceGravity.REFUSED)
    assert "same share" in differences(base(), other, DifferenceGravity.DECLARED)["data to memory"].why


def reading(read_bytes: float | None, memories: float) -> Side:
    """A side whose data are this many memories, and whose device read this much for a transaction."""
    data_bytes = base().data_bytes
    side = changed(
        study=lambda record: record["host"].update(memory_bytes=int(data_bytes / memories), memory_limit_bytes=None)
    )
    trials = tuple(
        msgspec.structs.replace(
            trial, counts_per_transaction={**trial.counts_per_transaction, "device_read_bytes": read_bytes}
        )
        for trial in side.workload.trials
    )
    return msgspec.structs.replace(side, workload=msgspec.structs.replace(side.workload, trials=trials))


@pytest.mark.parametrize(
    ("first", "other", "why"),
    [
        # What the device read decides, whatever the shares of memory are.
        ((0.0, 0.28), (9.0, 0.76), None),
        ((0.0, 0.5), (4096.0, 0.5), "only one of the two reads its disk"),
        ((4096.0, 3.0), (8192.0, 3.0), "one reads its disk more often"),
        ((4096.0, 1.0), (5000.0, 2.0), None),
        # Where it was not counted, the shares do.
        ((None, 0.28), (None, 0.76), "memory holds more of the data in one"),
        ((None, 0.2), (None, 0.6), None),
        ((None, 0.8), (4096.0, 1.3), "memory holds another part of the data"),
        ((None, 2.0), (None, 4.0), "memory holds another part of the data"),
        ((None, 2.0), (None, 2.1), None),
    ],
)
def test_the_same_data_are_compared_by_how_much_is_read_of_them(
    first: tuple[float | None, float], other: tuple[float | None, float], why: str | None
) -> None:
    declared = differences(reading(*first), reading(*other), DifferenceGravity.DECLARED)
    assert set(declared) == ({"data to memory"} if why else set())
    if why:
        assert declared["data to memory"].why.startswith(why)
    assert not differences(reading(*first), reading(*other), DifferenceGravity.REFUSED)


def test_settings_are_what_one_compares_for_and_shown_in_their_units() -> None:
    def larger(trial: dict[str, Any]) -> None:
        next(one for one in trial["settings"] if one["name"] == "max_wal_size")["value"] = "1024"

    (one,) = list_differences(base(), changed(trial=larger))
    assert (one.subject, one.standing, one.first, one.other) == (
        "max_wal_size",
        DifferenceGravity.FREE,
        "64MB",
        "1GB",
    )
    # What is built in is known to be the same as what is written out.
    built_in = changed(trial=lambda trial: trial.update(settings=[s for s in trial["settings"] if s["name"] != "max_wal_size"]))  # fmt: skip
    assert list_differences(changed(trial=larger), built_in) == ()


def test_commands_that_a_server_does_not_tell_differ_as_their_studies_ask_for_them() -> None:
    def archiving(command: str, *, value: str = NOT_RECORDED) -> Side:
        def tell(trial: dict[str, Any]) -> None:
            next(one for one in trial["settings"] if one["name"] == "archive_command")["value"] = value

        return changed(
            study=lambda record: record["study"]["server"].update(settings={"archive_command": command}), trial=tell
        )

    (one,) = list_differences(archiving("cp %p /a"), archiving("cp %p /b"))
    assert (one.subject, one.first, one.other) == ("archive_command", "cp %p /a", "cp %p /b")
    # Earlier records have it.
    assert list_differences(archiving("true", value="true"), archiving("true")) == ()


def in_variants(side: Side, *names: str) -> list[Side]:
    """The side as variants of one comparison, of which the first is the reference."""
    variants = tuple(Variant(name=name, server=ServerSpec()) for name in names)
    experiment = Experiment(
        variants=variants, design=DesignKind.PAIRED, reason="x", budget_s=None, alpha=0.05, detect_ratio=0.03
    )
    plan = msgspec.structs.replace(side.record.plan, experiment=experiment)
    record = msgspec.structs.replace(side.record, plan=plan)
    return [
        msgspec.structs.replace(side, record=record, variant=variant, name=f"tpcb-like, {variant.name}")
        for variant in variants
    ]


def test_variants_stand_beside_their_namesakes_and_a_plain_record_beside_the_reference() -> None:
    one, two = in_variants(base(), "stock", "derived"), in_variants(base(), "derived", "stock", "odd")
    pairing = pair_sides(one, two)
    assert [(first.name, other.name) for first, other in pairing.pairs] == [
        ("tpcb-like, stock", "tpcb-like, stock"),
        ("tpcb-like, derived", "tpcb-like, derived"),
    ]
    assert (pairing.only_first, pairing.only_other) == ((), ("tpcb-like, odd",))
    plain = pair_sides([base()], one)
    assert [other.name for _, other in plain.pairs] == ["tpcb-like, stock"]
    assert plain.only_other == ("tpcb-like, derived",)
    assert "variant" in differences(base(), one[0], DifferenceGravity.DECLARED)


def test_a_plain_record_stands_beside_the_variant_that_loads_as_it_does() -> None:
    def of_clients(*counts: int) -> list[Side]:
        sides = in_variants(base(), *(f"clients={count}" for count in counts))
        return [
            msgspec.structs.replace(side, load=msgspec.structs.replace(side.load, clients=count))
            for side, count in zip(sides, counts, strict=True)
        ]

    (pair,) = pair_sides([base()], of_clients(1, 2, 4, 8)).pairs
    assert pair[1].name == "tpcb-like, clients=4"
    (pair,) = pair_sides(of_clients(1, 2, 4, 8), [base()]).pairs
    assert pair[0].name == "tpcb-like, clients=4"
    (pair,) = pair_sides([base()], of_clients(1, 2)).pairs
    assert pair[1].name == "tpcb-like, clients=1"


def test_a_record_with_watched_trials_alone_has_no_result() -> None:
    record, analysis = analysed()
    (workload,) = analysis.workloads
    watched = tuple(
        msgspec.structs.replace(
            trial,
            record=msgspec.structs.replace(
                trial.record, planned=msgspec.structs.replace(trial.record.planned, round=0)
            ),
        )
        for trial in workload.trials
    )
    assert all(trial.record.planned.is_observed for trial in watched)
    left = msgspec.structs.replace(analysis, workloads=(msgspec.structs.replace(workload, trials=watched),))
    assert list_sides(record, left, script_hashes={}) == ()


def test_mixtures_and_single_rates_of_a_search_stand_beside_nothing() -> None:
    record, analysis = analysed()
    for planned in ({"variants": ("a", "b")}, {"rate_tps": 100.0}):
        trials = [
            msgspec.structs.replace(
                trial,
                record=msgspec.structs.replace(
                    trial.record, planned=msgspec.structs.replace(trial.record.planned, **planned)
                ),
            )
            for trial in analysis.workloads[0].trials
        ]
        workload = msgspec.structs.replace(analysis.workloads[0], trials=tuple(trials))
        mixed = msgspec.structs.replace(analysis, workloads=(workload,))
        assert list_sides(record, mixed, script_hashes={}) == ()


def searched(limit_ms: float, holds_tps: float | None, fails_tps: float | None) -> Side:
    record, analysis = analysed()
    search = Search(limit_ms=limit_ms, percentile=99.0, resolution_ratio=0.1, alpha=0.05, budget_s=None)
    answer = LimitAnswer(
        holds_tps=holds_tps, fails_tps=fails_tps, estimate_tps=None, spread_ratio=0.1, alpha=0.05, n=9,
        is_settled=False, trials_needed=None,
    )  # fmt: skip
    found = RateSearch(
        workload="tpcb-like", capacity=analysis.workloads[0].tps, lowest_tps=1.0, highest_tps=9999.0, answer=answer,
        levels=(), uncounted=(), trial_s=None,
    )  # fmt: skip
    plan = msgspec.structs.replace(record.plan, search=search)
    (side,) = list_sides(
        msgspec.structs.replace(record, plan=plan),
        msgspec.structs.replace(analysis, searches=(found,)),
        script_hashes={},
    )
    return side


def test_answers_of_searches_stand_side_by_side_where_they_sought_the_same() -> None:
    first, other = searched(20.0, 1000.0, 2000.0), searched(20.0, 1500.0, None)
    (comparison,) = compare_records([[first], [other]])
    limit = next(figure for figure in comparison.pairs[0].figures if figure.metric == LIMIT)
    assert (limit.first.low, limit.first.high) == (1000.0, 2000.0)
    assert limit.other.reason == "the search is not settled"
    assert limit.ratio is not None
    assert (limit.ratio.value, limit.ratio.low) == (1.5, None)
    (comparison,) = compare_records([[first], [searched(50.0, 1500.0, None)]])
    assert LIMIT not in [figure.metric for figure in comparison.pairs[0].figures]


PARTS = ("writers", "readers")
LACKING = tuple(Percentile(name=name, value_ms=None, reason="the log was lost") for name in PERCENTILES)


def in_parts(*tps: float) -> tuple[Side, ...]:
    """The record as if its load had parts, of these TPS in its trials."""
    record, analysis = analysed()
    (workload,) = analysis.workloads
    planned = tuple(
        PlannedPart(name=name, scripts=workload.load.scripts, clients=4, threads=1, endpoint="primary")
        for name in PARTS
    )
    trials = tuple(
        msgspec.structs.replace(
            trial,
            parts=tuple(
                PartFigures(
                    name=name,
                    endpoints=("primary",),
                    clients=4,
                    tps=each * (1.0 + 0.01 * number),
                    latency_mean_ms=1.0,
                    percentiles=LACKING,
                    failed_count=0,
                )
                for name, each in zip(PARTS, tps, strict=True)
            ),
        )
        for number, trial in enumerate(workload.trials)
    )
    load = msgspec.structs.replace(workload.load, parts=planned)
    split = msgspec.structs.replace(workload, load=load, trials=trials, parts=estimate_parts(trials))
    return list_sides(record, msgspec.structs.replace(analysis, workloads=(split,)), script_hashes={})


def test_each_part_of_a_load_is_compared_and_their_sum_is_not() -> None:
    first, other = in_parts(100.0, 5000.0), in_parts(200.0, 2500.0)
    assert [side.load_name for side in first] == [f"part {name} of tpcb-like" for name in PARTS]
    (comparison,) = compare_records([first, other])
    assert not comparison.is_refused
    ratios = {pair.first.part: pair.figures[0].ratio for pair in comparison.pairs}
    assert {name: ratio and round(ratio.value or 0.0, 6) for name, ratio in ratios.items()} == {
        "writers": 2.0,
        "readers": 0.5,
    }
    # What all parts share is of none of them.
    shown = {figure.metric for pair in comparison.pairs for figure in pair.figures}
    assert shown.isdisjoint({TPS_PER_CPU, "wal_bytes"})
    (against_whole,) = compare_records([first, (base(),)])
    assert (against_whole.pairs, len(against_whole.only_first), len(against_whole.only_other)) == ((), 2, 1)
    # Histories and published records hold parts apart, too.
    assert len(group_sides([first, other])) == 2


def test_machines_of_one_make_look_alike_and_hours_need_both_clocks() -> None:
    other = changed(study=lambda record: record.update(started_at="2026-11-21T06:35:27+01:00"))
    assert hours_apart(base(), other) == pytest.approx(1.0)
    assert hours_apart(base(), changed(study=lambda record: record.update(started_at="?"))) is None
    assert hours_apart(base(), changed(study=lambda record: record.update(started_at="2026-11-21"))) is None
    assert look_alike(base().record.host, other.record.host)
    assert not look_alike(base().record.host, changed(study=FREE["disk"][1]).record.host)
    # The device of a btrfs was not known to earlier versions.
    unknown = changed(study=lambda record: record["host"]["data_disk"].update(block_device=None)).record.host
    assert look_alike(base().record.host, unknown)
    for limit in ({"cpu_limit": 1.0}, {"memory_limit_bytes": 1 << 30}):
        small = changed(study=lambda record, limit=limit: record["host"].update(limit)).record.host
        assert not look_alike(base().record.host, small)
        assert look_alike(small, small)
    other_kernel = changed(
        study=lambda record: record["host"].update(memory_bytes=record["host"]["memory_bytes"] - (9 << 20))
    )
    assert look_alike(base().record.host, other_kernel.record.host)
    assert not look_alike(base().record.host, changed(study=FREE["more memory"][1]).record.host)
    # What it may use at most is all that it has.
    wide = changed(study=lambda record: record["host"].update(cpu_limit=64.0, memory_limit_bytes=1 << 60))
    assert look_alike(base().record.host, wide.record.host)


def test_ratios_are_those_of_geometric_means_with_welchs_interval() -> None:
    first = estimate_geometric_mean([100.0, 110.0, 105.0], unit="tps")
    other = estimate_geometric_mean([210.0, 190.0, 205.0, 199.0], unit="tps")
    side, twin = with_tps(first), with_tps(other)
    (comparison,) = compare_records([[side], [twin]])
    ratio = comparison.pairs[0].figures[0].ratio
    assert ratio is not None
    assert ratio.value == pytest.approx((other.value or 0) / (first.value or 1))
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low < ratio.value < ratio.high
    assert 1.7 < ratio.low < ratio.high < 2.2


def with_tps(tps: Estimate) -> Side:
    side = base()
    return msgspec.structs.replace(side, workload=msgspec.structs.replace(side.workload, tps=tps))
