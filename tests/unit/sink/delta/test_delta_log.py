"""The files of a Delta table: the names among them, and damage told with the name of the file."""

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.sink.delta.damage import Damage
from sparklog.sink.delta.delta_log import DeltaLog
from sparklog.storage_core.errors import CorruptFileError, StorageError

_ROOT = Path(__file__).resolve().parents[4]
_SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False)])


@pytest.fixture
def log(memory_path: Path) -> DeltaLog:
    """A table with the rows 0, 1 and 2, a commit each; a checkpoint sums up the first one."""
    log = DeltaLog(memory_path / "table", Damage("the table", "make it anew", CorruptFileError))
    log.path.mkdir()
    log.create(_SCHEMA)
    for number in range(3):
        log.commit(log.open(), pa.table({"n": [number]}, schema=_SCHEMA), "append", {})
        if number == 0:
            log.open().create_checkpoint()
    return log


def _rows(log: DeltaLog) -> list[int]:
    with log.refusing_damage():
        table = log.open()
        list(log.read_entries(table.version()))
        return sorted(log.read(table, _SCHEMA).column("n").to_pylist())


def test_log_when_whole_then_versions_parts_and_rows_are_those_committed(log: DeltaLog) -> None:
    """A version is made of a checkpoint and the entries since; `._*` files of macOS are none of them."""
    (log.folder / f"._{log.entry(9).name}").write_bytes(b"\0")

    assert _rows(log) == [0, 1, 2]
    assert (log.newest_version(), log.last_version(), log.checkpoints()) == (3, 3, {1})
    assert log.parts(3) == [log.checkpoint(1), log.entry(2), log.entry(3)]
    assert log.parts(0) == [log.entry(0)]
    assert [version for version, _ in log.read_entries(3)] == [1, 2, 3]


def test_log_when_there_is_no_table_then_it_has_no_version(tmp_path: Path) -> None:
    """A folder that is not there, and one without an entry."""
    log = DeltaLog(tmp_path / "table", Damage("the table", "make it anew"))
    assert (log.files(), log.newest_version(), log.last_version()) == ([], -1, -1)
    log.folder.mkdir(parents=True)
    assert (log.files(), log.newest_version(), log.last_version()) == ([], -1, -1)


def _tear(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:20])


@pytest.mark.parametrize("damage", [_tear, Path.unlink])
@pytest.mark.parametrize("part", ["entry", "newest entry", "checkpoint", "data file"])
def test_log_when_a_file_is_damaged_then_the_error_names_table_file_and_remedy(
    log: DeltaLog, part: str, damage: Callable[[Path], None]
) -> None:
    """Whichever library meets the damage."""
    files = {"entry": log.entry(2), "newest entry": log.entry(3), "checkpoint": log.checkpoint(1)}
    file = files.get(part) or log.data_files(log.open())[0]
    if part == "checkpoint":
        log.entry(0).unlink()
    damage(file)

    if damage == Path.unlink and part == "newest entry":
        assert _rows(log) == [0, 1]  # the owner's record of the version tells
        return
    named = log.entry(0).name if part == "checkpoint" and damage == Path.unlink else file.name
    with pytest.raises(CorruptFileError, match=rf"the table can't be read: path={log.path}; make it anew .*{named}"):
        _rows(log)


def test_log_when_something_else_than_files_lies_in_it_then_it_is_not_opened(log: DeltaLog) -> None:
    """A library that opens a FIFO waits for ever."""
    os.mkfifo(log.folder / "newest")

    with pytest.raises(StorageError, match="newest"):
        _rows(log)


def test_make_durable_when_a_later_commit_was_tidied_over_it_then_nothing_is_missing(log: DeltaLog) -> None:
    """The author of the later commit has synced this version; without one the entry is lost."""
    before = log.open(2)
    log.entry(2).rename(log.entry(2).with_suffix(".gone"))
    log.entry(3).rename(log.entry(3).with_suffix(".later"))
    with pytest.raises(FileNotFoundError):
        log.make_durable(before)

    log.entry(2).with_suffix(".gone").rename(log.entry(2))
    log.entry(3).with_suffix(".later").rename(log.entry(3))
    log.open().create_checkpoint()
    log.entry(2).unlink()
    log.make_durable(before)


def test_names_of_a_table_s_files_when_modules_are_read_then_one_folder_has_them() -> None:
    """`sink/delta` alone says how a Delta table lies on the disk."""
    paths = [path for folder in ("sink", "pipeline") for path in sorted((_ROOT / folder).rglob("*.py"))]

    found = {
        str(path.parent.relative_to(_ROOT))
        for path in paths
        if any(name in path.read_text() for name in ("_delta_log", "_last_checkpoint", ".checkpoint.parquet"))
    }

    assert len(paths) > 100
    assert found == {"sink/delta"}
