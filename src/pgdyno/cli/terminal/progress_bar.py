"""Draw the progress bar of a study: the time that the plan leaves, and with --live the last seconds of the load."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rich.console import RenderableType
from rich.progress import Progress, ProgressColumn, Task
from rich.text import Text

from pgdyno.cli.terminal.trend import Trend


class RemainingColumn(ProgressColumn):
    """The remaining time by the plan; rich's own estimate would misread the jump at the end of a step as speed."""

    def __init__(self, remaining_s: Callable[[], float]) -> None:
        super().__init__()
        self._remaining_s = remaining_s

    def render(self, task: Task) -> Text:  # noqa: ARG002 - rich hands it to every column
        """Return text such as `about 4 min left`."""
        left_s = self._remaining_s()
        said = f"about {format_minutes(left_s)} left" if left_s >= 1.0 else "nearly done"
        return Text(said, style="progress.remaining")


class TrendProgress(Progress):
    """The progress bar, with the last seconds of the load under it."""

    def __init__(self, trend: Trend | None, *columns: ProgressColumn, **options: Any) -> None:
        # Rich draws once while it is made.
        self._trend = trend
        super().__init__(*columns, **options)

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield the parts from top to bottom."""
        yield from super().get_renderables()
        if self._trend is not None:
            yield self._trend


def format_minutes(seconds: float) -> str:
    """Format a duration as `45 s` or `12 min`."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
