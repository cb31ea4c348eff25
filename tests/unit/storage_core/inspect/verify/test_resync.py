import struct
from pathlib import Path

import pytest

from sparklog.storage_core.inspect.verify.resync import BatchSearch
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.scan.segment_reader import SegmentReader
from sparklog.storage_core.record.legacy.header import LegacyHeader, pack_legacy_header
from tests.build.written_log import Batch, encode_batch

_FIRST = encode_batch(Batch([1, 2]), 100)
_SECOND = encode_batch(Batch([3, 4]), 102)
_THIRD = encode_batch(Batch([5]), 104)


def _found(folder: Path, data: bytes, *, budget_spent: bool = False) -> int | None:
    """Search behind a damaged batch at the start, whose length says nothing."""
    path = folder / f"{0:020d}.log"
    path.write_bytes(data)
    with SegmentReader(SegmentFiles(0, path)) as reader:
        search = BatchSearch(reader, len(data), 0, 1 << 31)
        search.checked_bytes = 1 << 40 if budget_spent else 0
        return search.next_batch(0, 5)


def test_next_batch_when_the_next_one_is_sound_then_that(tmp_path: Path) -> None:
    """The first batch that follows is found."""
    assert _found(tmp_path, _FIRST[:9] + b"?" + _FIRST[10:] + _SECOND + _THIRD) == len(_FIRST)


@pytest.mark.parametrize("offset", [0, 7, 100, 5000])
@pytest.mark.parametrize("has_offset", [True, False])
def test_next_batch_when_a_value_holds_a_batch_then_the_logs_own(tmp_path: Path, offset: int, has_offset: bool) -> None:
    """Bytes of a batch inside of a record lead nowhere; the batch that the log goes on with does."""
    head = _FIRST if has_offset else b"\xff" * 20 + _FIRST[20:]
    outer = head + b"value" + encode_batch(Batch([9]), offset) + b"rest"
    expected = len(outer)
    if not has_offset and offset <= 100:
        expected = len(head) + 5  # nothing tells that it does not belong there

    assert _found(tmp_path, outer + _SECOND + _THIRD) == expected


def test_next_batch_when_only_one_is_sound_then_that_though_it_leads_nowhere(tmp_path: Path) -> None:
    """Between two damaged batches a sound one is not given up."""
    damaged = b"\xff" * 20 + _FIRST[20:]
    far = encode_batch(Batch([5]), 200)

    assert _found(tmp_path, damaged + _SECOND + damaged + far) == len(_FIRST)
    assert _found(tmp_path, damaged + _SECOND + damaged) == len(_FIRST)


def test_next_batch_when_too_much_was_read_then_none(tmp_path: Path) -> None:
    """A search ends, whatever the bytes are."""
    assert _found(tmp_path, b"?" * 30 + _SECOND, budget_spent=True) is None


@pytest.mark.parametrize("leads_on", [True, False])
def test_next_batch_when_every_byte_starts_a_header_then_little_is_read(tmp_path: Path, leads_on: bool) -> None:
    """Headers made to announce half of the file each cost no more than a few passes over it."""
    size = 1 << 20
    entry_bytes = size // 2 if leads_on else size // 2 + 1
    header = LegacyHeader(offset=0, message_size=entry_bytes - 12, crc=1, magic=0, attributes=0)
    unit = pack_legacy_header(header) + struct.pack(">ii", -1, entry_bytes - 26) + bytes(6)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(unit * (size // len(unit)))
    with SegmentReader(SegmentFiles(0, path)) as reader:
        search = BatchSearch(reader, size, 0, 1 << 31)

        assert search.next_batch(0, 5) is None
        assert 16 << 20 < search.checked_bytes <= 2 * ((16 << 20) + 4 * size)
