"""What limits a load, where it is known: planted causes on a real server, and loads of which nothing is wrong.

Each case is one short trial through the product's own run path, with a cause planted beside it or in what it asks for:

  slow flush        each flush takes some milliseconds longer (a preloaded shim; needs gcc)
  throttled disk    a loop device whose control group lets few writes through (blkio of cgroup v1, root)
  CPU quota         a control group with a part of one CPU (cpu of cgroup v1, root)
  tiny buffers      shared_buffers of 16 MB, the kernel's cache limited and few reads a second (blkio, memory, root)
  hot row           a script of one's own that has all clients update one row
  scale 1           tpcb-like at scale 1 with many clients
  starved load      pgbench alone in a control group with a part of one CPU (cpu, root)
  thinking clients  a script whose clients sleep between transactions
  checkpoint storm  max_wal_size so small that checkpoints follow each other, on a slow disk (blkio, root)
  dirty thresholds  vm.dirty_bytes very early, and very late: only with --kernel, because they are the whole machine's

Quiet cases draw load, mode and clients at random. What limits them is the machine: CPU, or flushes where they write. A
case is right when the first resource named is one that was planted; 'unknown' counts apart. A verdict on a quiet case
is false when it names anything but what such a load may show. With --blind each record is judged twice: as it is, and with
all that only the server's machine shows hidden, as at a server that a connection string names.

Usage: python benchmarks/causes.py [--quick] [--cases N] [--quiet N] [--server 15] [--only NAME ...] [--cpu N] [--kernel]
       [--keep DIR [--again]] [--blind]
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import os
import random
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from figures import say_share
from planted_causes import (
    Case,
    Place,
    Starving,
    draw_quiet,
    may_plant,
    mounted_loop,
    open_folder,
    plant_cases,
    quiet_case,
)

from pgdyno.analyse.study import analyse_study
from pgdyno.analyse.transaction_time.shares import Bottleneck, Resource
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.conduct.workspace import machine_of
from pgdyno.errors import PgdynoError
from pgdyno.plan.plan import plan_study
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.store import RecordStore, find_records
from pgdyno.record.trial_data import TrialData, read_trial_data
from pgdyno.record.types import FORMAT_VERSION, Gap, StudyRecord
from pgdyno.run.cluster.home import Home, open_home
from pgdyno.run.host.facts import read_host_facts
from pgdyno.run.host.process import find_server_user
from pgdyno.run.own_server import OwnServer
from pgdyno.run.postgres.installation import find_installation
from pgdyno.run.trial import run_trial
from pgdyno.run.trial_stage import TrialStage
from pgdyno.spec.read import format_study, make_study

DURATION_S, QUICK_DURATION_S = 15, 6
SERVERS: dict[str, dict[str, Any]] = {"18": {}, "15": {"kind": "local", "version": 15}}


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A case and how it is run."""

    case: Case
    number: int
    seed: int
    seconds: float
    server: str
    is_kept: bool


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What was said of a case."""

    case: str
    named: Resource | None
    is_right: bool
    is_quiet: bool

    @property
    def is_unknown(self) -> bool:
        """True if no resource was named."""
        return self.named in {None, Resource.UNKNOWN}

    @property
    def is_wrong(self) -> bool:
        """True if a resource was named that was not planted, or cannot limit a quiet load."""
        return not self.is_right and not self.is_unknown


class Bench:
    """A home on a disk, the machine, and where records go."""

    def __init__(self, home: Home, folder: Path) -> None:
        self.home = home
        self.host: HostFacts = read_host_facts(home.root)
        self.folder = folder

    def run(self, asked: Asked) -> tuple[RecordStore, StudyRecord]:
        """Run a case's trial into a record of its own."""
        case = asked.case
        study = make_study(compose(asked), source=case.name, folder=self.folder)
        installation = find_installation(study.server, user=self.home.user, software_dir=self.home.software)
        machine = machine_of(
            self.host, version_major=installation.facts.major, scales=frozenset({study.data.scale or 1})
        )
        plan = plan_study(study, machine)
        store = RecordStore(self.folder / f"{case.name.replace(' ', '-')}-{asked.server}-{asked.seed}")
        shutil.rmtree(store.path, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=self.folder) as outputs:
            server = OwnServer(installation=installation, home=self.home, port=study.server.port)
            dataset = server.load(
                study.data, plan.scale, settings={}, output_dir=Path(outputs), on_activity=lambda _: None
            )
        record = StudyRecord(
            format_version=FORMAT_VERSION,
            name=case.name,
            started_at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            command=("pgdyno",),
            tool_versions={},
            study=study,
            plan=plan,
            host=read_host_facts(self.home.root),
            server=installation.facts,
            dataset=dataset,
        )
        store.create(record, study_toml=format_study(study))
        stage = TrialStage(
            server=server,
            generator=server.make_generator(),
            dataset=dataset,
            study=study,
            plan=plan,
            settings=study.server.settings,
            cpu_count=self.host.usable_cpu_count,
            scripts=store.keep_scripts(plan),
        )
        (trial,) = plan.trials
        with contextlib.ExitStack() as stack:
            if case.plant is not None:
                stack.enter_context(
                    case.plant(Place(self.home.root, self.folder), random.Random(f"{case.name} {asked.seed}"))
                )
            starving = stack.enter_context(Starving(case.starves)) if case.starves else None
            done = run_trial(
                stage,
                trial,
                folder=store.begin_trial(1),
                on_activity=lambda _: None,
                on_load=lambda _: starving.catch() if starving is not None else None,
            )
        store.write_trial(done.record)
        if done.error is not None:
            print(f"  {done.error.fact}: {done.error.detail}", flush=True)
        return store, record


def compose(asked: Asked) -> dict[str, Any]:
    """The study of a case."""
    study = asked.case.study
    common: dict[str, Any] = {
        "data": {"scale": 20},
        "trials": {"rounds": 1, "duration": f"{asked.seconds:.0f}s", "warm_up": "2s", "seed": asked.seed},
    }
    return {**common, **study, "server": {**SERVERS[asked.server], **study.get("server", {})}}


@contextlib.contextmanager
def open_bench(folder: Path, *, on_loop: bool) -> Iterator[Bench]:
    """A bench on the folder's disk, or on one of its own in memory."""
    home = folder / "home"
    with contextlib.ExitStack() as stack:
        if on_loop:
            home = stack.enter_context(mounted_loop(folder)) / "home"
        with open_home(home, find_server_user()) as opened:
            yield Bench(opened, folder)


Answers = tuple[Answer, Answer | None]
"""What was said of a case, and what is said of it blindly if that was asked."""


def ask(bench: Bench, asked: Asked, *, is_blind: bool) -> Answers | None:
    try:
        store, record = bench.run(asked)
    except PgdynoError as exc:
        print(f"{asked.case.name} {asked.number}: {exc.fact}: {exc.detail}", flush=True)
        return None
    answers = judge(store, record, asked.case, is_blind=is_blind)
    if not asked.is_kept:
        shutil.rmtree(store.path)
    return answers


def judge(store: RecordStore, record: StudyRecord, case: Case, *, is_blind: bool) -> Answers:
    trials = [read_trial_data(store.trial_dir(trial.planned.number), trial) for trial in store.read_trials()]
    seen = judge_data(store, record, trials, case)
    if not is_blind:
        return seen, None
    unseen = msgspec.structs.replace(record, host=None)
    return seen, judge_data(store, unseen, [hide_machine(trial) for trial in trials], case)


def hide_machine(trial: TrialData) -> TrialData:
    """Leave what SQL and pgbench tell: what a role with pg_monitor has of a server whose machine nobody sees."""
    gaps = [Gap(source=source, reason="hidden") for source in ("os sampler", "server log")]
    # pgbench's machine is the user's own, wherever the server is.
    return msgspec.structs.replace(trial, os=None, generator=trial.os, log=(), gaps=(*trial.gaps, *gaps))


def judge_data(store: RecordStore, record: StudyRecord, trials: Sequence[TrialData], case: Case) -> Answer:
    (analysis,) = analyse_study(record, trials).workloads
    named = None if analysis.bottleneck is None else analysis.bottleneck.resource
    answer = Answer(case=case.name, named=named, is_right=named in case.right, is_quiet=case.is_quiet)
    words = f"{analysis.name} {analysis.load.mode.value} {analysis.load.clients} clients"
    mark = "" if answer.is_right else "   <-- "
    blindly = "" if record.host else ", blindly"
    print(f"{store.path.name} ({words}{blindly}): {describe(analysis.bottleneck, analysis)}{mark}", flush=True)
    return answer


def judge_again(folder: Path, *, is_blind: bool) -> list[Answers]:
    """Records that were kept, with what is right of each by its name and load."""
    planted = {case.name: case for case in plant_cases(random.Random(0))}
    answers = []
    for store in find_records(folder):
        if not store.finished_numbers():
            continue
        record = store.read_record()
        case = planted.get(record.name) or quiet_case(msgspec.to_builtins(record.study.workload[0]))
        answers.append(judge(store, record, case, is_blind=is_blind))
    return answers


def describe(found: Bottleneck | None, analysis: WorkloadAnalysis) -> str:
    trial = analysis.trials[0]
    shares = () if trial.time is None else trial.time.shares
    parts = ", ".join(f"{share.resource.value} {share.ratio:.0%}" for share in shares if share.ratio >= 0.03)
    verdict = "no verdict" if found is None else f"{found.resource.value} ({found.certainty.value})"
    return f"{verdict}; {trial.tps or 0:.0f} TPS; {parts}"


def say_answers(answers: Sequence[Answers]) -> None:
    say_of("causes", [seen for seen, _ in answers], right=">= 0.9", wrong=None)
    if blind := [unseen for _, unseen in answers if unseen is not None]:
        print("\nblindly:")
        say_of("causes.blind", blind, right=None, wrong="<= 0.05")


def say_of(name: str, answers: Sequence[Answer], *, right: str | None, wrong: str | None) -> None:
    for case in dict.fromkeys(answer.case for answer in answers):
        named = Counter("none" if a.named is None else a.named.value for a in answers if a.case == case)
        print(f"{case}: {', '.join(f'{what} {count}' for what, count in named.most_common())}")
    planted = [answer for answer in answers if not answer.is_quiet]
    quiet = [answer for answer in answers if answer.is_quiet]
    say_share(f"{name}.planted.named_first", [answer.is_right for answer in planted], target=right)
    say_share(f"{name}.planted.unknown", [answer.is_unknown for answer in planted])
    say_share(f"{name}.planted.wrong", [answer.is_wrong for answer in planted], target=wrong)
    say_share(f"{name}.quiet.false", [answer.is_wrong for answer in quiet], target="<= 0.05")
    say_share(f"{name}.quiet.unknown", [answer.is_unknown for answer in quiet])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one case of each cause, five quiet ones, short trials")
    parser.add_argument("--cases", type=int, help="of each cause [default: 5]")
    parser.add_argument("--quiet", type=int, help="quiet ones [default: 20]")
    parser.add_argument("--only", nargs="+", help="causes, by name; `quiet`")
    parser.add_argument("--seconds", type=float, help="of one trial")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server", choices=list(SERVERS), default="18")
    parser.add_argument("--cpu", type=int, help="keep to this CPU")
    parser.add_argument(
        "--kernel", action="store_true", help="also change the kernel's dirty thresholds, and put them back"
    )
    parser.add_argument(
        "--keep", type=Path, help="keep the records below this folder, and the loaded data for another time"
    )
    parser.add_argument("--again", action="store_true", help="judge what was kept there again, and run nothing")
    parser.add_argument("--blind", action="store_true", help="judge each with the server's machine hidden, too")
    options = parser.parse_args()
    if options.again:
        say_answers(judge_again(options.keep, is_blind=options.blind))
        return
    if options.cpu is not None:
        os.sched_setaffinity(0, {options.cpu})
    # The same way out as Ctrl-C: no server is left running.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    asked = draw_asked(options)
    left_out = sorted({one.case.name for one in asked if not may_plant(one.case, changes_kernel=options.kernel)})
    if left_out:
        print(f"left out, because nothing here lets them be planted: {', '.join(left_out)}")
    answers: list[Answers | None] = []
    with open_folder(options.keep) as folder:
        for on_loop in (False, True):
            own = [one for one in asked if one.case.on_loop is on_loop and one.case.name not in left_out]
            if own:
                with open_bench(folder, on_loop=on_loop) as bench:
                    answers += [ask(bench, one, is_blind=options.blind) for one in own]
    say_answers([answer for answer in answers if answer is not None])


def draw_asked(options: argparse.Namespace) -> list[Asked]:
    """What is run, in its order."""
    cases = options.cases if options.cases is not None else 1 if options.quick else 5
    quiet = options.quiet if options.quiet is not None else 5 if options.quick else 20
    drawn = [(case, n) for n in range(cases) for case in plant_cases(random.Random(f"{options.seed} {n}"))]
    draw = random.Random(f"quiet {options.seed}")
    drawn += [(draw_quiet(draw), number) for number in range(quiet)]
    return [
        Asked(
            case=case,
            number=number,
            seed=options.seed * 1000 + number,
            seconds=options.seconds or (QUICK_DURATION_S if options.quick else DURATION_S),
            server=options.server,
            is_kept=options.keep is not None,
        )
        for case, number in drawn
        if not options.only or case.name in options.only
    ]


if __name__ == "__main__":
    main()
