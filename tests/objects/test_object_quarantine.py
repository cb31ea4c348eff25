"""Invalid rows in stores of objects: diverted once, with the micro-batch that they come from, and never before it."""

import io
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sparklog.sink.config import SinkConfig
from sparklog.sink.objects import diverted_objects, object_writer
from sparklog.sink.objects.maintaining import maintain_objects as maintain_module
from sparklog.sink.objects.maintaining.maintain_objects import MaintainedObjects, maintain_objects
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.sink.objects.object_writer import ObjectWriter
from sparklog.sink.stage.report import StageReport
from sparklog.sink.stage.stage_rows import StagePlan
from sparklog.sink.stage.staged_output import StagedObject
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import InvalidConfigError, StorageError, WriterFencedError
from sparklog.storage_core.objects.address import parse_address
from sparklog.storage_core.objects.open_storage import StoragePlace
from tests.build.sink_store import EVENTS, in_process, rows
from tests.sparklog_command import Sparklog

_GOOD, _BAD = rows(value=["1"], timestamp=[5]), rows(value=["2", "3"], timestamp=[-9, None])


@pytest.fixture
def local(tmp_path: Path) -> StoragePlace:
    """A folder used as storage: for what does not depend on the storage."""
    return StoragePlace(parse_address(f"file://{tmp_path}/store"))


def _open(place: StoragePlace) -> ObjectWriter:
    config = SinkConfig.from_options(
        str(place.address), EVENTS, topic="events", on_invalid="quarantine", storage=place.options
    )
    assert config.objects is not None
    return ObjectWriter(config, config.objects, SystemClock())


def _diverted(place: StoragePlace) -> list[dict[str, Any]]:
    storage = place.open()
    names = sorted(each.name for each in storage.list("quarantine"))
    return [row for name in names for row in pq.read_table(io.BytesIO(storage.read(name))).to_pylist()]


def _left_of_tasks(place: StoragePlace) -> list[str]:
    return [each.name for each in place.open().list("data") if each.name.endswith(".parquet")]


def test_row_when_invalid_then_diverted_once_and_the_others_are_in_the_log(place: StoragePlace) -> None:
    """On each storage, also in a micro-batch without any valid row, and one that comes again."""
    with closing(_open(place)) as writer:
        metrics = writer.append("query", 0, in_process(_GOOD, _BAD))
        writer.append("query", 1, in_process(_BAD.slice(0, 1)))
        writer.append("query", 1, in_process(_BAD))
        writer.append("query", 2, in_process(_GOOD))

    assert (metrics.records, metrics.quarantined) == (1, 2)
    negative, absent = "timestamp is out of range", "timestamp is null or could not be parsed"
    found = [(each["batch_id"], each["row"], each["value"], each["reason"]) for each in _diverted(place)]
    assert found == [(0, 0, b"2", negative), (0, 1, b"3", absent), (1, 0, b"2", negative)]
    assert _left_of_tasks(place) == []
    assert ObjectLedger.open(place).diverted() == []
    assert sum(state.log_end_offset for state in ObjectLedger.open(place).states().values()) == 2


def test_rows_when_their_micro_batch_fails_then_none_is_diverted(local: StoragePlace) -> None:
    with closing(_open(local)) as first, closing(_open(local)):
        with pytest.raises(WriterFencedError):
            first.append("query", 0, in_process(_GOOD, _BAD))

        assert _diverted(local) == []
        assert _left_of_tasks(local) == []


def test_rows_when_the_storage_fails_after_the_commit_then_the_next_micro_batch_diverts_them(
    local: StoragePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_given: object) -> None:
        raise StorageError("the storage refuses")

    with closing(_open(local)) as writer:
        with monkeypatch.context() as patch:
            patch.setattr(object_writer, "publish_diverted", refuse)
            writer.append("query", 0, in_process(_BAD))
            with pytest.raises(StorageError):
                writer.append("query", 1, in_process(_GOOD))
        assert _diverted(local) == []

        writer.append("query", 1, in_process(_GOOD))

    assert len(_diverted(local)) == 2
    assert _left_of_tasks(local) == []


def test_rows_when_maintenance_removes_orphans_before_they_are_published_then_they_stay(
    local: StoragePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger names them, so they are no orphans; other Parquet objects of tasks are."""
    with closing(_open(local)) as writer:
        with monkeypatch.context() as patch:
            patch.setattr(object_writer, "publish_diverted", lambda *_given: None)
            writer.append("query", 0, in_process(_BAD))
        local.open().create("data/query/0/0badcafe/00001-dead.parquet", b"of a crashed task")
        monkeypatch.setattr(maintain_module, "_ORPHAN_AGE_MS", 0)
        monkeypatch.setattr(maintain_module, "_GARBAGE_AGE_MS", 0)
        for _ in range(2):
            list(maintain_objects(MaintainedObjects(local, SystemClock(), 1 << 20)))

        assert len(_left_of_tasks(local)) == 1

    _open(local).close()

    assert len(_diverted(local)) == 2


def test_describe_when_rows_were_diverted_then_counts_them_by_reason(local: StoragePlace, sparklog: Sparklog) -> None:
    with closing(_open(local)) as writer:
        writer.append("query", 0, in_process(_GOOD, _BAD))

    assert "quarantine: 2 rows in 1 files" in sparklog("describe", local.address).out
    next(Path("/", local.address.path).rglob("query-query/*/*.parquet")).write_bytes(b"no Parquet")
    assert "quarantine: a file can't be read" in sparklog("describe", local.address).out


def test_folder_when_given_for_a_store_of_objects_then_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="a store of objects has its own, below quarantine/"):
        SinkConfig.from_options(f"file://{tmp_path}/store", EVENTS, on_invalid="quarantine", quarantine=tmp_path / "q")


@pytest.mark.parametrize("copied_bytes", [1 << 30, 3_000_000])
def test_many_rows_when_diverted_then_all_are_there(
    place: StoragePlace, monkeypatch: pytest.MonkeyPatch, copied_bytes: int
) -> None:
    """More than fits into one part of an object, on each storage; copied whole, and in pieces."""
    monkeypatch.setattr(diverted_objects, "_COPIED_BYTES", copied_bytes)
    values = [os.urandom(100) for _ in range(100_000)]
    bad = rows(value=values, timestamp=[-9] * len(values))
    with closing(_open(place)) as writer:
        metrics = writer.append("query", 0, in_process([bad.slice(0, 50_000), bad.slice(50_000)]))

    assert metrics.quarantined == len(values)
    (stored,) = place.open().list("quarantine")
    assert stored.size_bytes > 8 << 20
    assert [each["value"] for each in _diverted(place)] == values


def test_objects_of_diverted_rows_when_given_up_before_the_commit_then_it_is_refused(
    local: StoragePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A micro-batch that was at work for more than a day: maintenance has taken its objects for orphans."""
    monkeypatch.setattr(maintain_module, "_ORPHAN_AGE_MS", 0)

    def stage_for_a_day(plan: StagePlan) -> list[StageReport]:
        reports = in_process(_BAD)(plan)
        assert [each.kind for each in maintain_objects(MaintainedObjects(local, SystemClock(), 1 << 20))] == ["remove"]
        return reports

    with closing(_open(local)) as writer:
        with pytest.raises(StorageError, match="given up before its commit"):
            writer.append("query", 0, stage_for_a_day)
        monkeypatch.undo()

        writer.append("query", 0, in_process(_BAD))

    assert len(_diverted(local)) == 2


def test_rows_when_their_object_is_gone_before_it_is_published_then_warned(
    local: StoragePlace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(_open(local)) as writer:
        with monkeypatch.context() as patch:
            patch.setattr(object_writer, "publish_diverted", lambda *_given: None)
            writer.append("query", 0, in_process(_BAD))
        local.open().remove(_left_of_tasks(local))

    _open(local).close()

    assert "neither with their task nor in quarantine" in caplog.text


def test_task_when_the_object_of_its_diverted_rows_fails_then_reported_and_nothing_is_left(
    local: StoragePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its first byte, in the footer, or as it is to appear."""
    write = StagedObject.write
    for refused in (b"PAR1", b"\x15"):

        def refuse(staged: StagedObject, data: memoryview, first: bytes = refused) -> None:
            if bytes(data[: len(first)]) == first:
                raise StorageError("the storage refuses")
            write(staged, data)

        with closing(_open(local)) as writer, monkeypatch.context() as patch:
            patch.setattr(StagedObject, "write", refuse)
            with pytest.raises(StorageError, match="the storage refuses"):
                writer.append("query", 0, in_process(_GOOD, _BAD))

    assert [each.name for each in local.open().list("data")] == []
    assert _diverted(local) == []
