"""An independent implementation of formats v0 and v1 writes what we read, and reads what our packer writes."""

import warnings
from dataclasses import replace

import pytest

from sparklog.storage_core.log_config import CODECS
from sparklog.storage_core.record.batch_decode import decode_batches
from sparklog.storage_core.record.batch_scan import check_crcs, scan_batches
from tests.build.record_cases import records_of
from tests.plain.legacy_scalar import pack_entry, pack_wrapper
from tests.plain.scalar import Record

with warnings.catch_warnings():
    # kafka-python 3.0 reads its resources in a way that Python 3.11 deprecates and 3.13 allows again.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder

_RECORDS = [
    Record(
        offset=number,
        timestamp=1_700_000_000_000 + (number * 37) % 11,
        key=None if number % 5 == 0 else b"key-%d" % number,
        value=None if number % 7 == 0 else b"value " * (number % 90),
    )
    for number in range(300)
]

# The lz4 frames of v0 need a library that kafka-python does without; Kafka's own golden logs have them.
_CASES = [(magic, codec) for magic in (0, 1) for codec in CODECS[:4] if (magic, codec) != (0, "lz4")]


def _of_format(records: list[Record], magic: int) -> list[Record]:
    return records if magic else [replace(record, timestamp=-1) for record in records]


@pytest.mark.parametrize(("magic", "codec"), [(magic, CODECS.index(codec)) for magic, codec in _CASES])
def test_decode_when_another_client_wrote_then_we_find_the_records(magic: int, codec: int) -> None:
    """What kafka-python builds is decoded record for record; it leaves a wrapper's offset at 0."""
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for record in _RECORDS:
        builder.append(record.offset, record.timestamp, record.key, record.value)
    packed = bytes(builder.build())
    scan = scan_batches(packed)

    assert check_crcs(packed, scan).size == 0
    assert len(scan) == (1 if codec else len(_RECORDS))
    assert records_of(decode_batches(packed, scan)) == _of_format(_RECORDS, magic)


@pytest.mark.parametrize(("magic", "codec"), _CASES)
def test_pack_when_another_client_reads_then_it_finds_the_records(magic: int, codec: str) -> None:
    """kafka-python accepts every CRC of the plain packer and finds every record, at its offset."""
    records = [replace(record, offset=record.offset + 1000) for record in _RECORDS]
    if codec == "none":
        packed = [pack_entry(record, magic) for record in records]
    else:
        packed = [pack_wrapper(records, magic, codec)]
    batches = [LegacyRecordBatch(memoryview(each), magic) for each in packed]

    assert all(batch.validate_crc() for batch in batches)
    found = [
        Record(
            offset=each.offset,
            timestamp=-1 if each.timestamp is None else each.timestamp,
            key=each.key,
            value=each.value,
        )
        for batch in batches
        for each in batch
    ]
    assert found == _of_format(records, magic)
