"""What makes a replica another server to read from than its primary."""

from __future__ import annotations

import msgspec
import pytest

from pgdyno.analyse.replicas import compare_with_primary
from pgdyno.record.machine.given_server import GivenServer, RoundTrip
from tests.given import SERVER

SYSTEM = "PostgreSQL 18.6 on x86_64-pc-linux-gnu, compiled by gcc 12, 64-bit"
PRIMARY = msgspec.structs.replace(
    SERVER, tls="TLSv1.3, TLS_AES_256_GCM_SHA384", system=SYSTEM, settings={"work_mem": "8192", "jit": "off"}
)


def compare(primary: GivenServer = PRIMARY, asked: tuple[str, ...] = (), **seen: object) -> list[tuple[str, str, str]]:
    replica = msgspec.structs.replace(PRIMARY, host="db2", is_in_recovery=True, **seen)
    return [(one.subject, one.first, one.other) for one in compare_with_primary(replica, primary, asked=asked)]


def test_a_replica_that_is_like_its_primary() -> None:
    # What a standby always has otherwise, and what changes no speed.
    others = {"transaction_read_only": "on", "log_line_prefix": "db2 ", "application_name": "x"}
    # What acts on a standby only, or on a primary only.
    others |= {"hot_standby_feedback": "on", "max_standby_streaming_delay": "-1", "maintenance_work_mem": "2097152"}
    others |= {"vacuum_cost_limit": "2000"}
    assert compare(settings={**PRIMARY.settings, **others}) == []  # type: ignore[dict-item]
    assert compare(version="18.6") == []


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({"version": "18.5"}, [("PostgreSQL", "18.6", "18.5")]),
        (
            {"system": SYSTEM.replace("x86_64", "aarch64")},
            [
                (
                    "platform and compiler",
                    "x86_64-pc-linux-gnu, compiled by gcc 12, 64-bit",
                    "aarch64-pc-linux-gnu, compiled by gcc 12, 64-bit",
                )
            ],
        ),
        (
            {"round_trip": RoundTrip(median_s=0.0005, n=400)},
            [("round trip", "0.08 ms", "0.5 ms")],
        ),
        (
            {"round_trip": RoundTrip(median_s=0.00001, n=400), "is_local": True},
            [],
        ),
        (
            {"round_trip": RoundTrip(median_s=0.00017, n=400)},
            [],
        ),
        ({"tls": None}, []),
        (
            {"is_encrypted": False, "tls": None},
            [("encryption of the connection", "TLSv1.3, TLS_AES_256_GCM_SHA384", "none")],
        ),
        # What one of them has not set is built in there; what decides most comes first.
        (
            {"settings": {"work_mem": "8192", "shared_buffers": "131072"}},
            [
                ("shared_buffers", "128MB", "1GB"),
                ("jit", "off", "on"),
            ],
        ),
    ],
)
def test_each_difference_is_told_with_the_value_of_the_primary_first(
    seen: dict[str, object], expected: list[tuple[str, str, str]]
) -> None:
    assert compare(**seen) == expected


def test_what_belongs_to_each_server_is_left_out() -> None:
    own = {
        "primary_conninfo": "(not recorded)",
        "data_directory": "/srv/b",
        "ssl_key_file": "/etc/b.key",
        "cluster_name": "b",
        "port": "5433",
        "restore_command": "fetch --key kanarienvogel",
        "acme.secret": "kanarienvogel",
    }
    assert compare(settings={**PRIMARY.settings, **own}) == []  # type: ignore[dict-item]


def test_what_all_sessions_ask_for_differs_nowhere() -> None:
    assert compare(settings={"jit": "off"}, asked=("work_mem",)) == []


def test_settings_that_one_did_not_show_are_not_taken_for_built_in_ones() -> None:
    assert compare(settings=None) == []
    assert compare(msgspec.structs.replace(PRIMARY, settings=None)) == []
