"""Take a derived number of huge pages out of a study where the kernel cannot make that many.

How many it can make changes with what is in memory, so it may fail after it has succeeded. A setting that pgdyno derived
then gives way for the whole study, and the record says why. After the first measured round it no longer does: all rounds
must be of the same variants, so the comparison ends there. A setting that the user named never gives way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from pgdyno.conduct.ui import Ui
from pgdyno.errors import ShortPoolError
from pgdyno.plan.design import choose_design
from pgdyno.plan.experiment import Experiment, Variant
from pgdyno.plan.identical import find_identical
from pgdyno.plan.pin import format_pinned
from pgdyno.plan.plan import Choice, Plan
from pgdyno.record.store import RecordStore
from pgdyno.record.tuned import Tuned
from pgdyno.record.types import StudyRecord, TrialRecord, TrialStatus
from pgdyno.spec.variant import VariantSpec

_Variant = TypeVar("_Variant", Variant, VariantSpec)


def is_derived(error: ShortPoolError, tuned: Tuned | None) -> bool:
    """Return whether pgdyno derived the number of huge pages that the kernel cannot make, and tries it."""
    return tuned is not None and any(one.name == error.name and one.left_out is None for one in tuned.settings)


def describe_giving_way(error: ShortPoolError) -> str:
    """Say what was asked for, what the kernel made, and what is compared now."""
    return (
        f"the kernel made only {error.made} of {error.asked} huge pages, so {error.name} stays as it is:"
        " derived settings run without these huge pages, and may be slower than they would be with them"
    )


def explain_left_out(error: ShortPoolError) -> str:
    """Return why a record's derived setting was not tried."""
    return f"the kernel made only {error.made} of {error.asked} huge pages, also after moving memory together"


def give_way(store: RecordStore, error: ShortPoolError, *, ui: Ui) -> bool:
    """Take a derived number of huge pages out of a record, and return whether its trials can go on.

    They cannot if rounds were measured with these pages; the user is told.

    Raises:
        ShortPoolError: Without the setting, two variants would be the same, or a server needs these pages to start.
    """
    record = store.read_record()
    experiment = record.plan.experiment
    assert experiment is not None  # noqa: S101 - only a comparison has variants
    finished = [trial for trial in store.read_trials() if _had(trial, experiment, error.name)]
    if not all(trial.planned.is_observed for trial in finished):
        ui.say(
            f"the comparison ends early: the kernel made only {error.made} of {error.asked} huge pages ({error.name}),"
            " and the rounds so far had all of them; `pgdyno resume` continues once memory is free for them"
        )
        return False
    smaller = _leave_out(record, experiment, error)
    if smaller is None:
        raise error
    for trial in finished:
        store.set_aside(trial.planned.number)
    store.write_study(format_pinned(smaller.study, smaller.plan, scripts=store.name_copies(smaller)))
    store.write_record(smaller)
    ui.say(describe_giving_way(error))
    return True


def _had(trial: TrialRecord, experiment: Experiment, name: str) -> bool:
    """Return whether a trial is finished and one of its variants sets a kernel setting."""
    variants = [experiment.find_variant(variant) for variant in trial.planned.variants]
    return trial.status is TrialStatus.FINISHED and any(name in variant.sysctl for variant in variants)


def _leave_out(record: StudyRecord, experiment: Experiment, error: ShortPoolError) -> StudyRecord | None:
    """Return a record without a kernel setting; None where its variants would not do without it."""
    name, major = error.name, record.server.major
    if any(name in one.sysctl and one.server.settings.get("huge_pages") == "on" for one in experiment.variants):
        return None
    smaller = msgspec.structs.replace(
        experiment, variants=tuple(_without(variant, name) for variant in experiment.variants)
    )
    if len(find_identical(smaller, version_major=major)) > len(find_identical(experiment, version_major=major)):
        return None
    study = msgspec.structs.replace(
        record.study, variant=tuple(_without(variant, name) for variant in record.study.variant)
    )
    # The reason may be that this setting takes a restart.
    _, reason = choose_design(study, smaller.variants, version_major=major)
    smaller = msgspec.structs.replace(smaller, reason=reason)
    return msgspec.structs.replace(
        record,
        study=study,
        plan=msgspec.structs.replace(_note(record.plan, error), experiment=smaller),
        tuned=None if record.tuned is None else _without_tuned(record.tuned, error),
    )


def _without(variant: _Variant, name: str) -> _Variant:
    sysctl: Mapping[str, str | int] = variant.sysctl
    return msgspec.structs.replace(variant, sysctl={key: value for key, value in sysctl.items() if key != name})


def _note(plan: Plan, error: ShortPoolError) -> Plan:
    """Return the plan of a sweep with the reason beside the settings that it runs under."""
    why = f"without {error.name}: {explain_left_out(error)}"
    return msgspec.structs.replace(
        plan,
        choices=tuple(
            Choice(name=one.name, value=one.value, reason=f"{one.reason}; {why}") if one.name == "settings" else one
            for one in plan.choices
        ),
    )


def _without_tuned(tuned: Tuned, error: ShortPoolError) -> Tuned:
    settings = tuple(
        msgspec.structs.replace(one, left_out=explain_left_out(error)) if one.name == error.name else one
        for one in tuned.settings
    )
    layers = tuple(
        msgspec.structs.replace(layer, settings=tuple(name for name in layer.settings if name != error.name))
        for layer in tuned.layers
    )
    return msgspec.structs.replace(tuned, settings=settings, layers=tuple(layer for layer in layers if layer.settings))
