"""Invalid rows as Parquet files: each once, durable before its micro-batch is committed.

```
<quarantine>/store-<id>/_store.properties                              names the store, see `claims.py`
<quarantine>/store-<id>/query-<id>/<micro-batch>/part-00000.parquet    as a micro-batch diverted them
<quarantine>/store-<id>/query-<id>/<first>-<last>/part-00000.parquet   of these micro-batches, merged
```

The store's id separates stores that share a folder: files outside are never touched. Spark, pyarrow and others skip
names that begin with `_`; so ids, which may begin so, follow a word. Unfinished files have such a name on purpose, with
the writer's token: a fenced writer that wakes up finds no file of its successor.

| name                       | is                                                                                    |
|----------------------------|---------------------------------------------------------------------------------------|
| `_building-<n>.<token>`    | not complete; removed by the next opening                                             |
| `_gone-<name>-<n>.<token>` | replaced; removed by the next opening                                                 |
| `_merged-<first>-<last>`   | a complete merger whose micro-batches may be there, too; finished by the next opening |

Only committed micro-batches are merged, so none of them runs again. They are hidden before the merger is shown: a
crash in between hides rows until the next opening, and never shows one twice.
"""

import contextlib
import itertools
import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.sink.delta.damage import one_line
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.quarantine.claims import claim_part, store_part
from sparklog.sink.quarantine.folders import keep_quarantine_folder
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import CorruptFileError, StorageError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.storage.local import make_directory, storage_errors, sync_directory, sync_files
from sparklog.storage_core.storage.owned_names import remove_tree, remove_unique, rename

__all__ = ["MERGED_COUNT", "DivertedRows", "Quarantine", "list_diverted", "plan_merge"]

logger = logging.getLogger(__name__)

MERGED_COUNT: Final = 32
"""Micro-batches of a query for one merger."""

_LARGEST_BYTES: Final = 64 << 20
"""Of folders that are merged again."""

_BUILDING, _GONE, _MERGED = "_building-", "_gone-", "_merged-"


class DivertedRows(NamedTuple):
    """The folder of one micro-batch, or of merged ones from `first` to `last`."""

    first: int
    last: int
    path: Path

    @property
    def is_merged(self) -> bool:
        """Whether it has several micro-batches."""
        return self.path.name != str(self.first)

    @property
    def size_bytes(self) -> int:
        """Of all of its files."""
        return sum(path.stat().st_size for path in self.files)

    @property
    def files(self) -> list[Path]:
        """Its Parquet files, in order."""
        return sorted(self.path.glob("part-*.parquet"))


def list_diverted(query: Path) -> list[DivertedRows]:
    """Return the visible folders of a query, in the order of micro-batches."""
    with storage_errors(query):
        names = os.listdir(query) if query.is_dir() else []
    return sorted(DivertedRows(*numbers, query / name) for name in names if (numbers := _numbers(name)) is not None)


def plan_merge(found: list[DivertedRows], committed: int) -> list[DivertedRows]:
    """Return the neighbours to merge: the latest micro-batches if they are enough, and smaller mergers before them.

    So a row is rewritten about as often as its quarantine doubles, up to a size limit.

    Args:
        found: of a query, in their order.
        committed: the newest committed micro-batch.
    """
    ours = [each for each in found if each.last <= committed]
    latest = list(itertools.takewhile(lambda each: not each.is_merged, reversed(ours)))
    if len(latest) < MERGED_COUNT:
        return []
    total = sum(each.size_bytes for each in latest)
    for each in reversed(ours[: len(ours) - len(latest)]):
        size = each.size_bytes
        if size > total or size + total > _LARGEST_BYTES:
            break
        latest.append(each)
        total += size
    return latest[::-1]


class Quarantine:
    """Diverted rows of one store."""

    def __init__(self, folder: Path, store: Store, lock: WriterLock) -> None:
        self._folder, self._store, self._lock = folder, store, lock
        self._root = store_part(folder, store)
        self._numbers = itertools.count()
        self._waiting: dict[str, int] = {}
        self._is_kept = self._is_unfinished = False

    def holds(self, query_id: str, batch_id: int) -> bool:
        """Whether a micro-batch, committed or not, has diverted rows."""
        with storage_errors(self._root):
            return (self._query(query_id) / str(batch_id)).exists()

    def publish(self, files: list[Path], query_id: str, batch_id: int) -> None:
        """Move a micro-batch's diverted rows to their folder, durably, before the micro-batch is committed.

        After a crash here the micro-batch runs again and replaces its folder, so no row is lost or there twice. Without
        files the folder is removed: under other settings these rows became records.

        Raises:
            InvalidConfigError: another copy of the store has the folder.
            WriterFencedError: another writer owns the store.
        """
        query, name = self._query(query_id), str(batch_id)
        self._claim()
        with storage_errors(query):
            make_directory(query)  # durably: the commit will count these rows as diverted
            building, gone = self._hidden(query, _BUILDING), self._hidden(query, _GONE, name)
            try:
                if files:
                    _build(building, files)
                with contextlib.suppress(FileNotFoundError):
                    rename(self._lock, query / name, gone)
                if files:
                    rename(self._lock, building, query / name)
            except BaseException:
                # Also after a takeover, whose opening may have swept before: leave no file.
                with contextlib.suppress(OSError):
                    remove_unique(building)
                raise
            sync_directory(query)
            remove_unique(gone)
        reach("commit.quarantined")

    def merge(self, query_id: str, committed: int) -> None:
        """Merge the latest micro-batches of a query if they are enough; a failure only warns and is retried later.

        Args:
            query_id: of a query that has just committed a micro-batch with diverted rows.
            committed: that micro-batch.

        Raises:
            WriterFencedError: another writer owns the store.
        """
        query = self._query(query_id)
        try:
            if self._is_unfinished:
                self._finish()
                self._is_unfinished = False
            if query_id not in self._waiting:
                self._waiting[query_id] = sum(not each.is_merged for each in list_diverted(query))
            else:
                self._waiting[query_id] += 1
            if self._waiting[query_id] >= MERGED_COUNT:
                self._waiting[query_id] = 0  # also if it fails: not with each micro-batch again
                self._merge(query, plan_merge(list_diverted(query), committed))
        except (StorageError, CorruptFileError) as error:
            self._is_unfinished = True  # an unfinished merger hides its rows
            logger.warning("Quarantine files were not merged, later ones will be: %s", error)

    def open(self) -> None:
        """Finish mergers of a crashed writer; after a disk error the next merge retries it.

        Raises:
            InvalidConfigError: another copy of the store has the folder.
            WriterFencedError: another writer owns the store.
        """
        try:
            self._finish()
        except StorageError as error:
            self._is_unfinished = True
            logger.warning("Quarantine files can't be read, a later micro-batch retries: %s", error)

    def _finish(self) -> None:
        """Finish interrupted mergers and remove orphans; this writer holds the store.

        Raises:
            InvalidConfigError: another copy of the store has the folder.
            WriterFencedError: another writer owns the store.
        """
        with storage_errors(self._root):
            if not self._root.is_dir():
                return
            self._claim()
            for query in sorted(path for path in self._root.glob("*") if path.is_dir()):
                for name in sorted(os.listdir(query)):
                    if name.startswith(_MERGED) and _numbers(name.removeprefix(_MERGED)) is not None:
                        self._show(query, name.removeprefix(_MERGED))
                for name in os.listdir(query):
                    if name.startswith(_BUILDING):
                        remove_tree(self._lock, query / name)  # checks the lock: it may be a successor's
                    elif name.startswith(_GONE):
                        remove_unique(query / name)

    def _query(self, query_id: str) -> Path:
        return self._root / f"query-{query_id}"

    def _claim(self) -> None:
        """Record the folder's name, also of a refused one, so that it can be adopted."""
        if not self._is_kept:
            keep_quarantine_folder(self._store, self._folder, self._lock)
            self._is_kept = True
        claim_part(self._store, self._folder, self._lock)

    def _merge(self, query: Path, chosen: list[DivertedRows]) -> None:
        if not chosen:
            return
        name = f"{chosen[0].first}-{chosen[-1].last}"
        building = self._hidden(query, _BUILDING)
        with storage_errors(query):
            try:
                building.mkdir()
                _write_merged(building, chosen)
                _sync(building)
                rename(self._lock, building, query / f"{_MERGED}{name}")
                sync_directory(query)
            finally:
                remove_unique(building)
            reach("quarantine.merged")
            self._show(query, name)

    def _show(self, query: Path, name: str) -> None:
        """Hide the merged folders, show the merger, remove the hidden ones: each step is synced before the next."""
        first, last = _numbers(name) or (0, -1)
        gone = []
        for each in list_diverted(query):
            if first <= each.first and each.last <= last:
                gone.append(self._hidden(query, _GONE, each.path.name))
                rename(self._lock, each.path, gone[-1])
                reach("quarantine.hidden")
        sync_directory(query)
        rename(self._lock, query / f"{_MERGED}{name}", query / name)
        sync_directory(query)
        reach("quarantine.shown")
        for path in gone:
            remove_unique(path)
        reach("quarantine.removed")

    def _hidden(self, query: Path, prefix: str, *name: str) -> Path:
        return query / f"{prefix}{'-'.join((*name, str(next(self._numbers))))}.{self._lock.token}"


def _numbers(name: str) -> tuple[int, int] | None:
    """Return the first and the last micro-batch of a folder, None for a foreign one."""
    first, dash, last = name.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()) or not name.isascii():
        return None
    return int(first), int(last or first)


def _build(folder: Path, files: list[Path]) -> None:
    folder.mkdir()
    for number, file in enumerate(files):
        shutil.move(file, folder / f"part-{number:05}.parquet")
    _sync(folder)


def _write_merged(folder: Path, chosen: list[DivertedRows]) -> None:
    """Write a file for each run of equal columns, which may change between runs of a query.

    One row group at a time bounds the memory.
    """
    files = [path for each in chosen for path in each.files]
    try:
        runs = itertools.groupby(files, lambda path: pq.read_schema(path).remove_metadata())
        for number, (schema, paths) in enumerate(runs):
            with pq.ParquetWriter(folder / f"part-{number:05}.parquet", schema) as writer:
                for group in _row_groups(paths):
                    writer.write_table(group)
    except pa.ArrowException as error:
        raise CorruptFileError(f"a quarantine file can't be read: path={folder.parent} ({one_line(error)})") from error


def _row_groups(paths: Iterable[Path]) -> Iterator[pa.Table]:
    for path in paths:
        with pq.ParquetFile(path) as file:
            for number in range(file.num_row_groups):
                yield file.read_row_group(number)


def _sync(folder: Path) -> None:
    sync_files([folder / name for name in os.listdir(folder)])
    sync_directory(folder)
