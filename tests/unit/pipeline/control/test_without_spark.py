"""Files of old versions go once nobody can be reading them; what a version is made of stays."""

import os
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sparklog.pipeline.control.read_tables import check_table, read_rows, table_path
from sparklog.pipeline.control.schemas import CLEANER_CHECKPOINTS
from sparklog.pipeline.control.without_spark import drop_old_files, file_count, live_file_count
from sparklog.storage_core.errors import LogStorageError
from tests.build.control_tables import put_rows, write_side_sums
from tests.build.maintained_logs import checkpoint


def test_files_when_no_version_has_them_then_they_go_with_their_sums(memory_path: Path) -> None:
    """Ten minutes after: what a killed run left, and what a change replaced; rows stay as they are."""
    rows = [checkpoint("t", number).as_dict() for number in range(3)]
    put_rows(memory_path, CLEANER_CHECKPOINTS, rows)
    path = table_path(memory_path, CLEANER_CHECKPOINTS)
    opened = DeltaTable(path.as_uri())
    opened.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 minutes"})
    (path / "part-of-a-killed-run.parquet").write_bytes(b"x")
    os.utime(path / "part-of-a-killed-run.parquet", (1, 1))
    opened.update(updates={"failure_count": "7"})
    write_side_sums(memory_path, CLEANER_CHECKPOINTS)
    (path / ".part-that-is-gone.parquet.crc").write_bytes(b"crc\0")
    assert (file_count(memory_path, CLEANER_CHECKPOINTS), live_file_count(memory_path, CLEANER_CHECKPOINTS)) == (8, 1)

    drop_old_files(memory_path, CLEANER_CHECKPOINTS)

    assert len([*path.glob("*.parquet")]) == len([*path.glob(".*.crc")]) == 1
    check_table(memory_path, CLEANER_CHECKPOINTS)
    assert {row["failure_count"] for row in read_rows(memory_path, CLEANER_CHECKPOINTS)} == {7}


def test_files_when_the_table_is_damaged_then_it_is_said(memory_path: Path) -> None:
    """By the errors of the store."""
    put_rows(memory_path, CLEANER_CHECKPOINTS, [])
    (table_path(memory_path, CLEANER_CHECKPOINTS) / "_delta_log" / f"{0:020}.json").write_text("{")

    with pytest.raises(LogStorageError, match="control/cleaner_checkpoints"):
        drop_old_files(memory_path, CLEANER_CHECKPOINTS)
    with pytest.raises(LogStorageError, match="control/cleaner_checkpoints"):
        live_file_count(memory_path, CLEANER_CHECKPOINTS)
