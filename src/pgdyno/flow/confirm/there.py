"""`pgdyno explain --confirm` of a record that was made on another machine: the experiment runs there.

What it is follows from the record, which stays here. Its study goes there as any other, and its record comes home.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable

import msgspec

from pgdyno.conduct.machine import check_same
from pgdyno.conduct.ui import Ui
from pgdyno.conduct.workspace import Workspace, machine_of
from pgdyno.errors import HostError
from pgdyno.flow.confirm.experiment import CONFIRM, ConfirmOptions, Experiment, compose_experiment
from pgdyno.flow.far_order import find_entry, name_far_record
from pgdyno.flow.over import run_over
from pgdyno.plan.plan import plan_study
from pgdyno.record.far import FarRecord
from pgdyno.record.store import RecordStore
from pgdyno.run.over.command import Order
from pgdyno.spec.read import format_study


def confirm_over(
    store: RecordStore,
    far: FarRecord,
    *,
    workload: str | None,
    wishes: ConfirmOptions,
    place: Workspace,
    ui: Ui,
    before_output: Callable[[], None],
) -> int:
    """Run the experiment that would show what limits a load where its record was made, and return the exit code.

    Args:
        store: Of the record to explain.
        far: Where it was made.
        workload: Which load; None: the first of which an experiment would tell.
        wishes: What it may take.
        place: Where it works; the home and the account are that machine's.
        ui: Is told, and asked before it runs.
        before_output: Called before output of that machine appears.

    Raises:
        SpecError: No experiment would tell, or there is no such load.
        HostError: The machine is not reached, or it is another one now, or the record is of a given server.
        InterruptedStudyError: The user does not want it.
    """
    asked = compose_experiment(
        store, workload=workload, wishes=wishes, place=place, name=name_far_record(CONFIRM, far.ssh)
    )
    host, server = asked.record.host, asked.record_there.server
    if host is None or asked.record.given is not None:
        raise HostError(
            f"the record is of a server that {far.ssh} reached by a connection string",
            hint=f"`{asked.subject.intervention.command or f'pgdyno on {far.ssh} compare --dsn CONNINFO'}`"
            " compares there what the finding names",
        )
    plan = plan_study(asked.study, machine_of(host, version_major=server.major))
    asked.ask(predicted_s=plan.predicted_s, ui=ui)

    def check(beside: RecordStore) -> None:
        begun = beside.read_record()
        if begun.host is not None:
            check_same(asked.record_there, begun.host, begun.preflight, begun.server)
        asked.link()

    return run_over(
        find_entry(far, asked.record.study),
        _order(asked, is_home_known=place.is_home_named or asked.place.home != place.home),
        loads=far.load_hosts,
        ui=ui,
        before_output=before_output,
        home=asked.out,
        check=check,
    )


def _order(asked: Experiment, *, is_home_known: bool) -> Order:
    there, study = asked.out.name, f"{CONFIRM}.toml"
    words = ["run", study, "--out", there]
    words += ["--home", str(asked.place.home)] if is_home_known else []
    words += ["--run-as", asked.place.run_as] if asked.place.run_as is not None else []
    copies = {name: asked.store.path / name for name in asked.store.name_copies(asked.record).values()}
    return Order(
        words=tuple(words),
        files={name: path for name, path in copies.items() if path.is_file()},
        texts={study: _format_there(asked)},
        result=there,
        shows_result=False,
    )


def _format_there(asked: Experiment) -> str:
    """Return the study as a file that lies beside copies of the record's scripts."""
    here = f"{asked.store.path.absolute()}{os.sep}"

    def relate(value: object) -> object:
        if isinstance(value, dict):
            return {key: relate(item) for key, item in value.items()}
        if isinstance(value, list):
            return [relate(item) for item in value]
        return value.removeprefix(here) if isinstance(value, str) else value

    return msgspec.toml.encode(relate(tomllib.loads(format_study(asked.study)))).decode()
