import pytest

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.log_config import INT64_MAX
from sparklog.storage_core.record.batch_convert import ConversionCounts, ConvertOptions, convert_batches
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.record.scalar import Record, pack_batch
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions


def _batch_at(base_offset: int, record_count: int) -> bytes:
    records = [Record(offset=place, timestamp=1, key=b"k", value=b"v", headers=()) for place in range(record_count)]
    return base_offset.to_bytes(8, "big", signed=True) + pack_batch(records, EncodeOptions())[8:]


@pytest.mark.parametrize(
    "log",
    [_batch_at(INT64_MAX, 2), _batch_at(INT64_MAX, 1) + _batch_at(-INT64_MAX, 1)],
    ids=["inside a batch", "between batches"],
)
def test_convert_when_offsets_pass_the_largest_number_then_refused(log: bytes) -> None:
    """Offsets that begin anew behind 2^63-1 go back: their difference is one, as if they went on."""
    with pytest.raises(CorruptBatchError):
        list(convert_batches(log, scan_batches(log), ConvertOptions(magic=1), 0, ConversionCounts()))
