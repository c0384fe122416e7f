"""Clusters that differ in what initdb chose: the server shows it, and each combination is loaded once."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgdyno.plan.experiment import Variant
from pgdyno.run.cluster.server import initdb_options
from pgdyno.run.cluster.template import find_loaded_scales, template_name
from pgdyno.run.cluster.trial_settings import VariantServer, try_variants
from pgdyno.run.own_server import OwnServer
from pgdyno.spec.initdb import InitdbChoices, LocaleProvider
from pgdyno.spec.study import DataSpec, ServerSpec
from tests.homes import installation_of, some_home

CHOSEN = {"checksums": False, "wal_segment_size": "4MB", "encoding": "SQL_ASCII", "locale": "POSIX"}
SHOWN = {
    "data_checksums": ("on", "off"),
    "wal_segment_size": ("16MB", "4MB"),
    "server_encoding": ("UTF8", "SQL_ASCII"),
    "max_wal_size": ("1GB", "256MB"),
}


@pytest.mark.cluster
@pytest.mark.parametrize("major", [15, 18])
def test_the_server_shows_what_was_chosen(tmp_path: Path, major: int) -> None:
    with some_home() as home:
        installation = installation_of(major, home)
        for place, data in enumerate([DataSpec(), DataSpec(**CHOSEN)]):  # type: ignore[arg-type] - each as its key has it
            server = OwnServer(installation=installation, home=home)
            for is_reused in (False, True):
                dataset = server.load(data, 1, settings={}, output_dir=tmp_path, on_activity=lambda _: None)
                assert dataset.is_reused is is_reused
            assert find_loaded_scales(home, installation, data) == {1}
            server.reset()
            with server.running({}, log_path=tmp_path / "log"), server.connect() as connection:
                for name, values in SHOWN.items():
                    row = connection.execute(f"SELECT current_setting('{name}') AS value").fetchone()
                    assert row is not None
                    assert row["value"] == values[place], name
        assert len([*home.templates.iterdir()]) == 2


@pytest.mark.cluster
def test_a_choice_that_initdb_refuses_drops_its_variant_and_no_other() -> None:
    with some_home() as home:
        installation = installation_of(18, home)
        variants = [
            VariantServer(
                variant=Variant(name=name, server=ServerSpec(), initdb=InitdbChoices(locale=locale)),
                installation=installation,
            )
            for name, locale in (("usual", None), ("mistyped", "xx_XX.UTF-8"))
        ]
        refused = try_variants(home, variants, on_activity=lambda _: None)
        assert list(refused) == ["mistyped"]
        assert refused["mistyped"].fact == "initdb fails with locale = xx_XX.UTF-8"
        assert "xx_XX" in refused["mistyped"].detail


def test_options_and_names() -> None:
    usual = ["--encoding=UTF8", "--data-checksums", "--locale=C"]
    for choices, major, expected in [
        (InitdbChoices(), 15, usual),
        (InitdbChoices(), 18, usual),
        (InitdbChoices(checksums=False), 17, ["--encoding=UTF8", "--locale=C"]),
        (InitdbChoices(checksums=False), 18, ["--encoding=UTF8", "--no-data-checksums", "--locale=C"]),
        (InitdbChoices(wal_segment_size="1GB"), 18, [*usual, "--wal-segsize=1024"]),
        (
            InitdbChoices(locale="en-US", locale_provider=LocaleProvider.ICU),
            18,
            [*usual, "--locale-provider=icu", "--icu-locale=en-US"],
        ),
    ]:
        assert initdb_options(choices, major=major) == expected
    with some_home() as home:
        installation = installation_of(18, home)
        named = {
            template_name(installation, data, 1)
            for data in (DataSpec(), DataSpec(checksums=True, encoding="UTF8", locale="C", wal_segment_size="16MB"))
        }
        assert len(named) == 1, "what is usual need not be said"
        assert template_name(installation, DataSpec(checksums=False), 1).endswith("-checksums=off-client")


def test_what_cannot_be_chosen() -> None:
    for chosen, said in [
        ({"wal_segment_size": "3MB"}, "is not a power of 2"),
        ({"wal_segment_size": "2GB"}, "is not a power of 2"),
        ({"wal_segment_size": "many"}, "wal_segment_size"),
        ({"encoding": "../UTF8"}, "is not the name of one"),
        ({"locale": "C; rm"}, "is not the name of one"),
    ]:
        with pytest.raises(ValueError, match=said):
            DataSpec(**chosen)  # type: ignore[arg-type] - as above
