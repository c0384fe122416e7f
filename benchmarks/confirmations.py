"""How often the experiment that `pgdyno explain` names bears out what limits a load, where that is known.

The causes of causes.py are planted one at a time. While one is in place its load is measured in one short trial and
explained, and then the experiment runs that `explain --confirm` would, both by the product's own flows. Of each case it says
what was named, what was varied, what came out, and how long it took:

  proven    the load follows what was varied by as much as that was said to limit it
  fits      it came out as expected, and would with some other limits, too
  refuted   it does not: false where the named cause is the planted one
  open      the minutes settled nothing
  none      no experiment would tell

The kernel's dirty thresholds are not planted here: experiments may change the kernel's settings themselves.

Usage: python benchmarks/confirmations.py [--cases N] [--quiet N] [--only NAME ...] [--minutes M] [--seconds S] [--server 15]
       [--cpu N] [--keep DIR]                                             (half an hour for one case of each cause)
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from causes import SERVERS, Asked, compose, draw_asked
from figures import say_share
from planted_causes import Case, Place, Starving, may_plant, mounted_loop, open_folder
from telling import Told

from pgdyno.analyse.study import analyse_study
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.conduct.workspace import Workspace
from pgdyno.errors import PgdynoError, SpecError
from pgdyno.explain.confirmation import ConfirmationOutcome, Confirmed, judge_confirmation
from pgdyno.flow.confirm.experiment import ConfirmOptions
from pgdyno.flow.confirm.here import confirm
from pgdyno.flow.run import run_study
from pgdyno.record.confirmation import Confirmation, locate_experiment, read_confirmations
from pgdyno.record.store import RecordStore
from pgdyno.record.trial_data import read_trial_data
from pgdyno.record.types import TrialStatus
from pgdyno.spec.read import make_study

_LOOK_S = 0.1


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a case."""

    case: str
    is_right: bool
    """Whether the planted cause was named."""
    outcome: ConfirmationOutcome | None
    """None where no experiment would tell."""


def ask(asked: Asked, *, home: Path, folder: Path, minutes: float) -> Answer | None:
    """Plant a case, measure and explain its load, and run the experiment; None where that failed."""
    case = asked.case
    store = RecordStore(folder / f"{case.name.replace(' ', '-')}-{asked.server}-{asked.seed}")
    beside = store.path.with_name(f"{store.path.name}-confirm")
    study = make_study(compose(asked), source=case.name, folder=folder)
    began_s = time.monotonic()
    with planted(case, Place(home, folder), random.Random(f"{case.name} {asked.seed}")):
        try:
            place = Workspace.make(home=home, out=store.path, run_as=None)
            run_study(study, name="cause", place=place, ui=Told())
            try:
                wishes = ConfirmOptions(minutes=minutes, duration=None)
                place = Workspace.make(home=home, out=beside, run_as=None)
                confirm(store, workload=None, wishes=wishes, place=place, ui=Told())
            except SpecError as error:
                print(f"  {error.fact}: {error.detail}", flush=True)
        except PgdynoError as error:
            print(f"{case.name} {asked.number}: {error.fact}: {error.detail}", flush=True)
            return None
    return judge(store, case, took_s=time.monotonic() - began_s)


@contextlib.contextmanager
def planted(case: Case, place: Place, draw: random.Random) -> Iterator[None]:
    """A case's cause, in place for both the trial and the experiment."""
    with contextlib.ExitStack() as stack:
        if case.plant is not None:
            stack.enter_context(case.plant(place, draw))
        if case.starves:
            stack.enter_context(catching(stack.enter_context(Starving(case.starves))))
        yield


@contextlib.contextmanager
def catching(starving: Starving) -> Iterator[None]:
    """Every pgbench that this process starts is caught, soon after it began."""
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(_LOOK_S):
            starving.catch()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


def analyse(store: RecordStore) -> StudyAnalysis:
    finished = [trial for trial in store.read_trials() if trial.status is TrialStatus.FINISHED]
    data = [read_trial_data(store.trial_dir(trial.planned.number), trial) for trial in finished]
    return analyse_study(store.read_record(), data)


def judge(store: RecordStore, case: Case, *, took_s: float) -> Answer:
    (workload,) = analyse(store).workloads
    named = None if workload.bottleneck is None else workload.bottleneck.resource
    found = [confirmed for asked in read_confirmations(store) if (confirmed := _find(store, asked)) is not None]
    answer = Answer(case=case.name, is_right=named in case.right, outcome=found[0].outcome if found else None)
    said = f"{found[0].outcome.value}: {found[0].sentence}" if found else "none"
    mark = "" if answer.is_right else "   <-- not what was planted"
    print(f"{store.path.name}: {named.value if named else 'nothing'}; {said} ({took_s / 60:.1f} min){mark}", flush=True)
    return answer


def _find(store: RecordStore, asked: Confirmation) -> Confirmed | None:
    beside = locate_experiment(store, asked)
    comparisons = analyse(beside).comparisons if beside.exists else ()
    return next((one for c in comparisons if (one := judge_confirmation(asked, c, place=str(beside.path)))), None)


def say_answers(answers: list[Answer]) -> None:
    planted_ones = [answer for answer in answers if answer.is_right and answer.case != "quiet"]
    tried = [answer.outcome for answer in planted_ones if answer.outcome is not None]
    say_share("confirmations.planted.tried", [answer.outcome is not None for answer in planted_ones])
    say_share("confirmations.planted.proven", [outcome is ConfirmationOutcome.PROVEN for outcome in tried])
    say_share(
        "confirmations.planted.borne_out",
        [outcome in {ConfirmationOutcome.PROVEN, ConfirmationOutcome.FITS} for outcome in tried],
    )
    say_share(
        "confirmations.planted.refuted", [outcome is ConfirmationOutcome.REFUTED for outcome in tried], target="<= 0.05"
    )
    wrong = [answer.outcome for answer in answers if not answer.is_right and answer.outcome is not None]
    say_share(
        "confirmations.wrong.proven", [outcome is ConfirmationOutcome.PROVEN for outcome in wrong], target="<= 0.05"
    )
    quiet = [answer.outcome for answer in answers if answer.is_right and answer.case == "quiet" and answer.outcome]
    say_share(
        "confirmations.quiet.borne_out",
        [outcome in {ConfirmationOutcome.PROVEN, ConfirmationOutcome.FITS} for outcome in quiet],
    )
    say_share(
        "confirmations.quiet.refuted", [outcome is ConfirmationOutcome.REFUTED for outcome in quiet], target="<= 0.05"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1, help="of each cause")
    parser.add_argument("--quiet", type=int, default=3, help="loads of which nothing is wrong")
    parser.add_argument("--only", nargs="+", help="causes, by name; `quiet`")
    parser.add_argument("--minutes", type=float, default=5.0, help="that an experiment may take")
    parser.add_argument("--seconds", type=float, default=10.0, help="of the trial that is explained")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server", choices=list(SERVERS), default="18")
    parser.add_argument("--cpu", type=int, help="keep to this CPU")
    parser.add_argument("--keep", type=Path, help="keep records and loaded data below this folder")
    parser.set_defaults(quick=False)
    options = parser.parse_args()
    if options.cpu is not None:
        os.sched_setaffinity(0, {options.cpu})
    # The same way out as Ctrl-C: no server is left running.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    asked = [one for one in draw_asked(options) if may_plant(one.case, changes_kernel=False)]
    answers: list[Answer | None] = []
    with open_folder(options.keep) as folder:
        for on_loop in (False, True):
            own = [one for one in asked if one.case.on_loop is on_loop]
            with contextlib.ExitStack() as stack:
                home = stack.enter_context(mounted_loop(folder)) / "home" if on_loop and own else folder / "home"
                answers += [ask(one, home=home, folder=folder, minutes=options.minutes) for one in own]
    say_answers([answer for answer in answers if answer is not None])


if __name__ == "__main__":
    main()
