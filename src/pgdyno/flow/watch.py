"""`pgdyno watch`: serve a page that shows a record while it is being measured, or as it ended.

Only the record's own files are read, so that the page shows a record of any process and cannot disturb what it shows.
Reading takes at most a small share of one CPU, and none while no browser looks.
"""

from __future__ import annotations

import itertools
import os
from typing import NoReturn

import msgspec

from pgdyno.conduct.ui import Ui
from pgdyno.errors import PgdynoError, why
from pgdyno.flow.live_record import LiveRecord
from pgdyno.record.store import RecordStore
from pgdyno.report.live.page import make_live_page
from pgdyno.run.host.clock import cpu_seconds, monotonic_s, wait
from pgdyno.run.page_server import (
    Listener,
    Updates,
    describe_address,
    describe_readers,
    listen,
    make_token,
    serving,
)

_TICK_S = 1.0
# Of all CPUs, for reading all that is new: a long trial is read less often than a short one.
_CPU_SHARE = 0.002
# A busy machine makes a reading dearer for a while.
_LONGEST_PAUSE_S = 20.0
_NICEST = 19


def watch(store: RecordStore, *, address: str, port: int, ui: Ui) -> NoReturn:
    """Serve the page of a record until the user stops it.

    Args:
        store: The record.
        address: The IP address to listen on.
        port: The port; 0 is a free one.
        ui: Shows where the page is.

    Raises:
        SpecError: Another program has the port, or the address is none of this machine.
    """
    opened, token = listen(port, address=address), make_token()
    if readers := describe_readers(opened):
        ui.say(readers)
    ui.say(f"{store.path} is shown at {describe_address(opened, token)}; Ctrl-C ends it")
    serve_record(store, opened, token)


def serve_record(store: RecordStore, opened: Listener, token: str) -> NoReturn:
    """Serve the page of a record, which need not exist yet, until the user stops it."""
    # What the measurement leaves is enough.
    os.nice(_NICEST)
    page, updates = make_live_page(), Updates()
    with serving(opened, token=token, html=page.html, policy=page.policy, updates=updates):
        live, due_s, share = LiveRecord(store), 0.0, _CPU_SHARE * (os.cpu_count() or 1)
        try:
            while True:
                if not updates.wait_for_watcher(_TICK_S):
                    continue
                is_due = monotonic_s() >= due_s
                began_s = cpu_seconds()
                live = _update(live, updates, is_full=is_due)
                if is_due:
                    due_s = monotonic_s() + min((cpu_seconds() - began_s) / share, _LONGEST_PAUSE_S)
                wait(_TICK_S)
        finally:
            if updates.watchers:
                _update(live, updates, is_full=True)


def _update(live: LiveRecord, updates: Updates, *, is_full: bool) -> LiveRecord:
    """Show what is new, all of it or only the last second, and return the reader for the next time."""
    try:
        for name, content in itertools.chain(live.read() if is_full else (), live.read_seconds()):
            updates.put({name: content, "problem": b'""'})
    except (PgdynoError, OSError) as exc:
        if not live.has_read:
            return live
        updates.put({"problem": msgspec.json.encode(exc.reason if isinstance(exc, PgdynoError) else why(exc))})
        # What was read of a record that is gone may not pass for one that is made in its place.
        return LiveRecord(live.store, has_read=True)
    return live
