"""Translate typer's usage errors into pgdyno's own errors: a fact, and a hint with similar words.

Typer itself would print a box, and `--json` would get no document. The module is imported only for such an error.
Typer's own message is kept where it is good enough.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import Any

import typer

from pgdyno.cli.commands import VARIED, RepeatedOptionError
from pgdyno.errors import SpecError, did_you_mean

_IS_MISSING = " is missing"
_SIMILAR = 0.75
# Source: docs.pydantic.dev/latest/errors/validation_errors, whose error types typer uses.
_NOT_OF_TYPE = {"int_parsing": "not a whole number", "float_parsing": "not a number"}
# Commands that measure.
_MEASURING = ("bench", "compare", "sweep")
_OF_PAIRS = ("--sysctl", "--initdb")
_ENDPOINT, _REPLICAS = "--endpoint", "replicas="
_BEYOND = {"ge": "below", "gt": "not above", "le": "above", "lt": "not below"}


def describe_usage_error(error: Any, argv: Sequence[str], *, commands: Collection[str]) -> SpecError:
    """Translate a usage error.

    Args:
        error: Error that typer raised.
        argv: Command line without the program.
        commands: Names of all commands.
    """
    command = next((word for word in argv if word in commands), None)
    if isinstance(error, RepeatedOptionError):
        said = " ".join(f"{error.option} {_show_value(error.option, value)}" for value in error.values)
        return SpecError(f"{said}: {error.message}", hint=_say_once(error, command))
    helped = f"`pgdyno {command} --help`" if command else "`pgdyno --help`"
    fact, near = _describe(error)
    similar = [f"`{word}`" if word.startswith("-") else f"`pgdyno {word}`" for word in near]
    hint = f"{helped} lists the options" if command else f"{helped} lists the commands"
    if fact.endswith(_IS_MISSING):
        hint = f"{helped} has examples"
    option = getattr(error, "option_name", None)
    if (command, option) == ("run", "--dsn"):
        hint = 'a study names its server itself: in [server], kind = "given" and dsn'
    if option == "--server-host":
        from pgdyno.flow.far_order import COMMANDS  # noqa: PLC0415 - other errors need nothing of records, whose modules it loads

        if command in COMMANDS:
            return SpecError(fact, hint=f"`pgdyno on DEST {command}` runs it on another machine")
    return SpecError(fact, hint=f"{did_you_mean(similar)} {hint}" if similar else hint)


def _show_value(option: str, value: str) -> str:
    name, equals, _ = value.partition("=")
    # The rest is a connection string, which may hold a password.
    return f"{name}=…" if option == _ENDPOINT and equals else shlex.quote(value)


def _say_once(error: RepeatedOptionError, command: str | None) -> str:
    """Say how several values of an option are measured, if they can be."""
    name, values = error.option.strip("-").replace("-", "_"), dict.fromkeys(error.values)
    if error.option in _OF_PAIRS:
        return f"give all in quotes: {error.option} {shlex.quote(' '.join(values))}"
    if error.option == _ENDPOINT and any("=" in value for value in values):
        if all(value.startswith(_REPLICAS) for value in values):
            return "one connection string lists all hosts that the load reads from: --endpoint replicas='host=db2,db3'"
        return "give it once; `pgdyno compare` takes several, and compares them"
    axes = [axis for axis in error.given.get("axes") or () if axis.partition("=")[0] not in {name, ""}]
    if command not in _MEASURING or name not in VARIED or any("<" in axis for axis in axes):
        return "give it once"
    axis = f"{name}={','.join(values)}"
    return f"give it once, or vary it: `pgdyno sweep {shlex.join([*axes[:1], axis])}`"


def _describe(error: Any) -> tuple[str, Sequence[str]]:
    """Return the fact and similar words, the most similar first."""
    option = getattr(error, "option_name", None)
    if hasattr(error, "possibilities"):
        return f"there is no option {option}", get_close_matches(option, error.possibilities or (), cutoff=_SIMILAR)
    if option is not None:
        return error.message[0].lower() + error.message[1:].rstrip("."), ()
    if isinstance(error, typer.BadParameter) and error.param is not None:
        return _describe_parameter(error), ()
    message, _, suggested = error.message.partition(" Did you mean ")
    return message[0].lower() + message[1:].rstrip("."), re.findall(r"'([^']+)'", suggested)


def _describe_parameter(error: Any) -> str:
    name = next(iter(error.param.opts), "") if error.param.param_type_name == "option" else ""
    name = name or error.param.display_name_raw.upper()
    if not error.message:
        return name + _IS_MISSING
    seen = error.__cause__.errors()[0] if hasattr(error.__cause__, "errors") else {}
    bounds = seen.get("ctx", {})
    said = _NOT_OF_TYPE.get(seen.get("type", "")) or next(
        (f"{words} {bounds[key]}" for key, words in _BEYOND.items() if key in bounds), error.message.rstrip(".")
    )
    return f"{name} {seen['input']}: {said}" if "input" in seen else f"{name}: {said}"
