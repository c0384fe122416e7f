"""A stage for trials of a study on a server of pgdyno's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pgdyno.plan.plan import Plan
from pgdyno.run.cluster.home import Home
from pgdyno.run.own_server import OwnServer
from pgdyno.run.trial_stage import TrialStage
from pgdyno.spec.study import Study
from pgdyno.spec.table import SettingValue
from tests.homes import installation_of


def prepare_stage(
    home: Home,
    folder: Path,
    study: Study,
    plan: Plan,
    *,
    major: int = 18,
    settings: Mapping[str, SettingValue] | None = None,
    cpu_count: float = 2.0,
    standbys: int = 0,
    fails_over: bool = False,
) -> TrialStage:
    """Load the data of a study, into `init` below a folder what that prints, and return its stage; its settings are the study's by default."""
    (folder / "init").mkdir()
    server = OwnServer(installation=installation_of(major, home), home=home, standbys=standbys, fails_over=fails_over)
    dataset = server.load(study.data, plan.scale, settings={}, output_dir=folder / "init", on_activity=lambda _: None)
    return TrialStage(
        server=server,
        generator=server.make_generator(),
        dataset=dataset,
        study=study,
        plan=plan,
        settings=study.server.settings if settings is None else settings,
        cpu_count=cpu_count,
    )
