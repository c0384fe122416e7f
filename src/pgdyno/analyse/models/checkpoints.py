"""Model checkpoints: the WAL between two of them, and the full-page images after one.

Benchmarks measure the errors (benchmarks/models.py). No constant is fitted to what is predicted.
"""

from __future__ import annotations

import math

from pgdyno.analyse.models.checks import check_not_negative, check_positive


def predict_full_page_images(*, updates_count: float, pages_count: float) -> float:
    """Predict how many pages random updates touch at least once since a checkpoint: each becomes one full-page image.

    Source: PostgreSQL 18 manual, full_page_writes; Feller 1968, An Introduction to Probability Theory I, II.5,
    occupancy.
    """
    check_positive(pages_count=pages_count)
    check_not_negative(updates_count=updates_count)
    if pages_count <= 1.0:
        return min(updates_count, pages_count)
    return -pages_count * math.expm1(updates_count * math.log1p(-1.0 / pages_count))


def predict_images_of_cycles(*, updates_count: float, pages_count: float, cycles: float) -> float:
    """Predict the full-page images of random updates over several checkpoints, from the first one on.

    Args:
        updates_count: Of all of them.
        pages_count: Pages that they touch.
        cycles: How often the WAL between two checkpoints is written, at least once; the last time perhaps in part.
    """
    whole, of_cycle = math.floor(max(cycles, 1.0)), updates_count / max(cycles, 1.0)
    images, rest = (
        predict_full_page_images(updates_count=count, pages_count=pages_count)
        for count in (of_cycle, max(0.0, updates_count - whole * of_cycle))
    )
    return whole * images + rest


def find_checkpoint_distance_bytes(*, max_wal_size_bytes: float, completion_target: float, segment_bytes: int) -> int:
    """Compute the WAL from one checkpoint's start to the next one's, if WAL and not time triggers them.

    Source: PostgreSQL 18, access/transam/xlog.c, CalculateCheckpointSegments; at least one segment.
    """
    check_positive(max_wal_size_bytes=max_wal_size_bytes)
    if not 0.0 <= completion_target <= 1.0:
        raise ValueError(f"checkpoint_completion_target is {completion_target}, which is not between 0 and 1")
    segments = int(max_wal_size_bytes // segment_bytes / (1.0 + completion_target))
    return max(1, segments) * segment_bytes
