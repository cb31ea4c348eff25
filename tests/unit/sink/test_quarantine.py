"""Diverted rows: there once, whole, and only for micro-batches that count."""

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sink.quarantine import publish_quarantine
from sink.stage import StagePlan
from sink.stage_reports import StageReport
from storage_core.errors import StorageError
from storage_core.storage.owned_names import UNSHARED
from tests.sink_store import contents, in_process, open_events, rows, stored_numbers

_GOOD, _BAD = rows(value=["1"], timestamp=[5]), rows(value=["2", "3"], timestamp=[-9, None])


def _diverted(folder: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.rglob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def test_publish_quarantine_moves_files_and_replaces_what_a_crash_left(tmp_path: Path) -> None:
    """The folder of a micro-batch holds what its last run diverted, and a half-made one is no obstacle."""
    target = tmp_path / "quarantine" / "query" / "3"
    for folder in (target, target.with_name("3.deadbeef")):
        folder.mkdir(parents=True)
        (folder / "part-00007.parquet").write_bytes(b"old")
    files = [tmp_path / "a", tmp_path / "b"]
    for path in files:
        path.write_bytes(path.name.encode())

    publish_quarantine(files, target, UNSHARED, "0badcafe")

    assert contents(tmp_path) == {
        "quarantine/query/3/part-00000.parquet": b"a",
        "quarantine/query/3/part-00001.parquet": b"b",
    }


def test_publish_quarantine_when_another_writer_swept_its_files_then_fails_and_leaves_what_is_there(
    tmp_path: Path,
) -> None:
    """A writer that wakes behind the check of its lock finds nothing to move: the new owner's rows stay."""
    target = tmp_path / "quarantine" / "query" / "3"
    target.mkdir(parents=True)
    (target / "part-00000.parquet").write_bytes(b"the new owner's")

    with pytest.raises(StorageError, match=r"a\.parquet"):
        publish_quarantine([tmp_path / "a.parquet"], target, UNSHARED, "0badcafe")

    assert contents(tmp_path) == {"quarantine/query/3/part-00000.parquet": b"the new owner's"}
    assert os.listdir(target.parent) == ["3"]


def test_append_when_rows_are_diverted_in_several_splits_then_each_has_its_file(memory_path: Path) -> None:
    """A row's number counts inside its split."""
    with closing(open_events(memory_path, on_invalid="quarantine")) as writer:
        metrics = writer.append("query", 4, in_process(_BAD, _GOOD, [_GOOD, _BAD]))

    assert (metrics.records, metrics.quarantined) == (2, 4)
    assert sorted(contents(memory_path / "quarantine")) == ["query/4/part-00000.parquet", "query/4/part-00001.parquet"]
    assert [(row["row"], row["reason"]) for row in _diverted(memory_path / "quarantine")] == [
        (0, "timestamp is out of range"),
        (1, "timestamp is null or could not be parsed"),
        (1, "timestamp is out of range"),
        (2, "timestamp is null or could not be parsed"),
    ]


def test_append_when_a_micro_batch_is_replayed_then_diverts_nothing_again(memory_path: Path) -> None:
    """Neither by the same sink nor by the next one."""
    with closing(open_events(memory_path, on_invalid="quarantine")) as writer:
        writer.append("query", 0, in_process(_BAD))
        before = contents(memory_path / "quarantine")
        assert writer.append("query", 0, in_process(_BAD, _BAD)).replayed
    with closing(open_events(memory_path, on_invalid="quarantine")) as writer:
        assert writer.append("query", 0, in_process(_BAD, _BAD)).replayed

    assert contents(memory_path / "quarantine") == before


def test_append_when_queries_number_alike_then_their_rows_do_not_mix(memory_path: Path) -> None:
    """The folder is named after both."""
    with closing(open_events(memory_path / "store", on_invalid="quarantine", quarantine=memory_path / "bad")) as writer:
        writer.append("query-a", 0, in_process(_BAD))
        writer.append("query-b", 0, in_process([_BAD, _BAD]))

    assert len(_diverted(memory_path / "bad" / "query-a" / "0")) == 2
    assert len(_diverted(memory_path / "bad" / "query-b" / "0")) == 4
    assert not (memory_path / "store" / "quarantine").exists()


def test_append_when_the_first_run_fails_then_the_second_ones_rows_count(memory_path: Path) -> None:
    """Rows of a run that came to nothing are not left beside those of the one that counts."""

    def lose(plan: StagePlan) -> list[StageReport]:
        reports = in_process(_GOOD, _BAD)(plan)
        (Path(plan.directory) / reports[0]["file"]).unlink()
        return reports

    with closing(open_events(memory_path, on_invalid="quarantine")) as writer:
        with pytest.raises(StorageError, match="No such file"):
            writer.append("query", 0, lose)
        writer.append("query", 0, in_process([_GOOD, _BAD]))

    assert len(_diverted(memory_path / "quarantine")) == 2
    assert stored_numbers(memory_path) == [1]
