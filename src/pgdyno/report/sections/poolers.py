"""Build the section on the poolers that loads connected to: their traffic, their one thread, and the clients that waited."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgdyno.analyse.estimate import mean_of_known
from pgdyno.analyse.poolers import AtLooks, PoolerFigures
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.plan.types import PlannedPooler
from pgdyno.report.document import Block, Prose, Section
from pgdyno.report.format import format_number, format_percent
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.table import Cell, Table, absent, columns, number, text

_REMARK = (
    "Means over trials with samplers. Wait is how long a transaction waited for a server connection. It and the number of waiting"
    " clients are the pooler's own figures. Connections in use are those at the moments of the samples: their mean, and their largest number."
    " Once the thread has a CPU, or waits for one, nearly all of the time, one PgBouncer can do no more."
)
_UNSAID = "the pooler's console did not say"
_UNSEEN = "the pooler's process was not sampled"
_TITLES = (
    *("Load", "Pool", "Queries/s", "Transactions/s", "Wait, ms", "Waiting clients", "Waiting at looks"),
    *("Connections in use", "Its thread, %", "Samples"),
)
_DETAILS = ("Transactions/s", "Waiting clients", "Waiting at looks")
_MODES = {
    "transaction": "transaction mode: a client has a server connection for the length of a transaction",
    "session": "session mode: a client has a server connection for as long as it is connected",
}


def build_poolers(report: ReportInput) -> Iterator[Section]:
    """Yield the section on the poolers; nothing where no load connected to one."""
    poolers = report.record.plan.poolers
    if not poolers:
        return
    blocks: list[Block] = [
        Prose(
            words=_describe(one, _list_figures(report, one), has_load_hosts=bool(report.record.load_hosts)),
            level=Level.HEADLINE,
        )
        for one in poolers
    ]
    rows = [
        _make_row(workload, figures)
        for workload in report.analysis.workloads
        if (figures := [trial.pooler for trial in workload.trials if trial.pooler is not None and trial.pooler.samples])
    ]
    if rows:
        blocks.append(
            Table(
                caption="What went through the pooler",
                columns=columns(*_TITLES, numbers_from=2, details=_DETAILS),
                rows=tuple(rows),
                remark=_REMARK,
                level=Level.HEADLINE,
            )
        )
    else:
        blocks.append(Prose(words="What went through it was not sampled.", level=Level.HEADLINE))
    yield Section(title="Poolers", id="poolers", blocks=tuple(blocks), level=Level.HEADLINE, is_listed=True)


def _list_figures(report: ReportInput, pooler: PlannedPooler) -> list[PoolerFigures]:
    return [one for trial in report.analysis.trials if (one := trial.pooler) is not None and one.name == pooler.name]


def _describe(pooler: PlannedPooler, figures: Sequence[PoolerFigures], *, has_load_hosts: bool) -> str:
    version = next((one.version for one in figures if one.version), "a pooler whose version is not known")
    mode = _MODES[pooler.mode.value]
    if pooler.size is None:
        seen = next((one.mode for one in figures if one.mode != pooler.mode.value), None)
        if seen is not None:
            known = _MODES.get(seen, f"{seen} mode")
            return f"{pooler.name} is {version}, which ran already; it was taken to be in {pooler.mode.value} mode, and its console says {known}."
        return f"{pooler.name} is {version}, which ran already; it was taken to be in {mode}."
    beside = (
        "the server, and takes its CPU time from it."
        if has_load_hosts
        else "server and load, and takes its CPU time from both."
    )
    return f"{pooler.name} is {version} in {mode}; its pool has {pooler.size} server connections. It runs on the machine of {beside}"


def _make_row(workload: WorkloadAnalysis, figures: Sequence[PoolerFigures]) -> tuple[Cell, ...]:
    first = figures[0]
    size = "" if first.size is None else f" of {first.size}"
    return (
        text(workload.name),
        text(f"{first.name}{size}"),
        _show(mean_of_known(one.queries_per_s for one in figures)),
        _show(mean_of_known(one.transactions_per_s for one in figures)),
        _show(mean_of_known(one.wait_ms for one in figures)),
        _show(mean_of_known(one.waiting_count for one in figures)),
        _show_looks([one.waiting_clients for one in figures]),
        _show_looks([one.active_servers for one in figures]),
        _show_thread(figures),
        text(f"{sum(one.samples for one in figures):,}"),
    )


def _show(value: float | None) -> Cell:
    return number(value, format_number, _UNSAID)


def _show_looks(figures: Sequence[AtLooks | None]) -> Cell:
    seen = [one for one in figures if one is not None]
    if not seen:
        return absent(_UNSAID)
    mean = sum(one.mean for one in seen) / len(seen)
    return Cell(text=format_number(mean), detail=f"up to {format_number(max(one.largest for one in seen))}")


def _show_thread(figures: Sequence[PoolerFigures]) -> Cell:
    threads = [one.thread for one in figures if one.thread is not None]
    if not threads:
        return absent(_UNSEEN)
    ran, waited = (
        sum(each) / len(threads) for each in zip(*((t.running_ratio, t.waiting_ratio) for t in threads), strict=True)
    )
    return Cell(text=format_percent(ran).removesuffix(" %"), detail=f"and {format_percent(waited)} waiting for a CPU")
