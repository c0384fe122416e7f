"""How to read a report: what its numbers are of, and what they are not. The last section of every form."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pgdyno.report.document import Prose, Section
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.sections.health import sources_table

_MEASURING = """\
The trial is the unit: each starts from the same restored data and gives one number, and n counts trials, never seconds \
or transactions.
[low – high] is the 95 % confidence interval of the trials' geometric mean: how well this machine repeated itself; a \
number without one comes from a single trial.
One report measures and gives no verdict: two configurations are compared by trials of both in random order, never by \
laying two reports side by side.
TPS and latencies, their maximum too, are of the steady part of each trial: the beginning is left out by MSER-5, which \
cuts where what remains is known best. “pgbench says” is pgbench's own TPS over the whole load, so the two differ.
""".splitlines()
_COMPARING = """\
The pair is the unit: what a variant showed over what the reference showed beside it, in the same round. Verdicts come \
from pairs alone; laying the TPS of two variants side by side, or two reports, gives none.
-22.5 % [-25.1, -19.7] is a change against the reference with its interval, which holds however often one looks, so that \
one may stop as soon as it decides. TPS and latencies with [low – high] are each variant's own.
Faster, slower: the interval leaves out 0. Equivalent: it lies within the band that was asked for, which says that the \
two are close, not that they are the same. Inconclusive: neither yet; it never means that there is no difference.
Trials lie below for whoever wants to look: they show that nothing went wrong, and decide nothing.
""".splitlines()


_SEARCHING = """\
The trial is the unit: each starts from the same restored data, and either holds the limit or does not. How many \
transactions of one trial missed it says little of the next: they miss it together, when the queue grows.
A rate that holds and one that fails are sure to the confidence that was asked for, however often one looks; the limit \
lies between them. Undecided rates are not halfway: nothing may be said of them.
Latency counts from the scheduled start, so that a server that stalls cannot hide the transactions that wait for it. \
TPS of a closed loop says what the server can do when every client waits for its answer; no latency is promised there.
TPS and latencies under “Trials” are of the steady part of each trial; misses are counted over the whole load.
""".splitlines()


def build_reading(report: ReportInput) -> Iterator[Section]:
    """Yield the section on how to read the report, with the thresholds that its checks go by."""
    bounds = sources_table(report.analysis.workloads)
    folded = () if bounds is None else (msgspec.structs.replace(bounds, level=Level.DETAIL),)
    words = tuple(Prose(words=one) for one in explain_reading(report))
    yield Section(title="How to read this", id="how-to-read", blocks=(*words, *folded), is_listed=True)


def explain_reading(report: ReportInput) -> tuple[str, ...]:
    """How to read this report, a paragraph each."""
    if report.record.plan.search is not None:
        return tuple(_SEARCHING)
    return tuple(_MEASURING if report.record.plan.experiment is None else _COMPARING)
