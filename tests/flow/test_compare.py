from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.errors import SpecError
from pgdyno.flow.compare import compose_comparison, compose_sweep
from pgdyno.flow.compose_bench import workload_tables
from pgdyno.plan.identical import find_identical
from pgdyno.plan.pin import format_pinned
from pgdyno.plan.places import Place
from pgdyno.plan.plan import Machine, plan_study
from pgdyno.plan.variants import list_places, plan_experiment
from pgdyno.spec.read import format_study, parse_study
from pgdyno.spec.study import ServerKind, Study
from pgdyno.spec.table import CacheState, QueryMode
from pgdyno.spec.variant import DesignKind, ExperimentSpec

OPTIONS = (
    "set",
    "sysctl",
    "initdb",
    "server",
    "mode",
    "clients",
    "threads",
    "scale",
    "cache",
    "script",
    "home",
    "wal-home",
)


def compare(
    *variants: str, folder: Path = Path("/"), load: dict[str, object] | None = None, **varied: str | list[str]
) -> Study:
    return compose_comparison(
        variants=variants,
        varied={name: [texts] if isinstance(texts := varied.get(name, []), str) else texts for name in OPTIONS},
        workloads=[],
        load=load or {},
        tables={"server": {}, "data": {}, "trials": {}, "experiment": {}},
        folder=folder,
    )


def sweep(*axes: str, load: dict[str, object] | None = None, **tables: dict[str, object]) -> Study:
    return compose_sweep(
        axes=axes,
        workloads=["tpcb-like", "select-only"],
        load={"max_tries": 3} if load is None else load,
        tables={"server": {}, "data": {}, "trials": {}, "experiment": {}, **tables},
        folder=Path("/"),
    )


def titles(study: Study) -> list[str]:
    return [variant.title for variant in study.variant]


# -- compare ---------------------------------------------------------------------------------------------------------


def test_each_set_is_a_variant() -> None:
    study = compare(set=["commit_delay=0", "commit_delay=50 commit_siblings=10", "search_path='a, b'"])
    assert [variant.settings for variant in study.variant] == [
        {"commit_delay": "0"},
        {"commit_delay": "50", "commit_siblings": "10"},
        {"search_path": "a, b"},
    ]
    assert study.question == (
        "Which is faster: commit_delay=0; commit_delay=50, commit_siblings=10; or search_path=a, b?"
    )
    asked = compare(set=["commit_delay=0", "commit_delay=50", "commit_delay=90"]).question
    assert asked == "Which is faster: commit_delay=0, commit_delay=50 or commit_delay=90?"
    assert [workload.name for workload in study.workload] == ["tpcb-like"]
    assert (study.trials.duration_s, study.trials.warm_up_s) == (10, 3)


def test_one_set_alone_is_compared_with_the_server_as_it_is() -> None:
    study = compare(set="commit_delay=50", sysctl="vm.swappiness=10", clients="3", mode="prepared", server="15")
    assert titles(study) == ["as it is", "commit_delay=50, vm.swappiness=10"]
    assert study.variant[1].sysctl == {"vm.swappiness": "10"}
    assert (study.workload[0].clients, study.workload[0].mode) == (3, QueryMode.PREPARED)
    assert (study.server.kind, study.server.version) == (ServerKind.LOCAL, 15)
    assert titles(compare(sysctl="vm.swappiness=10")) == ["as it is", "vm.swappiness=10"]
    assert titles(compare(initdb="checksums=off wal_segment_size=64MB")) == [
        "as it is",
        "checksums=off, wal_segment_size=64MB",
    ]
    for size in ("1.5MB", "1.4MB"):
        with pytest.raises(SpecError, match=rf"^wal_segment_size: {size} is not a power of 2"):
            compare(initdb=f"wal_segment_size={size}")
        with pytest.raises(SpecError, match=rf"^wal_segment_size: {size} is not a power of 2"):
            sweep(f"wal_segment_size=1MB,{size}")
    assert compare(initdb="wal_segment_size=2048kB").variant[1].segment_mb == 2


@pytest.mark.parametrize(
    ("name", "texts", "expected"),
    [
        ("server", ["15", "embedded"], ["server=15", "server=embedded"]),
        ("mode", ["simple", "extended", "prepared"], ["mode=simple", "mode=extended", "mode=prepared"]),
        ("clients", ["1", "8"], ["clients=1", "clients=8"]),
        ("threads", ["1", "4"], ["threads=1", "threads=4"]),
        ("scale", ["1", "10"], ["scale=1", "scale=10"]),
        ("cache", ["warm", "cold", "asis"], ["cache=warm", "cache=cold", "cache=asis"]),
        ("initdb", ["checksums=on", "checksums=off"], ["checksums=on", "checksums=off"]),
        ("sysctl", ["vm.swappiness=1", "vm.swappiness=60"], ["vm.swappiness=1", "vm.swappiness=60"]),
    ],
)
def test_what_is_said_once_holds_for_all_variants(name: str, texts: list[str], expected: list[str]) -> None:
    once = {"set": "work_mem=8MB fsync=off", "mode": "prepared", "clients": "5", "threads": "2", "scale": "7",
            "server": "16", "cache": "cold", "initdb": "locale=POSIX"}  # fmt: skip
    study = compare(**{**once, name: texts})
    assert titles(study) == expected
    assert study.server.settings == {"work_mem": "8MB", "fsync": "off"}
    assert study.workload[0].clients == (None if name == "clients" else 5)
    assert study.workload[0].threads == (None if name == "threads" else 2)
    assert study.workload[0].mode is (QueryMode.SIMPLE if name == "mode" else QueryMode.PREPARED)
    assert study.data.scale == (None if name == "scale" else 7)
    assert study.server.version == (None if name == "server" else 16)
    assert study.trials.cache is (CacheState.WARM if name == "cache" else CacheState.COLD)
    assert study.data.locale == (None if name == "initdb" else "POSIX")


def test_disks_are_variants(tmp_path: Path) -> None:
    study = compare(folder=tmp_path, **{"wal-home": ["none", "wal", "/mnt/wal"]})
    assert titles(study) == ["wal_home=none", "wal_home=wal", "wal_home=/mnt/wal"]
    assert list_places(study) == (Place(), Place(None, str(tmp_path / "wal")), Place(None, "/mnt/wal"))
    assert parse_study(format_study(study), source="again", folder=Path("/elsewhere")) == study
    study = compare(folder=tmp_path, home=["a", "none"])
    assert list_places(study) == (Place(str(tmp_path / "a")), Place(str(tmp_path / "none")))
    study = sweep("wal_home=none,/w", "home=/a,/b")
    study = msgspec.structs.replace(study, data=msgspec.structs.replace(study.data, wal_home="/mine"))
    assert list_places(study) == (Place("/a"), Place("/b"), Place("/a", "/w"), Place("/b", "/w"))
    assert list_places(sweep("clients=1,2", data={"wal_home": "/mine"})) == (Place(None, "/mine"),)
    assert list_places(compare(set=["fsync=on", "fsync=off"])) == (Place(),)


def test_scripts_are_variants_of_one_load(tmp_path: Path) -> None:
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "pay.sql").write_text("SELECT 1;\n")
    study = compare(folder=tmp_path, script=["old/pay.sql", "new/pay.sql", "select-only"], clients="4")
    assert titles(study) == ["old/pay.sql", "new/pay.sql", "select-only"]
    assert [(one.name, one.clients) for one in study.workload] == [("scripts", 4)]
    plan = plan_study(study, Machine(version_major=18, cpu_count=2, memory_bytes=2**34, disk_free_bytes=2**36))
    assert plan.experiment is not None
    assert plan.experiment.reason == "scripts cannot change under a running load"
    # Each variant runs its own, and all are tried and kept.
    paths = [str(tmp_path / "old/pay.sql"), str(tmp_path / "new/pay.sql"), "select-only"]
    assert [load.scripts for load in plan.script_loads] == [((path, 1),) for path in paths]
    ran = {trial.variants[0]: plan.find_load(trial).scripts[0][0] for trial in plan.trials}
    assert ran == dict(zip(titles(study), paths, strict=True))
    # What the record keeps is run again, under the same names.
    pinned = parse_study(format_pinned(study, plan, scripts={paths[0]: "new/pay.sql"}), source="again", folder=tmp_path)
    assert titles(pinned) == titles(study)
    assert [one.scripts for one in pinned.variant] == [(f"{paths[1]}@1",), (f"{paths[1]}@1",), ("select-only@1",)]
    live = msgspec.structs.replace(study, experiment=ExperimentSpec(design=DesignKind.LIVE))
    planned = plan_study(live, Machine(version_major=18, cpu_count=2, memory_bytes=2**36, disk_free_bytes=2**38))
    assert planned.experiment is not None
    assert planned.experiment.design is DesignKind.LIVE


def test_a_kernel_setting_said_once_is_every_variants() -> None:
    study = compare(sysctl="vm.swappiness=10", server=["15", "18"])
    assert [variant.sysctl for variant in study.variant] == [{"vm.swappiness": "10"}] * 2
    study = compare(sysctl="vm.swappiness=10", set=["fsync=on", "fsync=off"])
    assert titles(study) == ["fsync=on, vm.swappiness=10", "fsync=off, vm.swappiness=10"]


def test_files_are_variants(tmp_path: Path) -> None:
    (tmp_path / "tuned.conf").write_text("shared_buffers = 2GB\n")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "tuned.conf").write_text("shared_buffers = 4GB\n")
    study = compare("stock", "tuned.conf", folder=tmp_path, set="work_mem=8MB", sysctl="vm.swappiness=10")
    assert titles(study) == ["stock with work_mem=8MB", "tuned.conf"]
    with pytest.raises(SpecError, match=r"^--set Shared_Buffers: tuned\.conf sets it, too"):
        compare("stock", "tuned.conf", folder=tmp_path, set="Shared_Buffers=1GB")
    assert [variant.settings for variant in study.variant] == [{}, {"shared_buffers": "2GB"}]
    assert [variant.sysctl for variant in study.variant] == [{"vm.swappiness": "10"}] * 2
    assert study.server.settings == {"work_mem": "8MB"}
    assert titles(compare("tuned.conf", folder=tmp_path)) == ["stock", "tuned.conf"]
    assert titles(compare("tuned.conf", "b/tuned.conf", folder=tmp_path)) == ["tuned.conf", "b/tuned.conf"]
    assert titles(compare("b/tuned.conf", "stock", folder=tmp_path)) == ["tuned.conf", "stock"]


def test_odd_names_of_files_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "a\tb.conf").write_text("work_mem = 8MB\n")
    (tmp_path / "a\nb.sql").write_text("SELECT 1;\n")
    assert titles(compare("a\tb.conf", folder=tmp_path)) == ["stock", "a\\tb.conf"]
    assert workload_tables(["a\nb.sql"]) == [{"name": "a\\nb", "scripts": ["a\nb.sql"]}]
    alike = ["a/pay.sql", "b/pay.sql", "buy.sql", "mixed.sql", "b/x.sql@2"]
    assert [table["name"] for table in workload_tables(alike)] == [
        "a/pay.sql",
        "b/pay.sql",
        "buy",
        "mixed.sql",
        "mixed",
    ]
    assert titles(compare(folder=tmp_path, script=["a\nb.sql", "select-only"])) == ["a\\nb.sql", "select-only"]
    study = compare(folder=tmp_path, home=["x\ty", "z"])
    assert titles(study) == ["home=x\\ty", "home=z"]
    assert list_places(study)[0] == Place(str(tmp_path / "x\ty"))
    planned = plan_experiment(sweep("home=/a\tb,/c", "clients=1,2"), version_major=18)
    assert planned is not None
    assert planned.variants[0].name == "clients=1, home=/a\\tb"


def test_a_thing_compared_with_itself_is_numbered_and_known_as_such(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("work_mem = 8MB\n")
    for study, names in (
        (compare(set=["fsync=on"] * 3), ["fsync=on", "fsync=on (2)", "fsync=on (3)"]),
        (compare("stock", "stock"), ["stock", "stock (2)"]),
        (compare("a.conf", "a.conf", folder=tmp_path), ["a.conf", "a.conf (2)"]),
        (compare(clients=["4", "04"]), ["clients=4", "clients=4 (2)"]),
    ):
        assert titles(study) == names
        planned = plan_experiment(study, version_major=18)
        assert planned is not None
        found = find_identical(planned, version_major=18)
        assert (names[0], names[1]) in [same.names[:2] for same in found]


def test_a_folder_of_programs_is_a_server_wherever_one_stands_later(tmp_path: Path) -> None:
    (tmp_path / "pg" / "bin").mkdir(parents=True)
    study = compare(server=["pg/bin", "18"], folder=tmp_path)
    assert study.variant[0].server == str(tmp_path / "pg" / "bin")
    study = compare(server="pg/bin", set="fsync=off", folder=tmp_path)
    assert study.server.bindir == str(tmp_path / "pg" / "bin")


@pytest.mark.parametrize(
    ("varied", "fact"),
    [
        ({}, "nothing to compare"),
        ({"clients": "3", "server": "15"}, "nothing to compare"),
        ({"set": ["a=1", "a=2"], "mode": ["simple", "prepared"]}, "--set and --mode vary at once"),
        ({"set": "commit_delay"}, "--set commit_delay: not of the form NAME=VALUE"),
        ({"set": "commit_delay = 5"}, "not of the form NAME=VALUE"),
        ({"set": "=5"}, "not of the form NAME=VALUE"),
        ({"set": ["", "a=2"]}, "--set : not of the form NAME=VALUE"),
        ({"set": "a='1"}, "--set a='1: No closing quotation"),
        ({"set": "fsync=on fsync=off"}, "fsync comes twice"),
        ({"set": "fsync=on Fsync=off"}, "Fsync comes twice"),
        ({"set": "port=5433"}, "--set port=5433: port is set by pgdyno"),
        ({"set": "primary_conninfo=x"}, "may hold a password"),
        ({"set": "a b=3"}, "not of the form"),
        ({"set": "vm.swappiness=3"}, "vm.swappiness is a kernel setting: move it to sysctl"),
        ({"sysctl": "work_mem=3"}, "'work_mem' is not the name of a kernel setting"),
        ({"clients": ["1", "many"]}, "--clients many: 'many' is not a whole number"),
        ({"clients": ["1", "²"]}, "--clients ²: '²' is not a whole number"),
        ({"clients": ["1", "8.5"]}, "--clients 8.5: '8.5' is not a whole number"),
        ({"clients": ["1", "0"]}, "--clients 0: 0 is not within 1 to 10000"),
        ({"clients": "-3", "set": "fsync=off"}, "--clients -3: -3 is not within"),
        ({"scale": ["1", "1e3"]}, "--scale 1e3: '1e3' is not a whole number"),
        ({"mode": ["simple", "fast"]}, "--mode fast: 'fast' is not one of simple, extended, prepared"),
        ({"mode": "fast", "set": "fsync=off"}, "--mode fast: 'fast' is not one of"),
        ({"mode": ["simple", "null"]}, "--mode null: 'null' is not one of"),
        ({"server": ["15", "newest"]}, "--server newest: neither `embedded` nor a major version nor a folder"),
        ({"server": ["15", "²"]}, "--server ²: neither"),
        ({"server": ["15", ""]}, "--server : neither"),
        ({"script": "a.sql"}, "--script a.sql: there is nothing to compare it with"),
        ({"script": ["a.sql", "b.sql@x"]}, "what follows @ is a weight"),
        ({"script": ["a.sql", "tpcb-like@0"]}, "weight of tpcb-like"),
        ({"script": ["a.sql", "simple-updat"]}, "workload scripts: there is no script a.sql"),
        ({"script": ["simple-update", "tpcb-like"], "clients": ["1", "2"]}, "--clients and --script vary at once"),
    ],
)
def test_what_cannot_be_meant_is_said_in_words(varied: dict[str, str | list[str]], fact: str) -> None:
    with pytest.raises(SpecError) as caught:
        compare(**varied)
    assert fact in caught.value.fact
    assert caught.value.hint


def test_variants_and_options_that_make_variants() -> None:
    with pytest.raises(SpecError, match="--set and variants vary at once"):
        compare("stock", set=["a=1", "a=2"])
    with pytest.raises(SpecError, match="nothing to compare `stock` with"):
        compare("stock")
    with pytest.raises(SpecError, match=r"cannot read the variant none\.conf"):
        compare("stock", "none.conf")


def test_workloads_hold_what_is_said_of_the_load() -> None:
    study = compare(set="fsync=off", load={"threads": 2, "rate_tps": 500.0})
    assert (study.workload[0].threads, study.workload[0].rate_tps) == (2, 500.0)


# -- sweep -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("clients=1..128", "1 2 4 8 16 32 64 128"),
        ("clients=1..100", "1 2 4 8 16 32 64 100"),
        ("clients=3..10", "3 6 10"),
        ("clients=1..2,5,8..32", "1 2 5 8 16 32"),
        ("commit_delay=0..10", "0 1 2 4 8 10"),
        ("commit_delay=0, 10 ,20", "0 10 20"),
        ("commit_delay=-1,0", "-1 0"),
        ("random_page_cost=1.1,4", "1.1 4"),
        ("mode=simple,extended,prepared", "simple extended prepared"),
        ("fsync=on,off", "on off"),
        ("vm.dirty_background_bytes=67108864,134217728", "67108864 134217728"),
        ("server=15,embedded", "15 embedded"),
    ],
)
def test_axes(text: str, levels: str) -> None:
    study = sweep(text)
    assert study.sweep[0].levels == tuple(levels.split())
    name = text.partition("=")[0]
    curve = "How does TPS follow the number of clients?"
    assert study.question == (curve if name == "clients" else f"What does {name} do?")
    assert [workload.max_tries for workload in study.workload] == [3, 3]


@given(first=st.integers(0, 10**6), more=st.integers(1, 10**6))
def test_a_range_at_most_doubles_from_level_to_level(first: int, more: int) -> None:
    levels = [int(str(level)) for level in sweep(f"commit_delay={first}..{first + more}").sweep[0].levels]
    assert (levels[0], levels[-1]) == (first, first + more)
    assert all(0 < after - before <= max(1, before) for before, after in itertools.pairwise(levels))


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("clients", "clients is no axis"),
        ("clients=", "clients= is no axis"),
        ("=1,2", "=1,2 is no axis"),
        ("clients = 1,2", "is no axis"),
        ("clients=4", "a sweep needs at least two"),
        ("clients=8..1", "8..1 is no range"),
        ("clients=5..5", "5..5 is no range"),
        ("clients=1..", "1.. is no range"),
        ("clients=..8", "..8 is no range"),
        ("clients=-1..8", "-1..8 is no range"),
        ("clients=1...8", "1...8 is no range"),
        ("work_mem=1MB..64MB", "1MB..64MB is no range"),
        ("clients=1,,2", "a level is empty"),
        ("clients=1,2,", "a level is empty"),
        ("clients=1,many", "'many' is not a whole number"),
        ("clients=1,1.5", "'1.5' is not a whole number"),
        ("clients=true,2", "'true' is not a whole number"),
        ("clients=0..8", "clients 0 is not within"),
        ("clients=1..20000", "clients 16384 is not within"),
        ("clients=1,01", "clients=1 comes twice"),
        ("clients=1..8,4", "clients=4 comes twice"),
        ("mode=simple,fast", "'fast' is not one of simple, extended, prepared"),
        ("mode=1..4", "'1' is not one of"),
        ("port=5432,5433", "port is set by pgdyno"),
        ("server=15,newest", "neither `embedded` nor"),
        (f"commit_delay={','.join(map(str, range(201)))}", "201 are more than 200"),
    ],
)
def test_what_is_no_axis_is_said_in_words(text: str, fact: str) -> None:
    with pytest.raises(SpecError) as caught:
        sweep(text)
    assert fact in caught.value.fact
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "fact", "hint"),
    [
        (
            "clients",
            "clients is no axis",
            "an axis is NAME=LEVEL,LEVEL,… or NAME=FIRST..LAST: for example clients=1..64,",
        ),
        ("clients=", "clients= is no axis", "an axis is NAME=LEVEL,LEVEL,…"),
        ("p99<20ms", "p99<20ms is no axis", "'latency<20ms@p99'"),
        ("clients=abc", "clients=abc: clients 'abc' is not a whole number", "for example clients=1..64;"),
        ("clients=0", "clients=0: clients 0 is not within 1 to 10000", "for example clients=1..64;"),
        ("clients=4", "clients=4: a sweep needs at least two levels", "for example clients=1..64;"),
        ("client=4", "client=4: a sweep needs at least two levels", "did you mean clients? for example clients=1..64;"),
        ("clients=1..", "clients=1..: 1.. is no range", "two whole numbers, the smaller first: clients=1..64"),
        ("clients=1,,8", "clients=1,,8: a level is empty", "a comma stands between two levels: clients=1,8,64"),
        ("mode=fast,simple", "mode=fast,simple: mode 'fast' is not one of", "for example mode=simple,prepared;"),
        ("work_mem=4MB", "work_mem=4MB: a sweep needs at least two levels", "for example commit_delay=0,50,100;"),
    ],
)
def test_what_is_no_axis_is_followed_by_what_is_one(text: str, fact: str, hint: str) -> None:
    with pytest.raises(SpecError) as caught:
        sweep(text)
    assert caught.value.fact.startswith(fact)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("axis", "load", "tables"),
    [
        ("clients=1,4", {"clients": 8}, {}),
        ("endpoint=primary,pool", {"endpoint": "pool"}, {"poolers": {"pool": {}}}),
        ("scale=1,2", {}, {"data": {"scale": 3}}),
        ("server=15,18", {}, {"server": {"kind": "local", "version": 16}}),
        ("commit_delay=0,50", {}, {"server": {"settings": {"commit_delay": "10"}}}),
        ("commit_delay=0,50", {}, {"server": {"settings": {"Commit_Delay": "10"}}}),
    ],
)
def test_an_option_and_an_axis_of_one_name(
    axis: str, load: dict[str, object], tables: dict[str, dict[str, object]]
) -> None:
    with pytest.raises(SpecError, match=f"an axis varies {axis.partition('=')[0]}, and an option says") as caught:
        sweep(axis, load=load, **tables)
    assert caught.value.hint
    assert sweep("mode=simple,prepared", load=load, **tables).sweep


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ("ANY 1 (standby1,standby2),standby1", ["ANY 1 (standby1,standby2)", "standby1"]),
        ('"a,b",c', ['"a,b"', "c"]),
        ("'a,b',c", ["'a,b'", "c"]),
        ("(a,(b,c),d),e", ["(a,(b,c),d)", "e"]),
        ("o'a,b", ["o'a", "b"]),
        ("(a,b", ["(a", "b"]),
    ],
)
def test_a_comma_in_parentheses_or_quotes_belongs_to_its_level(levels: str, expected: list[str]) -> None:
    assert list(sweep(f"synchronous_standby_names={levels}").sweep[0].levels) == expected


def test_sizes_of_a_pool_are_asked_about_as_such() -> None:
    axis = "endpoint=pool2,pool8"
    sizes: dict[str, object] = {"pool2": {"size": 2}, "pool8": {"size": 8}}
    assert sweep(axis, poolers=sizes).question == "What does pool_size do?"
    assert sweep(axis, poolers={"pool2": {}, "pool8": {}}).question == "What does endpoint do?"
    assert sweep("endpoint=primary,pool8", poolers=sizes).question == "What does endpoint do?"


def test_three_axes() -> None:
    with pytest.raises(SpecError, match="3 axes: two are the most"):
        sweep("clients=1,2", "threads=1,2", "scale=1,2")


def test_an_option_of_the_experiment_is_named_with_its_command() -> None:
    with pytest.raises(SpecError, match="--minutes: 0 is not within") as caught:
        sweep("clients=1,2", experiment={"minutes": 0})
    assert "`pgdyno sweep --help`" in caught.value.hint
    with pytest.raises(SpecError, match="--rate: 40 decides TPS, whatever the number of clients"):
        sweep("mode=simple,prepared", "clients=1,2", load={"rate_tps": 40.0})


def test_what_was_asked_survives_as_a_study(tmp_path: Path) -> None:
    (tmp_path / "tuned.conf").write_text("shared_buffers = 2GB\nsearch_path = 'it''s'\n")
    for study in (
        compare("stock", "tuned.conf", folder=tmp_path),
        compare(server=["15", "18"], set="work_mem=8MB"),
        sweep("mode=simple,prepared", "clients=1..8"),
    ):
        assert parse_study(format_study(study), source="again", folder=tmp_path) == study
