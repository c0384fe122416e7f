"""Build the section on how to repeat a study: what was chosen for this machine, and commands to paste."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from pgdyno.explain.commands import find_home
from pgdyno.plan.plan import Choice
from pgdyno.plan.variants import list_places
from pgdyno.record.generators.part import LoadPart
from pgdyno.record.generators.parts import LOADS_DIR
from pgdyno.report.document import Block, Code, Prose, Section
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.head import name_trial

# Options of pgbench that only pgdyno needs: its server, its log, and an option that only pgbench 17 and later have.
_OWN_OPTIONS = frozenset(
    {"--host", "--port", "--username", "--log", "--log-prefix", "--sampling-rate", "--exit-on-abort"}
)


def build_repeating(report: ReportInput) -> Iterator[Section]:
    """Yield the section on how to repeat the measurement, with pgdyno and by hand."""
    by_hand = Section(title="With pgbench alone", blocks=tuple(list_commands(report)), is_folded=True)
    blocks: tuple[Block, ...] = (Prose(words=describe_repeating(report)), *list_own_commands(report), by_hand)
    yield Section(title="How to repeat this study", id="repeat", blocks=blocks, is_listed=True)


def list_choices(report: ReportInput) -> tuple[Choice, ...]:
    """Return what the study left open; a choice that several workloads share appears once."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for one in report.record.plan.choices:
        name, _, workload = one.name.partition(" of ")
        alike.setdefault((name, one.value, one.reason), []).append(workload)
    return tuple(
        Choice(name=f"{name} ({', '.join(of)})" if any(of) else name, value=value, reason=reason)
        for (name, value, reason), of in alike.items()
    )


def describe_repeating(report: ReportInput) -> str:
    """Describe where the study is saved, and which open choices were made for this machine."""
    where = "The complete study is study.toml in the record."
    chosen = "; ".join(f"{one.name} = {one.value}" for one in list_choices(report))
    if not chosen:
        return where
    return (
        f"{where} Values that the study left open were chosen for this {'server' if report.record.given else 'machine'}"
        f" and are written into it, so that it repeats in the same way elsewhere: {chosen}."
    )


def list_own_commands(report: ReportInput) -> tuple[Code, ...]:
    """Return commands of pgdyno to paste. The study of a given server does not say how to reach it: its command does."""
    record = report.record
    program = next(iter(record.command), "pgdyno")
    # The study has all but the folder that the command worked in.
    home = find_home(record)
    named = [] if home is None or list_places(record.study)[0].home is not None else ["--home", home]
    again = Code(purpose="Measure again", lines=shlex.join([program, "run", f"{report.record_dir}/study.toml", *named]))
    return (
        *(() if record.given else (again,)),
        Code(purpose="Write this report again", lines=shlex.join([program, "report", report.record_dir])),
        Code(purpose="The original command", lines=shlex.join(record.command)),
    )


def list_commands(report: ReportInput) -> list[Code]:
    """Return commands to paste that load another server with pgbench.

    The exact command lines, with paths that no longer exist, are in the record.
    """
    record, commands = report.record, list[Code]()
    if record.dataset is not None and record.dataset.file_sha256 is not None:
        file = f"{report.record_dir}/init/{record.plan.data_name}"
        lines = shlex.join(["psql", "--set=ON_ERROR_STOP=1", f"--file={file}"])
        commands.append(Code(purpose="Load the same data into an empty database of your own", lines=lines))
    elif record.dataset is not None and record.dataset.init_argv:
        purpose = "Load the same data into a database of your own; this replaces its pgbench tables"
        commands.append(Code(purpose=purpose, lines=_by_hand(record.dataset.init_argv)))
    seen: set[str] = set()
    for workload in report.analysis.workloads:
        trial = workload.representative or next(iter(workload.trials), None)
        # Other variants of the same workload have the same command apart from their own settings.
        if trial is not None and trial.record.argv and workload.load.name not in seen:
            seen.add(workload.load.name)
            purpose = f"Run the load of {workload.load.name} on it, as in {name_trial(trial)}"
            folder = f"{report.record_dir}/trials/{trial.record.planned.number:04d}"
            several = [one for one in trial.record.generators if one.argv]
            if several:
                each = _list_by_hand(several, folder, duration_s=trial.record.planned.duration_s)
                together = f"; these {len(several)} begin together" if len(several) > 1 else ""
                commands.append(Code(purpose=f"{purpose}{together}", lines="\n".join(each)))
            else:
                commands.append(Code(purpose=purpose, lines=_by_hand(trial.record.argv, scripts_folder=folder)))
    return commands


def _list_by_hand(generators: Sequence[LoadPart], folder: str, *, duration_s: float) -> Iterator[str]:
    """Yield the command lines of all pgbenches of a load, each below a comment that says where it ran.

    Those that ran beside others on a machine go to the background: all but the only one of a load host.
    """
    for one in generators:
        way = None if one.endpoint is None else f"connected to {one.endpoint}"
        place = None if one.is_here else f"on {one.host}"
        yield f"# {', '.join(filter(None, [one.part, way, place]))}"
        command = _by_hand(one.argv, scripts_folder=f"{folder}/{LOADS_DIR}/{one.folder_name}", duration_s=duration_s)
        yield command if one.endpoint is None else f"{command} &"
    if any(one.endpoint is not None for one in generators):
        yield "wait"


def _by_hand(argv: tuple[str, ...], scripts_folder: str = "", duration_s: float | None = None) -> str:
    """Return a command line of pgbench without the options that only pgdyno needs.

    Args:
        argv: The command line as it was run.
        scripts_folder: Where the record has copies of its script files.
        duration_s: How long the load took in seconds, if pgdyno and not pgbench ended it; None: as the command line says.
    """
    *options, _ = argv[1:]
    kept = ["pgbench"]
    for option in options:
        name, _, value = option.partition("=")
        if name == "--file":
            kept.append(f"--file={scripts_folder}/{value.rpartition('/')[2]}")
        elif name == "--time" and duration_s is not None:
            kept.append(f"--time={duration_s:.0f}")
        elif name not in _OWN_OPTIONS:
            kept.append(option)
    return shlex.join(kept)
