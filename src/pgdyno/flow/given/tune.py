"""`pgdyno tune --dsn --host`: settings for a server that is reached by a connection string, on a machine that the user names.

The server itself says which settings and values it takes, and which of them the role may change; nothing is changed.
"""

from __future__ import annotations

import msgspec

from pgdyno.conduct.cards.known import read_cards, with_cards
from pgdyno.errors import SpecError
from pgdyno.facts.gucs import VarType, find_guc
from pgdyno.flow.tune import Form, TuneRequest, TuneResult, check_form, find_shape
from pgdyno.record.machine.given_server import GivenServer
from pgdyno.record.types import ServerFacts
from pgdyno.report.sections.tuning.view import GivenRole, Tried, TuningView
from pgdyno.run.given.probe import probe_server
from pgdyno.run.given.settings import GivenSettings, read_given_settings
from pgdyno.run.host.program import program_name
from pgdyno.tune.derive import derive, leave_out
from pgdyno.tune.subject import make_subject_from_shape
from pgdyno.tune.types import DerivedSettings, Target, TuningSubject


def tune_given(
    question: TuneRequest, *, dsn: str, form: Form, explained: tuple[str, ...] = (), seen: GivenServer | None = None
) -> TuneResult:
    """Derive settings for a given server, and put them beside those in force.

    Args:
        question: What is asked for; `host` is the machine of the server.
        dsn: The connection string.
        form: How it is to be shown.
        explained: Names of settings to show in full instead.
        seen: The server, if it was looked at already.

    Raises:
        SpecError: No machine is named, it is no connection string, or a setting cannot be.
        HostError: The server is of a version that is not supported.
        StepFailedError: There is no connection.
    """
    if question.host is None:
        raise SpecError(
            "a connection string does not show the machine behind it",
            hint="name it: --host r8g.2xlarge, or --host FILE.toml with its CPUs, memory and disk",
        )
    seen, found = seen or probe_server(dsn), read_given_settings(dsn)
    subject, machine = _make_subject(question, question.host, found, seen)
    check_form(form, subject)
    tuning = _accept(derive(subject, fixed=question.fixed), found)
    if seen.service is not None:
        # Whoever runs it decides about its volumes and limits.
        tuning = msgspec.structs.replace(tuning, settings=(*tuning.of(Target.POSTGRESQL), *tuning.of(Target.POOLER)))
    view = TuningView(
        tuning=tuning,
        server=f"PostgreSQL {seen.version} at {seen.address}",
        machine=machine,
        is_workload_said=question.wishes.workload is not None,
        now=found.state.look.settings,
        now_of="what the running server has",
        tried=Tried.NAMES,
        version=seen.version,
        is_named=True,
        given=GivenRole(
            name=found.quoted_role,
            settable=found.alterable & tuning.values_of(Target.POSTGRESQL).keys(),
            way=seen.settings_way,
        ),
        waiting=found.state.waiting_names,
        program=program_name(),
    )
    return TuneResult(view=view, form=form, explained=explained, bindir=None)


def _make_subject(
    question: TuneRequest, host: str, found: GivenSettings, seen: GivenServer
) -> tuple[TuningSubject, str]:
    shape, measured = find_shape(question, host, found.state)
    facts = ServerFacts(version=seen.version, version_num=found.version_num, bindir="")
    subject = make_subject_from_shape(
        shape,
        facts,
        msgspec.structs.replace(question.wishes, leaves_kernel=True),
        state=found.state,
        measured=measured,
    )
    # Unlike the options of its build, which SQL does not show, these are what it takes.
    missing = {name: tuple(v for v in values if v not in found.words.get(name, ())) for name, values in _built(found)}
    subject = msgspec.structs.replace(subject, missing_values={name: some for name, some in missing.items() if some})
    return with_cards(subject, read_cards(question.cards or ()), is_here=False), shape.name


def _built(found: GivenSettings) -> list[tuple[str, tuple[str, ...]]]:
    """List the values that only some builds have, by setting."""
    gucs = (find_guc(name, found.state.look.major) for name in found.words)
    return [(guc.name, guc.build_values) for guc in gucs if guc is not None and guc.build_values]


def _accept(tuning: DerivedSettings, found: GivenSettings) -> DerivedSettings:
    """Reduce the set to what the server has and takes."""
    refused = {}
    for name, value in tuning.values_of(Target.POSTGRESQL).items():
        guc = find_guc(name, tuning.subject.major)
        if name not in found.state.look.settings:
            refused[name] = "its pg_settings does not show it to this role"
        elif guc is not None and guc.vartype is VarType.ENUM and value not in found.words.get(name, (value,)):
            refused[name] = f"it takes {', '.join(found.words[name])}"
    return leave_out(tuning, refused)
