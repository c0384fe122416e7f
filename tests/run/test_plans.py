"""What real servers say of the plans of a comparison's statements: nothing is executed, and nothing while the load is measured."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from pgdyno.analyse.comparison.plans import find_difference, shape_of
from pgdyno.plan.experiment import Experiment, Variant
from pgdyno.plan.plan import plan_study
from pgdyno.record.pgbench.script import parse_script
from pgdyno.record.plans import PLANS, StatementPlan
from pgdyno.run.cluster.home import Home
from pgdyno.run.given.access import open_access
from pgdyno.run.own_server import OwnServer
from pgdyno.run.plans import ask_plans
from pgdyno.run.postgres import sql
from pgdyno.run.trial import run_trial
from pgdyno.run.trial_stage import Observed, TrialStage
from pgdyno.run.under_test import ServerUnderTest
from pgdyno.spec.read import make_study
from pgdyno.spec.study import ServerSpec
from pgdyno.spec.table import QueryMode, SettingValue
from pgdyno.spec.variant import DesignKind
from tests.homes import installation_of, some_home
from tests.run.test_given_server import dsn, make_server
from tests.run.test_trial import MACHINE
from tests.tools.pgcluster import PORT, Cluster, running

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("forked_helpers")]
MODES = ("simple", "extended", "prepared")
NO_INDEX = {"enable_indexscan": False, "enable_bitmapscan": False}
VARIANTS: dict[str, Mapping[str, SettingValue]] = {"on": {}, "off": NO_INDEX}

HAIRY = r"""-- a script; with everything
\set aid random(1, 100000 * :scale)
\set share :aid / 2.0
\if :aid > 0
SELECT abalance FROM pgbench_accounts WHERE aid = :aid AND 1.0 < :share;
\endif
BEGIN;
\startpipeline
INSERT INTO pgbench_history (tid, bid, aid, delta) VALUES (1, 1, :aid, 7);
SELECT pg_advisory_lock(4711) FROM pgbench_branches;
\endpipeline
SELECT max(bid) AS top FROM pgbench_branches \gset
UPDATE pgbench_accounts SET abalance = 1
 WHERE aid = :top;
SELECT * FROM nowhere WHERE x = ';';
SELECT 1 \; DELETE FROM pgbench_accounts;
/* ; */ SELECT abalance, ':top' FROM pgbench_accounts WHERE aid = :top;
END;
"""


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with some_home(is_empty=False) as made:
        yield made


@pytest.fixture(scope="module", params=(15, 18))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running(request.param) as made:
        made.sql("CREATE ROLE plain LOGIN CREATEDB")
        yield made


def make_stage(
    home: Home, folder: Path, major: int = 18, *, server: ServerUnderTest | None = None, **load: object
) -> TrialStage:
    raw = {
        "data": {"scale": 2},
        "workload": [{"name": "select-only", "clients": 2, **load}],
        "trials": {"rounds": 1, "duration": "1s", "warm_up": "1s"},
    }
    study = make_study(raw, source="test", folder=folder)
    plan = plan_study(study, MACHINE)
    experiment = Experiment(
        variants=tuple(
            Variant(name=name, server=ServerSpec(settings=dict(settings))) for name, settings in VARIANTS.items()
        ),
        design=DesignKind.PAIRED, reason="", budget_s=60.0, alpha=0.05, detect_ratio=0.03,
    )  # fmt: skip
    own = OwnServer(installation=installation_of(major, home), home=home)
    output_dir = folder / "init"
    output_dir.mkdir()
    tested = own if server is None else server
    dataset = tested.load(study.data, plan.scale, settings={}, output_dir=output_dir, on_activity=lambda _: None)
    return TrialStage(
        server=tested,
        generator=own.make_generator(),
        dataset=dataset,
        study=study,
        plan=msgspec.structs.replace(plan, experiment=experiment),
        settings={},
        cpu_count=2.0,
    )


def ask(stage: TrialStage, folder: Path, *names: str, mode: str | None = None, **more: SettingValue) -> Observed:
    """The plans under variants' settings; several alternate on one server."""
    experiment = stage.plan.experiment
    assert experiment is not None
    if mode is not None:
        variants = tuple(msgspec.structs.replace(one, mode=QueryMode(mode)) for one in experiment.variants)
        experiment = msgspec.structs.replace(experiment, variants=variants)
        stage = msgspec.structs.replace(stage, plan=msgspec.structs.replace(stage.plan, experiment=experiment))
    seen = Observed()
    trial = msgspec.structs.replace(stage.plan.trials[0], variants=names)
    settings = experiment.find_variant(names[0]).server.settings
    stage.server.reset()
    switch = stage.server.prepare_switch(stage.variants_of(trial)) if len(names) > 1 else None
    started = settings if switch is None else switch.common(settings)
    with stage.server.running({**started, **more}, log_path=folder / "log"):
        ask_plans(stage, trial, seen, switch=switch)
    return seen


def plans_of(seen: Observed) -> tuple[StatementPlan, ...]:
    assert seen.gaps == ()
    assert seen.plans is not None
    return seen.plans


def differ(one: StatementPlan, other: StatementPlan) -> tuple[str, str] | None:
    assert one.plan is not None, one.reason
    assert other.plan is not None, other.reason
    return find_difference(shape_of(one.plan), shape_of(other.plan))


@pytest.mark.parametrize("major", [15, 18])
def test_plans_of_own_servers(home: Home, tmp_path: Path, major: int) -> None:
    stage = make_stage(home, tmp_path, major)
    for mode in MODES:
        ((on,), (off,), (again,)) = (plans_of(ask(stage, tmp_path, name, mode=mode)) for name in ("on", "off", "on"))
        index = "Index Scan using pgbench_accounts_pkey on pgbench_accounts"
        difference = differ(on, off)
        assert difference is not None
        assert difference[0] == index
        # A sequential scan, below a Gather where the server thinks it large.
        assert "Index" not in difference[1]
        # The same values are asked for each time.
        assert differ(on, again) is None
        assert on.values == off.values == again.values
        assert 1 <= int(on.values["aid"]) <= 200_000
        assert off.plan is not None
        assert off.plan["Settings"] == {"enable_indexscan": "off", "enable_bitmapscan": "off"}
    # One that two settings of a running server alternate on.
    block = plans_of(ask(stage, tmp_path, "on", "off"))
    assert [one.variant for one in block] == ["on", "off"]
    assert differ(block[0], on) is None
    assert differ(block[1], off) is None


def test_what_is_executed_prepared_is_planned_as_at_its_sixth_execution(home: Home, tmp_path: Path) -> None:
    stage = make_stage(home, tmp_path)

    def condition(mode: str, **more: SettingValue) -> str:
        (one,) = plans_of(ask(stage, tmp_path, "on", mode=mode, **more))
        assert one.plan is not None
        return str(one.plan["Plan"]["Index Cond"])

    assert condition("prepared") == "(aid = $1)"
    assert condition("prepared", plan_cache_mode="force_custom_plan") != "(aid = $1)"
    for mode in ("simple", "extended"):
        assert re.fullmatch(r"\(aid = \d+\)", condition(mode)), mode
    # As the server does with the statement that pgbench sends unnamed, and not with its text alone.
    assert condition("extended", plan_cache_mode="force_generic_plan") == "(aid = $1)"
    assert condition("simple", plan_cache_mode="force_generic_plan") != "(aid = $1)"


@pytest.mark.parametrize("major", [15, 18])
def test_a_script_with_everything(home: Home, tmp_path: Path, major: int) -> None:
    (tmp_path / "hairy.sql").write_text(HAIRY)
    stage = make_stage(home, tmp_path, major, name="hairy", scripts=["hairy.sql"])
    for mode in MODES:
        one, insert, lock, top, update, nowhere, single, delete, last = plans_of(ask(stage, tmp_path, "on", mode=mode))
        assert set(one.values) == {"aid", "share"}
        assert float(one.values["share"]) == int(one.values["aid"]) / 2
        for plain in (one, insert, lock, top, single, delete):
            assert (plain.reason, plain.unknown, plain.plan is None) == (None, (), False)
        assert (update.unknown, update.values) == (("top",), {})
        assert update.plan is not None
        assert update.plan["Plan"]["Plans"][0]["Index Cond"] == "(aid = $1)"
        assert (nowhere.plan, nowhere.reason) == (None, 'relation "nowhere" does not exist')
        # No mode but the simple one knows variables in quotes: the parameter is not there.
        assert last.reason is not None
        assert [one.place for one in (one, last)] == [1, 9]


def test_values_as_far_as_they_can_be_drawn(home: Home, tmp_path: Path) -> None:
    (tmp_path / "failing.sql").write_text(
        "SELECT 1;\n\\set a 3\nSELECT :a + tid FROM pgbench_tellers;\n\\set b 1 / (:a - 3)\n"
        "SELECT :b + tid FROM pgbench_tellers;\n"
    )
    stage = make_stage(home, tmp_path, name="failing", scripts=["failing.sql"])
    for mode in MODES:
        none, known, unknown = plans_of(ask(stage, tmp_path, "on", mode=mode))
        assert (none.values, known.values, unknown.unknown) == ({}, {"a": "3"}, ("b",))
        assert None not in (none.plan, known.plan, unknown.plan)


def test_nothing_is_executed(home: Home, tmp_path: Path) -> None:
    (tmp_path / "hairy.sql").write_text(HAIRY)
    stage = make_stage(home, tmp_path, name="hairy", scripts=["hairy.sql"])
    stage.server.reset()
    trial = msgspec.structs.replace(stage.plan.trials[0], variants=("on",))
    log = tmp_path / "log"
    with (
        stage.server.running({"log_statement": "all"}, log_path=log),
        stage.server.connect() as connection,
    ):
        connection.execute(
            "CREATE TABLE said (x int); CREATE FUNCTION shout() RETURNS int LANGUAGE plpgsql AS "
            "'BEGIN INSERT INTO said VALUES (1); RETURN 1; END'; "
            "CREATE FUNCTION say() RETURNS int STABLE LANGUAGE plpgsql AS 'BEGIN RETURN shout(); END'"
        )
        (tmp_path / "hairy.sql").write_text(f"{HAIRY}SELECT say();\nSELECT * FROM pgbench_tellers WHERE tid = say();")
        before = sql.read_table_states(connection)
        seen = Observed()
        ask_plans(stage, trial, seen)
        called, planned = plans_of(seen)[-2:]
        # What planning evaluates to estimate rows may write nothing.
        assert called.plan is not None
        assert planned.reason == "cannot execute INSERT in a read-only transaction"
        assert sql.read_table_states(connection) == before
        for table, rows in {"said": 0, "pgbench_history": 0, "pgbench_accounts": 200_000}.items():
            (row,) = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchall()
            assert row["count"] == rows
        held = connection.execute("SELECT FROM pg_locks WHERE locktype = 'advisory'").fetchall()
        assert held == []
    logged = re.findall(r"LOG:  (?:statement|execute [^:]*): (.*)", log.read_text())
    began = [word.startswith("BEGIN; ") and "SET TRANSACTION READ ONLY" in word for word in logged].index(True)
    asked = logged[began + 1 :]
    asked = asked[: [word == "ROLLBACK" for word in asked].index(True)]
    allowed = (
        "SAVEPOINT",
        "RELEASE",
        "ROLLBACK TO",
        "PREPARE",
        "EXPLAIN (FORMAT",
        "DEALLOCATE",
        "SET LOCAL plan",
    )
    assert [word for word in asked if not word.replace('"', "").startswith(allowed)] == []
    assert len([word for word in asked if word.startswith("EXPLAIN")]) > 8


def test_a_session_that_planning_ends_is_a_gap(home: Home, tmp_path: Path) -> None:
    stage = make_stage(home, tmp_path, name="deadly", scripts=[str(_write(tmp_path / "deadly.sql", "SELECT die();"))])
    stage.server.reset()
    seen = Observed()
    with stage.server.running({}, log_path=tmp_path / "log"):
        with stage.server.connect() as connection:
            connection.execute(
                "CREATE FUNCTION die() RETURNS int IMMUTABLE LANGUAGE plpgsql AS "
                "'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN 1; END'"
            )
        ask_plans(stage, msgspec.structs.replace(stage.plan.trials[0], variants=("on",)), seen)
    assert seen.plans is None
    (gap,) = seen.gaps
    assert (gap.source, "terminating connection" in gap.reason) == (PLANS, True)


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_no_plan_is_asked_for_while_the_load_runs(home: Home, tmp_path: Path) -> None:
    stage = make_stage(home, tmp_path, rate_tps=50.0, mode="prepared")
    for number, settings in enumerate(({"log_statement": "all"}, {}), start=1):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        trial = msgspec.structs.replace(stage.plan.trials[0], variants=("on",))
        outcome = run_trial(
            msgspec.structs.replace(stage, settings=settings), trial,
            folder=folder, on_activity=lambda _: None, on_load=lambda _: None,
        )  # fmt: skip
        assert outcome.error is None
        (one,) = outcome.record.plans or ()
        assert one.plan is not None
    log = (tmp_path / "1" / "server.log").read_text()
    loads = [found.start() for found in re.finditer(r"execute \w+: SELECT abalance", log)]
    assert loads
    assert max(loads) < log.index("EXPLAIN")


def test_a_given_server_and_a_plain_role(home: Home, cluster: Cluster, tmp_path: Path) -> None:
    with open_access(dsn(cluster.root)) as address:
        server = make_server(cluster, address)
        stage = make_stage(home, tmp_path, server=server)
        stage = msgspec.structs.replace(stage, generator=make_server(cluster, address)._generator)
        try:
            (on,), (off,) = (plans_of(ask(stage, tmp_path, name)) for name in VARIANTS)
            difference = differ(on, off)
            assert difference is not None
            assert difference[0] == "Index Scan using pgbench_accounts_pkey on pgbench_accounts"
            # A server that refuses all connections now: a gap, and no error.
            cluster.sql("ALTER ROLE plain NOLOGIN")
            seen = Observed()
            ask_plans(stage, msgspec.structs.replace(stage.plan.trials[0], variants=("on",)), seen)
            assert seen.plans is None
            (gap,) = seen.gaps
            assert (gap.source, "not permitted to log in" in gap.reason) == (PLANS, True)
        finally:
            cluster.sql("ALTER ROLE plain LOGIN")
            server.close()


def test_what_compares_nothing_asks_nothing(home: Home, tmp_path: Path) -> None:
    stage = make_stage(home, tmp_path)
    alone = msgspec.structs.replace(stage, plan=msgspec.structs.replace(stage.plan, experiment=None))
    seen = Observed()
    ask_plans(alone, alone.plan.trials[0], seen)
    assert (seen.plans, seen.gaps) == (None, ())


SPLIT = r"""-- one; line
\set a \
  1 + (2 * 3)
\if :a > 3
SELECT ';', 'it''s;', E'a\';', ";", $$;$$, $x$;$$;$x$ FROM (VALUES (1)) AS v (";");
\endif
\startpipeline
SELECT :a::int /* ; /* nested; */ ; */ + 1;
SELECT (SELECT 2) -- not; here
  + 3;
\endpipeline
SELECT 4 AS b \gset
SELECT 5 AS c
\gset p_
SELECT :b + 6\sleep 1 us
SELECT 7
"""


def test_pgbench_splits_a_script_alike(cluster: Cluster) -> None:
    path = cluster.root / "split.sql"
    path.write_text(SPLIT)
    path.chmod(0o644)
    where = ("-h", str(cluster.root), "-p", str(PORT), "-U", "postgres", "postgres")
    out = cluster.run("pgbench", "-n", "-t1", "-r", "-M", "extended", "-f", str(path), *where)
    listed = re.findall(r"^ +\d+\.\d+ +\d+ +(.*)$", out, re.MULTILINE)
    # pgbench lists first lines with semicolons and comments, and \gset as a part of its statement.
    split = [one.text for one in parse_script(SPLIT) if not one.text.startswith(r"\gset")]
    assert [one.splitlines()[0].strip() for one in split] == [one.partition(" --")[0].rstrip("; ") for one in listed]
    assert len(split) == 13
