from collections.abc import Iterator
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_core.errors import LogStorageError
from storage_core.log.log_reader import LogReader
from storage_core.log.transactions import Isolation
from storage_core.record.control_records import ControlType
from tests.transaction_log import Data, Marker, TransactionLog, write_transaction_log

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
