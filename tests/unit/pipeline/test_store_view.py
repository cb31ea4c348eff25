import shutil
from pathlib import Path

import pytest

from pipeline.store_view import open_logs
from tests.golden import GoldenLog, golden_logs, golden_root

_CHECKPOINT = "log-start-offset-checkpoint"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A broker's folder of logs, in which records before offset 70 were deleted; the first segment starts at 52."""
    (golden,) = (each.values[0] for each in golden_logs("v2-deleted-records"))
    assert isinstance(golden, GoldenLog)
    shutil.copytree(golden.directory, tmp_path / golden.directory.name, copy_function=shutil.copyfile)
    shutil.copyfile(golden_root() / _CHECKPOINT, tmp_path / _CHECKPOINT)
    return tmp_path


def test_open_logs_when_records_were_deleted_then_log_starts_where_the_roots_checkpoint_says(root: Path) -> None:
    """A broker keeps a log's start beside its logs if that lies inside a segment."""
    (log,) = open_logs(root).logs

    reader = log.reader()

    assert (reader.log_start_offset, reader.log_end_offset) == (70, 160)
    assert next(reader.read(70)).column("offset")[0].as_py() == 70


def test_open_logs_when_one_log_is_named_then_the_checkpoint_beside_it_counts(root: Path) -> None:
    """A log directory says the same for itself as in its root."""
    (log,) = open_logs(root / "v2-deleted-records-0").logs

    assert log.reader().log_start_offset == 70


@pytest.mark.parametrize(
    ("content", "start"),
    [
        ("0\n1\nv2-deleted-records 0 7\n", 52),
        ("0\n1\nv2-deleted-records 1 70\n", 52),
        ("0\n1\nv2-deleted-records 0 500\n", 500),
        ("", 52),
        ("damaged", 52),
    ],
)
def test_open_logs_when_checkpoint_says_something_else_then_as_a_broker_takes_it(
    root: Path, content: str, start: int
) -> None:
    """It only raises a log's start, over its end if need be; one that can't be read counts as empty."""
    (root / _CHECKPOINT).write_text(content)
    (log,) = open_logs(root).logs

    reader = log.reader()

    assert reader.log_start_offset == start
    assert reader.log_end_offset == max(160, start)
