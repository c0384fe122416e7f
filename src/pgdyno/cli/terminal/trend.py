"""Draw the last seconds of a load on a terminal: TPS and latency as sparklines, with the verdicts so far."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

_BARS = "▁▂▃▄▅▆▇█"
_MOST_POINTS = 120
_LABEL_WIDTH = 9
_NUMBER_WIDTH = 10
_LEAST_WIDTH = 8


class Trend:
    """The last seconds of a study, drawn as three lines under its progress bar."""

    def __init__(self) -> None:
        self._tps: deque[float | None] = deque(maxlen=_MOST_POINTS)
        self._latency_ms: deque[float | None] = deque(maxlen=_MOST_POINTS)
        self.verdicts = ""

    def add(self, *, tps: float, latency_ms: float | None) -> None:
        """Add a second."""
        self._tps.append(tps)
        self._latency_ms.append(latency_ms)

    def leave_gap(self) -> None:
        """Leave a gap where a load ended, unless there is one."""
        if self._tps and (self._tps[-1] is not None or self._latency_ms[-1] is not None):
            self._tps.append(None)
            self._latency_ms.append(None)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield a line each for TPS, latency and verdicts, where there is something to draw."""
        # Another thread adds seconds meanwhile.
        rows = (
            ("TPS", list(self._tps), "green", "{:,.0f}"),
            ("latency", list(self._latency_ms), "cyan", "{:,.3g} ms"),
        )
        # The last column stays empty: some terminals break the line when it is written.
        width = options.max_width - _LABEL_WIDTH - _NUMBER_WIDTH - 2
        for label, values, style, form in rows:
            known = [value for value in values if value is not None]
            if not known:
                continue
            drawn = "" if width < _LEAST_WIDTH or options.ascii_only else draw_sparkline(values, width=width)
            now = form.format(known[-1])
            yield Text.assemble(
                f"{label:<{_LABEL_WIDTH}}", (drawn, style), f" {now}", no_wrap=True, overflow="ellipsis"
            )
        if self.verdicts:
            yield Text(f"{'so far':<{_LABEL_WIDTH}}{self.verdicts}", no_wrap=True, overflow="ellipsis")


def draw_sparkline(values: Iterable[float | None], *, width: int) -> str:
    """Draw the last `width` values as bars that begin at 0; a missing value is a gap."""
    shown: Sequence[float | None] = [*values][-width:]
    top = max((value for value in shown if value is not None), default=0.0)
    return "".join(_draw(value, top) for value in shown)


def _draw(value: float | None, top: float) -> str:
    if value is None:
        return " "
    return _BARS[min(int(value / top * len(_BARS)), len(_BARS) - 1)] if top > 0 else _BARS[0]
