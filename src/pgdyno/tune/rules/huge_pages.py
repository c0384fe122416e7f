"""Derive huge_pages: what the server does if the kernel's pool cannot hold its shared memory.

The rule for the size of the pool is in `kernel.py`. Where the pool must not be changed, the server has to use the
existing one, and requires huge pages only if the pool is certain to hold them.
"""

from __future__ import annotations

from pgdyno.tune.draft import KB, Draft, size
from pgdyno.tune.memory import (
    MOST_WAL_BUFFERS_BYTES,
    has_page_tables,
    huge_page_bytes,
    shared_bytes,
    uses_huge_pages,
)
from pgdyno.tune.types import Known, Layer
from pgdyno.units import format_bytes

_MANUAL = "PostgreSQL 18 manual, section 19.4.1 “Memory”, huge_pages"
_SILENT = "the server does not report that they were missing: see huge_pages_status (17 and later)"


def put_existing_pool(draft: Draft, wanted_buffers_bytes: float) -> None:
    """Avoid `on` where the kernel's pool cannot be changed and may be too small; page tables then count as memory.

    Args:
        draft: Draft in which shared_buffers is not yet decided.
        wanted_buffers_bytes: Upper limit of shared_buffers.
    """
    kernel = draft.subject.kernel
    if not kernel.is_unchangeable or draft.text("huge_pages") != "on":
        return
    wanted = Draft(draft.subject, {"shared_buffers": size(wanted_buffers_bytes), **draft.values()})
    pages = int(kernel.sysctls.get("vm.nr_hugepages", "0")) - kernel.others_huge_pages
    if pages * kernel.huge_page_bytes >= shared_bytes(wanted) + MOST_WAL_BUFFERS_BYTES:
        return
    draft.put(
        "huge_pages",
        "try",
        layer=Layer.MEMORY,
        reason="vm.nr_hugepages stays as it is, too few perhaps for the shared memory: with on the server would not start.",
        formula="on stays where vm.nr_hugepages has room for shared_buffers, all that comes with them, and 256 MB of wal_buffers",
        inputs=(Known.measured("huge pages", pages, "count", "/proc/sys/vm/nr_hugepages, less those of others"),),
        source=_MANUAL,
        trades=_SILENT,
        keeps_default=True,
    )


def put_huge_pages(draft: Draft) -> None:
    """Use the pages that the kernel's layer reserves, after shared_buffers is decided."""
    if not uses_huge_pages(draft):
        return
    is_on = not has_page_tables(draft)
    missing = "does not start" if is_on else "still starts"
    draft.put(
        "huge_pages",
        "on" if is_on else "try",
        layer=Layer.MEMORY,
        reason=f"the server uses the pages that vm.nr_hugepages reserves, and {missing} if they are missing.",
        formula="on as it was set, else try where shared_buffers is at least 256 MB and whole pages leave no more than a tenth of the memory unused; only where the kernel can be changed",
        inputs=(draft.subject.memory,),
        source=f"{_MANUAL}; section 18.4.5 “Linux Huge Pages”",
        trades="a start without them fails" if is_on else _SILENT,
        keeps_default=True,
    )


def note_own_size(draft: Draft) -> None:
    """Say what vm.nr_hugepages has to do with a server that asks for huge pages of another size than the kernel's default."""
    default_bytes, own_bytes = draft.subject.kernel.huge_page_bytes, huge_page_bytes(draft)
    if own_bytes == default_bytes or draft.fixed.get("huge_pages") == "off":
        return
    note = f"counts pages of {format_bytes(own_bytes)}, which must be the kernel's default there: Hugepagesize in /proc/meminfo."
    if draft.subject.is_here:
        note = (
            f"is left alone: its pages have {format_bytes(default_bytes)}, and those of huge_page_size = {format_bytes(own_bytes)} are reserved"
            f" in /sys/kernel/mm/hugepages/hugepages-{own_bytes // KB}kB/nr_hugepages or when the machine boots."
        )
    draft.notes.append(f"vm.nr_hugepages {note}")
