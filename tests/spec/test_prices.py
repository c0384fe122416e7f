"""Files of prices: good ones are understood, bad ones name line and key."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from pgdyno.errors import ExitCode, SpecError
from pgdyno.spec.prices import parse_prices, read_prices
from tests.rows import each_row

TEMPLATE = Path(__file__).parents[2] / "studies" / "prices" / "template.toml"
HEAD = 'date = 2026-11-01\nsource = "ours"\n'
INSTANCE = '[[instance]]\nname = "c7g.2xlarge"\non_demand_per_hour = 0.3\n'


def test_the_template_is_a_file_of_prices_with_every_key() -> None:
    found = read_prices(TEMPLATE)
    assert (found.currency, found.region, found.date) == ("USD", "us-east-1", dt.date(2026, 11, 21))
    text = TEMPLATE.read_text()
    for table in (found, found.instance[0], found.volume[0], found.machine[0]):
        assert all(key in text for key in table.__struct_fields__)


def test_rows_may_have_their_own_region_date_and_source() -> None:
    row = 'region = "eu-west-1"\ndate = 2025-01-01\nsource = "bill"\n'
    (found,) = parse_prices(HEAD + INSTANCE + row, source="p").instance
    assert (found.region, found.date, found.source) == ("eu-west-1", dt.date(2025, 1, 1), "bill")


@each_row(
    [
        (f"{HEAD}{INSTANCE}spot_per_hours = 0.1\n", 6, "unknown key spot_per_hours", "spot_per_hour"),
        (f"{HEAD}{INSTANCE}spot_per_hour = 0.0\n", 6, "spot_per_hour 0.0 is not above 0", "template"),
        (f"{HEAD}{INSTANCE}spot_per_hour = -1\n", 6, "spot_per_hour -1.0 is not above 0", "template"),
        (f"{HEAD}{INSTANCE}spot_per_hour = nan\n", 6, "spot_per_hour nan is not above 0", "template"),
        (f"{HEAD}{INSTANCE}spot_per_hour = inf\n", 6, "spot_per_hour inf is not above 0", "template"),
        (
            f'{HEAD}{INSTANCE}spot_per_hour = "0.1"\n',
            6,
            "spot_per_hour: expected a number, got text in quotes",
            "template",
        ),
        (
            f'{HEAD}[[instance]]\nname = "c7g.2xlrge"\nspot_per_hour = 1\n',
            4,
            "is unknown; did you mean c7g.2xlarge",
            "",
        ),
        (f'{HEAD}[[instance]]\nname = "c7g.2xlarge"\n', 4, "has no price: give one of on_demand_per_hour", "template"),
        (f'{HEAD}{INSTANCE}\n[[volume]]\nname = "gp4"\nper_gib_month = 1\n', 8, "is unknown; did you mean gp", ""),
        (f'{HEAD}[[volume]]\nname = "gp3"\nper_gib_month = 0\n', 5, "per_gib_month 0.0 is not above 0", "template"),
        (f'{HEAD}[[volume]]\nname = "gp3"\nper_gib_month = 1\nper_mb_month = -1\n', 6, "per_mb_month -1.0", "template"),
        (f'{HEAD}[[volume]]\nname = "gp3"\n', 3, "per_gib_month is missing", "template"),
        (f"{HEAD}[[machine]]\nper_month = 0\n", 4, "per_month 0.0 is not above 0", "template"),
        (f'{HEAD}currency = "euro"\n{INSTANCE}', 3, "currency 'euro' is not a code", "template"),
        (f'{HEAD}currency = "€"\n{INSTANCE}', 3, "currency '€' is not a code", "template"),
        (f"{HEAD}{INSTANCE}{INSTANCE}", 3, "c7g.2xlarge in us-east-1 has two prices", "template"),
        (f'{HEAD}{INSTANCE}[[instance]]\nname = "C7G.2XLARGE"\nspot_per_hour = 1\n', 3, "has two prices", "template"),
        (f"{HEAD}[[machine]]\nper_month = 1\n[[machine]]\nper_month = 2\n", 3, "machine without a name has two", ""),
        (f'date = "1st of May"\nsource = "ours"\n{INSTANCE}', 1, "date", "template"),
        (f'source = "ours"\n{INSTANCE}', None, "date is missing", "template"),
        (f"date = 2026-11-01\n{INSTANCE}", None, "source is missing", "template"),
        (HEAD, None, "no price: add an [[instance]]", "template"),
        (f"{HEAD}[[instance]\n", None, "is not valid TOML", "template"),
    ]
)
def test_bad_prices_name_line_and_key(text: str, line: int | None, fact: str, hint: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_prices(text, source="mine.toml")
    assert caught.value.exit_code is ExitCode.SPEC
    assert fact in caught.value.fact
    assert hint in caught.value.hint
    assert caught.value.hint
    assert caught.value.fact.startswith(f"mine.toml, line {line}: " if line else "mine.toml")
    assert (f"line {line}:" in caught.value.fact) == (line is not None)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot read the prices"):
        read_prices(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes('source = "Kärnten"'.encode("latin-1"))
    with pytest.raises(SpecError, match="is not UTF-8 text"):
        read_prices(tmp_path / "latin.toml")
