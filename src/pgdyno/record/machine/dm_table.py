"""What `dmsetup table` prints of a logical volume: how it spreads its data over what it lies on.

Only that: targets that spread nothing, such as crypt, give nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.record.machine.tunables import Stripe

_SECTOR_BYTES = 512


def parse_dm_table(text: str) -> Stripe | None:
    """How a volume is striped; of several segments that of the fewest disks, since a file may lie there.

    Args:
        text: Lines of `start length target arguments`.

    Returns:
        None where no part of it is.

    Source: Linux Documentation/admin-guide/device-mapper/striped.rst and dm-raid.rst.
    """
    segments = [line.split() for line in text.splitlines() if len(line.split()) > 3]
    stripes = list(_read_stripes(segments))
    # A segment on one disk is as slow as one disk.
    if len(stripes) < len(segments):
        return None
    return min(stripes, key=lambda stripe: stripe.disk_count, default=None)


def _read_stripes(segments: list[list[str]]) -> Iterator[Stripe]:
    for _, _, target, *arguments in segments:
        if target == "striped":
            count, chunk = map(int, arguments[:2])
            yield Stripe(level="raid0", disk_count=count, chunk_bytes=chunk * _SECTOR_BYTES)
        elif target == "raid":
            parameters = int(arguments[1])
            yield Stripe(
                # Such as raid5_ls: what follows is how parity goes round.
                level=arguments[0].partition("_")[0],
                disk_count=int(arguments[2 + parameters]),
                chunk_bytes=int(arguments[2]) * _SECTOR_BYTES or None,
            )
