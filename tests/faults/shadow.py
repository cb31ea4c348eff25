"""A disk in memory beside the real files: what is certain to survive a power cut, and what may.

Content is certain once a file was synced, a name once its folder was. What was done since may have reached the disk or
not: content as it was synced, as it is now, a part of it, or zeros in its place; names old or new, a rename within a
folder as one change. That is a superset of what ext4 and XFS were seen to leave (`test_shadow.py` has the list).

Sources: POSIX fsync; ext4 and XFS, which were cut off in the middle of each protocol.
"""

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.system_calls import Call

__all__ = ["Choose", "Moment", "Shadow", "images", "write_image"]

Choose = Callable[[int], int]
"""Picks one of so many possibilities."""

_Key = tuple[int, str]
_ROOT = 0
_FOLDER = b"\0folder"
_SECTOR_BYTES = 512
"""A disk writes so many bytes as a whole or not at all."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A name that was given, taken away, or moved within its folder."""

    folders: frozenset[int]
    node: int
    added: _Key | None
    removed: _Key | None
    needs: "_Change | None" = None


@dataclass(frozen=True, slots=True)
class Moment:
    """A disk at one moment, before one call.

    Attributes:
        call: what comes next.
        done: steps that were acknowledged.
        names: that are certain.
        changes: of names that are not, in order.
        synced: what is certain of each file; nothing of one that was never synced.
        current: each file as it is.
    """

    call: Call | None
    done: int
    names: dict[_Key, int]
    changes: tuple[_Change, ...]
    synced: dict[int, bytes]
    current: dict[int, bytes]


@dataclass
class Shadow:
    """Watches a folder; everything in it at the beginning is on the disk.

    Attributes:
        done: steps that were acknowledged so far; the caller counts them.
        moments: one before each call.
    """

    root: Path
    done: int = 0
    moments: list[Moment] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)
    _seen: dict[_Key, int] = field(default_factory=dict)
    _names: dict[_Key, int] = field(default_factory=dict)
    _changes: list[_Change] = field(default_factory=list)
    _synced: dict[int, bytes] = field(default_factory=dict)
    _current: dict[int, bytes] = field(default_factory=dict)
    _next: int = 1

    def __post_init__(self) -> None:
        self._observe()
        self._names, self._changes, self._synced = dict(self._seen), [], dict(self._current)

    def before(self, call: Call) -> int:
        """Keep the moment before a call; the call is made in full."""
        self._observe()
        self.moments.append(self.moment(call))
        return call.size_bytes

    def after(self, call: Call) -> None:
        """Note what a sync made certain."""
        self._observe()
        if call.kind == "syncfs":
            self._synced = dict(self._current)
            self._names, self._changes = dict(self._seen), []
        elif call.kind == "fsync":
            self._sync(self._numbers.get(os.fstat(call.descriptor).st_ino))

    def moment(self, call: Call | None = None) -> Moment:
        """Return the disk as it is now."""
        if call is None:
            self._observe()
        return Moment(call, self.done, dict(self._names), tuple(self._changes), dict(self._synced), dict(self._current))

    def _sync(self, node: int | None) -> None:
        if node is None:
            return
        if self._current.get(node) != _FOLDER and node != _ROOT:
            self._synced[node] = self._current[node]
            return
        certain = [change for change in self._changes if node in change.folders]
        self._changes = [change for change in self._changes if node not in change.folders]
        for change in certain:
            _apply(self._names, change)

    def _observe(self) -> None:
        """Find what changed since the last look, whoever changed it."""
        found = dict(self._walk())
        gone = {key: node for key, node in self._seen.items() if found.get(key) != node}
        new = {key: node for key, node in found.items() if self._seen.get(key) != node}
        from_where = {node: key for key, node in gone.items()}
        for key, node in new.items():
            source = from_where.pop(node, None)
            if source is None or source[0] == key[0]:
                folders = frozenset({key[0]})
                self._changes.append(_Change(folders, node, key, source))
            else:  # first its new name, then the loss of the old one
                arrival = _Change(frozenset({key[0]}), node, key, None)
                self._changes += [arrival, _Change(frozenset({source[0]}), node, None, source, arrival)]
        replaced = {self._seen[key] for key in new if key in self._seen}
        for node, key in from_where.items():
            if node not in replaced or key not in new:
                self._changes.append(_Change(frozenset({key[0]}), node, None, key))
        self._seen = found
        named = set(found.values())
        self._numbers = {inode: node for inode, node in self._numbers.items() if node in named or node == _ROOT}

    def _walk(self) -> Iterator[tuple[_Key, int]]:
        self._numbers[self.root.stat().st_ino] = _ROOT
        waiting = [(_ROOT, self.root)]
        while waiting:
            number, folder = waiting.pop()
            with os.scandir(folder) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    node = self._number(status.st_ino)
                    is_folder = stat.S_ISDIR(status.st_mode)
                    self._current[node] = _FOLDER if is_folder else _read(entry.path)
                    if is_folder:
                        waiting.append((node, Path(entry.path)))
                    yield (number, entry.name), node

    def _number(self, inode: int) -> int:
        if inode not in self._numbers:
            self._numbers[inode], self._next = self._next, self._next + 1
        return self._numbers[inode]


def _read(path: str) -> bytes:
    """Read a file without being watched."""
    descriptor = _OPEN(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    finally:
        os.close(descriptor)


_OPEN = os.open


def _apply(names: dict[_Key, int], change: _Change) -> None:
    if change.removed is not None and names.get(change.removed) == change.node:
        del names[change.removed]
    if change.added is not None:
        names[change.added] = change.node


def write_image(moment: Moment, folder: Path, choose: Choose) -> None:
    """Write what a power cut at a moment may leave.

    Args:
        moment: of the cut.
        folder: to write; does not exist.
        choose: picks what survives.
    """
    names = _surviving_names(moment, choose)
    folder.mkdir()
    waiting = [(_ROOT, folder)]
    while waiting:
        number, path = waiting.pop()
        for (parent, name), node in sorted(names.items()):
            if parent != number:
                continue
            if moment.current[node] == _FOLDER:
                (path / name).mkdir()
                waiting.append((node, path / name))
            else:
                content = _surviving_content(moment.synced.get(node, b""), moment.current[node], choose)
                (path / name).write_bytes(content)


def images(moment: Moment) -> Iterator[Choose]:
    """Yield a `choose` for every image of a moment: each is to be used once, before the next one is asked for."""
    path: list[tuple[int, int]] = []
    while True:
        step = iter(range(10**9))

        def choose(count: int, step: Iterator[int] = step) -> int:
            number = next(step)
            if number == len(path):
                path.append((0, count))
            return path[number][0]

        yield choose
        while path and path[-1][0] == path[-1][1] - 1:
            path.pop()
        if not path:
            return
        path[-1] = (path[-1][0] + 1, path[-1][1])


def _surviving_names(moment: Moment, choose: Choose) -> dict[_Key, int]:
    """Return the names that survive: in the order of a journal up to some change, or any of them."""
    names, changes = dict(moment.names), moment.changes
    if not changes:
        return names
    if choose(2):
        survivors = list(changes[: choose(len(changes) + 1)])
    else:
        survivors = []
        for change in changes:
            if (change.needs not in changes or change.needs in survivors) and choose(2):
                survivors.append(change)
    for change in survivors:
        _apply(names, change)
    return names


def _surviving_content(synced: bytes, current: bytes, choose: Choose) -> bytes:
    if synced == current:
        return current
    common = _common(synced, current)
    kind = choose(5)
    if kind == 0:
        return synced
    if kind == 1:
        return current
    if kind == 2:  # a truncation that is undone under what was written since
        return current + synced[len(current) :]
    if kind == 3:
        return current[: common + choose(len(current) - common + 1)]
    sectors = [common, *range(common - common % _SECTOR_BYTES + _SECTOR_BYTES, len(current), _SECTOR_BYTES)]
    kept = sectors[choose(len(sectors))]
    return current[:kept] + bytes(len(current) - kept)


def _common(one: bytes, other: bytes) -> int:
    """Return how many bytes are the same from the start."""
    pairs = zip(one, other, strict=False)
    return next((number for number, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))
