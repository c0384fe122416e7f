"""Ask a server for its settings, and have it reload them.

A running server is asked by SQL; of one that does not run, its program reads its files.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence

import msgspec

from pgdyno.errors import SpecError
from pgdyno.facts.gucs import same_value
from pgdyno.run.change.named_server import NamedServer
from pgdyno.run.host.clock import monotonic_s

# Source: PostgreSQL 18 src/include/utils/guc.h, GucSource.
_OF_SESSION = frozenset({"database", "user", "database user"})
# Values that tell the server to choose the setting itself.
_CHOSEN_BY_SERVER = {
    "wal_buffers": "-1",
    "commit_timestamp_buffers": "0",
    "subtransaction_buffers": "0",
    "transaction_buffers": "0",
}
_PATIENCE_S = 60.0
_RELOAD_PATIENCE_S = 10.0
_POLL_S = 0.02
_SAID = re.compile(r"^.*? (?=(?:FATAL|ERROR|LOG|DETAIL|HINT): )", re.MULTILINE)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one setting in a running server."""

    value: str | None
    """The value in the server's own unit; None if the server does not know the name."""
    source: str
    context: str
    is_waiting: bool
    """True if the files have another value that takes effect at a restart."""

    @property
    def is_of_session(self) -> bool:
        """True if a setting of pgdyno's role or database hides the server's own value."""
        return self.source in _OF_SESSION


class RunningSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a running server and of the requested settings."""

    is_superuser: bool
    is_in_recovery: bool
    may_alter_system: bool
    data_directory: str | None
    config_file: str | None
    loaded_at: str
    settings: dict[str, Setting]


def ask_state(server: NamedServer, names: Sequence[str]) -> RunningSettings:
    """Query a running server's state and these settings, by name in lower case.

    Raises:
        HostError: The server accepts none of the accounts that pgdyno may use.
        StepFailedError: The server does not run, or does not answer.
    """
    # The import brings psycopg, which only commands that query a server should wait for.
    from pgdyno.run.postgres.sql import named_server_query  # noqa: PLC0415

    return server.ask(named_server_query(names), RunningSettings)


def reload_server(server: NamedServer, names: Sequence[str]) -> RunningSettings:
    """Make a running server reload its files, and return the settings of new sessions by name in lower case.

    Raises:
        HostError: As for `ask_state`; nothing has changed.
        StepFailedError: As for `ask_state`.
    """
    before = ask_state(server, names)
    server.reload()
    deadline = monotonic_s() + _RELOAD_PATIENCE_S
    while True:
        state = ask_state(server, names)
        if state.loaded_at != before.loaded_at or monotonic_s() > deadline:
            return state
        time.sleep(_POLL_S)


def find_differing(settings: Mapping[str, str], shown: Mapping[str, Setting], major: int) -> tuple[str, ...]:
    """Return the names, in lower case, of settings whose value in the server differs from the wanted one."""
    return tuple(
        name
        for name, value in settings.items()
        if _CHOSEN_BY_SERVER.get(name) != value and not same_value(name, value, shown[name].value or "", major)
    )


def read_conf_value(server: NamedServer, name: str) -> Setting:
    """Read the value that a stopped server would have according to its files.

    Raises:
        SpecError: The server refuses a value in its files.
    """
    value = ask_program(server, name).removesuffix("\n")
    return Setting(value=value, source="", context="", is_waiting=False)


def ask_program(
    server: NamedServer, name: str, settings: Mapping[str, str] | None = None, config_file: str | None = None
) -> str:
    """Return what the server's program prints for a setting, given these other settings.

    Raises:
        SpecError: The server refuses one of them; the detail quotes its message.
    """
    done = server.ask_program(name, settings=settings, config_file=config_file, timeout_s=_PATIENCE_S)
    if done.exit_code != 0:
        raise SpecError(
            "the server refuses a setting",
            detail=_SAID.sub("", done.stderr.strip()),
            hint=f"PostgreSQL {server.major} does not take it",
        )
    return done.stdout
