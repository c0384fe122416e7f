"""Format derived settings as files: for postgresql.conf, for psql and for the kernel, with reasons in comments.

A setting that gives up durability never appears in these files, not even as a comment, unless the user set it; then the
comment says what it gives up.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from pgdyno.facts.durability import find_given_up
from pgdyno.facts.gucs import ChangeCost
from pgdyno.report.sections.tuning.view import (
    COST_WORDS,
    TuningView,
    change_of,
    describe_rights,
    describe_subject,
    describe_trial,
)
from pgdyno.report.setting_words import format_alter_system, format_conf
from pgdyno.tune.rules.pooler import list_left_to_user
from pgdyno.tune.types import Derived, Layer, Target

_WIDTH = 100


def format_conf_file(view: TuningView) -> str:
    """Return a fragment of postgresql.conf, to be included there."""
    lines = [*_head(view, "#", "Include it at the end of postgresql.conf: include 'pgdyno.conf'")]
    for layer, settings in _by_layer(view.tuning.of(Target.POSTGRESQL)):
        lines += ["", f"# --- {layer.value}"]
        for one in settings:
            lines += [*_comment("#", _why(view, one)), format_conf(one.name, one.value)]
    return "\n".join(lines) + "\n"


def format_alter_system_script(view: TuningView) -> str:
    """Return a script for psql that ends with a reload and names the settings that need a restart.

    A setting that the named server already has in force is left out: ALTER SYSTEM would override its source
    permanently.
    """
    settings = view.tuning.of(Target.POSTGRESQL)
    as_they_are = {one.name for one in settings if view.is_named and change_of(view, one).is_same}
    lines = [*_head(view, "--", "Run it with psql as a superuser: psql -X -v ON_ERROR_STOP=1 -f pgdyno.sql")]
    for words in describe_rights(view):
        lines += _comment("--", words)
    for layer, some in _by_layer(settings):
        lines += ["", f"-- --- {layer.value}"]
        for one in some:
            command = format_alter_system(one.name, one.value)
            lines += [
                *_comment("--", _why(view, one)),
                f"-- already in force: {command}" if one.name in as_they_are else command,
            ]
    lines += ["", "SELECT pg_reload_conf();"]
    waiting = [one.name for one in settings if one.change is ChangeCost.RESTART and one.name not in as_they_are]
    if waiting:
        lines += ["", *_comment("--", f"A restart brings these into force: {', '.join(waiting)}")]
    undo = "To undo a line: ALTER SYSTEM RESET name. ALTER SYSTEM overrides postgresql.conf."
    return "\n".join([*lines, *_comment("--", undo)]) + "\n"


def format_sysctl_file(view: TuningView) -> str:
    """Return a file for /etc/sysctl.d; kernel settings outside sysctl appear in comments."""
    lines = [*_head(view, "#", "Put it into /etc/sysctl.d/90-pgdyno.conf and run `sysctl --system` as root")]
    for one in view.tuning.of(Target.SYSCTL):
        lines += ["", *_comment("#", one.reason), f"{one.name} = {one.value}"]
    others = view.tuning.of(Target.SYSFS)
    if others:
        lines += [
            "",
            *_comment(
                "#", "These have no sysctl; as lines of /etc/tmpfiles.d/pgdyno.conf they persist across reboots:"
            ),
        ]
    for one in others:
        lines += ["#", *_comment("#", one.reason), f"#   w /sys/{one.name} - - - - {one.value}"]
    return "\n".join(lines) + "\n"


def format_pgbouncer_file(view: TuningView) -> str:
    """Return a file for PgBouncer's configuration to include; what only its owner can say is named in comments.

    It begins no section: where [pgbouncer] begins a second time, PgBouncer resets all settings of it to their defaults.
    """
    pooling = view.tuning.subject.pooling
    how = "Include it as the last line of the section [pgbouncer] in pgbouncer.ini: %include /etc/pgbouncer/pgdyno.ini"
    lines = [*_comment(";", f"Derived by pgdyno. {describe_subject(view)}."), *_comment(";", f"{how}.")]
    for words in () if pooling is None else list_left_to_user(pooling):
        lines += _comment(";", words)
    for one in view.tuning.of(Target.POOLER):
        lines += ["", *_comment(";", one.reason.rstrip(".")), f"{one.name} = {one.value}"]
    return "\n".join(lines) + "\n"


def _head(view: TuningView, mark: str, how: str) -> Iterator[str]:
    yield from _comment(mark, f"Derived by pgdyno. {describe_subject(view)}.")
    yield from _comment(mark, describe_trial(view))
    yield from _comment(mark, f"{how}.")


def _why(view: TuningView, one: Derived) -> str:
    lost = "".join(
        f", {given_up.label}" for given_up in find_given_up({one.name: one.value}, view.tuning.subject.major)
    )
    given = view.given
    who = "" if given is None or one.name in given.settable else f"; not by {given.name}"
    return f"{one.reason.rstrip('.')}{lost} ({COST_WORDS[one.change]}{who})"


def _comment(mark: str, words: str) -> list[str]:
    # A name that the user gave may contain a line end, which would end the comment.
    return textwrap.wrap(
        " ".join(words.split()), _WIDTH, initial_indent=f"{mark} ", subsequent_indent=f"{mark} ", break_long_words=False
    )


def _by_layer(settings: Sequence[Derived]) -> Iterator[tuple[Layer, list[Derived]]]:
    for layer in Layer:
        some = [one for one in settings if one.layer is layer]
        if some:
            yield layer, some
