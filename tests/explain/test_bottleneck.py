from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import msgspec
import pytest

from pgdyno.analyse.bottleneck.sign_reading import read_signs
from pgdyno.analyse.comparison.verdict import VerdictKind
from pgdyno.analyse.transaction_time.shares import ONE_CPU, WRITING_WAL, Bottleneck, Certainty, Resource, TimeShare
from pgdyno.explain.bottleneck import LIMITS, find_bottlenecks
from pgdyno.explain.explanations import explain_study
from pgdyno.explain.finding import Finding
from pgdyno.explain.intervention import Intervention, choose_intervention
from pgdyno.flow.compare import compose_comparison
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.plan.types import PlannedPooler, PoolerProgram
from pgdyno.record.machine.preflight import PreflightFacts
from pgdyno.record.statements import StatementCounts
from pgdyno.record.store import open_record
from pgdyno.record.types import LoadHostFacts, SettingFact, StudyRecord, WatchedHost
from pgdyno.spec.hosts import HostEntry, HostRole
from pgdyno.spec.pooler import PoolMode
from pgdyno.spec.study import Study
from pgdyno.spec.table import QueryMode
from pgdyno.spec.variant import make_variant
from tests.analyse.experiments import in_rounds
from tests.analyse.joined import make_workload
from tests.analyse.kept_causes import analyse_kept, list_names
from tests.rows import each_row

RECORD = Path(__file__).parents[1] / "data" / "records" / "v1-pg18"
LOAD = make_workload("tpcb-like", clients=8)


def make_record(*, scale: int = 50, **settings: str) -> StudyRecord:
    record = open_record(RECORD).read_record()
    server = msgspec.structs.replace(record.study.server, settings=dict(settings))
    return msgspec.structs.replace(
        record,
        plan=msgspec.structs.replace(record.plan, scale=scale),
        study=msgspec.structs.replace(record.study, server=server),
    )


def say(resource: Resource, certainty: Certainty = Certainty.LIKELY) -> Bottleneck:
    share = TimeShare(resource=resource, ms=1.0, ratio=0.5, low_ratio=0.4, high_ratio=0.6, how="looks")
    return Bottleneck(resource=resource, certainty=certainty, evidence=("50 % of the clients' time",), share=share)


def choose(
    resource: Resource, load: PlannedWorkload = LOAD, *, scale: int = 50, **settings: str
) -> Intervention | None:
    return choose_intervention(say(resource), make_record(scale=scale, **settings), load=load)


def with_change(
    resource: Resource, finding_of: str = "slow-flush", *, watched: WatchedHost | None = None, **changes: object
) -> Finding:
    """The finding of a kept record, of which something else was found."""
    record, analysis = analyse_kept(find_name(finding_of))
    if watched is not None:
        load = msgspec.structs.replace(record.host, host_name="load1")
        record = msgspec.structs.replace(record, server_host=watched, load_host=load)
    (workload,) = analysis.workloads
    found = msgspec.structs.replace(say(resource), **changes)
    changed = msgspec.structs.replace(workload, bottleneck=found)
    (finding,) = find_bottlenecks(record, msgspec.structs.replace(analysis, workloads=(changed,)))
    return finding


def make_load_host(record: StudyRecord) -> LoadHostFacts:
    assert record.host is not None
    return LoadHostFacts(
        name="load1",
        ssh="load1",
        python="3.11.2",
        boot_id="2",
        is_server_host=False,
        facts=record.host,
        pgbench="/usr/bin/pgbench",
        version="18.1",
        empty_tps=9000.0,
        empty_clients=8,
        round_trip_s=0.0002,
    )


def find_name(start: str) -> str:
    return next(name for name in list_names() if name.startswith(start))


@each_row(list_names())
def test_what_limits_a_real_load_is_said_with_figures_rivals_and_an_experiment(name: str) -> None:
    record, analysis = analyse_kept(name)
    (finding,) = (one for one in explain_study(record, analysis) if one.rule == LIMITS)
    assert finding.workload == analysis.workloads[0].name
    assert finding.claim.endswith(("limit this load.", "limits this load."))
    assert "%" in finding.evidence
    assert all(rival.cause and rival.against for rival in finding.rivals)
    assert finding.confirm.startswith("`pgdyno ")
    assert "`: " in finding.confirm
    assert finding.gain.startswith("up to +")
    assert finding.gain_ratio is not None
    assert finding.gain_ratio >= 0.0
    assert finding.shows


def test_a_claim_says_how_sure_it_is() -> None:
    assert with_change(Resource.CPU, certainty=Certainty.STRONG).claim == "The CPUs limit this load."
    assert with_change(Resource.LOCK).claim == "Contention for rows and locks probably limits this load."
    within = with_change(Resource.LIGHTWEIGHT_LOCK)
    assert within.claim == "Contention for lightweight locks probably limits this load."
    assert "rows" not in within.advice
    part = with_change(Resource.STANDBY, part="the WAL flush of standby1")
    assert part.claim == "The WAL flush of standby1 probably limits this load."
    assert with_change(Resource.UNKNOWN).claim == "What limits this load is not known."


def test_a_limit_is_named_with_its_machine_where_server_and_load_have_one_each() -> None:
    far = WatchedHost(name="db1", ssh="db1", python="3.9.2", boot_id="1", is_load_host=False)
    same = msgspec.structs.replace(far, is_load_host=True)
    assert with_change(Resource.CPU, watched=far).claim == "The CPUs on db1 probably limit this load."
    assert (
        with_change(Resource.LOAD_GENERATOR, watched=far).claim == "Pgbench itself on load1 probably limits this load."
    )
    assert with_change(Resource.LOCK, watched=far).claim == with_change(Resource.LOCK).claim
    assert with_change(Resource.CPU, watched=same).claim == with_change(Resource.CPU).claim


def test_a_limit_of_pgdynos_own_server_is_named_with_its_machine_where_load_hosts_load_it() -> None:
    record, analysis = analyse_kept(find_name("slow-flush"))
    assert record.host is not None
    host = make_load_host(record)
    here = msgspec.structs.replace(
        record, load_hosts=(host,), host=msgspec.structs.replace(record.host, host_name="vm")
    )
    named = {"db1": HostEntry(role=HostRole.SERVER, ssh="me@db1")}
    there = msgspec.structs.replace(here, study=msgspec.structs.replace(here.study, hosts=named))
    # The server's machine is the load host, too, and then has another name in the study.
    shared = msgspec.structs.replace(there, load_hosts=(msgspec.structs.replace(host, ssh="me@db1"),))
    (workload,) = analysis.workloads
    changed = msgspec.structs.replace(workload, bottleneck=say(Resource.CPU))
    trials = msgspec.structs.replace(analysis, workloads=(changed,))
    claims = [next(iter(find_bottlenecks(one, trials))).claim for one in (here, there, shared)]
    assert claims == [f"The CPUs on {name} probably limit this load." for name in ("vm", "db1", "me@db1")]


@each_row([each for each in Resource if each is not Resource.UNKNOWN])
def test_every_limit_has_its_words(resource: Resource) -> None:
    finding = with_change(resource)
    assert "probably" in finding.claim
    assert finding.advice


def test_what_was_not_seen_is_said_where_it_matters() -> None:
    assert (
        "not observed: how busy the CPUs were"
        in with_change(Resource.LOCK, absent=("how busy the CPUs were",)).evidence
    )
    strong = with_change(Resource.LOCK, absent=("a card",), certainty=Certainty.STRONG)
    assert "not seen" not in strong.evidence


def test_a_symptom_is_told_from_its_cause() -> None:
    finding = with_change(Resource.CPU, symptoms=("WAL flush, 75 % of the time: a queue for the CPUs, which are full",))
    assert finding.why.startswith("Not a cause but an effect: WAL flush")


def test_nothing_is_to_be_settled_that_was_proven() -> None:
    assert with_change(Resource.WAL_FLUSH, certainty=Certainty.PROVEN).confirm == ""


def test_a_gain_is_a_bound_of_what_is_there() -> None:
    finding = with_change(Resource.CPU, finding_of="thinking")
    assert finding.gain.endswith("expected, not measured")
    assert with_change(Resource.WAL_FLUSH, share=None).gain == ""


def test_where_cpus_are_idle_more_of_them_are_no_advice() -> None:
    finding = with_change(Resource.CPU, finding_of="quiet-15-1000", part=ONE_CPU)
    assert finding.claim == "The speed of one CPU probably limits this load."
    assert finding.advice.startswith("More clients")
    assert "clients=8 should be faster" in finding.confirm
    assert all("other programs" not in rival.cause for rival in finding.rivals)
    assert finding.gain.endswith("TPS, until the CPUs are full; expected, not measured")


def test_a_gain_of_many_idle_cpus_is_told_as_far_as_a_bound_is_of_use() -> None:
    record, analysis = analyse_kept(find_name("quiet-15-1000"))
    (workload,) = analysis.workloads
    (trial,) = workload.trials
    # One client on 64 CPUs.
    idle = msgspec.structs.replace(trial, shares={**trial.shares, "cpu_busy_ratio": 1 / 64, "cpu_others_ratio": 0.0})
    found = msgspec.structs.replace(say(Resource.CPU), part=ONE_CPU)
    changed = msgspec.structs.replace(workload, trials=(idle,), bottleneck=found)
    (finding,) = find_bottlenecks(record, msgspec.structs.replace(analysis, workloads=(changed,)))
    assert finding.gain == "up to +900 % and more TPS, until the CPUs are full; expected, not measured"
    assert finding.gain_ratio == 9.0


def test_where_no_commit_waits_for_a_flush_none_is_advised() -> None:
    finding = with_change(Resource.WAL_FLUSH, part=WRITING_WAL)
    assert finding.claim == "Writing WAL probably limits this load."
    assert finding.advice.startswith("Larger wal_buffers")


@pytest.mark.parametrize(("value", "cause"), [("on", "waiting for WAL to be durable"), ("off", "writing WAL")])
def test_a_rival_is_a_flush_only_where_commits_wait_for_it(value: str, cause: str) -> None:
    record, analysis = analyse_kept(find_name("slow-flush"))
    (workload,) = analysis.workloads

    def set_commit(one: SettingFact) -> SettingFact:
        return msgspec.structs.replace(one, name="synchronous_commit", value=value)

    trials = tuple(
        msgspec.structs.replace(
            one, record=msgspec.structs.replace(one.record, settings=(set_commit(one.record.settings[0]),))
        )
        for one in workload.trials
    )
    found = msgspec.structs.replace(say(Resource.CPU), rivals=((Resource.WAL_FLUSH, "it took less"),))
    changed = msgspec.structs.replace(workload, trials=trials, bottleneck=found)
    (finding,) = find_bottlenecks(record, msgspec.structs.replace(analysis, workloads=(changed,)))
    assert cause in [one.cause for one in finding.rivals]


def test_stopping_other_programs_gains_no_more_than_the_cpus_have() -> None:
    record, analysis = analyse_kept(find_name("quiet-15-1000"))
    (workload,) = analysis.workloads
    (trial,) = workload.trials
    own = read_signs(record, workload.load, trial).own_cpu_ratio
    assert own is not None
    (finding,) = find_bottlenecks(record, analysis)
    assert finding.advice.startswith("Stop the other programs that use the CPUs")
    assert finding.gain_ratio is not None
    assert finding.gain_ratio <= 1.0 / own - 1.0
    assert finding.gain.endswith("until the CPUs are full; expected, not measured")
    # Nor does the upper end of its interval, where the gain itself is within that.
    found = workload.bottleneck
    assert found is not None
    assert found.share is not None
    share = msgspec.structs.replace(found.share, ratio=0.5, low_ratio=0.1, high_ratio=0.99)
    wide = msgspec.structs.replace(workload, bottleneck=msgspec.structs.replace(found, share=share))
    (finding,) = find_bottlenecks(record, msgspec.structs.replace(analysis, workloads=(wide,)))
    ends = re.search(r"TPS \[\+\d+, \+(\d+)\]", finding.gain)
    assert ends is not None, finding.gain
    assert float(ends[1]) <= round((1.0 / own - 1.0) * 100)


def test_a_schedule_that_is_kept_asks_for_another_rate() -> None:
    record, analysis = analyse_kept(find_name("slow-flush"))
    (workload,) = analysis.workloads
    found = msgspec.structs.replace(say(Resource.CLIENT), share=None)
    changed = msgspec.structs.replace(
        workload, bottleneck=found, load=msgspec.structs.replace(workload.load, rate_tps=100.0)
    )
    (finding,) = find_bottlenecks(record, msgspec.structs.replace(analysis, workloads=(changed,)))
    assert finding.advice == "A higher rate, or none, shows what the server can do."


def test_what_runs_on_other_cpus_is_neither_a_rival_nor_to_be_stopped() -> None:
    record, analysis = analyse_kept(find_name("quiet-15-1000"))
    (workload,) = analysis.workloads
    (finding,) = find_bottlenecks(record, analysis)
    assert finding.advice.startswith("Stop the other programs that use the CPUs")
    assert "other programs on this machine" in {rival.cause for rival in finding.rivals}
    (trial,) = workload.trials
    elsewhere = msgspec.structs.replace(trial, cpus_seen_count=2)
    (finding,) = find_bottlenecks(
        record,
        msgspec.structs.replace(analysis, workloads=(msgspec.structs.replace(workload, trials=(elsewhere,)),)),
    )
    assert finding.advice.startswith("More or faster CPUs")
    assert "other programs on this machine" not in {rival.cause for rival in finding.rivals}


def test_all_figures_of_a_finding_are_of_one_trial() -> None:
    """Not of the representative trial, if that is another than the bottleneck's."""
    record, analysis = analyse_kept(find_name("slow-flush"))
    (workload,) = analysis.workloads
    (own,) = workload.trials
    planned = msgspec.structs.replace(own.record.planned, number=2)
    other = msgspec.structs.replace(
        own,
        record=msgspec.structs.replace(own.record, planned=planned),
        tps=(own.tps or 0.0) * 2,
        shares={**own.shares, "cpu_busy_ratio": 0.9, "cpu_others_ratio": 0.0, "cpu_steal_ratio": 0.0},
    )
    two = msgspec.structs.replace(
        workload, trials=(own, other), bottleneck=msgspec.structs.replace(say(Resource.WAL_FLUSH), trial=1)
    )
    assert two.representative is other
    of_own, of_other = (
        next(
            find_bottlenecks(
                record,
                msgspec.structs.replace(
                    analysis,
                    workloads=(
                        msgspec.structs.replace(two, bottleneck=msgspec.structs.replace(two.bottleneck, trial=n)),
                    ),
                ),
            )
        )
        for n in (1, 2)
    )
    assert "until the CPUs are full" in of_other.gain
    assert of_own.gain != of_other.gain


@each_row(
    [
        (
            Resource.CPU,
            msgspec.structs.replace(LOAD, mode=QueryMode.SIMPLE),
            "mode",
            ("simple", "prepared"),
            VerdictKind.FASTER,
        ),
        (Resource.CPU, LOAD, "mode", ("prepared", "simple"), VerdictKind.SLOWER),
        (Resource.WAL_FLUSH, LOAD, "synchronous_commit", ("on", "off"), VerdictKind.FASTER),
        (Resource.WAL_LOCK, LOAD, "clients", (8, 4), VerdictKind.EQUIVALENT),
        (Resource.LIGHTWEIGHT_LOCK, LOAD, "clients", (8, 4), VerdictKind.EQUIVALENT),
        (Resource.STANDBY, LOAD, "synchronous_commit", ("on", "local"), VerdictKind.FASTER),
        (Resource.TEMP_FILE, LOAD, "work_mem", ("4096kB", "65536kB"), VerdictKind.FASTER),
        (Resource.DATA_WRITE, LOAD, "max_wal_size", ("1024MB", "8192MB"), VerdictKind.FASTER),
        (Resource.CLIENT, LOAD, "clients", (8, 16), VerdictKind.FASTER),
        (Resource.LOAD_GENERATOR, LOAD, "threads", (2, 4), VerdictKind.FASTER),
    ]
)
def test_each_limit_has_an_experiment_that_speaks_of_it(
    resource: Resource, load: PlannedWorkload, varied: str, levels: tuple[object, object], expects: VerdictKind
) -> None:
    chosen = choose(resource, load)
    assert chosen is not None
    assert (chosen.varied, chosen.levels, chosen.expects) == (varied, levels, expects)
    assert chosen.is_what_if is (varied == "synchronous_commit")
    for variant in chosen.variants:
        make_variant(variant)


def test_fewer_load_hosts_show_that_load_hosts_limit() -> None:
    record, _ = analyse_kept(find_name("slow-flush"))
    named = {name: HostEntry(role=HostRole.LOAD, ssh=name) for name in ("load1", "load2")}
    study = msgspec.structs.replace(record.study, hosts=named)
    far = msgspec.structs.replace(record, study=study, load_hosts=(make_load_host(record),) * 2)
    chosen = choose_intervention(say(Resource.LOAD_GENERATOR), far, load=LOAD)
    assert chosen is not None
    assert (chosen.varied, chosen.levels, chosen.expects) == ("load_hosts", (2, 1), VerdictKind.SLOWER)
    assert not chosen.is_specific
    assert [make_variant(variant).load_hosts for variant in chosen.variants] == [2, 1]
    assert chosen.command.startswith("pgdyno sweep load_hosts=2,1 ")
    assert "--load-host load1 --load-host load2" in chosen.command
    # Of two that are named, one sent this load.
    fewer = choose_intervention(say(Resource.LOAD_GENERATOR), far, load=msgspec.structs.replace(LOAD, load_hosts=1))
    assert fewer is not None
    assert (fewer.varied, fewer.levels, fewer.expects) == ("load_hosts", (1, 2), VerdictKind.FASTER)
    assert "load_hosts=1,2" in fewer.command
    other = choose_intervention(say(Resource.CPU), far, load=msgspec.structs.replace(LOAD, load_hosts=1))
    assert other is not None
    assert other.command == ""
    # One client does not come from two hosts.
    alone = choose_intervention(say(Resource.LOAD_GENERATOR), far, load=make_workload("tpcb-like", clients=1))
    assert alone is None


def test_commits_without_flushes_wait_for_no_standby_either() -> None:
    def is_specific(*, standbys: int = 0, **settings: str) -> bool:
        record = make_record(**settings)
        server = msgspec.structs.replace(record.study.server, standbys=standbys)
        record = msgspec.structs.replace(record, study=msgspec.structs.replace(record.study, server=server))
        chosen = choose_intervention(say(Resource.WAL_FLUSH), record, load=LOAD)
        assert chosen is not None
        assert ("no standby" in chosen.why) is not chosen.is_specific
        return chosen.is_specific

    assert is_specific()
    assert is_specific(standbys=1)
    assert is_specific(synchronous_standby_names="*", synchronous_commit="local")
    assert not is_specific(synchronous_standby_names="*")
    # pgdyno fills in the names.
    assert not is_specific(standbys=1, synchronous_commit="remote_apply")


def test_a_larger_scale_is_for_few_branches_only() -> None:
    few = choose(Resource.LOCK, scale=1)
    assert few is not None
    assert (few.varied, few.levels) == ("scale", (1, 32))
    many = choose(Resource.LOCK, scale=100)
    assert many is not None
    assert many.varied == "clients"
    for script in ("hot.sql", "simple-update", "select-only"):
        other = choose(Resource.LOCK, msgspec.structs.replace(LOAD, scripts=((script, 1),)), scale=1)
        assert other is not None
        assert other.varied == "clients", script


def test_more_buffers_are_tried_as_far_as_there_is_memory() -> None:
    more = choose(Resource.DATA_READ, shared_buffers="1MB")
    assert more is not None
    assert more.varied == "shared_buffers"
    assert more.levels[0] == "1MB"
    fewer_data = choose(Resource.DATA_READ, shared_buffers="100GB")
    assert fewer_data is not None
    assert (fewer_data.varied, fewer_data.levels) == ("scale", (50, 12))
    assert choose(Resource.DATA_READ, scale=1, shared_buffers="100GB") is None


@each_row([(90, None, "8192MB"), (16, None, "4096MB"), (4, None, None), (4, 10, "6144MB")])
def test_more_wal_is_tried_as_far_as_the_disk_has_room(free_gb: int, wal_free_gb: int | None, most: str | None) -> None:
    record = make_record(scale=50)
    assert record.host is not None
    disk = msgspec.structs.replace(record.host.data_disk, free_bytes=free_gb * 1024**3)
    record = msgspec.structs.replace(record, host=msgspec.structs.replace(record.host, data_disk=disk))
    if wal_free_gb is not None:
        wal = msgspec.structs.replace(disk, device="/dev/wal", block_device="wal", free_bytes=wal_free_gb * 1024**3)
        record = msgspec.structs.replace(record, preflight=PreflightFacts(wal=wal))
    chosen = choose_intervention(say(Resource.DATA_WRITE), record, load=LOAD)
    assert (None if chosen is None else chosen.levels[1]) == most


def test_where_nothing_would_tell_there_is_no_experiment() -> None:
    assert choose(Resource.UNKNOWN) is None
    assert choose(Resource.TEMP_FILE, work_mem="20GB") is None
    assert choose(Resource.STANDBY, synchronous_commit="local") is None
    assert choose(Resource.WAL_FLUSH, synchronous_commit="off") is None
    assert choose(Resource.WAL_FLUSH, fsync="off") is None
    assert choose(Resource.WAL_LOCK, make_workload("tpcb-like", clients=2)) is None
    assert choose(Resource.LOAD_GENERATOR, make_workload("tpcb-like", clients=2)) is None
    assert choose(Resource.CPU, make_workload("tpcb-like", clients=8, rate_tps=100.0)) is None


def test_a_load_of_several_scripts_has_no_command() -> None:
    mixed = msgspec.structs.replace(LOAD, scripts=(("tpcb-like", 1), ("select-only", 2)))
    chosen = choose(Resource.CPU, mixed)
    assert chosen is not None
    assert chosen.command == ""


def test_a_load_through_a_pooler_is_tried_without_it() -> None:
    pooler = PlannedPooler(name="pool", mode=PoolMode.SESSION, size=8, most_clients=8)
    record = make_record(scale=20)
    record = msgspec.structs.replace(record, plan=msgspec.structs.replace(record.plan, poolers=(pooler,)))
    through = msgspec.structs.replace(LOAD, endpoint="pool")
    for resource in (Resource.POOL, Resource.POOLER):
        assert choose(resource) is None
        chosen = choose_intervention(say(resource), record, load=through)
        assert chosen is not None
        assert (chosen.varied, chosen.levels) == ("endpoint", ("pool", "primary"))
        # A pool that is too small and a pooler whose CPU is full both predict that direct connections are faster.
        assert not chosen.is_specific
        assert chosen.command.startswith("pgdyno compare --endpoint pool --endpoint primary ")
        assert " --pool-mode session --pool-size 8 " in chosen.command
    assert choose_intervention(say(Resource.CPU), record, load=through) is not None
    other = choose_intervention(say(Resource.CLIENT), record, load=through)
    assert other is not None
    assert " --endpoint pool " in other.command
    assert " --pool-mode session --pool-size 8 " in other.command


def test_prepared_statements_are_not_advised_through_a_pooler_that_loses_them() -> None:
    for version, is_advised in (((1, 18), False), ((1, 21), True)):
        program = PoolerProgram(path="/usr/sbin/pgbouncer", version=version)
        pooler = PlannedPooler(name="pool", mode=PoolMode.TRANSACTION, size=8, most_clients=8, program=program)
        record = make_record(scale=20)
        record = msgspec.structs.replace(record, plan=msgspec.structs.replace(record.plan, poolers=(pooler,)))
        through = msgspec.structs.replace(LOAD, endpoint="pool")
        chosen = choose_intervention(say(Resource.CPU), record, load=through)
        assert (chosen is not None) == is_advised


_WITHOUT_COMMAND = {Resource.UNKNOWN, Resource.STANDBY, Resource.NETWORK, Resource.POOL, Resource.POOLER}


@each_row([each for each in Resource if each not in _WITHOUT_COMMAND])
def test_a_command_asks_what_the_experiment_is(resource: Resource) -> None:
    chosen = choose(resource, scale=20, temp_buffers="16MB", search_path="'a b'")
    assert chosen is not None
    study = read_command(chosen.command)
    (workload,) = study.workload
    varied = [make_variant(variant) for variant in chosen.variants]
    asked = [msgspec.structs.replace(one, settings={**study.server.settings, **one.settings}) for one in study.variant]
    settings = {"temp_buffers": "16MB", "search_path": "'a b'"}
    assert [one.settings for one in asked] == [{**one.settings, **settings} for one in varied]
    assert [(one.mode, one.clients, one.threads, one.scale) for one in asked] == [
        (one.mode, one.clients, one.threads, one.scale) for one in varied
    ]
    assert workload.name == "tpcb-like"
    assert chosen.varied == "clients" or workload.clients == 8
    assert chosen.varied == "threads" or workload.threads == 2
    assert chosen.varied == "scale" or study.data.scale == 20


def read_command(text: str) -> Study:
    """The study that a command line asks for, by the composer behind it."""
    program, verb, *words = shlex.split(text)
    assert (program, verb) == ("pgdyno", "compare")
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("variants", nargs="*")
    for option in ("set", "sysctl", "server", "mode", "clients", "threads", "scale", "workload"):
        parser.add_argument(f"--{option}", action="append", default=[])
    parser.add_argument("--home")
    said = vars(parser.parse_args(words))
    assert said.pop("home") == "/var/tmp/pgdyno", "the record's own"
    workloads, variants = said.pop("workload"), said.pop("variants")
    tables: dict[str, dict[str, object]] = {name: {} for name in ("server", "data", "trials", "experiment")}
    return compose_comparison(
        variants=variants, varied=said, workloads=workloads, load={}, tables=tables, folder=Path("/")
    )


def count_statement(query: str, exec_ms: float, read_pages: int) -> StatementCounts:
    fields = dict.fromkeys(StatementCounts.__struct_fields__, 0)
    return StatementCounts(**{**fields, "query": query, "calls": 4, "exec_ms": exec_ms, "read_pages": read_pages})  # type: ignore[arg-type]


NAMED = (
    (Resource.LOCK, "90 % (90 to 90 %, n = 2) of execution time by pg_stat_statements: `UPDATE b`"),
    (Resource.CPU, "of execution time by pg_stat_statements: `UPDATE b`"),
    (Resource.DATA_READ, "75 % (75 to 75 %, n = 2) of the pages read by pg_stat_statements: `SELECT a`"),
    (Resource.TEMP_FILE, ""),
    (Resource.WAL_FLUSH, ""),
)


@each_row(NAMED)
def test_the_statement_behind_a_limit_is_named(resource: Resource, named: str) -> None:
    record, analysis = analyse_kept(find_name("slow-flush"))
    (workload,) = analysis.workloads
    counted = (count_statement("UPDATE b", 9.0, 1), count_statement("SELECT a", 1.0, 3))
    trial = workload.trials[0]
    counting = msgspec.structs.replace(trial, record=msgspec.structs.replace(trial.record, statements=counted))
    changed = msgspec.structs.replace(workload, bottleneck=say(resource), trials=tuple(in_rounds([counting] * 2)))
    (finding,) = find_bottlenecks(record, msgspec.structs.replace(analysis, workloads=(changed,)))
    assert named in finding.evidence
    assert ("pg_stat_statements" in finding.evidence) == bool(named)
