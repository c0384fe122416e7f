"""Every form of derived settings: what a person reads, and what servers and kernels are to take."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from pgdyno.errors import SpecError
from pgdyno.report.documents.tuning import TuneDocument, tune_document
from pgdyno.report.forms.terminal import print_terminal
from pgdyno.report.level import Level
from pgdyno.report.sections.tuning.explain import build_explained, find_derived
from pgdyno.report.sections.tuning.files import format_alter_system_script, format_conf_file, format_sysctl_file
from pgdyno.report.sections.tuning.table import build_diff, build_tuning
from pgdyno.report.sections.tuning.view import Tried, change_of, list_changes
from pgdyno.report.setting_words import format_alter_system, format_conf, show_setting
from pgdyno.spec.conf import read_conf
from pgdyno.tune.types import Kernel, Target
from tests.report.build_tuning import UNSEEN, build_view

GOLDEN = Path(__file__).parent / "golden"


def printed(renderable: object, *, width: int) -> str:
    console = Console(width=width, no_color=True, highlight=False, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


@pytest.mark.parametrize("width", [80, 140])
def test_the_table(width: int, golden: Callable[[Path, str], None]) -> None:
    text = printed(print_terminal(build_tuning(build_view(unseen=UNSEEN)), level=Level.STANDARD), width=width)
    golden(GOLDEN / f"tuning-{width}.txt", text)
    assert all(len(line) <= width and line == line.rstrip() for line in text.splitlines())


def test_the_narrowest_terminal_loses_nothing() -> None:
    text = printed(print_terminal(build_tuning(build_view()), level=Level.STANDARD), width=40)
    words = "".join(text.split())
    for one in build_view().tuning.settings:
        assert one.name.replace(" ", "") in words
        assert one.value.replace(" ", "") in words


def test_what_gives_up_durability_stands_apart_and_in_no_file() -> None:
    view = build_view()
    text = printed(print_terminal(build_tuning(view), level=Level.STANDARD), width=80)
    assert "synchronous_commit = off" in text[text.index("not part of the set") :]
    assert "synchronous_commit" not in text[: text.index("not part of the set")]
    for file in (format_conf_file(view), format_alter_system_script(view), format_sysctl_file(view)):
        assert "synchronous_commit" not in file
    assert "synchronous_commit" not in printed(print_terminal(build_diff(view), level=Level.STANDARD), width=80)


def test_the_difference(golden: Callable[[Path, str], None]) -> None:
    text = printed(print_terminal(build_diff(build_view()), level=Level.STANDARD), width=80)
    golden(GOLDEN / "tuning-diff.txt", text)
    assert "work_mem" not in text, "it is as it is"
    same = {one.name: one.value for one in build_view().tuning.settings}
    none = printed(print_terminal(build_diff(build_view(now=same)), level=Level.STANDARD), width=120)
    assert "0 of 9 would change; now is" in none


def test_errors_of_the_servers_files_are_told_with_what_would_change() -> None:
    view = build_view(file_errors=("/data/postgresql.conf, line 3: foo: unrecognized configuration parameter",))
    told = printed(print_terminal(build_diff(view), level=Level.STANDARD), width=200)
    words = "the server's configuration files contain errors that prevent its start: /data/postgresql.conf, line 3: foo"
    assert words in told.splitlines()[-1]
    assert words in printed(print_terminal(build_tuning(view), level=Level.STANDARD), width=200)
    assert json.loads(msgspec.json.encode(tune_document(view)))["file_errors"] == list(view.file_errors)


def test_one_in_full(golden: Callable[[Path, str], None]) -> None:
    view = build_view()
    some = find_derived(view, ["Shared_Buffers", "synchronous_commit"])
    golden(
        GOLDEN / "tuning-explain.txt",
        printed(print_terminal(build_explained(view, some), level=Level.STANDARD), width=80),
    )
    assert find_derived(view, []) == view.tuning.settings
    with pytest.raises(SpecError, match="nothing is known of shared_bufers") as error:
        find_derived(view, ["shared_bufers"])
    assert error.value.hint == "did you mean shared_buffers?"
    with pytest.raises(SpecError, match=r"nothing is known of kernel\.sen") as error:
        find_derived(view, ["kernel.sen"])
    assert "kernel.sem" in str(error.value.hint)
    with pytest.raises(SpecError, match="nothing is known of parallel_leader_participate") as error:
        find_derived(view, ["parallel_leader_participate"])
    assert "did you mean parallel_leader_participation" in str(error.value.hint)


def test_a_setting_for_which_nothing_is_derived() -> None:
    view = build_view()
    some = find_derived(view, ["Autovacuum_Naptime", "temp_buffers", "restore_command", "block_size"])
    text = printed(print_terminal(build_explained(view, some), level=Level.STANDARD), width=200)
    assert "autovacuum_naptime  (nothing is derived)" in text
    assert "what: Time to sleep between autovacuum runs." in text
    for value in ("1min", "8MB", "empty", "8192"):
        assert f"built in: {value}" in text
    assert "a change takes: never" not in text, "of block_size nothing is said"
    assert text.count("no rule decides it here, so that it stays as it is") == len(some)


def test_a_setting_of_another_version() -> None:
    view = build_view()
    older = msgspec.structs.replace(view.tuning, subject=msgspec.structs.replace(view.tuning.subject, major=15))
    with pytest.raises(SpecError, match="nothing is known of io_method") as error:
        find_derived(msgspec.structs.replace(view, tuning=older), ["io_method"])
    assert error.value.detail == "PostgreSQL 15 has no such setting, and it is no famous line"
    assert error.value.hint == "PostgreSQL 18 has it: choose the server with --server"


def test_a_famous_line_that_is_not_part_of_the_set() -> None:
    view = build_view()
    some = find_derived(view, ["Kernel.SEM", "shared_buffers", "nobarrier"])
    text = printed(print_terminal(build_explained(view, some), level=Level.STANDARD), width=200)
    assert "kernel.sem  (left alone)" in text
    assert "why: On Linux the server uses POSIX semaphores" in text
    assert "formula:" in text, "of shared_buffers"
    assert "nobarrier, barrier=0  (left alone)" in text
    assert "now:" not in text, "nothing was seen of this kernel"
    kernel = Kernel(sysctls={"kernel.shmmax": "18446744073692774399", "vm.swappiness": "60"})
    seen = msgspec.structs.replace(view.tuning, subject=msgspec.structs.replace(view.tuning.subject, kernel=kernel))
    (line,) = find_derived(view, ["kernel.shmall"])
    explained = build_explained(msgspec.structs.replace(view, tuning=seen), [line])
    assert "now: kernel.shmmax = 18446744073692774399\n" in printed(
        print_terminal(explained, level=Level.STANDARD), width=200
    )


def test_the_fragment(tmp_path: Path, golden: Callable[[Path, str], None]) -> None:
    text = format_conf_file(build_view(tried=Tried.STARTED))
    golden(GOLDEN / "tuning.conf", text)
    (tmp_path / "pgdyno.conf").write_text(text)
    wanted = {one.name: one.value for one in build_view().tuning.of(Target.POSTGRESQL)}
    wanted.pop("log_line_prefix")
    # What pgdyno's own server relies on a variant cannot have.
    lines = [line for line in text.splitlines() if not line.startswith("log_line_prefix")]
    (tmp_path / "variant.conf").write_text("\n".join(lines))
    assert read_conf("variant.conf", tmp_path) == wanted
    assert "log_line_prefix = '%m [%p] it''s %q'" in text
    assert "was started with these settings" in text
    small = format_conf_file(build_view(tried=Tried.STARTED_SMALL))
    assert "accepts all of these values (`postgres -C`), and was started with them" in small
    other = format_conf_file(build_view(unchecked=("wal_compression",)))
    assert (
        "accepts all of these values but wal_compression, whose value this build lacks (`postgres -C`)"
        in other.replace("\n# ", " ")
    )


def test_the_script(golden: Callable[[Path, str], None]) -> None:
    text = format_alter_system_script(build_view())
    golden(GOLDEN / "tuning.sql", text)
    commands = [line for line in text.splitlines() if line and not line.startswith("--")]
    assert all(line.endswith(";") for line in commands)
    assert commands[-1] == "SELECT pg_reload_conf();"
    assert "\n-- already in force: ALTER SYSTEM SET work_mem = '4MB';\n" in text
    assert "into force: shared_buffers" in text
    as_it_is = format_alter_system_script(build_view(now={"shared_buffers": "524288"}))
    assert "into force: shared_preload_libraries\n" in as_it_is


def test_what_the_user_gives_up_says_so_in_the_file_that_is_copied() -> None:
    tuning = build_view().tuning
    fsync = msgspec.structs.replace(tuning.settings[0], name="fsync", value="off", target=Target.POSTGRESQL)
    view = build_view(tuning=msgspec.structs.replace(tuning, settings=(*tuning.settings, fsync)))
    for text in (format_conf_file(view), format_alter_system_script(view)):
        assert "a crash of the machine may lose the whole cluster" in " ".join(
            text.replace("#", "").replace("--", "").split()
        )


def test_the_kernels_file(golden: Callable[[Path, str], None]) -> None:
    text = format_sysctl_file(build_view())
    golden(GOLDEN / "tuning-sysctl.conf", text)
    # Source: sysctl.d(5): name=value, comments begin with # or ;.
    pairs = [line.split("=", 1) for line in text.splitlines() if line.strip() and line[0] not in "#;"]
    assert {name.strip(): value.strip() for name, value in pairs} == {
        one.name: one.value for one in build_view().tuning.of(Target.SYSCTL)
    }


def test_words_of_others_end_no_comment() -> None:
    view = build_view(server="PostgreSQL 18, in /data\nfsync = off")
    assert not any(line.startswith("fsync") for line in format_conf_file(view).splitlines())
    assert not any(line.startswith("fsync") for line in format_alter_system_script(view).splitlines())


def test_json_is_stable_and_whole(golden: Callable[[Path, str], None]) -> None:
    document = tune_document(build_view(unseen=UNSEEN))
    encoded = msgspec.json.encode(document)
    assert msgspec.json.decode(encoded, type=TuneDocument) == document
    golden(GOLDEN / "tuning.json", json.dumps(json.loads(encoded), indent=1) + "\n")


def test_what_is_in_force_and_what_would_change() -> None:
    view = build_view()
    changes = {one.name: one for one in list_changes(view)}
    assert (changes["shared_buffers"].now, changes["shared_buffers"].is_same) == ("128MB", False)
    assert changes["work_mem"].is_same
    waiting = list_changes(build_view(waiting=frozenset({"work_mem"})))
    assert not next(one for one in waiting if one.name == "work_mem").is_same, "a restart brings another value"
    # What the server does not say is as it is built in.
    assert changes["autovacuum_vacuum_insert_scale_factor"].now == "0.2"
    assert changes["vm.nr_hugepages"].now is None
    swappiness = next(one for one in view.tuning.settings if one.name == "vm.swappiness")
    assert change_of(build_view(now={"vm.swappiness": "10"}), swappiness).is_same


@pytest.mark.parametrize(
    ("name", "raw", "shown"),
    [
        ("shared_buffers", "16384", "128MB"),
        ("shared_buffers", "393216", "3GB"),
        ("work_mem", "4097", "4097kB"),
        ("work_mem", "4MB", "4MB"),
        ("checkpoint_timeout", "300", "5min"),
        ("checkpoint_timeout", "301", "301s"),
        ("wal_buffers", "-1", "-1"),
        ("log_temp_files", "0", "0"),
        ("bgwriter_delay", "200", "200ms"),
        ("max_connections", "100", "100"),
        ("random_page_cost", "4", "4"),
        ("vm.swappiness", "60", "60"),
        ("log_file_mode", "416", "0640"),
        ("log_file_mode", "0640", "0640"),
        ("unix_socket_permissions", "511", "0777"),
        ("unix_socket_permissions", "open", "open"),
    ],
)
def test_values_as_a_server_shows_them(name: str, raw: str, shown: str) -> None:
    assert show_setting(name, raw, 18) == shown


def test_quotes() -> None:
    assert format_conf("work_mem", "64MB") == "work_mem = 64MB"
    assert format_conf("a.b", r"it's \n") == r"a.b = 'it''s \\n'"
    assert format_conf("log_line_prefix", "") == "log_line_prefix = ''"
    assert format_alter_system("log_line_prefix", r"it's \n") == r"ALTER SYSTEM SET log_line_prefix = 'it''s \n';"
    assert (
        format_alter_system("shared_preload_libraries", "a, b")
        == "ALTER SYSTEM SET shared_preload_libraries = 'a', 'b';"
    )
    assert format_alter_system("temp_tablespaces", "") == "ALTER SYSTEM SET temp_tablespaces = '';"
    # Of '' PostgreSQL makes '""', and the next start fails: could not access file "".
    emptied = format_alter_system("shared_preload_libraries", "")
    assert emptied.startswith("ALTER SYSTEM RESET shared_preload_libraries; -- for '' leave it out of postgresql.conf")


def test_colour_is_never_all_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "NO_COLOR" in os.environ
    console = Console(width=80, highlight=False, force_terminal=True)
    with console.capture() as capture:
        console.print(print_terminal(build_tuning(build_view()), level=Level.STANDARD))
    text = capture.get()
    assert "\x1b[3" not in text, "no colours"
    assert "Already in force" in text
