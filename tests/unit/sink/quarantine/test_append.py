"""One micro-batch after the other: many splits, keyless rows, failures in the middle."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.sink.quarantine.claims import store_part
from sparklog.sink.store.store_folder import Store
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import in_process, open_store, read_store, rows


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    """This process may open 128 files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    yield 128
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_append_when_splits_outnumber_descriptors_then_all_of_them_are_placed(
    tmp_path: Path, few_descriptors: int
) -> None:
    """How many input splits a micro-batch has is not bounded by the files that the driver may open."""
    splits = [rows(key=[b"k"], value=[b"%d" % number]) for number in range(few_descriptors + 50)]

    writer = open_store(tmp_path / "store", {"orders": {"partitions": 1}}, topic="orders")
    writer.append("query", 0, in_process(*splits))
    writer.close()

    values = [record.value for record in read_store(tmp_path / "store")["orders-0"]]
    assert values == [b"%d" % number for number in range(len(splits))]


def test_append_when_keyless_micro_batches_are_small_then_every_partition_gets_its_turn(tmp_path: Path) -> None:
    """Micro-batches that never fill a batch start at another partition each time."""
    writer = open_store(tmp_path / "store", {"orders": {"partitions": 6}}, topic="orders")
    for batch_id in range(12):
        writer.append("query", batch_id, in_process(rows(value=[b"x"]), rows(value=[b"y"])))
    writer.close()

    assert {len(records) for records in read_store(tmp_path / "store").values()} == {4}


def test_append_when_checkpoint_files_cannot_be_written_then_the_micro_batch_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What fails behind the commit is not reported as a failure of the micro-batch, which is visible by then."""
    clock = ManualClock(0)
    writer = open_store(tmp_path / "store", {"orders": {"partitions": 1}}, topic="orders", clock=clock)
    (tmp_path / "store" / "logs" / "replication-offset-checkpoint.tmp").mkdir()
    clock.advance(60_000)

    metrics = writer.append("query", 0, in_process(rows(value=[b"x"])))

    assert metrics.records == 1
    assert "Checkpoint files were not written" in caplog.text
    assert len(read_store(tmp_path / "store")["orders-0"]) == 1
    (tmp_path / "store" / "logs" / "replication-offset-checkpoint.tmp").rmdir()
    writer.close()


def test_append_when_rows_diverted_before_a_crash_become_records_then_their_folder_goes(tmp_path: Path) -> None:
    """A micro-batch that runs again under other settings leaves no row both in a log and in quarantine."""
    writer = open_store(tmp_path / "store", {"orders": {"partitions": 1}}, topic="orders", on_invalid="quarantine")
    earlier = store_part(tmp_path / "store" / "quarantine", Store.find(tmp_path / "store")) / "query-query" / "0"
    earlier.mkdir(parents=True)
    (earlier / "part-00000.parquet").write_bytes(b"of an attempt that was not committed")

    writer.append("query", 0, in_process(rows(value=[b"x"])))
    writer.close()

    assert not earlier.exists()
