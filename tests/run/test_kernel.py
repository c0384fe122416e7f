from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from pgdyno.conduct.machine import _put_back
from pgdyno.errors import HostError, RefusedValueError, ShortPoolError, SpecError
from pgdyno.run.change import sysctl
from pgdyno.run.change.changes import ChangeKind, UndoOutcome, begin_change
from pgdyno.run.change.journal import Journal
from pgdyno.run.change.kernel import KernelSettings, changed_sysctls, restore_left_overs, undo_own
from pgdyno.run.change.pseudo_file import write_value
from pgdyno.run.change.sysctl import check_sysctls, find_namespace, resolve_sysctl
from tests.shared import reachable_folder
from tests.sysctls import (
    BACKGROUND,
    OTHER,
    SETTING,
    VECTOR,
    machine_settings,
    needs_proc_sys,
    own_network,
    read_sysctl,
    started_child,
    write,
)

pytestmark = needs_proc_sys


def refuse_look(_pid: int, _look: object) -> str:
    """Look at a process as an account that may not."""
    raise PermissionError


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


@pytest.fixture
def network() -> Iterator[None]:
    with own_network():
        yield


@contextlib.contextmanager
def holder(
    journal: Journal, values: dict[str, str], *, then: str = "time.sleep(600)"
) -> Iterator[subprocess.Popen[str]]:
    """A pgdyno that has changed settings and goes on with something."""
    code = f"with changed_sysctls({values!r}, journal=journal) as kernel:\n    print('ready', flush=True)\n    {then}"
    with started_child(code, journal=journal.folder) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child


def leave_changed(journal: Journal, values: dict[str, str]) -> None:
    with holder(journal, values) as child:
        child.kill()
        child.wait()


def try_to_change(journal: Journal, *, before: str, as_user: bool = False) -> str:
    """What pgdyno says to it."""
    code = f"""{before}
try:
    with changed_sysctls({{"vm.swappiness": "1"}}, journal=journal): print("changed")
except HostError as error:
    print(error.fact)
"""
    with started_child(code, journal=journal.folder, as_user=as_user) as child:
        said, complaints = child.communicate()
    assert not complaints
    return said.removesuffix("\n")


def outcomes(journal: Journal) -> dict[str, str]:
    return {undo.change.what: undo.outcome.value for undo in restore_left_overs(journal)}


class TestNames:
    @pytest.mark.parametrize("name", ["vm.swappiness", "vm/swappiness"])
    def test_dots_and_slashes(self, name: str) -> None:
        assert resolve_sysctl(name) == "vm.swappiness"
        with machine_settings("vm.swappiness"):
            assert read_sysctl(name) == Path("/proc/sys/vm/swappiness").read_text().strip()

    def test_an_interface_with_a_dot(self, network: None, journal: Journal) -> None:
        renamed = subprocess.run(["ip", "link", "set", "lo", "name", "eth0.100"], check=False, capture_output=True)
        if renamed.returncode != 0:
            pytest.skip(f"no interface with a dot: {renamed.stderr.decode()}")
        name = "net.ipv4.conf.eth0/100.rp_filter"
        assert resolve_sysctl("net/ipv4/conf/eth0.100/rp_filter") == name
        assert resolve_sysctl(name) == name
        with changed_sysctls({name: "1"}, journal=journal):
            assert Path("/proc/sys/net/ipv4/conf/eth0.100/rp_filter").read_text() == "1\n"
        assert read_sysctl(name) == "0"

    @pytest.mark.parametrize(
        ("name", "near"),
        [
            ("vm.swapiness", "vm.swappiness"),
            ("swappiness", "vm.swappiness"),
            ("vm/dirty_byte", "vm.dirty_bytes"),
            ("vm", "sysctl -a"),
            ("", "sysctl -a"),
            ("shared_buffers", "sysctl -a"),
            ("/proc/sys/vm/swappiness", ""),
            ("vm/../../../etc/hostname", ""),
            ("vm./.swappiness", ""),
            ("vm.swappiness\0", ""),
        ],
    )
    def test_unknown(self, name: str, near: str) -> None:
        with pytest.raises(SpecError, match="this kernel has no setting") as caught:
            resolve_sysctl(name)
        assert near in caught.value.hint

    def test_every_namespace_of_ours(self) -> None:
        assert find_namespace("vm.swappiness") is None
        assert find_namespace("kernel.sched_autogroup_enabled") is None
        for name, kind in (
            (SETTING, "net"),
            ("kernel.sem", "ipc"),
            ("kernel.shmmax", "ipc"),
            ("kernel.hostname", "uts"),
        ):
            assert find_namespace(name) == str(Path(f"/proc/self/ns/{kind}").readlink())


class TestRefusals:
    @pytest.mark.parametrize(
        ("values", "words"),
        [
            ({"kernel.modules_disabled": "1"}, "cannot be undone"),
            ({"net.ipv4.ip_forward": "1"}, "changes the settings of interfaces"),
            ({"net.ipv6.conf.all.forwarding": "1"}, "changes the settings of interfaces"),
            ({"vm.drop_caches": "3"}, "is an action"),
            ({"kernel.version": "2.2"}, "can be read only"),
            ({"vm.dirty_bytes": "1000000", "vm.dirty_ratio": "10"}, "exclude each other"),
            ({SETTING: "100", "vm.nosuch": "1"}, "no setting"),
        ],
    )
    def test_before_anything_is_changed(
        self, network: None, journal: Journal, values: dict[str, str], words: str
    ) -> None:
        if next(iter(values)) == "kernel.modules_disabled" and not Path("/proc/sys/kernel/modules_disabled").exists():
            values = {"kernel.unprivileged_bpf_disabled": "1"}
        before = read_sysctl(SETTING)
        with pytest.raises(SpecError, match=words), changed_sysctls(values, journal=journal):
            pytest.fail("went on")
        assert read_sysctl(SETTING) == before
        assert not journal.folder.exists()

    def test_a_value_the_kernel_refuses(self, network: None, journal: Journal) -> None:
        before = read_sysctl(OTHER), read_sysctl(SETTING)
        with (
            pytest.raises(SpecError, match=f"the kernel refuses {SETTING} = 99999999999"),
            changed_sysctls({OTHER: "77", SETTING: "99999999999"}, journal=journal),
        ):
            pytest.fail("went on")
        assert (read_sysctl(OTHER), read_sysctl(SETTING)) == before
        assert journal.read() == ()

    def test_a_value_the_kernel_takes_differently(self, network: None, journal: Journal) -> None:
        before = read_sysctl(SETTING)
        with (
            pytest.raises(RefusedValueError, match="did not take") as caught,
            changed_sysctls({SETTING: "100 200"}, journal=journal),
        ):
            pytest.fail("went on")
        assert caught.value.detail == "it is 100 after setting it"
        assert read_sysctl(SETTING) == before

    @pytest.mark.parametrize("pieces", [1500, 900])
    def test_huge_pages_for_which_pages_must_be_moved_first(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: int
    ) -> None:
        """A kernel with too few whole pieces of memory, which moving pages together makes `pieces`; ours cannot be had so."""
        pool, compact = tmp_path / "vm" / "nr_hugepages", tmp_path / "vm" / "compact_memory"
        pool.parent.mkdir()
        pool.write_text("0")
        compact.write_text("")

        def write_limited(path: Path, value: str, *, name: str) -> None:
            del name
            limit = pieces if compact.read_text() else 700
            path.write_text(str(min(int(value), limit)))

        monkeypatch.setattr(sysctl, "_ROOT", tmp_path)
        monkeypatch.setattr(sysctl, "write_value", write_limited)
        if pieces < 1000:
            with pytest.raises(ShortPoolError, match=r"did not take vm\.nr_hugepages = 1000") as caught:
                sysctl.write_values({"vm.nr_hugepages": "1000"})
            assert (caught.value.asked, caught.value.made) == (1000, pieces)
        else:
            sysctl.write_values({"vm.nr_hugepages": "1000"})
        assert pool.read_text() == str(min(pieces, 1000))

    def test_a_refused_switch_leaves_what_was(self, network: None, journal: Journal) -> None:
        with changed_sysctls({SETTING: "100", OTHER: "77"}, journal=journal) as kernel:
            with pytest.raises(SpecError, match="refuses"):
                kernel.switch({OTHER: "88", SETTING: "99999999999"})
            assert (read_sysctl(SETTING), read_sysctl(OTHER)) == ("100", "77")
            kernel.switch({SETTING: "200"})
            assert (read_sysctl(SETTING), read_sysctl(OTHER)) == ("200", "7200")

    def test_not_root(self, journal: Journal) -> None:
        with machine_settings("vm.swappiness"):
            before = read_sysctl("vm.swappiness")
            assert try_to_change(journal, before="", as_user=True) == "changing kernel settings needs root"
            assert read_sysctl("vm.swappiness") == before

    def test_proc_sys_is_read_only(self, journal: Journal) -> None:
        # The kernel lets a mount be changed in a namespace of mounts of its own without others seeing it.
        code = """
libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_BIND, MS_REMOUNT, MS_RDONLY, MS_REC, MS_PRIVATE = 0x20000, 4096, 32, 1, 16384, 1 << 18
assert libc.unshare(CLONE_NEWNS) == 0
assert libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0
assert libc.mount(b"/proc/sys", b"/proc/sys", None, MS_BIND, None) == 0
assert libc.mount(b"none", b"/proc/sys", None, MS_REMOUNT | MS_BIND | MS_RDONLY, None) == 0
"""
        assert try_to_change(journal, before=code) == "/proc/sys is read-only here"

    def test_root_of_a_container(self, journal: Journal) -> None:
        code = """
libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWUSER, PR_SET_DUMPABLE = 0x10000000, 4
uid = os.geteuid()
# Having changed its account, a process may not write its own maps otherwise.
assert libc.prctl(PR_SET_DUMPABLE, 1) == 0
if libc.unshare(CLONE_NEWUSER) != 0:
    print("no user namespaces"); sys.exit()
pathlib.Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
assert os.geteuid() == 0
"""
        fact = try_to_change(journal, before=code, as_user=True)
        if fact == "no user namespaces":
            pytest.skip(fact)
        assert fact == "vm.swappiness cannot be changed here"


class TestChangeAndUndo:
    def test_for_the_length_of_a_block(self, network: None, journal: Journal) -> None:
        before = {name: read_sysctl(name) for name in (SETTING, VECTOR)}
        with changed_sysctls({SETTING: "100", VECTOR: "20000\t30000"}, journal=journal) as kernel:
            assert (read_sysctl(SETTING), read_sysctl(VECTOR)) == ("100", "20000 30000")
            assert {change.what: change.old_value for change in journal.read()} == before
        assert {name: read_sysctl(name) for name in before} == before
        assert journal.read() == ()
        assert [undo.outcome for undo in kernel.undone] == [UndoOutcome.UNDONE] * 2

    def test_journalled_before_it_is_made(self, network: None, journal: Journal) -> None:
        kernel = KernelSettings(journal)
        before = read_sysctl(SETTING)
        kernel.hold({SETTING: "100"})
        (change,) = journal.read()
        assert (change.what, change.old_value, change.new_values) == (SETTING, before, ("100",))
        assert change.owner.pid == os.getpid()
        assert read_sysctl(SETTING) == before
        kernel.undo()
        assert journal.read() == ()

    def test_switching_writes_the_journal_once(self, network: None, journal: Journal) -> None:
        before = read_sysctl(SETTING), read_sysctl(OTHER)
        variants: list[dict[str, str]] = [{}, {SETTING: "100"}, {SETTING: "200", OTHER: "77"}]
        with changed_sysctls({}, journal=journal) as kernel:
            for variant in variants:
                kernel.hold(variant)
            file = journal.folder / "changes.json"
            written = file.stat().st_ino, file.stat().st_mtime_ns
            for variant in variants * 100:
                kernel.switch(variant)
                assert read_sysctl(SETTING) == variant.get(SETTING, before[0])
                assert read_sysctl(OTHER) == variant.get(OTHER, before[1])
            assert (file.stat().st_ino, file.stat().st_mtime_ns) == written
        assert (read_sysctl(SETTING), read_sysctl(OTHER)) == before

    def test_one_of_a_pair_makes_the_other_unused(self, journal: Journal) -> None:
        ratio, in_bytes = BACKGROUND
        with machine_settings(*BACKGROUND):
            write(ratio, "9")
            with changed_sysctls({}, journal=journal) as kernel:
                for variant, seen in (
                    ({in_bytes: "500000000"}, ("0", "500000000")),
                    ({ratio: "8"}, ("8", "0")),
                    ({in_bytes: "600000000"}, ("0", "600000000")),
                    ({}, ("9", "0")),
                    ({ratio: "9"}, ("9", "0")),
                    ({in_bytes: "500000000"}, ("0", "500000000")),
                ):
                    kernel.switch(variant)
                    assert (read_sysctl(ratio), read_sysctl(in_bytes)) == seen
            assert (read_sysctl(ratio), read_sysctl(in_bytes)) == ("9", "0")
            write(in_bytes, "700000000")
            with changed_sysctls({ratio: "7"}, journal=journal):
                assert (read_sysctl(ratio), read_sysctl(in_bytes)) == ("7", "0")
            assert (read_sysctl(ratio), read_sysctl(in_bytes)) == ("0", "700000000")
            assert journal.read() == ()

    @pytest.mark.parametrize("pair", [BACKGROUND, ("vm.dirty_ratio", "vm.dirty_bytes")])
    def test_a_pair_of_which_neither_was_in_use(self, journal: Journal, pair: tuple[str, str]) -> None:
        ratio, in_bytes = pair
        with machine_settings(*pair):
            before = read_sysctl(ratio)
            write(ratio, "0")
            with changed_sysctls({in_bytes: "500000000"}, journal=journal) as kernel:
                assert (read_sysctl(ratio), read_sysctl(in_bytes)) == ("0", "500000000")
            found = read_sysctl(ratio), read_sysctl(in_bytes)
            write(ratio, before)
            assert found == ("0", "0")
            assert {undo.outcome for undo in kernel.undone} <= {UndoOutcome.UNDONE, UndoOutcome.UNNEEDED}
            assert journal.read() == ()

    def test_a_thread_that_nobody_waits_for_changes_nothing_afterwards(
        self, network: None, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before, writing, ending = read_sysctl(SETTING), threading.Event(), threading.Event()

        def write_late(path: Path, value: str, *, name: str) -> None:
            if value == "200":
                writing.set()
                assert ending.wait(300)
            write_value(path, value, name=name)

        @contextlib.contextmanager
        def ending_block() -> Iterator[None]:
            ending.set()
            yield

        with changed_sysctls({SETTING: "100"}, journal=journal) as kernel:
            monkeypatch.setattr(sysctl, "write_value", write_late)
            late = threading.Thread(target=kernel.switch, args=({SETTING: "200"},))
            late.start()
            assert writing.wait(300)
            monkeypatch.setattr("pgdyno.run.change.kernel.uninterrupted", ending_block)
        late.join()
        assert read_sysctl(SETTING) == before
        assert [undo.found_value for undo in kernel.undone] == ["200"]
        assert journal.read() == ()
        for late_change in (kernel.switch, kernel.hold):
            with pytest.raises(HostError, match="put back already"):
                late_change({SETTING: "200"})
        assert journal.read() == ()
        assert read_sysctl(SETTING) == before

    def test_what_could_not_be_put_back_is_tried_again_and_its_first_value_is_kept(
        self, network: None, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = read_sysctl(SETTING)

        def refuse(_path: Path, value: str, *, name: str) -> None:
            raise RefusedValueError(f"cannot set {name} to {value}")

        def change(error: type[BaseException] | None) -> None:
            with monkeypatch.context() as patch, changed_sysctls({SETTING: "100"}, journal=journal):
                patch.setattr(sysctl, "write_value", refuse)
                if error is not None:
                    raise error

        with pytest.raises(KeyboardInterrupt):
            change(KeyboardInterrupt)
        assert read_sysctl(SETTING) == "100"
        with monkeypatch.context() as patch:
            patch.setattr(sysctl, "write_value", refuse)
            patch.setattr("pgdyno.run.change.kernel.Journal", lambda: journal)
            said: list[str] = []
            _put_back(SimpleNamespace(say=said.append))  # type: ignore[arg-type] - what of it is used
        words = f"not put back to {before}: cannot set {SETTING} to {before}; `pgdyno restore` tries again"
        assert said == [f"a trial had left {SETTING} changed: {words}"]
        with changed_sysctls({SETTING: "200"}, journal=journal):
            assert undo_own(journal) == (), "another block has taken it over"
            assert [change.old_value for change in journal.read()] == [before]
        assert read_sysctl(SETTING) == before
        with pytest.raises(HostError, match="could not be put back"):
            change(None)
        assert [undo.outcome for undo in undo_own(journal)] == [UndoOutcome.UNDONE]
        assert read_sysctl(SETTING) == before
        assert journal.read() == ()
        assert undo_own(journal) == ()

    def test_what_could_not_be_put_back_is_not_forgotten_when_another_setting_is_held(
        self, network: None, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = read_sysctl(SETTING)

        def refuse(_path: Path, value: str, *, name: str) -> None:
            raise RefusedValueError(f"cannot set {name} to {value}")

        with (
            monkeypatch.context() as patch,
            pytest.raises(HostError, match="could not be put back"),
            changed_sysctls({SETTING: "100"}, journal=journal),
        ):
            patch.setattr(sysctl, "write_value", refuse)
        with changed_sysctls({OTHER: "500"}, journal=journal):
            assert {change.what for change in journal.read()} == {SETTING, OTHER}
        with changed_sysctls({OTHER: "500", SETTING: "200"}, journal=journal):
            pass
        assert read_sysctl(SETTING) == before
        assert journal.read() == ()

    def test_what_stays_in_a_journal_that_cannot_be_written_is_taken_over(
        self, network: None, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = read_sysctl(SETTING)

        def refuse(*_: object) -> None:
            raise HostError("cannot write the journal")

        for value in ("100", "200"):
            with (
                monkeypatch.context() as patch,
                pytest.raises(HostError, match="cannot write"),
                changed_sysctls({SETTING: value}, journal=journal),
            ):
                patch.setattr(Journal, "drop", refuse)
            assert read_sysctl(SETTING) == before
        monkeypatch.setattr("pgdyno.run.change.kernel.Journal", lambda: journal)
        said: list[str] = []
        _put_back(SimpleNamespace(say=said.append))  # type: ignore[arg-type] - what of it is used
        assert said == [], "it is as before"
        assert journal.read() == ()
        assert undo_own(journal) == ()

    def test_a_journal_that_cannot_be_read_does_not_hide_what_ended_a_study(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse() -> None:
            raise HostError("the journal is damaged")

        monkeypatch.setattr("pgdyno.conduct.machine.undo_own", refuse)
        said: list[str] = []
        _put_back(SimpleNamespace(say=said.append))  # type: ignore[arg-type] - what of it is used
        assert said == [
            "a trial may have left kernel settings changed: the journal is damaged; `pgdyno restore` tries again"
        ]

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
    def test_after_errors(self, network: None, journal: Journal, error: type[BaseException]) -> None:
        before = read_sysctl(SETTING)
        with pytest.raises(error), changed_sysctls({SETTING: "100"}, journal=journal):
            raise error
        assert read_sysctl(SETTING) == before
        assert journal.read() == ()

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_when_the_program_is_stopped(self, network: None, journal: Journal, number: signal.Signals) -> None:
        before = read_sysctl(SETTING)
        code = f"""
with session(json=False, quiet=True, yes=True), changed_sysctls({{"{SETTING}": "100"}}, journal=journal):
    print("ready", flush=True)
    while True: time.sleep(0.05)  # a signal that comes just before a long sleep would wait for its end
"""
        with started_child(code, journal=journal.folder, imports="from pgdyno.cli.session import session") as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            assert read_sysctl(SETTING) == "100"
            child.send_signal(number)
            child.communicate()
        assert child.returncode == 130
        assert read_sysctl(SETTING) == before
        assert journal.read() == ()

    def test_ctrl_c_at_any_instant(self, network: None, journal: Journal) -> None:
        before = read_sysctl(SETTING)
        chance = random.Random(7)
        then = "\n    while True: kernel.switch({}); kernel.switch({'net.core.somaxconn': '300'})"
        for _ in range(4):
            with holder(journal, {SETTING: "100"}, then=then) as child:
                time.sleep(chance.uniform(0, 0.03))
                for _ in range(3):
                    child.send_signal(signal.SIGINT)
                    time.sleep(chance.uniform(0, 0.001))
                complaints = child.communicate()[1]
            assert "KeyboardInterrupt" in complaints
            # A second Ctrl-C may come before the undoing has begun; then the next pgdyno does it.
            restore_left_overs(journal)
            assert read_sysctl(SETTING) == before
            assert journal.read() == ()


class TestOthers:
    def test_what_somebody_else_has_set_is_left(self, network: None, journal: Journal) -> None:
        before = read_sysctl(OTHER)
        with changed_sysctls({SETTING: "100", OTHER: "77"}, journal=journal) as kernel:
            write(SETTING, "555")
        assert (read_sysctl(SETTING), read_sysctl(OTHER)) == ("555", before)
        assert journal.read() == ()
        left = {undo.change.what: (undo.outcome, undo.found_value) for undo in kernel.undone}
        assert left == {SETTING: (UndoOutcome.LEFT, "555"), OTHER: (UndoOutcome.UNDONE, "77")}

    def test_a_pair_is_left_as_a_pair(self, journal: Journal) -> None:
        ratio, in_bytes = BACKGROUND
        with machine_settings(*BACKGROUND):
            write(ratio, "9")
            with changed_sysctls({in_bytes: "500000000"}, journal=journal) as kernel:
                write(in_bytes, "600000000")
            assert (read_sysctl(ratio), read_sysctl(in_bytes)) == ("0", "600000000")
            assert {undo.outcome for undo in kernel.undone} == {UndoOutcome.LEFT}
            write(ratio, "10")

    def test_a_switch_says_that_somebody_else_sets_it(self, network: None, journal: Journal) -> None:
        with changed_sysctls({SETTING: "100"}, journal=journal) as kernel:
            write(SETTING, "555")
            with pytest.raises(HostError, match=f"another program has changed {SETTING}"):
                kernel.switch({})
        assert read_sysctl(SETTING) == "555"

    def test_two_at_once(self, network: None, journal: Journal) -> None:
        before = read_sysctl(SETTING), read_sysctl(OTHER)
        with holder(journal, {SETTING: "100"}) as child:
            with (
                pytest.raises(HostError, match=f"another pgdyno is changing {SETTING}") as caught,
                changed_sysctls({OTHER: "77", SETTING: "200"}, journal=journal),
            ):
                pytest.fail("went on")
            assert f"pid {child.pid}," in caught.value.detail
            assert read_sysctl(OTHER) == before[1]
            with changed_sysctls({OTHER: "77"}, journal=journal):
                assert restore_left_overs(journal) == ()
                assert (read_sysctl(SETTING), read_sysctl(OTHER)) == ("100", "77")
            assert (read_sysctl(SETTING), read_sysctl(OTHER)) == ("100", before[1])
            assert [change.what for change in journal.read()] == [SETTING]
        assert outcomes(journal) == {SETTING: "undone"}
        assert read_sysctl(SETTING) == before[0]

    def test_the_other_of_a_pair_is_refused_too(self, journal: Journal) -> None:
        with machine_settings(*BACKGROUND), changed_sysctls({BACKGROUND[1]: "500000000"}, journal=journal):
            with pytest.raises(HostError, match="another pgdyno"):
                KernelSettings(journal).switch({BACKGROUND[0]: "5"})
            assert read_sysctl(BACKGROUND[1]) == "500000000"


class TestLeftOvers:
    def test_after_kill_9(self, network: None, journal: Journal) -> None:
        before = read_sysctl(SETTING), read_sysctl(OTHER)
        leave_changed(journal, {SETTING: "100", OTHER: "77"})
        assert (read_sysctl(SETTING), read_sysctl(OTHER)) == ("100", "77")
        with (
            pytest.raises(HostError, match=f"killed has left {SETTING} changed"),
            changed_sysctls({SETTING: "5"}, journal=journal),
        ):
            pytest.fail("went on")
        assert outcomes(journal) == {SETTING: "undone", OTHER: "undone"}
        assert (read_sysctl(SETTING), read_sysctl(OTHER)) == before
        assert outcomes(journal) == {}

    def test_hexadecimal_numbers_of_an_earlier_pgdyno(self, network: None, journal: Journal) -> None:
        pool = "vm.nr_hugepages"
        with machine_settings(pool):
            before = read_sysctl(SETTING), read_sysctl(pool)
            leave_changed(journal, {SETTING: "100"})
            with journal.open() as page:
                (left,) = page.changes
                other = msgspec.structs.replace(
                    left, what=pool, namespace=None, old_value=before[1], new_values=("0x0",)
                )
                page.write([other, msgspec.structs.replace(left, new_values=("0x64",))])
            assert outcomes(journal) == {pool: "unneeded", SETTING: "undone"}
            assert (read_sysctl(SETTING), read_sysctl(pool)) == before

    def test_after_kill_9_of_a_pair(self, journal: Journal) -> None:
        with machine_settings(*BACKGROUND):
            write(BACKGROUND[0], "11")
            before = [read_sysctl(name) for name in BACKGROUND]
            leave_changed(journal, {BACKGROUND[1]: "500000000"})
            assert [read_sysctl(name) for name in BACKGROUND] == ["0", "500000000"]
            assert outcomes(journal) == dict.fromkeys(BACKGROUND, "undone")
            assert [read_sysctl(name) for name in BACKGROUND] == before

    def test_after_kill_9_at_any_instant(self, network: None, journal: Journal) -> None:
        before = read_sysctl(SETTING), read_sysctl(VECTOR)
        chance = random.Random(3)
        code = f"""
print('ready', flush=True)
while True:
    with changed_sysctls({{"{SETTING}": "100"}}, journal=journal) as kernel:
        kernel.switch({{"{VECTOR}": "20000 30000"}})
        kernel.switch({{}})
"""
        seen = set()
        # A slow disk keeps it at the journal for longer, and all of ten kills may find it there.
        for attempt in range(1, 60):
            with started_child(code, journal=journal.folder) as child:
                assert child.stdout is not None
                child.stdout.readline()
                time.sleep(chance.uniform(0, 0.05 * attempt))
                child.kill()
                child.wait()
            seen.add((read_sysctl(SETTING) != before[0], len(journal.read())))
            restore_left_overs(journal)
            assert (read_sysctl(SETTING), read_sysctl(VECTOR)) == before
            assert journal.read() == ()
            if attempt >= 10 and len(seen) > 1:
                break
        assert len(seen) > 1

    def test_what_somebody_else_has_set_since_is_left(self, network: None, journal: Journal) -> None:
        leave_changed(journal, {SETTING: "100"})
        write(SETTING, "555")
        (undo,) = restore_left_overs(journal)
        assert (undo.outcome, undo.found_value) == (UndoOutcome.LEFT, "555")
        assert read_sysctl(SETTING) == "555"
        assert journal.read() == ()

    def test_what_somebody_else_has_undone(self, network: None, journal: Journal) -> None:
        before = read_sysctl(SETTING)
        leave_changed(journal, {SETTING: "100"})
        write(SETTING, before)
        assert outcomes(journal) == {SETTING: "unneeded"}

    def test_a_reboot_has_undone_it(self, network: None, journal: Journal) -> None:
        write(SETTING, "100")
        change = begin_change(kind=ChangeKind.SYSCTL, what=SETTING, namespace=find_namespace(SETTING), old_value="4096")
        owner = msgspec.structs.replace(change.owner, boot_id="00000000-0000-0000-0000-000000000000")
        with journal.open() as page:
            page.write([msgspec.structs.replace(change, new_values=("100",), owner=owner)])
        assert outcomes(journal) == {SETTING: "gone"}
        assert read_sysctl(SETTING) == "100"
        assert journal.read() == ()

    def test_a_network_that_is_gone_and_one_that_is_not(
        self, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        here = read_sysctl(SETTING)
        # Made first: a namespace that comes after one that is gone may get its number.
        with own_network():
            with own_network():
                leave_changed(journal, {SETTING: "100"})
                with subprocess.Popen(["sleep", "3600"]) as somebody:
                    there = find_namespace(SETTING)
                    try:
                        self.look_from_outside(journal, there)
                    finally:
                        somebody.kill()
            assert find_namespace(SETTING) != there
            with monkeypatch.context() as patch:
                patch.setattr(sysctl, "look_at", refuse_look)
                assert outcomes(journal) == {SETTING: "failed"}
            assert outcomes(journal) == {SETTING: "gone"}
        assert journal.read() == ()
        assert read_sysctl(SETTING) == here

    @staticmethod
    def look_from_outside(journal: Journal, there: str | None) -> None:
        with own_network():
            write(SETTING, "100")
            (undo,) = restore_left_overs(journal)
            assert undo.outcome is UndoOutcome.FAILED
            assert str(there) in undo.reason
            assert read_sysctl(SETTING) == "100"
            assert len(journal.read()) == 1

    def test_an_interface_that_is_gone(self, network: None, journal: Journal) -> None:
        leave_changed(journal, {"net.ipv4.conf.lo.rp_filter": "1"})
        if subprocess.run(["ip", "link", "set", "lo", "name", "lo1"], check=False, capture_output=True).returncode != 0:
            pytest.skip("an interface cannot be renamed here")
        assert outcomes(journal) == {"net.ipv4.conf.lo.rp_filter": "gone"}

    def test_huge_pages_that_were_not_all_there_yet(self, journal: Journal) -> None:
        name = "vm.nr_hugepages"
        with machine_settings(name):
            before = int(read_sysctl(name))
            try:
                leave_changed(journal, {name: str(before + 2)})
            except AssertionError:
                pytest.skip("there is no room for two huge pages")
            write(name, str(before + 1))
            assert outcomes(journal) == {name: "undone"}
            assert read_sysctl(name) == str(before)

    def test_who_may_not_undo_is_told(self, network: None) -> None:
        code = "for undo in restore_left_overs(journal): print(undo.outcome.value, undo.reason)"
        with reachable_folder() as folder:
            journal = Journal(folder / "journal")
            leave_changed(journal, {SETTING: "100"})
            with started_child(code, journal=journal.folder, as_user=True) as child:
                said, complaints = child.communicate()
            assert said.startswith("failed cannot write the journal"), complaints
            assert len(journal.read()) == 1
            assert outcomes(journal) == {SETTING: "undone"}


def test_checking_changes_nothing_and_returns_what_the_kernel_would_show(network: None) -> None:
    before = read_sysctl(SETTING)
    for value in (" 100 ", "0x64", "0144"):
        assert check_sysctls({"net/core/somaxconn": value}) == {SETTING: "100"}
    assert check_sysctls({VECTOR: "0x10\t020 "}) == {VECTOR: "16 16"}
    mask = "net.core.flow_limit_cpu_bitmap"
    if sysctl.is_there(mask):
        assert check_sysctls({mask: "010"}) == {mask: "010"}
    assert read_sysctl(SETTING) == before
