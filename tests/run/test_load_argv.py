from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from pgdyno.run.load.argv import InitRun, LoadRun, build_argv, build_init_argv
from pgdyno.run.postgres.address import Address
from pgdyno.spec.study import GenerateAt, PartitionMethod
from pgdyno.spec.table import QueryMode

GOLDEN = Path(__file__).parent.parent / "data" / "pgbench" / "expected"
ADDRESS = Address(host="/run/pgdyno", port=5432, user="pgdyno", dbname="pgdyno")
PLAIN = LoadRun(
    address=ADDRESS, scripts=(("tpcb-like", 1),), mode=QueryMode.SIMPLE, clients=8, threads=2, duration_s=30.0
)
FULL = msgspec.structs.replace(
    PLAIN,
    scripts=(("/record/script-1-pay@home.sql", 3), ("/record/script-2-look.sql", 1)),
    mode=QueryMode.PREPARED,
    rate_tps=1234.5678901,
    latency_limit_ms=20.5,
    max_tries=4,
    random_seed=2**31 - 1,
    scale=50,
    log_prefix=Path("/record/log"),
    sampling_rate=0.0625,
    reports_statements=False,
)
INIT = InitRun(address=ADDRESS, scale=50)


@pytest.mark.parametrize(
    ("name", "argv"),
    [
        ("argv-plain-15", build_argv(PLAIN, "/bin/pgbench", 15)),
        ("argv-plain-18", build_argv(PLAIN, "/bin/pgbench", 18)),
        ("argv-full-18", build_argv(FULL, "/bin/pgbench", 18)),
        ("argv-init", build_init_argv(INIT, "/bin/pgbench")),
        (
            "argv-init-full",
            build_init_argv(
                msgspec.structs.replace(
                    INIT,
                    fillfactor=80,
                    partitions=8,
                    partition_method=PartitionMethod.HASH,
                    foreign_keys=True,
                    generate=GenerateAt.SERVER,
                ),
                "/bin/pgbench",
            ),
        ),
    ],
)
def test_command_lines(name: str, argv: tuple[str, ...], golden: Callable[[Path, str], None]) -> None:
    golden(GOLDEN / f"{name}.txt", "\n".join(argv) + "\n")


@pytest.mark.parametrize("major", [15, 16])
def test_ending_with_the_first_aborted_client_is_asked_for_where_pgbench_can(major: int) -> None:
    older, newer = build_argv(PLAIN, "pgbench", major), build_argv(PLAIN, "pgbench", 17)
    assert set(newer) - set(older) == {"--exit-on-abort"}


def test_scale_is_left_to_pgbench_when_a_builtin_script_runs() -> None:
    mixed = msgspec.structs.replace(FULL, scripts=(*FULL.scripts, ("select-only", 2)))
    assert "--scale=50" in build_argv(FULL, "pgbench", 18)
    assert not any(argument.startswith("--scale") for argument in build_argv(mixed, "pgbench", 18))
