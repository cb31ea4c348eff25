from hypothesis import given

from sparklog.storage_core.record.few_batches import unpack_varint
from tests.plain.varint import VARLONG_MAX_BYTES, pack_varint
from tests.property.record_strategies import int64s


@given(int64s)
def test_varint_round_trip(value: int) -> None:
    """Every int64 unpacks from what it packs to; 32-bit values do so under either width."""
    packed = pack_varint(value)

    assert unpack_varint(packed, 0, len(packed), VARLONG_MAX_BYTES) == (value, len(packed))
    if -(2**31) <= value < 2**31:
        assert unpack_varint(packed, 0, len(packed)) == (value, len(packed))
