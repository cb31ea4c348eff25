import pytest

from sparklog.storage_core.record.few_batches import unpack_varint
from tests.plain.varint import VARLONG_MAX_BYTES, pack_varint, varint_size

_VALUES = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (-2, "03"),
    (63, "7e"),
    (64, "8001"),
    (-64, "7f"),
    (-65, "8101"),
    (300, "d804"),
    (8191, "fe7f"),
    (8192, "808001"),
    (1048575, "feff7f"),
    (1048576, "80808001"),
    (2147483647, "feffffff0f"),
    (-2147483648, "ffffffff0f"),
    (9223372036854775807, "feffffffffffffffff01"),
    (-9223372036854775808, "ffffffffffffffffff01"),
    (1526384718283, "96c7f3b9ec58"),
]


@pytest.mark.parametrize(("value", "hexadecimal"), _VALUES)
def test_pack_varint_when_value_is_known_then_bytes_are_kafkas(value: int, hexadecimal: str) -> None:
    """A value packs to the bytes Kafka writes, and they unpack to it."""
    packed = bytes.fromhex(hexadecimal)

    assert pack_varint(value) == packed
    assert unpack_varint(packed, 0, len(packed), VARLONG_MAX_BYTES) == (value, len(packed))
    assert varint_size(value) == len(packed)


@pytest.mark.parametrize(("packed", "max_bytes"), [(b"", 5), (b"\x80", 5), (b"\x80" * 5, 5), (b"\xff" * 11, 10)])
def test_unpack_varint_when_it_never_ends_then_value_error(packed: bytes, max_bytes: int) -> None:
    """A varint must end inside the bytes and inside its width."""
    with pytest.raises(ValueError, match="varint"):
        unpack_varint(packed, 0, len(packed), max_bytes)


def test_unpack_varint_when_fifth_byte_has_spare_bits_then_they_are_dropped() -> None:
    """Bits above the 32nd are shifted out, as in Kafka."""
    assert unpack_varint(bytes.fromhex("feffffff7f"), 0, 5) == (2147483647, 5)
