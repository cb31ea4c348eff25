"""What a segment's bytes are, a chunk at a time."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from sparklog.storage_core.inspect.verify.segment_pass import pass_over
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.scan.segment_reader import SegmentReader
from tests.build.written_log import Batch, encode_batch

_LARGE = encode_batch(Batch([1], value_bytes=5 << 20), 0)
_MOST_READS = 1000


@pytest.fixture
def few_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test that reads again and again."""
    read, done = os.pread, []

    def pread(descriptor: int, size_bytes: int, position: int) -> bytes:
        done.append(position)
        assert len(done) < _MOST_READS
        return read(descriptor, size_bytes, position)

    monkeypatch.setattr(os, "pread", pread)


@pytest.mark.usefixtures("few_reads")
@pytest.mark.parametrize(
    "walk",
    [
        pytest.param(lambda reader: reader.chunks(), id="reader"),
        pytest.param(lambda reader: pass_over(reader, deep=False), id="verify"),
    ],
)
@pytest.mark.parametrize("left_bytes", [0, 30, 100, 3 << 20])
def test_walk_when_a_large_batch_is_cut_while_it_is_read_then_ends(
    tmp_path: Path, walk: Callable[[SegmentReader], Iterable[object]], left_bytes: int
) -> None:
    """A writer may truncate the active segment below the size it had when a reader opened it: that ends a walk."""
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(_LARGE)
    with SegmentReader(SegmentFiles(0, path)) as reader:
        os.truncate(path, left_bytes)

        list(walk(reader))

        assert reader.valid_bytes == 0
