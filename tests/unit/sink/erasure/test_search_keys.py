"""A search for keys beside somebody who removes segments."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.sink.erasure.search_keys import search_log
from sparklog.sink.erasure.searched_folder import SearchedFolder
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.cleaner.keys.offset_map import KeySet
from tests.build.compacted_store import LOG, write_keyed
from tests.build.retained_store import state_of


class _OvertakenKeys(KeySet):
    """Keys; while the first records are compared with them, all segments but the last two go."""

    directory: Path

    def contains(self, digests: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Return whether each key is one of them."""
        for log in sorted(self.directory.glob("*.log"))[:-2]:
            for path in self.directory.glob(f"{log.stem}.*"):
                path.unlink()
        return super().contains(digests)


def test_search_when_retention_overtakes_it_then_it_finds_what_is_left(tmp_path: Path) -> None:
    """What is gone is gone; that is no log that can't be searched."""
    store = write_keyed(tmp_path / "store")
    keys = _OvertakenKeys(pa.array([b"k3"], pa.binary()), bytes(16))
    keys.directory = store / "logs" / str(LOG)

    (found,) = search_log(SearchedFolder(Store.find(store)), state_of(store, LOG), [(keys, 200)])

    assert [each.failure for each in found] == [None, None]
    assert [each.base_offset for each in found] == sorted(int(path.stem) for path in keys.directory.glob("*.log"))
