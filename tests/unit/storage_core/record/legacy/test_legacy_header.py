from dataclasses import replace

import numpy as np
import pytest

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.record.legacy.header import (
    FIXED_BYTES,
    LEGACY_DTYPES,
    LegacyHeader,
    pack_legacy_header,
)
from tests.plain.legacy_scalar import unpack_legacy_header

_V0 = bytes.fromhex("0000000000000000 00000016 2356c137 00 00 00000003 6b6579 00000005 76616c7565")
_V1 = bytes.fromhex("0000000000000000 0000001e ea5a4861 01 00 00000163639e71cb 00000003 6b6579 00000005 76616c7565")


@pytest.mark.parametrize(
    ("data", "header"),
    [
        (_V0, LegacyHeader(offset=0, message_size=22, crc=592888119, magic=0, attributes=0)),
        (_V1, LegacyHeader(offset=0, message_size=30, crc=3931785313, magic=1, attributes=0, timestamp=1526384718283)),
    ],
)
def test_unpack_when_kafka_wrote_the_entry_then_its_fields_and_back(data: bytes, header: LegacyHeader) -> None:
    """Each field is where its format has it; packing gives the same bytes."""
    assert unpack_legacy_header(b"xy" + data, 2) == header
    assert header.size_bytes == len(data)
    assert pack_legacy_header(header) == data[: FIXED_BYTES[header.magic]]


@pytest.mark.parametrize("magic", [0, 1])
def test_dtype_when_a_column_of_entries_is_viewed_then_the_same_fields(magic: int) -> None:
    """The column form is the same table."""
    header = LegacyHeader(offset=-2, message_size=99, crc=2**32 - 1, magic=magic, attributes=-1, timestamp=-1)
    row = np.frombuffer(pack_legacy_header(header), LEGACY_DTYPES[magic])[0]

    assert {name: row[name] for name in row.dtype.names} == {
        name: getattr(header, name) for name in LEGACY_DTYPES[magic].names or ()
    }


def test_timestamp_type_when_read_from_the_bits_then_v0_has_none() -> None:
    """Bit 3 means something in v1 alone."""
    header = LegacyHeader(offset=0, message_size=0, crc=0, magic=1, attributes=0)

    assert header.timestamp_type == 0
    assert replace(header, attributes=8).timestamp_type == 1
    assert replace(header, attributes=8, magic=0).timestamp_type == -1


def test_is_wrapper_when_codec_bits_are_set_then_true() -> None:
    """A codec makes an entry a wrapper; the timestamp type does not."""
    header = LegacyHeader(offset=0, message_size=0, crc=0, magic=1, attributes=8)

    assert not header.is_wrapper
    assert replace(header, attributes=9).is_wrapper


@pytest.mark.parametrize("data", [b"", _V0[:17], _V1[:25], _V0[:16] + b"\2" + _V0[17:], _V0[:16] + b"\xff" + _V0[17:]])
def test_unpack_when_bytes_are_short_or_of_another_format_then_corrupt(data: bytes) -> None:
    """What is no entry of v0 or v1 is refused at its position."""
    with pytest.raises(CorruptBatchError) as caught:
        unpack_legacy_header(b"xyz" + data, 3)
    assert caught.value.position == 3
