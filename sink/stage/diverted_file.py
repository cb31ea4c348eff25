"""The invalid rows of a task attempt: a Parquet file for the driver to publish, or an object of a store of objects."""

import contextlib
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.sink.stage.staged_output import StagedObject
from sparklog.storage_core.errors import LogStorageError
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.storage.owned_names import remove_unique

__all__ = ["DivertedFile"]


class DivertedFile:
    """Rows of one schema.

    Args:
        path: with a unique name; of a store of objects the name of the object.
        objects: storage of a store of objects; None for a folder of this machine.
    """

    def __init__(self, path: Path, objects: StoragePlace | None, schema: pa.Schema) -> None:
        self._path = path
        self._object = None if objects is None else StagedObject(objects, str(path))
        target: Any = path
        if self._object is None:
            path.parent.mkdir(parents=True, exist_ok=True)
        else:
            target = pa.PythonFile(_Appending(self._object), "w")
        try:
            self._writer = pq.ParquetWriter(target, schema)
        except BaseException:
            if self._object is not None:
                self._object.discard()
            raise

    def write(self, rows: pa.Table) -> None:
        """Append rows."""
        self._writer.write_table(rows)

    def finish(self) -> None:
        """Let the driver find the rows."""
        self._writer.close()
        if self._object is not None:
            self._object.finish()

    def discard(self) -> None:
        """Leave nothing, as far as the disk or the storage lets us; the driver removes its folder anyway."""
        with contextlib.suppress(OSError, pa.ArrowException, LogStorageError):
            self._writer.close()
        if self._object is not None:
            self._object.discard()
            return
        with contextlib.suppress(OSError):
            remove_unique(self._path)


class _Appending(io.RawIOBase):
    """An object that is written, as a Python file."""

    def __init__(self, target: StagedObject) -> None:
        self._target = target
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        self._target.write(memoryview(data))
        self._position += len(data)
        return len(data)
