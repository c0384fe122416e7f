"""Print a paragraph on the terminal: wrapped text with a left margin."""

from __future__ import annotations

import re

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

# An interval is kept on one line, and so are a duration, a number with its unit, and a trial with its number.
_UNBROKEN = re.compile(
    r"\[[^\[\]\n]{3,24}\]|(?<=\d) – (?=\d)|\d+ (?:h \d+ min|min \d+ s)\b|\bn = (?=\d)|\b[Tt]rial (?=\d)"
    r"|(?<=\d) (?:%|(?:h|min|s|ms|µs|TB|GB|MB|kB|TPS)\b)"
)
_HELD = "\ue000"  # a placeholder for a space at which a line must not break


def hold_together(words: str, space: str) -> str:
    """Replace the spaces at which a line must not break: within intervals and before a unit."""
    return _UNBROKEN.sub(lambda found: found[0].replace(" ", space), words)


class Paragraph:
    """Wrapped text with a left margin, in which no interval is broken.

    Rich's own lines may end in blanks, which would land in files and pipes.

    Args:
        words: The text to wrap.
        by: The width of the margin.
    """

    def __init__(self, words: str | Text, *, by: int = 2) -> None:
        self._words = Text(words) if isinstance(words, str) else words
        self._margin = " " * by

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        room = max(1, options.max_width - len(self._margin))
        words = self._words.copy()
        words.plain = hold_together(words.plain, _HELD)
        for line in [words] if options.no_wrap else words.wrap(console, room):
            line.plain = line.plain.replace(_HELD, " ")
            line.rstrip()
            yield Text(self._margin) + line
