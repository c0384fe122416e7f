"""`pgdyno explain --confirm`: run the experiment that would show what limits a load.

It goes through the same machinery as `compare`. Its record lies beside the one that it is about, which keeps where.
"""

from __future__ import annotations

from pgdyno.conduct.given.server import plan_given, ready_server
from pgdyno.conduct.given.trials import run_given_trials
from pgdyno.conduct.logged_ui import LoggedUi
from pgdyno.conduct.machine import check_same, ready_machine
from pgdyno.conduct.study import begin_record, dropping_refused, plan_on, recording, run_trials
from pgdyno.conduct.ui import Ui
from pgdyno.conduct.workspace import Workspace
from pgdyno.flow.confirm.experiment import CONFIRM, ConfirmOptions, Experiment, compose_experiment
from pgdyno.flow.explain import Explanation
from pgdyno.flow.given.bench import allowed_again, begin_given_record, check_same_server
from pgdyno.flow.report import keeping_what_is_finished, report_step, write_reports
from pgdyno.record.store import RecordStore


def confirm(
    store: RecordStore, *, workload: str | None, wishes: ConfirmOptions, place: Workspace, ui: Ui
) -> Explanation:
    """Run the experiment that would show what limits a load, write both records' reports, and explain again.

    Args:
        store: Of the record to explain.
        workload: Which load; None: the first of which an experiment would tell.
        wishes: What it may take.
        place: Where it works.
        ui: Is told, and asked before it runs.

    Raises:
        SpecError: No experiment would tell, or there is no such load.
        HostError: The record was made on another machine, or with another PostgreSQL.
        InterruptedStudyError: The user does not want it.
    """
    asked = compose_experiment(store, workload=workload, wishes=wishes, place=place)
    run = _run_on_own if asked.record.given is None else _run_on_given
    beside = run(asked, LoggedUi(ui))
    report_step(beside, ui)
    return Explanation(report=write_reports(store).report)


def _run_on_own(asked: Experiment, ui: Ui) -> RecordStore:
    with ready_machine(asked.study, asked.place, ui) as ready:
        check_same(asked.record_there, ready.host, ready.preflight, ready.installation.facts)
        planned = plan_on(ready, asked.study, card=None)
        asked.ask(predicted_s=planned.predicted_s, ui=ui)
        asked.link()
        beside = begin_record(planned, ready, name=CONFIRM, place=asked.place, wants_card=False, ui=ui)
        with beside.locked(), keeping_what_is_finished(beside), dropping_refused(beside, ui), recording(beside):
            run_trials(beside, ready, ui)
    return beside


def _run_on_given(asked: Experiment, ui: Ui) -> RecordStore:
    dsn, allowed = asked.record.study.server.dsn or "", allowed_again(asked.record)
    with ready_server(dsn, study=asked.study, allowed=allowed, ui=ui) as ready:
        check_same_server(asked.record, ready)
        planned = plan_given(asked.study, ready)
        asked.ask(predicted_s=planned.predicted_s, ui=ui)
        asked.link()
        beside = begin_given_record(planned, ready, allowed=allowed, name=CONFIRM, place=asked.place, ui=ui)
        with beside.locked(), keeping_what_is_finished(beside), dropping_refused(beside, ui), recording(beside):
            run_given_trials(beside, ready, ui)
    return beside
