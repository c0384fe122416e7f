"""`pgdyno run`, `compare` and `sweep`: run a study that is declared in full."""

from __future__ import annotations

from pathlib import Path

from pgdyno.conduct.cards.study import plan_study_card, study_card_step
from pgdyno.conduct.logged_ui import LoggedUi
from pgdyno.conduct.machine import ready_machine
from pgdyno.conduct.request_check import check_request
from pgdyno.conduct.study import (
    begin_record,
    check_new,
    dropping_refused,
    plan_on,
    recording,
    run_sweep,
    run_trials,
)
from pgdyno.conduct.ui import Ui
from pgdyno.conduct.workspace import Workspace
from pgdyno.flow.given.bench import bench_given
from pgdyno.flow.report import StudyReport, keeping_what_is_finished, report_step
from pgdyno.spec.allowed import NOTHING, Allowed
from pgdyno.spec.study import ServerKind, Study


def run_study(
    study: Study,
    *,
    dsn: str | None = None,
    folder: Path = Path(),
    allowed: Allowed = NOTHING,
    name: str,
    place: Workspace,
    ui: Ui,
    measures_disk: bool = False,
) -> StudyReport:
    """Check the machine, plan, measure the disk, run the trials, report.

    Args:
        study: What to run.
        dsn: The connection string of a given server as the user gave it; None for the study's own, without a secret.
        folder: Where relative paths in the study's connection strings start.
        allowed: What the user allows to do to a given server.
        name: Of its record.
        place: Where to work.
        ui: Shows the progress and asks.
        measures_disk: Whether the record gets a card of the data's disk.
    """
    if study.server.kind is ServerKind.GIVEN:
        return bench_given(study, dsn=dsn, folder=folder, allowed=allowed, name=name, place=place, ui=ui)
    check_new(place)
    place = place.of_study(study)
    check_request(study, place)
    ui = LoggedUi(ui)
    with ready_machine(study, place, ui) as ready:
        card = plan_study_card(ready.home, ready.installation, clock=ready.clock) if measures_disk else None
        planned = plan_on(ready, study, card=card)
        store = begin_record(planned, ready, name=name, place=place, wants_card=measures_disk, ui=ui)
        with store.locked(), keeping_what_is_finished(store), dropping_refused(store, ui), recording(store):
            study_card_step(card, host=study.host, store=store, home=ready.home, ui=ui)
            run_trials(store, ready, ui)
            run_sweep(store, ready, ui)
    return report_step(store, ui)
