import pytest

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.record.v2.batch_header import (
    HEADER_BYTES,
    HEADER_DTYPE,
    BatchHeader,
    pack_header,
    unpack_header,
)

_HEADER = BatchHeader(
    base_offset=50,
    batch_length=76,
    partition_leader_epoch=9,
    magic=2,
    crc=0x48BF2B24,
    attributes=0,
    last_offset_delta=2,
    base_timestamp=10,
    max_timestamp=12,
    producer_id=7,
    producer_epoch=3,
    base_sequence=2147483646,
    records_count=3,
)
_PACKED = bytes.fromhex(
    "00000000000000320000004c000000090248bf2b24000000000002000000000000000a000000000000000c"
    "000000000000000700037ffffffe00000003"
)


def _with_attributes(attributes: int) -> BatchHeader:
    return unpack_header(_PACKED[:21] + attributes.to_bytes(2, "big") + _PACKED[23:])


def test_header_when_packed_then_kafkas_61_bytes() -> None:
    """Every field has its place and width."""
    assert len(_PACKED) == HEADER_BYTES == HEADER_DTYPE.itemsize
    assert pack_header(_HEADER) == _PACKED
    assert unpack_header(b"xyz" + _PACKED, 3) == _HEADER


def test_header_when_asked_for_its_end_then_last_offset_and_size() -> None:
    """Sizes count the 12 bytes before the length's range; the next offset follows the last one covered."""
    assert (_HEADER.size_bytes, _HEADER.last_offset, _HEADER.next_offset) == (88, 52, 53)


def test_last_sequence_when_it_passes_int32_then_wraps_to_zero() -> None:
    """2147483646 + 2 is sequence 0; without a base sequence there is none."""
    assert _HEADER.last_sequence == 0
    assert unpack_header(_PACKED[:53] + b"\xff" * 4 + _PACKED[57:]).last_sequence == -1


def test_header_when_attribute_bits_set_then_each_is_told() -> None:
    """All sixteen bits may be set: the six that mean something are read, the rest ignored."""
    header = _with_attributes(0xFFFC)

    assert (header.codec, header.timestamp_type) == ("zstd", 1)
    assert header.is_transactional
    assert header.is_control
    assert header.delete_horizon_ms == 10
    assert _HEADER.delete_horizon_ms is None
    assert (_HEADER.codec, _HEADER.timestamp_type) == ("none", 0)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codec_when_bits_name_none_then_corrupt(codec: int) -> None:
    """Codec numbers 5 to 7 are damage."""
    with pytest.raises(CorruptBatchError):
        _ = _with_attributes(codec).codec


@pytest.mark.parametrize("position", [0, 1, 100])
def test_unpack_header_when_bytes_run_out_then_corrupt_at_position(position: int) -> None:
    """Fewer than 61 bytes are no header."""
    with pytest.raises(CorruptBatchError) as caught:
        unpack_header(_PACKED[:60], position)
    assert caught.value.position == position
