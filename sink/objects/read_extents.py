"""Reads the batches of extents from their objects, with the offsets and leader epochs that they have in their log."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from sparklog.sink.objects.extents import Extent, checksum_of, hash_batches
from sparklog.sink.place.patch_headers import patch_headers
from sparklog.storage_core.errors import CorruptBatchError, CorruptFileError
from sparklog.storage_core.objects.object_storage import ObjectStorage
from sparklog.storage_core.record.batch_probe import MAGIC_V2
from sparklog.storage_core.record.batch_scan import BatchScan, check_crcs, scan_batches

__all__ = ["ReadExtent", "read_damaged", "read_extents"]

_READ_BYTES = 32 << 20
_THREADS = 8


@dataclass(frozen=True, slots=True)
class ReadExtent:
    """The batches of an extent.

    Attributes:
        data: their bytes, with base offsets and leader epochs.
        scan: (b,) their headers, as they lie in `data`; base and last offsets are those of the object.
        base_offset: (b,) in the log.
    """

    extent: Extent
    data: npt.NDArray[np.uint8]
    scan: BatchScan
    base_offset: npt.NDArray[np.int64]


def read_extents(storage: ObjectStorage, extents: Sequence[Extent]) -> Iterator[list[ReadExtent]]:
    """Yield extents in the order given, 32 MiB at a time, by one request for each object, and check their CRCs.

    Raises:
        ObjectMissingError: an object is gone.
        CorruptFileError: an object is damaged, or has other batches than the ledger names.
        StorageError: the storage refuses.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        for part in _parts(extents):
            found = [
                _renumber(data, extent, storage) for data, extent in zip(_fetch(storage, part, pool), part, strict=True)
            ]
            yield found
            del found  # before the next ones are fetched


def _parts(extents: Sequence[Extent]) -> Iterator[list[Extent]]:
    """Yield extents that are read together."""
    part: list[Extent] = []
    size_bytes = 0
    for extent in extents:
        if part and size_bytes + extent.size_bytes > _READ_BYTES:
            yield part
            part, size_bytes = [], 0
        part.append(extent)
        size_bytes += extent.size_bytes
    if part:
        yield part


def _fetch(storage: ObjectStorage, part: Sequence[Extent], pool: ThreadPoolExecutor) -> list[bytes]:
    wanted: dict[str, list[int]] = {}
    for number, extent in enumerate(part):
        wanted.setdefault(extent.object, []).append(number)

    def read(name: str) -> list[bytes]:
        mine = [part[number] for number in wanted[name]]
        return storage.read_ranges(name, [each.position for each in mine], [each.size_bytes for each in mine])

    found: list[bytes] = [b""] * len(part)
    for name, data in zip(wanted, pool.map(read, wanted), strict=True):
        for number, each in zip(wanted[name], data, strict=True):
            found[number] = each
    return found


def read_damaged(storage: ObjectStorage, extent: Extent) -> ReadExtent | None:
    """As `read_extents`, but also with batches whose CRCs are wrong; None if the batches are not where they belong.

    Raises:
        ObjectMissingError, StorageError: as `read_extents`.
    """
    (found,) = storage.read_ranges(extent.object, [extent.position], [extent.size_bytes])
    return _with_offsets(found, extent)


def _with_offsets(found: bytes, extent: Extent) -> ReadExtent | None:
    """Write base offsets and leader epoch into the batches of an extent; None if they do not fill it."""
    data = np.frombuffer(bytearray(found), np.uint8)
    try:
        scan = scan_batches(data)
    except CorruptBatchError:
        return None
    if not len(scan) or scan.valid_bytes != len(data) or bool((scan.magic != MAGIC_V2).any()):
        return None
    if extent.has_own_offsets:
        base_offset = scan.base_offset
    else:
        counts = scan.last_offset_delta + 1
        base_offset = extent.base_offset + np.cumsum(counts) - counts
    ends = base_offset + scan.last_offset_delta + 1
    if base_offset[0] != extent.base_offset or ends[-1] != extent.end_offset or (base_offset[1:] < ends[:-1]).any():
        return None
    patch_headers(data, scan.position, base_offset, np.full(len(scan), extent.leader_epoch, np.int32))
    return ReadExtent(extent, data, scan, base_offset)


def _has_checksum(read: ReadExtent) -> bool:
    """Whether batches are those that the ledger names: no CRC covers their base offsets."""
    hashed = blake2b(digest_size=8)
    hash_batches(hashed, read.base_offset, read.scan)
    return read.extent.checksum in (0, checksum_of(hashed))


def _renumber(found: bytes, extent: Extent, storage: ObjectStorage) -> ReadExtent:
    """Write base offsets and leader epoch into the batches of an extent, and check these."""
    read = _with_offsets(found, extent)
    if read is None or len(check_crcs(read.data, read.scan)) or not _has_checksum(read):
        raise CorruptFileError(
            "an object is damaged, or has other batches than the ledger names:"
            f" object={storage.address.child(extent.object)} position={extent.position} size={extent.size_bytes}"
            f" offsets={extent.base_offset}..{extent.end_offset - 1}; restore it from a copy,"
            " or repair --execute records what is lost"
        )
    return read
