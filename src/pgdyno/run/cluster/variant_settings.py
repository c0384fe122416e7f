"""Put the settings of one variant after the other in force in a running server, and verify that they are.

How settings change: each variant has a file of its own in the cluster; postgresql.conf includes a link, the link is turned
to the variant's file, and the server told to reload. ALTER SYSTEM does the same with two flushes of its own. From the order
to its confirmation, with 8 clients at 1,500 TPS of simple-update on 2 busy CPUs (PostgreSQL 18, medians and 95th
percentiles of 45), a reload without any change took 9.0 ms (24), with the link 10.5 (21), with a file renamed 14.8 (31),
with ALTER SYSTEM 29 (61). Meanwhile the load ran at 0.7 of its speed with each of them, at half with 96 clients, because
every session reads all files; 50 ms after the order nothing was seen of it any more. Without the comments of
postgresql.conf a session reads them in 0.23 ms of CPU time, with them in 0.41.

A session reads the files before its next command; an idle session therefore reads them later. A setting that a reload
does not change in a session (restart, new sessions) is refused; the error quotes the server.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence

from pgdyno.errors import StepFailedError
from pgdyno.plan.experiment import Variant, changed_settings
from pgdyno.run.cluster.home import Home
from pgdyno.run.host import process
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.postgres import sql
from pgdyno.spec.conf import quote_value
from pgdyno.spec.table import SettingValue

_CONFIRM_WITHIN_S = 10.0
_CONFIRM_EVERY_S = 0.001
_LINK = "pgdyno-variant.conf"


class VariantFiles:
    """The settings of each variant as a file of the cluster, one of which the server reads.

    Args:
        home: Its `data` is the cluster, restored and not yet started.
        variants: The first is in force to begin with.

    Raises:
        OSError: A file cannot be written.
    """

    def __init__(self, home: Home, variants: Sequence[Variant]) -> None:
        self.names = changed_settings(tuple(variants))
        self._home = home
        self._files = {variant.name: f"pgdyno-variant-{number}.conf" for number, variant in enumerate(variants)}
        # The folder belongs to the server's account: root must not follow a link that this account put there.
        process.call_as(home.user, lambda: self._write_all(variants))

    def _write_all(self, variants: Sequence[Variant]) -> None:
        for variant in variants:
            lines = [f"{name} = {quote_value(variant.server.settings[name])}\n" for name in self.settings_of(variant)]
            self._write(self._files[variant.name], "".join(lines))
        self.choose(variants[0])
        config = self._home.data / "postgresql.conf"
        found = config.read_text(encoding="utf-8").splitlines()
        include = f"include '{_LINK}'"
        lines = [line for line in found if line.partition("#")[0].strip() and line != include]
        # The include comes after pgdyno's own file: if a name occurs twice, PostgreSQL takes the last line.
        config.write_text("\n".join([*lines, f"{include}\n"]), encoding="utf-8")

    def settings_of(self, variant: Variant) -> tuple[str, ...]:
        """Return the names that a variant's file sets; the rest of the configuration sets the others of `names`."""
        return tuple(name for name in self.names if name in variant.server.settings)

    def common(self, settings: Mapping[str, SettingValue]) -> dict[str, SettingValue]:
        """Return those of the settings that no variant changes: what the server is started with."""
        return {name: value for name, value in settings.items() if name not in self.names}

    def choose(self, variant: Variant) -> None:
        """Have the server read a variant's file from its next reload on, without writing data that a disk would delay."""
        # A thread calls this beside the load: `call_as` would change the account of the whole process under the main thread.
        folder = os.open(self._home.data, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(folder).st_uid != self._home.user.uid:
                raise StepFailedError("the cluster's folder is not the server's", detail=str(self._home.data))
            aside = f"{_LINK}.new"
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside, dir_fd=folder)
            os.symlink(self._files[variant.name], aside, dir_fd=folder)
            os.replace(aside, _LINK, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            os.close(folder)

    def open(self, connection: sql.Connection) -> VariantSettings:
        """Return what changes the settings, over a connection that it keeps for itself."""
        return VariantSettings(connection, self)

    def _write(self, name: str, text: str) -> None:
        # Data that are not restored have the file of the trial before.
        (self._home.data / name).unlink(missing_ok=True)
        descriptor = os.open(self._home.data / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)


class VariantSettings:
    """Changes the settings of the running server, and verifies that they are in force."""

    def __init__(self, connection: sql.Connection, files: VariantFiles) -> None:
        self._connection = connection
        self._files = files
        self._loaded_at = sql.read_loaded(connection, ()).loaded_at
        self._shown: dict[str, tuple[str, ...]] = {}

    def change(self, variant: Variant) -> None:
        """Put a variant's settings in force."""
        self._files.choose(variant)
        sql.reload_settings(self._connection)
        shown = self._await_reload()
        if variant.name not in self._shown:
            self._check(variant)
            self._shown[variant.name] = shown
        elif shown != self._shown[variant.name]:
            raise StepFailedError(
                f"the settings of {variant.name} are not in force",
                detail=f"{', '.join(self._files.names)}: {shown}, and {self._shown[variant.name]} before",
                hint="something else changes settings of pgdyno's own server",
            )

    def _await_reload(self) -> tuple[str, ...]:
        deadline_s = monotonic_s() + _CONFIRM_WITHIN_S
        while monotonic_s() < deadline_s:
            loaded = sql.read_loaded(self._connection, self._files.names)
            if loaded.loaded_at != self._loaded_at:
                self._loaded_at = loaded.loaded_at
                return loaded.shown
            time.sleep(_CONFIRM_EVERY_S)
        raise StepFailedError(
            f"the server did not reload its settings within {_CONFIRM_WITHIN_S:g} s",
            hint="it or the machine is too busy to compare under one load",
        )

    def _check(self, variant: Variant) -> None:
        refused = sql.find_unapplied_settings(self._connection, [*self._files.settings_of(variant)])
        if refused:
            raise StepFailedError(
                f"the running server does not take the settings of {variant.name}",
                detail="; ".join(refused),
                hint="correct the variant, or compare it by paired trials",
            )
