import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.record.control_records import ControlType, control_types, coordinator_epochs
from tests.build.control_fields import EndTransactionMarker, unpack_end_transaction_marker
from tests.build.transaction_log import Data, Marker, control_batch, data_batch

_KEYS = st.one_of(st.binary(max_size=8), st.integers(-1, 4).map(lambda each: struct.pack(">hh", 0, each)))
_VALUES = st.one_of(
    st.binary(max_size=9),
    st.tuples(st.integers(-1, 2), st.integers(-(2**31), 2**31 - 1)).map(lambda each: struct.pack(">hi", *each)),
)


def _scalar(key: bytes, value: bytes) -> int | None:
    """Return the coordinator epoch of one control record, -1 if it ends no transaction, None if it can't be read."""
    if len(key) < 4 or key[0] & 0x80:
        return None
    if int.from_bytes(key[2:4], "big", signed=True) not in (ControlType.ABORT, ControlType.COMMIT):
        return -1
    try:
        return unpack_end_transaction_marker(key, value).coordinator_epoch
    except ValueError:
        return None


@given(st.lists(st.one_of(st.none(), st.tuples(_KEYS, _VALUES)), max_size=8))
def test_coordinator_epochs_of_any_control_records_are_those_of_one_at_a_time(
    records: list[tuple[bytes, bytes] | None],
) -> None:
    """The first one that can't be read is named by its position; data batches lie between."""
    data, positions = b"", list[int]()
    for offset, record in enumerate(records):
        positions.append(len(data))
        if record is None:
            data += data_batch(Data(), offset)
        else:
            data += control_batch(Marker(7), offset, key=record[0], value=record[1])
    expected = [-1 if each is None else _scalar(*each) for each in records]
    scan = scan_batches(data)

    if None in expected:
        with pytest.raises(CorruptBatchError) as raised:
            coordinator_epochs(data, scan, control_types(data, scan))
        assert expected[positions.index(raised.value.position)] is None
    else:
        assert coordinator_epochs(data, scan, control_types(data, scan)).tolist() == expected


@given(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=5))
def test_coordinator_epochs_of_a_later_version_pass_over_what_is_new(epoch: int, more: bytes) -> None:
    """A longer value is of a later release."""
    marker = EndTransactionMarker(ControlType.COMMIT, epoch)
    value = struct.pack(">hi", 1, marker.coordinator_epoch) + more
    data = control_batch(Marker(7), 3, value=value)
    scan = scan_batches(data)

    assert coordinator_epochs(data, scan, control_types(data, scan)).tolist() == [epoch]
