"""Group offsets by micro-batch, in a Delta table of its own."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.sink.delta.entries import ACTION_COUNT
from sparklog.sink.ledger.group_table import GroupRow, GroupTable
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import LedgerDamagedError
from sparklog.storage_core.kraft.group_offsets import GroupOffset
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.sink_store import open_events


class _Watching:
    """An owner that notes which data files come while it is held."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.come: set[Path] = set()

    def check(self) -> None:
        """Do nothing."""

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Note."""
        before = set(self._folder.glob("*.parquet"))
        yield
        self.come |= set(self._folder.glob("*.parquet")) - before


def _offsets(*numbers: int) -> list[GroupRow]:
    return [
        GroupRow(GroupOffset(group=f"g{each}", topic="t", partition=each, offset=each, metadata="m"), "id", 3)
        for each in numbers
    ]


@pytest.fixture
def store(memory_path: Path) -> Store:
    """A store that is closed."""
    open_events(memory_path / "store").close()
    return Store.find(memory_path / "store")


def test_group_table_when_a_micro_batch_is_written_again_then_its_rows_alone_are_replaced(store: Store) -> None:
    """Each micro-batch of each query has its own rows."""
    table = GroupTable(store.root)
    table.write(("a", 0), 0, _offsets(1, 2), UNSHARED)
    table.write(("b", 0), 0, _offsets(3), UNSHARED)
    table.write(("a", 1), 0, _offsets(4), UNSHARED)

    table.write(("a", 1), 0, _offsets(5, 6), UNSHARED)

    found = GroupTable(store.root)
    assert [found.read(("a", 0)), found.read(("a", 1)), found.read(("b", 0))] == [
        _offsets(1, 2),
        _offsets(5, 6),
        _offsets(3),
    ]
    table.write(("a", 1), 0, [], UNSHARED)
    assert found.read(("a", 1)) == []
    assert found.read(("a", 0)) == _offsets(1, 2)


def test_group_table_when_many_micro_batches_follow_then_only_the_last_ones_and_those_of_cuts_are_kept(
    store: Store,
) -> None:
    """The table and its log stay small, also over a checkpoint of the table."""
    table = GroupTable(store.root)
    for number in range(110):
        table.write(("a", number), 0, _offsets(number), UNSHARED, kept={("a", 3), ("a", 33)})

    assert table.read(("a", 101)) is None
    assert [table.read(("a", number)) for number in (3, 33)] == [_offsets(3), _offsets(33)]
    assert [table.read(("a", number)) for number in range(102, 110)] == [_offsets(number) for number in range(102, 110)]
    assert len([*(store.root / "control" / "group_offsets" / "_delta_log").glob("*.json")]) < 60


def test_group_table_when_old_rows_go_then_in_the_commit_of_the_new_ones(store: Store) -> None:
    """A micro-batch costs one commit of this table."""
    table = GroupTable(store.root)
    for number in range(20):
        table.write(("a", number), 0, _offsets(number), UNSHARED)

    entries = [each.name for each in (store.root / "control" / "group_offsets" / "_delta_log").glob("*.json")]
    assert max(entries) == f"{20:020}.json"
    assert [table.read(("a", number)) for number in (11, 12)] == [None, _offsets(12)]


@pytest.fixture
def ahead(store: Store) -> GroupTable:
    """The table of two queries; the ledger was restored alone, at micro-batch 4 of the second one."""
    table = GroupTable(store.root)
    table.write(("b", 0), 0, _offsets(99), UNSHARED)
    for number in range(20):
        table.write(("a", number), 0, _offsets(number), UNSHARED, kept=None)
    return table


def test_group_table_when_the_ledger_is_behind_and_a_micro_batch_is_retried_then_its_whole_commit_stays(
    store: Store, ahead: GroupTable
) -> None:
    """No whole entry counts as torn: each file that it removes is counted once."""
    for offset in (50, 51):
        ahead.write(("a", 5), 0, _offsets(offset), UNSHARED)
        entry = max((store.root / "control" / "group_offsets" / "_delta_log").glob("*.json"))
        info, *actions = [json.loads(line) for line in entry.read_text().splitlines()]
        assert int(info["commitInfo"][ACTION_COUNT]) == len(actions)

    ahead.drop_torn(UNSHARED)

    assert GroupTable(store.root).read(("a", 5)) == _offsets(51)


def test_group_table_when_the_ledger_is_behind_then_the_last_micro_batches_stay_and_those_above_go(
    ahead: GroupTable,
) -> None:
    """A reader beside the mirror has the 8 micro-batches up to the one that is written; no ledger has those above."""
    for number in (5, 6, 7):
        ahead.write(("a", number), 0, _offsets(number + 50), UNSHARED, kept={("a", 15)})

    assert [ahead.read(("a", number)) for number in (0, *range(8, 15), *range(16, 20))] == [_offsets(0), *[None] * 11]
    assert [ahead.read(("a", number)) for number in (4, 5, 6, 7, 15)] == [
        _offsets(each) for each in (4, 55, 56, 57, 15)
    ]
    assert ahead.read(("b", 0)) == _offsets(99)


def test_group_table_when_rows_are_written_then_a_taking_by_force_waits_for_the_log_entry_alone(store: Store) -> None:
    """Many rows take a second to write."""
    owner = _Watching(store.root / "control" / "group_offsets")

    GroupTable(store.root).write(("a", 0), 0, _offsets(1), owner)

    assert owner.come == set()


@pytest.mark.parametrize("kept", [0, 100])
def test_group_table_when_a_power_cut_tore_its_newest_entry_then_the_next_opening_drops_it(
    store: Store, kept: int
) -> None:
    """The ledger has no micro-batch of it; a table whose first entry is torn begins anew."""
    table = GroupTable(store.root)
    table.write(("a", 0), 0, _offsets(1), UNSHARED)
    table.write(("a", 1), 0, _offsets(2), UNSHARED)
    entry = max((store.root / "control" / "group_offsets" / "_delta_log").glob("*.json"))
    entry.write_bytes(entry.read_bytes()[:kept])

    table.drop_torn(UNSHARED)

    assert GroupTable(store.root).read(("a", 0)) == _offsets(1)
    assert GroupTable(store.root).read(("a", 1)) is None


def test_group_table_when_a_byte_of_its_rows_changes_then_refused_or_read_as_written(store: Store) -> None:
    """A group never gets an offset that nobody has committed."""
    table, rows = GroupTable(store.root), _offsets(*range(100, 140))
    table.write(("a", 0), 0, rows, UNSHARED)
    (file,) = (store.root / "control" / "group_offsets").glob("*.parquet")
    data, refused = file.read_bytes(), 0
    for position in range(0, len(data), 3):
        changed = bytearray(data)
        changed[position] ^= 0x10
        file.write_bytes(changed)
        try:
            assert table.read(("a", 0)) == rows, position
        except LedgerDamagedError:
            refused += 1

    assert refused > 100


def test_group_table_when_two_queries_have_rows_then_the_one_that_came_last_in_the_ledger_counts(store: Store) -> None:
    """Whatever their names are; rows that are gone come first, as theirs may be newer."""
    table = GroupTable(store.root)
    table.write(("a", 4), 10, _offsets(1), UNSHARED)
    table.write(("b", 0), 11, [], UNSHARED)
    table.write(("b", 1), 14, _offsets(2), UNSHARED)

    assert table.newest({"a": 4}.get) == ("a", 4)
    assert table.newest({"a": 4, "b": 0}.get) == ("b", 0)
    assert table.newest({"a": 5, "b": 1}.get) == ("a", 5)
    assert table.newest({"c": 1}.get) is None
    table.write(("a", 5), 15, _offsets(3), UNSHARED)
    assert table.newest({"a": 5, "b": 1}.get) == ("a", 5)
