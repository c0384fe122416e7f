"""Test whether the limit itself moved during the search: later trials fail at rates that earlier ones held, or the reverse.

The search's guarantees do not require a constant limit, but the reader of "holds 4,000, fails 9,000" should know that
it was 5,000 in the morning and 3,000 at noon. The test is a Bayes factor: the search's own model of thresholds with a
limit that moves steadily up or down in the logarithm, against the same model with a constant limit. It cannot see a
limit that moves and comes back.

Source: Kass & Raftery 1995, "Bayes factors", JASA 90, doi:10.1080/01621459.1995.10476572; 10 is "strong" to Jeffreys
1961.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from pgdyno.analyse.search.latency_limit import Probe, probability_to_hold

_STRONG = 10.0
# Log ratio of the limit between first and last trial: up to three times as high, or a third.
_DRIFTS = np.linspace(-1.1, 1.1, 23)
_MEDIANS = 80
_BEYOND = 0.5
# With fewer trials, even a limit that halves cannot be told from chance.
_FEWEST = 8


class LimitDrift(msgspec.Struct, frozen=True, kw_only=True):
    """The size and strength of a limit's drift."""

    ratio: float
    """The limit at the last trial over that at the first, at the model's maximum likelihood."""
    bayes_factor: float
    """The evidence for a limit that moved, against a constant one."""


def find_drift(probes: Sequence[Probe]) -> LimitDrift | None:
    """Find a drift of the limit; None if the evidence is weak or there are too few trials.

    Args:
        probes: The trials of one search, in the order of running.
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
    """Average the likelihood of all trials over medians and spreads."""
    holds = probability_to_hold(medians, logs)
    return float(np.exp(np.log(np.where(is_held, holds, 1.0 - holds)).sum(axis=-1)).mean())
