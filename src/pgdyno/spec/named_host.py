"""Read the machine that a user names: a host file of the user's or a shipped one, or an instance."""

from __future__ import annotations

from pathlib import Path

from pgdyno.errors import SpecError, did_you_mean
from pgdyno.facts.instances import find_instance
from pgdyno.spec.host import HostSpec, read_host
from pgdyno.spec.shipped import list_shipped

HOST_FILE = ".toml"


def read_named_host(name: str) -> HostSpec:
    """Read a machine by its instance, or by a host file.

    Raises:
        SpecError: No such instance is known, or the file is not understood.
    """
    path = Path(name)
    if path.suffix == HOST_FILE or "/" in name or path.is_file():
        return read_host(path, takes_instance=True)
    try:
        return HostSpec(instance=find_instance(name).name)
    except SpecError as exc:
        shipped = f"hosts/{name}"
        if shipped not in list_shipped():
            raise
        raise SpecError(exc.fact, detail=exc.detail, hint=did_you_mean([shipped])) from exc
