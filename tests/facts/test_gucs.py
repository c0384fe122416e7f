"""The catalogue of settings against the servers it speaks of, and what pgdyno says of a change against what one does."""

from __future__ import annotations

import importlib.resources
import json
import re
import subprocess
import sys
from collections.abc import Callable

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgdyno.facts.guc_catalogue import knowledge
from pgdyno.facts.gucs import (
    ChangeCost,
    Context,
    Effect,
    Guc,
    VarType,
    all_gucs,
    change_cost,
    cost_of_context,
    costliest,
    effect_of,
    explain_effect,
    find_guc,
    is_custom_name,
    majors_with,
    nearest_gucs,
    read_value,
    same_value,
)
from pgdyno.facts.versions import TRIED_MAJORS
from pgdyno.run.host import process
from pgdyno.run.postgres import sql
from tests.examples import TIMES
from tests.facts.clusters import VERSIONS, Cluster
from tests.rows import each_row
from tests.waiting import wait_until

ClusterOf = Callable[[int], Cluster]
OLDEST_AND_NEWEST = [pytest.param(major, marks=pytest.mark.cluster) for major in (15, 18)]


def get(name: str, major: int) -> Guc:
    guc = find_guc(name, major)
    assert guc is not None
    return guc


def as_shown(guc: Guc, text: str) -> str | None:
    """What pgdyno takes a text to mean, as pg_settings.setting would show it; None for a refusal."""
    try:
        value = read_value(guc, text)
    except ValueError:
        return None
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{float(value) + 0.0:g}" if guc.vartype is VarType.REAL else str(value)


def set_in_session(connection: sql.Connection, name: str, text: str) -> str | None:
    """What the server makes of a text; None for a refusal."""
    try:
        connection.execute("SELECT set_config(%s, %s, false)", [name, text])
    except psycopg.errors.InvalidParameterValue:
        return None
    row = connection.execute("SELECT setting FROM pg_settings WHERE name = %s", [name]).fetchone()
    assert row is not None
    return "0" if row["setting"] == "-0" else str(row["setting"])


def catalogued_minor(major: int) -> int:
    """The minor release of the server that the catalogue was written from."""
    text = importlib.resources.files("pgdyno.facts").joinpath("gucs.json").read_text()
    return int(re.match(r"\d+\.(\d+)", json.loads(text)["servers"][str(major)])[1])


@pytest.mark.parametrize("major", VERSIONS)
def test_a_server_says_of_its_settings_what_the_catalogue_says(major: int, cluster_of: ClusterOf) -> None:
    with sql.connect(cluster_of(major).address) as connection:
        rows = {row["name"]: row for row in connection.execute("SELECT * FROM pg_settings WHERE name !~ '[.]'")}
    known = {guc.name: guc for guc in all_gucs(major)}
    # A distribution's next minor release may bring settings, and is no fault of the program: tools/gucs.py asks it anew.
    is_younger = int(rows["server_version_num"]["setting"]) % 10000 > catalogued_minor(major)
    new = rows.keys() - known.keys()
    assert is_younger or not new
    assert all(known[name].not_everywhere for name in known.keys() - rows.keys())
    for name in rows.keys() - new:
        row, guc = rows[name], known[name]
        assert (guc.context.value, guc.vartype.value, guc.unit) == (row["context"], row["vartype"], row["unit"]), name
        if guc.context is not Context.INTERNAL and row["min_val"] is not None:
            assert (guc.min_value, guc.max_value) == (float(row["min_val"]), float(row["max_val"])), name
        else:
            assert (guc.min_value, guc.max_value) == (None, None), name
        listed = set(row["enumvals"] or ())
        assert set(guc.values) - set(guc.build_values) <= listed <= set(guc.values), name
        assert guc.boot == (None if name in knowledge().boot_of_build else row["boot_val"]), name


@pytest.mark.parametrize("major", OLDEST_AND_NEWEST)
def test_numbers_and_units_mean_to_pgdyno_what_they_mean_to_the_server(major: int, cluster_of: ClusterOf) -> None:
    names = (
        "work_mem",  # kB
        "effective_cache_size",  # 8kB
        "log_parameter_max_length",  # B
        "lock_timeout",  # ms
        "vacuum_cost_delay",  # ms, real
        "random_page_cost",  # real
        "effective_io_concurrency",  # no unit
    )
    number = st.one_of(
        st.integers(-2, 3 << 31).map(str),
        st.floats(0, 5000).map(str),
        st.decimals(0, 4000, places=3).map(str),
        st.sampled_from(
            [
                "0x1F",
                "017",
                "08",
                "0x",
                "1e3",
                "1E",
                ".5",
                "5.",
                "-0",
                "+7",
                "1_0",
                "",
                " 64",
                "1e400",
                "1e-400",
                "9" * 400,
                "1e308",
                "nan",
                "inf",
            ]
        ),
    )
    unit = st.sampled_from(
        ["", "B", "kB", "MB", "GB", "TB", "KB", "mb", "us", "ms", "s", "min", "h", "d", "kBx", "B B"]
    )
    with sql.connect(cluster_of(major).address) as connection:

        @settings(max_examples=400 * TIMES, deadline=None, database=None)
        @given(st.sampled_from(names), number, st.sampled_from(["", " ", "\t"]), unit, st.sampled_from(["", " "]))
        def agree(name: str, number: str, space: str, unit: str, end: str) -> None:
            text = number + space + unit + end
            assert as_shown(get(name, major), text) == set_in_session(connection, name, text), (name, text)

        agree()


@pytest.mark.parametrize("major", OLDEST_AND_NEWEST)
@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("max_wal_size", ["1GB", "1.3GB", "1500kB", "33554432B", "0.1TB", "100", "2MB", "1.5"]),
        ("log_rotation_age", ["90s", "1.5h", "2d", "100ms", "30s", "29s", "7min"]),
        ("checkpoint_timeout", ["500ms", "45500ms", "5min", "0.5h", "1e2", "29"]),
        ("autovacuum_vacuum_cost_delay", ["500us", "1.5", "0.0015s", "101", "-1"]),
    ],
)
def test_units_of_what_no_session_can_set(major: int, name: str, texts: list[str], cluster_of: ClusterOf) -> None:
    cluster = cluster_of(major)
    for text in texts:
        argv = [str(cluster.bindir / "postgres"), "-D", str(cluster.root / "data"), "-c", f"{name}={text}", "-C", name]
        said = process.run(argv, user=cluster.user)
        assert as_shown(get(name, major), text) == (None if said.exit_code else said.stdout.strip()), text


@pytest.mark.parametrize("major", OLDEST_AND_NEWEST)
def test_words_mean_to_pgdyno_what_they_mean_to_the_server(major: int, cluster_of: ClusterOf) -> None:
    words = [
        "on",
        "ON",
        "off",
        "of",
        "o",
        "t",
        "Tr",
        "true",
        "f",
        "fals",
        "y",
        "ye",
        "n",
        "no",
        "1",
        "0",
        "2",
        "",
        "none",
    ]
    names = ("enable_seqscan", "synchronous_commit", "wal_compression", "client_min_messages", "IntervalStyle")
    own = [word for name in names for value in get(name, major).values for word in (value, value.upper(), value[:-1])]
    with sql.connect(cluster_of(major).address) as connection:
        for name in names:
            guc = get(name, major)
            for word in (*words, *own, "debug", "info"):
                if word.lower() not in guc.build_values:
                    assert as_shown(guc, word) == set_in_session(connection, name, word), (name, word)


@pytest.mark.parametrize("major", OLDEST_AND_NEWEST)
def test_a_name_answers_as_the_servers_does(major: int, cluster_of: ClusterOf) -> None:
    with sql.connect(cluster_of(major).address) as connection:
        for name in (
            "WORK_MEM",
            "datestyle",
            "sort_mem",
            "vacuum_mem",
            "ssl_ecdh_curve",
            "force_parallel_mode",
            "io_method",
            "lc_collate",
        ):
            row = connection.execute("SELECT current_setting(%s, true) AS value", [name]).fetchone()
            assert row is not None
            assert (find_guc(name, major) is not None) == (row["value"] is not None), name


@pytest.mark.parametrize("major", OLDEST_AND_NEWEST)
def test_a_generic_plan_outlives_planner_settings(major: int, cluster_of: ClusterOf) -> None:
    with sql.connect(cluster_of(major).address) as connection:

        def set_to(name: str, value: str) -> bool:
            connection.execute("SELECT set_config(%s, %s, false)", [name, value])
            rows = connection.execute("EXPLAIN (COSTS OFF) EXECUTE find(5)").fetchall()
            return "Index" in str(rows)

        connection.execute("CREATE TEMP TABLE numbers AS SELECT g AS id FROM generate_series(1, 20000) g")
        connection.execute("CREATE INDEX ON numbers (id)")
        connection.execute("ANALYZE numbers")
        connection.execute("PREPARE find(int) AS SELECT * FROM numbers WHERE id = $1")
        assert set_to("plan_cache_mode", "force_generic_plan")
        for name in ("enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan"):
            assert effect_of(name) is Effect.NEW_PLANS
            assert set_to(name, "off"), "the plan was made before"
        assert effect_of("plan_cache_mode") is Effect.AT_ONCE
        assert not set_to("plan_cache_mode", "force_custom_plan")
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            connection.execute("SET temp_buffers = '16MB'")
        assert effect_of("temp_buffers") is Effect.NEW_SESSIONS


@pytest.mark.parametrize("major", OLDEST_AND_NEWEST)
def test_a_reload_reaches_running_sessions_with_all_but_backend_settings(major: int, cluster_of: ClusterOf) -> None:
    changed = {"jit": "off", "deadlock_timeout": "2000", "checkpoint_warning": "40", "log_disconnections": "on"}
    with sql.connect(cluster_of(major).address) as other, sql.connect(cluster_of(major).address) as running:
        try:
            for name, value in changed.items():
                other.execute(f"ALTER SYSTEM SET {name} = {value}")  # type: ignore[call-overload]
            other.execute("SELECT pg_reload_conf()")
            # A session takes all that a reload brings it at once, and the server has done so before.
            assert wait_until(lambda: show(running, "deadlock_timeout") == changed["deadlock_timeout"])
            reached = {name for name, value in changed.items() if show(running, name) == value}
            with sql.connect(cluster_of(major).address) as new:
                assert {name: show(new, name) for name in changed} == changed
        finally:
            other.execute("ALTER SYSTEM RESET ALL")
            other.execute("SELECT pg_reload_conf()")
    costs = {name: change_cost(name, major) for name in changed}
    assert reached == {name for name in changed if costs[name] is not ChangeCost.NEW_SESSIONS}
    assert list(costs.values()) == [ChangeCost.SESSION, ChangeCost.SESSION, ChangeCost.RELOAD, ChangeCost.NEW_SESSIONS]


def show(connection: sql.Connection, name: str) -> str:
    row = connection.execute("SELECT setting FROM pg_settings WHERE name = %s", [name]).fetchone()
    assert row is not None
    return str(row["setting"])


@pytest.mark.parametrize("major", OLDEST_AND_NEWEST)
def test_page_images_return_only_with_the_next_checkpoint(major: int, cluster_of: ClusterOf) -> None:
    assert effect_of("full_page_writes") is Effect.SLOW
    cluster = cluster_of(major)
    with sql.connect(cluster.address) as connection:

        def position() -> str:
            row = connection.execute("SELECT pg_current_wal_insert_lsn()::text AS lsn").fetchone()
            assert row is not None
            return str(row["lsn"])

        def write() -> int:
            before = position()
            connection.execute("UPDATE imaged SET filler = filler")
            row = connection.execute("SELECT pg_current_wal_insert_lsn() - %s::pg_lsn AS bytes", [before]).fetchone()
            connection.execute("VACUUM imaged")
            assert row is not None
            return int(row["bytes"])

        def switch(value: str) -> None:
            before = position()
            connection.execute(f"ALTER SYSTEM SET full_page_writes = {value}")  # type: ignore[call-overload]
            connection.execute("SELECT pg_reload_conf()")
            # The checkpointer, which brings it into force, logs that.
            assert wait_until(lambda: "FPW_CHANGE" in read_wal(before))

        def read_wal(since: str) -> str:
            connection.execute("SELECT txid_current()")  # a commit, so that what is logged is in a file
            places = ("--path", str(cluster.root / "data" / "pg_wal"), "--start", since, "--end", position())
            return process.run([str(cluster.bindir / "pg_waldump"), *places], user=cluster.user).stdout

        try:
            connection.execute(
                "CREATE TABLE imaged AS SELECT g AS id, repeat('x', 1000) AS filler FROM generate_series(1, 2000) g"
            )
            connection.execute("VACUUM imaged")
            write()
            switch("off")
            connection.execute("CHECKPOINT")
            without = write()
            switch("on")
            soon_after = write()
            connection.execute("CHECKPOINT")
            with_images = write()
        finally:
            connection.execute("DROP TABLE IF EXISTS imaged")
            connection.execute("ALTER SYSTEM RESET ALL")
            connection.execute("SELECT pg_reload_conf()")
    assert with_images > 1.3 * without
    assert soon_after < 1.1 * without


def test_nobody_who_asks_for_help_waits_for_the_catalogue() -> None:
    code = """if True:
        import sys, pgdyno.facts.durability
        from pgdyno.cli.main import run_program
        from pgdyno.facts.guc_catalogue import _raw, knowledge
        sys.argv = ["pgdyno", "--help"]
        try:
            run_program()
        except SystemExit:
            pass
        raise SystemExit(_raw.cache_info().currsize + knowledge.cache_info().currsize)"""
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


def test_what_we_add_speaks_of_settings_that_exist() -> None:
    every = {guc.name: guc for major in TRIED_MAJORS for guc in all_gucs(major)}
    known = knowledge()
    rules = [
        rule
        for rule in known.effect
        if not rule.categories or not rule.categories[0].startswith(("vm.", "kernel", "block/", "devices/"))
    ]
    named = [name for rule in rules for name in rule.settings if "." not in name]
    assert len(named) == len(set(named))
    assert set(named) | known.initdb | known.boot_of_build <= every.keys()
    assert {one.name for one in (*known.build_values, *known.not_everywhere)} <= every.keys()
    for prefix in (prefix for rule in rules for prefix in rule.categories):
        assert any(guc.category.startswith(prefix) for guc in every.values()), prefix
    assert all(guc.context is Context.INTERNAL for name, guc in every.items() if name in known.initdb)
    # A line that the context makes vain would mislead its reader.
    for name in named:
        last = get(name, majors_with(name)[-1])
        assert last.context in {Context.SIGHUP, Context.SUPERUSER, Context.USER}, name


@each_row(
    [
        ("work_mem", 18, ChangeCost.SESSION),
        ("commit_delay", 15, ChangeCost.SESSION),
        ("max_wal_size", 15, ChangeCost.RELOAD),
        ("log_connections", 18, ChangeCost.NEW_SESSIONS),
        ("ignore_system_indexes", 16, ChangeCost.NEW_SESSIONS),
        ("temp_buffers", 18, ChangeCost.NEW_SESSIONS),
        ("ssl_ciphers", 15, ChangeCost.NEW_SESSIONS),
        ("Shared_Buffers", 17, ChangeCost.RESTART),
        ("autovacuum_max_workers", 17, ChangeCost.RESTART),
        ("autovacuum_max_workers", 18, ChangeCost.RELOAD),
        ("data_checksums", 18, ChangeCost.INITDB),
        ("wal_segment_size", 15, ChangeCost.INITDB),
        ("shared_memory_size", 15, ChangeCost.FIXED),
        ("pg_stat_statements.max", 18, ChangeCost.RESTART),
    ]
)
def test_what_a_change_costs(name: str, major: int, cost: ChangeCost) -> None:
    assert change_cost(name, major) is cost


def test_a_setting_that_a_version_lacks_has_no_cost() -> None:
    for name, major in (
        ("io_method", 17),
        ("force_parallel_mode", 16),
        ("no_such_thing", 18),
        ("work_mem", 14),
    ):
        with pytest.raises(LookupError, match=name):
            change_cost(name, major)


def test_the_costliest_change_decides() -> None:
    assert costliest([]) is ChangeCost.SESSION
    assert costliest([ChangeCost.RELOAD, ChangeCost.RESTART, ChangeCost.KERNEL]) is ChangeCost.RESTART
    assert cost_of_context(Context("superuser-backend")) is ChangeCost.NEW_SESSIONS


@each_row(
    [
        ("commit_delay", Effect.AT_ONCE),
        ("synchronous_commit", Effect.AT_ONCE),
        ("wal_compression", Effect.AT_ONCE),
        ("wal_sync_method", Effect.AT_ONCE),
        ("wal_writer_delay", Effect.AT_ONCE),
        ("session_replication_role", Effect.AT_ONCE),
        ("effective_io_concurrency", Effect.AT_ONCE),
        ("track_io_timing", Effect.AT_ONCE),
        ("max_wal_size", Effect.SLOW),
        ("checkpoint_flush_after", Effect.SLOW),
        ("bgwriter_delay", Effect.SLOW),
        ("backend_flush_after", Effect.SLOW),
        ("wal_init_zero", Effect.SLOW),
        ("vacuum_cost_limit", Effect.SLOW),
        ("default_statistics_target", Effect.SLOW),
        ("Random_Page_Cost", Effect.NEW_PLANS),
        ("jit", Effect.NEW_PLANS),
        ("sort_mem", Effect.NEW_PLANS),
        ("force_parallel_mode", Effect.NEW_PLANS),
        ("ssl_ciphers", Effect.NEW_SESSIONS),
        ("log_disconnections", Effect.NEW_SESSIONS),
        ("huge_pages", Effect.NOT_WHILE_RUNNING),
        ("vm.dirty_background_bytes", Effect.SLOW),
        ("vm.nr_hugepages", Effect.NOT_WHILE_RUNNING),
        ("kernel.sched_autogroup_enabled", Effect.NOT_WHILE_RUNNING),
        ("kernel.sched_rt_runtime_us", Effect.AT_ONCE),
        ("some.extension", Effect.SLOW),
    ]
)
def test_how_soon_a_change_acts(name: str, effect: Effect) -> None:
    assert effect_of(name) is effect
    assert explain_effect(name).why


def test_whole_families_act_alike() -> None:
    for guc in all_gucs(TRIED_MAJORS[-1]):
        if guc.name.startswith(("autovacuum", "vacuum_")) and guc.context is not Context.POSTMASTER:
            assert effect_of(guc.name) is Effect.SLOW, guc.name
        if guc.name.startswith(("enable_", "cpu_", "geqo", "parallel_", "jit_above")):
            assert effect_of(guc.name) is Effect.NEW_PLANS, guc.name


def test_a_misspelt_name_finds_its_likes() -> None:
    assert nearest_gucs("shared_bufers", 18)[0] == "shared_buffers"
    assert nearest_gucs("DATESTYL", 15)[0] == "DateStyle"
    assert "debug_parallel_query" in nearest_gucs("force_parallel_mode", 18)
    assert nearest_gucs("xyzzy", 18) == ()
    assert majors_with("force_parallel_mode") == (15,)
    assert majors_with("huge_pages_status") == (17, 18)


def test_what_an_extension_could_be_called() -> None:
    assert is_custom_name("pg_stat_statements.max")
    assert is_custom_name("a.b.c$1")
    assert not any(is_custom_name(name) for name in ("work_mem", "a.", ".b", "1a.b", "a.b c", "a-b.c"))


@each_row(
    [
        ("shared_buffers", "1GB", "1024MB", True),
        ("shared_buffers", "1GB", "131072", True),
        ("shared_buffers", "1GB", "1.1GB", False),
        ("max_wal_size", "1.5GB", "1536", True),
        ("checkpoint_timeout", "5min", "300", True),
        ("jit", "on", "True", True),
        ("jit", "on", "off", False),
        ("synchronous_commit", "on", "YES", True),
        ("synchronous_commit", "on", "local", False),
        ("wal_compression", "on", "pglz", True),
        ("wal_compression", "lz4", "zstd", False),
        ("random_page_cost", "4", "4.0", True),
        ("application_name", "a", "A", False),
        ("no_such_thing", "1", "1", True),
        ("some.extension", "on", "true", False),
        ("work_mem", "much", "much", True),
        ("work_mem", "much", "4MB", False),
    ]
)
def test_which_values_are_the_same(name: str, one: str, other: str, is_same: bool) -> None:
    assert same_value(name, one, other, 18) is is_same
    assert same_value(name, other, one, 18) is is_same


def test_a_refused_value_says_what_is_taken() -> None:
    for name, text, said in (
        ("work_mem", "1kB", "64 to 2147483647 kB"),
        ("work_mem", "5 min", "B, kB, MB, GB, TB"),
        ("max_connections", "1MB", "the setting has none"),
        ("wal_level", "full", "minimal, replica, logical"),
        ("jit", "perhaps", "on or off"),
        ("max_connections", "3000000000", "32 bits"),
    ):
        with pytest.raises(ValueError, match=said):
            read_value(get(name, 18), text)


@given(st.integers(1, 1 << 13), st.sampled_from([("GB", "MB"), ("MB", "kB")]))
def test_a_value_is_the_same_in_the_next_smaller_unit(number: int, units: tuple[str, str]) -> None:
    larger, smaller = units
    assert same_value("effective_cache_size", f"{number}{larger}", f"{number * 1024}{smaller}", 18)
