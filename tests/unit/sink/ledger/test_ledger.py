"""The ledger: commits, races, torn entries, a folder that stays small."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable

from sparklog.sink.delta.delta_log import DeltaLog
from sparklog.sink.delta.entries import ACTION_COUNT
from sparklog.sink.delta.tidy import CHECKPOINT_INTERVAL
from sparklog.sink.ledger.crc import ROWS_CRC, TRANSACTIONS_CRC, rows_crc, transactions_crc
from sparklog.sink.ledger.intents import Deletion, render_intents
from sparklog.sink.ledger.ledger import Ledger, ledger_log
from sparklog.sink.ledger.rows import LEDGER_PARTITION, LedgerRows, LogState
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.storage_core.errors import CommitStateUnknownError, LedgerDamagedError, StorageError, WriterFencedError
from sparklog.storage_core.storage.owned_names import UNSHARED, Owner
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.owners import CheckedBy


def _state(partition: int) -> LogState:
    return LogState(
        topic="orders",
        partition=partition,
        log_dir="logs",
        topic_id="AAAAAAAAAAAAAAAAAAAAAQ",
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
        active_base_offset=0,
        active_size_bytes=0,
        max_timestamp_ms=-1,
        leader_epoch=0,
        updated_ms=0,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    ledger = Ledger.create(tmp_path / "ledger", UNSHARED)
    ledger.add([_state(0), _state(1)], UNSHARED)
    return tmp_path / "ledger"


def _advance(ledger: Ledger, row: int, end: int, batch_id: int, owner: Owner = UNSHARED) -> None:
    ledger.update(np.array([row]), {"log_end_offset": np.array([end])}, ("query", batch_id), 0, owner)


def _lost() -> None:
    raise WriterFencedError("taken by force")


def _raise(error: Exception) -> Callable[..., Any]:
    def raising(*_args: object, **_options: object) -> None:
        raise error

    return raising


def test_update_when_committed_then_a_reader_sees_rows_and_transaction(path: Path) -> None:
    """One commit changes the rows named and records the micro-batch."""
    _advance(Ledger.open_for_writing(path, UNSHARED), 1, 42, 7)

    ledger = Ledger.open(path)

    assert ledger.states()[TopicPartition("orders", 1)].log_end_offset == 42
    assert ledger.states()[TopicPartition("orders", 0)].log_end_offset == 0
    assert ledger.transaction_version("query") == 7
    assert ledger.transaction_version("another") is None


def test_update_when_another_writer_committed_first_then_fenced(path: Path) -> None:
    """Of two writers that read the same version, the second one's commit fails and changes nothing."""
    first, second = Ledger.open_for_writing(path, UNSHARED), Ledger.open_for_writing(path, UNSHARED)
    _advance(first, 0, 1, 0)

    with pytest.raises(WriterFencedError):
        _advance(second, 0, 99, 0)

    assert Ledger.open(path).column("log_end_offset").tolist() == [1, 0]


def test_fence_when_taken_over_then_the_earlier_writer_cannot_commit(path: Path) -> None:
    """A fence begins the next leader epoch, and makes every version read before it useless for a commit."""
    earlier = Ledger.open_for_writing(path, UNSHARED)
    Ledger.open_for_writing(path, UNSHARED).fence()
    assert Ledger.open(path).column("leader_epoch").tolist() == [1, 1]

    with pytest.raises(WriterFencedError):
        _advance(earlier, 0, 99, 0, CheckedBy(_lost))


def test_update_when_log_starts_rose_meanwhile_then_takes_them_over(path: Path) -> None:
    """Records may be deleted beside a writer: its commit keeps the higher start, and loses nothing of its own."""
    writer, maintenance = Ledger.open_for_writing(path, UNSHARED), Ledger.open_beside_writer(path)
    _advance(writer, 0, 50, 0)
    maintenance = Ledger.open_beside_writer(path)
    maintenance.correct(np.array([0]), {"log_start_offset": np.array([30])})

    writer.update(
        np.array([0]), {"log_end_offset": np.array([60]), "log_start_offset": np.array([0])}, ("query", 1), 0, UNSHARED
    )

    state = Ledger.open(path).state(0)
    assert (state.log_start_offset, state.log_end_offset) == (30, 60)
    assert Ledger.open(path).transaction_version("query") == 1


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_update_when_the_version_that_won_the_race_cannot_be_read_then_the_next_one_takes_it_over_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """What was read before must not be committed on top of the newer version: log starts would fall back."""
    writer = Ledger.open_for_writing(path, UNSHARED)
    _advance(writer, 0, 50, 0)
    Ledger.open_beside_writer(path).correct(np.array([0]), {"log_start_offset": np.array([30])})
    with monkeypatch.context() as patched:
        patched.setattr("sparklog.sink.delta.delta_log.pq.ParquetFile", _raise(OSError(number, os.strerror(number))))
        with pytest.raises(StorageError):
            _advance(writer, 0, 60, 1)

    _advance(writer, 0, 60, 1)

    state = Ledger.open(path).state(0)
    assert (state.log_start_offset, state.log_end_offset) == (30, 60)


def test_update_when_a_commit_before_could_not_be_synced_then_is_fenced(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That commit may count, and these rows are not its rows."""
    writer = Ledger.open_for_writing(path, UNSHARED)
    with monkeypatch.context() as patched:
        patched.setattr("sparklog.sink.delta.delta_log.sync_files", _raise(OSError(errno.EIO, os.strerror(errno.EIO))))
        with pytest.raises(CommitStateUnknownError):
            _advance(writer, 0, 50, 0)

    with pytest.raises(WriterFencedError):
        _advance(writer, 1, 7, 1)
    assert Ledger.open(path).column("log_end_offset").tolist() == [50, 0]


def test_add_when_log_starts_rose_meanwhile_then_takes_them_over(path: Path) -> None:
    """A sink makes its new topics beside a maintenance run; one that lost the store makes none."""
    writer = Ledger.open_for_writing(path, UNSHARED)
    _advance(writer, 0, 50, 0)
    lost = Ledger.open_for_writing(path, UNSHARED)
    Ledger.open_beside_writer(path).correct(np.array([0]), {"log_start_offset": np.array([30])})

    with pytest.raises(WriterFencedError, match="by force"):
        lost.add([_state(7)], CheckedBy(_lost))
    writer.add([_state(2)], UNSHARED)

    ledger = Ledger.open(path)
    assert ledger.column("log_start_offset").tolist() == [30, 0, 0]
    assert list(ledger.rows) == [TopicPartition("orders", partition) for partition in range(3)]


def test_changed_ms_when_maintenance_and_openings_commit_then_that_of_the_micro_batch(path: Path) -> None:
    """Each entry has the time, as entries before a checkpoint go, and any commit may be the newest one."""
    writer = Ledger.open_for_writing(path, UNSHARED)
    writer.update(np.zeros(0, np.int64), {}, ("query", 0), 1_000, UNSHARED)
    maintenance = Ledger.open_beside_writer(path)
    maintenance.correct(np.array([0]), {"updated_ms": np.array([9_000])})
    for _ in range(CHECKPOINT_INTERVAL):
        writer.change(lambda rows: rows, UNSHARED)
    writer.fence()

    assert not ledger_log(path).entry(2).exists()
    assert [each.changed_ms for each in (writer, Ledger.open(path))] == [1_000, 1_000]
    writer.add([], UNSHARED, 2_000)
    assert [each.changed_ms for each in (writer, Ledger.open(path))] == [2_000, 2_000]


def test_update_when_another_writer_committed_records_then_is_fenced(path: Path) -> None:
    """A change of ends, or of the set of logs, is no maintenance: whoever made it owns the store."""
    first = Ledger.open_for_writing(path, UNSHARED)
    _advance(Ledger.open_for_writing(path, UNSHARED), 1, 5, 0)

    with pytest.raises(WriterFencedError, match="another writer committed"):
        _advance(first, 0, 10, 0)


def test_commit_when_rows_of_another_kind_come_with_it_then_they_stay_and_are_no_logs(path: Path) -> None:
    """One version replaces the rows of logs and adds the others; later versions replace logs alone."""
    log = ledger_log(path)
    table = log.open()
    (file,) = log.data_files(table, LEDGER_PARTITION)
    rows = LedgerRows.from_table(pq.ParquetFile(file).read())
    rows = rows.with_values(np.array([1]), {"log_end_offset": np.array([42])})
    object_rows = pa.table({"topic": ["orders"], "log_start_offset": [5]})
    added = [log.write_data_file(rows.to_table(), LEDGER_PARTITION)]
    added.append(log.write_data_file(object_rows, (LEDGER_PARTITION[0], "object")))
    metadata = {
        ROWS_CRC: rows_crc(rows.text, rows.integers),
        TRANSACTIONS_CRC: transactions_crc([]),
        ACTION_COUNT: "3",
    }
    properties = CommitProperties(max_commit_retries=0, custom_metadata=metadata)
    log.write_entry(table, added, "overwrite", properties, LEDGER_PARTITION)

    ledger = Ledger.open_for_writing(path, UNSHARED)
    assert [state.log_end_offset for state in ledger.all_states()] == [0, 42]
    _advance(ledger, 0, 7, 0)

    assert [state.log_end_offset for state in Ledger.open(path).all_states()] == [7, 42]
    (kept,) = log.data_files(log.open(), (LEDGER_PARTITION[0], "object"))
    assert pq.ParquetFile(kept).read().to_pylist() == [{"topic": "orders", "log_start_offset": 5}]


def test_update_when_maintenance_announces_a_cleaning_beside_it_then_both_count(path: Path) -> None:
    """The writer takes over how far a log is compacted, as it takes over log starts."""
    writer = Ledger.open_for_writing(path, UNSHARED)
    Ledger.open_beside_writer(path).correct(np.array([0]), {"compacted_offset": np.array([5])})

    _advance(writer, 0, 9, 0)

    state = Ledger.open(path).state(0)
    assert (state.compacted_offset, state.log_end_offset) == (5, 9)


def test_update_when_maintenance_lifts_a_limit_beside_it_then_both_count(path: Path) -> None:
    """The writer takes over what maintenance commits, as it takes over log starts."""
    Ledger.open_beside_writer(path).correct(np.array([0]), {"cleaner_limit_offset": np.array([5])})
    writer = Ledger.open_for_writing(path, UNSHARED)
    Ledger.open_beside_writer(path).correct(np.array([0]), {"cleaner_limit_offset": np.array([-1])})

    _advance(writer, 0, 9, 0)

    state = Ledger.open(path).state(0)
    assert (state.cleaner_limit_offset, state.log_end_offset) == (-1, 9)


@pytest.mark.parametrize("changed", [{"intent": [render_intents((Deletion(),))]}, {"owes": ["renew"]}])
def test_update_when_another_one_changed_what_is_left_to_do_then_fenced(
    path: Path, changed: dict[str, list[str]]
) -> None:
    """Who does that has the store."""
    writer = Ledger.open_for_writing(path, UNSHARED)
    Ledger.open_beside_writer(path).correct(np.array([0]), changed)

    with pytest.raises(WriterFencedError):
        _advance(writer, 1, 9, 0)


def test_ledger_when_a_log_is_deleted_then_its_row_only_keeps_its_number(path: Path) -> None:
    """It exists for nobody, and a log of its name gets another row."""
    ledger = Ledger.open_for_writing(path, UNSHARED)
    ledger.correct(np.array([0]), {"intent": [render_intents((Deletion(),))]})
    assert (ledger.topics, list(ledger.rows.values()), len(ledger.column("partition"))) == (["orders"], [1], 2)

    ledger.add([_state(0)], UNSHARED)

    found = Ledger.open(path)
    assert found.rows == {TopicPartition("orders", 1): 1, TopicPartition("orders", 0): 2}
    assert [state.is_absent for state in found.all_states()] == [True, False, False]
    assert set(found.states()) == set(found.rows)


def test_update_when_a_log_was_removed_meanwhile_then_is_fenced(path: Path) -> None:
    """Row numbers have moved: nothing that was computed from them may be committed."""
    first = Ledger.open_for_writing(path, UNSHARED)
    Ledger.open_for_writing(path, UNSHARED).change(lambda rows: rows.without(np.array([0])), UNSHARED)

    with pytest.raises(WriterFencedError):
        _advance(first, 1, 10, 0)
    assert list(Ledger.open(path).rows) == [TopicPartition("orders", 1)]


def test_move_when_committed_then_only_that_log_lies_elsewhere(path: Path) -> None:
    """A log's directory root is one value of its row."""
    Ledger.open_for_writing(path, UNSHARED).correct(np.array([1]), {"log_dir": ["other"]})

    assert [state.log_dir for state in Ledger.open(path).states().values()] == ["logs", "other"]


def test_newest_when_no_version_came_then_the_same_ledger_otherwise_the_newest(path: Path) -> None:
    """Somebody who asks often opens it as often as it changes."""
    ledger, reader = Ledger.open_for_writing(path, UNSHARED), Ledger.open(path)

    assert reader.newest() is reader
    _advance(ledger, 0, 5, 0)
    assert reader.newest().column("log_end_offset").tolist() == [5, 0]


@pytest.mark.parametrize("torn", [b"", b"\0" * 200, b'{"commitInfo":{"timestamp":1'])
def test_open_when_newest_entry_is_torn_then_drops_it(path: Path, torn: bytes) -> None:
    """An entry that a power cut tore never counted: the version before it is the state."""
    _advance(Ledger.open_for_writing(path, UNSHARED), 0, 5, 0)
    ledger = Ledger.open_for_writing(path, UNSHARED)
    _advance(ledger, 0, 9, 1)
    (path / "_delta_log" / f"{ledger.version:020}.json").write_bytes(torn)

    reopened = Ledger.open_for_writing(path, UNSHARED)

    assert reopened.column("log_end_offset").tolist() == [5, 0]
    assert reopened.transaction_version("query") == 0
    _advance(reopened, 0, 9, 1)
    assert Ledger.open(path).column("log_end_offset").tolist() == [9, 0]


@pytest.mark.parametrize("lines", [1, 2, 3])
def test_open_when_newest_entry_ends_at_a_line_then_drops_it(path: Path, lines: int) -> None:
    """Whole lines are no whole entry: rows without their transaction would be written a second time."""
    ledger = Ledger.open_for_writing(path, UNSHARED)
    _advance(ledger, 0, 5, 0)
    _advance(ledger, 0, 9, 1)
    entry = path / "_delta_log" / f"{ledger.version:020}.json"
    whole = entry.read_text().splitlines(keepends=True)
    assert len(whole) == 4
    entry.write_text("".join(whole[:lines]))

    reopened = Ledger.open_for_writing(path, UNSHARED)

    assert reopened.column("log_end_offset").tolist() == [5, 0]
    assert reopened.transaction_version("query") == 0


@pytest.mark.parametrize("damage", ["empty", "zeros", "absent"])
def test_open_when_newest_checkpoint_is_torn_then_reads_the_entries(
    path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut before the checkpoint was durable: the entries that it sums up have not gone yet."""
    monkeypatch.setattr(DeltaTable, "cleanup_metadata", lambda _table: None)
    ledger = Ledger.open_for_writing(path, UNSHARED)
    for batch_id in range(100):
        _advance(ledger, 0, batch_id + 1, batch_id)
    (checkpoint,) = (path / "_delta_log").glob("*.checkpoint.parquet")
    if damage == "absent":
        checkpoint.unlink()
    else:
        checkpoint.write_bytes(b"\0" * (checkpoint.stat().st_size if damage == "zeros" else 0))

    reopened = Ledger.open_for_writing(path, UNSHARED)

    assert reopened.column("log_end_offset").tolist() == [100, 0]
    assert reopened.transaction_version("query") == 99
    assert Ledger.open(path).version == reopened.version


def test_open_when_the_only_checkpoint_is_damaged_then_refuses_and_changes_nothing(path: Path) -> None:
    """Without the entries before it a damaged checkpoint is not a crash's."""
    ledger = Ledger.open_for_writing(path, UNSHARED)
    for batch_id in range(100):
        _advance(ledger, 0, batch_id + 1, batch_id)
    (checkpoint,) = (path / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.write_bytes(b"")
    names = sorted(os.listdir(path / "_delta_log"))

    with pytest.raises(LedgerDamagedError):
        Ledger.open_for_writing(path, UNSHARED)

    assert sorted(os.listdir(path / "_delta_log")) == names


@pytest.mark.parametrize("name", ["with space", "\u00fc", "a#b?c", "{x}*'y"])
def test_update_when_the_folder_has_an_odd_name_then_works_and_stays_small(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path is a path, whatever its characters mean in a URI."""
    monkeypatch.setattr("sparklog.sink.delta.tidy._DATA_FILE_AGE_S", -1.0)
    ledger = Ledger.create(tmp_path / name / "ledger", UNSHARED)
    ledger.add([_state(0), _state(1)], UNSHARED)
    _advance(ledger, 0, 5, 0)

    assert Ledger.open_for_writing(tmp_path / name / "ledger", UNSHARED).column("log_end_offset").tolist() == [5, 0]
    assert len(list((tmp_path / name / "ledger").glob("*.parquet"))) == 1


def test_open_when_newest_data_file_is_damaged_then_refuses(path: Path) -> None:
    """It was on the disk before its entry was written: what zeroed it is no crash."""
    ledger = Ledger.open_for_writing(path, UNSHARED)
    before = set(path.glob("*.parquet"))
    _advance(ledger, 0, 9, 1)
    (newest,) = set(path.glob("*.parquet")) - before
    newest.write_bytes(b"\0" * newest.stat().st_size)

    with pytest.raises(LedgerDamagedError):
        Ledger.open_for_writing(path, UNSHARED)


def test_open_when_newest_entry_is_torn_after_a_clean_end_then_refuses_and_changes_nothing(path: Path) -> None:
    """A writer that ended well had made its entry durable: damage there is no crash's, and what it says counts."""
    ledger = Ledger.open_for_writing(path, UNSHARED)
    before = set(path.glob("*.parquet"))
    _advance(ledger, 0, 9, 1)
    (newest,) = set(path.glob("*.parquet")) - before
    newest.write_bytes(b"\0" * newest.stat().st_size)
    names = sorted(os.listdir(path / "_delta_log"))

    with pytest.raises(LedgerDamagedError, match="ledger"):
        Ledger.open_for_writing(path, UNSHARED, follows_crash=False)

    assert sorted(os.listdir(path / "_delta_log")) == names


def test_open_when_an_older_entry_is_damaged_then_refuses_and_changes_nothing(path: Path) -> None:
    """Damage behind the newest entry is not a crash's: nothing is dropped."""
    ledger = Ledger.open_for_writing(path, UNSHARED)
    _advance(ledger, 0, 5, 0)
    (path / "_delta_log" / f"{ledger.version - 1:020}.json").write_bytes(b"not json")
    names = sorted(os.listdir(path / "_delta_log"))

    with pytest.raises(LedgerDamagedError, match="ledger"):
        Ledger.open_for_writing(path, UNSHARED)

    assert sorted(os.listdir(path / "_delta_log")) == names


def test_update_when_repeated_then_the_log_folder_stays_small(path: Path) -> None:
    """A checkpoint every 100 commits replaces the entries before it, and the transaction outlives them."""
    ledger = Ledger.open_for_writing(path, UNSHARED)
    for batch_id in range(250):
        _advance(ledger, 0, batch_id + 1, batch_id)

    assert len(os.listdir(path / "_delta_log")) < 110
    reopened = Ledger.open_for_writing(path, UNSHARED)
    assert reopened.transaction_version("query") == 249
    assert reopened.column("log_end_offset").tolist() == [250, 0]


def _commit_beside(path: Path, start: int) -> None:
    Ledger.open_beside_writer(path).correct(np.array([0]), {"log_start_offset": np.array([start])})


def _entries(path: Path) -> set[str]:
    return {each.name for each in (path / "_delta_log").glob("*.json")}


@pytest.fixture
def tidied_often(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The ledger, with a checkpoint every ten versions."""
    monkeypatch.setattr("sparklog.sink.delta.tidy.CHECKPOINT_INTERVAL", 10)
    return path


def test_update_when_deletes_are_committed_where_a_checkpoint_is_due_then_the_writer_tidies_behind_its_own(
    tidied_often: Path,
) -> None:
    """Whoever commits beside a writer leaves the entries alone, of which the newest may not be synced yet."""
    path = tidied_often
    writer = Ledger.open_for_writing(path, UNSHARED)
    while writer.version < 9:
        _advance(writer, 0, writer.version, writer.version)
    _commit_beside(path, 3)
    assert len(_entries(path)) == 11

    _advance(writer, 0, 10, 10)

    assert writer.version == 11
    assert _entries(path) == {f"{11:020}.json"}
    _advance(writer, 0, 11, 11)
    assert Ledger.open(path).state(0).log_start_offset == 3


def test_update_when_the_lock_cannot_be_looked_at_while_it_tidies_then_the_commit_counts(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was durable by then; a later commit tidies."""
    monkeypatch.setattr("sparklog.sink.delta.tidy._DATA_FILE_AGE_S", -1.0)
    lock = WriterLock.acquire(tmp_path / "writer.lock")
    writer = Ledger.open_for_writing(path, lock)
    _advance(writer, 0, 1, 1)
    real = os.stat

    def refuse(file: Any, **options: Any) -> os.stat_result:
        if file == tmp_path / "writer.lock":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(file, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", refuse)
        _advance(writer, 0, 2, 2)

    _advance(writer, 0, 3, 3)
    assert Ledger.open(path).version == writer.version
    lock.release()


def test_open_when_macos_put_files_beside_the_entries_then_they_are_passed_over(path: Path) -> None:
    """A copy through a folder that a Mac shares has them."""
    for entry in list((path / "_delta_log").glob("*.json")):
        (entry.parent / f"._{entry.name}").write_bytes(b"\0\5\x16\7")

    writer = Ledger.open_for_writing(path, UNSHARED)
    _advance(writer, 0, 1, 1)

    assert Ledger.open(path).version == writer.version


def test_open_for_writing_when_only_deletes_were_committed_since_then_tidies(tidied_often: Path) -> None:
    """Otherwise the entries of a store without a sink would pile up."""
    path = tidied_often
    for start in range(1, 13):
        _commit_beside(path, start)

    assert Ledger.open_for_writing(path, UNSHARED).state(0).log_start_offset == 12
    assert len(_entries(path)) == 1


def test_correct_when_the_writer_tidies_its_entry_up_before_it_is_synced_then_it_counts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer made it durable before it committed behind it, and its checkpoint holds it."""
    monkeypatch.setattr("sparklog.sink.delta.tidy.CHECKPOINT_INTERVAL", 10)
    writer = Ledger.open_for_writing(path, UNSHARED)
    while writer.version < 8:
        _advance(writer, 0, writer.version, writer.version)
    beside = Ledger.open_beside_writer(path)

    def reach(point: str) -> None:
        if point == "commit.written":
            patched.setattr("sparklog.sink.ledger.ledger.reach", lambda _point: None)
            _advance(writer, 0, 10, 10)

    with monkeypatch.context() as patched:
        patched.setattr("sparklog.sink.ledger.ledger.reach", reach)
        beside.correct(np.array([0]), {"log_start_offset": np.array([5])})

    assert _entries(path) == {f"{10:020}.json"}
    state = Ledger.open(path).state(0)
    assert (state.log_start_offset, state.log_end_offset) == (5, 10)


def test_make_durable_when_an_entry_is_gone_and_nobody_committed_behind_it_then_the_commit_is_doubtful(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it is no tidying up that took it."""
    writer = Ledger.open_for_writing(path, UNSHARED)
    newest = path / "_delta_log" / f"{writer.version + 1:020}.json"
    monkeypatch.setattr("sparklog.sink.ledger.ledger.reach", lambda _point: newest.unlink(missing_ok=True))

    with pytest.raises(CommitStateUnknownError):
        _advance(writer, 0, 1, 0)


def test_update_when_repeated_beside_deletes_then_the_data_files_stay_few(
    tidied_often: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each pair of commits one is another's, and the writer's first attempt lost its race."""
    path = tidied_often
    monkeypatch.setattr("sparklog.sink.delta.tidy._DATA_FILE_AGE_S", 0.0)
    writer = Ledger.open_for_writing(path, UNSHARED)
    for number in range(1, 21):
        _advance(writer, 0, number, number)
        _commit_beside(path, number)

    assert writer.version == 40
    assert len(list(path.glob("*.parquet"))) < 16
    assert Ledger.open(path).state(0).log_start_offset == 20


def test_update_when_a_commit_beside_it_takes_long_then_its_data_file_stays(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A data file without an entry is no leftover before a commit has come that it can't survive."""
    monkeypatch.setattr("sparklog.sink.delta.tidy._DATA_FILE_AGE_S", -1.0)
    beside = Ledger.open_beside_writer(path)
    write = DeltaLog.write_entry

    def write_late(*args: Any) -> None:
        before = set(path.glob("*.parquet"))
        monkeypatch.setattr(DeltaLog, "write_entry", write)
        write(*args)
        entry = path / "_delta_log" / f"{beside.version + 1:020}.json"
        content = entry.read_bytes()
        entry.unlink()
        Ledger.open_for_writing(path, UNSHARED)
        assert set(path.glob("*.parquet")) == before
        entry.write_bytes(content)

    monkeypatch.setattr(DeltaLog, "write_entry", write_late)
    beside.correct(np.array([0]), {"log_start_offset": np.array([5])})

    assert Ledger.open(path).state(0).log_start_offset == 5
