"""Define the options of a gate: when a comparison fails in CI, and which files it writes for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgdyno.cli.session import fail_refused

if TYPE_CHECKING:
    from pgdyno.flow.gate import GatedReport

FailIfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        help="End with exit code 1 if this holds for any variant: slower; worse (slower in TPS or a latency percentile);"
        " a threshold such as 'tps<-3%' or 'latency_p95_ms>5%', in quotes, which holds only if the whole interval lies"
        " beyond it, so that it is proven; or inconclusive. May be repeated, or separated by commas.",
        show_default=False,
    ),
]
JunitOption = Annotated[
    Path | None,
    typer.Option(
        "--junit",
        help="Also write JUnit XML: a test case for each variant, workload and metric.",
        show_default=False,
    ),
]
BmfOption = Annotated[
    Path | None,
    typer.Option("--bmf", help="Also write Bencher Metric Format JSON, with intervals.", show_default=False),
]


def show_gated(gated: GatedReport, show: Any, *, json: bool) -> None:
    """Show a report and the outcome of its gate, and end with its exit code.

    With --json the outcome goes to stderr, because stdout is the report's document.
    """
    try:
        show(gated)
        if json and gated.result is not None:
            from pgdyno.cli.terminal.output import PipedConsole  # noqa: PLC0415 - needed only here

            PipedConsole(stderr=True, highlight=False, soft_wrap=True).print(gated.gate_to_terminal())
    except OSError as error:
        if not gated.exit_code:
            raise
        # CI waits for the outcome, whether or not it can be written.
        fail_refused(error, json=False, code=gated.exit_code)
    if gated.exit_code:
        raise SystemExit(gated.exit_code)
