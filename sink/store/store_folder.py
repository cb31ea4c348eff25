"""The folder of a store: its layout version, its log directories, and opening it for writing.

```
<store>/store.properties   layout version and id; written last, so a folder without it is no store yet
<store>/writer.lock        held by the writer
<store>/takeover.lock      held while a file is removed or renamed by path, and while the store is taken by force
<store>/ledger/            Delta table
<store>/staging/           of running micro-batches
<store>/logs/              Kafka log.dir; others by log_dirs
```
"""

import base64
import contextlib
import logging
import os
import uuid
from collections.abc import Collection, Iterable
from pathlib import Path

from sparklog.sink.ledger.ledger import Ledger, ledger_log
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.locks.signed_off_version import forget_signed_off
from sparklog.sink.locks.takeover_lock import TAKEOVER_LOCK
from sparklog.storage_core.checkpoint.meta_properties import (
    parse_meta_properties,
    render_meta_properties,
    store_of,
    with_store,
)
from sparklog.storage_core.errors import InvalidConfigError, LedgerDamagedError, StorageError, UnsupportedFormatError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.storage.local import make_directory, storage_errors
from sparklog.storage_core.storage.open_regular import read_file, read_if_there
from sparklog.storage_core.storage.owned_names import Owner, remove_tree, replace_file
from sparklog.storage_core.topic_partition import parse_directory_name

__all__ = ["LAYOUT_VERSION", "UPGRADED_LAYOUTS", "Store", "random_id"]

logger = logging.getLogger(__name__)

LAYOUT_VERSION = 4
UPGRADED_LAYOUTS = (2, 3)
"""What `sparklog upgrade` turns into a store of this release."""

_LOCKS = ("writer.lock", "maintenance.lock", TAKEOVER_LOCK)
_OWN_NAMES = ("store.properties", *_LOCKS, "ledger", "staging", "quarantine", "control")
_NODE_ID = 1


class Store:
    """Paths and identity of a store.

    Attributes:
        store_id: 22 characters; the cluster id of its log directories.
    """

    def __init__(self, root: Path, store_id: str) -> None:
        self.root = root
        self.store_id = store_id

    @classmethod
    def find(cls, root: Path, layouts: Collection[int] = (LAYOUT_VERSION,)) -> "Store":
        """Return the store in a folder, for reading.

        Args:
            layouts: that the caller can read.

        Raises:
            InvalidConfigError: there is none.
            UnsupportedFormatError: it is of another layout; the message says what to do.
        """
        path = root / "store.properties"
        with storage_errors(path):
            data = read_if_there(path)
        if data is None:
            raise InvalidConfigError(f"no store here: {root} has no store.properties")
        lines = data.decode(errors="replace").splitlines()
        values = dict(line.split("=", 1) for line in lines if "=" in line)
        found = values.get("layout.version")
        if found not in [str(each) for each in layouts]:
            is_older = found in [str(each) for each in UPGRADED_LAYOUTS]
            remedy = f"sparklog upgrade {root} --execute" if is_older else "use a newer release"
            wanted = " or ".join(map(str, layouts))
            raise UnsupportedFormatError(f"store has layout.version={found}, wanted is {wanted}: path={path}; {remedy}")
        return cls(root, values.get("store.id", ""))

    @classmethod
    def check_folder(cls, root: Path, log_dirs: tuple[str, ...]) -> None:
        """Refuse a folder that can't become or be a store of this release, before anything in it is touched.

        Raises:
            InvalidConfigError: it holds something else.
            UnsupportedFormatError: it is a store of another layout.
            LedgerDamagedError: it holds logs, but is no store any more.
        """
        with storage_errors(root):
            if (root / "store.properties").exists():
                cls.find(root)
            elif root.exists():
                _check_is_free(root, log_dirs)

    @classmethod
    def find_or_create(cls, root: Path, log_dirs: tuple[str, ...], owner: Owner) -> "Store":
        """Return the store in a folder, or make one in an empty folder. The caller holds the writer lock."""
        if (root / "store.properties").exists():
            return cls.find(root)
        store = cls(root, random_id())
        with storage_errors(root):
            _check_is_free(root, log_dirs)
            remove_tree(owner, store.ledger_path)
        forget_signed_off(store.ledger_path, owner)
        Ledger.create(store.ledger_path, owner)
        reach("open.created")
        store.write_properties(owner)
        return store

    def write_properties(self, owner: Owner) -> None:
        """Write `store.properties` with this release's layout version, durably."""
        content = f"layout.version={LAYOUT_VERSION}\nstore.id={self.store_id}\n"
        with storage_errors(self.root):
            replace_file(owner, self.root / "store.properties", content.encode())

    @property
    def ledger_path(self) -> Path:
        """Folder of the ledger."""
        return self.root / "ledger"

    @property
    def staging_path(self) -> Path:
        """Folder of staged batches."""
        return self.root / "staging"

    def log_dir(self, name: str) -> Path:
        """Return a log directory root; `name` is relative to the store or absolute."""
        return self.root / name

    def log_path(self, state: LogState) -> Path:
        """Return the directory of a log."""
        return self.log_dir(state.log_dir) / f"{state.topic}-{state.partition}"

    def prepare_log_dirs(self, log_dirs: tuple[str, ...], owner: Owner) -> None:
        """Make the roots of `log_dirs`, each with its `meta.properties`.

        Raises:
            InvalidConfigError: one is the root of another store, or of a broker.
        """
        for name in log_dirs:
            root = self.log_dir(name)
            self.refuse_foreign((name,))
            with storage_errors(root):
                if (root / "meta.properties").exists():
                    self.sign_root(root, owner)
                    continue
                make_directory(root)
                data = render_meta_properties(self.store_id, _NODE_ID, random_id())
                replace_file(owner, root / "meta.properties", self.signed(data))

    def refuse_foreign(self, log_dirs: tuple[str, ...]) -> None:
        """Refuse log directories of another store or of a broker.

        Raises:
            InvalidConfigError: one belongs to another owner.
            CorruptFileError: the `meta.properties` of one is unreadable, so its owner is unknown.
        """
        for name in log_dirs:
            path = self.log_dir(name) / "meta.properties"
            with storage_errors(path):
                if path.exists():
                    self._check_is_ours(path)
                    self.refuse_claimed((name,))

    def claimant(self, name: str, file: str = "meta.properties") -> Path | None:
        """Return the copy of this store that claims a log directory, None if this store may have it.

        A store that was moved, is gone, or has its own log directory of this name, claims nothing.

        Args:
            name: of the log directory, or of another folder that only one copy may change.
        """
        root = self.root / name
        with storage_errors(root):
            named = store_of(read_if_there(root / file) or b"")
            if named is None:
                return None
            store, claimed, other = self.root.stat(), root.stat(), Path(named)
        try:
            (other / "store.properties").stat()
            if os.path.samestat(other.stat(), store) or not os.path.samestat((other / name).stat(), claimed):
                return None
            return other if Store.find(other).store_id == self.store_id else None
        except (FileNotFoundError, NotADirectoryError, InvalidConfigError):
            return None
        except (OSError, StorageError, UnsupportedFormatError) as error:
            logger.warning("Can't check for another copy of the store: other=%s (%s)", other, error)
            return other

    def refuse_claimed(self, names: Iterable[str]) -> None:
        """Refuse log directories that another copy of this store claims.

        Raises:
            InvalidConfigError: a copy claims one; the message names both folders.
        """
        for name in sorted(set(names)):
            other = self.claimant(name)
            if other is not None:
                raise InvalidConfigError(
                    f"a log directory belongs to another copy of this store: log_dir={self.log_dir(name)}"
                    f" store={self.root} other={other}; two copies on one log destroy each other's records. Copy the"
                    f" log directories, too (docs/operations.md), or, if {other} is not used any more, take them over:"
                    f" sparklog adopt {self.root} --execute"
                )

    def sign_root(self, root: Path, owner: Owner) -> None:
        """As `name_store`, but a failure only warns: the next opening retries."""
        try:
            self.name_store(root, owner)
        except StorageError as error:
            logger.warning("A log directory does not name its store: %s", error)

    def name_store(self, root: Path, owner: Owner) -> None:
        """Write this store's path into an existing `meta.properties`, so that it does not look like a broker's."""
        path = root / "meta.properties"
        with storage_errors(path):
            data = read_if_there(path) or b""
            signed = self.signed(data)
            if data and data != signed:
                replace_file(owner, path, signed)

    def signed(self, data: bytes) -> bytes:
        """Return the bytes of a file that names a store, with this one's path."""
        return with_store(data, str(self.root.resolve()).encode(errors="backslashreplace").decode())

    def _check_is_ours(self, path: Path) -> None:
        """Refuse a root of another owner: its empty logs would look like orphans of a crash."""
        owner = parse_meta_properties(read_file(path))["cluster.id"]
        if owner != self.store_id:
            raise InvalidConfigError(
                f"log_dirs: {path.parent} belongs to another store or broker: cluster.id={owner}"
                f" store.id={self.store_id}; name another folder"
            )

    def sweep_staging(self, owner: Owner) -> None:
        """Delete everything staged: no micro-batch of this store is running."""
        with contextlib.suppress(OSError):  # the next opening sweeps the rest
            remove_tree(owner, self.staging_path)


def _check_is_free(root: Path, log_dirs: tuple[str, ...]) -> None:
    """Refuse a folder with more than the files of a crashed `find_or_create`."""
    own = (*_OWN_NAMES, *(Path(name).parts[0] for name in log_dirs))
    foreign = [name for name in os.listdir(root) if not name.startswith(own)]
    if foreign:
        raise InvalidConfigError(f"not a store, and not empty: {root} holds {sorted(foreign)[0]!r}; name a new folder")
    if ledger_log(root / "ledger").last_version() > 0:  # a crash in the middle of `find_or_create` leaves version 0
        raise LedgerDamagedError(f"store.properties is gone, but {root} holds a ledger: restore the root files")
    for name in log_dirs:
        log_dir = root / name
        logs = [each for each in (os.listdir(log_dir) if log_dir.is_dir() else ()) if parse_directory_name(each)]
        if logs:
            raise LedgerDamagedError(
                f"store.properties is gone, but {log_dir} holds logs ({sorted(logs)[0]}, ...): restore the root files"
            )


def random_id() -> str:
    """Return a unique id of 22 characters, as Kafka writes ids."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
