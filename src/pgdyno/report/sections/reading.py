"""Explain how to read a report: what its numbers mean, and what they do not."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pgdyno.plan.experiment import is_client_sweep
from pgdyno.report.document import Prose, Section
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.restore_words import describe_start
from pgdyno.report.sections.conditions.health import sources_table

_MEASURING = """\
The trial is the unit: each trial starts {start} and gives one number; n counts trials, never \
seconds or transactions.
[low – high] is the 95 % confidence interval of the trials' geometric mean. It shows how well {place} repeated \
itself. A number without an interval comes from a single trial.
A report of one configuration gives no verdict. To compare two configurations, run trials of both in random order \
(`pgdyno compare`); two reports side by side do not compare them.
TPS and latencies, including the maximum, cover the steady part of each trial. MSER-5 leaves out the beginning, up to \
the point from which the mean is known most precisely. “TPS by pgbench” is pgbench's own TPS over the whole load, so the \
two differ.
""".splitlines()
_COMPARING = """\
The pair is the unit: a variant's result divided by the geometric mean of the reference's two in the same round. Only pairs give verdicts; \
the figures of two variants side by side, or two reports, give none.
-22.5 % [-25.1, -19.7] is a change against the reference with its interval. The interval is valid however often the \
data are evaluated, so a comparison may stop as soon as it is decided. Figures with [low – high] are each variant's own.
Faster, slower: the interval excludes 0. Equivalent: the interval lies within the requested band, so the two are close, \
not necessarily equal. Inconclusive: neither is shown yet; it never means that there is no difference.
The tables under “Trials” show whether anything went wrong; the verdicts do not use them.
""".splitlines()

_SWEEPING = """\
Each number of clients has its TPS, with an interval [low – high], and a status. The status comes from comparisons within rounds, \
in which all loads run under the same conditions.
A load gets a status once tests allow no other. Undecided: several are still possible; it never means that there is no \
difference.
The tables under “Trials” show whether anything went wrong; the statuses do not use them.
""".splitlines()

_SEARCHING = """\
The trial is the unit: each trial starts {start} and either holds the limit or does not. The \
number of transactions over the limit in one trial says little about the next trial: they exceed it together, when the \
queue grows.
A rate is said to hold or to fail with the requested confidence, however often the data are evaluated; the highest rate \
that holds lies between the two. Nothing is known about undecided rates.
Latency counts from the scheduled start, so a server that stalls cannot hide the transactions that wait for it. TPS of \
a closed loop is the server's throughput when every client waits for its answer, without any limit on latency.
TPS and latencies under “Trials” cover the steady part of each trial; transactions over the limit are counted over the \
whole load.
""".splitlines()


def build_reading(report: ReportInput) -> Iterator[Section]:
    """Yield the section on how to read the report, with the thresholds of its checks."""
    bounds = sources_table(report.analysis.workloads)
    folded = () if bounds is None else (msgspec.structs.replace(bounds, level=Level.DETAIL),)
    words = tuple(Prose(words=one) for one in explain_reading(report))
    yield Section(title="How to read this report", id="how-to-read", blocks=(*words, *folded), is_listed=True)


def explain_reading(report: ReportInput) -> tuple[str, ...]:
    """Explain how to read the report, a paragraph each."""
    plan = report.record.plan
    paragraphs = _SEARCHING if plan.search is not None else _MEASURING
    if plan.experiment is not None:
        paragraphs = _SWEEPING if is_client_sweep(plan.experiment) else _COMPARING
    place = "the server, with the way to it," if report.record.given else "this machine"
    return tuple(one.format(place=place, start=describe_start(report.record.study)) for one in paragraphs)
