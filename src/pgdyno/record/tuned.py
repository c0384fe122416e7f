"""Keep the derived settings that a study tests, with their reasons, so that reports need nothing else.

They are plain text and numbers. The rules in `tune/` may derive other settings later; a record keeps those that it
tried.
"""

from __future__ import annotations

import msgspec

STOCK, DERIVED = "stock", "derived"
"""Names of the variants of such a study: the unchanged server, and the server with all derived settings."""


class TunedInput(msgspec.Struct, frozen=True, kw_only=True):
    """An input from which a setting was derived."""

    name: str
    value: float
    unit: str
    origin: str
    """`measured`, `declared` or `assumed`."""
    how: str


class TunedSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A derived setting, and its value without tuning."""

    name: str
    value: str
    stock: str | None
    """Value on an untuned server or on this machine; None where unknown."""
    target: str
    """`postgresql`, `sysctl`, `sysfs`, `storage` or `limit`."""
    layer: str
    """Name of the layer that it belongs to."""
    reason: str
    formula: str
    inputs: tuple[TunedInput, ...]
    source: str
    trades: str
    left_out: str | None = None
    """Why trials ran without the setting; None if they ran with it."""


class TunedLayer(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that are tested together."""

    name: str
    settings: tuple[str, ...]
    """Names of the settings that differ from stock and were tried."""
    variant: str | None = msgspec.field(name="arm")
    """The variant with all settings except these; None if layers were not tested separately."""


class Tuned(msgspec.Struct, frozen=True, kw_only=True):
    """A set of derived settings, and which of them were tried."""

    derived_for: str
    """The load, sessions and data that the settings were derived for, in a clause."""
    settings: tuple[TunedSetting, ...]
    layers: tuple[TunedLayer, ...]
    notes: tuple[str, ...]
    """Settings that could not be derived, and assumptions."""

    @property
    def is_layered(self) -> bool:
        """True if each layer was left out in turn."""
        return any(layer.variant is not None for layer in self.layers)

    def find(self, name: str) -> TunedSetting:
        """Return the setting with that name."""
        return next(setting for setting in self.settings if setting.name == name)
