"""Compare the clock of another machine with the clock of the machine that pgdyno runs on.

Each clock is CLOCK_MONOTONIC of its machine, which is never set. In an exchange this machine notes when it asks and when
the answer comes, and the other one notes its own time in between. Of a burst of exchanges only the quickest counts, because
what delays one is nearly always on one way only. A straight line through the bursts is the offset, with the drift of one
clock against the other.

Source: Mills, RFC 5905 section 10, the clock filter of NTP.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from pgdyno.record.samples.series import Floats

SERVER_CLOCK_FILE = "server-clock.jsonl"
"""The exchanges of a trial with the server's machine, one in a line: burst, sent, far and received."""


class ClockExchange(msgspec.Struct, frozen=True, array_like=True):
    """One exchange: this machine's clock before and after, and the other one's in between."""

    burst: int
    sent_s: float
    far_s: float
    received_s: float

    @property
    def round_trip_s(self) -> float:
        """Seconds from the question to the answer."""
        return self.received_s - self.sent_s

    @property
    def middle_s(self) -> float:
        """The middle, on this machine's clock."""
        return (self.sent_s + self.received_s) / 2.0

    @property
    def offset_s(self) -> float:
        """How far the other clock is ahead, to half a round trip."""
        return self.far_s - self.middle_s


class ClockFit(msgspec.Struct, frozen=True, kw_only=True):
    """How two clocks differ over a span of time."""

    at_s: float
    """The middle of the span, on this machine's clock."""
    offset_s: float
    """Seconds that the other clock is ahead at that time."""
    drift_ratio: float
    """Seconds that it gains in each second."""
    uncertainty_s: float
    """The largest error of the offset within the span."""
    exchange_count: int

    def offset_at(self, near_s: Floats) -> Floats:
        """Return how far the other clock is ahead at times of this machine's clock."""
        return self.offset_s + self.drift_ratio * (near_s - self.at_s)

    def to_far(self, near_s: float) -> float:
        """Convert a time of this machine's clock to the other one's."""
        return near_s + float(self.offset_at(np.array(near_s)))

    def to_near(self, far_s: Floats) -> Floats:
        """Convert times of the other clock to this machine's."""
        after_s = far_s - self.offset_s - self.at_s
        return self.at_s + after_s / (1.0 + self.drift_ratio)


def fit_clock(exchanges: Sequence[ClockExchange]) -> ClockFit:
    """Fit a line through the quickest exchange of each burst.

    The offset of an exchange is wrong by half its round trip at the most; the line is wrong by that and by its distance
    from the exchange. The largest of these sums bounds its error within the span, if one clock drifts steadily against the
    other.

    Raises:
        ValueError: There is no exchange.
    """
    if not exchanges:
        raise ValueError("no exchange with its clock was answered")
    bursts = itertools.groupby(sorted(exchanges, key=lambda one: one.burst), key=lambda one: one.burst)
    quickest = [min(burst, key=lambda one: one.round_trip_s) for _, burst in bursts]
    times_s = np.array([one.middle_s for one in quickest])
    # Offsets of 1,000 s and more would cost the fit its digits.
    base_s = quickest[0].offset_s
    offsets_s = np.array([one.offset_s for one in quickest]) - base_s
    halves_s = np.array([one.round_trip_s for one in quickest]) / 2.0
    at_s = float(times_s.mean())
    drift = 0.0
    if len(quickest) > 1:
        # An exchange that took twice as long says half as much.
        drift, level_s = np.polyfit(times_s - at_s, offsets_s, 1, w=1.0 / halves_s)
    else:
        level_s = offsets_s[0]
    distances_s = np.abs(offsets_s - level_s - drift * (times_s - at_s))
    return ClockFit(
        at_s=at_s,
        offset_s=base_s + float(level_s),
        drift_ratio=float(drift),
        uncertainty_s=float((halves_s + distances_s).max()),
        exchange_count=len(exchanges),
    )


def append_exchanges(path: Path, exchanges: Sequence[ClockExchange]) -> None:
    """Append exchanges to the file of a trial."""
    with path.open("ab") as file:
        file.write(b"".join(msgspec.json.encode(one) + b"\n" for one in exchanges))


def read_exchanges(path: Path) -> tuple[ClockExchange, ...]:
    """Read the exchanges of a trial; a last line that was cut short is left out.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is damaged.
    """
    return tuple(msgspec.json.decode(line, type=ClockExchange) for line in path.read_bytes().split(b"\n")[:-1])
