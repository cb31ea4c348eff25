"""Reading control tables: what is not there is empty, what can't be used is refused with its remedy."""

from pathlib import Path

import pytest

from pipeline.control.read_tables import check_table, has_table, read_rows, table_path
from pipeline.control.schemas import CLEANER_CHECKPOINTS, CONTROL_TABLES, LEASES, RUNS
from storage_core.errors import CorruptFileError, UnsupportedFormatError
from tests.control_tables import put_rows, set_version
from tests.maintained_logs import checkpoint


def test_tables_when_there_are_none_then_no_rows(memory_path: Path) -> None:
    """A store that nobody maintained, and one whose first run was killed while it made a table."""
    (table_path(memory_path, RUNS) / "_delta_log").mkdir(parents=True)

    for table in CONTROL_TABLES:
        check_table(memory_path, table)
        assert read_rows(memory_path, table) == []
        assert not has_table(memory_path, table)


def test_tables_when_rows_were_put_then_they_are_read_back(memory_path: Path) -> None:
    """All columns, nulls included; a filter leaves out the rest."""
    rows = [checkpoint("t", number, first_dirty_offset=number).as_dict() for number in range(3)]
    put_rows(memory_path, CLEANER_CHECKPOINTS, rows)

    found = read_rows(memory_path, CLEANER_CHECKPOINTS)
    assert sorted(found, key=lambda row: int(row["partition"])) == rows
    assert read_rows(memory_path, CLEANER_CHECKPOINTS, [("first_dirty_offset", ">", 1)]) == rows[2:]


def test_tables_when_a_newer_release_wrote_one_then_it_is_named(memory_path: Path) -> None:
    """Neither read nor changed."""
    put_rows(memory_path, LEASES, [])
    set_version(memory_path, LEASES, 2)

    with pytest.raises(UnsupportedFormatError, match=r"sparklog.schema.version=2.*control/leases.*--rebuild-control"):
        read_rows(memory_path, LEASES)


@pytest.mark.parametrize("damage", ["entry", "entry-gone", "file-gone", "file", "properties"])
def test_tables_when_damaged_then_the_remedy_is_named(memory_path: Path, damage: str) -> None:
    """Whichever part is damaged: one error, with the table's path and what makes it anew."""
    path = table_path(memory_path, CLEANER_CHECKPOINTS)
    for number in range(2):
        put_rows(memory_path, CLEANER_CHECKPOINTS, [checkpoint("t", number).as_dict()])
    entry = path / "_delta_log" / f"{0:020}.json"
    (data, *_) = path.glob("*.parquet")
    if damage == "entry":
        entry.write_bytes(entry.read_bytes()[:100])
    elif damage == "entry-gone":
        entry.unlink()
    elif damage == "file-gone":
        data.unlink()
    elif damage == "file":
        data.write_bytes(b"x" * 100)
    else:
        entry.write_text(entry.read_text().replace("sparklog.schema.version", "sparklog.schema.versiom"))

    with pytest.raises(CorruptFileError, match=r"control/cleaner_checkpoints; maintain --rebuild-control"):
        read_rows(memory_path, CLEANER_CHECKPOINTS)
