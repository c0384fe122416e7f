"""Schedule one switchback block while it runs: the pilot, then rounds of the undecided variants, until all is decided.

Ctrl-C ends a block after the round under way, once there is a round to keep: see `stop`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Collection, Sequence
from pathlib import Path

from pgdyno.analyse.comparison.answers import Round
from pgdyno.analyse.comparison.pilot import PILOT_SLICE_S, PILOT_SLICES, choose_from_slices
from pgdyno.analyse.comparison.rounds import rounds_of_slices
from pgdyno.conduct.sequential import SequentialComparison, describe_state
from pgdyno.plan.experiment import Experiment
from pgdyno.plan.order import draw_orders
from pgdyno.plan.plan import PlannedTrial
from pgdyno.record.generators.slices import MergedSliceReader
from pgdyno.record.transactions.slices import Slice, SliceLoad, SlicePhase
from pgdyno.record.tries import count_failures
from pgdyno.run.host.clock import wall_clock_offset_s
from pgdyno.run.switchback import SliceRound


class BlockSchedule:
    """Implements `run.switchback.SliceSchedule` for one block.

    What it reads while the load runs only decides when to stop; the verdict is computed from the finished record.

    Args:
        experiment: What is compared.
        trial: The block.
        sequential: The comparison so far.
        without: Variants that are left out, and of which nothing is said.
    """

    def __init__(
        self,
        experiment: Experiment,
        trial: PlannedTrial,
        sequential: SequentialComparison,
        *,
        without: Collection[str] = (),
    ) -> None:
        self._trial = trial
        self._reference = experiment.reference.name
        self._sequential = sequential
        self._gone = without
        self._draw = random.Random(trial.seed)  # noqa: S311 - an order that can be drawn again, not a secret
        self._lock = threading.Lock()
        self._slice_s = sequential.find_slice_s(trial.workload)
        self._variants = sequential.undecided(trial.workload)
        self._orders: list[list[str]] = []
        self._reader: MergedSliceReader | None = None
        self._failures = 0
        self._loads: list[SliceLoad] = []
        self._part_loads: dict[str, list[SliceLoad]] = {}
        self._has_round = False
        self._asked: tuple[str, ...] = (self._reference,)
        self._asked_after = 0
        self.is_stopped = False
        """True if Ctrl-C has ended it before its time."""
        self.news = ""
        """The state of the comparison, in words."""

    def stop(self) -> bool:
        """End the block after the round under way; return False where no round could be kept, or if it was asked for before."""
        if self.is_stopped or not self._has_round:
            return False
        self.is_stopped = True
        return True

    def next_round(self, slices: Sequence[Slice]) -> SliceRound | None:
        """Return what to run next; None when everything is decided or the block is to stop. Called by the switching thread."""
        # This is asked between rounds only.
        self._has_round = bool(slices) and slices[-1].phase is SlicePhase.ROUND
        with self._lock:
            if self.is_stopped or not self._variants:
                return None
            asked = self._draw_round()
        self._asked, self._asked_after = asked.variants, len(slices)
        return asked

    def variant_at(self, slices: Sequence[Slice], at_s: float) -> str:
        """Return the variant that was in force at a time; after the last slice, the variant of the slice that was under way.

        Args:
            slices: All that have ended, when the block failed.
            at_s: When, on the monotonic clock.
        """
        for one in slices:
            if at_s <= one.end_monotonic_s:
                return one.variant
        under_way = len(slices) - self._asked_after
        return self._asked[under_way] if 0 <= under_way < len(self._asked) else self._reference

    def review(self, folder: Path, slices: Sequence[Slice]) -> None:
        """Read the slices that have ended, and decide. Called by the main thread."""
        if self._reader is None:
            self._reader = MergedSliceReader(folder, clock_offset_s=wall_clock_offset_s())
            self._failures = count_failures(folder)
        for one in self._reader.take(slices):
            self._loads.append(one.whole)
            for name, load in one.parts.items():
                self._part_loads.setdefault(name, []).append(load)
        known = slices[: len(self._loads)]
        if self._slice_s is None:
            self._choose_slice(known)
            return
        # The last round may still lack a slice; the sampling rate is in all variants alike and does not matter here.
        rounds = self._make_rounds(known, self._loads)
        if not rounds:
            return
        workload = self._trial.workload
        parts = {(workload, name): self._make_rounds(known, loads) for name, loads in self._part_loads.items()}
        self.news = describe_state(self._sequential, workload, rounds, parts, without=self._gone)
        undecided = self._sequential.undecided(workload, rounds, parts)
        with self._lock:
            variants = tuple(variant for variant in self._variants if variant in undecided)
            if variants != self._variants:
                self._variants, self._orders = variants, []

    def _make_rounds(self, known: Sequence[Slice], loads: Sequence[SliceLoad]) -> tuple[Round, ...]:
        rounds = rounds_of_slices(known, loads, trial=self._trial.number, sampling_rate=1.0, failures=self._failures)
        return rounds[:-1]

    def _draw_round(self) -> SliceRound:
        if self._slice_s is None:
            return SliceRound(phase=SlicePhase.PILOT, variants=(self._reference,) * 3, slice_s=PILOT_SLICE_S)
        if not self._orders:
            self._orders = draw_orders([self._reference, self._reference, *self._variants], self._draw)
        return SliceRound(phase=SlicePhase.ROUND, variants=tuple(self._orders.pop()), slice_s=self._slice_s)

    def _choose_slice(self, known: Sequence[Slice]) -> None:
        self.news = f"pilot, {len(known)} of {PILOT_SLICES} slices"
        choice = choose_from_slices(known, self._loads)
        if choice is None:
            return
        with self._lock:
            self._slice_s = choice.slice_s
        self.news = f"slices of {choice.slice_s:g} s: {choice.reason}"
