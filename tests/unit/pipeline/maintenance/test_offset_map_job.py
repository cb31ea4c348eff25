"""When the tasks that clean a large log stop."""

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog.pipeline.maintenance.offset_map_job as job
from sparklog.storage_core.cleaner.cleaning_part import cut_into_parts
from sparklog.storage_core.cleaner.cleaning_round import EarlyEnd, LogToClean, survey_round
from sparklog.storage_core.errors import WriterFencedError
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.compacted_logs import LogShape, write_segments
from tests.build.owners import CheckedBy


def _fenced() -> None:
    raise WriterFencedError("another run has it")


def test_clean_part_when_the_run_is_asked_to_stop_then_it_says_so_and_changes_nothing(tmp_path: Path) -> None:
    """A group that was not begun stays as it is; what was told of it is drained, so that its worker lives on."""
    log = write_segments(tmp_path / "t-0", LogShape(segments=3))
    what = LogToClean(
        directory=log.directory,
        end=log.end,
        log_start_offset=0,
        first_dirty_offset=0,
        first_uncleanable_offset=log.bases[-1],
        config=LogConfig(cleanup_policy="compact"),
        now_ms=log.shape.start_ms,
        map_bytes=1 << 16,
        hash_key=bytes(16),
    )
    shared, parts = cut_into_parts(survey_round(what))
    part = next(parts)
    columns = [pa.array([-1, 0, 1]), pa.array([pickle.dumps(part), None, None], pa.binary())]
    told = iter([pa.RecordBatch.from_arrays(columns, names=["offset", "content"]) for _ in range(2)])
    before = {path.name: path.read_bytes() for path in log.directory.iterdir()}

    done = job._write_part(shared, told, job.PartChecks(CheckedBy(_fenced), lambda: True))

    assert (done.cleaned, done.problem) == (None, EarlyEnd("the run was asked to stop"))
    assert next(told, None) is None
    assert {path.name: path.read_bytes() for path in log.directory.iterdir()} == before


def test_while_reading_when_the_run_is_asked_to_stop_then_raises() -> None:
    """A task that reads keys ends by an error: half of them would be taken for all."""
    job.PartChecks(UNSHARED, lambda: False).while_reading()

    with pytest.raises(InterruptedError, match="asked to stop"):
        job.PartChecks(UNSHARED, lambda: True).while_reading()
    with pytest.raises(WriterFencedError):
        job.PartChecks(CheckedBy(_fenced), lambda: True).while_reading()
