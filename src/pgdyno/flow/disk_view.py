"""Disk cards to be looked at: shown, held against what is declared, and set side by side. Nothing is measured here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from rich.console import RenderableType

from pgdyno import __version__
from pgdyno.analyse.comparison.disk_cards import DiskDifference, compare_entries
from pgdyno.analyse.disk.card import estimate_card
from pgdyno.analyse.disk.ceiling import StorageCeilings
from pgdyno.analyse.disk.efficiency import ceilings_of, compare_with_ceilings, declared_entries, instance_limits_of
from pgdyno.analyse.disk.entries import list_entries
from pgdyno.errors import ExitCode, SpecError, with_program
from pgdyno.explain.disk.doubts import find_disk_doubts
from pgdyno.explain.disk.rule_input import DiskRuleInput
from pgdyno.explain.finding import Severity
from pgdyno.flow.terminal import print_document
from pgdyno.record.device.disk_card import DiskCard, add_declared_disk, read_card
from pgdyno.record.store import RecordStore
from pgdyno.record.types import StudyRecord
from pgdyno.report.input import CardView, FurtherCard
from pgdyno.run.host.clock import local_now
from pgdyno.run.host.program import program_name
from pgdyno.spec.host import HostSpec, read_host
from pgdyno.spec.named_host import HOST_FILE, read_named_host
from pgdyno.spec.shipped import find_shipped
from pgdyno.tune.hosts import ceilings_of_emulation


class DiskResult(msgspec.Struct, frozen=True, kw_only=True):
    """Cards with all that can be said of them."""

    views: tuple[CardView, ...]

    @property
    def exit_code(self) -> ExitCode:
        """Return PROBLEM_FOUND if what was measured is no disk to keep data on."""
        is_spoiled = any(one.severity is Severity.CRITICAL for view in self.views for one in view.findings)
        return ExitCode.PROBLEM_FOUND if is_spoiled else ExitCode.OK

    def to_json(self) -> bytes:
        """Return all of it as a JSON document."""
        from pgdyno.report.documents.disk import disk_document  # noqa: PLC0415 - each form loads what it needs

        return msgspec.json.encode(disk_document(self.views))

    def to_terminal(self) -> RenderableType:
        """Return the form for the terminal."""
        from pgdyno.report.sections.disk.section import build_cards  # noqa: PLC0415

        return print_document(build_cards(self.views))


class DiskComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Cards side by side."""

    views: tuple[CardView, ...]

    def to_json(self) -> bytes:
        """Return all of it as a JSON document."""
        from pgdyno.report.documents.disk import comparison_document  # noqa: PLC0415 - each form loads what it needs

        return msgspec.json.encode(comparison_document(self.views, self._differences()))

    def to_terminal(self) -> RenderableType:
        """Return the form for the terminal."""
        from pgdyno.report.sections.disk.section import build_card_comparison  # noqa: PLC0415

        return print_document(build_card_comparison(self.views, self._differences()))

    def _differences(self) -> tuple[DiskDifference, ...]:
        return compare_entries([view.entries for view in self.views])


def show_cards(paths: Sequence[Path], *, host: str | None) -> DiskResult:
    """Cards of before; what a host file declares of them stands before what it did when they were made.

    Raises:
        SpecError: None is named, one is no card, or the host file is not understood.
    """
    if not paths:
        raise SpecError("no disk card is named", hint="for example `pgdyno disk --show pgdyno-disks/CARD.json`")
    named = read_declared(host)
    read = [read_card(path) for path in paths]
    cards = [
        # An emulated disk stays one, whatever it is held against.
        add_declared_disk(
            card, named and msgspec.structs.replace(named, emulate=card.is_emulated), place, data=read[0].look
        )
        for place, card in enumerate(read)
    ]
    return DiskResult(
        views=tuple(
            view_card(card, file=file, beside=[one for one in cards if one is not card])
            for card, file in zip(cards, paths, strict=True)
        )
    )


def compare_cards(paths: Sequence[Path]) -> DiskComparison:
    """Cards side by side, and what host files declare; the first is what the others are held against.

    Raises:
        SpecError: Less than two, or one of them is no card or host file.
    """
    if len(paths) < 2:
        raise SpecError(
            "a comparison takes two disk cards or more",
            hint="for example `pgdyno disk --compare gp3.json io2.json`",
        )
    return DiskComparison(views=tuple(_view_any(path) for path in paths))


def _view_any(path: Path) -> CardView:
    if path.suffix != HOST_FILE and find_shipped(path) == path:
        return view_card(read_card(path), file=path)
    host = msgspec.structs.replace(read_host(path), emulate=False)
    card = DiskCard(
        pgdyno_version=__version__,
        made_at=local_now(),
        name=host.name or path.stem,
        path=None,
        machine=None,
        look=None,
        file_bytes=None,
        runs=(),
        flush_tests=(),
        clock=None,
        tools={},
        unseen=(),
    )
    view = view_card(add_declared_disk(card, host, 0), file=path)
    if view.ceilings is None:
        raise SpecError(f"{path} declares no disk", hint="give it a table [disk], or an instance")
    return msgspec.structs.replace(view, entries=declared_entries(view.ceilings))


def view_card(card: DiskCard, *, file: Path | None = None, beside: Sequence[DiskCard] = ()) -> CardView:
    """All that can be said of a card. How near an emulated disk came to its limits is for the study's report to say."""
    figures = estimate_card(card)
    entries, ceilings = list_entries(card, figures), _find_ceilings(card)
    held = compare_with_ceilings(entries, ceilings) if ceilings is not None else ()
    rule_input = DiskRuleInput(
        card=card, figures=figures, entries=entries, efficiencies=() if card.is_emulated else held, beside=tuple(beside)
    )
    program = program_name()
    return CardView(
        card=card,
        figures=figures,
        entries=entries,
        ceilings=ceilings,
        efficiencies=held,
        limits=instance_limits_of(card),
        findings=tuple(
            msgspec.structs.replace(finding, advice=with_program(finding.advice, program))
            for finding in find_disk_doubts(rule_input)
        ),
        file=None if file is None else str(file),
    )


def _find_ceilings(card: DiskCard) -> StorageCeilings | None:
    if card.host is None or card.declared is None or not card.host.emulate:
        return ceilings_of(card)
    return ceilings_of_emulation(card.host, card.declared)


def read_declared(host: str | None) -> HostSpec | None:
    """Read the machine that a user names, by its instance or by a host file. Only a study emulates it.

    Raises:
        SpecError: No such instance is known, or the file is not understood.
    """
    if host is None:
        return None
    return msgspec.structs.replace(read_named_host(host), emulate=False)


def view_further_cards(store: RecordStore, record: StudyRecord) -> Iterator[FurtherCard]:
    """View the cards of the disks of variants that have places of their own, each disk once, without those of the reference."""
    found: dict[tuple[str, str], FurtherCard] = {}
    for number, variants in record.name_by_place().items():
        first, place, paths = record.places[0], record.places[number], store.card_paths(number)
        kinds = (("data", place.data_disk.device), ("WAL", place.wal.device))
        for (content, device), card, path in zip(kinds, store.read_cards(number), paths, strict=True):
            if card is None or device in {first.data_disk.device, first.wal.device}:
                continue
            key = (content, device)
            said = (*(found[key].variants if key in found else ()), *variants)
            found[key] = FurtherCard(variants=said, content=content, view=view_card(card, file=path))
    yield from found.values()
