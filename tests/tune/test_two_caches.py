"""shared_buffers and the kernel's cache, simulated page by page: the size that is chosen reads little more than the best."""

from __future__ import annotations

import random
from collections import OrderedDict

import pytest

from pgdyno.tune.layer_memory import choose_buffers
from pgdyno.tune.memory import SESSION_BYTES, reserve_bytes
from tests.tune.subjects import GB, MB, make_subject

UNIT = 32 * MB
"""What one page of the simulation stands for."""


class Kernel:
    """Two lists: what is read a second time while it is in the first goes to the second. Source: Linux, mm/workingset.c."""

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self.active: OrderedDict[int, None] = OrderedDict()
        self.inactive: OrderedDict[int, bool] = OrderedDict()

    def reads_from_disk(self, page: int) -> bool:
        if page in self.active:
            self.active.move_to_end(page)
            return False
        is_missing = page not in self.inactive
        if self.inactive.get(page):
            del self.inactive[page]
            self.active[page] = None
        else:
            self.inactive[page] = not is_missing
        while len(self.active) + len(self.inactive) > self.pages:
            if len(self.inactive) >= max(1, len(self.active)):
                self.inactive.popitem(last=False)
            else:
                self.inactive[self.active.popitem(last=False)[0]] = False
        return is_missing


class Buffers:
    """A clock with usage counts up to 5. Source: PostgreSQL 18 src/backend/storage/buffer/freelist.c, ClockSweepTick()."""

    def __init__(self, pages: int) -> None:
        self.usage = [0] * pages
        self.held: list[int | None] = [None] * pages
        self.frames: dict[int, int] = {}
        self.hand = 0

    def has(self, page: int) -> bool:
        frame = self.frames.get(page)
        if frame is None:
            return False
        self.usage[frame] = min(5, self.usage[frame] + 1)
        return True

    def take(self, page: int) -> None:
        while self.usage[self.hand] > 0:
            self.usage[self.hand] -= 1
            self.hand = (self.hand + 1) % len(self.usage)
        old = self.held[self.hand]
        if old is not None:
            del self.frames[old]
        self.held[self.hand], self.frames[page], self.usage[self.hand] = page, self.hand, 1
        self.hand = (self.hand + 1) % len(self.usage)


def share_of_disk_reads(buffers_bytes: float, *, cached_bytes: float, data_bytes: float) -> float:
    """Of all accesses, once both caches are full; every page is as likely as any other."""
    rng = random.Random(7)
    data = round(data_bytes / UNIT)
    buffers, kernel = Buffers(max(1, round(buffers_bytes / UNIT))), Kernel(round((cached_bytes - buffers_bytes) / UNIT))
    accesses, from_disk = 12 * data, 0
    for turn in range(2 * accesses):
        page = rng.randrange(data)
        if buffers.has(page):
            continue
        from_disk += kernel.reads_from_disk(page) and turn >= accesses
        buffers.take(page)
    return from_disk / accesses


@pytest.mark.parametrize("data_gb", [8, 16, 21, 24, 36, 60])
def test_no_other_size_reads_much_less(data_gb: float) -> None:
    subject = make_subject(dataset=data_gb * GB)
    cached = 24 * GB - reserve_bytes(subject) - 100 * SESSION_BYTES
    reads = {
        size: share_of_disk_reads(size, cached_bytes=cached, data_bytes=data_gb * GB)
        for size in (choose_buffers(subject)[0], 128 * MB, GB, 3 * GB, 6 * GB, 10 * GB)
    }
    chosen = next(iter(reads.values()))
    assert chosen <= 1.08 * min(reads.values()) + 0.015, reads


def test_a_quarter_of_the_memory_reads_three_times_as_much_where_the_data_nearly_fit() -> None:
    """What the calculators advise, and why the size of the data is asked for."""
    subject = make_subject(dataset=24 * GB)
    cached = 24 * GB - reserve_bytes(subject) - 100 * SESSION_BYTES
    chosen, quarter = (
        share_of_disk_reads(size, cached_bytes=cached, data_bytes=24 * GB)
        for size in (choose_buffers(subject)[0], 6 * GB)
    )
    assert quarter > 3 * chosen
