"""Read the samples of the server's machine, with the times of another machine converted to the load's clock, once and here."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pgdyno.record.frames import pl
from pgdyno.record.samples.clock import SERVER_CLOCK_FILE, ClockFit, fit_clock, read_exchanges
from pgdyno.record.samples.files import OsSamples, ServerSamples, read_os_samples

SERVER_LOG = "server.log"
"""PostgreSQL's log of a trial on a server of pgdyno's own."""


def read_server_clock(folder: Path) -> ClockFit | None:
    """Read how the clock of the server's machine differs; None if it is the load's machine.

    Raises:
        OSError: The exchanges cannot be read.
        ValueError: The exchanges are damaged, or there is none.
    """
    path = folder / SERVER_CLOCK_FILE
    return fit_clock(read_exchanges(path)) if path.exists() else None


def read_server_machine(folder: Path) -> OsSamples:
    """Read the samples of the server's machine.

    Raises:
        HostError, StepFailedError: As for `read_os_samples`.
        OSError, ValueError: The samples are on the clock of another machine, which was not compared.
    """
    return convert_to_near(read_os_samples(folder), folder)


def convert_to_near(samples: OsSamples, folder: Path) -> OsSamples:
    """Convert the times of a trial's samples to the load's clock, where they are on that of another machine.

    Raises:
        OSError, ValueError: As for `read_server_machine`.
    """
    clock = read_server_clock(folder)
    if clock is None:
        # With load hosts, pgdyno runs on the machine of a server of its own, whose log the trial has.
        has_loads = any(folder.glob("loads/*/clock.jsonl")) and not (folder / SERVER_LOG).exists()
        if has_loads or any(folder.glob("generator.*")):
            raise ValueError("the clock of the server's machine was not compared, so that its samples have no time")
        return samples
    return convert_samples(samples, clock)


def find_wall_offset_s(server: ServerSamples | None, machine: OsSamples | None) -> float | None:
    """Return what converts CLOCK_MONOTONIC of the server's machine to its time of day; None without a header."""
    header = (server and server.header) or (machine and machine.header)
    return header.wall_s - header.monotonic_s if header else None


def convert_samples(samples: OsSamples, clock: ClockFit) -> OsSamples:
    """Return samples of another machine with times of this one's clock."""
    if not samples.frame.height:
        return samples
    times_s = clock.to_near(samples.frame["t_s"].to_numpy())
    return msgspec.structs.replace(samples, frame=samples.frame.with_columns(pl.Series("t_s", times_s)))
