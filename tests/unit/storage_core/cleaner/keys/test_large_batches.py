"""Batches of very many records are cleaned in pieces."""

from pathlib import Path

import pytest

from sparklog.storage_core.cleaner.keys.keyed_records import iter_keyed
from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.record.batch_scan import scan_batches
from tests.build.cleaned_log import clean, data, write

_PAIRS = [("a", "1"), ("b", "2"), ("a", None), ("c", "3"), ("b", "4"), ("d", None), ("e", "5")]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_clean_segments_when_batches_come_in_pieces_then_byte_for_byte_as_whole_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    """Records that go and that stay, tombstones, a batch that is copied, one between small ones, one that goes."""
    batches = (data(0, ("x", "1")), data(1, *_PAIRS, codec=codec), data(8, ("a", "9")), data(9, *_PAIRS, codec=codec))
    kept = data(16, *((f"k{number}", "v") for number in range(7)), codec=codec)
    whole = clean(write(tmp_path / "w-0", [*batches, kept]), 23)
    monkeypatch.setattr("sparklog.storage_core.cleaner.keys.keyed_records.MOST_RECORDS", 2)

    pieces = clean(write(tmp_path / "p-0", [*batches, kept]), 23)

    assert (pieces.data, pieces.segment.counts) == (whole.data, whole.segment.counts)
    assert (whole.segment.counts.batches_copied, whole.segment.counts.batches_rebuilt) == (2, 1)


def test_iter_keyed_when_a_batch_in_pieces_is_damaged_at_its_end_then_none_of_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As of a batch that comes as a whole."""
    monkeypatch.setattr("sparklog.storage_core.cleaner.keys.keyed_records.MOST_RECORDS", 2)
    damaged = bytearray(data(0, *_PAIRS))
    damaged[-1] = 2  # the last record's count of headers
    found = iter_keyed(bytes(damaged), scan_batches(bytes(damaged)))

    with pytest.raises(CorruptBatchError, match="headers"):
        next(found)
