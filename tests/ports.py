"""A port that is free now, and stays so until a test's program listens on it."""

from __future__ import annotations

import random
import socket

# Below those that the kernel gives to connections, of which tests beside this one make many at any moment.
_PORTS = range(15_000, 32_000)


def find_free_port() -> int:
    """Return one that nobody listens on, drawn apart from `random`, which starts alike in each test of each worker."""
    for port in random.SystemRandom().sample(_PORTS, 100):
        try:
            with socket.create_server(("", port)):
                return port
        except OSError:
            continue
    raise AssertionError("100 ports are taken")
