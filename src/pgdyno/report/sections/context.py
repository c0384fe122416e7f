"""Build the tables around the trials: dataset, settings, versions, choices, and gaps in the samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from pgdyno.analyse.types import TrialAnalysis
from pgdyno.facts.durability import durability_given_up
from pgdyno.facts.gucs import show_mode
from pgdyno.facts.settings import KeySetting, key_settings
from pgdyno.record.types import UNSEEN_GAPS, Dataset, Gap, SettingFact, StudyRecord
from pgdyno.report.document import Block, Prose, Section
from pgdyno.report.format import ABSENT, format_bytes, format_count, format_number, format_seconds
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.sections.repeating import list_choices
from pgdyno.report.table import Cell, Table, code, columns, number, text
from pgdyno.spec.table import CacheState
from pgdyno.units import show_in_unit, unit_size

# Source: PostgreSQL 15 to 18, guc_tables.c: shared_buffers has the built-in value of 16384 pages of 8 kB.
_DEFAULT_SHARED_BUFFERS_BYTES = 128 * 1024**2
# Source: PostgreSQL 18 manual, pg_settings: these values come from the server, not from files, commands or users.
_OWN_SOURCES = frozenset({"default", "override"})


def build_dataset(report: ReportInput) -> Iterator[Section]:
    """Yield the section on the data; nothing where no data were loaded."""
    dataset = report.record.dataset
    if dataset is not None:
        yield Section(
            title="Dataset",
            id="dataset",
            blocks=(dataset_table(report, dataset), *((init_table(dataset),) if dataset.init_argv else ())),
            beside=(relations_table(dataset),),
            is_listed=True,
        )


def build_settings(report: ReportInput) -> Iterator[Section]:
    """Yield the section on the server's settings."""
    changed, computed = settings_table(report), server_settings_table(report)
    choices = choices_table(report)
    blocks: list[Block] = [key_settings_table(report)]
    blocks.append(Prose(words="No setting was changed, or no setting was recorded.") if changed is None else changed)
    if computed is not None:
        blocks.append(msgspec.structs.replace(computed, level=Level.DETAIL))
    blocks += [choices] if choices is not None else []
    yield Section(title="Settings", id="settings", blocks=tuple(blocks), is_listed=True)


def relations_table(dataset: Dataset) -> Table:
    """Build the table of the dataset's tables and indexes, the largest first."""
    rows = tuple(
        (
            code(one.name),
            text(one.kind),
            text(format_bytes(one.bytes)),
            text(format_count(one.pages)),
            number(one.rows, format_count, "an index has no rows of its own" if "index" in one.kind else "not known"),
        )
        for one in sorted(dataset.relations, key=lambda one: -one.bytes)
    )
    return Table(
        caption="Relations", columns=columns("Name", "Kind", "Size", "Pages", "Rows", numbers_from=2), rows=rows
    )


def dataset_table(report: ReportInput, dataset: Dataset) -> Table:
    """Build the table of the dataset's size beside the caches."""
    memory = report.record.usable_memory_bytes
    caches = {
        "shared_buffers": [(size, show_in_unit(str(size), "B")) for size in list_shared_buffers_bytes(report)],
        "memory": [] if memory is None else [(memory, format_bytes(memory))],
    }
    name = report.record.plan.data_name
    source = (text("Scale"), text(f"{dataset.scale:,}")) if name is None else (text("Data"), code(name))
    rows = [source, (text("Size"), text(format_bytes(dataset.total_bytes)))]
    for name, sizes in caches.items():
        relative = "; ".join(f"{format_number(dataset.total_bytes / size)} × {shown}" for size, shown in sizes) or None
        rows.append((text(f"Size relative to {name}"), text(relative, note=None if relative else "not observed")))
    rows.append((text("Caches when a trial begins"), text(_describe_caches(report.record))))
    titles = columns("", "Value", numbers_from=1)
    return Table(caption="Size", columns=titles, rows=tuple(rows), remark=_name_dataset(report))


def _name_dataset(report: ReportInput) -> str:
    """Say whose data these are, where variants have data of other sizes."""
    plan = report.record.plan
    if plan.experiment is None or len({variant.scale or plan.scale for variant in plan.experiment.variants}) == 1:
        return ""
    return f"The data of {plan.experiment.reference.name}; variants of another scale have data of their own."


def _describe_caches(record: StudyRecord) -> str:
    experiment, own = record.plan.experiment, record.study.trials.cache
    states = {variant.cache or own for variant in experiment.variants} if experiment is not None else {own}
    if len(states) > 1:
        return "as each variant says"
    is_given = record.given is not None
    if record.study.data.database is not None:
        return "as they were, after the warm-up"
    return {
        CacheState.WARM: "warm: tables and indexes were read first",
        CacheState.COLD: "cold: the server had just started, and the kernel's cache had no page of the cluster",
        CacheState.ASIS: "as they were" if is_given else "as restoring left them, with a server that had just started",
    }[states.pop()]


def init_table(dataset: Dataset) -> Table:
    """Build the table of how long each step of loading took."""
    rows = [(text(name), text(format_seconds(seconds))) for name, seconds in dataset.init_steps_s.items()]
    rows.append((text("all"), Cell(text=format_seconds(dataset.init_total_s), is_strong=True)))
    remark = "Loaded by an earlier study; the times are those of that study." if dataset.is_reused else ""
    return Table(
        caption="Loading (pgbench -i)" if dataset.file_sha256 is None else "Loading (psql)",
        columns=columns("Step", "Time", numbers_from=1),
        rows=tuple(rows),
        remark=remark,
    )


def key_settings_table(report: ReportInput) -> Table:
    """Build the table of the settings that decide a result, changed or not."""
    trials = [trial for trial in report.analysis.trials if trial.record.settings]
    rows = []
    for setting in key_settings():
        boot = setting.find_boot_value(report.record.server.major)
        seen: dict[str, list[int]] = {}
        for trial in trials:
            fact = next((fact for fact in trial.record.settings if fact.name == setting.name), None)
            # A setting that was not recorded has its built-in value.
            value = fact.value if fact else boot
            shown = "default" if value is None else format_setting(fact or setting, value)
            seen.setdefault(shown, []).append(trial.record.planned.number)
        built_in = None if boot is None else format_setting(setting, boot)
        values = [one if len(seen) == 1 else f"{one} ({_list_trials(where)})" for one, where in seen.items()]
        value_cell = Cell(
            text="; ".join(values) or ABSENT,
            note=None if values else "no trial recorded its settings",
            is_strong=any(one not in {built_in, "default"} for one in seen),
        )
        rows.append((code(setting.name), value_cell, text(built_in), text(setting.meaning)))
    titles = columns("Setting", "Value", "Built-in default", "Meaning")
    return Table(caption="Key settings", columns=titles, rows=tuple(rows), remark=_name_moment(trials))


def settings_table(report: ReportInput) -> Table | None:
    """Build the table of settings that differ from the built-in default."""
    caption = "Settings changed from the built-in default"
    return _settings_table(caption, report, lambda fact: fact.source not in _OWN_SOURCES)


def server_settings_table(report: ReportInput) -> Table | None:
    """Build the table of values that the server computed itself."""
    caption = "Values computed by the server"
    return _settings_table(caption, report, lambda fact: fact.source in _OWN_SOURCES)


def choices_table(report: ReportInput) -> Table | None:
    """Build the table of what the study left open and pgdyno chose."""
    rows = tuple((text(one.name), text(one.value), text(one.reason)) for one in list_choices(report))
    return Table(caption="Chosen by pgdyno", columns=columns("What", "Value", "Why"), rows=rows) if rows else None


def gaps_table(report: ReportInput) -> Table | None:
    """Build the table of what should have been sampled and was not."""
    seen: dict[Gap, list[int]] = {}
    trials = report.analysis.trials
    for trial in trials:
        for gap in dict.fromkeys((*trial.record.gaps, *trial.gaps)):
            # What is not known of a machine that nobody saw is said of the server once.
            if report.record.host is None and gap in UNSEEN_GAPS:
                continue
            seen.setdefault(gap, []).append(trial.record.planned.number)
    rows = tuple(
        (text(gap.source), text(gap.reason), text("all trials" if len(where) == len(trials) else _list_trials(where)))
        for gap, where in seen.items()
    )
    return Table(caption="Not observed", columns=columns("What", "Why", "Where"), rows=rows) if rows else None


def versions_table(report: ReportInput) -> Table:
    """Build the table of the programs that were used."""
    record = report.record
    # The programs beside a given server are not its own.
    place = "" if record.given else f", from {record.server.bindir}"
    rows = [(text("PostgreSQL"), text(f"{record.server.version}{place}"))]
    rows += [(text(name), text(version)) for name, version in record.tool_versions.items()]
    if record.server.configure:
        rows.append((text("PostgreSQL's build"), code(record.server.configure)))
    return Table(caption="Versions", columns=columns("Program", "Version"), rows=tuple(rows))


def list_shared_buffers_bytes(report: ReportInput) -> tuple[int, ...]:
    """List the sizes of shared_buffers in the study's trials, the smallest first; none if a given server did not show it."""
    trials = [trial.record for trial in report.analysis.trials]
    shown = {_find_shared_buffers_bytes(trial.settings) for trial in trials if trial.settings}
    if not shown and report.record.given is None:
        shown = {_DEFAULT_SHARED_BUFFERS_BYTES}
    return tuple(sorted(shown))


def _find_shared_buffers_bytes(settings: Iterable[SettingFact]) -> int:
    for fact in settings:
        if fact.name == "shared_buffers" and fact.value.isdecimal():
            return round(int(fact.value) * unit_size(fact.unit))
    return _DEFAULT_SHARED_BUFFERS_BYTES


def format_setting(fact: SettingFact | KeySetting, value: str) -> str:
    """Format a value of a setting as SHOW prints it, exactly; an empty one in quotes."""
    return show_mode(fact.name, show_in_unit(value, fact.unit)) or "''"


def _settings_table(caption: str, report: ReportInput, is_shown: Callable[[SettingFact], bool]) -> Table | None:
    # Where trials differ, each value is listed with its trials.
    seen: dict[SettingFact, list[int]] = {}
    trials = [trial for trial in report.analysis.trials if trial.record.settings]
    for trial in trials:
        for fact in filter(is_shown, trial.record.changed_settings):
            seen.setdefault(fact, []).append(trial.record.planned.number)
    major = report.record.server.major
    lost = {(one.setting, one.value) for trial in trials for one in durability_given_up(trial.record.values, major)}
    rows = []
    for fact, where in sorted(seen.items(), key=lambda item: (item[0].name, item[0].value)):
        notes = ["durability given up"] if (fact.name, fact.value) in lost else []
        notes += [f"in {_list_trials(where)} only"] if len(where) < len(trials) else []
        value = Cell(text=format_setting(fact, fact.value), note="; ".join(notes) or None, is_strong=True)
        boot = None if fact.boot_value is None else format_setting(fact, fact.boot_value)
        rows.append((code(fact.name), value, text(boot), text(fact.source)))
    titles = columns("Setting", "Value", "Built-in default", "Source")
    return Table(caption=caption, columns=titles, rows=tuple(rows), remark=_name_moment(trials)) if rows else None


def _name_moment(trials: Iterable[TrialAnalysis]) -> str:
    """Say when settings were read, where variants alternated later."""
    if not any(trial.record.planned.is_block for trial in trials):
        return ""
    return "Read when the load began; each slice of it then had the settings of its variant."


def _list_trials(numbers: Iterable[int]) -> str:
    ordered = sorted(set(numbers))
    return f"{'trial' if len(ordered) == 1 else 'trials'} {', '.join(map(str, ordered))}"
