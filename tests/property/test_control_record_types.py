import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.record.control_records import control_types
from tests.build.control_fields import unpack_control_type
from tests.build.transaction_log import Marker, control_batch

_KEYS = st.one_of(st.binary(max_size=8), st.binary(min_size=4, max_size=4).map(lambda key: b"\0" + key[1:]))


@given(st.lists(_KEYS, min_size=1, max_size=6))
def test_control_types_match_the_one_record_form(keys: list[bytes]) -> None:
    """The column form and the one-record form agree on any keys, and refuse the same ones."""
    data = b"".join(control_batch(Marker(1), offset, key=key) for offset, key in enumerate(keys))
    scan = scan_batches(data)

    try:
        types = [unpack_control_type(key) for key in keys]
    except ValueError:
        with pytest.raises(CorruptBatchError):
            control_types(data, scan)
    else:
        assert control_types(data, scan).tolist() == types
