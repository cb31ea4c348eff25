import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparklog.storage_core.record.reading_kernels  # noqa: F401  from here on nothing but kernels reads, unless told to
from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.record import batch_scan, decoded_columns
from sparklog.storage_core.record.batch_decode import iter_decoded
from sparklog.storage_core.record.batch_scan import check_crcs, scan_batches
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from tests.plain.scalar import Record, encode_records
from tests.property.legacy_strategies import mixed_batches
from tests.property.record_strategies import encode_options, record_lists


def _outcome(data: bytes, *, in_plain_code: bool) -> bytes:
    """Return all that a reader learns of some bytes, errors included."""
    found: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        for module in (batch_scan, decoded_columns):
            patch.setattr(module, "is_few", lambda _: in_plain_code)
        try:
            scan = scan_batches(data)
        except CorruptBatchError as error:
            found.append((error.args, error.position))
            scan = scan_batches(data, 0, error.position)
        columns = [getattr(scan, name) for name in scan.__slots__]
        found += [(each.dtype.str, each.tolist()) if isinstance(each, np.ndarray) else each for each in columns]
        found.append(check_crcs(data, scan).tolist())
        for include_control in (False, True):
            try:
                for records in iter_decoded(data, scan, max_batch_bytes=1 << 20, include_control=include_control):
                    records.validate(full=True)
                    found += [records.schema.to_string(), records.to_pylist()]
            except CorruptBatchError as error:
                found.append((error.args, error.position))
    return pickle.dumps(found)


def _agree(data: bytes) -> None:
    assert pickle.loads(_outcome(data, in_plain_code=True)) == pickle.loads(_outcome(data, in_plain_code=False))


@given(record_lists(), encode_options(), st.integers(0, 100))
def test_few_batches_when_records_are_sound_then_plain_code_reads_what_kernels_read(
    records: list[Record], options: EncodeOptions, torn_bytes: int
) -> None:
    """Headers, CRCs and records are the same by both, in front of a torn tail, too."""
    data = b"".join(encode_records(records, options, assigned=False))

    _agree(data)
    _agree(data[: len(data) - torn_bytes])


@given(record_lists(gaps=False, min_size=1), encode_options(), st.data())
def test_few_batches_when_a_byte_is_changed_then_both_say_the_same(
    records: list[Record], options: EncodeOptions, draw: st.DataObject
) -> None:
    """What is wrong, where, and what comes before it does not depend on who reads."""
    data = bytearray(b"".join(encode_records(records, options, assigned=False)))
    data[draw.draw(st.integers(0, len(data) - 1))] ^= draw.draw(st.integers(1, 255))

    _agree(bytes(data))


@given(mixed_batches, st.binary(max_size=80))
def test_few_batches_when_formats_are_mixed_then_both_say_the_same(batches: list[bytes], tail: bytes) -> None:
    """Batches of other formats, and bytes that are none, are read as ever."""
    _agree(b"".join(batches) + tail)
