"""`pgdyno watch`: serve a page and metrics of a record while it is being measured, or as it ended.

Only files of records are read, so that the page shows a record of any process and cannot disturb what it shows.
Reading takes at most a small share of one CPU, and none while nothing asks.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NoReturn

import msgspec

from pgdyno.conduct.ui import Ui
from pgdyno.errors import PgdynoError, describe_failure
from pgdyno.flow.live.record import LiveRecord
from pgdyno.record.store import RecordStore
from pgdyno.report.exports.openmetrics import MEDIA_TYPE, render_openmetrics
from pgdyno.report.live.page import make_live_page
from pgdyno.run.host.clock import cpu_seconds, monotonic_s, wait
from pgdyno.run.live_page import END_SIGNAL, PageRequest, Served, open_served
from pgdyno.run.metrics_server import Scrapes, serving_metrics
from pgdyno.run.page_server import Updates, serving

_TICK_S = 1.0
# Of all CPUs, for reading all that is new, and for the last second of TPS and latency: what costs more is read less often.
_ALL_SHARE, _SECONDS_SHARE = 0.002, 0.0008
# For earlier records that nobody has read yet: on 2 CPUs one in a quarter of an hour.
_EARLIER_SHARE = 0.0005
# A busy machine makes a reading dearer for a while.
_LONGEST_PAUSE_S = 20.0
_NICEST = 19


def watch(store: RecordStore, *, request: PageRequest, ui: Ui) -> NoReturn:
    """Serve a record until the user stops it.

    Raises:
        SpecError: Another program has the port, or the address is none of this machine.
    """
    served, said = open_served(request)
    for line in said:
        ui.say(line)
    ui.say(f"{store.path} is shown; Ctrl-C ends it")
    serve_record(store, served)


def serve_record(store: RecordStore, served: Served) -> NoReturn:
    """Serve a record, which need not exist yet, until the user stops it."""
    # What the measurement leaves is enough.
    os.nice(_NICEST)
    with _serving(served) as (updates, scrapes):
        live, all_new, seconds = LiveRecord(store), _Pace(_ALL_SHARE), _Pace(_SECONDS_SHARE)
        earlier = _Pace(_EARLIER_SHARE, longest_s=math.inf)
        try:
            while True:
                has_browser = updates.wait_for_watcher(_TICK_S)
                asked = scrapes.asked
                if not has_browser and not scrapes.is_asked:
                    continue
                is_full = all_new.is_due
                if is_full or seconds.is_due or scrapes.is_asked:
                    with all_new.spend() if is_full else seconds.spend():
                        live = _update(live, updates, is_full=is_full)
                        if scrapes.is_asked:
                            scrapes.answer(_render(live), asked=asked)
                if has_browser:
                    if earlier.is_due or live.may_read_earlier:
                        with earlier.spend():
                            live.read_earlier()
                    wait(_TICK_S)
        except KeyboardInterrupt as end:
            # A user who stops the command does not wait for a monitoring system.
            is_asked_again = end.args == (END_SIGNAL.name,) and scrapes.asked > 1
            # While nothing asks, the command ends without another reading.
            if updates.watchers or is_asked_again:
                live = _update(live, updates, is_full=True)
            if is_asked_again and scrapes.wait_for_last():
                scrapes.answer(_render(live), asked=scrapes.asked)
            raise


class _Pace:
    """Pauses between readings, so that they take at most a share of all CPUs; no pause is longer than the longest."""

    def __init__(self, share: float, *, longest_s: float = _LONGEST_PAUSE_S) -> None:
        self._share, self._due_s, self._longest_s = share * (os.cpu_count() or 1), 0.0, longest_s

    @property
    def is_due(self) -> bool:
        return monotonic_s() >= self._due_s

    @contextmanager
    def spend(self) -> Iterator[None]:
        """Take the CPU time of a block for a reading."""
        began_s = cpu_seconds()
        yield
        self._due_s = monotonic_s() + min((cpu_seconds() - began_s) / self._share, self._longest_s)


def _render(live: LiveRecord) -> bytes:
    return "".join(render_openmetrics(live.list_metrics(), has_times=False)).encode()


@contextmanager
def _serving(served: Served) -> Iterator[tuple[Updates, Scrapes]]:
    """Serve what there is to serve while the block runs."""
    updates, scrapes = Updates(), Scrapes()
    with ExitStack() as servers:
        if served.page is not None:
            page = make_live_page()
            servers.enter_context(
                serving(served.page, token=served.token, html=page.html, policy=page.policy, updates=updates)
            )
        if served.metrics is not None:
            servers.enter_context(serving_metrics(served.metrics, media_type=MEDIA_TYPE, scrapes=scrapes))
        yield updates, scrapes


def _update(live: LiveRecord, updates: Updates, *, is_full: bool) -> LiveRecord:
    """Show what is new, all of it or only the last second, and return the reader for the next time."""
    try:
        for name, content in itertools.chain(live.read() if is_full else (), live.read_seconds()):
            updates.put({name: content})
        # The last second alone does not show that all of the record can be read again.
        if is_full:
            updates.put({"problem": b'""'})
    except (PgdynoError, OSError) as exc:
        if not live.has_read:
            return live
        updates.put({"problem": msgspec.json.encode(describe_failure(exc))})
        # What was read of a record that is gone may not pass for one that is made in its place.
        return LiveRecord(live.store, has_read=True)
    return live
