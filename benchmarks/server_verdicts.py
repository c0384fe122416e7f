"""Asks a real server questions whose answer is known, through the whole pipeline: study, plan, experiment, record, verdict.

Identical variants: two names for the same settings, on workloads, query modes and servers drawn at random; switchbacks
of one block of 25 s, paired trials of 3 s, and live pairs with 2 s of load for each server. A verdict of faster or slower is false there. Planted truths are in
planted_truths.py. No report is written; all else is as for users.

Every answer becomes a line of DIR/PART/answers.jsonl as soon as it is there, and a question that has its answer is not
asked again: what was broken off goes on with the same --out. Records of false verdicts and of failures are kept beside
it. Parts may run at the same time, each with a server of its own: on two CPUs they are one another's noise.
"""

from __future__ import annotations

import argparse
import datetime as dt
import random
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
from figures import say, say_share

from pgdyno.analyse.comparison.answers import Question
from pgdyno.analyse.comparison.final_look import LookPlace
from pgdyno.analyse.comparison.verdict import VerdictKind, decide_family
from pgdyno.analyse.study import analyse_study
from pgdyno.conduct.experiment import run_experiment
from pgdyno.conduct.workspace import machine_of
from pgdyno.errors import InterruptedStudyError, PgdynoError
from pgdyno.facts.metrics import find_metric
from pgdyno.plan.experiment import reference_server
from pgdyno.plan.plan import BYTES_PER_SCALE, CHECK_S, REPORT_S, Plan, plan_study
from pgdyno.record.durable import write_durably
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.store import RecordStore
from pgdyno.record.trial_data import TrialData, read_trial_data
from pgdyno.record.types import FORMAT_VERSION, Dataset, StudyRecord
from pgdyno.run.cluster.home import Home, open_home
from pgdyno.run.host.facts import read_host_facts
from pgdyno.run.host.process import find_server_user
from pgdyno.run.own_server import OwnServer
from pgdyno.run.postgres.installation import Installation, find_installation
from pgdyno.spec.read import format_study, make_study
from pgdyno.spec.study import Study
from pgdyno.spec.variant import DesignKind

SERVERS: dict[str, dict] = {"18": {}, "15": {"kind": "local", "version": 15}}
SCALES = {DesignKind.SWITCHBACK: 5, DesignKind.PAIRED: 2, DesignKind.LIVE: 2}
"""Also the clients."""
BLOCK_S = 25.0
ROUNDS = 6
TRIAL_S = {DesignKind.SWITCHBACK: 3, DesignKind.PAIRED: 3, DesignKind.LIVE: 2}
"""A trial must hold a whole second of the clock to have a figure; with connecting, two seconds may not."""
WARM_UP_S = 1
SWITCHBACK_SHARE = 0.6
FALSE = frozenset({VerdictKind.FASTER, VerdictKind.SLOWER, VerdictKind.MORE, VerdictKind.LESS})
TARGET_RATIO = 0.05


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """What was said of one metric; `decided_after_s` is the load it took from its beginning, None while undecided."""

    verdict: VerdictKind
    effect_ratio: float | None
    low_ratio: float | None
    high_ratio: float | None
    n: int
    pair_sd: float | None
    decided_after_s: float | None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a question: a line of the file of answers.

    `noise` is the reference against itself; `error` says why there is neither.
    """

    name: str
    subject: str
    words: str
    design: DesignKind
    metrics: dict[str, Metric]
    noise: dict[str, Metric]
    announced_s: float
    """That the whole question may take, and how long the trials that were run may."""
    announced_trials_s: float
    taken_s: float
    trials_s: float
    slice_s: float | None
    begun_at: str
    error: str | None = None

    @property
    def tps(self) -> Metric | None:
        """The metric that decides."""
        return self.metrics.get("tps")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A question before it is asked; `raw` is its study."""

    name: str
    subject: str
    words: str
    raw: dict


class Silent:
    """A `flow.ui.Ui` that says nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class Bench:
    """A home, its loaded data, and one part's folder."""

    def __init__(self, home: Home, host: HostFacts, folder: Path) -> None:
        self.home = home
        self.host = host
        self.folder = folder

    def find(self, study: Study) -> Installation:
        """The PostgreSQL of a study."""
        return find_installation(reference_server(study), user=self.home.user, software_dir=self.home.software)

    def prepare(self, study: Study) -> tuple[Plan, OwnServer, Dataset]:
        """Load what a study wants, unless it lies there, and plan it as one whose data lie loaded."""
        installation = self.find(study)
        scale = study.data.scale or 1
        with tempfile.TemporaryDirectory(dir=self.folder) as outputs:
            server = OwnServer(installation=installation, home=self.home, port=study.server.port)
            dataset = server.load(study.data, scale, settings={}, output_dir=Path(outputs), on_activity=lambda _: None)
        loaded = frozenset({scale})
        machine = machine_of(self.host, version_major=installation.facts.major, scales=loaded)
        return plan_study(study, machine), server, dataset

    def ask(self, asked: Asked) -> Answer:
        """Run a question's whole experiment; its record goes, unless there is something to look into."""
        study = make_study(asked.raw, source=asked.name, folder=Path(__file__).parent)
        plan, _, _ = self.prepare(study)
        assert plan.experiment is not None
        record = StudyRecord(
            format_version=FORMAT_VERSION,
            name=asked.name,
            started_at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            command=("benchmarks/verdicts.py",),
            tool_versions={},
            study=study,
            plan=plan,
            host=self.host,
            server=self.find(study).facts,
            dataset=None,
        )
        store = RecordStore(self.folder / "records" / asked.name)
        shutil.rmtree(store.path, ignore_errors=True)
        store.create(record, study_toml=format_study(study))
        began_s, error = time.monotonic(), None
        try:
            run_experiment(store, tuned=None, home=self.home, load=None, ui=Silent())
        except InterruptedStudyError:
            raise SystemExit(f"stopped in {asked.name}; the same --out goes on") from None
        except PgdynoError as exc:
            error = f"{exc.fact}: {exc.detail}"
        answer = describe(asked, store, taken_s=time.monotonic() - began_s, error=error)
        if error is None and not (asked.subject in IDENTICAL and is_false(answer)):
            shutil.rmtree(store.path)
        return answer


def describe(asked: Asked, store: RecordStore, *, taken_s: float, error: str | None) -> Answer:
    """The answer as it stands in a finished record."""
    record = store.read_record()
    trials = [read_trial_data(store.trial_dir(trial.planned.number), trial) for trial in store.read_trials()]
    comparison = analyse_study(record, trials).comparisons[0]
    start_s = trials[0].record.load_start_monotonic_s if trials else None
    numbers = {data.record.planned.number for data in trials}
    steps = [step for step in record.plan.steps if step.trial is not None and step.trial.number in numbers]
    return Answer(
        name=asked.name,
        subject=asked.subject,
        words=asked.words,
        design=record.plan.experiment.design,
        metrics={question.metric: describe_metric(question, start_s) for question in comparison.questions},
        noise={question.metric: describe_metric(question, start_s) for question in comparison.noise},
        announced_s=record.plan.predicted_s,
        announced_trials_s=sum(step.predicted_s for step in steps),
        taken_s=taken_s,
        trials_s=sum(map(measure_trial_s, trials)),
        slice_s=trials[0].record.slice_s if trials else None,
        begun_at=record.started_at,
        error=error,
    )


def describe_metric(question: Question, start_s: float | None) -> Metric:
    verdict = question.verdict
    return Metric(
        verdict=verdict.kind,
        effect_ratio=verdict.effect_ratio,
        low_ratio=verdict.low_ratio,
        high_ratio=verdict.high_ratio,
        n=verdict.n,
        pair_sd=statistics.stdev(question.log_ratios) if verdict.n > 1 else None,
        decided_after_s=find_decided_s(question, start_s),
    )


def find_decided_s(question: Question, start_s: float | None) -> float | None:
    """Seconds from the beginning of the first load to the first look at which the metric was decided as in the end."""
    if start_s is None or not question.verdict.is_decided:
        return None
    verdict = question.verdict
    for n in range(1, verdict.n + 1):
        place = LookPlace(looked=verdict.looked if n >= verdict.looked else 0)
        (look,) = decide_family(
            {question.variant: question.log_ratios[:n]},
            metric=question.metric,
            better=find_metric(question.metric).better,
            alpha=1.0 - verdict.confidence,
            delta_ratio=verdict.delta_ratio,
            places=None if verdict.final_look is msgspec.UNSET else {question.variant: place},
        )
        if look.kind is verdict.kind:
            return question.at_s[n - 1] - start_s
    return None


def measure_trial_s(data: TrialData) -> float:
    """Restoring, warm-up and load; a block that ended early counts as what it took."""
    record = data.record
    if record.load_start_monotonic_s is None or record.load_end_monotonic_s is None:
        return 0.0
    return record.restore_s + record.planned.warm_up_s + record.load_end_monotonic_s - record.load_start_monotonic_s


def is_false(answer: Answer) -> bool:
    return answer.tps is not None and answer.tps.verdict in FALSE


IDENTICAL = ("switchback", "paired", "live")


def draw_identical(design: DesignKind, count: int, seed: int) -> list[Asked]:
    """Questions about identical variants, written differently, so that all is done that a difference would need."""
    draw = random.Random(f"{design.value} {seed}")
    scale = SCALES[design]
    trial_s = TRIAL_S[design]
    overhead_s = scale * BYTES_PER_SCALE / 8e8 + 3.0 + WARM_UP_S
    load_s = BLOCK_S + overhead_s if design is DesignKind.SWITCHBACK else ROUNDS * 3 * (trial_s + overhead_s) + 1.0
    # Frozen servers would count the time of a deadlock.
    alike = ("work_mem", "4MB", "4096kB") if design is DesignKind.LIVE else ("deadlock_timeout", "1s", "1000ms")
    experiment = {"design": design, "minutes": (CHECK_S + REPORT_S + load_s) / 60.0}
    drawn = []
    for number in range(1, count + 1):
        workload, mode = draw.choice(["tpcb-like", "select-only"]), draw.choice(["simple", "prepared"])
        server, own_seed, slice_s = draw.choice(list(SERVERS)), draw.randrange(2**31), draw.choice(["0.25s", "0.5s"])
        extra = {"slice": slice_s} if design is DesignKind.SWITCHBACK else {}
        words = " ".join([workload, mode, server, *extra.values()])
        raw = {
            "server": SERVERS[server],
            "data": {"scale": scale},
            "workload": [{"name": workload, "mode": mode, "clients": scale}],
            "trials": {"duration": f"{trial_s}s", "warm_up": f"{WARM_UP_S}s", "seed": own_seed},
            "experiment": {**experiment, **extra},
            "variant": [
                {"name": "one", "settings": {alike[0]: alike[1]}},
                {"name": "other", "settings": {alike[0]: alike[2]}},
            ],
        }
        drawn.append(Asked(name=f"{design.value}-{seed}-{number}", subject=design.value, words=words, raw=raw))
    return drawn


class Answers:
    """The answers of a part so far, in a file that is always whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_bytes().splitlines() if path.exists() else []
        self.all = [msgspec.json.decode(line, type=Answer) for line in lines]

    def add(self, answer: Answer) -> None:
        """Keep one more."""
        self.all.append(answer)
        write_durably(self._path, b"".join(msgspec.json.encode(each) + b"\n" for each in self.all))


def ask_all(bench: Bench, questions: Sequence[Asked], answers: Answers) -> None:
    """Ask what has no answer yet, with a line for each and how long the rest will take."""
    known = {answer.name for answer in answers.all}
    todo = [asked for asked in questions if asked.name not in known]
    took_s: list[float] = []
    for number, asked in enumerate(todo, start=1):
        began_s = time.monotonic()
        answer = bench.ask(asked)
        answers.add(answer)
        took_s.append(time.monotonic() - began_s)
        left_s = statistics.fmean(took_s) * (len(todo) - number)
        print(
            f"{asked.name} ({asked.words}): {show(answer)}; {took_s[-1]:.0f} s, {left_s / 60:.0f} min left", flush=True
        )


def show(answer: Answer) -> str:
    if answer.tps is None or answer.tps.low_ratio is None:
        return answer.error or "no interval"
    tps = answer.tps
    effect = " ".join(f"{ratio:+.1%}" for ratio in (tps.effect_ratio, tps.low_ratio, tps.high_ratio))
    return f"{tps.verdict.value} {effect} ({tps.n} pairs)" + (f", {answer.error}" if answer.error else "")


@contextmanager
def open_bench(folder: Path) -> Iterator[Bench]:
    """A bench in a part's folder; its home goes when it ends, its answers stay."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    root = folder / "home"
    with open_home(root, find_server_user()) as home:
        yield Bench(home, read_host_facts(home.root), folder)
    shutil.rmtree(root)


def measure_on_server(options: argparse.Namespace) -> None:
    """Ask what is left of the parts, then say the figures of all that was answered."""
    from planted_truths import ask_planted, say_planted

    # The same way out as Ctrl-C: no server is left running.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    out = options.out or Path(tempfile.mkdtemp(prefix="pgdyno-verdicts-", dir="/var/tmp"))
    out.mkdir(parents=True, exist_ok=True)
    out.chmod(0o755)
    print(f"answers go to {out}; what is broken off goes on with --server --out {out}", flush=True)
    switchbacks = round(options.questions * SWITCHBACK_SHARE)
    counts = {
        DesignKind.SWITCHBACK: switchbacks,
        DesignKind.PAIRED: options.questions - switchbacks,
        DesignKind.LIVE: options.questions,
    }
    for design, count in counts.items():
        if design.value in options.part and count:
            with open_bench(out / design.value) as bench:
                ask_all(
                    bench, draw_identical(design, count, options.seed), Answers(out / design.value / "answers.jsonl")
                )
    if "planted" in options.part and options.planted:
        with open_bench(out / "planted") as bench:
            ask_planted(bench, options.planted, options.seed, Answers(out / "planted" / "answers.jsonl"))
    identical = [a for design in counts for a in Answers(out / design.value / "answers.jsonl").all]
    say_identical(identical)
    say_planted(Answers(out / "planted" / "answers.jsonl").all, out / "planted")


def say_identical(answers: Sequence[Answer]) -> None:
    asked = {answer.subject for answer in answers}
    for design in (*IDENTICAL, *(["all"] if len(asked) > 1 else [])):
        own = [answer for answer in answers if design in {answer.subject, "all"}]
        answered = [answer for answer in own if answer.tps is not None and answer.tps.n > 0]
        if not answered:
            continue
        name = f"verdicts.server.identical.{design}"
        say_share(f"{name}.false", [is_false(answer) for answer in answered], target=f"<= {TARGET_RATIO}")
        for metric in sorted({metric for answer in answered for metric in answer.metrics} - {"tps"}):
            said = [answer.metrics[metric].verdict in FALSE for answer in answered if metric in answer.metrics]
            say_share(f"{name}.false.{metric}", said)
        itself = [answer.noise["tps"].verdict in FALSE for answer in answered if "tps" in answer.noise]
        say_share(f"{name}.false.reference_against_itself", itself)
        equivalent = [answer.tps.verdict is VerdictKind.EQUIVALENT for answer in answered]
        say_share(f"{name}.equivalent", equivalent)
        say_share(f"{name}.failed", [answer.error is not None for answer in own])
        spreads = [answer.tps.pair_sd for answer in answered if answer.tps.pair_sd is not None]
        say_quantiles(f"{name}.pair_sd", spreads, unit="ratio")
        say_quantiles(f"{name}.pairs", [answer.tps.n for answer in answered], unit="count")
        for what, taken, announced in (
            ("taken", [a.taken_s for a in answered], [a.announced_s for a in answered]),
            ("trials_taken", [a.trials_s for a in answered], [a.announced_trials_s for a in answered]),
        ):
            ratios = [one / other for one, other in zip(taken, announced, strict=True)]
            say_quantiles(f"{name}.{what}_to_announced", ratios, unit="ratio")


def say_quantiles(name: str, values: Sequence[float], *, unit: str) -> None:
    """The median, with the middle 95 % of what was seen in place of an interval."""
    if values:
        low, median, high = (float(value) for value in np.quantile(values, [0.025, 0.5, 0.975]))
        say(f"{name}.median_and_middle_95", median, low=low, high=high, unit=unit, n=len(values))
