"""Two copies of a store and one quarantine folder: the copy that has it keeps every row, the other one is refused."""

import shutil
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sparklog.sink.opening.adopt_roots import adopt_roots, plan_adoption
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.errors import InvalidConfigError, StoreLockedError
from tests.build.sink_store import contents, in_process, open_events, rows


class _Copies:
    """A store that has diverted a row to a folder elsewhere, and a copy of it with its logs."""

    def __init__(self, folder: Path) -> None:
        self.store, self.copy, self.quarantine = folder / "a", folder / "b", folder / "bad"
        self.divert(self.store, 0, "a0")
        shutil.copytree(self.store, self.copy)

    def open(self, store: Path) -> StoreWriter:
        return open_events(store, on_invalid="quarantine", quarantine=self.quarantine)

    def divert(self, store: Path, batch: int, *values: str) -> None:
        with closing(self.open(store)) as sink:
            _divert(sink, batch, *values)

    @property
    def values(self) -> list[str]:
        files = sorted(self.quarantine.rglob("*.parquet"))
        return [row["value"].decode() for path in files for row in pq.read_table(path).to_pylist()]

    def refusal(self, refused: Path, other: Path) -> str:
        return (
            rf"quarantine folder belongs to another copy of this store: quarantine={self.quarantine}/store-\S+"
            rf" store={refused} other={other}; .*sparklog adopt {refused} --execute"
        )


def _divert(sink: StoreWriter, batch: int, *values: str) -> None:
    sink.append("q", batch, in_process(rows(value=list(values), timestamp=[-9] * len(values))))


@pytest.fixture
def copies(memory_path: Path) -> _Copies:
    return _Copies(memory_path)


def test_copy_when_it_diverts_to_the_folder_of_the_original_then_refused_and_no_row_goes(copies: _Copies) -> None:
    """Both would go on with the same micro-batches: one's rows would replace the other's."""
    copies.divert(copies.store, 1, "a1", "a1b")

    with pytest.raises(InvalidConfigError, match=copies.refusal(copies.copy, copies.store)):
        copies.divert(copies.copy, 1, "b1")

    copies.divert(copies.store, 2, "a2")
    assert copies.values == ["a0", "a1", "a1b", "a2"]


def test_copy_when_the_sink_of_the_original_runs_then_its_files_on_the_way_stay(copies: _Copies) -> None:
    """An opening removes what a crash left half way, of its own store."""
    with closing(copies.open(copies.store)):
        (query,) = copies.quarantine.glob("store-*/query-q")
        (query / "_building-9.deadbeef").mkdir()
        before = contents(copies.quarantine)
        with pytest.raises(InvalidConfigError, match=copies.refusal(copies.copy, copies.store)):
            copies.open(copies.copy)

        assert contents(copies.quarantine) == before
        assert (query / "_building-9.deadbeef").exists()


def test_copy_when_both_are_open_before_the_first_row_then_the_second_to_divert_is_refused(memory_path: Path) -> None:
    """Its micro-batch fails as a whole."""
    store, copy = memory_path / "a", memory_path / "b"
    options = {"on_invalid": "quarantine", "quarantine": memory_path / "bad"}
    open_events(store, **options).close()
    shutil.copytree(store, copy)
    with closing(open_events(store, **options)) as one, closing(open_events(copy, **options)) as other:
        _divert(one, 0, "a0")
        with pytest.raises(InvalidConfigError, match="quarantine folder belongs to another copy"):
            _divert(other, 0, "b0")

    (file,) = (memory_path / "bad").rglob("*.parquet")
    assert pq.read_table(file).column("value").to_pylist() == [b"a0"]
    assert [each.kind for each in plan_adoption(copy)] == ["quarantine"]


def test_copy_when_it_adopts_the_folder_then_diverts_and_the_original_is_refused(copies: _Copies) -> None:
    """A plan changes nothing."""
    before = contents(copies.quarantine)
    planned = plan_adoption(copies.copy)
    assert contents(copies.quarantine) == before
    assert [(each.kind, each.path.parent, each.other) for each in planned] == [
        ("quarantine", copies.quarantine, copies.store)
    ]

    assert adopt_roots(copies.copy) == planned
    copies.divert(copies.copy, 1, "b1")

    assert copies.values == ["a0", "b1"]
    with pytest.raises(InvalidConfigError, match=copies.refusal(copies.store, copies.copy)):
        copies.open(copies.store)


def test_adoption_of_the_folder_when_a_sink_of_the_original_runs_then_refused(copies: _Copies) -> None:
    """The folder has no lock of its own; the original's store has one."""
    with closing(copies.open(copies.store)) as sink:
        with pytest.raises(StoreLockedError, match=f"the other copy is open: store={copies.store};"):
            adopt_roots(copies.copy)
        _divert(sink, 1, "a1")

    assert copies.values == ["a0", "a1"]


def test_store_when_it_was_moved_then_diverts_to_its_folder(copies: _Copies) -> None:
    """What is not there any more claims nothing."""
    shutil.rmtree(copies.copy)
    copies.store.rename(copies.copy)
    copies.divert(copies.copy, 1, "a1")
    assert copies.values == ["a0", "a1"]


def test_copy_when_the_folder_lies_in_the_store_then_each_has_its_own(memory_path: Path) -> None:
    """It was copied along with the name of the original in it."""
    store, copy = memory_path / "a", memory_path / "b"
    with closing(open_events(store, on_invalid="quarantine")) as sink:
        _divert(sink, 0, "a0")
    shutil.copytree(store, copy)
    for each in (store, copy, store):
        open_events(each, on_invalid="quarantine").close()
    with closing(open_events(copy, on_invalid="quarantine")) as sink:
        _divert(sink, 1, "b1")

    assert len([*(store / "quarantine").rglob("*.parquet")]) == 1
    assert len([*(copy / "quarantine").rglob("*.parquet")]) == 2
