"""The quiet record with changes planted in what was sampled, from one moment on."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from pgdyno.analyse.episodes.types import Episode, EpisodeKind
from pgdyno.record.samples.files import OsSamples, ServerSamples
from pgdyno.record.serverlog import AnyLogEvent, Autovacuum, CheckpointComplete, CheckpointStart
from pgdyno.record.store import open_record
from pgdyno.record.trial_data import TrialData, read_trial_data

RECORDS = Path(__file__).parents[1] / "data" / "episodes"
DEVICE = "vda"
AT_S = 12.0
"""When what is planted begins."""


def read_planted(name: str) -> TrialData:
    store = open_record(RECORDS / name)
    (trial,) = store.read_trials()
    return read_trial_data(store.trial_dir(trial.planned.number), trial)


def cliff(change_ratio: float = -0.4, *, at_s: float = AT_S, until_s: float | None = None) -> Episode:
    return Episode(
        kind=EpisodeKind.CLIFF if until_s is None else EpisodeKind.STALL,
        metric="tps",
        from_s=at_s,
        until_s=until_s,
        before=3000.0,
        after=3000.0 * (1 + change_ratio),
        change_ratio=change_ratio,
        settled_s=0.0,
    )


def grow(data: TrialData, column: str, per_s: float, *, instead: bool = False, before_per_s: float = 0.0) -> TrialData:
    """Let a counter grow by more from the moment on; or by this and nothing else."""
    samples, t_s = pick(data, column)
    more = np.maximum(t_s - AT_S, 0.0) * per_s + np.minimum(t_s, AT_S) * before_per_s
    kept = np.zeros(len(t_s)) if instead else samples.frame[column].to_numpy().astype(float)
    return put(data, column, np.round(kept + more + 1e9))


def level(data: TrialData, column: str, before: float, during: float) -> TrialData:
    """Give a gauge one value until the moment, and another from it on."""
    _, t_s = pick(data, column)
    return put(data, column, np.where(t_s < AT_S, before, during))


def cut(data: TrialData, *sources: str, length_s: float = 5.0) -> TrialData:
    """Take out the samples of "os" or "server" from the moment on."""
    cuts = {}
    for source in sources:
        samples = getattr(data, source)
        t_s = samples.frame["t_s"].to_numpy() - (data.record.load_start_monotonic_s or 0.0)
        is_kept = (t_s < AT_S) | (t_s >= AT_S + length_s)
        cuts[source] = msgspec.structs.replace(samples, frame=samples.frame.filter(pl.Series(is_kept)))
    return msgspec.structs.replace(data, **cuts)


def pick(data: TrialData, column: str) -> tuple[OsSamples | ServerSamples, np.ndarray]:
    samples = data.os if data.os is not None and column in data.os.frame.columns else data.server
    assert samples is not None
    return samples, samples.frame["t_s"].to_numpy() - (data.record.load_start_monotonic_s or 0.0)


def put(data: TrialData, column: str, values: np.ndarray) -> TrialData:
    samples, _ = pick(data, column)
    frame = samples.frame.with_columns(pl.Series(column, values.astype(np.int64)))
    changed = msgspec.structs.replace(samples, frame=frame)
    return msgspec.structs.replace(data, **{"os" if isinstance(samples, OsSamples) else "server": changed})


def checkpoint(
    data: TrialData, reason: str, *, at_s: float = AT_S, length_s: float = 6.0, sync_s: float = 0.1
) -> TrialData:
    """A checkpoint that begins at the moment, as the record's own at its start but for its times and reason."""
    begun = next(event for event in data.log if isinstance(event, CheckpointStart))
    ended = next(event for event in data.log if isinstance(event, CheckpointComplete))
    moved = (
        _move(data, msgspec.structs.replace(begun, reasons=(reason,)), at_s),
        _move(data, msgspec.structs.replace(ended, total_s=length_s, sync_s=sync_s), at_s + length_s),
    )
    return msgspec.structs.replace(data, log=(*data.log, *moved))


def vacuum(data: TrialData) -> TrialData:
    """An automatic vacuum that begins at the moment and lasts until the load ends."""
    one = next(event for event in data.log if isinstance(event, Autovacuum))
    ended = _move(data, msgspec.structs.replace(one, elapsed_s=13.0), AT_S + 13.0)
    return msgspec.structs.replace(data, log=(*data.log, ended))


def _move(data: TrialData, event: AnyLogEvent, at_s: float) -> AnyLogEvent:
    assert event.origin is not None
    monotonic_s = (data.record.load_start_monotonic_s or 0.0) + at_s
    return msgspec.structs.replace(event, origin=msgspec.structs.replace(event.origin, monotonic_s=monotonic_s))
