"""Offsets of consumer groups, byte by byte as a coordinator has read them."""

import pytest

from sparklog.storage_core.kraft.group_offsets import GroupOffset, offsets_partition
from sparklog.storage_core.kraft.offset_batches import render_offsets
from sparklog.storage_core.record.batch_decode import decode_batches


@pytest.mark.parametrize(
    ("group", "partition"), [("billing", 9), ("shipping", 8), ("é漢字", 46), ("", 0), ("polygenelubricants", 0)]
)
def test_offsets_partition_when_a_group_has_a_name_then_javas_hash_of_it(group: str, partition: int) -> None:
    """UTF-16 units, wrapped at 32 bits; the smallest int has no absolute value, and is 0."""
    assert offsets_partition(group) == partition


def test_render_offsets_when_a_group_committed_then_the_record_that_a_broker_took() -> None:
    """Key version 1, value version 3, no leader epoch."""
    data = render_offsets([GroupOffset(group="billing", topic="flights", partition=0, offset=1000)], 5)

    found = decode_batches(data)
    assert found["key"][0].as_py().hex() == "0001" + "0007" + b"billing".hex() + "0007" + b"flights".hex() + "00000000"
    assert found["value"][0].as_py().hex() == "0003" + "00000000000003e8" + "ffffffff" + "0000" + "0000000000000005"


def test_render_offsets_when_there_are_none_then_no_bytes() -> None:
    """An empty log."""
    assert render_offsets([], 5) == b""
