"""Stock, derived, or what others would set: which is fastest here, by paired trials in balanced order.

Every question is one of derived settings against another set, with derived as the reference that runs twice in each
round. Figures are the ratio of TPS, derived over the other, with the interval of the verdict, which holds whenever one
stops: below 1 the other is faster. Four parts:

  memory   tpcb-like, data in memory
  update   simple-update, the same data
  cold     tpcb-like from a cold start, data four times a quarter of memory, which is what most sets take for shared_buffers
  beyond   select-only from a cold start, data twice the memory

The last two are for a smaller machine than most, 1 GB, so that data beyond memory are copied in seconds and a cold start
has ended long before a trial has. Each set is worked out for that size by its own rules. The kernel's cache is as small only if this program runs in a
control group, as by `systemd-run --scope -p MemoryMax=1G -p MemorySwapMax=0 python benchmarks/tuning.py --part cold beyond`;
without one it holds what has been read once, which is kinder to reads than such a machine, and the output says so. Of the kernel's settings,
those of overcommitted memory are left alone, which protect and do not speed up, and in a group those of huge pages, which
would not count there. In `cold`, checkpoint_timeout is at most a third of a trial for every variant, so that none is
fast on the credit of checkpoints still to come; with --quick a trial holds none of them, but for what max_wal_size begins.

Settings are derived as `pgdyno bench` does it if the disk was measured as there, by `pgdyno disk DIR --home DIR/home` before;
else with the defaults of its class.

A part is a study with its record in DIR/PART; what was broken off goes on with the same --out, with the settings that it
began with. `--quick` asks about stock alone, unless --rivals names others.

Usage: python benchmarks/tuning.py [--quick] [--part PART ...] [--out DIR] [--rivals NAME ...] [--server 15]
       [--no-kernel] [--only-plan]                                (up to ten hours; ten minutes)
"""

from __future__ import annotations

import argparse
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path

from figures import say
from rivals import Rival, keep_taken, read_rivals
from telling import Told
from tuning_studies import PARTS, STOCK, Machine, compose, look_at

from pgdyno.analyse.comparison.answers import Comparison, Question
from pgdyno.analyse.study import analyse_study
from pgdyno.conduct.workspace import Workspace
from pgdyno.errors import PgdynoError
from pgdyno.flow.resume import resume_study
from pgdyno.flow.run import run_study
from pgdyno.record.store import RecordStore
from pgdyno.record.trial_data import read_trial_data
from pgdyno.record.types import TrialRecord, TrialStatus
from pgdyno.spec.study import Study


def run_part(machine: Machine, folder: Path, study: Study, name: str) -> RecordStore:
    """Run what is left of a part's study."""
    store, place = RecordStore(folder), Workspace.make(home=machine.home, out=folder, run_as=None)
    if (folder / "record.json").exists():
        print("  goes on, with the settings that it began with", flush=True)
        resume_study(store, place=place, ui=Told())
    else:
        run_study(study, name=f"tuning-{name}", place=place, ui=Told())
    return store


def say_part(store: RecordStore, name: str) -> None:
    """The figures of a part, from its record."""
    record = store.read_record()
    trials = [trial for trial in store.read_trials() if trial.status is TrialStatus.FINISHED]
    data = [read_trial_data(store.trial_dir(trial.planned.number), trial) for trial in trials]
    (comparison,) = analyse_study(record, data).comparisons
    for variant, error in record.refused_variants.items():
        print(f"{name}: {variant} was given up: {error.fact}: {error.detail}")
    print_checkpoints(name, trials)
    print_variants(name, comparison)
    for question in comparison.questions:
        if question.metric == "tps":
            say_question(f"tuning.{name}", question, is_writing=PARTS[name].is_writing)
    noise = comparison.find_noise("tps")
    if noise is not None:
        say_ratio(f"tuning.{name}.derived_to_itself", noise)


def print_variants(name: str, comparison: Comparison) -> None:
    for variant in comparison.figures:
        tps = variant.estimates.get("tps")
        if tps is not None:
            print(f"{name}: {variant.variant}: {tps.value:,.0f} tps")


def print_checkpoints(name: str, trials: Sequence[TrialRecord]) -> None:
    """How many checkpoints began in a trial of each variant, on average: what is put off is not saved."""
    begun: dict[str, list[float]] = {}
    for trial in trials:
        counts = [
            (after or 0) - (before or 0)
            for counter in ("checkpoints_timed_count", "checkpoints_requested_count")
            for before, after in [(trial.counters_before.get(counter), trial.counters_after.get(counter))]
        ]
        begun.setdefault(trial.planned.variants[0], []).append(sum(counts))
    means = ", ".join(f"{variant} {sum(counts) / len(counts):.1f}" for variant, counts in begun.items())
    print(f"{name}: checkpoints in a trial: {means}")


def say_question(prefix: str, question: Question, *, is_writing: bool) -> None:
    """A rival may not be ahead for certain; stock must be behind for certain wherever writing is the load.

    Without an interval nothing is certain, and neither holds nor fails.
    """
    is_stock = question.variant == STOCK and is_writing
    target = "interval above 1" if is_stock else "interval not below 1"
    low, high = question.verdict.low_ratio, question.verdict.high_ratio
    # The question is of the other against derived: the ratio that is said is its inverse.
    holds = None if low is None or high is None else high < 0 if is_stock else low <= 0
    name = "".join(letter if letter.isalnum() else "_" for letter in question.variant)
    say_ratio(f"{prefix}.derived_to_{name}", question, target=target, holds=holds)


def say_ratio(figure: str, question: Question, *, target: str | None = None, holds: bool | None = None) -> None:
    verdict = question.verdict
    if verdict.effect_ratio is None:
        print(f"{figure}: no pair was run")
        return
    effect, low, high = (
        None if ratio is None or ratio <= -1 else 1 / (1 + ratio)
        for ratio in (verdict.effect_ratio, verdict.high_ratio, verdict.low_ratio)
    )
    if effect is not None:
        say(figure, effect, unit="ratio", n=verdict.n, low=low, high=high, target=target, holds=holds)


def choose_rivals(names: Sequence[str] | None, *, is_quick: bool) -> list[Rival]:
    known = {rival.name: rival for rival in read_rivals()}
    if names is None:
        return [] if is_quick else [rival for rival in known.values() if rival.is_usual]
    unknown = set(names) - set(known)
    if unknown:
        raise SystemExit(f"unknown rivals: {', '.join(unknown)}; known are {', '.join(known)}")
    return [known[name] for name in names]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a rough answer in about ten minutes")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path, help="where records are kept; what was broken off there goes on")
    parser.add_argument("--rivals", nargs="*", help="of rival_settings.toml, beside stock")
    parser.add_argument("--server", default="embedded", help="or the major version of an installed one")
    parser.add_argument("--no-kernel", action="store_true", help="leave the kernel's settings alone")
    parser.add_argument("--only-plan", action="store_true", help="print the settings and how long it would take")
    options = parser.parse_args()
    # The same way out as Ctrl-C: no server is left running.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    out = options.out or Path(tempfile.mkdtemp(prefix="pgdyno-tuning-", dir="/var/tmp"))
    out.mkdir(mode=0o755, parents=True, exist_ok=True)
    out.chmod(0o755)
    print(f"records go to {out}; what is broken off goes on with --out {out}", flush=True)
    machine = look_at(out / "home", options.server)
    if not machine.is_limited and {"cold", "beyond"} & set(options.part):
        print("no control group limits the memory: the kernel's cache keeps what cold and beyond have read once")
    rivals = choose_rivals(options.rivals, is_quick=options.quick)
    for rival in rivals:
        for name, why in keep_taken(rival.settings, machine.server)[1].items():
            print(f"{rival.name} without {name}: {why}")
    studies = {
        name: compose(machine, name, rivals, is_quick=options.quick, has_kernel=not options.no_kernel)
        for name in options.part
    }
    for name, (study, taken_s) in studies.items():
        print(f"{name}: at most {taken_s / 60:.0f} min, scale {study.data.scale}", flush=True)
        for variant in study.variant if options.only_plan else ():
            print(f"  {variant.name}: {variant.settings} {variant.sysctl}")
    print(f"all: at most {sum(taken_s for _, taken_s in studies.values()) / 60:.0f} min", flush=True)
    if options.only_plan:
        return
    for name, (study, _) in studies.items():
        print(f"{name}:", flush=True)
        try:
            run_part(machine, out / name, study, name)
        except PgdynoError as exc:
            raise SystemExit(f"{name}: {exc.fact}: {exc.detail}\n{exc.hint}") from exc
    for name in studies:
        say_part(RecordStore(out / name), name)


if __name__ == "__main__":
    main()
