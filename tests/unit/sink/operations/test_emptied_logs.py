"""A log that was emptied: where it starts and ends stays, whatever comes next."""

from contextlib import closing
from pathlib import Path

import pytest

from sparklog.pipeline.checks.verify_logs import verify
from sparklog.pipeline.places.store_view import open_logs
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.opening.access import maintaining
from sparklog.sink.operations.raise_offsets import raise_log_starts
from sparklog.sink.operations.truncate_logs import truncate_fully_and_start_at
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import StorageError
from sparklog.storage_core.inspect.verify.findings import Finding
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.sink_store import contents, in_process, open_store, read_store, rows

_LOG = TopicPartition("t", 0)
_TOPICS = {"t": {"partitions": 1}}


def _rows(*offsets: int):  # type: ignore[no-untyped-def]
    return rows(offset=list(offsets), value=[f"{offset:05}" for offset in offsets])


def _span(path: Path) -> tuple[int, int]:
    state = Ledger.open(path / "ledger").states()[_LOG]
    return state.log_start_offset, state.log_end_offset


def _offsets(path: Path) -> list[int]:
    return [record.offset for record in read_store(path)["t-0"]]


def _assert_sound(path: Path) -> None:
    found: list[Finding] = []
    verify(open_logs(path), found.append, deep=True)
    assert [str(each) for each in found if each.kind not in ("known", "nothing")] == []


def _fail(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_log_start_when_all_records_are_deleted_and_offsets_without_one_follow_then_stays(memory_path: Path) -> None:
    """A group at the end of an emptied log finds its offset there whatever comes next."""
    with closing(open_store(memory_path, _TOPICS, topic="t", offsets="preserved")) as writer:
        writer.append("q", 0, in_process(_rows(*range(10))))
    with maintaining(memory_path) as maintained:
        raise_log_starts(maintained.store, {_LOG: 10}, SystemClock())
    with closing(open_store(memory_path, _TOPICS, topic="t", offsets="preserved")) as writer:
        writer.append("q", 1, in_process(_rows(15)))

    assert _span(memory_path) == (10, 16)
    reader = open_logs(memory_path).logs[0].reader()
    assert [row for batch in reader.read(10) for row in batch.column("offset").to_pylist()] == [15]
    _assert_sound(memory_path)


@pytest.mark.parametrize("offsets", ["assigned", "preserved"])
def test_undo_when_a_log_was_emptied_then_its_segment_stays(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch, offsets: str
) -> None:
    """The name of an empty segment is all that tells a broker where the log ends."""
    with closing(open_store(memory_path, _TOPICS, topic="t", offsets=offsets)) as writer:
        writer.append("q", 0, in_process(_rows(*range(10))))
    truncate_fully_and_start_at(memory_path, _LOG, 30, SystemClock())
    before = contents(memory_path / "logs" / "t-0")
    with closing(open_store(memory_path, _TOPICS, topic="t", offsets=offsets)) as writer:
        with monkeypatch.context() as patched:
            patched.setattr("sparklog.sink.place.placer.sync_files", _fail)
            with pytest.raises(StorageError):
                writer.append("q", 1, in_process(_rows(*range(30, 60))))
        assert contents(memory_path / "logs" / "t-0") == before
        writer.append("q", 1, in_process(_rows(*range(30, 60))))

    assert _offsets(memory_path) == list(range(30, 60))
    _assert_sound(memory_path)
