"""Build the journal of a folder's records: by machine and time, each study's question, answer and proven gains.

Each gain is against the reference of its own study. Gains of different studies are neither ranked nor multiplied: the
studies did not alternate, and a setting that helps with one set of settings may not help with another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pgdyno.report.document import Block, Claim, Claims, Document, Prose, Section
from pgdyno.report.format import format_began
from pgdyno.report.sections.records.kept import ProvenGain, Retest
from pgdyno.report.verdict_words import describe_change

_MOST_SETTINGS = 4


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A study."""

    path: str
    started_at: str
    question: str
    server: str
    machine: str
    """The machine's hardware; a machine with another name may still be the same."""
    host_name: str | None = None
    """The machine's own name; None in older records."""
    trials_finished_count: int
    progress: str = ""
    """The progress of an unfinished study; empty where it has ended."""
    answers: tuple[str, ...]
    gains: tuple[ProvenGain, ...] = ()
    retests: tuple[Retest, ...] = ()


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """A record that cannot be listed in the journal, and why."""

    path: str
    problem: str


class Best(msgspec.Struct, frozen=True, kw_only=True):
    """A gain that no later study of the same machine contradicts."""

    machine: str
    path: str
    gain: ProvenGain


class StudyJournal(msgspec.Struct, frozen=True, kw_only=True):
    """All studies of a folder, by time."""

    format: str = "pgdyno-journal"
    version: int = 1
    folder: str
    entries: tuple[JournalEntry, ...]
    best: tuple[Best, ...]
    """The settings that are proven faster so far, once for each machine and workload, the newest last."""
    unreadable: tuple[Unreadable, ...]


def find_best(entries: Sequence[JournalEntry]) -> tuple[Best, ...]:
    """Return the gains that still stand: a later study that confirms one replaces it, one that refutes it removes it.

    Args:
        entries: The studies by time.
    """
    standing: dict[tuple[str, str, tuple[tuple[str, str], ...]], Best] = {}
    for entry in entries:
        for retest in entry.retests:
            standing.pop((entry.machine, retest.workload, tuple(sorted(retest.settings.items()))), None)
        for gain in entry.gains:
            key = (entry.machine, gain.workload, tuple(sorted(gain.settings.items())))
            standing.pop(key, None)
            standing[key] = Best(machine=entry.machine, path=entry.path, gain=gain)
    return tuple(standing.values())


def build_journal(journal: StudyJournal) -> Document:
    """Return the journal: studies by machine and time, and the settings that were proven faster."""
    sections = [
        Section(title=_name_machine(journal, machine), blocks=tuple(_list_studies(journal, machine)))
        for machine in dict.fromkeys(entry.machine for entry in journal.entries)
    ]
    unreadable = tuple(Prose(words=f"{one.path}: {one.problem}") for one in journal.unreadable)
    sections.append(Section(title="Unreadable records", blocks=unreadable))
    return Document(title="Journal", blocks=tuple(sections), is_titled=False)


def _name_machine(journal: StudyJournal, machine: str) -> str:
    called = _list_names(journal, machine)
    return f"{', '.join(called)}: {machine}" if called else machine


def _list_names(journal: StudyJournal, machine: str) -> list[str]:
    """Return the names of a machine, or of several that look alike, by time."""
    return list(
        dict.fromkeys(
            entry.host_name for entry in journal.entries if entry.machine == machine and entry.host_name is not None
        )
    )


def _list_studies(journal: StudyJournal, machine: str) -> Iterator[Block]:
    are_several = len(_list_names(journal, machine)) > 1
    claims = []
    for entry in journal.entries:
        if entry.machine == machine:
            where = f" on {entry.host_name}" if are_several and entry.host_name is not None else ""
            claims.append(
                Claim(
                    badge=format_began(entry.started_at),
                    hue="slate",
                    claim=f"{entry.question}  {entry.path}{where}",
                    evidence=(*([entry.progress] if entry.progress else []), *entry.answers),
                )
            )
    yield Claims(claims=tuple(claims))
    best = tuple(Prose(words=_describe_best(one)) for one in journal.best if one.machine == machine)
    yield Section(title="Proven faster so far, each against its own study's reference", blocks=best)


def _describe_best(one: Best) -> str:
    gain = one.gain
    settings = [f"{name} = {value}" for name, value in gain.settings.items()]
    more = len(settings) - _MOST_SETTINGS
    shown = ", ".join((*settings[:_MOST_SETTINGS], *([f"{more} more"] if more > 0 else [])))
    return (
        f"{gain.workload}: {gain.variant} over {gain.reference}: {describe_change(gain.verdict)}; {shown} ({one.path})"
    )
