"""The server's word on huge pages: what it does where the kernel's pool cannot hold its shared memory.

How large the pool is to be belongs to the kernel's layer. Where that is not to be changed, the server has to do with the
pool that is there, and nothing here asks for pages that it is not sure to hold.
"""

from __future__ import annotations

from pgdyno.tune.draft import Draft, size
from pgdyno.tune.memory import MOST_WAL_BUFFERS_BYTES, has_page_tables, shared_bytes, uses_huge_pages
from pgdyno.tune.types import Known, Layer

_MANUAL = "PostgreSQL 18 manual, section 19.4.1 “Memory”, huge_pages"
_UNTOLD = "nothing says that they were not to be had: see huge_pages_status (17 and later)"


def put_given_pages(draft: Draft, wanted_buffers_bytes: float) -> None:
    """Do without `on` where the kernel is given and its pool may be too small; page tables are then left room for.

    Args:
        draft: In which shared_buffers is not decided yet.
        wanted_buffers_bytes: What that is going to be at most.
    """
    kernel = draft.subject.kernel
    if not kernel.is_given or draft.text("huge_pages") != "on":
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
        trades=_UNTOLD,
        is_worth_a_word=True,
    )


def put_huge_pages(draft: Draft) -> None:
    """Ask for the pages that the kernel's layer reserves; shared_buffers are decided."""
    if not uses_huge_pages(draft):
        return
    is_on = not has_page_tables(draft)
    missing = "does not start" if is_on else "still starts"
    draft.put(
        "huge_pages",
        "on" if is_on else "try",
        layer=Layer.MEMORY,
        reason=f"the server uses the pages that vm.nr_hugepages reserves, and {missing} if they are missing.",
        formula="where shared_buffers is at least 256 MB and the kernel can be changed try, or on as it was set",
        inputs=(draft.subject.memory,),
        source=f"{_MANUAL}; section 18.4.5 “Linux Huge Pages”",
        trades="a start without them fails" if is_on else _UNTOLD,
        is_worth_a_word=True,
    )
