"""The derived settings that a study proves, with their reasons, as they were when it ran: reports need nothing else.

Plain text and numbers. What derives them is of a later room, and may derive others by then; a record keeps what it tried.
"""

from __future__ import annotations

import msgspec

STOCK, DERIVED = "stock", "derived"
"""The variants of such a study: the server as it is, and with the whole set."""


class TunedInput(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that a setting was derived from."""

    name: str
    value: float
    unit: str
    origin: str
    """`measured`, `declared` or `assumed`."""
    how: str


class TunedSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A derived setting, and what is there without it."""

    name: str
    value: str
    stock: str | None
    """What an untuned server or this machine has; None where that is not known."""
    target: str
    """`postgresql`, `sysctl`, `sysfs`, `storage` or `limit`."""
    layer: str
    """What it acts on."""
    reason: str
    formula: str
    inputs: tuple[TunedInput, ...]
    source: str
    trades: str
    left_out: str | None = None
    """Why trials ran without it; None where they ran with it."""


class TunedLayer(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that are kept or dropped together."""

    name: str
    settings: tuple[str, ...]
    """Those that differ from stock and were tried, by name."""
    variant: str | None = msgspec.field(name="arm")
    """The variant that has all but these; None where layers were not taken apart."""


class Tuned(msgspec.Struct, frozen=True, kw_only=True):
    """A derived set, and what of it was tried."""

    derived_for: str
    """Load, sessions and data, in a clause."""
    settings: tuple[TunedSetting, ...]
    layers: tuple[TunedLayer, ...]
    notes: tuple[str, ...]
    """What could not be derived, or rests on an assumption."""

    @property
    def is_layered(self) -> bool:
        """Whether each layer was taken out in turn."""
        return any(layer.variant is not None for layer in self.layers)

    def find(self, name: str) -> TunedSetting:
        """The setting of that name."""
        return next(setting for setting in self.settings if setting.name == name)
