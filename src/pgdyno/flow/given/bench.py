"""`pgdyno bench --dsn`: how fast is a server of the user's, as it is?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from pgdyno.conduct.given.room import check_room
from pgdyno.conduct.given.server import (
    DEFAULT_CLIENTS,
    DEFAULT_SCALE,
    ReadyServer,
    plan_given,
    ready_server,
    with_given_sweep,
)
from pgdyno.conduct.given.switch import ask_for_switch, find_switch
from pgdyno.conduct.given.trials import check_given_scripts, run_given_sweep, run_given_trials, telling_kept
from pgdyno.conduct.load.hosts import check_same_load
from pgdyno.conduct.logged_ui import LoggedUi
from pgdyno.conduct.study import (
    PlannedStudy,
    announce,
    check_new,
    create_record,
    draft_record,
    dropping_refused,
    recording,
    reopen_record,
)
from pgdyno.conduct.ui import Ui
from pgdyno.conduct.workspace import Workspace
from pgdyno.errors import HostError, SpecError
from pgdyno.flow.compose_bench import Goal, compose_study
from pgdyno.flow.report import StudyReport, keeping_what_is_finished, report_step
from pgdyno.plan.endpoints import check_given_poolers
from pgdyno.plan.experiment import Experiment
from pgdyno.plan.loading import check_loading, is_loading
from pgdyno.plan.loads import check_load_hosts
from pgdyno.plan.replicas import check_given_replicas
from pgdyno.plan.variants import list_specs
from pgdyno.record.machine.given_server import GivenServer
from pgdyno.record.machine.host_facts import HostFacts, match_known
from pgdyno.record.store import RecordStore
from pgdyno.record.types import GIVEN_FORMAT, WATCHED_FORMAT, StudyRecord, choose_format
from pgdyno.run.given.conninfo import check_files, has_password, hide_secrets, name_whole_paths, split_hosts
from pgdyno.spec.allowed import NOTHING, Allowed
from pgdyno.spec.hosts import make_named_hosts
from pgdyno.spec.init_file import hash_init_file
from pgdyno.spec.read import APPLY_USE, resolve_command
from pgdyno.spec.study import BUILTIN_SCRIPTS, MOST_STANDBYS, ServerKind, ServerSpec, Study
from pgdyno.spec.table import CacheState

# Five trials of each workload: their scatter has an interval. All three take eight minutes, the quick one two.
_TRIALS: dict[str, object] = {"rounds": 5, "duration": "20s", "warm_up": "5s"}
_QUICK_TRIALS: dict[str, object] = {"rounds": 5, "duration": "10s", "warm_up": "3s"}


def compose_given(
    *,
    dsn: str,
    workloads: list[str],
    load: dict[str, object],
    data: dict[str, object],
    trials: dict[str, object],
    is_quick: bool,
    server_host: str | None,
    load_hosts: Sequence[str],
    replicas: Sequence[str],
    folder: Path,
) -> Study:
    """Compose the study of a given server that a command line asks for.

    Args:
        dsn: The connection string, without a secret.
        workloads: Built-in names or script files; those with `@WEIGHT` form one mixed workload.
        load: Keys that hold for each workload.
        data: Keys of [data].
        trials: Keys of [trials].
        is_quick: Whether one workload and short trials are enough.
        server_host: The server's machine as for ssh; None: it is not watched.
        load_hosts: The machines that the load comes from as for ssh; none: it comes from this one.
        replicas: Connection strings of its replicas, which the endpoint `replicas` reads from.
        folder: Where script files are looked up.

    Raises:
        SpecError: An option or a script cannot be used.
    """
    study = compose_study(
        workloads=workloads or ([BUILTIN_SCRIPTS[0]] if is_quick else []),
        load=load,
        tables={
            "server": {"kind": "given", "dsn": dsn, "replicas": list(replicas)},
            "data": data,
            "trials": {**(_QUICK_TRIALS if is_quick else _TRIALS), **trials},
            "experiment": {},
        },
        goal=Goal.STOCK,
        folder=folder,
    )
    return msgspec.structs.replace(
        study, question="How fast is this server as it stands?", hosts=make_named_hosts(server_host, load_hosts)
    )


def put_on_given(
    asked: Study,
    *,
    dsn: str,
    server_host: str | None = None,
    load_hosts: Sequence[str] = (),
    apply_with: str | None = None,
    replicas: Sequence[str] = (),
) -> Study:
    """Turn a study of a server of pgdyno's own into one of a given server.

    Args:
        asked: A comparison, a sweep or a search.
        dsn: The connection string as the user gave it.
        server_host: The server's machine as for ssh; None: it is not watched.
        load_hosts: The machines that the load comes from as for ssh; none: it comes from this one.
        apply_with: The command line that puts settings in force; None: sessions and ALTER SYSTEM do it.
        replicas: Connection strings of its replicas, which the endpoint `replicas` reads from.

    Raises:
        SpecError: The study names a server, or there is no such command.
    """
    if asked.server.kind is not ServerKind.EMBEDDED:
        raise SpecError("--dsn already determines the server: leave out server")
    command = None if apply_with is None else resolve_command(apply_with, Path.cwd(), APPLY_USE)
    server = ServerSpec(
        kind=ServerKind.GIVEN,
        dsn=hide_secrets(dsn),
        settings=asked.server.settings,
        replicas=tuple(replicas),
        apply=command,
    )
    return msgspec.structs.replace(asked, server=server, hosts=make_named_hosts(server_host, load_hosts))


def _with_defaults(study: Study) -> Study:
    """Choose what this machine's CPUs and memory, which are not the server's, would choose otherwise."""
    data = study.data
    if not data.is_own:
        data = msgspec.structs.replace(data, scale=data.scale or DEFAULT_SCALE)
    workloads = tuple(
        each if each.asked_clients else msgspec.structs.replace(each, clients=DEFAULT_CLIENTS)
        for each in study.workload
    )
    return msgspec.structs.replace(study, data=data, workload=workloads)


def _with_whole_paths(study: Study, folder: Path) -> Study:
    """Return a study whose connection strings are good in any folder."""
    server, poolers = study.server, study.poolers
    server = msgspec.structs.replace(
        server,
        dsn=name_whole_paths(server.dsn or "", folder),
        replicas=tuple(name_whole_paths(dsn, folder) for dsn in server.replicas),
    )
    poolers = {
        name: pooler
        if pooler.dsn is None
        else msgspec.structs.replace(pooler, dsn=name_whole_paths(pooler.dsn, folder))
        for name, pooler in poolers.items()
    }
    return msgspec.structs.replace(study, server=server, poolers=poolers)


def _with_each_replica(study: Study) -> Study:
    """Return a study that names each replica by itself, so that its number is known."""
    each = tuple(one for dsn in study.server.replicas for one in split_hosts(dsn))
    if len(each) > MOST_STANDBYS:
        raise SpecError(
            f"{len(each)} replicas are named, and a load reads from at most {MOST_STANDBYS}", hint="name fewer of them"
        )
    return msgspec.structs.replace(study, server=msgspec.structs.replace(study.server, replicas=each))


def bench_given(
    asked: Study,
    *,
    dsn: str | None = None,
    folder: Path = Path(),
    allowed: Allowed,
    name: str = "bench",
    sweeps_clients: bool = False,
    place: Workspace,
    ui: Ui,
) -> StudyReport:
    """Look at the server, load a database of pgdyno's own there, run trials, sweep over clients, report.

    Args:
        asked: What to run; its connection string has no secret.
        dsn: The connection string as the user gave it; None: that of the study.
        folder: Where relative paths in the study's connection strings start.
        allowed: Whether to load a server that others use, and which database may be written to.
        name: Of the record.
        sweeps_clients: Whether a sweep over clients follows that the study does not name.
        place: Where the record goes.
        ui: Shows the progress and asks.
    """
    if is_loading(asked):
        check_loading(asked, ())
    check_new(place)
    _refuse_questions(asked)
    check_given_replicas(asked)
    check_given_poolers(asked)
    _check_strings(asked, folder)
    if asked.data.init is not None:
        # What is wrong with it shows before the server is asked anything.
        hash_init_file(Path(asked.data.init))
    ui = LoggedUi(ui)
    asked = _with_defaults(_with_each_replica(_with_whole_paths(asked, folder)))
    check_load_hosts(asked, {spec.title: spec for spec, _ in list_specs(asked)})
    with ready_server(asked.server.dsn or "" if dsn is None else dsn, study=asked, allowed=allowed, ui=ui) as ready:
        planned = plan_given(with_given_sweep(asked, ready) if sweeps_clients else asked, ready)
        _ask(planned.study, planned.plan.experiment, ready, ui)
        store = begin_given_record(planned, ready, allowed=allowed, name=name, place=place, ui=ui)
        with store.locked(), keeping_what_is_finished(store), dropping_refused(store, ui), recording(store):
            _run(store, ready, ui)
    return report_step(store, ui)


def _check_strings(asked: Study, folder: Path) -> None:
    """Refuse connection strings with passwords, or with files that are not there."""
    strings = [
        ("dsn of [server]", asked.server.dsn),
        *(("what names replicas", dsn) for dsn in asked.server.replicas),
        *((f"what names the pooler {name}", pooler.dsn) for name, pooler in asked.poolers.items()),
    ]
    for of, dsn in strings:
        if dsn is None:
            continue
        if has_password(dsn, of=of):
            raise SpecError(
                "a study and its record hold no password",
                detail=f"{of} has one",
                hint="put it into ~/.pgpass, PGPASSFILE or PGPASSWORD",
            )
        check_files(dsn, folder, of=of)


def begin_given_record(
    planned: PlannedStudy, ready: ReadyServer, *, allowed: Allowed, name: str, place: Workspace, ui: Ui
) -> RecordStore:
    """Refuse data that are too large, show the plan, ask before a long one, try the scripts, and create the record."""
    check_room(planned, ready, allowed)
    store = announce(planned, version_major=ready.seen.major, name=name, place=place, ui=ui)
    check_given_scripts(planned, ready, ui)
    record = draft_record(planned, name=name, server=ready.facts)
    seen = GIVEN_FORMAT if ready.server_host is None else WATCHED_FORMAT
    create_record(
        store,
        msgspec.structs.replace(
            record,
            format_version=choose_format(planned.study, planned.plan, seen),
            host=ready.host,
            server_host=ready.server_host,
            given=ready.seen,
            replicas=ready.replicas,
            is_busy_allowed=allowed.is_busy,
            are_writes_allowed=allowed.writes is not None,
            allowed_data_bytes=allowed.most_data_bytes,
            allowed_wal_bytes=allowed.most_wal_bytes,
            load_host=ready.load_host,
            load_hosts=() if ready.load is None else ready.load.hosts,
        ),
    )
    return store


def resume_given(store: RecordStore, *, allowed: Allowed, ui: Ui) -> StudyReport:
    """Run the trials of a given server's record that are not finished, and write its report.

    Args:
        store: The record.
        allowed: Whether to load a server that others use; also what the user allowed when the study began.
        ui: Shows the progress.

    Raises:
        HostError: Another server is there now.
    """
    record = store.read_record()
    dsn = record.study.server.dsn
    if dsn is None:
        raise SpecError("the record names no server")
    allowed = allowed_again(record, allowed)
    study = record.study
    with ready_server(dsn, study=study, allowed=allowed, ui=ui) as ready:
        check_same_server(record, ready)
        _ask(record.study, record.plan.experiment, ready, ui)
        reopen_record(store, ready.machine, ui)
        with store.locked(), keeping_what_is_finished(store), recording(store):
            _run(store, ready, ui)
    return report_step(store, ui)


def _run(store: RecordStore, ready: ReadyServer, ui: Ui) -> None:
    with telling_kept(store, ready, ui):
        run_given_trials(store, ready, ui)
        run_given_sweep(store, ready, ui)


def allowed_again(record: StudyRecord, allowed: Allowed = NOTHING) -> Allowed:
    """Return what the user allowed when a record began, with other bounds where they say so now.

    A server may have become busy since, and be allowed now.

    Raises:
        SpecError: Writes are allowed now, and were not when it began.
    """
    writes = record.study.data.database if record.are_writes_allowed else None
    if allowed.writes is not None and writes is None:
        raise SpecError("the trials so far only read the database", hint="begin a new study to write to it")
    return Allowed(
        is_busy=allowed.is_busy or record.is_busy_allowed,
        writes=writes,
        wal_bytes=record.allowed_wal_bytes if allowed.wal_bytes is None else allowed.wal_bytes,
        data_bytes=record.allowed_data_bytes if allowed.data_bytes is None else allowed.data_bytes,
    )


def _ask(study: Study, experiment: Experiment | None, ready: ReadyServer, ui: Ui) -> None:
    switch = find_switch(study, experiment, ready)
    if switch is not None:
        ask_for_switch(switch, ready.seen, ui)


def check_same_server(record: StudyRecord, ready: ReadyServer) -> None:
    """Raise a HostError unless the server, its version, the role, and the machine of the load are those of a record."""
    then, now = record.given, ready.seen
    if then is None or _identify(then) != _identify(now):
        raise HostError(
            "another server is there now, or it has another version, or another role asks",
            detail=f"then {_show(then)}, now {_show(now)}",
            hint="trials of two servers do not belong in one estimate: begin a new study",
        )
    if not match_known(_identify_machine(record.host), _identify_machine(ready.host)):
        raise HostError(
            "the server runs on another machine or kernel now",
            detail=f"then {_identify_machine(record.host)}\nnow  {_identify_machine(ready.host)}",
            hint="trials of two machines do not belong in one estimate: begin a new study",
        )
    if [_identify(one) for one in record.replicas] != [_identify(one) for one in ready.replicas]:
        raise HostError(
            "another replica is there now, or one has another version",
            detail=f"then {', '.join(map(_show, record.replicas))}, now {', '.join(map(_show, ready.replicas))}",
            hint="trials of two servers do not belong in one estimate: begin a new study",
        )
    check_same_load(record.load_hosts, () if ready.load is None else ready.load.hosts)
    # Of load hosts, it is the one with the fewest CPUs.
    if not record.load_hosts and not match_known(_identify_load(record.load_host), _identify_load(ready.load_host)):
        raise HostError(
            "the load comes from another machine or kernel now",
            detail=f"then {_identify_load(record.load_host)}\nnow  {_identify_load(ready.load_host)}",
            hint="trials of two machines do not belong in one estimate: begin a new study",
        )


def _identify(server: GivenServer) -> tuple[object, ...]:
    """Return what tells a server, with the role that asks, from all others; where its identifier is hidden, its address must do."""
    of_data = server.system_identifier or (server.host, server.port, server.dbname, server.system)
    return of_data, server.version, server.role


def _identify_machine(host: HostFacts | None) -> tuple[str | int | None, ...]:
    """Return what tells the machine of a server from others; nothing of one that is not watched."""
    if host is None:
        return ()
    disk = host.data_disk
    return host.host_name, *host.cpu_identity, host.kernel, disk.block_device, disk.filesystem


def _identify_load(host: HostFacts | None) -> tuple[str | int | None, ...]:
    """Return what tells the machine that made the load from others; each container has another host name."""
    return () if host is None else (*host.cpu_identity, host.kernel)


def _show(server: GivenServer | None) -> str:
    return "none" if server is None else f"{server.version} at {server.address} as {server.role}"


def _refuse_questions(study: Study) -> None:
    if study.scaling and study.is_comparison:
        raise SpecError(
            "no sweep follows a comparison on a given server",
            hint="leave out [scaling]; `pgdyno sweep --dsn` varies clients",
        )
    if study.trials.cache is CacheState.COLD:
        raise SpecError("a given server cannot begin with cold caches, because it is not restarted")
