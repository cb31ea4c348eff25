"""Micro-batches in stores of objects: exactly once, by one writer, and read back as Kafka's segments."""

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import obstore
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from sparklog.pipeline.places.stored_logs import StoredLog
from sparklog.sink.config import SinkConfig
from sparklog.sink.ledger.versions import AsOf
from sparklog.sink.objects.fetch_store import fetch_store
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.sink.objects.object_writer import ObjectWriter
from sparklog.sink.place.end_offsets import PlannedEnds
from sparklog.sink.stage.report import StageReport
from sparklog.sink.stage.stage_rows import StagePlan
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import (
    CommitStateUnknownError,
    CorruptFileError,
    InvalidConfigError,
    InvalidRecordError,
    LedgerDamagedError,
    ObjectMissingError,
    StorageError,
    WriterFencedError,
)
from sparklog.storage_core.objects.address import parse_address
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.sink_store import EVENTS, contents, in_process, numbers, open_store, read_log, rows

_LOGS = (TopicPartition("events", 0), TopicPartition("events", 1))


def _open(place: StoragePlace, **options: Any) -> ObjectWriter:
    options = {"topics": EVENTS, "topic": "events", **options}
    config = SinkConfig.from_options(str(place.address), storage=place.options, **options)
    assert config.objects is not None
    return ObjectWriter(config, config.objects, SystemClock())


def _fetched(place: StoragePlace, tmp_path: Path, as_of: AsOf | None = None) -> dict[str, list[tuple[int, str]]]:
    """Return offsets and values of each log."""
    folder = tmp_path / f"fetched-{len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    fetch_store(ObjectLedger.open(place, as_of), folder, lambda _log: True)
    return {
        directory.name: [(each.offset, (each.value or b"").decode()) for each in read_log(directory)]
        for directory in sorted(folder.iterdir())
        if directory.is_dir()
    }


def _numbers(place: StoragePlace, tmp_path: Path) -> list[int]:
    """Return the numbers of all logs, after checking that offsets are dense."""
    found = _fetched(place, tmp_path)
    for log in found.values():
        assert [offset for offset, _ in log] == list(range(len(log)))
    return sorted(int(value) for log in found.values() for _, value in log)


def _data(place: StoragePlace) -> list[str]:
    return [each.name for each in place.open().list("data")]


@pytest.fixture
def local(tmp_path_factory: pytest.TempPathFactory) -> StoragePlace:
    """A folder used as storage: for what does not depend on the storage."""
    config = SinkConfig.from_options(f"file://{tmp_path_factory.mktemp('objects')}/store", EVENTS)
    assert config.objects is not None
    return config.objects


def test_rows_when_written_in_micro_batches_then_each_is_there_once(place: StoragePlace, tmp_path: Path) -> None:
    with closing(_open(place)) as writer:
        writer.append("query", 0, in_process(numbers(0, 50), numbers(50, 100)))
        metrics = writer.append("query", 1, in_process(numbers(100, 150)))
        assert writer.append("query", 1, in_process(numbers(500, 600))).replayed
        writer.append("other", 0, in_process(numbers(150, 160)))

    assert (metrics.records, metrics.logs) == (50, 2)
    assert _numbers(place, tmp_path) == list(range(160))
    assert len(_data(place)) == 4  # one object for each task


def test_log_when_fetched_then_has_the_bytes_that_a_store_of_this_machine_has(
    local: StoragePlace, tmp_path: Path
) -> None:
    """Of the same rows: so whatever holds for local segments holds for fetched ones."""
    some = [
        rows(
            timestamp=[1_700_000_000_000 + n for n in part],
            key=[f"k{n % 7}" for n in part],
            value=[f"{n}" for n in part],
        )
        for part in (range(400), range(400, 1000), range(1000, 1200))
    ]
    topics = {"events": {"partitions": 2, "batch.size": 300}}
    with (
        closing(_open(local, topics=topics)) as writer,
        closing(open_store(tmp_path / "store", topics, topic="events")) as other,
    ):
        for number, part in enumerate(some):
            writer.append("query", number, in_process(part))
            other.append("query", number, in_process(part))
    folder = tmp_path / "fetched"
    folder.mkdir()

    fetch_store(ObjectLedger.open(local), folder, lambda log: log.partition == 1)

    ours, wanted = contents(folder / "events-1"), contents(tmp_path / "store" / "logs" / "events-1")
    assert not (folder / "events-0").exists()
    assert len(wanted["00000000000000000000.log"]) > 10_000
    for name in ("00000000000000000000.log", "00000000000000000000.index", "leader-epoch-checkpoint"):
        assert ours[name] == wanted[name], name


def test_offsets_when_preserved_then_kept_with_their_gaps_and_ends(place: StoragePlace, tmp_path: Path) -> None:
    topics = {"events": {"partitions": 2}}
    first = rows(offset=[10, 12, 13], partition=[0, 0, 0], value=["a", "b", "c"])
    second = rows(offset=[20, 7], partition=[0, 1], value=["d", "e"])
    with closing(_open(place, topics=topics, offsets="preserved")) as writer:
        writer.append("query", 0, in_process(first), PlannedEnds({("events", 0): 18}, {("events", 0): 8}))
        writer.append("query", 1, in_process(second))
        again = rows(offset=[20], partition=[0], value=["x"])
        with pytest.raises(InvalidRecordError, match="offset"):
            writer.append("query", 2, in_process(again))

    assert _fetched(place, tmp_path) == {
        "events-0": [(10, "a"), (12, "b"), (13, "c"), (20, "d")],
        "events-1": [(7, "e")],
    }
    states = ObjectLedger.open(place).states()
    assert [(states[log].log_start_offset, states[log].log_end_offset) for log in _LOGS] == [(8, 21), (7, 8)]


def test_writer_when_a_later_one_opens_then_it_is_fenced_and_leaves_nothing(
    place: StoragePlace, tmp_path: Path
) -> None:
    """Also if it sleeps in the middle of a micro-batch: its objects are named by no version."""
    first = _open(place)
    first.append("query", 0, in_process(numbers(0, 10)))

    def wake_up_late(plan: StagePlan) -> list[StageReport]:
        reports = in_process(numbers(900, 950))(plan)
        with closing(_open(place)) as second:
            second.append("query", 1, in_process(numbers(10, 20)))
        return reports

    with pytest.raises(WriterFencedError):
        first.append("query", 1, wake_up_late)
    with pytest.raises(InvalidConfigError, match="gave up"):
        first.append("query", 1, in_process(numbers(900, 950)))

    assert _numbers(place, tmp_path) == list(range(20))
    assert len(_data(place)) == 2
    epochs = {each.leader_epoch for extents in ObjectLedger.open(place).extents().values() for each in extents}
    assert epochs == {0, 1}


def test_writers_when_they_open_and_write_at_once_then_each_micro_batch_counts_once(
    place: StoragePlace, tmp_path: Path
) -> None:
    _open(place).close()
    won: list[int] = []

    def run(first: int) -> None:
        for batch in range(3):
            for _ in range(100):
                try:
                    with closing(_open(place)) as writer:
                        metrics = writer.append("query", batch, in_process(numbers(10 * batch, 10 * batch + 10)))
                except WriterFencedError:
                    continue
                if not metrics.replayed:
                    won.append(batch)
                break

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert sorted(won) == [0, 1, 2]
    assert _numbers(place, tmp_path) == list(range(30))


def test_micro_batch_when_it_fails_then_no_object_stays_and_it_can_be_tried_again(
    place: StoragePlace, tmp_path: Path
) -> None:
    def fail(plan: StagePlan) -> list[StageReport]:
        in_process(numbers(0, 50))(plan)
        raise ConnectionError("the cluster is gone")

    with closing(_open(place)) as writer:
        with pytest.raises(ConnectionError):
            writer.append("query", 0, fail)
        with pytest.raises(InvalidRecordError, match="partition"):
            writer.append("query", 0, in_process(numbers(0, 50), rows(partition=[9], value=["x"])))
        assert _data(place) == []
        writer.append("query", 0, in_process(numbers(0, 50)))

    assert _numbers(place, tmp_path) == list(range(50))


def test_micro_batch_when_it_has_no_rows_then_counts(local: StoragePlace, tmp_path: Path) -> None:
    with closing(_open(local)) as writer:
        writer.append("query", 0, in_process())
        assert writer.append("query", 0, in_process(numbers(0, 5))).replayed

    assert _fetched(local, tmp_path) == {"events-0": [], "events-1": []}


def _losing(error: type[Exception], *, after: bool = False, times: int = 1) -> Callable[..., None]:
    """Return Delta's function for a commit with connections that are lost before or after the storage has it."""
    commit, left = DeltaTable.create_write_transaction, [times]

    def lose(table: DeltaTable, *given: Any, **named: Any) -> None:
        left[0] -= 1
        if after or left[0] < 0:
            commit(table, *given, **named)
        if left[0] >= 0:
            raise error("connection reset by peer")

    return lose


@pytest.mark.parametrize("error", [DeltaError, OSError])
def test_commit_when_its_answer_is_lost_then_looked_up(
    place: StoragePlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    with closing(_open(place)) as writer:
        with monkeypatch.context() as lossy:
            lossy.setattr(DeltaTable, "create_write_transaction", _losing(error, after=True))
            writer.append("query", 0, in_process(numbers(0, 10)))
        with monkeypatch.context() as lossy:
            lossy.setattr(DeltaTable, "create_write_transaction", _losing(error))
            with pytest.raises(StorageError, match="connection reset"):
                writer.append("query", 1, in_process(numbers(10, 20)))
        writer.append("query", 1, in_process(numbers(10, 20)))

    assert _numbers(place, tmp_path) == list(range(20))


def test_commit_when_nothing_answers_then_its_state_is_unknown_and_the_next_opening_knows(
    local: StoragePlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(_open(local)) as writer, monkeypatch.context() as lossy:
        lossy.setattr(DeltaTable, "create_write_transaction", _losing(OSError, after=True))
        lossy.setattr(obstore, "get", _unreachable)
        with pytest.raises(CommitStateUnknownError, match="no route"):
            writer.append("query", 0, in_process(numbers(0, 10)))
    with closing(_open(local)) as writer:
        assert writer.append("query", 0, in_process(numbers(0, 10))).replayed

    assert _numbers(local, tmp_path) == list(range(10))


def test_commit_when_it_arrives_late_then_it_counts_or_its_place_is_taken(
    local: StoragePlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that the client gave up may still reach the storage: objects that it names must not go."""
    commit, late = DeltaTable.create_write_transaction, list[Callable[[], None]]()

    def delay(table: DeltaTable, *given: Any, **named: Any) -> None:
        if late:  # the empty commit
            late.pop()()
            commit(table, *given, **named)
            return
        late.append(lambda: commit(table, *given, **named))
        raise OSError("timed out")

    with closing(_open(local)) as writer:
        with monkeypatch.context() as slow:
            slow.setattr(DeltaTable, "create_write_transaction", delay)
            writer.append("query", 0, in_process(numbers(0, 10)))
        writer.append("query", 1, in_process(numbers(10, 20)))

    assert _numbers(local, tmp_path) == list(range(20))


def test_commit_when_it_arrives_behind_the_empty_one_then_it_never_counts(
    local: StoragePlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its objects are gone by then."""
    commit, late = DeltaTable.create_write_transaction, list[Callable[[], None]]()

    def delay(table: DeltaTable, *given: Any, **named: Any) -> None:
        if late:
            commit(table, *given, **named)
            with pytest.raises(DeltaError):
                late[0]()
            return
        late.append(lambda: commit(table, *given, **named))
        raise OSError("timed out")

    with closing(_open(local)) as writer:
        with monkeypatch.context() as slow:
            slow.setattr(DeltaTable, "create_write_transaction", delay)
            with pytest.raises(StorageError, match="timed out"):
                writer.append("query", 0, in_process(numbers(0, 10)))
        assert _data(local) == []
        writer.append("query", 0, in_process(numbers(0, 10)))

    assert _numbers(local, tmp_path) == list(range(10))


def test_store_when_it_is_one_of_a_machine_then_its_address_is_refused_and_it_stays_as_it_is(tmp_path: Path) -> None:
    with closing(open_store(tmp_path / "store", EVENTS, topic="events")) as writer:
        writer.append("query", 0, in_process(numbers(0, 10)))
    before = contents(tmp_path / "store")
    place = StoragePlace(parse_address(f"file://{tmp_path}/store"))

    with pytest.raises(InvalidConfigError, match="give its path"):
        _open(place)

    assert contents(tmp_path / "store") == before


def test_writer_when_settings_do_not_fit_then_the_one_at_work_goes_on(local: StoragePlace, tmp_path: Path) -> None:
    with closing(_open(local)) as writer:
        writer.append("query", 0, in_process(numbers(0, 10)))
        with pytest.raises(InvalidConfigError, match=r"can't shrink"):
            _open(local, topics={"events": {"partitions": 1}})
        writer.append("query", 1, in_process(numbers(10, 20)))

    assert _numbers(local, tmp_path) == list(range(20))


def test_extents_when_a_task_writes_much_of_a_log_then_none_is_large(local: StoragePlace) -> None:
    """A reader gets whole extents, and holds them in memory."""
    values = [bytes([n % 251]) * 10_000 for n in range(4000)]
    with closing(_open(local, topics={"events": {"compression.type": "uncompressed"}})) as writer:
        writer.append("query", 0, in_process([rows(value=values)]))

    [extents] = ObjectLedger.open(local).extents().values()

    assert len(extents) in (5, 6)
    assert max(each.size_bytes for each in extents) < 9 << 20
    assert [each.base_offset for each in extents[1:]] == [each.end_offset for each in extents[:-1]]


def test_commit_when_nothing_can_be_written_then_its_objects_stay(
    local: StoragePlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(_open(local)) as writer, monkeypatch.context() as lossy:
        lossy.setattr(DeltaTable, "create_write_transaction", _losing(OSError, times=9))
        with pytest.raises(CommitStateUnknownError, match="connection reset"):
            writer.append("query", 0, in_process(numbers(0, 10)))
    assert len(_data(local)) == 1
    with closing(_open(local)) as writer:
        assert not writer.append("query", 0, in_process(numbers(0, 10))).replayed

    assert _numbers(local, tmp_path) == list(range(10))


def _unreachable(*_given: object) -> None:
    raise OSError("no route to host")


def test_store_when_read_as_of_an_earlier_version_then_ends_there(place: StoragePlace, tmp_path: Path) -> None:
    with closing(_open(place)) as writer:
        writer.append("query", 0, in_process(numbers(0, 10)))
        version = ObjectLedger.open(place).version
        writer.append("query", 1, in_process(numbers(10, 20)))

    found = _fetched(place, tmp_path, AsOf(version=version))

    assert sorted(int(value) for log in found.values() for _, value in log) == list(range(10))
    with pytest.raises(InvalidConfigError, match="newest_version"):
        _fetched(place, tmp_path, AsOf(version=99))


def test_ledger_when_a_reader_refreshes_it_then_has_what_came_since(place: StoragePlace) -> None:
    with closing(_open(place)) as writer:
        ledger = ObjectLedger.open(place)
        assert not ledger.refresh()
        writer.append("query", 0, in_process(numbers(0, 10)))
        assert ledger.refresh()

    assert sum(state.log_end_offset for state in ledger.states().values()) == 10
    assert sum(each.records for extents in ledger.extents().values() for each in extents) == 10


def test_ledger_when_a_bit_of_its_rows_is_another_then_refused(local: StoragePlace) -> None:
    """Parquet's own checksums tell it: an offset that is another one would lose records."""
    with closing(_open(local)) as writer:
        writer.append("query", 0, in_process(numbers(0, 10)))
    files = sorted(
        Path("/", local.address.path, "ledger").glob("kind=*/*.parquet"), key=lambda file: file.stat().st_mtime_ns
    )
    for file in files[-2:]:
        whole = file.read_bytes()
        for position in range(10, len(whole) // 2, 97):
            file.write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
            try:
                ledger = ObjectLedger.open(local)
                found = (
                    sum(state.log_end_offset for state in ledger.states().values()),
                    sum(each.records for extents in ledger.extents().values() for each in extents),
                )
            except LedgerDamagedError:
                continue
            assert found == (10, 10)  # a bit that nothing reads
        file.write_bytes(whole)


@pytest.mark.parametrize("damage", ["gone", "other"])
def test_log_when_an_object_is_damaged_then_named(local: StoragePlace, tmp_path: Path, damage: str) -> None:
    with closing(_open(local)) as writer:
        writer.append("query", 0, in_process(numbers(0, 10)))
        writer.append("query", 1, in_process(numbers(10, 50)))
    storage, names = local.open(), sorted(_data(local))
    other = storage.read(names[0])
    storage.remove(names[1:])
    if damage == "other":
        storage.create(names[1], other * 9)

    with pytest.raises(ObjectMissingError if damage == "gone" else CorruptFileError, match=names[1]):
        _fetched(local, tmp_path)


def test_time_when_looked_up_then_the_first_record_that_is_not_earlier(local: StoragePlace) -> None:
    """In offset order, also if times go back; extents whose records are all earlier are not fetched."""
    times = [[100, 300, 200], [150, 50], [400, 250]]
    with closing(_open(local, topics={"events": {}})) as writer:
        for number, each in enumerate(times):
            writer.append("query", number, in_process(rows(timestamp=each, value=[str(at) for at in each])))
    extents = ObjectLedger.open(local).extents()[_LOGS[0]]
    stored, flat = StoredLog(local, tuple(extents)), [at for each in times for at in each]

    for start in range(len(flat)):
        for time_ms in range(0, 450, 25):
            wanted = next(((offset, at) for offset, at in enumerate(flat) if offset >= start and at >= time_ms), None)
            assert stored.offset_for_time(time_ms, start, len(flat)) == wanted


def test_store_when_its_settings_do_not_fit_then_refused_before_anything_is_written(local: StoragePlace) -> None:
    with pytest.raises(InvalidConfigError, match=r"log_dirs: a store of objects has none"):
        _open(local, log_dirs=("/disk1",))
    with pytest.raises(InvalidConfigError, match=r"quarantine: a store of objects has its own"):
        _open(local, on_invalid="quarantine", quarantine="/disk2")
    with pytest.raises(InvalidConfigError, match=r"there is no store"):
        ObjectLedger.open(local)
    assert list(local.open().list("")) == []
    _open(local).close()
    with pytest.raises(InvalidConfigError, match=r"can't shrink"):
        _open(local, topics={"events": {"partitions": 1}})


def test_extents_when_planned_then_batches_that_lie_side_by_side_are_one(local: StoragePlace) -> None:
    """A reader asks once for each."""
    with closing(_open(local, topics={"events": {"partitions": 2, "batch.size": 200}})) as writer:
        writer.append("query", 0, in_process(numbers(0, 500), numbers(500, 1000)))

    extents = ObjectLedger.open(local).extents()

    assert {log: len(each) for log, each in extents.items()} == dict.fromkeys(_LOGS, 2)
    assert sum(each.records for found in extents.values() for each in found) == 1000
