"""What a cleaning plan reads of a log's directory."""

from pathlib import Path

import pytest

from sparklog.storage_core.cleaner.survey.plan_log import LogFacts, plan_log
from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.log.files.committed_end import CommittedEnd
from sparklog.storage_core.log_config import LogConfig
from tests.build.written_log import Batch, write_log

_NOW = 1_000_000


def test_plan_when_a_segments_age_cannot_be_told_then_an_error_that_names_it(tmp_path: Path) -> None:
    """Its file is old, but its records may be too young to be cleaned."""
    directory = write_log(tmp_path / "t-0", [[Batch([1]), Batch([2])], [Batch([_NOW])]]).directory
    size = (directory / f"{2:020d}.log").stat().st_size
    log = LogFacts(directory=directory, end=CommittedEnd(2, size, 3), log_start_offset=0)
    config = LogConfig(cleanup_policy="compact", min_compaction_lag_ms=1000, min_cleanable_dirty_ratio=0.0)
    assert plan_log(log, config, _NOW).is_due

    damaged = directory / f"{0:020d}.log"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\xff")
    damaged.with_suffix(".timeindex").unlink()

    with pytest.raises(CorruptBatchError, match=damaged.name):
        plan_log(log, config, _NOW)
