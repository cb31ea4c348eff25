import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparklog.sink.ledger.crc import CHANGED_MS, ROWS_CRC, TRANSACTIONS_CRC, read_committed, rows_crc, transactions_crc
from sparklog.sink.ledger.ledger import Ledger, ledger_log
from sparklog.sink.ledger.rows import LEDGER_PARTITION
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import LedgerDamagedError
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.damaged_store import write_store
from tests.build.sink_store import open_store

_CHANGES = 300


@pytest.fixture
def ledger(memory_path: Path) -> Path:
    """The ledger of a small store."""
    return Store.find(write_store(memory_path / "store")).ledger_path


def _newest(ledger: Path) -> tuple[Path, Path]:
    """Return the newest log entry and data file."""
    entry = max((ledger / "_delta_log").glob("*.json"))
    return entry, max(ledger.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)


def _changed(path: Path, count: int) -> Iterator[bytes]:
    data, draw = path.read_bytes(), random.Random(7)
    for place in draw.sample(range(len(data) * 8), count):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << (place % 8)
        yield bytes(changed)


def _content(ledger: Path) -> tuple[object, ...]:
    opened = Ledger.open(ledger)
    return opened.states(), opened.transaction_version("q"), opened.changed_ms


@pytest.mark.parametrize("number", [0, 1])
def test_ledger_when_any_bit_changes_then_refused_or_the_same(ledger: Path, number: int) -> None:
    """Nothing that is read from a ledger can change unnoticed, in its data or in its log."""
    path, states = _newest(ledger)[number], _content(ledger)
    before, refused = path.read_bytes(), 0
    for content in _changed(path, _CHANGES):
        path.write_bytes(content)
        try:
            assert _content(ledger) == states
        except LedgerDamagedError:
            refused += 1
    path.write_bytes(before)
    assert refused > _CHANGES // 10


@pytest.mark.parametrize(("back", "step"), [(0, 1), (2, 7)])
def test_ledger_when_any_bit_of_a_transaction_changes_then_refused_or_the_same(
    ledger: Path, back: int, step: int
) -> None:
    """No micro-batch is taken for another one, in the newest entry and in those before it."""
    entry, content = sorted((ledger / "_delta_log").glob("*.json"))[-1 - back], _content(ledger)
    before, refused = entry.read_bytes(), 0
    start = before.rindex(b'{"txn"')
    for bit in range(start * 8, len(before) * 8, step):
        changed = bytearray(before)
        changed[bit // 8] ^= 1 << (bit % 8)
        entry.write_bytes(changed)
        try:
            assert _content(ledger) == content
        except LedgerDamagedError:
            refused += 1
    assert refused > (len(before) - start) * 8 // step - 10


def test_ledger_when_any_bit_of_the_time_of_its_last_change_changes_then_refused(ledger: Path) -> None:
    """A cut of a wrong hour would be a wrong state."""
    entry, _ = _newest(ledger)
    before = entry.read_bytes()
    start = before.index(CHANGED_MS.encode())
    for bit in range(start * 8, (before.index(b",", start) - 1) * 8):
        changed = bytearray(before)
        changed[bit // 8] ^= 1 << (bit % 8)
        entry.write_bytes(changed)
        with pytest.raises(LedgerDamagedError):
            Ledger.open(ledger)


def test_ledger_when_its_entry_is_of_an_earlier_release_then_the_newest_rows_time_is_its_last_change(
    ledger: Path,
) -> None:
    """Maintenance may have set it, so a cut of an hour before that may be left out once."""
    rows, log = Ledger.open(ledger).held_rows, ledger_log(ledger)
    rows = rows.with_values(np.array([0]), {"updated_ms": np.array([10**14])})
    metadata = {ROWS_CRC: rows_crc(rows.text, rows.integers), TRANSACTIONS_CRC: transactions_crc([])}
    log.commit(log.open(), rows.to_table(), "overwrite", metadata, (), LEDGER_PARTITION)

    assert Ledger.open(ledger).changed_ms == 10**14


def test_append_when_the_number_of_a_micro_batch_changed_then_the_store_does_not_open(memory_path: Path) -> None:
    """Otherwise the next micro-batches would be taken for committed, and dropped."""
    store = write_store(memory_path / "store")
    entry, _ = _newest(Store.find(store).ledger_path)
    entry.write_bytes(entry.read_bytes().replace(b'"appId":"q","version":3', b'"appId":"q","version":7'))

    with pytest.raises(LedgerDamagedError, match="its micro-batches or its time are not what was committed: version=5"):
        open_store(store, {"t": {"partitions": 2}}, topic="t")


def test_ledger_when_a_checkpoint_names_another_micro_batch_then_refused(memory_path: Path) -> None:
    """As long as the checkpoint's own entry is there, it vouches for what that commit added."""
    ledger = Ledger.create(memory_path / "ledger", UNSHARED)
    for batch_id in range(100):
        ledger.update(np.zeros(0, np.int64), {}, ("q", batch_id), 0, UNSHARED)
    (checkpoint,) = (memory_path / "ledger" / "_delta_log").glob("*.checkpoint.parquet")
    table = pq.read_table(checkpoint)
    number = table.schema.get_field_index("txn")
    wrong = [each and {**each, "version": 7} for each in table.column("txn").to_pylist()]
    changed = table.set_column(number, table.schema.field(number), [pa.array(wrong, table.schema.field(number).type)])
    pq.write_table(changed, checkpoint)

    with pytest.raises(LedgerDamagedError, match=r"not what was committed: query_id='q' held=7 committed=99"):
        Ledger.open(memory_path / "ledger")


def test_fence_when_the_other_writer_s_commit_is_damaged_then_refused(ledger: Path) -> None:
    """A forced take-over commits nothing on top of rows that nobody committed."""
    earlier, later = Ledger.open_for_writing(ledger, UNSHARED), Ledger.open_for_writing(ledger, UNSHARED)
    later.update(np.array([0]), {"leader_epoch": np.array([1])}, ("q", 4), 0, UNSHARED)
    entry, _ = _newest(ledger)
    entry.write_bytes(entry.read_bytes().replace(b'"appId":"q","version":4', b'"appId":"q","version":5'))

    with pytest.raises(LedgerDamagedError):
        earlier.fence()


def test_rows_crc_when_a_value_moves_to_another_row_then_another_one() -> None:
    """Every value counts, and its place."""
    rows = {"topic": ["a", "b"]}, {"log_end_offset": np.array([1, 2], np.int64)}
    swapped = {"topic": ["a", "b"]}, {"log_end_offset": np.array([2, 1], np.int64)}

    assert rows_crc(*rows) == rows_crc(*rows)
    assert rows_crc(*rows) != rows_crc(*swapped)


def test_read_committed_when_an_entry_has_no_crc_then_refused(tmp_path: Path) -> None:
    """Only the version that makes the table has none."""
    log = ledger_log(tmp_path)
    log.folder.mkdir()
    log.entry(0).write_bytes(b'{"commitInfo":{}}\n{"protocol":{}}\n{"metaData":{}}\n')
    log.entry(1).write_bytes(b'{"commitInfo":{"operation":"WRITE"}}\n')

    with pytest.raises(ValueError, match=f"an entry has no CRC.* file={1:020}.json"):
        read_committed(log, 1)
    log.entry(1).unlink()
    assert read_committed(log, 0).transactions == {}
