"""`pgdyno resume`: go on where a study stopped."""

from __future__ import annotations

from pgdyno.conduct.finished import is_finished
from pgdyno.conduct.load.hosts import check_same_load
from pgdyno.conduct.logged_ui import LoggedUi
from pgdyno.conduct.machine import check_same, ready_machine
from pgdyno.conduct.progress import note_end
from pgdyno.conduct.study import recording, reopen_record, run_missing_card, run_sweep, run_trials
from pgdyno.conduct.ui import Ui
from pgdyno.conduct.workspace import Workspace
from pgdyno.errors import HostError
from pgdyno.flow.given.bench import resume_given
from pgdyno.flow.report import StudyReport, keeping_what_is_finished, report_step
from pgdyno.plan.types import PoolerProgram
from pgdyno.record.store import RecordStore
from pgdyno.record.types import StudyRecord
from pgdyno.spec.allowed import NOTHING, Allowed
from pgdyno.spec.study import ServerKind


def resume_study(store: RecordStore, *, allowed: Allowed = NOTHING, place: Workspace, ui: Ui) -> StudyReport:
    """Run the trials of a record that are not finished, and write its report.

    Args:
        store: The record.
        allowed: What the user allows to do to a given server.
        place: Where to work.
        ui: Shows the progress and asks.

    Raises:
        HostError: The record was made on another machine, or with another PostgreSQL.
    """
    record, ui = store.read_record(), LoggedUi(ui)
    if is_finished(store):
        ui.say("nothing is left to measure: only the report is written again")
        if record.is_ended is False:
            with store.locked():
                note_end(store, is_ended=True)
        return report_step(store, ui)
    if record.study.server.kind is ServerKind.GIVEN:
        return resume_given(store, allowed=allowed, ui=ui)
    with ready_machine(record.study, place.on_disk_of(record), ui) as ready:
        server, others = ready.installation.facts, ready.other_servers
        check_same(record, ready.host, ready.preflight, server, ready.places, other_servers=others)
        check_same_pooler(record, ready.machine.pooler)
        check_same_load(record.load_hosts, () if ready.load is None else ready.load.ready.hosts)
        reopen_record(store, ready.machine, ui)
        with store.locked(), keeping_what_is_finished(store), recording(store):
            run_missing_card(store, ready, ui)
            run_trials(store, ready, ui)
            run_sweep(store, ready, ui)
    return report_step(store, ui)


def check_same_pooler(record: StudyRecord, now: PoolerProgram | None) -> None:
    """Raise a HostError unless PgBouncer has the version that the poolers of a record's study had."""
    then = next((pooler.program for pooler in record.plan.poolers if pooler.program is not None), None)
    if then is not None and now is not None and then.version != now.version:
        was, here = (".".join(map(str, one.version)) for one in (then, now))
        raise HostError(
            f"the record was made with PgBouncer {was}, here is {here}",
            hint="install that version again, or begin a new study",
        )
