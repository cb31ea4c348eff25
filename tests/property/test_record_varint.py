import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from record_strategies import int64s

from sparklog.storage_core.record.varint import VARLONG_MAX_BYTES, pack_varint, unpack_varint, varint_size, varint_sizes


@given(st.lists(int64s))
def test_varint_sizes_matches_scalar_twin(values: list[int]) -> None:
    """The column form and the one-value form agree on every int64."""
    sizes = varint_sizes(np.array(values, dtype=np.int64))

    assert sizes.tolist() == [varint_size(value) for value in values]


@given(int64s)
def test_varint_round_trip(value: int) -> None:
    """Every int64 unpacks from what it packs to; 32-bit values do so under either width."""
    packed = pack_varint(value)

    assert unpack_varint(packed, 0, len(packed), VARLONG_MAX_BYTES) == (value, len(packed))
    if -(2**31) <= value < 2**31:
        assert unpack_varint(packed, 0, len(packed)) == (value, len(packed))
