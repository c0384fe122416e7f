"""Decide which commits wait for a study's standbys, and refuse what cannot be measured with them.

PostgreSQL's own default is asynchronous: as long as `synchronous_standby_names` is empty, `synchronous_commit` of `on`,
`remote_write` and `remote_apply` wait for nothing but the primary's own flush. A study that has standbys and names one of
these values asks what waiting for a standby costs, so pgdyno fills in the missing name, for all of its variants.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pgdyno.errors import SpecError
from pgdyno.plan.experiment import Variant
from pgdyno.plan.loading import is_loading
from pgdyno.plan.types import Choice
from pgdyno.spec.study import SLOT_WAL, SLOT_WAL_SETTING, RestorePolicy, ServerKind, Study, name_standbys
from pgdyno.spec.table import SettingValue
from pgdyno.spec.variant import VariantSpec, show_value
from pgdyno.units import parse_in_unit

SYNCHRONOUS_NAMES = "synchronous_standby_names"
SYNCHRONOUS_COMMIT = "synchronous_commit"
ANY_STANDBY = "*"
_WAITING_COMMITS = "commits that wait for a standby"
# Source: PostgreSQL 18 manual, 19.5.1, synchronous_commit, and guc_tables.c for the other words of `on`.
_REMOTE = frozenset({"remote_write", "remote_apply"})
_WAITING = frozenset({"on", "true", "yes", "1"}) | _REMOTE
_NOT_WAITING = frozenset({"off", "false", "no", "0", "local"})
# Source: PostgreSQL 18 manual, 19.6.2, synchronous_standby_names.
_QUORUM = re.compile(r"(?:(?:first|any)\s+)?(?P<count>[0-9]+)\s*\((?P<names>.*)\)", re.IGNORECASE)
# What a primary must have at least for each standby: its built-in values are 10.
_SLOTS = ("max_wal_senders", "max_replication_slots")


def with_synchronous_names(study: Study, specs: Sequence[VariantSpec] = ()) -> Study:
    """Return a study with standbys in which commits wait for one of them, if a setting asks for that and none says for whom.

    Args:
        study: The study as requested.
        specs: Its variants, with the levels of its sweeps.
    """
    if not study.server.standbys:
        return study
    own = study.server.settings
    asked = [
        (name.lower(), value) for settings in (own, *(s.settings for s in specs)) for name, value in settings.items()
    ]
    is_named = any(name == SYNCHRONOUS_NAMES for name, _ in asked)
    if is_named or not any(name == SYNCHRONOUS_COMMIT and _word(value) in _WAITING for name, value in asked):
        return study
    settings = {**own, SYNCHRONOUS_NAMES: ANY_STANDBY}
    return msgspec.structs.replace(study, server=msgspec.structs.replace(study.server, settings=settings))


def check_standbys(study: Study, variants: Sequence[Variant]) -> None:
    """Refuse what a study with standbys cannot have, and commits that would wait for standbys that are not there.

    Raises:
        SpecError: The study has such a thing.
    """
    if study.server.kind is ServerKind.GIVEN:
        return
    for fact, why, hint in (*_find_refusals(study), *_find_settings_refusals(study, variants)):
        raise SpecError(fact, detail=why, hint=hint)


def note_standbys(study: Study, variants: Sequence[Variant], choices: list[Choice]) -> None:
    """Say how many standbys there are, and which commits wait for them."""
    count = study.server.standbys
    if not count:
        _note_none(study, variants, choices)
        return
    value = "standby1" if count == 1 else f"standby1 to standby{count}"
    reason = "copies of the data on this machine, which stream from the server and share its CPUs and disk"
    choices.append(Choice(name="standbys", value=value, reason=reason))
    for kept in dict.fromkeys(_list_kept(study, variants)):
        reason = f"{SLOT_WAL_SETTING} = {kept}: a standby that falls behind fills the disk, and the plan counts {SLOT_WAL} for it"
        value = "without a bound" if kept == "-1" else f"up to {kept}"
        choices.append(Choice(name="WAL kept for standbys", value=value, reason=reason))
    asked = study.server.settings
    filled = with_synchronous_names(study, [VariantSpec(settings=variant.changed) for variant in variants])
    if filled.server.settings is not asked:
        reason = "a setting asks for commits that wait for a standby, and none says for which"
        choices.append(Choice(name=SYNCHRONOUS_NAMES, value=ANY_STANDBY, reason=reason))
    elif not any(show_value(all_of.get(SYNCHRONOUS_NAMES, "")) for all_of in _list_settings(filled, variants)):
        reason = f"nothing sets {SYNCHRONOUS_COMMIT} to on, remote_write or remote_apply, nor {SYNCHRONOUS_NAMES}"
        choices.append(Choice(name=_WAITING_COMMITS, value="none", reason=reason))


def _note_none(study: Study, variants: Sequence[Variant], choices: list[Choice]) -> None:
    """Say that no commit waits where remote_write or remote_apply is asked for without a standby; a given server may have some."""
    asked = [_word(all_of.get(SYNCHRONOUS_COMMIT, "")) for all_of in _list_settings(study, variants)]
    remote = " and ".join(dict.fromkeys(word for word in asked if word in _REMOTE))
    if remote and study.server.kind is not ServerKind.GIVEN:
        reason = f"without standbys, commits with {remote} wait for the server's own flush only, as with on; --standbys 1 starts one"
        choices.append(Choice(name=_WAITING_COMMITS, value="none", reason=reason))


def count_waited(value: SettingValue, standbys: int) -> tuple[int, int]:
    """Return for how many standbys a value of `synchronous_standby_names` lets commits wait, and how many it matches."""
    text = show_value(value).strip()
    if not text:
        return 0, 0
    quorum = _QUORUM.fullmatch(text)
    listed = text if quorum is None else quorum["names"]
    names = {name.strip().strip('"').lower() for name in listed.split(",")}
    matched = standbys if ANY_STANDBY in names else len(names.intersection(name_standbys(standbys)))
    return (1 if quorum is None else int(quorum["count"])), matched


def waits_for_standby(names: SettingValue, commit: SettingValue) -> bool:
    """Return whether commits wait for a standby with these `synchronous_standby_names` and `synchronous_commit`."""
    return bool(show_value(names).strip()) and _word(commit) not in _NOT_WAITING


def _find_refusals(study: Study) -> Iterator[tuple[str, str, str]]:
    if not study.server.standbys:
        return
    if (policy := study.data.restore) is not RestorePolicy.COPY:
        why = f"each trial begins with copies of the loaded data for server and standbys, and restore is {policy.value}"
        yield "standbys need their data copied", why, "leave out --restore and --restore-command, or the standbys"
    if is_loading(study):
        why = "loading is measured in an empty cluster, whose standbys would have nothing to replay at first"
        yield "loading is measured without standbys", why, "leave out --standbys"


def _find_settings_refusals(study: Study, variants: Sequence[Variant]) -> Iterator[tuple[str, str, str]]:
    standbys = study.server.standbys
    for settings in _list_settings(with_synchronous_names(study), variants):
        said = {name.lower(): show_value(value) for name, value in settings.items()}
        if standbys and said.get("wal_level", "").lower() == "minimal":
            why = "wal_level = minimal writes too little into the WAL for a standby"
            yield "the standbys cannot stream", why, "leave out wal_level, or the standbys"
        for name in _SLOTS:
            if said.get(name, "").strip().isdecimal() and int(said[name]) < standbys:
                why = f"{name} = {said[name]}, and {standbys} standby{'s' * (standbys > 1)} stream"
                yield "the standbys cannot stream", why, f"set {name} to {standbys} at least, or leave it out"
        waited, matched = count_waited(said.get(SYNCHRONOUS_NAMES, ""), standbys)
        if waited > matched and said.get(SYNCHRONOUS_COMMIT, "on").lower() not in _NOT_WAITING:
            names = said[SYNCHRONOUS_NAMES]
            why = f"{SYNCHRONOUS_NAMES} = {names} waits for {waited}, and matches {matched} of {standbys} standbys of the study"
            hint = "leave it out, or give the server standbys with --standbys N: they are called standby1, standby2 and so on"
            yield "commits would wait forever", why, hint


def _list_settings(study: Study, variants: Sequence[Variant]) -> list[Mapping[str, SettingValue]]:
    return [variant.server.settings for variant in variants] or [study.server.settings]


def _list_kept(study: Study, variants: Sequence[Variant]) -> Iterator[str]:
    """List the values with which a server keeps more WAL for its standbys than the plan counts."""
    for settings in _list_settings(study, variants):
        said = {name.lower(): show_value(value) for name, value in settings.items()}
        if (kept := said.get(SLOT_WAL_SETTING)) is None:
            continue
        with contextlib.suppress(ValueError):
            size_mb = parse_in_unit(kept, "MB", is_integer=True)
            if size_mb < 0 or size_mb > parse_in_unit(SLOT_WAL, "MB", is_integer=True):
                yield kept


def _word(value: SettingValue) -> str:
    return show_value(value).strip().lower()
