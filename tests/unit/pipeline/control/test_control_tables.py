"""Reading control tables: what is not there is empty, what can't be used is refused with its remedy."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparklog.pipeline.control.read_tables import check_table, has_table, read_columns, read_rows, table_path
from sparklog.pipeline.control.rebuild import tables_to_replace
from sparklog.pipeline.control.schemas import CLEANER_CHECKPOINTS, CONTROL_TABLES, LEASES, RUNS, ControlTable
from sparklog.storage_core.errors import CorruptFileError, UnsupportedFormatError
from tests.build.control_tables import flip_bit, put_rows, set_version, write_side_sums
from tests.build.maintained_logs import NOW_MS, checkpoint


def _row(table: ControlTable) -> dict[str, object]:
    """Return some row of a table."""
    values: dict[object, object] = {"string": "x", "int32": 1, "int64": NOW_MS}
    return {each.name: values[str(each.type)] for each in table.schema}


def _flip(file: Path) -> None:
    flip_bit(file, file.stat().st_size // 3)


def _tear(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:100])


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


@pytest.mark.parametrize("kind", ["data", "entry"])
@pytest.mark.parametrize("damage", [_flip, _tear, Path.unlink])
@pytest.mark.parametrize("table", CONTROL_TABLES, ids=lambda table: table.name)
def test_tables_when_damaged_then_the_remedy_is_named_and_a_rebuild_replaces_it(
    memory_path: Path, table: ControlTable, damage: Callable[[Path], None], kind: str
) -> None:
    """Whichever part of which table is damaged, and how: one error, with table, file and what makes it anew."""
    put_rows(memory_path, table, [_row(table)])
    put_rows(memory_path, table, [{**_row(table), "partition": 2}])
    write_side_sums(memory_path, table)
    path = table_path(memory_path, table)
    (*_, file) = sorted(path.glob("*.parquet")) if kind == "data" else sorted((path / "_delta_log").glob("*1.json"))
    damage(file)

    expected = rf"control/{table.name}; maintain --rebuild-control rebuilds it from the logs \(.*{file.name[:20]}"
    for refused in (read_rows, check_table):
        with pytest.raises(CorruptFileError, match=expected):
            refused(memory_path, table)
    assert file.name[:20] in tables_to_replace(memory_path)[table.name]


def test_tables_when_their_properties_or_columns_are_others_then_refused(memory_path: Path) -> None:
    """Neither is what this release wrote."""
    put_rows(memory_path, RUNS, [])
    entry = table_path(memory_path, RUNS) / "_delta_log" / f"{0:020}.json"
    text = entry.read_text()
    for name in ("sparklog.schema.version", "started_ms"):
        entry.write_text(text.replace(name, f"{name[:-1]}x"))
        with pytest.raises(CorruptFileError, match=r"control/runs; maintain --rebuild-control"):
            read_rows(memory_path, RUNS)


def test_tables_when_their_rows_are_not_what_the_files_say_then_refused(memory_path: Path) -> None:
    """Files are read by themselves: rows that Delta has deleted beside them would come back."""
    put_rows(memory_path, RUNS, [_row(RUNS)])
    entry = table_path(memory_path, RUNS) / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in entry.read_text().splitlines()]
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    kept = [line for line in lines if "protocol" not in line]
    entry.write_text("\n".join(json.dumps(line) for line in [protocol, *kept]))

    with pytest.raises(CorruptFileError, match=r"control/runs; maintain --rebuild-control"):
        read_rows(memory_path, RUNS)


def test_tables_when_columns_and_a_filter_are_given_then_others_are_not_read(memory_path: Path) -> None:
    """A column to filter by need not be asked for; the order is the one that was asked for."""
    put_rows(memory_path, RUNS, [{**_row(RUNS), "partition": number} for number in range(3)])

    found = read_columns(memory_path, RUNS, ["started_ms", "topic"], [("partition", ">", 0)])
    assert (found.column_names, found.num_rows) == (["started_ms", "topic"], 2)


def test_tables_when_an_old_file_has_other_columns_then_refused(memory_path: Path) -> None:
    """A file that the filter of a reader passes over is looked at before a run, too."""
    put_rows(memory_path, RUNS, [_row(RUNS)])
    (file,) = table_path(memory_path, RUNS).glob("*.parquet")
    pq.write_table(pa.table({"colour": [1]}), file)

    with pytest.raises(CorruptFileError, match=r"control/runs; maintain --rebuild-control"):
        check_table(memory_path, RUNS)
