"""Derive kernel settings in /proc/sys and /sys, and limits of the systemd unit that starts the server.

For a container, settings of the whole machine are left out.
"""

from __future__ import annotations

import math

from pgdyno.tune.draft import MB, Draft, round_down
from pgdyno.tune.memory import (
    count_huge_pages,
    huge_page_bytes,
    reserve_bytes,
    server_bytes,
    sum_memory,
    unused_huge_bytes,
    uses_huge_pages,
    wants_huge_pages,
)
from pgdyno.tune.rules.huge_pages import note_own_size
from pgdyno.tune.types import Known, Layer, Target
from pgdyno.units import format_bytes

_NR_HUGEPAGES = "vm.nr_hugepages"
_VM = "Linux, Documentation/admin-guide/sysctl/vm.rst"
_SYSCTL = "Linux, Documentation/admin-guide/sysctl/kernel.rst"
_MANUAL = "PostgreSQL 18 manual, section 18.4"
# Source: Linux, mm/page-writeback.c: default shares of dirtyable memory, which is free memory and page cache; the
# settings in bytes apply if they are not 0.
_STOCK_BACKGROUND_RATIO, _STOCK_DIRTY_RATIO = 0.1, 0.2
_LEAST_BACKGROUND_BYTES = 64 * MB
_DIRTY_IN_SEQUENCE = "the kernel starts writing back early, so that a flush waits no longer than the allowed stall for what piled up, while that is written in sequence."
_DIRTY_SCATTERED = "the kernel starts writing back early: changed pages lie all over the disk, and while it seeks to each of them, a flush waits for what piled up."
# Between the two limits, writers continue while the kernel writes back. Source: balance_dirty_pages(), as above, begins
# to slow them halfway.
_BURST = 4
# Source: Linux, include/linux/socket.h, SOMAXCONN since 5.4.
_STOCK_SOMAXCONN = 4096


def derive_kernel(draft: Draft) -> None:
    """Decide kernel settings, after memory and connections are decided."""
    if draft.subject.kernel.is_container:
        draft.notes.append(
            "kernel settings belong to the machine that the container runs on: derive them there, with its own memory."
        )
    if draft.subject.kernel.is_unchangeable:
        return
    _put_huge_pages(draft)
    _put_dirty(draft)
    _put_swappiness(draft)
    _put_overcommit(draft)
    _put_numa(draft)
    _put_transparent_huge_pages(draft)
    _put_somaxconn(draft)


def _put_sysctl(
    draft: Draft,
    name: str,
    value: str,
    *,
    reason: str,
    formula: str,
    inputs: tuple[Known, ...],
    source: str,
    trades: str = "",
) -> None:
    seen = draft.subject.kernel.sysctls
    # Nothing was observed: the machine is not at hand, and its kernel is assumed to have the usual settings.
    if seen and name not in seen:
        return
    draft.put_outside(
        name,
        value,
        target=Target.SYSCTL,
        layer=Layer.KERNEL,
        reason=reason,
        formula=formula,
        inputs=inputs,
        source=source,
        trades=trades,
    )


def _put_huge_pages(draft: Draft) -> None:
    note_own_size(draft)
    kernel, each_bytes = draft.subject.kernel, huge_page_bytes(draft)
    if not uses_huge_pages(draft):
        if wants_huge_pages(draft):
            unused = format_bytes(unused_huge_bytes(draft))
            draft.notes.append(
                f"{_NR_HUGEPAGES} is left alone: in huge pages of {format_bytes(each_bytes)} the shared memory would leave {unused} unused."
            )
        return
    how = "/proc/meminfo: used or reserved, less the server's"
    others = Known.measured("huge pages of others", kernel.others_huge_pages, "count", how)
    pages = count_huge_pages(draft) + kernel.others_huge_pages
    now = kernel.sysctls.get(_NR_HUGEPAGES, "0")
    if int(now) > pages:
        draft.notes.append(
            f"{_NR_HUGEPAGES} is {now} now, and the set reduces it: if a program that is not running now needs huge pages, add them."
        )
    if kernel.may_have_large_pages and each_bytes == kernel.huge_page_bytes:
        draft.notes.append(
            f"{_NR_HUGEPAGES} counts huge pages of {format_bytes(each_bytes)}, which kernels for arm64 have with pages of 4 kB; with pages of 64 kB"
            " they have 512 MB, and so many of them take all memory: see Hugepagesize in /proc/meminfo there, and --set huge_page_size=512MB."
        )
    _put_sysctl(
        draft,
        _NR_HUGEPAGES,
        str(pages),
        reason="all shared memory fits in huge pages: sessions need almost no page tables, and the CPU looks up addresses faster.",
        formula=f"shared memory (estimated) / {format_bytes(each_bytes)}, plus those of other programs",
        inputs=(draft.subject.memory, draft.subject.connections, *([others] if kernel.others_huge_pages else [])),
        source=f"{_MANUAL}.5 “Linux Huge Pages”",
        trades="no other program can use this memory, even while the server is down",
    )


def _put_dirty(draft: Draft) -> None:
    subject = draft.subject
    rate = subject.disk.writeback
    lets = rate.bytes_per_s * subject.stall_s.value
    wanted = max(_LEAST_BACKGROUND_BYTES, lets)
    stock = _STOCK_BACKGROUND_RATIO * subject.memory.value
    get = subject.kernel.sysctls.get
    is_stock = (
        get("vm.dirty_background_bytes", "0") == get("vm.dirty_bytes", "0") == "0"
        and int(get("vm.dirty_background_ratio", "0")) <= 100 * _STOCK_BACKGROUND_RATIO
        and int(get("vm.dirty_ratio", "0")) <= 100 * _STOCK_DIRTY_RATIO
    )
    if is_stock and wanted >= stock:
        draft.notes.append(
            "vm.dirty_background_bytes and vm.dirty_bytes are left alone: what the kernel itself lets pile up, a tenth of the memory at most, "
            f"{'this disk writes within the allowed stall' if lets >= stock else 'is no more than 64 MB'}."
        )
        return
    background = round_down(min(stock, wanted))
    dirty = round_down(min(_STOCK_DIRTY_RATIO * subject.memory.value, _BURST * background))
    shared_source = f"{_VM}, dirty_bytes, dirty_background_bytes; mm/page-writeback.c, balance_dirty_pages()"
    _put_sysctl(
        draft,
        "vm.dirty_background_bytes",
        f"{background:.0f}",
        reason=_DIRTY_SCATTERED if rate == subject.disk.scattered else _DIRTY_IN_SEQUENCE,
        formula=f"{rate.words} × allowed stall, at least 64 MB, at most a tenth of the memory",
        inputs=(rate.known, subject.stall_s, subject.memory),
        source=shared_source,
        trades="a page that changes again soon is written twice",
    )
    _put_sysctl(
        draft,
        "vm.dirty_bytes",
        f"{dirty:.0f}",
        reason="in a burst this much may pile up before the kernel makes the writing processes wait.",
        formula="4 × vm.dirty_background_bytes, at most a fifth of the memory",
        inputs=(rate.known, subject.stall_s, subject.memory),
        source=shared_source,
        trades="programs that write much wait sooner than at the kernel's default, a fifth of the memory",
    )


def _put_swappiness(draft: Draft) -> None:
    subject, disk = draft.subject, draft.subject.disk
    if not subject.kernel.swap_bytes:
        return
    ratio = 2 * disk.random_to_sequential
    _put_sysctl(
        draft,
        "vm.swappiness",
        str(max(1, min(60, round(200 / (1 + ratio))))),
        reason=f"swapping a page out and in takes {ratio:.3g} times as long as reading a file's page in sequence.",
        formula="200 / (1 + k), k = 2 × read bandwidth / 8 kB / random read IOPS",
        inputs=(disk.read_bytes_per_s, disk.random_read_iops),
        source=f"{_VM}, swappiness: in-memory swap twice as fast as files is 133 of 200",
        trades="unused pages stay in memory longer",
    )


def _put_overcommit(draft: Draft) -> None:
    """Decide overcommit, only if the memory that is already committed fits the limit, which stops programs."""
    subject, kernel = draft.subject, draft.subject.kernel
    if kernel.committed_bytes is None:
        draft.notes.append(
            "vm.overcommit_memory is left alone: how much memory other programs have reserved (Committed_AS) cannot be seen."
            if subject.is_here
            else "vm.overcommit_memory, vm.swappiness and kernel.numa_balancing are left alone: what other programs have reserved, "
            "swap and NUMA nodes of a machine that is not here are not known."
        )
        return
    committed = Known.measured("Committed_AS", kernel.committed_bytes, "bytes", "/proc/meminfo")
    pool = draft.decided.get(_NR_HUGEPAGES)
    pages = int(pool.value if pool else kernel.sysctls.get(_NR_HUGEPAGES, "0"))
    ordinary = max(1.0, subject.memory.value - pages * kernel.huge_page_bytes)
    # In whole percent, as the kernel takes it.
    ratio = min(100, math.floor(100 * (ordinary - reserve_bytes(subject) / 2) / ordinary))
    limit = ordinary * ratio / 100
    in_pool = count_huge_pages(draft) * huge_page_bytes(draft) if pool else 0.0
    ours = server_bytes(subject, sum_memory(subject, draft.values())) - in_pool
    # The memory committed to other programs may double.
    if 2 * committed.value + ours > limit + kernel.swap_bytes:
        draft.notes.append(
            "vm.overcommit_memory is left alone: with what the running programs have reserved, which may double, the server could reach a limit."
        )
        return
    source = f"{_MANUAL}.4 “Linux Memory Overcommit”; {_VM}, overcommit_memory"
    inputs = (subject.memory, subject.connections, committed)
    # Set the ratio first: with the default of 50 %, overcommit_memory = 2 would briefly stop programs.
    _put_sysctl(
        draft,
        "vm.overcommit_ratio",
        str(ratio),
        reason="it lets programs have all memory except huge pages and what the kernel needs.",
        formula="(memory - huge pages - reserve / 2) / (memory - huge pages)",
        inputs=inputs,
        source=source,
    )
    _put_sysctl(
        draft,
        "vm.overcommit_memory",
        "2",
        reason="a session that asks for too much memory gets an error, instead of the kernel killing a process.",
        formula="2 where the worst case and twice Committed_AS fit what vm.overcommit_ratio then allows",
        inputs=inputs,
        source=source,
        trades="on a shared machine, programs that reserve much more memory than they use fail",
    )


def _put_numa(draft: Draft) -> None:
    kernel = draft.subject.kernel
    if kernel.numa_nodes < 2:
        return
    if kernel.sysctls.get("vm.zone_reclaim_mode", "0") != "0":
        _put_sysctl(
            draft,
            "vm.zone_reclaim_mode",
            "0",
            reason="reading the other node's memory is faster than reading the disk.",
            formula=f"0 on {kernel.numa_nodes} nodes",
            inputs=(draft.subject.memory,),
            source=f"{_VM}, zone_reclaim_mode",
            trades="memory farther away, while files fill what is near",
        )
    _put_sysctl(
        draft,
        "kernel.numa_balancing",
        "0",
        reason="all sessions use all of shared_buffers: moving its pages from node to node only costs page faults.",
        formula=f"0 on {kernel.numa_nodes} nodes",
        inputs=(draft.subject.memory,),
        source=f"{_SYSCTL}, numa_balancing",
        trades="other programs' memory stays where it was first used",
    )


def _put_transparent_huge_pages(draft: Draft) -> None:
    kernel = draft.subject.kernel
    # An observed kernel without this file has no transparent huge pages.
    if kernel.transparent_huge_pages in {"madvise", "never"} or (
        kernel.transparent_huge_pages is None and kernel.sysctls
    ):
        return
    draft.put_outside(
        "kernel/mm/transparent_hugepage/enabled",
        "madvise",
        target=Target.SYSFS,
        layer=Layer.KERNEL,
        reason="sessions would wait while the kernel makes huge pages that no program requested.",
        source="PostgreSQL 18 manual, section 19.4.1, huge_pages; Linux, Documentation/admin-guide/mm/transhuge.rst",
        formula="no input: madvise where it is always, or not known",
        trades="programs that gain from them must ask",
    )


def _put_somaxconn(draft: Draft) -> None:
    # Source: PostgreSQL 18 src/backend/libpq/pqcomm.c, ListenServerPort(): a queue of 2 × max_connections.
    queue = 2 * draft.number("max_connections")
    now = float(draft.subject.kernel.sysctls.get("net.core.somaxconn", _STOCK_SOMAXCONN))
    if queue > now:
        _put_sysctl(
            draft,
            "net.core.somaxconn",
            f"{min(65535, queue):.0f}",
            reason="after a restart all clients connect at once, and the kernel drops those beyond this queue.",
            formula="2 × max_connections",
            inputs=(draft.subject.connections,),
            source=f"{_SYSCTL.replace('kernel.rst', 'net.rst')}; listen(2)",
        )


def derive_limits(draft: Draft) -> None:
    """Decide the limits of the service that starts the server."""
    number = draft.number
    files = number("max_files_per_process") + number("max_connections") + number("max_worker_processes") + 128
    draft.put_outside(
        "LimitNOFILE",
        str(max(4096, 2 ** math.ceil(math.log2(files)))),
        target=Target.LIMIT,
        layer=Layer.CONNECTIONS,
        reason="with fewer, the server lowers max_files_per_process and keeps opening and closing files.",
        formula="max_files_per_process + max_connections + max_worker_processes + 128, up to a power of 2, at least 4096",
        inputs=(draft.subject.connections,),
        source="PostgreSQL 18 manual, section 18.4.3 “Resource Limits”; section 19.4.3, max_files_per_process",
    )
    if not draft.subject.kernel.is_container:
        draft.put_outside(
            "OOMScoreAdjust",
            "-1000",
            target=Target.LIMIT,
            layer=Layer.CONNECTIONS,
            reason="when memory runs out, the kernel must not kill the main process, which would end all sessions.",
            source=f"{_MANUAL}.4 “Linux Memory Overcommit”",
            trades="without PG_OOM_ADJUST_FILE no session could be killed either, and the kernel would take other programs",
        )
        draft.put_outside(
            "PG_OOM_ADJUST_FILE",
            "/proc/self/oom_score_adj",
            target=Target.LIMIT,
            layer=Layer.CONNECTIONS,
            reason="with this environment variable sessions do not inherit OOMScoreAdjust, so that the kernel can kill one of them.",
            source=f"{_MANUAL}.4 “Linux Memory Overcommit”",
        )
