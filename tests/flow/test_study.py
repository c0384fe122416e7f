"""Which machine a record may go on on."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pgdyno.conduct.machine import check_same
from pgdyno.errors import HostError
from pgdyno.run.postgres.installation import Installation
from tests.report.build import build_report


def test_a_machine_with_a_new_name_is_the_same_and_one_with_another_cpu_is_not() -> None:
    record = build_report().record
    named = msgspec.structs.replace(record, host=msgspec.structs.replace(record.host, host_name="alpha"))
    installation = Installation(bindir=Path("/"), facts=record.server)
    for now in (record.host, named.host, msgspec.structs.replace(record.host, host_name="beta")):
        check_same(named, now, installation)
    other = msgspec.structs.replace(named.host, cpu_model="another")
    with pytest.raises(HostError, match="another machine"):
        check_same(named, other, installation)
