"""`pgdyno bench`: how fast is this machine's PostgreSQL, are derived settings faster, and how does it scale with clients?"""

from __future__ import annotations

from pgdyno.conduct.cards.study import measure_study_card, plan_study_card, study_card_step
from pgdyno.conduct.derived_variants import check_derivable, derive_variants
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
from pgdyno.flow.compose_bench import Goal, budget_of, load_budget_s
from pgdyno.flow.report import StudyReport, keeping_what_is_finished, report_step
from pgdyno.spec.study import Study


def bench(
    asked: Study, *, goal: Goal, rounds: int | None = None, measures_disk: bool = False, place: Workspace, ui: Ui
) -> StudyReport:
    """Check, measure the disk, derive settings, plan, run trials of stock and derived, sweep over clients, report.

    Args:
        asked: The study as composed for the goal, without variants.
        goal: What to answer.
        rounds: Rounds of the comparison; None: as many as fit the minutes.
        measures_disk: Whether the report also says how much of its disk the database gets.
        place: Where to work.
        ui: Shows the progress and asks.
    """
    budget, is_layered = budget_of(goal, rounds=rounds), goal is Goal.LAYERS
    check_new(place)
    check_request(asked, place, budget=budget)
    ui = LoggedUi(ui)
    with ready_machine(asked, place, ui) as ready:
        card = plan_study_card(ready.home, ready.installation, clock=ready.clock) if measures_disk else None
        seen = ready.with_card(card)
        if card is not None and card.expected_s:
            check_derivable(asked, is_layered=is_layered, budget=budget, ready=seen)
            card = measure_study_card(card, home=ready.home, ui=ui)
            seen = seen.with_write_speed(card)
        derived = derive_variants(asked, is_layered=is_layered, budget=budget, ready=seen, ui=ui)
        planned = plan_on(ready, derived.study, card=card, tuned=derived.tuned, load_budget_s=load_budget_s(goal))
        store = begin_record(planned, ready, name="bench", place=place, wants_card=measures_disk, ui=ui)
        with store.locked(), keeping_what_is_finished(store), dropping_refused(store, ui), recording(store):
            study_card_step(card, host=asked.host, store=store, home=ready.home, ui=ui)
            run_trials(store, ready, ui)
            run_sweep(store, ready, ui)
    report = report_step(store, ui)
    if goal is Goal.STOCK:
        ui.say("`pgdyno bench` tells whether settings derived for this machine are faster, `--layers` which of them")
    return report
