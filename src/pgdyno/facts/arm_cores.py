"""Name Arm cores, of which the kernel shows numbers only."""

from __future__ import annotations

import functools
import re

from pgdyno.facts.data_file import read_toml

_NUMBERS = re.compile(r"^CPU (?P<name>implementer|part)\s*: (?P<number>0x[0-9a-f]+)$", re.MULTILINE)


def name_arm_cores(cpuinfo: str) -> str | None:
    """Name the cores of a machine from its /proc/cpuinfo, each kind once: `Neoverse-V2`; None if they are no Arm cores.

    A core without a known name is called by its numbers.
    """
    numbers = [match.groups() for match in _NUMBERS.finditer(cpuinfo)]
    implementers = [number for name, number in numbers if name == "implementer"]
    parts = [number for name, number in numbers if name == "part"]
    cores = dict.fromkeys(zip(implementers, parts, strict=False))
    named = [_cores().get(maker, {}).get(part, f"Arm core {part} of implementer {maker}") for maker, part in cores]
    return " and ".join(named) or None


@functools.cache
def _cores() -> dict[str, dict[str, str]]:
    return read_toml("arm_cores.toml", dict[str, dict[str, str]])
