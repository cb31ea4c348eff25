"""Killed at a named step and started again, a repair leaves what an undisturbed one does."""

import shutil
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.pipeline.places.lost_view import lost_ranges
from sparklog.pipeline.places.store_view import open_logs
from sparklog.sink.ledger.ledger import Ledger
from sparklog.storage_core.errors import LedgerDamagedError
from sparklog.storage_core.inspect.verify.verify_log import verify_directory
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.operation_fault_points import REPAIR_FAULT_POINTS
from tests.build.damaged_store import DAMAGES, problems_of_repaired, segments, write_store
from tests.build.sink_store import contents, log_directories, open_store
from tests.build.written_log import Batch, write_log
from tests.kill.repair_job import finish_repair

pytestmark = pytest.mark.kill

_TOGETHER = ("payload", "active segment's payload", "epochs changed", "leftover", "snapshot", "checkpoint")
_IN_STORES = [point for point in REPAIR_FAULT_POINTS if point not in ("repair.surplus", "repair.swapped")]
_SURPLUS = ["repair.surplus", "repair.surplus:2", "repair.recorded", "repair.kept", "repair.committed"]
_LATER = ("repair.kept:2", "repair.written:2", "repair.written:3", "repair.replaced:2", "repair.indexed:2")


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with several damages at once: two batches, an index, small files, a leftover."""
    store = write_store(tmp_path_factory.mktemp("damaged") / "store")
    for name in _TOGETHER:
        DAMAGES[name](store)
    segments(store)[0].with_suffix(".index").unlink()
    return store


@pytest.mark.parametrize("step", [*_IN_STORES, *_LATER])
def test_repair_when_killed_at_a_step_then_the_second_one_completes_it(
    context: ForkServerContext, memory_path: Path, damaged: Path, step: str
) -> None:
    """Whatever step is the last one: the next repair ends with a sound store, and each loss is written down once."""
    store = Path(shutil.copytree(damaged, memory_path / "store"))
    assert finish_repair(context, store, SPARKLOG_FAULT_POINT=step) == -9

    assert finish_repair(context, store) == 0

    assert problems_of_repaired(store) == []
    names = [path.name for path in segments(store)]
    assert [each.file for each in lost_ranges(open_logs(store))] == [names[1], names[-1]]


@pytest.mark.parametrize("step", _SURPLUS)
def test_repair_when_killed_then_the_second_one_has_kept_bytes_above_an_end_too(
    context: ForkServerContext, memory_path: Path, damaged: Path, step: str
) -> None:
    """No crash left them: they may be records of a newer ledger, and are not cut off before they are kept."""
    store = Path(shutil.copytree(damaged, memory_path / "store"))
    states = Ledger.open(store / "ledger").states()
    log = next(log for log, state in states.items() if state.log_end_offset)
    directory, end = log_directories(store)[str(log)], states[log].log_end_offset
    for base in (end, end + 5):
        (directory / segment_file_name(base, LOG)).write_bytes(f"more at {base}".encode())
    assert finish_repair(context, store, SPARKLOG_FAULT_POINT=step) == -9
    if step.startswith("repair.surplus"):  # it had changed nothing
        with pytest.raises(LedgerDamagedError, match="bytes lie past a log's committed end"):
            open_store(store, {"t": {"partitions": 2}})

    assert finish_repair(context, store) == 0

    kept = contents(store / "control" / "cut" / directory.name)
    for base in (end, end + 5):
        content = f"more at {base}".encode()
        assert kept[f"{segment_file_name(base, LOG)}.0-{len(content)}"] == content
    assert problems_of_repaired(store) == []


@pytest.mark.parametrize("step", ["repair.dropped", "repair.swapped:1", "repair.swapped:2"])
def test_repair_when_killed_while_it_finishes_a_replacement_then_the_second_one_completes_it(
    context: ForkServerContext, memory_path: Path, step: str
) -> None:
    """Finishing what a cleaner began can itself be interrupted, as in a broker."""
    directory = memory_path / "logs" / "t-0"
    write_log(directory, [[Batch([s * 10 + b]) for b in range(3)] for s in range(3)])
    merged = b"".join((directory / f"{base:020d}.log").read_bytes() for base in (0, 3))
    (directory / f"{0:020d}.log.swap").write_bytes(merged)
    (directory / f"{0:020d}.index.swap").write_bytes(b"")
    (directory / f"{0:020d}.timeindex.swap").write_bytes((directory / f"{3:020d}.timeindex").read_bytes()[-12:])
    assert finish_repair(context, directory, SPARKLOG_FAULT_POINT=step) == -9

    assert finish_repair(context, directory) == 0

    assert verify_directory(directory).findings == []
    assert contents(directory)[f"{0:020d}.log"] == merged
