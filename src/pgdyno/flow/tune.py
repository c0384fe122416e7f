"""`pgdyno tune`: settings for a machine, a server and a load, each with its reason, within a second and without measuring.

What is proposed was put before PostgreSQL's own program first; what is to be installed was also started with.
"""

from __future__ import annotations

import enum
from pathlib import Path

import msgspec
from rich.console import RenderableType

from pgdyno.conduct.accepted_settings import accept_settings, list_unchecked
from pgdyno.conduct.cards.known import find_cards, read_cards, with_cards
from pgdyno.errors import SpecError
from pgdyno.facts.versions import is_untried
from pgdyno.flow.terminal import print_document
from pgdyno.flow.tuned_load import find_pooler_version, read_load
from pgdyno.record.machine.preflight import ServerOrigin
from pgdyno.record.machine.tunables import ServerState
from pgdyno.record.types import ServerFacts
from pgdyno.report.documents.tuning import tune_document
from pgdyno.report.sections.tuning.view import Tried, TuningView
from pgdyno.run.cluster.home import find_existing_folder
from pgdyno.run.cluster.settings_check import read_built_in, shaping_settings, start_empty
from pgdyno.run.given.data_folder import DataFolder, find_meant_folder
from pgdyno.run.given.state import read_server_state
from pgdyno.run.host.process import ServerUser, find_server_user
from pgdyno.run.host.program import program_name
from pgdyno.run.host.tunables import read_kernel_files, read_sysctls, read_tunables
from pgdyno.run.postgres.installation import Installation, find_installation
from pgdyno.spec.named_host import read_named_host
from pgdyno.spec.setting import check_tunable
from pgdyno.spec.study import ServerSpec
from pgdyno.spec.topology import merge_topologies
from pgdyno.tune.derive import derive
from pgdyno.tune.hosts import MachineShape, make_shape
from pgdyno.tune.measured_load import MeasuredLoad
from pgdyno.tune.subject import (
    LoadHints,
    assume_distribution,
    find_known_dataset,
    make_subject,
    make_subject_from_shape,
)
from pgdyno.tune.types import DerivedSettings, Target, TuningSubject


class Form(enum.Enum):
    """How settings are shown."""

    TABLE = "table"
    CONF = "conf"
    ALTER_SYSTEM = "alter-system"
    SYSCTL = "sysctl"
    DIFF = "diff"
    EXPLAIN = "explain"
    PGBOUNCER = "pgbouncer"
    JSON = "json"


# What goes into a server as it is was started with first.
_INSTALLED = frozenset({Form.CONF, Form.ALTER_SYSTEM})


class TuneRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What settings are asked for.

    Attributes:
        server: Which PostgreSQL; None if the user does not say: that of `data_dir`, or pgdyno's own, for `host` as
            distributions build it.
        data_dir: Of somebody's server.
        host: An instance or a host file; None: this machine.
        record: That has measured the load.
        cards: Disk cards, of the data's disk and of the WAL's; None: what the home keeps of these disks.
        wishes: What the user says of the load.
        fixed: Settings that are not to be derived, by name.
        home: Where pgdyno's own server would lie.
        run_as: As root: the account that PostgreSQL runs as.
    """

    server: ServerSpec | None
    data_dir: Path | None
    host: str | None
    record: Path | None
    cards: tuple[Path, ...] | None = None
    wishes: LoadHints
    fixed: dict[str, str]
    home: Path
    run_as: str | None


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The server that a question is about."""

    installation: Installation
    user: ServerUser
    folder: DataFolder | None
    state: ServerState | None

    @property
    def facts(self) -> ServerFacts:
        """Which PostgreSQL."""
        return self.installation.facts


class TuneResult(msgspec.Struct, frozen=True, kw_only=True):
    """Settings in the form that was asked for."""

    view: TuningView
    form: Form
    explained: tuple[str, ...]
    bindir: Path | None
    """Programs of the PostgreSQL that it is for; None for one that only a connection string names."""

    def to_json(self) -> bytes:
        """Return all of it as a JSON document."""
        return msgspec.json.encode(tune_document(self.view))

    def to_text(self) -> str | None:
        """Return the content of a file; None where the form is for the terminal."""
        from pgdyno.report.sections.tuning import files  # noqa: PLC0415 - each form loads what it needs

        writers = {
            Form.CONF: files.format_conf_file,
            Form.ALTER_SYSTEM: files.format_alter_system_script,
            Form.SYSCTL: files.format_sysctl_file,
            Form.PGBOUNCER: files.format_pgbouncer_file,
        }
        return writers[self.form](self.view) if self.form in writers else None

    def to_terminal(self) -> RenderableType:
        """Return the form for the terminal."""
        # Each form loads what it needs.
        from pgdyno.report.sections.tuning.explain import build_explained, find_derived  # noqa: PLC0415
        from pgdyno.report.sections.tuning.table import build_diff, build_tuning  # noqa: PLC0415

        if self.explained or self.form is Form.EXPLAIN:
            document = build_explained(self.view, find_derived(self.view, self.explained))
        else:
            document = build_diff(self.view) if self.form is Form.DIFF else build_tuning(self.view)
        return print_document(document)


def tune(
    question: TuneRequest, *, form: Form, explained: tuple[str, ...] = (), is_to_be_started: bool | None = None
) -> TuneResult:
    """Derive settings, have PostgreSQL check them, and put them beside those in force.

    Args:
        question: What is asked for.
        form: How it is to be shown.
        explained: Names of settings to show in full instead.
        is_to_be_started: Whether to start an empty cluster with them first; None: where the form is one to install.

    Raises:
        SpecError: Something asked for cannot be understood, or the settings cannot be: too much memory, a value refused.
        HostError: The PostgreSQL is missing, the data may not be read, or /proc is not there.
        StepFailedError: A server with the settings does not start here.
    """
    for name in question.fixed:
        check_tunable(name)
    asked = find_asked(question)
    state = asked.state
    subject, machine = _see(question, asked)
    check_form(form, subject)
    tuning = derive(subject, fixed=question.fixed)
    tuning = accept_settings(
        tuning,
        asked.installation,
        user=asked.user,
        fixed=question.fixed,
        other_settings={} if state is None else shaping_settings(state.look.settings, asked.facts.major),
        control_file=None if asked.folder is None else asked.folder.path / "global/pg_control",
    )
    # A machine that is not here is not this one's to try.
    is_to_be_started = (form in _INSTALLED if is_to_be_started is None else is_to_be_started) and question.host is None
    tried = Tried.VALUES
    if is_to_be_started:
        is_whole = start_empty(asked.installation, tuning.values_of(Target.POSTGRESQL), user=asked.user)
        tried = Tried.STARTED if is_whole else Tried.STARTED_SMALL
    view = TuningView(
        tuning=tuning,
        server=_describe_server(asked),
        machine=machine,
        is_workload_said=question.wishes.workload is not None,
        now=_read_now(tuning, asked, is_here=question.host is None),
        now_of=_describe_origin(state),
        tried=tried,
        unchecked=list_unchecked(tuning, asked.installation),
        version=asked.facts.version,
        is_named=asked.folder is not None,
        waiting=frozenset() if state is None else state.waiting_names,
        unseen=() if state is None else state.unseen,
        file_errors=() if state is None else state.look.file_errors,
        program=program_name(),
    )
    return TuneResult(view=view, form=form, explained=explained, bindir=asked.installation.bindir)


def find_asked(question: TuneRequest) -> Asked:
    """Find the server that a request is about, as it is now.

    Raises:
        SpecError: It is no data directory, or of another version than the user says.
        HostError: It may not be read, or its programs are missing.
    """
    if question.data_dir is None:
        user = find_server_user(question.run_as)
        software = question.home / "software"
        installation = find_installation(question.server or ServerSpec(), user=user, software_dir=software)
        return Asked(installation=installation, user=user, folder=None, state=None)
    folder, facts = find_meant_folder(question.data_dir, question.server)
    return Asked(
        installation=Installation(bindir=folder.bindir, facts=facts),
        user=folder.asker or find_server_user(),
        folder=folder,
        state=read_server_state(folder),
    )


def _see(question: TuneRequest, asked: Asked) -> tuple[TuningSubject, str]:
    """Return what settings are derived for, and the machine's name."""
    if question.host is not None:
        shape, measured = find_shape(question, question.host)
        # Nobody said which PostgreSQL runs there, and it is hardly pgdyno's own.
        server = asked.facts if question.server is not None else assume_distribution(asked.facts)
        subject = make_subject_from_shape(shape, server, question.wishes, measured=measured)
        return with_cards(subject, read_cards(question.cards or ()), is_here=False), shape.name
    folder = asked.folder
    machine = read_tunables(
        find_existing_folder(question.home) if folder is None else folder.path,
        None if folder is None else folder.path / "pg_wal",
        server_pid=None if folder is None else folder.pid,
    )
    measured = read_load(question.record, question.wishes.topology)
    subject = make_subject(machine, asked.facts, question.wishes, state=asked.state, measured=measured)
    if subject.pooling is not None:
        pooling = msgspec.structs.replace(subject.pooling, version=find_pooler_version())
        subject = msgspec.structs.replace(subject, pooling=pooling)
    cards = find_cards(question.home, machine) if question.cards is None else read_cards(question.cards)
    subject = with_cards(subject, cards, is_here=True)
    return subject, "this container" if subject.kernel.is_container else "this machine"


def find_shape(
    question: TuneRequest, name: str, state: ServerState | None = None
) -> tuple[MachineShape, MeasuredLoad | None]:
    """Make the shape of the machine that a user names, a host file or an instance, and read the load that was measured.

    Args:
        question: What is asked for.
        name: The machine as the user names it.
        state: The server to tune, whose data the machine is to hold; None if none was seen.

    Raises:
        SpecError: The file cannot be read, or no such instance is known.
    """
    host = read_named_host(name)
    measured = read_load(question.record, merge_topologies(question.wishes.topology, host.topology))
    dataset = find_known_dataset(question.wishes, measured, state)
    return make_shape(host, dataset_bytes=None if dataset is None else dataset.value), measured


def check_form(form: Form, subject: TuningSubject) -> None:
    """Refuse the form of a file that would be empty.

    Raises:
        SpecError: The form is for a pooler, and none is asked for.
    """
    if form is Form.PGBOUNCER and subject.pooling is None:
        raise SpecError("--form pgbouncer is a file for a pooler, and none is asked for", hint="add --pooler")


def _read_now(tuning: DerivedSettings, asked: Asked, *, is_here: bool) -> dict[str, str]:
    """Values in force, by name, as far as they can be seen."""
    now = {} if asked.state is None else dict(asked.state.look.settings)
    if is_untried(asked.facts.major):
        unseen = tuning.values_of(Target.POSTGRESQL).keys() - now.keys()
        now |= read_built_in(asked.installation, unseen, user=asked.user)
    if is_here:
        now |= read_sysctls(one.name for one in tuning.of(Target.SYSCTL))
        now |= read_kernel_files(one.name for one in tuning.of(Target.SYSFS))
    return now


def _describe_origin(state: ServerState | None) -> str:
    if state is None:
        return "what an unchanged server has"
    return "what the running server has" if state.look.origin is ServerOrigin.RUNNING else "what the server's files say"


def _describe_server(asked: Asked) -> str:
    name = f"PostgreSQL {asked.facts.version}"
    if asked.folder is None or asked.state is None:
        return f"{name}, a new cluster"
    if asked.state.look.origin is ServerOrigin.RUNNING:
        return f"{name}, running as pid {asked.folder.pid} in {asked.folder.path}"
    return (
        f"{name}, {'running, but it did not let us in' if asked.folder.pid else 'not running'}, in {asked.folder.path}"
    )
