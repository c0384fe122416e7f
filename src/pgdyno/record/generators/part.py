"""Define the part that one of several pgbenches has in a trial's load."""

from __future__ import annotations

import msgspec


class LoadPart(msgspec.Struct, frozen=True, kw_only=True):
    """One pgbench of a load that several make. Its times are CLOCK_MONOTONIC of its own machine."""

    host: str
    """Name of the load host in the study, or of the part on the machine that pgdyno ran on."""
    argv: tuple[str, ...]
    pid: int
    clients: int
    threads: int
    start_far_s: float
    """When pgbench started; its clients go on together later."""
    epoch_offset_s: float
    """From that clock to seconds since the epoch, as that machine had it when pgbench started."""
    release_near_s: float | None = None
    """When its clients, all connected, were let go, on the clock of the machine that pgdyno ran on."""
    end_far_s: float | None = None
    exit_code: int | None = None
    cpu_s: float | None = None
    """CPU seconds of pgbench; None if it had to be stopped."""
    stream_cpu_s: float | None = None
    """CPU seconds of the program that streamed its log, from the release on."""
    notes: tuple[str, ...] = ()
    endpoint: str | None = None
    """What its clients connect to; None of a load host's share of a load that all its clients make alike."""
    part: str = ""
    """Name of the study's part that it belongs to; empty of a load without parts."""
    first_script: int = 0
    """Number of its first script among those of the whole load."""
    folder: str = ""
    """Name of its folder in the record, of a part's pgbench on a load host; empty where that is `host`."""

    @property
    def folder_name(self) -> str:
        """Name of its folder in the record."""
        return self.folder or self.host

    @property
    def is_here(self) -> bool:
        """True if it ran on the machine that pgdyno ran on, and has that machine's clock."""
        return self.endpoint is not None and not self.folder
