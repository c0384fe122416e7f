"""Where the live page listens, as users say it; what is wrong is refused before anything is measured."""

from __future__ import annotations

import pytest

from pgdyno.cli.live import read_listen
from pgdyno.errors import SpecError
from tests.cli.program import run_here


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("0.0.0.0", ("0.0.0.0", 0)),
        ("10.0.0.7:8080", ("10.0.0.7", 8080)),
        ("::1", ("::1", 0)),
        ("[::1]:8080", ("::1", 8080)),
        ("[::]", None),
        ("bench7:8080", None),
        ("10.0.0.7:99999", None),
        ("10.0.0.7:80/x", None),
        ("me@10.0.0.7:80", None),
        ("", None),
    ],
)
def test_an_address_to_listen_on(text: str, read: tuple[str, int] | None) -> None:
    if read is not None:
        assert read_listen(text) == read
        return
    with pytest.raises(SpecError, match="not an IP address"):
        read_listen(text)


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        (("bench", "--listen", "0.0.0.0"), "--listen says where the live page listens, and there is none"),
        (("bench", "--live", "--listen", "db7"), "--listen db7: not an IP address"),
        (("watch", "--listen", "127.0.0.1:80", "--port", "81"), "--port and --listen both name a port"),
        (("watch", "--port", "8080", "--metrics-port", "8080"), "page and metrics are both to listen on port 8080"),
        (
            ("bench", "--live", "--listen", "0.0.0.0:8080", "--metrics-port", "8080"),
            "page and metrics are both to listen on port 8080",
        ),
    ],
)
def test_what_is_wrong_is_refused_first(options: tuple[str, ...], fact: str) -> None:
    done = run_here(options)
    assert (done.returncode, fact in done.stderr) == (2, True), done.stderr
