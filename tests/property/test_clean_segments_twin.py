"""Cleaning by kernels and masks against the plain one, record by record and byte by byte."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import crc32c
import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.storage_core.checkpoint.producer_snapshot import ProducerState
from sparklog.storage_core.cleaner.keys.build_map import DirtyRange, build_map
from sparklog.storage_core.cleaner.keys.offset_map import KeySet, OffsetMap, digest_keys
from sparklog.storage_core.cleaner.rewrite.clean_segments import CleanRequest, clean_segments
from sparklog.storage_core.cleaner.survey.aborted_columns import AbortedColumns
from sparklog.storage_core.cleaner.survey.cleaned_transactions import CleanedTransactions
from sparklog.storage_core.index.transaction_index import AbortedTransaction, parse_transaction_index
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log_config import CODECS
from sparklog.storage_core.record.attributes import CONTROL_BIT, DELETE_HORIZON_BIT, TRANSACTIONAL_BIT
from sparklog.storage_core.record.batch_scan import check_crcs, scan_batches
from sparklog.storage_core.record.control_records import ControlType
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, pack_header, unpack_header
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.control_fields import EndTransactionMarker, pack_end_transaction_marker
from tests.plain.plain_cleaning import PlainCleaning, clean_plainly, digest_key
from tests.plain.scalar import Record, decode_records, pack_batch

_NOW_MS = 1_700_000_000_000
_HASH_KEY = bytes(range(16))

_KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"key-of-16-bytes!", b""])
_VALUES = st.none() | st.binary(max_size=5) | st.just(b"v" * 200)
_TIMES = st.integers(_NOW_MS - 10_000, _NOW_MS + 10_000) | st.sampled_from([-1, 0, 2**62, -(2**62)])
_HEADERS = st.sampled_from([(), (("h", b"x"),), (("h", None), ("", b""))])


def _changed(batch: bytes, set_bits: int, base_timestamp: int | None = None) -> bytes:
    header = unpack_header(batch)
    header = replace(
        header,
        attributes=header.attributes | set_bits,
        base_sequence=-1 if set_bits & CONTROL_BIT else header.base_sequence,
        base_timestamp=header.base_timestamp if base_timestamp is None else base_timestamp,
    )
    crc = crc32c.crc32c(pack_header(header)[21:] + batch[HEADER_BYTES:])
    return pack_header(replace(header, crc=crc)) + batch[HEADER_BYTES:]


@st.composite
def _data_batch(draw: st.DrawFn, offset: int) -> bytes:
    gaps = draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))
    records = []
    for gap in gaps:
        fields = (draw(_TIMES), draw(_KEYS), draw(_VALUES), draw(_HEADERS))
        records.append(Record(offset=offset, timestamp=fields[0], key=fields[1], value=fields[2], headers=fields[3]))
        offset += gap
    producer_id = draw(st.sampled_from([-1, -1, 7, 8]))
    options = EncodeOptions(
        codec=draw(st.sampled_from(["none", "none", *CODECS])),
        log_append_time_ms=draw(st.none() | st.just(_NOW_MS)),
        partition_leader_epoch=draw(st.integers(0, 3)),
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=5 if producer_id >= 0 else -1,
        is_transactional=producer_id >= 0 and draw(st.booleans()),
    )
    batch = pack_batch(records, options)
    if draw(st.integers(0, 3)) == 0 and options.log_append_time_ms is None:
        horizon = draw(st.sampled_from([_NOW_MS - 1, _NOW_MS, _NOW_MS + 1]))
        return _changed(batch, DELETE_HORIZON_BIT, horizon)
    return batch


def _marker(offset: int, producer_id: int, control_type: ControlType, horizon: int | None) -> bytes:
    key, value = pack_end_transaction_marker(EndTransactionMarker(control_type, 3))
    options = EncodeOptions(producer_id=producer_id, producer_epoch=1, base_sequence=0, is_transactional=True)
    batch = pack_batch([Record(offset=offset, timestamp=_NOW_MS, key=key, value=value)], options)
    return _changed(batch, CONTROL_BIT | (DELETE_HORIZON_BIT if horizon is not None else 0), horizon)


@st.composite
def _segments(draw: st.DrawFn) -> dict[int, list[bytes]]:
    """Draw the batches of some segments, by base offset; there may be none."""
    segments: dict[int, list[bytes]] = {}
    offset = draw(st.integers(0, 5))
    for _ in range(draw(st.integers(1, 3))):
        batches = segments[offset] = list[bytes]()
        for _ in range(draw(st.integers(0, 7))):
            if draw(st.integers(0, 3)) == 0:
                kind = draw(st.sampled_from(list(ControlType)[:3]))
                horizon = draw(st.none() | st.sampled_from([_NOW_MS, _NOW_MS + 5]))
                batches.append(_marker(offset, draw(st.sampled_from([7, 8])), kind, horizon))
            else:
                batches.append(draw(_data_batch(offset)))
            offset = unpack_header(batches[-1]).next_offset + draw(st.integers(0, 2))
        offset += 1
    return segments


def _aborted(batches: Sequence[bytes]) -> list[AbortedTransaction]:
    """Return the aborted transactions, from a plain look at the batches."""
    begun: dict[int, int] = {}
    found = []
    for batch in batches:
        header = unpack_header(batch)
        if header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT) == TRANSACTIONAL_BIT:
            begun.setdefault(header.producer_id, header.base_offset)
        elif header.is_control and header.attributes & CONTROL_BIT:
            first = begun.pop(header.producer_id, None)
            if first is not None and b"\x00\x00\x00\x00" in batch[HEADER_BYTES : HEADER_BYTES + 16]:
                found.append(AbortedTransaction(0, header.producer_id, first, header.base_offset, header.next_offset))
    return found


def _write(segments: Mapping[int, Sequence[bytes]], directory: Path) -> list[SegmentFiles]:
    files = [SegmentFiles(base, directory / segment_file_name(base, LOG)) for base in segments]
    for each in files:
        each.log_path.write_bytes(b"".join(segments[each.base_offset]))
    return files


@settings(max_examples=300)
@given(
    st.lists(st.binary(max_size=40) | st.binary(min_size=250, max_size=300), max_size=20),
    st.binary(min_size=16, max_size=16),
)
def test_digest_keys_agrees_with_the_plain_hash(keys: list[bytes], hash_key: bytes) -> None:
    """The digests of a column are those of its keys, one by one; a slice of a column is a column."""
    column = pa.array([b"before", *keys], pa.binary())[1:]
    digests = digest_keys(column, hash_key)

    assert [each.astype("<u8").tobytes() for each in digests] == [digest_key(key, hash_key) for key in keys]


@settings(max_examples=250)
@given(st.data())
def test_clean_segments_agrees_with_the_plain_cleaning(tmp_path_factory, data: st.DataObject) -> None:  # type: ignore[no-untyped-def]
    """What is left of any segments, their keys mapped in part or in whole, is what the plain cleaning leaves."""
    segments = data.draw(_segments())
    batches = [batch for segment in segments.values() for batch in segment]
    end_offset = max(unpack_header(batches[-1]).next_offset if batches else 0, max(segments) + 1)
    files = _write(segments, tmp_path_factory.mktemp("log"))
    aborted = _aborted(batches)
    columns = AbortedColumns.of(aborted)
    first_dirty = data.draw(st.integers(files[0].base_offset, end_offset))
    offset_map = OffsetMap(data.draw(st.sampled_from([48, 120, 1 << 20])), _HASH_KEY)
    dirty = DirtyRange(
        segments=files, first_dirty_offset=first_dirty, first_uncleanable_offset=end_offset, aborted=columns
    )
    build_map(dirty, offset_map, lambda: None)
    producers = [
        ProducerState(
            producer_id=producer_id,
            producer_epoch=1,
            last_sequence=-1,
            last_offset=data.draw(st.sampled_from([-1, *(unpack_header(each).last_offset for each in batches)])),
            offset_delta=0,
            timestamp=0,
            coordinator_epoch=0,
            current_txn_first_offset=-1,
        )
        for producer_id in data.draw(st.sampled_from([[], [7], [8, 7]]))
    ]
    erased = data.draw(st.sampled_from([[], [b"a"], [b"a", b"", b"zz"]]))
    codec = data.draw(st.sampled_from([None, None, "none", "zstd"]))
    request = CleanRequest(
        now_ms=_NOW_MS,
        delete_retention_ms=1000,
        cleaning_end_offset=end_offset,
        producers=producers,
        codec=codec,
        erased=KeySet(pa.array(erased, pa.binary()), _HASH_KEY) if erased else None,
    )
    told = PlainCleaning(
        known=_known(batches, aborted, first_dirty, offset_map.latest_offset),
        latest_offset=offset_map.latest_offset,
        now_ms=_NOW_MS,
        delete_retention_ms=1000,
        cleaning_end_offset=end_offset,
        producers=producers,
        aborted=aborted,
        erased=frozenset(erased),
        codec=codec,
    )

    cleaned = clean_segments(files, offset_map, CleanedTransactions(columns), request, UNSHARED)

    left = cleaned.paths[0].read_bytes()
    assert left == clean_plainly(b"".join(batches), told)
    scan = scan_batches(left)
    assert not len(check_crcs(left, scan))
    assert cleaned.counts.bytes_read == len(b"".join(batches))
    assert cleaned.counts.records_kept == int(scan.records_count.sum())
    if len(cleaned.paths) == 4:
        kept = parse_transaction_index(cleaned.paths[3].read_bytes(), cleaned.base_offset)
        assert set(kept) <= set(aborted)


def _known(
    batches: Sequence[bytes], aborted: Sequence[AbortedTransaction], first_dirty: int, latest_offset: int
) -> dict[bytes, int]:
    """Return the latest offset of each key in the range that the map speaks for."""
    known: dict[bytes, int] = {}
    for batch in batches:
        header = unpack_header(batch)
        is_aborted = header.is_transactional and any(
            each.producer_id == header.producer_id and each.first_offset <= header.base_offset < each.last_offset
            for each in aborted
        )
        if is_aborted or header.is_control:
            continue
        for record in decode_records(batch):
            if first_dirty <= record.offset <= latest_offset and record.key is not None:
                known[record.key] = record.offset
    return known


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**63])), max_size=60),
    st.integers(2, 70),
    st.booleans(),
)
def test_offset_map_agrees_with_a_dict(keys: list[tuple[int, int]], slots: int, is_crowded: bool) -> None:
    """A map of any size knows of each key the last offset put, and stops where Kafka's would."""
    digests = np.array([(first >> 60 if is_crowded else first, second) for first, second in keys], np.uint64)
    digests = digests.reshape(-1, 2)
    offsets = np.arange(len(keys), dtype=np.int64)
    offset_map, known = OffsetMap(slots * 24, _HASH_KEY), dict[tuple[int, int], int]()
    stopped = len(keys)
    for place, (first, second) in enumerate(digests.tolist()):
        if len(known) == offset_map.capacity:
            stopped = place
            break
        known[first, second] = place

    assert offset_map.put(digests, offsets) == stopped
    assert len(offset_map) == len(known)
    assert offset_map.get(digests).tolist() == [known.get((first, second), -1) for first, second in digests.tolist()]
    columns = offset_map.columns()
    assert {tuple(key): offset for key, offset in zip(columns[0].tolist(), columns[1].tolist(), strict=True)} == known
    copied = OffsetMap.from_columns(*columns, latest_offset=5, hash_key=_HASH_KEY)
    assert copied.get(digests).tolist() == offset_map.get(digests).tolist()
