"""Format numbers for readers: one never shows more digits than its interval supports.

Nothing here decides what a number means.
"""

from __future__ import annotations

import math

import msgspec

from pgdyno import units
from pgdyno.analyse.estimate import Estimate, is_too_wide, map_estimate
from pgdyno.record.types import read_time

ABSENT = "—"
# The digits of a number whose uncertainty is not known: one run of pgbench repeats to some percent.
_LONE_DIGITS = 3
# Source: JCGM 100:2008 (GUM) 7.2.6: a standard uncertainty is quoted to at most two significant digits.
_DOUBT_DIGITS = 2
# Interval ends further apart than this factor are of no use and are not shown.
_SHOWN_FACTOR = 100.0
NO_USEFUL_INTERVAL = "no useful interval"
# PostgreSQL's own notation: kB, MB, GB and TB are powers of 1024.
_BYTES = ((1024**4, "TB"), (1024**3, "GB"), (1024**2, "MB"), (1024, "kB"))


def format_began(started_at: str) -> str:
    """Return when a record began, in UTC, so that records of several machines can be put in order: `2026-11-22 10:00 UTC`."""
    began = read_time(started_at)
    return ABSENT if began is None else f"{began:%Y-%m-%d %H:%M} UTC"


format_bytes = units.format_bytes
format_bytes_per_s = units.format_bytes_per_s
format_cpus = units.format_cpus


class EstimateText(msgspec.Struct, frozen=True, kw_only=True):
    """An estimate as text: its value, its interval, and the reason where one of them is absent."""

    value: str
    interval: str
    """Such as `[3,100 – 3,750]`; text where no useful interval exists; empty where the value is absent too."""
    n: str
    reason: str | None
    """The reason why something is absent."""

    @property
    def beside(self) -> str:
        """The interval as it stands beside the value: in brackets; words in its place in parentheses."""
        return self.interval if not self.interval or self.interval.startswith("[") else f"({self.interval})"


class EffectText(msgspec.Struct, frozen=True, kw_only=True):
    """A relative change as text. Without an interval the number is absent too: it would pass for a result."""

    value: str
    """Such as `-22.5 %`."""
    ends: tuple[str, ...]
    """Both ends of the interval in percent, such as `-25.1` and `-19.7`; empty where there is none."""

    @property
    def interval(self) -> str:
        """Such as `[-25.1, -19.7]`; empty where there is none."""
        return f"[{', '.join(self.ends)}]" if self.ends else ""

    def __str__(self) -> str:
        """Return both, as they appear in a sentence."""
        return f"{self.value} {self.interval}".rstrip()


def format_effect(effect: float | None, low: float | None, high: float | None, *, most_decimals: int = 2) -> EffectText:
    """Format a relative change and its interval, rounded as the interval's width allows, with signs.

    Where an interval excludes 0, a number of it that would be rounded to 0 alone has a finer place, up to a hundredth of a percent.

    Args:
        effect: The change, as a ratio.
        low: The lower end of its interval.
        high: The upper end.
        most_decimals: The most decimals of the percentages, however narrow the interval is.
    """
    if effect is None or low is None or high is None:
        return EffectText(value=ABSENT, ends=())
    half_width = (high - low) * 50.0
    decimals = min(most_decimals, _DOUBT_DIGITS - 1 - _exponent(half_width)) if half_width > 0 else most_decimals
    is_change = low > 0.0 or high < 0.0
    value, start, end = (
        _with_sign(one * 100.0, _find_place(one * 100.0, decimals) if is_change else decimals)
        for one in (effect, low, high)
    )
    return EffectText(value=f"{value} %", ends=(start, end))


def format_within(ratio: float) -> str:
    """Format a bound to both sides: 0.03 is `±3 %`."""
    return f"±{ratio * 100:.3g} %"


def format_roughly(ratio: float) -> str:
    """Format an estimated spread on a logarithmic scale: 0.0403 is `±4.0 %`, 2.8 is `a factor of 3.8`."""
    if ratio >= 1:
        return f"a factor of {format_number(1 + ratio, digits=_DOUBT_DIGITS)}"
    return f"±{format_number(ratio * 100, digits=_DOUBT_DIGITS)} %"


def format_more_time(seconds: float) -> str:
    """Format additional time, rounded up: `40 more seconds`, `6 more minutes`, `9 more days`."""
    for size, step, most, name in ((1, 10, 100, "second"), (60, 1, 100, "minute"), (3600, 1, 48, "hour")):
        count = math.ceil(seconds / size / step) * step
        if count < most:
            return units.count_things(count, f"more {name}")
    return f"{math.ceil(seconds / 86_400):,} more days"


def format_number(value: float, *, digits: int = _LONE_DIGITS) -> str:
    """Round to significant digits, with thousands separators: 3412.3 is `3,410`, 0.012345 is `0.0123`."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else ABSENT
    return _with_decimals(value, digits - 1 - _exponent(value))


def format_p(value: float) -> str:
    """Format the p-value of a test with its sign: `p = 0.012`, and `p < 0.0001` where more digits say nothing more."""
    return "p < 0.0001" if value < 0.0001 else f"p = {format_number(value, digits=2)}"


def format_count(value: float) -> str:
    """Format a whole number exactly: 204812 is `204,812`."""
    return f"{value:,.0f}"


def format_estimate(estimate: Estimate) -> EstimateText:
    """Round an estimate and its interval to the same place, which the interval's width decides."""
    n = f"n = {estimate.n}"
    if estimate.value is None:
        return EstimateText(value=ABSENT, interval="", n=n, reason=estimate.reason)
    if estimate.low is None or estimate.high is None:
        interval = f"{n}: no interval"
        return EstimateText(value=format_number(estimate.value), interval=interval, n=n, reason=estimate.reason)
    if is_too_wide(estimate):
        low, high = (format_number(bound, digits=_DOUBT_DIGITS) for bound in (estimate.low, estimate.high))
        wide = f"{low} – {high}: too wide"
        return EstimateText(
            value=format_number(estimate.value, digits=_DOUBT_DIGITS),
            interval=NO_USEFUL_INTERVAL if is_useless(estimate) else wide,
            n=n,
            reason=f"{NO_USEFUL_INTERVAL}: the ends of the {format_confidence(estimate)} interval are too far apart"
            if is_useless(estimate)
            else estimate.reason,
        )
    half_width = (estimate.high - estimate.low) / 2
    decimals = (
        _DOUBT_DIGITS - 1 - _exponent(half_width) if half_width > 0 else _LONE_DIGITS - 1 - _exponent(estimate.value)
    )
    value, low, high = (_with_doubt(one, decimals) for one in (estimate.value, estimate.low, estimate.high))
    return EstimateText(value=value, interval=f"[{low} – {high}]", n=n, reason=estimate.reason)


def format_in_unit(estimate: Estimate) -> EstimateText:
    """Format an estimate with its unit: 1640.2 bytes is `1.602 kB` with `[1.59 – 1.61]`."""
    size, name = (1, estimate.unit)
    if estimate.unit == "bytes":
        size, name = next(((s, n) for s, n in _BYTES if abs(estimate.value or 0.0) >= s), (1, "B"))
    shown = format_estimate(map_estimate(estimate, lambda at: at / size))
    if estimate.value is None or name in {"", "count"}:
        return shown
    return msgspec.structs.replace(shown, value=f"{shown.value} {name}")


def format_clients(estimate: Estimate) -> str:
    """Format a number of clients with its interval: `24 clients [16 – 32]`; the reason where it is not known."""
    if estimate.value is None or estimate.low is None:
        return f"not known ({estimate.reason})" if estimate.reason else "not known"
    # A curve may put its peak between two numbers of clients; a wide interval needs no such digits.
    is_between = any(one is not None and one % 1.0 for one in (estimate.value, estimate.low, estimate.high))
    decimals = 1 if is_between and estimate.high is not None and estimate.high - estimate.low < 2 else 0
    value, low = f"{estimate.value:,.{decimals}f}", f"{estimate.low:,.{decimals}f}"
    end = f"[{low} or more]" if estimate.high is None else f"[{low} – {estimate.high:,.{decimals}f}]"
    return f"{value} {'client' if value in {'1', '1.0'} else 'clients'} {end}"


def is_useless(estimate: Estimate) -> bool:
    """Return whether the ends of an interval are too far apart to be shown.

    One that begins at 0 is too wide and yet shown: its upper end says how much there is at most.
    """
    return estimate.low is not None and estimate.high is not None and estimate.high > _SHOWN_FACTOR * estimate.low > 0


def format_confidence(estimate: Estimate) -> str:
    """Name the confidence of an interval: `95 %`."""
    return f"{estimate.confidence * 100:.3g} %"


def format_seconds(value: float) -> str:
    """Format a duration: `0.45 ms`, `12.3 s`, `60 s`, `1 min 58 s`, `2 h 5 min`."""
    if 0 < abs(value) < 0.1:
        return f"{_trim(value * 1000)} ms"
    if value < 100:
        return f"{_trim(value)} s"
    minutes, seconds = divmod(round(value), 60)
    if minutes < 90:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def format_moment(value_s: float) -> str:
    """Format a moment by its time since the load began: `3 s`, or `8 s before the load`."""
    return f"{format_seconds(abs(value_s))}{' before the load' if value_s < 0 else ''}"


def format_percent(ratio: float) -> str:
    """Format a ratio in percent, to three digits and never finer than a hundredth: 0.123456 is `12.3 %`.

    Only nothing is `0 %`, and only the whole `100 %`: what would be rounded to them is `<0.01 %` and `>99.9 %`.
    """
    percent = ratio * 100
    # A sum of parts may miss the whole by a rounding of floating-point numbers.
    if percent == 0 or math.isclose(percent, 100):
        return f"{percent:,.0f} %"
    shown = _with_decimals(percent, min(2, _LONE_DIGITS - 1 - _exponent(percent)))
    if 0 < percent < 100:
        shown = {"0.00": "<0.01", "100": ">99.9", "100.0": ">99.9"}.get(shown, shown)
    return f"{shown} %"


def format_share_exactly(ratio: float) -> str:
    """Format a share that was asked for, exactly: 0.00125 is `0.125 %`."""
    return f"{ratio * 100:.10g} %"


def format_value(value: float, unit: str) -> str:
    """Format a value in a unit of facts/metrics.toml with a unit that is easy to read."""
    if unit == "ratio":
        return format_percent(value)
    if unit == "bytes":
        return format_bytes(value) if value >= 10 else f"{format_number(value)} B"
    return format_number(value) if unit in {"", "count"} else f"{format_number(value)} {unit}"


def _trim(value: float) -> str:
    # A whole number is exact, such as a requested duration: zeros after its point would be noise.
    return format_count(value) if value == round(value) and abs(value) < 1000 else format_number(value)


def _exponent(value: float, *, digits: int = _LONE_DIGITS) -> int:
    # Count the digits of the rounded number: 9.996 has the digits of 10.0.
    return int(f"{value:.{digits - 1}e}".partition("e")[2])


def _with_doubt(value: float, decimals: int) -> str:
    # A wide interval of a geometric mean is lopsided: its low end must not be rounded to 0.
    return _with_decimals(value, max(decimals, _DOUBT_DIGITS - 1 - _exponent(value)))


def _find_place(value: float, decimals: int) -> int:
    """Return the decimals at which a number is not 0; the same ones where a hundredth does not tell."""
    if value == 0 or round(value, decimals) != 0:
        return decimals
    first = -_exponent(value, digits=1)
    return first if first <= 2 else decimals


def _with_sign(percent: float, decimals: int) -> str:
    # Tens of percent are rounded only beside hundreds: no interval is so wide that -98 % may become -100 %.
    text = _with_decimals(percent, max(0, decimals) if abs(percent) < 100 else decimals)
    return text if text.startswith("-") or float(text.replace(",", "")) == 0 else f"+{text}"


def _with_decimals(value: float, decimals: int) -> str:
    text = f"{round(value, decimals):,.{max(0, decimals)}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text
