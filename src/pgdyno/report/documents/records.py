"""Make the published document of records side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from pgdyno.analyse.capacity.tiers import Tiers
from pgdyno.analyse.records.comparison import PairComparison, RecordComparison, RecordFigure
from pgdyno.analyse.records.difference import RecordDifference
from pgdyno.record.machine.given_server import GivenServer
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.types import ServerFacts
from pgdyno.report.documents.described import says
from pgdyno.report.lists import name_by_letters
from pgdyno.report.sections.records.pairs import REMARK, NamedRecord, describe_pair
from pgdyno.report.sections.records.tiers import list_tiers

RECORDS_VERSION = 1


class RecordDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A record."""

    name: str
    path: str
    started_at: str
    question: str
    server: ServerFacts
    host: Annotated[HostFacts | None, says("Null for a server whose machine nobody saw.")]
    given: Annotated[GivenServer | None, says("What was seen of a server of the user's.")] = None


class PairDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A load of the first record beside that of another."""

    first: str
    other: str
    is_refused: bool
    sentence: str
    differences: Annotated[tuple[RecordDifference, ...], says("Gravest first; with a refusal there are no ratios.")]
    figures: tuple[RecordFigure, ...]


class AgainstDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A record against the first one."""

    name: str
    is_refused: Annotated[bool, says("Whether anything that was asked for gets no answer.")]
    pairs: tuple[PairDocument, ...]
    only_first: tuple[str, ...]
    only_other: tuple[str, ...]


class RecordsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `pgdyno compare-records --json`. Fields may be added; renaming one needs a new version."""

    format: str = "pgdyno-records"
    version: int = RECORDS_VERSION
    is_refused: bool
    remark: str = REMARK
    records: tuple[RecordDocument, ...]
    against_first: tuple[AgainstDocument, ...]
    tiers: Annotated[dict[str, Tiers], says("By load, which machine for how much; none of one machine alone.")] = {}


def records_document(records: Sequence[NamedRecord], comparisons: Sequence[RecordComparison]) -> RecordsDocument:
    """Return records side by side as a document, at full precision."""
    names = name_by_letters(records)
    return RecordsDocument(
        is_refused=any(one.is_refused for one in comparisons),
        records=tuple(
            RecordDocument(
                name=name,
                path=one.path,
                started_at=one.record.started_at,
                question=one.record.study.question,
                server=one.record.server,
                host=one.record.host,
                given=one.record.given,
            )
            for name, one in zip(names, records, strict=True)
        ),
        against_first=tuple(
            AgainstDocument(
                name=names[one.place],
                is_refused=one.is_refused,
                pairs=tuple(_make_pair(pair, (names[0], names[one.place])) for pair in one.pairs),
                only_first=one.only_first,
                only_other=one.only_other,
            )
            for one in comparisons
        ),
        tiers=list_tiers(records, comparisons),
    )


def _make_pair(pair: PairComparison, names: tuple[str, str]) -> PairDocument:
    return PairDocument(
        first=pair.first.name,
        other=pair.other.name,
        is_refused=bool(pair.refusals),
        sentence=describe_pair(pair, names),
        differences=pair.differences,
        figures=pair.figures,
    )
