import pytest

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.record.control_records import NO_CONTROL_TYPE, ControlType, control_types
from tests.build.control_fields import (
    EndTransactionMarker,
    pack_end_transaction_marker,
    unpack_control_type,
    unpack_end_transaction_marker,
)
from tests.build.golden import GoldenLog, golden_logs
from tests.build.transaction_log import Data, Marker, control_batch, data_batch

_ABORT = bytes.fromhex("00000000")
_VALUE = bytes.fromhex("00000000000b")

_TRANSACTIONAL = golden_logs("v2-transactional")


@pytest.mark.parametrize("golden", _TRANSACTIONAL)
def test_control_types_when_broker_wrote_the_log_then_the_dump_tools_words(golden: GoldenLog) -> None:
    """Every marker of a broker's log is what Kafka's dump tool says it is, and data batches are none."""
    data = next(golden.directory.glob("*.log")).read_bytes()
    scan = scan_batches(data)
    words = [line.split()[2] + " " + line.split("endTxnMarker: ")[1].split()[0] for line in _markers(golden.dump)]

    types = control_types(data, scan)

    found = zip(scan.base_offset.tolist(), types.tolist(), strict=True)
    assert [f"{offset} {ControlType(each).name}" for offset, each in found if each != NO_CONTROL_TYPE] == words


def _markers(dump: str) -> list[str]:
    return [line for line in dump.splitlines() if "endTxnMarker: " in line]


@pytest.mark.parametrize("golden", _TRANSACTIONAL)
def test_control_batch_when_packed_then_as_large_as_a_brokers(golden: GoldenLog) -> None:
    """An end-of-transaction batch has 78 bytes."""
    assert len(control_batch(Marker(2), 12)) == 78
    assert "size: 78" in golden.dump


def test_control_types_when_data_and_control_mixed_then_by_batch() -> None:
    """Data batches have no type, unknown types stay as they are, emptied control batches have none."""
    emptied = bytearray(control_batch(Marker(1), 4)[:61])
    emptied[8:12], emptied[57:61] = (49).to_bytes(4, "big"), bytes(4)
    data = b"".join(
        [
            data_batch(Data(2, 1), 0),
            control_batch(Marker(1, ControlType.ABORT), 2),
            control_batch(Marker(1), 3, key=bytes.fromhex("00000009")),
            bytes(emptied),
        ]
    )

    assert control_types(data, scan_batches(data)).tolist() == [NO_CONTROL_TYPE, 0, 9, NO_CONTROL_TYPE]


def test_control_types_when_key_and_value_are_longer_then_read() -> None:
    """Later releases may add fields and raise the version."""
    data = control_batch(Marker(1), 0, key=bytes.fromhex("00070001ffff"), value=_VALUE + b"more")

    assert control_types(data, scan_batches(data)).tolist() == [ControlType.COMMIT]


@pytest.mark.parametrize("key", [b"", b"\0\0\0", b"\xff\xff\0\1"])
def test_control_types_when_key_is_short_or_of_no_version_then_corrupt(key: bytes) -> None:
    """A key of fewer than 4 bytes, or with a negative version, is damage, at its batch's position."""
    data = data_batch(Data(), 0) + control_batch(Marker(1), 1, key=key)

    with pytest.raises(CorruptBatchError) as caught:
        control_types(data, scan_batches(data))
    assert caught.value.position == len(data_batch(Data(), 0))


def test_unpack_end_transaction_marker_when_packed_then_the_same() -> None:
    """Key and value are two big-endian fields each."""
    marker = EndTransactionMarker(ControlType.ABORT, 11)

    assert pack_end_transaction_marker(marker) == (_ABORT, _VALUE)
    assert unpack_end_transaction_marker(_ABORT + b"x", _VALUE + b"x") == marker


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (_ABORT[:3], _VALUE),
        (_ABORT, _VALUE[:5]),
        (b"\x80\0\0\0", _VALUE),
        (_ABORT, b"\x80\0\0\0\0\0"),
        (b"\0\0\0\2", _VALUE),
    ],
)
def test_unpack_end_transaction_marker_when_short_negative_or_other_then_refused(key: bytes, value: bytes) -> None:
    """Short fields, negative versions and control records of other types are no marker."""
    with pytest.raises(ValueError, match="control record"):
        unpack_end_transaction_marker(key, value)


def test_unpack_control_type_when_unknown_then_its_number() -> None:
    """A type that nobody knows yet is passed on."""
    assert unpack_control_type(bytes.fromhex("0000002a")) == 42
