"""`pgdyno compare` and `pgdyno sweep`: what was said on the command line becomes a study with variants or axes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from pgdyno.errors import SpecError
from pgdyno.flow.bench import workload_tables
from pgdyno.spec.read import make_study
from pgdyno.spec.study import Study

# Trials of a restart-only comparison: many short ones, because a longer one does not repeat itself any better.
_TRIALS = {"duration": "10s", "warm_up": "3s"}
_DEFAULT_WORKLOAD = "tpcb-like"
_STOCK = "stock"
_AXIS = re.compile(r"(?P<name>[A-Za-z_][\w./]*)=(?P<levels>.+)")
_RANGE = re.compile(r"(?P<first>\d+)\.\.(?P<last>\d+)")
# A line of postgresql.conf. Source: PostgreSQL 18 manual, 20.1.2.
_CONF_LINE = re.compile(r"(?P<name>[A-Za-z_][\w.$]*)\s*(?:=\s*|\s)\s*(?P<value>'(?:[^']|'')*'|[^\s#']+)\s*(?:#.*)?")


def compose_comparison(
    *,
    variants: Sequence[str],
    varied: dict[str, list[str]],
    workloads: list[str],
    load: dict[str, object],
    tables: dict[str, dict[str, object]],
    folder: Path,
) -> Study:
    """The study that `compare` asks for.

    Args:
        variants: `stock` or files with settings, as in postgresql.conf.
        varied: What options say of the variants: `set` (`name=value`, several in one text), `sysctl`, `server`, `mode`,
            `clients`, `scale`. An option given several times makes a variant of each; given once, it holds for all,
            but for a single `set` or `sysctl`, which is compared with the server as it is.
        workloads: Built-in names or script files.
        load: Keys that hold for each workload.
        tables: The tables `server`, `data`, `trials` and `experiment`, as far as they were given.
        folder: Where files are looked up.

    Raises:
        SpecError: Something in it is not understood, or there is nothing to compare.
    """
    several = {name: values for name, values in varied.items() if len(values) > 1}
    if len(several) + bool(variants) > 1:
        said = " and ".join([*(f"--{name}" for name in several), *(["variants"] if variants else [])])
        raise SpecError(
            f"{said} vary at once",
            detail="each would make variants of its own",
            hint="vary one of them; `pgdyno sweep` takes two axes, a study file any variants",
        )
    made = [_read_variant(text, folder) for text in variants] or _vary(several, varied)
    fixed = {name: values[0] for name, values in varied.items() if len(values) == 1 and name in {"mode", "clients"}}
    raw = _base(workloads, {**load, **fixed}, tables)
    if len(varied.get("server", ())) == 1:
        made = [{**variant, "server": varied["server"][0]} for variant in made]
    if len(varied.get("scale", ())) == 1:
        raw["data"] = _typed({**tables["data"], "scale": varied["scale"][0]})
    if variants and varied.get("set"):
        raw["server"] = {**tables["server"], "settings": _parse_pairs("--set", varied["set"][0])}
    question = "Which is faster: " + ", ".join(_title(variant) for variant in made) + "?"
    raw |= {"question": question, "variant": [_typed(variant) for variant in made]}
    return make_study(raw, source="the command line", folder=folder)


def compose_sweep(
    *,
    axes: Sequence[str],
    workloads: list[str],
    load: dict[str, object],
    tables: dict[str, dict[str, object]],
    folder: Path,
) -> Study:
    """The study that `sweep` asks for.

    Args:
        axes: One or two of `name=level,level,...` or `name=first..last`, which doubles from level to level.
        workloads: Built-in names or script files.
        load: Keys that hold for each workload.
        tables: As for `compose_comparison`.
        folder: Where files are looked up.

    Raises:
        SpecError: Something in it is not understood.
    """
    sweeps = [_read_axis(text) for text in axes]
    raw = _base(workloads, load, tables)
    names = " and ".join(str(axis["name"]) for axis in sweeps)
    raw |= {"question": f"What does {names} do?", "sweep": sweeps}
    return make_study(raw, source="the command line", folder=folder)


def _base(workloads: list[str], load: dict[str, object], tables: dict[str, dict[str, object]]) -> dict[str, object]:
    named = workload_tables(workloads or [_DEFAULT_WORKLOAD])
    return {
        "server": tables["server"],
        "data": tables["data"],
        "workload": [{**_typed(load), **workload} for workload in named],
        "trials": {**_TRIALS, **tables["trials"]},
        "experiment": tables["experiment"],
    }


def _vary(several: dict[str, list[str]], varied: dict[str, list[str]]) -> list[dict[str, object]]:
    if not several:
        single = {name: varied[name][0] for name in ("set", "sysctl") if varied.get(name)}
        if not single:
            raise SpecError(
                "nothing to compare",
                hint="for example --set commit_delay=0 --set commit_delay=50, or --server 15 --server 18",
            )
        merged: dict[str, object] = {}
        for name, text in single.items():
            merged |= _variant_of(name, text)
        return [{"name": "as it is"}, merged]
    ((name, values),) = several.items()
    return [_variant_of(name, value) for value in values]


def _variant_of(name: str, text: str) -> dict[str, object]:
    match name:
        case "set":
            return {"settings": _parse_pairs("--set", text)}
        case "sysctl":
            return {"sysctl": _parse_pairs("--sysctl", text)}
        case _:
            return {name: text}


def _parse_pairs(option: str, text: str) -> dict[str, str]:
    pairs = {}
    try:
        words = shlex.split(text)
    except ValueError as exc:
        raise SpecError(f"{option} {text}: {exc}", hint="quotes come in pairs") from exc
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise SpecError(
                f"{option} {text}: not of the form NAME=VALUE",
                hint=f'for example {option} commit_delay=50, or several at once: {option} "commit_delay=50 commit_siblings=10"',
            )
        pairs[name] = value
    return pairs


def _read_variant(text: str, folder: Path) -> dict[str, object]:
    if text == _STOCK:
        return {"name": _STOCK}
    path = folder / text
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        raise SpecError(
            f"cannot read the variant {text}",
            detail=str(exc),
            hint="a variant is `stock` or a file with settings as in postgresql.conf",
        ) from exc
    settings = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _CONF_LINE.fullmatch(line.strip())
        if found is None:
            raise SpecError(f"{text}, line {number}: not a setting", detail=line, hint="for example commit_delay = 50")
        value = found["value"]
        settings[found["name"]] = value[1:-1].replace("''", "'") if value.startswith("'") else value
    return {"name": path.name, "settings": settings}


def _read_axis(text: str) -> dict[str, object]:
    found = _AXIS.fullmatch(text)
    if found is None:
        raise SpecError(
            f"{text} is no axis", hint="for example clients=1..64, commit_delay=0,50,100 or mode=simple,prepared"
        )
    levels = [level.strip() for level in found["levels"].split(",")]
    span = _RANGE.fullmatch(found["levels"])
    if span:
        levels = [str(level) for level in _double(int(span["first"]), int(span["last"]))]
    return {"name": found["name"], "levels": levels}


def _double(first: int, last: int) -> list[int]:
    levels = [first]
    while levels[-1] * 2 < last:
        levels.append(max(1, levels[-1] * 2))
    return [*levels, last] if last > first else levels


def _typed(variant: dict[str, object]) -> dict[str, object]:
    """Numbers of the command line as numbers, where the study wants them."""
    return {
        name: int(str(value)) if name in {"clients", "scale", "threads"} and str(value).isdigit() else value
        for name, value in variant.items()
    }


def _title(variant: dict[str, object]) -> str:
    if "name" in variant:
        return str(variant["name"])
    pairs = {**variant, **variant.get("settings", {}), **variant.get("sysctl", {})}  # type: ignore[dict-item]
    return ", ".join(f"{name}={value}" for name, value in pairs.items() if name not in {"settings", "sysctl"})
