from pathlib import Path

from sparklog.pipeline.verbs.repair import RepairOptions, execute_repair
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.inspect.repair.plan import RepairStep
from sparklog.storage_core.log_config import INT64_MAX
from tests.build.written_log import Batch, write_log


def test_repair_when_the_first_time_entry_is_the_largest_number_then_builds_it_and_ends(tmp_path: Path) -> None:
    """A rebuilt index with the largest timestamp is sound: each index is built once, and the repair ends."""
    segments = [[Batch([INT64_MAX, 5]), Batch([6, 7]), Batch([8, 9]), Batch([10])] for _ in range(2)]
    log = write_log(tmp_path / "root" / "orders-0", segments, index_interval_bytes=100)
    for path in log.directory.glob("*.timeindex"):
        path.unlink()
    done: list[RepairStep] = []

    result = execute_repair(log.directory.parent, RepairOptions(), SystemClock(), done.append)

    assert result.is_sound
    assert len(done) == len({(each.log, each.file) for each in done}) == 2
