"""Logs cleaned by a broker and by us, described batch by batch so that they can be compared.

What compression makes of bytes differs from library to library, so compressed batches are compared by their fields and
records; all others byte for byte, but for delete horizons, which are clocks.
"""

from pathlib import Path
from typing import Any, NamedTuple

from sparklog.storage_core.log.files.names import LOG, parse_base_offset
from sparklog.storage_core.record.attributes import CONTROL_BIT, DELETE_HORIZON_BIT
from sparklog.storage_core.record.batch_decode import decode_batches
from sparklog.storage_core.record.batch_scan import BatchScan, check_crcs, scan_batches

__all__ = ["CleanedBatch", "cleaned_batches", "segment_bases"]

_FIELDS = (
    *("magic", "base_offset", "last_offset", "leader_epoch", "attributes", "max_timestamp", "records_count"),
    *("producer_id", "producer_epoch", "base_sequence"),
)


class CleanedBatch(NamedTuple):
    """A batch of a cleaned log.

    Attributes:
        fields: of its header, but for sizes, CRC and base timestamp.
        records: offset, timestamp, key, value and headers of each.
        horizon_ms: delete horizon, None if it has none.
    """

    fields: tuple[int, ...]
    records: list[tuple[Any, ...]]
    horizon_ms: int | None


def segment_bases(directory: Path) -> list[int]:
    """Return the base offset of every segment, in order."""
    bases = [parse_base_offset(path.name) for path in directory.iterdir() if path.name.endswith(LOG)]
    return sorted(base for base in bases if base is not None)


def cleaned_batches(path: Path) -> list[CleanedBatch]:
    """Return the batches of a segment, whose CRCs must be right and which must end where the file does."""
    data = path.read_bytes()
    scan = scan_batches(data)
    assert scan.valid_bytes == len(data), path
    assert not len(check_crcs(data, scan)), path
    return [_batch(data, scan.take(slice(number, number + 1))) for number in range(len(scan))]


def _batch(data: bytes, one: BatchScan) -> CleanedBatch:
    attributes = int(one.attributes[0])
    rows: list[tuple[Any, ...]] = []
    if one.records_count[0]:
        table = decode_batches(data, one, include_control=bool(attributes & CONTROL_BIT))
        rows = [
            (row["offset"], row["timestamp"], row["key"], row["value"], str(row["headers"]))
            for row in table.to_pylist()
        ]
    has_horizon = one.magic[0] >= 2 and attributes & DELETE_HORIZON_BIT
    return CleanedBatch(
        tuple(int(getattr(one, name)[0]) for name in _FIELDS),
        rows,
        int(one.base_timestamp[0]) if has_horizon else None,
    )
