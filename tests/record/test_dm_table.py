"""What `dmsetup table` prints of volumes, in the forms of the kernel's documentation of its targets."""

from __future__ import annotations

from pgdyno.record.machine.dm_table import parse_dm_table
from pgdyno.record.machine.tunables import Stripe
from tests.rows import each_row

KIB = 1024
STRIPED = "0 73728 striped 4 128 8:9 384 8:8 384 8:7 384 8:6 384"


@each_row(
    [
        (STRIPED, Stripe(level="raid0", disk_count=4, chunk_bytes=64 * KIB)),
        # Extended onto two further disks: what lies there is on two.
        (
            f"{STRIPED}\n73728 1000 striped 2 256 8:5 0 8:4 0",
            Stripe(level="raid0", disk_count=2, chunk_bytes=128 * KIB),
        ),
        (
            "0 1960893648 raid raid10 5 128 rebuild 2 raid10_copies 2 4 - 8:17 - 8:33 - 8:49 - 8:65",
            Stripe(level="raid10", disk_count=4, chunk_bytes=64 * KIB),
        ),
        (
            "0 1960893648 raid raid5_ls 1 2048 3 8:17 8:18 8:33 8:34 8:49 8:50",
            Stripe(level="raid5", disk_count=3, chunk_bytes=1024 * KIB),
        ),
        ("0 1000 raid raid1 1 0 2 8:1 8:2 8:3 8:4", Stripe(level="raid1", disk_count=2, chunk_bytes=None)),
        ("0 1000 linear 8:0 2048", None),
        (f"{STRIPED}\n73728 1000 linear 8:5 0", None),
        ("0 1000 crypt aes-xts-plain64 :64:logon:cryptsetup:0 0 8:2 32768", None),
        ("", None),
    ]
)
def test_tables(table: str, stripe: Stripe | None) -> None:
    assert parse_dm_table(table) == stripe
