from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.errors import ExitCode, SpecError
from pgdyno.spec.read import find_line, format_study, parse_study, read_study
from pgdyno.spec.study import Study

HERE = Path(__file__).parent
SHIPPED = sorted((HERE.parents[1] / "studies").glob("*.toml"))
BAD = sorted((HERE / "bad").glob("*.toml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_studies_are_understood_and_survive_a_round_trip(path: Path) -> None:
    study = read_study(path)
    assert parse_study(format_study(study), source="again", folder=path.parent) == study


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
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
    import msgspec

    raw = {
        "data": {"scale": scale, "fillfactor": fillfactor},
        "workload": [{"name": "tpcb-like", "clients": clients, "rate_tps": rate, "scripts": ["tpcb-like@1"]}],
        "trials": {"rounds": rounds, "duration": f"{seconds}s"},
    }
    study = msgspec.convert(raw, Study)
    assert parse_study(format_study(study), source="s", folder=HERE) == study


def test_find_line_counts_tables_of_one_name() -> None:
    text = '[[workload]]\nname = "a"\n\n[[workload]]\nname = "b"\n'
    assert find_line(text, "workload[0].name") == 2
    assert find_line(text, "workload[1].name") == 5
    assert find_line(text, "workload[1].clients") == 4
    assert find_line(text, "nothing.here") is None
