"""What an append needs to know of an active segment, read back from its files."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from sparklog.storage_core.errors import CorruptFileError, WriterFencedError
from sparklog.storage_core.log.append.state import load_append_state
from sparklog.storage_core.log.files.committed_end import CommittedEnd
from sparklog.storage_core.log.files.names import INDEX, LOG, TIMEINDEX, segment_file_name
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.owners import CheckedBy
from tests.build.sink_store import contents
from tests.build.written_log import Batch, WrittenLog, write_log

_NOW_MS, _JITTER_MS = 5_000, 17


def _written(folder: Path) -> WrittenLog:
    """A closed segment 0..99 and an active one, whose largest timestamp is behind the last time entry."""
    closed = [Batch([number]) for number in range(100)]
    active = [Batch([500 + number, 400]) for number in range(20)] + [Batch([10]), Batch([900])]
    return write_log(folder / "t-0", [closed, active])


def _end(log: WrittenLog) -> CommittedEnd:
    assert log.expected is not None
    expected = log.expected
    return CommittedEnd(expected.active_base_offset, expected.active_size_bytes, expected.log_end_offset)


def _file(log: WrittenLog, suffix: str) -> Path:
    return log.directory / segment_file_name(_end(log).segment_base, suffix)


def _values(state: npt.NDArray[np.void], *names: str) -> tuple[int, ...]:
    return tuple(int(state[name]) for name in names)


def test_load_append_state_reads_what_a_broker_would_know(tmp_path: Path) -> None:
    """Sizes from the files, the rolling timestamp from the first batch, the largest one from entries and batches."""
    log = _written(tmp_path)

    state = load_append_state(log.directory, _end(log), _NOW_MS, _JITTER_MS, UNSHARED)

    assert 500 < state["last_entry_timestamp"] < 900
    assert {name: int(state[name]) for name in state.dtype.names or ()} == {
        "next_offset": 142,
        "segment_base": 100,
        "segment_size": _file(log, LOG).stat().st_size,
        "first_timestamp": 500,
        "max_timestamp": 900,
        "max_timestamp_offset": 141,
        "created_ms": _NOW_MS,
        "bytes_since_entry": 0,
        "offset_entries": _file(log, INDEX).stat().st_size // 8,
        "time_entries": _file(log, TIMEINDEX).stat().st_size // 12,
        "last_entry_timestamp": int.from_bytes(_file(log, TIMEINDEX).read_bytes()[-12:-4]),
        "jitter_ms": _JITTER_MS,
    }


@pytest.mark.parametrize("suffix", [INDEX, TIMEINDEX])
@pytest.mark.parametrize(
    "tail", [bytes(80), b"\x7f" * 24, b"\0\0\0", b"\xff" * 24], ids=["zeros", "high", "part", "negative"]
)
def test_load_append_state_when_an_index_goes_on_behind_the_log_then_cuts_it(
    tmp_path: Path, suffix: str, tail: bytes
) -> None:
    """Zeros, entries of batches that were cut, a part of an entry: what lies behind the committed end goes."""
    log = _written(tmp_path)
    path = _file(log, suffix)
    good = path.read_bytes()
    before = load_append_state(log.directory, _end(log), _NOW_MS, 0, UNSHARED)
    path.write_bytes(good + tail)

    assert load_append_state(log.directory, _end(log), _NOW_MS, 0, UNSHARED) == before
    assert path.read_bytes() == good


@pytest.mark.parametrize("suffix", [INDEX, TIMEINDEX])
@pytest.mark.parametrize("content", [None, b"", bytes(12), bytes(24)], ids=["gone", "empty", "short", "zeros"])
def test_load_append_state_when_an_index_is_lost_then_the_log_tells(
    tmp_path: Path, suffix: str, content: bytes | None
) -> None:
    """Without entries every batch is looked at; the file is there afterwards, and empty."""
    log = _written(tmp_path)
    if content is None:
        _file(log, suffix).unlink()
    else:
        _file(log, suffix).write_bytes(content)

    state = load_append_state(log.directory, _end(log), _NOW_MS, 0, UNSHARED)

    assert _values(state, "max_timestamp", "max_timestamp_offset", "first_timestamp") == (900, 141, 500)
    assert _file(log, suffix).read_bytes() == b""


def test_load_append_state_when_nothing_is_committed_then_knows_whether_a_segment_exists(tmp_path: Path) -> None:
    """An empty segment is appended to; without one the first append starts it at its own offset."""
    (tmp_path / segment_file_name(7, LOG)).touch()

    empty = load_append_state(tmp_path, CommittedEnd(7, 0, 7), _NOW_MS, 0, UNSHARED)
    absent = load_append_state(tmp_path, CommittedEnd(8, 0, 8), _NOW_MS, 0, UNSHARED)

    assert _values(empty, "segment_base", "next_offset", "max_timestamp") == (7, 7, -1)
    assert _values(absent, "segment_base", "next_offset", "max_timestamp") == (-1, 8, -1)


def test_load_append_state_when_committed_bytes_are_gone_then_refuses(tmp_path: Path) -> None:
    """It says which file, how long it is, and how long it was."""
    log = _written(tmp_path)
    size = _end(log).size_bytes
    _file(log, LOG).write_bytes(_file(log, LOG).read_bytes()[:-1])

    with pytest.raises(CorruptFileError, match=rf"{100:020}.log has {size - 1} bytes, the ledger names {size}"):
        load_append_state(log.directory, _end(log), _NOW_MS, 0, UNSHARED)
    _file(log, LOG).unlink()
    with pytest.raises(CorruptFileError, match="is missing"):
        load_append_state(log.directory, _end(log), _NOW_MS, 0, UNSHARED)


def test_load_append_state_when_the_store_is_lost_then_cuts_nothing(tmp_path: Path) -> None:
    """The entries behind what this writer knows may be the new owner's."""
    log = _written(tmp_path)
    with _file(log, INDEX).open("ab") as file:
        file.write(bytes(8))
    before = contents(log.directory)

    def lost() -> None:
        raise WriterFencedError("another writer took the store")

    with pytest.raises(WriterFencedError):
        load_append_state(log.directory, _end(log), _NOW_MS, 0, CheckedBy(lost))

    assert contents(log.directory) == before
