"""Refuse a study that cannot run, by what the catalogue of settings, the account and the plan tell, before the machine is checked.

What only a started server, the loaded data or the measured disk can tell is refused later.
"""

from __future__ import annotations

import sys

import msgspec

from pgdyno.conduct.emulation import as_emulated
from pgdyno.conduct.workspace import Workspace, read_machine
from pgdyno.errors import HostError, SpecError, putting_off
from pgdyno.facts.gucs import is_custom_name
from pgdyno.plan.experiment import Variant, identify_server, reference_server
from pgdyno.plan.minutes import Budget, split_minutes
from pgdyno.plan.plan import plan_study
from pgdyno.plan.scaling import plan_scaling, with_scaling
from pgdyno.plan.types import Machine
from pgdyno.plan.variants import list_specs, plan_experiment
from pgdyno.record.tuned import DERIVED, STOCK
from pgdyno.run.change.kernel_file import check_values
from pgdyno.run.postgres.installation import read_named_facts
from pgdyno.spec.setting import find_setting, read_setting
from pgdyno.spec.study import ServerSpec, Study
from pgdyno.spec.variant import VariantSpec, show_value


def check_request(study: Study, place: Workspace, *, budget: Budget | None = None) -> None:
    """Refuse a study that cannot run here, without measuring anything.

    Args:
        study: What is going to run.
        place: Where it is going to work.
        budget: The time of a bench that compares derived settings, which are not derived yet; None for any other study.

    Raises:
        SpecError: A setting or a value does not exist, variants cannot be compared, or the time is too short even on a
            machine where the data are loaded.
        HostError: A PostgreSQL is missing, this account may not change a kernel setting, or there is no room for emulated disks.
    """
    major = read_named_facts(reference_server(study)).major
    check_settings(study, major)
    refusal = find_kernel_refusal(study, major)
    if refusal is not None:
        raise refusal
    machine = read_machine(study, place.home, version_major=major)
    _check_time(study, as_emulated(machine, study, place) if study.is_emulated else machine, budget)


def check_settings(study: Study, major: int) -> None:
    """Refuse settings that the servers of a study would refuse.

    Args:
        study: The study.
        major: Version of its server, in a comparison that of the reference.

    Raises:
        SpecError: A setting or a value does not exist, or variants cannot be compared.
        HostError: The PostgreSQL of another variant is missing.
    """
    experiment = plan_experiment(study, version_major=major)
    if experiment is None:
        _check_server(study.server, major)
        return
    majors = {identify_server(experiment.reference.server): major}
    for variant in experiment.variants:
        server = identify_server(variant.server)
        if server not in majors:
            majors[server] = read_named_facts(variant.server).major
        _check_server(variant.server, majors[server], own=variant)


def find_kernel_refusal(study: Study, major: int) -> HostError | None:
    """Return why the kernel settings of a study cannot be changed here; None if they can.

    What cannot be right anywhere is raised, though it may be of a later variant.

    Args:
        study: The study.
        major: As for `check_settings`.

    Raises:
        SpecError: There is no such setting, or variants cannot be compared.
    """
    experiment = plan_experiment(study, version_major=major)
    refused: list[HostError] = []
    for variant in () if experiment is None else experiment.variants:
        with putting_off(refused):
            check_values(variant.sysctl)
    return refused[0] if refused else None


def _check_server(server: ServerSpec, major: int, *, own: Variant | None = None) -> None:
    for name, value in server.settings.items():
        # Only the server knows the settings of an extension.
        if is_custom_name(name):
            continue
        try:
            read_setting(find_setting(name, major), name, show_value(value))
        except SpecError as error:
            # A variant without a name of its own is called by its settings.
            if own is None or name not in own.changed or name in own.name:
                raise
            detail = ": ".join(filter(None, (f"variant {own.name}", error.detail)))
            raise SpecError(error.fact, detail=detail, hint=error.hint) from error


def _check_time(study: Study, machine: Machine, budget: Budget | None) -> None:
    """Plan the study with the smallest data, loaded already; if that fails, plan it as it is, for the minutes to suggest."""
    scales = frozenset({study.data.scale or 1, *(spec.scale for spec, _ in list_specs(study) if spec.scale)})
    data = study.data if study.data.is_own else msgspec.structs.replace(study.data, scale=study.data.scale or 1)
    least = msgspec.structs.replace(study, data=data)
    quickest = msgspec.structs.replace(
        machine, loaded_scales=scales, disk_free_bytes=sys.maxsize, wal_free_bytes=None, homes_free_bytes={}
    )
    try:
        _plan(least, quickest, budget)
    except SpecError:
        _plan(study, machine, budget)
        raise


def _plan(study: Study, machine: Machine, budget: Budget | None) -> None:
    if budget is None:
        plan_scaling(study, plan_study(study, machine), machine)
        return
    planned = plan_study(study, machine, load_budget_s=budget.load_s)
    compared = msgspec.structs.replace(study, variant=(VariantSpec(name=STOCK), VariantSpec(name=DERIVED)))
    split_minutes(with_scaling(compared, planned), machine, budget)
