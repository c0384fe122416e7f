"""Whether the limit itself moved while it was searched for: later trials fail at rates that earlier ones held, or hold them.

The search's guarantees do not need a limit that stands still, but whoever reads "holds 4,000, fails 9,000" should know
that it was 5,000 in the morning and 3,000 at noon. Asked is a Bayes factor: the search's own model of thresholds, with
a limit that goes steadily up or down in the logarithm, against the same with one that stands. It says nothing of a
limit that comes back to where it was.

Source: Kass & Raftery 1995, "Bayes factors", JASA 90, doi:10.1080/01621459.1995.10476572; 10 is "strong" to Jeffreys 1961.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from pgdyno.analyse.search.latency_limit import Probe, chance_to_hold

_STRONG = 10.0
# From the first trial to the last, in logarithms: up to a limit that is three times what it was, or a third.
_DRIFTS = np.linspace(-1.1, 1.1, 23)
_MEDIANS = 80
_BEYOND = 0.5
# With fewer trials even a limit that halves is not told from luck.
_FEWEST = 8


class LimitDrift(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that moved."""

    ratio: float
    """The limit at the last trial to that at the first, where the model is likeliest."""
    bayes_factor: float
    """For a limit that moved, against one that stood still."""


def find_drift(probes: Sequence[Probe]) -> LimitDrift | None:
    """How the limit moved; None where nothing speaks for it, or too few trials could.

    Args:
        probes: Of one search, in the order of running.
    """
    if len(probes) < _FEWEST:
        return None
    logs = np.log([probe.rate_tps for probe in probes])
    is_held = np.array([probe.is_held for probe in probes])
    medians = np.linspace(logs.min() - _BEYOND, logs.max() + _BEYOND, _MEDIANS)
    when = np.linspace(-0.5, 0.5, len(probes))
    likelihoods = np.array([_likelihood(medians, logs - drift * when, is_held) for drift in _DRIFTS])
    still = likelihoods[len(_DRIFTS) // 2]
    factor = float(likelihoods.mean() / still)
    if factor < _STRONG:
        return None
    return LimitDrift(ratio=float(np.exp(_DRIFTS[likelihoods.argmax()])), bayes_factor=factor)


def _likelihood(medians: np.ndarray, logs: np.ndarray, is_held: np.ndarray) -> float:
    """Mean over medians and spreads of the chance of all that was seen."""
    holds = chance_to_hold(medians, logs)
    return float(np.exp(np.log(np.where(is_held, holds, 1.0 - holds)).sum(axis=-1)).mean())
