"""Sums beside a file: what was written has them, what changed is found, whatever the bytes."""

import struct
import zlib

from hypothesis import given
from hypothesis import strategies as st

from sparklog.pipeline.control.side_sums import first_changed_part


def _sums(data: bytes, part_bytes: int) -> bytes:
    parts = (data[start : start + part_bytes] for start in range(0, len(data), part_bytes))
    return b"crc\0" + struct.pack(">I", part_bytes) + b"".join(struct.pack(">I", zlib.crc32(each)) for each in parts)


@given(st.binary(max_size=40), st.integers(1, 16))
def test_sums_when_nothing_changed_then_no_part_is_named(data: bytes, part_bytes: int) -> None:
    """What was written has its sums."""
    assert first_changed_part(data, _sums(data, part_bytes)) is None


@given(st.binary(min_size=1, max_size=40), st.integers(1, 16), st.data())
def test_sums_when_a_bit_flipped_then_its_part_is_named(data: bytes, part_bytes: int, draw: st.DataObject) -> None:
    """Wherever it is."""
    at = draw.draw(st.integers(0, len(data) - 1))
    changed = bytearray(data)
    changed[at] ^= 1 << draw.draw(st.integers(0, 7))

    assert first_changed_part(bytes(changed), _sums(data, part_bytes)) == at // part_bytes * part_bytes


@given(st.binary(min_size=1, max_size=40), st.integers(1, 16), st.data())
def test_sums_when_the_end_is_gone_then_it_is_found(data: bytes, part_bytes: int, draw: st.DataObject) -> None:
    """Also where a part ends."""
    left = draw.draw(st.integers(0, len(data) - 1))

    assert first_changed_part(data[:left], _sums(data, part_bytes)) is not None


@given(st.binary(max_size=40), st.binary(max_size=40), st.booleans())
def test_sums_when_they_are_any_bytes_then_a_position_inside_or_none(data: bytes, sums: bytes, is_headed: bool) -> None:
    """They are what a disk holds."""
    position = first_changed_part(data, b"crc\0" + sums if is_headed else sums)

    assert position is None or 0 <= position <= len(data)
