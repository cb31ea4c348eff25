import struct
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.storage_core.errors import LogStorageError
from sparklog.storage_core.log.producers.transactions import Isolation
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.record.control_records import ControlType
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from tests.build.transaction_log import Data, Marker, TransactionLog, write_transaction_log
from tests.plain.legacy_scalar import pack_entry, pack_wrapper
from tests.plain.scalar import Record, pack_batch

_ABORT = ControlType.ABORT
_ISOLATIONS: tuple[Isolation, ...] = get_args(Isolation)
_HEADER_BYTES = 61


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> TransactionLog:
    """Three segments of committed, aborted and plain batches."""
    segments: list[list[Data | Marker]] = [
        [Data(2, 1), Data(1), Marker(1, _ABORT)],
        [Data(2, 1), Data(1, 2), Data(1)],
        [Marker(1), Data(1, 1), Marker(2, _ABORT), Data(2), Marker(1)],
    ]
    return write_transaction_log(tmp_path_factory.mktemp("changed") / "t-0", segments)


@settings(deadline=None, max_examples=150)
@given(
    place=st.integers(0, 10),
    at=st.one_of(st.integers(0, 26), st.integers(0, 200)),
    bit=st.integers(0, 7),
    step=st.sampled_from([3, 100]),
)
def test_reading_a_log_with_a_changed_bit_gives_the_same_records_or_an_error(
    log: TransactionLog, place: int, at: int, bit: int, step: int
) -> None:
    """Whichever bit of a log whose ends are known was changed: no record is lost, doubled or made up in silence."""
    path, position, size, _ = log.batches[place]
    original = path.read_bytes()
    changed = bytearray(original)
    changed[position + at % size] ^= 1 << bit
    path.write_bytes(changed)
    try:
        for isolation in _ISOLATIONS:
            try:
                found = [offset for offsets in _reads(log, isolation, step) for offset in offsets]
            except LogStorageError:
                continue
            assert found == (log.offsets if isolation == "read_uncommitted" else log.committed)
    finally:
        path.write_bytes(original)


def _reads(log: TransactionLog, isolation: Isolation, step: int) -> Iterator[list[int]]:
    """Yield offsets, read in ranges of `step` offsets by one reader."""
    reader = LogReader(log.directory, log_start_offset=0, log_end_offset=log.log_end_offset)
    for start in range(0, log.log_end_offset, step):
        for batch in reader.read(start, end_offset=start + step, isolation=isolation, chunk_bytes=_HEADER_BYTES * step):
            yield batch.column("offset").to_pylist()


_PER_BATCH = 11
_SEGMENTS = 3
_BATCHES = 3  # of a segment
_END = _PER_BATCH * _SEGMENTS * _BATCHES


def _packed(kind: str, first: int) -> bytes:
    """Return so many records: a batch of v2, a wrapper, or as many entries of v1."""
    records = [
        Record(offset=offset, timestamp=1_700_000_000_000 + offset, key=b"k", value=b"value")
        for offset in range(first, first + _PER_BATCH)
    ]
    magic, codec = kind.split("-")
    if magic == "v2":
        return pack_batch(records, EncodeOptions(codec=codec))
    if codec == "none":
        return b"".join(pack_entry(record, int(magic[1])) for record in records)
    return pack_wrapper(records, int(magic[1]), codec)


@pytest.fixture(scope="module")
def plain_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Logs of several segments without an index, a gap of offsets, or anything that says where they end."""
    folders = {}
    for kind in _KINDS:
        folders[kind] = tmp_path_factory.mktemp(kind)
        for segment in range(_SEGMENTS):
            base = segment * _BATCHES * _PER_BATCH
            batches = [_packed(kind, base + number * _PER_BATCH) for number in range(_BATCHES)]
            (folders[kind] / f"{base:020d}.log").write_bytes(b"".join(batches))
    return folders


_KINDS = ("v2-none", "v2-gzip", "v1-none", "v1-gzip", "v1-lz4", "v0-gzip")


@settings(deadline=None, max_examples=300)
@given(
    kind=st.sampled_from(_KINDS),
    segment=st.integers(0, _SEGMENTS - 1),
    place=st.integers(0, _PER_BATCH * _BATCHES - 1),
    at=st.one_of(st.integers(0, 7), st.integers(0, 26), st.integers(0, 300)),
    bit=st.integers(0, 7),
    step=st.sampled_from([7, 1000]),
    knows_end=st.booleans(),
)
def test_reading_a_plain_folder_with_a_changed_bit_gives_the_same_records_or_an_error(
    plain_folders: dict[str, Path],
    kind: str,
    segment: int,
    place: int,
    at: int,
    bit: int,
    step: int,
    knows_end: bool,
) -> None:
    """The same of every format, of batches that reach far, and where the log's end is found by a scan.

    Nothing tells a higher base offset of a log's last batch, within what a segment may hold; with a known end it is
    only a gap that ends there. Of a wrapper of v0 with a lower offset the records still come in one pass, for they have
    offsets of their own; a read that starts inside of it passes over it, so v0 is read in one pass alone.
    """
    step = 1000 if kind == "v0-gzip" else step
    path = sorted(plain_folders[kind].glob("*.log"))[segment]
    original = path.read_bytes()
    scan = scan_batches(original)
    number = place % len(scan)
    position = int(scan.position[number]) + at % int(scan.size[number])
    changed = bytearray(original)
    changed[position] ^= 1 << bit
    is_last = segment == _SEGMENTS - 1 and number == len(scan) - 1
    (offset,) = struct.unpack_from(">q", changed, int(scan.position[number]))
    if is_last and offset > scan.base_offset[number] and not knows_end:
        return
    path.write_bytes(changed)
    try:
        found = _read_plain(plain_folders[kind], step, _END if knows_end else None)
    except LogStorageError:
        return
    finally:
        path.write_bytes(original)
    assert found == list(range(_END))


def _read_plain(directory: Path, step: int, log_end_offset: int | None) -> list[int]:
    """Return the offsets that are read in ranges of `step` offsets."""
    reader = LogReader(directory, log_end_offset=log_end_offset)
    return [
        offset
        for start in range(0, reader.log_end_offset, step)
        for batch in reader.read(start, end_offset=start + step)
        for offset in batch.column("offset").to_pylist()
    ]
