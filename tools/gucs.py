"""Writes src/pgdyno/facts/gucs.json anew: what real servers of every supported version say of their settings.

    python -m tools.gucs                     asks the servers that the tests use, one of each major version
    python -m tools.gucs 18=/opt/pg18/bin    asks further builds, too; says where builds of one version disagree

Run it from the project's folder. Only what pg_settings and `postgres -C` say goes into the file; what pgdyno knows
beyond that stands in gucs.toml. A row that the builds of one version disagree on is the first build's.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from pgdyno.facts.versions import TRIED_MAJORS
from pgdyno.run.host import process
from pgdyno.run.postgres import sql
from tests.facts.clusters import Cluster, made_cluster
from tests.homes import reachable_folder

TARGET = Path("src/pgdyno/facts/gucs.json")
QUERY = """
SELECT name, context, vartype, unit, min_val, max_val, enumvals, boot_val, category, short_desc FROM pg_settings"""
# All that any enum takes without listing it: common spellings of booleans, and names of former versions.
# Source: PostgreSQL 18 src/backend/utils/misc/guc_tables.c and src/backend/access/rmgrdesc/xlogdesc.c, hidden entries.
UNLISTED = ("true", "false", "yes", "no", "1", "0", "debug", "info", "archive", "hot_standby")

Row = dict[str, Any]


def main(further: list[str]) -> None:
    """Ask every server, and write the file."""
    rows: dict[int, dict[str, Row]] = {}
    versions: dict[str, str] = {}
    for major in TRIED_MAJORS:
        with made_cluster(major) as cluster:
            versions[str(major)], rows[major] = ask(cluster)
    for text in further:
        major, _, bindir = text.partition("=")
        with cluster_of(Path(bindir)) as cluster:
            version, extra = ask(cluster)
        say_differences(version, extra, rows[int(major)])
        rows[int(major)] = extra | rows[int(major)]
    names = sorted({name for of_one in rows.values() for name in of_one}, key=str.lower)
    merged = [merge({major: rows[major][name] for major in rows if name in rows[major]}) for name in names]
    lines = ",\n".join(f"  {msgspec.json.encode(row).decode()}" for row in merged)
    TARGET.write_text(f'{{"servers": {msgspec.json.encode(versions).decode()},\n"settings": [\n{lines}\n]}}\n')


@contextlib.contextmanager
def cluster_of(bindir: Path) -> Iterator[Cluster]:
    """Make a cluster of the build in that folder."""
    with reachable_folder() as root:
        cluster = Cluster(bindir=bindir, root=root)
        shutil.chown(root, cluster.user.uid, cluster.user.gid)
        cluster.initdb()
        try:
            yield cluster
        finally:
            cluster.stop()


def ask(cluster: Cluster) -> tuple[str, dict[str, Row]]:
    """Read the server's version and its settings by name, in the form of the file, for this version only."""
    cluster.start()
    with sql.connect(cluster.address) as connection:
        version = connection.execute("SHOW server_version").fetchone()
        rows = connection.execute(QUERY).fetchall()
    cluster.stop()
    assert version is not None  # noqa: S101 - SHOW gives a row
    return version["server_version"], {row["name"]: shape(row, cluster) for row in rows}


def shape(row: Row, cluster: Cluster) -> Row:
    """Return a row of pg_settings as the file has it. A read-only setting has no limits: they would be its value."""
    number: Callable[[str], float] = int if row["vartype"] == "integer" else float
    has_limits = row["min_val"] is not None and row["context"] != "internal"
    is_settable_enum = row["vartype"] == "enum" and row["context"] != "internal"
    return {
        "name": row["name"],
        "context": row["context"],
        "vartype": row["vartype"],
        "unit": row["unit"],
        "min": number(row["min_val"]) if has_limits else None,
        "max": number(row["max_val"]) if has_limits else None,
        "values": row["enumvals"],
        "aliases": find_aliases(row, cluster) if is_settable_enum else None,
        "boot": row["boot_val"],
        "category": row["category"],
        "about": row["short_desc"],
    }


def find_aliases(row: Row, cluster: Cluster) -> dict[str, str] | None:
    """Find the words that an enum accepts without listing them, or as another name; each with its meaning."""
    name = row["name"]
    if name == "transaction_isolation":  # of a transaction; no server keeps it
        return None
    aliases = {}
    for word in (*row["enumvals"], *UNLISTED):
        argv = [str(cluster.bindir / "postgres"), "-D", str(cluster.root / "data"), "-c", f"{name}={word}", "-C", name]
        said = process.run(argv, user=cluster.user)
        meant = said.stdout.strip()
        if said.exit_code == 0 and (meant != word or word not in row["enumvals"]):
            aliases[word] = meant
    return aliases or None


def say_differences(version: str, extra: dict[str, Row], known: dict[str, Row]) -> None:
    """Print what a further build of a version says otherwise."""
    for name in sorted(extra.keys() ^ known.keys()):
        sys.stdout.write(f"{version}: {name} is {'new' if name in extra else 'missing'}\n")
    for name in sorted(extra.keys() & known.keys()):
        for key, value in extra[name].items():
            if value != known[name][key]:
                sys.stdout.write(f"{version}: {name}, {key}: {value!r} instead of {known[name][key]!r}\n")


def merge(by_major: dict[int, Row]) -> Row:
    """One row for all versions: a plain value where all agree, else one for each range of versions."""
    newest = by_major[max(by_major)]
    merged: Row = {"name": newest["name"]}
    if tuple(by_major) != TRIED_MAJORS:
        merged["versions"] = format_ranges(tuple(by_major))
    for key in ("context", "vartype", "unit", "min", "max", "values", "boot"):
        value = merge_values({major: row[key] for major, row in by_major.items()})
        if value is not None:
            merged[key] = value
    # No version took another's spelling for something else; categories and words were only rearranged.
    aliases = {word: value for row in by_major.values() for word, value in (row["aliases"] or {}).items()}
    words = {"aliases": aliases} if aliases else {}
    return merged | words | {"category": newest["category"], "about": newest["about"]}


def merge_values(by_major: dict[int, Any]) -> Any:
    """Return the value, or the values by ranges of versions."""
    groups: list[tuple[Any, list[int]]] = []
    for major, value in by_major.items():
        for known, majors in groups:
            if known == value:
                majors.append(major)
                break
        else:
            groups.append((value, [major]))
    if len(groups) == 1:
        return groups[0][0]
    return {format_ranges(tuple(majors)): value for value, majors in groups}


def format_ranges(majors: tuple[int, ...]) -> str:
    """Such as `15-17` or `16, 18`."""
    ranges: list[list[int]] = []
    for major in majors:
        if ranges and ranges[-1][-1] == major - 1:
            ranges[-1].append(major)
        else:
            ranges.append([major])
    return ", ".join(str(one[0]) if len(one) == 1 else f"{one[0]}-{one[-1]}" for one in ranges)


if __name__ == "__main__":
    main(sys.argv[1:])
