"""Addresses of folders on object storages: `s3://bucket/archive`, `hdfs://namenode:8020/archive`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from sparklog.storage_core.errors import InvalidConfigError

__all__ = ["Address", "is_address", "parse_address"]

_SCHEMES: Final = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "az": "az",
    "abfs": "abfss",
    "abfss": "abfss",
    "hdfs": "hdfs",
    "file": "file",
}
"""The scheme that the libraries know, by the one that a user may write."""
_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)/*(.*?)/*")
_UNUSABLE: Final = re.compile(r"[\[\]\\^|%?#*\s\x00-\x1f\x7f]|(^|/)\.{1,2}(/|$)|//")
"""What libraries of object stores read differently in a path."""


@dataclass(frozen=True, slots=True)
class Address:
    """A folder on an object storage.

    Attributes:
        scheme: of the storage, as its libraries know it.
        host: bucket, container or name node; empty for `file`.
        path: of the folder, without slashes at its ends; empty for the root.
    """

    scheme: str
    host: str
    path: str

    @property
    def root(self) -> str:
        """Address of the bucket, container or file system."""
        return f"{self.scheme}://{self.host}"

    def child(self, name: str) -> Address:
        """Return the address of a folder or object below."""
        return replace(self, path=f"{self.path}/{name}" if self.path else name)

    def __str__(self) -> str:
        return f"{self.root}/{self.path}"


def is_address(text: str) -> bool:
    """Whether a text is an address, not the path of a folder of this machine."""
    return _ADDRESS.fullmatch(text) is not None


def parse_address(text: str) -> Address:
    """Return the address that a text is.

    Raises:
        InvalidConfigError: no storage has such an address.
    """
    found = _ADDRESS.fullmatch(text)
    scheme = None if found is None else _SCHEMES.get(found[1].lower())
    if found is None or scheme is None:
        raise InvalidConfigError(f"{text!r} is no address of a storage: known are {', '.join(sorted(_SCHEMES))}")
    if not found[2] and scheme not in ("file", "hdfs"):
        raise InvalidConfigError(f"{text!r} names no bucket or container")
    if not found[3]:
        raise InvalidConfigError(f"{text!r} names no folder: a store does not take a whole bucket or file system")
    if _UNUSABLE.search(found[3]):
        raise InvalidConfigError(f"{text!r} holds a space, one of [ ] \\ ^ | % ? # *, or an empty name, . or ..")
    return Address(scheme, found[2], found[3])
