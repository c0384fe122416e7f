"""Parse `dmsetup table`: how a logical volume stripes its data over the devices below it.

Targets that do not stripe, such as crypt, give no result.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.record.machine.tunables import Stripe

_SECTOR_BYTES = 512


def parse_dm_table(text: str) -> Stripe | None:
    """Return how a volume is striped; of several segments the one with the fewest disks, since a file may be on it.

    Args:
        text: Lines of `start length target arguments`.

    Returns:
        The stripe; None where the volume or a part of it is not striped.

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
                # Such as raid5_ls: the part after the underscore is the parity layout.
                level=arguments[0].partition("_")[0],
                disk_count=int(arguments[2 + parameters]),
                chunk_bytes=int(arguments[2]) * _SECTOR_BYTES or None,
            )
