"""Reach a given server again and again: by pgdyno, by pgbench, by the samplers, with a password that no other account sees.

libpq resolved the user's string once. What it resolved, without a secret, is handed on; the password is handed on in a file
in memory, which only this process and the children that it starts can open.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator, Mapping

import msgspec

from pgdyno.errors import PgdynoError, SpecError
from pgdyno.run.given import conninfo
from pgdyno.run.given.password_command import PasswordCommand
from pgdyno.run.host.log import LOG
from pgdyno.run.postgres import sql, timeouts
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.passfile import format_passfile, name_passfile, open_passfile
from pgdyno.spec.table import SettingValue
from pgdyno.spec.variant import show_value

# They belong to a single connection, are set again, or only named what libpq has resolved.
_NOT_HANDED_ON = {
    "application_name",
    "client_encoding",
    "connect_timeout",
    "fallback_application_name",
    "passfile",
    "hostaddr",
    "service",
    "servicefile",
}
_MAY_FALL_BACK = {"", "allow", "prefer"}
# A command that hangs is not waited for at the end.
_PARTING_S = 1.0


@contextlib.contextmanager
def open_access(dsn: str) -> Iterator[Address]:
    """Connect once, and yield the address that children and later connections use, for the length of a `with` block.

    Its `dbname` and `side_dbname` are the database that the string names.

    Raises:
        SpecError: It is no connection string, or needs a secret that cannot be handed on.
        StepFailedError: There is no connection.
    """
    with conninfo.connect(dsn) as connection:
        info = connection.info
        found = {name: value for name, value in info.get_parameters().items() if name not in _NOT_HANDED_ON}
        password = info.password
        # The host and address that answered, of several that the string may name.
        host, port, user, dbname = info.host or info.hostaddr, info.port, info.user, info.dbname
        if info.hostaddr:
            found["hostaddr"] = info.hostaddr
        found |= _pin_encryption(connection)
    for name in conninfo.SECRETS & set(found):
        raise SpecError(
            f"{name} cannot be handed to pgbench",
            hint="log in by a password, a certificate whose key has no password, or Kerberos",
        )
    for name in ("host", "port", "user", "dbname"):
        found.pop(name, None)
    found = conninfo.with_whole_paths(found)
    with contextlib.ExitStack() as stack:
        inherited: tuple[int, ...] = ()
        if password:
            descriptor = stack.enter_context(open_passfile(password))
            found["passfile"] = name_passfile(descriptor)
            inherited = (descriptor,)
            if (command := conninfo.find_password_command()) is not None:
                stack.enter_context(_renewing(descriptor, command))
        yield Address(
            host=host,
            port=port,
            user=user,
            dbname=dbname,
            side_dbname=dbname,
            parameters={**found, "connect_timeout": "10"},
            inherited=inherited,
        )


def _pin_encryption(connection: sql.Connection) -> dict[str, str]:
    """Return the parameters with which every later connection is encrypted as this one is, or fails.

    Left to choose, the libpq of a pgbench may encrypt by GSSAPI where this one, which may lack it, takes TLS, or the other way round.
    """
    has_tls, has_gss = connection.pgconn.ssl_in_use, False
    if not has_tls and conninfo.find_parameter(connection, "gssencmode") != "disable":
        with timeouts.limit(connection), sql.carefully(connection):
            has_gss = sql.has_gss_encryption(connection)
    pinned = {"gssencmode": "require" if has_gss else "disable"}
    if conninfo.find_parameter(connection, "sslmode") in _MAY_FALL_BACK:
        pinned["sslmode"] = "require" if has_tls else "disable"
    return pinned


@contextlib.contextmanager
def _renewing(descriptor: int, command: PasswordCommand) -> Iterator[None]:
    """Write each new password of a command into a password file in memory, for the length of a `with` block."""
    is_over, writing = threading.Event(), threading.Lock()

    def renew() -> None:
        while not is_over.wait(command.renew_s):
            try:
                line = format_passfile(command.get())
            except PgdynoError as error:
                LOG.warning("the old password stays: %s", error.reason)
                continue
            with writing:
                # The descriptor may be another file's by now.
                if is_over.is_set():
                    return
                # libpq takes the first line that fits, so that the end of a longer one before does not matter.
                os.pwrite(descriptor, line, 0)
                os.ftruncate(descriptor, len(line))

    thread = threading.Thread(target=renew, name="pgdyno-password", daemon=True)
    thread.start()
    try:
        yield
    finally:
        with writing:
            is_over.set()
        thread.join(_PARTING_S)


def with_settings(address: Address, settings: Mapping[str, SettingValue]) -> Address:
    """Return the address of sessions that ask for settings, after what the user's own string asks for."""
    if not settings:
        return address
    asked = " ".join(f"-c {name}={_escape(show_value(value))}" for name, value in settings.items())
    options = f"{address.parameters.get('options', '')} {asked}".strip()
    return msgspec.structs.replace(address, parameters={**address.parameters, "options": options})


def _escape(value: str) -> str:
    """Escape a value for libpq's options. Source: PostgreSQL's pg_split_opts()."""
    return re.sub(r"([\\\s])", r"\\\1", value)
