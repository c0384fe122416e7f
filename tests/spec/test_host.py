from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from pgdyno.errors import ExitCode, SpecError
from pgdyno.spec.host import DiskSpec, HostSpec, parse_host, read_host
from pgdyno.spec.named_host import read_named_host
from pgdyno.spec.read import parse_study, read_study
from tests.rows import each_row

HOSTS = Path(__file__).parent / "hosts"
SHIPPED = sorted((Path(__file__).parents[2] / "studies" / "hosts").glob("*.toml"))
GOOD = sorted((HOSTS / "good").glob("*.toml"))
BAD = sorted((HOSTS / "bad").glob("*.toml"))


@pytest.mark.parametrize("path", [*SHIPPED, *GOOD], ids=lambda path: path.stem)
def test_good_hosts_are_understood(path: Path) -> None:
    assert isinstance(read_host(path), HostSpec)


@each_row(BAD)
def test_bad_hosts_name_line_and_key(path: Path) -> None:
    # The first line of each file says what the error must say, the marked line where.
    text = path.read_text()
    expected = text.splitlines()[0].removeprefix("# ").strip()
    with pytest.raises(SpecError) as caught:
        read_host(path)
    assert caught.value.exit_code is ExitCode.SPEC
    assert expected in f"{caught.value.fact} {caught.value.detail} {caught.value.hint}"
    assert caught.value.hint
    marked = next((n for n, line in enumerate(text.splitlines(), 1) if "# here" in line), None)
    if marked is not None:
        assert f"line {marked}:" in caught.value.fact


def test_values_in_units() -> None:
    host = parse_host('instance = "r8g.2xlarge"\nmemory = "1.5GB"\n[disk]\nkind = "hdd"\nfree = "1TB"\n', source="h")
    assert host.memory_bytes == 1.5 * 2**30
    assert host.disk is not None
    assert (host.disk.free_bytes, host.disk.size_bytes, host.disk.chunk_bytes) == (2**40, None, None)
    assert host.disk.disk_kind == "hdd"


@each_row(
    [
        (DiskSpec(volume="gp3", size="500GB"), 500 * 2**30),
        (DiskSpec(kind="network-ssd", size="1TB"), 2**40),
        (DiskSpec(volume="local-nvme", size="3750GB"), 3_750e9),
        (DiskSpec(kind="local-ssd", size="1.92TB"), 1.92e12),
        (DiskSpec(kind="hdd", size=" 4 TB"), 4e12),
    ]
)
def test_sizes_are_counted_as_who_sells_the_disk_counts(disk: DiskSpec, size_bytes: float) -> None:
    assert disk.size_bytes == pytest.approx(size_bytes)


def test_a_disk_without_a_size_has_none_of_0() -> None:
    with pytest.raises(ValueError, match="size is missing"):
        _ = DiskSpec(kind="network-ssd").volume_gib
    # What is wrong with the type of a volume is said first.
    with pytest.raises(ValueError, match="'gp9' is unknown"):
        DiskSpec(volume="gp9")


def test_a_machine_is_named_by_its_instance_or_a_file() -> None:
    assert read_named_host("r8g.2xlarge") == HostSpec(instance="r8g.2xlarge")
    assert read_named_host("hosts/c7g.2xlarge-io2").instance == "c7g.2xlarge"
    with pytest.raises(SpecError, match="no instance is known") as caught:
        read_named_host("c7g.2xlarge-io2")
    assert caught.value.hint == "did you mean hosts/c7g.2xlarge-io2?"


def test_a_study_may_declare_its_host_in_part() -> None:
    study = read_study(Path(__file__).parent / "good" / "host.toml")
    assert study.host is not None
    assert study.host.disk is not None
    assert (study.host.instance_iops, study.host.disk.raid, study.host.cpus) == (20_000, 1, None)
    assert not study.host.is_whole


def test_the_host_template_has_every_key() -> None:
    text = (Path(__file__).parents[2] / "studies" / "hosts" / "template.toml").read_text()
    for key in HostSpec.__struct_fields__ + DiskSpec.__struct_fields__:
        assert re.search(rf"^(# )?{key} = |^\[{key}\]", text, re.MULTILINE), key
    whole = text.partition("[wal_disk]")[0]
    # What excludes something else stands as a comment, with a value that is one.
    for other, instead in (("kind", ("volume", "volume_iops", "volume_mb_s")), ("flush_ms", ("volume_latency_ms",)),
                           ("lvm_stripes", ("raid",)), ("cpus", ()), ("read_mb_s", ())):  # fmt: skip
        swapped = re.sub(rf"^({'|'.join(instead)}) = .*$", "", whole, flags=re.MULTILINE) if instead else whole
        host = parse_host(re.sub(rf"^# {other} = ", f"{other} = ", swapped, flags=re.MULTILINE), source="template")
        assert other in msgspec.to_builtins(host) or other in msgspec.to_builtins(host.disk)


def test_the_template_declares_a_host() -> None:
    text = (Path(__file__).parents[2] / "studies" / "template.toml").read_text()
    tables = text[text.index("# [host]") : text.index("[[workload]]")].replace("\n# ", "\n").removeprefix("# ")
    study = parse_study(f"{tables}\n[[workload]]\nname = 'tpcb-like'\n", source="template", folder=HOSTS)
    assert study.host is not None
    assert study.host.disk is not None
    assert study.host.disk.volume_latency_ms == 1.85


def test_an_error_of_a_table_suggests_that_tables_keys() -> None:
    with pytest.raises(SpecError, match="unknown key cpu") as caught:
        parse_host('instance = "r8g.2xlarge"\n[disk]\nkind = "hdd"\ncpu = 2\n', source="h")
    assert "cpus" not in caught.value.hint
    assert "random_read_iops" in caught.value.hint


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot read the host file") as caught:
        read_host(tmp_path / "none.toml")
    assert caught.value.detail == "No such file or directory"
    assert "instance" not in caught.value.hint
    with pytest.raises(SpecError) as caught:
        read_host(tmp_path / "none.toml", takes_instance=True)
    assert "or an instance such as r8g.2xlarge" in caught.value.hint
    (tmp_path / "marked.toml").write_text('instance = "r8g.2xlarge"\n', encoding="utf-8-sig")
    assert read_host(tmp_path / "marked.toml").instance == "r8g.2xlarge"
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="is not UTF-8 text"):
        read_host(tmp_path / "binary.toml")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('instance = "r8g.2xlarge"\n[host.disk]\nkind = "hdd"\n', "only a study has a [host] table"),
        ('instance = "r8g.2xlarge"\n[disk]\nvolume = "gp3"\nsize = "-5GB"\n', "shows every key with a value"),
        ('instance = "r8g.2xlarge"\n[disk]\nkind = "local-ssd"\nsize = "1788GiB"\n', "1788 GiB are 1920GB"),
        ('instance = "r8g.2xlarge"\n[disk]\nvolume = "io2"\nsize = "100GB"\n', "volume_iops"),
        ('instance = "r8g.2xlarge"\n[disk]\nvolume = "pd-ssd"\nsize = "5GB"\n', 'give kind = "network-ssd" instead'),
        ('instance = "r8g.2xlarge"\n[disk]\nvolume = "gp3"\nsise = "5GB"\n', "did you mean size?"),
        ('instance = "r8g.2xlarge"\n[disk]\nkind = "hdd"\ncount = 4\nraid = 4\n', "one of 0, 1, 5, 6, 10"),
    ],
)
def test_hints_are_about_what_is_wrong(text: str, hint: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_host(text, source="h")
    assert hint in caught.value.hint
    assert "keys are" not in caught.value.hint
