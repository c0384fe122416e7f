"""Define the given server whose settings are to change, and the words that go with it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import msgspec

from pgdyno.plan.experiment import Variant
from pgdyno.run.change.changes import ApplyCommand
from pgdyno.run.postgres.address import Address
from pgdyno.spec.table import SettingValue
from pgdyno.spec.variant import show_value


class GivenTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A server whose settings are to change."""

    address: Address
    server: str
    """Where it listens, as people write it."""
    dsn: str
    """The connection string, without a secret."""
    system_identifier: str
    major: int


class GivenSwitch(GivenTarget, frozen=True, kw_only=True):
    """The server whose settings are to change, and the variants."""

    names: tuple[str, ...]
    """The settings that change in the server itself, in lower case."""
    variants: tuple[Variant, ...]
    command: ApplyCommand | None = None
    """What changes them; None for ALTER SYSTEM."""

    def texts_of(self, name: str) -> tuple[str, ...]:
        """Return all that variants ask for."""
        asked = [find_text(name, variant.server.settings) for variant in self.variants]
        return tuple(dict.fromkeys(text for text in asked if text is not None))


def restore_words(dsn: str) -> str:
    """Return the command that puts settings back, by a connection string without a secret."""
    return f"`pgdyno restore --dsn {shlex.quote(dsn)}`"


def forget_words(dsn: str) -> str:
    """Return the command that gives up putting settings back, by a connection string without a secret."""
    return f"`pgdyno restore --dsn {shlex.quote(dsn)} --forget`"


def find_text(name: str, settings: Mapping[str, SettingValue]) -> str | None:
    """Return what settings ask for, by a name in lower case; None if they leave it as it is."""
    return next((show_value(value) for key, value in settings.items() if key.lower() == name), None)
