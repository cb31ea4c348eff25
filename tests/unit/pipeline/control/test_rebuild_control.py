"""What a rebuild writes into tables that are gone."""

from pathlib import Path

from sparklog.pipeline.control.leases import LEASE_MS, acquire_leases
from sparklog.pipeline.control.rebuild import unowned_leases
from sparklog.pipeline.control.schemas import LEASES
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.control_tables import DeltaLeaseTable, put_rows
from tests.build.maintained_logs import NOW_MS
from tests.build.manual_clock import ManualClock

_A, _B, _GONE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("gone", 0)


def _row(epoch: int | None, log: TopicPartition | None = None) -> dict[str, object]:
    """Return a row of `runs`."""
    return {"topic": log and log.topic, "partition": log and log.partition, "lease_epoch": epoch}


def test_leases_when_made_anew_then_epochs_are_above_all_that_were(memory_path: Path) -> None:
    """The clock is: nobody has leased a log as often; where it was set back, what runs tell is."""
    late, clock = NOW_MS + 10**9, ManualClock(NOW_MS)
    assert {row["epoch"] for row in unowned_leases([_A, _B], [_row(None)], NOW_MS)} == {NOW_MS}
    rows = unowned_leases([_A, _B], [_row(7), _row(late)], NOW_MS)
    put_rows(memory_path, LEASES, rows)

    table = DeltaLeaseTable(memory_path)
    assert acquire_leases(table, [_A], "r1", clock, "here").epochs == {_A: late + 1}
    clock.advance(LEASE_MS)
    assert acquire_leases(table, [_A, _B], "r2", clock, "there").epochs == {_A: late + 2, _B: late + 1}


def test_leases_when_made_anew_then_logs_that_are_gone_keep_their_epochs() -> None:
    """A topic that is made again gets none of the epochs that runs on the former one had."""
    rows = unowned_leases([_A], [_row(7, _GONE)], 5)

    assert {(row["topic"], row["epoch"]) for row in rows} == {("t", 7), ("gone", 7)}
