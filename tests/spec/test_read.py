from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.errors import ExitCode, SpecError
from pgdyno.spec.complaint import find_line
from pgdyno.spec.failover import FailoverSpec
from pgdyno.spec.hosts import HostEntry
from pgdyno.spec.pooler import PoolerSpec
from pgdyno.spec.read import format_study, make_study, parse_study, read_study
from pgdyno.spec.scaling import ScalingSpec
from pgdyno.spec.search import SearchSpec
from pgdyno.spec.study import DataSpec, ServerSpec, Study, TrialsSpec, WorkloadSpec
from pgdyno.spec.variant import DesignKind, ExperimentSpec, SweepSpec, VariantSpec, make_variant
from tests.rows import each_row

HERE = Path(__file__).parent
SHIPPED = sorted(
    path for path in (HERE.parents[1] / "studies").rglob("*.toml") if path.parent.name not in {"hosts", "prices"}
)
GOOD = sorted((HERE / "good").glob("*.toml"))
BAD = sorted((HERE / "bad").glob("*.toml"))
TEMPLATE = HERE.parents[1] / "studies" / "template.toml"


@each_row([*SHIPPED, *GOOD])
def test_shipped_studies_are_understood_and_survive_a_round_trip(path: Path) -> None:
    study = read_study(path)
    assert parse_study(format_study(study), source="again", folder=path.parent) == study


@each_row(BAD)
def test_bad_studies_name_line_and_key(path: Path) -> None:
    # The first line of each file says what the error must say, the marked line where.
    text = path.read_text()
    expected = text.splitlines()[0].removeprefix("# ").strip()
    with pytest.raises(SpecError) as caught:
        read_study(path)
    assert caught.value.exit_code is ExitCode.SPEC
    assert expected in f"{caught.value.fact} {caught.value.detail} {caught.value.hint}"
    marked = next((n for n, line in enumerate(text.splitlines(), 1) if "# here" in line), None)
    if marked is not None:
        assert f"line {marked}:" in caught.value.fact


def test_a_missing_file_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot read the study") as caught:
        read_study(tmp_path / "none.toml")
    assert caught.value.hint


def test_scripts_are_looked_up_beside_the_study(tmp_path: Path) -> None:
    (tmp_path / "pay.sql").write_text("SELECT 1;\n")
    study = parse_study('[[workload]]\nname = "w"\nscripts = ["pay.sql@3"]\n', source="s", folder=tmp_path)
    assert study.workload[0].weighted_scripts == ((str(tmp_path / "pay.sql"), 3),)


def test_the_file_that_makes_the_data_is_looked_up_beside_the_study(tmp_path: Path) -> None:
    (tmp_path / "pay.sql").write_text("SELECT 1;\n")
    text = '[[workload]]\nname = "w"\nscripts = ["pay.sql"]\n[data]\ninit = "sub/schema.sql"\n'
    study = parse_study(text, source="s", folder=tmp_path)
    assert study.data.init == str(tmp_path / "sub/schema.sql")
    assert parse_study(format_study(study), source="again", folder=Path("/")) == study


def test_folders_of_programs_are_looked_up_beside_the_study(tmp_path: Path) -> None:
    text = """
        [server]
        kind = "local"
        bindir = "pg/bin"
        [[workload]]
        name = "select-only"
    """
    servers = {
        "pg/bin": str(tmp_path / "pg/bin"),
        "/pg/bin": "/pg/bin",
        "~/pg": "~/pg",
        "embedded": "embedded",
        "15": "15",
    }
    variants = "".join(f'[[variant]]\nserver = "{named}"\n' for named in servers)
    study = parse_study(text + variants, source="s", folder=tmp_path)
    assert study.server.bindir == str(tmp_path / "pg/bin")
    assert {variant.title: variant.server for variant in study.variant} == {
        f"server={named}": found for named, found in servers.items()
    }
    axis = '[[sweep]]\nname = "server"\nlevels = ["pg/bin", 15, "~/pg"]\n'
    swept = parse_study(text.replace("pg/bin", "~/pg/bin") + axis, source="s", folder=tmp_path)
    assert swept.server.bindir == "~/pg/bin"
    assert swept.sweep[0].levels == (str(tmp_path / "pg/bin"), 15, "~/pg")


@given(
    scale=st.none() | st.integers(1, 1_000_000),
    fillfactor=st.integers(10, 100),
    clients=st.none() | st.integers(1, 10_000),
    rate=st.none() | st.floats(0.001, 1e9),
    rounds=st.integers(1, 1000),
    seconds=st.integers(1, 7 * 86_400),
)
def test_round_trip(
    *, scale: int | None, fillfactor: int, clients: int | None, rate: float | None, rounds: int, seconds: int
) -> None:
    raw = {
        "data": {"scale": scale, "fillfactor": fillfactor},
        "workload": [{"name": "tpcb-like", "clients": clients, "rate_tps": rate, "scripts": ["tpcb-like@1"]}],
        "trials": {"rounds": rounds, "duration": f"{seconds}s"},
    }
    study = msgspec.convert(raw, Study)
    assert parse_study(format_study(study), source="s", folder=HERE) == study


@pytest.mark.parametrize("other", ["sweep", "variant"])
def test_the_template_is_right_in_what_it_only_mentions(other: str) -> None:
    head, _, rest = TEMPLATE.read_text().partition("# What follows")
    comparison, _, _ = rest.partition("\n# After variants")
    tables = [part for part in comparison.split("\n\n")[1:] if not part.startswith(f"# [[{other}]]")]
    text = "\n\n".join(tables).replace("\n# ", "\n").removeprefix("# ")
    study = parse_study(head + text, source="template", folder=HERE)
    assert study.is_comparison
    assert study.experiment.slice_s == 0.5
    assert len(study.variant) + len(study.sweep) == (1 if other == "variant" else 2)


def test_the_template_is_right_in_what_may_follow() -> None:
    head, _, rest = TEMPLATE.read_text().partition("# What follows")
    table = rest[rest.index("# [scaling]") : rest.index("\n# In place of")].replace("\n# ", "\n").removeprefix("# ")
    study = parse_study(head + table, source="template", folder=HERE)
    assert study.scaling == ScalingSpec(workload="mixed", minutes=5, design=DesignKind.LIVE)


def test_the_template_is_right_in_the_search_it_mentions() -> None:
    head, _, rest = TEMPLATE.read_text().partition("# What follows")
    table = rest[rest.index("# [search]") :].replace("\n# ", "\n").removeprefix("# ")
    study = parse_study(head + table, source="template", folder=HERE)
    assert study.search == SearchSpec(latency="20ms")


def test_records_of_earlier_versions_have_what_is_refused_now(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text('[[workload]]\nname = "tpcb-like"\n[search]\nlatency = "2s"\n[experiment]\ndetect = "5%"\n')
    study = read_study(path, is_of_record=True)
    assert study.experiment == ExperimentSpec(detect="5%")
    study = msgspec.structs.replace(study, data=DataSpec(wal_segment_size="1.5MB"))
    assert msgspec.json.decode(msgspec.json.encode(study), type=Study) == study
    with pytest.raises(SpecError, match="line 6: detect"):
        read_study(path)
    path.write_text('[[workload]]\nname = "tpcb-like"\n[data]\nwal_segment_size = "16385kB"\n')
    assert read_study(path, is_of_record=True).data.wal_segment_size == "16385kB"
    with pytest.raises(SpecError, match="not a power of 2"):
        read_study(path)
    path.write_text((HERE / "bad" / "sweep_of_clients_at_a_given_rate.toml").read_text())
    assert read_study(path, is_of_record=True).workload[1].rate_tps == 100.0


@each_row(
    [
        ServerSpec,
        DataSpec,
        PoolerSpec,
        WorkloadSpec,
        TrialsSpec,
        VariantSpec,
        SweepSpec,
        ScalingSpec,
        FailoverSpec,
        HostEntry,
        SearchSpec,
        ExperimentSpec,
    ]
)
def test_the_template_names_every_key(table: type[msgspec.Struct]) -> None:
    text = TEMPLATE.read_text()
    keys = [field.name for field in msgspec.structs.fields(table)]
    assert [key for key in keys if not re.search(rf"^(# )?{key} = ", text, re.MULTILINE)] == []


def test_the_command_line_is_told_its_own_option() -> None:
    raw = {"workload": [{"name": "tpcb-like"}], "experiment": {"detect": "small"}}
    with pytest.raises(SpecError, match="--detect: 'small' is not a percentage") as caught:
        make_study(raw, source="pgdyno compare", folder=HERE)
    assert "`pgdyno compare --help`" in caught.value.hint
    raw["experiment"] = {"design": "abab"}
    with pytest.raises(SpecError, match="--design: 'abab' is not known") as caught:
        make_study(raw, source="pgdyno sweep", folder=HERE)
    assert caught.value.hint == "one of switchback, paired, live"


@each_row(
    [
        ({"data": {"init": "a.sql"}}, "--init: data would lack", "add --workload FILE"),
        ({"data": {"init": "a.sql", "scale": 3}}, "--init: takes the place of other data", "`pgdyno sweep --help`"),
        (
            {"workload": [{"name": "x", "scripts": ["x.sql@0"]}]},
            "--workload: weight of x.sql 0",
            "`pgdyno sweep --help`",
        ),
        (
            {"workload": [{"name": "select-only"}] * 2},
            "--workload: several workloads are named select-only",
            "`pgdyno sweep --help`",
        ),
        ({"workload": []}, "--workload: nothing to measure", "`pgdyno sweep --help`"),
    ]
)
def test_the_command_line_is_told_options_and_commands_that_exist(raw: dict[str, object], fact: str, hint: str) -> None:
    with pytest.raises(SpecError) as caught:
        make_study({"workload": [{"name": "tpcb-like"}], **raw}, source="pgdyno sweep", folder=HERE)
    assert caught.value.fact.startswith(fact)
    assert hint in caught.value.hint


def test_a_study_may_begin_with_a_mark_of_its_byte_order(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_bytes(b"\xef\xbb\xbf" + b'[[workload]]\nname = "select-only"\n')
    assert read_study(tmp_path / "study.toml").workload[0].name == "select-only"


def test_an_empty_study_is_no_command_line() -> None:
    with pytest.raises(SpecError, match=r"^empty\.toml: no \[\[workload\]\]") as caught:
        parse_study("", source="empty.toml", folder=HERE)
    assert "studies template" in caught.value.hint


def test_a_variant_is_called_by_what_it_sets() -> None:
    assert make_variant({}).title == "as it is"
    made = make_variant({"fsync": True, "vm.swappiness": 10, "clients": " 8 ", "mode": "simple", "server": 15})
    assert made.title == "server=15, mode=simple, clients=8, fsync=true, vm.swappiness=10"
    assert (made.settings, made.sysctl) == ({"fsync": True}, {"vm.swappiness": "10"})


def test_find_line_counts_tables_of_one_name() -> None:
    text = '[[workload]]\nname = "a"\n\n[[workload]]\nname = "b"\n'
    assert find_line(text, "workload[0].name") == 2
    assert find_line(text, "workload[1].name") == 5
    assert find_line(text, "workload[1].clients") == 4
    assert find_line(text, "nothing.here") is None


def test_find_line_in_lists_of_tables_within_tables_of_a_list() -> None:
    first, second = '[[workload]]\nname = "a"\n', '[[workload]]\nname = "b"\n'
    parts = "[[workload.parts]]\nclients = 1\n[[workload.parts]]\nclients = 2\n"
    text = f"{first}{parts}{second}{parts}[[workload]]\n"
    assert [find_line(text, f"workload[{one}].parts[{part}].clients") for one in (0, 1) for part in (0, 1)] == [
        4,
        6,
        10,
        12,
    ]
    assert [find_line(text, f"workload[{one}].name") for one in (0, 1)] == [2, 8]
    assert [find_line(text, f"workload[{one}].parts") for one in (0, 1)] == [3, 9]
    assert find_line(text, "workload[2].mode") == 13


def test_find_line_in_tables_within_tables() -> None:
    text = '[[variant]]\n[variant.settings]\nport = 1\n[[variant]]\nclients = 2\n[variant.sysctl]\n"vm.x" = 1\n'
    assert find_line(text, "variant[0].settings[...]") == 2
    assert find_line(text, "variant[1].clients") == 5
    assert find_line(text, "variant[1].sysctl") == 6
    assert find_line(text, "variant") == 1
    assert find_line("[server.settings]\nport = 1\n", "server.settings") == 1
    host = "[host]\nname = 'x'\n[host.disk]\nkind = 'hdd'\n[host.wal_disk]\nflush_ms = 0\n"
    assert find_line(host, "host.wal_disk.flush_ms") == 6
    assert find_line(host, "host.disk.flush_ms") == 3
    assert find_line(host, "host.cpus") == 1
    assert find_line("server.settings.port = 1\n", "server.settings") == 1
    assert find_line("x = 1\nvariant = [{clients = 0}, {}]\n", "variant[0].clients") == 2
