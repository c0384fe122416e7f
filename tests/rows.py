"""Check the rows of a table in one test that names every row which fails."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

Row = TypeVar("Row")


def check_rows(rows: Iterable[Row], check: Callable[[Row], object]) -> None:
    """Call `check` with each row, and fail with the words of all rows for which it raised."""
    count, failures = 0, []
    for row in rows:
        count += 1
        try:
            check(row)
        except Exception as error:  # noqa: BLE001 - the other rows are checked all the same
            failures.append(f"{str(row)[:300]}\n{type(error).__name__}: {error}")
    assert count, "there are no rows"
    assert not failures, f"{len(failures)} of {count} rows fail:\n\n" + "\n\n".join(failures)


def each_row(rows: Iterable[Any]) -> Callable[[Callable[..., object]], Callable[[], None]]:
    """Make one test of a function that checks a row; one that takes several arguments gets a row's parts."""
    kept = list(rows)

    def decorate(check: Callable[..., object]) -> Callable[[], None]:
        takes_parts = len(inspect.signature(check).parameters) > 1

        def test() -> None:
            check_rows(kept, (lambda row: check(*row)) if takes_parts else check)

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate
