from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.storage_core.record.batch_convert import ConversionCounts, ConvertOptions, convert_batches
from sparklog.storage_core.record.batch_decode import decode_batches
from sparklog.storage_core.record.batch_scan import check_crcs, scan_batches
from sparklog.storage_core.record.legacy.encode import LEGACY_CODECS
from sparklog.storage_core.record.schema import CREATE_TIME, NO_TIMESTAMP_TYPE
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from tests.build.record_cases import records_of
from tests.plain.legacy_scalar import TypedRecord, decode_log, pack_entry, pack_wrapper
from tests.plain.scalar import Record, pack_batch
from tests.property.record_strategies import record_lists

_FORMATS = st.tuples(st.integers(0, 2), st.sampled_from(LEGACY_CODECS), st.none() | st.integers(0, 3))


def _pack(records: list[Record], magic: int, codec: str, append_time: int | None) -> bytes:
    """Return records as one batch of v2, one wrapper, or an entry each."""
    if magic == 2:
        options = EncodeOptions(codec=codec, log_append_time_ms=append_time, batch_size_bytes=1 << 30)
        return pack_batch(
            records, replace(options, producer_id=5, producer_epoch=0, base_sequence=0, partition_leader_epoch=3)
        )
    if codec != "none":
        return pack_wrapper(records, magic, codec, append_time if magic else None)
    timed = records if append_time is None else [replace(each, timestamp=append_time) for each in records]
    return b"".join(pack_entry(each, magic, 8 if magic and append_time is not None else 0) for each in timed)


def _kept(found: list[TypedRecord], magic: int) -> list[TypedRecord]:
    if magic == 0:
        return [(replace(record, timestamp=-1, headers=()), NO_TIMESTAMP_TYPE) for record, _ in found]
    typed = [(record, CREATE_TIME if kind == NO_TIMESTAMP_TYPE else kind) for record, kind in found]
    return typed if magic == 2 else [(replace(record, headers=()), kind) for record, kind in typed]


@settings(max_examples=300)
@given(
    record_lists(min_size=1),
    st.lists(st.tuples(st.integers(1, 6), _FORMATS), min_size=1, max_size=8),
    st.integers(0, 2),
    st.none() | st.sampled_from(LEGACY_CODECS),
)
def test_converted_batches_hold_what_the_format_can_say(
    records: list[Record], formats: list[tuple[int, tuple[int, str, int | None]]], magic: int, codec: str | None
) -> None:
    """Batches of any formats side by side become those of one, and lose what it can't say and nothing else."""
    left = [
        replace(each, offset=3 * place + each.offset % 3, timestamp=max(each.timestamp, -1))
        for place, each in enumerate(records)
    ]
    log, number = b"", 0
    while left:
        count, chosen = formats[number % len(formats)]
        log += _pack(left[:count], *chosen)
        left, number = left[count:], number + 1
    before, counts = decode_log(log), ConversionCounts()
    options = ConvertOptions(magic=magic, codec=codec)
    converted = list(convert_batches(log, scan_batches(log), options, 7, counts))
    after = b"".join(part for each in converted for part in each.parts)
    scan = scan_batches(after)
    kept = _kept(before, magic)

    assert decode_log(after) == kept
    assert records_of(decode_batches(after)) == [record for record, _ in kept]
    assert scan.valid_bytes == len(after)
    assert not len(check_crcs(after, scan))
    assert set(scan.magic.tolist()) == {magic}
    assert [size for each in converted for size in each.size.tolist()] == scan.size.tolist()
    assert [last for each in converted for last in each.last_offset.tolist()] == scan.last_offset.tolist()
    assert [time for each in converted for time in each.max_timestamp.tolist()] == scan.max_timestamp.tolist()
    assert [epoch for each in converted for epoch in each.leader_epoch.tolist()] == scan.leader_epoch.tolist()
