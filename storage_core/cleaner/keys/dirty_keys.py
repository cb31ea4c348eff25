"""The keys of one segment, for an offset map that is computed elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.cleaner.keys.build_map import DirtyRange
from sparklog.storage_core.cleaner.keys.keyed_records import KeyedRecords, iter_keyed
from sparklog.storage_core.cleaner.survey.cleaned_transactions import is_control
from sparklog.storage_core.cleaner.survey.read_batches import checked_chunks
from sparklog.storage_core.errors import InvalidRecordError
from sparklog.storage_core.log.scan.segment_reader import SegmentReader
from sparklog.storage_core.record.batch_probe import MAGIC_V2

__all__ = ["iter_dirty_keys"]

Keys = tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64], npt.NDArray[np.int64]]


def iter_dirty_keys(one: DirtyRange, hash_key: bytes, check_owner: Callable[[], None]) -> Iterator[Keys]:
    """Yield (n, 2) the digests of the records with keys, (n,) their offsets, and (n,) the offsets for the map.

    The last is the offset of a dirty record, -1 in the clean part and in aborted transactions.

    Args:
        one: a range of one segment; batches of its clean part are read, too.
        check_owner: raises after a takeover.

    Raises:
        CorruptBatchError: a batch is damaged; names file and position.
        InvalidRecordError: a dirty record of format v2 has no key; names offset and file.
    """
    (files,) = one.segments
    with SegmentReader(files) as reader:
        for chunk in checked_chunks(reader, files.base_offset, one.first_uncleanable_offset, check_owner):
            scan = chunk.scan.take(~is_control(chunk.scan))
            if not len(scan):
                continue
            with reader.errors_in(chunk):
                for records in iter_keyed(chunk.data, scan):
                    yield _keys(records, one, hash_key, reader)


def _keys(records: KeyedRecords, one: DirtyRange, hash_key: bytes, reader: SegmentReader) -> Keys:
    is_dirty = records.offset >= one.first_dirty_offset
    is_dirty &= ~one.aborted.mask(records.scan)[records.batch]
    has_key = records.has_key
    keyless = is_dirty & ~has_key
    if keyless.any() and records.scan.magic[0] >= MAGIC_V2:
        offset = int(records.offset[int(np.argmax(keyless))])
        raise InvalidRecordError(
            f"a record of a compacted log has no key: offset={offset} file={reader.files.log_path}"
        )
    digests, dirty = records.digests(hash_key), np.where(is_dirty, records.offset, -1)
    if has_key.all():
        return digests, records.offset, dirty
    return digests[has_key], records.offset[has_key], dirty[has_key]
