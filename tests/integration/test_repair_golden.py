"""Every broker's log, damaged in one place and repaired: all that was not damaged is still there."""

import shutil
from pathlib import Path

import pytest

from sparklog.pipeline.verbs.repair import RepairOptions, execute_repair
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.inspect.verify.verify_log import verify_directory
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.record.batch_scan import scan_batches
from tests.build.golden import GoldenLog, golden_logs


def _records(directory: Path) -> dict[int, tuple[object, ...]]:
    reader = LogReader(directory)
    return {
        row["offset"]: (row["timestamp"], row["key"], row["value"])
        for batch in reader.read(reader.log_start_offset)
        for row in batch.to_pylist()
    }


@pytest.mark.parametrize("golden", golden_logs())
def test_repair_when_a_brokers_batch_is_damaged_then_only_its_records_are_lost(
    golden: GoldenLog, memory_path: Path
) -> None:
    """In every format and codec: the damaged batch goes, the others are read as before, in this and other segments."""
    directory = Path(shutil.copytree(golden.directory, memory_path / "logs" / golden.directory.name))
    before = _records(directory)
    path = max(directory.glob("*.log"), key=lambda each: each.stat().st_size)
    data = bytearray(path.read_bytes())
    scan = scan_batches(bytes(data))
    middle = len(scan) // 2
    start, end = int(scan.position[middle]), int(scan.position[middle] + scan.size[middle])
    data[end - 1] ^= 1
    path.write_bytes(data)

    result = execute_repair(directory, RepairOptions(), SystemClock(), lambda _step: None)

    after = _records(directory)
    low = int(scan.last_offset[middle - 1]) if middle else -1
    lost = {offset for offset in before if low < offset <= scan.last_offset[middle]}
    assert result.is_sound
    assert after == {offset: record for offset, record in before.items() if offset not in lost}
    assert path.read_bytes() == bytes(data[:start] + data[end:])
    assert {each.kind for each in verify_directory(directory, deep=True).findings} <= {"gap", "sparse", "nothing"}


@pytest.mark.parametrize("golden", golden_logs())
def test_repair_when_a_brokers_indexes_are_gone_then_built_again(golden: GoldenLog, memory_path: Path) -> None:
    """Indexes come back for every format, and the log is sound with them."""
    directory = Path(shutil.copytree(golden.directory, memory_path / "logs" / golden.directory.name))
    removed = [each for each in directory.iterdir() if each.name.endswith(("index",))]
    for each in removed:
        each.unlink()

    result = execute_repair(directory, RepairOptions(index_interval_bytes=200), SystemClock(), lambda _step: None)

    assert result.is_sound
    assert verify_directory(directory, deep=True).findings == []
    filled = [each for each in removed if each.with_suffix(".log").stat().st_size]
    assert all(each.exists() for each in filled)
