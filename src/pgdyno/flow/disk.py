"""`pgdyno disk`: what a storage path can do, measured with fio and PostgreSQL's own programs, and kept as a card.

Only files of pgdyno's own are read and written, and they have no name: nothing stays, however it ends.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pgdyno.conduct.cards.known import find_card_here
from pgdyno.conduct.cards.measure import DiskJobs, take_card
from pgdyno.conduct.ui import Ui
from pgdyno.errors import HostError, InterruptedStudyError, SpecError, StepFailedError, why
from pgdyno.flow.disk_view import DiskResult, read_declared, view_card
from pgdyno.plan.disk import FLUSH_TESTS, LEAST_FILE_BYTES, LEAST_RUNTIME_S, MOST_RUNTIME_S, make_disk_plan
from pgdyno.record.device.disk_card import (
    CARDS,
    DiskCard,
    add_declared_disk,
    keep_card,
    name_card,
    write_card,
    write_card_file,
)
from pgdyno.report.forms.markdown import print_markdown
from pgdyno.report.sections.disk.section import build_card
from pgdyno.run.change.install_fio import install_fio
from pgdyno.run.cluster.home import open_home
from pgdyno.run.device.disk_bench import DiskTools, find_neighbours
from pgdyno.run.device.fio import find_fio
from pgdyno.run.device.scratch import MOST_OF_FREE
from pgdyno.run.host.clock import local_now
from pgdyno.run.host.process import find_server_user
from pgdyno.run.host.tunables import find_room_bytes, read_tunables
from pgdyno.run.postgres.installation import read_named_facts
from pgdyno.spec.study import ServerSpec
from pgdyno.units import format_bytes

_SUFFIX, _PAGE_SUFFIX = ".json", ".md"
# Past this, a person is asked first.
_ASK_ABOVE_S = 600.0


class DiskQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of which disks.

    Attributes:
        paths: Folders on them, data first; none: where pgdyno's home lies.
        is_quick: Within 40 s each rather than 4 minutes.
        server: Whose pg_test_fsync and pg_test_timing are run.
        host: An instance or a host file that declares them: its disk for the first path, its WAL disk for the second.
        home: Of pgdyno, which keeps the newest card of each path.
        out: File or folder for the cards; None: `pgdyno-disks`.
        may_install: Whether fio may be installed.
        file_bytes: Size of the test file; None: the usual one.
        runtime_s: Seconds of each run of fio; None: the usual ones.
    """

    paths: tuple[Path, ...]
    is_quick: bool
    server: ServerSpec
    host: str | None
    home: Path
    out: Path | None
    may_install: bool
    file_bytes: float | None = None
    runtime_s: float | None = None


def measure_disks(question: DiskQuestion, ui: Ui) -> DiskResult:
    """Measure each path, one after the other, and keep a card of each.

    Raises:
        SpecError: A path is no folder, or named twice; the host file is not understood; or a file or a run is too small.
        HostError: A path has no room for the file that is asked for, or cannot be written to, a card cannot be kept, or another pgdyno is at work here.
        StepFailedError: Nothing could be measured.
        InterruptedStudyError: The user does not want it.
    """
    _check_extent(question)
    named = check_paths(question.paths)
    declared = read_declared(question.host)
    with open_home(question.home, find_server_user()) as home:
        home.say_left_overs(ui.say)
        paths, now = named or [question.home.resolve()], local_now()
        tools = _find_tools(question, ui)
        jobs = [_plan(path, question, tools, seed=int(now.timestamp())) for path in paths]
        files = _name_files(question.out, paths, now)
        _announce(jobs, files, ui)
        cards: list[DiskCard] = []
        for place, (job, file) in enumerate(zip(jobs, files, strict=True)):
            title = f"{job.path}: " if len(jobs) > 1 else ""
            # The clock is the machine's: it is tested once.
            rest = msgspec.structs.replace(job, clock=cards[0].clock if cards else None)
            card = take_card(rest, tools, ui=ui, now=now, title=title)
            card = add_declared_disk(card, declared, place, data=cards[0].look if cards else None)
            if not card.runs and not card.flush_tests:
                reasons = "\n".join(f"{one.what}: {one.reason}" for one in card.unseen)
                raise StepFailedError(f"nothing could be measured of {job.path}", detail=reasons)
            write_card(card, file)
            keep_card(card, question.home)
            _say_better(card, question.home, now, ui)
            cards.append(card)
    views = tuple(
        view_card(card, file=file, beside=[one for one in cards if one is not card])
        for card, file in zip(cards, files, strict=True)
    )
    for view, file in zip(views, files, strict=True):
        write_card_file(file.with_suffix(_PAGE_SUFFIX), print_markdown(build_card(view)).encode())
    return DiskResult(views=views)


def _say_better(card: DiskCard, home: Path, now: dt.datetime, ui: Ui) -> None:
    """Say so where `tune` and `bench` go on with an older card, because it knows more."""
    if card.look is None or card.machine is None:
        return
    kept = find_card_here([home], card.look, card.machine, now=now)
    if kept is not None and kept[0].scope > card.scope:
        better = f"{kept[0].made_at:%Y-%m-%d %H:%M}, {kept[1]}"
        ui.say(f"tune and bench still use the card that measured more ({better}); a run without --quick replaces it")


def check_paths(paths: Sequence[Path]) -> list[Path]:
    """Return the absolute paths of the folders that a user names.

    Raises:
        SpecError: One of them is none, or is named twice.
    """
    found: list[Path] = []
    for path in paths:
        place = path.resolve()
        if not place.is_dir():
            fact = f"{path} is no folder" if place.exists() else f"there is no folder {path}"
            raise SpecError(fact, hint="name a folder on the disk that is to be measured")
        if place in found:
            raise SpecError(f"{path} is named twice", hint="name each path once")
        found.append(place)
    return found


def _check_extent(question: DiskQuestion) -> None:
    if question.file_bytes is not None and question.file_bytes < LEAST_FILE_BYTES:
        raise SpecError(
            f"--file-size {format_bytes(question.file_bytes)} is too small",
            hint=f"it takes at least {format_bytes(LEAST_FILE_BYTES)}: a smaller file is in the caches of every disk",
        )
    if question.runtime_s is not None and not LEAST_RUNTIME_S <= question.runtime_s <= MOST_RUNTIME_S:
        raise SpecError(
            f"--run-time {question.runtime_s:g} s is too short or too long",
            hint=f"it takes {LEAST_RUNTIME_S:g} to {MOST_RUNTIME_S:,.0f} s, and there are about 100 runs",
        )


def _find_tools(question: DiskQuestion, ui: Ui) -> DiskTools:
    bindir = Path(read_named_facts(question.server).bindir)
    try:
        return DiskTools(fio=find_fio(), bindir=bindir)
    except HostError as missing:
        wants_it = question.may_install or ui.confirm(f"{missing.fact}: install it with apt-get?", default=False)
        if wants_it:
            ui.begin_step("install fio", predicted_s=20.0)
            fio = install_fio()
            ui.end_step(fio.version)
            return DiskTools(fio=fio, bindir=bindir)
        quick = f", which takes {FLUSH_TESTS:.0f} s also with --quick" if question.is_quick else ""
        ui.say(f"{missing.fact}: only flushes are measured, by pg_test_fsync{quick}; `pgdyno disk --install` gets fio")
        return DiskTools(fio=None, bindir=bindir)


def _plan(path: Path, question: DiskQuestion, tools: DiskTools, *, seed: int) -> DiskJobs:
    machine = read_tunables(path)
    facts = machine.disk.facts
    if not os.access(path, os.W_OK):
        is_read_only = "ro" in facts.mount_options.split(",")
        raise HostError(
            f"{path} is on a file system that is read-only"
            if is_read_only
            else f"this account may not write to {path}",
            detail=f"{facts.filesystem} on {facts.device}, {facts.mount_options}",
            hint="name a folder on the same disk that can be written to",
        )
    has_fio = tools.fio is not None
    room_bytes = find_room_bytes(machine)
    file_bytes = None if question.file_bytes is None else int(question.file_bytes)
    if has_fio and file_bytes is not None and room_bytes and file_bytes > room_bytes * MOST_OF_FREE:
        raise HostError(
            f"{path} has too little space for a test file of {format_bytes(file_bytes)}",
            detail=f"{format_bytes(room_bytes)} are free, of which it may take 50 %",
            hint="name a smaller one with --file-size, or free some",
        )
    plan = make_disk_plan(
        # Without fio there is time for pg_test_fsync.
        is_quick=question.is_quick and has_fio,
        free_bytes=room_bytes,
        seed=seed,
        wants_fio=has_fio,
        cpu_count=int(machine.host.usable_cpu_count),
        file_bytes=file_bytes,
        runtime_s=question.runtime_s,
    )
    return DiskJobs(path=path, machine=machine, plan=plan)


def _name_files(out: Path | None, paths: Sequence[Path], now: dt.datetime) -> list[Path]:
    """Where each card goes; a folder is made now, and a card that is there is never overwritten."""
    folder = out or CARDS
    if out is not None and out.suffix == _SUFFIX and not out.is_dir():
        if len(paths) > 1:
            raise SpecError(f"{out} is one file, for {len(paths)} paths", hint="name a folder with --out")
        folder, files = out.parent, [out]
    else:
        files = [folder / name_card(hostname=platform.node(), made_at=now, name=str(path)) for path in paths]
    made = [made for file in files for made in (file, file.with_suffix(_PAGE_SUFFIX))]
    taken = next((file for file in made if os.path.lexists(file)), None)
    if taken is not None:
        raise HostError(f"{taken} exists already", hint="a card is never overwritten: name another one with --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise HostError(
            f"cannot write a card to {folder}", detail=why(exc), hint="name another place with --out"
        ) from exc
    if not os.access(folder, os.W_OK):
        raise HostError(f"this account may not write to {folder}", hint="name another place with --out")
    return files


def _announce(jobs: Sequence[DiskJobs], files: Sequence[Path], ui: Ui) -> None:
    """Say what is going to be done, and ask where it takes long or holds up somebody's server."""
    lines = []
    for job, file in zip(jobs, files, strict=True):
        facts, plan = job.machine.disk.facts, job.plan
        lines.append(f"{job.path}: {facts.filesystem} on {facts.device}, {format_bytes(facts.free_bytes)} free")
        what = "pg_test_fsync"
        if plan.rounds:
            patterns, each_s = plan.rounds[0], plan.rounds[0][0].runtime_s
            what = f"{len(patterns)} patterns of fio in {len(plan.rounds)} rounds, {each_s:g} s each"
        lines.append(f"  {what}, on a test file of {format_bytes(plan.file_bytes)} that goes when it is done")
        lines.append(f"  card: {file}")
    total_s = sum(job.expected_s for job in jobs) - sum(job.plan.clock_test_s for job in jobs[1:])
    ui.announce(lines, total_s=total_s)
    servers = dict.fromkeys(server for job in jobs for server in find_neighbours(job.path))
    if servers:
        ui.say(f"PostgreSQL runs on the same disk and will be slower meanwhile: {', '.join(servers)}")
    if (servers or total_s > _ASK_ABOVE_S) and not ui.confirm(f"measure for {total_s:,.0f} s?", default=True):
        raise InterruptedStudyError("not started")
