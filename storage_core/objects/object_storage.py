"""What Sparklog needs of a storage whose objects never change: a narrow interface.

An object appears whole or not at all, and keeps its bytes until it is removed. A name is given once.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from sparklog.storage_core.objects.address import Address

__all__ = ["NewObject", "ObjectStorage", "StoredObject"]


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object, as a listing names it.

    Attributes:
        name: relative to the storage's address.
        modified_ms: by the storage's clock.
    """

    name: str
    size_bytes: int
    modified_ms: int


class NewObject(Protocol):
    """An object while it is written."""

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes."""


class ObjectStorage(Protocol):
    """The objects below an address. Safe to call from several threads.

    Methods raise `StorageError` if the storage refuses or does not answer; the message names the address, never a
    credential.

    Attributes:
        address: names of objects are relative to it.
    """

    @property
    def address(self) -> Address:
        """Address of the folder."""

    def create(self, name: str, data: bytes) -> None:
        """Make an object, if no other one has its name: decided by the storage, so one of several callers wins.

        Raises:
            ObjectExistsError: another object has the name.
        """

    def writing(self, name: str) -> AbstractContextManager[NewObject]:
        """Make a large object of a name that nobody else gives, part by part.

        It appears as the context ends, and never after an error inside it.
        """

    def read(self, name: str) -> bytes:
        """Return an object's bytes.

        Raises:
            ObjectMissingError: there is none.
        """

    def read_ranges(self, name: str, starts: Sequence[int], sizes: Sequence[int]) -> list[bytes]:
        """Return ranges of an object, each whole.

        Raises:
            ObjectMissingError: there is none.
            StorageError: it is shorter.
        """

    def list(self, folder: str) -> Iterator[StoredObject]:
        """Yield the objects below a folder, at any depth; none if there is no such folder."""

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects; those that are not there count as removed."""
