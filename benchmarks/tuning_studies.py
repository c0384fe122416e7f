"""The studies of tuning.py: which variants on which data, under which load, for a machine of which size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rivals import Rival, keep_taken

from pgdyno.conduct.cards.known import find_cards, with_cards
from pgdyno.conduct.workspace import machine_of
from pgdyno.facts.gucs import find_guc, read_value
from pgdyno.plan.plan import BYTES_PER_SCALE, plan_study
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.types import ServerFacts
from pgdyno.run.cluster.home import open_home
from pgdyno.run.host.process import find_server_user
from pgdyno.run.host.tunables import read_tunables
from pgdyno.run.postgres.installation import find_installation
from pgdyno.spec.read import make_study
from pgdyno.spec.study import ServerSpec, Study
from pgdyno.spec.table import SettingValue, check_setting_name
from pgdyno.tune.derive import derive
from pgdyno.tune.subject import LoadHints, make_subject
from pgdyno.tune.types import DerivedSettings, Known, Origin, Target, TuningSubject, WorkloadClass

GB = 2**30
CLIENTS = 16
DERIVED, STOCK = "derived", "stock"
SIZES = {"24GB": 24 * GB, "4GB": 4 * GB, "1GB": GB}
"""That rival_settings.toml has values for."""
SMALLER = "1GB"
"""The machine that `cold` and `beyond` are for: its caches are warm again after a fifth of a trial."""
NEAR = 1.3
"""A machine so many times larger or smaller is still of a size."""
SHORTEST_TIMEOUT_S = 30
"""Of checkpoints: PostgreSQL takes no shorter one."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One workload, at its full length and quickly; seconds, and units of pgbench's scale."""

    script: str
    workload: WorkloadClass
    is_cold: bool
    data_to_memory: float | None
    """None: `scale`."""
    scale: tuple[int, int]
    duration_s: tuple[int, int]
    rounds: tuple[int, int]
    is_writing: bool = True


PARTS = {
    "memory": Part(
        script="tpcb-like",
        workload=WorkloadClass.OLTP_WRITE,
        is_cold=False,
        data_to_memory=None,
        scale=(200, 20),
        duration_s=(60, 6),
        rounds=(12, 5),
    ),
    "update": Part(
        script="simple-update",
        workload=WorkloadClass.OLTP_WRITE,
        is_cold=False,
        data_to_memory=None,
        scale=(200, 20),
        duration_s=(60, 6),
        rounds=(12, 5),
    ),
    "cold": Part(
        script="tpcb-like",
        workload=WorkloadClass.OLTP_WRITE,
        is_cold=True,
        data_to_memory=1.0,
        scale=(0, 0),
        duration_s=(100, 8),
        rounds=(12, 5),
    ),
    "beyond": Part(
        script="select-only",
        workload=WorkloadClass.OLTP_READ,
        is_cold=True,
        data_to_memory=2.0,
        scale=(0, 0),
        duration_s=(60, 6),
        rounds=(10, 5),
        is_writing=False,
    ),
}


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Where this runs, and what of it settings are derived from."""

    home: Path
    spec: ServerSpec
    server: ServerFacts
    host: HostFacts

    @property
    def is_limited(self) -> bool:
        """Whether a control group keeps memory from us."""
        limit = self.host.memory_limit_bytes
        return limit is not None and limit < self.host.memory_bytes


def look_at(home: Path, server: str) -> Machine:
    spec = (
        ServerSpec() if server == "embedded" else msgspec.convert({"kind": "local", "version": int(server)}, ServerSpec)
    )
    user = find_server_user()
    with open_home(home, user) as opened:
        facts = find_installation(spec, user=user, software_dir=opened.software).facts
        host = read_tunables(opened.root).host
    return Machine(home=home, spec=spec, server=facts, host=host)


def subject_of(machine: Machine, part: Part, *, memory_bytes: float | None, dataset_bytes: float) -> TuningSubject:
    """What the settings of a part are derived for; `memory_bytes` where the machine is taken to be smaller than it is."""
    wishes = LoadHints(workload=part.workload, dataset_bytes=dataset_bytes, active=CLIENTS)
    seen = read_tunables(machine.home)
    subject = with_cards(make_subject(seen, machine.server, wishes), find_cards(machine.home, seen), is_here=True)
    if memory_bytes is None:
        return subject
    how = "the smaller machine of this benchmark"
    memory = Known(name="memory", value=memory_bytes, unit="bytes", origin=Origin.DECLARED, how=how)
    return msgspec.structs.replace(subject, memory=memory)


def find_size(memory_bytes: float) -> str:
    """The size that a machine is of."""
    size = min(SIZES, key=lambda each: abs(math.log(SIZES[each] / memory_bytes)))
    if not 1 / NEAR <= SIZES[size] / memory_bytes <= NEAR:
        raise SystemExit(f"no rival's values are known for {memory_bytes / GB:.1f} GB: {', '.join(SIZES)}")
    return size


def choose_size(machine: Machine, part: Part) -> tuple[str, float | None]:
    """The size whose values a part takes, and the memory that is taken in place of the machine's own."""
    if part.data_to_memory is None or machine.is_limited:
        return find_size(machine.host.usable_memory_bytes), None
    return SMALLER, SIZES[SMALLER]


def compose(
    machine: Machine, name: str, rivals: Sequence[Rival], *, is_quick: bool, has_kernel: bool
) -> tuple[Study, float]:
    """The study of a part, and the seconds that it may take."""
    part = PARTS[name]
    size, memory_bytes = choose_size(machine, part)
    scale = part.scale[is_quick] or round(SIZES[size] * (part.data_to_memory or 0) / BYTES_PER_SCALE)
    subject = subject_of(machine, part, memory_bytes=memory_bytes, dataset_bytes=scale * BYTES_PER_SCALE)
    variants = [variant_of(derive(subject)), {"name": STOCK, "settings": {}, "sysctl": {}}]
    for rival in rivals:
        settings, _ = keep_taken(rival.settings_at(size), machine.server)
        variants.append({"name": rival.name, "settings": settings, "sysctl": dict(rival.sysctl)})
    duration_s = part.duration_s[is_quick]
    for variant in variants:
        variant["sysctl"] = keep_kernel(variant["sysctl"], machine) if has_kernel else {}
        if part.is_cold and part.is_writing:
            cap_timeout(variant["settings"], duration_s, machine.server.major)
    warm_up_s = 0 if part.is_cold else (1 if is_quick else 10)
    raw = {
        "question": f"{part.script}, {name}: derived settings, or others?",
        "server": msgspec.to_builtins(machine.spec),
        "data": {"scale": scale},
        "workload": [{"name": part.script, "mode": "prepared", "clients": CLIENTS}],
        "trials": {
            "duration": f"{duration_s}s",
            "warm_up": f"{warm_up_s}s",
            "cache": "cold" if part.is_cold else "warm",
        },
        "variant": variants,
        "experiment": {"design": "paired"},
    }
    # More questions take a round more before the first of them can be decided.
    rounds = part.rounds[is_quick] + (len(variants) > 2)
    return take_time(make_study(raw, source=f"tuning.{name}", folder=Path(__file__).parent), machine, rounds)


def take_time(study: Study, machine: Machine, rounds: int) -> tuple[Study, float]:
    """The study with time for so many rounds, and the seconds that they take."""
    plan = plan_study(study, machine_of(machine.host, version_major=machine.server.major))
    trials_s = [step.predicted_s for step in plan.steps if step.trial is not None]
    taken_s = plan.predicted_s - sum(trials_s) + rounds * (len(study.variant) + 1) * max(trials_s)
    experiment = msgspec.structs.replace(study.experiment, minutes=math.ceil(taken_s / 15) / 4)
    return msgspec.structs.replace(study, experiment=experiment), taken_s


def variant_of(tuning: DerivedSettings) -> dict:
    """The derived settings as a variant; pgdyno's clusters keep where they listen and log to themselves."""
    settings: dict[str, SettingValue] = {}
    for derived in tuning.of(Target.POSTGRESQL):
        try:
            check_setting_name(derived.name)
        except ValueError:
            continue
        settings[derived.name] = derived.value
    return {
        "name": DERIVED,
        "settings": settings,
        "sysctl": {derived.name: derived.value for derived in tuning.of(Target.SYSCTL)},
    }


def keep_kernel(sysctl: dict[str, str], machine: Machine) -> dict[str, str]:
    """The kernel's settings that a variant may have here."""
    left_alone = ["overcommit", *(["hugepages"] if machine.is_limited else [])]
    return {name: value for name, value in sysctl.items() if not any(word in name for word in left_alone)}


def cap_timeout(settings: dict[str, SettingValue], duration_s: float, major: int) -> None:
    """Let a checkpoint begin in every third of a trial, at the latest."""
    guc = find_guc("checkpoint_timeout", major)
    assert guc is not None
    longest_s = max(SHORTEST_TIMEOUT_S, int(duration_s / 3) - 5)
    if float(read_value(guc, str(settings.get(guc.name, "5min")))) > longest_s:
        settings[guc.name] = f"{longest_s}s"
