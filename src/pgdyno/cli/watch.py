"""Define the command `watch`, which shows a record on a page of its own."""

# ruff: noqa: PLC0415 - flows are imported when their command runs, which keeps --help fast
from __future__ import annotations

from typing import Annotated

import typer

from pgdyno.cli.live import ListenOption, MetricsPortOption, request_watched
from pgdyno.cli.options import DEFAULT_RECORDS, RecordArgument, RecordsOption
from pgdyno.cli.session import session

WATCH_EXAMPLES = "Examples:\n\n`pgdyno watch` · the newest record here\n\n`pgdyno watch pgdyno-records/20261121-093000-bench --port 8080`"


def watch(
    record: RecordArgument = None,
    *,
    records: RecordsOption = DEFAULT_RECORDS,
    listen: ListenOption = None,
    port: Annotated[
        int,
        typer.Option(
            metavar="PORT", help="Port of the page; 0 is a free one, if --listen names none.", min=0, max=65535
        ),
    ] = 0,
    metrics_port: MetricsPortOption = None,
) -> None:
    """Show a record in a browser while it is being measured, until Ctrl-C.

    The page is served on this machine only, unless --listen says otherwise, at an address with a secret token. It reads the
    record's files and nothing else; ended records can be watched as well.
    """
    with session(json=False, quiet=True, yes=True) as (ui, _):
        from pgdyno.flow.live.watch import serve_record
        from pgdyno.flow.live.watch import watch as watch_record
        from pgdyno.flow.records.find import find_record
        from pgdyno.record.store import RecordStore
        from pgdyno.run.live_page import take_over

        handed = take_over()
        if handed is not None and record is not None:
            serve_record(RecordStore(record), handed)
        request = request_watched(listen, port=port, metrics_port=metrics_port)
        watch_record(find_record(record, records, ui=ui), request=request, ui=ui)
