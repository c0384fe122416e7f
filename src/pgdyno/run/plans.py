"""Ask the server how it plans the statements of a load, after the measured load. Nothing is executed.

Each statement is planned as the load's query mode has it planned. In simple mode it is planned with the values in its text; in
extended mode with parameters, for their values; in prepared mode as at its sixth execution, when the server has chosen between a
plan for the values and a generic one. pgbench itself draws the values, which are the same for all variants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from pgdyno.errors import PgdynoError, StepFailedError, describe_failure
from pgdyno.plan.experiment import Variant, has_several_scripts, is_client_sweep
from pgdyno.plan.plan import PlannedTrial
from pgdyno.record.pgbench.script import Command, parse_script, plan_drawing, read_drawing
from pgdyno.record.plans import PLANS, StatementPlan
from pgdyno.record.types import Gap
from pgdyno.run.postgres import sql
from pgdyno.run.trial_stage import Observed, TrialStage
from pgdyno.run.under_test import SettingsSwitch, find_session_address
from pgdyno.spec.study import BUILTIN_SCRIPTS
from pgdyno.spec.table import QueryMode

# With the sixth execution the server has chosen. Source: PostgreSQL 18 src/backend/utils/cache/plancache.c,
# choose_custom_plan().
_EXECUTIONS = 6
# The same in each trial, so that all variants have the same values.
_SEED = 1


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A statement to plan."""

    script: str
    place: int
    command: Command
    draws: tuple[Mapping[str, str], ...]
    """The values of its variables, as far as they are known, in each transaction that pgbench drew; at least one."""

    @property
    def unknown(self) -> tuple[str, ...]:
        return tuple(name for name in dict.fromkeys(self.command.variables) if name not in self.draws[0])


def ask_plans(stage: TrialStage, trial: PlannedTrial, seen: Observed, *, switch: SettingsSwitch | None = None) -> None:
    """Keep the plans of a comparison's trial; what cannot be asked is a gap.

    Args:
        stage: Of the trial, whose server runs.
        trial: Whose variants are asked for.
        seen: Gets the plans.
        switch: What puts the settings of a block's variants in force; the first's are in force at the end.
    """
    experiment = stage.plan.experiment
    # Plans of one statement are compared, and different scripts have none in common.
    if experiment is None or is_client_sweep(experiment) or has_several_scripts(experiment):
        return
    try:
        asked = tuple(_list_asked(stage, trial))
        mode = stage.plan.find_load(trial).mode
        variants = stage.variants_of(trial)
        if switch is None:
            seen.plans = tuple(_plan(stage, variants[0], asked, mode))
            return
        with stage.server.connect() as connection:
            changer = switch.open(connection)
            plans: list[StatementPlan] = []
            for variant in reversed(variants):
                changer.change(variant)
                plans[:0] = _plan(stage, variant, asked, mode)
        seen.plans = tuple(plans)
    except (PgdynoError, OSError) as error:
        seen.gaps = (*seen.gaps, Gap(source=PLANS, reason=describe_failure(error)))


def _list_asked(stage: TrialStage, trial: PlannedTrial) -> Iterator[_Asked]:
    for name, _ in stage.plan.find_load(trial).scripts:
        commands = parse_script(_read_script(stage, name))
        draws = _draw(stage, commands)
        plannable = [(place, one) for place, one in enumerate(commands) if one.is_plannable]
        for number, (place, command) in enumerate(plannable, start=1):
            of = [draw.get(place, {}) for draw in draws] or [{}]
            # If a command of the script fails, the last transaction lacks values.
            complete = tuple(values for values in of if values.keys() == of[0].keys())
            yield _Asked(script=name, place=number, command=command, draws=complete)


def _read_script(stage: TrialStage, name: str) -> str:
    if name in BUILTIN_SCRIPTS:
        return stage.generator.ask([f"--show-script={name}"])
    return Path(stage.scripts.get(name, name)).read_text(errors="replace")


def _draw(stage: TrialStage, commands: Sequence[Command]) -> tuple[dict[int, dict[str, str]], ...]:
    """Have pgbench draw values: it connects, and sends no statement."""
    drawing = plan_drawing(commands)
    if not drawing.text:
        return ()
    options = (
        "--no-vacuum",
        "--client=1",
        f"--transactions={_EXECUTIONS}",
        f"--random-seed={_SEED}",
        f"--scale={stage.dataset.scale}",
        "--file=-",
    )
    return read_drawing(
        drawing, stage.generator.ask(options, script=drawing.text, address=find_session_address(stage.server))
    )


def _plan(stage: TrialStage, variant: Variant, asked: Sequence[_Asked], mode: QueryMode) -> Iterator[StatementPlan]:
    """Plan the statements in a session with the variant's settings."""
    with sql.connect(find_session_address(stage.server)) as session, sql.planning(session):
        for one in asked:
            # In extended mode each execution is the first of a statement.
            draws = one.draws if mode is QueryMode.PREPARED else one.draws[:1]
            plan, reason = None, None
            try:
                plan = _explain(session, one, draws, mode)
            except StepFailedError as error:
                if session.broken:
                    raise
                # The server's own words, without the query.
                reason = (error.detail or error.fact).splitlines()[0]
            yield StatementPlan(
                variant=variant.name,
                script=one.script,
                place=one.place,
                statement=one.command.text,
                plan=plan,
                reason=reason,
                values={} if one.unknown else dict(draws[-1]),
                unknown=one.unknown,
            )


def _explain(
    session: sql.Connection, one: _Asked, draws: Sequence[Mapping[str, str]], mode: QueryMode
) -> dict[str, object]:
    command, names = one.command, one.command.variables
    if one.unknown:
        return sql.explain_prepared(session, command.number(), [[None] * len(names)], is_generic=True)
    if mode is QueryMode.SIMPLE:
        return sql.explain(session, command.fill(draws[0]))
    executions = [[values[name] for name in names] for values in draws]
    return sql.explain_prepared(session, command.number(), executions, is_generic=False)
