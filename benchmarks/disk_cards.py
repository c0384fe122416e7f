"""Whether a disk's cards repeat: do two of one path, made within the hour, agree within their own intervals?

Makes cards of a path one after the other, or takes those that are named, and compares each pair, figure by figure. Two
figures agree where their 95 % intervals have something in common; figures without an interval are left out. The pairs of
more than two cards are not independent of each other, so that their share has no interval.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from figures import say

from pgdyno.analyse.disk.card import estimate_card
from pgdyno.analyse.disk.entries import DiskFigure, DiskFigureKey, list_entries
from pgdyno.record.device.disk_card import DiskCard, read_card

_MOST_S = {True: 40.0, False: 240.0}


def make_cards(path: Path, count: int, *, is_quick: bool) -> list[DiskCard]:
    """Measure a path so often."""
    cards = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        # The account that PostgreSQL runs as must reach pgdyno's home.
        Path(folder).chmod(0o755)
        for number in range(count):
            file = Path(folder, f"{number}.json")
            argv = [sys.executable, "-m", "pgdyno", "disk", str(path), "--out", str(file), "--json", "--yes"]
            environment = {**os.environ, "PGDYNO_HOME": str(Path(folder, "home"))}
            argv += ["--quick"] if is_quick else []
            # It may end with 1, of a card that has much against it.
            subprocess.run(argv, check=False, stdout=subprocess.DEVNULL, env=environment)
            cards.append(read_card(file))
            print(f"card {number + 1} of {count}: {cards[-1].took_s:.0f} s", flush=True)
    return cards


def list_figures(card: DiskCard) -> dict[DiskFigureKey, DiskFigure]:
    """Those that have an interval."""
    entries = list_entries(card, estimate_card(card))
    return {entry.key: entry for entry in entries if entry.estimate.low is not None}


def agree(one: DiskFigure, other: DiskFigure) -> bool:
    """Whether their intervals have something in common."""
    first, second = one.estimate, other.estimate
    return max(first.low or 0.0, second.low or 0.0) <= min(first.high or math.inf, second.high or math.inf)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", nargs="?", default="/var/tmp", help="a folder on the disk, or cards of one disk")
    parser.add_argument("more", nargs="*", help="further cards")
    parser.add_argument("--count", type=int, default=4, help="cards to make")
    parser.add_argument("--quick", action="store_true", help="quick cards")
    asked = parser.parse_args()
    named = [Path(asked.path), *map(Path, asked.more)]
    is_made = named[0].is_dir()
    cards = make_cards(named[0], asked.count, is_quick=asked.quick) if is_made else [read_card(file) for file in named]
    figures = [list_figures(card) for card in cards]
    agreed: Counter[DiskFigureKey] = Counter()
    compared: Counter[DiskFigureKey] = Counter()
    for one, other in itertools.combinations(figures, 2):
        for key in one.keys() & other.keys():
            compared[key] += 1
            agreed[key] += agree(one[key], other[key])
    for key in DiskFigureKey:
        if compared[key]:
            values = [each[key].estimate.value or 0.0 for each in figures if key in each]
            spread = max(values) / min(values)
            print(f"{key.value}: {agreed[key]} of {compared[key]} pairs agree; cards differ up to {spread:.2f} times")
    count, total = agreed.total(), compared.total()
    kind = "quick" if asked.quick else "whole"
    say(f"disk.card.{kind}.repeats", count / total, n=total, unit="ratio", target=">= 0.9")
    if is_made:
        took_s = [card.took_s or 0.0 for card in cards]
        say(
            f"disk.card.{kind}.time",
            statistics.median(took_s),
            n=len(took_s),
            unit="s",
            target=f"<= {_MOST_S[asked.quick]:g}",
        )


if __name__ == "__main__":
    main()
