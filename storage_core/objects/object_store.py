"""Object stores of the clouds, and a local folder that is used like one, by `obstore`.

Source: obstore 0.12; object_store's configuration keys, which `deltalake` takes, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import LocalStore, from_url

from sparklog.storage_core.errors import InvalidConfigError, ObjectExistsError, ObjectMissingError, StorageError
from sparklog.storage_core.objects.address import Address
from sparklog.storage_core.objects.object_storage import NewObject, StoredObject

__all__ = ["ObjectStore"]

_CLIENT_OPTIONS: Final = {
    "allow_http": "allow_http",
    "aws_allow_http": "allow_http",
    "azure_allow_http": "allow_http",
    "allow_invalid_certificates": "allow_invalid_certificates",
    "connect_timeout": "connect_timeout",
    "timeout": "timeout",
    "proxy_url": "proxy_url",
    "user_agent": "user_agent",
}
"""Keys that obstore takes apart from the store's own, which `deltalake` takes together with them."""
_FLAGS: Final = {"true": True, "false": False}
_PART_BYTES: Final = 8 << 20
_CONCURRENT_PARTS: Final = 4
_MOST_REMOVED: Final = 1000
_REMOVING_THREADS: Final = 8
_CREATE_TRIES: Final = 10
_FAILURES: Final = (BaseError, OSError, ValueError)


class ObjectStore:
    """The objects below an address of an object store.

    Args:
        options: keys and values as `deltalake` takes them; what is missing comes from the environment.

    Raises:
        InvalidConfigError: an option is unknown, or the store can't be reached with them.
    """

    def __init__(self, address: Address, options: Mapping[str, str]) -> None:
        self.address = address
        self._folder = f"{address.path}/" if address.scheme == "file" else ""  # a local store's root has to exist
        client, config = dict[str, Any](), dict[str, Any]()
        for key, value in options.items():
            name = key.lower()
            if name in _CLIENT_OPTIONS:
                client[_CLIENT_OPTIONS[name]] = _FLAGS.get(value.lower(), value)
            else:
                config[name] = value
        try:
            if address.scheme == "file":
                self._store: Any = LocalStore()
            else:
                open_url: Any = from_url  # its stub knows the keys of one kind of store at a time
                self._store = open_url(str(address), config=config or None, client_options=client or None)
        except _FAILURES as error:
            raise InvalidConfigError(f"storage: {_first_line(error)} address={address}") from None  # may hold options

    def create(self, name: str, data: bytes) -> None:
        """See `ObjectStorage`; an answer that was lost is looked up."""
        with self._explaining(name):
            for _ in range(_CREATE_TRIES):
                try:
                    obstore.put(self._store, self._folder + name, data, mode="create", use_multipart=False)
                    return
                except AlreadyExistsError:
                    found = self._read_if_there(name)
                    if found == data:  # it is ours, and the request was sent again
                        return
                    if found is not None:
                        raise
                # The request met a removal: of this object or, with VersityGW, of the last one beside it.
        raise StorageError(f"the storage says that an object is there, then that it is not: {self.address.child(name)}")

    def _read_if_there(self, name: str) -> bytes | None:
        try:
            return self.read(name)
        except ObjectMissingError:
            return None

    @contextmanager
    def writing(self, name: str) -> Iterator[NewObject]:
        """See `ObjectStorage`."""
        with self._explaining(name):
            writer = obstore.open_writer(
                self._store, self._folder + name, buffer_size=_PART_BYTES, max_concurrency=_CONCURRENT_PARTS
            )
        yield _Writing(writer, self, name)
        with self._explaining(name):
            writer.close()  # not after an error: what is not closed never appears

    def read(self, name: str) -> bytes:
        """See `ObjectStorage`."""
        with self._explaining(name):
            return bytes(obstore.get(self._store, self._folder + name).bytes())

    def read_ranges(self, name: str, starts: Sequence[int], sizes: Sequence[int]) -> list[bytes]:
        """See `ObjectStorage`."""
        if not starts:
            return []
        with self._explaining(name):
            found = [
                bytes(each)
                for each in obstore.get_ranges(self._store, self._folder + name, starts=starts, lengths=sizes)
            ]
        for data, start, size in zip(found, starts, sizes, strict=True):
            if len(data) != size:
                raise StorageError(f"object is shorter than {start + size} bytes: {self.address.child(name)}")
        return found

    def list(self, folder: str) -> Iterator[StoredObject]:
        """See `ObjectStorage`."""
        with self._explaining(folder):
            for page in obstore.list(self._store, self._folder + folder):
                for each in page:
                    modified_ms = int(each["last_modified"].timestamp() * 1000)
                    yield StoredObject(each["path"].removeprefix(self._folder), each["size"], modified_ms)

    def remove(self, names: Sequence[str]) -> None:
        """See `ObjectStorage`."""
        if self.address.scheme != "s3":  # other stores end a list at the first that is missing
            with ThreadPoolExecutor(_REMOVING_THREADS) as pool:
                list(pool.map(self._remove_one, names))
            return
        for first in range(0, len(names), _MOST_REMOVED):
            part = list(names[first : first + _MOST_REMOVED])
            with self._explaining(part[0]):
                obstore.delete(self._store, part)

    def _remove_one(self, name: str) -> None:
        with suppress(ObjectMissingError), self._explaining(name):
            obstore.delete(self._store, self._folder + name)

    @contextmanager
    def _explaining(self, name: str) -> Iterator[None]:
        """Turn errors of the library into ours."""
        place = self.address.child(name)
        try:
            yield
        except AlreadyExistsError as error:
            raise ObjectExistsError(f"object exists: {place}") from error
        except (NotFoundError, FileNotFoundError) as error:
            raise ObjectMissingError(f"no such object: {place}") from error
        except _FAILURES as error:
            raise StorageError(f"the storage refuses: {place} ({_first_line(error)})") from error


class _Writing:
    """A new object's writer with our errors."""

    def __init__(self, writer: Any, store: ObjectStore, name: str) -> None:
        self._writer = writer
        self._store = store
        self._name = name

    def write(self, data: bytes | memoryview) -> None:
        with self._store._explaining(self._name):
            self._writer.write(data)


def _first_line(error: Exception) -> str:
    """Return an error's first line: those below repeat the request."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
