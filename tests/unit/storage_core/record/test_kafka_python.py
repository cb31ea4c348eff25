"""An independent implementation reads what we encode, and writes what we read."""

import warnings
from typing import Any

import pytest

from sparklog.storage_core.log_config import CODECS
from sparklog.storage_core.record.batch_decode import decode_batches
from sparklog.storage_core.record.batch_scan import check_crcs, scan_batches
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from tests.build.record_cases import encode, records_of, split_batches
from tests.plain.scalar import Record

with warnings.catch_warnings():
    # kafka-python 3.0 reads its resources in a way that Python 3.11 deprecates and 3.13 allows again.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

_RECORDS = [
    Record(
        offset=number,
        timestamp=1_700_000_000_000 + (number * 37) % 11,
        key=None if number % 5 == 0 else b"key-%d" % number,
        value=None if number % 7 == 0 else b"value " * (number % 90),
        headers=tuple((f"é{place}", None if place == 1 else b"x" * place) for place in range(number % 4)),
    )
    for number in range(300)
]


def _as_record(record: Any) -> Record:
    return Record(
        offset=record.offset,
        timestamp=record.timestamp,
        key=record.key,
        value=record.value,
        headers=tuple((name, content) for name, content in record.headers),
    )


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("batch_size_bytes", [500, 1 << 20])
def test_encode_when_another_client_reads_then_it_finds_the_records(codec: str, batch_size_bytes: int) -> None:
    """kafka-python accepts every CRC and finds every record."""
    options = EncodeOptions(codec=codec, batch_size_bytes=batch_size_bytes)
    found: list[Record] = []
    for packed in split_batches(encode(_RECORDS, options, preserved=True)):
        batch = DefaultRecordBatch(packed)
        assert batch.validate_crc()
        assert batch.compression_type == CODECS.index(codec)
        found += [_as_record(record) for record in batch]

    assert found == _RECORDS


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("is_transactional", [False, True])
def test_decode_when_another_client_wrote_then_we_find_the_records(codec: int, is_transactional: bool) -> None:
    """What kafka-python builds is decoded record for record."""
    producer = (7, 3, 11) if is_transactional else (-1, -1, -1)
    builder = DefaultRecordBatchBuilder(2, codec, is_transactional, *producer, 1 << 20)
    for record in _RECORDS:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    packed = bytes(builder.build())
    scan = scan_batches(packed)

    assert check_crcs(packed, scan).size == 0
    assert (scan.producer_id[0], scan.producer_epoch[0], scan.base_sequence[0]) == producer
    assert records_of(decode_batches(packed, scan)) == _RECORDS
