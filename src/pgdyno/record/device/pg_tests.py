"""Parse what pg_test_fsync and pg_test_timing of PostgreSQL 15 to 19 print.

Figures are the programs' own. A method that a platform or a file system lacks is kept as a line without figures. Groups
of tests that no known version has are left out. Output that is cut off is refused.
"""

from __future__ import annotations

import itertools
import re

from pgdyno.record.device.disk_card import ClockTest, FlushTest

# Source: PostgreSQL 15 to 18 src/bin/pg_test_fsync/pg_test_fsync.c: OPS_FORMAT, NA_FORMAT, and the headings of main().
_FIGURES = re.compile(r" +(?P<name>\S.*?) +(?P<ops>[0-9.]+) ops/sec +(?P<us>[0-9.]+) usecs/op")
_ABSENT = re.compile(r" +(?P<name>\S.*?) +n/a(?P<mark>\*?)")
_HEADING = re.compile(r"(?:Compare (?:file sync methods using )?|Test if )?(?P<group>\S.*?)(?: is honored)?:")
_DEFAULT = re.compile(r"preference order, except (?P<name>\w+) is Linux's default\)")
_EARLIER_GROUPS = (
    "one 8kB write",
    "two 8kB writes",
    "open_sync with different write sizes",
    "fsync on non-write file descriptor",
)
_GROUPS = (*_EARLIER_GROUPS, "Non-sync'ed 8kB writes")
_NO_DIRECT = "the file system refuses direct I/O"
# Source: PostgreSQL 15 to 18 src/bin/pg_test_timing/pg_test_timing.c, test_timing() and output().
# 19 counts in nanoseconds up to a bound (before: microseconds below one), adds a column of running percentages, and tests
# the system's clock first and then the CPU's counter; its output is of its manual's "pg_test_timing", not of a real 19.
_READ = re.compile(r"(?:Per|Average) loop time including overhead:\s+([0-9.]+) ns")
_COLUMNS = re.compile(r" +<=? (?P<unit>\w+) +% of total +(?:running % +)?count")
_COUNT = re.compile(r" +(?P<below>\d+) +[0-9.]+ +(?:[0-9.]+ +)?(?P<count>\d+)")


def parse_flush_tests(text: str) -> tuple[FlushTest, ...]:
    """Parse the lines of the known groups that pg_test_fsync printed.

    Raises:
        ValueError: The output is incomplete or not understood.
    """
    tests: list[FlushTest] = []
    group, default, last_group = "", None, ""
    for line in text.splitlines():
        if (heading := _HEADING.fullmatch(line)) is not None:
            group, default = heading["group"], None
        elif (said := _DEFAULT.search(line)) is not None:
            default = said["name"]
        elif (test := _parse_flush_test(line, group, default)) is not None:
            last_group = group
            if group in _GROUPS:
                tests.append(test)
    # A newer version may have another group at the end.
    if not tests or last_group in _EARLIER_GROUPS:
        raise ValueError("pg_test_fsync did not come to its end")
    return tuple(tests)


def parse_clock_test(text: str) -> ClockTest:
    """Parse what pg_test_timing printed about the system's clock: its first table.

    Raises:
        ValueError: The output is incomplete or not understood.
    """
    read, columns = _READ.search(text), _COLUMNS.search(text)
    if read is None or columns is None:
        raise ValueError("pg_test_timing did not come to its end")
    lines = text[columns.end() :].splitlines()[1:]
    rows = list(itertools.takewhile(lambda row: row is not None, map(_COUNT.fullmatch, lines)))
    counts = {row["below"]: int(row["count"]) for row in rows if row is not None}
    return ClockTest(read_ns=float(read[1]), counts=counts, unit=columns["unit"])


def _parse_flush_test(line: str, group: str, default: str | None) -> FlushTest | None:
    """Parse one line of a table; return None for any other line."""
    if (match := _FIGURES.fullmatch(line)) is not None:
        name, ops, us = match.groups()
        return FlushTest(group=group, name=name, ops_per_s=float(ops), op_us=float(us), is_default=name == default)
    if (absent := _ABSENT.fullmatch(line)) is not None:
        remark = _NO_DIRECT if absent["mark"] else "this platform has no such method"
        return FlushTest(group=group, name=absent["name"], ops_per_s=None, op_us=None, remark=remark)
    return None
