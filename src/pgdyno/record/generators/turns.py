"""Merge what pgbench printed in the turns of one load, which ran one after the other: see `run/turn_round.py`.

`turns/NNN/` of a trial has what pgbench printed in one of its turns. All turns write one transaction log.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from pgdyno.record.generators.merge import merge_pgbench, zip_printed
from pgdyno.record.pgbench.output import PgbenchSummary, ScriptResult

TURNS_DIR = "turns"


def name_turn(folder: Path, number: int) -> Path:
    """Return the folder of a turn of the trial in `folder`; turns count from 1."""
    return folder / TURNS_DIR / f"{number:03}"


def find_turn_folders(folder: Path) -> tuple[Path, ...]:
    """Return the folders of the turns of the trial in `folder`, in their order; none if its load ran in one piece."""
    return tuple(sorted((folder / TURNS_DIR).glob("*"), key=lambda path: int(path.name)))


def merge_turns(turns: Sequence[PgbenchSummary]) -> PgbenchSummary:
    """Merge what pgbench printed in each turn of one load: counts are sums, TPS is that of all turns' time together."""
    # Of a turn in which no transaction ended, pgbench prints this and nothing further.
    ended = [turn for turn in turns if turn.transaction_count != 0 or turn.is_complete] or turns
    first, merged = ended[0], merge_pgbench(ended)
    scripts = tuple(
        msgspec.structs.replace(script, tps=_find_tps(each))
        for script, each in zip(merged.scripts, zip_printed([turn.scripts for turn in ended]), strict=True)
    )
    return msgspec.structs.replace(
        merged,
        client_count=first.client_count,
        thread_count=first.thread_count,
        tps=_find_tps(ended),
        scripts=scripts,
    )


def _find_tps(turns: Sequence[PgbenchSummary] | Sequence[ScriptResult]) -> float | None:
    """Return the TPS over all turns, each of which printed its own and its count; None if one of them did not."""
    counts = [turn.transaction_count or 0 for turn in turns]
    rates = [turn.tps for turn in turns]
    if None in rates:
        return None
    # Where no transaction ended, the length of the turn is not known from what was printed.
    took_s = sum(count / rate for count, rate in zip(counts, rates, strict=True) if rate)
    return sum(counts) / took_s if took_s else 0.0
