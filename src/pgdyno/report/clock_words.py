"""Describe how the clock of another machine differs."""

from __future__ import annotations

from pgdyno.record.samples.clock import ClockFit


def format_offset(fit: ClockFit) -> str:
    """Format an offset with its bound, to the digits that the bound leaves: `1,000.0003 s ± 0.21 ms`."""
    decimals = 4 if fit.uncertainty_s < 0.001 else 3 if fit.uncertainty_s < 0.01 else 2
    offset = f"{fit.offset_s:,.{decimals}f}"
    if float(offset.replace(",", "")) == 0:
        offset = "0"
    return f"{offset} s ± {fit.uncertainty_s * 1000.0:.2g} ms"
