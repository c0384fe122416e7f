"""Show a step only if there is something to do in it."""

from __future__ import annotations

from pgdyno.conduct.ui import Ui


class LateStep:
    """A step that begins with the first word about it; without one, nothing of it is shown.

    Args:
        ui: Shows it.
        title: Its title.
        predicted_s: How long it takes.
        announced: What is announced before it; None: nothing is.
    """

    def __init__(self, ui: Ui, title: str, *, predicted_s: float, announced: str | None = None) -> None:
        self._ui = ui
        self._title = title
        self._predicted_s = predicted_s
        self._announced = announced
        self._has_begun = False

    def tell(self, text: str) -> None:
        """Show what it is doing now."""
        if not self._has_begun:
            self._has_begun = True
            if self._announced is not None:
                self._ui.announce([self._announced], total_s=self._predicted_s)
            self._ui.begin_step(self._title, predicted_s=self._predicted_s)
        self._ui.show_activity(text)

    def end(self, result: str) -> None:
        """End it if it has begun."""
        if self._has_begun:
            self._ui.end_step(result)
