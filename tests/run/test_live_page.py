"""What cannot be served beside a measurement is said, and does not stop it."""

from __future__ import annotations

from pathlib import Path

from pgdyno.run.live_page import LivePage, PageRequest
from pgdyno.run.page_server import listen


def test_a_port_or_an_address_that_cannot_be_had_is_said_and_nothing_is_started(tmp_path: Path) -> None:
    with listen(0) as taken:
        port = taken.getsockname()[1]
        # Source: RFC 5737, an address for documentation, which no machine has.
        page = LivePage(PageRequest(address="192.0.2.1", port=80, metrics_port=port))
        no_page, no_metrics = page.open(tmp_path / "record")
    assert no_page.startswith("there is no live page: the page cannot listen on 192.0.2.1:80")
    assert no_metrics.startswith(f"there are no metrics: port {port} is not free")
    assert not page.is_open
    page.close(is_stopped=False)
