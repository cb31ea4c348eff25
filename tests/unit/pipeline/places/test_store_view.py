import shutil
from pathlib import Path

import pytest

from sparklog.pipeline.checks.verify_logs import verify
from sparklog.pipeline.places.store_view import open_logs
from sparklog.pipeline.reader.log_bounds import find_bounds
from sparklog.pipeline.reader.options import parse_options
from sparklog.pipeline.verbs.repair import RepairOptions, plan_repairs
from sparklog.storage_core.errors import CorruptFileError
from tests.build.golden import GoldenLog, golden_logs, golden_root

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
    ],
)
def test_open_logs_when_checkpoint_says_something_else_then_as_a_broker_takes_it(
    root: Path, content: str, start: int
) -> None:
    """It only raises a log's start, over its end if need be; one without a byte counts as none."""
    (root / _CHECKPOINT).write_text(content)
    (log,) = open_logs(root).logs

    reader = log.reader()

    assert reader.log_start_offset == start
    assert reader.log_end_offset == max(160, start)


@pytest.mark.parametrize(
    "content", ["damaged", "0\n1\n", "0\n2\nv2-deleted-records 0 70\n", "1\n1\nv2-deleted-records 0 70\n"]
)
def test_open_logs_when_the_checkpoint_of_starts_is_damaged_then_nothing_is_read_by_guess(
    root: Path, content: str
) -> None:
    """Records that were deleted would come back; the logs can be looked at all the same."""
    (root / _CHECKPOINT).write_text(content)
    (log,) = open_logs(root).logs

    with pytest.raises(CorruptFileError, match=rf"path={root / _CHECKPOINT}; restore the file or delete it"):
        log.reader()
    assert log.recovery_point is None
    (root / _CHECKPOINT).unlink()
    assert open_logs(root).logs[0].reader().log_start_offset == 52


def test_open_logs_when_the_checkpoint_of_recovery_points_is_damaged_then_only_they_are_not_told(root: Path) -> None:
    """What is read does not depend on it."""
    path = root / "recovery-point-offset-checkpoint"
    path.write_text("0\n7\n")
    (log,) = open_logs(root).logs

    assert log.reader().log_start_offset == 70
    with pytest.raises(CorruptFileError, match=f"path={path}; restore"):
        _ = log.recovery_point


@pytest.mark.parametrize("loss", ["true", "false"])
def test_query_when_the_checkpoint_of_starts_is_damaged_then_it_fails_whatever_data_loss_is_to_do(
    root: Path, loss: str
) -> None:
    """Deleted records that come back are no loss that anybody may allow."""
    (root / _CHECKPOINT).write_text("0\n2\nv2-deleted-records 0 70\n")
    options = parse_options({"path": str(root), "failOnDataLoss": loss}, "batch")

    with pytest.raises(CorruptFileError, match="restore the file or delete it"):
        find_bounds(open_logs(root).logs, options)


def test_query_when_the_end_is_damaged_then_the_log_still_starts_where_the_checkpoint_says(root: Path) -> None:
    """Damage at the end brings no deleted records back."""
    (log,) = open_logs(root).logs
    with sorted(log.directory.glob("*.log"))[-1].open("ab") as file:
        file.write(bytes([0xFF]) * 100)
    options = parse_options({"path": str(root), "failOnDataLoss": "false"}, "batch")

    (bounds,) = find_bounds([log], options).values()

    assert (bounds.start_offset, bounds.end_offset) == (70, 160)


@pytest.mark.parametrize("is_of_a_broker", [True, False])
def test_verify_and_repair_when_the_checkpoint_of_starts_is_damaged_then_they_name_it(
    root: Path, is_of_a_broker: bool
) -> None:
    """Whoever is told to restore a file can have it named, beside everything else."""
    (root / _CHECKPOINT).write_text("damaged")
    if is_of_a_broker:
        shutil.copyfile(golden_root() / "meta.properties", root / "meta.properties")

    found = verify(open_logs(root), lambda _: None).findings
    planned = plan_repairs(root, RepairOptions())

    assert ("offset-checkpoint", _CHECKPOINT) in [(each.rule, each.file) for each in found]
    assert ("offset-checkpoint", _CHECKPOINT) in [(each.rule, each.file) for each in planned.left]
