"""The offsets of lost ranges, one by one."""

from collections.abc import Iterable

from sparklog.sink.ledger.lost_ranges import LostRange

__all__ = ["lost_offsets"]


def lost_offsets(ranges: Iterable[LostRange]) -> list[int]:
    """Return every offset of ranges, each of which says where it ends."""
    found: list[int] = []
    for each in ranges:
        assert each.last_offset is not None, each
        found += range(each.first_offset, each.last_offset + 1)
    return found
