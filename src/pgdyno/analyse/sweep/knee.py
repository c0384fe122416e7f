"""Find the knee of a sweep: the smallest load that was tried whose TPS is at least 90 % of the highest.

No curve is assumed. A plateau, a decline after a peak and the step of group commit get the same answer as a smooth curve
does, and TPS may fall and rise again. Two loads are compared by the differences inside the rounds that have
both, with their own spread: TPS of one client may scatter three times as much as those of 32 do, and a spread that is
pooled over loads then excludes the truth too often.

Each end of the interval has half of the error rate, and is found by tests in a fixed order, of which each is made only if
the one before it succeeded. Therefore no error rate is divided among the loads:

- *Lower end.* From the smallest load up: one of the larger loads is shown to exceed it by more than 10 %. Any of those may
  do so, and they share the error rate of this one test (Bonferroni). The first load of which that cannot be shown is the end.
- *Upper end.* From the best load down: no other load is shown to exceed it by more than 10 %. All of them must pass, each
  at the full error rate (intersection-union). The last load that passes is the end. The best load is that of the trials, so
  that this end errs somewhat more often than its half where several loads just below 90 % may be taken for it.

The upper end is open where it would be the largest load: TPS may still grow there, or no load is shown to be near the best.

Sources: Maurer, Hothorn & Lehmacher 1995, "Multiple comparisons in drug clinical trials and preclinical assays: a-priori
ordered hypotheses", in Vollmar (ed.), Biometrie in der chemisch-pharmazeutischen Industrie 6, for tests in a fixed order;
Berger 1982, "Multiparameter hypothesis testing and acceptance sampling", Technometrics 24, doi:10.1080/00401706.1982.10487790,
for all of them at the full error rate; Tamhane, Hochberg & Dunnett 1996, "Multiple test procedures for dose finding",
Biometrics 52, for the same question about doses. `benchmarks/knees.py` has the rates and the widths.
"""

from __future__ import annotations

import math

import numpy as np

from pgdyno.analyse.estimate import Estimate
from pgdyno.analyse.sweep.client_trials import LoadContrasts, SweepTrials
from pgdyno.analyse.sweep.pairs import LoadPairs

# Our reasoning: pairs of loads have a standard deviation of 5 to 10 % on a small machine, where hours do not prove that two loads are
# within 3 % of each other. A loss of a tenth past the peak is called a collapse, too.
KNEE_RATIO = 0.9
"""Share of the highest TPS that the knee has at least."""
_FARTHEST = -math.log(KNEE_RATIO)
_NONE_SHOWN = f"no number of clients is shown to reach {KNEE_RATIO * 100:g} % of the highest TPS"


def find_knee(sweep: SweepTrials, compared: LoadContrasts, pairs: LoadPairs, *, why_open: str) -> Estimate:
    """Find the knee with its interval, whose ends are loads that were tried.

    Args:
        sweep: Trials of two loads or more, which rounds link.
        compared: Their contrasts.
        pairs: Their differences inside rounds.
        why_open: What is said where the largest load has the most TPS, and the knee may lie there.
    """
    last = len(sweep.loads) - 1
    levels = compared.log_ratio[:, 0]
    best = compared.best
    knee = int(np.argmax(levels >= levels[best] - _FARTHEST))
    if knee == last:
        return sweep.unknown("clients", why_open)
    if not compared.is_noise_known or sweep.rounds_count < 2:
        return sweep.estimate(float(sweep.loads[knee]), None, None, "clients", compared.why_no_interval)
    alpha = (1.0 - sweep.confidence) / 2.0
    low, high = pairs.count_exceeded(_FARTHEST, alpha), _find_high(pairs, alpha, best)
    low, high = min(low, knee), max(high, low, knee)
    value, least = float(sweep.loads[knee]), float(sweep.loads[low])
    if high == last:
        return sweep.estimate(value, least, None, "clients", why_open if best == last else _NONE_SHOWN)
    return sweep.estimate(value, least, float(sweep.loads[high]), "clients", None)


def _find_high(pairs: LoadPairs, alpha: float, best: int) -> int:
    high = pairs.last
    for load in range(best, -1, -1):
        if not pairs.is_near_best(load, _FARTHEST, alpha):
            break
        high = load
    return high
