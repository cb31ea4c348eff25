"""HDFS by `hdfs-native`, without a JVM.

A file is written under a name of its own and renamed once it is closed: readers see an open file as empty, and a file
of a writer that died stays. A rename that replaces nothing lets one of several writers win.

A new file that holds bytes costs half a second, a fixed wait of the library at its close, so files are few and large.

Source: hdfs-native 0.14.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from hdfs_native import Client, WriteOptions

from sparklog.storage_core.errors import InvalidConfigError, ObjectExistsError, ObjectMissingError, StorageError
from sparklog.storage_core.objects.address import Address
from sparklog.storage_core.objects.object_storage import NewObject, StoredObject

__all__ = ["Hdfs"]

_FOLDER_MODE: Final = 0o755
_UNFINISHED: Final = ".unfinished-"
"""Begins the names of files that are being written; listings leave them out."""
_FAILURES: Final = (OSError, RuntimeError, ValueError)


class Hdfs:
    """The files below an address of an HDFS.

    Args:
        options: Hadoop's properties; what is missing comes from the files in `HADOOP_CONF_DIR`.

    Raises:
        InvalidConfigError: the cluster's address or properties are wrong.
    """

    def __init__(self, address: Address, options: Mapping[str, str]) -> None:
        self.address = address
        _find_configuration()
        try:
            self._client = Client(address.root if address.host else None, dict(options) or None)
        except _FAILURES as error:
            raise InvalidConfigError(f"storage: {_first_line(error)} address={address}") from None

    def create(self, name: str, data: bytes) -> None:
        """See `ObjectStorage`."""
        with self.writing(name) as writing:
            writing.write(data)

    @contextmanager
    def writing(self, name: str) -> Iterator[NewObject]:
        """See `ObjectStorage`; the name may be one that others give, too: one of them wins."""
        path = self._path(name)
        folder, _, last = path.rpartition("/")
        unfinished = f"{folder}/{_UNFINISHED}{uuid.uuid4().hex}-{last}"
        with self._explaining(name):
            file = self._client.create(unfinished, WriteOptions(overwrite=False, create_parent=True))
        try:
            yield _Writing(file, self, name)
            with self._explaining(name):
                file.close()
                self._client.rename(unfinished, path, False)
        except BaseException:
            with suppress(*_FAILURES):
                self._client.delete(unfinished, False)
            raise

    def read(self, name: str) -> bytes:
        """See `ObjectStorage`."""
        with self._explaining(name):
            reader = self._client.read(self._path(name))
            return bytes(reader.read_range(0, reader.size))

    def read_ranges(self, name: str, starts: Sequence[int], sizes: Sequence[int]) -> list[bytes]:
        """See `ObjectStorage`."""
        if not starts:
            return []
        with self._explaining(name):
            reader = self._client.read(self._path(name))
            wanted = max(start + size for start, size in zip(starts, sizes, strict=True))
            if reader.size < wanted:  # the library panics past the end
                raise StorageError(f"object is shorter than {wanted} bytes: {self.address.child(name)}")
            return [bytes(reader.read_range(start, size)) for start, size in zip(starts, sizes, strict=True)]

    def list(self, folder: str) -> Iterator[StoredObject]:
        """See `ObjectStorage`."""
        root = f"/{self.address.path}/"
        is_begun = False
        with self._explaining(folder):
            try:
                for each in self._client.list_status(self._path(folder), True):
                    is_begun = True
                    if not each.isdir and f"/{_UNFINISHED}" not in each.path:
                        yield StoredObject(each.path.removeprefix(root), each.length, each.modification_time)
            except FileNotFoundError:
                if is_begun:  # a folder went meanwhile, and the list ends early
                    raise

    def remove(self, names: Sequence[str]) -> None:
        """See `ObjectStorage`."""
        for name in names:
            with self._explaining(name), suppress(FileNotFoundError):
                self._client.delete(self._path(name), False)

    def _path(self, name: str) -> str:
        return f"/{self.address.child(name).path}"

    @contextmanager
    def _explaining(self, name: str) -> Iterator[None]:
        """Turn errors of the library into ours."""
        place = self.address.child(name)
        try:
            yield
        except FileExistsError as error:
            raise ObjectExistsError(f"object exists: {place}") from error
        except FileNotFoundError as error:
            raise ObjectMissingError(f"no such object: {place}") from error
        except _FAILURES as error:
            raise StorageError(f"HDFS refuses: {place} ({_first_line(error)})") from error


def _find_configuration() -> None:
    """Let the libraries of this process find Hadoop's files in a container of YARN, where no variable may name them.

    Source: Spark's YARN client ships them as `__spark_conf__/__hadoop_conf__`.
    """
    shipped = Path("__spark_conf__", "__hadoop_conf__").absolute()
    if "HADOOP_CONF_DIR" not in os.environ and shipped.is_dir():
        os.environ["HADOOP_CONF_DIR"] = str(shipped)


class _Writing:
    """A new file's writer with our errors."""

    def __init__(self, file: Any, storage: Hdfs, name: str) -> None:
        self._file = file
        self._storage = storage
        self._name = name

    def write(self, data: bytes | memoryview) -> None:
        with self._storage._explaining(self._name):
            self._file.write(bytes(data))


def _first_line(error: Exception) -> str:
    """Return an error's first line: below it a name node sends its own stack."""
    text = str(error).strip().replace("\\n", "\n")
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"
