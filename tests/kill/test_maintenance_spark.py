"""A maintenance run on Spark whose task dies in the middle of a swap, driver and all; the next run completes it."""

from pathlib import Path

import pytest

from sparklog.pipeline.control.read_tables import read_rows
from sparklog.pipeline.control.schemas import CLEANER_CHECKPOINTS, LEASES
from sparklog.storage_core.log.files.names import CLEANED, DELETED, SWAP
from tests.build.maintained_store import PARTITIONS, live_values, write_keys
from tests.build.sink_store import read_store
from tests.delta_jars import jars_fixture
from tests.kill.harness import SparkJob
from tests.sparklog_command import Sparklog

pytestmark = [pytest.mark.kill, pytest.mark.spark]


jars = jars_fixture("A KILLED MAINTENANCE ON SPARK WAS NOT TESTED")


def test_maintain_when_killed_in_the_middle_of_a_swap_then_the_next_run_completes_it(
    tmp_path: Path, sparklog: Sparklog
) -> None:
    """No live key is lost on the way, the leases of the dead run go to the next one in a new epoch."""
    store = write_keys(tmp_path / "store")
    before, live = read_store(store), live_values(store)

    code = _maintain(tmp_path, store, SPARKLOG_FAULT_POINT="clean.deleted:2")
    assert code == -9, (tmp_path / "job.log").read_text()[-2000:]
    assert _left(store, CLEANED, SWAP) > 0
    assert _maintain(tmp_path, store) == 0, (tmp_path / "job.log").read_text()[-2000:]

    assert live_values(store) == live
    assert all(len(records) < len(before[log]) / 2 for log, records in read_store(store).items())
    assert _left(store, CLEANED, SWAP, DELETED) == 0
    assert [row["epoch"] for row in read_rows(store, LEASES)] == [2] * PARTITIONS
    assert len(read_rows(store, CLEANER_CHECKPOINTS)) == PARTITIONS
    assert sparklog("verify", store).code == 0


def _maintain(folder: Path, store: Path, **environment: str) -> int:
    return SparkJob(folder, str(store), module="tests.kill.maintain_job", **environment).finish()


def _left(store: Path, *suffixes: str) -> int:
    return sum(path.name.endswith(suffixes) for path in store.rglob("*"))
