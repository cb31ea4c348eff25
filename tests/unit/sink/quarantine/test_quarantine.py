"""Diverted rows: there once, whole, and only for micro-batches that count."""

import errno
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.sink.quarantine.claims import store_part
from sparklog.sink.quarantine.diverted_rows import MERGED_COUNT, DivertedRows, list_diverted, plan_merge
from sparklog.sink.stage.report import StageReport
from sparklog.sink.stage.stage_rows import StagePlan
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import StorageError
from sparklog.storage_core.storage.owned_names import Owner, rename
from tests.build.sink_store import contents, in_process, open_events, rows, stored_numbers

_GOOD, _BAD = rows(value=["1"], timestamp=[5]), rows(value=["2", "3"], timestamp=[-9, None])


def _diverted(folder: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.rglob("*.parquet"), key=_place) for row in pq.read_table(path).to_pylist()]


def _place(path: Path) -> tuple[int, str]:
    return int(path.parent.name.partition("-")[0]), path.name


def _below(store: Path, folder: Path | None = None) -> Path:
    return store_part(folder or store / "quarantine", Store.find(store))


def test_append_when_a_crash_left_rows_then_they_are_replaced(memory_path: Path) -> None:
    """The folder of a micro-batch holds what its last run diverted; what was on its way goes with the next opening."""
    open_events(memory_path, on_invalid="quarantine").close()
    query = _below(memory_path) / "query-query"
    for name in ("3", "_building-0.0badcafe", "_gone-2-1.0badcafe"):
        (query / name).mkdir(parents=True)
        (query / name / "part-00007.parquet").write_bytes(b"old")

    with closing(open_events(memory_path, on_invalid="quarantine")) as writer:
        writer.append("query", 3, in_process(_BAD))

    assert list(contents(query)) == ["3/part-00000.parquet"]
    assert [row["batch_id"] for row in _diverted(query)] == [3, 3]


def test_append_when_another_writer_swept_its_files_then_fails_and_leaves_what_is_there(memory_path: Path) -> None:
    """A writer that wakes behind the check of its lock finds nothing to move: the new owner's rows stay."""
    with closing(open_events(memory_path, on_invalid="quarantine")) as writer:
        target = _below(memory_path) / "query-query" / "3"
        target.mkdir(parents=True)
        (target / "part-00000.parquet").write_bytes(b"the new owner's")

        def swept(plan: StagePlan) -> list[StageReport]:
            reports = in_process(_BAD)(plan)
            assert reports[0].quarantine is not None
            (Path(plan.directory) / reports[0].quarantine).unlink()
            return reports

        with pytest.raises(StorageError, match=r"\.parquet"):
            writer.append("query", 3, swept)

        assert contents(target.parent) == {"3/part-00000.parquet": b"the new owner's"}


def test_append_when_two_stores_share_a_folder_then_neither_touches_the_others_rows(memory_path: Path) -> None:
    """The same query, the same micro-batch: each store has its own part of the folder."""
    shared = memory_path / "bad"
    for name in ("one", "two"):
        with closing(open_events(memory_path / name, on_invalid="quarantine", quarantine=shared)) as writer:
            writer.append("query", 0, in_process(_BAD))
    with closing(open_events(memory_path / "two", on_invalid="quarantine", quarantine=shared)) as writer:
        writer.append("query", 1, in_process(_GOOD))

    assert len(_diverted(_below(memory_path / "one", shared))) == 2
    assert len(_diverted(_below(memory_path / "two", shared))) == 2


def test_append_when_ids_begin_with_an_underscore_then_readers_see_the_rows(memory_path: Path) -> None:
    """Such folders are hidden from Spark and pyarrow; one store's id in 64 begins so."""
    with closing(open_events(memory_path, on_invalid="quarantine")) as writer:
        writer.append("_query", 0, in_process(_BAD))

    assert ds.dataset(memory_path / "quarantine", format="parquet").count_rows() == 2
    assert not _below(memory_path).name.startswith("_")


def test_append_when_rows_of_an_earlier_release_are_there_then_they_stay(memory_path: Path) -> None:
    """Without a store's id nobody knows whose they are."""
    earlier = memory_path / "bad" / "query" / "0" / "part-00000.parquet"
    earlier.parent.mkdir(parents=True)
    earlier.write_bytes(b"somebody's")
    with closing(open_events(memory_path / "s", on_invalid="quarantine", quarantine=memory_path / "bad")) as writer:
        writer.append("query", 0, in_process(_GOOD))

    assert earlier.read_bytes() == b"somebody's"


def test_append_when_many_micro_batches_divert_rows_then_their_files_become_few(memory_path: Path) -> None:
    """Each row stays there once, with the number of its micro-batch; other queries' files stay apart."""
    count = 5 * MERGED_COUNT + 3
    with closing(open_events(memory_path, on_invalid="quarantine")) as writer:
        for number in range(count):
            writer.append("query", number, in_process(_BAD))
        writer.append("other", 0, in_process(_BAD))
    found = _diverted(_below(memory_path) / "query-query")

    assert len(list_diverted(_below(memory_path) / "query-query")) < 8
    assert [row["batch_id"] for row in found] == [number for number in range(count) for _ in range(2)]
    assert [each.path.name for each in list_diverted(_below(memory_path) / "query-other")] == ["0"]
    assert not list(memory_path.rglob("_*-*"))


def test_append_when_a_merger_could_not_be_shown_then_the_next_micro_batch_shows_it(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are not hidden until the sink is opened again."""

    def refuse(owner: Owner, source: Path, target: Path) -> None:
        if source.name.startswith("_merged-"):
            raise OSError(5, "Input/output error")
        rename(owner, source, target)

    with closing(open_events(memory_path, on_invalid="quarantine")) as writer:
        with monkeypatch.context() as patch:
            patch.setattr("sparklog.sink.quarantine.diverted_rows.rename", refuse)
            for number in range(MERGED_COUNT):
                writer.append("query", number, in_process(_BAD))
        assert [each.path.name for each in list_diverted(_below(memory_path) / "query-query")] == []
        writer.append("query", MERGED_COUNT, in_process(_BAD))
    found = list_diverted(_below(memory_path) / "query-query")

    assert [each.path.name for each in found] == [f"0-{MERGED_COUNT - 1}", str(MERGED_COUNT)]


def test_append_when_a_file_is_damaged_then_nothing_is_merged_and_nothing_fails(memory_path: Path) -> None:
    """Micro-batches are committed all the same; every other row stays."""
    with closing(open_events(memory_path, on_invalid="quarantine")) as writer:
        for number in range(MERGED_COUNT + 2):
            writer.append("query", number, in_process(_BAD))
            if number == 3:
                (_below(memory_path) / "query-query" / "3" / "part-00000.parquet").write_bytes(b"damaged")
    query = _below(memory_path) / "query-query"

    assert len(list_diverted(query)) == MERGED_COUNT + 2
    assert not [path for path in query.iterdir() if path.name.startswith("_")]


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=80), st.integers(0, 90))
def test_plan_merge_takes_neighbours_that_are_committed(made: list[tuple[int, bool]], committed: int) -> None:
    """The latest ones, with no gap between them, and never one of a micro-batch that may come again."""
    found, first = [], 0
    for width, is_merged in made:
        last = first + (width if is_merged else 0)
        name = f"{first}-{last}" if is_merged else str(first)
        found.append(DivertedRows(first, last, Path(name)))
        first = last + 1
    ours = [each for each in found if each.last <= committed]
    chosen = plan_merge(found, committed)

    assert chosen == ours[len(ours) - len(chosen) :]
    assert not chosen or sum(not each.is_merged for each in chosen) >= MERGED_COUNT


def test_opening_when_the_disk_of_quarantined_rows_fails_then_goes_on_and_finishes_later(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink that diverts nothing just now needs nothing of it."""
    with closing(open_events(memory_path, on_invalid="quarantine")) as writer:
        writer.append("query", 0, in_process(_BAD))
    left = _below(memory_path) / "query-query" / "_building-0.0badcafe"
    left.mkdir()
    is_dir = Path.is_dir

    def failing(path: Path, **options: bool) -> bool:
        if path.is_relative_to(_below(memory_path)):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return is_dir(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "is_dir", failing)
        writer = open_events(memory_path, on_invalid="quarantine")
    with closing(writer):
        writer.append("query", 1, in_process(_GOOD))
        assert left.exists()
        writer.append("query", 2, in_process(_BAD))

    assert not left.exists()
    assert stored_numbers(memory_path) == [1]


def test_append_when_rows_are_diverted_in_several_splits_then_each_has_its_file(memory_path: Path) -> None:
    """A row's number counts inside its split."""
    with closing(open_events(memory_path, on_invalid="quarantine")) as writer:
        metrics = writer.append("query", 4, in_process(_BAD, _GOOD, [_GOOD, _BAD]))

    assert (metrics.records, metrics.quarantined) == (2, 4)
    assert sorted(contents(_below(memory_path))) == [
        "_store.properties",
        "query-query/4/part-00000.parquet",
        "query-query/4/part-00001.parquet",
    ]
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

    folder = _below(memory_path / "store", memory_path / "bad")
    assert len(_diverted(folder / "query-query-a" / "0")) == 2
    assert len(_diverted(folder / "query-query-b" / "0")) == 4
    assert not (memory_path / "store" / "quarantine").exists()


def test_append_when_the_first_run_fails_then_the_second_ones_rows_count(memory_path: Path) -> None:
    """Rows of a run that came to nothing are not left beside those of the one that counts."""

    def lose(plan: StagePlan) -> list[StageReport]:
        reports = in_process(_GOOD, _BAD)(plan)
        assert reports[0].file is not None
        (Path(plan.directory) / reports[0].file).unlink()
        return reports

    with closing(open_events(memory_path, on_invalid="quarantine")) as writer:
        with pytest.raises(StorageError, match="No such file"):
            writer.append("query", 0, lose)
        writer.append("query", 0, in_process([_GOOD, _BAD]))

    assert len(_diverted(memory_path / "quarantine")) == 2
    assert stored_numbers(memory_path) == [1]
