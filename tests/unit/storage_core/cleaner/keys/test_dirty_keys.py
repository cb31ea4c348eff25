"""Keys of a segment as somebody else's map takes them: they say what `build_map` says."""

from pathlib import Path

import numpy as np

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.cleaner.keys.build_map import DirtyRange, build_map
from sparklog.storage_core.cleaner.keys.dirty_keys import iter_dirty_keys
from sparklog.storage_core.cleaner.keys.offset_map import OffsetMap
from sparklog.storage_core.cleaner.survey.listed_segments import list_cleanable_segments
from tests.build.compacted_store import LOG, write_keyed

_HASH_KEY = bytes(range(16))


def test_iter_dirty_keys_when_put_into_a_map_then_it_is_the_one_that_build_map_makes(tmp_path: Path) -> None:
    """Every record is told, dirty ones with their offsets: the largest of each digest is the latest record."""
    store = Store.find(write_keyed(tmp_path / "store"))
    state = Ledger.open(store.ledger_path).states()[LOG]
    directory = store.log_path(state)
    closed = list_cleanable_segments(directory, state.committed_end, 0)[:-1]
    first_dirty, end = closed[2].base_offset, closed[-1].next_offset
    files = [each.files(directory) for each in closed]
    expected = OffsetMap(1 << 16, _HASH_KEY)
    build_map(DirtyRange(segments=files, first_dirty_offset=first_dirty, first_uncleanable_offset=end), expected, _pass)

    found, seen = OffsetMap(1 << 16, _HASH_KEY), 0
    for each in closed:
        one = DirtyRange(
            segments=[each.files(directory)],
            first_dirty_offset=first_dirty,
            first_uncleanable_offset=each.next_offset,
        )
        for digests, offsets, dirty in iter_dirty_keys(one, _HASH_KEY, _pass):
            seen += len(offsets)
            assert (dirty[dirty >= 0] == offsets[dirty >= 0]).all()
            found.put(np.ascontiguousarray(digests[dirty >= 0]), dirty[dirty >= 0])

    keys, latest = expected.columns()
    assert len(found) == len(keys) == 7
    assert (found.get(keys) == latest).all()
    assert seen == end


def _pass() -> None:
    """Nobody takes the log."""
