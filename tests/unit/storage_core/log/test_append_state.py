"""The active segment's state, read back; what it cuts, and when it must not."""

from pathlib import Path

import pytest

from storage_core.errors import WriterFencedError
from storage_core.log.append_state import CommittedEnd, load_append_state
from storage_core.log.log_files import INDEX, LOG, TIMEINDEX, segment_file_name


def _lost() -> None:
    raise WriterFencedError("another writer took the store")


@pytest.mark.parametrize("suffix", [INDEX, TIMEINDEX])
def test_load_append_state_when_the_store_is_lost_then_cuts_no_index(tmp_path: Path, suffix: str) -> None:
    """Entries that look torn to a writer of the past may be the new owner's."""
    (tmp_path / segment_file_name(0, LOG)).touch()
    index = tmp_path / segment_file_name(0, suffix)
    index.write_bytes(bytes(23) + b"\x01")

    with pytest.raises(WriterFencedError):
        load_append_state(tmp_path, CommittedEnd(0, 0, 0), 0, 0, _lost)

    assert index.read_bytes() == bytes(23) + b"\x01"
