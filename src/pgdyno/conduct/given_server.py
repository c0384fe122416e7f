"""Make a server of the user's ready for a study: look at it, refuse what must not be loaded, and keep other pgdynos away."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from pathlib import Path

import msgspec

from pgdyno.conduct.experiment import run_rounds
from pgdyno.conduct.given_switch import find_switch, hold_settings
from pgdyno.conduct.search import run_search
from pgdyno.conduct.steps import load_step, run_stage
from pgdyno.conduct.study import PlannedStudy
from pgdyno.conduct.ui import Ui
from pgdyno.errors import HostError, SpecError
from pgdyno.explain.finding import Finding, Severity
from pgdyno.explain.preflight.given import IN_USE, find_given_obstacles
from pgdyno.plan.experiment import Experiment, Variant
from pgdyno.plan.plan import CHECK_S, Machine, plan_study
from pgdyno.record.durable import writing
from pgdyno.record.machine.given_server import GivenServer
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.store import RecordStore
from pgdyno.record.types import ServerFacts, StudyRecord
from pgdyno.run.change.given.target import GivenSwitch
from pgdyno.run.change.given.undo import find_left
from pgdyno.run.change.journal import own_journal
from pgdyno.run.given.access import open_access
from pgdyno.run.given.conninfo import has_password
from pgdyno.run.given.database import check_named
from pgdyno.run.given.libpq import find_libpq
from pgdyno.run.given.lock import StudyLock, refuse_second_study
from pgdyno.run.given.probe import watch_server
from pgdyno.run.given.script_check import check_scripts_on_data, check_scripts_there
from pgdyno.run.given.wal_bound import WalBound
from pgdyno.run.given_server import GivenServerUnderTest
from pgdyno.run.host.facts import read_host_facts
from pgdyno.run.host.log import pending_log
from pgdyno.run.host.process import ServerUser
from pgdyno.run.load.little_run import SCRIPT_CHECK_S, has_script_files
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.named_database import NamedDatabaseUnderTest
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.installation import find_installation
from pgdyno.run.trial_stage import TrialStage
from pgdyno.spec.allowed import Allowed
from pgdyno.spec.study import DataSpec, ServerSpec, Study
from pgdyno.spec.table import SettingValue

DEFAULT_CLIENTS = 8
DEFAULT_SCALE = 50


class ReadyServer(msgspec.Struct, frozen=True, kw_only=True):
    """A given server that was looked at, and that no other pgdyno loads while a study runs."""

    seen: GivenServer
    facts: ServerFacts
    address: Address
    load_host: HostFacts
    """This machine, which makes the load."""
    under_test: GivenServerUnderTest
    generator: Pgbench

    @property
    def machine(self) -> Machine:
        """Return what a plan needs to know; of the server's memory and disk nobody knows anything."""
        return Machine(
            version_major=self.seen.major,
            cpu_count=self.load_host.usable_cpu_count,
            memory_bytes=sys.maxsize,
            disk_free_bytes=sys.maxsize,
            withheld_settings=self.under_test.find_withheld(),
        )


@contextmanager
def ready_server(dsn: str, *, clients: int, data: DataSpec, allowed: Allowed, ui: Ui) -> Iterator[ReadyServer]:
    """Connect, look at the server, and tell what would spoil a measurement.

    Args:
        dsn: The connection string.
        clients: Of the load that is meant.
        data: What the load runs on.
        allowed: Whether to load it although others use it, and which database may be written to.
        ui: Shows the progress.

    Raises:
        SpecError: It is no connection string, or the database that the study names cannot be measured.
        HostError: The server must not be loaded, or another pgdyno is at work there.
        StepFailedError: There is no connection.
    """
    may_write = _read_writes(data, allowed)
    with pending_log():
        ui.begin_step("check", predicted_s=CHECK_S)
        seen = watch_server(dsn)
        with open_access(dsn) as address, ExitStack() as stack:
            found = find_given_obstacles(
                seen,
                clients=clients,
                has_password=has_password(dsn),
                left_settings=name_left_settings(seen),
                makes_database=data.database is None,
                may_write=may_write,
            )
            load_host = read_host_facts(Path.cwd())
            ui.end_step(f"PostgreSQL {seen.version} at {seen.address}, as {seen.role}")
            for finding in found:
                if finding.severity is not Severity.NOTE:
                    ui.show_finding(finding)
            if data.init is not None and seen.is_superuser:
                ui.say(f"{seen.role} is a superuser: {Path(data.init).name} may change anything in this server")
            _refuse(found, is_busy_allowed=allowed.is_busy)
            if data.database is not None:
                check_named(address, data.database)
            refuse_second_study(address)
            # Where transactions share sessions, its name would stay with a session that others use.
            lock = None if seen.has_pooled_transactions else stack.enter_context(closing(StudyLock(address)))
            bound = WalBound(address, allowed.wal_bytes)
            if not bound.is_known:
                ui.say(
                    "this role may not know how much WAL the server writes: the study does not end at any amount of it"
                )
            ready = _make_ready(seen, address, lock, load_host, bound, data=data, may_write=may_write)
            if isinstance(ready.under_test, NamedDatabaseUnderTest):
                ready.under_test.check_guard()
                ui.say(_describe_use(data, may_write=may_write))
            yield ready


def _read_writes(data: DataSpec, allowed: Allowed) -> bool:
    """Return whether the load may write.

    Raises:
        SpecError: Writes are allowed to a database that the study does not name.
    """
    if allowed.writes is not None and allowed.writes != data.database:
        named = "the study names none" if data.database is None else f"the study names {data.database}"
        raise SpecError(
            f"--allow writes={allowed.writes}: {named}", hint="it goes with --database, and has the same name"
        )
    return data.database is None or allowed.writes is not None


def _describe_use(data: DataSpec, *, may_write: bool) -> str:
    if may_write:
        return f"the load may write to the database {data.database}, and nothing puts it back"
    return f"the database {data.database} is only read: sessions there begin read-only, and nothing is copied"


def name_left_settings(seen: GivenServer) -> tuple[str, ...]:
    """Return the settings of a server that a pgdyno of this account has left changed, or changes now."""
    return tuple(one.what for one in find_left(own_journal().read_settings(), seen.system_identifier))


def plan_given(study: Study, ready: ReadyServer) -> PlannedStudy:
    """Plan a study for a given server.

    Raises:
        SpecError: The study cannot be run as it stands.
    """
    return PlannedStudy(study=study, plan=plan_study(study, ready.machine), scaling=None)


def check_given_scripts(planned: PlannedStudy, ready: ReadyServer, ui: Ui) -> None:
    """Try script files before anything large is loaded.

    Raises:
        SpecError: One is wrong.
    """
    if planned.study.data.is_own or not has_script_files(planned.plan.workloads):
        return
    ui.begin_step("check scripts", predicted_s=SCRIPT_CHECK_S)
    remarks = check_scripts_there(
        ready.address,
        ready.generator,
        data=planned.study.data,
        workloads=planned.plan.workloads,
        on_activity=ui.show_activity,
    )
    ui.end_step("they run" if not remarks else "see the notes")
    for remark in remarks:
        ui.say(remark)


def _check_scripts_on_data(
    stage: TrialStage, ready: ReadyServer, *, is_read_only: bool, is_busy_allowed: bool, ui: Ui
) -> None:
    """Try scripts on the data themselves, which no little data stand for.

    Raises:
        SpecError: One fails.
    """
    ui.begin_step("check scripts", predicted_s=SCRIPT_CHECK_S)
    ready.under_test.reset()
    remarks = check_scripts_on_data(
        ready.under_test.load_address,
        ready.generator,
        workloads=stage.plan.workloads,
        read_only=ready.under_test.address if is_read_only else None,
        is_busy_allowed=is_busy_allowed,
        on_activity=ui.show_activity,
    )
    ui.end_step("they run" if not remarks else "see the notes")
    for remark in remarks:
        ui.say(remark)


def run_given_trials(store: RecordStore, ready: ReadyServer, ui: Ui) -> None:
    """Load the data, and run the trials of a record that are not finished."""
    record = store.read_record()
    experiment = record.plan.experiment
    switch = find_switch(record.study, experiment, address=ready.address, seen=ready.seen, under_test=ready.under_test)
    with closing(ready.under_test):
        if experiment is not None:
            _try_variants(experiment, switch, ready, ui)
        stage = _prepare_stage(store, record, ready, ui)
        database = record.study.data.database
        if record.study.data.is_own and not store.has_trials:
            is_read_only = database is not None and not record.are_writes_allowed
            is_busy = record.is_busy_allowed
            _check_scripts_on_data(stage, ready, is_read_only=is_read_only, is_busy_allowed=is_busy, ui=ui)
        if experiment is not None:
            with nullcontext() if switch is None else hold_settings(switch, ui) as held:
                ready.under_test.switch = held
                run_rounds(store, store.read_record(), experiment, _make_stages(stage, experiment), ui=ui)
        elif record.plan.search is not None:
            run_search(store, record, record.plan.search, stage, ui=ui)
        else:
            run_stage(store, record, stage, ui=ui)
    if database is None:
        drop = f"`pgdyno clean --dsn {shlex.quote(record.study.server.dsn or '')}`"
        ui.say(f"the loaded database is kept in {ready.seen.address} for the next study; {drop} drops it")


def _prepare_stage(store: RecordStore, record: StudyRecord, ready: ReadyServer, ui: Ui) -> TrialStage:
    with writing(store.init_dir):
        store.init_dir.mkdir(exist_ok=True)
    # What the record keeps is loaded: also where the user's file has changed since the study began.
    study = msgspec.structs.replace(record.study, data=store.keep_init(record.study.data))
    kept = msgspec.structs.replace(record, study=study)
    dataset = load_step(ready.under_test, kept, scale=record.plan.scale, output_dir=store.init_dir, ui=ui)
    if record.study.data.init is not None and not dataset.relations:
        ui.say(f"{Path(record.study.data.init).name} makes no table: has it what the scripts need?")
    if record.dataset is None:
        store.write_record(msgspec.structs.replace(record, dataset=dataset))
    return TrialStage(
        server=ready.under_test,
        generator=ready.generator,
        dataset=dataset,
        study=record.study,
        plan=record.plan,
        settings=record.study.server.settings,
        cpu_count=ready.load_host.usable_cpu_count,
        scripts=store.keep_scripts(record.plan),
    )


def _try_variants(experiment: Experiment, switch: GivenSwitch | None, ready: ReadyServer, ui: Ui) -> None:
    ui.begin_step("try the variants", predicted_s=0.1 * len(experiment.variants))
    for variant in experiment.variants:
        try:
            ready.under_test.try_settings(_find_session_settings(variant, switch))
        except SpecError as error:
            error.fact = f"{variant.name}: {error.fact}"
            raise
    ui.end_step("the server takes their settings")


def _find_session_settings(variant: Variant, switch: GivenSwitch | None) -> dict[str, SettingValue]:
    names = () if switch is None else switch.names
    return {name: value for name, value in variant.server.settings.items() if name.lower() not in names}


def _make_stages(stage: TrialStage, experiment: Experiment) -> dict[str, TrialStage]:
    """Return the stages of the variants, which share the server and its data."""
    return {
        variant.name: msgspec.structs.replace(stage, settings=variant.server.settings)
        for variant in experiment.variants
    }


def _refuse(found: tuple[Finding, ...], *, is_busy_allowed: bool) -> None:
    for finding in found:
        if finding.severity is Severity.CRITICAL:
            raise HostError(finding.claim.rstrip("."), detail=finding.evidence, hint=finding.advice)
    if is_busy_allowed:
        return
    for finding in found:
        if finding.rule in IN_USE:
            raise HostError(
                finding.claim.rstrip("."),
                detail=f"{finding.evidence}. {finding.why}",
                hint=f"{finding.advice} `--allow busy` loads it all the same.",
            )


def _make_ready(
    seen: GivenServer,
    address: Address,
    lock: StudyLock | None,
    load_host: HostFacts,
    wal_bound: WalBound,
    *,
    data: DataSpec,
    may_write: bool,
) -> ReadyServer:
    me = ServerUser(name=str(os.geteuid()), uid=os.geteuid(), gid=os.getegid())
    # The newest pgbench works with servers of all versions, and as this account it needs no copy.
    installation = find_installation(ServerSpec(), user=me, software_dir=Path("/nonexistent"))
    generator = Pgbench(installation=installation, user=me, libpq=find_libpq())
    # ServerFacts name the programs' folder, and of this server's nobody knows it.
    with sql.connect(address) as connection:
        version_num = connection.info.server_version
    facts = ServerFacts(version=seen.version, version_num=version_num, bindir="")
    under_test: GivenServerUnderTest
    if data.database is None:
        may_checkpoint = any(one.name == "CHECKPOINT" and one.refusal is None for one in seen.capabilities)
        under_test = GivenServerUnderTest(
            address=address,
            facts=facts,
            generator=generator,
            may_checkpoint=may_checkpoint,
            lock=lock,
            wal_bound=wal_bound,
        )
    else:
        under_test = NamedDatabaseUnderTest(
            database=data.database,
            may_write=may_write,
            address=address,
            facts=facts,
            generator=generator,
            lock=lock,
            wal_bound=wal_bound,
        )
    return ReadyServer(
        seen=seen, facts=facts, address=address, load_host=load_host, under_test=under_test, generator=generator
    )
