"""Choose the design of a comparison from the cost of changing the variants' settings, and give the reason.

A switchback, which alternates variants under one load, is far more precise than paired trials. It is chosen wherever it
is valid: where a running server applies the settings at once, and their effect does not outlast a slice. `facts/` holds
what is known about each setting.
"""

from __future__ import annotations

from pgdyno.errors import SpecError
from pgdyno.facts import gucs
from pgdyno.plan.endpoints import has_several_endpoints
from pgdyno.plan.experiment import OF_LOAD_ALONE, Variant, changed_settings, changed_sysctls, identify_server
from pgdyno.plan.live import find_given_live_obstacle, find_live_obstacle, takes_turns
from pgdyno.plan.places import place_of
from pgdyno.spec.initdb import INITDB_KEYS
from pgdyno.spec.setting import find_setting
from pgdyno.spec.study import ServerKind, Study
from pgdyno.spec.table import QueryMode
from pgdyno.spec.variant import LONGEST_SLICE_S, OF_PLACE, DesignKind, show_value

HINT_PAIRED = 'leave out --design, or use --design paired (in a study file: design = "paired")'
"""For a design that the variants or the machine do not allow; a plan does not tell whether a file or an option asked for it."""
# What `SHOW` calls a choice of initdb, and its key.
_OF_INITDB = {"data_checksums": "checksums", "wal_segment_size": "wal_segment_size", "server_encoding": "encoding"}
# A slice in which so many are due has the 100 transactions of a p95 (analyse/comparison/rounds.py), nearly always.
_LEAST_IN_SLICE = 130
_COST_WORDS = {
    "kernel": "a change of the kernel's settings",
    "new sessions": "new sessions",
    "restart": "a restart",
    "initdb": "a new initdb",
    "fixed": "another build",
}


def choose_design(
    study: Study,
    variants: tuple[Variant, ...],
    *,
    version_major: int,
    withheld: frozenset[str] = frozenset(),
    live_obstacle: str | None = None,
) -> tuple[DesignKind, str]:
    """Choose the design of a comparison, and give the reason.

    Args:
        study: The study as requested.
        variants: Variants to compare; the first is the reference.
        version_major: Major version of the reference's server.
        withheld: Settings of a given server that its sessions may not choose for themselves.
        live_obstacle: Why nothing can be compared live on a given server; None if nothing keeps it from that.

    Raises:
        SpecError: The study requests a switchback or live pairs, and the variants or the server do not allow it.
    """
    asked = study.experiment.design
    if study.server.kind is ServerKind.GIVEN:
        _check_given_variants(variants)
    if asked in {None, DesignKind.LIVE} and takes_turns(study, variants):
        return DesignKind.LIVE, _explain_turns(variants)
    if study.server.kind is ServerKind.GIVEN:
        return _choose_for_given(study, variants, major=version_major, withheld=withheld, live_obstacle=live_obstacle)
    if asked is DesignKind.LIVE and (obstacle := find_live_obstacle(study, variants)) is not None:
        raise SpecError("these variants cannot be compared live", detail=obstacle, hint=HINT_PAIRED)
    obstacle, is_final = _find_obstacle(study, variants, version_major)
    if asked is DesignKind.SWITCHBACK and obstacle is not None and is_final:
        raise SpecError("these variants cannot alternate under one load", detail=obstacle, hint=HINT_PAIRED)
    if asked is DesignKind.SWITCHBACK and obstacle is not None:
        return asked, f"as asked for, although {obstacle}"
    if asked is not None:
        return asked, obstacle or "as asked for"
    if obstacle is not None:
        return _choose_for_restarts(study, variants, obstacle)
    names = (
        *(n for n in changed_settings(variants) if _is_changed(n, variants, version_major)),
        *changed_sysctls(variants),
    )
    them = "it" if len(names) == 1 else "them"
    reason = f"{', '.join(names)}: a running server takes {them} at once"
    return DesignKind.SWITCHBACK, reason if names else "the variants have the same settings: an A/A test under one load"


def _explain_turns(variants: tuple[Variant, ...]) -> str:
    differ = [name for name in OF_LOAD_ALONE if len({getattr(variant, name) for variant in variants}) > 1]
    return f"the loads differ only in {' and '.join(differ)}, and can take turns on one server"


def _choose_for_restarts(study: Study, variants: tuple[Variant, ...], obstacle: str) -> tuple[DesignKind, str]:
    """Return the design for variants that cannot alternate under one load: live pairs between endpoints, else paired trials."""
    if has_several_endpoints(study, variants) and find_live_obstacle(study, variants) is None:
        return DesignKind.LIVE, "the load of each endpoint has a server of its own, and slices alternate among them"
    return DesignKind.PAIRED, obstacle


def _check_given_variants(variants: tuple[Variant, ...]) -> None:
    """Refuse variants of a given server that differ in what pgdyno does not change there.

    Raises:
        SpecError: They do.
    """
    if changed_sysctls(variants) or any(
        variant.scale is not None
        or variant.server.kind is not ServerKind.GIVEN
        or any(getattr(variant, key) is not None for key in OF_PLACE)
        or variant.initdb != variants[0].initdb
        or variant.cache is not None
        for variant in variants
    ):
        raise SpecError(
            "variants of a given server differ in settings, clients, threads, load hosts or modes",
            hint="vary one of these: not server, scale, disk, caches or kernel",
        )


def _choose_for_given(
    study: Study,
    variants: tuple[Variant, ...],
    *,
    major: int,
    withheld: frozenset[str],
    live_obstacle: str | None,
) -> tuple[DesignKind, str]:
    """Return the design for a given server, which is never restarted, and of which there is one."""
    asked = study.experiment.design
    names = changed_settings(variants)
    waiting = [name for name in names if _takes_restart(name, major)]
    if waiting and study.server.apply is None:
        raise SpecError(
            f"{waiting[0]} takes a restart, which pgdyno does not do to a given server",
            hint="a command of yours may do it: --apply-with",
        )
    if asked is DesignKind.LIVE:
        return asked, _allow_given_live(study, variants, major=major, withheld=withheld, live_obstacle=live_obstacle)
    of_server = [name for name in names if name.lower() in withheld]
    obstacle, is_final = _find_obstacle(study, variants, major)
    if asked is DesignKind.SWITCHBACK and obstacle is not None and is_final:
        raise SpecError("these variants cannot alternate under one load", detail=obstacle, hint=HINT_PAIRED)
    if asked is DesignKind.SWITCHBACK:
        return asked, "as asked for" if obstacle is None else f"as asked for, although {obstacle}"
    if study.server.apply is not None and names:
        return DesignKind.PAIRED, obstacle or "the command that applies settings takes a time that is not known"
    if not of_server:
        return DesignKind.PAIRED, _explain_sessions(study, variants, obstacle)
    if asked is not None or obstacle is not None:
        return DesignKind.PAIRED, obstacle or "as asked for"
    return DesignKind.SWITCHBACK, f"sessions of this role cannot choose {', '.join(of_server)}, and a reload changes it"


def _explain_sessions(study: Study, variants: tuple[Variant, ...], obstacle: str | None) -> str:
    """Return why variants whose settings, if any, its own sessions choose are compared in pairs."""
    if has_several_endpoints(study, variants):
        return "each session of a given server connects to its variant's endpoint when it begins"
    if obstacle is not None and not changed_settings(variants):
        return obstacle
    return "each session of a given server asks for its variant's settings when it begins"


def _allow_given_live(
    study: Study, variants: tuple[Variant, ...], *, major: int, withheld: frozenset[str], live_obstacle: str | None
) -> str:
    """Return why variants are compared live on a given server.

    Raises:
        SpecError: They cannot be.
    """
    obstacle = find_given_live_obstacle(study, variants, withheld=withheld) or live_obstacle
    if obstacle is not None:
        raise SpecError("these variants cannot be compared live", detail=obstacle, hint=HINT_PAIRED)
    # Each load plans its statements in sessions of its own.
    hindrances = [_find_setting_obstacle(name, major, is_prepared=False) for name in changed_settings(variants)]
    doubt = next((words for words, _ in filter(None, hindrances)), None)
    return "as asked for" if doubt is None else f"as asked for, although {doubt}"


def _takes_restart(name: str, major: int) -> bool:
    return not gucs.is_custom_name(name) and gucs.change_cost(name, major) is gucs.ChangeCost.RESTART


def _is_changed(name: str, variants: tuple[Variant, ...], major: int) -> bool:
    """Return whether the variants' values of a setting differ in more than notation."""
    first, *others = (show_value(variant.server.settings.get(name, "")) for variant in variants)
    return any(not gucs.same_value(name, first, other, major) for other in others)


def _find_obstacle(study: Study, variants: tuple[Variant, ...], major: int) -> tuple[str | None, bool]:
    """Return why the variants should not alternate under one load, and whether alternating is impossible."""
    for what in (
        "server",
        "scale",
        "mode",
        "clients",
        "threads",
        "load_hosts",
        "endpoint",
        "scripts",
        "cache",
        *OF_PLACE,
        *INITDB_KEYS,
    ):
        if _differs(study, variants, what):
            return f"{what} cannot change under a running load", True
    modes = {variant.mode or workload.mode for variant in variants for workload in study.workload}
    is_prepared = QueryMode.PREPARED in modes
    hindrances = [_find_setting_obstacle(name, major, is_prepared=is_prepared) for name in changed_settings(variants)]
    hindrances += [_find_sysctl_obstacle(name) for name in changed_sysctls(variants)]
    few = "runs at a rate, and slices hold too few of its transactions for a p95 latency"
    if any(part.rate_tps is not None for workload in study.workload for part in workload.parts):
        hindrances.append((f"a part {few}", False))
    longest_s = study.experiment.slice_s or LONGEST_SLICE_S
    if any(each.rate_tps is not None and each.rate_tps * longest_s < _LEAST_IN_SLICE for each in study.workload):
        hindrances.append((f"a load {few}", False))
    # Report obstacles that make it impossible first.
    found = sorted(filter(None, hindrances), key=lambda each: not each[1])
    return found[0] if found else (None, False)


def _differs(study: Study, variants: tuple[Variant, ...], what: str) -> bool:
    """Return whether variants differ in a property of the load or the cluster; the study's own is the default."""
    if what == "server":
        return len({identify_server(variant.server) for variant in variants}) > 1
    if what in INITDB_KEYS:
        return len({getattr(variant.initdb, what) for variant in variants}) > 1
    if what in OF_PLACE:
        return len({getattr(place_of(study.data, variant), what) for variant in variants}) > 1
    if what == "cache":
        return len({variant.cache or study.trials.cache for variant in variants}) > 1
    if what == "load_hosts":
        return len({variant.load_hosts or len(study.load_hosts) for variant in variants}) > 1
    asked = [study.data.scale] if what == "scale" else [getattr(workload, what) for workload in study.workload]
    return any(len({getattr(variant, what) or own for variant in variants}) > 1 for own in asked)


def _find_setting_obstacle(name: str, major: int, *, is_prepared: bool) -> tuple[str, bool] | None:
    if gucs.is_custom_name(name):
        return f"{name} belongs to an extension, and it is not known when it takes effect", False
    cost = gucs.change_cost(name, major)
    if cost not in {gucs.ChangeCost.SESSION, gucs.ChangeCost.RELOAD}:
        return f"{name} takes {_COST_WORDS[cost.value]}", True
    rule = gucs.explain_effect(name)
    if rule.effect is gucs.Effect.SLOW:
        return f"{name} acts over longer than a slice ({rule.why})", False
    if rule.effect is gucs.Effect.NEW_PLANS and is_prepared:
        return f"{name} acts when a statement is planned, and prepared ones keep their plans", False
    return None


def _find_sysctl_obstacle(name: str) -> tuple[str, bool] | None:
    rule = gucs.explain_effect(name)
    if rule.effect is gucs.Effect.AT_ONCE:
        return None
    if rule.effect is gucs.Effect.NOT_WHILE_RUNNING:
        return f"{name} takes a restart of the server ({rule.why})", True
    return f"{name} acts over longer than a slice ({rule.why})", False


def check_names(variants: tuple[Variant, ...], *, version_major: int) -> None:
    """Refuse settings that this version lacks or that cannot be varied.

    Raises:
        SpecError: A variant has such a setting.
    """
    major = version_major
    for variant in variants:
        for name in variant.changed:
            if gucs.is_custom_name(name):
                continue
            find_setting(name, major)
            if gucs.change_cost(name, major) in {gucs.ChangeCost.INITDB, gucs.ChangeCost.FIXED}:
                raise SpecError(
                    f"{name} cannot be varied",
                    detail="it is fixed when a cluster is initialized or PostgreSQL is built",
                    hint=_hint_for_fixed(name),
                )


def _hint_for_fixed(name: str) -> str:
    key = _OF_INITDB.get(name.lower())
    if key is None:
        return "compare two clusters of your own builds with --server DIR --server DIR"
    example = {"checksums": "off", "wal_segment_size": "64MB", "encoding": "SQL_ASCII"}[key]
    return f"--initdb {key}={example}, or {key} of [data] and of variants in a study file, makes clusters that differ in it"
