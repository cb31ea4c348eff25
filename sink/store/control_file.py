"""Small JSON files below a store's `control/`: checked when read, replaced atomically and fsynced.

Their values become paths and ends of logs, so each one is checked.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import CorruptFileError, InvalidConfigError
from sparklog.storage_core.storage.local import make_directory, storage_errors
from sparklog.storage_core.storage.open_regular import read_if_there
from sparklog.storage_core.storage.owned_names import Owner, replace_file
from sparklog.storage_core.topic_partition import check_topic_name

__all__ = ["ControlFile", "check_name", "check_topic"]

_Content = TypeVar("_Content")

_VERSION = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlFile:
    """One such file.

    Attributes:
        what: its content: the beginning of a message about damage.
        remedy: of the damage.
    """

    name: str
    what: str
    remedy: str

    def path(self, store: Store) -> Path:
        """Return its path in a store."""
        return store.root / "control" / self.name

    def read(self, store: Store, build: Callable[[Any], _Content]) -> _Content | None:
        """Return `build` of its content; None without a file.

        Raises:
            CorruptFileError: it is damaged; the message names file and remedy.
        """
        path = self.path(store)
        with storage_errors(path):
            data = read_if_there(path)
        try:
            return None if data is None else self.parse(data, build)
        except CorruptFileError as error:
            raise CorruptFileError(f"{self.what} damaged: path={path} ({error}); {self.remedy}") from error

    def parse(self, data: bytes, build: Callable[[Any], _Content]) -> _Content:
        """Return `build` of these bytes' content.

        Raises:
            CorruptFileError: they are damaged, or of another version.
        """
        try:
            content = json.loads(data)
            if content["version"] != _VERSION:
                raise ValueError(f"version {str(content['version'])[:40]}, not {_VERSION}")
            return build(content)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidConfigError) as error:
            raise CorruptFileError(str(error)) from error

    def render(self, content: Mapping[str, object]) -> bytes:
        """Return its bytes."""
        return json.dumps({"version": _VERSION, **content}, indent=1).encode() + b"\n"

    def replace(self, store: Store, content: Mapping[str, object], owner: Owner) -> None:
        """Replace the file atomically and fsync it."""
        path = self.path(store)
        with storage_errors(path):
            make_directory(path.parent)
            replace_file(owner, path, self.render(content))


def check_name(value: object) -> str:
    """Return a text that may be a name, or raise `ValueError`."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError(f"not a name: {str(value)[:40]!r}")
    return value


def check_topic(value: object) -> str:
    """Return a topic's name, or raise `ValueError` or `InvalidConfigError`."""
    check_topic_name(check_name(value))
    return str(value)
