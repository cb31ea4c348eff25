"""Where a store of objects lies, and the library that opens it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.objects.address import Address
from sparklog.storage_core.objects.object_storage import ObjectStorage

__all__ = ["StoragePlace"]

_READ_BY_LIBRARIES: Final = ("AWS_", "AZURE_", "GOOGLE_", "HADOOP_")
"""How variables begin that the libraries of storages read."""


@dataclass(frozen=True, slots=True)
class StoragePlace:
    """An address with what its storage needs to be reached; it travels to executors.

    Attributes:
        options: keys and values as `deltalake` takes them, Hadoop's properties for HDFS; they may be secrets.
    """

    address: Address
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def open(self) -> ObjectStorage:
        """Return the storage; the same one for the same options and environment, as it holds connections.

        Raises:
            InvalidConfigError: the library of this kind of storage is not installed, or an option is wrong.
        """
        # A notebook may set other credentials and try again.
        environment = sorted((name, value) for name, value in os.environ.items() if name.startswith(_READ_BY_LIBRARIES))
        return _open(self.address, tuple(sorted(self.options.items())), tuple(environment))

    def __reduce__(self) -> tuple[object, ...]:
        return StoragePlace, (self.address, dict(self.options))


@lru_cache(maxsize=16)
def _open(
    address: Address, options: tuple[tuple[str, str], ...], _environment: tuple[tuple[str, str], ...]
) -> ObjectStorage:
    extra = "hdfs" if address.scheme == "hdfs" else "s3"
    try:
        if extra == "hdfs":
            from sparklog.storage_core.objects.hdfs import Hdfs

            return Hdfs(address, dict(options))
        from sparklog.storage_core.objects.object_store import ObjectStore

        return ObjectStore(address, dict(options))
    except ModuleNotFoundError as error:
        raise InvalidConfigError(
            f"{address.scheme}:// needs the library {error.name}: pip install 'sparklog[{extra}]'"
        ) from error
