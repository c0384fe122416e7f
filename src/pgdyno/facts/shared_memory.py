"""Estimate the shared memory of a PostgreSQL server from its settings, for machines without a running server.

The exact number of huge pages comes from the server itself (`postgres -C shared_memory_size_in_huge_pages`); this
estimate is within a few percent of it, and rarely too low.
"""

from __future__ import annotations

_MB = 1024**2
# Buffer descriptors, hash table, the checkpointer's list and everything else that grows with shared_buffers.
# Source: `postgres -C shared_memory_size` of 15, 16 and 18 at 128 MB to 384 GB of shared_buffers: 1.9 to 2.3 %.
_PER_BUFFER_RATIO = 0.023
# Source: the same, at 10 to 1000 connections.
_BASE_BYTES = 16 * _MB
_PER_SESSION_BYTES = 100_000


def estimate_other_shared_bytes(
    shared_buffers_bytes: float, *, wal_buffers_bytes: float, session_count: float, major: int
) -> float:
    """Estimate the shared memory in addition to shared_buffers.

    Args:
        shared_buffers_bytes: Value of shared_buffers.
        wal_buffers_bytes: Effective value of wal_buffers, not -1.
        session_count: Sum of max_connections and max_worker_processes.
        major: Major version of the server.
    """
    fixed = _BASE_BYTES + session_count * _PER_SESSION_BYTES + shared_buffers_bytes * _PER_BUFFER_RATIO
    # Source: PostgreSQL 17 manual, section 19.4.1: transaction_buffers and two others are shared_buffers/512, 8 MB at
    # most.
    caches = 3 * min(shared_buffers_bytes / 512, 8 * _MB) if major >= 17 else 0
    return fixed + caches + wal_buffers_bytes


def choose_wal_buffers_bytes(shared_buffers_bytes: float, *, segment_bytes: float = 16 * _MB) -> float:
    """Return the effective value of wal_buffers = -1.

    Source: PostgreSQL 18 manual, section 19.5.1: 1/32, from 64 kB to a segment.
    """
    return min(max(shared_buffers_bytes / 32, 64 * 1024), segment_bytes)
