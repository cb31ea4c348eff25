"""Sees every call by which this process changes the files below a folder, before and after it is made.

Calls of `os` are replaced for as long as the block lasts, `syncfs` where the storage layer calls it, and a write of the
ledger as one call: what its library does inside shows only as files that are new or gone afterwards.
"""

import contextlib
import io
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol
from unittest import mock

from sparklog.sink.delta.delta_log import DeltaLog
from sparklog.storage_core.storage import write_back

__all__ = ["KINDS", "Call", "Watcher", "watched"]

KINDS = (
    "open",
    "create",
    "write",
    "copy",
    "fsync",
    "rename",
    "unlink",
    "rmdir",
    "mkdir",
    "truncate",
    "syncfs",
    "ledger",
)
"""What a call does; `create` opens a file that may be new, `copy` stays in the kernel, `ledger` adds one version."""

_WRITING = os.O_CREAT | os.O_TRUNC


@dataclass(frozen=True, slots=True)
class Call:
    """One call.

    Attributes:
        kind: one of `KINDS`.
        path: of the file, or of what has it open.
        size_bytes: how many bytes it is to write; 0 where it writes none.
        descriptor: an open file that it is about, -1 if it names a path.
    """

    kind: str
    path: str
    size_bytes: int = 0
    descriptor: int = -1


class Watcher(Protocol):
    """What is told of each call; one at a time, whichever thread makes it."""

    def before(self, call: Call) -> int:
        """Return how many bytes the call may write; an `OSError` raised here is the kernel's answer."""

    def after(self, call: Call) -> None:
        """Note that the call was made; an error raised here is what the caller gets instead of its outcome."""


@contextlib.contextmanager
def watched(root: Path, watcher: Watcher) -> Iterator[None]:
    """Tell `watcher` of every call that changes something below `root`, or opens a file there."""
    calls = _Calls(str(root.absolute()), watcher)
    with contextlib.ExitStack() as patches:
        for name, kind in (("mkdir", "mkdir"), ("unlink", "unlink"), ("remove", "unlink"), ("rmdir", "rmdir")):
            patches.enter_context(mock.patch.object(os, name, calls.named(kind, getattr(os, name))))
        for name in ("rename", "replace"):
            patches.enter_context(mock.patch.object(os, name, calls.renaming(getattr(os, name))))
        for name, kind in (("fsync", "fsync"), ("fdatasync", "fsync"), ("ftruncate", "truncate")):
            patches.enter_context(mock.patch.object(os, name, calls.described(kind, getattr(os, name))))
        for module, name in ((os, "open"), (io, "open")):
            patches.enter_context(mock.patch.object(module, name, calls.opening(getattr(module, name))))
        patches.enter_context(mock.patch.object(os, "pwrite", calls.writing(os.pwrite)))
        patches.enter_context(mock.patch.object(os, "write", calls.writing(os.write)))
        patches.enter_context(mock.patch.object(os, "copy_file_range", calls.copying(os.copy_file_range)))
        patches.enter_context(mock.patch.object(os, "sendfile", calls.sending(os.sendfile)))
        syncfs = SimpleNamespace(syncfs=calls.described("syncfs", write_back._LIBC.syncfs))
        patches.enter_context(mock.patch.object(write_back, "_LIBC", syncfs))
        for name in ("create", "write_entry"):
            patches.enter_context(mock.patch.object(DeltaLog, name, calls.writing_ledger(getattr(DeltaLog, name))))
        yield


class _Calls:
    """Makes the replacements, each of which asks the watcher before and tells it after."""

    def __init__(self, root: str, watcher: Watcher) -> None:
        self._root = root
        self._watcher = watcher
        self._one_at_a_time = threading.RLock()

    def named(self, kind: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, dir_fd: int | None = None, **options: Any) -> Any:
            where = {} if dir_fd is None else {"dir_fd": dir_fd}
            return self._make(Call(kind, _full(path, dir_fd)), lambda _: real(path, *args, **where, **options))

        return call

    def renaming(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(source: Any, target: Any, **options: Any) -> Any:
            return self._make(Call("rename", _full(target, None)), lambda _: real(source, target, **options))

        return call

    def described(self, kind: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(descriptor: int, *args: Any) -> Any:
            about = Call(kind, _opened(descriptor), descriptor=descriptor)
            return self._make(about, lambda _: real(descriptor, *args))

        return call

    def opening(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, mode: Any = "r", *args: Any, dir_fd: int | None = None, **options: Any) -> Any:
            if isinstance(path, int):
                return real(path, mode, *args, **options)
            creates = bool(mode & _WRITING) if isinstance(mode, int) else bool(set(mode) & set("wxa"))
            where = {} if dir_fd is None else {"dir_fd": dir_fd}
            about = Call("create" if creates else "open", _full(path, dir_fd))
            return self._make(about, lambda _: real(path, mode, *args, **where, **options))

        return call

    def writing(self, real: Callable[..., int]) -> Callable[..., int]:
        def call(descriptor: int, data: Any, *position: int) -> Any:
            view = memoryview(data).cast("B")
            about = Call("write", _opened(descriptor), len(view), descriptor)
            return self._make(about, lambda size: real(descriptor, view[:size], *position))

        return call

    def copying(self, real: Callable[..., int]) -> Callable[..., int]:
        def call(source: int, target: int, count: int, *positions: int) -> Any:
            about = Call("copy", _opened(target), count, target)
            return self._make(about, lambda size: real(source, target, size, *positions))

        return call

    def sending(self, real: Callable[..., int]) -> Callable[..., int]:
        def call(target: int, source: int, position: int, count: int) -> Any:
            about = Call("copy", _opened(target), count, target)
            return self._make(about, lambda size: real(target, source, position, size))

        return call

    def writing_ledger(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(log: DeltaLog, *args: Any, **options: Any) -> Any:
            return self._make(Call("ledger", str(log.path.absolute())), lambda _: real(log, *args, **options))

        return call

    def _make(self, call: Call, real: Callable[[int], Any]) -> Any:
        if not call.path.startswith(self._root):
            return real(call.size_bytes)
        with self._one_at_a_time:
            size_bytes = self._watcher.before(call)
            outcome = real(size_bytes)
            self._watcher.after(call)
            return outcome


def _full(path: Any, directory: int | None) -> str:
    text = os.fsdecode(path)
    if directory is not None:
        return f"{_opened(directory)}/{text}"
    return str(Path(text).absolute())


def _opened(descriptor: int) -> str:
    return Path(f"/proc/self/fd/{descriptor}").readlink().as_posix()
