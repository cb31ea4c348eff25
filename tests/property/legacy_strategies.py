"""Logs of formats v0 and v1, alone and mixed with v2, for property tests."""

from hypothesis import strategies as st

from sparklog.storage_core.log_config import CODECS
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from tests.plain.legacy_scalar import pack_entry, pack_wrapper
from tests.plain.scalar import Record, pack_batch

__all__ = ["legacy_batches", "mixed_batches"]

_TIMES = st.integers(1_699_999_990_000, 1_700_000_010_000) | st.just(-1) | st.integers(-(2**63), 2**63 - 1)
_BYTES = st.none() | st.binary(max_size=60) | st.integers(0, 5000).map(lambda size: bytes([size % 251]) * size)
_RECORDS = st.lists(
    st.tuples(st.integers(1, 3) | st.integers(1, 2**33), _TIMES, _BYTES, _BYTES), min_size=1, max_size=8
)


@st.composite
def _numbered(draw: st.DrawFn) -> list[Record]:
    offset, records = draw(st.integers(-1, 2**40)), []
    for gap, timestamp, key, value in draw(_RECORDS):
        offset += gap
        records.append(Record(offset=offset, timestamp=timestamp, key=key, value=value))
    return records


@st.composite
def legacy_batches(draw: st.DrawFn) -> bytes:
    """Draw one wrapper, or entries without codec."""
    records, magic = draw(_numbered()), draw(st.integers(0, 1))
    codec = draw(st.sampled_from(CODECS[:4]))
    if codec == "none":
        return b"".join(pack_entry(record, magic, 8 * magic * (record.offset % 2)) for record in records)
    return pack_wrapper(records, magic, codec, draw(st.none() | st.integers(0, 2**63 - 1)) if magic else None)


@st.composite
def _v2_batches(draw: st.DrawFn) -> bytes:
    records = draw(_numbered())
    records = [record for record in records if record.offset - records[0].offset < 2**31]
    return pack_batch(records, EncodeOptions(codec=draw(st.sampled_from(CODECS))))


mixed_batches = st.lists(legacy_batches() | legacy_batches() | _v2_batches(), max_size=5)
"""Batches of any format, to be joined in any order."""
