"""Say what a trial begins with, by the restoring policy of its study."""

from __future__ import annotations

from pgdyno.plan.types import Between
from pgdyno.report.format import format_seconds
from pgdyno.spec.study import RestorePolicy, Study


def describe_start(study: Study) -> str:
    """Return what each trial begins with, to follow “each”."""
    if any(workload.is_loading for workload in study.workload):
        return "with an empty cluster of its variant's own"
    if study.data.restore is RestorePolicy.NONE or study.data.database is not None:
        return "with the data as the trial before left them"
    return "from the same restored data"


def describe_between(between: Between) -> str:
    """Describe what a trial waits for, in a clause for each part."""
    match between.policy:
        case RestorePolicy.COPY:
            restoring = f"restore the copy {format_seconds(between.restore_s)}"
        case RestorePolicy.NONE if between.restore_s:
            restoring = f"no restoring, but write what a trial has changed {format_seconds(between.restore_s)}"
        case RestorePolicy.NONE:
            restoring = "no restoring"
        case RestorePolicy.COMMAND:
            restoring = "the restore command, whose time is not known"
    warming = [f"warm the caches {format_seconds(between.warm_s)}"] if between.warm_s else []
    first = (
        [f"before the first trial {format_seconds(between.first_s)} more, for the whole copy"]
        if between.first_s
        else []
    )
    return ", ".join([restoring, *warming, f"stop and start {format_seconds(between.server_s)}", *first])
