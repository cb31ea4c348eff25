"""The quarantine in `describe`: counts diverted rows by reason. Without Spark; reads only the column of reasons.

Folders of an earlier release have no store id. They are counted only inside the store: outside they may belong to
another store.
"""

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.pipeline.places.store_view import StoreView
from sparklog.sink.delta.damage import one_line
from sparklog.sink.objects.diverted_objects import QUARANTINE
from sparklog.sink.quarantine.claims import store_part
from sparklog.sink.quarantine.diverted_rows import list_diverted
from sparklog.sink.quarantine.folders import quarantine_folders
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import CorruptFileError, ObjectMissingError
from sparklog.storage_core.objects.object_storage import StoredObject
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.quantity_text import size_text
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import open_reader

__all__ = ["describe_quarantine", "describe_stored_quarantine", "quarantine_lines"]

_USUAL = "quarantine"
_TRIES = 5
_READERS = 16


def describe_quarantine(view: StoreView) -> dict[str, Any]:
    """Return rows, files and bytes in quarantine with the counts of each reason; nothing without diverted rows.

    Raises:
        StorageError: a folder can't be read.
    """
    if view.ledger_version is None:
        return {}
    store = Store.find(view.root)
    try:
        files, reasons, size = _look(store)
    except CorruptFileError as error:
        return {"quarantine_problem": str(error)}
    return _described(len(files), reasons, size)


def describe_stored_quarantine(place: StoragePlace) -> dict[str, Any]:
    """As `describe_quarantine`, of a store of objects; reads all its objects, some at a time.

    Raises:
        StorageError: the storage does not answer.
    """
    storage, reasons = place.open(), Counter[str]()
    listed = [each for each in storage.list(QUARANTINE) if each.name.endswith(".parquet")]

    def count(each: StoredObject) -> Counter[str]:
        try:
            return _reasons_in(io.BytesIO(storage.read(each.name)), str(place.address.child(each.name)))
        except ObjectMissingError:
            return Counter()  # somebody has removed it meanwhile

    with ThreadPoolExecutor(_READERS) as pool:
        try:
            for found in pool.map(count, listed):
                reasons += found
        except CorruptFileError as error:
            return {"quarantine_problem": str(error)}
    return _described(len(listed), reasons, sum(each.size_bytes for each in listed))


def _described(files: int, reasons: Counter[str], size_bytes: int) -> dict[str, Any]:
    if not files:
        return {}
    return {
        "quarantine": {
            "rows": reasons.total(),
            "files": files,
            "size_bytes": size_bytes,
            "reasons": dict(reasons.most_common()),
        }
    }


def quarantine_lines(described: Mapping[str, Any]) -> list[str]:
    """Return the same for people."""
    if "quarantine_problem" in described:
        return [f"quarantine: {described['quarantine_problem']}"]
    if (found := described.get("quarantine")) is None:
        return []
    head = f"quarantine: {found['rows']:,} rows in {found['files']:,} files, {size_text(found['size_bytes'])}"
    return [head, *(f"  {count:,} x {reason}" for reason, count in found["reasons"].items())]


def _look(store: Store) -> tuple[list[Path], Counter[str], int]:
    """Return files, counts of reasons, and bytes; retries if a merger replaced listed files."""
    for _ in range(_TRIES):
        files = [*_files_of(store)]
        try:
            return files, _count_reasons(files), sum(path.stat().st_size for path in files)
        except FileNotFoundError:
            continue
    raise CorruptFileError("mergers kept replacing files during the count")


def _files_of(store: Store) -> Iterator[Path]:
    folders = dict.fromkeys([store.root / _USUAL, *quarantine_folders(store)])
    for folder in folders:
        yield from _files_below(store_part(folder, store))
        if folder.is_relative_to(store.root):
            yield from _files_below(folder)


def _files_below(folder: Path) -> Iterator[Path]:
    with storage_errors(folder):
        queries = sorted(path for path in folder.glob("*") if path.is_dir())
    for query in queries:
        for each in list_diverted(query):
            yield from each.files


def _count_reasons(files: Iterable[Path]) -> Counter[str]:
    found: Counter[str] = Counter()
    for path in files:
        try:
            with open_reader(path) as file:
                found += _reasons_in(file, str(path))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise CorruptFileError(f"a file can't be read: path={path} ({one_line(error)})") from error
    return found


def _reasons_in(file: Any, path: str) -> Counter[str]:
    try:
        column = pq.read_table(file, columns=["reason"]).column("reason")
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise CorruptFileError(f"a file can't be read: path={path} ({one_line(error)})") from error
    return Counter({value["values"] or "": value["counts"] for value in column.value_counts().to_pylist()})
