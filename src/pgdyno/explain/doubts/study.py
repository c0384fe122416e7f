"""Find what weakens a study's figures: the machine, the trials and the load, rule by rule.

Each rule is one small function that looks at the record and yields findings. A rule that lacks its evidence yields
nothing; what was not observed is reported as a gap and never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pgdyno.analyse.durability import find_disk_losses
from pgdyno.analyse.estimate import Doubt, DoubtKind, is_too_wide
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.transaction_time.shares import Resource
from pgdyno.analyse.types import LOAD_THREAD_RATIO, OTHERS_RATIO, STEAL_RATIO, TrialAnalysis, WorkloadAnalysis
from pgdyno.explain.commands import MeasuredLoad, find_variant
from pgdyno.explain.doubts.comparison import DURABILITY, EARLY_END, find_comparison_doubts
from pgdyno.explain.doubts.credits import find_credit_doubts
from pgdyno.explain.doubts.derived import find_derived_doubts
from pgdyno.explain.doubts.failover import find_failover_doubts
from pgdyno.explain.doubts.search import find_search_doubts
from pgdyno.explain.doubts.state import find_state_doubts
from pgdyno.explain.episodes import find_episodes_in_average
from pgdyno.explain.finding import Finding, Severity, keep_to_record, worst_first
from pgdyno.explain.preflight.study import find_preflight_doubts, find_version_doubts
from pgdyno.facts.durability import Loss, durability_given_up
from pgdyno.record.machine.given_server import IDLE_TPS
from pgdyno.record.trial_data import FILES
from pgdyno.record.types import StudyRecord, TrialRecord, TrialStatus
from pgdyno.units import round_to_three, with_capital

_BETWEEN_RATIO = 0.05
# The sampler looks ten times a second, and the pinger asks about as often, in the database that the user's string names.
_OWN_TPS = 25.0
# Sessions that look before and after a load, measured with loads of 1 to 8 s on an idle PostgreSQL 15.
_OWN_TRANSACTIONS = 15.0
# Autovacuum ends many transactions at once: shorter loads are counted together.
_STRETCH_S = 5.0
# A load of which more fails is another one than the workload says; above the second, TPS says little.
_FEW_FAILED_RATIO, _MANY_FAILED_RATIO = 0.01, 0.1
_SHARES = (
    (
        "cpu_steal_ratio",
        STEAL_RATIO,
        "The hypervisor took CPU time away.",
        "Neighbours affect the figures; compare interleaved trials only, or use a dedicated host.",
    ),
    (
        "cpu_others_ratio",
        OTHERS_RATIO,
        "Other programs used the CPUs while trials ran.",
        "Find them with `top`, stop them, and measure again.",
    ),
    (
        "load_generator_others_ratio",
        OTHERS_RATIO,
        "Other programs used the CPUs of pgbench's machine while trials ran.",
        "pgbench may be what limited the load: find them with `top`, stop them, and measure again.",
    ),
    (
        "load_generator_thread_ratio",
        LOAD_THREAD_RATIO,
        "pgbench itself is at its limit: its busiest thread had no time left.",
        "Raise --threads, or the server may be faster than shown.",
    ),
)
"""Shares of a trial, from when on each is a doubt, with the claim and the advice."""


def find_doubts(record: StudyRecord, analysis: StudyAnalysis) -> tuple[Finding, ...]:
    """Find everything that weakens the figures of a study and of the sweep that followed it, in each the worst first.

    A doubt that both share is named once.
    """
    own, scaling = _find_own_doubts(record, analysis), analysis.scaling
    said = {finding.claim for finding in own}
    following = () if scaling is None else _find_own_doubts(scaling.record, scaling.analysis)
    return (*own, *(finding for finding in following if finding.claim not in said))


def _find_own_doubts(record: StudyRecord, analysis: StudyAnalysis) -> tuple[Finding, ...]:
    findings = keep_to_record(record, (finding for rule in _RULES for finding in rule(record, analysis)))
    return worst_first(findings)


def _failed_trials(record: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    for workload, trial in _trials(analysis):
        if trial.record.error is not None:
            error = trial.record.error
            yield Finding(
                severity=Severity.CRITICAL,
                claim=f"Trial {trial.record.planned.number} failed: {error.fact}.",
                evidence=error.detail,
                advice=error.hint,
                workload=workload.name,
            )
    done = sum(trial.record.status is TrialStatus.FINISHED for _, trial in _trials(analysis))
    planned = len(record.plan.trials)
    # The plan of a comparison or a search is an upper limit: it ends as soon as it has an answer.
    if done < planned and record.plan.experiment is None and record.plan.search is None:
        yield Finding(
            rule=EARLY_END,
            severity=Severity.WARNING,
            claim=f"The study is not complete: {done} of {planned} trials are finished.",
            evidence="Estimates rest on the finished ones",
            advice="`pgdyno resume` runs the others.",
        )


def _nothing_ended(_: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    for workload in analysis.workloads:
        trials = [trial.record for trial in workload.trials if trial.transactions_count == 0]
        numbers = [str(trial.planned.number) for trial in trials if trial.error is None]
        if numbers:
            yield Finding(
                severity=Severity.WARNING,
                claim=f"No transaction succeeded in {len(numbers)} of {len(workload.trials)} trials.",
                evidence=f"Trial {', '.join(numbers)}; where variants are compared, it counts as half a transaction",
                advice="The server's log and the trial's counts of failures show which errors the clients got.",
                workload=workload.name,
            )


def _failed_transactions(_: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    for workload in analysis.workloads:
        tried = [
            (trial, trial.failed_count, trial.failed_count + (trial.transactions_count or 0))
            for trial in workload.trials
            if trial.failed_count
        ]
        if not tried:
            continue
        trial, failed, count = max(tried, key=lambda each: each[1] / each[2])
        if failed / count > _FEW_FAILED_RATIO:
            yield Finding(
                severity=Severity.CRITICAL if failed / count > _MANY_FAILED_RATIO else Severity.WARNING,
                claim=f"Up to {failed / count * 100:.2g} % of the transactions failed.",
                evidence=f"{failed:,} of {count:,} in trial {trial.record.planned.number}; TPS counts the others",
                advice="Give the workload max_tries, or an isolation level and a load in which transactions do not collide.",
                workload=workload.name,
            )


def _damaged_files(_: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    found: dict[str, dict[int, str]] = {}
    for _workload, trial in _trials(analysis):
        if trial.record.status is TrialStatus.FINISHED:
            # What the trial itself could not observe was never in a file.
            for gap in set(trial.gaps) - set(trial.record.gaps):
                found.setdefault(gap.source, {})[trial.record.planned.number] = gap.reason
    for source, reasons in sorted(found.items()):
        numbers = ", ".join(str(number) for number in sorted(reasons))
        yield Finding(
            rule="damaged-file",
            severity=Severity.WARNING,
            claim=f"Trial{'s' if len(reasons) > 1 else ''} {numbers}: {FILES.get(source, source)} is damaged or missing,"
            " and left out.",
            evidence=_sentence(reasons[min(reasons)]),
            advice="Figures that need it come from the other trials, or are absent; restore the file, or measure again.",
        )


def _durability(record: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    if record.plan.experiment is not None:
        return
    seen = dict.fromkeys(find_disk_losses(record))
    seen |= dict.fromkeys(
        one for _, trial in _trials(analysis) for one in durability_given_up(trial.record.values, record.server.major)
    )
    for one in seen:
        is_lost = one.kind is Loss.DURABILITY
        yield Finding(
            rule=DURABILITY if is_lost else "",
            severity=Severity.CRITICAL if is_lost else Severity.WARNING,
            claim=f"The server {one.gist}: {one.assignment}.",
            evidence=_sentence(one.consequence),
            advice="Never compare these figures with those of a durable server.",
        )


def _few_trials(record: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    if record.plan.search is not None:
        return
    for workload in analysis.workloads:
        # A comparison ends by its verdicts, which come from pairs and not from these figures.
        if any(trial.record.planned.variants for trial in workload.trials):
            continue
        if workload.tps.n == 1:
            yield Finding(
                severity=Severity.WARNING,
                claim="One trial has no error bar.",
                evidence="One trial (n = 1): run-to-run noise is unknown",
                advice="Ask for more rounds.",
                workload=workload.name,
            )
        elif is_too_wide(workload.tps):
            known = [trial.tps for trial in workload.trials if trial.tps is not None]
            least, most = (round_to_three(tps) for tps in (min(known), max(known)))
            yield Finding(
                severity=Severity.WARNING,
                claim="The trials give no useful interval of TPS.",
                evidence=f"{least} to {most} TPS in {len(known)} trials: they are too few for how much they differ",
                advice="Ask for more rounds, or find out what differs between the trials.",
                workload=workload.name,
            )


def _full_shares(_: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    for share, threshold_ratio, claim, advice in _SHARES:
        yield from _share_above(analysis, share, threshold_ratio, claim=claim, advice=advice)


def _branches(record: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    for workload in analysis.workloads:
        is_writing_branches = any(script == "tpcb-like" for script, _ in workload.load.scripts)
        # The finding that locks limit the load says this already.
        if workload.bottleneck is not None and workload.bottleneck.resource is Resource.LOCK:
            continue
        variants = {name for trial in workload.trials for name in trial.record.planned.variants}
        scale = MeasuredLoad(record=record, load=workload.load, variant=find_variant(record, variants)).scale
        if is_writing_branches and scale < (clients := workload.load.writing_clients):
            yield Finding(
                severity=Severity.WARNING,
                claim="There are fewer branches than clients, so clients wait for each other's rows.",
                evidence=f"Scale {scale}, {clients} clients",
                advice="Use a scale of at least the clients, or what is measured is lock waiting.",
                workload=workload.name,
            )


def _numbers_disagree(_: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    for workload in analysis.workloads:
        for kind in DoubtKind:
            doubts = [doubt for trial in workload.trials for doubt in trial.doubts if doubt.kind is kind]
            if not doubts:
                continue
            worst = max(doubts, key=lambda doubt: abs(doubt.excess_ratio))
            severity, claim, advice = _judge(worst)
            of_trials = f" (worst of {len(workload.trials)} trials)" if len(workload.trials) > 1 else ""
            yield Finding(
                severity=severity,
                claim=claim,
                evidence=_sentence(worst.text) + of_trials,
                advice=advice,
                workload=workload.name,
            )


def _judge(doubt: Doubt) -> tuple[Severity, str, str]:
    # Source: our ADR 0006.
    if doubt.kind is DoubtKind.LITTLES_LAW and doubt.excess_ratio < 0:
        severity = Severity.WARNING if -doubt.excess_ratio > _BETWEEN_RATIO else Severity.NOTE
        return (
            severity,
            "Part of the clients' time belongs to no transaction.",
            "TPS is right; with pgbench on another host, or more --threads, the share is smaller.",
        )
    if doubt.kind is DoubtKind.STALE_CLOCK:
        return (
            Severity.WARNING,
            "pgbench could not time the quickest transactions.",
            "TPS is right; do not quote the mean and the low percentiles.",
        )
    if doubt.kind is DoubtKind.NO_LOG:
        return (
            Severity.WARNING,
            "A trial lost its transaction log.",
            "Its TPS is pgbench's own over the whole load; it has no latencies.",
        )
    return (
        Severity.WARNING,
        "The numbers of a trial do not fit together.",
        "Look at the trial's files before using its figures.",
    )


def _no_checkpoint(record: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    if record.tuned is not None:
        # `doubts.derived` says more about checkpoint settings.
        return
    for workload in analysis.workloads:
        wrote = any(trial.is_writing for trial in workload.trials)
        counts = [trial.checkpoint_count for trial in workload.trials if trial.tps is not None]
        if wrote and counts and all(count == 0 for count in counts):
            # Not every role of a given server may ask for a checkpoint, so one of before may have gone on.
            is_own = record.given is None
            yield Finding(
                severity=Severity.NOTE,
                claim=f"No checkpoint {'fell into' if is_own else 'began in'} any trial.",
                evidence="Each begins just after one; the cost of checkpoints and of what follows is not in the figures"
                if is_own
                else "The whole cost of one, and of what follows it, is not in the figures",
                advice="A --duration above checkpoint_timeout, or a smaller max_wal_size, brings it in.",
                workload=workload.name,
            )


def _shared_counters(record: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    if record.given is None:
        return
    before = record.given.others_tps
    beside = _others_tps(trial.record for _, trial in _trials(analysis))
    is_shared = max(beside, default=before or 0.0) > IDLE_TPS
    if beside:
        most = max(beside)
        seen = f"Beside the load, others ended up to about {most:.0f} transactions a second in other databases"
        if round(most) == 0:
            seen = "Beside the load, others ended hardly a transaction in other databases"
    elif before is not None:
        seen = f"Before the load, others ended {before:.0f} transactions in a second"
    else:
        seen = "How much others did is not known"
    yield Finding(
        severity=Severity.WARNING if is_shared else Severity.NOTE,
        claim="WAL, checkpoints and I/O are counted for the whole server, not for this load alone.",
        evidence=seen,
        advice="Where others are at work, these figures of a transaction are too large.",
    )


def _others_tps(trials: Iterable[TrialRecord]) -> list[float]:
    """Return about how many transactions others ended in other databases in a second, for each stretch of loads; none if not counted."""
    stretches, ended, load_s = [], 0.0, 0.0
    for trial in trials:
        counts = [
            (trial.growth(f"server_{name}"), trial.growth(name))
            for name in ("xact_commit_count", "xact_rollback_count")
        ]
        if trial.load_s is None or any(None in pair for pair in counts):
            continue
        ended += sum((whole or 0.0) - (own or 0.0) for whole, own in counts) - _OWN_TRANSACTIONS
        load_s += trial.load_s
        if load_s >= _STRETCH_S:
            stretches.append(ended / load_s)
            ended = load_s = 0.0
    if load_s > 0.0 and not stretches:
        stretches.append(ended / load_s)
    return [max(0.0, tps - _OWN_TPS) for tps in stretches]


def _share_above(
    analysis: StudyAnalysis, share: str, threshold_ratio: float, *, claim: str, advice: str
) -> Iterator[Finding]:
    for workload in analysis.workloads:
        seen = [value for trial in workload.trials if (value := trial.shares.get(share)) is not None]
        above = [value for value in seen if value > threshold_ratio]
        if above:
            of = _count_above(len(above), len(seen), len(workload.trials))
            yield Finding(
                severity=Severity.WARNING,
                claim=claim,
                evidence=f"Up to {max(above) * 100:.1f} % in {of} (limit {threshold_ratio * 100:.0f} %)",
                advice=advice,
                workload=workload.name,
            )


def _count_above(above: int, seen: int, trials: int) -> str:
    """Say in how many trials a share was too large: of live pairs only the whole trials before them measure the machine."""
    if seen == trials:
        return f"{above} of {seen} trials"
    which = "the one trial" if seen == 1 else f"{above} of the {seen} trials"
    return f"{which} in which this was measured"


def _sentence(words: str) -> str:
    # A program keeps its name, and so does a file.
    first = words.partition(" ")[0]
    return words if first.startswith("pgbench") or "/" in first else with_capital(words)


def _trials(analysis: StudyAnalysis) -> Iterator[tuple[WorkloadAnalysis, TrialAnalysis]]:
    for workload in analysis.workloads:
        for trial in workload.trials:
            yield workload, trial


_RULES: tuple[Callable[[StudyRecord, StudyAnalysis], Iterable[Finding]], ...] = (
    # If derived settings are slower than stock, that comes first.
    find_derived_doubts,
    find_comparison_doubts,
    find_failover_doubts,
    find_search_doubts,
    _failed_trials,
    _failed_transactions,
    _nothing_ended,
    _damaged_files,
    _durability,
    _few_trials,
    _full_shares,
    _branches,
    find_episodes_in_average,
    _numbers_disagree,
    _no_checkpoint,
    _shared_counters,
    find_state_doubts,
    find_credit_doubts,
    find_version_doubts,
    find_preflight_doubts,
)
