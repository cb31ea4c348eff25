from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.storage_core.record.batch_decode import decode_batches
from sparklog.storage_core.record.batch_scan import check_crcs, scan_batches
from sparklog.storage_core.record.legacy.encode import LEGACY_CODECS, LegacyEncodeOptions, encode_legacy
from sparklog.storage_core.record.schema import CREATE_TIME, LOG_APPEND_TIME
from tests.build.record_cases import columns_of, records_of, split_batches
from tests.plain.legacy_scalar import decode_log, pack_entry, pack_wrapper
from tests.plain.scalar import Record
from tests.property.record_strategies import record_lists

_RECORDS = record_lists().map(
    lambda records: [replace(each, timestamp=max(each.timestamp, -1), headers=()) for each in records]
)


def _as_read(records: list[Record], magic: int) -> list[Record]:
    return records if magic else [replace(each, timestamp=-1) for each in records]


@given(_RECORDS, st.integers(0, 1), st.sampled_from([CREATE_TIME, LOG_APPEND_TIME]))
@settings(max_examples=200)
def test_plain_entries_are_those_of_the_scalar_twin(records: list[Record], magic: int, timestamp_type: int) -> None:
    """Without a codec the compiled encoder writes the bytes that the plain one writes, CRC included."""
    options = LegacyEncodeOptions(magic=magic, timestamp_type=timestamp_type)
    starts = np.array([0, len(records)])
    encoded = encode_legacy(columns_of(records, preserved=True), np.arange(len(records)), starts, options)
    attributes = 8 if magic and timestamp_type == LOG_APPEND_TIME else 0

    assert split_batches(encoded) == [pack_entry(each, magic, attributes) for each in records]


@given(_RECORDS, st.integers(0, 1), st.sampled_from(LEGACY_CODECS[1:]), st.sampled_from([1, 200, 1 << 20]))
@settings(max_examples=200)
def test_wrappers_are_those_of_the_scalar_twin(
    records: list[Record], magic: int, codec: str, batch_size_bytes: int
) -> None:
    """A wrapper is the bytes that the plain packer makes of the same records."""
    options = LegacyEncodeOptions(magic=magic, codec=codec, batch_size_bytes=batch_size_bytes)
    starts = np.array([0, len(records)])
    encoded = encode_legacy(columns_of(records, preserved=True), np.arange(len(records)), starts, options)
    ends = np.cumsum(encoded.records_count).tolist()
    sets = [records[end - count : end] for end, count in zip(ends, encoded.records_count.tolist(), strict=True)]

    assert split_batches(encoded) == [pack_wrapper(_as_read(each, magic), magic, codec) for each in sets]


@given(st.lists(_RECORDS, max_size=3), st.integers(0, 1), st.sampled_from(LEGACY_CODECS), st.booleans())
@settings(max_examples=200)
def test_what_is_encoded_decodes_to_the_same_records(
    groups: list[list[Record]], magic: int, codec: str, has_append_time: bool
) -> None:
    """Groups come back one after the other, through the compiled decoder and the plain one, with sound CRCs."""
    append_time = LOG_APPEND_TIME if has_append_time else CREATE_TIME
    if has_append_time:
        groups = [[replace(each, timestamp=77) for each in group] for group in groups]
    records = [each for group in groups for each in group]
    starts = np.cumsum([0, *map(len, groups)])
    options = LegacyEncodeOptions(magic=magic, codec=codec, timestamp_type=append_time, batch_size_bytes=300)
    encoded = encode_legacy(columns_of(records, preserved=True), np.arange(len(records)), starts, options)
    scan = scan_batches(encoded.data)

    assert not len(check_crcs(encoded.data, scan))
    assert scan.last_offset.tolist() == (encoded.base_offset + encoded.last_offset_delta).tolist()
    assert records_of(decode_batches(encoded.data)) == _as_read(records, magic)
    assert [record for record, _ in decode_log(encoded.data.tobytes())] == _as_read(records, magic)
