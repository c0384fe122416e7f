"""Try each variant's settings on an empty cluster, so that a refused setting fails before the first trial.

The variant's kernel settings are in force meanwhile, because a server may need them (huge pages), and a value that the
kernel refuses shows only when it is set. A variant that does not start does not stop the others: it is returned with
the server's message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from pgdyno.errors import PgdynoError, SpecError
from pgdyno.plan.experiment import Variant, has_same_server
from pgdyno.run.change.kernel import changed_sysctls
from pgdyno.run.cluster.home import Home
from pgdyno.run.cluster.server import Server
from pgdyno.run.postgres.installation import Installation

# Before a server has read its settings it logs with its own prefix, afterwards with the one that pgdyno sets.
_LOG_LINE = re.compile(r"(?:[\d.]+\|\d+\|[^|]*\|\w{5}\||\S+ \S+ \S+ \[\d+\] )[A-Z]+\d?:  ?(?P<text>.*)")
_PLACE = re.compile(r" in file \"[^\"]*\" line \d+")
_NO_REASON = ("database system is shut down", "starting PostgreSQL", "listening on", "contains errors")


class VariantServer(msgspec.Struct, frozen=True, kw_only=True):
    """A variant and the PostgreSQL that it runs on."""

    variant: Variant
    installation: Installation


def try_variants(
    home: Home, variants: Sequence[VariantServer], *, on_activity: Callable[[str], None]
) -> dict[str, PgdynoError]:
    """Start each variant's server once on a temporary empty cluster. Call this from the main thread.

    Returns:
        The variants that do not start, by name, with the error.

    Raises:
        StepFailedError: initdb failed.
    """
    refused: dict[str, PgdynoError] = {}
    clusters = {(str(each.installation.bindir), each.variant.initdb): each.installation for each in variants}
    for (_, initdb), installation in clusters.items():
        home.clear_data()
        log_path = home.work / "try-variants.log"
        alike = [
            each.variant
            for each in variants
            if (each.installation.bindir, each.variant.initdb) == (installation.bindir, initdb)
        ]
        server = Server(installation=installation, home=home, log_path=log_path)
        try:
            on_activity("initdb")
            server.initdb(initdb)
            refused |= _try_all(server, alike, on_activity)
        except SpecError as exc:
            refused |= dict.fromkeys((one.name for one in alike), exc)
        finally:
            server.abandon()
            home.clear_data()
            log_path.unlink(missing_ok=True)
    return refused


def _try_all(server: Server, variants: Sequence[Variant], on_activity: Callable[[str], None]) -> dict[str, PgdynoError]:
    refused, tried = {}, list[tuple[Variant, PgdynoError | None]]()
    for variant in variants:
        # Variants that differ only in their load start alike.
        like = next((seen for seen in tried if has_same_server(seen[0], variant)), None)
        if like is None:
            on_activity(variant.name)
            like = (variant, _try_variant(server, variant))
            tried.append(like)
        if like[1] is not None:
            refused[variant.name] = like[1]
    return refused


def _try_variant(server: Server, variant: Variant) -> PgdynoError | None:
    try:
        with changed_sysctls(variant.sysctl):
            server.start(variant.server.settings)
    except PgdynoError as exc:
        exc.detail = _words_of(exc.detail)
        return exc
    finally:
        server.abandon()
    return None


def _words_of(said: str) -> str:
    """Return the server's message without log prefixes and without the position in pgdyno's own file."""
    texts = [found["text"] if (found := _LOG_LINE.fullmatch(line)) else line for line in said.splitlines()]
    told = [_PLACE.sub("", text) for text in texts if not any(words in text for words in _NO_REASON)]
    return "\n".join(told) or said
