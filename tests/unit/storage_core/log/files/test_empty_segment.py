from pathlib import Path

import pytest

from sparklog.storage_core.errors import WriterFencedError
from sparklog.storage_core.log.append.cut_back import cut_back, needs_cut_back
from sparklog.storage_core.log.files.committed_end import CommittedEnd
from sparklog.storage_core.log.files.empty_segment import add_empty_segment
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.owners import CheckedBy
from tests.build.written_log import Batch, write_log


def test_add_empty_segment_when_done_then_three_empty_files(tmp_path: Path) -> None:
    """Log and both indexes appear together, empty."""
    add_empty_segment(tmp_path, 42, "token", UNSHARED)

    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == {
        f"{42:020}{suffix}": 0 for suffix in (".log", ".index", ".timeindex")
    }


def test_add_empty_segment_when_no_ledger_names_it_then_the_next_opening_undoes_it(tmp_path: Path) -> None:
    """A crash before the commit leaves a segment behind the log's end, which is what a crashed append leaves."""
    log = write_log(tmp_path / "t-0", [[Batch([1, 2])]])
    before = {path.name: path.read_bytes() for path in log.directory.iterdir()}
    end = CommittedEnd(0, (log.directory / f"{0:020}.log").stat().st_size, 2)
    add_empty_segment(log.directory, 2, "token", UNSHARED)
    assert needs_cut_back(log.directory, end)

    cut_back(log.directory, end, UNSHARED)

    assert {path.name: path.read_bytes() for path in log.directory.iterdir()} == before


def test_add_empty_segment_when_the_store_was_lost_then_nothing_is_left(tmp_path: Path) -> None:
    """Names are given only by who still owns the store; files without one go at once."""

    def refuse() -> None:
        raise WriterFencedError("lost")

    with pytest.raises(WriterFencedError):
        add_empty_segment(tmp_path, 2, "token", CheckedBy(refuse))
    assert list(tmp_path.iterdir()) == []
