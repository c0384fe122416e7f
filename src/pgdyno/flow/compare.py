"""`pgdyno compare` and `pgdyno sweep`: what was said on the command line becomes a study with variants or axes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from pgdyno.errors import SpecError, join_choices
from pgdyno.flow.comparison_options import parse_pairs, read_axis, read_server, refuse_held
from pgdyno.flow.compose_bench import workload_tables
from pgdyno.plan.experiment import OF_LOAD_ALONE
from pgdyno.spec.conf import read_conf
from pgdyno.spec.initdb import INITDB_KEYS, read_choices, with_choices
from pgdyno.spec.read import make_study
from pgdyno.spec.study import LOADING, Study
from pgdyno.spec.table import SettingValue, make_printable
from pgdyno.spec.variant import LOAD_HOSTS, SweepSpec, VariantSpec, is_server_folder, make_variant

# Trials of a restart-only comparison: many short ones, because longer trials vary as much.
_TRIALS = {"duration": "10s", "warm_up": "3s"}
# Loads that take turns on one server: many rounds decide more than long ones, because a server's start is part of the noise.
_OF_TURNS = {"duration": "4s"}
_DEFAULT_WORKLOAD = "tpcb-like"
_STOCK = "stock"
SCRIPTS = "scripts"
"""Name of the workload whose scripts are the variants'."""
_MOST_AXES = 2
_QUESTIONS = {
    "clients": "How does TPS follow the number of clients?",
    LOAD_HOSTS: "Do the load hosts limit the load?",
}
"""Questions of sweeps by their axis."""
_SEARCH = re.compile(r"\s*latency\s*<=?\s*(?P<limit>[^@\s]+)\s*(?:@\s*p(?P<percentile>[0-9]+(?:\.[0-9]+)?)\s*)?")


def compose_comparison(
    *,
    variants: Sequence[str],
    varied: dict[str, list[str]],
    workloads: list[str],
    load: dict[str, object],
    tables: dict[str, dict[str, object]],
    folder: Path,
) -> Study:
    """Compose the study that `compare` asks for.

    Args:
        variants: `stock` or files with settings, as in postgresql.conf.
        varied: What options say of the variants: `set` (`name=value`, several in one text), `sysctl`, `server`, `mode`,
            `clients`, `threads`, `endpoint`, `scale`, `cache`, `script`, `home`, `wal-home`, `initdb`. An option given several
            times makes a variant of each; given once, it holds for all. If nothing makes several, a lone `set`, `sysctl`,
            `initdb` or file is compared with the server as it is.
        workloads: Built-in names or script files.
        load: Keys that hold for each workload.
        tables: The tables `server`, `data`, `trials`, `experiment`, `failover` and `poolers`, as far as they were given.
        folder: Where files are looked up.

    Raises:
        SpecError: Something in it is not understood, or there is nothing to compare.
    """
    scripts = varied.get("script", [])
    if scripts:
        workloads = [_check_scripts(scripts, workloads)]
    several = {name: texts for name, texts in varied.items() if len(texts) > 1}
    once = {name: _read_option(name, texts[0], folder) for name, texts in varied.items() if len(texts) == 1}
    if len(several) + bool(variants) > 1:
        said = " and ".join([*(f"--{name}" for name in several), *(["variants"] if variants else [])])
        raise SpecError(
            f"{said} vary at once",
            detail="each would make variants of its own",
            hint="vary one of them; `pgdyno sweep` takes two axes, a study file any variants",
        )
    if variants:
        made = _read_variants(variants, folder, _merge(list(once.values())).settings)
    elif several:
        ((option, texts),) = several.items()
        made = [_read_option(option, text, folder) for text in texts]
    else:
        made = _with_reference([once.pop(name) for name in ("set", "sysctl", "initdb") if name in once])
    shared = _merge(list(once.values()))
    made = _tell_apart([msgspec.structs.replace(each, sysctl={**shared.sysctl, **each.sysctl}) for each in made])
    raw = _base(workloads, {**load, **_load_of(shared)}, _with_shared(tables, shared), varied=several)
    asked = "How long is the service away: " if tables.get("failover") else "Which is faster: "
    question = f"{asked}{join_choices([variant.title for variant in made])}?"
    raw |= {"question": question, "variant": made}
    if scripts:
        raw["workload"] = [{**load, **_load_of(shared), "name": SCRIPTS, "scripts": scripts[:1]}]
    return make_study(raw, source="pgdyno compare", folder=folder)


def _check_scripts(scripts: Sequence[str], workloads: Sequence[str]) -> str:
    """Return the workload that scripts of variants take the place of.

    Raises:
        SpecError: There is one script only, or a workload is named, too.
    """
    if len(scripts) == 1:
        raise SpecError(
            f"--script {scripts[0]}: there is nothing to compare it with",
            hint="give it twice or more; --workload names a script that all variants run",
        )
    if workloads:
        raise SpecError(
            "--script and --workload exclude each other",
            detail="each --script is the load of one variant",
            hint="leave out --workload",
        )
    return scripts[0]


def compose_sweep(
    *,
    axes: Sequence[str],
    workloads: list[str],
    load: dict[str, object],
    tables: dict[str, dict[str, object]],
    folder: Path,
    shared: Mapping[str, str] | None = None,
) -> Study:
    """Compose the study that `sweep` asks for.

    Args:
        axes: One or two of `name=level,level,...`; a level `first..last` is a range that doubles from level to level.
            Or `latency<LIMIT@pQQ` alone: not a sweep over levels, but a search for the largest rate that holds it.
        workloads: Built-in names or script files.
        load: Keys that hold for each workload.
        tables: As for `compose_comparison`; `detect` is how close a search's answer is to be.
        folder: Where files are looked up.
        shared: What options say of all levels: `sysctl`, `initdb` and `cache`, as for `compose_comparison`.

    Raises:
        SpecError: Something in it is not understood.
    """
    base = _merge([_read_option(name, text, folder) for name, text in (shared or {}).items()])
    tables = _with_shared(tables, base)
    if any(_is_latency(text) for text in axes):
        if base.sysctl:
            raise SpecError(
                "--sysctl goes with axes, not with a latency limit", hint="set it for the machine, then search"
            )
        return _compose_search(axes, workloads, load, tables, folder)
    if len(axes) > _MOST_AXES:
        raise SpecError(
            f"{len(axes)} axes: two are the most",
            detail=" ".join(axes),
            hint="say what stays the same by an option, such as --clients, --mode or --set",
        )
    sweeps = [read_axis(text, folder) for text in axes]
    refuse_held(sweeps, _list_held(load, tables, base))
    raw = _base(workloads, load, tables, varied=[axis.name for axis in sweeps])
    names = " and ".join(_name_varied(axis, tables.get("poolers", {})) for axis in sweeps)
    question = f"What {'does' if len(sweeps) == 1 else 'do'} {names} do?"
    raw |= {"question": _QUESTIONS.get(names, question), "sweep": sweeps}
    raw |= {"variant": [VariantSpec(sysctl=base.sysctl)]} if base.sysctl else {}
    return make_study(raw, source="pgdyno sweep", folder=folder)


def _name_varied(axis: SweepSpec, poolers: Mapping[str, object]) -> str:
    """Name what an axis varies: that of endpoints whose pools differ in size was `pool_size` on the command line."""
    tables = [poolers.get(str(level)) for level in axis.levels] if axis.name == "endpoint" else []
    sizes = {table.get("size") for table in tables if isinstance(table, dict)}
    return "pool_size" if len(sizes) == len(axis.levels) else axis.name


def _list_held(load: Mapping[str, object], tables: Mapping[str, Mapping[str, object]], shared: VariantSpec) -> set[str]:
    """List the names of what options fix for all levels."""
    server = tables["server"]
    settings = named if isinstance(named := server.get("settings"), dict) else {}
    names = {*load, *tables["data"], *tables["trials"], *settings, *shared.sysctl}
    return names | ({"server"} if "kind" in server else set())


def _is_latency(text: str) -> bool:
    return re.match(r"\s*latency\s*([<>=@]|$)", text) is not None


def _compose_search(
    axes: Sequence[str],
    workloads: list[str],
    load: Mapping[str, object],
    tables: Mapping[str, Mapping[str, object]],
    folder: Path,
) -> Study:
    if len(axes) > 1:
        raise SpecError(
            f"{' and '.join(axes)}: a latency limit is searched for alone",
            hint="ask once for each level, for example with --clients or --set",
        )
    found = _SEARCH.fullmatch(axes[0])
    if found is None:
        raise SpecError(
            f"{axes[0]} is no latency limit",
            detail="a shell takes < for a redirection: the limit needs quotes",
            hint="for example `pgdyno sweep 'latency<20ms@p99'`",
        )
    search: dict[str, object] = {"latency": found["limit"]}
    if found["percentile"] is not None:
        search["percentile"] = float(found["percentile"])
    experiment = dict(tables["experiment"])
    if "detect" in experiment:
        search["resolution"] = experiment.pop("detect")
    raw = _base(workloads, load, {**tables, "experiment": experiment})
    percentile = found["percentile"] or "99"
    raw |= {"question": f"How many TPS hold p{percentile} < {found['limit']}?", "search": search}
    return make_study(raw, source="pgdyno sweep", folder=folder)


def _base(
    workloads: list[str],
    load: Mapping[str, object],
    tables: Mapping[str, Mapping[str, object]],
    *,
    varied: Collection[str] = (),
) -> dict[str, object]:
    """Return the tables of a study; `varied` has the names of what its variants differ in."""
    named = workload_tables(workloads or [_DEFAULT_WORKLOAD])
    timed = [key for key in ("duration", "warm_up") if key in tables["trials"]]
    if timed and LOADING in workloads:
        raise SpecError(
            f"--{timed[0].replace('_', '-')} makes no sense with --workload {LOADING}",
            detail="a trial lasts as long as loading takes, and begins with an empty database",
            hint="--scale says how much is loaded",
        )
    return {
        "server": tables["server"],
        "data": tables["data"],
        "workload": [{**load, **workload} for workload in named],
        "trials": {
            **_TRIALS,
            **(_OF_TURNS if varied and set(varied) <= set(OF_LOAD_ALONE) else {}),
            **tables["trials"],
        },
        "experiment": tables["experiment"],
        **({"failover": tables["failover"]} if tables.get("failover") else {}),
        "poolers": tables.get("poolers", {}),
    }


def _read_variants(texts: Sequence[str], folder: Path, shared: Mapping[str, SettingValue]) -> list[VariantSpec]:
    """Those that are named: `stock` and files; a lone one is compared with the server as it is, but for what all share."""
    if len(texts) == 1:
        if texts[0] == _STOCK:
            raise SpecError("nothing to compare `stock` with", hint="for example pgdyno compare stock tuned.conf")
        texts = [_STOCK, *texts]
    names = [Path(text).name for text in texts]
    made = []
    for text, name in zip(texts, names, strict=True):
        if text == _STOCK:
            beside = f" with {VariantSpec(settings=dict(shared)).title}" if shared else ""
            made.append(VariantSpec(name=_STOCK + beside))
            continue
        settings = read_conf(text, folder)
        twice = next((each for each in shared if each.lower() in settings), None)
        if twice is not None:
            raise SpecError(
                f"--set {twice}: {make_printable(text)} sets it, too",
                detail="a lone --set holds for all variants",
                hint="leave it out of one of them",
            )
        # Files of one name in two folders are called by their places.
        title = name if names.count(name) == texts.count(text) else text
        made.append(VariantSpec(name=make_printable(title), settings=settings))
    return made


def _with_reference(given: Sequence[VariantSpec]) -> list[VariantSpec]:
    """Make two variants of options that were given once: the server as it is, and the server with these options."""
    if not given:
        raise SpecError(
            "nothing to compare",
            hint="for example --set commit_delay=0 --set commit_delay=50, --server 15 --server embedded, or --endpoint primary --endpoint pool",
        )
    return [VariantSpec(name="as it is"), _merge(given)]


def _read_option(option: str, text: str, folder: Path) -> VariantSpec:
    """Make the variant that an option's text describes."""
    said = f"--{option} {text}"
    try:
        match option:
            case "set":
                return VariantSpec(settings=dict(parse_pairs(said, text)))
            case "sysctl":
                return VariantSpec(sysctl=dict(parse_pairs(said, text)))
            case "initdb":
                return with_choices(VariantSpec(), read_choices(parse_pairs(said, text)))
            case "script":
                return VariantSpec(name=make_printable(text), scripts=(text,))
            case "server":
                return make_variant({option: read_server(said, text, folder)})
            case _:
                return make_variant({option.replace("-", "_"): text})
    except ValueError as exc:
        reason = str(exc).removeprefix("settings ").removeprefix(f"{option} ")
        raise SpecError(f"{said}: {reason}", hint="`pgdyno compare --help` explains every option") from exc


def _merge(variants: Sequence[VariantSpec]) -> VariantSpec:
    """One variant that sets what each of them sets."""
    kept = {
        field: value
        for variant in variants
        for field in variant.__struct_fields__
        if (value := getattr(variant, field)) not in (None, {})
    }
    return VariantSpec(**kept)


def _tell_apart(variants: Sequence[VariantSpec]) -> list[VariantSpec]:
    """Add a number to each variant whose name came before: comparing a variant with itself is an A/A test."""
    told: list[VariantSpec] = []
    for variant in variants:
        titles = {each.title for each in told}
        numbered = (f"{variant.title} ({number})" for number in range(2, len(variants) + 2))
        name = next(name for name in (variant.title, *numbered) if name not in titles)
        told.append(variant if name == variant.title else msgspec.structs.replace(variant, name=name))
    return told


def _load_of(shared: VariantSpec) -> dict[str, object]:
    said = {
        "clients": shared.clients,
        "threads": shared.threads,
        "endpoint": shared.endpoint,
        "mode": None if shared.mode is None else shared.mode.value,
    }
    return {name: value for name, value in said.items() if value is not None}


def _with_shared(tables: Mapping[str, Mapping[str, object]], shared: VariantSpec) -> dict[str, dict[str, object]]:
    """Return the study's tables with the settings that all variants share."""
    server, data = dict(tables["server"]), dict(tables["data"])
    if shared.settings:
        server["settings"] = shared.settings
    if shared.scale is not None:
        data["scale"] = shared.scale
    data |= {key: value for key in INITDB_KEYS if (value := getattr(shared, key)) is not None}
    text = str(shared.server or "embedded")
    if is_server_folder(text):
        server |= {"kind": "local", "bindir": text}
    elif text != "embedded":
        server |= {"kind": "local", "version": int(text)}
    trials = {**tables["trials"], **({} if shared.cache is None else {"cache": shared.cache.value})}
    return {**{name: dict(table) for name, table in tables.items()}, "server": server, "data": data, "trials": trials}
