"""Records and options for property tests."""

from hypothesis import strategies as st

from sparklog.storage_core.log_config import CODECS
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from tests.plain.scalar import Record

__all__ = ["encode_options", "int64s", "record_lists"]

int64s = st.integers(-(2**63), 2**63 - 1)

_NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_BYTES = st.none() | st.binary(max_size=80) | st.integers(0, 9000).map(lambda size: bytes([size % 251]) * size)
_TIMES = st.integers(1_699_999_990_000, 1_700_000_010_000) | st.just(-1) | int64s
_HEADERS = st.lists(st.tuples(_NAMES, st.none() | st.binary(max_size=70)), max_size=4).map(tuple)
_GAPS = st.integers(1, 3) | st.integers(1, 2**33)


@st.composite
def record_lists(draw: st.DrawFn, *, gaps: bool = True, min_size: int = 0) -> list[Record]:
    """Draw records with rising offsets, from 0 and dense where there are no gaps."""
    rows = draw(st.lists(st.tuples(_GAPS, _TIMES, _BYTES, _BYTES, _HEADERS), min_size=min_size, max_size=30))
    records, offset = [], -1
    for gap, timestamp, key, value, headers in rows:
        offset += gap if gaps else 1
        records.append(Record(offset=offset, timestamp=timestamp, key=key, value=value, headers=headers))
    return records


@st.composite
def encode_options(draw: st.DrawFn, codecs: tuple[str, ...] = CODECS) -> EncodeOptions:
    """Draw options of every kind; the limits allow any record drawn above."""
    has_producer = draw(st.booleans())
    return EncodeOptions(
        codec=draw(st.sampled_from(codecs)),
        batch_size_bytes=draw(st.sampled_from([1, 200, 1000, 16384, 1 << 20])),
        max_message_bytes=draw(st.sampled_from([40_000, 1048588])),
        log_append_time_ms=draw(st.none() | st.integers(0, 2**63 - 1)),
        partition_leader_epoch=draw(st.integers(-1, 2**31 - 1)),
        producer_id=draw(st.integers(0, 2**63 - 1)) if has_producer else -1,
        producer_epoch=draw(st.integers(0, 2**15 - 1)) if has_producer else -1,
        base_sequence=draw(st.integers(0, 5) | st.integers(2**31 - 40, 2**31 - 1)) if has_producer else -1,
        is_transactional=has_producer and draw(st.booleans()),
    )
