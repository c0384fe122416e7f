"""What the rules of a preflight look at: the machine, its state, and what is to be measured on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from pgdyno.explain.finding import Finding
from pgdyno.record.preflight import PreflightFacts
from pgdyno.record.types import HostFacts


class IntendedLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A load that is to be run."""

    name: str
    clients: int
    scale: int
    is_writing_branches: bool
    """Whether each transaction updates one of `scale` rows, as the built-in tpcb-like does."""


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be measured, as far as a rule asks for it."""

    horizon_s: float
    """How long it will take."""
    loads: tuple[IntendedLoad, ...] = ()


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """All that a rule may look at."""

    host: HostFacts
    facts: PreflightFacts
    intent: Intent

    @property
    def most_clients(self) -> int:
        """Of all loads; 0 without one."""
        return max((load.clients for load in self.intent.loads), default=0)


Rule = Callable[[Scene], Iterator[Finding]]
