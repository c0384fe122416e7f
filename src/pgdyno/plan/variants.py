"""Turn the variants and sweeps of a study into an experiment, with no setting left open."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from pgdyno.errors import SpecError
from pgdyno.plan.experiment import OF_LOAD_ALONE, Experiment, Variant, find_server, identify_server, is_client_sweep
from pgdyno.plan.failover import DESIGN_REASON as FAILOVER_REASON
from pgdyno.plan.live import takes_turns
from pgdyno.plan.loading import DESIGN_REASON, is_loading
from pgdyno.plan.places import Place, place_of
from pgdyno.plan.standbys import with_synchronous_names
from pgdyno.spec.initdb import INITDB_KEYS, combine_choices, with_choices
from pgdyno.spec.pooler import REPLICAS, find_sharing
from pgdyno.spec.study import DataSpec, Study, WorkloadSpec
from pgdyno.spec.table import SettingValue
from pgdyno.spec.variant import MOST_VARIANTS, OF_PLACE, DesignKind, VariantSpec, fold_name, make_variant, show_value


def plan_experiment(
    study: Study, *, version_major: int, withheld: frozenset[str] = frozenset(), live_obstacle: str | None = None
) -> Experiment | None:
    """Make the variants of a study and choose the design; return None for a study without a comparison.

    Args:
        study: The study as requested.
        version_major: Major version of the study's own server, for the catalogue of settings.
        withheld: Settings of a given server that its sessions may not choose for themselves.
        live_obstacle: Why nothing can be compared live on a given server; None if nothing keeps it from that.

    Raises:
        SpecError: Two variants have one name, they are too many, a setting cannot be varied, or a design was asked for
            that cannot be.
    """
    if not study.is_comparison:
        return None
    from pgdyno.plan.design import check_names, choose_design  # noqa: PLC0415 - a large catalogue, for comparisons only

    specs = list_specs(study)
    study = with_synchronous_names(study, [spec for spec, _ in specs])
    variants = tuple(_make_variant(study, spec, levels, version_major) for spec, levels in specs)
    names = [variant.name for variant in variants]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise SpecError(
            f"several variants are named {', '.join(repeated)}",
            detail="a variant without a name is named after its settings",
            hint="give each its own name, or leave one out",
        )
    # Servers of other versions have other settings, and refuse unknown ones themselves.
    own = tuple(
        variant for variant in variants if identify_server(variant.server) == identify_server(variants[0].server)
    )
    check_names(own, version_major=version_major)
    if is_loading(study):
        design, reason = DesignKind.PAIRED, DESIGN_REASON
    elif study.failover is not None:
        design, reason = DesignKind.PAIRED, FAILOVER_REASON
    else:
        design, reason = choose_design(
            study, variants, version_major=version_major, withheld=withheld, live_obstacle=live_obstacle
        )
    experiment = Experiment(
        variants=variants,
        design=design,
        reason=reason,
        budget_s=None if study.experiment.minutes is None else study.experiment.minutes * 60.0,
        alpha=study.experiment.alpha,
        detect_ratio=study.experiment.detect_ratio,
        slice_s=study.experiment.slice_s,
        takes_turns=design is DesignKind.LIVE and takes_turns(study, variants),
    )
    # The loads of a sweep over clients get statuses by an interval of their own.
    has_look = not is_client_sweep(experiment)
    extra_rounds = study.experiment.extra_rounds and has_look and design is not DesignKind.SWITCHBACK
    return msgspec.structs.replace(experiment, final_look=has_look, extra_rounds=extra_rounds)


def list_specs(study: Study) -> list[tuple[VariantSpec, dict[str, str]]]:
    """List each variant with its levels in a sweep; a sweep may have one variant as its base.

    Raises:
        SpecError: Both axes of a sweep are one, or there are too many variants.
    """
    axes = [axis.name for axis in study.sweep]
    if len(set(map(fold_name, axes))) < len(axes):
        raise SpecError(f"both axes of the sweep are {axes[0]}", hint="one axis can hold all of its levels")
    count = math.prod(len(axis.levels) for axis in study.sweep) if axes else len(study.variant)
    if count > MOST_VARIANTS:
        raise SpecError(f"{count} variants are more than {MOST_VARIANTS}", hint="sweep fewer levels, or one axis")
    if not axes:
        return [(spec, {}) for spec in study.variant]
    points = [
        dict(zip(axes, levels, strict=True)) for levels in itertools.product(*(axis.levels for axis in study.sweep))
    ]
    base = study.variant[0] if study.variant else VariantSpec()
    return [
        (_merge_level(base, make_variant(point)), {name: show_value(level) for name, level in point.items()})
        for point in points
    ]


def reference_data(study: Study) -> DataSpec:
    """Return the data that a study loads first: with the choices of initdb that its reference makes.

    Raises:
        SpecError: As for `list_specs`.
    """
    first = list_specs(study)[0][0] if study.is_comparison else None
    return with_choices(study.data, combine_choices(study.data, first))


def list_scales(study: Study) -> tuple[int | None, ...]:
    """List the scales of the clusters that a study loads, one for each PostgreSQL and choice of initdb; None where a plan chooses it.

    Raises:
        SpecError: As for `list_specs`.
    """
    specs = [spec for spec, _ in list_specs(study)] if study.is_comparison else [VariantSpec()]
    clusters = {
        (
            identify_server(find_server(study.server, spec.server)),
            combine_choices(study.data, spec),
            spec.scale or study.data.scale,
        )
        for spec in specs
    }
    return tuple(scale for _, _, scale in clusters)


def list_places(study: Study) -> tuple[Place, ...]:
    """List the places of a study's clusters, each once; that of the reference is the first.

    Raises:
        SpecError: As for `list_specs`.
    """
    specs: Sequence[VariantSpec | None] = [spec for spec, _ in list_specs(study)] if study.is_comparison else [None]
    return tuple(dict.fromkeys(place_of(study.data, spec) for spec in specs))


def name_places(study: Study) -> dict[Place, tuple[str, ...]]:
    """Return the variants of each place of a comparison, that of the reference first; nothing where all have one place.

    Raises:
        SpecError: As for `list_specs`.
    """
    found: dict[Place, tuple[str, ...]] = {}
    for spec, _ in list_specs(study) if study.is_comparison else ():
        place = place_of(study.data, spec)
        found[place] = (*found.get(place, ()), spec.title)
    return found if len(found) > 1 else {}


def _merge_level(base: VariantSpec, level: VariantSpec) -> VariantSpec:
    """Merge a level of a sweep into its base variant, named after the level's own settings."""
    return VariantSpec(
        name=level.title,
        settings={**base.settings, **level.settings},
        sysctl={**base.sysctl, **level.sysctl},
        server=base.server if level.server is None else level.server,
        scale=base.scale if level.scale is None else level.scale,
        mode=level.mode or base.mode,
        clients=level.clients or base.clients,
        threads=level.threads or base.threads,
        load_hosts=level.load_hosts or base.load_hosts,
        endpoint=level.endpoint or base.endpoint,
        scripts=base.scripts,
        cache=level.cache or base.cache,
        **{key: getattr(level, key) or getattr(base, key) for key in OF_PLACE},
        **{key: getattr(base, key) if getattr(level, key) is None else getattr(level, key) for key in INITDB_KEYS},
    )


def _make_variant(study: Study, spec: VariantSpec, levels: dict[str, str], major: int) -> Variant:
    base = study.server
    server = find_server(base, spec.server)
    changed = with_canonical_names(spec.settings, major)
    return Variant(
        name=spec.title,
        server=msgspec.structs.replace(server, settings={**with_canonical_names(base.settings, major), **changed}),
        changed=changed,
        sysctl={name: str(value) for name, value in spec.sysctl.items()},
        scale=spec.scale,
        mode=spec.mode,
        clients=spec.clients,
        threads=spec.threads,
        load_hosts=spec.load_hosts,
        endpoint=spec.endpoint,
        scripts=spec.weighted_scripts,
        cache=spec.cache,
        home=spec.home,
        wal_home=spec.wal_home,
        initdb=combine_choices(study.data, spec),
        levels=levels,
    )


def with_canonical_names(settings: Mapping[str, SettingValue], major: int) -> dict[str, SettingValue]:
    """Return the settings under the server's spelling, so that `Work_Mem` and `work_mem` are the same setting."""
    from pgdyno.facts.gucs import find_guc  # noqa: PLC0415 - as above

    found = {name: find_guc(name, major) for name in settings}
    return {name if (guc := found[name]) is None else guc.name: value for name, value in settings.items()}


def most_clients(study: Study) -> int:
    """Return the most clients that the loads of a study have at once: side by side, all variants', the reference's twice."""
    return _count_most(study, lambda _: True)


def most_connections(study: Study) -> int:
    """Return the most connections that the clients of a study hold at once to the server itself, beside those of poolers that share theirs."""
    left_out = {REPLICAS, *find_sharing(study.poolers)}
    return _count_most(study, lambda endpoint: endpoint not in left_out)


def most_on_each_replica(study: Study) -> int:
    """Return the most connections that the clients of a study hold at once to one of its server's replicas."""
    return -(-_count_most(study, lambda endpoint: endpoint == REPLICAS) // max(1, len(study.server.readers)))


def name_asked_settings(study: Study) -> frozenset[str]:
    """Return the settings, in lower case, that the sessions of each load of a study ask for."""
    specs = [spec for spec, _ in list_specs(study)] if study.is_comparison else [VariantSpec()]
    each = [{name.lower() for name in (*study.server.settings, *spec.settings)} for spec in specs]
    return frozenset(set.intersection(*each))


def _count_most(study: Study, counts: Callable[[str | None], bool]) -> int:
    """Count the clients that a study has at once, of the endpoints that count; None is a load's default."""

    def count(workload: WorkloadSpec, spec: VariantSpec) -> int:
        if workload.parts:
            return sum(part.clients for part in workload.parts if counts(part.endpoint))
        return (spec.clients or workload.clients or 1) if counts(spec.endpoint or workload.endpoint) else 0

    specs = [spec for spec, _ in list_specs(study)] if study.is_comparison else [VariantSpec()]
    loads = [max(count(workload, spec) for workload in study.workload) for spec in specs]
    is_side_by_side = len(specs) > 1 and study.experiment.design is DesignKind.LIVE and not _differ_in_load(specs)
    most = loads[0] + sum(loads) if is_side_by_side else max(loads)
    if study.scaling is None:
        return most
    swept = VariantSpec(clients=study.scaling.clients[-1])
    return max([most, *(count(one, swept) for one in study.workload if study.scaling.workload in (None, one.name))])


def most_clients_each(study: Study) -> int:
    """Return the most clients that one load host has, in a study that leaves no number of clients open."""
    named = len(study.load_hosts)
    specs = [spec for spec, _ in list_specs(study)] if study.is_comparison else [VariantSpec()]
    loads = [
        (spec.clients or workload.asked_clients or 1, spec.load_hosts) for spec in specs for workload in study.workload
    ]
    if study.scaling is not None:
        loads.append((study.scaling.clients[-1], None))
    return max(-(-clients // min(hosts or named, clients)) for clients, hosts in loads)


def _differ_in_load(specs: Sequence[VariantSpec]) -> bool:
    """Return whether variants differ in clients, threads or mode, and in nothing else, as `experiment.differ_in_load` does."""
    of_load = {tuple(getattr(spec, name) for name in OF_LOAD_ALONE) for spec in specs}
    others = [msgspec.structs.replace(spec, **dict.fromkeys(("name", *OF_LOAD_ALONE))) for spec in specs]
    return len(of_load) > 1 and all(other == others[0] for other in others)
